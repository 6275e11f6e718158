"""The marks by which a person leaves parts of a plan out: a step's box, and struck lines.

A step's box is a list item, since reading view draws boxes in lists only and not in headings. It
counts by its words, so that a list of tasks which somebody wrote into a step stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

BOX_WORDS = "Do this step only if ticked"
"""Words of a step's box: true with the box ticked and without, and where they are drawn struck."""

_BOX = re.compile(
    r"[ \t]{0,9}(~~)?[ \t]{0,9}(?:[-*+]|[0-9]{1,9}[.)])[ \t]{1,9}(~~)?\[(.)\][ \t]{1,9}(~~)?"
    r"[ \t]{0,9}do this step\b",
    re.IGNORECASE,
)
# The words behind a bracket and marks only: a box that was damaged by hand, `[]` or `-[ ]`. Taken
# for text it would have its step done.
_NO_LETTER = r"(?:[^\w\\]|_){0,20}"
_DAMAGED_BOX = re.compile(
    rf"(?=[^\w\\]{{0,20}}\[){_NO_LETTER}[xX]?{_NO_LETTER}"
    r"do\W{1,3}this\W{1,3}step\W{1,3}only\W{1,3}if\W{1,3}ticked\b",
    re.IGNORECASE,
)
DAMAGED = "[]"
"""What `box_at` returns for a box that cannot be read."""
LONGEST_BOX = 50
"""A step's box begins within so many characters of its line."""
STRUCK_STEP = re.compile(r" {0,3}~~[ \t]*#{3}[ \t]")
"""The beginning of a step's heading whose whole line was struck."""
_TITLE_STRUCK = re.compile(r"~~(?!~)((?:(?!~~).)+)~~(?:[ \t]+#+)?$")
_TITLE_BOX = re.compile(r"\[([ xX])\](?:[ \t]+|$)")


def box(*, ticked: bool) -> str:
    """Return the line of a step's box."""
    return f"- [{'x' if ticked else ' '}] {BOX_WORDS}"


def box_at(line: str) -> str:
    """Return what is between the brackets of a step's box; empty if `line` is none.

    A struck box is an unticked one. One that cannot be read is `DAMAGED`.
    """
    found = _BOX.match(line)
    if found is None:
        return DAMAGED if _DAMAGED_BOX.match(line) else ""
    return " " if found[1] or found[2] or found[4] else found[3]


_NUMBER = re.compile(
    r"(?:[ \t~]|\[[ xX]\])*(?:step[ \t]+)?([0-9]{1,9})"
    r"(?:[ \t]*[.):\u2013\u2014-](?:[ \t~]|$)|[ \t~]*$)",
    re.IGNORECASE,
)


def number_in(heading: str) -> int:
    """Return the number that a step's raw heading begins with, 0 for none."""
    found = _NUMBER.match(heading)
    return int(found[1]) if found else 0


def title_of(heading: str, number: re.Pattern[str]) -> tuple[str, bool]:
    """Return a step's raw title, and whether its heading leaves the step out.

    Marks may stand before the `number` and after it.
    """
    raw, left_out, numbered = heading.strip(), False, False
    while True:
        if found := _TITLE_STRUCK.match(raw):
            raw, left_out = found[1].strip(), True
        elif found := _TITLE_BOX.match(raw):
            raw, left_out = raw[found.end() :], left_out or found[1] == " "
        elif not numbered and (found := number.match(raw)):
            raw, numbered = raw[found.end() :], True
        else:
            return raw, left_out


# --- struck lines of a scope

_STRING = r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'"
_TOKEN = re.compile(rf'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|{_STRING}|#[^\n]*|~~', re.DOTALL)
_CLOSING = re.compile(rf"{_STRING}|~~")
_STRUCK_STRING = re.compile(r"([\"'])~~(.+)~~\1")
_STRUCK_INSIDE = re.compile(r"[\"']!.*?~~.+?~~")
_LESS_TAKEN = (
    "an entry with `!` takes away; without it more is allowed, so delete it if you mean that"
)
_LIMIT = re.compile(r"\s*[\"']?(budget_usd|max_iterations)[\"']?\s*=")
_TAKES_AWAY = re.compile(r"[\"']!")


@dataclass(frozen=True, slots=True)
class Struck:
    """A scope's text without what is struck (`left`), and with it but without the marks (`whole`).

    Both have the lines of the text. `problems` are the line's index in the text, and how to fix it.
    """

    left: str
    whole: str
    problems: tuple[tuple[int, str], ...]


def without_struck(text: str) -> Struck:
    """Take out of a scope's TOML what a person struck.

    That may be a line, a value in it, or the text inside a value's quotation marks. To strike what
    limits the permission is a problem: it would allow more.
    """
    left, whole = [""], [""]
    problems: list[tuple[int, str]] = []
    at = copied = line = counted = 0
    while found := _TOKEN.search(text, at):
        begin, at = found.span()
        inner = _STRUCK_STRING.fullmatch(found[0])
        line, counted = line + text.count("\n", counted, begin), begin
        if inner is not None:
            piece = f"{inner[1]}{inner[2]}{inner[1]}"
        elif found[0] == "~~":
            stop = text.find("\n", at)
            end = _closing(text, at, len(text) if stop < 0 else stop)
            if end < 0:
                problems.append((line, "a struck line needs `~~` at its beginning and its end"))
                continue
            piece, at = text[at:end], end + 2
        else:
            # struck inside, it would take away something else, and allow what it took away
            problems += [(line, _LESS_TAKEN)] * bool(_STRUCK_INSIDE.match(found[0]))
            continue
        problems += [(line, why) for why in _widening(piece)]
        left.append(text[copied:begin])
        whole += [text[copied:begin], piece]
        if piece.strip() and not piece.rstrip().endswith(","):
            comma = re.compile(r"[ \t]*,").match(text, at)
            whole.append(comma[0] if comma else "")
            at = comma.end() if comma else at
        copied = at
    return Struck(
        "".join([*left, text[copied:]]), "".join([*whole, text[copied:]]), tuple(problems)
    )


def _closing(text: str, start: int, stop: int) -> int:
    """Return where the marks are that end a struck text on its line, -1 without any."""
    return next((f.start() for f in _CLOSING.finditer(text, start, stop) if f[0] == "~~"), -1)


def _widening(piece: str) -> list[str]:
    """Return why a piece of a scope cannot be struck."""
    if limit := _LIMIT.match(piece):
        return [f"without `{limit[1]}` there is no such limit; write another number instead"]
    if _TAKES_AWAY.search(piece):
        return [_LESS_TAKEN]
    return []


def wrong_with(marks: Sequence[str]) -> str:
    """Return what is wrong with a step's boxes, empty for nothing.

    `marks` are what is between their brackets.
    """
    if DAMAGED in marks:
        return f"has a box that cannot be read; write it as `{box(ticked=True)}`, or with `[ ]`"
    if odd := [mark for mark in marks if mark not in " xX"]:
        return f"has `{odd[0]}` in its box; write `x` to have it done, or a blank to leave it out"
    if len({mark.lower() for mark in marks}) > 1:
        return "has boxes that contradict each other; leave one"
    return ""


def boxes(lines: Sequence[str], at: int, end: int, fenced: Collection[int]) -> dict[int, str]:
    """Return the boxes between two lines, outside code: the line, and what the brackets have."""
    return {n: mark for n in range(at, end) if n not in fenced and (mark := box_at(lines[n]))}
