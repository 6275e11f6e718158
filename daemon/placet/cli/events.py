"""Follow the journal by polling, for commands and for `placet events`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import click

from placet.activity import Action, CommittedRow
from placet.cli.site import Site, site_option
from placet.cli.terminal import say
from placet.errors import UserError
from placet.journal.database import is_begun
from placet.journal.reader import open_reader


@click.group("events", invoke_without_command=True)
@site_option
@click.pass_context
def events_command(context: click.Context, site: Site) -> None:
    """Print what the daemon does as it happens, a line of JSON each, until it stops."""
    if context.invoked_subcommand is not None:
        return
    if site.daemon is None:
        raise UserError("No daemon works on this vault.", "Start it: placet run")
    from placet.host.events import event_of, line_of  # pydantic makes its models in 20 ms

    for row in live_rows(site):
        click.echo(line_of(event_of(row)))
    say("the daemon has stopped")


@events_command.command("schema")
def events_schema_command() -> None:
    """Print the JSON Schema of a line."""
    from placet.host.events import EVENT

    click.echo(json.dumps(EVENT.json_schema(), indent=2))


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
