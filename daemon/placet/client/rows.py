"""Follow the journal by polling, and give its rows as typed values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from placet.activity import Action, CommittedRow
from placet.client.site import Site
from placet.errors import UserError
from placet.journal.database import is_begun
from placet.journal.reader import open_reader


@dataclass(frozen=True, slots=True)
class Row:
    """A journal row, as `--json` has it."""

    id: int
    timestamp: str
    trace_id: str
    actor: str
    agent: str
    action_type: str
    entity_type: str
    entity_id: str
    metadata: Mapping[str, Any]

    @property
    def is_routine(self) -> bool:
        """Whether it is shown as data only: a git process that went well."""
        return self.action_type == Action.GIT_RAN and "stderr" not in self.metadata


def as_row(row: CommittedRow) -> Row:
    """Return a committed row with its metadata read."""
    return Row(
        row.id,
        row.timestamp,
        row.trace_id,
        row.actor,
        row.agent,
        row.action_type,
        row.entity_type,
        row.entity_id,
        dict(row.details),
    )


def live_rows(site: Site) -> Iterator[CommittedRow]:
    """Give what the daemon writes into the journal from now on, until it stops."""
    for rows in new_rows(site, last_row(site)):
        for row in rows:
            yield row
            if row.action_type == Action.DAEMON_STOPPED:
                return
        if not rows and site.daemon is None:
            return


T = TypeVar("T")

PATIENCE_S = 10.0
ROWS = 1_000
"""Rows of the journal that are read at once."""


def patiently(look: Callable[[], T], changes: Iterator[None]) -> T:
    """Return what `look` returns. If it cannot read, retry after a change.

    A starting daemon creates the journal, or recovers it after a kill. Raises the UserError that
    remains after PATIENCE_S.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return look()
        except UserError:
            if time.monotonic() > until:
                raise
        next(changes)


def new_rows(
    site: Site, after: int, trace: str | None = None, *, routine: bool = True
) -> Iterator[tuple[CommittedRow, ...]]:
    """Give the rows after one and then, without an end, those that are new, maybe none.

    `trace` and `routine` are those of `Reader.activity`. Raises UserError as `patiently`.
    """
    changes = site.changes()

    def look() -> tuple[tuple[CommittedRow, ...], int]:
        if not is_begun(site.state.journal):
            return (), after
        with open_reader(site.state.journal) as reader:
            rows = reader.activity(trace, after_id=after, limit=ROWS, routine=routine)
            return rows, reader.last()[0]

    while True:
        rows, last = patiently(look, changes)
        # a journal that was put back has fewer rows
        after = rows[-1].id if rows else min(after, last)
        yield rows
        if len(rows) < ROWS:
            next(changes)


def last_row(site: Site) -> int:
    """Return the id of the journal's last row, 0 for none."""
    if not is_begun(site.state.journal):
        return 0
    with open_reader(site.state.journal) as reader:
        return reader.last()[0]
