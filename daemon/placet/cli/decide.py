"""Decide by command: approve, reject, answer, revise, retry, stop."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from shlex import join
from typing import Any

import click

from placet.case.approval import refusal
from placet.case.callout import box_is_current, box_of, new_branch, with_box
from placet.case.case import Case, NoteSeen
from placet.case.explain import state_sentence
from placet.case.intents import Intent, OutdatedError, What, change_of
from placet.case.life_cycle import State
from placet.case.notes import inspect_note, trace_of
from placet.case.question_note import shown_digest
from placet.case.sorting import CaseNotes
from placet.case.warnings import missing_keys
from placet.cli.site import Site, ident_argument, json_option, site_option
from placet.cli.terminal import colour, echo, out, say
from placet.cli.view import as_float, asks_for_more, note_text, wider_scope
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import UserError, local
from placet.host import intents
from placet.host.clock import Clock
from placet.journal.reader import open_reader
from placet.note.frontmatter import read_note
from placet.note.paths import Folder, request_id
from placet.note.paths import show as visible
from placet.plan.comments import open_comments, placed, with_comments
from placet.plan.dangers import dangers
from placet.plan.left_out import left_out


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
        key=lambda path: request_id(PurePosixPath(path).name, ()) != case.request_id,
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

    note = shown = inspect_note(case.plan.path, raw, "")
    what = box_of(case)
    if not box_is_current(raw, what):  # the daemon writes it before it performs an intent
        shown = inspect_note(case.plan.path, with_box(raw, what), "")
    if why := missing_keys(case, note) or refusal(case, shown, "approve", PLANNABLE):
        raise UserError(
            f"{case.plan.path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


def plan_text(site: Site, case: Case) -> bytes:
    """Return the text of a case's plan; raises UserError where it is gone."""
    return note_text(site, case, case.plan.path)


def proposal(site: Site, case: Case, raw: bytes) -> dict[str, Any]:
    """Return what `approve` would approve of a plan's text.

    That is the plan's title, where it works, what it may do, what stands out, and its digest.
    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.agent.prompts import plan_of
    from placet.host.config import portal_path

    note, plan = approvable(case, raw), plan_of(raw)
    config = site.in_force().config
    portal = str(note.meta.get("portal") or "")
    is_known = not portal or portal in config.portals
    scope = plan.scope
    return {
        "request_id": case.request_id,
        "title": plan.title,
        "digest": note.digest,
        "edited": note.digest != case.plan.digest,
        "portal": portal,
        "repository": str(portal_path(site.vault, config, portal)) if is_known else "",
        "branch": new_branch(case),
        "base": case.plan.base_branch or str(note.meta.get("base_commit") or "")[:12],
        "steps": [step.title for step in plan.steps],
        "steps_left_out": list(plan.left_out),
        "left_out": left_out(plan),
        "write": list(scope.write),
        "run": [join(argv) for argv in scope.run],
        "network": scope.network,
        "shell": scope.shell,
        "budget_usd": as_float(scope.budget_usd),
        "day_usd": as_float(config.limits.day_usd) or None,
        "dangers": dangers(scope),
        "risks": list(plan.risks),
        "comments": [placed(one) for one in open_comments(read_note(raw).body)],
    }


def proposal_text(found: Mapping[str, Any]) -> str:
    """Return a proposal for the person who is asked to approve it."""

    def listed(name: str, items: Sequence[str]) -> list[str]:
        return [
            f"{name if not number else '':<10}{visible(item)}"
            for number, item in enumerate(items or ["nothing"])
        ]

    day = f"${found['day_usd']:.2f} a day for all work" if found["day_usd"] else "no limit"
    budget = day if found["budget_usd"] is None else f"at most ${found['budget_usd']:.2f}"
    where = (
        visible(found["repository"]) or f"a portal that does not exist: {visible(found['portal'])}"
    )
    base = f", from {visible(found['base'])}" if found["base"] else ""
    lines = [
        colour(visible(found["title"]), "white", bold=True) + f"  ({visible(found['request_id'])})",
        f"where     {where}",
        f"branch    {visible(found['branch'])}{base}",
        *(
            f"{'step' if n == 1 else '':<10}{n}. {visible(title)}"
            f"{' (left out)' if n in found['steps_left_out'] else ''}"
            for n, title in enumerate(found["steps"], 1)
        ),
        *([f"left out  {visible(found['left_out'])}"] if found["left_out"] else []),
        *listed("write", found["write"]),
        *listed("run", found["run"]),
        f"network   {'yes' if found['network'] else 'no'}",
        f"shell     {'yes' if found['shell'] else 'no'}",
        f"cost      {budget}",
        *(listed("remarks", found["comments"]) if found["comments"] else []),
        *([f"edited    {colour('since placet wrote it', 'yellow')}"] if found["edited"] else []),
        *(
            f"{colour('danger', 'red', bold=True)}    {visible(sentence)}"
            for sentence in found["dangers"]
        ),
        f"digest    {found['digest'][:16]}",
    ]
    return "\n".join(lines)


ANSWER_S = 2.0
"""Seconds for which a command waits for the daemon's answer."""


class NotAsRead(UserError):  # noqa: N818 - named for what happened, as Gone is
    """A note has another text than the person read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was changed since you read it.", "Read it again.")


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a decision: the path of its note, and whether the daemon has performed it."""

    path: str
    is_pending: bool = False

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
) -> Done:
    """Leave a decision, and wait for the daemon's answer.

    It is about the note `source`: by default the one in which the case asks, if that is what `what`
    can answer, else the plan. `texts` are the reason, the answer, comments, or numbers of steps; a
    plan, or a wider scope, is approved only if its digest begins with `bound`. `seen` is the text
    as the person read it, None for whatever is there now. Raises NotAsRead where the note has
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
    if (
        seen is not None
        and inspect_note(path, raw, "").digest != inspect_note(path, seen, "").digest
    ):
        raise NotAsRead(path)
    if what == "approve":
        digest = shown_digest(raw) if is_wider else approvable(case, raw).digest
        if not digest.startswith(bound):
            raise UserError(
                f"{visible(path)} is not what you read: its digest is {digest[:12]}, not "
                f"{bound[:12]}.",
                f"It was changed. Read it as it is now: placet show {case.request_id}",
            )
        if texts:  # remarks are part of the approved text, and may make it too long
            approvable(case, with_comments(raw, texts, site.who, local(Clock().now())))
    return _leave(site, case, what, path, raw, texts)


def claim(site: Site, case: Case, what: What, commit: str) -> None:
    """Say who merged, undid or dropped a mission's work, by a commit; that has been done."""
    with suppress(UserError):  # then the user is unknown
        intents.leave(site.state.intents, _intent(site, case, what, "", commit, ()))


def _intent(
    site: Site, case: Case, what: What, path: str, digest: str, texts: Sequence[str]
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
    )


def _leave(
    site: Site, case: Case, what: What, path: str, raw: bytes, texts: Sequence[str] = ()
) -> Done:
    """Leave an intent about a note with this text, and wait for the daemon's answer.

    Raises UserError where the daemon refuses it, now or by what the note says.
    """
    home = path
    if path.startswith(f"{Folder.ARCHIVE}/"):  # the daemon moves it there first
        home = f"{Folder.REQUESTS}/{PurePosixPath(path).name}"
    note = inspect_note(home, raw, "")
    intent = _intent(site, case, what, path, note.digest, texts)
    its = CaseNotes(plans=[note])
    if what == "retry":
        its = CaseNotes(request=note)
    elif case.asking is not None and path == case.asking.path:
        its = CaseNotes(asked=[note])
    try:
        change_of(case, replace(intent, path=home), its, local(Clock().now()))
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
            if box_is_current(plan_text(site, case), box_of(case)):
                break
    now = site.case(case.trace_id)
    if what == "retry":
        return Done(now.request_path)
    return Done(now.plan.path if path == case.plan.path else path)


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


@click.command("approve")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--remark",
    "remarks",
    multiple=True,
    metavar="R",
    help="Guidance for the agent that widens nothing; it is written into the plan. Repeatable.",
)
@click.option(
    "--digest",
    "bound",
    metavar="D",
    default="",
    help="Only if the plan is what has this digest (`placet show` has it), or the "
    "beginning of one.",
)
@site_option
@json_option
def approve_command(
    site: Site, ident: str, yes: bool, remarks: Sequence[str], bound: str, as_json: bool
) -> None:
    """Approve a plan: the daemon moves it to System/Active and runs it.

    On a terminal it shows what that allows, and asks. Elsewhere it needs --yes.
    """
    must_say_something("remark", remarks, "Say what to mind", "keep it short")
    if bound and not re.fullmatch("[0-9a-f]{8,64}", bound):
        raise UserError(
            f"{bound!r} is no digest.",
            f"Give at least eight of its digits; they are in: placet show {ident}",
            exit_code=2,
        )
    case = awaiting(site, ident, "approve")
    asks = not yes
    if asks and not sys.stdin.isatty():
        raise UserError(
            "`placet approve` asks, and this is not a terminal.",
            f"To approve without being asked: placet approve {case.request_id} --yes",
            exit_code=2,
        )
    if asks_for_more(case) and remarks:
        raise UserError(
            "A wider scope is approved as it is, without a remark.",
            f"Or say what would do: placet reject {case.request_id} --reason R",
            exit_code=2,
        )
    seen, then = None, "the mission starts"
    if asks_for_more(case):
        then = "the mission continues with the wider scope"
    if asks and asks_for_more(case):  # what was shown is what is approved
        seen = _confirmed(ident, *wider_scope(site, case))
    elif asks:
        seen = plan_text(site, case)
        _confirmed(ident, proposal_text(proposal(site, case, seen)), seen)
    done = decide(site, case, "approve", remarks, bound=bound, seen=seen)
    _done(site, done, "approved", then, as_json=as_json)


def _confirmed(ident: str, shown: str, seen: bytes) -> bytes:
    """Show what would be approved and ask; return the text that was seen."""
    echo(shown, err=True)
    if not click.confirm("Approve it?", err=True):
        raise UserError(
            "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
        )
    return seen


@click.command("retry")
@ident_argument
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@site_option
@json_option
def retry_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for a new plan of a request that ended, in whatever way.

    Who writes it is told what went wrong, and your comments.
    """
    must_say_something("comment", comments, "Say what to do differently", "leave the tests alone")
    case, source = to_retry(site, ident)
    done = decide(site, case, "retry", comments, source=source)
    _done(site, done, "asked for a new plan", "placet writes it for your review", as_json=as_json)


@click.command("reject")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@site_option
@json_option
def reject_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Reject a plan: the daemon moves it to Inbox/Rejected, with the reason."""
    must_say_something("reason", [reason], "Say why", "it is too broad")
    case = awaiting(site, ident, "reject")
    is_wider = asks_for_more(case)
    then = "the mission continues without it" if is_wider else "the plan moves to Inbox/Rejected"
    _done(site, decide(site, case, "reject", [reason]), "rejected", then, as_json=as_json)


@click.command("answer")
@ident_argument
@click.argument("text", metavar="TEXT")
@site_option
@json_option
def answer_command(site: Site, ident: str, text: str, as_json: bool) -> None:
    """Answer what a request asks you: an option by its number or text, or your own words."""
    if not text.strip():
        raise UserError(
            "The answer is empty.", f"Read the question: placet show {ident}", exit_code=2
        )
    case = site.case(ident)
    if case.asking is None:
        raise UserError(
            f"{state_sentence(case)}, so nothing is asked.",
            f"See why: placet why {case.request_id}",
        )
    if case.asking.amended:
        raise UserError(
            f"{case.request_id} asks for a wider scope, which is approved or rejected: "
            f"{case.asking.path}",
            f"Read it, then: placet approve {case.request_id}, or: "
            f"placet reject {case.request_id} --reason R",
        )
    done = decide(site, case, "answer", [text.strip()])
    _done(site, done, "answered", "the work continues with that", as_json=as_json)


@click.command("revise")
@ident_argument
@click.option(
    "--comment",
    "comments",
    multiple=True,
    required=True,
    metavar="C",
    help="What to change; repeatable.",
)
@site_option
@json_option
def revise_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for changes in a plan: the agent answers your comments with a new revision."""
    must_say_something("comment", comments, "Say what to change", "leave the tests alone")
    case = site.case(ident)
    if asks_for_more(case):
        raise UserError(
            f"{case.request_id} asks for a wider scope, which is approved or rejected as it is.",
            "Reject it and say what would do; the mission can ask for less: "
            f"placet reject {case.request_id} --reason R",
        )
    must_allow(case, "revise")
    done = decide(site, case, "revise", comments)
    _done(site, done, "commented", "placet writes a new revision", as_json=as_json)


@click.command("stop")
@ident_argument
@site_option
@json_option
def stop_command(site: Site, ident: str, as_json: bool) -> None:
    """Stop a mission at the next safe point: its plan goes back to Inbox/Plans."""
    case = site.case(ident)
    must_allow(case, "stop")
    then = "at the next safe point its plan goes back to Inbox/Plans"
    _done(site, decide(site, case, "stop"), "stopping", then, as_json=as_json)


def _done(site: Site, done: Done, what: str, then: str, *, as_json: bool) -> None:
    """Print a decision, `what`, and what follows from it."""
    out(done.path, {"path": done.path, "state": done.state}, as_json=as_json)
    say(saved(site, what, then) if done.is_pending else f"{what}; {then}")
