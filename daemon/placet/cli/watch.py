"""Follow one request, and print the daemon's log: `placet watch` and `logs`."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import click

from placet.case.life_cycle import State
from placet.case.story import Story
from placet.cli.drawing import columns, on_terminal
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import colour, echo, fitted, say
from placet.client.follow import Presence, looks
from placet.client.log import Log, LogLine, log_lines
from placet.client.site import Site, find
from placet.client.texts import json_text
from placet.host.events import event_of, line_of

BELOW = 9
"""Indent, in columns, of a wrapped line, so that it continues after the time."""


def print_log_line(line: LogLine) -> None:
    """Print a sentence to standard output; on a terminal it is broken to fit, trouble yellow."""
    text = colour(str(line), "yellow") if line.trouble else str(line)
    echo(fitted(text, columns(), hang=BELOW) if on_terminal() else text)


LAST_LINES = 50


LOG_POLL_S = 0.2


@click.command("logs")
@click.argument("ident", metavar="[ID]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 10**6),
    default=LAST_LINES,
    metavar="N",
    help="How many of the last lines; else 50.",
)
@site_option
@json_option
def logs_command(site: Site, ident: str | None, follow: bool, lines: int, as_json: bool) -> None:
    """Print what the daemon has said about one request or all, the newest line last.

    These are the lines that `placet run` prints.
    """
    trace = request = ""
    if ident is not None:
        with site.reader(ident) as reader:
            case = find(reader, ident)
        trace, request = case.trace_id, case.request_id
    log = Log(site.state.log, trace, request)
    found = deque(log.new(), maxlen=lines)
    if not log.path.exists():
        say("No daemon has run here yet: placet run")
    for line in found:
        _print(line, as_json=as_json)
    if not follow:
        return
    while True:
        time.sleep(LOG_POLL_S)  # not every line is a row of the journal
        for line in log.new():
            _print(line, as_json=as_json)


def _print(line: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(line))
    else:
        print_log_line(LogLine(line["timestamp"], line["text"], line["trouble"]))


@click.command("watch")
@ident_argument
@site_option
@json_option
def watch_command(site: Site, ident: str, as_json: bool) -> None:
    """Follow one request to its end, a line an event; exit with its result.

    0 if it was completed and every check passed; 3 if there is no such request; else 1.
    If it waits for you, placet says so and keeps waiting.

    ID is a request_id or the beginning of a trace_id.
    """
    follow(site, site.case(ident).trace_id, as_json=as_json)


def follow(site: Site, trace: str, *, as_json: bool) -> None:
    """Print what happened to a case and what happens, until it has ended.

    Raises UserError as `looks` does.
    """
    story, daemon, waits_since = Story(), Presence(site), ""
    for look in looks(site, trace, routine=as_json):
        case = look.case
        if not look.ended or not daemon.was_there:
            daemon.say_changes()
        if as_json:
            for row in look.rows:
                click.echo(line_of(event_of(row)))
        else:
            for line in log_lines(story, look.rows):
                print_log_line(line)
        is_awaited = case.state in (State.REVIEW, State.ASKING)
        if is_awaited and case.since != waits_since and not look.has_more:
            waits_since = case.since
            say(f"{case.request_id} waits for you: placet review")
