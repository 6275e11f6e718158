"""Present results to the model: cut long texts in the middle, and keep them for reading on."""

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

from placet.chat.sizes import RESULT_CHARS, RESULT_WORDS
from placet.tools.shorten import cut, each_line, fold

# prefix of a kept result's name, which `read_file` accepts as a path
RESULTS = "@result/"

# maximum total size of kept results; the oldest are dropped
MAX_KEPT_CHARS = 8_000_000

# longest line of a kept result, in characters: short enough to be read without a cut
FOLD = 900


class Results:
    """The long results of one conversation, under names derived from their content.

    The model sees at most `words` words and `chars` characters of each. Thread-safe.
    """

    def __init__(self, words: int = RESULT_WORDS, chars: int = RESULT_CHARS) -> None:
        self.words = words
        self.chars = chars
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
        """Return a kept text, None if it is unknown or was dropped."""
        with self._lock:
            return self._kept.get(name)


@dataclass(frozen=True, slots=True)
class Passage:
    """Redacted lines of the text `path`; `first` is the number of the first one."""

    text: str
    path: str
    first: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG image, and facts about it for the model."""

    png: bytes
    about: Mapping[str, Any]


def present(result: Any, results: Results) -> tuple[str, str]:
    """Return a tool's result for the model: text, and for a picture the PNG in base64.

    `results` keeps what is cut. JSON stays valid: its texts and lists are cut.
    """
    image = ""
    match result:
        case Passage():
            content = _passage(result, results)
        case str():
            content = _text(result, results.words, results.chars, results)
        case Picture():
            content, image = _json(dict(result.about)), base64.b64encode(result.png).decode()
        case _:
            content = _structure(result, results)
    return _sendable(content), image


def _sendable(text: str) -> str:
    """Return the text without NUL and with non-UTF-8 bytes escaped: neither can be sent."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _passage(passage: Passage, results: Results) -> str:
    made = cut(passage.text, words=results.words, chars=results.chars)
    if made is None:
        return passage.text
    lines = islice(each_line(passage.text), made.first - 1, made.last)
    words, chars = results.words // 2 - 50, results.chars // 4
    if any(len(line) > chars or len(line.split()) > words for line in lines):
        # reading such a line on would only cut it again
        return _text(passage.text, results.words, results.chars, results)
    first, last = (passage.first - 1 + line for line in (made.first, made.last))
    return made.joined(
        f"{made.words:,} words cut here: lines {first:,} to {last:,} of "
        f"{passage.first - 1 + made.lines:,}; "
        f"read on with read_file, path {_json(passage.path)}, offset {first}"
    )


def _text(text: str, words: int, chars: int, results: Results) -> str:
    made = cut(text, words=words, chars=chars)
    if made is None:
        return text
    name = results.keep(text)
    # Lines are counted in the kept text, whose long lines are folded.
    first = fold(made.head, FOLD).count("\n") + 1
    return made.joined(
        f'{made.words:,} words cut here; read on with read_file, path "{name}", offset {first}'
    )


def _structure(value: Any, results: Results) -> str:
    whole = _json(value)
    words, chars = results.words, results.chars
    if len(whole) <= chars and _words(value) <= words:
        return whole
    if isinstance(value, list):
        return _json(_items(value, words, chars, results))
    if not isinstance(value, dict):
        return _text(whole, words, chars, results)
    shown = dict(value)
    sizes = {key: _words(one) for key, one in value.items() if isinstance(one, str | list)}
    # Shortest first: what it leaves of its share goes to the longer ones.
    for before, key in enumerate(sorted(sizes, key=lambda key: sizes[key])):
        one, left = value[key], len(sizes) - before
        shorten = _text if isinstance(one, str) else _items
        shown[key] = shorten(one, max(2, words // left), max(200, chars // left), results)
        words -= min(sizes[key], words // left)
        chars -= min(len(_json(one)), chars // left)
    return _json(shown)


def _words(value: Any) -> int:
    """Count the words of a value as the model sees it: an escaped newline separates words too."""
    match value:
        case str():
            return len(value.split())
        case dict():
            return sum(_words(key) + _words(one) for key, one in value.items())
        case list():
            return sum(_words(one) for one in value)
        case _:
            return 1


def _items(items: Sequence[Any], words: int, chars: int, results: Results) -> list[Any]:
    lines = [item if isinstance(item, str) else _json(item) for item in items]
    lines = [line.replace("\n", " ") for line in lines]
    made = cut("\n".join(lines), words=words, chars=chars)
    if made is None:
        return list(items)
    name = results.keep("\n".join(lines))
    offset = 1 + sum(fold(line, FOLD).count("\n") + 1 for line in lines[: made.first - 1])
    note = (
        f"… {made.last - made.first + 1:,} entries cut here; "
        f'read on with read_file, path "{name}", offset {offset} …'
    )
    return [*items[: made.first - 1], note, *items[made.last :]]
