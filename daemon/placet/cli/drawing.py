"""Draw tables, colours and links for a terminal, with rich.

Everything that is shown passes `styled` or `link`: text of notes, models and repositories moves
no cursor, hides nothing, and opens no link. rich is imported only in functions that draw.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placet.client.texts import harmless
from placet.note.paths import show as visible
from placet.wording import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

LEAST_COLUMNS = 40
"""Columns below which nothing is laid out: a narrower terminal wraps by itself."""
UNCUT_COLUMNS = 10_000
"""Columns of lines for a pipe: longer than any."""


def on_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout.isatty()


def is_dumb() -> bool:
    """Return whether the terminal says that it knows no escape sequences."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown")


def columns() -> int:
    """Return the width of the terminal."""
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def drawn(*parts: RenderableType, width: int = 0) -> str:
    """Return parts one below the other, as lines that fit the terminal; plain and uncut for a pipe.

    `NO_COLOR` leaves out colours and weights; a terminal that calls itself dumb gets no links
    either.
    """
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=False,
        color_system=None if is_dumb() or not on_terminal() else "standard",
        no_color=bool(os.environ.get("NO_COLOR")),
        width=width or (columns() if on_terminal() else UNCUT_COLUMNS),
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def styled(text: str, colour: str = "", *, bold: bool = False) -> Text:
    """Return a text on one line, in a colour; what would move or hide something is written out."""
    from rich.text import Text

    return Text(one_line(harmless(text)), _style(colour, bold=bold))


def link(shown: str, target: Path, colour: str = "", *, bold: bool = False) -> Text:
    """Return a name that a terminal with hyperlinks (OSC 8) opens `target` by.

    The address is percent-encoded byte for byte, so that nothing of a file's name ends it.
    """
    from rich.style import Style
    from rich.text import Text

    text = Text(visible(shown), _style(colour, bold=bold))
    text.stylize(Style(link=target.absolute().as_uri()))
    return text


def joined(parts: Iterable[Text | str]) -> Text:
    """Return texts one after the other on a line."""
    from rich.text import Text

    made = (part if isinstance(part, Text) else styled(part) for part in parts)
    return Text(" ").join([part for part in made if part.plain])


def table(
    rows: Sequence[Sequence[RenderableType]],
    *,
    heads: Sequence[str] = (),
    right: Sequence[int] = (),
    whole: Sequence[int] = (),
    indent: int = 2,
) -> Table:
    """Return rows as columns; long cells wrap and are never cut.

    `heads` are the columns' names, `right` the right-aligned columns, `whole` those that never
    wrap.
    """
    from rich.padding import Padding
    from rich.table import Table

    made = Table(
        box=None, show_header=bool(heads), header_style=_style("dim"), padding=0, pad_edge=False
    )
    count = max(map(len, rows), default=0)
    for number in range(count):
        made.add_column(
            heads[number] if heads else "",
            justify="right" if number in right else "left",
            no_wrap=number in whole,
            overflow="fold",
        )
    for row in rows:
        made.add_row(
            *(
                Padding(cell, (0, 0 if n == count - 1 else 2, 0, 0 if n else indent))
                for n, cell in enumerate(row)
            )
        )
    if heads:
        for number, column in enumerate(made.columns):
            last = number == count - 1
            column.header = Padding(
                styled(heads[number], "dim"), (0, 0 if last else 2, 0, 0 if number else indent)
            )
    return made


def stacked(*parts: RenderableType) -> RenderableType:
    """Return parts one below the other, as one cell."""
    from rich.console import Group

    return Group(*parts)


def heading(text: str) -> Text:
    """Return a section's title."""
    return styled(text, bold=True)


def _style(colour: str, *, bold: bool = False) -> str:
    if os.environ.get("NO_COLOR"):
        return ""
    return " ".join(part for part in ("bold" if bold else "", colour) if part)
