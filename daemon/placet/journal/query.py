"""A person's own SELECT."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from placet.errors import UserError
from placet.journal.connection import file_snapshot, plain_errors
from placet.journal.errors import is_damage, primary_code
from placet.journal.place import address_of, database_of

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The longest value in a person's query."""


def query(
    path: Path, sql: str, *, timeout_s: float = 30.0
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT of a person's; return column names and rows.

    It can only read: the connection is read-only, and an authorizer refuses other files and pragmas
    that write. Raises UserError for SQL that fails or runs over `timeout_s`.
    """
    if address := address_of(path):
        with plain_errors(path):
            return database_of(address).query(address, sql, timeout_s)
    deadline = time.monotonic() + timeout_s
    with file_snapshot(path, "replace") as connection:
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
