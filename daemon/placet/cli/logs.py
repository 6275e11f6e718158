"""`placet logs`: the daemon's sentences, from the journal."""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path

import click

from placet.cli.bell import bell, patiently
from placet.cli.site import Site, find, json_option, site_option
from placet.cli.terminal import json_text
from placet.cli.told import Teller, Told, print_told
from placet.core.activity import CommittedRow, Entity
from placet.journal.reader import Reader, open_reader

LAST = 50
ROWS_A_LINE = 20
"""Rows of the journal that are read for a line that is wanted, at first."""


@click.command("logs")
@click.argument("ident", metavar="[ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said from now on.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 10**6),
    default=LAST,
    metavar="N",
    help="How many of the last lines; else 50.",
)
@site_option
@json_option
def logs_command(site: Site, ident: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Print what the daemon has said, the newest line last; of one request or of all.

    It is read from the journal, so it is there also of a daemon that nobody looked at.
    """
    path = site.state.journal
    with open_reader(path) if ident is None else site.reader(ident) as reader:
        trace = None if ident is None else find(reader, ident).trace_id
        teller, found = _last(reader, trace, lines)
        last = reader.last()[0]
    for told in found:
        _print(told, as_json=as_json)
    if not follow:
        return
    with bell(site) as wait:
        while True:
            rows = patiently(partial(_after, path, trace, last), wait)
            for told in teller.tell(rows):
                _print(told, as_json=as_json)
            if rows:
                last = rows[-1].id
            else:
                wait()


def _after(path: Path, trace: str | None, last: int) -> tuple[CommittedRow, ...]:
    with open_reader(path) as reader:
        return reader.activity(trace, after_id=last, routine=False)


def _last(reader: Reader, trace: str | None, lines: int) -> tuple[Teller, list[Told]]:
    """Return the last lines, and the teller that goes on after them.

    Of most rows nothing is said, so more are read until there are enough lines.
    """
    limit = max(1, lines * ROWS_A_LINE)
    while True:
        rows = reader.activity(trace, limit=limit, newest=True, routine=False)
        teller = Teller()
        found = deque(teller.tell(rows), maxlen=lines)
        if len(found) >= lines or len(rows) < limit:
            return teller, list(found)
        limit *= 4


def _print(told: Told, *, as_json: bool) -> None:
    if not as_json:
        print_told(told)
        return
    row = told.row
    about = {
        "id": row.id,
        "timestamp": row.timestamp,
        "trace_id": row.trace_id,
        "request_id": "" if row.entity_type == Entity.DAEMON else row.entity_id,
        "text": told.text,
        "trouble": told.trouble,
    }
    click.echo(json_text(about))
