"""Frontmatter in YAML: reading it within limits, and finding its keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

# libyaml's loader, and no other: the pure Python one takes `key:<tab>value` for an error, lets lone
# surrogates in and is five times slower. PyYAML's wheels carry libyaml; without it this import
# fails, which is better than notes that mean one thing here and another there.
from yaml import CSafeLoader
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from placet.core.text.blocks import (
    MAX_DEPTH,
    MAX_NODES,
    BlockError,
    KeyLines,
    Layout,
    check_value,
    line_number,
)

_COLON = re.compile(r"[ \t]*:(?=[ \t\r\n]|$)")

_REST_OF_VALUE_LINE = re.compile(r"[ \t]*(?:(?<=[ \t])#[^\r\n]*)?(?:\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True)
class _Node:
    """A key or value of the top mapping, the characters `start:end`.

    `text` where it is a scalar.
    """

    start: int
    end: int
    text: str | None = None


def yaml_meta(block: str) -> dict[str, Any] | None:
    """Return the top mapping, {} for an empty block, None for what is no mapping.

    Raises BlockError.
    """
    try:
        _bound_yaml(block)
        loader = CSafeLoader(block)
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
                    raise BlockError(f"The frontmatter has a key that is no text (line {line}).")
                meta[key.value] = loader.construct_document(value)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"at line {line_number(block, mark.index)}" if mark else "somewhere"
        # good grammar, but an unknown tag, or {{a template}}
        if isinstance(error, ConstructorError):
            why = f"The frontmatter holds a value {where} that cannot be read: {error.problem}."
            raise BlockError(why) from error
        raise BlockError(
            f"The frontmatter is broken YAML {where}: {error.problem}.", broken=True
        ) from error
    except ReaderError as error:
        line = block.encode()[: error.position].count(b"\n") + 2
        raise BlockError(
            f"The frontmatter is broken YAML at line {line}: {error.reason}.", broken=True
        ) from error
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        OverflowError,
    ) as error:
        # PyYAML's constructors let these out: ValueError for 2026-13-45, KeyError for `!!bool x`,
        # IndexError for `!!int ""`, AttributeError for `!!timestamp x`.
        raise BlockError(
            f"The frontmatter holds a value that YAML cannot read: {error}."
        ) from error
    check_value(meta)
    return meta


def _bound_yaml(block: str) -> None:
    """Refuse deep nesting, and aliases that multiply or hold themselves."""
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
    """Refuse a key that a mapping has twice, at any level: programs differ on which one counts."""
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

    Raises BlockError unless they are one a line.
    """
    nodes, insert = _yaml_nodes(block)
    entries: list[KeyLines] = []
    for key, value in zip(nodes[::2], nodes[1::2], strict=True):
        start = max(block.rfind("\n", 0, key.start), block.rfind("\r", 0, key.start)) + 1
        colon = _COLON.match(block, key.end)
        value_end = max(value.end, colon.end()) if colon else value.end
        # A block scalar ends behind the empty lines that follow it; those stay with what comes
        # after.
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
    """Return keys and values of the top mapping in turn, and the place of a new line.

    That is before a `...` line.
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
                if _end(event) > here:  # `]` or `}`; a block's end is marked at whatever comes next
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
