"""Create the database file, check it, set it aside, replace it whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from placet.disk.files import sync
from placet.errors import UserError
from placet.journal.errors import BUSY_MS, is_damage, primary_code
from placet.journal.schema import schema_of
from placet.journal.writes import JournalDamaged


def make_private_file(path: Path) -> None:
    """Make the database's file, mode 0600, which SQLite gives to its -wal and -shm, too.

    Raises UserError for anything but a regular file.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"the journal {path} is not a regular file", "move it away")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def finish_rollback(path: Path) -> None:
    """Let SQLite roll back after a kill before the database had its write-ahead log.

    A read-only connection cannot.
    """
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                return  # whatever it is, the check says so
        except sqlite3.DatabaseError:
            return
        else:
            return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version").fetchone()


WHOLE_BYTES = 64 * 1024 * 1024
"""Largest journal that each start reads whole, in 0.1 s. 2.4 GB take 2.5 s, or 27 s when busy."""


def check(path: Path, *, whole: bool = False) -> tuple[str, int]:
    """Return the database's damage ("" for none) and its schema's number (0 if damaged).

    A database over WHOLE_BYTES is read whole only if `whole`, or after somebody met damage in it
    (`damaged`).
    """
    suspect = _suspicion(path)
    whole = whole or suspect.exists() or path.stat().st_size <= WHOLE_BYTES
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA cell_size_check = 1")
        try:
            version = schema_of(connection, path)
            asked = "PRAGMA quick_check(1)" if whole else "SELECT 'ok'"
            found = str(connection.execute(asked).fetchone()[0])
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # quick_check raises for the worst damage instead of returning it; SQLITE_ERROR can only
            # come from the file here ("unsupported file format"), for the statements are fixed
            if is_damage(error) or (
                isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_ERROR
            ):
                return str(error), 0
            raise
    if found != "ok":
        return found, 0
    if whole:
        with contextlib.suppress(OSError):  # a reader may not be allowed to delete there
            suspect.unlink()
    return "", version


def _suspicion(path: Path) -> Path:
    return path.with_name(f"{path.name}-suspect")


def damaged(path: Path, error: BaseException | str) -> JournalDamaged:
    """Return the error for damage met in the database, and have the next start read all of it."""
    with contextlib.suppress(OSError):  # a reader may not be allowed to write there
        _suspicion(path).touch(0o600)
    return JournalDamaged(
        f"the journal {path} is damaged: {error}",
        "restart the daemon: it sets the file aside and begins a new one",
    )


def set_aside(path: Path, moment: datetime) -> Path:
    """Rename the database and its companions; return the new name."""
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    _suspicion(path).unlink(missing_ok=True)
    return rename_database(path, f"{path.stem}.damaged-{stamp}{path.suffix}")


def rename_database(path: Path, name: str) -> Path:
    """Rename the database and its companions; return the new path."""
    kept = path.with_name(name)
    for tail in ("-wal", "-shm", "-journal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{tail}").rename(f"{kept}{tail}")
    return kept


@contextlib.contextmanager
def new_database(target: Path) -> Iterator[sqlite3.Connection]:
    """Yield a new database, which gets its name once it is complete and flushed."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    partial.unlink(missing_ok=True)
    make_private_file(partial)
    try:
        with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = 1")
            yield connection
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
