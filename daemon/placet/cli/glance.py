"""The folders laid over the journal: what people did to notes that the daemon has not acknowledged yet, if it runs at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from placet.core.life.case import Case, Gesture, NoteSeen
from placet.core.life.case import EventKind as Did
from placet.core.life.observe import CaseNotes, look_at, observe, sort_notes
from placet.core.text.names import QUEUES, Folder, conflict_of
from placet.core.wording import rfc3339
from placet.files.errors import Unreadable
from placet.files.handles import EntryKind
from placet.files.scan import Found
from placet.files.vault import Vault

SLACK = timedelta(seconds=60)
"""Notes that changed so long before the journal's last event may not have been looked at: one settles first."""
MAX_READ = 500
"""Notes that a glance reads at most, the last changed first."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something a person did that the journal does not know.

    `at` is when, RFC 3339; empty for what left no trace of its time.
    """

    what: str
    follows: str
    at: str


@dataclass(frozen=True, slots=True)
class Glance:
    """The result of a glance: cases with today's paths, what is undecided of them by trace_id, and every path that was listed."""

    cases: Mapping[str, Case]
    undecided: Mapping[str, Undecided]
    listed: frozenset[str]


def glance(
    folder: Vault,
    cases: Mapping[str, Case],
    busy: Collection[str],
    tools: Collection[str],
    acknowledged: str,
) -> Glance:
    """Return what the folders show of `cases`, by trace_id. Only notes that may be news are read.

    `busy` are cases with commands that are not performed yet: their notes lie where nobody put
    them. `acknowledged` is the time of the journal's last event: what changed well before it, and
    lies where the journal has it, is as the journal has it.
    """
    scan = folder.scan(QUEUES)
    if not scan.present or scan.problems:
        return Glance(cases, {}, frozenset(scan.found))  # what cannot be listed is not gone
    listed = {
        path: found
        for path, found in scan.found.items()
        if found.kind is EntryKind.FILE
        and not found.oversized
        and conflict_of(path.rpartition("/")[2]) is None
    }
    owners = {
        path: case
        for case in cases.values()
        for path in (case.request_path, case.plan_path)
        if path in listed
    }
    since = (
        (datetime.fromisoformat(acknowledged) - SLACK).timestamp() * 1e9 if acknowledged else 0.0
    )
    news = {
        path
        for path, found in listed.items()
        if _changed_ns(found) >= since or (path not in owners and not _is_request(path))
    }
    moved = {
        case.trace_id
        for case in cases.values()
        if any(
            path and path not in listed and _is_watched(path)
            for path in (case.request_path, case.plan_path)
        )
    }
    notes: dict[str, NoteSeen] = {}
    for path in sorted(news, key=lambda path: -_changed_ns(listed[path]))[:MAX_READ]:
        _read(folder, path, notes)
    touched = (
        moved
        | {note.trace_id for note in notes.values()}
        | {owners[path].trace_id for path in notes if path in owners}
    )
    for path, case in owners.items():
        if case.trace_id in touched and path not in notes:
            _read(folder, path, notes)
    its = sort_notes(cases, [note for path, note in sorted(notes.items())]).of_case
    found = dict(cases)
    undecided: dict[str, Undecided] = {}
    for trace in (touched & cases.keys()) - set(busy):
        own = its.get(trace, CaseNotes())
        gesture = observe(cases[trace], own, tools)
        # that is the daemon's to mend: the plan waits
        if gesture is not None and gesture.kind is not Did.CALLOUT_STALE:
            undecided[trace] = _told(gesture, listed)
        found[trace] = replace(
            cases[trace],
            request_path=own.request.path if own.request is not None else cases[trace].request_path,
            plan_path=own.plans[0].path if len(own.plans) == 1 else cases[trace].plan_path,
        )
    return Glance(found, undecided, frozenset(scan.found))


def _read(folder: Vault, path: str, notes: dict[str, NoteSeen]) -> None:
    try:
        notes[path] = look_at(path, folder.read(path)[0], folder.owner(path))
    except Unreadable:
        return  # what cannot be read says nothing


def _changed_ns(found: Found) -> int:
    # A move leaves the time of the last change of a file's text as it was, and sets the other one.
    return max(found.fingerprint.mtime_ns, found.fingerprint.ctime_ns)


def _is_request(path: str) -> bool:
    return path.startswith(f"{Folder.REQUESTS}/")


def _is_watched(path: str) -> bool:
    return any(path.startswith(f"{queue}/") for queue in QUEUES)


def _told(gesture: Gesture, listed: Mapping[str, Found]) -> Undecided:
    what, follows = _WORDS.get(gesture.kind, ("its notes were changed", "that is looked at"))
    note = gesture.note
    if gesture.kind is Did.STOP_ASKED:
        what = gesture.why
    elif gesture.kind is Did.APPROVAL_REFUSED:
        follows = f"it is put back: {gesture.why}"
    at = ""
    if note is not None and note.path in listed:
        at = rfc3339(datetime.fromtimestamp(_changed_ns(listed[note.path]) / 1e9, UTC))
    return Undecided(what, follows, at)


_WORDS: Mapping[Did, tuple[str, str]] = {
    Did.REQUEST_EDITED: ("its request was edited", "it is planned anew"),
    Did.REQUEST_PENDING: ("a new plan was asked for", "one is written"),
    Did.REQUEST_RETURNED: ("its request was put back", "it is planned"),
    Did.REQUEST_GONE: ("its request was taken away", "it is withdrawn"),
    Did.PLAN_APPROVED: ("its plan was moved to System/Active", "it is approved, and carried out"),
    Did.APPROVAL_REFUSED: ("its plan was moved to System/Active", "it is put back"),
    Did.PLAN_REJECTED: ("its plan was rejected", "that is recorded"),
    Did.REJECTION_EXPLAINED: ("a reason for its rejection was written", "that is recorded"),
    Did.REVISION_ASKED: ("changes of its plan were asked for", "a new revision is written"),
    Did.PLAN_TAKEN_BACK: ("its plan was moved back to Inbox/Plans", "it waits for your decision"),
    Did.PLAN_MISPLACED: ("its plan was moved to Inbox/Requests", "it is moved back to Inbox/Plans"),
    Did.PLAN_EDITED: ("its plan was edited", "the revision is begun anew from that"),
    Did.PLAN_GONE: ("its plan was taken away", "it is withdrawn"),
    Did.ACTIVE_EDITED: (
        "its approved plan was edited",
        "the approval is void, or, once it runs, the edit has no effect",
    ),
    Did.STOP_ASKED: ("it was stopped", "its mission ends, with a report"),
}
