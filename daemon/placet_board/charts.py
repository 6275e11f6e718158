"""Draw numbers by day as shapes that a template shows as SVG. Pure.

Lengths are in units of the drawing, which is WIDTH wide: about a pixel each on a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 360
LEFT = 48
"""Width of the labels beside the bars."""
TOP, HEIGHT, BOTTOM = 12, 130, 22
"""Heights above, of and below the bars."""
LIMIT_SHOWN = 3
"""A limit is drawn as a line unless it is this many times as high as the bars."""

Tell = Callable[[float], str]
Days = Mapping[str, Sequence[float | None]]
"""The values of each day, None for none."""


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle; `series` is the name of its series, `text` its value as text."""

    x: float
    y: float
    width: float
    height: float
    series: str
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text; `anchor` is start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "end"


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of a chart; `levels` are the heights of its rules, `limit` that of a limit."""

    blocks: tuple[Block, ...]
    labels: tuple[Label, ...]
    levels: tuple[float, ...]
    limit: float | None = None
    height: int = TOP + HEIGHT + BOTTOM


def bar_chart(
    names: Sequence[str],
    days: Sequence[str],
    found: Days,
    tell: Tell,
    steps: Sequence[float],
    limit: float | None = None,
) -> Drawing:
    """Return stacked bars next to each other, one for each day; `names` are those of the series.

    The rules are at round values, some of `steps`.
    """
    highest = max((sum(one or 0 for one in values) for values in found.values()), default=0.0)
    drawn = limit if limit and limit <= LIMIT_SHOWN * highest else None
    least = max(highest, drawn or 0) / 2
    tick = next((one for one in steps if one >= least), least)
    unit = HEIGHT / (2 * tick)
    step = (WIDTH - LEFT) / max(len(days), 1)
    wide = max(step * 0.8, 1.0)
    blocks = []
    for number, day in enumerate(days):
        x, y = LEFT + number * step + (step - wide) / 2, float(TOP + HEIGHT)
        for name, value in zip(names, found.get(day, ()), strict=False):
            if value:
                high = max(value * unit, 1.0)
                y -= high
                text = f"{day}: {tell(value)}"
                box = round(x, 1), round(y, 1), round(wide, 1), round(high, 1)
                blocks.append(Block(*box, name, text))
    levels = tuple(TOP + HEIGHT * part for part in (0, 0.5, 1))
    values = (2 * tick, tick, 0)
    labels = [Label(LEFT - 6, y + 4, tell(at)) for y, at in zip(levels, values, strict=True)]
    if days:
        floor = TOP + HEIGHT + 15
        labels += [Label(LEFT, floor, days[0], "start"), Label(WIDTH, floor, days[-1])]
    at_limit = None if drawn is None else round(TOP + HEIGHT - drawn * unit, 1)
    return Drawing(tuple(blocks), tuple(labels), levels, at_limit)


COUNTS = tuple(float(step * 10**power) for power in range(9) for step in (1, 2, 5))
DOLLARS = tuple(step * 10.0**power for power in range(-2, 7) for step in (1, 2, 5))
MINUTES = (
    *(seconds / 60 for seconds in (1, 2, 5, 10, 20, 30)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0 * hours for hours in (1, 2, 4, 6, 12)),
    *(1440.0 * days for days in (1, 2, 5, 10, 20, 50, 100)),
)
"""Round values for the rules of a chart."""
