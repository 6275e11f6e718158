"""Reading the journal, whether a daemon writes it or not: one snapshot, on a connection that can only read."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from placet.core.activity import CommittedRow
from placet.core.errors import UserError
from placet.core.life.lease import Lease, Owner
from placet.journal import schema
from placet.journal.blobs import body_of
from placet.journal.chain import ends
from placet.journal.errors import BUSY_MS, CACHE_KB, is_damage, may_pass, plainly, primary_code
from placet.journal.files import no_room, suspect
from placet.journal.schema import ACTIVITY, must_be_released, schema_of
from placet.journal.sums import ModelCalls
from placet.journal.writes import (
    BodyDamaged,
    CaseRow,
    JournalDamaged,
    PendingCommand,
    RecordEntry,
    SeenRow,
)


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection that sees one moment and can only read.

    Raises as `open_reader`, but not for an older schema.
    """
    with plain_errors(path):
        connection = connect(path)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()


def connect(path: Path, *, one_thread: bool = True) -> sqlite3.Connection:
    """Return a connection that can only read, for `one_thread` or for one after the other.

    Raises UserError where there is no journal, and what SQLite raises.
    """
    path = path.absolute()
    if not path.exists():
        raise UserError(f"there is no journal yet: {path}", "start the daemon with `placet run`")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=one_thread
    )
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # only the writer checkpoints
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA trusted_schema = 0")
        if not schema_of(connection, path):
            raise UserError(f"the journal is empty: {path}", "start the daemon with `placet run`")  # noqa: TRY301
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors on the journal as a person knows them."""
    path = path.absolute()
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if is_damage(error):
            suspect(path)
            raise JournalDamaged(
                f"the journal {path} is damaged: {error}",
                "restart the daemon: it sets the file aside and begins a new one",
            ) from error
        if may_pass(error):
            # SQLite calls it an I/O error where it cannot make a file beside it
            full = path.parent.is_dir() and no_room(path)
            raise UserError(
                f"cannot read the journal {path}: {'its disk is full' if full else plainly(error)}",
                "make room there" if full else "check its permissions and who has it open",
            ) from error
        raise


_NO_ROUTINE = "AND NOT (action_type = 'git.ran' AND metadata->>'stderr' IS NULL)"


SHA256_HEX = 64
"""Characters of a SHA-256, as names of texts have it."""


class Reader:
    """One snapshot of the journal, read-only. Made by `open_reader` and `Journal.read`.

    `calls` answers questions about model calls and costs.
    """

    def __init__(self, connection: sqlite3.Connection, blobs: Path) -> None:
        self._connection = connection
        self.calls = ModelCalls(connection)
        self._blobs = blobs

    def last(self) -> tuple[int, str]:
        """The last event's id and hash; 0 and 64 zeros for a journal that never had one."""
        return ends(self._connection)[2:]

    def knows(self, row_id: int, row_hash: str) -> bool:
        """Whether the event with this id and hash is in this journal, or was in it and is archived."""
        start_id, start_hash, last_id, last_hash = ends(self._connection)
        if row_id <= start_id or row_id >= last_id:
            return row_id < start_id or (row_id, row_hash) in (
                (start_id, start_hash),
                (last_id, last_hash),
            )
        found = self._connection.execute(
            "SELECT hash FROM activity WHERE id = ?", (row_id,)
        ).fetchone()
        return found is not None and bool(found[0] == row_hash)  # None: a person deleted the row

    def cases(self, *states: str) -> tuple[CaseRow, ...]:
        """All cases in these states, by trace_id.

        Without states all there are, which may be very many.
        """
        return _cases(
            self._connection,
            f"state IN ({', '.join('?' * len(states))})" if states else "1",
            states,
        )

    def latest_cases(self, state: str, limit: int) -> tuple[CaseRow, ...]:
        """The cases in a state that something was last decided on, by trace_id."""
        return _cases(
            self._connection,
            "trace_id IN (SELECT trace_id FROM cases WHERE state = ? ORDER BY updated_at DESC LIMIT ?)",
            (state, limit),
        )

    def count_cases(self) -> int:
        """How many cases there are."""
        return int(self._connection.execute("SELECT count(*) FROM cases").fetchone()[0])

    def watched_cases(self) -> tuple[CaseRow, ...]:
        """The cases with branches with which people may still do something that counts."""
        return _cases(self._connection, "watched")

    def cases_of(
        self, trace_ids: Collection[str] = (), paths: Collection[str] = ()
    ) -> tuple[CaseRow, ...]:
        """The cases with these trace ids, and those whose request or plan was last seen at one of these paths."""
        found = (
            {
                row.trace_id: row
                for row in _cases(
                    self._connection,
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
                    self._connection,
                    "(request_path <> '' AND request_path IN (SELECT value FROM json_each(?1))) "
                    "OR (plan_path <> '' AND plan_path IN (SELECT value FROM json_each(?1)))",
                    (_json(paths),),
                )
            }
        return tuple(found.values())

    def cases_named(self, ident: str) -> tuple[CaseRow, ...]:
        """The case with this request_id, else the first ten whose request_id or trace_id begins so."""
        exact = _cases(self._connection, "request_id = ?", (ident,))
        return exact or (
            _cases(
                self._connection,
                "(trace_id >= ?1 AND trace_id < ?1 || '~') OR (request_id >= ?1 AND request_id < ?1 || '~') "
                "ORDER BY trace_id LIMIT 10",
                (ident.lower(),),
            )
            if ident
            else ()
        )

    def request_ids(self, limit: int) -> tuple[str, ...]:
        """The request ids of the cases that something was last decided on."""
        rows = self._connection.execute(
            "SELECT request_id FROM cases ORDER BY updated_at DESC LIMIT ?", (limit,)
        )
        return tuple(name for (name,) in rows)

    def is_taken(self, request_id: str) -> bool:
        """Whether a case has this request_id."""
        return (
            self._connection.execute(
                "SELECT 1 FROM cases WHERE request_id = ? LIMIT 1", (request_id,)
            ).fetchone()
            is not None
        )

    def pending_commands(self) -> tuple[PendingCommand, ...]:
        """Everything in the outbox that is not done, oldest first."""
        rows = self._connection.execute(
            "SELECT id, trace_id, command, attempts, error FROM outbox WHERE done_at IS NULL ORDER BY id"
        )
        return tuple(PendingCommand(*row) for row in rows)

    def records(self, trace_id: str, attempt: int) -> tuple[RecordEntry, ...]:
        """A mission's record, by seq. Raises BodyDamaged where a body is not what was written."""
        rows = self._connection.execute(
            "SELECT seq, kind, key, sha256, body FROM records WHERE trace_id = ? AND attempt = ? "
            "ORDER BY seq",
            (trace_id, attempt),
        )
        return tuple(
            RecordEntry(seq, kind, key, body_of(self._blobs, sha256, body))
            for seq, kind, key, sha256, body in rows
        )

    def asked(self) -> tuple[tuple[str, int], ...]:
        """The conversations, by trace_id and attempt, with a call of the model that was begun and has not come back."""
        return tuple(
            self._connection.execute(
                "SELECT trace_id, attempt FROM asked ORDER BY trace_id, attempt"
            )
        )

    def text(self, digest: str) -> bytes | None:
        """The text kept under a digest, None if there is none. Raises BodyDamaged.

        A text under a SHA-256 has to be the text that it names: what was approved is what runs,
        whoever wrote into the database.
        """
        row = self._connection.execute(
            "SELECT sha256, body FROM texts WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and len(digest) == SHA256_HEX and row[0] != digest:
            raise BodyDamaged(
                f"the text {digest} in the journal is another one: it was changed",
                "put it back from a backup",
            )
        return body_of(self._blobs, *row) if row else None

    def has_record(self, trace_id: str, attempt: int, beginning: str) -> bool:
        """Whether a mission's record has an entry whose key begins so; its body is not read."""
        return (
            self._connection.execute(
                "SELECT 1 FROM records WHERE trace_id = ? AND attempt = ? AND substr(key, 1, ?) = ? LIMIT 1",
                (trace_id, attempt, len(beginning), beginning),
            ).fetchone()
            is not None
        )

    def seen(self) -> tuple[SeenRow, ...]:
        """What was acknowledged about notes that are no case, by path."""
        rows = self._connection.execute(
            "SELECT path, digest, verdict, detail FROM seen ORDER BY path"
        )
        return tuple(SeenRow(*row) for row in rows)

    def lease(self, trace_id: str) -> Lease | None:
        """The mission's lease, held or released; None if it never had one."""
        return lease_of(self._connection, trace_id)

    def activity(
        self,
        trace_id: str | None = None,
        *,
        after_id: int = 0,
        limit: int = 1_000,
        newest: bool = False,
        routine: bool = True,
    ) -> tuple[CommittedRow, ...]:
        """Events with ids above `after_id`, of one trace or all, in order: the first `limit` (-1: all), or the last.

        Without `routine` the git processes that went well are left out.
        """
        rows = self._connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals of this module
            f"WHERE id > ? AND {'trace_id = ?' if trace_id is not None else '? IS NULL'} "
            f"{'' if routine else _NO_ROUTINE} "
            f"ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?",
            (after_id, trace_id, limit),
        ).fetchall()
        return tuple(CommittedRow(*row) for row in (reversed(rows) if newest else rows))

    def last_of(self, *actions: str, trace_id: str) -> CommittedRow | None:
        """The newest event of these kinds of one trace, None if there is none.

        Of no trace ("") there are very many events.
        """
        marks = ", ".join("?" * len(actions))
        # the plus keeps SQLite from walking that column's index
        other = ("+", "") if trace_id else ("", "+")
        row = self._connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals and question marks
            f"WHERE {other[0]}action_type IN ({marks}) AND {other[1]}trace_id = ? ORDER BY id DESC LIMIT 1",
            (*actions, trace_id),
        ).fetchone()
        return CommittedRow(*row) if row else None


def _cases(
    connection: sqlite3.Connection, where: str, values: Sequence[object] = ()
) -> tuple[CaseRow, ...]:
    order = "" if "ORDER BY" in where else "ORDER BY trace_id"
    sql = f"SELECT trace_id, state, body, version FROM cases WHERE {where} {order}"  # noqa: S608 - the pieces are literals
    return tuple(CaseRow(*row) for row in connection.execute(sql, values))


def _json(texts: Collection[str]) -> str:
    return json.dumps(list(texts))


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[Reader]:
    """Read the journal, whether a daemon writes it or not. Everything read is one snapshot.

    Raises UserError where there is no journal yet, where its schema is newer or older than this
    version's, and JournalDamaged where it cannot be read.
    """
    with snapshot(path) as connection:
        version = schema_of(connection, path)
        must_be_released(version, path)
        if version < schema.latest():
            raise UserError(
                f"the journal {path} was written by an older placet (schema {version})",
                "start the daemon with `placet run`: it brings it up to date",
            )
        yield Reader(connection, path.parent / "blobs")


MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The longest value that a person's query may have or make."""


def query(
    path: Path, sql: str, *, timeout_s: float = 30.0
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT of a person's; return column names and rows.

    Reading is all it can do: the connection is read-only and an authorizer allows nothing else, so
    no attaching of other files and no pragma that writes. Raises UserError for SQL that fails or
    runs over `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    with snapshot(path) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
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
            late = (
                isinstance(error, sqlite3.OperationalError)
                and primary_code(error) == sqlite3.SQLITE_INTERRUPT
            )
            raise UserError(
                f"the query took over {timeout_s:.0f} s" if late else f"the query failed: {error}",
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


def lease_of(connection: sqlite3.Connection, trace_id: str) -> Lease | None:
    """Return a mission's lease, held or released; None if it never had one."""
    row = connection.execute(
        "SELECT token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s FROM leases "
        "WHERE trace_id = ?",
        (trace_id,),
    ).fetchone()
    if row is None:
        return None
    token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s = row
    owner = Owner(host, boot_id, pid, pid_start)
    return Lease(trace_id, token, owner, bool(held), acquired_at, heartbeat_s, expires_s)
