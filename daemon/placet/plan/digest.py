"""Say which bytes of a note a digest binds: without stamped keys, and without placet's box."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

from placet.note.box import without_box
from placet.note.frontmatter import split_note, without_keys, without_lines

# Keys of a request that the daemon writes. They are not part of what the person asked.
REQUEST_STAMPS = frozenset({"status", "trace_id"})


# Keys of a plan that change during its life. They are not part of the approved text.
PLAN_STAMPS = frozenset({
    "status", "approved_by", "approved_at", "rejected_by", "rejected_at", "rejection_reason",
    "reviewed_by", "reviewed_at", "decision", "title",
})  # fmt: skip


# Keys of a question that placet changes. The person writes `answer`.
QUESTION_STAMPS = frozenset({"status", "title"})


def digest(raw: bytes, without: Collection[str]) -> str:
    """Return the SHA-256, in hex, of `without_keys(raw, without)`."""
    return hashlib.sha256(without_keys(raw, without)).hexdigest()


def plan_text(raw: bytes) -> bytes:
    """Return the text that an approval of this plan binds, without PLAN_STAMPS and placet's box."""
    parts = split_note(raw)
    text = without_box(parts.body)
    if parts.problem or text == parts.body:
        return without_lines(raw, parts, PLAN_STAMPS)
    bare = raw[: len(raw) - len(parts.body.encode())] + text.encode()
    return without_lines(bare, replace(parts, body=text), PLAN_STAMPS)


def plan_digest(raw: bytes) -> str:
    """Return the SHA-256, in hex, of `plan_text(raw)`."""
    return hashlib.sha256(plan_text(raw)).hexdigest()
