"""Cache the team tables for all threads of the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import psycopg

from placet.host.clock import boottime_s
from placet.journal.writer import JournalAccess
from placet.journal.writes import JournalPaused
from placet_team.postgres import announcements
from placet_team.tables import HOST, MemberRow, WorkRow, member_rows, work_rows

LOOK_S = 2.0
"""Seconds after which it looks though nothing was announced: an announcement may be lost."""
GAP_S = 5.0
"""Seconds without a look after which the database, or this machine, counts as having been away."""


class TeamCache:
    """The team's work and workers at the last look. Any thread may use it.

    `changed` is called when they differ from the look before. The database at `address` announces
    changes. Of overlapping looks the last one to begin counts; `looks` is their number.
    """

    def __init__(self, journal: JournalAccess, address: str, changed: Callable[[], None]) -> None:
        self._journal, self._changed = journal, changed
        self._address = address
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
        with self._journal.read() as reader:
            work = {row.trace_id: row for row in work_rows(reader.connection)}
            members = {row.name: row for row in member_rows(reader.connection)}
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

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Look whenever something is announced, in a separate thread."""

        def run() -> None:
            with suppress(JournalPaused, psycopg.Error):  # the loop meets it, too
                for _ in announcements(self._address, HOST, LOOK_S, self._over):
                    if not self._over.is_set():
                        self.look()

        thread = threading.Thread(target=run, name="cache", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            with self._news:
                self._news.notify_all()
