"""Write SQLite's statements with psycopg's marks for values."""

from __future__ import annotations

import re
from functools import cache

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
