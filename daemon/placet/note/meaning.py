"""Compare two versions of a note by what they mean, so that a program's edit is not a person's.

Formatters, stamping plug-ins and sync tools change line ends, quotes, the order of keys and keys of
their own. The meaning of a note leaves these out. It serves one comparison: was the note edited?
What placet stores, approves and shows to a model is the note's bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from decimal import Decimal

from placet.codec import sha256
from placet.note.box import without_box
from placet.note.frontmatter import read_note
from placet.note.markdown import BREAK, outside_fences

_NUMBERS = frozenset({"priority", "budget_usd", "revision"})


def meaning_of(raw: bytes, keys: Collection[str]) -> str:
    """Return a digest of a note's text and of the values of its `keys`.

    placet's box, other keys, the byte order mark, line ends and blank lines at the edges are left
    out. In a code block a line end counts if it differs from the note's first one. A note whose
    frontmatter cannot be read means its bytes.
    """
    note = read_note(raw)
    if note.problem:
        return sha256(raw)
    values = ((key, _value(key, note.meta.get(key))) for key in sorted(keys))
    head = "".join(f"{key}={value!r}\n" for key, value in values if value)
    return sha256(f"{head}\n{_text(without_box(note.body))}".encode(errors="replace"))


def _value(key: str, value: object) -> str:
    """Return a property's value without its quotes, and a number in one form."""
    text = "" if value is None else str(value).strip()
    with suppress(ArithmeticError):
        if key in _NUMBERS:
            return str(Decimal(text).normalize())
    return text


def _text(body: str) -> str:
    usual = BREAK.search(body)
    lines = body.replace(usual[0], "\n").split("\n") if usual is not None else [body]
    return "\n".join(outside_fences(lines, _with_line_feeds)).strip("\n")


def _with_line_feeds(line: str) -> str:
    return line.removesuffix("\r").replace("\r", "\n")
