"""Labels with their items, lists and `toml` blocks in the text of a plan."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from placet.note.outline import BULLET, HEADING, LABEL, Outline, unescaped

_DEEP = 100

# tomllib takes 25 s for a key of 30,000 parts.
_DEEP_KEY = re.compile(rf"""(?<!["'\w-])(?:["'\w-]++[ \t]*+\.[ \t]*+){{{_DEEP}}}""")


class BrokenTomlError(ValueError):
    """TOML that cannot be read: the index of the line in the block, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def toml_table(text: str, *, decimals: bool) -> dict[str, Any]:
    """Return the table of a block's text, numbers with a point as Decimal where asked.

    Raises BrokenTomlError.
    """
    if deep := _DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start())
        raise BrokenTomlError(line, f"more than {_DEEP} names are joined by dots")
    try:
        return tomllib.loads(text, parse_float=_decimal if decimals else float)
    except (ValueError, RecursionError) as error:
        reason, _, where = str(error).partition(" (at ")
        found = re.match(r"line (\d+)", where)
        raise BrokenTomlError(int(found[1]) - 1 if found else text.count("\n"), reason) from None


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has too large an exponent") from None


def labelled(outline: Outline, at: int, label: re.Match[str], stop: int) -> tuple[list[str], int]:
    """Return the items after a label, on its line or below, and the first line after them."""
    opening = re.search(r"[*_`]*$", label[1][: label.start(2) - label.start(1)])
    closed = label[1].rstrip()[-1:] in tuple("*_`")
    rest = label[4][1:].strip()
    if opening and opening[0] and not closed:
        rest = rest.removeprefix(opening[0]).strip()
    items = [rest] if rest else []
    listed = blank = False
    at += 1
    while at < stop and at not in outline.fences:
        line = outline.lines[at]
        if not line.strip():
            blank = True
            at += 1
            continue
        bullet = BULLET.match(line)
        if HEADING.match(line) or ((other := LABEL.match(line)) and not other[3]):
            break
        if bullet and not (blank and rest and not listed):
            items.append(line[bullet.end() :])
            listed = True
        elif blank:
            break
        elif items:
            items[-1] += " " + line.strip()
        else:
            items = [line.strip()]
        blank = False
        at += 1
    while at > 0 and not outline.lines[at - 1].strip():
        at -= 1
    return items, at


def items_of(lines: Sequence[str]) -> list[str]:
    """Return the items of lists and the paragraphs in these lines."""
    out: list[str] = []
    gap = True
    for line in lines:
        bullet = BULLET.match(line)
        text = line[bullet.end() :] if bullet else line.strip()
        if not line.strip():
            gap = True
        elif bullet or gap or not out:
            out.append(unescaped(text))
            gap = False
        else:
            out[-1] += " " + unescaped(text)
    return out
