"""Decisions on plans without a case, and on missions that only a report tells of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placet.core.activity import Action, Actor, Entity
from placet.core.life.builder import DecisionBuilder, cleared_decision, plan_path
from placet.core.life.case import Case, KnownPlan, NoteSeen, Request, State
from placet.core.life.commands import Decision, Move
from placet.core.life.plan_note import HOW_TO_REVIEW, WHERE, settled, with_marks
from placet.core.life.sight import moment_text
from placet.core.text.box import find_box
from placet.core.text.names import Folder
from placet.core.text.note import plan_digest, plan_text, read_note
from placet.core.turn.mission import KeptOutcome

_MOST_REVISIONS = 10_000
"""A larger number in a plan was written by no daemon."""


def adopt_plan(
    note: NoteSeen, request: NoteSeen | None, now: str, copies: Sequence[NoteSeen] = ()
) -> Decision:
    """Take up a plan whose case the journal does not know; it awaits review.

    The journal was lost, or is another's. `request` is the note with the same trace_id, if there is
    one. Nothing is approved by this: an approval that is stamped on the plan counts as used up, as
    nobody can say whether this text was approved and what was done with it. A plan in System/Active
    goes back to Inbox/Plans, and the `copies` of it there too.
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
    if (distrusted := distrust(case, note, now)) is not None:
        case = distrusted.case
    raw = settled(note.raw, case, note.path)
    note = replace(note, raw=raw, digest=plan_digest(raw))
    d = DecisionBuilder(case, State.REVIEW, now)
    d.set_plan(digest=note.digest)
    d.learn_request(request, note)
    d.text(plan_text(note.raw))
    if note.folder is Folder.ACTIVE:
        why = " ".join(
            [
                "The journal does not know this plan: it was put together elsewhere, or given "
                "before the journal was lost.",
                "So nobody can say that a person has read and approved it.",
                *HOW_TO_REVIEW,
            ]
        )
        d.put_back(note, "Found in System/Active", why)
    elif cleared := cleared_decision(note):  # nobody knows for which text it was meant
        d.stamp_plan(note, cleared)
    d.commands += [Move(copy.path, plan_path(d.case)) for copy in copies]
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


def distrust(case: Case, note: NoteSeen, now: str) -> Decision | None:
    """Use up the approval stamped on a plan of which the case knows nothing.

    The journal was put back from a backup. None for a plan without one, or a case that is past it.
    """
    moment = note.meta.get("approved_at")
    if case.state is not State.REVIEW or moment is None:
        return None
    d = DecisionBuilder(case, case.state, now)
    d.spend_approval(moment_text(moment))
    return d.done()


def adopt_outcome(case: Case | None, outcome: KeptOutcome, now: str) -> Decision | None:
    """Take up the end of a mission from its report, None for one that the journal knows.

    `case` is the journal's case of its trace. A report that is older than the case's last change
    tells nothing new: the case went on after it.
    """
    known_already = case is not None and (
        case.outcome.report_path == outcome.report_path or outcome.ended_at <= case.since
    )
    if not outcome.report_path or known_already:
        return None
    to = State.COMPLETED if outcome.completed else State.FAILED
    known = case or Case(
        outcome.trace_id,
        outcome.request_id,
        to,
        request=Request(title=outcome.title, agent=outcome.agent, portal=outcome.portal),
        since=outcome.ended_at,
        plan=KnownPlan(revision=1),
    )
    d = DecisionBuilder(known, to, now)
    d.void_work()
    d.spend_approval()
    last = replace(
        known.outcome,
        failure="" if outcome.completed else f"see {outcome.report_path}",
        report_path=outcome.report_path,
        branch=outcome.branch,
        base=outcome.base,
        tip=outcome.tip,
        became=outcome.became,
    )
    d.set(
        outcome=last,
        request=replace(known.request, portal=outcome.portal or known.request.portal),
        stop="",
        asking=None,
        since=outcome.ended_at,
    )
    if outcome.completed:  # both were archived at the end
        d.set(request_path="")
        d.set_plan(path="")
    d.row(
        Action.MISSION_ADOPTED,
        Entity.MISSION,
        Actor.SYSTEM,
        report=outcome.report_path,
        branch=outcome.branch,
        commit=outcome.tip,
        completed=outcome.completed,
    )
    return d.done()


def _place_lines(raw: bytes) -> list[str]:
    """Return the box's line about the branch and its commit, which only the lost journal knew."""
    box = find_box(read_note(raw).body)
    return [] if box is None else [line for line in box.lines if line.startswith(f"> {WHERE}")]


def _title(raw: bytes) -> str:
    lines = (line for line in read_note(raw).body.splitlines() if line.startswith("# "))
    return next(lines, "")[2:].strip()
