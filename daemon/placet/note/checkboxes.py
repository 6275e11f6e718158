"""Read and write the checkbox of a plan's step, and the number in its heading.

A step's box is a list item, because reading view draws boxes only in lists, not in headings. It is
recognised by its words, so a list of tasks that somebody wrote into a step stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

BOX_WORDS = "Do this step"
"""Words of a step's box. They make sense with the box ticked or not."""

_BOX = re.compile(
    r"[ \t]{0,9}(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,9}\[([ xX])\][ \t]{1,9}do this step\b",
    re.IGNORECASE,
)
# The words after a bracket and marks only. This is a box that somebody damaged, `[]`, `-[ ]` or
# struck. If it counted as text, the agent would do the step.
_NO_LETTER = r"(?:[^\w\\]|_){0,20}"
_MALFORMED = re.compile(
    rf"(?=[^\w\\]{{0,20}}\[){_NO_LETTER}\w?{_NO_LETTER}do\W{{1,3}}this\W{{1,3}}step\b",
    re.IGNORECASE,
)
MALFORMED = "[]"
"""What `box_at` returns for a box that cannot be read."""
LONGEST_BOX = 50
"""A step's box begins within this many characters of its line."""
STRUCK_STEP = re.compile(r" {0,3}~~[ \t]*#{3}[ \t]")
"""The beginning of a step's heading whose whole line was struck."""
_CODE = re.compile(r"(`++).*?(?<!`)\1(?!`)")
_MARKED_TITLE = re.compile(r"\A\[[ xX]?\]|(?<!\\)~~")
_NUMBER = re.compile(
    r"(?:step[ \t]+)?([0-9]{1,9})(?:[ \t]*[.):\u2013\u2014-](?:[ \t]+|$)|[ \t]*$)", re.IGNORECASE
)


def box(*, ticked: bool) -> str:
    """Return the line of a step's box."""
    return f"- [{'x' if ticked else ' '}] {BOX_WORDS}"


def box_at(line: str) -> str:
    """Return what is between the brackets of a step's box; "" if `line` is not a box.

    `MALFORMED` for a box that cannot be read.
    """
    if found := _BOX.match(line):
        return found[1]
    return MALFORMED if _MALFORMED.match(line) else ""


def number_in(heading: str) -> int:
    """Return the number at the start of a step's raw heading, 0 for none."""
    found = _NUMBER.match(heading.strip())
    return int(found[1]) if found else 0


def without_number(heading: str) -> str:
    """Return a step's raw heading without its number."""
    return _NUMBER.sub("", heading.strip(), count=1)


def is_marked(title: str) -> bool:
    """Return whether a step's raw title has a box, or a struck part outside code."""
    return _MARKED_TITLE.search(_CODE.sub("", title)) is not None


def wrong_with(marks: Sequence[str]) -> str:
    """Return what is wrong with a step's boxes, "" for nothing.

    `marks` are the texts between their brackets.
    """
    if MALFORMED in marks:
        return f"has a box that cannot be read; write `{box(ticked=True)}`, or with `[ ]`"
    if len(marks) > 1:
        return "has more than one box; leave one"
    return ""


def boxes(lines: Sequence[str], at: int, end: int, fenced: Collection[int]) -> dict[int, str]:
    """Return the boxes between two lines, outside code: each line with the text in the brackets."""
    return {n: mark for n in range(at, end) if n not in fenced and (mark := box_at(lines[n]))}
