"""A note as it is seen: its owner's trace_id, its keys, its problem."""

from __future__ import annotations

import re
from uuid import UUID

from placet.core.life.case import NoteSeen
from placet.core.text.blocks import Frontmatter
from placet.core.text.comments import rejection_reason
from placet.core.text.names import QUEUES, Folder, is_utf8
from placet.core.text.note import PLAN_STAMPS, REQUEST_STAMPS, Note, digest, read_note, stamp
from placet.core.text.plan_reader import MAX_PLAN_CHARACTERS
from placet.core.text.scalars import UnsafeEdit

ASKS = frozenset({"", "pending"})
"""`status` of a request that asks for a plan."""
DRAFT = "draft"
"""`status` of a request that is still being written: it is left alone, without a notice."""


def reason_of(plan: NoteSeen) -> str:
    """Return the reason for a plan's rejection in its note, or an empty string."""
    return str(plan.meta.get("rejection_reason") or "") or rejection_reason(body_of(plan.raw))


def body_of(raw: bytes) -> str:
    """Return a note's text below the frontmatter."""
    return read_note(raw).body


MAX_PLAN_BYTES = 2 * MAX_PLAN_CHARACTERS  # with properties and comments, in any script
NOT_UTF8 = (
    "The name of this file is not UTF-8, so it cannot be told from others for sure. Rename it."
)
_TRACE = re.compile(
    rb"trace_id[\"']?\s*[:=]\s*[\"']?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


def trace_of(raw: bytes) -> str:
    """Return the trace_id that a note has, empty for none or an invalid one."""
    said = _trace_said(read_note(raw))
    try:
        return str(UUID(said)) if said else ""
    except ValueError:
        return ""


def is_draft(raw: bytes) -> bool:
    """Return whether a note is a request with `status: draft`."""
    meta = read_note(raw).meta
    return "revision" not in meta and str(meta.get("status") or "").strip().lower() == DRAFT


def _trace_said(note: Note) -> str:
    said = str(note.meta.get("trace_id") or "")
    if note.problem and not said and (hint := _TRACE.search(note.raw[:4096])):
        return hint[1].decode()
    return said


def look_at(path: str, raw: bytes, owner: str) -> NoteSeen:
    """Return the note at `path` with its keys, and its problem if it has one.

    A note whose frontmatter cannot be read still belongs to the case whose trace_id is in it: a
    typo never means that the plan was taken away.
    """
    note = read_note(raw)
    folder = next(f for f in QUEUES if path.startswith(f"{f}/"))
    meta = note.meta
    problem = note.problem if is_utf8(path) else NOT_UTF8
    if len(raw) > MAX_PLAN_BYTES and folder is not Folder.REQUESTS:
        problem = problem or (
            f"It is {len(raw):,} bytes long, and no more than {MAX_PLAN_BYTES:,} of a plan are "
            "read. Shorten it, or delete it and ask for several smaller ones."
        )
    said, trace_id = _trace_said(note), trace_of(raw)
    if said and not trace_id:
        problem = (
            problem
            or f"`trace_id: {said[:60]}` is not a trace id. Remove the line; placet writes its own."
        )
    is_plan = "request_id" in meta and "revision" in meta
    stamps = PLAN_STAMPS if is_plan else REQUEST_STAMPS
    if not problem:
        # a note that cannot be stamped would ask for the same thing again and again
        try:
            stamp(raw, dict.fromkeys(sorted(stamps), "x"), kind_if_none=Frontmatter.YAML)
        except UnsafeEdit as error:
            problem = str(error)
    return NoteSeen(
        path,
        folder,
        raw,
        digest(raw, stamps),
        owner,
        trace_id,
        str(meta.get("status") or "").strip().lower(),
        is_plan,
        meta,
        problem,
    )
