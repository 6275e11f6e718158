"""Show a team's workers, and which of them works on what. Reads only."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from placet.case.case import CASE_JSON, Case
from placet.case.life_cycle import WORKING
from placet.client.cases import AT_WORK, Carrier
from placet.client.site import Site
from placet.errors import UserError
from placet.journal.database import VAULT, address_of, is_begun
from placet.journal.reader import Reader, open_reader
from placet.wording import age
from placet_team.blockers import blockers
from placet_team.tables import (
    MemberRow,
    WorkRow,
    major,
    member_rows,
    needs,
    quiet_limit_s,
    server_now_s,
    work_row,
    work_rows,
)
from placet_team.work_dispatch import may_take, nobody_for

WAITING, QUEUED, TAKEN, GIVEN_BACK = "waiting", "queued", "taken", "given back"
"""States of a case's work, besides AT_WORK. WAITING: the daemon has not queued it yet."""
_SAID = {
    WAITING: "waits for a worker",
    QUEUED: "waits for a worker",
    TAKEN: "worker {} is about to start",
    AT_WORK: "worker {} is working on it",
    GIVEN_BACK: "worker {} is done; the daemon reads the result next",
}
_SEE = "See the team: placet team status"


def carrier(site: Site, reader: Reader, case: Case) -> Carrier | None:
    """Return the state of a case's work, None if the daemon does it itself."""
    if not address_of(site.state.journal):
        return None
    row = work_row(reader.connection, case.trace_id)
    if row is None and not site.in_force().config.team.workers:
        return None
    found = _work_of(case, row)
    is_said = site.daemon is not None or found.state in (AT_WORK, GIVEN_BACK)
    return replace(found, now=_SAID[found.state].format(found.worker) if is_said else "")


def _work_of(case: Case, row: WorkRow | None) -> Carrier:
    if row is None or row.generation != case.generation:
        return Carrier(WAITING, "", "")
    state = AT_WORK if row.token else TAKEN if row.worker else QUEUED
    return Carrier(GIVEN_BACK if row.kind else state, row.worker, row.since)


def with_worker(
    reader: Reader,
    found: Carrier,
    case: Case,
    otherwise: tuple[str, tuple[str, ...]],
    *,
    runs: bool,
) -> tuple[str, tuple[str, ...]]:
    """Return why a case is where it is, and the next steps, with what its worker does.

    `found` is from `carrier`, `otherwise` is both without a worker, `runs` says that a daemon does.
    """
    why, helps = otherwise
    if found.state == WAITING or not found.now:
        return otherwise
    if found.state == QUEUED:
        return f"It waits for a worker: {_waits_for(case, reader)}.", (_SEE,)
    if not runs:
        helps = (*helps, "The result waits for the daemon: placet run")
    sentence = f"Since {found.since or case.since}: {found.now}."
    return f"{why}\n{sentence}" if found.state == AT_WORK else sentence, helps


def _waits_for(case: Case, reader: Reader) -> str:
    (row,) = [row for row in work_rows(reader.connection) if row.trace_id == case.trace_id]
    return _Workers(reader).waited_for(row)


class _Workers:
    """The workers, and how many slots each one uses."""

    def __init__(self, reader: Reader) -> None:
        self.work = work_rows(reader.connection)
        self.members, self.limit_s = member_rows(reader.connection), quiet_limit_s(reader)
        self.used = Counter(row.worker for row in self.work if row.worker and not row.kind)

    def waited_for(self, row: WorkRow) -> str:
        """Return what queued work waits for."""
        living = [one for one in self.members if one.lives(self.limit_s)]
        if why := nobody_for(row.queue, living):
            return why
        able = [one for one in living if may_take(one, *needs(row.queue))]
        if all(self.used[one.name] >= one.slots for one in able):
            return f"all slots are in use ({', '.join(one.name for one in able)})"
        return "a worker takes it within seconds"

    def state_of(self, one: MemberRow) -> str:
        """Return what a worker does, in words."""
        if not one.lives(self.limit_s):
            return f"gone: no sign of life for {age(one.quiet_s)}"
        if not one.has_version(major()):
            return f"takes nothing: version {one.version}, the daemon has {major()}"
        if one.draining:
            return "draining"
        return "all slots in use" if self.used[one.name] >= one.slots else "takes work"


def team(site: Site) -> dict[str, Any]:
    """Return a team: its database, the process of its daemon, its workers, its work.

    Raises UserError (exit code 2) without a team, and DatabaseAway.
    """
    address = must_have_team(site)
    with open_reader(site.state.journal) as reader:
        blocked = [str(one) for one in blockers(reader.connection)]
        found, lease = _Workers(reader), reader.lease(VAULT)
        now_s = server_now_s(reader.connection)
        cases = [CASE_JSON.validate_json(row.body) for row in reader.cases(*WORKING)]
    rows = {row.trace_id: row for row in found.work}
    work = []
    for case in sorted(cases, key=lambda one: one.since):
        its = _work_of(case, rows.get(case.trace_id))
        waits_for = found.waited_for(rows[case.trace_id]) if its.state == QUEUED else ""
        line = {"state": its.state, "worker": its.worker, "since": its.since}
        work.append({"request_id": case.request_id, **line, "waits_for": waits_for})
    return {
        "database": address,
        "daemon": str(lease.owner) if lease and lease.held and lease.expires_s > now_s else None,
        "blocked": blocked,
        "workers": [_worker(one, found) for one in found.members],
        "work": work,
    }


def _worker(one: MemberRow, found: _Workers) -> dict[str, Any]:
    return {
        "name": one.name,
        "labels": one.labels.split(","),
        "slots": one.slots,
        "used": found.used[one.name],
        "sandbox": one.level,
        "version": one.version,
        "quiet_s": round(max(0.0, one.quiet_s), 3),
        "gone": not one.lives(found.limit_s),
        "state": found.state_of(one),
    }


def must_have_team(site: Site) -> str:
    """Return the address of the team's database; raises UserError (exit code 2) without a team."""
    address, team = address_of(site.state.journal), site.in_force().config.team
    if not address:
        helps = "Stop the daemon, then: placet journal move"
        if not team.database:
            helps = "Put it into PostgreSQL: placet team init ADDRESS"
        elif not is_begun(site.state.journal):
            helps = "Start the daemon: placet run"
        raise UserError("This vault's journal is not in a database yet.", helps, exit_code=2)
    if not team.workers:
        raise UserError(
            "This vault has no workers: its daemon does the work itself.",
            "placet config set team.workers true, then start the daemon again",
            exit_code=2,
        )
    return address
