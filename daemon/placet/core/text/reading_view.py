"""Markdown as reading view takes it: lines, fences, code spans, comments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fence:
    """An opening code fence: its character, their number, the info string, the indentation."""

    char: str
    length: int
    info: str
    indent: int

    @property
    def language(self) -> str:
        """The first word of the info string, in lower case."""
        words = self.info.split()
        return words[0].lower() if words else ""

    def closes(self, line: str) -> bool:
        """Return whether `line` ends this fence."""
        found = _FENCE.match(line)
        if not found or found[3].strip():
            return False
        return found[2][0] == self.char and len(found[2]) >= self.length


# What Dataview runs where a code span begins like this: it trims first, and what it trims is more
# than what markdown does.
QUERY = re.compile(r"[\s\ufeff\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f]*\$?=")


BREAK = re.compile(r"\r\n|\n|\r")


_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.DOTALL)


def lines_of(text: str) -> list[str]:
    """Split at the line endings of markdown (LF, CRLF, CR) and at nothing else."""
    return BREAK.split(text)


def fence_at(line: str) -> Fence | None:
    """Return the fence that `line` opens (CommonMark 4.5), None if it opens none."""
    found = _FENCE.match(line)
    if not found or (found[2][0] == "`" and "`" in found[3]):
        return None
    return Fence(found[2][0], len(found[2]), found[3].strip(), len(found[1]))


_TOKEN = re.compile(r"\\[!-/:-@\[-`{-~]|`+|<!--|<[!?]|%%")


_CLOSER = {"<!--": "-->", "%%": "%%"}


@dataclass(slots=True)
class Reading:
    """A text as reading view takes it.

    `comments`: first line, column, last line, content. `prose`: the lines with code and comments
    blanked out, in the same columns. `code`: the numbers of fenced lines, with the language.
    `spans`: the code spans, each with its line. Lines count from 1.
    """

    comments: list[tuple[int, int, int, str]] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    code: dict[int, str] = field(default_factory=dict)
    spans: list[tuple[int, str]] = field(default_factory=list)


def _span_end(line: str, start: int, length: int) -> int:
    """Return where the span ends that `length` backticks opened before `start`.

    -1: not on this line.
    """
    for run in re.finditer("`+", line[start:]):
        if len(run[0]) == length:
            return start + run.end()
    return -1


_QUOTE = re.compile(r" {0,3}> ?")


def _unquoted(line: str, depth: int) -> tuple[str, int]:
    """Return the line without its first `depth` quotation marks, and their number."""
    at = found = 0
    while found < depth and (mark := _QUOTE.match(line, at)):
        at, found = mark.end(), found + 1
    return line[at:], found


def read_markdown(lines: Sequence[str]) -> Reading:
    """Walk the lines once, as a machine with three states: prose, in a fence, in a comment."""
    reading = Reading()
    last_with = {
        c: max((n for n, line in enumerate(lines) if c in line), default=-1) for c in ("-->", "%%")
    }
    fence: Fence | None = None
    depth = 0  # quotation marks before the fence: it ends with the quotation (CommonMark 4.5, 5.1)
    closer, begun, content = "", (0, 0), [""]
    paired = True  # no stray backtick yet in this paragraph: what looks like a code span is one
    for number, line in enumerate(lines):
        at = 0
        masked: list[str] = []
        inner, quoted = _unquoted(line, depth if fence else len(line))
        if fence and quoted < depth:
            fence = None
            inner, quoted = _unquoted(line, len(line))
        if closer:
            end = line.find(closer)
            if end < 0:
                content.append(line)
                reading.prose.append("")
                continue
            content.append(line[:end])
            reading.comments.append((begun[0] + 1, begun[1], number + 1, "\n".join(content)))
            at = end + len(closer)
            masked.append("\0" * at)
            closer = ""
        elif fence:
            reading.code[number + 1] = fence.language
            reading.prose.append("")
            if fence.closes(inner):
                fence = None
            continue
        elif fence := fence_at(inner):
            depth = quoted
            reading.code[number + 1] = fence.language
            reading.prose.append("")
            paired = True
            continue
        if not line.strip():
            paired = True
        while not closer and (token := _TOKEN.search(line, at)):
            start, at = at, token.end()
            masked.append(line[start : token.start()])
            mark = token[0]
            if mark[0] == "`":
                end = _span_end(line, at, len(mark)) if paired else -1
                paired = end >= 0
                # One that is not closed on this line may go on on the next one.
                inside = (
                    line[at : end - len(mark)]
                    if paired
                    else "\n".join([line[at:], *lines[number + 1 : number + 2]])
                )
                reading.spans.append((number + 1, inside))
                at = max(at, end)
            elif mark in _CLOSER:
                end = line.find(_CLOSER[mark], at)
                if end >= 0:
                    reading.comments.append((number + 1, token.start(), number + 1, line[at:end]))
                    at = end + len(_CLOSER[mark])
                elif last_with[_CLOSER[mark]] > number or not line[: token.start()].strip():
                    closer, begun, content = _CLOSER[mark], (number, token.start()), [line[at:]]
                    at = len(line)
                else:
                    # Opened in mid-line and closed nowhere: some readers show it, others hide it.
                    reading.comments.append((number + 1, token.start(), number + 1, line[at:]))
                    at = len(line)
            elif mark in ("<!", "<?"):
                end = line.find(">", at)
                if mark == "<?" or line[at : at + 1].isalpha() or line[at : at + 1] == "[":
                    end = end if end >= 0 else len(line)
                    reading.comments.append((number + 1, token.start(), number + 1, line[at:end]))
                    at = end
            masked.append("\0" * (at - token.start()))
        reading.prose.append("".join(masked) + ("" if closer else line[at:]))
    if closer:
        reading.comments.append((begun[0] + 1, begun[1], len(lines), "\n".join(content)))
    return reading


def commented_lines(text: str) -> frozenset[int]:
    """Return the lines (from 1) whose beginning lies in an HTML or `%%` comment."""
    hidden: set[int] = set()
    for first, column, last, _ in read_markdown(lines_of(text)).comments:
        hidden.update(range(first if column == 0 else first + 1, last + 1))
    return frozenset(hidden)


ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,40});")
