"""Follow one request, and print the daemon's log: `placet watch` and `logs`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from placet.activity import Action, CommittedRow
from placet.case.case import CASE_JSON, Case
from placet.case.life_cycle import OPEN, State
from placet.case.story import Story
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.screen import columns, on_terminal
from placet.cli.terminal import colour, echo, fitted, say
from placet.client.log import Log, LogLine, log_lines
from placet.client.notes import WRITING_S
from placet.client.rows import ROWS, new_rows, patiently
from placet.client.site import Site, find
from placet.client.texts import json_text
from placet.errors import UserError
from placet.host.events import event_of, line_of
from placet.host.intents import waiting_in
from placet.journal.reader import open_reader
from placet.journal.writes import CaseRow
from placet.note.paths import show as visible

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

    0 if it was completed; 1 if it failed, was rejected or withdrawn; 3 if there is no such request.
    If it waits for you, placet says so and keeps waiting.

    ID is a request_id or the beginning of a trace_id.
    """
    follow(site, site.case(ident).trace_id, as_json=as_json)


def follow(site: Site, trace: str, *, as_json: bool) -> None:
    """Print what happened to a case and what happens, until it has ended.

    Raises UserError with exit code 1 where it ended in another way than completed.
    """
    last, story, daemon, waits_since = 0, Story(), Presence(site), ""
    changes = site.changes()
    while True:
        rows, found, busy = patiently(partial(_look, site, trace, last, routine=as_json), changes)
        case = _case(found)
        ended = len(rows) < ROWS and case.state not in OPEN and not busy
        last = rows[-1].id if rows else last
        if not ended or not daemon.was_there:
            daemon.say_changes()
        if as_json:
            for row in rows:
                click.echo(line_of(event_of(row)))
        else:
            for line in log_lines(story, rows):
                print_log_line(line)
        # who asked for a retry, which the daemon has not performed yet, waits for that
        if ended and trace not in {one.trace_id for one in waiting_in(site.state.intents)}:
            break
        if len(rows) < ROWS:
            if case.state in (State.REVIEW, State.ASKING) and case.since != waits_since:
                waits_since = case.since
                say(f"{case.request_id} waits for you: placet review")
            next(changes)
    if case.state is not State.COMPLETED:
        raise UserError(
            _end(case), f"See why, and what helps: placet why {case.request_id}", exit_code=1
        )


def await_case(site: Site, path: str, after: int) -> str:
    """Return the trace_id of the request that was dropped at `path`, once a daemon has seen it.

    `after` is the journal's last row before. Raises UserError where it cannot be used, or is gone.
    """
    daemon, exists, news = Presence(site), True, new_rows(site, after, routine=False)
    while True:
        for row in next(news):
            if row.details.get("path") != visible(path):
                continue
            if row.action_type == Action.REQUEST_DETECTED:
                return row.trace_id
            if row.action_type == Action.REQUEST_INVALID:
                why = str(row.details.get("reason") or "")
                raise UserError(
                    f"{visible(path)} cannot be used: {why}", "Fix it: it is read again."
                )
        if not exists:
            raise UserError(
                f"{visible(path)} was taken away before it was planned.",
                "Submit it again: placet submit",
            )
        exists = (site.vault / path).exists()  # its row may be written already, and is read next
        daemon.say_changes()


@dataclass(slots=True)
class Presence:
    """Tells you when the daemon stops, and when it runs again."""

    site: Site
    was_there: bool = True

    def say_changes(self) -> None:
        """Say it on standard error, once each time that it changes."""
        is_there = self.site.daemon is not None
        if is_there != self.was_there:
            say(
                "the daemon runs again"
                if is_there
                else "the daemon is not running. This continues when it runs: placet run"
            )
        self.was_there = is_there


def _look(
    site: Site, trace: str, after: int, *, routine: bool
) -> tuple[tuple[CommittedRow, ...], tuple[CaseRow, ...], bool]:
    """Return a case's rows after one, the case, and whether its notes are still to be written.

    Who reads that a plan waits may move it at once, so its note is waited for: WRITING_S, and not
    where something hinders the daemon.
    """
    for _ in site.changes(WRITING_S):
        with open_reader(site.state.journal) as reader:
            rows = reader.activity(trace, after_id=after, limit=ROWS, routine=routine)
            left = [one for one in reader.pending_commands() if one.trace_id == trace]
            found = reader.cases_of(trace_ids=[trace])
        # one that fails holds back the later ones
        busy = bool(left) and not any(one.error for one in left)
        if not (rows and busy):
            break
    return rows, found, busy


def _case(found: Sequence[CaseRow]) -> Case:
    if not found:
        raise UserError(
            "The journal no longer knows this request.",
            "See all: placet status",
            exit_code=3,
        )
    return CASE_JSON.validate_json(found[0].body)


def _end(case: Case) -> str:
    if case.state is State.FAILED:
        why = (case.outcome.failure.splitlines() or [""])[0]
        return f"{case.request_id} failed: {why}" if why else f"{case.request_id} failed."
    return f"{case.request_id} was {case.state.value}."
