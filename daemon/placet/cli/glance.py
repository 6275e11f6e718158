"""The folders laid over the journal: what people did that no daemon took up yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from placet.cli.site import Site
from placet.core.activity import Action
from placet.core.life.case import Case, NoteSeen, State
from placet.core.life.case import EventKind as Did
from placet.core.life.events import Gesture
from placet.core.life.observe import observe
from placet.core.life.sight import DRAFT, look_at
from placet.core.life.sorting import CaseNotes, sort_notes
from placet.core.text.names import QUEUES, Folder, conflict_of
from placet.core.wording import rfc3339
from placet.files.errors import Unreadable
from placet.files.handles import EntryKind
from placet.files.scan import Found
from placet.files.vault import Vault
from placet.host.clock import Clock
from placet.journal.reader import Reader, open_reader

SLACK = timedelta(seconds=60)
"""Notes that changed up to so long before the journal's last event are read: one settles first."""
MAX_READ = 500
"""Maximum of notes that a glance reads, the last changed first."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something a person did that the journal does not know, and what follows from it.

    `at` is when, RFC 3339; empty for what left no trace of its time.
    """

    what: str
    follows: str
    at: str

    @property
    def sentence(self) -> str:
        """The act and its time, without a full stop."""
        at = f" at {self.at}" if self.at else ""
        return f"{self.what[:1].upper()}{self.what[1:]}{at}, which was not taken up yet"


@dataclass(frozen=True, slots=True)
class Glance:
    """The result of a glance: cases with the paths of today, and what is undecided, by trace_id.

    `listed` is every path in the watched folders.
    """

    cases: Mapping[str, Case]
    undecided: Mapping[str, Undecided]
    listed: frozenset[str]


def glance(site: Site, folder: Vault, reader: Reader, cases: Sequence[Case]) -> Glance:
    """Return what the folders show of `cases`. Only notes that may be news are read.

    What changed well before the journal's last event, and is where the journal has it, is no news.
    """
    known = {case.trace_id: case for case in cases}
    newest = reader.activity(limit=1, newest=True)
    busy = {command.trace_id for command in reader.pending_commands()}
    scan = folder.scan(QUEUES)
    if not scan.present or scan.problems:
        return Glance(known, {}, frozenset(scan.found))  # what cannot be listed is not gone
    listed = {
        path: found
        for path, found in scan.found.items()
        if found.kind is EntryKind.FILE
        and not found.oversized
        and conflict_of(path.rpartition("/")[2]) is None
    }
    notes, touched = _news(folder, known, listed, newest[0].timestamp if newest else "")
    its = sort_notes(known, [note for path, note in sorted(notes.items())]).of_case
    is_approving = any(path.startswith(f"{Folder.ACTIVE}/") for path in notes)
    tools = _plannable() if is_approving else frozenset()
    found, undecided = dict(known), {}
    # a case with commands that are not performed yet has its notes where nobody put them
    for trace in (touched & known.keys()) - busy:
        case, own = known[trace], its.get(trace, CaseNotes())
        gesture = observe(case, own, tools)
        # a stale callout is the daemon's to write: the plan waits
        if gesture is not None and gesture.kind is not Did.CALLOUT_STALE:
            undecided[trace] = _told(gesture, listed)
        found[trace] = replace(
            case,
            request_path=own.request.path if own.request is not None else case.request_path,
            plan_path=own.plans[0].path if len(own.plans) == 1 else case.plan_path,
        )
    if undecided:  # what the daemon did meanwhile, nobody else did
        after = newest[0].id if newest else 0
        with open_reader(site.state.journal) as later:
            undecided = {
                trace: what
                for trace, what in undecided.items()
                if not later.activity(trace, after_id=after, limit=1)
            }
    return Glance(found, undecided, frozenset(scan.found))


def _news(
    folder: Vault, cases: Mapping[str, Case], listed: Mapping[str, Found], acknowledged: str
) -> tuple[dict[str, NoteSeen], set[str]]:
    """Return the notes that are read, and the trace_ids of the cases that something happened to."""
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
        if _changed_ns(found) >= since
        or (path not in owners and not is_in([Folder.REQUESTS], path))
    }
    moved = {
        case.trace_id
        for case in cases.values()
        for path in (case.request_path, case.plan_path)
        if path not in listed and is_in(QUEUES, path)
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
    return notes, touched


def held_back(folder: Vault, reader: Reader, case: Case, quiet_s: float) -> str:
    """Return why a request that is still being written is not planned; empty for any other case."""
    if case.state not in (State.PLANNING, State.REVISING) or not case.request_path:
        return ""
    try:
        raw, mark = folder.read(case.request_path)
    except Unreadable:
        return ""
    note = look_at(case.request_path, raw, "")
    if note.status == DRAFT:
        return "it says `status: draft`; it is planned once that line goes, or says `pending`"
    asked = reader.last_of(Action.REQUEST_DETECTED, Action.REQUEST_EDITED, trace_id=case.trace_id)
    ready = asked is not None and (asked.details.get("ready") or asked.details.get("via") == "cli")
    if ready and note.digest == case.request_digest:
        return ""  # the person said that it is complete; only stamps were written since
    age_s = Clock().wall().timestamp() - mark.mtime_ns / 1e9
    if age_s >= quiet_s or any(True for _ in reader.records(case.trace_id, case.generation)):
        return ""
    return (
        "waits until you stop writing: it is planned once its note has stayed as it is for "
        f"{quiet_s:g} s ([vault] quiet_s)"
    )


def is_in(folders: Collection[str], path: str) -> bool:
    """Return whether a note is in one of these folders of the vault."""
    return any(path.startswith(f"{folder}/") for folder in folders)


def _plannable() -> frozenset[str]:
    from placet.agent.prompts import plannable  # the tools' modules take long to import

    return plannable()


def _read(folder: Vault, path: str, notes: dict[str, NoteSeen]) -> None:
    try:
        notes[path] = look_at(path, folder.read(path)[0], folder.owner(path))
    except Unreadable:
        return  # what cannot be read says nothing


def _changed_ns(found: Found) -> int:
    # A move keeps the time of the last change of a file's text, and sets the other one.
    return max(found.fingerprint.mtime_ns, found.fingerprint.ctime_ns)


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
    Did.REQUEST_EDITED: ("its request was edited", "it is planned again"),
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
    Did.PLAN_EDITED: ("its plan was edited", "the revision begins again from that"),
    Did.PLAN_GONE: ("its plan was taken away", "it is withdrawn"),
    Did.ACTIVE_EDITED: (
        "its approved plan was edited",
        "the approval is void, or, once it runs, the edit has no effect",
    ),
    Did.STOP_ASKED: ("it was stopped", "its mission ends, with a report"),
}
