"""A markdown note, and how it is changed without being rewritten.

A note belongs to the person who wrote it. placet has to write a few facts into it: a status, a
trace id, who approved it and when. The usual way is to load the frontmatter, to change a dictionary
and to dump it again. Dumping loses comments, quotes, the order of keys, blank lines, line ends and
the byte order mark, and turns `2024-01-01` or `on` into something else. It rewrites most real notes
even if nothing changes; then a sync tool sees a conflict, and a digest no longer fits. So:

1. **A note is taken apart, never parsed and printed.** `head + block + foot + body` is the decoded
   note, character by character. The block is the text between the fences: YAML between `---` lines
   or TOML between `+++` lines, on the very first line, behind a byte order mark if there is one. A
   `---` on top that opens no mapping (a horizontal rule) is text: such a note has no frontmatter.

2. **A key is a range of characters.** `yaml_blocks` and `toml_blocks` read a block twice: for its
   values, within limits that end hostile input early, and for its layout, that is the lines of each
   top-level key and the place of its value in them. A block whose keys are not one a line (braces,
   a duplicate, a dotted TOML key) has a `problem`, a sentence for its author, and is never edited.

3. **An edit replaces the characters of one value.** `stamp` writes a new value (`scalars`) in place
   of the old one, in the quotes that were there, adds a line at the end of the block, or takes a
   line away. A key that already says so is not touched: stamping twice is stamping once.

4. **An edit is proved.** The result is read again. It must say exactly what was wanted; every other
   key must say what it said, compared by type too; the body must be the same; and without the lines
   of the wanted keys the bytes before and after must be equal. Otherwise the edit is refused with
   UnsafeEdit. A surprise in YAML therefore costs a stamp, never a note.

5. **A digest leaves stamps out.** `without_keys` cuts out the whole lines of the keys that placet
   writes, and the block if nothing else is in it; `plan_text` cuts out placet's box as well. What
   placet stamps never changes the digest of
   what a person wrote, so an approval binds the text, and a note that only placet has touched
   counts as untouched.

python-frontmatter reads the notes that are only read (`parse_note`) and writes the new ones
(`new_note`), through a handler that keeps every character; it never sees a note that is edited.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unicodedata import normalize

import frontmatter
from frontmatter.default_handlers import YAMLHandler

from placet.core.text.blocks import Frontmatter, KeyLines
from placet.core.text.note_parts import BOM, FENCE, NoteParts, read_block, take_apart
from placet.core.text.scalars import UnsafeEdit, Value, holds, written
from placet.note.box import without_box

# Keys of a request that the daemon writes: they are not part of what the person asked.
REQUEST_STAMPS = frozenset({"status", "trace_id"})

# Keys that name a file or a table, which macOS and editors spell in two ways (NFD, NFC).
NAMES = ("agent", "portal")

# Keys of a plan that change during its life: they are not part of the text that is approved.
PLAN_STAMPS = frozenset({
    "status", "approved_by", "approved_at", "rejected_by", "rejected_at", "rejection_reason",
    "reviewed_by", "reviewed_at", "decision",
})  # fmt: skip

# Keys of a question that change; `answer` is a person's.
QUESTION_STAMPS = frozenset({"status"})

_NEW_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Note:
    """One note.

    `meta` holds the parsed keys, always as text: a key `on` or `2024` is `"on"`, `"2024"`; values
    are as the format reads them (in YAML `12:30` is 750, `on` is True, a timestamp is a datetime).
    `body` is the text below the frontmatter, newlines as they are; undecodable bytes show as
    U+FFFD. `problem` is empty, or one sentence for a person that says why the frontmatter cannot be
    read or edited; `stamp` refuses every such note. `meta` holds keys even then, where they can be
    read but not edited safely.
    """

    raw: bytes
    kind: Frontmatter
    meta: Mapping[str, Any]
    body: str
    problem: str


def read_note(raw: bytes) -> Note:
    """Return the note that these bytes are. Never raises: what is wrong is in `problem`."""
    parts = take_apart(raw)
    meta = parts.meta
    if not all(str(meta.get(key, "")).isascii() for key in NAMES):
        meta = {**meta, **{key: normalize("NFC", str(meta[key])) for key in NAMES if key in meta}}
    return Note(raw, parts.kind, meta, parts.body, parts.problem)


def stamp(
    raw: bytes, changes: Mapping[str, Value | None], *, kind_if_none: Frontmatter = Frontmatter.YAML
) -> bytes:
    """Return the note with these top-level keys set, or removed where the value is None.

    Every byte outside the lines of those keys stays. A key that already has the value is not
    touched, so stamping twice is stamping once; new keys go to the end of the block (in TOML:
    before the first table). A note without frontmatter gets a block of `kind_if_none` on top, in
    the note's own newline style; removing the last key removes the block again. Text that is an RFC
    3339 time in UTC (`2026-11-25T12:00:00Z`) is written as a time, without quotes unless it had
    them, and is then read back as an equal datetime.

    Raises UnsafeEdit where the note has a `problem`, or where the result would not differ in
    exactly these keys, and ValueError where `kind_if_none` is NONE and a block is needed.
    """
    before = take_apart(raw)
    if before.problem:
        raise UnsafeEdit(before.problem)
    wanted = {key: value for key, value in changes.items() if not holds(before.meta, key, value)}
    if not wanted:
        return raw
    after_raw = _edited(before, wanted, kind_if_none)
    _prove(raw, before, after_raw, wanted)
    return after_raw


def parse_note(raw: bytes) -> tuple[Mapping[str, Any], str]:
    """Return keys and text of a note that is only read, the text without white space around it.

    For what is neither stamped nor compared by digest; the keys are those of `read_note`. Never
    raises.
    """
    return frontmatter.parse("", handler=_FrontmatterHandler(take_apart(raw)))


def new_note(meta: Mapping[str, Value], body: str, kind: Frontmatter = Frontmatter.YAML) -> bytes:
    """Return a new note: these keys in their order above the text, in its newline style.

    Half characters in the text are escaped. It is what `stamp` makes of the bare text. Raises
    UnsafeEdit for keys and values that cannot be written, and for a text that has frontmatter
    itself, and ValueError where `kind` is NONE.
    """
    raw = body.encode(errors="backslashreplace")
    if not meta:
        return raw
    bare = take_apart(raw)
    if bare.problem or bare.kind is not Frontmatter.NONE:
        raise UnsafeEdit(bare.problem or "The text of a new note has frontmatter itself.")
    post = frontmatter.Post(bare.body, _FrontmatterHandler(_with_empty_block(bare, kind)))
    post.metadata.update(meta)
    note = frontmatter.dumps(post).encode()
    _prove(raw, bare, note, meta)
    return note


def digest(raw: bytes, without: Collection[str]) -> str:
    """Return the SHA-256, in hex, of `without_keys(raw, without)`."""
    return hashlib.sha256(without_keys(raw, without)).hexdigest()


def plan_text(raw: bytes) -> bytes:
    """Return what an approval of this plan binds: all of it but PLAN_STAMPS and placet's box."""
    parts = take_apart(raw)
    text = without_box(parts.body)
    if parts.problem or text == parts.body:
        return _without(raw, parts, PLAN_STAMPS)
    bare = raw[: len(raw) - len(parts.body.encode())] + text.encode()
    return _without(bare, replace(parts, body=text), PLAN_STAMPS)


def plan_digest(raw: bytes) -> str:
    """Return the SHA-256, in hex, of `plan_text(raw)`."""
    return hashlib.sha256(plan_text(raw)).hexdigest()


def without_keys(raw: bytes, keys: Collection[str]) -> bytes:
    """Return the note's bytes without the whole lines of these top-level keys.

    Stamping these keys never changes the result: a block that is left empty goes as well, so that a
    note with only such keys gives the same bytes as the bare note. A note with a `problem` is
    returned whole.
    """
    return _without(raw, take_apart(raw), keys)


class _FrontmatterHandler(YAMLHandler):
    """A handler of python-frontmatter for one note: both fences, our limits, every character kept.

    The library strips a text and makes its line ends LF before it asks a handler to split it: a
    rule below an empty line would become a fence. So each note has a handler of its own, which
    splits the note as it was.
    """

    def __init__(self, parts: NoteParts) -> None:
        super().__init__()
        self._parts = parts

    def split(self, text: str) -> tuple[str, str]:  # noqa: ARG002 - see above
        return self._parts.block, self._parts.body

    def load(self, fm: str, **kwargs: object) -> dict[str, Any]:  # noqa: ARG002 - the library's
        read = (
            read_block(self._parts.kind, fm) if self._parts.kind is not Frontmatter.NONE else None
        )
        return dict(read.meta) if read is not None else {}

    def export(self, metadata: dict[str, Any], **kwargs: object) -> str:  # noqa: ARG002 - the library's
        return "".join(_new_line(self._parts, key, value) for key, value in metadata.items())

    def format(self, post: frontmatter.Post, **kwargs: object) -> str:  # noqa: ARG002 - the library's
        return f"{self._parts.head}{self.export(post.metadata)}{self._parts.foot}{post.content}"


# -- editing


def _edited(
    before: NoteParts, wanted: Mapping[str, Value | None], kind_if_none: Frontmatter
) -> bytes:
    parts = (
        before if before.kind is not Frontmatter.NONE else _with_empty_block(before, kind_if_none)
    )
    entries = {entry.key: entry for entry in parts.layout.entries}
    edits: list[tuple[int, int, str]] = []
    new_lines = ""
    for key, value in wanted.items():
        entry = entries.get(key)
        if entry is None:
            if value is None or (parts.kind is Frontmatter.TOML and key in parts.meta):
                raise UnsafeEdit(
                    f"The frontmatter's key '{key}' is not written as one line of its own."
                )
            new_lines += _new_line(parts, key, value)
        elif value is None:
            edits.append((entry.start, entry.end, ""))
        else:
            edits.append(_replacement(parts, entry, value))
    block = parts.block
    edits.append((parts.layout.insert, parts.layout.insert, new_lines))
    # from the end on, so that places stay right
    for start, end, new in sorted(edits, reverse=True):
        block = block[:start] + new + block[end:]
    return _put_together(parts, block)


def _with_empty_block(bare: NoteParts, kind: Frontmatter) -> NoteParts:
    if kind is Frontmatter.NONE:
        raise ValueError("kind_if_none must be a format that can be written")
    newline = _newline_of(bare.body)
    fence = FENCE[kind] + newline
    return replace(bare, kind=kind, head=bare.head + fence, foot=fence)


def _newline_of(text: str) -> str:
    """Return the first newline's style; a lone CR counts only where there is no LF at all."""
    first = text.find("\n")
    if first < 0:
        return "\r" if "\r" in text else "\n"
    return "\r\n" if text[first - 1 : first] == "\r" else "\n"


def _new_line(parts: NoteParts, key: str, value: Value) -> str:
    if not _NEW_KEY.fullmatch(key):
        raise UnsafeEdit(
            f"'{key}' cannot be a new frontmatter key: use letters, digits, `_` and `-`."
        )
    newline = _newline_of(parts.block or parts.head)
    separator = " = " if parts.kind is Frontmatter.TOML else ": "
    return f"{parts.layout.indent}{key}{separator}{written(parts.kind, value)}{newline}"


def _replacement(parts: NoteParts, entry: KeyLines, value: Value) -> tuple[int, int, str]:
    old = parts.block[entry.value_start : entry.value_end]
    new = written(parts.kind, value, old[:1])
    gap = parts.block[entry.colon : entry.value_start]
    if parts.kind is Frontmatter.YAML and (not gap or gap.strip(" \t")):
        # there was no value, or it began on a line below
        return entry.colon, entry.value_end, f" {new}"
    return entry.value_start, entry.value_end, new


def _without(raw: bytes, parts: NoteParts, keys: Collection[str]) -> bytes:
    if parts.problem or parts.kind is Frontmatter.NONE:
        return raw
    block = parts.block
    for entry in reversed(parts.layout.entries):
        if entry.key in keys:
            block = block[: entry.start] + block[entry.end :]
    return raw if block and block == parts.block else _put_together(parts, block)


def _put_together(parts: NoteParts, block: str) -> bytes:
    """Return the note with this block; without any fence if the block is empty.

    A body that would open one itself keeps its fences.
    """
    if not block:
        bom = BOM if parts.head.startswith(BOM) else ""
        bare = (bom + parts.body).encode()
        rest = take_apart(bare)
        if rest.kind is Frontmatter.NONE and not rest.problem:
            return bare
    return f"{parts.head}{block}{parts.foot}{parts.body}".encode()


def _prove(
    raw: bytes, before: NoteParts, after_raw: bytes, wanted: Mapping[str, Value | None]
) -> None:
    """Raise UnsafeEdit unless exactly the wanted keys differ, in meaning and in bytes."""
    after = take_apart(after_raw)
    same_rest = _printed(after.meta, wanted) == _printed(before.meta, wanted)
    as_wanted = all(holds(after.meta, key, value) for key, value in wanted.items())
    same_bytes = _without(after_raw, after, wanted) == _without(raw, before, wanted)
    if after.problem or after.body != before.body or not (same_rest and as_wanted and same_bytes):
        names = ", ".join(f"'{key}'" for key in wanted)
        raise UnsafeEdit(
            f"The frontmatter's {names} cannot be changed without changing something else."
        )


def _printed(meta: Mapping[str, Any], without: Collection[str]) -> dict[str, str]:
    """Return the values in a form that compares by type too, and in which NaN equals itself."""
    return {key: repr(value) for key, value in meta.items() if key not in without}
