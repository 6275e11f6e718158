"""Find secrets by their looks: known formats, private keys, known values, credentials' values.

A net, not a wall: what is printed backwards or in another encoding goes through. What a model can
reach at all is the business of the scope and of the sandbox.

Texts are looked through in windows: one call of `re` or of `str.find` never lets go of the
interpreter, and the loop has to go on meanwhile, whatever somebody wrote into a file.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from placet.core.secret_formats import (
    CREDENTIAL_HINTS,
    CREDENTIAL_WORDS,
    KEY_HINT,
    SEPARATORS,
    formats_in,
    value_after,
)

# What stands in the place of a secret; the braces hold its kind.
MARK = "[redacted: {}]"

# A shorter known value is not looked for: it would be found in every other word.
MIN_LITERAL = 6

# Characters of a text that are looked at in one go: some milliseconds even of what is slowest.
WINDOW = 64 * 1024

# How far a token may reach out of the window that it begins in. Of one that goes on as far as the
# window's length, that much.
_REACH = 16 * 1024

# Characters of the longest word that a credential's key ends with, and some more.
MAX_WORD = 20

# Pieces of a redacted text that are joined in one go.
_JOINED_AT_ONCE = 10_000

# --- known formats

_KEY_EDGE = re.compile(r"-----(?P<edge>BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# `\\n` as well as a line's end: a key in a JSON document stands on one line.
_KEY_LINE = re.compile(
    r"(?:\r?\n|\\r\\n|\\n)"
    r"(?:[A-Za-z0-9-]{1,40}: [^\r\n\\]{0,200}|[ \t]{0,40}[A-Za-z0-9+/=]{0,128}[ \t]{0,40})"
    r"(?=[\r\n\\\"']|\Z)"
)
_LINE_END = re.compile(r"\r?\n|\\r\\n|\\n")
_KEY_LINE_ALONE = re.compile(r"[ \t]{0,40}[A-Za-z0-9+/=]{16,128}[ \t]{0,40}")
_MAX_KEY = 20_000  # characters of a key; the largest RSA keys in use have 13,000


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A secret in a text: characters from `start` to before `end`, and what it is."""

    start: int
    end: int
    kind: str


def spans(text: str, literals: Sequence[str], *, values: bool = True) -> Iterator[Span]:
    """Yield the secrets in a text, in order, none overlapping another.

    One by one: a hostile file has a million, which nobody should hold. `literals` are secrets whose
    value is known; ones shorter than MIN_LITERAL are not searched for. `values`: also what a key
    that is named like a credential is set to.
    """
    words = [word for word in literals if len(word) >= MIN_LITERAL]
    values = values and any(one in text for one in SEPARATORS)
    if (
        len(text) <= WINDOW
        and not values
        and KEY_HINT not in text
        and not formats_in(text, 0, len(text))
        and not any(word in text for word in words)
    ):
        return  # most texts of a row: the merge below takes five times as long
    known: list[Iterator[Span]] = [
        (Span(at, at + len(word), "secret") for at in places(text, word)) for word in words
    ]
    last: Span | None = None
    if values:
        known.append(_values(text))
    for span in heapq.merge(_tokens(text), _keys(text), *known):
        if last is None or span.start >= last.end:
            if last is not None:
                yield last
            last = span
        elif span.end > last.end:
            last = Span(last.start, span.end, last.kind)
    if last is not None:
        yield last


def places(text: str, literal: str) -> Iterator[int]:
    """Yield the indices of a literal in a text, none within another find."""
    past = 0
    for start in range(0, len(text), WINDOW):
        while (at := text.find(literal, max(start, past), start + WINDOW + len(literal) - 1)) >= 0:
            yield at
            past = at + len(literal)


def _tokens(text: str) -> Iterator[Span]:
    past: dict[str, int] = {}  # the end of the last find of each kind
    for start in range(0, len(text), WINDOW):
        end = start + WINDOW + _REACH
        here: list[Span] = []
        for form in formats_in(text, start, end):
            group = "secret" if "secret" in form.pattern.groupindex else 0
            for found in _in_window(form.pattern, text, start, past.get(form.kind, 0)):
                past[form.kind] = found.end()
                if form.is_one(found):
                    here.append(Span(*found.span(group), form.kind))
        yield from sorted(here)


def _values(text: str) -> Iterator[Span]:
    """Yield the values of keys that are named like credentials, in any format of settings."""
    past = 0  # the end of the last one
    for start in range(0, len(text), WINDOW):
        end = start + WINDOW + _REACH
        if not any(text.find(one, start, end) >= 0 for one in SEPARATORS):
            continue
        # U+0130 is the one character that gets longer in lower case: indices would not agree.
        low = text[start : start + WINDOW + MAX_WORD].replace("\u0130", "i").lower()
        if not any(hint in low for hint in CREDENTIAL_HINTS):
            continue
        here = [(start + at, word) for word in CREDENTIAL_WORDS for at in places(low, word)]
        for at, word in sorted(here):
            if past <= at < start + WINDOW and (found := value_after(text, word, at, end)):
                past = found[1]
                yield Span(*found, "value")


def _in_window(
    pattern: re.Pattern[str], text: str, start: int, past: int
) -> Iterator[re.Match[str]]:
    """Yield the matches that begin in the window at `start`, and not before `past`."""
    end = start + WINDOW + _REACH
    for found in pattern.finditer(text, max(start, past), end):
        if found.start() >= start + WINDOW:
            return
        if found.end() == end < len(text):
            yield pattern.match(text, found.start(), end + WINDOW) or found
            return
        yield found


def _edges(text: str) -> Iterator[re.Match[str]]:
    past = 0
    for start in range(0, len(text), WINDOW):
        if text.find(KEY_HINT, start, start + WINDOW + _REACH) >= 0:
            for edge in _in_window(_KEY_EDGE, text, start, past):
                past = edge.end()
                yield edge


def _keys(text: str) -> Iterator[Span]:
    """Yield the blocks of private keys.

    Those whose beginning or end was cut off reach as far as they look like one.
    """
    begun = -1  # where a block began that has not ended yet
    past = 0  # the end of the edge before
    for edge in _edges(text):
        whole = edge["edge"] == "END" and begun >= 0 and edge.start() - past <= _MAX_KEY
        if begun >= 0 and not whole:
            yield Span(begun, _key_lines_below(text, past, edge.start()), "private key")
        if edge["edge"] == "END":
            yield Span(
                begun if whole else _key_lines_above(text, past, edge.start()),
                edge.end(),
                "private key",
            )
        begun = edge.start() if edge["edge"] == "BEGIN" else -1
        past = edge.end()
    if begun >= 0:
        yield Span(begun, _key_lines_below(text, past, len(text)), "private key")


def _key_lines_below(text: str, at: int, end: int) -> int:
    end = min(end, at + _MAX_KEY)
    while line := _KEY_LINE.match(text, at, end):
        at = line.end()
    return at


def _key_lines_above(text: str, start: int, at: int) -> int:
    start = max(start, at - _MAX_KEY)
    breaks = [(m.start(), m.end()) for m in _LINE_END.finditer(text, start, at)]
    here = at
    while breaks:
        line_end, _ = breaks.pop()
        before = breaks[-1][1] if breaks else start
        if not _KEY_LINE_ALONE.fullmatch(text, before, line_end):
            break
        here = before
    return here


def redact(text: str, literals: Sequence[str] = ()) -> tuple[str, int]:
    """Return the text with a mark in the place of each secret, and how many there were.

    Line numbers stay as they are. `literals` as for `spans`. Redacting twice changes nothing.
    """
    pieces: list[str] = []
    joined: list[str] = []
    at = count = 0
    for span in spans(text, literals):
        count += 1
        if len(pieces) >= _JOINED_AT_ONCE:
            joined.append("".join(pieces))
            pieces.clear()
        pieces += [
            text[at : span.start],
            MARK.format(span.kind),
            "\n" * text.count("\n", span.start, span.end),
        ]
        at = span.end
    return ("".join([*joined, *pieces, text[at:]]), count) if count else (text, 0)


def redacted(value: Any, literals: Sequence[str]) -> Any:
    """Return a value with the secrets in all of its texts redacted; lists and tables are copied."""
    match value:
        case str():
            return redact(value, literals)[0]
        case dict():
            return {redacted(k, literals): redacted(v, literals) for k, v in value.items()}
        case list() | tuple():
            return [redacted(v, literals) for v in value]
        case _:
            return value


def outside(text: str, literals: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return the text in pieces, each with whether it is a secret; joined they are the text."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    for span in spans(text, literals):
        pieces += [(text[at : span.start], False)] * (span.start > at) + [
            (text[span.start : span.end], True)
        ]
        at = span.end
    return [*pieces, (text[at:], False)] if at < len(text) else pieces


# --- commits


def latin(words: Sequence[str]) -> tuple[str, ...]:
    """Return words as they stand in a text that was decoded byte by byte, as Latin-1."""
    return tuple(word.encode("utf-8", "surrogateescape").decode("latin-1") for word in words)
