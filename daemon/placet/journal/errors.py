"""Sort SQLite's errors into passing trouble and damage, and word them for people."""

from __future__ import annotations

import sqlite3

from placet.journal.database import Connection, DatabaseAway

BUSY_MS = 1_000  # a lock held longer than this is trouble, and said
CACHE_KB = 256
"""Page cache of a connection. SQLite never frees its default of 2 MB; the system caches, too."""


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code (sqlite.org/rescode.html); 0 for an error of Python's own."""
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
    """Return whether an error means that the file is damaged."""
    # SQLite's message quotes a name of the schema, and that is damaged
    if isinstance(error, UnicodeDecodeError):
        return True
    return isinstance(error, sqlite3.Error) and primary_code(error) in _DAMAGED


def may_pass(error: BaseException) -> bool:
    """Return whether the same write can succeed later: the machine is at fault."""
    return isinstance(error, OSError) or (
        isinstance(error, sqlite3.Error) and primary_code(error) in _PASSING
    )


def plainly(error: BaseException) -> str:
    """Return the error in a person's words."""
    match primary_code(error) if isinstance(error, sqlite3.Error) else 0:
        case sqlite3.SQLITE_FULL:
            return "the disk is full"
        case sqlite3.SQLITE_READONLY:
            return "it is read-only"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another program holds a lock on it"
        case _:
            return str(error)


def rollback(connection: Connection) -> None:
    """Roll back the open transaction, if any; a line that is cut is closed, which does the same."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except DatabaseAway:
            connection.close()
