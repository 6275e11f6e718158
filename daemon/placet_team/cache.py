"""Cache the team tables for all threads of the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from placet.host.clock import boottime_s
from placet.journal.writer import JournalAccess
from placet_team.tables import MemberRow, WorkRow, team_rows

LOOK_S = 2.0
"""Seconds after which it looks though nothing was announced: an announcement may be lost."""
GAP_S = 5.0
"""Seconds without a look after which the database, or this machine, counts as having been away."""


class TeamCache:
    """The team's work and workers at the last look. Any thread may use it.

    `changed` is called when they differ from the look before. Of overlapping looks the last one to
    begin counts; `looks` is their number.
    """

    def __init__(self, journal: JournalAccess, changed: Callable[[], None]) -> None:
        self._journal, self._changed = journal, changed
        self._over = threading.Event()
        self._news = threading.Condition()
        self.work: Mapping[str, WorkRow] = {}
        self.members: Mapping[str, MemberRow] = {}
        self.looks = 0
        self._begun = self._last = 0
        self._looked_s = self._since_s = float("-inf")
        self.look()

    def look(self) -> None:
        """Read the tables now."""
        with self._news:
            self._begun += 1
            number = self._begun
        with self._journal.ask() as reader:
            found, processes = team_rows(reader.connection)
        work = {row.trace_id: row for row in found}
        members = {row.name: row for row in processes}
        now_s = boottime_s()
        with self._news:
            if number < self._last:
                return  # it saw less than is known by now
            self._last = number
            if now_s - self._looked_s > GAP_S:
                self._since_s = now_s
            self._looked_s = max(now_s, self._looked_s)
            new = work != self.work or members.keys() != self.members.keys()
            self.work, self.members = work, members
            self.looks += 1
            self._news.notify_all()
        if new:
            self._changed()

    def watched_s(self) -> float:
        """Return for how many seconds it has looked without a gap.

        A sign of life that is older says nothing: the database may have been away.
        """
        with self._news:
            return boottime_s() - self._since_s

    def wait(self) -> None:
        """Wait for the next look, at most LOOK_S."""
        with self._news:
            seen = self.looks
            self._news.wait_for(lambda: self.looks > seen or self._over.is_set(), LOOK_S)

    def is_old(self) -> bool:
        """Return whether nobody looked for GAP_S."""
        with self._news:
            return boottime_s() - self._looked_s > GAP_S

    def forget(self, trace_id: str) -> None:
        """Forget a piece of work that the daemon deletes, until the next look."""
        with self._news:
            self.work = {key: row for key, row in self.work.items() if key != trace_id}

    def close(self) -> None:
        """Let nobody wait any longer."""
        self._over.set()
        with self._news:
            self._news.notify_all()
