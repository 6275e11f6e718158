"""The database under a journal as its one writer needs it: what SQLite and PostgreSQL differ in."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from placet.journal.connection import plain_errors
from placet.journal.database import Store
from placet.journal.errors import is_damage, may_pass
from placet.journal.file import (
    damaged,
    identity_of,
    remove_partials,
    same_file,
)
from placet.journal.opening import open_journal
from placet.journal.place import address_of, database_of


class SqliteStore:
    """A journal in a file of SQLite's."""

    is_shared = False
    bad_values: tuple[type[Exception], ...] = (
        OverflowError,
        TypeError,
        ValueError,
        sqlite3.DataError,
        sqlite3.IntegrityError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
    )

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self.name = str(path)
        self._path = path
        self._boottime_s = boottime_s
        self.connection, self.set_aside = open_journal(path, now, say)
        try:
            remove_partials(path)
            self._identity = identity_of(path)
        except BaseException:
            self.connection.close()
            raise
        self._full_sync = False

    def ready(self) -> None:
        """Raise OSError if the path names another file, or none: SQLite would write on."""
        if not same_file(self._path, self._identity):
            raise OSError(
                f"{self._path.name} was moved, deleted or replaced; put it back, or restart the"
                " daemon: it begins a new one"
            )

    def begin(self, *, durable: bool) -> float:
        """Take the write lock; a `durable` commit is flushed."""
        if durable is not self._full_sync:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._full_sync = durable
        self.connection.execute("BEGIN IMMEDIATE")
        return self._boottime_s()

    def was_kept(self) -> bool:
        """Return False: a COMMIT that failed was rolled back."""
        return False

    def must_pass(self, error: BaseException) -> None:
        """Raise JournalDamaged for damage, and an error that no wait helps against."""
        if is_damage(error):
            raise damaged(self._path, error) from error
        if not may_pass(error):
            raise error

    def checkpoint(self) -> None:
        """Move the WAL into the database and empty it, if the disk and the readers allow it."""
        # the rest is as safe in the WAL
        with contextlib.suppress(sqlite3.OperationalError):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def store_of(
    path: Path,
    *,
    now: Callable[[], datetime],
    boottime_s: Callable[[], float],
    say: Callable[[str], None],
) -> Store:
    """Open the database of a journal for its writer; raises UserError as `Journal` does."""
    if not (address := address_of(path)):
        return SqliteStore(path, now=now, boottime_s=boottime_s, say=say)
    with plain_errors(path):
        return database_of(address).store(address)
