"""Explain a case's state, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from placet.activity import Action, CommittedRow
from placet.case.case import Case
from placet.case.continued_request import continued_request
from placet.case.explain import Explained, advice, explain_state, of_last_mission, what_happened
from placet.case.life_cycle import DRAFTING, OVER, State
from placet.case.notes import DRAFT, body_of, inspect_note
from placet.case.sorting import text_back
from placet.case.waiting import WaitReason
from placet.client.cases import (
    AT_WORK,
    Asked,
    asked_of,
    carrier,
    count_changed,
    disk_trouble,
    has_begun,
    last_moment,
    needs_of,
    waits_for_model,
)
from placet.client.notes import text_of
from placet.client.site import Site, find
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import ENDS, End, FailureClass, UserError
from placet.host.answering import answer_under_way
from placet.host.intents import waiting_in
from placet.host.plugins import WORKERS, plugin
from placet.journal.database import is_begun
from placet.journal.reader import Reader
from placet.note.frontmatter import read_note
from placet.note.paths import QUEUES, Folder, request_id
from placet.note.paths import show as visible
from placet.plan.parse import parse_plan
from placet.wording import counted


@dataclass(frozen=True, slots=True)
class FailedMission:
    """A mission that failed, as its report shows it."""

    class_: str
    end: str
    iterations: int
    meaning: str
    cost_usd: float | None
    kept: str
    """The ref that keeps its work; empty for none, as `kept_commit`."""
    kept_commit: str
    files: tuple[str, ...]
    request: str
    """A request that continues from where it broke."""


@dataclass(frozen=True, slots=True)
class Reasons:
    """Sentences that say why, the next steps, and a failed mission."""

    why: list[str]
    next: Sequence[str]
    mission: FailedMission | None = None


@dataclass(frozen=True, slots=True)
class WhySo:
    """Why a case is where it is, or a note that is not a case yet. `next` are the next steps."""

    request_id: str
    state: str
    why: tuple[str, ...]
    next: tuple[str, ...]
    trace_id: str = ""
    report: str = ""
    mission: FailedMission | None = None


def request_after_failure(site: Site, found: WhySo) -> str:
    """Return a request that continues the last mission that broke, also of a case since decided."""
    mission = found.mission
    if mission is None and found.trace_id:
        with site.reader(found.trace_id) as reader:
            case = find(reader, found.trace_id)
            rows = reader.activity(case.trace_id, limit=10_000, newest=True)
            failed = failed_mission(reader, case, of_last_mission(rows))
            mission = None if failed is None else failed.mission
    if mission is None:
        ident = found.request_id
        raise UserError(f"No mission of {ident} broke.", f"See: placet why {ident}")
    return mission.request


def failed_mission(reader: Reader, case: Case, rows: Sequence[CommittedRow]) -> Reasons | None:
    """Return a mission as its Failure Report shows it, made of the same rows; None without them."""
    facts = next(
        (row.details for row in reversed(rows) if row.action_type == Action.EXECUTION_FAILED), None
    )
    if facts is None:
        return None
    end = End(facts["reason"])
    text = reader.text(facts["digest"])
    assert text is not None, "an approved plan is stored"
    plan = parse_plan(read_note(text).body, None)
    found = ENDS[end]
    first, *rest = what_happened(facts, plan, rows)
    mission = FailedMission(
        class_=found.kind.value,
        end=end.value,
        iterations=facts["iterations"],
        meaning=found.meaning,
        cost_usd=facts["cost_usd"],
        kept=facts.get("kept", ""),
        kept_commit=facts.get("kept_commit", ""),
        files=tuple(facts.get("files_changed", ())),
        request=continued_request(case, plan, facts, case.outcome.detail, rows),
    )
    following = (
        advice(end, rows, facts.get("error_type", "")),
        f"Read the report: {visible(case.outcome.report_path)}",
        f"For a new plan: placet retry {case.request_id}, or set `status: pending` in "
        f"{visible(case.request_path) or 'the request'}. It will take the report into account.",
        f"A request that starts from where it broke: placet why {case.request_id} --request",
    )
    # of a limit, `first` says the same as the failure
    told = case.outcome.detail if found.kind is FailureClass.LIMIT else case.outcome.failure
    return Reasons([first, told, *rest], following, mission)


IS_DRAFT = "it says `status: draft`"
READY = "To have it planned, remove that line or write `status: pending`."


def why(site: Site, ident: str) -> WhySo:
    """Return why a case is where it is and what to do next.

    Of a failed mission it has all that its report shows. A note that is not a case because it
    cannot be used is found by the id it would have. Raises UserError as `find` does.
    """
    if not is_begun(site.state.journal) and (new := _unread(site, ident)):
        return new
    with site.reader(ident) as reader:
        explained = {row.path: f"{row.path}: {row.detail}" for row in reader.seen() if row.verdict}
        try:
            case = find(reader, ident)
        except UserError:
            if unusable := _named(explained, ident):
                return _not_yet(
                    "unusable",
                    unusable,
                    ident,
                    [explained[path] for path in unusable],
                    "Fix the note. The daemon then reads it again.",
                )
            if new := _unread(site, ident):
                return new
            raise
        its = set(map(visible, (*case.places, case.outcome.report_path)))
        notices = [sentence for path, sentence in explained.items() if path in its]
        notices += disk_trouble(site.state.journal)
        notices += [
            f"Waits to be done: {command.error}"
            for command in reader.pending_commands()
            if command.error and command.trace_id == case.trace_id
        ]
        found = _reasons(site, reader, case, notices)
        reasons, following = found.why, found.next
        if case.outcome.receipt and case.state in OVER:
            reasons = [*reasons, f"Its receipt: {case.outcome.receipt}"]
        intents = waiting_in(site.state.intents)
        if waiting := [one for one in intents if one.trace_id == case.trace_id]:
            reasons = [f"`placet {waiting[-1].what}` waits for the daemon.", *reasons]
            following = ("The daemon does it when it runs: placet run",)
        if site.daemon is None:
            reasons += _changed(site, reader, case)
        elif answer := answer_under_way(site.state.journal.parent, case.trace_id):
            reasons = [*reasons, f"The model: {answer}."]
    return WhySo(
        case.request_id,
        case.state.value,
        tuple(reasons),
        tuple(following),
        case.trace_id,
        case.outcome.report_path,
        found.mission,
    )


def _reasons(site: Site, reader: Reader, case: Case, notices: list[str]) -> Reasons:
    rows = reader.activity(case.trace_id, limit=10_000, newest=True)
    config = site.configured()
    runs = site.daemon is not None
    with Vault(site.vault) as folder:
        is_draft = case.acting in DRAFTING and _is_draft(folder, case.request_path)
        asked = asked_of(folder, reader, case)
        needs = needs_of(site, folder, reader, case)
        plan = text_of(folder, case.plan.path) if case.state is State.REVIEW else None
    if case.state is State.FAILED and case.outcome.report_path:
        failed = failed_mission(reader, case, of_last_mission(rows))
        if failed is not None:
            return replace(failed, why=[*failed.why, *notices])
        no_details = "Its mission failed. The journal no longer has the details."
        return Reasons(
            [no_details, *notices],
            (
                f"Read the report: {visible(case.outcome.report_path)}",
                f"Set `status: pending` in {visible(case.request_path) or 'the request'} for "
                "a new plan.",
            ),
        )
    if case.state is State.COMPLETED and case.branch is not None:
        from placet.client.branches import became_now  # git is asked for nothing else

        case = case.with_branch(case.branch, became=became_now(site, case))
    found = carrier(site, reader, case)
    carried = found is not None and found.state == AT_WORK
    reason, helps = explain_state(
        case, rows, daemon_runs=runs or carried, paused=config.daemon.paused and not carried
    )
    is_new = runs and case.acting is State.PLANNING and not config.daemon.paused
    if is_new and not has_begun(reader, case):
        quiet_s = config.vault.quiet_s
        reason = f"placet plans it once the note has stayed unchanged for {quiet_s:g} s."
    working = case.is_working and case.acting is not State.RUNNING
    if working and needs:
        reason, helps = f"It waits for you: {needs}", () if runs else helps
    elif not config.daemon.paused and notices and working:
        reason = f"Since {case.since} it is {case.state.title}. What blocks it, or was noticed:"
        follow = "Do what it says; the work then resumes. Follow it: placet journal --follow"
        helps = (follow,) if runs else helps
    if found is not None:
        with_worker = plugin(WORKERS, "status").with_worker
        reason, helps = with_worker(reader, found, case, (reason, helps), runs=runs)
    if is_draft and not config.daemon.paused:
        reason, helps = f"{visible(case.request_path)}: {IS_DRAFT}.", (READY,)
    if case.state is State.REVIEW:
        reason, helps = _with_plan(case, plan, (reason, helps))
    reasons = [reason, *_asks(asked)]
    reasons += [needs] if needs and not working else []
    if case.is_working and (waits := waits_for_model(reader)) is not None:
        held = f"Since {waits.since} all work waits for the model: {waits.notice}"
        reasons = [held] if runs and case.acting is not State.RUNNING else [reason, held]
        if not runs and waits.why is WaitReason.BLOCKED:
            helps = ("Fix that first.", *helps)
    # the side note may say the same
    reasons += [notice for notice in notices if reason.rstrip(".") not in notice]
    return Reasons(reasons, helps)


def _with_plan(case: Case, plan: bytes | None, explained: Explained) -> Explained:
    """Return the explanation of a plan in review; other advice if its text is missing or wrong."""
    reason, helps = explained
    restore = f"{text_back(case.request_id)}."
    if plan is None:
        moved = "If you moved it, wait until the daemon has read it."
        return f"{reason}\nThat file is missing.", (moved, restore)
    if not body_of(plan).strip():
        return reason, (restore,)
    if inspect_note(case.plan.path, plan).problem:
        fix = f"Fix {visible(case.plan.path)}. Then decide: placet show {case.request_id}"
        return reason, (fix,)
    return reason, helps


def _changed(site: Site, reader: Reader, case: Case) -> list[str]:
    """Return the sentence about a case's notes that changed while no daemon ran, if any did."""
    with Vault(site.vault) as folder:
        scan = folder.scan(QUEUES)
    places = [path for path in case.places if path.startswith(QUEUES)]
    there = [scan.found[path] for path in places if path in scan.found]
    changed = count_changed(there, last_moment(reader))
    if scan.present and not scan.problems:  # what cannot be listed is not gone
        changed += len(places) - len(there)
    notes = counted(changed, "note of this request", "notes of this request")
    return [f"{notes} changed since the daemon last ran. Start it: placet run"] if changed else []


def _asks(asked: Asked | None) -> list[str]:
    if asked is None or not asked.question:
        return []
    return [f"It asks{'' if asked.kind == 'question' else ' for'}: {asked.question}"]


def _is_draft(folder: Vault, path: str) -> bool:
    with suppress(Unreadable):
        raw = text_of(folder, path) if path else None
        return raw is not None and inspect_note(path, raw).status == DRAFT
    return False


def _unread(site: Site, ident: str) -> WhySo | None:
    """Return why a request in the vault is not a case yet; None where none would get such an ID."""
    with Vault(site.vault) as folder:
        paths = _named(sorted(folder.scan([Folder.REQUESTS]).found), ident)
        are_drafts = bool(paths) and all(_is_draft(folder, path) for path in paths)
    if not paths:
        return None
    if are_drafts:
        return _not_yet("draft", paths, ident, [f"{visible(p)}: {IS_DRAFT}." for p in paths], READY)
    lines = [f"{visible(path)}: the daemon has not read it yet." for path in paths]
    return _not_yet("new", paths, ident, lines, *([] if site.daemon else ["Start it: placet run"]))


def _named(paths: Iterable[str], ident: str) -> list[str]:
    """Return the notes whose requests would get an ID that begins so; an empty one names none."""
    return [path for path in paths if ident and _id_of(path).startswith(ident)]


def _id_of(path: str) -> str:
    return request_id(PurePosixPath(path).name)


def _not_yet(
    state: str, paths: Sequence[str], ident: str, reasons: list[str], *follows: str
) -> WhySo:
    named = _id_of(paths[0]) if len(paths) == 1 else ident
    return WhySo(named, state, tuple(reasons), follows)
