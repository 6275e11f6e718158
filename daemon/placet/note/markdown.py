"""Read markdown as reading view does: lines, fences, code spans, comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fence:
    """An opening code fence: its character, its length, the info string, the indentation."""

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


# Code with this beginning may act when a note is opened. Plug-ins recognise it by its beginning,
# and trim more before it than markdown does. `WORD[…]` are fields that write properties, `=` and
# `$=` queries, `!` and `<%` commands. The pattern matches their form, because nobody can list all
# plug-ins.
# https://www.moritzjung.dev/obsidian-meta-bind-plugin-docs/reference/viewfields/
# https://blacksmithgu.github.io/obsidian-dataview/queries/dql-js-inline/
_TRIMMED = r"[\s\ufeff\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f]*"
ACTS = re.compile(rf"{_TRIMMED}(?:\$?=|!|<%|(?=-*\w)[\w-]{{1,60}}\s{{0,9}}\[)")
_LEADING = re.compile(_TRIMMED)
_OPEN_CHARACTERS = 200

BREAK = re.compile(r"\r\n|\n|\r")
BULLET = re.compile(r"([ \t]*(?:[-*+]|[0-9]{1,9}[.)]))(?:[ \t]+|$)(?:\[[ xX]\](?:[ \t]+|$))?")

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.DOTALL)


def lines_of(text: str) -> list[str]:
    """Split at markdown's line endings (LF, CRLF, CR) and nowhere else."""
    return BREAK.split(text)


def fence_at(line: str) -> Fence | None:
    """Return the fence that `line` opens (CommonMark 4.5), or None."""
    found = _FENCE.match(line)
    if not found or (found[2][0] == "`" and "`" in found[3]):
        return None
    return Fence(found[2][0], len(found[2]), found[3].strip(), len(found[1]))


def outside_fences(lines: Iterable[str], change: Callable[[str], str]) -> list[str]:
    """Return the lines, with `change` applied to each line outside fenced blocks."""
    out: list[str] = []
    fence: Fence | None = None
    for line in lines:
        if fence:
            fence = None if fence.closes(line) else fence
        elif not (fence := fence_at(line)):
            out.append(change(line))
            continue
        out.append(line)
    return out


_MERGE = tuple(map(re.compile, (r"<{7}(?: |$)", r"={7}$", r">{7}(?: |$)")))


def merge_line(text: str) -> int:
    """Return the line (from 1) where an unresolved merge of git begins, 0 without one.

    Its three marks stand at the beginning of lines, in order; the first one outside of code blocks.
    """
    began = found = 0
    fence: Fence | None = None
    for number, line in enumerate(lines_of(text), 1):
        if fence is not None:
            fence = None if fence.closes(line) else fence
        elif _MERGE[found].match(line):
            began = began or number
            found += 1
            if found == len(_MERGE):
                return began
        elif not found:  # git cuts at lines: a merge may begin above a code block and end in it
            fence = fence_at(line)
    return 0


def merge_problem(text: str) -> str:
    """Return what to do about an unresolved merge in a text, or an empty string."""
    if not (line := merge_line(text)):
        return ""
    return (
        f"It holds an unresolved merge (line {line}). Keep one of the two versions, and delete the "
        "lines that begin with `<<<<<<<`, `=======` and `>>>>>>>`."
    )


_TOKEN = re.compile(r"\\[!-/:-@\[-`{-~]|`+|<!--|<[!?]|%%")

_CLOSER = {"<!--": "-->", "%%": "%%"}


@dataclass(slots=True)
class Reading:
    """A text as reading view shows it.

    `comments` are first line, column, last line, content. `prose` are the lines with code and
    comments blanked out, in the same columns. `code` maps the numbers of fenced lines to their
    language. `spans` are the code spans, each with its line. Lines count from 1.
    """

    comments: list[tuple[int, int, int, str]] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    code: dict[int, str] = field(default_factory=dict)
    spans: list[tuple[int, str]] = field(default_factory=list)


RUN = re.compile("`+")


def span_end(line: str, start: int, length: int) -> int:
    """Return the end of the code span that `length` backticks opened before `start`.

    -1 if it does not end on this line.
    """
    return next((run.end() for run in RUN.finditer(line, start) if len(run[0]) == length), -1)


_QUOTE = re.compile(r" {0,3}> ?")


def _unquoted(line: str, depth: int) -> tuple[str, int]:
    """Return the line without its first `depth` quotation marks, and their number."""
    at = found = 0
    while found < depth and (mark := _QUOTE.match(line, at)):
        at, found = mark.end(), found + 1
    return line[at:], found


class _Walk:
    """One walk over the lines, a machine with three states: prose, in a fence, in a comment."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.reading = Reading()
        self.last_with = {
            closer: max((n for n, line in enumerate(lines) if closer in line), default=-1)
            for closer in _CLOSER.values()
        }
        self.fence: Fence | None = None
        # quotation marks before the fence, which ends with the quotation (CommonMark 4.5, 5.1)
        self.depth = 0
        self.closer, self.begun, self.content = "", (0, 0), [""]
        # False after a stray backtick in this paragraph. Then backticks no longer form code spans.
        self.paired = True

    def line(self, number: int, line: str) -> str:
        """Read a line and return its prose."""
        at = 0
        if self.closer:
            end = line.find(self.closer)
            self.content.append(line if end < 0 else line[:end])
            if end < 0:
                return ""
            at = end + len(self.closer)
            self.end_comment(number + 1)
        elif self._is_code(number, line):
            return ""
        self.paired = self.paired or not line.strip()
        out = ["\0" * at]
        while not self.closer and (token := _TOKEN.search(line, at)):
            out.append(line[at : token.start()])
            at = self._token(number, line, token)
            out.append("\0" * (at - token.start()))
        return "".join(out) + ("" if self.closer else line[at:])

    def end_comment(self, last: int) -> None:
        first, column = self.begun
        self.reading.comments.append((first + 1, column, last, "\n".join(self.content)))
        self.closer = ""

    def _is_code(self, number: int, line: str) -> bool:
        if self.fence:
            inner, quoted = _unquoted(line, self.depth)
            if quoted == self.depth:
                self.reading.code[number + 1] = self.fence.language
                self.fence = None if self.fence.closes(inner) else self.fence
                return True
        inner, self.depth = _unquoted(line, len(line))
        self.fence = fence_at(inner)
        if self.fence:
            self.reading.code[number + 1] = self.fence.language
            self.paired = True
        return self.fence is not None

    def _token(self, number: int, line: str, token: re.Match[str]) -> int:
        """Process a mark; return the column where it, or what it opens, ends."""
        begin, at, mark = token.start(), token.end(), token[0]
        comments = self.reading.comments
        if mark[0] == "`":
            end = span_end(line, at, len(mark)) if self.paired else -1
            self.paired = end >= 0
            inside = line[at : end - len(mark)] if self.paired else self._open_span(number, at)
            self.reading.spans.append((number + 1, inside))
            return max(at, end)
        inside = line[at : at + 1]
        if mark == "<?" or (mark == "<!" and (inside.isalpha() or inside == "[")):
            end = line.find(">", at)
            end = end if end >= 0 else len(line)
            comments.append((number + 1, begin, number + 1, line[at:end]))
            return end
        if mark not in _CLOSER:
            return at
        closer = _CLOSER[mark]
        end = line.find(closer, at)
        if end >= 0:
            comments.append((number + 1, begin, number + 1, line[at:end]))
            return end + len(closer)
        if self.last_with[closer] > number or not line[:begin].strip():
            self.closer, self.begun, self.content = closer, (number, begin), [line[at:]]
        else:
            # Opened within a line and never closed: some renderers show it, others hide it.
            comments.append((number + 1, begin, number + 1, line[at:]))
        return len(line)

    def _open_span(self, number: int, at: int) -> str:
        """Return the beginning of a span that is not closed on its line.

        The span may continue on the next line.
        """
        opened, room = "", _OPEN_CHARACTERS
        for line in self.lines[number : number + 2]:
            begin = _LEADING.match(line, at).end() if not opened else 0  # type: ignore[union-attr]
            opened, at = f"{opened}\n{line[begin : begin + room]}".removeprefix("\n"), 0
            if len(opened) >= room:
                break
        return opened


def read_markdown(lines: Sequence[str]) -> Reading:
    """Return the lines as reading view shows them."""
    walk = _Walk(lines)
    walk.reading.prose = [walk.line(number, line) for number, line in enumerate(lines)]
    if walk.closer:
        walk.end_comment(len(lines))
    return walk.reading


def commented_lines(text: str) -> frozenset[int]:
    """Return the lines (from 1) that begin in an HTML or `%%` comment."""
    hidden: set[int] = set()
    for first, column, last, _ in read_markdown(lines_of(text)).comments:
        hidden.update(range(first if column == 0 else first + 1, last + 1))
    return frozenset(hidden)


ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,40});")
