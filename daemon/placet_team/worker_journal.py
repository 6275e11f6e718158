"""Read a worker's part of the team's journal, and write it by the functions of `workers.sql`.

Each call is one statement, so no lock in the database waits for a slow worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as pg

from placet.activity import Action
from placet.chat.budget import Amount, Limits
from placet.journal.chain import encode_row, utf8
from placet.journal.costs import TOKENS, quarter
from placet.journal.database import DatabaseAway
from placet.journal.reader import Reader
from placet.journal.writes import (
    ATTEMPT,
    REPLY,
    AddActivity,
    AddRecord,
    Committed,
    Conflict,
    Guard,
    JournalPaused,
    LeaseLost,
    Write,
)
from placet.wording import rfc3339
from placet_team.postgres import PostgresConnection, shown
from placet_team.postgres_reader import MOST_IDLE, PatientConnection, idle_connection
from placet_team.tables import PutRefs, PutResult

_ERRORS: dict[str, type[Exception]] = {"PL001": LeaseLost, "PL002": Conflict, "PL003": Conflict}
"""What the functions refuse, by the code of the error."""
_PAID = (Action.MODEL_CALLED, Action.MODEL_FAILED)
_LONGEST_DELAY_S = 1.0
_TRIES = MOST_IDLE + 1
"""Failed tries after which the database is away: all connections that were kept may be cut."""


@dataclass(slots=True)
class _Calls:
    """The calls about a piece of work, one at a time; `turn` counts those that were answered."""

    turn: int = 0
    one: threading.Lock = field(default_factory=threading.Lock)


class WorkerJournal:
    """The journal of a team's database, for a worker; any thread may use it.

    `path` is in the worker's folder, which needs room on its disk. `on_trouble` gets a sentence
    when writing stops, and when it continues.
    """

    def __init__(self, address: str, path: Path, on_trouble: Callable[[str], None]) -> None:
        self.address = address
        self.path = path
        self._on_trouble = on_trouble
        self._give_up = threading.Event()
        self._calls: dict[tuple[str, int], _Calls] = {}
        self.held: dict[str, Amount] = {}
        """What is reserved in the day's budget, by caller."""

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:  # noqa: ARG002 - each commit is flushed
        """Append to the record of the work that the first write, a Guard, names; all or nothing.

        Waits while the database is away. Raises LeaseLost, Conflict, and JournalPaused once it is
        to wait no longer.
        """
        trace_id, token, *values = _appended(writes)
        calls = self._calls.setdefault((trace_id, token), _Calls())
        with calls.one:
            self._settle(writes, token)
            self.call("worker_append", trace_id, token, calls.turn + 1, *values)
            calls.turn += 1
        if any(isinstance(write, PutResult) for write in writes):
            del self._calls[trace_id, token]
        return Committed()

    def _settle(self, writes: Sequence[Write], token: int) -> None:
        """Reserve what a model call used, where it is more than what was reserved before.

        A server may report more than was expected, and a killed worker's call counts, too. The
        call's outcome releases the reservation.
        """
        called = [one for one in writes if isinstance(one, AddRecord) and _is_settled(one)]
        if not called:
            return
        key = f"{called[0].trace_id}:{called[0].attempt}:{token}"
        used = [amount for write in writes if (amount := _used(write)) is not None]
        whole, held = sum(used, Amount()), self.held.pop(key, None)
        if used and (held is None or not _covers(held, whole)):
            none = (None, None, None, None)  # the call was made already
            self.call("worker_hold", key, whole.tokens, _text_of(whole.usd), *none)

    def call(self, function: str, *values: Any) -> Any:
        """Call one of the team's functions, which may be called twice; waits as `commit` does."""
        tries = 0
        while True:
            try:
                with idle_connection(self.address) as connection:
                    answer = call_once(connection, function, *values)
            except DatabaseAway as error:
                tries += 1
                trouble = f"the journal in {shown(self.address)} cannot be written: {error}"
                if tries == _TRIES:
                    self._on_trouble(f"{trouble}; work waits until it can")
                delay_s = 0.0 if tries < _TRIES else min(tries / 20, _LONGEST_DELAY_S)
                if self._give_up.wait(delay_s):
                    raise JournalPaused(trouble) from error
                continue
            if tries >= _TRIES:
                self._on_trouble("the journal can be written again")
            return answer

    @contextmanager
    def read(self, *, one_moment: bool = True) -> Iterator[Reader]:
        """Yield a reader of one moment; waits while the database is away, as `commit` does."""
        connection = PatientConnection(self.address, self._wait_to_read, one_moment=one_moment)
        try:
            yield Reader(connection)
        finally:
            connection.close()

    def ask(self) -> AbstractContextManager[Reader]:
        """Give a reader for single queries. Each query sees all that is committed."""
        return self.read(one_moment=False)

    def stop_waiting(self) -> None:
        """From now on raise JournalPaused while the database is away. Any thread may call it."""
        self._give_up.set()

    close = stop_waiting

    def _wait_to_read(self, error: DatabaseAway) -> None:
        if self._give_up.wait(_LONGEST_DELAY_S):
            raise JournalPaused(f"the journal cannot be read: {error}")


@dataclass(frozen=True, slots=True)
class TeamDay:
    """The calls that workers have reserved in the budget of the day, in the database."""

    journal: WorkerJournal

    def held(self, reader: Reader) -> Mapping[str, Amount]:
        """Return what running conversations have reserved, by caller."""
        return {
            str(key): Amount(int(tokens), None if usd is None else Decimal(usd))
            for key, tokens, usd in reader.connection.execute(_HELD)
        }

    def hold(self, key: str, worst: Amount, limits: Limits, since: datetime, *, sure: bool) -> bool:
        """Reserve a call if it fits into the day's limits; return whether it does."""
        most = limits.tokens, _text_of(limits.usd), quarter(rfc3339(since)), sure
        asked = key, worst.tokens, _text_of(worst.usd)
        if found := bool(self.journal.call("worker_hold", *asked, *most)):
            self.journal.held[key] = worst
        return found

    def drop(self, key: str) -> None:
        """Release a call, unless the row about it did."""
        if self.journal.held.pop(key, None) is not None:
            self.journal.call("worker_drop", key)


_HELD = """SELECT key, tokens, usd FROM team_held
  JOIN leases ON trace_id = split_part(key, ':', 1)
  AND split_part(key, ':', 3) IN ('', token::text)
  WHERE held AND expires_s > extract(epoch FROM clock_timestamp())"""


def _is_settled(entry: AddRecord) -> bool:
    return entry.kind == "outcome" and entry.key.startswith((ATTEMPT, REPLY))


def _used(write: Write) -> Amount | None:
    """Return what a row says that a model call used; None for other writes and for nothing."""
    if not isinstance(write, AddActivity) or write.activity.action not in _PAID:
        return None
    facts = write.activity.metadata
    tokens = sum(facts.get(name) or 0 for name in TOKENS)
    cost = facts.get("cost_usd")
    if not tokens and not cost:
        return None
    return Amount(tokens, None if cost is None else Decimal(str(cost)))


def _covers(held: Amount, used: Amount) -> bool:
    no_more = held.usd is None or (used.usd is not None and used.usd <= held.usd)
    return used.tokens <= held.tokens and no_more


def _text_of(usd: Decimal | None) -> str | None:
    return None if usd is None else str(usd)


def call_once(connection: PostgresConnection, function: str, *values: Any) -> Any:
    """Call one of the team's functions. Raises as `commit` does, and DatabaseAway."""
    marks = ", ".join("?" for _ in values)
    try:
        (answer,) = connection.execute(f"SELECT {function}({marks})", values).fetchone()
    except pg.UndefinedFunction as error:
        is_there = "SELECT to_regnamespace('placet') IS NOT NULL"
        if connection.execute(is_there).fetchone() == (True,):
            raise
        raise DatabaseAway("the journal was moved away") from error
    except psycopg.Error as error:
        if (kind := _ERRORS.get(error.sqlstate or "")) is None:
            raise
        raise kind(error.diag.message_primary or str(error)) from error
    return answer


def _appended(writes: Sequence[Write]) -> tuple[Any, ...]:
    """Return a batch as the arguments of `worker_append`; raises TypeError for other writes."""
    guard, *others = writes
    if not isinstance(guard, Guard):
        raise TypeError(f"a worker writes under its lease alone: {guard!r:.80}")
    entries, events = list[AddRecord](), list[tuple[str, ...]]()
    refs, kind, result = "", "", ""
    for write in others:
        match write:
            case AddRecord():
                entries.append(write)
            case AddActivity():
                events.append(encode_row(write.activity).columns)
            case PutRefs():
                refs = write.refs
            case PutResult():
                kind, result = write.kind, write.result
            case _:
                raise TypeError(f"no worker may write this: {write!r:.80}")
    return (
        guard.trace_id,
        guard.token,
        [one.attempt for one in entries],
        [one.seq for one in entries],
        [one.kind for one in entries],
        [utf8(one.key) for one in entries],
        [one.body for one in entries],
        [list(columns) for columns in events],
        refs,
        kind,
        utf8(result),
    )
