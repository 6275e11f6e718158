"""Globs of a plan's permission: their form, and matching in time that cannot explode."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

_T = TypeVar("_T")


MAX_PATTERN = 1_024
"""Characters of one glob; a longer one is nothing that a person reviews."""


def glob_problem(pattern: str) -> str | None:
    """Return what is wrong with a glob and how to write it, or None."""
    shown = repr(pattern[:200])
    body = pattern.removeprefix("!").removesuffix("/")
    segments = body.split("/")
    if not body:
        return f'{shown} is empty; name a file or folder, such as "src/**"'
    if len(pattern) > MAX_PATTERN:
        return f"{shown}… is longer than {MAX_PATTERN} characters"
    if any(c < " " or c == "\x7f" for c in pattern):
        return f"{shown} has a control character"
    if "\\" in pattern:
        return f"{shown} has a backslash; write / between folders"
    if body.startswith("/") or re.match(r"[A-Za-z]:", body):
        return f'{shown} is absolute; write it relative to the repository, such as "src/**"'
    if "~" in segments[0][:1]:
        return f'{shown} points to a home folder; write it relative to the repository, such as "src/**"'
    if ".." in segments:
        return f"{shown} leaves the repository (`..`); only files inside it can be written"
    if "." in segments or "" in segments:
        return f'{shown} has an empty segment or `.`; write "src/main.py", not "./src//main.py"'
    if re.search(r"\{[^{}]*,", body):
        return f"{shown} has braces, which are not expanded; write one glob for each alternative"
    if any("**" in s and s != "**" for s in segments):
        return f'{shown} has `**` beside other characters; write "src/**/*.py"'
    for segment in segments:
        if (why := _class_problem(segment)) is not None:
            return f"{shown} has a character class that {why}; write [abc], [a-z] or [!abc]"
    return None


def _class_problem(segment: str) -> str | None:
    try:
        _segment(segment)
    except ValueError as error:
        return str(error)
    return None


_Item = Callable[[_T], bool]
"""Tells whether one item (a character, a path segment) is matched.

In a pattern None is any run of items.
"""


def _run_matches(pattern: Sequence[_Item[_T] | None], items: Sequence[_T]) -> bool:
    """Match items against a pattern in which None stands for any run of them, the empty one too.

    The greedy algorithm with one point of return: it goes back only to the latest None, because
    everything before it is matched as early as it can be. At most len(pattern) * len(items) steps.
    """
    at = token = 0
    star, resume = -1, 0
    while at < len(items):
        item = pattern[token] if token < len(pattern) else _never
        if item is None:
            star, resume = token, at
            token += 1
        elif item(items[at]):
            at += 1
            token += 1
        elif star >= 0:
            resume += 1
            at, token = resume, star + 1
        else:
            return False
    return all(item is None for item in pattern[token:])


def _never(_: object) -> bool:
    return False


def _any(_: object) -> bool:
    return True


def _is(char: str) -> _Item[str]:
    return lambda other: other == char


def _in(ranges: tuple[tuple[str, str], ...], wanted: bool) -> _Item[str]:
    return lambda char: any(low <= char <= high for low, high in ranges) is wanted


def _segment(text: str) -> tuple[_Item[str] | None, ...]:
    """Translate one segment of a glob.

    Raises ValueError: what the class that cannot be read does.
    """
    out: list[_Item[str] | None] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            out.append(None)
        elif char == "?":
            out.append(_any)
        elif char == "[":
            wanted = text[at : at + 1] not in ("!", "^")
            at += not wanted
            end = text.find("]", at + 1)
            if end < 0:
                raise ValueError("is not closed")
            out.append(_in(_ranges(text[at:end]), wanted))
            at = end + 1
        else:
            out.append(_is(char))
    return tuple(out)


def _ranges(inside: str) -> tuple[tuple[str, str], ...]:
    if "[:" in inside or "[." in inside or "[=" in inside:
        raise ValueError("is of the POSIX kind")
    out: list[tuple[str, str]] = []
    at = 0
    while at < len(inside):
        low = high = inside[at]
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            high = inside[at + 2]
            at += 2
            if high < low:
                raise ValueError("has a range that runs backwards")
        out.append((low, high))
        at += 1
    return tuple(out)


def segment_matcher(text: str) -> _Item[str]:
    """Return a function that tells whether a name is matched by one segment of a glob."""
    items = _segment(text)
    return lambda name: name == text or _run_matches(items, name)


def _folded(text: str) -> str:
    """Return a path or glob as a file system takes it that knows neither case nor Unicode forms."""
    return (
        text.lower()
        if text.isascii()
        else unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    )


def matches_folded(pattern: str, path: str) -> bool:
    """Return whether a glob matches a path where neither case nor Unicode form counts."""
    try:
        return matches(compiled(_folded(pattern)), _folded(path).split("/"))
    except ValueError:  # of a class such as [Z-a] no other spelling makes sense
        return False


@lru_cache(maxsize=512)
def compiled(pattern: str) -> tuple[_Item[str] | None, ...]:
    """Translate a valid glob without its `!`: one item a segment, None for `**`."""
    segments = (pattern + "**" if pattern.endswith("/") else pattern).split("/")
    out = [None if segment == "**" else segment_matcher(segment) for segment in segments]
    if out[-1] is None:
        out.append(_any)  # `src/**` is what is below src, not src itself
    return tuple(out)


def matches(pattern: Sequence[_Item[str] | None], segments: Sequence[str]) -> bool:
    """Return whether a compiled glob matches a path, given as its segments."""
    return _run_matches(pattern, segments)


def fixed_part(pattern: str) -> str:
    """Return the folders that a glob names outright, before its first wildcard: "src/app/" of `src/app/**/*.py`."""
    found = re.match(r"(?:[^*?\[/]+/)*", pattern)
    return found[0] if found else ""


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path (relative, `/` between segments) is matched by one glob, without `!`.

    The globs of `Scope.write`, in time that does not explode. Raises ValueError: what is wrong with the glob.
    """
    if (why := glob_problem(pattern)) or (
        why := f"{pattern[:200]!r} begins with `!`" if pattern.startswith("!") else ""
    ):
        raise ValueError(why)
    segments = compiled(pattern)
    return lambda path: matches(segments, path.split("/"))
