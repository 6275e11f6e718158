"""Tables, colours and links for a terminal, drawn by rich.

Everything that is shown passes `words` or `link`: text of notes, models and repositories moves no
cursor, hides nothing, and opens no link of its own. rich is imported only in functions that draw.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placet.cli.terminal import harmless
from placet.core.wording import one_line
from placet.note.paths import show as visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

LEAST_COLUMNS = 40
"""Columns below which nothing is laid out: a narrower terminal wraps by itself."""
BAR_CELLS = 20


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
    """Return parts one below the other as lines for the terminal, none longer than its width.

    `NO_COLOR` leaves out colours and weights; a terminal that calls itself dumb gets no links
    either.
    """
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        force_interactive=False,
        color_system=None if is_dumb() else "standard",
        no_color=plain,
        width=width or columns(),
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def words(text: str, colour: str = "", *, bold: bool = False) -> Text:
    """Return a text on one line, in a colour; what would move or hide something is written out."""
    from rich.text import Text

    return Text(one_line(harmless(text)), _style(colour, bold=bold), overflow="fold")


def link(shown: str, target: Path, colour: str = "", *, bold: bool = False) -> Text:
    """Return a name that a terminal with hyperlinks (OSC 8) opens `target` by.

    The address is percent-encoded byte for byte, so that nothing of a file's name ends it.
    """
    from rich.style import Style
    from rich.text import Text

    text = Text(visible(shown), _style(colour, bold=bold), overflow="fold")
    text.stylize(Style(link=target.absolute().as_uri()))
    return text


def joined(parts: Iterable[Text | str], between: str = " ") -> Text:
    """Return texts one after the other on a line."""
    from rich.text import Text

    made = (part if isinstance(part, Text) else words(part) for part in parts)
    return Text(between, overflow="fold").join([part for part in made if part.plain])


def bar(done: int, of: int, colour: str = "cyan") -> Text:
    """Return how much is done of a whole as a bar."""
    from rich.text import Text

    full = round(BAR_CELLS * min(1.0, done / of)) if of > 0 else 0
    return Text("━" * full, _style(colour)) + Text("─" * (BAR_CELLS - full), _style("dim"))


def table(
    rows: Sequence[Sequence[RenderableType]],
    *,
    heads: Sequence[str] = (),
    right: Sequence[int] = (),
    whole: Sequence[int] = (),
    indent: int = 2,
) -> Table:
    """Return rows as columns; a cell that is too long goes on below itself, uncut.

    `heads` are the columns' names, `right` the columns set to the right, `whole` those that are
    never broken.
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
                words(heads[number], "dim"), (0, 0 if last else 2, 0, 0 if number else indent)
            )
    return made


def stacked(*parts: RenderableType) -> RenderableType:
    """Return parts one below the other, as one cell."""
    from rich.console import Group

    return Group(*parts)


def heading(text: str) -> Text:
    """Return a section's title."""
    return words(text, bold=True)


def _style(colour: str, *, bold: bool = False) -> str:
    if os.environ.get("NO_COLOR"):
        return ""
    return " ".join(part for part in ("bold" if bold else "", colour) if part)
