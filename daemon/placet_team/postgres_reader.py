"""Read a journal in PostgreSQL: one moment, a reader that waits, or a query that you typed."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
from psycopg import errors as pg

from placet.errors import UserError
from placet.journal.database import DatabaseAway, Values
from placet_team.postgres import PostgresConnection, error_line

_IDLE: dict[str, list[PostgresConnection]] = {}
"""Connections by address: to make one takes as long as twenty queries."""
MOST_IDLE = 2


@contextlib.contextmanager
def snapshot(address: str) -> Iterator[PostgresConnection]:
    """Yield a connection that sees one moment and cannot write. Raises DatabaseAway."""
    connection = _begun(address)
    try:
        yield connection
    finally:
        _release(address, connection)


@contextlib.contextmanager
def idle_connection(address: str) -> Iterator[PostgresConnection]:
    """Give a connection outside of any transaction. It may have been cut."""
    connection = _idle(address)
    try:
        yield connection
    finally:
        _release(address, connection)


def _idle(address: str) -> PostgresConnection:
    try:
        return _IDLE.setdefault(address, []).pop()
    except IndexError:
        return PostgresConnection(address)


def _begun(address: str) -> PostgresConnection:
    connection = None
    with contextlib.suppress(DatabaseAway, IndexError):
        connection = _IDLE.setdefault(address, []).pop()
        connection.execute(_SNAPSHOT)
    if connection is None or not connection.in_transaction:
        connection = PostgresConnection(address)
        connection.execute(_SNAPSHOT)
    return connection


def _release(address: str, connection: PostgresConnection) -> None:
    with contextlib.suppress(DatabaseAway):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    idle = _IDLE.setdefault(address, [])
    if connection.is_broken or len(idle) >= MOST_IDLE:
        connection.close()
    else:
        idle.append(connection)


@atexit.register
def _close_idle() -> None:
    for connections in _IDLE.values():
        for connection in connections:
            connection.close()


class PatientConnection:
    """A reader that waits while the database is away, and then sees a later moment.

    `wait` is called with the trouble before each new attempt; what it raises ends the waiting. With
    `one_moment` all queries see the same state. Without, each sees all that is committed.
    """

    def __init__(
        self, address: str, wait: Callable[[DatabaseAway], None], *, one_moment: bool
    ) -> None:
        self._address = address
        self._wait = wait
        self._one_moment = one_moment
        self._connection: PostgresConnection | None = None

    def execute(self, sql: str, values: Values = (), /) -> Any:
        """Run one query."""
        connect = _begun if self._one_moment else _idle
        while True:
            try:
                if self._connection is None:
                    self._connection = connect(self._address)
                return self._connection.execute(sql, values)
            except DatabaseAway as error:
                self.close()
                if connect is _idle:  # one that was kept may have been cut
                    connect = PostgresConnection
                else:
                    self._wait(error)

    def executemany(self, sql: str, values: Any, /) -> None:
        """Refuse to write."""
        raise NotImplementedError("a reader does not write")

    @property
    def in_transaction(self) -> bool:
        """Whether the snapshot has begun."""
        return self._connection is not None

    def close(self) -> None:
        """End the snapshot."""
        if self._connection is not None:
            _release(self._address, self._connection)
            self._connection = None


def query(
    address: str, sql: str, timeout_s: float
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT that a person typed, without writing; raises UserError and DatabaseAway."""
    with snapshot(address) as connection:
        _set_zone(connection)
        connection.execute(
            "SELECT set_config('statement_timeout', ?, true)", (str(int(timeout_s * 1000)),)
        )
        connection.execute(
            "SELECT set_config('role', rolname, true) FROM pg_roles WHERE rolname = ? "
            "AND pg_has_role(rolname, 'MEMBER')",
            (READER,),
        )
        try:
            return connection.query(sql)
        except psycopg.Error as error:
            late = isinstance(error, pg.QueryCanceled)
            message = error_line(error)
            raise UserError(
                f"the query took over {timeout_s:.0f} s"
                if late
                else f"the query failed: {message}",
                "it must be one SELECT; `SELECT tablename FROM pg_tables WHERE schemaname = "
                "'placet'` lists the tables",
                exit_code=2,
            ) from error


def _set_zone(connection: PostgresConnection) -> None:
    """Use this machine's time zone, or its current offset if the server does not know the zone.

    Call it before any query of the transaction.
    """
    try:
        connection.execute(_ZONE, (_zone(),))
    except pg.InvalidParameterValue:
        connection.execute("ROLLBACK")
        connection.execute(_SNAPSHOT)
        connection.execute(_ZONE, (_offset(),))


def _zone() -> str:
    """Return this machine's time zone as tzdata names it, or its current offset."""
    local = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    name = os.environ.get("TZ", "").removeprefix(":") or local  # as tzset(3) has it
    with contextlib.suppress(ValueError, OSError, KeyError):
        return ZoneInfo(name).key
    return _offset()


def _offset() -> str:
    """Return the current offset, as PostgreSQL writes it."""
    east_s = time.localtime().tm_gmtoff
    hours, rest_s = divmod(abs(east_s), 3600)
    return f"<here>{'-' if east_s > 0 else '+'}{hours}:{rest_s // 60:02d}"  # west is positive


READER = "placet_reader"
"""The role that may read the journal and do nothing else."""

_ZONE = "SELECT set_config('timezone', ?, true)"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
