"""Decide on questions and on wider scopes for a running mission.

The call that asked gets the answer: the loop records its outcome together with the decision. The
work then resumes from its record, as after any stop.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from placet.activity import Action, Actor, Entity
from placet.case.case import Approval, Asking
from placet.case.commands import Move, Publish, Stamp
from placet.case.decision_builder import DecisionBuilder, archived_question, value_of
from placet.case.events import Answered, Answering, Asked, ScopeRefused, ScopeWidened
from placet.case.life_cycle import State
from placet.case.notes import body_of, plan_meaning
from placet.case.question_note import amendment_note, question_note, shown_digest, with_scope
from placet.codec import sha256
from placet.note.paths import Folder, amendment_name, question_name
from placet.plan.digest import QUESTION_STAMPS, digest, plan_text
from placet.plan.parse import parse_plan
from placet.plan.scope import Scope, widened
from placet.wording import rfc3339

ANSWERS_KEPT = 50
"""How many answers a case remembers. Older ones are dropped."""


def asked(d: DecisionBuilder, e: Asked) -> None:
    """Put a question, or a request for a wider scope, before a person; the work waits for it."""
    if e.wider is None:
        _question(d, e, d.was)
    else:
        _amendment(d, e, e.wider)


def _question(d: DecisionBuilder, e: Asked, work: State) -> None:
    number = d.case.asked + 1
    path = f"{Folder.QUESTIONS}/{question_name(d.case.request_id, number)}"
    at = _moment(d)
    note = question_note(d.case, e, work, at)
    kept = digest(note, QUESTION_STAMPS)
    asking = Asking(work, e.call, path, kept, at, number, e.options, question=e.question)
    d.set(asked=number, asking=asking)
    d.row(
        Action.QUESTION_ASKED,
        Entity.PLAN if work is not State.RUNNING else Entity.MISSION,
        Actor.AGENT,
        number=number,
        path=path,
        digest=kept,
        size=len(note),
        options=len(e.options),
    )
    d.commands.append(Publish(path, d.text(note)))


def _moment(d: DecisionBuilder) -> str:
    """Return when a note asks: after any other of the case, as that tells them apart."""
    at, last = d.now, d.case.last_asked
    if at <= last:
        at = rfc3339(datetime.fromisoformat(last) + timedelta(milliseconds=1))
    d.set(last_asked=at)
    return at


def _amendment(d: DecisionBuilder, e: Asked, wider: Scope) -> None:
    number = d.case.amendments + 1
    path = f"{Folder.PLANS}/{amendment_name(d.case.request_id, number)}"
    approved, first = parse_plan(body_of(e.approved)), parse_plan(body_of(e.first))
    scope = widened(approved.scope, wider)
    at = _moment(d)
    note = amendment_note(d.case, e, first.scope, scope, number, at)
    amended = d.text(_amended(e.approved, scope))
    asking = Asking(State.RUNNING, e.call, path, shown_digest(note), at, number, amended=amended)
    d.set(amendments=number, asking=asking)
    d.row(
        Action.PLAN_AMENDMENT_REQUESTED,
        Entity.PLAN,
        Actor.AGENT,
        number=number,
        path=path,
        digest=amended,
        write=list(wider.write),
        run=list(wider.commands),
        network=wider.network,
        hosts=[str(host) for host in wider.hosts],
    )
    d.commands.append(Publish(path, d.text(note)))


def _amended(plan: bytes, scope: Scope) -> bytes:
    """Return a plan's text with another scope."""
    body = body_of(plan)
    text = plan_text(plan)
    return text[: len(text) - len(body.encode())] + with_scope(body, scope).encode()


def answered(d: DecisionBuilder, g: Answered) -> None:
    """Take an answer, or that a person took the question away: a fact for all later work."""
    asking = _closed(d, g, "answered" if g.note is not None else "")
    sentence = (
        f"{g.person.who} answered:\n{g.text}" if g.note is not None else "It was not answered."
    )
    fact = d.text(f"Question: {asking.question}\n{sentence}\n".encode(errors="replace"))
    d.set(answers=(*d.case.answers[1 - ANSWERS_KEPT :], fact))
    d.by_human(
        Action.QUESTION_ANSWERED,
        Entity.PLAN if asking.work is not State.RUNNING else Entity.MISSION,
        g.person,
        number=asking.number,
        chosen=g.chosen,
        digest=sha256(g.text.encode()),
        size=len(g.text.encode()),
        taken_away=g.note is None,
    )


def scope_widened(d: DecisionBuilder, g: ScopeWidened) -> None:
    """Approve the plan with the wider scope: one new digest, that of the amended text."""
    asking = _closed(d, g, "approved")
    former, plan, person = d.case.approval, g.plan, g.person
    before = former.digest
    signed = d.case.signed
    d.spend_approval()
    # a weaker box was not shown: the mission waits for the former one
    level = max(former.level, g.level)
    meaning = plan_meaning(g.written)
    by = person.who if g.signed is None else g.signed.signer
    d.set(approval=Approval(asking.amended, by, d.now, level, meaning), signed=signed)
    if d.case.plan.digest == before:  # no person edited it
        d.set_plan(digest=asking.amended)
    d.by_human(
        Action.PLAN_AMENDED,
        Entity.PLAN,
        person,
        number=asking.number,
        digest=asking.amended,
        before=before,
        sandbox=g.level,
        **d.keep_signature(g.signed),
    )
    if plan is not None and plan.says(before, former.meaning):
        # an edited one has no effect, and stays; that is shown as any edit during the run
        d.write_box(plan, new=g.written)
    if plan is not None:
        stamps = {**d.plan_status, "approved_by": by, "approved_at": d.now}
        d.stamp_plan(plan, stamps)


def scope_refused(d: DecisionBuilder, g: ScopeRefused) -> None:
    """Reject a wider scope; the mission continues and is told why."""
    asking = _closed(d, g, "rejected")
    d.by_human(
        Action.PLAN_AMENDMENT_REJECTED, Entity.PLAN, g.person, number=asking.number, reason=g.why
    )


def withdrawn(d: DecisionBuilder) -> None:
    """Withdraw a question: the work that waited for its answer is void, or has to stop."""
    _closed(d, None, "void")


def _closed(d: DecisionBuilder, g: Answering | None, status: str) -> Asking:
    asking, d.asking = d.asking, None
    assert asking is not None, "an answer is observed only where something is asked"
    note = g.note if g is not None else None
    path = note.path if note is not None else asking.path
    if status:
        keys = {"decision": ""} if asking.amended else {}
        asked = {"status": "review" if asking.amended else "open", "decision": ""}
        seen = asked if note is None else {key: value_of(note, key) for key in asked}
        d.commands += [
            Stamp(path, {"status": status, **keys}, seen=seen),
            Move(path, archived_question(d.case, asking)),
        ]
    return asking
