"""Apply batches of writes within one transaction of the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from placet.case.lease import Owner, may_take
from placet.journal.chain import Chain, ReadyRow, ready_row, utf8
from placet.journal.database import Connection, Store, upsert
from placet.journal.errors import is_damage
from placet.journal.reader import lease_of
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    Change,
    Committed,
    Enqueue,
    LeaseHeld,
    Write,
    hashed_body,
)

Prepared = ReadyRow | AcquireLease | Change


def prepare(write: Write) -> Prepared:
    """Return a write as `apply` takes it; ValueError or TypeError for what cannot be stored."""
    return ready_row(write.activity) if isinstance(write, AddActivity) else write


class Leases:
    """Grants leases, by the clock that they run on.

    `now_s` are seconds since the boot `boot_id`, or, with `one_clock`, on a database's clock.
    """

    def __init__(self, boot_id: str, *, one_clock: bool) -> None:
        self._boot_id = boot_id
        self._one_clock = one_clock
        # by trace_id: token and heartbeat of a lease that was refused, and since when they are so
        self._still: dict[str, tuple[int, float, float]] = {}

    def acquire(
        self, connection: Connection, want: AcquireLease, now: str, now_s: float
    ) -> tuple[int, Owner | None]:
        """Take a lease; return its token and the holder that had not released it.

        Raises LeaseHeld.
        """
        lease = lease_of(connection, want.trace_id)
        if lease is not None:
            token, heartbeat_s, seen_s = self._still.get(lease.trace_id, (0, 0.0, now_s))
            if (token, heartbeat_s) != (lease.token, lease.heartbeat_s):
                seen_s = now_s
            self._still[lease.trace_id] = (lease.token, lease.heartbeat_s, seen_s)
            if not may_take(
                lease,
                want.owner,
                now_s=now_s,
                still_for_s=now_s - seen_s,
                gone_token=want.gone_token,
                one_clock=self._one_clock,
            ):
                same_clock = self._one_clock or lease.owner.boot_id == self._boot_id
                raise LeaseHeld(lease, lease.expires_s - now_s if same_clock else None)
        token = lease.token + 1 if lease is not None else 1
        by = want.owner
        taken = {
            "trace_id": want.trace_id,
            "token": token,
            "host": by.host,
            "boot_id": by.boot_id,
            "pid": by.pid,
            "pid_start": by.pid_start,
            "held": True,
            "acquired_at": now,
            "heartbeat_s": now_s,
            "expires_s": now_s + want.ttl_s,
        }
        connection.execute(upsert("leases", *taken), taken)
        return token, lease.owner if lease is not None and lease.held else None


class Transaction:
    """One transaction; nobody else writes from its making to its COMMIT, which is the caller's."""

    def __init__(self, store: Store, leases: Leases, *, now: str, durable: bool) -> None:
        self._leases = leases
        self._times: dict[str, Any] = {"now": now, "now_s": store.begin(durable=durable)}
        self._connection = store.connection
        self._chain = Chain(self._connection)

    def answer(self, batch: Sequence[Prepared], *, alone: bool = False) -> Committed | Exception:
        """Apply a batch as a whole, or none of it; return its answer or its error.

        The error of one that is `alone` in its transaction ends that. Raises OSError,
        sqlite3.OperationalError and damage: they are no batch's own.
        """
        execute = self._connection.execute
        mark = self._chain.mark()
        simple = all(isinstance(write, ReadyRow) for write in batch)
        apart = not (simple or alone)
        if apart:
            execute("SAVEPOINT batch")
        answer: Committed | Exception
        try:
            answer = self._apply(batch)
        except (sqlite3.OperationalError, OSError):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            self._chain.back_to(mark)
            execute("ROLLBACK" if alone else "ROLLBACK TO batch")
            answer = error
        if apart:
            execute("RELEASE batch")
        return answer

    def write(self) -> list[tuple[Any, ...]]:
        """Write the events, before the COMMIT; return their rows."""
        self._chain.write()
        return self._chain.rows

    def _apply(self, batch: Sequence[Prepared]) -> Committed:
        outbox: list[int] = []
        token, taken_from = 0, None
        for write in batch:
            if isinstance(write, ReadyRow):
                self._chain.append(write)
            elif isinstance(write, AcquireLease):
                token, taken_from = self._leases.acquire(self._connection, write, **self._times)
            else:
                found = self._change(write)
                if isinstance(write, Enqueue) and found is not None:
                    outbox.append(found[0])
        return Committed(tuple(outbox), token, taken_from)

    def _change(self, write: Change) -> tuple[Any, ...] | None:
        """Run a change's statements; return the row that the first one returns, if any."""
        values = dict(self._times)
        for field in fields(write):  # type: ignore[arg-type] # every Change is a dataclass
            value = getattr(write, field.name)
            if isinstance(value, bytes):
                values["sha256"], values["size"], value = hashed_body(value)
            values[field.name] = utf8(value) if isinstance(value, str) else value
        first, *more = write.SQL
        done = self._connection.execute(first, values)
        found: tuple[Any, ...] | None = done.fetchone()
        if write.ELSE and done.rowcount != 1 and found is None:
            raise write.ERROR(write.ELSE.format_map(values))
        for sql in more:
            self._connection.execute(sql, values)
        return found
