"""Find text that reading view does not show: hidden characters, comments, HTML, look-alikes.

A reviewer approves what they see, but an agent reads every byte. This module lists the difference.
It prefers to report too much: a false alarm costs a line in a callout. Ordinary writing raises no
alarm: emoji sequences, right-to-left text, the marks of the three sub-national flags. The same
holds for joiners inside words of the scripts that use them.

Character classes follow Unicode (DerivedCoreProperties `Default_Ignorable_Code_Point`, general
categories of the running Python). Markdown is read as in CommonMark 0.31 (escapes, code spans,
fences, HTML), with `%%` as in Obsidian.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from placet.note.markdown import ACTS, BREAK, ENTITY, Reading, lines_of, read_markdown
from placet.wording import at_most, one_line


class UnseenKind(StrEnum):
    """The kind of a finding. The value is the text for people."""

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
    QUERY = "code that a plug-in may act on"
    PROGRAM = "a link that opens a program, not a page"
    EMPTY = "empty paragraphs that push text out of view"
    OVERLAY = "marks drawn over other characters"
    CELL = "table cell that is not shown, as its table has fewer columns"


_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\u2060\ufeff\u180e")

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_IMPLICIT_MARKS = frozenset("\u061c\u200e\u200f")

_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800")

_IGNORED = frozenset("\u034f\u17b4\u17b5\u2065") | {chr(c) for c in range(0xFFF0, 0xFFF9)}

# Visible format characters (Cf): signs around or before digits.
_DRAWN = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)

# Scripts whose spelling needs ZWJ and ZWNJ, by the first word of their characters' Unicode names.
_JOINING = frozenset({
    "ARABIC", "SYRIAC", "MONGOLIAN", "NKO", "MANDAIC", "ADLAM", "THAANA", "HANIFI", "DEVANAGARI",
    "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM",
    "SINHALA", "KHMER", "MYANMAR", "TIBETAN", "BALINESE", "JAVANESE",
})  # fmt: skip

# Scripts written without spaces, where ZWSP marks a possible line break.
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
    """Return the class of an invisible character, None for a visible one or an ordinary space."""
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
    """Return the first word of the character's name (`CYRILLIC`, `ARABIC`), or ""."""
    return unicodedata.name(char, "").split(" ")[0] if char else ""


def _pictographic(char: str) -> bool:
    return bool(char) and (
        0x1F000 <= ord(char) <= 0x1FAFF
        or char in "\u203c\u2049\u2139\u3030"
        or unicodedata.category(char) in ("So", "Sm")
    )


def _ordinary(text: str, at: int, kind: UnseenKind) -> bool:
    """Return whether ordinary writing needs the invisible character at `at` in its place."""
    match kind:
        case UnseenKind.ZERO_WIDTH:
            return _ordinary_zero_width(text, at)
        case UnseenKind.VARIATION:
            return _ordinary_variation(text, at)
        case UnseenKind.TAG:
            flag = text.rfind("\U0001f3f4", max(0, at - _FLAG_LENGTH + 1), at)
            return flag >= 0 and text[flag : flag + _FLAG_LENGTH] in _FLAGS
        case UnseenKind.BIDI if text[at] in _IMPLICIT_MARKS:
            # A single mark near right-to-left letters steers punctuation; runs of marks carry data.
            near = (c for c in text[max(0, at - 8) : at + 9] if c not in _IMPLICIT_MARKS)
            alone = not _concealed(text[at - 1 : at]) and not _concealed(text[at + 1 : at + 2])
            return alone and any(unicodedata.bidirectional(c) in ("R", "AL") for c in near)
    return False


def _ordinary_zero_width(text: str, at: int) -> bool:
    char, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if char == "\ufeff" or not before:
        return char == "\ufeff" and at == 0
    if char == "\u200b":
        return _script(before) in _UNSPACED and _script(after) in _UNSPACED
    if char not in "\u200c\u200d":
        return False
    if _script(before) in _JOINING and not _concealed(before) and not _concealed(after):
        # Between letters, or after a virama (combining class 9), which may end a word.
        return _script(after) in _JOINING or unicodedata.combining(before) == 9
    base = at - 1
    while base > 0 and text[base] in _EMOJI_PARTS and at - base < 4:
        base -= 1
    return char == "\u200d" and _pictographic(text[base]) and _pictographic(after)


def _ordinary_variation(text: str, at: int) -> bool:
    char, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if not before or _concealed(before):
        return False
    if char in "\ufe0e\ufe0f":
        keycap = before in "0123456789#*" and after == "\u20e3"
        return keycap or _pictographic(before) or before in _EMOJI_PARTS
    if ord(char) >= 0xE0100:
        return _script(before) == "CJK"
    return _script(before) in _VARIED or unicodedata.category(before) == "Sm"


def hidden_characters(text: str) -> Iterator[tuple[int, UnseenKind]]:
    """Yield index and class of each invisible character without an ordinary reason."""
    for found in _CANDIDATE.finditer(text):
        at = found.start()
        kind = _kind_of(text[at])
        if kind and not _ordinary(text, at, kind):
            yield at, kind


def visible(text: str) -> str:
    r"""Return `text` with every invisible character written out as `\u{200B}`."""
    parts: list[str] = []
    done = 0
    for at, _ in hidden_characters(text):
        parts += [text[done:at], f"\\u{{{ord(text[at]):04X}}}"]
        done = at + 1
    return "".join([*parts, text[done:]])


def drawn(text: str) -> str:
    """Return `text` without invisible characters."""
    hidden = {at for at, _ in hidden_characters(text)}
    return "".join(char for at, char in enumerate(text) if at not in hidden)


def shortened(text: str, limit: int = 160) -> str:
    """Return `text` on one line of at most `limit` characters, with everything visible."""
    line = one_line(visible(text[: limit * 4]))
    return at_most(line if len(text) <= limit * 4 else line + "…", limit)


OVERLAY = re.compile(
    "[\u0334-\u0338\u0488\u0489\u1abe\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2\u20e4-\u20eb]|"
    "[\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]{4,}"
)

# Letters of other scripts that common fonts draw like a Latin one. From Unicode's confusables.txt,
# only the lower- and upper-case letters that matter for paths.
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

LIKE_SEPARATORS = {
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
    """Return a sentence about what makes `path` look like another path, or None.

    Checks for words that mix alphabets, and words of another alphabet made only of letters that
    look Latin. Also for compatibility forms of ASCII (full-width, mathematical), look-alike
    separators, spaces that are not U+0020, and hidden characters.
    """
    if path.isascii() and not any(True for _ in hidden_characters(path)):
        return None
    exact = "".join(c if " " <= c <= "~" else f"\\u{{{ord(c):04X}}}" for c in path)
    if any(True for _ in hidden_characters(path)):
        return f"has characters that are not shown: {exact}"
    foreign: set[str] = set()
    native: set[str] = set()  # alphabets with a letter in the path that does not look Latin
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
        if char in LIKE_SEPARATORS:
            return f"has a character that looks like {LIKE_SEPARATORS[char]}: {exact}"
        if unicodedata.category(char) == "Zs" and char != " ":
            return f"has a space that is not the usual one: {exact}"
        compatible = unicodedata.normalize("NFKC", char)
        if not char.isascii() and compatible.isascii():
            return f"has a character that looks like {compatible}: {exact}"
    return None


@dataclass(frozen=True, slots=True)
class Unseen:
    """One finding. `line` counts from 1.

    `shown` is one line of visible text that describes it.
    """

    line: int
    kind: UnseenKind
    shown: str


# --- characters


def _decoded(run: str, kind: UnseenKind) -> str:
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
    """Yield one finding for all hidden characters of one class on one line."""
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


def _comments(lines: Sequence[str], reading: Reading) -> Iterator[Unseen]:
    for first, _, _, content in reading.comments:
        yield Unseen(first, UnseenKind.COMMENT, shortened(content) or "an empty comment")
    # Some renderers treat `%%` in fenced code as a comment too. Report it only if it clearly is
    # one: a pair on a line, or two lines of nothing else. (`# %%`, which starts a cell of a
    # notebook script, is neither.)
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
# A link to a program, even if placet escaped it: its author wanted people to click it. In prose an
# escaped character is two NULs.
_PROGRAM = re.compile(
    r"(?:\]|\0\0)\(\s{0,99}<?(?!https?:)(?P<target>[a-z][a-z0-9+.-]{0,30}(?::|\0\0)[^\s)>]{1,400})"
    r"|<(?!https?:)(?P<address>[a-z][a-z0-9+.-]{1,30}:[^\s<>]{1,400})>",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?<!\[)\[(?![!\[]|[ xX]\][^(])")  # not a callout, wikilink or box
_USER = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/?#<>()\[\]]{0,400}@[^\s<>()\[\]]{0,200}", re.IGNORECASE
)
_WEB = re.compile(r"\bhttps?://[^\s<>]{1,400}", re.IGNORECASE)
_MATHS = re.compile(
    r"\$\$[^$]{0,4000}\$\$|\$(?=[^\s$])(?:[^$\n]|\n(?!\s*\n)){0,2000}?(?<=[^\s$])\$(?![0-9])"
)
_FIELD = re.compile(r"[\[(][^\[\]()\n:]{1,80}::[^\n]{0,200}")
_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s/]+|\b[a-z0-9.-]+\.(?:com|org|net|io|dev|gov|edu|co|ai|app)\b",
    re.IGNORECASE,
)
_DEFINITION = re.compile(r"^[\s>]*\[([^\[\]]+)\]:(.*)$")
_FOOTNOTE = re.compile(r"\[(\^[^\[\]]+)\]")
# Forty blanks in a row are wider than a phone's screen (about 38 columns of code at the usual
# size).
_PUSHED = re.compile(r"\s{40,}")
# Nobody scrolls to the end of a longer line of code.
_LONG_LINE = 1_000


def _tag(found: re.Match[str]) -> Iterator[str]:
    if found[2].lower() not in _PLAIN_TAGS or found[3].strip(" \t\n/"):
        yield shortened(found[0])


def _host(address: str) -> str:
    """Return the host of an address, without `www.`; "" for a relative or malformed one."""
    try:
        return (urlsplit(address).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def _link(found: re.Match[str]) -> Iterator[str]:
    label, target = found[1][:200].strip(), found[2]
    is_image = found.start() > 0 and found.string[found.start() - 1] == "!"
    says = _ADDRESS.search(label)
    claimed = _host(says[0] if "://" in says[0] else f"https://{says[0]}") if says else ""
    if (not label and not is_image) or (claimed and _host(target) not in ("", claimed)):
        yield f"“{shortened(label)}” goes to {shortened(target)}"
    if found[3]:
        yield f"“{shortened(label)}” says where only the mouse shows it: {shortened(found[3])}"


def _web(found: re.Match[str]) -> Iterator[str]:
    if not LIKE_SEPARATORS.keys().isdisjoint(found[0]):
        yield f"{shortened(found[0])} has look-alike separators"


def _user(found: re.Match[str]) -> Iterator[str]:
    yield f"{shortened(found[0])} goes to {shortened(found[0].rpartition('@')[2])}"


def _whole(found: re.Match[str]) -> Iterator[str]:
    yield shortened(found[0])


# Constructs in prose that reading view shows differently from their source.
_IN_PROSE = (
    (UnseenKind.HTML, _TAG, _tag),
    (UnseenKind.LINK, _LINK, _link),
    (UnseenKind.LINK, _WEB, _web),
    (UnseenKind.LINK, _USER, _user),
    (UnseenKind.MATHS, _MATHS, _whole),
    (UnseenKind.ENTITY, ENTITY, _whole),
    (UnseenKind.FIELD, _FIELD, _whole),
    (UnseenKind.OVERLAY, OVERLAY, _whole),
)


def _in_prose(prose: str) -> Iterator[Unseen]:
    starts = [0, *(i + 1 for i, c in enumerate(prose) if c == "\n")]
    for kind, pattern, shown in _IN_PROSE:
        for found in pattern.finditer(prose):
            for text in shown(found):
                yield Unseen(bisect_right(starts, found.start()), kind, text)


# Empty lines in a row: half of a phone's screen, more than people leave between paragraphs.
_FLOOD = 12
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
    """Yield table cells beyond the columns of the table's second line, which are hidden."""
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
            # of two adjacent tables, the narrower one
            columns = min(columns or above, above)
        above = len(cells)


def _queries(reading: Reading) -> Iterator[Unseen]:
    """Yield the code spans that a plug-in may act on."""
    for number, inside in reading.spans:
        if ACTS.match(inside):
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


def _programs(lines: Sequence[str], prose: Sequence[str]) -> Iterator[Unseen]:
    """Yield the links that open a program instead of a page or a note."""
    for number, line in enumerate(prose, 1):
        label = _LABEL.search(line)
        for found in _PROGRAM.finditer(line):
            bracket = lines[number - 1].rfind("]", 0, found.end()) in range(*found.span())
            if found["address"] or (bracket and label and label.start() < found.start()):
                shown = found["address"] or found["target"].replace("\0\0", ":", 1)
                yield Unseen(number, UnseenKind.PROGRAM, shortened(shown.replace("\0", "")))


# --- look-alike letters


_QUOTED = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'")


def _lookalikes(lines: Sequence[str], code: dict[int, str]) -> Iterator[Unseen]:
    """Yield the quoted texts in `toml` blocks (scope, literal actions) that look like others."""
    for number, language in code.items():
        line = lines[number - 1]
        if language == "toml" and not line.isascii():
            for found in _QUOTED.finditer(line):
                text = found[1] or found[2] or ""
                if not any(True for _ in hidden_characters(text)) and (why := homoglyphs(text)):
                    yield Unseen(number, UnseenKind.LOOKALIKE, shortened(f"“{text}” {why}"))


# --- the whole


def find_unseen(text: str) -> tuple[Unseen, ...]:
    """Return everything in `text` that reading view does not show, in the order of its lines."""
    lines = lines_of(text)
    starts = [0, *(found.end() for found in BREAK.finditer(text))]
    reading = read_markdown(lines)
    found = [
        *_characters(text, starts),
        *_comments(lines, reading),
        *_in_prose("\n".join(reading.prose)),
        *_queries(reading),
        *_programs(lines, reading.prose),
        *_definitions(reading.prose),
        *_far(lines, reading.code),
        *_floods(lines, reading.code),
        *_left_out(lines, reading.code),
        *_lookalikes(lines, reading.code),
    ]
    return tuple(sorted(found, key=lambda unseen: unseen.line))
