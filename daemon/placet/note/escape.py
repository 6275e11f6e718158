"""Escape foreign text in the daemon's own notes: from a model, a person, a server, a file's name.

Text that the daemon did not write goes through one of these functions before it appears in a plan's
callout, a report or a side note. The result shows what was said, but has no effect. It opens no
comment, heading, callout, link, embed or maths. It hides nothing, and no plugin runs it. (A plan's
own text must be readable again later, so `plan_text` escapes that.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from placet.note.hidden_text import OVERLAY, Unseen, shortened, visible
from placet.note.markdown import ACTS, RUN, outside_fences, span_end
from placet.note.outline import BULLET, clean, escaped, escaped_text, one_line
from placet.note.paths import show

# Characters of one code span. A longer text is cut, and its length is given. A glob may have 1,024.
MAX_CODE = 1_200

_MEANS = re.compile(
    r"([\\`*~<>\[\]|$&%#^]|(?<!\w)_|_(?!\w)|:(?=//)|^[-+=](?=[-+=\s]|$)|(?<=^\d)[.)]|(?<=^\d\d)[.)])"
)
_LIST = re.compile(r"^(\d{3,9})([.)])")
_FIELD = re.compile(r"\\?[\[(]|\\.|[\])\n]|:(?=:)")
_BLANKS = re.compile(r"[^\S\n]{9,}")
_NOT_IN_LINKS = re.compile(r"[#^|\[\]\\`%<>$&=:/]|[^\S ]")


def code(text: str) -> str:
    """Return `text` as inline code on one line, with everything in it visible.

    Code that a plug-in may run (ACTS) becomes plain text instead.
    """
    shown = bounded(text)
    return f"“{literal(shown)}”" if ACTS.match(shown) else code_span(shown)


def codes(texts: Sequence[str]) -> str:
    """Return several texts as inline code, or "nothing" without any."""
    return ", ".join(code(text) for text in texts) or "nothing"


def cell(text: str) -> str:
    """Return `text` as inline code for a table, where a bar would begin another column."""
    return re.sub(r"\\?\|", r"\\|", code(text))


def literal(text: str) -> str:
    """Return `text` on one line, with a backslash before each character with a special meaning."""
    return _LIST.sub(r"\1\\\2", _MEANS.sub(r"\\\1", _without_fields(_plain(one_line(text)))))


def paragraphs(text: str) -> str:
    """Return a text of several lines in which only lists and paragraphs have a meaning."""
    out: list[str] = []
    for line in clean(text).split("\n"):
        bullet = BULLET.match(line)
        shown = f"{bullet[0]}{literal(line[bullet.end() :])}" if bullet else literal(line)
        if shown.strip() or (out and out[-1]):
            out.append(shown.rstrip())
    return "\n".join(out)


def document(text: str) -> str:
    """Return an agent's text of several lines for the reader of a report.

    Headings (two levels lower), lists, tables, emphasis and plain code blocks are rendered. HTML,
    links, embeds and queries become text.
    """
    lines = escaped_text("\n".join(map(_plain, clean(text).split("\n")))).split("\n")
    return "\n".join(outside_fences(lines, _read_only))


def _read_only(line: str) -> str:
    found = _HEADING.match(line)
    lower = f"{'#' * min(6, len(found[1]) + 2)} {found[2]}" if found else line
    return _outside_code(lower, _harmless)


# A heading as `escaped_text` writes it.
_HEADING = re.compile(r"\\(#{1,6})[ \t]+(\S.*)")


def sentence(text: str) -> str:
    """Return one of placet's sentences on one line. Text that it quotes has no effect.

    It may have inline code and bold words.
    """
    line = one_line(text)
    if "|" in line and _COLUMNS.fullmatch(line):
        return literal(line)
    return _outside_code(escaped(_plain(line)), _harmless)


# In a list, `- |` below a line is the second line of a table, whose other columns are hidden.
_COLUMNS = re.compile(r"[ |:-]*")


def link(name: str) -> str:
    """Return a wikilink to the note `name`, or inline code if Obsidian could not follow it."""
    return (
        code(show(name))
        if not name or _NOT_IN_LINKS.search(name) or _plain(name) != name
        else f"[[{name}]]"
    )


def code_span(text: str) -> str:
    """Return one line of `text` as inline code, whatever backticks it holds."""
    runs = {len(run) for run in RUN.findall(text)}
    ticks = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _plain(text: str) -> str:
    """Return `text` with invisible and overlaid characters written out as codes."""
    return OVERLAY.sub(
        lambda found: "".join(f"\\u{{{ord(char):04X}}}" for char in found[0]),
        visible(text).replace("\ufeff", "\\u{FEFF}"),
    )


def bounded(text: str) -> str:
    """Return `text` on one line of at most MAX_CODE characters, with everything visible."""
    text = " ".join(clean(text).split("\n"))
    shown = _BLANKS.sub(lambda found: f" …{len(found[0])} blanks… ", _plain(text))
    return shown if len(shown) <= MAX_CODE else f"{shown[:MAX_CODE]}… ({len(text):,} characters)"


def _harmless(text: str) -> str:
    """Disable links, addresses and fields in escaped text without code."""
    return re.sub(
        r"(?<=\])(?=[(\[])|(?<!\\):(?=//)", lambda found: "\\" + found[0], _without_fields(text)
    )


def _without_fields(text: str) -> str:
    """Put a space between the colons of `[key:: value]`, which plug-ins read as a field."""
    is_open = False

    def apart(found: re.Match[str]) -> str:
        nonlocal is_open
        if found[0] == ":":
            return ": " if is_open else ":"
        if found[0][-1] in "[(":
            is_open = True
        elif found[0][0] != "\\":
            is_open = False
        return found[0]

    return _FIELD.sub(apart, text)


def _outside_code(line: str, change: Callable[[str], str]) -> str:
    out: list[str] = []
    at = 0
    for run in RUN.finditer(line):
        if run.start() < at or line[run.start() - 1 : run.start()] == "\\":
            continue
        end = span_end(line, run.end(), len(run[0]))
        if end >= 0:
            out += [change(line[at : run.start()]), line[run.start() : end]]
            at = end
    return "".join([*out, change(line[at:])])


# Maximum number of findings in the callout. With more, a person distrusts the note anyway.
_LISTED = 50


def warning_callout(found: Sequence[Unseen]) -> str:
    """Return an Obsidian callout for the box above the text, without a final newline.

    It lists `found`, and is empty if nothing was found.
    """
    if not found:
        return ""
    out = ["> [!warning] This note has text that reading view does not show"]
    for unseen in found[:_LISTED]:
        where = f"line {unseen.line} below this box"
        out.append(f"> - {where}, {unseen.kind}: {code(shortened(unseen.shown, 400))}")
    if len(found) > _LISTED:
        out.append(f"> - and {len(found) - _LISTED} more")
    return "\n".join(out)
