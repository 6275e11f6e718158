"""Find rows of the journal: filtered, in pages, newest first.

A page starts below an id and reads at most SCANNED rows. So any search takes the same time in a
large journal as in a small one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from placet.activity import CommittedRow
from placet.journal.chain import last_event
from placet.journal.database import Connection
from placet.journal.reader import snapshot
from placet.journal.schema import ACTIVITY
from placet.wording import rfc3339

SCANNED = 100_000
"""Rows that one page looks at."""
PIECE = 2_000
"""Rows of a page of `all_rows`."""
SLACK = timedelta(minutes=15)
"""Rows are not quite in the order of time: some wait for a disk, and clocks are set back."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that are looked for; an empty value allows all.

    `since` and `until` are moments, the second one excluded. `below` is the id below which a page
    begins, 0 for the newest row.
    """

    action: str = ""
    actor: str = ""
    trace_id: str = ""
    text: str = ""
    since: str = ""
    until: str = ""
    below: int = 0


@dataclass(frozen=True, slots=True)
class RowsPage:
    """A page of rows, newest first.

    `following` is the id below which the next page begins, or 0. `is_cut` says that the page ended
    at SCANNED rows.
    """

    rows: tuple[CommittedRow, ...]
    following: int
    is_cut: bool


def rows_page(path: Path, wanted: Wanted, limit: int) -> RowsPage:
    """Return a page of at most `limit` rows. Raises UserError for a journal that cannot be read."""
    with snapshot(path, "replace") as connection:
        return _page(connection, wanted, limit)


def all_rows(path: Path, wanted: Wanted) -> Iterator[tuple[CommittedRow, ...]]:
    """Give all rows, in pieces; no piece keeps the journal open."""
    while True:
        page = rows_page(path, wanted, PIECE)
        if page.rows:
            yield page.rows
        if not page.following:
            return
        wanted = replace(wanted, below=page.following)


def first_since(connection: Connection, moment: str) -> int:
    """Return an id below which no row is from after a moment, but in a journal whose clock jumped.

    Rows are nearly in the order of time, so that this needs some twenty looks.
    """
    return _first(connection, _moved(moment, -SLACK))


def _moved(moment: str, by: timedelta) -> str:
    at = datetime.fromisoformat(moment)
    with suppress(OverflowError):  # the first day there is, or the last
        at = at.astimezone(UTC) + by
    return rfc3339(at)


def _first(connection: Connection, moment: str) -> int:
    """Return the id where, by halves, the rows since a moment begin; the id after the last one."""
    low, high = 1, last_event(connection)[0] + 1
    while low < high:
        middle = (low + high) // 2
        found = connection.execute(
            "SELECT id, timestamp FROM activity WHERE id >= ? ORDER BY id LIMIT 1", (middle,)
        ).fetchone()
        if found is None or found[1] >= moment:
            high = middle
        else:
            low = found[0] + 1
    return low


def _page(connection: Connection, wanted: Wanted, limit: int) -> RowsPage:
    last, _ = last_event(connection)
    lowest = first_since(connection, wanted.since) if wanted.since else 1
    below = _first(connection, _moved(wanted.until, SLACK)) if wanted.until else last + 1
    below = min(below, wanted.below) if wanted.below else below
    # a request has few rows, which its index finds
    floor = lowest if wanted.trace_id else max(lowest, below - SCANNED)
    where, values = _conditions(wanted)
    found = connection.execute(
        f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals of this module
        f"WHERE {'+' if wanted.trace_id else ''}id >= ? AND id < ? {where} "
        "ORDER BY id DESC LIMIT ?",
        (floor, below, *values, limit),
    )
    rows = tuple(CommittedRow(*row) for row in found)
    if len(rows) == limit:
        return RowsPage(rows, rows[-1].id if rows[-1].id > lowest else 0, is_cut=False)
    is_cut = floor > lowest
    return RowsPage(rows, floor if is_cut else 0, is_cut)


def _conditions(wanted: Wanted) -> tuple[str, list[str]]:
    """Return the SQL of the filters, and its values."""
    # the plus keeps SQLite from walking that column's index
    parts = {
        "AND +action_type = ?": wanted.action,
        "AND actor = ?": wanted.actor,
        "AND trace_id = ?": wanted.trace_id,
        "AND timestamp >= ?": wanted.since,
        "AND timestamp < ?": wanted.until,
        "AND instr(lower(entity_id || ' ' || action_type || ' ' || metadata), lower(?)) > 0": (
            wanted.text
        ),
    }
    chosen = {sql: value for sql, value in parts.items() if value}
    return " ".join(chosen), list(chosen.values())
