"""Frontmatter in TOML: reading it within limits, and finding its keys."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from placet.core.text.blocks import (
    MAX_DEPTH,
    BlockError,
    KeyLines,
    Layout,
    check_value,
    line_number,
)

# More dots in one TOML key than levels are read: tomllib takes 2.5 s for a key of 10,000 parts.
_DEEP_KEY = re.compile(rf"""(?<!["'\w-])(?:["'\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}""")


def toml_meta(block: str) -> dict[str, Any]:
    """Return what the block says. Raises BlockError."""
    if _DEEP_KEY.search(block):
        raise BlockError(f"The frontmatter is nested deeper than {MAX_DEPTH} levels.")
    try:
        # one line more, so that messages count lines as the note does
        meta = tomllib.loads("\n" + block)
    except RecursionError as error:
        raise BlockError(f"The frontmatter is nested deeper than {MAX_DEPTH} levels.") from error
    except tomllib.TOMLDecodeError as error:
        raise BlockError(f"The frontmatter is broken TOML: {error}.", broken=True) from error
    except ValueError as error:  # a number of more than 4,300 digits, a date that does not exist
        raise BlockError(
            f"The frontmatter holds a value that TOML cannot read: {error}."
        ) from error
    check_value(meta)
    return meta


def toml_layout(block: str) -> Layout:
    """Return where the keys above the first table are. Raises BlockError."""
    # Only a note in TOML needs it; it costs 3 MB and 50 ms.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import AoT, Table

    try:
        body = tomlkit.parse(block).body
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise BlockError(f"The frontmatter is TOML that cannot be edited: {error}.") from error
    entries: list[KeyLines] = []
    at, insert = 0, len(block)
    for key, item in body:
        if key is None:
            at += len(item.as_string())
            continue
        if key.is_dotted():
            raise BlockError(
                "The frontmatter has dotted keys outside tables; write them as a `[table]`."
            )
        if isinstance(item, Table | AoT):
            insert = entries[-1].end if entries else 0
            break
        name = f"{item.trivia.indent}{key.as_string()}{key.sep}"
        value = item.as_string()
        tail = f"{item.trivia.comment_ws}{item.trivia.comment}{item.trivia.trail}"
        value_start = at + len(name)
        value_end = value_start + len(value)
        end = value_end + len(tail)
        if block[at:end] != name + value + tail:
            line = line_number(block, at)
            raise BlockError(f"The frontmatter is TOML that cannot be edited (line {line}).")
        entries.append(KeyLines(key.key, at, value_start, value_start, value_end, end))
        at = end
    return Layout(tuple(entries), insert)
