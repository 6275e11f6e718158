"""Show what the calls of the model cost: `placet cost`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from placet.cli.options import json_option, site_option
from placet.cli.screen import drawn, styled, table
from placet.cli.terminal import say
from placet.client.costs import cost
from placet.client.site import Site
from placet.client.texts import json_text, shown_time
from placet.wording import counted, dollars


@click.command("cost")
@click.option("--since", metavar="DATE|7d", help="Only calls since then: 2026-11-01, 12h, 7d, 4w.")
@site_option
@json_option
def cost_command(site: Site, since: str | None, as_json: bool) -> None:
    """Show what the model's calls cost each day.

    Each call counts once, also one without an answer that may have cost something. For missions
    with an estimate, the estimate is compared with the real cost.
    """
    found = cost(site, since)
    click.echo(json_text(found, indent=2) if as_json else cost_screen(found))
    for line in () if as_json else _remarks(found):
        say(line)


def cost_screen(found: Mapping[str, Any]) -> str:
    """Return the sums as a table."""
    heads = ("day", "calls", "in", "cached", "out", "cost", "estimate", "actual")
    rows = [[styled(cell) for cell in _cells(row["day"], row)] for row in found["rows"]]
    rows.append([styled(cell, bold=True) for cell in _cells("all", found["total"])])
    columns = range(1, len(heads))
    return drawn(table(rows, heads=heads, right=columns, whole=columns, indent=0))


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
    remarks = []
    if unknown := total["calls_of_unknown_cost"]:
        remarks.append(
            f"What {counted(unknown, 'call')} cost is not known, as System/placet.toml has no "
            "price of the model: [[model.price]]"
        )
    if unanswered := total["unanswered"]:
        remarks.append(
            f"{counted(unanswered, 'call')} failed. placet counts the most that they can have "
            f"cost: {total['lost_tokens']:,} tokens"
        )
    if since := found["since"]:
        remarks.append(f"Since {shown_time(since)}")
    return remarks
