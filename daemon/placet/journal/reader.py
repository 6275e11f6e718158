"""Read the journal from one read-only snapshot, with or without a running daemon."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placet.activity import CommittedRow
from placet.case.lease import Lease, Owner
from placet.disk.files import free_bytes, identity_of
from placet.errors import UserError
from placet.journal import schema
from placet.journal.chain import last_event, utf8
from placet.journal.costs import ModelCalls
from placet.journal.database import (
    Connection,
    DatabaseAway,
    Values,
    address_file,
    address_of,
    database_of,
)
from placet.journal.errors import BUSY_MS, CACHE_KB, is_damage, may_pass, plainly, primary_code
from placet.journal.file import damaged
from placet.journal.schema import ACTIVITY, must_be_released, schema_of
from placet.journal.writes import (
    BodyDamaged,
    CaseRow,
    PendingCommand,
    RecordEntry,
    SeenRow,
    checked_body,
)

_FULL_BYTES = 1024 * 1024
"""Free bytes below which SQLite's "I/O error" means a full disk."""
_SETTINGS = (
    f"busy_timeout = {BUSY_MS}",
    f"cache_size = -{CACHE_KB}",
    "wal_autocheckpoint = 0",  # only the writer checkpoints
    "query_only = 1",
    "trusted_schema = 0",
)


@contextlib.contextmanager
def snapshot(path: Path, undecodable: str = "strict") -> Iterator[Connection]:
    """Yield a read-only connection that sees one moment.

    Bytes that are not UTF-8 are decoded by `undecodable`, a name of Python's for such
    errors. Raises UserError as `open_reader`, but not for an older schema.
    """
    if not (address := address_of(path)):
        with file_snapshot(path, undecodable) as connection:
            yield connection
        return
    with plain_errors(path), database_of(address).snapshot(address) as source:
        yield source


@contextlib.contextmanager
def file_snapshot(path: Path, undecodable: str = "strict") -> Iterator[sqlite3.Connection]:
    """Yield the same of SQLite's file."""
    with plain_errors(path):
        connection = connect_file(path)
        if undecodable != "strict":
            connection.text_factory = lambda raw: raw.decode("utf-8", undecodable)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()


def rows_of(connection: Connection, sql: str) -> Iterator[Any]:
    """Give the rows of a statement in a snapshot, however many, a few at a time."""
    return iter(getattr(connection, "stream", connection.execute)(sql))


def connect_file(path: Path, *, one_thread: bool = True) -> sqlite3.Connection:
    """Return a read-only connection to SQLite's file, for the caller's thread or for one at a time.

    Raises UserError if there is no journal, OSError and sqlite3.Error.
    """
    path = path.absolute()
    try:
        path.stat()
    except FileNotFoundError as error:
        raise UserError(
            f"there is no journal yet: {path}", "start the daemon with `placet run`"
        ) from error
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=one_thread
    )
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        if not schema_of(connection, path):
            raise UserError(f"the journal is empty: {path}", "start the daemon with `placet run`")  # noqa: TRY301
    except BaseException:
        connection.close()
        raise
    return connection


@dataclass(slots=True)
class Rows:
    """The fetched rows of a query, with the methods of a cursor that readers use."""

    left: Iterator[tuple[Any, ...]]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.left

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        return next(self.left, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return list(self.left)


class PatientFile:
    """A daemon's connection to SQLite's file, which waits while the machine is at fault.

    `wait` is called with the trouble before each new attempt; what it raises ends the waiting. With
    `one_moment` all queries see the same state, or a later one after a wait. Without, each sees all
    that is committed.
    """

    def __init__(self, path: Path, wait: Callable[[Exception], None], *, one_moment: bool) -> None:
        self._path = path
        self._wait = wait
        self._one_moment = one_moment
        self._connection: sqlite3.Connection | None = None

    def execute(self, sql: str, values: Values = (), /) -> Rows:
        """Run one query. Raises UserError without a journal, and errors that do not pass."""
        while True:
            try:
                return Rows(iter(self._connected().execute(sql, values).fetchall()))
            except (sqlite3.Error, OSError) as error:
                self.close()
                if not may_pass(error):
                    raise
                self._wait(error)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_file(self._path, one_thread=False)
            if self._one_moment:
                self._connection.execute("BEGIN")
        return self._connection

    def executemany(self, sql: str, values: Any, /) -> None:
        """Refuse to write."""
        raise NotImplementedError("a reader does not write")

    @property
    def in_transaction(self) -> bool:
        """Whether the snapshot has begun."""
        return self._connection is not None and self._connection.in_transaction

    def close(self) -> None:
        """Close it; the next query opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextlib.contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into JournalDamaged or UserError, and DatabaseAway into UserError."""
    path = path.absolute()
    try:
        yield
    except DatabaseAway as error:
        raise UserError(
            f"The journal's database cannot be reached: {error}.",
            f"Look whether it runs at the address in {address_file(path)}, then try again.",
        ) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if is_damage(error):
            raise damaged(path, error) from error
        if may_pass(error):
            # SQLite says "I/O error" if it cannot make a file next to the database
            full = _is_full(path.parent)
            raise UserError(
                f"cannot read the journal {path}: {'its disk is full' if full else plainly(error)}",
                "make room there" if full else "check its permissions and who has it open",
            ) from error
        raise


def _is_full(folder: Path) -> bool:
    with suppress(OSError):
        return free_bytes(folder) < _FULL_BYTES
    return False


_NO_ROUTINE = "AND NOT (action_type = 'git.ran' AND metadata->>'stderr' IS NULL)"


SHA256_HEX = 64
"""Length of a SHA-256 in hex."""


class Reader:
    """One snapshot of the journal, read-only. Made by `open_reader` and `Journal.read`.

    `calls` answers questions about model calls and costs.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.calls = ModelCalls(connection)

    def last(self) -> tuple[int, str]:
        """Return the last event's id and hash; 0 and 64 zeros for an empty journal."""
        return last_event(self.connection)

    def knows(self, row_id: int, row_hash: str) -> bool:
        """Return whether the event with this id and hash is in this journal."""
        if (row_id, row_hash) == self.last():  # which an empty journal has, too
            return True
        found = self.connection.execute(
            "SELECT hash FROM activity WHERE id = ?", (row_id,)
        ).fetchone()
        return found is not None and bool(found[0] == row_hash)  # None: a person deleted the row

    def cases(self, *states: str) -> tuple[CaseRow, ...]:
        """Return the cases in these states, by trace_id; all cases, maybe many, without states."""
        return _cases(
            self.connection,
            f"state IN ({', '.join('?' * len(states))})" if states else "TRUE",
            states,
        )

    def latest_cases(self, state: str, limit: int) -> tuple[CaseRow, ...]:
        """Return the last decided cases in a state, by trace_id."""
        return _cases(
            self.connection,
            "trace_id IN "
            "(SELECT trace_id FROM cases WHERE state = ? ORDER BY updated_at DESC LIMIT ?)",
            (state, limit),
        )

    def latest_watched(self, limit: int) -> tuple[CaseRow, ...]:
        """Return the last decided cases with branches that people may merge or drop."""
        return _cases(
            self.connection,
            "trace_id IN "
            "(SELECT trace_id FROM cases WHERE watched ORDER BY updated_at DESC LIMIT ?)",
            (limit,),
        )

    def cases_about(
        self, states: Collection[str], words: Sequence[str], limit: int
    ) -> tuple[CaseRow, ...]:
        """Return the last decided cases in these states whose request_id has all these words."""
        named = "".join(" AND request_id LIKE ?" for _ in words)
        return _cases(
            self.connection,
            "trace_id IN (SELECT trace_id FROM cases "  # noqa: S608 - question marks
            f"WHERE state IN ({', '.join('?' * len(states))}){named} "
            "ORDER BY updated_at DESC LIMIT ?)",
            (*states, *(f"%{word}%" for word in words), limit),
        )

    def count_cases(self) -> int:
        """Return the number of cases."""
        return int(self.connection.execute("SELECT count(*) FROM cases").fetchone()[0])

    def watched_cases(self) -> tuple[CaseRow, ...]:
        """Return the cases with open branches, which people may still merge or drop."""
        return _cases(self.connection, "watched")

    def cases_of(
        self, trace_ids: Collection[str] = (), paths: Collection[str] = ()
    ) -> tuple[CaseRow, ...]:
        """Return the cases with one of these trace ids, or a note at one of these paths."""
        found = (
            {
                row.trace_id: row
                for row in _cases(
                    self.connection,
                    "trace_id IN (SELECT value FROM json_each(?))",
                    (_json(trace_ids),),
                )
            }
            if trace_ids
            else {}
        )
        if paths:
            found |= {
                row.trace_id: row
                for row in _cases(
                    self.connection,
                    "(request_path <> '' AND request_path IN (SELECT value FROM json_each(?))) "
                    "OR (plan_path <> '' AND plan_path IN (SELECT value FROM json_each(?)))",
                    (_json(paths),) * 2,
                )
            }
        return tuple(found.values())

    def cases_named(self, ident: str) -> tuple[CaseRow, ...]:
        """Return the case with this request_id, else ten whose request_id or trace_id begins so."""
        exact = _cases(self.connection, "request_id = ?", (ident,))
        return exact or (
            _cases(
                self.connection,
                "(trace_id >= ? AND trace_id < ?) OR (request_id >= ? AND request_id < ?) "
                "ORDER BY trace_id LIMIT 10",
                (ident.lower(), f"{ident.lower()}~") * 2,
            )
            if ident
            else ()
        )

    def request_ids(self, limit: int) -> tuple[str, ...]:
        """Return the request ids of the last decided cases."""
        rows = self.connection.execute(
            "SELECT request_id FROM cases ORDER BY updated_at DESC LIMIT ?", (limit,)
        )
        return tuple(name for (name,) in rows)

    def is_taken(self, request_id: str) -> bool:
        """Return whether a case has this request_id."""
        return (
            self.connection.execute(
                "SELECT 1 FROM cases WHERE request_id = ? LIMIT 1", (request_id,)
            ).fetchone()
            is not None
        )

    def pending_commands(self) -> tuple[PendingCommand, ...]:
        """Return the commands in the outbox that are not done, oldest first."""
        rows = self.connection.execute(
            "SELECT id, trace_id, command, attempts, error FROM outbox "
            "WHERE done_at IS NULL ORDER BY id"
        )
        return tuple(PendingCommand(*row) for row in rows)

    def answers(self, ids: Collection[str]) -> dict[str, str]:
        """Return by id why intents were refused, empty for those performed; others are left out."""
        return dict(
            self.connection.execute(
                "SELECT id, refused FROM intents WHERE id IN (SELECT value FROM json_each(?))",
                (_json(ids),),
            )
        )

    def records(
        self, trace_id: str, attempt: int, *, last: bool = False, but: str = ""
    ) -> tuple[RecordEntry, ...]:
        """Return a mission's record, by seq, or its `last` entry. Raises BodyDamaged.

        Entries whose key begins with `but` are left out.
        """
        rows = self.connection.execute(
            "SELECT seq, kind, key, sha256, body FROM records WHERE trace_id = ? AND attempt = ? "  # noqa: S608 - literals
            "AND (? = '' OR substr(key, 1, length(?)) <> ?) "
            f"ORDER BY seq {'DESC LIMIT 1' if last else ''}",
            (trace_id, attempt, but, but, but),
        )
        return tuple(
            RecordEntry(seq, kind, key, checked_body(sha256, body))
            for seq, kind, key, sha256, body in rows
        )

    def asked(self) -> tuple[tuple[str, int], ...]:
        """Return the conversations (trace_id, attempt) with an unanswered model call."""
        return tuple(
            self.connection.execute(
                "SELECT trace_id, attempt FROM asked ORDER BY trace_id, attempt"
            )
        )

    def text(self, digest: str) -> bytes | None:
        """Return the text kept under a digest, or None. Raises BodyDamaged.

        A text under a SHA-256 must have that hash: what was approved is what runs, whoever wrote
        into the database.
        """
        row = self.connection.execute(
            "SELECT sha256, body FROM texts WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and len(digest) == SHA256_HEX and row[0] != digest:
            raise BodyDamaged(
                f"the text {digest} in the journal is another one: it was changed",
                "put it back from a backup",
            )
        return checked_body(*row) if row else None

    def seen(self) -> tuple[SeenRow, ...]:
        """Return the acknowledged notes that belong to no case, by path."""
        rows = self.connection.execute(
            "SELECT path, digest, verdict, detail FROM seen ORDER BY path"
        )
        return tuple(SeenRow(*row) for row in rows)

    def lease(self, trace_id: str) -> Lease | None:
        """Return the mission's lease, held or released; None if it never had one."""
        return lease_of(self.connection, trace_id)

    def activity(
        self,
        trace_id: str | None = None,
        *,
        after_id: int = 0,
        limit: int = 1_000,
        newest: bool = False,
        routine: bool = True,
    ) -> tuple[CommittedRow, ...]:
        """Return events above `after_id`, of one trace or all: the first `limit`, or the `newest`.

        A `limit` of -1 means all. Without `routine`, successful git processes are left out.
        """
        rows = self.connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals of this module
            f"WHERE id > ? {'' if trace_id is None else 'AND trace_id = ?'} "
            f"{'' if routine else _NO_ROUTINE} "
            f"ORDER BY id {'DESC' if newest else 'ASC'} {'' if limit < 0 else 'LIMIT ?'}",
            (
                after_id,
                *(() if trace_id is None else (trace_id,)),
                *(() if limit < 0 else (limit,)),
            ),
        ).fetchall()
        return tuple(CommittedRow(*row) for row in (reversed(rows) if newest else rows))

    def last_of(self, *actions: str, trace_id: str) -> CommittedRow | None:
        """Return the newest event of these kinds of one trace ("": about no request), or None."""
        marks = ", ".join("?" * len(actions))
        # the plus keeps SQLite from walking that column's index
        other = ("+", "") if trace_id else ("", "+")
        row = self.connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals and question marks
            f"WHERE {other[0]}action_type IN ({marks}) AND {other[1]}trace_id = ? "
            "ORDER BY id DESC LIMIT 1",
            (*actions, trace_id),
        ).fetchone()
        return CommittedRow(*row) if row else None


def _cases(
    connection: Connection, where: str, values: Sequence[object] = ()
) -> tuple[CaseRow, ...]:
    order = "" if "ORDER BY" in where else "ORDER BY trace_id"
    sql = f"SELECT trace_id, body, version FROM cases WHERE {where} {order}"  # noqa: S608 - the pieces are literals
    return tuple(CaseRow(*row) for row in connection.execute(sql, values))


def _json(texts: Collection[str]) -> str:
    return json.dumps([utf8(text) for text in texts])


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[Reader]:
    """Yield a reader of one snapshot of the journal.

    Raises UserError if there is no journal yet or its schema is of another version, and
    JournalDamaged.
    """
    with snapshot(path) as connection:
        version = schema_of(connection, path)
        must_be_released(version, path)
        if version < schema.latest():
            raise UserError(
                f"the journal {path} was written by an older placet (schema {version})",
                "start the daemon with `placet run`: it brings it up to date",
            )
        yield Reader(connection)


def lease_of(connection: Connection, trace_id: str) -> Lease | None:
    """Return a mission's lease, held or released; None if it never had one."""
    row = connection.execute(
        "SELECT token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s "
        "FROM leases WHERE trace_id = ?",
        (trace_id,),
    ).fetchone()
    if row is None:
        return None
    token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s = row
    owner = Owner(host, boot_id, pid, pid_start)
    return Lease(trace_id, token, owner, bool(held), acquired_at, heartbeat_s, expires_s)


LOOK_S = 2.0
"""Seconds after which `changes` yields although nothing changed."""


def changes(path: Path, poll_s: float, for_s: float = math.inf) -> Iterator[None]:
    """Yield at once, after each change of the journal, and at least every LOOK_S.

    It ends after `for_s`. Another file in its place is a change, too. There may be no journal yet.
    """
    until, every_s = time.monotonic() + for_s, min(LOOK_S, for_s / 10)
    while True:
        address = address_of(path)
        found = (
            database_of(address).changes(address, every_s)
            if address
            else _file_changes(path, poll_s, every_s)
        )
        for _ in found:
            yield
            if time.monotonic() > until:
                return
            if address_of(path) != address:
                break


def _file_changes(path: Path, poll_s: float, every_s: float) -> Iterator[None]:
    """Poll the version of SQLite's file; a file that was replaced is opened again."""
    connection, opened = None, None
    seen, due = None, 0.0
    try:
        while True:
            file = identity_of(path)
            if connection is None or file != opened:
                if connection is not None:
                    connection.close()
                connection, opened = _open(path), file
            version = None if connection is None else _version(connection)
            if version is None:  # it cannot be read just now
                connection = None
            if (file, version) != seen or time.monotonic() > due:
                seen, due = (file, version), time.monotonic() + every_s
                yield
            time.sleep(poll_s)
    finally:
        if connection is not None:
            connection.close()


def _open(path: Path) -> sqlite3.Connection | None:
    with suppress(UserError, sqlite3.Error):
        return connect_file(path)
    return None


def _version(connection: sqlite3.Connection) -> int | None:
    """Return a number that goes up when another connection writes; close what cannot be read."""
    try:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        connection.close()
        return None


MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The longest value in a person's query."""


def query(
    path: Path, sql: str, *, timeout_s: float = 30.0
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT of a person's; return column names and rows.

    It can only read: the connection is read-only, and an authorizer refuses other files and pragmas
    that write. Raises UserError for SQL that fails or runs over `timeout_s`.
    """
    if address := address_of(path):
        with plain_errors(path):
            return database_of(address).query(address, sql, timeout_s)
    deadline = time.monotonic() + timeout_s
    with file_snapshot(path, "replace") as connection:
        connection.set_authorizer(_authorize)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            cursor = connection.execute(sql)
            rows = cursor.fetchall()
        except (
            sqlite3.Error,
            sqlite3.Warning,
        ) as error:  # Warning: two statements, before Python 3.12
            if isinstance(error, sqlite3.Error) and is_damage(error):
                raise
            is_late = (
                isinstance(error, sqlite3.OperationalError)
                and primary_code(error) == sqlite3.SQLITE_INTERRUPT
            )
            raise UserError(
                f"the query took over {timeout_s:.0f} s"
                if is_late
                else f"the query failed: {error}",
                "it must be one SELECT; `SELECT sql FROM sqlite_master` lists the tables",
                exit_code=2,
            ) from error
    return tuple(column[0] for column in cursor.description or ()), rows


def _authorize(
    action: int, name: str | None, _b: str | None, _c: str | None, _d: str | None
) -> int:
    if action in (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_FUNCTION,
    ):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and name in (
        "table_info",
        "table_list",
        "index_list",
        "index_info",
    ):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
