"""Compare stamps in YAML with those of `yaml-edit`, another editor that keeps formatting."""

from __future__ import annotations

import yaml
from yaml_edit import Document, ScalarValue, YamlError

from corpus import corpus
from placet.note.frontmatter import Frontmatter, UnsafeEdit, split_note, stamp

TRACE_ID = "550e8400-e29b-41d4-a716-446655440000"
CHANGES = (
    {"status": "planned"},
    {"approved_at": "2026-11-26T00:00:00Z"},
    {"status": "planned", "trace_id": TRACE_ID},
)
KEPT_BY_PLACET_ALONE = {
    "status flow list": "the comment behind a value of two lines",
    "status block scalar": "the blank line below a block scalar",
    "status folded, keep": "the blank lines below a folded scalar",
    "trailing spaces": "spaces behind a value",
}
"""Notes of the corpus in which `yaml-edit` loses more than the old value."""


def by_oracle(block: str, changes: dict[str, str]) -> str | None:
    """Return the block as `yaml-edit` changes it, in the quotes that were there.

    None where it cannot: a comment that stands alone, and the end of a line that it has to guess.
    """
    try:
        document = Document.parse(block)
    except YamlError:
        return None
    for key, value in changes.items():
        node = document.get(key)
        scalar = node.as_scalar() if node is not None else None
        style = scalar.style() if scalar is not None else "plain"
        if scalar is None and "\r" in block and (not block.strip() or node is not None):
            return None
        document[key] = ScalarValue(value, style if style.endswith("quoted") else "plain")
    return str(document)


def test_yaml_edit_stamps_the_same_bytes() -> None:
    compared, differ = 0, set()
    for note in corpus():
        block = split_note(note.raw)
        if not note.editable or block.kind is not Frontmatter.YAML or not block.block:
            continue
        for changes in CHANGES:
            try:
                ours = split_note(stamp(note.raw, changes)).block
            except UnsafeEdit:
                continue
            theirs = by_oracle(block.block, changes)
            if theirs is None:
                continue
            compared += 1
            if theirs != ours:
                differ.add(note.name)
                assert yaml.safe_load(theirs) == yaml.safe_load(ours), note.name
    assert compared > 750
    assert differ == set(KEPT_BY_PLACET_ALONE)
