"""`placet watch`: one request followed to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import click

from placet.activity import Action, CommittedRow
from placet.case.case import CASE_JSON, OPEN, Case, State
from placet.cli.bell import TOGETHER_S, bell, patiently
from placet.cli.site import Site, ident_argument, json_option, site_option
from placet.cli.terminal import say
from placet.cli.told import Teller, print_told
from placet.errors import UserError
from placet.host.intents import waiting_in
from placet.host.state import StateFolder
from placet.journal.place import is_begun
from placet.journal.reader import open_reader
from placet.journal.writes import CaseRow
from placet.note.paths import show as visible

ROWS = 1_000
"""Rows of the journal that are read at once."""
WRITING_LOOKS = 40
"""Looks after which rows are told though the daemon did not write yet what they tell of."""


@click.command("watch")
@ident_argument
@site_option
@json_option
def watch_command(site: Site, ident: str, as_json: bool) -> None:
    """Follow one request to its end, a line an event; exit with its result.

    0 if it was completed; 1 if it failed, was rejected or withdrawn; 3 if there is none. What waits
    for you is said, and waited for.

    ID is a request_id or the beginning of a trace_id.
    """
    trace = site.case(ident).trace_id
    with bell(site) as wait:
        follow(site, trace, wait, as_json=as_json)


def follow(site: Site, trace: str, wait: Callable[[], None], *, as_json: bool) -> None:
    """Print what happened to a case and what happens, until it has ended.

    `wait` returns when it is worth a look. Raises UserError with exit code 1 where it ended in
    another way than completed.
    """
    last, teller, daemon, waits_since = 0, Teller(), Presence(site), ""
    while True:
        look = partial(_look, site, trace, last, routine=as_json)
        rows, found, busy = patiently(look, wait)
        for _ in range(WRITING_LOOKS):  # who reads that a plan waits may move it at once
            if not (rows and busy):
                break
            time.sleep(TOGETHER_S)
            rows, found, busy = patiently(look, wait)
        case = _case(found)
        ended = len(rows) < ROWS and case.state not in OPEN and not busy
        last = rows[-1].id if rows else last
        if not ended or not daemon.was_there:
            daemon.say_changes()
        if as_json:
            from placet.host.events import event_of, line_of

            for row in rows:
                click.echo(line_of(event_of(row)).decode(), nl=False)
        else:
            for told in teller.tell(rows):
                print_told(told)
        # who asked for a retry, which the daemon has not performed yet, waits for that
        if ended and trace not in {one.trace_id for one in waiting_in(site.state.intents)}:
            break
        if len(rows) < ROWS:
            if case.state in (State.REVIEW, State.ASKING) and case.since != waits_since:
                waits_since = case.since
                say(f"{case.request_id} waits for you: placet review")
            wait()
    if case.state is not State.COMPLETED:
        raise UserError(
            _end(case), f"See why, and what helps: placet why {case.request_id}", exit_code=1
        )


def await_case(site: Site, path: str, after: int, wait: Callable[[], None]) -> str:
    """Return the trace_id of the request that was dropped at `path`, once a daemon has seen it.

    `after` is the journal's last row before. Raises UserError where it cannot be used, or is gone.
    """
    daemon = Presence(site)
    while True:
        there = (site.vault / path).exists()
        for row in patiently(partial(_since, site.state, after), wait):
            if row.details.get("path") != visible(path):
                continue
            if row.action_type == Action.REQUEST_DETECTED:
                return row.trace_id
            if row.action_type == Action.REQUEST_INVALID:
                why = str(row.details.get("reason") or "")
                raise UserError(
                    f"{visible(path)} cannot be used: {why}", "Fix it: it is read again."
                )
        if not there:
            raise UserError(
                f"{visible(path)} was taken away before it was planned.",
                "Submit it again: placet submit",
            )
        daemon.say_changes()
        wait()


def last_row(state: StateFolder) -> int:
    """Return the id of the journal's last row, 0 for none."""
    rows = _since(state, 0, newest=True)
    return rows[-1].id if rows else 0


def _since(state: StateFolder, after: int, *, newest: bool = False) -> tuple[CommittedRow, ...]:
    """Return the rows after one, or only the newest; none without a journal."""
    if not is_begun(state.journal):
        return ()
    with open_reader(state.journal) as reader:
        return reader.activity(
            after_id=after, limit=1 if newest else -1, newest=newest, routine=newest
        )


@dataclass(slots=True)
class Presence:
    """Says when nothing goes on because no daemon runs, and when one runs again."""

    site: Site
    was_there: bool = True

    def say_changes(self) -> None:
        """Say it on standard error, once each time that it changes."""
        is_there = self.site.daemon is not None
        if is_there != self.was_there:
            say(
                "a daemon runs again"
                if is_there
                else "the daemon is not running; it goes on with the next: placet run"
            )
        self.was_there = is_there


def _look(
    site: Site, trace: str, after: int, *, routine: bool
) -> tuple[tuple[CommittedRow, ...], tuple[CaseRow, ...], bool]:
    """Return a case's rows after one, the case, and whether its notes are still to be written.

    What hinders that is not waited for.
    """
    with open_reader(site.state.journal) as reader:
        rows = reader.activity(trace, after_id=after, limit=ROWS, routine=routine)
        left = [one for one in reader.pending_commands() if one.trace_id == trace]
        # one that fails holds back the later ones
        is_stuck = any(one.error for one in left)
        return rows, reader.cases_of(trace_ids=[trace]), bool(left) and not is_stuck


def _case(found: Sequence[CaseRow]) -> Case:
    if not found:
        raise UserError(
            "The journal does not know this request any more.",
            "See all: placet status",
            exit_code=3,
        )
    return CASE_JSON.validate_json(found[0].body)


def _end(case: Case) -> str:
    if case.state is State.FAILED:
        why = (case.outcome.failure.splitlines() or [""])[0]
        return f"{case.request_id} failed: {why}" if why else f"{case.request_id} failed."
    return f"{case.request_id} was {case.state.value}."
