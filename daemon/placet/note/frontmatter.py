"""Change keys in a note's frontmatter without changing any other byte.

A note belongs to the person who wrote it. placet has to write a few facts into it: a status, a
trace id, who approved it and when. The usual way is to load the frontmatter, change a dictionary
and dump it again. Dumping loses comments, quotes, the order of keys, blank lines, line ends and the
byte order mark. It turns `2024-01-01` or `on` into something else. It rewrites most real notes even
if nothing changed. Then a sync tool sees a conflict, and a digest no longer matches. So:

1. **A note is split, never parsed and printed.** `head + block + foot + body` is the decoded note,
   character by character. The block is the text between the fences: YAML between `---` lines or
   TOML between `+++` lines. It starts on the first line, after a byte order mark if there is one. A
   `---` at the top that opens no mapping (a horizontal rule) is text. Such a note has no
   frontmatter.
2. **A key is a range of characters.** `read_block` reads a block twice. First it reads the values,
   within limits that stop hostile input early. Then it reads the layout: the lines of each
   top-level key and the position of its value. A block without one key per line (braces, a
   duplicate, a dotted TOML key) has a `problem`, a sentence for its author. It is never edited.
3. **An edit replaces the characters of one value.** `stamp` writes a new value (`written`) over the
   old one and keeps its quotes. It appends a line to the block for a new key, or removes a line. It
   leaves a key alone that already has the value, so stamping twice changes nothing.
4. **Every edit is verified.** `stamp` reads the result again. The wanted keys must have their new
   values. Every other key must have its old value, compared by type too. The body must be the same.
   Without the lines of the wanted keys, the bytes before and after must be equal. Otherwise `stamp`
   raises UnsafeEdit. A surprise in YAML therefore costs a stamp, never a note.
5. **A digest leaves stamps out.** `without_keys` removes the whole lines of the keys that placet
   writes, and the block if it is then empty. `plan/digest.py` removes placet's box as well. So
   stamps never change the digest of what a person wrote. An approval binds the text, and a note
   that only placet has changed counts as unchanged.

python-frontmatter reads the notes that placet only reads (`parse_note`), through a handler that
keeps every character. It is never used for a note that placet edits.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, assert_never
from unicodedata import normalize

import frontmatter
import yaml
from frontmatter.default_handlers import YAMLHandler

# Only libyaml's loader will do. The pure Python one rejects `key:<tab>value`, accepts lone
# surrogates and is five times slower. PyYAML's wheels include libyaml. Without it this import
# fails, which is better than notes that mean different things on different machines.
from yaml import CSafeLoader
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from placet.errors import PlacetError
from placet.note.markdown import merge_line
from placet.note.yaml_errors import yaml_problem

# Longest frontmatter in characters, far above real ones. Hostile input of this size takes under a
# second.
MAX_BLOCK = 32 * 1024

# Deepest nesting. Libyaml takes 17 s for 65,000 open brackets, so reading stops before.
MAX_DEPTH = 50

# Most YAML nodes with all aliases expanded. Stops "billion laughs" before anything is built.
MAX_NODES = 50_000

# Python refuses to print integers of more than 4,300 digits.
MAX_INT_BITS = 4_096

NEWLINE = re.compile(r"\r\n|\n|\r")


class Frontmatter(StrEnum):
    """The format of a note's frontmatter."""

    NONE = "none"
    YAML = "yaml"
    TOML = "toml"


class BlockError(Exception):
    """Why a block cannot be edited. `broken` means that it violates the format's grammar."""

    def __init__(self, why: str, *, broken: bool = False) -> None:
        super().__init__(why)
        self.broken = broken


@dataclass(frozen=True, slots=True)
class KeyLines:
    """A top-level key: whole lines `start:end` of the block, its value `value_start:value_end`."""

    key: str
    start: int
    colon: int  # just after the `:` or `=`
    value_start: int
    value_end: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of keys in a block. A new key's line goes to `insert`."""

    entries: tuple[KeyLines, ...] = ()
    insert: int = 0
    indent: str = ""


def line_number(block: str, index: int) -> int:
    """Return the note's line, from 1, of an index in the block. The fence above is line 1."""
    return len(NEWLINE.findall(block, 0, index)) + 2


def check_value(value: Any, depth: int = 0) -> None:
    """Raise BlockError for a value that later code could not print, compare or walk."""
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


# tomllib takes 2.5 s for one key of 10,000 parts.
_DEEP_KEY = re.compile(rf"""(?<!["'\w-])(?:["'\w-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}""")

_LONG_NUMBER = re.compile(r"(?m)^[ \t]*([^=\n]*?)[ \t]*=[^\n\"']*?[0-9_]{4300}")


class UnresolvedMergeError(ValueError):
    """TOML that holds an unresolved merge of git."""


def read_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read TOML from outside.

    Raises ValueError, UnresolvedMergeError among them, or RecursionError for deep nesting.
    """
    if _DEEP_KEY.search(text):
        raise RecursionError
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except ValueError as error:
        if line := merge_line(text):
            raise UnresolvedMergeError(f"it holds an unresolved merge (at line {line})") from error
        found = _LONG_NUMBER.search(text)
        if found is None or isinstance(error, tomllib.TOMLDecodeError):
            raise
        line = text.count("\n", 0, found.end()) + 1
        why = f"{found[1]} has more than 4,300 digits (at line {line})"
        raise ValueError(why) from error


def toml_meta(block: str) -> dict[str, Any]:
    """Return the block's values. Raises BlockError."""
    try:
        # The extra line makes messages count lines as the note does.
        meta = read_toml("\n" + block)
    except RecursionError as error:
        raise BlockError(f"The frontmatter is nested deeper than {MAX_DEPTH} levels.") from error
    except ValueError as error:
        raise BlockError(f"The frontmatter is broken TOML: {error}.", broken=True) from error
    check_value(meta)
    return meta


def toml_layout(block: str) -> Layout:
    """Return where the keys above the first table are. Raises BlockError."""
    # Imported here, because it costs 3 MB and 50 ms and only TOML notes need it.
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


_COLON = re.compile(r"[ \t]*:(?=[ \t\r\n]|$)")

_REST_OF_VALUE_LINE = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True)
class _Node:
    """A key or value of the top mapping, the characters `start:end`.

    `text` is set for a scalar.
    """

    start: int
    end: int
    text: str | None = None


class _Loader(CSafeLoader):
    """Read impossible dates as text, and name the place of every other value that cannot be read.

    A key of the person's own with `2026-11-31` does not make the note unreadable.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        # PyYAML's constructors raise ValueError for 2026-13-45, KeyError for `!!bool x`,
        # IndexError for `!!int ""`, AttributeError for `!!timestamp x`.
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
            if node.tag == _TIMESTAMP and isinstance(error, ValueError):
                return node.value
            problem = f"it cannot be read as {node.tag.rpartition(':')[2]}"
            raise ConstructorError(None, None, problem, node.start_mark) from error


_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def yaml_meta(block: str) -> dict[str, Any] | None:
    """Return the top mapping, {} for an empty block, None for anything but a mapping.

    Raises BlockError.
    """
    try:
        _bound_yaml(block)
        loader = _Loader(block)
        try:
            root = loader.get_single_node()
            if root is None:
                return {}
            if not isinstance(root, yaml.MappingNode):
                return None
            _refuse_duplicates(block, root)
            loader.flatten_mapping(root)
            meta: dict[str, Any] = {}
            for key, value in root.value:
                if not isinstance(key, yaml.ScalarNode):
                    line = line_number(block, key.start_mark.index)
                    raise BlockError(f"The frontmatter has a key that is not text (line {line}).")
                meta[key.value] = loader.construct_document(value)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        at, what = yaml_problem(block, error)
        # The grammar is valid, but there is an unknown tag or a {{template}}.
        broken = not isinstance(error, ConstructorError)
        says = "is broken YAML" if broken else "holds a value that cannot be read"
        why = f"The frontmatter {says} at line {at + 2}{what}"
        raise BlockError(why, broken=broken) from error
    except ReaderError as error:
        line = block.encode()[: error.position].count(b"\n") + 2
        raise BlockError(
            f"The frontmatter is broken YAML at line {line}: {error.reason}.", broken=True
        ) from error
    check_value(meta)
    return meta


def _bound_yaml(block: str) -> None:
    """Raise BlockError for deep nesting, and for aliases that multiply or contain themselves."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []  # anchor and node count at its start
    count = 0
    for event in yaml.parse(block, Loader=CSafeLoader):
        match event:
            case yaml.CollectionStartEvent():
                open_nodes.append((event.anchor, count))
                count += 1
            case yaml.CollectionEndEvent():
                anchor, before = open_nodes.pop()
                if anchor is not None:
                    sizes[anchor] = count - before
            case yaml.AliasEvent(anchor=str(name)):
                if any(anchor == name for anchor, _ in open_nodes):
                    raise BlockError(f"The frontmatter's anchor '{name}' holds itself.")
                count += sizes.get(name, 1)
            case yaml.ScalarEvent():
                count += 1
        if len(open_nodes) > MAX_DEPTH:
            raise BlockError(f"The frontmatter is nested deeper than {MAX_DEPTH} levels.")
        if count > MAX_NODES:
            raise BlockError("The frontmatter's aliases stand for too much.")


def _refuse_duplicates(block: str, root: yaml.Node) -> None:
    """Raise BlockError for a duplicate key at any level. Programs differ on which one counts."""
    todo, seen = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = set[str]()
            for key, value in node.value:
                todo.append(value)
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        line = line_number(block, key.start_mark.index)
                        raise BlockError(
                            f"The frontmatter has the key '{key.value}' twice (line {line})."
                        )
                    keys.add(key.value)


def yaml_layout(block: str) -> Layout:
    """Return where the keys of a readable mapping are.

    Raises BlockError unless there is one key per line.
    """
    nodes, insert = _yaml_nodes(block)
    entries: list[KeyLines] = []
    for key, value in zip(nodes[::2], nodes[1::2], strict=True):
        start = max(block.rfind("\n", 0, key.start), block.rfind("\r", 0, key.start)) + 1
        colon = _COLON.match(block, key.end)
        value_end = max(value.end, colon.end()) if colon else value.end
        # A block scalar's end includes the empty lines after it. Those belong to what follows.
        value_end = max(len(block[:value_end].rstrip(" \t\r\n")), colon.end() if colon else 0)
        tail = _REST_OF_VALUE_LINE.match(block, value_end)
        if colon is None or tail is None or key.text is None or block[start : key.start].strip(" "):
            line = line_number(block, key.start)
            raise BlockError(
                f"The frontmatter is not written as one `key: value` a line (line {line})."
            )
        entries.append(
            KeyLines(
                key.text, start, colon.end(), min(value.start, value_end), value_end, tail.end()
            )
        )
    first = entries[0].start if entries else 0
    indent = block[first : nodes[0].start] if entries else ""
    return Layout(tuple(entries), insert, indent)


def _start(event: yaml.Event) -> int:
    assert event.start_mark is not None  # optional in the type only
    return event.start_mark.index


def _end(event: yaml.Event) -> int:
    assert event.end_mark is not None  # optional in the type only
    return event.end_mark.index


def _yaml_nodes(block: str) -> tuple[list[_Node], int]:
    """Return the keys and values of the top mapping in turn, and the index for a new line.

    That index is before a `...` line.
    """
    nodes: list[_Node] = []
    depth, start, end, insert = 0, 0, 0, len(block)
    for event in yaml.parse(block, Loader=CSafeLoader):
        here = _start(event)
        match event:
            case yaml.MappingStartEvent(flow_style=True) if depth == 0:
                raise BlockError("The frontmatter is in braces; write one `key: value` a line.")
            case yaml.CollectionStartEvent():
                if depth == 1:
                    start, end = here, _end(event)
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
                if _end(event) > here:  # `]` or `}`; a block's end mark is at the next token
                    end = _end(event)
                if depth == 1:
                    nodes.append(_Node(start, end))
            case yaml.ScalarEvent() | yaml.AliasEvent():
                end = _end(event)
                if depth == 1:
                    text = event.value if isinstance(event, yaml.ScalarEvent) else None
                    nodes.append(_Node(here, end, text))
            case yaml.DocumentEndEvent(explicit=True):
                insert = here
    return nodes, insert


BOM = "\ufeff"
FENCE = {Frontmatter.YAML: "---", Frontmatter.TOML: "+++"}
_LOOKS_LIKE_A_KEY = {
    Frontmatter.YAML: re.compile(r"""[ \t]*(?:["'][^"']{1,80}["']|[\w$][^:]{0,80}):(?=[ \t]|$)"""),
    Frontmatter.TOML: re.compile(
        r"""[ \t]*(?:["']?\w[^=]{0,80}=|\[{1,2}[\w."' -]+\]{1,2}[ \t]*(?=#|$))"""
    ),
}
# The lookbehind comes last: searching is five times faster if a pattern begins with text.
_CLOSING = {
    Frontmatter.YAML: re.compile(r"---(?<=[\r\n]---)[ \t]*+(?:\r\n|\n|\r|\Z)"),
    Frontmatter.TOML: re.compile(r"\+\+\+(?<=[\r\n]\+\+\+)[ \t]*+(?:\r\n|\n|\r|\Z)"),
}
_OPENING = {
    Frontmatter.YAML: re.compile(r"---[ \t]*+(?:\r\n|\n|\r|\Z)"),
    Frontmatter.TOML: re.compile(r"\+\+\+[ \t]*+(?:\r\n|\n|\r|\Z)"),
}


@dataclass(frozen=True, slots=True)
class NoteParts:
    """The parts of a note.

    `head + block + foot + body` is its text. The head includes the byte order mark.
    """

    kind: Frontmatter
    body: str
    head: str = ""
    block: str = ""
    foot: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    problem: str = ""


def split_note(raw: bytes) -> NoteParts:
    """Split a note into its parts. Never raises: errors are in `problem`."""
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
        return NoteParts(
            Frontmatter.NONE, text, problem="The note holds NUL bytes: it is not text."
        )
    bom, rest = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    for kind, opening in _OPENING.items():
        if opened := opening.match(rest):
            return _split(kind, bom, rest, opened.end())
    return NoteParts(Frontmatter.NONE, rest, head=bom)


def written_value(raw: bytes, key: str) -> str:
    """Return a key's value as its author wrote it, or "" if the layout does not have the key."""
    parts = split_note(raw)
    found = next((entry for entry in parts.layout.entries if entry.key == key), None)
    return "" if found is None else parts.block[found.value_start : found.value_end]


def _split(kind: Frontmatter, bom: str, rest: str, block_start: int) -> NoteParts:
    """Split frontmatter from body. A fence that opens no frontmatter is part of the body."""
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
    """Read a block. Return None if it is not frontmatter at all.

    Cached, because one look at a note reads it several times.
    """
    try:
        meta = yaml_meta(block) if kind is Frontmatter.YAML else toml_meta(block)
    except BlockError as error:
        if error.broken and not any(_LOOKS_LIKE_A_KEY[kind].match(line) for line in _lines(block)):
            return None
        return _FrontmatterBlock({}, Layout(), str(error))
    if meta is None:
        return None
    kept = MappingProxyType(meta)  # the cache shares it
    try:
        layout = yaml_layout(block) if kind is Frontmatter.YAML else toml_layout(block)
    except BlockError as error:
        return _FrontmatterBlock(kept, Layout(), str(error))
    return _FrontmatterBlock(kept, layout, "")


def _lines(text: str) -> Iterator[str]:
    """Yield lines without their ends.

    Unlike str.splitlines, do not split at U+2028, because people do not count that as a line.
    """
    start = 0
    for newline in NEWLINE.finditer(text):
        yield text[start : newline.start()]
        start = newline.end()
    if start < len(text):
        yield text[start:]


def _first_line_is_a_key(kind: Frontmatter, text: str) -> bool:
    """Return whether keys begin right below the fence, or below comments.

    A horizontal rule has an empty line there.
    """
    for line in _lines(text):
        if not line.lstrip().startswith("#"):
            return _LOOKS_LIKE_A_KEY[kind].match(line) is not None
    return False


Value = str | int | float | bool

# RFC 3339 in UTC, as the daemon writes times. Unquoted in both formats, so other programs see a
# time.
_UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)

_PLAIN = re.compile(r"\w[\w ,./@+()-]*")

# Booleans in YAML 1.1 but not in PyYAML, which knows yes, on and the others.
_BARE_BOOLEANS = frozenset({"y", "n"})


class UnsafeEdit(PlacetError, ValueError):  # noqa: N818  # names a state, not an error
    """The edit might change more than the requested keys.

    The message is a sentence for a person.
    """


def holds(meta: Mapping[str, Any], key: str, value: Value | None) -> bool:
    """Return whether `meta` already has this value.

    None means absent. A written UTC time equals its datetime.
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
    except ValueError:  # such as February 30
        return None


def written(kind: Frontmatter, value: Value, quote: str = "") -> str:
    """Return the value as the format writes it.

    `quote` is the old value's first character, to keep its quotes.
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
            # YAML 1.1 reads 1e-07 as text. With a point it is a number in both formats.
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
    if quote == "'" and visible and "'" not in text and "<%" not in text:
        return f"'{text}'"
    if quote != '"':
        if _utc_time(text):
            return text
        if kind is Frontmatter.YAML and visible and _is_plain(text):
            return text
    # JSON's escapes are also valid in YAML and TOML. Characters that are invisible or would be
    # folded are escaped too, and what begins a command of Templater.
    written = json.dumps(text, ensure_ascii=False).replace("<%", r"<\u0025")
    return "".join(c if c.isprintable() else _escaped(c) for c in written)


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


# Keys that name a file or a table. macOS and editors spell names differently (NFD, NFC).
NAMES = ("agent", "portal")


_NEW_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Note:
    """One note.

    `meta` holds the parsed keys, always as text: a key `on` or `2024` is `"on"`, `"2024"`. Values
    are as the format reads them: in YAML `12:30` is 750, `on` is True, a timestamp is a datetime.
    `body` is the text below the frontmatter, with its newlines unchanged. Undecodable bytes show as
    U+FFFD. `problem` is empty, or one sentence for a person that says why placet cannot read or
    edit the frontmatter. `stamp` refuses every such note. `meta` may have keys even then, if they
    can be read but not edited safely.
    """

    raw: bytes
    meta: Mapping[str, Any]
    body: str
    problem: str


def read_note(raw: bytes) -> Note:
    """Parse a note. Never raises: errors are in `problem`."""
    parts = split_note(raw)
    meta = parts.meta
    if not all(str(meta.get(key, "")).isascii() for key in NAMES):
        meta = {**meta, **{key: normalize("NFC", str(meta[key])) for key in NAMES if key in meta}}
    return Note(raw, meta, parts.body, parts.problem)


def stamp(
    raw: bytes, changes: Mapping[str, Value | None], *, kind_if_none: Frontmatter = Frontmatter.YAML
) -> bytes:
    """Return the note with these top-level keys set, or removed where the value is None.

    Every byte outside the lines of those keys stays. A key that already has the value is left
    alone, so stamping twice changes nothing. New keys go to the end of the block (in TOML: before
    the first table). A note without frontmatter gets a block of `kind_if_none` at the top, in the
    note's own newline style. Removing the last key removes the block again. A string that is an RFC
    3339 time in UTC (`2026-11-25T12:00:00Z`) is written as a time, without quotes unless it had
    them. It is then read back as an equal datetime.

    Raises UnsafeEdit if the note has a `problem`, or if the result would not differ in exactly
    these keys. Raises ValueError if `kind_if_none` is NONE and a block is needed.
    """
    before = split_note(raw)
    if before.problem:
        raise UnsafeEdit(before.problem)
    wanted = {key: value for key, value in changes.items() if not holds(before.meta, key, value)}
    if not wanted:
        return raw
    after_raw = _edited(before, wanted, kind_if_none)
    _prove(raw, before, after_raw, wanted)
    return after_raw


def parse_note(raw: bytes) -> tuple[Mapping[str, Any], str]:
    """Return the keys and the stripped text of a note that placet only reads.

    For notes that are neither stamped nor compared by digest. The keys are those of `read_note`.
    Never raises.
    """
    return frontmatter.parse("", handler=_FrontmatterHandler(split_note(raw)))


def new_note(meta: Mapping[str, Value], body: str, kind: Frontmatter = Frontmatter.YAML) -> bytes:
    """Return a new note: these keys in their order above the text, in its newline style.

    The result is what `stamp` makes of the bare text. Lone surrogates in the text are escaped.
    Raises UnsafeEdit for keys and values that cannot be written, and for a text that has
    frontmatter itself. Raises ValueError if `kind` is NONE.
    """
    raw = body.encode(errors="backslashreplace")
    if not meta:
        return raw
    bare = split_note(raw)
    if bare.problem or bare.kind is not Frontmatter.NONE:
        raise UnsafeEdit(bare.problem or "The text of a new note has frontmatter itself.")
    note = _edited(bare, meta, kind)
    _prove(raw, bare, note, meta)
    return note


def without_keys(raw: bytes, keys: Collection[str]) -> bytes:
    """Return the note's bytes without the whole lines of these top-level keys.

    Stamping these keys never changes the result. A block that becomes empty is removed too, so a
    note with only such keys gives the same bytes as the bare note. A note with a `problem` is
    returned whole.
    """
    return without_lines(raw, split_note(raw), keys)


class _FrontmatterHandler(YAMLHandler):
    """A handler of python-frontmatter for one note, with placet's limits and every character kept.

    The library strips a text and makes its line ends LF before it asks a handler to split it. A
    rule below an empty line would become a fence. So each note has its own handler, which splits
    the original text.
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
                raise UnsafeEdit(f"The frontmatter's key '{key}' does not have its own line.")
            new_lines += _new_line(parts, key, value)
        elif value is None:
            edits.append((entry.start, entry.end, ""))
        else:
            edits.append(_replacement(parts, entry, value))
    block = parts.block
    edits.append((parts.layout.insert, parts.layout.insert, new_lines))
    # from the end, so that earlier indexes stay valid
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
    """Return the style of the first newline. A lone CR counts only if there is no LF at all."""
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
        # There was no value, or it began on a line below.
        return entry.colon, entry.value_end, f" {new}"
    return entry.value_start, entry.value_end, new


def without_lines(raw: bytes, parts: NoteParts, keys: Collection[str]) -> bytes:
    """Return what `without_keys` does, of a note that is split already."""
    if parts.problem or parts.kind is Frontmatter.NONE:
        return raw
    block = parts.block
    for entry in reversed(parts.layout.entries):
        if entry.key in keys:
            block = block[: entry.start] + block[entry.end :]
    return raw if block and block == parts.block else _put_together(parts, block)


def _put_together(parts: NoteParts, block: str) -> bytes:
    """Return the note with this block, or without fences if the block is empty.

    The fences stay if the body alone would be read as frontmatter.
    """
    if not block:
        bom = BOM if parts.head.startswith(BOM) else ""
        bare = (bom + parts.body).encode()
        rest = split_note(bare)
        if rest.kind is Frontmatter.NONE and not rest.problem:
            return bare
    return f"{parts.head}{block}{parts.foot}{parts.body}".encode()


def _prove(
    raw: bytes, before: NoteParts, after_raw: bytes, wanted: Mapping[str, Value | None]
) -> None:
    """Raise UnsafeEdit unless exactly the wanted keys differ, in meaning and in bytes."""
    after = split_note(after_raw)
    same_rest = _printed(after.meta, wanted) == _printed(before.meta, wanted)
    as_wanted = all(holds(after.meta, key, value) for key, value in wanted.items())
    same_bytes = without_lines(after_raw, after, wanted) == without_lines(raw, before, wanted)
    if after.problem or after.body != before.body or not (same_rest and as_wanted and same_bytes):
        names = ", ".join(f"'{key}'" for key in wanted)
        raise UnsafeEdit(
            f"The frontmatter's {names} cannot be changed without changing something else."
        )


def _printed(meta: Mapping[str, Any], without: Collection[str]) -> dict[str, str]:
    """Return the values in a form that compares by type too. NaN equals itself in it."""
    return {key: repr(value) for key, value in meta.items() if key not in without}
