"""Escape a plan's text so that it cannot become structure, and split it at its headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from placet import wording
from placet.note.checkboxes import LONGEST_BOX, box_at
from placet.note.markdown import (
    ACTS,
    ENTITY,
    RUN,
    Fence,
    fence_at,
    lines_of,
    outside_fences,
    span_end,
)

REJECTIONS = ("rejection", "rejection reason", "reason for rejection")
BULLET = re.compile(r"([ \t]*(?:[-*+]|[0-9]{1,9}[.)]))(?:[ \t]+|$)(?:\[[ xX]\](?:[ \t]+|$))?")

_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def legible(text: str) -> str:
    """Return a text with LF line ends, U+FFFD for control characters, and no blank edges."""
    return _UNPRINTABLE.sub("\ufffd", _LINE_ENDS.sub("\n", text)).strip()


def without_templates(text: str) -> str:
    """Return a text in which no command of Templater begins: `<%` becomes `< %`.

    That plug-in reads the bytes of a new note and the text nodes of a rendered one, so neither a
    backslash nor a code block stops it.
    """
    return text.replace("<%", "< %")


def clean(text: str) -> str:
    """Return a text as placet publishes it: `legible`, and `without_templates`."""
    return without_templates(legible(text))


def one_line(text: str) -> str:
    """Return a text on one line, with each run of white space made a single blank."""
    return wording.one_line(clean(text))


# --- text that cannot become structure

# Languages of code blocks that Obsidian and its plugins only print. Others can run or draw
# something (`dataviewjs`, `mermaid`, `query`), and placet uses `toml` itself. A fence of any other
# language is written as plain text.
_PRINTED = frozenset({
    "", "text", "txt", "plain", "python", "py", "pycon", "javascript", "js", "typescript", "ts",
    "jsx", "tsx", "json", "yaml", "yml", "xml", "html", "css", "scss", "sql", "sh", "bash", "zsh",
    "fish", "shell", "console", "powershell", "diff", "patch", "markdown", "md", "rst", "ini",
    "cfg", "c", "cpp", "h", "csharp", "cs", "java", "kotlin", "swift", "scala", "go", "rust", "rs",
    "ruby", "rb", "php", "perl", "lua", "r", "julia", "haskell", "elixir", "dockerfile",
    "makefile", "graphql", "proto", "http", "vue", "svelte",
})  # fmt: skip
_MARK = re.compile(r"[`~%$&<!\[\]]|:(?=//)")
_CONTAINER = r"(?:[ \t]|>|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))*"
_STARTERS = (
    re.compile(rf"{_CONTAINER}(?P<slashes>\\*)#{{1,6}}(?:[ \t]|$)"),
    # a person's comment at a step
    re.compile(
        rf"{_CONTAINER}(?:\[[ xX]\][ \t]+)?[*_`]*(?P<slashes>\\*)@placet(?![\w-])", re.IGNORECASE
    ),
    # below a line of text this turns it into a heading
    re.compile(rf"{_CONTAINER}(?P<slashes>\\*)(?:=+|-+)[ \t]*$"),
)
LABEL = re.compile(
    rf"({_CONTAINER}[*_`]*(tools?|done[ -]when)[*_` \t]*)(?P<slashes>\\*)(:.*)$",
    re.IGNORECASE | re.DOTALL,
)
# Only web addresses and relative ones stay links. Others open programs, which may act at once
# (`obsidian://new?…&overwrite=true`).
_TO_PROGRAM = re.compile(r"\(\s*(?:$|<?\s*(?!https?\\*:)[a-z][a-z0-9+.-]*\\*:)", re.IGNORECASE)
_PROGRAM = re.compile(r"(?<![a-z0-9+.-])(?!https?$)[a-z][a-z0-9+.-]{0,60}$", re.IGNORECASE)
# Also behind any blank: `find_unseen` would name such a line as a definition.
_LABELLED = re.compile(rf"(?:{_CONTAINER}|[\s>]*)\[")


def _means_something(line: str, at: int) -> bool:
    """Return whether the unescaped mark at `at`, outside code, would begin or end something."""
    char, after = line[at], line[at + 1 : at + 2]
    match char:
        case "`":
            return True
        case "%":
            return char in (line[at - 1 : at], after)
        case "$":
            # Maths can draw over other text, or draw nothing. An amount after a blank ends no
            # maths, and every other mark that could is escaped.
            return not (after.isdigit() and not line[:at][-1:].strip())
        case "&":
            return ENTITY.match(line, at) is not None
        case "~":
            return "~" in (line[at - 1 : at], after)
        case "<":
            return after.isascii() and (after.isalpha() or after in tuple("/!?%"))
        case "!":
            return after == "["
        case ":":
            return _PROGRAM.search(line[max(0, at - 61) : at]) is not None
        case "[":
            return (
                after == "!"
                or re.match(r"[ xX]\](?:[ \t]|$)", line[at + 1 : at + 4]) is not None
                or (at < LONGEST_BOX and box_at(line) != "")
            )
        case _:
            # The end of a link definition, which reading view hides. Its label begins this line or
            # an earlier one.
            return (
                after == ":" and ("[" not in line[:at] or _LABELLED.match(line) is not None)
            ) or _TO_PROGRAM.match(line, at + 1) is not None


def _marks(line: str, *, escape: bool) -> str:
    """Escape, or unescape, the marks of a line outside code spans.

    n backslashes before a mark that means something, or n > 0 before any mark, become 2n + 1. An
    odd number makes the mark plain text, and n can be recovered from it.
    """
    out: list[str] = []
    at = 0
    unpaired: set[int] = set()  # lengths of backtick runs without a partner later on this line
    while found := _MARK.search(line, at):
        place, mark = found.start(), found[0]
        before = line[at:place]
        slashes = len(before) - len(before.rstrip("\\"))
        out.append(before[: len(before) - slashes])
        if mark == "`" and not slashes:
            run = RUN.match(line, place)
            assert run
            acts = ACTS.match(line, run.end()) is not None
            end = -1 if acts or len(run[0]) in unpaired else span_end(line, run.end(), len(run[0]))
            if end >= 0:
                out.append(line[place:end])
            else:
                out.append("\\`" * len(run[0]) if escape else run[0])
                if not acts:
                    unpaired.add(len(run[0]))
            at = max(run.end(), end)
            continue
        if escape:
            odd = slashes or _means_something(line, place)
            out.append("\\" * (2 * slashes + 1 if odd else 0) + mark)
        else:
            out.append("\\" * (slashes // 2 if slashes % 2 else slashes) + mark)
        at = place + 1
    return "".join([*out, line[at:]])


def _start(line: str, *, escape: bool) -> str:
    for pattern in (*_STARTERS, LABEL):
        if found := pattern.match(line):
            slashes = found["slashes"]
            changed = slashes + "\\" if escape else slashes[1:]
            return line[: found.start("slashes")] + changed + line[found.end("slashes") :]
    return line


def escaped(line: str) -> str:
    """Return a line with a backslash before each character that would make it structure."""
    return _start(_marks(line, escape=True), escape=True)


def unescaped(line: str) -> str:
    """Undo `escaped`."""
    return _marks(_start(line, escape=False), escape=False)


def escaped_text(text: str) -> str:
    """Return text of several lines in which only plain code blocks keep their meaning."""
    lines = text.split("\n")
    out: list[str] = []
    # fences of this character and at least this length have no closing line below
    never: dict[str, int] = {}
    at = 0
    while at < len(lines):
        fence = fence_at(lines[at])
        plain = fence and fence.indent == 0 and fence.info in _PRINTED
        if fence and plain and fence.length < never.get(fence.char, 1 << 30):
            end = next((n for n in range(at + 1, len(lines)) if fence.closes(lines[n])), 0)
            # a plug-in that acts on a span may also act on the code of a block
            if end and not ACTS.match("\n".join(lines[at + 1 : end])):
                out += lines[at : end + 1]
                at = end + 1
                continue
            never[fence.char] = fence.length
        out.append(escaped(lines[at]))
        at += 1
    return "\n".join(out)


def unescaped_text(lines: Iterable[str]) -> str:
    """Undo `escaped_text`. Text in a fence stays as it is."""
    return legible("\n".join(outside_fences(lines, unescaped)))


def _last_word(text: str) -> tuple[str, str]:
    at = max(text.rfind(" "), text.rfind("\t")) + 1
    return text[:at], text[at:]


def escaped_heading(text: str) -> str:
    """Return the text of a heading. Hashes at its end are escaped: they would be closing ones."""
    marked = _marks(text, escape=True)
    head, last = _last_word(f"\\{marked}" if marked.startswith("[]") else marked)
    return f"{head}\\{last}" if re.fullmatch(r"\\*#+", last) else head + last


def unescaped_heading(raw: str) -> str:
    """Undo `escaped_heading`, and drop a closing run of `#`."""
    head, last = _last_word(raw.strip())
    if re.fullmatch(r"\\*#+", last):
        last = last[1:] if last.startswith("\\") else ""
    return _marks((head + last).strip(), escape=False)


# --- outline

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


def fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in RUN.findall(text))])
    return f"{ticks}{language}\n{without_templates(text).rstrip(chr(10))}\n{ticks}"


def escaped_comments(text: str) -> str:
    """Return a person's comments unchanged, except for lines that would begin another section."""
    return "\n".join(outside_fences(text.split("\n"), partial(_section_line, escape=True)))


def unescaped_comments(text: str) -> str:
    """Undo `escaped_comments`."""
    lines = outside_fences(text.split("\n"), partial(_section_line, escape=False))
    return legible("\n".join(lines))


_NEW_SECTION = re.compile(r"( {0,3})(\\*)(?=#{1,2}(?:[ \t]|$))")


def _section_line(line: str, *, escape: bool) -> str:
    found = _NEW_SECTION.match(line)
    if found is None:
        return line
    return found[1] + (found[2] + "\\" if escape else found[2][1:]) + line[found.end() :]
