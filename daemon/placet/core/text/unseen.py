"""What a note holds and reading view does not show: hidden characters, comments, hiding HTML, look-alikes.

A reviewer approves what they see; an agent reads every byte. This module lists the difference. It errs
towards reporting: a false alarm costs a line in a callout. What ordinary writing needs is no alarm: emoji
sequences, joiners inside words of the scripts that use them, right-to-left text, the marks of the three
sub-national flags.

Character classes follow Unicode (DerivedCoreProperties `Default_Ignorable_Code_Point`, general categories of
the running Python). Markdown is read as CommonMark 0.31 does (escapes, code spans, fences, HTML), with `%%`
as in Obsidian.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit


class UnseenKind(StrEnum):
    """What sort of unseen thing it is; the value is how a person is told."""

    ZERO_WIDTH = "zero-width character"
    BIDI = "character that changes the direction of text"
    TAG = "tag characters"
    VARIATION = "variation selectors"
    INVISIBLE = "invisible character"
    BLANK = "blank character that is not a space"
    PRIVATE = "private-use character"
    CONTROL = "control character"
    COMMENT = "comment"
    HTML = "HTML that can hide text"
    LINK = "link that shows another address"
    DEFINITION = "link definition"
    FAR_RIGHT = "text pushed out of view"
    LOOKALIKE = "look-alike letters"
    MATHS = "maths, which can draw over text or draw nothing"
    ENTITY = "character written as a code"
    FIELD = "Dataview field, whose name is not shown"
    QUERY = "inline query, which a plugin runs or shows the answer of"
    EMPTY = "empty paragraphs that push text out of view"
    OVERLAY = "marks drawn over other characters"
    CELL = "table cell that is not shown, as its table has fewer columns"


@dataclass(frozen=True, slots=True)
class Unseen:
    """One finding: `line` counts from 1.

    `shown` is one line of visible text that says what is there.
    """

    line: int
    kind: UnseenKind
    shown: str


@dataclass(frozen=True, slots=True)
class Fence:
    """An opening code fence: its character, how many, the info string, and how far it is indented."""

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
        """Tell whether `line` ends this fence."""
        found = _FENCE.match(line)
        if not found or found[3].strip():
            return False
        return found[2][0] == self.char and len(found[2]) >= self.length


QUERY = re.compile(r"[\s\ufeff\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f]*\$?=")
"""What Dataview runs where a code span begins like this: it trims first, and what it trims is more than what markdown does."""
_BREAK = re.compile(r"\r\n|\n|\r")
_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$", re.DOTALL)


def lines_of(text: str) -> list[str]:
    """Split at the line endings of markdown (LF, CRLF, CR) and at nothing else."""
    return _BREAK.split(text)


def fence_at(line: str) -> Fence | None:
    """Return the fence that `line` opens, if any (CommonMark 4.5: at most three spaces before it)."""
    found = _FENCE.match(line)
    if not found or (found[2][0] == "`" and "`" in found[3]):
        return None
    return Fence(found[2][0], len(found[2]), found[3].strip(), len(found[1]))


# --- characters
# ------------------------------------------------------------------------------------------

_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\u2060\ufeff\u180e")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_IMPLICIT_MARKS = frozenset("\u061c\u200e\u200f")
_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_IGNORED = frozenset("\u034f\u17b4\u17b5\u2065") | {chr(c) for c in range(0xFFF0, 0xFFF9)}
# Format characters (Cf) that are drawn: signs that stand around or before digits.
_DRAWN = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
# Scripts whose spelling needs ZWJ and ZWNJ, by the first word of the characters' Unicode names.
_JOINING = frozenset({
    "ARABIC", "SYRIAC", "MONGOLIAN", "NKO", "MANDAIC", "ADLAM", "THAANA", "HANIFI", "DEVANAGARI",
    "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM",
    "SINHALA", "KHMER", "MYANMAR", "TIBETAN", "BALINESE", "JAVANESE",
})  # fmt: skip
# Scripts written without spaces, where ZWSP marks a place to break the line.
_UNSPACED = frozenset({"THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"})
# Scripts with standardised variants.
_VARIED = frozenset({"CJK", "MYANMAR", "PHAGS-PA", "MANICHAEAN", "MONGOLIAN"})
_FLAGS = frozenset(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in name) + "\U000e007f"
    for name in ("gbeng", "gbsct", "gbwls")
)
_FLAG_LENGTH = 7
_CANDIDATE = re.compile(r"[^\t\n\r -~]")
_EMOJI_PARTS = frozenset("\ufe0f") | {chr(c) for c in range(0x1F3FB, 0x1F400)}


def _kind_of(char: str) -> UnseenKind | None:
    """Return the class of an invisible character, None for one that is drawn or is an ordinary space."""
    code = ord(char)
    if (
        0xFE00 <= code <= 0xFE0F
        or 0xE0100 <= code <= 0xE01EF
        or code in (0x180B, 0x180C, 0x180D, 0x180F)
    ):
        return UnseenKind.VARIATION
    if 0xE0000 <= code <= 0xE007F:
        return UnseenKind.TAG
    if char in _BIDI:
        return UnseenKind.BIDI
    if char in _ZERO_WIDTH:
        return UnseenKind.ZERO_WIDTH
    if char in _BLANKS:
        return UnseenKind.BLANK
    if char in _IGNORED or 0xE0080 <= code <= 0xE0FFF:
        return UnseenKind.INVISIBLE
    match unicodedata.category(char):
        case "Cf":
            return None if char in _DRAWN else UnseenKind.INVISIBLE
        case "Co":
            return UnseenKind.PRIVATE
        case "Cc" | "Zl" | "Zp" | "Cs":
            return UnseenKind.CONTROL
        case _:
            return None


def _concealed(char: str) -> bool:
    return bool(char) and _kind_of(char) is not None


def _script(char: str) -> str:
    """Return the first word of the character's name (`CYRILLIC`, `ARABIC`, `CJK`), or an empty text."""
    return unicodedata.name(char, "").split(" ")[0] if char else ""


def _pictographic(char: str) -> bool:
    return bool(char) and (
        0x1F000 <= ord(char) <= 0x1FAFF
        or char in "\u203c\u2049\u2139\u3030"
        or unicodedata.category(char) in ("So", "Sm")
    )


def _ordinary(text: str, at: int, kind: UnseenKind) -> bool:
    """Tell whether the invisible character at `at` is one that ordinary writing needs just there."""
    char = text[at]
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    match kind:
        case UnseenKind.ZERO_WIDTH if char == "\ufeff":
            return at == 0
        case UnseenKind.ZERO_WIDTH if not before:
            return False
        case UnseenKind.ZERO_WIDTH if char == "\u200b":
            return _script(before) in _UNSPACED and _script(after) in _UNSPACED
        case UnseenKind.ZERO_WIDTH if char in "\u200c\u200d":
            if _script(before) in _JOINING and not _concealed(before) and not _concealed(after):
                # Between letters; or after a virama (combining class 9), where it may end a word.
                return _script(after) in _JOINING or unicodedata.combining(before) == 9
            base = at - 1
            while base > 0 and text[base] in _EMOJI_PARTS and at - base < 4:
                base -= 1
            return char == "\u200d" and _pictographic(text[base]) and _pictographic(after)
        case UnseenKind.VARIATION if not before or _concealed(before):
            return False
        case UnseenKind.VARIATION if char in "\ufe0e\ufe0f":
            keycap = before in "0123456789#*" and after == "\u20e3"
            return keycap or _pictographic(before) or before in _EMOJI_PARTS
        case UnseenKind.VARIATION if ord(char) >= 0xE0100:
            return _script(before) == "CJK"
        case UnseenKind.VARIATION:
            return _script(before) in _VARIED or unicodedata.category(before) == "Sm"
        case UnseenKind.TAG:
            flag = text.rfind("\U0001f3f4", max(0, at - _FLAG_LENGTH + 1), at)
            return flag >= 0 and text[flag : flag + _FLAG_LENGTH] in _FLAGS
        case UnseenKind.BIDI if char in _IMPLICIT_MARKS:
            # A single mark beside or near right-to-left letters steers punctuation; runs of marks
            # carry data.
            near = text[max(0, at - 8) : at + 9]
            return (
                not _concealed(before)
                and not _concealed(after)
                and any(
                    unicodedata.bidirectional(c) in ("R", "AL")
                    for c in near
                    if c not in _IMPLICIT_MARKS
                )
            )
        case _:
            return False


def hidden_characters(text: str) -> Iterator[tuple[int, UnseenKind]]:
    """Yield the place and class of each character that is not drawn and has no ordinary reason to be."""
    for found in _CANDIDATE.finditer(text):
        at = found.start()
        kind = _kind_of(text[at])
        if kind and not _ordinary(text, at, kind):
            yield at, kind


def visible(text: str) -> str:
    r"""Return `text` with every character that would not be seen written out as `\u{200B}`."""
    parts: list[str] = []
    done = 0
    for at, _ in hidden_characters(text):
        parts += [text[done:at], f"\\u{{{ord(text[at]):04X}}}"]
        done = at + 1
    return "".join([*parts, text[done:]])


def shortened(text: str, limit: int = 160) -> str:
    """Return `text` on one line of at most `limit` characters, everything in it visible."""
    line = " ".join(visible(text[: limit * 4]).split())
    return line if len(line) <= limit and len(text) <= limit * 4 else line[: limit - 1] + "…"


def _decoded(run: str, kind: UnseenKind) -> str:
    """Return what a run of tag characters or variation selectors spells: they can carry any text."""
    if kind is UnseenKind.TAG:
        spelt = "".join(chr(ord(c) - 0xE0000) for c in run)
    elif kind is UnseenKind.VARIATION and len(run) > 1:
        values = [ord(c) - 0xFE00 if ord(c) < 0x10000 else ord(c) - 0xE0100 + 16 for c in run]
        spelt = bytes(v for v in values if 0 <= v < 256).decode("utf-8", "replace")
    else:
        return ""
    spelt = "".join(c for c in spelt if c.isprintable()).strip()
    return f", which spell “{shortened(spelt)}”" if spelt else ""


def _characters(text: str, starts: Sequence[int]) -> Iterator[Unseen]:
    """Yield one finding for all hidden characters of one class on one line, with the place of the first."""
    places: dict[tuple[int, UnseenKind], list[int]] = {}
    for at, kind in hidden_characters(text):
        places.setdefault((bisect_right(starts, at), kind), []).append(at)
    for (line, kind), found in places.items():
        run = "".join(text[at] for at in found)
        first = max(starts[line - 1], found[0] - 12)
        last = min(starts[line] if line < len(starts) else len(text), found[0] + 24)
        names = [f"U+{ord(c):04X} {unicodedata.name(c, '')}".strip() for c in dict.fromkeys(run)]
        listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        count = f", {len(run)} times" if len(run) > 1 else ""
        shown = f"{listed}{count}{_decoded(run, kind)}, in “{shortened(text[first:last])}”"
        yield Unseen(line, kind, shown)


# --- markdown
# --------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\\[!-/:-@\[-`{-~]|`+|<!--|<[!?]|%%")
_CLOSER = {"<!--": "-->", "%%": "%%"}


@dataclass(slots=True)
class _Reading:
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
    """Return the line without its first `depth` quotation marks, or as many as it has, and how many those were."""
    at = found = 0
    while found < depth and (mark := _QUOTE.match(line, at)):
        at, found = mark.end(), found + 1
    return line[at:], found


def _read(lines: Sequence[str]) -> _Reading:
    """Walk the lines once, as a machine with three states: prose, in a fence, in a comment."""
    reading = _Reading()
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
    for first, column, last, _ in _read(lines_of(text)).comments:
        hidden.update(range(first if column == 0 else first + 1, last + 1))
    return frozenset(hidden)


def _comments(lines: Sequence[str], reading: _Reading) -> Iterator[Unseen]:
    for first, _, _, content in reading.comments:
        yield Unseen(first, UnseenKind.COMMENT, shortened(content) or "an empty comment")
    # Some renderers take `%%` for a comment in fenced code too. Said where it is plainly one: a
    # pair on a line, or two lines of nothing else. (`# %%`, which starts a cell of a notebook
    # script, is neither.)
    opened = 0
    for number in reading.code:
        line = lines[number - 1]
        for found in re.finditer(r"%%([^%]+)%%", line):
            yield Unseen(number, UnseenKind.COMMENT, shortened(found[1]))
        if line.strip() == "%%":
            if opened:
                content = "\n".join(lines[opened : number - 1])
                yield Unseen(opened, UnseenKind.COMMENT, shortened(content) or "an empty comment")
            opened = 0 if opened else number


_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)((?:[\s/][^<>]*)?)>")
_PLAIN_TAGS = frozenset({
    "a", "b", "br", "blockquote", "code", "dd", "del", "div", "dl", "dt", "em", "h1", "h2", "h3",
    "h4", "h5", "h6", "hr", "i", "ins", "kbd", "li", "mark", "ol", "p", "pre", "s", "samp",
    "small", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u",
    "ul", "var",
})  # fmt: skip
_LINK = re.compile(r"\[([^\[\]]*)\]\(<?([^()<>\s]*)>?(\s+[\"'(][^)]{0,500}?[\"')]\s*\))?")
_USER = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/?#<>()\[\]]{0,400}@[^\s<>()\[\]]{0,200}", re.IGNORECASE
)
_WEB = re.compile(r"\bhttps?://[^\s<>]{1,400}", re.IGNORECASE)
_MATHS = re.compile(
    r"\$\$[^$]{0,4000}\$\$|\$(?=[^\s$])(?:[^$\n]|\n(?!\s*\n)){0,2000}?(?<=[^\s$])\$(?![0-9])"
)
ENTITY = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,40});")
_FIELD = re.compile(r"[\[(][^\[\]()\n:]{1,80}::[^\n]{0,200}")
OVERLAY = re.compile(
    "[\u0334-\u0338\u0488\u0489\u1abe\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2\u20e4-\u20eb]|"
    "[\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]{4,}"
)
_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s/]+|\b[a-z0-9.-]+\.(?:com|org|net|io|dev|gov|edu|co|ai|app)\b",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"^[\s>]*\[([^\[\]]+)\]:(.*)$")
_FOOTNOTE = re.compile(r"\[(\^[^\[\]]+)\]")
_PUSHED = re.compile(r"\s{40,}")
"""Forty blanks in a row are wider than a phone's screen (about 38 columns of code at the usual size)."""
_LONG_LINE = 1_000
"""Columns of a line of code from which nobody scrolls to its end."""


def _tags(prose: str, starts: Sequence[int]) -> Iterator[Unseen]:
    """Yield each raw tag that has attributes (style, hidden, class) or is not plain text formatting."""
    for found in _TAG.finditer(prose):
        if found[2].lower() not in _PLAIN_TAGS or found[3].strip(" \t\n/"):
            yield Unseen(bisect_right(starts, found.start()), UnseenKind.HTML, shortened(found[0]))


def _host(address: str) -> str:
    """Return the host of an address, without `www.`.

    An empty text for a relative or malformed one.
    """
    try:
        return (urlsplit(address).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def _links(prose: str, starts: Sequence[int]) -> Iterator[Unseen]:
    for found in _LINK.finditer(prose):
        label, target = found[1][:200].strip(), found[2]
        image = prose[max(0, found.start() - 1) : found.start()] == "!"
        says = _ADDRESS.search(label)
        claimed = _host(says[0] if "://" in says[0] else f"https://{says[0]}") if says else ""
        if (not label and not image) or (claimed and _host(target) not in ("", claimed)):
            line = bisect_right(starts, found.start())
            yield Unseen(line, UnseenKind.LINK, f"“{shortened(label)}” goes to {shortened(target)}")
        if found[3]:
            line = bisect_right(starts, found.start())
            yield Unseen(
                line,
                UnseenKind.LINK,
                f"“{shortened(label)}” says where only the mouse shows it: {shortened(found[3])}",
            )
    for found in _WEB.finditer(prose):
        if not _LIKE_SEPARATORS.keys().isdisjoint(found[0]):
            yield Unseen(
                bisect_right(starts, found.start()),
                UnseenKind.LINK,
                f"{shortened(found[0])} has look-alike separators",
            )
    for found in _USER.finditer(prose):
        host = shortened(found[0].rpartition("@")[2])
        yield Unseen(
            bisect_right(starts, found.start()),
            UnseenKind.LINK,
            f"{shortened(found[0])} goes to {host}",
        )


def _meanings(prose: str, starts: Sequence[int]) -> Iterator[Unseen]:
    """Yield maths, entities and Dataview's fields: each is shown as something else than what is written."""
    for kind, pattern in (
        (UnseenKind.MATHS, _MATHS),
        (UnseenKind.ENTITY, ENTITY),
        (UnseenKind.FIELD, _FIELD),
        (UnseenKind.OVERLAY, OVERLAY),
    ):
        for found in pattern.finditer(prose):
            yield Unseen(bisect_right(starts, found.start()), kind, shortened(found[0]))


_FLOOD = 12
"""Lines without a character on them, in a row: more than anybody leaves between two paragraphs, half of a phone's screen."""
_NOTHING = re.compile(r"(?:[\s>\\]|&nbsp;|&#160;|&#xa0;|<br ?/?>)*", re.IGNORECASE)


def _floods(lines: Sequence[str], code: Mapping[int, str]) -> Iterator[Unseen]:
    empty = 0
    for number, line in enumerate(lines, 1):
        if len(line) < 400 and (not line or _NOTHING.fullmatch(line)):
            empty += 1
            continue
        if empty >= _FLOOD and number not in code:
            yield Unseen(number, UnseenKind.EMPTY, f"below {empty} empty lines: {shortened(line)}")
        empty = 0


_COLUMNS = re.compile(r":?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*")
_BAR = re.compile(r"(?<!\\)\|")


def _cells(line: str) -> list[str]:
    row = line.lstrip(" \t>").rstrip().removeprefix("|")
    return _BAR.split(row[:-1] if row.endswith("|") and not row.endswith("\\|") else row)


def _left_out(lines: Sequence[str], code: Mapping[int, str]) -> Iterator[Unseen]:
    """Yield what stands in a row of a table beyond the columns that its second line has: it is not shown."""
    columns = above = 0
    for number, line in enumerate(lines, 1):
        if number in code or not line.strip(" \t>"):
            columns = above = 0
            continue
        cells = _cells(line)
        if columns and len(cells) > columns and (more := "|".join(cells[columns:]).strip(" \t|")):
            yield Unseen(number, UnseenKind.CELL, shortened(more))
        if (
            "|" in line
            and len(cells) == above
            and _COLUMNS.fullmatch("|".join(cell.strip() for cell in cells))
        ):
            # of two tables that follow each other, the narrower one
            columns = min(columns or above, above)
        above = len(cells)


def _queries(reading: _Reading) -> Iterator[Unseen]:
    """Yield the code spans that Dataview runs (`$=`) or shows the answer of (`=`)."""
    for number, inside in reading.spans:
        if QUERY.match(inside):
            yield Unseen(number, UnseenKind.QUERY, shortened(inside))


def _definitions(prose: Sequence[str]) -> Iterator[Unseen]:
    named = Counter(label for line in prose for label in _FOOTNOTE.findall(line))
    for number, line in enumerate(prose, 1):
        found = _DEFINITION.match(line)
        if found and not named[found[1]] > 1:
            yield Unseen(number, UnseenKind.DEFINITION, shortened(found[0]))


def _far(lines: Sequence[str], code: dict[int, str]) -> Iterator[Unseen]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip()
        if pushed := _PUSHED.search(text):
            far = shortened(text[pushed.end() :])
            yield Unseen(number, UnseenKind.FAR_RIGHT, f"after {pushed.end()} columns: {far}")
        elif number in code and len(text) > _LONG_LINE:
            end = shortened(text[-60:])
            yield Unseen(
                number, UnseenKind.FAR_RIGHT, f"a line of {len(text)} characters, ending {end}"
            )


# --- look-alike letters
# ----------------------------------------------------------------------------------

# Letters of other scripts that are drawn as a Latin one in common fonts (from Unicode's
# confusables.txt, the lower- and upper-case letters that matter for paths).
_LIKE_LATIN = dict(
    zip(
        "асеорхуіјѕһԁԛԝӏАВЕКМНОРСТХІЈЅУοανρικυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧօոսցհ",
        "aceopxyijshdqwlABEKMHOPCTXIJSYoavpikuxABEZHIKMNOPTYXonugh",
        strict=True,
    )
)
_ALONE = frozenset(
    {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "GEORGIAN", "LISU", "DESERET"}
)
_LIKE_SEPARATORS = {
    "\u2044": "/",
    "\u2215": "/",
    "\u29f8": "/",
    "\u2571": "/",
    "\u2024": ".",
    "\ua4f8": ".",
}
_WORD = re.compile(r"[^\W\d_]+")


def _named(scripts: set[str]) -> str:
    return " and ".join(sorted(script.capitalize() for script in scripts))


def homoglyphs(path: str) -> str | None:
    """Return a sentence about what makes `path` read as another path, or None where nothing does.

    Words that mix alphabets, words of another alphabet made only of letters that look Latin,
    compatibility forms of ASCII (full-width, mathematical), look-alike separators, spaces that are
    not U+0020, hidden characters.
    """
    if path.isascii() and not any(True for _ in hidden_characters(path)):
        return None
    exact = "".join(c if " " <= c <= "~" else f"\\u{{{ord(c):04X}}}" for c in path)
    if any(True for _ in hidden_characters(path)):
        return f"has characters that are not shown: {exact}"
    foreign: set[str] = set()
    native: set[str] = set()  # alphabets of which the path has a letter that does not look Latin
    for word in _WORD.findall(path):
        scripts = {s for c in word if (s := _script(c)) in _ALONE}
        if len(scripts) > 1:
            return f"mixes {_named(scripts)} letters in one word: {exact}"
        alphabet = next(iter(scripts), "LATIN")
        if alphabet != "LATIN":
            (foreign if all(c in _LIKE_LATIN for c in word) else native).add(alphabet)
    if look := foreign - native:
        plain = "".join(_LIKE_LATIN.get(c, c) for c in path)
        return f"has {_named(look)} letters that look like {plain}: {exact}"
    for char in path:
        if char in _LIKE_SEPARATORS:
            return f"has a character that looks like {_LIKE_SEPARATORS[char]}: {exact}"
        if unicodedata.category(char) == "Zs" and char != " ":
            return f"has a space that is not the usual one: {exact}"
        compatible = unicodedata.normalize("NFKC", char)
        if not char.isascii() and compatible.isascii():
            return f"has a character that looks like {compatible}: {exact}"
    return None


_QUOTED = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'")


def _lookalikes(lines: Sequence[str], code: dict[int, str]) -> Iterator[Unseen]:
    """Yield the quoted texts in `toml` blocks (a plan's scope and literal actions) that read as others."""
    for number, language in code.items():
        line = lines[number - 1]
        if language == "toml" and not line.isascii():
            for found in _QUOTED.finditer(line):
                text = found[1] or found[2] or ""
                if not any(True for _ in hidden_characters(text)) and (why := homoglyphs(text)):
                    yield Unseen(number, UnseenKind.LOOKALIKE, shortened(f"“{text}” {why}"))


# --- the whole
# -------------------------------------------------------------------------------------------


def find_unseen(text: str) -> tuple[Unseen, ...]:
    """Return everything in `text` that reading view does not show, in the order of its lines."""
    lines = lines_of(text)
    starts = [0, *(found.end() for found in _BREAK.finditer(text))]
    reading = _read(lines)
    prose = "\n".join(reading.prose)
    prose_starts = [0, *(i + 1 for i, c in enumerate(prose) if c == "\n")]
    found = [
        *_characters(text, starts),
        *_comments(lines, reading),
        *_tags(prose, prose_starts),
        *_links(prose, prose_starts),
        *_meanings(prose, prose_starts),
        *_queries(reading),
        *_definitions(reading.prose),
        *_far(lines, reading.code),
        *_floods(lines, reading.code),
        *_left_out(lines, reading.code),
        *_lookalikes(lines, reading.code),
    ]
    return tuple(sorted(found, key=lambda unseen: unseen.line))
