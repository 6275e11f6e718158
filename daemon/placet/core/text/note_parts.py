"""A note taken apart: byte order mark, fences, block and body, each character of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from placet.core.text.blocks import MAX_BLOCK, NEWLINE, BlockError, Frontmatter, Layout
from placet.core.text.toml_blocks import toml_layout, toml_meta
from placet.core.text.yaml_blocks import yaml_layout, yaml_meta

BOM = "\ufeff"
FENCE = {Frontmatter.YAML: "---", Frontmatter.TOML: "+++"}
_LOOKS_LIKE_A_KEY = {
    Frontmatter.YAML: re.compile(r"""[ \t]*(?:["'][^"']{1,80}["']|[\w$][^:]{0,80}):(?=[ \t]|$)"""),
    Frontmatter.TOML: re.compile(
        r"""[ \t]*(?:["']?\w[^=]{0,80}=|\[{1,2}[\w."' -]+\]{1,2}[ \t]*(?=#|$))"""
    ),
}
_CLOSING = {  # looks behind last: a pattern that begins with text is searched for five times faster
    Frontmatter.YAML: re.compile(r"---(?<=[\r\n]---)[ \t]*+(?:\r\n|\n|\r|\Z)"),
    Frontmatter.TOML: re.compile(r"\+\+\+(?<=[\r\n]\+\+\+)[ \t]*+(?:\r\n|\n|\r|\Z)"),
}
_OPENING = {
    Frontmatter.YAML: re.compile(r"---[ \t]*+(?:\r\n|\n|\r|\Z)"),
    Frontmatter.TOML: re.compile(r"\+\+\+[ \t]*+(?:\r\n|\n|\r|\Z)"),
}


@dataclass(frozen=True, slots=True)
class NoteParts:
    """A note taken apart.

    `head + block + foot + body` is its text, the head with the byte order mark.
    """

    kind: Frontmatter
    body: str
    head: str = ""
    block: str = ""
    foot: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    problem: str = ""


def take_apart(raw: bytes) -> NoteParts:
    """Return the parts of the note that these bytes are; what is wrong is in `problem`."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return NoteParts(
            Frontmatter.NONE,
            raw.decode("utf-8", "replace"),
            problem=f"The note is not UTF-8 text (line {line}).",
        )
    if "\0" in text:
        return NoteParts(Frontmatter.NONE, text, problem="The note holds NUL bytes: it is no text.")
    bom, rest = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    for kind, opening in _OPENING.items():
        if opened := opening.match(rest):
            return _split(kind, bom, rest, opened.end())
    return NoteParts(Frontmatter.NONE, rest, head=bom)


def written_value(raw: bytes, key: str) -> str:
    """Return a key's value as its author wrote it, empty where the key is not one line's."""
    parts = take_apart(raw)
    found = next((entry for entry in parts.layout.entries if entry.key == key), None)
    return "" if found is None else parts.block[found.value_start : found.value_end]


def _split(kind: Frontmatter, bom: str, rest: str, block_start: int) -> NoteParts:
    """Part frontmatter from body; a fence that opens none leaves the note bare."""
    bare = NoteParts(Frontmatter.NONE, rest, head=bom)
    closed = _CLOSING[kind].search(rest, block_start)
    if closed is None or closed.start() - block_start > MAX_BLOCK:
        if not _first_line_is_a_key(kind, rest[block_start : block_start + MAX_BLOCK]):
            return bare
        why = (
            f"The frontmatter opens with `{FENCE[kind]}`, but no `{FENCE[kind]}` line ends it."
            if closed is None
            else f"The frontmatter is longer than {MAX_BLOCK} characters."
        )
        return replace(bare, problem=why)
    block = rest[block_start : closed.start()]
    read = read_block(kind, block)
    if read is None:
        return bare
    return NoteParts(
        kind,
        rest[closed.end() :],
        bom + rest[:block_start],
        block,
        closed.group(),
        read.meta,
        read.layout,
        read.problem,
    )


class _FrontmatterBlock(NamedTuple):
    """A parsed block; `layout` is empty if there is a `problem`."""

    meta: Mapping[str, Any]
    layout: Layout
    problem: str


@lru_cache(maxsize=32)
def read_block(kind: Frontmatter, block: str) -> _FrontmatterBlock | None:
    """Read a block; None where it is no frontmatter at all.

    Kept, because one look at a note reads it several times.
    """
    try:
        meta = yaml_meta(block) if kind is Frontmatter.YAML else toml_meta(block)
    except BlockError as error:
        if error.broken and not any(_LOOKS_LIKE_A_KEY[kind].match(line) for line in _lines(block)):
            return None
        return _FrontmatterBlock({}, Layout(), str(error))
    if meta is None:
        return None
    kept = MappingProxyType(meta)  # it is shared
    try:
        layout = yaml_layout(block) if kind is Frontmatter.YAML else toml_layout(block)
    except BlockError as error:
        return _FrontmatterBlock(kept, Layout(), str(error))
    return _FrontmatterBlock(kept, layout, "")


def _lines(text: str) -> Iterator[str]:
    """Yield the lines, without ends, as people count them (str.splitlines splits at U+2028 too)."""
    start = 0
    for newline in NEWLINE.finditer(text):
        yield text[start : newline.start()]
        start = newline.end()
    if start < len(text):
        yield text[start:]


def _first_line_is_a_key(kind: Frontmatter, text: str) -> bool:
    """Return whether keys begin right under the fence, or below comments.

    A rule has an empty line there.
    """
    for line in _lines(text):
        if not line.lstrip().startswith("#"):
            return _LOOKS_LIKE_A_KEY[kind].match(line) is not None
    return False
