"""Find keys of a request that stand outside of its properties, where they have no effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from unicodedata import normalize

from placet.note.frontmatter import Frontmatter, Note, split_note
from placet.note.markdown import Fence, fence_at, lines_of
from placet.plan.digest import REQUEST_STAMPS

_FIRST_LINES = 5  # of the text: here a key is meant as a property, not as a word
_LONGEST_BLOCK = 40  # lines between two lines of dashes
_UNSEEN = "\ufeff\u200b\u200c\u200d\u2060\u00ad"
_DASHES = re.compile(rf"[\s{_UNSEEN}]*[-+\u2010-\u2015\u2212\u2500]{{2,}}[\s{_UNSEEN}]*")
_KEY = re.compile(
    r"(?:^|(?<=[{,(\[]))[\s>*_-]*+[\"']?([A-Za-z]\w*+)[\"']?[*_]*+\s*+(?:::?|=)[*_]*+\s*+([^,{}]*+)"
)


def stray_keys(note: Note, could_be: Mapping[str, Callable[[str], bool]]) -> list[str]:
    """Return a sentence for each line of the text that looks like a property of the request.

    `could_be` says by key whether it could have a value. An empty block above means that these
    lines are text.
    """
    if _is_text(note):
        return []
    above = len(lines_of(note.raw[: len(note.raw) - len(note.body.encode())].decode())) - 1
    return [
        f"Line {above + number} is not in the properties, so `{key}` has no effect. Put it between "
        "two lines `---` at the very top. If it is text, write two lines `---` above it."
        for number, line in _lines(note.body)
        for key in _keys(line, could_be)
    ]


def _is_text(note: Note) -> bool:
    """Return whether an empty block says so; by now it may have placet's stamps."""
    keys = set(note.meta)
    is_block = split_note(note.raw).kind is not Frontmatter.NONE
    return is_block and (not keys or ("trace_id" in keys and keys <= REQUEST_STAMPS))


def _lines(body: str) -> Iterator[tuple[int, str]]:
    """Yield the lines in which keys count, with their numbers: the first, and those in dashes."""
    fence: Fence | None = None
    last = _FIRST_LINES
    for number, line in enumerate(lines_of(body), 1):
        if number > last:
            return
        if fence is not None:
            fence = None if fence.closes(line) else fence
        elif (fence := fence_at(line)) is None:
            if number <= _FIRST_LINES and _DASHES.fullmatch(line):
                last = max(last, _end_of_block(body, number))
            yield number, line


def _end_of_block(body: str, opened: int) -> int:
    lines = lines_of(body)[opened : opened + _LONGEST_BLOCK]
    return next((opened + n for n, line in enumerate(lines, 1) if _DASHES.fullmatch(line)), 0)


def _keys(line: str, could_be: Mapping[str, Callable[[str], bool]]) -> Iterator[str]:
    for found in _KEY.finditer(line.strip(_UNSEEN)):
        key, value = found[1].lower(), re.sub(r"\s#.*", "", found[2])
        value = normalize("NFC", value.strip(f" \t\u00a0\"'`])*_{_UNSEEN}")).removeprefix("[[")
        if key in could_be and value and could_be[key](value):
            yield f"{key}: {value}"
