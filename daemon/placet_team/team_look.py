"""A team as its rows have it: who is there, what is queued, who carries what out. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placet.case.case import CASE_JSON
from placet.case.life_cycle import WORKING
from placet.cli.site import Site
from placet.cli.view import age_s, drawn, heading, table, words
from placet.errors import UserError, age, counted
from placet.journal.database import VAULT, address_of, is_begun
from placet.journal.reader import Reader, open_reader
from placet.note.paths import show as visible
from placet.sandbox.box import Level
from placet_team.progress import BACK, QUEUED, TAKEN, how_far, used_slots, waits_for
from placet_team.team_rows import (
    MemberRow,
    WorkRow,
    has_queue,
    member_rows,
    quiet_limit_s,
    server_now_s,
    work_named,
    work_rows,
)

Section = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, the names of columns, and rows."""


def must_have_team(site: Site) -> str:
    """Return the address of the team's database; raises UserError (exit code 2) without a team."""
    address, team = address_of(site.state.journal), site.in_force().config.team
    if team.database and not address:
        begun = is_begun(site.state.journal)
        raise UserError(
            f"No daemon has used the database {team.database} yet.",
            "Stop the daemon, then: placet journal move" if begun else "Start one: placet run",
            exit_code=2,
        )
    if not address:
        raise UserError(
            "This vault has no team: its journal is in a file, which no other machine reaches.",
            "Put it into PostgreSQL: placet team init ADDRESS",
            exit_code=2,
        )
    if not team.workers:
        raise UserError(
            "This vault has no workers: its daemon does the work itself.",
            "Let workers do it: placet config set team.workers true, then start the daemon again.",
            exit_code=2,
        )
    return address


def team(site: Site) -> dict[str, Any]:
    """Return a team: its daemon, workers, and work: queued, under way, or not offered (`waiting`).

    Raises UserError without one, and for a database that cannot be reached.
    """
    address = must_have_team(site)
    with open_reader(site.state.journal) as reader:
        if not has_queue(reader.connection):
            raise UserError(
                "No daemon has started since workers are to do the work.",
                "Start it again: placet run",
                exit_code=2,
            )
        work, members = work_rows(reader.connection), member_rows(reader.connection)
        named, limit_s = work_named(reader.connection), quiet_limit_s(reader)
        host, offered = _host(reader), {row.trace_id for row in work}
        rows = [row for row in reader.cases(*WORKING) if row.trace_id not in offered]
    used = used_slots(work)
    living = [one for one in members if one.quiet_s < limit_s]
    return {
        "database": address,
        "host": host,
        "workers": [_worker(one, used.get(one.name, 0), limit_s) for one in members],
        "queued": _queued([row for row in work if not row.worker], living, used),
        "under_way": [_under_way(row, named) for row in work if row.worker],
        "waiting": [CASE_JSON.validate_json(row.body).request_id for row in rows],
    }


def _host(reader: Reader) -> dict[str, Any] | None:
    """Return the daemon that holds the vault; None where none does."""
    lease = reader.lease(VAULT)
    now_s = server_now_s(reader.connection)
    if lease is None or not lease.held or lease.expires_s < now_s:
        return None
    quiet_s = round(max(0.0, now_s - lease.heartbeat_s), 3)
    return {"process": str(lease.owner), "since": lease.acquired_at, "quiet_s": quiet_s}


def _worker(one: MemberRow, used: int, limit_s: float) -> dict[str, Any]:
    from placet_team.engine import major

    known = one.level in list(Level)
    return {
        "name": one.name,
        "labels": one.labels.split(","),
        "level": one.level,
        "sandbox": Level(one.level).title if known else f"level {one.level}",
        "version": one.version,
        "slots": one.slots,
        "used": used,
        "quiet_s": round(max(0.0, one.quiet_s), 3),
        "draining": one.draining,
        "gone": one.quiet_s >= limit_s,
        "other_version": not one.version.startswith(f"{major()}."),
    }


def _queued(
    rows: Sequence[WorkRow], living: Sequence[MemberRow], used: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return the queued work by label, with what its oldest piece waits for."""
    from placet_team.engine import needs

    found: dict[str, dict[str, Any]] = {}
    for row in rows:  # the oldest first
        label = needs(row.queue)[1]
        first = {
            "label": label,
            "pieces": 0,
            "oldest_s": age_s(row.put_at),
            "waits_for": waits_for(row.queue, living, used),
        }
        found.setdefault(label, first)["pieces"] += 1
    return sorted(found.values(), key=lambda one: -one["oldest_s"])


def _under_way(row: WorkRow, named: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    request_id, since = named.get(row.trace_id, (row.trace_id, ""))
    return {
        "request_id": request_id,
        "trace_id": row.trace_id,
        "what": "planning" if row.planning else "mission",
        "worker": row.worker,
        "state": how_far(row),
        "since": since or None,
        "age_s": age_s(since) if since else None,
        "lease_expired": row.expired,
    }


# --- for people


def state_of(worker: Mapping[str, Any]) -> str:
    """Return what a worker does, in words."""
    from placet_team.engine import major

    if worker["gone"]:
        return f"gone: nothing was heard of it for {age(worker['quiet_s'])}"
    if worker["other_version"]:
        return f"takes nothing: it is of version {worker['version']}, the daemon of {major()}"
    if worker["draining"]:
        return "draining: takes nothing more, ends what it has" if worker["used"] else "draining"
    return "all slots used" if worker["used"] >= worker["slots"] else "takes work"


def workers_section(found: Mapping[str, Any]) -> Section:
    """Return the table of workers."""
    heads = ("worker", "labels", "slots", "sandbox", "version", "heard", "state")
    rows = [
        (
            one["name"],
            ", ".join(one["labels"]),
            f"{one['used']}/{one['slots']}",
            f"{one['level']}, {one['sandbox']}",
            one["version"],
            f"{age(one['quiet_s'])} ago",
            state_of(one),
        )
        for one in found["workers"]
    ]
    return "", heads, rows


def status_sections(found: Mapping[str, Any]) -> Iterator[Section]:
    """Give the parts of `placet team status`; those that have nothing are left out."""
    workers = [one for one in found["workers"] if not one["gone"]]
    able = [one for one in workers if not (one["other_version"] or one["draining"])]
    used = sum(one["used"] for one in workers)  # what one that is draining still does counts
    slots = sum(one["slots"] if one in able else one["used"] for one in workers)
    host, gone = found["host"], len(found["workers"]) - len(workers)
    there = f"{counted(len(workers), 'worker')}, {used} of {counted(slots, 'slot')} used"
    yield (
        "",
        (),
        [
            ("database", found["database"]),
            ("daemon", host["process"] if host else "none: nothing is handed over (placet run)"),
            ("workers", there + (f"; {gone} gone" if gone else "")),
        ],
    )
    yield (
        "Workers",
        (),
        [
            (one["name"], f"{one['used']}/{one['slots']}", ", ".join(one["labels"]), state_of(one))
            for one in found["workers"]
        ],
    )
    yield (
        "Queued",
        (),
        [
            (
                one["label"],
                counted(one["pieces"], "piece"),
                f"the oldest for {age(one['oldest_s'])}",
                one["waits_for"],
            )
            for one in found["queued"]
        ],
    )
    yield (
        "Waiting",
        (),
        [
            (ident, "is offered to no worker yet", f"placet why {ident}")
            for ident in found["waiting"]
        ],
    )
    yield (
        "Under way",
        (),
        [
            (one["request_id"], one["what"], one["worker"], _since(one))
            for one in found["under_way"]
        ],
    )


def _since(one: Mapping[str, Any]) -> str:
    if one["state"] == BACK:
        return "done: the daemon is to take in what came of it"
    if one["lease_expired"]:
        return "its worker is gone: another one goes on"
    if one["state"] in (QUEUED, TAKEN):
        return "about to be handed over"
    return "" if one["age_s"] is None else f"for {age(one['age_s'])}"


def sections_text(sections: Sequence[Section]) -> str:
    """Return sections as lines with aligned columns, for a pipe."""
    parts = []
    for title, heads, rows in sections:
        if not rows:
            continue
        cells = [[visible(cell) for cell in row] for row in ((heads, *rows) if heads else rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        parts.append("\n".join([title, *(f"  {line}" for line in lines)] if title else lines))
    return "\n\n".join(parts)


def sections_screen(sections: Sequence[Section], *, width: int = 0) -> str:
    """Return sections for a terminal; a cell that is too long goes on below itself."""
    parts: list[Any] = []
    for title, heads, rows in sections:
        if not rows:
            continue
        parts += ["", heading(title)] if title else []
        cells = [[words(cell) for cell in row] for row in rows]
        parts.append(table(cells, heads=heads, whole=(0,), indent=2 if title else 0))
    return drawn(*parts, width=width)
