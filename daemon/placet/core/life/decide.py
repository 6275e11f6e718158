"""From an event to what follows: the new case, the journal's rows, the commands.

Pure; `now` is an argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.life.case import (
    SOMEONE,
    TABLE,
    Branch,
    Case,
    Decision,
    Drafted,
    Event,
    EventKind,
    Gesture,
    Hand,
    MissionEnded,
    Move,
    NoteSeen,
    PlanningFailed,
    Publish,
    Request,
    Rewrite,
    Show,
    Stamp,
    Started,
    State,
)
from placet.core.life.drift import KEY, DriftVerdict, IfChanged
from placet.core.life.observe import reason_of
from placet.core.life.plan_note import HOW_TO_REVIEW, bare, below, headed, show
from placet.core.text.comments import changed_lines, comments, diff_callout
from placet.core.text.names import Folder
from placet.core.text.note import PLAN_STAMPS, REQUEST_STAMPS, read_note, stamp, without_keys
from placet.core.turn.mission import KeptOutcome
from placet.core.wording import local

_SOMEBODY = Hand()
_COMMITTER = Hand("someone who can write the repository")


class _Drawer:
    """Collects what one decision consists of; lives for one call of `decide`."""

    def __init__(self, case: Case, to: State, now: str) -> None:
        since = case.since if case.state is to else now
        # What a request that is planned anew had left stays watched.
        self.case = replace(
            case,
            state=to,
            since=since,
            earlier=case.earlier if to is State.COMPLETED else case.watched,
            notice=case.notice if case.state is to else "",
        )
        self.now = now
        self.before = show(case).above
        self.rows: list[Activity] = []
        self.commands: list[Stamp | Publish | Rewrite | Move | Show] = []
        self.texts: list[bytes] = []

    def set(self, **changes: Any) -> None:
        self.case = replace(self.case, **changes)

    def void_work(self) -> None:
        """Make outcomes of work that is under way void."""
        self.set(generation=self.case.generation + 1)

    def row(self, action: Action, entity: Entity, actor: Actor, **metadata: Any) -> None:
        self.rows.append(
            Activity(
                self.now,
                self.case.trace_id,
                actor,
                action,
                entity,
                self.case.request_id,
                self.case.agent,
                metadata,
            )
        )

    def by_human(
        self, action: Action, entity: Entity, hand: Hand = _SOMEBODY, **metadata: Any
    ) -> None:
        self.row(
            action, entity, Actor.HUMAN, reviewed_by=hand.who, via=hand.via or "move", **metadata
        )

    def text(self, raw: bytes) -> str:
        """Store a text with the decision and return the name it is known by."""
        self.texts.append(raw)
        return sha256(raw)

    def shown(self, plan: NoteSeen) -> str:
        """Have the plan's callout say how it stands now.

        Return the digest that the note will have.
        """
        what = replace(show(self.case, plan.path), before=self.before)
        self.commands.append(what)
        return self.know(plan, headed(plan.raw, what))

    def know(self, plan: NoteSeen, text: bytes) -> str:
        """Take the plan's new text for the daemon's own if the old one was: its callout is no person's edit. Return its digest."""
        unstamped = without_keys(text, PLAN_STAMPS)
        if plan.digest == self.case.plan_digest:
            self.set(plan_digest=self.text(unstamped))
        return sha256(unstamped)

    def stamp_request(self, request: NoteSeen | None, status: str) -> None:
        """Write the request's status, and its trace_id where it is not there yet."""
        path = request.path if request is not None else self.case.request_path
        if path:
            digest = request.digest if request is not None else self.case.request_digest
            self.commands.append(
                Stamp(path, {"status": status, "trace_id": self.case.trace_id}, digest)
            )

    def done(self) -> Decision:
        return Decision(self.case, tuple(self.rows), tuple(self.commands), tuple(self.texts))


def sha256(raw: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex: the name of a stored text."""
    return hashlib.sha256(raw).hexdigest()


def open_case(
    note: NoteSeen,
    request: Request,
    trace_id: str,
    request_id: str,
    now: str,
    *,
    ready: bool = False,
) -> Decision:
    """Take up a request that is new: the only way in which a case begins.

    `ready` says that nobody is writing in it any more.
    """
    case = Case(
        trace_id,
        request_id,
        State.PLANNING,
        request_path=note.path,
        request_digest=note.digest,
        title=request.title,
        agent=request.agent,
        portal=request.portal,
        priority=request.priority,
        complexity=request.complexity,
        budget_usd=request.budget_usd,
        requested_by=note.owner,
        detected_at=now,
        since=now,
    )
    drawer = _Drawer(case, TABLE[None, EventKind.REQUEST_ARRIVED], now)
    drawer.text(without_keys(note.raw, REQUEST_STAMPS))
    drawer.by_human(
        Action.REQUEST_DETECTED,
        Entity.REQUEST,
        digest=note.digest,
        size=len(note.raw),
        path=note.path,
        owner=note.owner,
        ready=ready,
    )
    drawer.stamp_request(note, "planning")
    return drawer.done()


def adopt_plan(
    note: NoteSeen, request: NoteSeen | None, now: str, copies: Sequence[NoteSeen] = ()
) -> Decision:
    """Take up a plan whose case the journal does not know (it was lost or is another's): it awaits review.

    `request` is the note with the same trace_id, if there is one: as it stands now, it is what the plan was written for.
    Whatever the note says and wherever it lies, nothing is approved by this. An approval that is stamped on it counts as used
    up: nobody can say any more whether this is the text that was approved, and what was done with it. One that lies in
    System/Active goes back to Inbox/Plans, and `copies` of it that lie there too: it takes a move of its own to approve it.
    """
    meta = note.meta
    case = Case(
        note.trace_id,
        str(meta.get("request_id") or ""),
        State.REVIEW,
        plan_path=note.path,
        plan_digest=note.digest,
        title=_title(note.raw),
        agent=str(meta.get("agent") or ""),
        portal=str(meta.get("portal") or ""),
        revision=_int(meta.get("revision")),
        detected_at=now,
        since=now,
        requested_by=(request or note).owner,
    )
    if (distrusted := distrust(case, note, now)) is not None:
        case = distrusted.case
    drawer = _Drawer(case, State.REVIEW, now)
    _learn_request(drawer, request, note)
    drawer.text(without_keys(note.raw, PLAN_STAMPS))
    if note.folder is Folder.ACTIVE:
        why = " ".join(
            [
                "The journal does not know this plan: it was put together elsewhere, or given before the journal was lost.",
                "So nobody can say that a person has read and approved it.",
                *HOW_TO_REVIEW,
            ]
        )
        drawer.set(notice=f"**Found in System/Active** ({local(now)}):\n{why}")
        _put_back(drawer, note, {"status": "review", **_NO_APPROVAL}, _plan_path(drawer.case))
    drawer.commands += [Move(copy.path, _plan_path(drawer.case)) for copy in copies]
    drawer.row(
        Action.PLAN_ADOPTED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=note.digest,
        path=drawer.case.plan_path,
        found=note.path,
    )
    return drawer.done()


def distrust(case: Case, note: NoteSeen, now: str) -> Decision | None:
    """Use up the approval that is stamped on a plan, of which the case knows nothing: its journal was put back from a backup.

    None where there is none, or the case is past it.
    """
    moment = note.meta.get("approved_at")
    if case.state is not State.REVIEW or moment is None:
        return None
    drawer = _Drawer(case, case.state, now)
    _remember_spent(drawer, moment.isoformat() if isinstance(moment, datetime) else str(moment))
    return drawer.done()


def adopt_outcome(case: Case | None, outcome: KeptOutcome, now: str) -> Decision | None:
    """Take up that a mission ended, as its report says, where the journal does not know it.

    None where it does.

    `case` is what the journal has on its trace. A report that is older than the case's last change
    tells nothing new: the case went on after it.
    """
    known_already = case is not None and (
        case.report_path == outcome.report_path or outcome.ended_at <= case.since
    )
    if not outcome.report_path or known_already:
        return None
    to = State.COMPLETED if outcome.completed else State.FAILED
    known = case or Case(
        outcome.trace_id,
        outcome.request_id,
        to,
        title=outcome.title,
        agent=outcome.agent,
        portal=outcome.portal,
        detected_at=outcome.ended_at,
        since=outcome.ended_at,
        revision=1,
    )
    drawer = _Drawer(known, to, now)
    drawer.void_work()
    _spend_approval(drawer)
    drawer.set(
        report_path=outcome.report_path,
        branch=outcome.branch,
        base=outcome.base,
        tip=outcome.tip,
        became=outcome.became,
        portal=outcome.portal or known.portal,
        stop="",
        failure="" if outcome.completed else f"see {outcome.report_path}",
        since=outcome.ended_at,
    )
    if outcome.completed:
        # Both were archived at the end.
        drawer.set(request_path="", plan_path="")
    drawer.row(
        Action.MISSION_ADOPTED,
        Entity.MISSION,
        Actor.SYSTEM,
        report=outcome.report_path,
        branch=outcome.branch,
        commit=outcome.tip,
        completed=outcome.completed,
    )
    return drawer.done()


def decide(case: Case, event: Event, now: str) -> Decision | None:
    """Return what follows from `event`, or None where it means nothing in this state or comes from void work.

    `now` is RFC 3339 in UTC. The new state is `TABLE`'s; the rest is the event's own function below.
    """
    to = TABLE.get((case.state, event.kind))
    if to is None:
        return None
    if not isinstance(event, Gesture) and event.generation != case.generation:
        return None
    drawer = _Drawer(case, to, now)
    match event:
        case Gesture():
            _GESTURES[event.kind](drawer, event)
        case Drafted():
            _drafted(drawer, event)
        case PlanningFailed():
            _planning_failed(drawer, event)
        case Started():
            drawer.row(Action.EXECUTION_STARTED, Entity.MISSION, Actor.SYSTEM, **event.facts)
        case MissionEnded():
            _mission_ended(drawer, event)
    return drawer.done()


# --- people's gestures
# ----------------------------------------------------------------------------------------


def _edited(d: _Drawer, g: Gesture) -> None:
    note = _note(g)
    d.void_work()
    d.set(request_path=note.path, request_digest=note.digest)
    d.text(without_keys(note.raw, REQUEST_STAMPS))
    _take_keys(d, g.asked)
    _set_basis(d, g.plan)
    if g.kind is EventKind.REQUEST_EDITED:
        d.by_human(Action.REQUEST_EDITED, Entity.REQUEST, digest=note.digest, size=len(note.raw))
    d.stamp_request(note, "planning")


def _pending(d: _Drawer, g: Gesture) -> None:
    note = _note(g)
    request = g.request
    d.void_work()
    if request is not None:
        d.set(request_path=request.path, request_digest=request.digest)
        d.text(without_keys(request.raw, REQUEST_STAMPS))
    else:
        d.set(request_path="")  # it is gone: what it said when it was read last is planned
    _take_keys(d, g.asked)
    _set_basis(d, g.plan)
    # the plan itself was put back: what comes is a revision of it, with what the person wrote in it
    if note.is_plan:
        d.set(basis_digest=note.digest)
        d.text(without_keys(note.raw, PLAN_STAMPS))
    d.by_human(
        Action.REQUEST_DETECTED, Entity.REQUEST, _hand(g), digest=d.case.request_digest, again=True
    )
    d.stamp_request(request, "planning")
    # Where it lies counts: a case that was rebuilt from a report does not know it.
    old = g.plan.path if g.plan is not None and not g.plan.problem else d.case.plan_path
    if old and d.case.state is State.PLANNING:
        # The old plan makes room for the new one; its text stays where people can find it.
        d.commands += [
            show(d.case, old),
            Move(old, f"{Folder.ARCHIVE}/{d.case.request_id}_plan_r{d.case.revision}.md"),
        ]
        d.set(plan_path="")


def _request_gone(d: _Drawer, _: Gesture) -> None:
    d.void_work()
    d.by_human(Action.REQUEST_WITHDRAWN, Entity.REQUEST, path=d.case.request_path)
    if d.case.plan_path:
        d.commands += [
            show(d.case),
            Stamp(d.case.plan_path, {"status": "rejected"}),
            Move(d.case.plan_path, f"{Folder.ARCHIVE}/{d.case.request_id}_plan.md"),
        ]
    d.set(request_path="", plan_path="")


def _approved(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    hand = _hand(g)
    d.void_work()
    d.set(
        approved_digest=plan.digest,
        approved_by=hand.who,
        approved_at=d.now,
        approved_level=g.level,
        plan_path=plan.path,
        stop="",
        reported_edit="",
        agent=str(plan.meta.get("agent") or d.case.agent),
        portal=str(plan.meta.get("portal") or ""),
    )
    d.set(planned=d.case.keys)
    d.text(without_keys(plan.raw, PLAN_STAMPS))
    edited = plan.digest != d.case.plan_digest and bare(g.written) != bare(
        without_keys(plan.raw, PLAN_STAMPS)
    )
    changed = _changed(g.written, read_note(plan.raw).body) if edited else []
    d.by_human(
        Action.PLAN_APPROVED,
        Entity.PLAN,
        hand,
        digest=plan.digest,
        edited=edited,
        changed_lines=changed,
        revision=d.case.revision,
        sandbox=g.level,
        **_claimed(plan, "approved_by"),
    )
    d.set(rejection_reason="", rejected_digest="")
    d.commands.append(
        Stamp(
            plan.path,
            {"status": "approved", "approved_by": hand.who, "approved_at": d.now, **_NO_REJECTION},
        )
    )
    d.stamp_request(g.request, "planned")


def _refused(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.by_human(Action.PLAN_REFUSED, Entity.PLAN, _hand(g), digest=plan.digest, reason=g.why)
    home = {
        State.COMPLETED: f"{Folder.ARCHIVE}/{d.case.request_id}_plan.md",
        State.REJECTED: _rejected_path(d.case),
    }.get(d.case.state, _plan_path(d.case))
    changes: dict[str, str | None] = {}
    if d.case.state is State.REVIEW:
        if plan.status == "approved":  # what it is not; what a person wrote stays
            changes["status"] = "review"
        # A stamp of an old approval would refuse the note for ever; who did not approve it must not
        # stand in it either.
        if any(plan.meta.get(key) is not None for key in _NO_APPROVAL):
            changes |= _NO_APPROVAL
    elif d.case.state is State.FAILED:  # it rests there as any failed plan does
        changes = {"status": "error", **_NO_APPROVAL}
    d.set(notice=f"**Not approved** ({local(d.now)}):\n{g.why}")
    _put_back(d, plan, changes, home)


def _callout_stale(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.row(
        Action.PLAN_CALLOUT_RENEWED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=d.shown(plan),
        before=plan.digest,
    )
    if plan.folder is Folder.PLANS and not _NO_APPROVAL.keys().isdisjoint(plan.meta):
        # of a failed plan from an older placet: it would be refused for them
        d.commands.append(Stamp(plan.path, _NO_APPROVAL))


def _rejected(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    hand = _hand(g)
    reason = reason_of(plan)
    d.void_work()
    _spend_approval(d)
    d.set(plan_path=plan.path, stop="", rejection_reason=reason, rejected_digest=plan.digest)
    d.by_human(
        Action.PLAN_REJECTED,
        Entity.PLAN,
        hand,
        reason=reason,
        digest=plan.digest,
        **_claimed(plan, "rejected_by"),
    )
    d.shown(plan)
    d.commands.append(
        Stamp(
            plan.path,
            {
                "status": "rejected",
                "rejected_by": hand.who,
                "rejected_at": d.now,
                "rejection_reason": reason,
                "approved_by": None,
                "approved_at": None,
            },
        )
    )
    if plan.folder is not Folder.REJECTED:
        d.set(plan_path=_rejected_path(d.case))
        d.commands.append(Move(plan.path, _rejected_path(d.case)))
    d.stamp_request(g.request, "rejected")


def _rejection_explained(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    reason = reason_of(plan)
    d.set(plan_path=plan.path, rejection_reason=reason, rejected_digest=plan.digest)
    d.by_human(
        Action.PLAN_REJECTION_EXPLAINED,
        Entity.PLAN,
        Hand(via="property"),
        reason=reason,
        digest=plan.digest,
    )
    d.commands.append(Stamp(plan.path, {"rejection_reason": reason}))


def _revision_asked(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    hand = _hand(g)
    claimed = _claimed(plan, "reviewed_by", d.case.reviewed_by)
    d.void_work()
    _spend_approval(d)
    d.set(plan_path=plan.path, reviewed_by=hand.who, reviewed_at=d.now)
    if g.request is not None and g.asked is not None and g.request.digest != d.case.request_digest:
        # its keys are taken with its text
        d.set(request_path=g.request.path, request_digest=g.request.digest)
        d.text(without_keys(g.request.raw, REQUEST_STAMPS))
        d.by_human(
            Action.REQUEST_EDITED, Entity.REQUEST, digest=g.request.digest, size=len(g.request.raw)
        )
    _take_keys(d, g.asked)
    _set_basis(d, plan)
    open_comments = [c for c in comments(read_note(plan.raw).body) if not c.answered]
    d.by_human(
        Action.PLAN_REVISION_REQUESTED,
        Entity.PLAN,
        hand,
        comment_count=len(open_comments),
        digest=plan.digest,
        revision=d.case.revision,
        **claimed,
    )
    d.commands.append(
        Stamp(
            plan.path,
            {
                "reviewed_by": hand.who,
                "reviewed_at": d.now,
                "approved_by": None,
                "approved_at": None,
            },
        )
    )
    if plan.folder is not Folder.PLANS:
        d.set(plan_path=_plan_path(d.case))
        d.commands.append(Move(plan.path, _plan_path(d.case)))
    d.stamp_request(g.request, "planning")


def _taken_back(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.void_work()
    _spend_approval(d)
    d.set(plan_path=plan.path, stop="", revision=max(d.case.revision, 1), rejection_reason="")
    d.by_human(Action.PLAN_TAKEN_BACK, Entity.PLAN, _hand(g), digest=plan.digest)
    if not d.case.request_digest:  # of a case that was rebuilt from its report
        _learn_request(d, g.request, plan)
    status = plan.status if plan.status == "needs_revision" else "review"
    d.shown(plan)
    d.commands.append(Stamp(plan.path, {"status": status, **_NO_APPROVAL, **_NO_REJECTION}))
    d.stamp_request(g.request, "planned")


def _wall_weakened(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.void_work()
    _spend_approval(d)
    d.row(Action.PLAN_REFUSED, Entity.PLAN, Actor.SYSTEM, digest=plan.digest, reason=g.why)
    d.set(
        notice=f"**Asked again** ({local(d.now)}):\n{g.why}\nMove it to System/Active again to have it so."
    )
    _put_back(d, plan, {"status": "review", **_NO_APPROVAL}, _plan_path(d.case))


def _text_lost(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.void_work()
    _spend_approval(d)
    d.set(stop="")
    d.row(Action.PLAN_REFUSED, Entity.PLAN, Actor.SYSTEM, digest=plan.digest, reason=g.why)
    d.set(
        notice=f"**The journal is damaged** ({local(d.now)}):\n{g.why}\nNothing of it was carried out since. Read the plan "
        "again, and move it to System/Active to approve it as it stands here."
    )
    _put_back(d, plan, {"status": "review", **_NO_APPROVAL}, _plan_path(d.case))


def _files_changed(d: _Drawer, g: Gesture) -> None:
    plan, drift = _note(g), g.drift
    assert drift is not None, "a gesture of this kind says what changed"
    d.void_work()
    _spend_approval(d)
    d.set(based_on=drift.based_on)
    d.row(
        Action.PLAN_DRIFTED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=plan.digest,
        verdict=DriftVerdict.UNDER.value,
        tip=drift.tip,
        files=drift.paths[:MAX_PATHS],
        reason=drift.why,
    )
    d.set(
        notice=f"**Files changed under this plan** ({local(d.now)}):\n{drift.why}\n{HOW_AFTER_DRIFT}"
    )
    _put_back(
        d, plan, {"status": "review", **_NO_APPROVAL, "base_commit": drift.tip}, _plan_path(d.case)
    )


def _misplaced(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    _spend_approval(d)
    d.by_human(Action.PLAN_REFUSED, Entity.PLAN, _hand(g), digest=plan.digest, reason=g.why)
    d.set(notice=f"**Moved back here** ({local(d.now)}):\n{' '.join([g.why, *HOW_TO_REVIEW])}")
    changes: dict[str, str | None] = {**_NO_APPROVAL}
    if d.case.state is State.REVIEW and plan.status != "needs_revision":
        changes["status"] = "review"
    _put_back(d, plan, changes, _plan_path(d.case))


def _plan_edited(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.void_work()
    _set_basis(d, plan)
    d.by_human(Action.PLAN_EDITED, Entity.PLAN, _hand(g), digest=plan.digest)


def _plan_gone(d: _Drawer, g: Gesture) -> None:
    d.void_work()
    _spend_approval(d)
    d.by_human(Action.PLAN_WITHDRAWN, Entity.PLAN, path=d.case.plan_path)
    d.set(plan_path="")
    d.stamp_request(g.request, "rejected")


def _active_edited(d: _Drawer, g: Gesture) -> None:
    plan = _note(g)
    d.by_human(
        Action.PLAN_CHANGED_AFTER_APPROVAL,
        Entity.PLAN,
        _hand(g),
        digest=plan.digest,
        approved_digest=d.case.approved_digest,
        running=d.case.state is State.RUNNING,
    )
    if d.case.state is State.RUNNING:
        d.set(reported_edit=plan.digest)
        return
    d.void_work()
    _spend_approval(d)
    callout = diff_callout(g.approved_text, read_note(plan.raw).body)
    d.set(
        notice=f"**Changed after approval** ({local(d.now)}):\nThe text was changed after it had been approved, so the approval "
        "is void. Read it again and move it to System/Active to approve it as it is now."
    )
    _put_back(d, plan, {"status": "review", **_NO_APPROVAL}, _plan_path(d.case), callout)


def _stop_asked(d: _Drawer, g: Gesture) -> None:
    d.set(stop=g.why, plan_path=g.note.path if g.note is not None else "")
    # it says no: it is moved to where that is decided
    if g.note is not None and g.note.folder is Folder.ACTIVE:
        d.set(
            plan_path=_rejected_path(d.case) if g.note.status == "rejected" else _plan_path(d.case)
        )
        d.commands.append(Move(g.note.path, d.case.plan_path))
    d.by_human(Action.PLAN_TAKEN_BACK, Entity.PLAN, _hand(g), running=True)


_GESTURES: Mapping[EventKind, Callable[[_Drawer, Gesture], None]] = {
    EventKind.REQUEST_EDITED: _edited,
    EventKind.REQUEST_RETURNED: _edited,
    EventKind.REQUEST_PENDING: _pending,
    EventKind.REQUEST_GONE: _request_gone,
    EventKind.PLAN_APPROVED: _approved,
    EventKind.APPROVAL_REFUSED: _refused,
    EventKind.CALLOUT_STALE: _callout_stale,
    EventKind.PLAN_REJECTED: _rejected,
    EventKind.REJECTION_EXPLAINED: _rejection_explained,
    EventKind.REVISION_ASKED: _revision_asked,
    EventKind.PLAN_TAKEN_BACK: _taken_back,
    EventKind.PLAN_MISPLACED: _misplaced,
    EventKind.PLAN_EDITED: _plan_edited,
    EventKind.PLAN_GONE: _plan_gone,
    EventKind.ACTIVE_EDITED: _active_edited,
    EventKind.STOP_ASKED: _stop_asked,
    EventKind.WALL_WEAKENED: _wall_weakened,
    EventKind.TEXT_LOST: _text_lost,
    EventKind.FILES_CHANGED: _files_changed,
}


# --- what the daemon's own work came to
# -----------------------------------------------------------------------


def _drafted(d: _Drawer, e: Drafted) -> None:
    case = d.case
    first = case.revision == 0
    # Only ever into Inbox/Plans: put in the place of an unusable plan in System/Active, a new text
    # would be approved unread.
    in_place = case.plan_path.startswith(f"{Folder.PLANS}/")
    path = case.plan_path if in_place else _plan_path(case)
    asked = (
        {"reviewed_by": case.reviewed_by, "reviewed_at": case.reviewed_at}
        if case.reviewed_at
        else {}
    )
    d.set(
        revision=e.revision,
        plan_path=path,
        basis_digest="",
        failure="",
        rejection_reason="",
        base_branch=e.base_branch,
        based_on=e.based_on,
    )
    text = headed(stamp(e.text, asked), show(d.case))
    name = d.text(text)
    # Known by its digest, to compare with what will be approved.
    d.set(plan_digest=d.text(without_keys(text, PLAN_STAMPS)), planned=case.keys)
    d.row(
        Action.PLAN_CREATED if first else Action.PLAN_REVISED,
        Entity.PLAN,
        Actor.AGENT,
        digest=d.case.plan_digest,
        revision=e.revision,
        size=len(text),
        path=path,
        **e.facts,
    )
    # what was said in the plan for the other repository stays where people can find it
    if in_place and case.is_elsewhere:
        d.commands += [
            Move(path, f"{Folder.ARCHIVE}/{case.request_id}_plan_r{case.revision}.md"),
            Publish(path, name),
        ]
    elif case.basis_digest and in_place:
        keep = f"{Folder.ARCHIVE}/{case.request_id}_plan_r{case.revision}_edited.md"
        d.commands.append(Rewrite(path, case.basis_digest, name, keep))
    else:
        d.commands.append(Publish(path, name))
    d.stamp_request(None, "planned")


def _planning_failed(d: _Drawer, e: PlanningFailed) -> None:
    d.set(failure=e.reason, report_path="")
    d.row(
        Action.PLAN_FAILED,
        Entity.PLAN,
        Actor.AGENT,
        reason=e.reason,
        error_type=e.error_type,
        end=e.end.value,
        iterations=e.iterations,
    )
    d.stamp_request(None, "error")
    # Nowhere else: in System/Active the note would get a callout of today that nobody read, and so
    # approve a text that was edited.
    if d.case.plan_path.startswith(f"{Folder.PLANS}/"):
        d.commands += [show(d.case), Stamp(d.case.plan_path, {"status": "error"})]


def _mission_ended(d: _Drawer, e: MissionEnded) -> None:
    completed = e.kind is EventKind.MISSION_COMPLETED
    case = d.case
    d.set(
        failure="" if completed else e.reason,
        report_path=e.report_path,
        branch=e.branch,
        stop="",
        base=str(e.facts.get("base", "")),
        tip=str(e.facts.get("commit", "")),
        carried_out=case.approved_digest,
        became="",
    )
    _spend_approval(d)
    report = e.report
    if case.reported_edit:
        report += (b"" if report.endswith(b"\n") else b"\n") + b"\n" + EDITED_MEANWHILE.encode()
    d.row(
        Action.EXECUTION_COMPLETED if completed else Action.EXECUTION_FAILED,
        Entity.MISSION,
        Actor.AGENT,
        **e.facts,
    )
    d.commands.append(Publish(e.report_path, d.text(report)))
    plan_status, plan_home = (
        ("completed", f"{Folder.ARCHIVE}/{case.request_id}_plan.md")
        if completed
        else ("error", _plan_path(case))
    )
    # A plan that was taken back stays where the person put it; among the requests lie those that
    # failed, so there it becomes one.
    if case.plan_path and (not case.stop or case.plan_path.startswith(f"{Folder.REQUESTS}/")):
        # What was approved is used up; a failed plan rests where it can be approved again, and that
        # is a new approval.
        used_up: Mapping[str, None] = {} if completed else _NO_APPROVAL
        # The callout of one that failed is written when a look finds it at rest: in System/Active it
        # would approve a note that is renamed there in just this moment.
        if completed:
            d.commands.append(show(d.case))
        d.commands += [
            Stamp(case.plan_path, {"status": plan_status, **used_up}),
            Move(case.plan_path, plan_home),
        ]
        d.set(plan_path=plan_home)
    if case.request_path:
        d.stamp_request(None, "completed" if completed else "error")
        if completed:
            # An edit that came during the run is not archived unseen: the move carries the digest
            # it believes in. It keeps its name there: people's links go by it.
            d.commands.append(
                Move(
                    case.request_path,
                    f"{Folder.ARCHIVE}/{PurePosixPath(case.request_path).name}",
                    case.request_digest,
                )
            )
            d.set(request_path="")


def settle_branch(
    case: Case,
    branch: Branch,
    became: str,
    merged: str,
    how: str,
    reason: str,
    claimed: str,
    owner: str,
    now: str,
) -> Decision | None:
    """Return what follows from the fate of a branch, None where it is not watched any more or that was acknowledged already.

    `became` is `merged`, by the commit `merged`; `dropped`, for a person's `reason`; or empty for one that was brought back.
    Who did it git does not say: `claimed` is what the report says of that, `owner` who owns the repository.
    """
    if branch not in case.watched or branch.became == became:
        return None
    d = _Drawer(case, case.state, now)
    if branch in case.earlier:
        others = tuple(other for other in case.earlier if other != branch)
        d.set(earlier=others if became == "merged" else (*others, replace(branch, became=became)))
    else:
        d.set(became=became)
    match became:
        case "merged":
            d.by_human(
                Action.PR_MERGED,
                Entity.REPOSITORY,
                _COMMITTER,
                branch=branch.name,
                commit_sha=merged,
                how=how,
                owner=owner,
            )
        case "dropped":
            d.by_human(
                Action.PR_REJECTED,
                Entity.REPOSITORY,
                _COMMITTER,
                branch=branch.name,
                reason=reason,
                owner=owner,
                **({"claimed": claimed} if claimed else {}),
            )
        case _:
            d.by_human(
                Action.PR_REOPENED, Entity.REPOSITORY, _COMMITTER, branch=branch.name, owner=owner
            )
    if branch.report_path:
        d.commands.append(
            Stamp(
                branch.report_path,
                {"became": became or None, **({"merged_as": merged} if merged else {})},
            )
        )
    return d.done()


def settle_revert(
    case: Case, merged: str, by: str, owner: str, now: str, *, again: bool
) -> Decision | None:
    """Return what follows from a commit `by` that takes a mission's work back, or brings it in `again`; None where that was known.

    `merged` is the commit by which the work was merged.
    """
    became = "merged" if again else "reverted"
    if (
        case.state is not State.COMPLETED
        or case.became == became
        or case.became not in ("merged", "reverted")
    ):
        return None
    d = _Drawer(case, case.state, now)
    d.set(became=became)
    facts = {"branch": case.branch, "owner": owner}
    if again:
        facts |= {"commit_sha": merged, "how": "revert of a revert", "again_by": by}
        d.by_human(Action.PR_MERGED, Entity.REPOSITORY, _COMMITTER, **facts)
    else:
        d.by_human(
            Action.PR_REVERTED,
            Entity.REPOSITORY,
            _COMMITTER,
            commit_sha=by,
            merged_as=merged,
            **facts,
        )
    if case.report_path:
        d.commands.append(Stamp(case.report_path, {"became": became}))
    return d.done()


# --- small pieces
# ---------------------------------------------------------------------------------------------

EDITED_MEANWHILE = (
    "> [!warning] The plan was changed during the run\n> What was carried out is the text that had been "
    "approved. The changed text stands in the plan's note and had no effect.\n"
)
HOW_AFTER_DRIFT = (
    f"`base_commit` names the new state now. Move the plan to System/Active again if it still fits, or ask for "
    f"changes. `{KEY}: {IfChanged.PROCEED}` in the properties makes a mission go on without asking."
)
MAX_PATHS = 20
"""How many files a journal row names."""


def _note(g: Gesture) -> NoteSeen:
    assert g.note is not None, f"{g.kind}: this gesture always shows in a note"
    return g.note


def _hand(g: Gesture) -> Hand:
    """Return who did it, and how: where nobody knows more, by a property of the note or by where it lies."""
    if g.hand.via or g.note is None:
        return g.hand
    by_property = (
        g.kind in (EventKind.REVISION_ASKED, EventKind.REQUEST_PENDING)
        or (g.kind is EventKind.PLAN_REJECTED and g.note.folder is not Folder.REJECTED)
        or (g.kind is EventKind.STOP_ASKED and g.note.folder is Folder.ACTIVE)
    )
    return replace(g.hand, via="property" if by_property else "move")


def _claimed(note: NoteSeen, key: str, own: str = "") -> Mapping[str, str]:
    """Return, for a row, what a note says itself of who decided: anybody may have written that.

    `own` is the daemon's own word.
    """
    said = str(note.meta.get(key) or "")[:200]
    return {"claimed": said} if said not in ("", own, SOMEONE) else {}


def _learn_request(d: _Drawer, request: NoteSeen | None, plan: NoteSeen) -> None:
    """Take what was asked for from the request as it stands.

    Where there is none, a revision is planned from the plan's text.
    """
    if request is not None:
        d.set(request_path=request.path, request_digest=request.digest)
        d.text(without_keys(request.raw, REQUEST_STAMPS))
    else:
        d.set(request_digest=d.text(plan.raw))


def _take_keys(d: _Drawer, request: Request | None) -> None:
    """Plan for what the request's keys say now.

    Where there is no request, for what they said last.
    """
    if d.case.revision and not d.case.planned:  # of a journal that is older than this
        d.set(planned=d.case.keys)
    if request is not None:
        d.set(
            title=request.title,
            agent=request.agent,
            portal=request.portal,
            priority=request.priority,
            complexity=request.complexity,
            budget_usd=request.budget_usd,
        )


def _set_basis(d: _Drawer, plan: NoteSeen | None) -> None:
    """Remember the plan's text that a revision starts from; none while a first plan is written."""
    revising = plan is not None and d.case.state is State.REVISING
    d.set(basis_digest=plan.digest if plan is not None and revising else "")
    if plan is not None and revising:
        d.text(without_keys(plan.raw, PLAN_STAMPS))
        # A person may have changed these in the plan; the next one says what becomes of that.
        own = {
            key: str(plan.meta.get(key) or "") for key in ("agent", "portal") if key in plan.meta
        }
        d.set(planned=tuple((key, own.get(key, value)) for key, value in d.case.planned))


def _spend_approval(d: _Drawer) -> None:
    """Use an approval up: the same stamp never approves again, wherever a copy of the note turns up."""
    if d.case.approved_at:
        _remember_spent(d, d.case.approved_at)
    d.set(approved_digest="", approved_by="", approved_at="")


def _remember_spent(d: _Drawer, moment: str) -> None:
    d.set(spent_approvals=(*d.case.spent_approvals[-19:], moment))


_NO_APPROVAL: Mapping[str, None] = {"approved_by": None, "approved_at": None}
_NO_REJECTION: Mapping[str, None] = {
    "rejected_by": None,
    "rejected_at": None,
    "rejection_reason": None,
}


def _put_back(
    d: _Drawer, plan: NoteSeen, changes: Mapping[str, str | None], home: str, tail: str = ""
) -> None:
    """Move the note to `home`, make its callout say how it stands, put `tail` below, stamp `changes`.

    The callout comes last: written in System/Active it would approve a note that is renamed there
    in just this moment. A plan that was carried out cannot be approved, and its name is often taken
    in the archive, so its callout is written first.
    """
    d.set(plan_path=home)
    raw = (
        plan.raw
        + (b"" if not tail or plan.raw.endswith(b"\n") else b"\n")
        + (f"\n{tail}" if tail else "").encode()
    )
    text = headed(stamp(raw, changes), replace(show(d.case), before=d.before))
    d.know(plan, text)
    over = d.case.state is State.COMPLETED
    rewrite = Rewrite(plan.path if over else home, plan.digest, d.text(text))
    if over:
        d.commands.append(rewrite)
    if removed := {key: None for key, value in changes.items() if value is None}:
        # also where it is edited in this moment, and so not rewritten
        d.commands.append(Stamp(plan.path, removed))
    d.commands.append(Move(plan.path, home))
    if not over:
        d.commands.append(rewrite)


def _changed(written: bytes, now: str) -> list[list[int]]:
    """Return which lines of a plan's body a person changed, where `written` is the daemon's: the callout is nobody's edit."""
    shift, text = below(now)
    return [
        [first + shift, last + shift]
        for first, last in changed_lines(below(read_note(written).body)[1], text)
    ]


def _plan_path(case: Case) -> str:
    return f"{Folder.PLANS}/{case.request_id}_plan.md"


def _rejected_path(case: Case) -> str:
    return f"{Folder.REJECTED}/{case.request_id}_rejected.md"


def _title(raw: bytes) -> str:
    for line in read_note(raw).body.splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return ""


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1
