"""Comments in a plan's text with their places: at a step, or in the section for them."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placet.note.checkboxes import number_in
from placet.note.markdown import Fence, fence_at
from placet.note.outline import BULLET, HEADING, Outline, Part
from placet.plan.differences import CHANGED

SECTION = "review comments"

REMARKS = "> [!note] Moved here from placet's box"
"""The first line above what somebody wrote into the box."""
_CALLOUT = re.compile(r" {0,3}>[> \t]*\[!")
_ANSWER = re.compile(r"(?:[ \t]*[-*+][ \t]+)?\*\*Answer:\*\*")
_LISTED_ANSWER = re.compile(r"[ \t]*[-*+][ \t]+\*\*Answer:\*\*")
_TOP_BULLET = re.compile(r" ?(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)")
_QUOTE = re.compile(r" {0,3}>[ \t]?")
_MARK = r"(?:\[[ xX]\][ \t]+)?[*_`]*@placet(?![\w-])[*_`]*[:,]?[ \t]*"
_QUOTED = re.compile(rf" {{0,3}}>[> \t]*(?:[-*+][ \t]+)?{_MARK}", re.IGNORECASE)
_LISTED = re.compile(rf"([ \t]*(?:[-*+]|[0-9]{{1,9}}[.)]))[ \t]+{_MARK}", re.IGNORECASE)


@dataclass(slots=True)
class CommentBlock:
    """A comment in the text.

    `lines` are its text without bullet or quote marks, up to its first answer. It stands in the
    lines from `first` to `last`; an answer to it is indented by `indent`. `place` is the heading
    under which it stands, empty in the section of comments; `step` is the step's number, or 0.
    """

    lines: list[str]
    first: int
    last: int
    indent: str
    answered: bool = False
    bare: bool = False  # a heading, so far without text
    quoted: bool = False
    answers: list[str] = field(default_factory=list)  # of one outside the section
    step: int = 0
    place: str = ""

    def answer(self, text: str) -> list[str]:
        """Return the lines of an answer, to be put in after the line `last`."""
        if self.quoted:
            return [f"{self.indent}>", f"{self.indent}> **Answer:** {text}"]
        return [f"{self.indent}- **Answer:** {text}"]


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
    return [p for p in parts if p.level and p.name == SECTION and p.at != title]


def title_line(parts: Sequence[Part]) -> int:
    """Return the line of the plan's title among its headings, -1 for none.

    A title names no section, whatever it says: its words are the model's. Below one stand steps.
    """
    last = max((p.at for p in parts if p.level == 2 and p.name == "steps"), default=-1)
    return next((p.at for p in parts if p.level == 1 and p.at < last), -1)


def blocks_of(outline: Outline) -> list[CommentBlock]:
    """Return all comments in the order of their lines."""
    found = placed_blocks(outline)
    steps = places_of(step_parts(outline))
    for part in comment_parts(outline):
        found += _section_blocks(outline, part, steps)
    return sorted(found, key=lambda block: block.first)


def placed_blocks(outline: Outline) -> list[CommentBlock]:
    """Return the comments outside their section: quotes and items that begin with `@placet`."""
    if not any("@placet" in line.casefold() for line in outline.lines):
        return []
    steps = step_parts(outline)
    out: list[CommentBlock] = []
    parts = outline.parts(0, len(outline.lines), 2)
    title = title_line(parts)
    for part in parts:
        no_place = part.name == SECTION or part.name.startswith("rejection")
        if part.level and no_place and part.at != title:
            continue
        found = [*(_marked if part.level else _above_title)(outline, part)]
        for block in found:
            block.place = part.title
        out += found
    starts = [part.at for part in steps]
    for block in out:
        number = bisect(starts, block.first)
        if number and block.first < steps[number - 1].end:
            block.step, block.place = number, steps[number - 1].title
    return out


def _above_title(outline: Outline, part: Part) -> Iterator[CommentBlock]:
    """Give the comments above a plan's first heading; the model's words may be in a callout."""
    last = head = 0
    for block in _marked(outline, part):
        at = block.first
        while at > last and outline.lines[at - 1].startswith(">"):
            at -= 1
        # back at the comment before this one it is in the same quote
        head = at if at > last or not (at and outline.lines[at - 1].startswith(">")) else head
        last = block.first
        first = outline.lines[head]
        if first == REMARKS or not _CALLOUT.match(first):
            yield block


def without_comments(outline: Outline) -> Outline:
    """Return a plan's lines with those blank, and left out, that are comments at a step or so."""
    blocks = placed_blocks(outline)
    if not blocks:
        return outline
    lines = list(outline.lines)
    gone: set[int] = set()
    for block in blocks:
        gone.update(range(block.first, block.last + 1))
    for at in gone:
        lines[at] = ""
    at = 0
    for block in blocks:
        # of the blanks around it those before it are enough
        at = max(at, block.last + 1)
        while not lines[block.first - 1].strip() and at < len(lines) and not lines[at].strip():
            gone.add(at)
            at += 1
    # One without an end stays: the plan is none, and the problem is told by its line.
    open_at = max(outline.fences) if outline.unclosed else -1
    fences = {a: end for a, end in outline.fences.items() if a not in gone or a == open_at}
    return replace(outline, lines=tuple(lines), fences=fences, left_out=frozenset(gone))


def _marked(outline: Outline, part: Part) -> Iterator[CommentBlock]:
    fence: tuple[Fence, bool] | None = None  # one that the outline does not know, in a quote or so
    at = part.at + 1
    while at < part.end:
        line = outline.lines[at]
        inner, in_quote = line.lstrip(" \t>"), line.lstrip().startswith(">")
        if at in outline.fences:
            fence, at = None, outline.fences[at]
        elif fence is not None and fence[1] is in_quote:
            fence = None if fence[0].closes(inner) else fence
        elif (opened := fence_at(inner)) is not None:
            fence = opened, in_quote
        elif found := _QUOTED.match(line):
            yield (block := _quote(outline, at, part.end, found.end()))
            at = block.last
        elif found := _LISTED.match(line):
            yield (block := _item(outline, at, part.end, found))
            at = block.last
        else:
            fence = None
        at += 1


def _quote(outline: Outline, first: int, end: int, begin: int) -> CommentBlock:
    """Return the comment that is a quote from line `first`, whose text begins at `begin`."""
    lines = [outline.lines[first][begin:]]
    fence: Fence | None = None
    for at in range(first + 1, end):
        line = outline.lines[at]
        mark = _QUOTE.match(line)
        if mark is None or (fence is None and _QUOTED.match(line)):
            break
        inner = line[mark.end() :]
        fence = (None if fence.closes(inner) else fence) if fence else fence_at(inner)
        lines.append(inner)
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    indent = outline.lines[first][: outline.lines[first].index(">")]
    block = CommentBlock(lines, first, first + len(lines) - 1, indent, quoted=True)
    return _told_apart(block)


def _item(outline: Outline, first: int, end: int, found: re.Match[str]) -> CommentBlock:
    """Return the comment that is an item of a list from line `first`: what is indented below."""
    width = len(found[1].expandtabs(4)) - len(found[1].strip())
    lines = [found.string[found.end() :]]
    at, last = first + 1, first
    while at < end:
        line = outline.lines[at]
        stop = outline.fences.get(at, at)
        if HEADING.match(line) or (line.strip() and _indentation(line) <= width):
            break
        lines += outline.lines[at : stop + 1]
        if line.strip():
            last = stop
        at = stop + 1
    indent = " " * len(found[1].expandtabs(4)) + " "
    inner = [_dedented(line, len(indent)) for line in lines[1 : last - first + 1]]
    return _told_apart(CommentBlock([lines[0], *inner], first, last, indent))


def _indentation(line: str) -> int:
    shown = line.expandtabs(4)
    return len(shown) - len(shown.lstrip(" "))


def _dedented(line: str, width: int) -> str:
    shown = line.expandtabs(4) if line[:1] == "\t" else line
    return shown[width:] if not shown[:width].strip() else shown.lstrip()


def _told_apart(block: CommentBlock) -> CommentBlock:
    """Part a comment's lines from those of its answers."""
    starts = [n for n, line in enumerate(block.lines) if n and _ANSWER.match(line)]
    if starts:
        block.answered, block.answers = True, block.lines[starts[0] :]
        block.lines = block.lines[: starts[0]]
    return block


def _section_blocks(outline: Outline, part: Part, steps: Mapping[int, int]) -> list[CommentBlock]:
    """Cut a section of comments.

    A bullet at the edge begins one, and a paragraph after a blank line. `steps` are the places of
    steps by their numbers.
    """
    out: list[CommentBlock] = []
    gap, answer, callout = 0, False, False
    fence_end = -1
    for at in range(part.at + 1, part.end):
        line = outline.lines[at]
        current = out[-1] if out else None
        fence_end = max(fence_end, outline.fences.get(at, -1))
        callout = line.startswith(CHANGED) or (callout and line.startswith(">"))
        bullet = _TOP_BULLET.match(line)
        heading = HEADING.match(line)
        indented = line.startswith(("  ", "\t"))
        if at <= fence_end and current:
            # A code block belongs to the comment above it.
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        elif callout or not line.strip():
            gap += 1
        elif _LISTED_ANSWER.match(line) and current:
            current.answered = answer = True
            current.last, gap = at, 0
        elif heading and not indented:
            out.append(CommentBlock([line[heading.end() :].strip()], at, at, "", bare=True))
            answer, gap = False, 0
        elif bullet:
            boxed = BULLET.match(line)
            assert boxed
            out.append(CommentBlock([line[boxed.end() :]], at, at, " " * len(boxed[1]) + " "))
            answer, gap = False, 0
        elif current and (indented or not gap or current.bare):
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        else:
            out.append(CommentBlock([line], at, at, ""))
            answer, gap = False, 0
    kept = [block for block in out if not block.bare and any(line.strip() for line in block.lines)]
    for block in kept:
        head, *rest = block.lines
        block.lines = [head, *(_dedented(line, len(block.indent)) for line in rest)]
        block.step = _step_meant(outline.lines[block.first], "\n".join(block.lines), steps)
    return kept


_NUMBERED = re.compile(r"[ \t]*(?:step[ \t]+)?([0-9]{1,4})[.)](?:[ \t]|$)", re.IGNORECASE)


def _step_meant(line: str, text: str, steps: Mapping[int, int]) -> int:
    """Return the step that an item means by beginning with its number and a dot, or 0."""
    for said in (SIGNED.sub("", text), line):
        if (found := _NUMBERED.match(said)) and (place := steps.get(int(found[1]), 0)):
            return place
    return 0


SIGNED = re.compile(r"\A\*\*[^*\n]{1,200}, [0-9]{4}-[0-9T :.-]{5,40}Z?:\*\*[ \n]?")
"""Who wrote a comment and when, in front of it."""
