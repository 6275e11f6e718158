"""Find the sections of a plan's text, and insert lines into it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from placet.note.checkboxes import number_in, without_number
from placet.note.escape import one_line, unescaped_heading, unescaped_text
from placet.note.outline import Outline, Part, outline_of

COMMENTS = "review comments"
REJECTIONS = ("rejection", "rejection reason", "reason for rejection")


def step_parts(outline: Outline) -> list[Part]:
    """Return the headings of a plan's steps with what stands below them."""
    for part in outline.parts(0, len(outline.lines), 2):
        if part.level == 2 and part.name == "steps":
            return outline.parts(part.at + 1, part.end, 3)[1:]
    return []


def places_of(steps: Sequence[Part]) -> Mapping[int, int]:
    """Return the place of each step by the number that a person calls it.

    People read numbers in headings, which no longer are the places once they took a step out.
    """
    called = [number_in(part.heading) for part in steps]
    places = {place: place for place, number in enumerate(called, 1) if not number}
    for place, number in reversed([*enumerate(called, 1)]):
        if number:
            places[number] = place
    return places


def comment_parts(outline: Outline) -> list[Part]:
    """Return the sections of review comments."""
    parts = outline.parts(0, len(outline.lines), 2)
    title = title_line(parts)
    return [p for p in parts if p.level and p.name == COMMENTS and p.at != title]


def title_line(parts: Sequence[Part]) -> int:
    """Return the line of the plan's title among its headings, -1 for none.

    A title names no section, whatever it says: its words are the model's. Below one stand steps.
    """
    last = max((p.at for p in parts if p.level == 2 and p.name == "steps"), default=-1)
    return next((p.at for p in parts if p.level == 1 and p.at < last), -1)


def step_title(heading: str) -> str:
    """Return what a step's raw heading says, without its number."""
    return one_line(unescaped_heading(without_number(heading)))


def _spans(body: str) -> list[int]:
    ends, at = [], 0
    for found in re.finditer(r"\r\n|\n|\r", body):
        ends.append(found.start())
        at = found.end()
    return [*ends, max(at, len(body))]


def end_fence(outline: Outline, at: int) -> list[str]:
    """Return the line that closes a code block which is still open after line `at`, or none."""
    fence = outline.unclosed
    if fence is None or at < max(outline.fences):
        return []
    return [" " * fence.indent + fence.char * fence.length]


def with_lines(body: str, new: Mapping[int, Sequence[str]]) -> str:
    """Return `body` with lines put in after the lines of these indices (-1: before the first)."""
    found = re.search(r"\r\n|\n|\r", body)
    eol = found[0] if found else "\n"
    ends = _spans(body)
    out: list[str] = []
    done = 0
    for at in sorted(new):
        place = ends[at] if at >= 0 else 0
        lines = eol.join(new[at])
        out += [body[done:place], eol + lines if at >= 0 else lines]
        if place == len(body) or at < 0:
            out.append(eol)
        done = place
    return "".join([*out, body[done:]])


_REJECTED = re.compile(
    r"[*_`]*rejection(?: reason)?[*_`]*\s*[:\u2013\u2014-]\s*(.*)$", re.IGNORECASE
)


def rejection_reason(body: str) -> str:
    """Return the text below `## Rejection`, or behind it (`## Rejection: too broad`).

    Empty without one.
    """
    outline = outline_of(body)
    out: list[str] = []
    parts = outline.parts(0, len(outline.lines), 6)
    title = title_line(parts)
    for part in parts:
        heading = _REJECTED.match(part.title)
        if part.level and part.at != title and (part.name in REJECTIONS or heading):
            out += [
                heading[1].strip("*_` ") if heading else "",
                unescaped_text(outline.texts(part)),
            ]
    return "\n\n".join(text for text in out if text)
