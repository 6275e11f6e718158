"""Hold the cases that are not over, and those with a note in a watched folder.

All others stay in the journal, so memory and time depend on open work, not on the age of the vault.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, replace

from placet.case.case import CASE_JSON, Branch, Case, NoteSeen
from placet.case.life_cycle import OPEN
from placet.journal.reader import Reader
from placet.journal.writer import JournalAccess
from placet.journal.writes import CaseRow
from placet.note.paths import is_utf8


@dataclass(slots=True)
class OpenCases(Mapping[str, Case]):
    """The cases by trace_id.

    Iterating gives those in memory, `held`; a lookup also finds finished ones. `watched` are
    the branches that people may still merge or drop, by trace_id. Not thread-safe.
    """

    journal: JournalAccess
    held: dict[str, Case] = field(default_factory=dict)
    watched: dict[str, tuple[Branch, ...]] = field(default_factory=dict)
    # trace ids and paths of notes without a case in the journal
    _asked: set[str] = field(default_factory=set)

    def load(self, reader: Reader) -> None:
        """Load the cases that are not over, and the watched branches."""
        self.held = {row.trace_id: _case(row) for row in reader.cases(*OPEN)}
        self.watched = {row.trace_id: _case(row).watched for row in reader.watched_cases()}

    def __getitem__(self, trace_id: str) -> Case:
        """Return a case; raises KeyError if there is none."""
        if trace_id and trace_id not in self.held:
            with self.journal.ask() as reader:
                self._hold(reader.cases_of([trace_id]))
        return self.held[trace_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def values(self) -> ValuesView[Case]:
        """Return the cases in memory; a look goes over them a dozen times."""
        return self.held.values()

    def items(self) -> ItemsView[str, Case]:
        """Return the cases in memory by trace_id."""
        return self.held.items()

    def put(self, case: Case) -> None:
        """Store a recorded case."""
        self.held[case.trace_id] = case
        self._asked -= {case.trace_id, case.request_path, case.plan.path}
        if watched := case.watched:
            self.watched[case.trace_id] = watched
        else:
            self.watched.pop(case.trace_id, None)

    def find(self, notes: Iterable[NoteSeen], unread: Collection[str]) -> None:
        """Load the cases of these notes, and of the notes at the paths `unread`.

        A note's case is found by its trace_id or by its path.
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
        """Drop finished cases that have nothing left to do from memory.

        Such a case has neither a note, nor its place at one of `paths`, nor its trace id in `busy`.
        """
        present = {note.trace_id for note in notes}
        self._asked &= present.union(paths)
        self.held = {
            trace: case
            for trace, case in self.held.items()
            if case.state in OPEN
            or trace in present
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


def _case(row: CaseRow) -> Case:
    return replace(CASE_JSON.validate_json(row.body), version=row.version)
