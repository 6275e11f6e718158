"""Read-only connections to the journal, and SQLite's errors in plain words."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placet.disk.files import free_bytes
from placet.errors import UserError
from placet.journal.database import Connection, DatabaseAway
from placet.journal.errors import BUSY_MS, CACHE_KB, is_damage, may_pass, plainly
from placet.journal.file import damaged
from placet.journal.place import address_file, address_of, database_of
from placet.journal.schema import schema_of

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

    What is no UTF-8 in SQLite's file is decoded as `undecodable` says, a name of Python's for such
    errors. Raises UserError as `open_reader`, but not for an older schema.
    """
    if not (address := address_of(path)):
        with file_snapshot(path, undecodable) as connection:
            yield connection
        return
    with plain_errors(path), database_of(address).snapshot(address) as there:
        yield there


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

    Raises UserError if there is no journal, and sqlite3.Error.
    """
    path = path.absolute()
    if not path.exists():
        raise UserError(f"there is no journal yet: {path}", "start the daemon with `placet run`")
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
            full = path.parent.is_dir() and free_bytes(path.parent) < _FULL_BYTES
            raise UserError(
                f"cannot read the journal {path}: {'its disk is full' if full else plainly(error)}",
                "make room there" if full else "check its permissions and who has it open",
            ) from error
        raise
