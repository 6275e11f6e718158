"""Escape text from a model, a person, a server or a file's name in placet's own notes.

Text that the daemon did not write goes through one of these functions before it appears in a plan,
its box, a report or a side note. The result shows what was said, but has no effect. It opens no
comment, heading, callout, link, embed or maths. It hides nothing, and no plugin runs it. A plan's
own text is read again later: each `escaped…` has an `unescaped…` that undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from placet import wording
from placet.note.checkboxes import LONGEST_BOX, box_at
from placet.note.hidden_text import OVERLAY, Unseen, shortened, visible
from placet.note.markdown import ACTS, BULLET, ENTITY, RUN, fence_at, outside_fences, span_end
from placet.note.paths import show

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
    closes: set[int] = set()  # ends of spans that act, whose backticks begin no other span
    while found := _MARK.search(line, at):
        place, mark = found.start(), found[0]
        before = line[at:place]
        slashes = len(before) - len(before.rstrip("\\"))
        out.append(before[: len(before) - slashes])
        if mark == "`" and not slashes:
            run = RUN.match(line, place)
            assert run
            end, length = -1, len(run[0])
            if run.end() not in closes and length not in unpaired:
                end = span_end(line, run.end(), length)
                if end < 0:
                    unpaired.add(length)
                elif ACTS.match(line, run.end()):
                    closes.add(end)
                    end = -1
            if end >= 0:
                out.append(line[place:end])
            else:
                out.append("\\`" * length if escape else run[0])
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
    return _LIST.sub(r"\1\\\2", _meaningless(_without_fields(_plain(one_line(text)))))


def _meaningless(line: str) -> str:
    return _MEANS.sub(r"\\\1", line)


def with_code(text: str) -> str:
    """Return `text` on one line like `literal`, but with its inline code kept as code.

    Code that a plug-in may run (ACTS) becomes plain text instead.
    """
    line = _without_fields(_plain(one_line(text)))
    acts = any(ACTS.match(line, run.end()) for run in RUN.finditer(line))
    shown = _meaningless(line) if acts else _outside_code(line, _meaningless)
    return _LIST.sub(r"\1\\\2", shown)


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
