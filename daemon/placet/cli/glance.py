"""The folders laid over the journal: what people did that no daemon took up yet."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from placet.cli.site import Site
from placet.cli.undecided import Undecided, changed_ns, undecided_of
from placet.core.life.case import CASE_JSON, Case, NoteSeen, State
from placet.core.life.gestures import BoxStale
from placet.core.life.intents import Intent
from placet.core.life.observe import observe
from placet.core.life.question_note import is_approved
from placet.core.life.sight import DRAFT, look_at
from placet.core.life.sorting import CaseNotes, sort_notes
from placet.core.text.names import QUEUES, Folder, conflict_of, show
from placet.files.errors import Gone, NotSettled, Unreadable
from placet.files.handles import EntryKind
from placet.files.scan import Found
from placet.files.vault import Vault
from placet.host.intents import waiting_in
from placet.journal.reader import Reader, open_reader
from placet.journal.writes import PendingCommand

SLACK = timedelta(seconds=60)
"""Notes that changed up to so long before the journal's last event are read: one settles first."""
MAX_READ = 500
"""Maximum of notes that a glance reads, the last changed first."""


@dataclass(frozen=True, slots=True)
class Glance:
    """The result of a glance: cases with the paths of today, and what is undecided, by trace_id.

    `listed` is every path in the watched folders. `rivals` has the paths of a case's plans where
    there are several, so that none of them counts. `explained` is what side notes say, by the path
    of the note that they are next to. `unwritten` are the trace_ids of cases whose daemon is about
    to write what waits for a person; `ahead` of those that went on since the reader's snapshot.
    `asked` are the intents that the daemon has not answered.
    """

    cases: Mapping[str, Case]
    undecided: Mapping[str, Undecided]
    listed: frozenset[str]
    rivals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    explained: Mapping[str, str] = field(default_factory=dict)
    unwritten: frozenset[str] = frozenset()
    ahead: frozenset[str] = frozenset()
    asked: Mapping[str, Intent] = field(default_factory=dict)


def glance(site: Site, folder: Vault, reader: Reader, cases: Sequence[Case]) -> Glance:
    """Return what the folders show of `cases`. Only notes that may be news are read.

    What changed well before the journal's last event, and is where the journal has it, is no news.
    A case that the daemon went on with since the reader's snapshot is as the journal has it by now.
    """
    known = {case.trace_id: case for case in cases}
    newest = reader.activity(limit=1, newest=True)
    pending = reader.pending_commands()
    busy = {command.trace_id for command in pending}
    told = {row.path: row.detail for row in reader.seen() if row.verdict}
    asked = {one.trace_id: one for one in waiting_in(site.state.intents)}
    scan = folder.scan(QUEUES)
    if not scan.present or scan.problems:
        # what cannot be listed is not gone
        return Glance(known, {}, frozenset(scan.found), explained=told, asked=asked)
    listed = {
        path: found
        for path, found in scan.found.items()
        if found.kind is EntryKind.FILE
        and not found.oversized
        and conflict_of(path.rpartition("/")[2]) is None
    }
    notes, touched = _news(folder, known, listed, told, newest[0].timestamp if newest else "")
    its = sort_notes(known, [note for path, note in sorted(notes.items())]).of_case
    tools = _plannable() if any(map(is_approved, notes.values())) else frozenset()
    found, undecided = dict(known), dict[str, Undecided]()
    rivals = {
        trace: tuple(sorted(note.path for note in own.plans))
        for trace, own in its.items()
        if len(own.plans) > 1
    }
    # a case with commands that are not performed yet has its notes where nobody put them
    for trace in (touched & known.keys()) - busy:
        case, own = known[trace], its.get(trace, CaseNotes())
        gesture = observe(case, own, tools)
        # a stale box is the daemon's to write: the plan waits
        if gesture is not None and not isinstance(gesture, BoxStale):
            undecided[trace] = undecided_of(gesture, listed)
        plan_path = own.plans[0].path if len(own.plans) == 1 else case.plan.path
        found[trace] = replace(
            case,
            request_path=own.request.path if own.request is not None else case.request_path,
            plan=replace(case.plan, path=plan_path),
            asking=case.asking
            and replace(
                case.asking,
                path=own.asked[0].path if len(own.asked) == 1 else case.asking.path,
            ),
        )
    ahead = dict[str, Case]()
    if undecided:  # what the daemon did meanwhile, nobody else did
        ahead, started = _went_on(site, known, undecided)
        undecided = {trace: one for trace, one in undecided.items() if trace not in ahead}
        pending += started
    found |= ahead
    at = frozenset(scan.found)
    unwritten = _unwritten(found.keys() - undecided.keys(), found, pending, at)
    return Glance(found, undecided, at, rivals, told, unwritten, frozenset(ahead), asked)


def _went_on(
    site: Site, known: Mapping[str, Case], traces: Collection[str]
) -> tuple[dict[str, Case], tuple[PendingCommand, ...]]:
    """Return those of these cases that are others by now, and what is pending by now."""
    with open_reader(site.state.journal) as later:
        now = {row.trace_id: CASE_JSON.validate_json(row.body) for row in later.cases_of(traces)}
        ahead = {trace: case for trace, case in now.items() if case != known[trace]}
        return ahead, later.pending_commands()


def _unwritten(
    traces: Collection[str],
    cases: Mapping[str, Case],
    pending: Sequence[PendingCommand],
    listed: Collection[str],
) -> frozenset[str]:
    stuck = {one.trace_id for one in pending if one.error}
    at = {one.trace_id: waits_at(cases[one.trace_id]) for one in pending if one.trace_id in traces}
    return frozenset(t for t, path in at.items() if path and path not in listed) - stuck


def waits_at(case: Case) -> str:
    """Return the place of what waits for a person in a case; empty where nothing does."""
    if case.asking is not None:
        return case.asking.path
    waits = case.state in (State.REVIEW, State.FAILED)
    return case.plan.path if waits and is_in([Folder.PLANS], case.plan.path) else ""


def too_many(site: Site, case: Case, plans: Sequence[str]) -> tuple[str, str]:
    """Return what to say of a case with several plans, and what to do."""
    places = ", ".join(map(show, plans))
    kept = case.plan.path if case.plan.path in plans else plans[0]
    others = shlex.join(str(site.vault / path) for path in plans if path != kept)
    return (
        f"There are {len(plans)} plans of {case.request_id}, so none of them counts: {places}.",
        f"Delete all but the one that you mean. To keep {show(kept)}: rm {others}",
    )


def _news(
    folder: Vault,
    cases: Mapping[str, Case],
    listed: Mapping[str, Found],
    told: Collection[str],
    acknowledged: str,
) -> tuple[dict[str, NoteSeen], set[str]]:
    """Return the notes that are read, and the trace_ids of the cases that something happened to.

    `told` are the notes with a side note: they may be copies.
    """
    owners = {path: case for case in cases.values() for path in case.places if path in listed}
    since = (
        (datetime.fromisoformat(acknowledged) - SLACK).timestamp() * 1e9 if acknowledged else 0.0
    )
    news = {
        path
        for path, found in listed.items()
        if changed_ns(found) >= since
        or path in told
        or (path not in owners and not is_in([Folder.REQUESTS], path))
    }
    moved = {
        case.trace_id
        for case in cases.values()
        for path in case.places
        if path not in listed and is_in(QUEUES, path)
    }
    notes: dict[str, NoteSeen] = {}
    for path in sorted(news, key=lambda path: -changed_ns(listed[path]))[:MAX_READ]:
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


def drafts(folder: Vault, paths: Collection[str]) -> list[str]:
    """Return those of some notes that are drafts; of more than `MAX_READ` the first are read."""
    notes: dict[str, NoteSeen] = {}
    for path in sorted(paths)[:MAX_READ]:
        _read(folder, path, notes)
    return [path for path, note in notes.items() if note.status == DRAFT and not note.problem]


def text_of(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where it is gone.

    One that is being written is read again, for as long as a program takes to write a note. Raises
    Unreadable, NotSettled of one that is written on and on.
    """
    try:
        for pause_s in (0.02, 0.1, 0.5):
            with suppress(NotSettled):
                return folder.read(path)[0]
            time.sleep(pause_s)
        return folder.read(path)[0]
    except Gone:
        return None


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
