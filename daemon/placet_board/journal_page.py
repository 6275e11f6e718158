"""The journal on the board: rows with filters, as a page and as CSV, and one request's story."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from datetime import time as midnight
from typing import Any
from urllib.parse import urlencode

from placet.cli.site import Site, find
from placet.cli.terminal import json_text
from placet.core.activity import Action, Actor, CommittedRow
from placet.core.errors import UserError
from placet.core.text.facts import facts
from placet.core.text.story import Loud, Story
from placet.core.wording import rfc3339
from placet.journal.browse import SCANNED, Wanted, all_rows, rows_page
from placet.journal.place import is_begun
from placet.journal.schema import ACTIVITY
from placet_board.seen import seen, seen_name

ROWS = 100
"""Rows of a page."""
MAX_TOLD = 2_000
"""Rows of a request from which its story is told, the last ones."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a cell that a spreadsheet takes for a formula; the last are the wide forms."""
ACTIONS = tuple(sorted(Action))
ACTORS = tuple(Actor)


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the journal as an address has them; an empty one allows all rows."""

    action: str = ""
    actor: str = ""
    request: str = ""
    text: str = ""
    day: str = ""
    below: int = 0

    @property
    def query(self) -> str:
        """The filters as the query of an address, from the newest row on."""
        kept = {name: getattr(self, name) for name in ("action", "actor", "request", "text", "day")}
        return urlencode({name: value for name, value in kept.items() if value})


def filters_of(params: Mapping[str, str]) -> Filters:
    """Return the filters that an address asks for."""
    below = params.get("below", "")
    action, actor, request, text, day = (
        params.get(name, "").strip() for name in ("action", "actor", "request", "text", "day")
    )
    row = int(below[:18]) if below.isascii() and below.isdecimal() else 0
    return Filters(action, actor, request, text, day, row)


def journal_page(site: Site, filters: Filters) -> dict[str, Any]:
    """Return a page of rows, with why there are none where a filter cannot be used."""
    page: dict[str, Any] = {
        "filters": filters,
        "rows": [],
        "following": 0,
        "is_cut": False,
        "scanned": SCANNED,
        "problem": None,
        "actions": ACTIONS,
        "actors": ACTORS,
        "is_begun": is_begun(site.state.journal),
    }
    if page["is_begun"]:
        try:
            found = rows_page(site.state.journal, wanted(site, filters), ROWS)
        except UserError as error:
            return {**page, "problem": error}
        page |= {
            "rows": [_shown(row) for row in found.rows],
            "following": found.following,
            "is_cut": found.is_cut,
        }
    return page


def wanted(site: Site, filters: Filters) -> Wanted:
    """Return what filters ask of the journal.

    Raises UserError for a day that is none, and for a request that is not known.
    """
    asked = Wanted(filters.action, filters.actor, text=filters.text, below=filters.below)
    if filters.day:
        since, until = _day(filters.day)
        asked = replace(asked, since=since, until=until)
    if filters.request:
        asked = replace(asked, trace_id=site.case(filters.request).trace_id)
    return asked


def csv_text(site: Site, asked: Wanted) -> Iterator[str]:
    """Give the rows as CSV, newest first, piece by piece; no cell of it is a formula."""
    yield _csv([ACTIVITY.split(", ")])
    for rows in all_rows(site.state.journal, asked):
        yield _csv([[_cell(str(value)) for value in _values(row)] for row in rows])


def trace_page(site: Site, ident: str) -> dict[str, Any]:
    """Return a request's story, each sentence with its time and the time since the one before.

    Raises UserError (exit code 3) for an ID that fits nothing.
    """
    with site.reader(ident) as reader:
        case = find(reader, ident)
        rows = reader.activity(case.trace_id, limit=MAX_TOLD, newest=True, routine=False)
    story, before, told = Story(), "", list[dict[str, Any]]()
    for row in rows:
        line = story.line(row)
        if line is not None:
            told.append(
                {
                    "row": row.id,
                    "at": row.timestamp,
                    "after": _after(before, row.timestamp),
                    "took": _took(row.details.get("duration_ms")),
                    "text": line[1].removeprefix(f"{case.request_id}: "),
                    "is_trouble": line[0] is Loud.TROUBLE,
                    "is_detail": line[0] is Loud.DETAIL,
                }
            )
            before = row.timestamp
    over = _long(_seconds(told[0]["at"], told[-1]["at"])) if told else ""
    return {"case": case, "story": told, "over": over, "is_cut": len(rows) == MAX_TOLD}


def _shown(row: CommittedRow) -> dict[str, Any]:
    """Return a row for people; one that was made by hand may hold no JSON."""
    try:
        data = row.details
        told, raw = facts(row.action_type, data), json_text(dict(data), indent=2)
    except (ValueError, TypeError, AttributeError):
        told, raw = "", row.metadata
    return {
        "id": row.id,
        "at": row.timestamp,
        "actor": row.actor,
        "agent": row.agent,
        "action": row.action_type,
        "about": row.entity_id,
        "trace": row.trace_id,
        "told": seen_name(told)[:400],
        "raw": seen(raw),
    }


def _day(text: str) -> tuple[str, str]:
    """Return the beginning of a day in local time, and of the next one."""
    try:
        day = date.fromisoformat(text)
        bounds = [
            datetime.combine(one, midnight()).astimezone() for one in (day, day + timedelta(days=1))
        ]
        since, until = map(rfc3339, bounds)
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"{text!r} is no day.", "Write it as 2026-01-31.") from error
    return since, until


def _values(row: CommittedRow) -> tuple[object, ...]:
    return (
        row.id,
        row.timestamp,
        row.trace_id,
        row.actor,
        row.agent,
        row.action_type,
        row.entity_type,
        row.entity_id,
        row.metadata,
        row.hash,
    )


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULAS) else text


def _csv(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def _after(before: str, now: str) -> str:
    """Return how long after a moment another one is; empty for none and for less than a second."""
    if not before:
        return ""
    seconds = _seconds(before, now)
    return _long(seconds) if seconds >= 1 else ""


def _seconds(before: str, now: str) -> float:
    return (datetime.fromisoformat(now) - datetime.fromisoformat(before)).total_seconds()


def _took(milliseconds: object) -> str:
    known = isinstance(milliseconds, (int, float)) and milliseconds >= 50
    return _long(float(milliseconds) / 1000) if known else ""  # type: ignore[arg-type] # known


def _long(seconds: float) -> str:
    """Return a time span for people, in its two largest units."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        f"{number} {unit}"
        for number, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
        if number
    ]
    return " ".join(parts[:2])
