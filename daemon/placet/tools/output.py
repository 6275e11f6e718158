"""From what a tool returns to what the model is given: secrets redacted, long texts cut, and kept so that one can read on."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from threading import Lock
from typing import Any

from placet.core.shorten import CHARS_KEPT, WORDS_KEPT, cut, each_line, fold

RESULTS = "@result/"
"""What the name of a kept result begins with; `read_file` takes such names."""

MAX_KEPT_CHARS = 8_000_000
"""How much of long results is kept; the oldest go first."""

FOLD = 900
"""Longest line of a kept result, in characters: short enough that each part asked for is given whole."""

_LONG_LINE_WORDS = WORDS_KEPT // 2 - 50
_LONG_LINE_CHARS = CHARS_KEPT // 4


class Results:
    """Long results of one conversation, kept whole under names that come from their content.

    Safe in several threads.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def keep(self, text: str) -> str:
        """Keep a text; return its name for `read_file`."""
        text = fold(text, FOLD)
        name = RESULTS + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        with self._lock:
            if name not in self._kept:
                self._kept[name] = text
                self._size += len(text)
            while self._size > MAX_KEPT_CHARS and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])
        return name

    def get(self, name: str) -> str | None:
        """Return a kept text, None for one that is not kept (any more)."""
        with self._lock:
            return self._kept.get(name)


@dataclass(frozen=True, slots=True)
class Passage:
    """Lines of a text, redacted already, that can be asked for by number: `first` is the number of the first one in `path`."""

    text: str
    path: str
    first: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG image, and what is said about it."""

    png: bytes
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model is given: text, and for a picture the PNG in base64.

    `words_cut` were left out.
    """

    content: str
    words_cut: int = 0
    image: str = ""


def present(result: Any, results: Results) -> Shown:
    """Return a tool's result as the model is given it.

    JSON stays JSON: its texts and lists are cut, never its syntax.
    """
    match result:
        case Passage():
            text, words = _passage(result, results)
        case str():
            text, words = _text(result, WORDS_KEPT, CHARS_KEPT, results)
        case Picture():
            text, words = _json(dict(result.about)), 0
            return Shown(_sendable(text), words, base64.b64encode(result.png).decode())
        case _:
            text, words = _structure(result, results)
    return Shown(_sendable(text), words)


def _sendable(text: str) -> str:
    """Return the text without what the way to the model does not carry: bytes that are not UTF-8, and NUL."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _passage(passage: Passage, results: Results) -> tuple[str, int]:
    made = cut(passage.text)
    if made is None:
        return passage.text, 0
    lines = islice(each_line(passage.text), made.first - 1, made.last)
    if any(len(line) > _LONG_LINE_CHARS or len(line.split()) > _LONG_LINE_WORDS for line in lines):
        # asking for such a line would only cut it again
        return _text(passage.text, WORDS_KEPT, CHARS_KEPT, results)
    first = passage.first - 1
    note = (
        f"{made.words:,} words cut here: lines {first + made.first:,} to {first + made.last:,} of {first + made.lines:,}; "
        f"read on with read_file, path {_json(passage.path)}, offset {first + made.first}"
    )
    return made.joined(note), made.words


def _text(text: str, words: int, chars: int, results: Results) -> tuple[str, int]:
    made = cut(text, words=words, chars=chars)
    if made is None:
        return text, 0
    name = results.keep(text)
    # Lines are counted in the kept text, whose long lines are folded.
    first = fold(made.head, FOLD).count("\n") + 1
    note = f'{made.words:,} words cut here; read on with read_file, path "{name}", offset {first}'
    return made.joined(note), made.words


def _structure(value: Any, results: Results) -> tuple[str, int]:
    whole = _json(value)
    if len(whole) <= CHARS_KEPT and _words(value) <= WORDS_KEPT:
        return whole, 0
    if isinstance(value, list):
        items, words = _items(value, WORDS_KEPT, CHARS_KEPT, results)
        return _json(items), words
    if not isinstance(value, dict):
        return _text(whole, WORDS_KEPT, CHARS_KEPT, results)
    long = {key: one for key, one in value.items() if isinstance(one, str | list)}
    shares = _shares({key: _words(one) for key, one in long.items()}, WORDS_KEPT)
    room = _shares({key: len(_json(one)) for key, one in long.items()}, CHARS_KEPT)
    shown: dict[str, Any] = {}
    missing = 0
    for key, one in value.items():
        words, chars = max(2, shares.get(key, 0)), max(200, room.get(key, 0))
        match one:
            case str():
                shown[key], cut_words = _text(one, words, chars, results)
            case list():
                shown[key], cut_words = _items(one, words, chars, results)
            case _:
                shown[key], cut_words = one, 0
        missing += cut_words
    return _json(shown), missing


def _words(value: Any) -> int:
    """Count the words of a value as the model reads it: a newline in a text separates words, escaped in JSON or not."""
    match value:
        case str():
            return len(value.split())
        case dict():
            return sum(_words(key) + _words(one) for key, one in value.items())
        case list():
            return sum(_words(one) for one in value)
        case _:
            return 1


def _shares(sizes: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a limit out: what is small is given whole, what is large shares the rest evenly."""
    given: dict[str, int] = {}
    left = limit
    for number, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        given[key] = min(size, left // (len(sizes) - number))
        left -= given[key]
    return given


def _items(items: Sequence[Any], words: int, chars: int, results: Results) -> tuple[list[Any], int]:
    """Return a list without its middle.

    What is left out can be read on line by line, one an entry.
    """
    lines = [_json(item) if not isinstance(item, str) else item for item in items]
    sizes = [(_words(item), len(line)) for item, line in zip(items, lines, strict=True)]
    if sum(w for w, _ in sizes) <= words and sum(c for _, c in sizes) <= chars:
        return list(items), 0
    head = _fitting(sizes, words // 2, chars // 2)
    tail = min(_fitting(sizes[::-1], words // 2, chars // 2), len(items) - head)
    folded = [fold(line.replace("\n", " "), FOLD) for line in lines]
    name = results.keep("\n".join(folded))
    offset = 1 + sum(line.count("\n") + 1 for line in folded[:head])
    left_out = lines[head : len(items) - tail]
    note = f'… {len(left_out):,} entries cut here; read on with read_file, path "{name}", offset {offset} …'
    kept = [*items[:head], note, *(items[len(items) - tail :] if tail else [])]
    return kept, max(1, sum(len(line.split()) for line in left_out))


def _fitting(sizes: Sequence[tuple[int, int]], words: int, chars: int) -> int:
    count = 0
    for w, c in sizes:
        words, chars = words - w, chars - c
        if words < 0 or chars < 0:
            break
        count += 1
    return count
