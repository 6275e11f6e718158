"""Read a worker's part of the team's journal, and write it by the functions of `workers.sql`.

Each call is one statement, so no lock in the database waits for a slow worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors as pg

from placet.chat.budget import Amount
from placet.journal.chain import encode_row, utf8
from placet.journal.database import DatabaseAway
from placet.journal.reader import Reader
from placet.journal.writes import (
    AddActivity,
    AddRecord,
    Committed,
    Conflict,
    Guard,
    JournalPaused,
    LeaseLost,
    Write,
)
from placet_team.postgres import PostgresConnection, shown
from placet_team.postgres_reader import MOST_IDLE, PatientConnection, idle_connection
from placet_team.tables import PutRefs, PutResult

_ERRORS: dict[str, type[Exception]] = {"PL001": LeaseLost, "PL002": Conflict, "PL003": Conflict}
"""What the functions refuse, by the code of the error."""
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

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:  # noqa: ARG002 - each commit is flushed
        """Append to the record of the work that the first write, a Guard, names; all or nothing.

        Waits while the database is away. Raises LeaseLost, Conflict, and JournalPaused once it is
        to wait no longer.
        """
        trace_id, token, *values = _appended(writes)
        calls = self._calls.setdefault((trace_id, token), _Calls())
        with calls.one:
            self.call("worker_append", trace_id, token, calls.turn + 1, *values)
            calls.turn += 1
        if any(isinstance(write, PutResult) for write in writes):
            del self._calls[trace_id, token]
        return Committed()

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
    def read(self) -> Iterator[Reader]:
        """Yield a reader of one moment; waits while the database is away, as `commit` does."""
        connection = PatientConnection(self.address, self._wait_to_read)
        try:
            yield Reader(connection)
        finally:
            connection.close()

    ask = read

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

    def held(self) -> tuple[int, Mapping[str, Amount]]:
        """Return what running conversations have reserved, by caller, and the state's number."""
        with self.journal.read() as reader:
            (version,) = reader.connection.execute("SELECT version FROM team_day").fetchone()
            rows = reader.connection.execute(_HELD).fetchall()
        return int(version), {
            key: Amount(int(tokens), None if usd is None else Decimal(usd))
            for key, tokens, usd in rows
        }

    def hold(self, key: str, worst: Amount, seen: int) -> bool:
        """Reserve a call if the state is still `seen`; return whether it is reserved."""
        usd = None if worst.usd is None else str(worst.usd)
        return bool(self.journal.call("worker_hold", key, worst.tokens, usd, seen))

    def drop(self, key: str) -> None:
        """Release a call."""
        self.journal.call("worker_drop", key)


_HELD = """SELECT key, tokens, usd FROM team_held
  JOIN leases ON trace_id = split_part(key, ':', 1)
  AND split_part(key, ':', 3) IN ('', token::text)
  WHERE held AND expires_s > extract(epoch FROM clock_timestamp())"""


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
