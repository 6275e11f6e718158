"""A frontmatter block as a value: its keys, and where they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# Longest frontmatter that is read, in characters: far above real ones. Hostile ones take under a
# second.
MAX_BLOCK = 32 * 1024

# Deepest nesting that is read. Libyaml takes 17 s for 65,000 open brackets, so the walk stops
# before.
MAX_DEPTH = 50

# Most YAML nodes with all aliases written out: ends "billion laughs" before anything is built.
MAX_NODES = 50_000

# Largest number that is read; Python refuses to print integers of more than 4,300 digits.
MAX_INT_BITS = 4_096

NEWLINE = re.compile(r"\r\n|\n|\r")


class Frontmatter(StrEnum):
    """The format of a note's frontmatter."""

    NONE = "none"
    YAML = "yaml"
    TOML = "toml"


class BlockError(Exception):
    """The reason why a block cannot be edited; `broken`: the format's grammar rejects it."""

    def __init__(self, why: str, *, broken: bool = False) -> None:
        super().__init__(why)
        self.broken = broken


@dataclass(frozen=True, slots=True)
class KeyLines:
    """A top-level key: whole lines `start:end` of the block, its value `value_start:value_end`."""

    key: str
    start: int
    colon: int  # just behind the `:` or `=`
    value_start: int
    value_end: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of keys in a block; `insert` is the place of a new key's line."""

    entries: tuple[KeyLines, ...] = ()
    insert: int = 0
    indent: str = ""


def line_number(block: str, index: int) -> int:
    """Return the line of the note, from 1, of a place in the block; the fence above is line 1."""
    return len(NEWLINE.findall(block, 0, index)) + 2


def check_value(value: Any, depth: int = 0) -> None:
    """Refuse what later code could not print, compare or walk."""
    if depth > MAX_DEPTH:
        raise BlockError(f"The frontmatter is nested deeper than {MAX_DEPTH} levels.")
    match value:
        case int() if value.bit_length() > MAX_INT_BITS:
            raise BlockError("The frontmatter holds a number that is too large.")
        case dict():
            for key, child in value.items():
                check_value(key, depth + 1)
                check_value(child, depth + 1)
        case list() | tuple() | set():
            for child in value:
                check_value(child, depth + 1)
