"""Compare two versions of a note by what they mean, so that a program's edit is not a person's.

Formatters, stamping plug-ins and sync tools change line ends, quotes, the order of keys and keys of
their own. The meaning of a note leaves these out. It serves one comparison: was the note edited?
What placet stores, approves and shows to a model is the note's bytes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal, InvalidOperation

from placet.codec import sha256
from placet.note.box import without_box
from placet.note.frontmatter import read_note
from placet.note.markdown import BREAK, Fence, fence_at

_ENDS = re.compile(r"\r\n|\n|\r|\Z")


def meaning_of(raw: bytes, keys: Collection[str]) -> str:
    """Return a digest of a note's text and of the values of its `keys`.

    placet's box, other keys, the byte order mark, line ends and blank lines at the edges are left
    out. In a code block a line end counts if it differs from the note's first one. A note whose
    frontmatter cannot be read means its bytes.
    """
    note = read_note(raw)
    if note.problem:
        return sha256(raw)
    values = ((key, _value(note.meta.get(key))) for key in sorted(keys))
    head = "".join(f"{key}={value!r}\n" for key, value in values if value)
    return sha256(f"{head}\n{_text(without_box(note.body))}".encode(errors="replace"))


def _value(value: object) -> str:
    """Return a property's value without its quotes and its way of writing a number."""
    text = "" if value is None else str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return str(number.normalize()) if number.is_finite() else text


def _text(body: str) -> str:
    first = BREAK.search(body)
    usual = first[0] if first is not None else "\n"
    out: list[str] = []
    fence: Fence | None = None
    at = 0
    for found in _ENDS.finditer(body):
        line, end = body[at : found.start()], found[0]
        at = found.end()
        kept = end if fence is not None and end != usual else "\n"
        out += line, kept
        if fence is None:
            fence = fence_at(line)
        elif fence.closes(line):
            fence = None
    return "".join(out).strip("\n")
