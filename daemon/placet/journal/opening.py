"""Open a journal for its one writer: wait for locks, check, migrate, set a damaged file aside."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from placet.errors import UserError
from placet.journal import schema
from placet.journal.errors import BUSY_MS, CACHE_KB, LOCKED, plainly, primary_code
from placet.journal.file import (
    check,
    finish_rollback,
    make_private_file,
    set_aside,
    use_wal,
)
from placet.journal.maintenance import backup
from placet.journal.schema import migrate_aside, must_be_released, schema_of

_PATIENCE_S = 30.0  # how long a lock is waited for
_RETRY_S = 1.0
# 1 MB: a WAL that fills the disk by itself could never be checkpointed again
_CHECKPOINT_PAGES = 250
_WAL_LIMIT_BYTES = 4 * 1024 * 1024  # a WAL that grew (a long reader) is cut back to this
_SETTINGS = (
    f"busy_timeout = {BUSY_MS}",
    f"cache_size = -{CACHE_KB}",
    "cell_size_check = 1",
    "trusted_schema = 0",
    "synchronous = NORMAL",
    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
    f"journal_size_limit = {_WAL_LIMIT_BYTES}",
    # macOS: a plain fsync does not reach the disk; elsewhere these two do nothing
    "fullfsync = 1",
    "checkpoint_fullfsync = 1",
)


def open_journal(
    path: Path, now: Callable[[], datetime], say: Callable[[str], None]
) -> tuple[sqlite3.Connection, Path | None]:
    """Return the checked, migrated connection of the writer, and the name of a file set aside.

    Raises UserError for a newer schema, a read-only or full place, and a lock that another program
    holds for over 30 s; `say` is told that it waits.
    """
    waited_s, aside = 0.0, None
    while True:
        try:
            aside = _sound_file(path, now, say) or aside
            return _connect(path), aside
        except (sqlite3.Error, OSError) as error:
            busy = isinstance(error, sqlite3.Error) and primary_code(error) in LOCKED
            if not busy or waited_s >= _PATIENCE_S:
                raise UserError(
                    f"cannot open the journal {path}: {plainly(error)}",
                    "check its permissions, the space on its disk, and who has it open",
                ) from error
        if not waited_s:
            say(f"the journal {path} is locked by another program; waiting for it")
        time.sleep(_RETRY_S)
        waited_s += _RETRY_S + BUSY_MS / 1000


def _sound_file(path: Path, now: Callable[[], datetime], say: Callable[[str], None]) -> Path | None:
    """Check the file, and copy one of an older schema; return the name of one set aside."""
    make_private_file(path)
    finish_rollback(path)
    damage, version = check(path)
    aside = None
    if damage:
        aside = set_aside(path, now())
        say(f"the journal was damaged ({damage}); it is kept as {aside}, and a new one was begun")
    must_be_released(version, path)
    if 0 < version < schema.latest():
        backup(path, path.with_name(f"journal.before-schema-{schema.latest()}.db"))
    return aside


def _connect(path: Path) -> sqlite3.Connection:
    make_private_file(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        use_wal(connection, path)
        if schema_of(connection, path) < schema.latest():
            migrate_aside(path)
            schema_of(connection, path)  # a newer placet may have been faster
        # SQLite opens a read-only file without complaint, and fails at the first write only
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE chain SET last_id = last_id")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection
