"""Cut long tool results in the middle: the model gets the beginning and the end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from placet.chat.sizes import RESULT_CHARS, RESULT_WORDS

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

    Only a newline ends a line, as in `grep` and in editors.
    """
    return list(each_line(text))


def each_line(text: str) -> Iterator[str]:
    """Yield the lines of `lines_of` one by one."""
    start = 0
    # in pieces: splitting two million lines at once would block all threads
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield from _LINE.findall(text, start, end)
        start = end


def cut(text: str, *, words: int = RESULT_WORDS, chars: int = RESULT_CHARS) -> Cut | None:
    """Return a text without its middle if it is too long, else None.

    Too long is more than `words` words (2 or more), or more than `chars` characters. The first and
    last halves of the words are kept. A cut never splits a code point, nor a letter and its
    accents.
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
        start = _character_start(text, min(start, chars // 2))
        end = _character_start(text, max(end, len(text) - chars // 2))
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
    """Return where the last `count` words of a longer text begin."""
    reach = _PIECE
    while True:
        start = max(0, len(text) - reach)
        begins = [m.start() for m in _WORD.finditer(text, start)]
        if len(begins) > count or not start:  # the first may be only the end of a word
            return begins[-count]
        reach *= 2


def _count_words(text: str, start: int, end: int) -> int:
    """Count the words in a part of a text.

    In pieces: splitting megabytes at once would block all threads.
    """
    count = 0
    for at in range(start, end, _PIECE):
        count += len(text[at : min(at + _PIECE, end)].split())
        # the word continues in the next piece
        count -= at > start and not text[at - 1].isspace() and not text[at].isspace()
    return count


def fold(text: str, width: int) -> str:
    """Break the lines longer than `width` (over 32) characters, so that each part has a number."""
    out: list[str] = []
    for line in each_line(text):
        at = 0
        while len(line) - at > width + 1:
            stop = _character_start(line, at + width)
            out.append(line[at:stop] + "\n")
            at = stop
        out.append(line[at:])
    return "".join(out)


def _character_start(text: str, at: int) -> int:
    """Return `at`, moved before the character that it would split, by at most 32."""
    for _ in range(32):
        if not 0 < at < len(text) or not (
            unicodedata.combining(text[at]) or text[at] in _JOINS or text[at - 1] == "\u200d"
        ):
            break
        at -= 1
    return at
