"""Workers that carry out a vault's plannings and missions, for the commands that show a case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from placet.case.case import Case
from placet.cli.site import Site
from placet.cli.terminal import shown_time
from placet.cli.view import AT_WORK
from placet.errors import counted
from placet.journal.database import address_of
from placet.journal.reader import Reader
from placet_team.team_rows import (
    MemberRow,
    WorkRow,
    has_queue,
    member_rows,
    quiet_limit_s,
    work_row,
    work_rows,
)

WAITING, QUEUED, TAKEN, CARRIED, BACK = "waiting", "queued", "taken", AT_WORK, "given back"
"""How far a worker is with a piece of work: from not offered yet to given back."""


def carrier(site: Site, reader: Reader, case: Case) -> dict[str, str] | None:
    """Return how far a worker is with a case that is worked on.

    That is `state`, the worker's name (`worker`), `since` when, what it does `now` in words, and
    who it is done `by`. Return None before the team's daemon has started.
    """
    if not address_of(site.state.journal) or not has_queue(reader.connection):
        return None
    row = work_row(reader.connection, case.trace_id)
    if row is None or row.generation != case.generation:
        found = {"state": WAITING, "worker": "", "since": ""}
    else:
        lease = reader.lease(case.trace_id) if row.token else None
        since = "" if lease is None or lease.token != row.token else lease.acquired_at
        found = {"state": how_far(row), "worker": row.worker, "since": since}
    now = _now_of(case, found, daemon=site.daemon is not None)
    return {**found, "now": now, "by": _since_words(found)}


def how_far(row: WorkRow) -> str:
    """Return how far a worker is with an offered piece of work."""
    if not row.worker:
        return QUEUED
    if row.kind:
        return BACK
    return CARRIED if row.token else TAKEN


def _now_of(case: Case, found: Mapping[str, str], *, daemon: bool) -> str:
    """Return what a worker does for a case now; empty where that says nothing of it.

    Without a daemon nothing is handed over: then only what is under way counts.
    """
    if not (daemon or found["state"] in (CARRIED, BACK)):
        return ""
    worker = f"worker {found['worker']}"
    return {
        WAITING: "waits for a worker",
        QUEUED: "waits for a worker",
        TAKEN: f"about to be handed to {worker}",
        CARRIED: f"{case.state.title}, carried out by {worker}",
        BACK: f"{worker} is done, what came of it is taken in{'' if daemon else _LATER}",
    }[found["state"]]


_LATER = " when a daemon runs"


# --- why work waits


def used_slots(work: Iterable[WorkRow]) -> Mapping[str, int]:
    """Return the number of slots that each worker uses, by its name."""
    return Counter(row.worker for row in work if row.worker and not row.kind)


def waits_for(queue: str, living: Sequence[MemberRow], used: Mapping[str, int]) -> str:
    """Return what queued work waits for; `used` has the slots in use."""
    from placet_team.engine import needs
    from placet_team.offer import may_take, nobody_for

    if why := nobody_for(queue, living):
        return why
    able = [one for one in living if may_take(one, *needs(queue))]
    if all(used.get(one.name, 0) >= one.slots for one in able):
        slots = sum(one.slots for one in able)
        who = ", ".join(one.name for one in able)
        return f"{counted(slots, 'slot is', 'slots are')} used, of all that may take it ({who})"
    return "a worker takes it within seconds"


def with_worker(
    reader: Reader,
    found: Mapping[str, str],
    case: Case,
    otherwise: tuple[str, tuple[str, ...]],
    *,
    runs: bool,
) -> tuple[str, tuple[str, ...]]:
    """Return why a case is where it is by what its worker does, and the next steps.

    `otherwise` is both without a worker, `runs` says that the daemon does.
    """
    if found["state"] == WAITING:
        return otherwise
    worker = f"worker {found['worker']}"
    later = () if runs else ("What comes of it is taken in when a daemon runs: placet run",)
    soon = later or ("The daemon looks within seconds.",)
    if found["state"] == CARRIED:
        why, helps = otherwise
        since = f" since {found['since']}" if found["since"] else ""
        return f"{why}\nIt is carried out by {worker}{since}.", (*helps, *later)
    if found["state"] == BACK:
        return f"The {worker} is done with it, and the daemon is to take in what came of it.", soon
    if not runs:
        return otherwise
    if found["state"] == TAKEN:
        return f"The {worker} has taken it, and is about to be handed it by the daemon.", soon
    said = f"Since {case.since} it is {case.state}, and waits for a worker: {_queued(reader, case)}"
    return f"{said}.", ("See who is there, and what they do: placet team status",)


def _queued(reader: Reader, case: Case) -> str:
    work, limit_s = work_rows(reader.connection), quiet_limit_s(reader)
    living = [one for one in member_rows(reader.connection) if one.quiet_s < limit_s]
    (queue,) = [row.queue for row in work if row.trace_id == case.trace_id]
    return waits_for(queue, living, used_slots(work))


def _since_words(found: Mapping[str, str]) -> str:
    """Return who carries a case out, and since when; empty where no worker does."""
    if found["state"] != CARRIED:
        return ""
    since = f" since {shown_time(found['since'])}" if found["since"] else ""
    return f"worker {found['worker']}{since}"
