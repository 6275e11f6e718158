"""Decisions on plans and approvals of which the journal has no record."""

from __future__ import annotations

from dataclasses import replace

from placet.activity import Action, Actor, Entity
from placet.case.approval import NO_RECORD
from placet.case.callout import HOW_TO_REVIEW, WHERE, settled, with_marks
from placet.case.case import Approval, Case, KnownPlan, NoteSeen, Request, State
from placet.case.commands import Decision
from placet.case.decision import DecisionBuilder, cleared_decision
from placet.note.box import find_box
from placet.note.frontmatter import plan_digest, plan_text, read_note
from placet.note.paths import Folder

_MOST_REVISIONS = 10_000
"""A larger number in a plan was written by no daemon."""


def adopt_plan(note: NoteSeen, request: NoteSeen | None, now: str) -> Decision:
    """Open a case in review for a plan that the journal does not know.

    `request` is the note with the same trace_id, if there is one. A plan in System/Active goes back
    to Inbox/Plans.
    """
    meta = note.meta
    revision = meta.get("revision")
    case = Case(
        note.trace_id,
        str(meta.get("request_id") or ""),
        State.REVIEW,
        plan=KnownPlan(
            path=note.path,
            digest=note.digest,
            box=with_marks("", _place_lines(note.raw)),
            revision=revision if type(revision) is int and 0 < revision <= _MOST_REVISIONS else 1,
        ),
        request=Request(
            title=_title(note.raw),
            agent=str(meta.get("agent") or ""),
            portal=str(meta.get("portal") or ""),
        ),
        since=now,
    )
    raw = settled(note.raw, case, note.path)
    note = replace(note, raw=raw, digest=plan_digest(raw))
    d = DecisionBuilder(case, State.REVIEW, now)
    d.set_plan(digest=note.digest)
    d.learn_request(request, note)
    d.text(plan_text(note.raw))
    if note.folder is Folder.ACTIVE:
        d.put_back(note, "Not approved", " ".join([NO_RECORD, *HOW_TO_REVIEW]))
    elif cleared := cleared_decision(note):  # nobody knows for which text it was meant
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
    """Void an approval in a journal that was put back: nobody knows what became of it since."""
    d = DecisionBuilder(case, State.REVIEW, now)
    d.void_work()
    d.set(approval=Approval(level=case.approval.level), stop="")
    return d.done()


def _place_lines(raw: bytes) -> list[str]:
    """Return the box's line about the branch and its commit, which only the lost journal knew."""
    box = find_box(read_note(raw).body)
    return [] if box is None else [line for line in box.lines if line.startswith(f"> {WHERE}")]


def _title(raw: bytes) -> str:
    lines = (line for line in read_note(raw).body.splitlines() if line.startswith("# "))
    return next(lines, "")[2:].strip()
