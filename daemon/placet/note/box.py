"""Find, write and remove placet's box: lines between two marks, directly below the properties.

Only one box counts: the one in that place, with both marks. Marks anywhere else are text. A box
without its end mark is text too. A formatter may have put a mark into the quote next to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

BEGIN = "%% placet %%"
END = "%% /placet %%"

_EOL = r"[ \t]*+(?:\r\n|\n|\r)"
# linters put a blank line below the properties
_OPENING = re.compile(rf"(?:[> \t]*+{_EOL})*+[> \t]*+{re.escape(BEGIN)}{_EOL}")
_CLOSING = re.compile(rf"(?<=[\r\n])[> \t]*+{re.escape(END)}(?:[ \t]*+\Z|{_EOL})")
_BLANK = re.compile(_EOL)
_LINE_END = re.compile(r"\r\n|\n|\r")


class Box(NamedTuple):
    """A box in a note's body: the lines between its marks, and the index where the text begins."""

    lines: tuple[str, ...]
    end: int


def find_box(body: str) -> Box | None:
    """Return the box of a note's body, or None."""
    begun = _OPENING.match(body)
    ended = _CLOSING.search(body, begun.end()) if begun is not None else None
    if begun is None or ended is None:
        return None
    inner = _LINE_END.split(body[begun.end() : ended.start()])[:-1]
    # one blank line separates the box from the text
    blank = _BLANK.match(body, ended.end())
    return Box(tuple(inner), blank.end() if blank is not None else ended.end())


def without_box(body: str) -> str:
    """Return a note's body without its box, with the text unchanged."""
    box = find_box(body)
    return body if box is None else body[box.end :]


def with_box(text: str, lines: Sequence[str]) -> str:
    """Return a note's body: this text below a box with these lines."""
    end = "\r\n" if "\r\n" in text else "\n"
    return end.join([BEGIN, *lines, END, "", text])


def unmarked(body: str) -> str:
    """Return a note's body without the box's marks, for display on a screen."""
    box = find_box(body)
    return body if box is None else "\n".join([*box.lines, "", body[box.end :]])
