"""Charts as shapes that a template draws as SVG: bars by day, bars by name, a line. Pure.

Lengths are units of the drawing, which is WIDTH wide: about a pixel each on a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH = 360
TOP, HEIGHT, BOTTOM = 18, 130, 22
"""The room above the bars, for them, and below them."""
ROW = 38
"""The height of a named bar with its name."""
MAX_NAMED = 12
"""Bars that are named; of more the table tells."""
MAX_NAME = 34

Tell = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle; `series` is the number of its series, `told` says its value."""

    x: float
    y: float
    width: float
    height: float
    series: int
    told: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of a chart; `points` is a line's, `levels` are the heights of its rules."""

    height: float
    blocks: tuple[Block, ...] = ()
    labels: tuple[Label, ...] = ()
    levels: tuple[float, ...] = ()
    points: str = ""


Value = float | None
Column = tuple[str, Sequence[Value]]
"""A name, and its value in each series, None where there is none."""


def upright(columns: Sequence[Column], tell: Tell, full: float = 0.0) -> Drawing:
    """Return stacked bars side by side, the first and the last with their names.

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
    labels = [Label(0, TOP - 5, tell(highest))]
    if columns:
        labels.append(Label(0, floor, columns[0][0]))
    if len(columns) > 1:
        labels.append(Label(WIDTH, floor, columns[-1][0], "end"))
    levels = (TOP, TOP + HEIGHT / 2, TOP + HEIGHT)
    return Drawing(TOP + HEIGHT + BOTTOM, tuple(blocks), tuple(labels), levels)


def lying(columns: Sequence[Column], tell: Tell, full: float = 0.0) -> Drawing:
    """Return stacked bars below each other, each under its name; `full` as in `upright`."""
    shown = columns[:MAX_NAMED]
    most = full or max((_sum(values) for _, values in shown), default=0.0) or 1.0
    blocks, labels = [], []
    for number, (name, values) in enumerate(shown):
        y, x = number * ROW, 0.0
        said = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
        labels += [Label(0, y + 14, said), Label(WIDTH, y + 14, tell(_sum(values)), "end")]
        for series, value in enumerate(values):
            if value:
                wide = max(value / most * WIDTH, 1.0)
                blocks.append(_block(x, y + 20, wide, 12, series, f"{name}: {tell(value)}"))
                x += wide
    return Drawing(max(len(shown), 1) * ROW, tuple(blocks), tuple(labels))


def falling(left: Sequence[float], full: float, tell: Tell) -> Drawing:
    """Return a line of what was left of `full` after each turn, beginning with all of it."""
    values = [full, *left]
    step = WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{number * step:.1f},{TOP + HEIGHT - max(value, 0.0) / full * HEIGHT:.1f}"
        for number, value in enumerate(values)
    )
    labels = (
        Label(0, TOP - 5, tell(full)),
        Label(WIDTH, TOP - 5, f"left: {tell(max(values[-1], 0.0))}", "end"),
        Label(0, TOP + HEIGHT + 15, "start"),
        Label(WIDTH, TOP + HEIGHT + 15, f"turn {len(left)}", "end"),
    )
    levels = (TOP, TOP + HEIGHT / 2, TOP + HEIGHT)
    return Drawing(TOP + HEIGHT + BOTTOM, (), labels, levels, points)


def _sum(values: Sequence[Value]) -> float:
    return sum(value or 0.0 for value in values)


def _block(x: float, y: float, width: float, height: float, series: int, told: str) -> Block:
    return Block(round(x, 1), round(y, 1), round(width, 1), round(height, 1), series, told)
