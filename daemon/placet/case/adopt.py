"""Adopt plans that the journal does not know, and distrust approvals after it was lost."""

from __future__ import annotations

from dataclasses import replace

from placet.activity import Action, Actor, Entity
from placet.case.approval import NO_RECORD
from placet.case.callout import (
    HOW_TO_REVIEW,
    WHERE,
    box_edits_to_text,
    how_to_approve,
    with_marks,
)
from placet.case.case import Approval, Case, KnownPlan, NoteSeen, Request
from placet.case.commands import Decision
from placet.case.decision_builder import DecisionBuilder, cleared_decision
from placet.case.life_cycle import State
from placet.case.notes import plan_meaning
from placet.case.request import title_of
from placet.note.box import find_box
from placet.note.frontmatter import read_note
from placet.note.paths import Folder
from placet.plan.digest import plan_digest, plan_text

_MOST_REVISIONS = 10_000
"""A larger number in a plan was written by no daemon."""


def adopt_plan(note: NoteSeen, request: NoteSeen | None, now: str) -> Decision:
    """Open a case in review for a plan that the journal does not know.

    `request` is the note with the same trace_id, if there is one. A plan in System/Active goes back
    to Inbox/Plans.
    """
    meta = note.meta
    revision = meta.get("revision")
    asked = Request(
        title=title_of(note.path, read_note(note.raw).body),
        agent=str(meta.get("agent") or ""),
        portal=str(meta.get("portal") or ""),
    )
    case = Case(
        note.trace_id,
        str(meta.get("request_id") or ""),
        State.REVIEW,
        plan=KnownPlan(
            path=note.path,
            digest=note.digest,
            box=with_marks("", _place_lines(note.raw)),
            revision=revision if type(revision) is int and 0 < revision <= _MOST_REVISIONS else 1,
            keys=asked.keys,
        ),
        request=asked,
        since=now,
    )
    raw = box_edits_to_text(note.raw, case, note.path)
    note = replace(note, raw=raw, digest=plan_digest(raw), meaning=plan_meaning(raw))
    d = DecisionBuilder(case, State.REVIEW, now)
    d.set_plan(digest=note.digest)
    if request is not None:
        d.keep_request(request)
    else:  # a revision starts from the plan's
        d.set(request_digest=d.text(note.raw))
    d.text(plan_text(note.raw))
    if note.folder is Folder.ACTIVE:
        how = how_to_approve(d.case, HOW_TO_REVIEW)
        d.return_plan(note, "Not approved", " ".join([NO_RECORD, *how]))
    elif cleared := cleared_decision(note):  # it is unknown for which text it was meant
        d.stamp_plan(note, cleared)
    path = d.case.plan.path
    d.row(
        Action.PLAN_ADOPTED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=note.digest,
        path=path,
        found=note.path,
    )
    return d.done()


def distrust(case: Case, now: str) -> Decision:
    """Void an approval in a restored journal: what happened since is unknown."""
    d = DecisionBuilder(case, State.REVIEW, now)
    d.void_work()
    d.set(approval=Approval(level=case.approval.level), signed=(), stop="")
    return d.done()


def _place_lines(raw: bytes) -> list[str]:
    """Return the box's line about the branch and its commit, which only the lost journal knew."""
    box = find_box(read_note(raw).body)
    return [] if box is None else [line for line in box.lines if line.startswith(f"> {WHERE}")]
