"""Connect to a journal in PostgreSQL and write it, with psycopg (extra `team`).

placet uses no pipeline mode. A client that is cut off or frozen in the middle of a pipeline keeps
its locks, and no time limit of the server ends it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, TransactionStatus

from placet.errors import UserError
from placet.journal.database import DatabaseAway, Values
from placet.journal.errors import may_pass
from placet.journal.writes import JournalDamaged
from placet.wording import one_line

logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # a line that is cut is told in our words

CREDENTIAL = "database-password"
"""The systemd credential with the password, where libpq has none from elsewhere."""

OPTIONS = (
    "-c search_path=placet,pg_catalog -c synchronous_commit=on -c lock_timeout=30s"
    " -c idle_in_transaction_session_timeout=60s"  # one that is cut off
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
    " -c tcp_user_timeout=10000"  # ms: the server, too, notices a line that is cut
)
"""The settings of each connection."""
FROZEN_S = 5
"""Seconds after which the server ends the transaction of a writer that says nothing."""

_ROWS_AT_ONCE = 50
_SECRET = {"password", "sslpassword"}
_LINE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms: a line that is cut is noticed
    "application_name": "placet",
}
ROWS = "placet_rows"
"""The channel of NOTIFY for new rows."""
_TAKE_CHAIN = "BEGIN; NOTIFY placet_rows; SELECT 1 FROM chain FOR UPDATE; "
_LEAVE_TURN = (
    "WITH before AS (SELECT turn FROM writers WHERE writer = '{0}') "
    "INSERT INTO writers VALUES ('{0}', {1}) ON CONFLICT (writer) "
    "DO UPDATE SET turn = excluded.turn, at = excluded.at RETURNING "
    "coalesce((SELECT turn FROM before), 0), extract(epoch FROM clock_timestamp())::float8"
)
_TURN = "SELECT turn FROM writers WHERE writer = '{}'"
_WRITER = f" -c idle_in_transaction_session_timeout={FROZEN_S}s"
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    pg.ReadOnlySqlTransaction,  # a standby, before it takes over
    pg.InFailedSqlTransaction,
    pg.IdleInTransactionSessionTimeout,
    pg.UndefinedTable,  # the journal was moved away, and may come back
)


_PIECES = re.compile(r"('(?:[^']|'')*')|(?<![:\w]):([a-z_][a-z0-9_]*)|(\?)|(%)|\+(?=[a-z_])")


@cache
def for_postgres(sql: str) -> str:
    """Return a statement with psycopg's marks for values.

    Drop a plus before a column: it only keeps SQLite from using an index.
    """

    def other(found: re.Match[str]) -> str:
        text, name, mark, percent = found.groups()
        if text:
            return text.replace("%", "%%")
        return f"%({name})s" if name else "%s" if mark else "%%" if percent else ""

    return _PIECES.sub(other, sql.replace("BEGIN IMMEDIATE", "BEGIN"))


class _Number(Loader):
    """Load sums as SQLite returns them: whole numbers are ints."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.removeprefix(b"-").isdigit() else float(text)


class _Cursor(psycopg.Cursor[Any]):
    """A cursor whose fetchone returns None for a statement without a result."""

    def fetchone(self) -> Any:
        return super().fetchone() if self.description else None


class PostgresConnection:
    """A connection with the methods of SQLite's. Only BEGIN starts a transaction.

    `options` are more settings. Raises DatabaseAway for a fault that may pass, and psycopg.Error
    for any other.
    """

    def __init__(self, address: str, options: str = "") -> None:
        line = {**_LINE, **password_of(address), "options": f"{OPTIONS}{options}"}
        with _plain():
            self._connection = psycopg.connect(
                make_conninfo(address, **line),
                autocommit=True,
                cursor_factory=_Cursor,
            )
        self._connection.adapters.register_loader("numeric", _Number)

    def execute(self, sql: str, values: Values = (), /) -> _Cursor:
        """Run one statement."""
        with _plain():
            cursor = self._connection.cursor()
            cursor.execute(for_postgres(sql), values)
            return cursor  # type: ignore[return-value] # as cursor_factory says

    def executemany(self, sql: str, values: Any, /) -> None:
        """Run an INSERT with each of some rows of values, many at once."""
        head, _, marks = for_postgres(sql).rpartition("VALUES ")
        left = iter(values)
        while some := list(islice(left, _ROWS_AT_ONCE)):
            rows = ", ".join([marks] * len(some))
            with _plain():
                self._connection.execute(
                    f"{head}VALUES {rows}".encode(), [value for row in some for value in row]
                )

    def at_once(self, sql: str) -> tuple[Any, ...]:
        """Run statements without values, sent as one message; return the last one's row, if any."""
        with _plain():
            cursor = self._connection.execute(sql.encode(), prepare=False)
            while cursor.nextset():
                pass
            row: tuple[Any, ...] = cursor.fetchone() or ()
            return row

    def stream(self, sql: str) -> Iterator[Any]:
        """Give the rows of a statement, in a transaction, without loading all of them."""
        with _plain(), self._connection.cursor("rows") as cursor:
            cursor.itersize = 500
            cursor.execute(sql)
            yield from cursor

    def notices(self, timeout_s: float) -> list[tuple[str, str]]:
        """Wait for a NOTIFY, at most so long; return the channel and payload of all that came."""
        with _plain():
            found = self._connection.notifies(timeout=timeout_s, stop_after=1)
            return [(one.channel, one.payload) for one in found]

    def query(self, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Run one statement that a person typed; return columns and rows. Raises psycopg.Error."""
        with psycopg.Cursor(self._connection) as cursor:
            cursor.execute(sql, prepare=True)  # the protocol of prepared ones takes one alone
            if cursor.description is None:
                return (), []
            return tuple(column.name for column in cursor.description), cursor.fetchall()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; False if the connection was cut."""
        return not self.is_broken and (
            self._connection.info.transaction_status is not TransactionStatus.IDLE
        )

    @property
    def is_broken(self) -> bool:
        """Whether the connection was cut."""
        return self._connection.closed

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def announcements(
    address: str, channels: Sequence[str], every_s: float, stop: threading.Event
) -> Iterator[Collection[str]]:
    """Yield at once, after each NOTIFY, and at least every `every_s`, until `stop` is set.

    It yields the channels on which something may have been announced. While the database is away it
    yields, too. Raises psycopg.Error for a lasting fault.
    """
    while not stop.is_set():
        try:
            with contextlib.closing(PostgresConnection(address)) as line:
                line.at_once("; ".join(f"LISTEN {channel}" for channel in channels))
                yield channels
                while not stop.is_set():
                    found = {channel for channel, _ in line.notices(every_s)}
                    yield found or channels
        except DatabaseAway:
            stop.wait(every_s)
            yield channels


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    try:
        yield
    except _PASSING as error:
        raise DatabaseAway(one_line(str(error))) from error


def error_line(error: Exception) -> str:
    """Return on one line what a database said."""
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else ""
    return message or one_line(str(error))


def password_of(address: str) -> dict[str, str]:
    """Return the password of the systemd credential, unless libpq finds another."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder or "PGPASSWORD" in os.environ or "password" in conninfo_to_dict(address):
        return {}
    try:
        return {"password": Path(folder, CREDENTIAL).read_text("utf-8").strip()}
    except FileNotFoundError:
        return {}


class PostgresStore:
    """A journal in PostgreSQL, for a writer; there may be several, one a process."""

    is_shared = True
    set_aside: Path | None = None
    bad_values: tuple[type[Exception], ...] = (
        TypeError,
        ValueError,
        psycopg.DataError,
        psycopg.IntegrityError,
    )

    def __init__(self, address: str) -> None:
        self._address = address
        self.name = f"in {shown(address)}"
        self.connection = PostgresConnection(address, _WRITER)
        self._writer, self._turn, self._kept = uuid4().hex, 0, 0

    def ensure_writable(self) -> None:
        """Connect again if the connection was cut; raises DatabaseAway."""
        if self.connection.is_broken:
            self.connection = PostgresConnection(self._address, _WRITER)

    def begin(self, *, durable: bool) -> float:  # noqa: ARG002 - each commit is flushed
        """Take the chain's row, which orders all writers.

        Each commit is flushed: a server that crashes must not forget what its daemon knows. The
        clock of leases is the database's: the same for all machines. A process that is frozen in
        its transaction, or cut off, keeps all others waiting for FROZEN_S at most. Raises
        JournalDamaged where the database is an older one than this writer wrote to.
        """
        self._turn += 1
        leave = _LEAVE_TURN.format(self._writer, self._turn)
        last, now_s = self.connection.at_once(f"{_TAKE_CHAIN}{leave}")
        if last != self._kept:
            raise JournalDamaged(
                f"The journal {self.name} lacks what this daemon wrote. It was restored from a "
                "backup, or a standby without the last writes took over.",
                "Start the daemon again. It continues from what the database has now.",
            )
        return float(now_s)

    def commit(self) -> None:
        """End the transaction that was begun last."""
        self.connection.execute("COMMIT")
        self._kept = self._turn

    def was_kept(self) -> bool:
        """Return whether a transaction whose COMMIT got no answer was committed.

        The transaction wrote its turn number. Its id is not proof: a crashed server reuses ids. The
        lock on the chain's row shows that the transaction has ended.
        """
        found = self.connection.at_once(f"{_TAKE_CHAIN}{_TURN.format(self._writer)}")
        self.connection.execute("ROLLBACK")
        if kept := found == (self._turn,):
            self._kept = self._turn
        return kept

    def must_pass(self, error: BaseException) -> None:
        """Raise an error that waiting does not solve."""
        if not may_pass(error):
            raise error

    def checkpoint(self) -> None:
        """Do nothing: the server does this itself."""


def user_of(address: str) -> str:
    """Return the role that an address logs in as: libpq's default if it names none."""
    known = {one.keyword: one.val for one in Conninfo.get_defaults()}
    return str(conninfo_to_dict(address).get("user") or (known.get(b"user") or b"").decode())


def shown(address: str) -> str:
    """Return an address for people, without a password."""
    parts = {key: str(value) for key, value in conninfo_to_dict(address).items()}
    return make_conninfo("", **{key: value for key, value in parts.items() if key not in _SECRET})


def checked(address: str) -> str:
    """Return an address that may stand in a file; raises UserError (exit code 2) for another."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise UserError(
            f"This is not the address of a PostgreSQL database: {error_line(error)}.",
            "Write it as postgresql://user@host/database",
            exit_code=2,
        ) from error
    if _SECRET & parts.keys():
        raise UserError(
            "The address contains a password. placet writes it to a file that may be synced.",
            "Leave it out. Give it by PGPASSWORD, ~/.pgpass, or the systemd credential "
            f"{CREDENTIAL}.",
            exit_code=2,
        )
    return address
