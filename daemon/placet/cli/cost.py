"""Show what the calls of the model cost: `placet cost`."""

from __future__ import annotations

import click

from placet.cli.drawing import drawn, styled, table
from placet.cli.options import json_option, site_option
from placet.cli.terminal import say
from placet.client.costs import Costs, Sums, cost, remarks
from placet.client.site import Site
from placet.client.texts import json_text
from placet.wording import dollars


@click.command("cost")
@click.option(
    "--since",
    metavar="DATE|7d",
    default="30d",
    show_default=True,
    help="Only calls since then: 2026-11-01, 12h, 7d, 4w.",
)
@site_option
@json_option
def cost_command(site: Site, since: str, as_json: bool) -> None:
    """Show what the model's calls cost each day.

    Each call counts once, also one without an answer that may have cost something. For missions
    with an estimate, the estimate is compared with the real cost. `cached` is the share of the
    input that the model's server had in its cache.
    """
    found = cost(site, since)
    click.echo(json_text(found, indent=2) if as_json else cost_screen(found))
    for line in () if as_json else remarks(found):
        say(line)


def cost_screen(found: Costs) -> str:
    """Return the sums as a table."""
    heads = ("day", "calls", "in", "cached", "out", "cost", "estimate", "actual")
    rows = [[styled(cell) for cell in _cells(row.day, row)] for row in found.rows]
    rows.append([styled(cell, bold=True) for cell in _cells("all", found.total)])
    columns = range(1, len(heads))
    return drawn(table(rows, heads=heads, right=columns, whole=columns, indent=0))


def _cells(name: str, row: Sums) -> tuple[str, ...]:
    prompt = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens
    known = row.calls > row.calls_of_unknown_cost or not row.calls
    cost = dollars(row.cost_usd) if known else "unknown"
    return (
        name,
        f"{row.calls:,}",
        _short(prompt),
        "-" if row.cache_share is None else f"{row.cache_share:.0%}",
        _short(row.output_tokens),
        f"{cost} + ?" if known and row.calls_of_unknown_cost else cost,
        dollars(row.estimate_usd, "-"),
        dollars(row.actual_usd, "-"),
    )


def _short(tokens: int) -> str:
    """Return a number of tokens in at most five characters."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if tokens >= 10 * size:
            return f"{tokens / size:,.0f}{unit}"
    return f"{tokens:,}"
