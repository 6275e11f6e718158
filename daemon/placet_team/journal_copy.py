"""Copy or move a journal from one database to another."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placet.disk.files import put
from placet.errors import UserError
from placet.journal.chain import last_event
from placet.journal.database import VAULT, Connection, DatabaseAway, address_file, address_of
from placet.journal.file import new_database, rename_database
from placet.journal.reader import file_snapshot, open_reader, rows_of, snapshot
from placet.journal.schema import SCHEMA, migrate
from placet.journal.writes import checked_body, hashed_body
from placet.wording import counted

TABLES = (
    "activity",
    "chain",
    "cases",
    "outbox",
    "leases",
    "records",
    "seen",
    "texts",
    "paid",
    "spent",
    "asked",
    "intents",
)
_HELD = 6
"""The column of `leases` that says whether a lease is held: clocks differ, so none stays held."""
_WATCHED = 8
_AT_ONCE = 500


@contextlib.contextmanager
def new_journal(target: Path) -> Iterator[sqlite3.Connection]:
    """Yield a new journal in a file. The file gets its name when it is complete and flushed."""
    with new_database(target) as connection:
        migrate(connection, SCHEMA)
        yield connection


def copy_tables(source: Connection, target: Connection) -> None:
    """Copy all rows to a new journal, in one transaction.

    `source` sees one moment. Raises BodyDamaged.
    """
    target.execute("BEGIN")
    for table in TABLES:
        target.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of the schema, as below
        rows = iter(
            _with_body(row) if table in ("records", "texts") else _as_there(table, row)
            for row in rows_of(source, f"SELECT * FROM {table}")  # noqa: S608
        )
        while some := list(itertools.islice(rows, _AT_ONCE)):
            marks = ", ".join("?" * len(some[0]))
            target.executemany(f"INSERT INTO {table} VALUES ({marks})", some)  # noqa: S608
    target.execute("COMMIT")


def must_be_equal(source: Connection, target: Connection) -> None:
    """Raise UserError unless two journals have the same last event and numbers of rows."""
    for table in TABLES:
        counts = [
            one.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for one in (source, target)
        ]
        if counts[0] != counts[1]:
            raise UserError(
                f"The copy is incomplete: {counts[1]} of {counts[0]} rows in {table}.",
                "Nothing was moved. Try again.",
            )
    if last_event(source) != last_event(target):
        raise UserError("The copy has another last event.", "Nothing was moved. Try again.")


def move_in(path: Path, address: str, vault_id: str) -> Path:
    """Move a vault's journal from its file to a database; return the name that the file has now.

    No daemon may run. Raises UserError for a database that holds a journal, and for an
    incomplete copy: then nothing has changed.
    """
    from placet_team.postgres import PostgresConnection
    from placet_team.postgres_schema import create_tables

    with open_reader(path):  # it refuses an older journal
        create_tables(address)
    with file_snapshot(path) as source, contextlib.closing(PostgresConnection(address)) as target:
        if last_event(target)[0] or target.execute("SELECT 1 FROM cases LIMIT 1").fetchone():
            raise UserError(
                "That database already holds a journal. placet did not change it.",
                "Name an empty one. Each vault needs its own database.",
            )
        copy_tables(source, target)
        target.execute(
            "SELECT setval(pg_get_serial_sequence('outbox', 'id'), "
            "(SELECT coalesce(max(id), 0) + 1 FROM outbox), FALSE)"
        )
        must_be_equal(source, target)
        target.execute("DELETE FROM texts WHERE digest = ?", (VAULT,))
        target.execute(
            "INSERT INTO texts (digest, sha256, size, body) VALUES (?, ?, ?, ?)",
            (VAULT, *hashed_body(vault_id.encode())),
        )
    put(address_file(path), f"{address}\n".encode())
    return rename_database(path, f"{path.stem}.moved-{_stamp()}{path.suffix}")


def move_out(path: Path) -> str:
    """Move a journal from its database to the file; return the name that its schema has now.

    As `move_in`.
    """
    import psycopg

    from placet_team.postgres import PostgresConnection

    if path.exists():
        raise UserError(f"{path} is there already.", "Move it away, then try again.")
    address = address_of(path)
    with snapshot(path) as source, new_journal(path) as target:
        _must_have_no_commits(source)
        copy_tables(source, target)
        must_be_equal(source, target)
    address_file(path).unlink()
    kept = f"placet_moved_{_stamp().lower()}"
    try:
        with contextlib.closing(PostgresConnection(address)) as connection:
            connection.execute(f"ALTER SCHEMA placet RENAME TO {kept}")
    except (DatabaseAway, psycopg.Error):
        return "placet"  # it is moved, so that no second journal begins under that name
    return kept


def _must_have_no_commits(source: Connection) -> None:
    """Raise UserError if only the database knows the commits of a mission."""
    missions = source.execute("SELECT count(DISTINCT trace_id) FROM team_refs").fetchone()[0]
    if missions:
        raise UserError(
            f"Only the database has the commits of {counted(missions, 'unfinished mission')}.",
            "Set team.database again and start the daemon (without workers: placet config set "
            "team.workers false). Let the missions finish, then stop it and try again.",
        )


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _as_there(table: str, row: Iterable[Any]) -> tuple[Any, ...]:
    found = list(row)
    if table == "leases":
        found[_HELD] = False
    elif table == "cases":
        found[_WATCHED] = bool(found[_WATCHED])
    return tuple(found)


def _with_body(row: Iterable[Any]) -> tuple[Any, ...]:
    *first, sha256, size, body = row
    return *first, sha256, size, checked_body(sha256, body)
