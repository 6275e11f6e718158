"""Read a note: its case, its properties, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from placet.case.case import NoteSeen, Rejection
from placet.case.drift import KEY
from placet.note.box import find_box, without_box
from placet.note.escape import code
from placet.note.frontmatter import Frontmatter, Note, UnsafeEdit, read_note, stamp
from placet.note.markdown import merge_problem
from placet.note.meaning import meaning_of
from placet.note.paths import QUEUES, Folder, is_utf8
from placet.plan.digest import PLAN_STAMPS, QUESTION_STAMPS, REQUEST_STAMPS, digest, plan_digest
from placet.plan.limits import MAX_NOTE_CHARACTERS
from placet.plan.sections import rejection_reason

REQUEST_KEYS = ("agent", "portal", "priority", "complexity", "budget_usd")
"""The keys by which a request asks for something."""
_PLAN_KEYS = (
    "trace_id",
    "request_id",
    "revision",
    "agent",
    "portal",
    "complexity",
    "base_commit",
    KEY,
)
"""The keys of a plan on which an approval rests."""
ASKS = frozenset({"", "pending"})
"""`status` of a request that asks for a plan."""
_ENDS = frozenset({"completed", "rejected", "error"})
APPROVE, REJECT, REVISE = "approve", "reject", "revise"
"""What the property `decision` of a plan can say."""
DRAFT = "draft"
"""`status` of a request that is still being written: it is left alone, without a notice."""


def rejection_in(plan: NoteSeen, known: Rejection) -> Rejection:
    """Return the reason for a plan's rejection in its note: the property, and the section.

    A property that the daemon stamped is not your reason: `known` is what it stamped last.
    """
    own = str(plan.meta.get("rejection_reason") or "").strip()
    if own and own == known.reason.strip():
        own = known.own
    below = rejection_reason(body_of(plan.raw))
    reasons = [words for words in (own, below) if words]
    if own and below:
        reasons = [below] if own in below else [own] if below in own else reasons
    return Rejection("\n\n".join(reasons), own)


def decision_of(plan: NoteSeen) -> str:
    """Return a plan's property `decision`, in lower case, or an empty string."""
    return decision_in(plan.meta)


def decision_in(meta: Mapping[str, Any]) -> str:
    """Return what these properties of a note decide, in lower case, or an empty string."""
    return str(meta.get("decision") or "").strip().lower()


def in_capitals(meta: Mapping[str, Any], *keys: str) -> str:
    """Return why a key written with capitals has no effect, or an empty string."""
    for key, value in meta.items():
        if value not in (None, "") and key not in keys and str(key).lower() in keys:
            return f"`{key}` has no effect: write this key in small letters, `{key.lower()}`."
    return ""


def not_a_word(meta: Mapping[str, Any], *keys: str) -> str:
    """Return why a key with a list has no effect, and what to write; or an empty string.

    Obsidian stores a property as a list if its type is "list".
    """
    for key in keys:
        if (value := meta.get(key)) and isinstance(value, list | dict):
            while isinstance(value, list) and len(value) == 1:
                value = value[0]
            kind = "map" if isinstance(meta[key], dict) else "list"
            such = f": {code(f'{key}: {value}')}" if isinstance(value, str) else ""
            return f"`{key}` is a {kind}. Write one word{such}."
    return ""


def body_of(raw: bytes) -> str:
    """Return a note's text below the frontmatter and placet's box."""
    return without_box(read_note(raw).body)


MAX_PLAN_BYTES = 2 * MAX_NOTE_CHARACTERS  # with properties and comments, in any script
NOT_UTF8 = (
    "The name of this file is not UTF-8, so it cannot be told from others for sure. Rename it."
)
_WRITTEN_AT = ("asked_at", "created_at", "completed_at", "failed_at")
_TRACE = re.compile(
    rb"trace_id[\"']?\s*[:=]\s*[\"']?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)

_ASKED_AT = re.compile(rb"(?m)^[\"']?asked_at[\"']?[ \t]*[:=]")
_REVISION = re.compile(rb"(?m)^[\"']?revision[\"']?[ \t]*[:=]")


def trace_of(raw: bytes) -> str:
    """Return a note's trace_id, empty if it is missing or invalid."""
    trace_id = _trace_property(read_note(raw))
    try:
        return str(UUID(trace_id)) if trace_id else ""
    except ValueError:
        return ""


def moment_text(value: object) -> str:
    """Return what a note says in `approved_at`, as a case keeps it: any words may stand there."""
    # YAML and TOML read a stamp as a datetime
    return value.isoformat() if isinstance(value, datetime) else str(value)


def same_moment(value: object, known: str) -> bool:
    """Return whether a note's property means this time; other words equal themselves."""
    if value is None:
        return False
    try:
        at, then = (datetime.fromisoformat(text) for text in (moment_text(value), known))
    except ValueError:
        return moment_text(value) == known
    return at == then


def note_identity(raw: bytes) -> tuple[str, ...] | None:
    """Return what tells a note of the daemon's from all others, None for any other note.

    That is its trace_id, its revision and when it was written, whatever a person changes in it.
    """
    meta, trace = read_note(raw).meta, trace_of(raw)
    written = next((meta[key] for key in _WRITTEN_AT if meta.get(key) is not None), None)
    known = trace, str(meta.get("revision") or ""), str(written)
    return known if trace and written is not None else None


def keeps_status(raw: bytes, changes: Mapping[str, object]) -> bool:
    """Return whether a request's own `status` stays where these keys are to be written.

    A draft is being written until its writer says that it is ready. Who sets a request to pending
    just as its case ends, before that is written into it, wants a new plan.
    """
    meta = read_note(raw).meta
    status = str(meta.get("status") or "").strip().lower()
    asks = status == "pending" and changes.get("status") in _ENDS
    return "revision" not in meta and (status == DRAFT or asks)


def _trace_property(note: Note) -> str:
    trace_id = str(note.meta.get("trace_id") or "")
    if note.problem and not trace_id and (hint := _TRACE.search(note.raw[:4096])):
        return hint[1].decode()
    return trace_id


def _asked(raw: bytes) -> bool:
    """Return whether unreadable frontmatter is that of a note in which something is asked."""
    head = raw[:4096].partition(b"\n---")[0]
    return _ASKED_AT.search(head) is not None and _REVISION.search(head) is None


def inspect_note(path: str, raw: bytes, owner: str = "") -> NoteSeen:
    """Return the note at `path` with its keys, and its problem if it has one.

    A note whose frontmatter cannot be read still belongs to the case whose trace_id is in it: a
    typo never means that the plan was taken away.
    """
    note = read_note(raw)
    folder = next(f for f in QUEUES if path.startswith(f"{f}/"))
    meta = note.meta
    merge = merge_problem(raw.decode(errors="replace")) if b"<<<<<<<" in raw else ""
    problem = (merge or note.problem) if is_utf8(path) else NOT_UTF8
    if len(raw) > MAX_PLAN_BYTES and folder is not Folder.REQUESTS:
        problem = problem or (
            f"It is {len(raw):,} bytes long, and placet reads plans of at most {MAX_PLAN_BYTES:,}. "
            "Shorten it, or delete it and ask for several smaller ones."
        )
    claimed, trace_id = _trace_property(note), trace_of(raw)
    if claimed and not trace_id:
        problem = (
            problem
            or f"`trace_id: {claimed[:60]}` is not a trace id. Remove the line; "
            "placet writes its own."
        )
    is_plan = "request_id" in meta and "revision" in meta
    asked = {"asked_at", "request_id"} <= meta.keys() or (bool(note.problem) and _asked(raw))
    lost = folder is Folder.QUESTIONS and not trace_id
    # a note in the requests folder is a request, whatever it was before
    elsewhere = not is_plan and folder is not Folder.REQUESTS
    asks = elsewhere and (lost or asked)
    of_plan = is_plan or (asks and "amendment" in meta)
    stamps = PLAN_STAMPS if of_plan else QUESTION_STAMPS if asks else REQUEST_STAMPS
    if not problem:
        # a note that cannot be stamped would ask for the same thing again and again
        try:
            other = {key: "y" if meta.get(key) == "x" else "x" for key in sorted(stamps)}
            stamped = stamp(raw, other, kind_if_none=Frontmatter.YAML)
            if of_plan:  # an approval's keys are removed, too
                stamp(stamped, dict.fromkeys(other))
        except UnsafeEdit as error:
            problem = str(error)
    return NoteSeen(
        path,
        folder,
        raw,
        plan_digest(raw) if of_plan else digest(raw, stamps),
        owner,
        trace_id,
        str(meta.get("status") or "").strip().lower(),
        is_plan,
        asks,
        meta,
        problem,
        box.lines if is_plan and (box := find_box(note.body)) is not None else (),
        plan_meaning(raw) if of_plan else meaning_of(raw, REQUEST_KEYS),
    )


def digest_of(path: str, raw: bytes) -> str:
    """Return the digest of the note at `path`, without the keys that the daemon stamps."""
    return inspect_note(path, raw).digest


def plan_meaning(raw: bytes) -> str:
    """Return what a plan's note means: its text and the keys that placet reads in it."""
    return meaning_of(raw, _PLAN_KEYS)
