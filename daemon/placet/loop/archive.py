"""The daily move of old events out of the journal."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from placet.core.activity import Action
from placet.core.life.case import OPEN
from placet.core.wording import rfc3339
from placet.journal.maintenance import ARCHIVING
from placet.loop.casebook import Casebook
from placet.loop.rows import of_daemon

ARCHIVE_EVERY_S = 86_400.0
ARCHIVE_AT_ONCE = 5_000
"""Events archived at once: a tenth of a second, in which nothing else is written."""


@dataclass(slots=True)
class Archive:
    """The archiving of events.

    `before` is the time up to which they are moved, empty if nothing is under way.
    """

    book: Casebook
    before: str = ""
    _began_at: float = float("-inf")

    def go_on(self) -> None:
        """Move some old events, if the configuration says after how long and a day has passed."""
        ports, cases = self.book.ports, self.book.cases
        days, now = ports.config.journal.archive_after_days, ports.clock.monotonic()
        if not days or (not self.before and now - self._began_at < ARCHIVE_EVERY_S):
            return
        self._began_at = now
        if not self.before:
            self.before = rfc3339(ports.clock.wall() - timedelta(days=days))
        is_open = {case.trace_id for case in cases.values() if case.state in OPEN} | {
            trace
            for trace, branches in cases.watched.items()
            if any(not branch.became for branch in branches)
        }
        path = ports.journal.archive(self.before, keep=is_open, most=ARCHIVE_AT_ONCE)
        if path is not None and path.name.endswith(ARCHIVING):
            return
        before, self.before = self.before, ""
        if path is not None:
            self.book.say(f"Events before {before[:10]} were moved to {path}.")
            facts = {"path": path.name, "before": before}
            ports.journal.commit([of_daemon(ports.clock, Action.JOURNAL_ARCHIVED, **facts)])
