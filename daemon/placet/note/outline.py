"""Split a plan's text at its headings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placet.note.escape import one_line, unescaped_heading
from placet.note.markdown import Fence, fence_at, lines_of

HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")


@dataclass(frozen=True, slots=True)
class Part:
    """A heading and the text below it: from line `at`, before line `end`."""

    level: int  # 0: before the first heading
    heading: str  # raw
    at: int
    end: int

    @property
    def title(self) -> str:
        """The heading without escapes, on one line."""
        return one_line(unescaped_heading(self.heading))

    @property
    def name(self) -> str:
        """The title for comparison: without case, markup and colons."""
        return named(self.title)


def named(title: str) -> str:
    """Return a heading's text in the form for comparing names of sections."""
    return " ".join(re.sub(r"[*_`:]", " ", title).split()).casefold()


@dataclass(frozen=True, slots=True)
class Outline:
    """The lines of a text, its fences (first line -> last line), and the fence without an end."""

    lines: tuple[str, ...]
    fences: Mapping[int, int]
    unclosed: Fence | None
    left_out: frozenset[int] = frozenset()  # lines that belong to no text

    @property
    def code(self) -> set[int]:
        """The lines of code blocks, including their fences."""
        return {at for first, last in self.fences.items() for at in range(first, last + 1)}

    def parts(self, start: int, end: int, deepest: int) -> list[Part]:
        """Split the lines from `start` to `end` at headings of at most level `deepest`."""
        cuts = [(0, "", start - 1)]
        at = start
        while at < end:
            if at in self.fences:
                at = self.fences[at] + 1
                continue
            line = self.lines[at]
            found = HEADING.match(line)
            if found and len(found[1]) <= deepest:
                cuts.append((len(found[1]), line[found.end() :], at))
            at += 1
        ends = [cut[2] for cut in cuts[1:]] + [end]
        return [Part(*cut, stop) for cut, stop in zip(cuts, ends, strict=True)]

    def texts(self, part: Part) -> Sequence[str]:
        """Return the lines below a part's heading."""
        below = range(part.at + 1, part.end)
        return [self.lines[at] for at in below if at not in self.left_out]


def outline_of(body: str) -> Outline:
    """Split a plan's text into lines and code blocks, which contain no headings."""
    lines = lines_of(body)
    fences: dict[int, int] = {}
    fence: Fence | None = None
    opened = 0
    for at, line in enumerate(lines):
        if fence:
            fences[opened] = at
            fence = None if fence.closes(line) else fence
        elif fence := fence_at(line):
            fences[at] = opened = at
    return Outline(tuple(lines), fences, fence)
