"""The kinds of charts: what each shows of which question, and the sentence above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet.core.wording import counted

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChartKind:
    """A chart's title, question and columns.

    `tell` says one value, `told` all of them. A bar of `full` fills the drawing, by default the
    highest one. The table has the columns `besides` too.
    """

    key: str
    title: str
    question: str
    series: tuple[str, ...]
    tell: Callable[[float], str]
    told: Callable[[Rows], str]
    full: float = 0.0
    besides: tuple[str, ...] = ()


def _sum(rows: Rows, *names: str) -> float:
    return sum(row[name] or 0 for row in rows for name in names)


def _missions(rows: Rows) -> str:
    return f"{_sum(rows, 'completed'):,} completed, {_sum(rows, 'failed'):,} failed"


def _cost(rows: Rows) -> str:
    unknown = _sum(rows, "calls_without_price")
    besides = f", besides {counted(unknown, 'call')} whose price is not known" if unknown else ""
    return f"{_dollars(_sum(rows, 'dollars'))}{besides}"


def _tokens(rows: Rows) -> str:
    return counted(_sum(rows, *_TOKENS), "token")


def _cached(rows: Rows) -> str:
    asked = _sum(rows, "input_tokens", "cached_tokens")
    share = 100 * _sum(rows, "cached_tokens") / asked if asked else 0.0
    return f"{share:.1f} % of what was sent came from the cache"


def _waits(rows: Rows) -> str:
    longest = max(row["longest_minutes"] for row in rows)
    number = counted(round(_sum(rows, "plans")), "approval")
    return f"{number}; the longest took {_minutes(longest)}"


def _rejected(rows: Rows) -> str:
    no, all_of = _sum(rows, "rejected"), _sum(rows, "approved", "rejected")
    return f"{no:,} of {all_of:,} decisions, {100 * no / all_of:.1f} %"


def _failures(rows: Rows) -> str:
    return counted(round(_sum(rows, "failures")), "failure")


def _minutes(minutes: float) -> str:
    if minutes < 1:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _short(number: float) -> str:
    for least, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= least:
            return f"{number / least:.3g} {sign}"
    return f"{number:.3g}"


def _percent(number: float) -> str:
    return f"{number:.1f} %"


def _dollars(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
KINDS = (
    ChartKind("missions", "Missions", "missions", ("completed", "failed"), _short, _missions),
    ChartKind(
        "cost", "Cost", "calls", ("dollars",), _dollars, _cost, 0.0, ("calls_without_price",)
    ),
    ChartKind("tokens", "Tokens", "calls", _TOKENS, _short, _tokens),
    ChartKind(
        "cache", "Share from the cache", "calls", ("cache_percent",), _percent, _cached, 100.0
    ),
    ChartKind(
        "waits",
        "Time from plan to approval",
        "waits",
        ("median_minutes",),
        _minutes,
        _waits,
        0.0,
        ("longest_minutes", "plans"),
    ),
    ChartKind(
        "rejected",
        "Rejected plans",
        "decisions",
        ("rejected_percent",),
        _percent,
        _rejected,
        100.0,
        ("rejected", "approved"),
    ),
    ChartKind(
        "failures",
        "Failures by their end",
        "failures",
        ("failures",),
        _short,
        _failures,
    ),
)
