"""`placet cost`: each call of the model once, summed by day, portal, agent or model."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, cast

import click

from placet.cli.screen import drawn, on_terminal, table, words
from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import out, say, shown_time
from placet.core.errors import UserError
from placet.core.text.names import show as visible
from placet.core.wording import counted, dollars, rfc3339
from placet.host.clock import wall
from placet.journal.reader import open_reader
from placet.journal.sums import CallSums, EndedMission

By = Literal["day", "portal", "agent", "model"]
ORDER: tuple[By, ...] = ("day", "portal", "agent", "model")
UNANSWERED = "(no answer came)"
"""Stands for the model of a call without an answer in a case that no model ever answered."""
OWN_VAULT = "(the vault itself)"
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_FORMULA = ("=", "+", "-", "@")


@click.command("cost")
@click.option("--by", type=click.Choice(ORDER), default="day", help="What is summed; else days.")
@click.option("--since", metavar="DATE|7d", help="Only calls since then: 2026-11-01, 12h, 7d, 4w.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@site_option
@json_option
def cost_command(site: Site, by: str, since: str | None, as_csv: bool, as_json: bool) -> None:
    """Say what the model's calls cost, by day, portal, agent or model.

    Each call counts once; so does one without an answer that may have cost something. Of missions
    whose cost was estimated it says the estimate and what they came to.
    """
    if as_csv and as_json:
        raise click.UsageError("take either --json or --csv")
    found = cost(site, cast("By", by), since)
    if as_csv:
        click.echo(cost_csv(found), nl=False)
    elif on_terminal() and not as_json:
        click.echo(cost_screen(found))
    else:
        out(cost_text(found), found, as_json=as_json)
    if not on_terminal() and not as_json:
        for line in _remarks(found):
            say(line)


def cost(site: Site, by: By, since: str | None, *, now: datetime | None = None) -> dict[str, Any]:
    """Return the sums of the model's calls, a group each, and of all of them.

    Raises UserError for a `since` that is no time (exit code 2), and where there is no journal.
    """
    begin = "" if since is None else rfc3339(moment(since, now or wall()))
    with open_reader(site.state.journal) as reader:
        calls, missions = reader.calls.sums_since(begin), reader.calls.ended_since(begin)
        # a model is not named in the row of a call that it did not answer: it is the case's
        named = reader.calls.models() if by == "model" else {}
    groups: dict[str, Sums] = {}
    total = Sums()
    for call in calls:
        for sums in (groups.setdefault(_group(call, by, named), Sums()), total):
            sums.add(call)
    for mission in missions:
        for sums in (groups.setdefault(_group(mission, by, named), Sums()), total):
            sums.compare(mission)
    return {
        "by": by,
        "since": begin or None,
        "rows": [{by: name, **groups[name].data()} for name in sorted(groups)],
        "total": total.data(),
    }


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
            f"--since {given!r} is no time.", "Give a day, or how long ago: 2026-11-01, 12h, 7d",
            exit_code=2,
        ) from error  # fmt: skip


@dataclass(slots=True)
class Sums:
    """Sums over calls and missions. Calls whose cost is unknown are counted apart."""

    calls: int = 0
    unanswered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    lost_tokens: int = 0
    usd: Decimal = Decimal(0)
    unknown: int = 0
    missions: int = 0
    estimate_usd: Decimal = Decimal(0)
    actual_usd: Decimal = Decimal(0)

    def add(self, call: CallSums) -> None:
        """Count calls."""
        self.calls += call.calls
        self.unanswered += 0 if call.model else call.calls
        self.input_tokens += call.input_tokens
        self.output_tokens += call.output_tokens
        self.cache_read_tokens += call.cache_read_tokens
        self.cache_write_tokens += call.cache_write_tokens
        self.lost_tokens += call.tokens
        self.unknown += call.unknown
        self.usd += Decimal(str(round(call.usd, 9)))

    def compare(self, mission: EndedMission) -> None:
        """Count a mission's estimate and its cost."""
        self.missions += 1
        self.estimate_usd += Decimal(str(mission.estimate_usd))
        self.actual_usd += Decimal(str(mission.usd))

    def data(self) -> dict[str, Any]:
        """Return the sums as plain data."""
        prompt = self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
        return {
            "calls": self.calls,
            "unanswered": self.unanswered,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "lost_tokens": self.lost_tokens,
            "cache_share": round(self.cache_read_tokens / prompt, 4) if prompt else None,
            "cost_usd": float(self.usd),
            "calls_of_unknown_cost": self.unknown,
            "missions": self.missions,
            "estimate_usd": float(self.estimate_usd) if self.missions else None,
            "actual_usd": float(self.actual_usd) if self.missions else None,
        }


def _group(one: CallSums | EndedMission, by: By, named: Mapping[str, str]) -> str:
    if by == "day":
        return datetime.fromisoformat(one.timestamp).astimezone().date().isoformat()
    if by == "portal":
        return one.portal or OWN_VAULT
    if by == "agent":
        return one.agent or "(none)"
    own = one.model if isinstance(one, CallSums) else ""
    return own or named.get(one.trace_id, UNANSWERED)


def cost_csv(found: Mapping[str, Any]) -> str:
    """Return the sums as CSV, a head and a line a group.

    A name from a note that a spreadsheet would take for a formula begins with an apostrophe.
    """
    into = io.StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow([found["by"], *list(found["total"])])
    for row in found["rows"]:
        name = visible(row[found["by"]])
        safe = f"'{name}" if name.startswith(_FORMULA) else name
        writer.writerow([safe, *("" if row[key] is None else row[key] for key in found["total"])])
    return into.getvalue()


def cost_text(found: Mapping[str, Any]) -> str:
    """Return the sums as lines of tab-separated values under a head, for a pipe."""
    return "\n".join("\t".join(line) for line in _lines(found))


def cost_screen(found: Mapping[str, Any], *, width: int = 0) -> str:
    """Return the sums as a table for a terminal."""
    heads, *lines, total = _lines(found)
    columns = range(1, len(heads))
    rows = [[words(cell) for cell in line] for line in lines]
    rows.append([words(cell, bold=True) for cell in total])
    says = [words(line, "yellow") for line in _remarks(found)]
    return drawn(
        table(rows, heads=heads, right=columns, whole=columns, indent=0), *says, width=width
    )


def _lines(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    heads = (found["by"], "calls", "in", "cached", "out", "cost", "estimate", "actual")
    named = [(visible(row[found["by"]]), row) for row in found["rows"]]
    return [heads, *(_cells(name, row) for name, row in (*named, ("all", found["total"])))]


def _cells(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    share = row["cache_share"]
    prompt = row["input_tokens"] + row["cache_read_tokens"] + row["cache_write_tokens"]
    known = row["calls"] > row["calls_of_unknown_cost"] or not row["calls"]
    cost = dollars(row["cost_usd"]) if known else "unknown"
    return (
        name,
        f"{row['calls']:,}",
        _short(prompt),
        "-" if share is None else f"{share:.0%}",
        _short(row["output_tokens"]),
        f"{cost} + ?" if known and row["calls_of_unknown_cost"] else cost,
        dollars(row["estimate_usd"], "-"),
        dollars(row["actual_usd"], "-"),
    )


def _short(tokens: int) -> str:
    """Return a number of tokens in at most five characters."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if tokens >= 10 * size:
            return f"{tokens / size:,.0f}{unit}"
    return f"{tokens:,}"


def _remarks(found: Mapping[str, Any]) -> list[str]:
    total: Mapping[str, Any] = found["total"]
    said = []
    if unknown := total["calls_of_unknown_cost"]:
        said.append(
            f"What {counted(unknown, 'call')} cost is not known, as System/placet.toml has no "
            "price of the model: [[model.price]]"
        )
    if lost := total["unanswered"]:
        said.append(
            f"{counted(lost, 'call')} got no answer, and may have used {total['lost_tokens']:,} "
            "tokens: counted at the most that it can be"
        )
    if since := found["since"]:
        said.append(f"Since {shown_time(since)}")
    return said
