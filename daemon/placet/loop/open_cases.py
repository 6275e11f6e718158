"""The cases at hand: those that are not over, and those of which a note lies in a watched folder.

The others stay in the journal.

What the daemon holds and walks so depends on what is to be done, not on what was done in years.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from placet.case.case import CASE_JSON, OPEN, Branch, Case, NoteSeen
from placet.journal.reader import Reader
from placet.journal.writer import Journal
from placet.journal.writes import CaseRow
from placet.note.paths import is_utf8


@dataclass(slots=True)
class Cases(Mapping[str, Case]):
    """The cases by trace_id.

    To walk over them gives those `held`; to ask for one finds those that are over, too.

    `watched` are the branches with which people may still do something that counts, by trace_id.
    For one thread.
    """

    journal: Journal
    held: dict[str, Case] = field(default_factory=dict)
    watched: dict[str, tuple[Branch, ...]] = field(default_factory=dict)
    # trace ids and paths of notes of which the journal knows no case
    _asked: set[str] = field(default_factory=set)

    def load(self, reader: Reader) -> None:
        """Take up what is not over, and which branches are watched."""
        self.held = {row.trace_id: _case(row) for row in reader.cases(*OPEN)}
        self.watched = {row.trace_id: _case(row).watched for row in reader.watched_cases()}

    def __getitem__(self, trace_id: str) -> Case:
        """Return a case; raises KeyError where there is none."""
        if trace_id and trace_id not in self.held:
            with self.journal.ask() as reader:
                self._hold(reader.cases_of([trace_id]))
        return self.held[trace_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def put(self, case: Case) -> None:
        """Take in what was recorded of a case."""
        self.held[case.trace_id] = case
        self._asked -= {case.trace_id, case.request_path, case.plan.path}
        if watched := case.watched:
            self.watched[case.trace_id] = watched
        else:
            self.watched.pop(case.trace_id, None)

    def find(self, notes: Iterable[NoteSeen], unread: Collection[str]) -> None:
        """Hold the cases of these notes and of those at the paths `unread`.

        A note's case is found by what the note says or by its place.
        """
        notes = list(notes)
        traces = {note.trace_id for note in notes if note.trace_id} - self.held.keys() - self._asked
        paths = {note.path for note in notes if not note.trace_id}.union(unread) - self._asked
        if traces or paths:
            with self.journal.ask() as reader:
                self._hold(reader.cases_of(traces, {path for path in paths if is_utf8(path)}))
            self._asked |= (traces - self.held.keys()) | paths

    def let_go(
        self, notes: Iterable[NoteSeen], paths: Collection[str], busy: Collection[str]
    ) -> None:
        """Drop the cases that are over and have nothing left to do.

        Such a case has neither a note, nor its place at one of `paths`, nor its trace id in `busy`.
        """
        there = {note.trace_id for note in notes}
        self._asked &= there.union(paths)
        self.held = {
            trace: case
            for trace, case in self.held.items()
            if case.state in OPEN
            or trace in there
            or trace in busy
            or case.request_path in paths
            or case.plan.path in paths
        }

    def is_taken(self, request_id: str) -> bool:
        """Return whether a case has this request_id."""
        with self.journal.ask() as reader:
            return reader.is_taken(request_id)

    def _hold(self, rows: Iterable[CaseRow]) -> None:
        for row in rows:
            if row.trace_id not in self.held:
                self.held[row.trace_id] = _case(row)


@dataclass(slots=True)
class Taken(Container[str]):
    """The request ids that are in use: those of the journal's cases, and those given since."""

    cases: Cases
    given: set[str] = field(default_factory=set)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self.given or self.cases.is_taken(str(request_id))


def _case(row: CaseRow) -> Case:
    return replace(CASE_JSON.validate_json(row.body), version=row.version)
