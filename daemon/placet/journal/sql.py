"""The SQL that both databases of a journal understand, and the connection that runs it.

Statements are written for SQLite. PostgreSQL gets them with its own marks for values; a few
functions and an operator of SQLite's are made in its schema (`postgres_schema`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

Values = Sequence[Any] | Mapping[str, Any]


class Rows(Protocol):
    """The result of a statement, as of DB-API 2.0 (PEP 249)."""

    @property
    def rowcount(self) -> int:
        """Rows that were changed."""

    @property
    def description(self) -> Any:
        """The columns, a tuple each that begins with the name; None without rows."""

    def fetchone(self) -> Any:
        """Return the next row, None without one."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Give the rows that are left."""


class Connection(Protocol):
    """A connection to either database."""

    def execute(self, sql: str, values: Any = ..., /) -> Rows:
        """Run one statement."""

    def executemany(self, sql: str, values: Any, /) -> object:
        """Run one statement with each of some rows of values."""

    def close(self) -> None:
        """Close it."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""


def upsert(table: str, key: str, *columns: str) -> str:
    """Return the SQL that inserts a row of named values, or writes over the one with its key."""
    names = (key, *columns)
    values = ", ".join(f":{name}" for name in names)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608 - names of the schema
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
    )


_PIECES = re.compile(r"('(?:[^']|'')*')|(?<![:\w]):([a-z_][a-z0-9_]*)|(\?)|(%)|\+(?=[a-z_])")


@cache
def for_postgres(sql: str) -> str:
    """Return a statement with psycopg's marks for values.

    A plus right before a column, which keeps SQLite from its index, goes.
    """

    def other(found: re.Match[str]) -> str:
        text, name, mark, percent = found.groups()
        if text:
            return text.replace("%", "%%")
        return f"%({name})s" if name else "%s" if mark else "%%" if percent else ""

    return _PIECES.sub(other, sql.replace("BEGIN IMMEDIATE", "BEGIN"))
