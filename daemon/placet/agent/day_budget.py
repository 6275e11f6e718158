"""The daybook: the vault's budget of a day, shared by all workers.

Its use is read from the journal, so a restart changes nothing; what is held for calls under way is
kept in memory. A day is the local one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta

from placet.core.turn.budget import Amount, Exceeded, Ledger, Limits
from placet.core.turn.cancel import Cancel
from placet.core.turn.reservation import ModelCall, Reserved, Room, reserve
from placet.core.wording import rfc3339
from placet.host.clock import Clock
from placet.journal.reader import Reader
from placet.journal.writer import Journal

NAME = "today's budget of the vault"
_LOOK_AGAIN_S = 0.25


def day_of(moment: datetime) -> tuple[datetime, datetime]:
    """Return when the local day of a moment began and when the next one begins."""
    began = datetime.combine(moment.astimezone().date(), time()).astimezone()
    return began, datetime.combine(began.date() + timedelta(days=1), time()).astimezone()


def next_day_in_s(now: datetime) -> float:
    """Return the seconds until the next day, at least one."""
    return max((day_of(now)[1] - now).total_seconds(), 1.0)


def used_today(reader: Reader, now: datetime) -> Amount:
    """Return the use on the local day of `now`, as the journal knows it."""
    return Amount(*reader.calls.used_since(rfc3339(day_of(now)[0])))


@dataclass(slots=True)
class Daybook:
    """Holds each call in the day's budget and in the caller's own, or in neither.

    May be used from any thread.
    """

    _held: dict[str, Amount] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ledger(self, journal: Journal, now: datetime, limits: Limits) -> Ledger:
        """Return the day's ledger as it stands; with no limits nothing is counted."""
        if limits == Limits():
            return Ledger(NAME, limits)
        with journal.read() as reader:
            return Ledger(NAME, limits, used_today(reader, now), held=dict(self._held))

    @contextmanager
    def room(
        self,
        journal: Journal,
        clock: Clock,
        own: Ledger,
        limits: Limits,
        key: str,
        call: ModelCall,
        cancel: Cancel,
    ) -> Iterator[Room | Exceeded]:
        """Hold a call while it is made.

        Give the room that it has, or the limit that leaves it none. `key` names the caller.

        Waits for calls under way where they hold what this one needs, until `cancel` is set.
        """
        while True:
            with self._lock:
                day = self.ledger(journal, clock.wall(), limits)
                verdict = reserve((own, day), key, call)
                if isinstance(verdict, Reserved):
                    self._held[key] = worst = verdict.ledgers[0].held[key]
                    found: Room | Exceeded = Room(verdict.max_tokens, worst)
                    break
                others_hold = bool(day.held) and isinstance(
                    reserve((own, replace(day, held={})), key, call), Reserved
                )
            if not others_hold or not clock.wait(_LOOK_AGAIN_S, cancel.is_set):
                found = verdict
                break
        try:
            yield found
        finally:
            with self._lock:
                self._held.pop(key, None)
