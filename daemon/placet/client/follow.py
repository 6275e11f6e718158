"""Follow a request while the daemon works on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from placet.activity import Action, CommittedRow
from placet.case.case import CASE_JSON, Case
from placet.case.checks import IN_DOUBT
from placet.case.life_cycle import OPEN, State
from placet.client.notes import WRITING_S
from placet.client.rows import ROWS, new_rows, patiently
from placet.client.site import Site
from placet.errors import UserError
from placet.host.intents import waiting_in
from placet.journal.reader import open_reader
from placet.journal.writes import CaseRow
from placet.note.paths import show as visible


@dataclass(frozen=True, slots=True)
class Look:
    """New rows of a case, and the case. `has_more` says that further rows are there already."""

    rows: tuple[CommittedRow, ...]
    case: Case
    ended: bool
    has_more: bool


def looks(site: Site, trace: str, *, routine: bool) -> Iterator[Look]:
    """Give what happened to a case and what happens, until it has ended.

    `routine` is that of `Reader.activity`. Raises UserError (exit code 1) where it ended in another
    way than completed, or not every check passed.
    """
    last, changes = 0, site.changes()
    while True:
        rows, found, busy = patiently(partial(_look, site, trace, last, routine=routine), changes)
        case, has_more = _case(found), len(rows) == ROWS
        ended = not has_more and case.state not in OPEN and not busy
        last = rows[-1].id if rows else last
        yield Look(rows, case, ended, has_more)
        # who asked for a retry, which the daemon has not performed yet, waits for that
        if ended and trace not in {one.trace_id for one in waiting_in(site.state.intents)}:
            break
        if not has_more:
            next(changes)
    if case.state is not State.COMPLETED or case.outcome.doubts:
        raise UserError(
            _end(case), f"See why, and what helps: placet why {case.request_id}", exit_code=1
        )


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
    if case.state is State.COMPLETED:
        return f"{case.request_id} is done, {IN_DOUBT}. {case.outcome.doubts[0]}"
    return f"{case.request_id} was {case.state.value}."


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
                f"{visible(path)} was deleted before placet planned it.",
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
            self.site.say(
                "the daemon runs again"
                if is_there
                else "the daemon is not running. This continues when it runs: placet run"
            )
        self.was_there = is_there
