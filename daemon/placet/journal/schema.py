"""Define the tables, and migrate older journals."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placet.errors import UserError
from placet.journal.database import Connection
from placet.journal.errors import rollback

if TYPE_CHECKING:
    import sqlite_utils

Step = tuple[str, tuple[str, ...]]
"""One migration: its name and its statements."""

SCHEMA: tuple[Step, ...] = (
    (
        "0009_journal",
        (
            # results of intents: each intent is performed once
            "CREATE TABLE intents (id TEXT PRIMARY KEY, refused TEXT NOT NULL) WITHOUT ROWID",
            """CREATE TABLE activity (
             id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, trace_id TEXT NOT NULL,
             actor TEXT NOT NULL,
             agent TEXT NOT NULL, action_type TEXT NOT NULL, entity_type TEXT NOT NULL,
             entity_id TEXT NOT NULL, metadata TEXT NOT NULL, hash TEXT NOT NULL)""",
            "CREATE INDEX activity_trace ON activity (trace_id)",
            "CREATE INDEX activity_action ON activity (action_type, entity_id)",
            "CREATE INDEX activity_human ON activity (actor) WHERE actor = 'human'",
            """CREATE TABLE chain (
             one INTEGER PRIMARY KEY CHECK (one = 1),
             last_id INTEGER NOT NULL, last_hash TEXT NOT NULL)""",
            "INSERT INTO chain VALUES (1, 0, printf('%064d', 0))",  # 64 zeros
            # Frequent queries must not grow with the journal: cases are found by paths of notes.
            # Columns, because a schema that calls SQLite's JSON functions is not trusted.
            """CREATE TABLE cases (
             trace_id TEXT PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL,
             body TEXT NOT NULL,
             version INTEGER NOT NULL, updated_at TEXT NOT NULL,
             request_path TEXT NOT NULL DEFAULT '',
             plan_path TEXT NOT NULL DEFAULT '', watched INTEGER NOT NULL DEFAULT 0)""",
            "CREATE INDEX cases_request ON cases (request_id)",
            "CREATE INDEX cases_state ON cases (state, updated_at)",
            "CREATE INDEX cases_request_path ON cases (request_path) WHERE request_path <> ''",
            "CREATE INDEX cases_plan_path ON cases (plan_path) WHERE plan_path <> ''",
            "CREATE INDEX cases_watched ON cases (trace_id) WHERE watched",
            """CREATE TABLE outbox (
             id INTEGER PRIMARY KEY AUTOINCREMENT, trace_id TEXT NOT NULL, command TEXT NOT NULL,
             attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
             created_at TEXT NOT NULL, done_at TEXT)""",
            "CREATE INDEX outbox_pending ON outbox (id) WHERE done_at IS NULL",
            """CREATE TABLE leases (
             trace_id TEXT PRIMARY KEY, token INTEGER NOT NULL, host TEXT NOT NULL,
             boot_id TEXT NOT NULL,
             pid INTEGER NOT NULL, pid_start TEXT NOT NULL, held INTEGER NOT NULL,
             acquired_at TEXT NOT NULL,
             heartbeat_s REAL NOT NULL, expires_s REAL NOT NULL)""",
            """CREATE TABLE records (
             trace_id TEXT NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL,
             kind TEXT NOT NULL,
             key TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL,
             body BLOB NOT NULL,
             UNIQUE (trace_id, attempt, seq))""",
            """CREATE TABLE seen (
             path PRIMARY KEY, digest TEXT NOT NULL, verdict TEXT NOT NULL,
             detail TEXT NOT NULL)""",
            """CREATE TABLE texts (
             digest TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL,
             body BLOB NOT NULL)""",
            # usage of models, as sums
            """CREATE TABLE paid (complexity TEXT NOT NULL, activity_id INTEGER NOT NULL,
             usd REAL NOT NULL,
             PRIMARY KEY (complexity, activity_id)) WITHOUT ROWID""",
            """CREATE TABLE spent (quarter TEXT PRIMARY KEY, tokens INTEGER NOT NULL,
             usd REAL NOT NULL,
             unknown INTEGER NOT NULL) WITHOUT ROWID""",
            # model calls begun and not answered: finds those that a kill cut off
            """CREATE TABLE asked (trace_id TEXT NOT NULL, attempt INTEGER NOT NULL,
             PRIMARY KEY (trace_id, attempt)) WITHOUT ROWID""",
        ),
    ),
)
"""The migrations, oldest first; append, never edit a released one."""
FIRST = 9
"""The number of the first migration; schemas before it were never released and are refused."""

ACTIVITY = (
    "id, timestamp, trace_id, actor, agent, action_type, entity_type, entity_id, metadata, hash"
)


def latest(steps: Sequence[Step] | None = None) -> int:
    """Return the number in `PRAGMA user_version` after these steps, by default this version's."""
    return FIRST + len(SCHEMA if steps is None else steps) - 1


def _number(connection: Connection) -> int:
    if isinstance(connection, sqlite3.Connection):
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    return int(connection.execute("SELECT number FROM schema_number").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Apply the missing steps in one transaction that holds the write lock; two at once are safe.

    sqlite-utils records what was applied. It is imported only here: it takes a quarter of a second
    and 7 MB, and is needed once in a database's life.
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


def schema_of(connection: Connection, path: Path) -> int:
    """Return the schema's number, 0 for an empty file; raises UserError for a newer one."""
    version = _number(connection)
    if version > latest():
        raise UserError(
            f"the journal {path} was written by a newer placet (schema {version}, known "
            f"{latest()})",
            "install that version again, or put back a backup from before it",
        )
    return version


def must_be_released(version: int, path: Path) -> None:
    """Raise UserError for a journal from before the first release; queries still work on it."""
    if 0 < version < FIRST:
        folder = shlex.quote(str(path.parent))
        kept = shlex.quote(str(path.parent / f"schema-{version}"))
        raise UserError(
            f"the journal {path} is from before the first release (schema {version}). "
            "This placet cannot use it.",
            f"Keep it and begin a new one: mkdir {kept} && mv {folder}/{path.name}* {kept}. "
            "When the daemon starts, open plans come back for review.",
        )
