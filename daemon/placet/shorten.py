"""Long tool results cut in the middle: the model keeps the beginning and the end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

# Words of a result that the model is given; half from each end.
WORDS_KEPT = 1000

# The same limit for text that has few spaces (one long line of minified code), in characters.
CHARS_KEPT = 60_000

_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PIECE = 64 * 1024
_JOINS = frozenset("\u200d\ufe0e\ufe0f")  # zero-width joiner, variation selectors


@dataclass(frozen=True, slots=True)
class Cut:
    """A text without its middle.

    `words` were left out, from line `first` to line `last` (from 1) of `lines`.
    """

    head: str
    tail: str
    words: int
    first: int
    last: int
    lines: int

    def joined(self, note: str) -> str:
        """Return beginning and end with a note between them."""
        return f"{self.head}\n\n[… {note} …]\n\n{self.tail}"


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends.

    Only a newline ends one, as in `grep` and in every editor's count.
    """
    return list(each_line(text))


def each_line(text: str) -> Iterator[str]:
    """Yield the lines of `lines_of` one by one."""
    start = 0
    # in pieces: two million lines in one go would keep all other threads waiting
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield from _LINE.findall(text, start, end)
        start = end


def cut(text: str, *, words: int = WORDS_KEPT, chars: int = CHARS_KEPT) -> Cut | None:
    """Return a text that is too long without its middle, None for any other text.

    Too long are more than `words` words (2 or more), or more than `chars` characters.

    The first and last halves of the words are kept. Whole characters always: a cut is never inside
    a code point, nor between a letter and its accents.
    """
    opening = (
        [m.end() for m in islice(_WORD.finditer(text), words + 1)]
        if len(text) > chars or len(text) >= 2 * words
        else []
    )
    long = len(opening) > words
    if len(text) <= chars and not long:
        return None
    half = words // 2
    start = opening[half - 1] if long else len(text)
    end = _last_words(text, half) if long else 0
    if not long or start + len(text) - end > chars:
        start = _whole(text, min(start, chars // 2))
        end = _whole(text, max(end, len(text) - chars // 2))
    head, tail = text[:start], text[end:]
    missing = _count_words(text, start, end)
    first = head.count("\n") + (2 if text[start : start + 1] == "\n" else 1)
    last = text.count("\n", 0, end) + (0 if text[end - 1 : end] == "\n" else 1)
    return Cut(
        head,
        tail,
        max(missing, 1),
        first,
        max(first, last),
        text.count("\n") + (not text.endswith("\n")),
    )


def _last_words(text: str, count: int) -> int:
    """Return where the last `count` words of a text begin; it has more."""
    reach = _PIECE
    while True:
        start = max(0, len(text) - reach)
        begins = [m.start() for m in _WORD.finditer(text, start)]
        if len(begins) > count or not start:  # the first may be the end of a word only
            return begins[-count]
        reach *= 2


def _count_words(text: str, start: int, end: int) -> int:
    """Count the words in a part of a text.

    In pieces: to split megabytes in one go keeps all other threads waiting.
    """
    count = 0
    for at in range(start, end, _PIECE):
        count += len(text[at : min(at + _PIECE, end)].split())
        # one word in two pieces
        count -= at > start and not text[at - 1].isspace() and not text[at].isspace()
    return count


def fold(text: str, width: int) -> str:
    """Return a text with long lines broken, so that each part of it has a line number.

    Long are lines of more than `width` characters (over 32).
    """
    out: list[str] = []
    for line in each_line(text):
        at = 0
        while len(line) - at > width + 1:
            stop = _whole(line, at + width)
            out.append(line[at:stop] + "\n")
            at = stop
        out.append(line[at:])
    return "".join(out)


def _whole(text: str, at: int) -> int:
    """Return `at`, moved before the character that it would cut in two.

    By 32 at most, as no writing needs more.
    """
    for _ in range(32):
        if not 0 < at < len(text) or not (
            unicodedata.combining(text[at]) or text[at] in _JOINS or text[at - 1] == "\u200d"
        ):
            break
        at -= 1
    return at
