"""Characters that are not drawn, or look like others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum

from placet.core.wording import at_most, one_line


class UnseenKind(StrEnum):
    """The kind of a finding; the value is the text for people."""

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
    """Return the class of an invisible character, None for a drawn one or an ordinary space."""
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
    """Return the first word of the character's name (`CYRILLIC`, `ARABIC`), or an empty text."""
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
        # Between letters; or after a virama (combining class 9), where it may end a word.
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
    """Yield place and class of each character that is not drawn, without an ordinary reason."""
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


def drawn(text: str) -> str:
    """Return `text` without every character that would not be seen."""
    hidden = {at for at, _ in hidden_characters(text)}
    return "".join(char for at, char in enumerate(text) if at not in hidden)


def shortened(text: str, limit: int = 160) -> str:
    """Return `text` on one line of at most `limit` characters, everything in it visible."""
    line = one_line(visible(text[: limit * 4]))
    return at_most(line if len(text) <= limit * 4 else line + "…", limit)


OVERLAY = re.compile(
    "[\u0334-\u0338\u0488\u0489\u1abe\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2\u20e4-\u20eb]|"
    "[\u0300-\u036f\u0483-\u0487\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]{4,}"
)

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
        if char in LIKE_SEPARATORS:
            return f"has a character that looks like {LIKE_SEPARATORS[char]}: {exact}"
        if unicodedata.category(char) == "Zs" and char != " ":
            return f"has a space that is not the usual one: {exact}"
        compatible = unicodedata.normalize("NFKC", char)
        if not char.isascii() and compatible.isascii():
            return f"has a character that looks like {compatible}: {exact}"
    return None
