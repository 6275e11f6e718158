"""Keep the vault's budget of a day, shared by all workers.

Its use is read from the journal, so a restart changes nothing; what is held for calls under way is
kept in memory, and of a team's machines in their database. A day is the local one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from typing import Protocol

from placet.chat.budget import Amount, Exceeded, Ledger, Limits, ModelCall, Reserved, Room, reserve
from placet.chat.cancel import Cancel
from placet.errors import rfc3339
from placet.host.clock import Clock
from placet.journal.reader import Reader
from placet.journal.writer import JournalAccess

NAME = "today's budget"
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


class SharedDay(Protocol):
    """The calls that other machines hold in the same budget of a day."""

    def held(self) -> tuple[int, Mapping[str, Amount]]:
        """Return what is held, by caller, and the number of that state."""

    def hold(self, key: str, worst: Amount, seen: int) -> bool:
        """Hold a call, if that state is still the last one; return whether it is held."""

    def drop(self, key: str) -> None:
        """Hold a call no longer."""


@dataclass(slots=True)
class DayBudget:
    """Holds each call in the day's budget and in the caller's own, or in neither.

    May be used from any thread. With `shared` calls of other machines count, too.
    """

    shared: SharedDay | None = None
    _held: dict[str, Amount] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ledger(
        self, journal: JournalAccess, now: datetime, limits: Limits, others: Mapping[str, Amount]
    ) -> Ledger:
        """Return the day's ledger as it stands; with no limits nothing is counted."""
        if limits == Limits():
            return Ledger(NAME, limits)
        with journal.read() as reader:
            return Ledger(NAME, limits, used_today(reader, now), held={**others, **self._held})

    @contextmanager
    def room(
        self,
        journal: JournalAccess,
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
        shared = None if limits == Limits() else self.shared
        while True:
            with self._lock:
                seen, others = (0, {}) if shared is None else shared.held()
                day = self.ledger(journal, clock.wall(), limits, others)
                verdict = reserve((own, day), key, call)
                if isinstance(verdict, Reserved):
                    worst = verdict.ledgers[0].held[key]
                    if shared is not None and not shared.hold(key, worst, seen):
                        continue  # another machine was first: count anew
                    self._held[key] = worst
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
                if self._held.pop(key, None) is not None and shared is not None:
                    shared.drop(key)
