"""Recovery of a journal that was lost or put back.

It reads the vault's reports and the trailers of branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from uuid import UUID

from placet.core.activity import Action
from placet.core.errors import UserError
from placet.core.life.adopt import adopt_outcome, distrust
from placet.core.life.sight import look_at, trace_of
from placet.core.text.names import QUEUES, Folder, is_request_id, show
from placet.core.text.note import parse_note
from placet.core.turn.mission import KeptOutcome
from placet.core.wording import counted, rfc3339
from placet.files.errors import Unreadable
from placet.files.vault import Vault
from placet.loop.casebook import Casebook
from placet.loop.rows import of_daemon
from placet.repo.repository import is_repository, open_repo
from placet.repo.traces import traced_work
from placet.repo.values import GitError


def has_past(vault: Vault) -> bool:
    """Return whether a daemon worked on this vault before: one of its notes has a trace_id."""
    for path in vault.scan([Folder.REPORTS, Folder.ARCHIVE, *QUEUES]).found:
        with suppress(Unreadable):
            if trace_of(vault.read(path)[0]):
                return True
    return False


def look_back(
    vault: Vault, repositories: Mapping[str, Path]
) -> tuple[list[KeptOutcome], list[str]]:
    """Return what missions came to, and what could not be read.

    There is one value for each trace of which a report or commits tell. `repositories` are paths by
    portal's name, "" for the vault's own. Of two reports on one trace the later one counts.
    """
    found: dict[str, KeptOutcome] = {}
    problems: list[str] = []
    for path in sorted(vault.scan([Folder.REPORTS]).found):
        try:
            outcome = _reported(path, vault.read(path)[0])
        except Unreadable as error:
            problems.append(f"{show(path)}: {error}")
            continue
        if outcome is not None and (
            outcome.trace_id not in found or found[outcome.trace_id].ended_at < outcome.ended_at
        ):
            found[outcome.trace_id] = outcome
    for portal, place in repositories.items():
        try:
            if not is_repository(place):
                continue
            repo = open_repo(place)
            for trace, (base, tip) in traced_work(repo).items():
                known = found.get(trace, KeptOutcome(trace))
                if not known.report_path or known.tip == tip:
                    found[trace] = replace(known, portal=portal, base=base, tip=tip)
        except (GitError, UserError) as error:
            problems.append(f"{place}: {error}")
    return list(found.values()), problems


def _reported(path: str, raw: bytes) -> KeptOutcome | None:
    """Return what a report says, None for a note that is none.

    Raises Unreadable for one that says no moment at which its mission ended.
    """
    meta, _ = parse_note(raw)
    completed = meta.get("status") == "completed"
    key = "completed_at" if completed else "failed_at"
    ended = meta.get(key)
    request = str(meta.get("request_id") or "")
    try:
        trace = str(UUID(str(meta.get("trace_id"))))
    except ValueError:
        return None
    if not is_request_id(request) or not isinstance(ended, date | str):
        return None
    try:
        at = ended if isinstance(ended, datetime) else datetime.fromisoformat(str(ended))
        moment = rfc3339(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise Unreadable(f"its `{key}` is no moment, so it was not taken up") from None
    return KeptOutcome(
        trace,
        request,
        path,
        moment,
        completed,
        str(meta.get("agent") or ""),
        str(meta.get("branch") or ""),
        "",
        "",
        str(meta.get("commit") or ""),
        str(meta.get("became") or ""),
        PurePosixPath(path).stem,
    )


def reconcile(book: Casebook, outcomes: Iterable[KeptOutcome], problems: Sequence[str]) -> None:
    """Bring the journal up to what `look_back` found, and say what was taken up again.

    An approval in System/Active of which the journal does not know counts as used up, and what it
    has not performed yet was meant for the notes of that day.
    """
    now = book.ports.clock.now
    book.outbox.forget()
    adopted: list[str] = []
    begun: list[str] = []
    for outcome in outcomes:
        case = book.cases.get(outcome.trace_id)
        decision = adopt_outcome(case, outcome, now())
        if decision is not None:
            book.record(decision)
            adopted.append(decision.case.request_id)
        elif not outcome.report_path and (case is None or not case.outcome.report_path):
            begun.append(case.request_id if case is not None else outcome.trace_id)
    vault = book.vault
    for path in sorted(vault.scan([Folder.ACTIVE]).found):
        with suppress(Unreadable):  # then it approves nothing
            note = look_at(path, vault.read(path)[0], vault.owner(path))
            case = book.cases.get(note.trace_id)
            if case is not None and (decision := distrust(case, note, now())) is not None:
                book.record(decision)
    facts = {"adopted": adopted, "begun": begun, "problems": list(problems)}
    book.ports.journal.commit([of_daemon(book.ports.clock, Action.JOURNAL_RECONCILED, **facts)])
    unreported = counted(len(begun), "branch", "branches")
    left = f" Commits of missions without a report are on {unreported}." if begun else ""
    book.say(
        "The journal is older than the vault: it was lost, or put back from a backup. "
        f"Taken up again from their reports: {counted(len(adopted), 'mission')}.{left} Plans that "
        "the journal does not know, or whose approval it does not know, await review."
    )
    for problem in problems:
        book.say(problem)
