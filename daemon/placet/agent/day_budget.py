"""Keep the vault's budget of a day, shared by all workers.

The use comes from the journal, so it survives a restart. Reservations for running calls are in
memory; a team's are in its database. A day is a local one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Protocol

from placet.chat.budget import (
    Amount,
    Exceeded,
    Ledger,
    Limit,
    Limits,
    ModelCall,
    Reserved,
    Room,
    reserve,
)
from placet.chat.cancel import Cancel
from placet.chat.prices import Pricer, unpriced
from placet.host.clock import Clock
from placet.journal.reader import Reader
from placet.wording import rfc3339

if TYPE_CHECKING:
    from placet.journal.writer import JournalAccess

NAME = "today's budget"
_LOOK_AGAIN_S = 0.25


def day_of(moment: datetime) -> tuple[datetime, datetime]:
    """Return when the local day of a moment began and when the next one begins."""
    began = datetime.combine(moment.astimezone().date(), time()).astimezone()
    return began, datetime.combine(began.date() + timedelta(days=1), time()).astimezone()


def used_today(reader: Reader, now: datetime, price: Pricer = unpriced) -> Amount:
    """Return the use on the local day of `now`, from the journal, at the prices of now."""
    return Amount(*reader.calls.used_since(rfc3339(day_of(now)[0]), price))


class SharedDay(Protocol):
    """The reservations of other machines in the same budget."""

    def held(self, reader: Reader) -> Mapping[str, Amount]:
        """Return the reservations by caller."""

    def hold(self, key: str, worst: Amount, limits: Limits, since: datetime, *, sure: bool) -> bool:
        """Reserve for a call if it fits into the limits of the day since then; return whether.

        With `sure` it does not fit while a cost of that day is unknown.
        """

    def drop(self, key: str) -> None:
        """Release a reservation."""


@dataclass(slots=True)
class DayBudget:
    """Reserves for each call in the day's budget and the caller's, or in neither.

    Thread-safe. With `shared`, reservations of other machines count, too.
    """

    shared: SharedDay | None = None
    _held: dict[str, Amount] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ledger(
        self, journal: JournalAccess, now: datetime, limits: Limits, price: Pricer
    ) -> Ledger:
        """Return the current ledger of the day; it counts nothing if there are no limits."""
        if limits == Limits():
            return Ledger(NAME, limits)
        with journal.read() as reader:
            others = {} if self.shared is None else self.shared.held(reader)
            used = used_today(reader, now, price)
        return Ledger(NAME, limits, used, held={**others, **self._held})

    @contextmanager
    def room(
        self,
        journal: JournalAccess,
        clock: Clock,
        own: Ledger,
        limits: Limits,
        key: str,
        call: ModelCall,
        price: Pricer,
        cancel: Cancel,
    ) -> Iterator[Room | Exceeded]:
        """Reserve the worst case of a call while it is made.

        Give the reservation, or the limit that leaves no room for it. `key` names the caller. While
        reservations of running calls leave no room, this waits until `cancel` is set.
        """
        shared = None if limits == Limits() else self.shared
        found = None if shared is None else self._at_once(shared, clock, own, limits, key, call)
        while found is None:
            with self._lock:
                now = clock.wall()
                day = self.ledger(journal, now, limits, price)
                verdict = reserve((own, day), key, call)
                if isinstance(verdict, Reserved):
                    worst = verdict.ledgers[0].held[key]
                    since = day_of(now)[0]
                    if shared is None or shared.hold(key, worst, limits, since, sure=False):
                        self._held[key] = worst
                        found = Room(verdict.max_tokens, worst)
                        break
                    # another machine was first: count again
                    verdict = day.exceeded_at(Limit.TOKENS, "other calls hold the rest")
                    others_hold = True
                else:
                    others_hold = bool(day.held) and isinstance(
                        reserve((own, replace(day, held={})), key, call), Reserved
                    )
            if not others_hold or not clock.wait(_LOOK_AGAIN_S, cancel.is_set):
                found = verdict
        try:
            yield found
        finally:
            with self._lock:
                if self._held.pop(key, None) is not None and shared is not None:
                    shared.drop(key)

    def _at_once(
        self,
        shared: SharedDay,
        clock: Clock,
        own: Ledger,
        limits: Limits,
        key: str,
        call: ModelCall,
    ) -> Room | Exceeded | None:
        """Reserve a call without reading the day's use, as it usually fits; None if it may not."""
        verdict = reserve((own,), key, call)
        if not isinstance(verdict, Reserved):
            return verdict
        worst = verdict.ledgers[0].held[key]
        with self._lock:
            since = day_of(clock.wall())[0]
            if not shared.hold(key, worst, limits, since, sure=True):
                return None
            self._held[key] = worst
        return Room(verdict.max_tokens, worst)
