"""Count each call of the model once, and sum by day."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from placet.client.site import Site
from placet.client.texts import shown_time
from placet.errors import UserError
from placet.host.clock import wall
from placet.journal.costs import CallSums, EndedMission
from placet.journal.reader import open_reader
from placet.wording import counted, rfc3339

Counts = defaultdict[str, int]
"""Sums; dollars as whole billionths, so that adding them loses nothing."""
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over calls of the model and over ended missions."""

    calls: int
    unanswered: int
    """Calls without an answer that may have cost something."""
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    lost_tokens: int
    """Maximum tokens of the calls without an answer."""
    calls_of_unknown_cost: int
    missions: int
    """Missions with an estimate."""
    cache_share: float | None
    """The part of the prompts that came from the cache; None without any."""
    cost_usd: float
    """Cost of the calls whose cost is known."""
    estimate_usd: float | None
    """Estimates of these missions; None without any."""
    actual_usd: float | None
    """Cost of these missions; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySums(Sums):
    """The sums of a local day, `YYYY-MM-DD`."""

    day: str


@dataclass(frozen=True, slots=True)
class Costs:
    """The sums since a moment: of each day, and of all."""

    by: str
    since: str | None
    rows: tuple[DaySums, ...]
    total: Sums


_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def cost(site: Site, since: str | None) -> Costs:
    """Return the sums of the model's calls, for each day and of all.

    Raises UserError for a `since` that is not a time (exit code 2), and where there is no journal.
    """
    begin = "" if since is None else rfc3339(moment(since, wall()))
    with open_reader(site.state.journal) as reader:
        calls = reader.calls.sums_since(begin, site.in_force().config.model.pricer)
        missions = reader.calls.ended_since(begin)
    days: dict[str, Counts] = {}
    total = Counts(int)
    found: tuple[CallSums | EndedMission, ...] = (*calls, *missions)
    for one in found:
        day = datetime.fromisoformat(one.timestamp).astimezone().date().isoformat()
        sums = days.setdefault(day, Counts(int))
        for name, number in _numbers(one).items():
            sums[name] += number
            total[name] += number
    rows = tuple(DaySums(day=day, **_data(days[day])) for day in sorted(days))
    return Costs("day", begin or None, rows, Sums(**_data(total)))


def remarks(found: Costs) -> list[str]:
    """Return sentences on what the sums do not know, and when they begin."""
    total, said = found.total, []
    if unknown := total.calls_of_unknown_cost:
        said.append(
            f"What {counted(unknown, 'call')} cost is not known, as System/placet.toml has no "
            "price of the model: [[model.price]]"
        )
    if total.unanswered:
        said.append(
            f"{counted(total.unanswered, 'call')} failed. placet counts the most that they can "
            f"have cost: {total.lost_tokens:,} tokens"
        )
    if found.since:
        said.append(f"Since {shown_time(found.since)}")
    return said


def moment(given: str, now: datetime) -> datetime:
    """Return the moment that `--since` means: a local day or time, or so long before `now`."""
    if span := re.fullmatch(r"([0-9]{1,5})([hdw])", given.strip()):
        return now - int(span[1]) * _UNITS[span[2]]
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", given.strip()):
            return datetime.combine(date.fromisoformat(given.strip()), time()).astimezone()
        return datetime.fromisoformat(given.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"--since {given!r} is not a time.", "Give a day, or how long ago: 2026-11-01, 12h, 7d",
            exit_code=2,
        ) from error  # fmt: skip


def _numbers(one: CallSums | EndedMission) -> Mapping[str, int]:
    """Return what is summed; calls whose cost is unknown are counted apart."""
    if isinstance(one, EndedMission):
        estimate, actual = round(one.estimate_usd * _BILLION), round(one.usd * _BILLION)
        return {"missions": 1, "estimate_usd": estimate, "actual_usd": actual}
    return {
        "calls": one.calls,
        "unanswered": one.unanswered,
        "input_tokens": one.input_tokens,
        "output_tokens": one.output_tokens,
        "cache_read_tokens": one.cache_read_tokens,
        "cache_write_tokens": one.cache_write_tokens,
        "lost_tokens": one.tokens,
        "calls_of_unknown_cost": one.unknown,
        "cost_usd": round(one.usd * _BILLION),
    }


def _data(sums: Counts) -> dict[str, Any]:
    prompt = sum(sums[f"{kind}_tokens"] for kind in ("input", "cache_read", "cache_write"))
    found: dict[str, Any] = {
        name: sums[name]
        for name in (
            "calls", "unanswered", "input_tokens", "output_tokens", "cache_read_tokens",
            "cache_write_tokens", "lost_tokens", "calls_of_unknown_cost", "missions",
        )
    }  # fmt: skip
    compared = {name: sums[name] / _BILLION for name in ("estimate_usd", "actual_usd")}
    return {
        **found,
        "cache_share": round(sums["cache_read_tokens"] / prompt, 4) if prompt else None,
        "cost_usd": sums["cost_usd"] / _BILLION,
        **(compared if found["missions"] else dict.fromkeys(compared)),
    }
