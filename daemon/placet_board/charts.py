"""Make charts as shapes that a template draws as SVG: bars by day and bars by name. Pure.

Lengths are in units of the drawing, which is WIDTH wide: about a pixel each on a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet.wording import counted

WIDTH = 360
TOP, HEIGHT, BOTTOM = 18, 130, 22
"""Heights above, of and below the bars."""
ROW = 38
"""The height of a named bar with its name."""
MAX_NAMED = 12
"""Maximum bars with a name; the table has all."""
MAX_NAME = 34

Tell = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle; `series` is the number of its series, `text` its value as text."""

    x: float
    y: float
    width: float
    height: float
    series: int
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of a chart; `levels` are the heights of its rules."""

    height: float
    blocks: tuple[Block, ...] = ()
    labels: tuple[Label, ...] = ()
    levels: tuple[float, ...] = ()


Value = float | None
Column = tuple[str, Sequence[Value]]
"""A name, and its value in each series, None for none."""


def bar_chart(columns: Sequence[Column], tell: Tell, full: float = 0.0) -> Drawing:
    """Return stacked bars next to each other; the first, the middle and the last have a name.

    A bar as high as `full`, by default the highest one, fills the drawing.
    """
    highest = full or max((_sum(values) for _, values in columns), default=0.0)
    most = highest or 1.0
    step = WIDTH / max(len(columns), 1)
    wide = max(step * 0.8, 1.0)
    blocks = []
    for number, (name, values) in enumerate(columns):
        y = float(TOP + HEIGHT)
        for series, value in enumerate(values):
            if value:
                high = max(value / most * HEIGHT, 1.0)
                y -= high
                x = number * step + (step - wide) / 2
                blocks.append(_block(x, y, wide, high, series, f"{name}: {tell(value)}"))
    floor = TOP + HEIGHT + 15
    labels = [Label(0, TOP - 5, tell(highest)), Label(0, TOP + HEIGHT / 2 - 5, tell(highest / 2))]
    if columns:
        labels.append(Label(0, floor, columns[0][0]))
    if len(columns) > 2:
        labels.append(Label(WIDTH / 2, floor, columns[len(columns) // 2][0], "middle"))
    if len(columns) > 1:
        labels.append(Label(WIDTH, floor, columns[-1][0], "end"))
    levels = (TOP, TOP + HEIGHT / 2, TOP + HEIGHT)
    return Drawing(TOP + HEIGHT + BOTTOM, tuple(blocks), tuple(labels), levels)


def row_chart(columns: Sequence[Column], tell: Tell, full: float = 0.0) -> Drawing:
    """Return stacked bars below each other, each under its name; `full` as in `bar_chart`."""
    shown = columns[:MAX_NAMED]
    most = full or max((_sum(values) for _, values in shown), default=0.0) or 1.0
    blocks, labels = [], []
    for number, (name, values) in enumerate(shown):
        y, x = number * ROW, 0.0
        label = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
        labels += [Label(0, y + 14, label), Label(WIDTH, y + 14, tell(_sum(values)), "end")]
        for series, value in enumerate(values):
            if value:
                wide = max(value / most * WIDTH, 1.0)
                blocks.append(_block(x, y + 20, wide, 12, series, f"{name}: {tell(value)}"))
                x += wide
    return Drawing(max(len(shown), 1) * ROW, tuple(blocks), tuple(labels))


def _sum(values: Sequence[Value]) -> float:
    return sum(value or 0.0 for value in values)


def _block(x: float, y: float, width: float, height: float, series: int, text: str) -> Block:
    return Block(round(x, 1), round(y, 1), round(width, 1), round(height, 1), series, text)


Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ChartKind:
    """A chart's title, question and columns.

    `tell` formats one value, `text` all of them. A bar of `full` fills the drawing, by default the
    highest one. The table also has the columns in `besides`.
    """

    key: str
    title: str
    question: str
    series: tuple[str, ...]
    tell: Callable[[float], str]
    text: Callable[[Rows], str]
    full: float = 0.0
    besides: tuple[str, ...] = ()


def _total(rows: Rows, *names: str) -> float:
    return sum(row[name] or 0 for row in rows for name in names)


def _missions(rows: Rows) -> str:
    return f"{_total(rows, 'completed'):,} completed, {_total(rows, 'failed'):,} failed"


def _cost(rows: Rows) -> str:
    unknown = _total(rows, "calls_without_price")
    besides = f" and {counted(unknown, 'call')} without a known price" if unknown else ""
    return f"{_dollars(_total(rows, 'dollars'))}{besides}"


def _tokens(rows: Rows) -> str:
    return counted(_total(rows, *_TOKENS), "token")


def _cached(rows: Rows) -> str:
    asked = _total(rows, "input_tokens", "cached_tokens")
    share = 100 * _total(rows, "cached_tokens") / asked if asked else 0.0
    return f"{share:.1f} % of the prompt tokens came from the cache"


def _waits(rows: Rows) -> str:
    longest = max(row["longest_minutes"] for row in rows)
    number = counted(round(_total(rows, "plans")), "approval")
    return f"{number}; the longest took {_minutes(longest)}"


def _rejected(rows: Rows) -> str:
    no, all_of = _total(rows, "rejected"), _total(rows, "approved", "rejected")
    return f"{no:,} of {all_of:,} decisions, {100 * no / all_of:.1f} %"


def _failures(rows: Rows) -> str:
    return counted(round(_total(rows, "failures")), "failure")


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
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:.4f}"


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
