"""Single values as YAML and TOML write them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

import yaml
from yaml import CSafeLoader

from placet.core.text.blocks import (
    Frontmatter,
)
from placet.errors import PlacetError

# What a key can be stamped with.
Value = str | int | float | bool

# RFC 3339 in UTC, as the daemon writes times: plain in both formats, so other programs see a time.
_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)

_PLAIN = re.compile(r"\w[\w ,./@+()-]*")

# YAML 1.1 has them, PyYAML has not; it knows yes, on and the others
_BARE_BOOLEANS = frozenset({"y", "n"})


class UnsafeEdit(PlacetError):  # noqa: N818  # named for what it says, as `Stop` is
    """The edit cannot be proved to change only what was asked for.

    The message is a sentence for a person.
    """


def holds(meta: Mapping[str, Any], key: str, value: Value | None) -> bool:
    """Return whether `meta` already says so.

    None means absent, a written UTC time equals its datetime.
    """
    if value is None:
        return key not in meta
    if key not in meta:
        return False
    found = meta[key]
    if isinstance(value, str) and isinstance(found, datetime):
        return found == _utc_time(value)
    return type(found) is type(value) and found == value


def _utc_time(text: str) -> datetime | None:
    if not _UTC_TIME.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # the 30th of February
        return None


def written(kind: Frontmatter, value: Value, quote: str = "") -> str:
    """Return the value as the format writes it.

    `quote` is the old value's first character: quotes stay.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            if value.bit_length() > 63:
                raise UnsafeEdit("A number of more than 64 bits cannot be written to frontmatter.")
            return str(value)
        case float():
            if not math.isfinite(value):
                raise UnsafeEdit(f"{value} cannot be written to frontmatter.")
            mantissa, e, exponent = repr(value).partition("e")
            # YAML 1.1 takes 1e-07 for text; with a point it is a number in both formats.
            return f"{mantissa}{e and '.0' if '.' not in mantissa else ''}{e}{exponent}"
        case str():
            return _written_text(kind, value, quote)
    assert_never(value)


def _written_text(kind: Frontmatter, text: str, quote: str) -> str:
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise UnsafeEdit(
            "Text with half a character (a lone surrogate) cannot be written to frontmatter."
        )
    visible = text.isprintable()
    if quote == "'" and visible and "'" not in text:
        return f"'{text}'"
    if quote != '"':
        if _utc_time(text):
            return text
        if kind is Frontmatter.YAML and visible and _is_plain(text):
            return text
    # JSON's escapes are YAML's and TOML's too; what cannot be seen, or would be folded, is escaped
    # as well.
    return "".join(
        c if c.isprintable() else _escaped(c) for c in json.dumps(text, ensure_ascii=False)
    )


def _escaped(char: str) -> str:
    return f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else f"\\u{ord(char):04x}"


def _is_plain(text: str) -> bool:
    """Return whether YAML (1.1 and 1.2) reads the bare text as this very text."""
    if not _PLAIN.fullmatch(text) or text.endswith(" ") or text.lower() in _BARE_BOOLEANS:
        return False
    for number in (float, lambda s: int(s, 0)):
        try:
            number(text)
        except ValueError:
            continue
        return False
    node = yaml.compose(text, Loader=CSafeLoader)
    return (
        isinstance(node, yaml.ScalarNode)
        and node.tag == "tag:yaml.org,2002:str"
        and node.value == text
    )
