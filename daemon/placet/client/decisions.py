"""Leave a person's decisions for the daemon, and wait for its answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from shlex import join

from placet.case.approval import refusal
from placet.case.callout import box_is_current, box_of, new_branch, with_box
from placet.case.case import Case, NoteSeen
from placet.case.intents import Intent, OutdatedError, What, change_of
from placet.case.life_cycle import State
from placet.case.notes import body_of, digest_of, inspect_note, trace_of
from placet.case.question_note import shown_digest
from placet.case.sorting import CaseNotes
from placet.case.warnings import missing_keys
from placet.client.cases import as_float, shown_again, waits_for_model
from placet.client.notes import asks_for_more, note_of_plan, note_text
from placet.client.signing import signature_for
from placet.client.site import ANSWER_S, Site
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.host import intents
from placet.host.clock import Clock
from placet.host.config import Config
from placet.journal.reader import open_reader
from placet.note.frontmatter import read_note
from placet.note.paths import Folder, request_id
from placet.note.paths import show as visible
from placet.plan.comments import comments, open_comments, placed, uncommented, with_comments
from placet.plan.dangers import dangers
from placet.plan.left_out import left_out
from placet.plan.plan import Plan
from placet.wording import local


def to_retry(site: Site, ident: str) -> tuple[Case, str]:
    """Return a case that is over, or in review after a mission, and the path of its request.

    Raises UserError for any other, and where the request was taken away.
    """
    case = site.case(ident)
    helps = f"See why it is where it is: placet why {case.request_id}"
    if case.state is State.REVIEW:
        helps = f"Ask for changes: placet revise {case.request_id} --comment C"
    must_allow(case, "retry", helps)
    path = case.request_path
    if case.state is State.COMPLETED:
        with Vault(site.vault) as folder:
            path = _in_archive(folder, case)
    if path:
        return case, path
    raise UserError(
        f"The request of {case.request_id} was taken away.",
        f"Read it, then drop it again with placet submit: placet show {case.request_id}",
        exit_code=3,
    )


def _in_archive(folder: Vault, case: Case) -> str:
    """Return the path of an executed request; empty if it is not in the archive."""
    names = sorted(
        folder.scan([Folder.ARCHIVE]).found,
        key=lambda path: request_id(PurePosixPath(path).name) != case.request_id,
    )
    for path in names:
        try:
            raw, _ = folder.read(path)
        except Unreadable:
            continue
        if trace_of(raw) == case.trace_id and "revision" not in read_note(raw).meta:
            return path
    return ""


def approvable(case: Case, raw: bytes) -> NoteSeen:
    """Return a plan as it was read; raises UserError where the daemon would refuse it, and why."""
    from placet.tools.registry import PLANNABLE

    note = shown = inspect_note(case.plan.path, raw)
    what = box_of(case)
    if not box_is_current(raw, what):  # the daemon writes it before it performs an intent
        shown = inspect_note(case.plan.path, with_box(raw, what))
    wrong = note.problem or missing_keys(case, note)
    if why := wrong or refusal(case, shown, "approve", PLANNABLE):
        raise UserError(
            f"{case.plan.path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


@dataclass(frozen=True, slots=True)
class Proposal:
    """What an approval of a plan allows."""

    request_id: str
    title: str
    digest: str
    """It binds the text."""
    edited: bool
    """A person changed the text that placet wrote."""
    portal: str
    repository: str
    """The path of the repository; empty where the portal does not exist."""
    branch: str
    base: str
    steps: tuple[str, ...]
    steps_left_out: tuple[int, ...]
    left_out: str
    write: tuple[str, ...]
    run: tuple[str, ...]
    network: bool
    hosts: tuple[str, ...]
    shell: bool
    budget_usd: float | None
    day_usd: float | None
    """The limit of a day's work; None for none."""
    dangers: tuple[str, ...]
    comments: tuple[str, ...]
    waits: str
    """Why the mission would not start at once; empty if nothing is in its way."""


def _waits(site: Site, case: Case, plan: Plan, config: Config) -> str:
    """Return what an approved plan would wait for, with the command that helps."""
    if config.daemon.paused:
        return "Work is paused. It starts after: placet resume"
    if all(step.actions for _, step in plan.kept):
        return ""  # it needs no model
    if again := shown_again(site, case):
        return again
    with site.reader(case.trace_id) as reader:
        held = waits_for_model(reader)
    return "" if held is None else held.notice


def proposal(site: Site, case: Case, raw: bytes) -> Proposal:
    """Return what `approve` would approve of a plan's text.

    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.agent.prompts import plan_of
    from placet.host.config import portal_path

    note, plan = approvable(case, raw), plan_of(raw)
    config = site.in_force().config
    portal = str(note.meta.get("portal") or "")
    is_known = not portal or portal in config.portals
    scope = plan.scope
    return Proposal(
        request_id=case.request_id,
        title=plan.title,
        digest=note.digest,
        edited=note.digest != case.plan.digest,
        portal=portal,
        repository=str(portal_path(site.vault, config, portal)) if is_known else "",
        branch=new_branch(case),
        base=case.plan.base_branch or str(note.meta.get("base_commit") or "")[:12],
        steps=tuple(step.title for step in plan.steps),
        steps_left_out=tuple(plan.left_out),
        left_out=left_out(plan),
        write=tuple(scope.write),
        run=tuple(join(argv) for argv in scope.run),
        network=scope.network,
        hosts=tuple(map(str, scope.hosts)),
        shell=scope.shell,
        budget_usd=as_float(scope.budget_usd),
        day_usd=as_float(config.limits.day_usd) or None,
        dangers=tuple(dangers(scope)),
        comments=tuple(placed(one) for one in open_comments(read_note(raw).body)),
        waits=_waits(site, case, plan, config),
    )


class NotAsRead(UserError):  # noqa: N818 - named for what happened, as Gone is
    """A note has another text than the person read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed since you read it.", "Read it again.")


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a decision: the path of its note, and whether the daemon has performed it."""

    path: str
    is_pending: bool = False
    digest: str = ""
    """Of a plan that got a comment or a tick: the digest of the text with that change alone."""

    @property
    def state(self) -> str:
        """The state, as `--json` has it."""
        return "pending" if self.is_pending else "done"


def decide(
    site: Site,
    case: Case,
    what: What,
    texts: Sequence[str] = (),
    *,
    source: str = "",
    bound: str = "",
    seen: bytes | None = None,
    signature: str = "",
) -> Done:
    """Leave a decision, and wait for the daemon's answer.

    It is about the note `source`: by default the one in which the case asks, if that is what `what`
    can answer, else the plan. `texts` are the reason, the answer, comments, or numbers of steps; a
    plan, or a wider scope, is approved only if its digest begins with `bound`. `seen` is the text
    as the person read it, None for whatever is there now. `signature` is an approval's; at the
    terminal it is made here, where approvals are signed. Raises NotAsRead where the note has
    another text, and UserError where the daemon would refuse it.
    """
    asking = case.asking
    is_wider = asks_for_more(case) and what in ("approve", "reject")
    if asking is not None and (what == "answer" or is_wider):
        source = asking.path
    path = source or case.plan.path
    # the next decision is about what the daemon writes
    if what in ("comment", "tick") and site.daemon is None:
        raise UserError(
            "The daemon is not running, so it cannot change the plan.",
            "Start it: placet run. Or change the note yourself.",
        )
    raw = note_text(site, case, path)
    if seen is not None and digest_of(path, raw) != digest_of(path, seen):
        raise NotAsRead(path)
    if what == "approve":
        digest = shown_digest(raw) if is_wider else approvable(case, raw).digest
        if not digest.startswith(bound):
            raise UserError(
                f"{visible(path)} is not what you read: its digest is {digest[:12]}, not "
                f"{bound[:12]}.",
                f"It was changed. Read it as it is now: placet show {case.request_id}",
            )
        if not signature and site.via == "cli":
            signature = signature_for(site, case, digest, texts)
        if texts:  # remarks are part of the approved text, and may make it too long
            approvable(case, with_comments(raw, texts, site.who, local(Clock().now())))
    return _leave(site, case, what, path, raw, texts, signature)


def claim(site: Site, case: Case, what: What, commit: str) -> None:
    """Say who merged, undid or dropped a mission's work, by a commit; that has been done."""
    with suppress(UserError):  # then the user is unknown
        intents.leave(site.state.intents, _intent(site, case, what, "", commit, ()))


def _intent(
    site: Site,
    case: Case,
    what: What,
    path: str,
    digest: str,
    texts: Sequence[str],
    signature: str = "",
) -> Intent:
    state, name = case.state.value, site.who if site.via == "board" else ""
    return Intent(
        intents.new_id(),
        what,
        case.trace_id,
        path,
        digest,
        state,
        case.generation,
        tuple(texts),
        site.via,
        name,
        site.who,
        signature,
    )


def _leave(
    site: Site,
    case: Case,
    what: What,
    path: str,
    raw: bytes,
    texts: Sequence[str] = (),
    signature: str = "",
) -> Done:
    """Leave an intent about a note with this text, and wait for the daemon's answer.

    Raises UserError where the daemon refuses it, now or by what the note says.
    """
    home = path
    if path.startswith(f"{Folder.ARCHIVE}/"):  # the daemon moves it there first
        home = f"{Folder.REQUESTS}/{PurePosixPath(path).name}"
    note = inspect_note(home, raw)
    intent = _intent(site, case, what, path, note.digest, texts, signature)
    its = CaseNotes(plans=[note])
    if what == "retry":
        its = CaseNotes(request=note)
    elif case.asking is not None and path == case.asking.path:
        its = CaseNotes(asked=[note])
    try:
        change = change_of(case, replace(intent, path=home), its, local(Clock().now()))
    except OutdatedError as error:
        raise _refused(case, str(error)) from error
    intents.leave(site.state.intents, intent)
    refused = _answer_to(site, intent) if site.daemon is not None else None
    if refused is None:
        return Done(path, is_pending=True)
    if refused:
        raise _refused(case, refused)
    if what in ("comment", "tick"):  # only a plan whose box says what its text allows is approved
        for _ in site.changes(ANSWER_S):
            written = note_of_plan(site, case)
            if box_is_current(written, box_of(case)):
                break
        (wanted,) = change.notes.plans
        is_alone = _without_times(written) == _without_times(wanted.raw)
        return Done(path, digest=digest_of(path, written) if is_alone else wanted.digest)
    now = site.case(case.trace_id)
    if what == "retry":
        return Done(now.request_path)
    return Done(now.plan.path if path == case.plan.path else path)


def _without_times(raw: bytes) -> tuple[object, ...]:
    """Return what a plan's note says, but when its comments were written."""
    body = body_of(raw)
    return read_note(raw).meta, uncommented(body), [one.text for one in comments(body)]


def _answer_to(site: Site, intent: Intent) -> str | None:
    """Return why the daemon refused an intent, empty if it performed it; None without an answer.

    What follows from it is written by then, as far as that takes no longer than ANSWER_S.
    """
    refused: str | None = None
    for _ in site.changes(ANSWER_S):
        with open_reader(site.state.journal) as reader:
            refused = reader.answers([intent.id]).get(intent.id)
            writes = any(one.trace_id == intent.trace_id for one in reader.pending_commands())
        if refused or (refused is not None and not writes):
            break
    return refused


def _refused(case: Case, why: str) -> UserError:
    return UserError(why, f"See how it is now: placet show {case.request_id}")


def must_allow(case: Case, decision: What, helps: str = "") -> None:
    """Raise UserError (exit code 3) for a case that does not allow a decision; `helps` with it."""
    if why := refusal(case, None, decision):
        raise UserError(why, helps or f"Look at it: placet show {case.request_id}", exit_code=3)


def awaiting(site: Site, ident: str, decision: What) -> Case:
    """Return a case whose plan, or wider scope, can be approved or rejected.

    Raises UserError (exit code 3) for any other.
    """
    case = site.case(ident)
    helps = f"See why: placet why {case.request_id}"
    if case.asking is not None:
        helps = f"Answer it: placet answer {case.request_id} TEXT"
    elif case.acting in (State.APPROVED, State.RUNNING) and decision == "reject":
        helps = f"Stop it first: placet stop {case.request_id}"
    must_allow(case, decision, helps)
    return case


def must_say_something(what: str, texts: Sequence[str], helps: str, example: str) -> None:
    """Raise UserError for an empty text of the option `what`; `helps` with an `example`."""
    if not all(one.strip() for one in texts):
        raise UserError(f"The {what} is empty.", f"{helps}: --{what} '{example}'", exit_code=2)


NOT_ANSWERED = "Saved. The daemon has not answered yet."


def saved(site: Site, what: str, then: str = "it takes effect") -> str:
    """Return the sentence for a decision that the daemon has not performed yet.

    `what` was decided, and `then` is what follows from it.
    """
    if site.daemon is not None:
        return NOT_ANSWERED
    follows = then if then.startswith("placet ") else f"{then[0].upper()}{then[1:]}"
    return f"{what.capitalize()}. {follows} when the daemon runs: placet run"
