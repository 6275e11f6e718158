"""What SQLite's errors mean: what may pass, what is damage, and what a person is told."""

from __future__ import annotations

import errno
import sqlite3

BUSY_MS = 1_000  # a lock held longer than this is trouble, and said
CACHE_KB = 256
"""Pages that a connection keeps: SQLite's 2 MB are never given back, and the system has the file in its own cache."""


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code (sqlite.org/rescode.html); 0 for an error of Python's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PASSING = LOCKED | {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
}


def is_damage(error: BaseException) -> bool:
    """Return whether the file is no database any more, or not what was written."""
    # SQLite's message quotes a name of the schema, and that is damaged
    if isinstance(error, UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.Error) and primary_code(error) in _DAMAGED


def may_pass(error: BaseException) -> bool:
    """Whether the same write can succeed later, without a change to it: the outside is at fault."""
    return isinstance(error, OSError) or (
        isinstance(error, sqlite3.Error) and primary_code(error) in _PASSING
    )


def is_full(error: BaseException) -> bool:
    """Return whether there is no room for it."""
    if isinstance(error, sqlite3.Error):
        return primary_code(error) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def plainly(error: BaseException) -> str:
    """The error as a person knows it."""
    match primary_code(error) if isinstance(error, sqlite3.Error) else 0:
        case sqlite3.SQLITE_FULL:
            return "the disk is full"
        case sqlite3.SQLITE_READONLY:
            return "it is read-only"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another program holds a lock on it"
        case _:
            return str(error)


def rollback(connection: sqlite3.Connection) -> None:
    """Take back the transaction that is open, if one is."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
