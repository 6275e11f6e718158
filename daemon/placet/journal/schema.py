"""The tables, and how a journal of an older version gets them."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placet.core.errors import UserError
from placet.journal.errors import BUSY_MS, primary_code, rollback

if TYPE_CHECKING:
    import sqlite_utils

Step = tuple[str, tuple[str, ...]]
"""One migration: its name and its statements."""

SCHEMA: tuple[Step, ...] = (
    (
        "0006_journal",
        (
            """CREATE TABLE activity (
             id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, trace_id TEXT NOT NULL, actor TEXT NOT NULL,
             agent TEXT NOT NULL, action_type TEXT NOT NULL, entity_type TEXT NOT NULL,
             entity_id TEXT NOT NULL, metadata TEXT NOT NULL, hash TEXT NOT NULL)""",
            "CREATE INDEX activity_trace ON activity (trace_id)",
            "CREATE INDEX activity_action ON activity (action_type, entity_id)",
            """CREATE TABLE chain (
             one INTEGER PRIMARY KEY CHECK (one = 1), start_id INTEGER NOT NULL, start_hash TEXT NOT NULL,
             last_id INTEGER NOT NULL, last_hash TEXT NOT NULL)""",
            "INSERT INTO chain VALUES (1, 0, printf('%064d', 0), 0, printf('%064d', 0))",  # 64 zeros
            # What is asked again and again costs the same however many missions lie behind: cases are
            # found by where their notes lie. By columns: a schema that calls SQLite's JSON functions is
            # not trusted.
            """CREATE TABLE cases (
             trace_id TEXT PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL,
             version INTEGER NOT NULL, updated_at TEXT NOT NULL, request_path TEXT NOT NULL DEFAULT '',
             plan_path TEXT NOT NULL DEFAULT '', watched INTEGER NOT NULL DEFAULT 0)""",
            "CREATE INDEX cases_request ON cases (request_id)",
            "CREATE INDEX cases_state ON cases (state, updated_at)",
            "CREATE INDEX cases_request_path ON cases (request_path) WHERE request_path <> ''",
            "CREATE INDEX cases_plan_path ON cases (plan_path) WHERE plan_path <> ''",
            "CREATE INDEX cases_watched ON cases (trace_id) WHERE watched",
            """CREATE TABLE outbox (
             id INTEGER PRIMARY KEY AUTOINCREMENT, trace_id TEXT NOT NULL, command TEXT NOT NULL,
             attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL, done_at TEXT)""",
            "CREATE INDEX outbox_pending ON outbox (id) WHERE done_at IS NULL",
            # for the archive, which goes case by case
            "CREATE INDEX outbox_trace ON outbox (trace_id)",
            """CREATE TABLE leases (
             trace_id TEXT PRIMARY KEY, token INTEGER NOT NULL, host TEXT NOT NULL, boot_id TEXT NOT NULL,
             pid INTEGER NOT NULL, pid_start TEXT NOT NULL, held INTEGER NOT NULL, acquired_at TEXT NOT NULL,
             heartbeat_s REAL NOT NULL, expires_s REAL NOT NULL)""",
            """CREATE TABLE records (
             trace_id TEXT NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
             key TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, body BLOB,
             UNIQUE (trace_id, attempt, seq))""",
            """CREATE TABLE seen (
             path PRIMARY KEY, digest TEXT NOT NULL, verdict TEXT NOT NULL, detail TEXT NOT NULL)""",
            """CREATE TABLE texts (
             digest TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL, body BLOB)""",
            # What the model used, as sums.
            """CREATE TABLE paid (complexity TEXT NOT NULL, activity_id INTEGER NOT NULL, usd REAL NOT NULL,
             PRIMARY KEY (complexity, activity_id)) WITHOUT ROWID""",
            """CREATE TABLE spent (quarter TEXT PRIMARY KEY, tokens INTEGER NOT NULL, usd REAL NOT NULL,
             unknown INTEGER NOT NULL) WITHOUT ROWID""",
            # Which calls of the model were begun and have not come back, so that those that a kill cut
            # off are found whatever became of their case since.
            "CREATE TABLE asked (trace_id TEXT NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY (trace_id, attempt)) WITHOUT ROWID",
        ),
    ),
)
"""The migrations, oldest first; append, never edit a released one."""
FIRST = 6
"""The number of the first of them.

Schemas 1 to 5 were never released; a journal of one of them is refused.
"""

ACTIVITY = (
    "id, timestamp, trace_id, actor, agent, action_type, entity_type, entity_id, metadata, hash"
)


def latest(steps: Sequence[Step] | None = None) -> int:
    """Return the number that `PRAGMA user_version` has after these steps, or after this version's."""
    return FIRST + len(SCHEMA if steps is None else steps) - 1


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Bring the database to `steps`, in one transaction that holds the write lock.

    Two at once are safe.

    sqlite-utils keeps the account of what was applied. It is imported here alone: it takes a
    quarter of a second, and is needed once in a database's life.
    """
    import sqlite_utils

    database = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
    # sqlite-utils alone would begin deferred, and two would clash
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _number(connection)
        if version < latest(steps):  # else another was faster
            _missing(steps[max(0, version - FIRST + 1) :]).apply(database)
            connection.execute(f"PRAGMA user_version = {latest(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        rollback(connection)
        raise


def _missing(steps: Sequence[Step]) -> sqlite_utils.Migrations:
    import sqlite_utils

    migrations = sqlite_utils.Migrations("placet")
    for name, statements in steps:

        def run(db: sqlite_utils.Database, statements: tuple[str, ...] = statements) -> None:
            for statement in statements:
                db.conn.execute(statement)

        migrations(name=name)(run)
    return migrations


def migrate_aside(path: Path) -> None:
    """Bring the schema up to date in a process of its own, so that the daemon never carries sqlite-utils' 7 MB.

    Raises sqlite3.OperationalError with SQLite's own code.
    """
    env = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONHOME")
        if name in os.environ
    }
    done = subprocess.run(
        [sys.executable, "-m", "placet.journal", str(path)],
        env=env,
        input=json.dumps(SCHEMA),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        code, _, why = done.stdout.partition(" ")
        error = sqlite3.OperationalError(why.strip() or done.stderr.strip()[-500:])
        error.sqlite_errorcode = int(code) if code.isdigit() else sqlite3.SQLITE_ERROR
        raise error


def migrate_here(path: str) -> int:
    """Migrate to the steps on standard input, as `migrate_aside` asks.

    Say SQLite's code and words if it fails.
    """
    steps = [(name, tuple(statements)) for name, statements in json.load(sys.stdin)]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        try:
            migrate(connection, steps)
        except sqlite3.Error as error:
            sys.stdout.write(f"{primary_code(error)} {error}")
            return 1
    return 0


def schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's number, 0 for an empty file.

    Raises UserError for one that this version does not know.
    """
    version = _number(connection)
    if version > latest():
        raise UserError(
            f"the journal {path} was written by a newer placet (schema {version}, known {latest()})",
            "install that version again, or put back a backup from before it",
        )
    return version


def must_be_released(version: int, path: Path) -> None:
    """Raise UserError for a journal that a placet from before the first release wrote.

    It can still be queried and verified.
    """
    if 0 < version < FIRST:
        raise UserError(
            f"the journal {path} was written by a placet from before the first release (schema {version})",
            "move it out of that folder and start the daemon: it begins a new one, and reads from reports and branches what became "
            "of missions",
        )
