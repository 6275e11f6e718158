"""Decide what an event changes: the new case, the journal's rows, the commands.

All of it is pure; `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.case.approval import is_older
from placet.case.callout import box_of, with_box
from placet.case.case import (
    SOMEBODY,
    SOMEONE,
    Approval,
    Case,
    NoteSeen,
    Rejection,
    Request,
    Reviewed,
)
from placet.case.commands import Decision, Move, Publish
from placet.case.decision_builder import (
    NO_APPROVAL,
    TO_REVIEW,
    DecisionBuilder,
    archived_path,
    cleared_decision,
    plan_path,
    rejected_path,
)
from placet.case.drift import KEY, UNDER, IfChanged
from placet.case.events import (
    BY_PROPERTY,
    ActiveEdited,
    Answered,
    ApprovalRefused,
    ApprovalVoid,
    Asked,
    BoxStale,
    Drafted,
    Event,
    FilesChanged,
    Gesture,
    MissionCompleted,
    MissionFailed,
    ModelChanged,
    PlanApproved,
    PlanEdited,
    PlanGone,
    PlanningFailed,
    PlanRejected,
    PlanSuperseded,
    PlanTakenBack,
    RejectionExplained,
    RequestChanged,
    RequestEdited,
    RequestGone,
    RequestPending,
    RequestReturned,
    RevisionAsked,
    SandboxWeakened,
    ScopeRefused,
    ScopeWidened,
    SignatureVoid,
    Started,
    StopAsked,
    TextLost,
)
from placet.case.life_cycle import STATUSES, State
from placet.case.notes import REJECT, REVISE, body_of, decision_of, rejection_in
from placet.case.question import answered, asked, scope_refused, scope_widened, withdrawn
from placet.case.results import drafted, mission_ended, planning_failed
from placet.case.transitions import target
from placet.note.escape import link
from placet.note.frontmatter import read_note, stamp, without_keys
from placet.note.paths import Folder
from placet.plan.comments import comments, open_comments, placed, uncommented, with_comment
from placet.plan.differences import changed_lines, diff_callout
from placet.plan.digest import REQUEST_STAMPS, plan_text
from placet.wording import local

HOW_AFTER_DRIFT = (
    "`base_commit` now names the new state. If the plan still fits, move it to System/Active "
    f"again, or ask for changes. `{KEY}: {IfChanged.PROCEED}` in the properties lets a mission "
    "continue without asking."
)
MAX_PATHS = 20
"""Maximum of files that a journal row names."""
_REJECTED = ("rejected_by", "rejected_at")
_NO_REJECTION: Mapping[str, None] = dict.fromkeys((*_REJECTED, "rejection_reason"))


def open_case(
    note: NoteSeen,
    request: Request,
    trace_id: str,
    request_id: str,
    now: str,
    *,
    ready: bool = False,
) -> Decision:
    """Open a case for a new request. No other function begins a case.

    Nothing is written into the note: its writer may not be done. `ready` says that it is.
    """
    case = Case(
        trace_id,
        request_id,
        State.PLANNING,
        request_path=note.path,
        request_digest=note.digest,
        request_meaning=note.meaning,
        unstamped=note.file,
        request=request,
        since=now,
    )
    d = DecisionBuilder(case, case.state, now)
    d.text(without_keys(note.raw, REQUEST_STAMPS))
    d.by_human(
        Action.REQUEST_DETECTED,
        Entity.REQUEST,
        digest=note.digest,
        size=len(note.raw),
        path=note.path,
        owner=note.owner,
        ready=ready,
    )
    return d.done()


def stamp_new(case: Case, note: NoteSeen, now: str) -> Decision:
    """Stamp a new request, which is no longer being written: from here on its trace_id tells it."""
    d = DecisionBuilder(case, case.state, now)
    d.stamp_request(note)
    return d.done()


def decide(case: Case, event: Event, now: str) -> Decision | None:
    """Return the decision on `event`.

    None if the event means nothing in this state or comes from void work. `now` is RFC 3339 in UTC.
    The new state is `TABLE`'s; the rest is the event's own function.
    """
    to = target(case, type(event))
    if to is None:
        return None
    if not isinstance(event, Gesture) and event.generation != case.generation:
        return None
    d = DecisionBuilder(case, to, now)
    _EFFECTS[type(event)](d, event)
    if d.asking is not None:
        goes_on = d.case.state is case.acting and d.case.generation == case.generation
        if goes_on and not d.case.stop:
            d.set(state=State.ASKING, asking=d.asking)
        else:
            withdrawn(d)
    return d.done()


def _started(d: DecisionBuilder, e: Started) -> None:
    d.row(Action.EXECUTION_STARTED, Entity.MISSION, Actor.SYSTEM, **e.facts)


# --- the request


def _request_changed(d: DecisionBuilder, g: RequestChanged) -> None:
    note = g.note
    d.void_work()
    d.keep_request(note)
    d.take_keys(g.asked)
    d.set_basis(g.plan)
    if isinstance(g, RequestEdited):
        # a look stamps it once it is no longer being written
        d.by_human(Action.REQUEST_EDITED, Entity.REQUEST, digest=note.digest, size=len(note.raw))
    else:
        d.stamp_request(note)


def _pending(d: DecisionBuilder, g: RequestPending) -> None:
    note = g.note
    d.void_work()
    d.keep_request(note)
    d.take_keys(g.asked)
    d.set_basis(g.plan)
    d.by_human(Action.REQUEST_DETECTED, Entity.REQUEST, g.person, digest=note.digest, again=True)
    d.stamp_request(note)
    old = g.plan.path if g.plan is not None and not g.plan.problem else d.case.plan.path
    if old and d.case.acting is State.PLANNING:
        # the old plan makes room for the new one; its text stays where people find it
        if not old.startswith(f"{Folder.ARCHIVE}/"):
            kept = archived_path(d.case, f"_r{d.case.plan.revision}")
            if g.plan is not None and not g.plan.problem:
                d.write_box(g.plan)
                if open_comments(body_of(g.plan.raw)):
                    d.set_plan(left=d.text(plan_text(g.plan.raw)))
            d.commands.append(Move(old, kept))
        d.set_plan(path="")


def _request_gone(d: DecisionBuilder, g: RequestGone) -> None:
    case = d.case
    d.void_work()
    d.by_human(Action.REQUEST_WITHDRAWN, Entity.REQUEST, path=case.request_path)
    if case.plan.path:
        if g.plan is not None:
            d.write_box(g.plan)
            if open_comments(body_of(g.plan.raw)):  # the next plan takes them into account
                d.set_plan(left=d.text(plan_text(g.plan.raw)))
        d.stamp_unread_plan()
        d.commands.append(Move(case.plan.path, archived_path(case)))
    d.set(request_path="")
    d.set_plan(path="")


# --- the approval


def _approved(d: DecisionBuilder, g: PlanApproved) -> None:
    plan, person, request = g.note, g.person, d.case.request
    text, left_out = g.approved.text, g.approved.plan.left_out
    by = person.who if g.signed is None else g.signed.signer
    d.void_work()
    d.set(
        approval=Approval(g.approved.digest, by, d.now, g.level, plan.meaning),
        first_approved=plan.digest,
        stop="",
        stopped_by=SOMEBODY,
        reported_edit="",
        request=replace(
            request,
            agent=str(plan.meta.get("agent") or request.agent),
            portal=str(plan.meta.get("portal") or ""),
        ),
    )
    d.set_plan(path=plan.path, keys=d.case.request.keys)
    d.text(text)
    d.set(signed=())
    edited = plan.digest != d.case.plan.digest and _without_comments(
        g.written
    ) != _without_comments(text)
    d.by_human(
        Action.PLAN_APPROVED,
        Entity.PLAN,
        person,
        digest=plan.digest,
        edited=edited,
        changed_lines=changed_lines(body_of(g.written), body_of(text)) if edited else [],
        comment_count=len(open_comments(body_of(plan.raw))),
        revision=d.case.plan.revision,
        sandbox=g.level,
        **({"steps_left_out": list(left_out)} if left_out else {}),
        **_claimed(plan, "approved_by"),
        **d.keep_signature(g.signed),
    )
    d.set(rejection=Rejection())
    stamps = {**d.plan_status, "approved_by": by, "approved_at": d.now}
    d.stamp_plan(plan, {**stamps, **_NO_REJECTION, **cleared_decision(plan)})
    d.write_box(plan)
    d.move(plan, Folder.ACTIVE)
    d.stamp_request(g.request)


def _refused(d: DecisionBuilder, g: ApprovalRefused) -> None:
    plan, case = g.note, d.case
    d.by_human(Action.PLAN_REFUSED, Entity.PLAN, g.person, digest=plan.digest, reason=g.why)
    if g.newest:
        _deliver(d, plan, g.newest, "Not approved", g.why)
        return
    homes = {State.COMPLETED: archived_path(case), State.REJECTED: rejected_path(case)}
    changes: dict[str, str | None] = {}
    if case.state is State.REVIEW:
        if plan.status == "approved":  # which it is not; a person's own word stays
            changes |= d.plan_status
        # the stamp of an old approval would refuse the note again and again, and names somebody who
        # did not approve it
        if any(plan.meta.get(key) is not None for key in NO_APPROVAL):
            changes |= NO_APPROVAL
    elif case.state is State.FAILED:  # the note stays in Inbox/Plans
        changes = {**d.plan_status, **NO_APPROVAL}
    home = homes.get(case.state, "") if plan.folder is Folder.ACTIVE else plan.path
    d.return_plan(plan, "Not approved", g.why, changes, home)


def _superseded(d: DecisionBuilder, g: PlanSuperseded) -> None:
    plan = g.note
    d.by_human(Action.PLAN_EDITED, Entity.PLAN, digest=plan.digest)
    why = (
        f"You saved revision {plan.meta['revision']} when revision {d.case.plan.revision} was "
        "already written. This is the newer one."
    )
    _deliver(d, plan, g.newest, "Saved at the same time", why)


def _deliver(d: DecisionBuilder, plan: NoteSeen, newest: bytes, heading: str, why: str) -> None:
    """Archive the older revision `plan`, and publish the newest one in its place.

    Comments of the older one that the newest does not have are added to the newest.
    """
    case, kept = d.case, archived_path(d.case, f"_r{plan.meta['revision']}_edited")
    known = {comment.text for comment in comments(body_of(newest))}
    body = body_of(newest)
    for one in open_comments(body_of(plan.raw)):
        if one.text not in known:
            body = with_comment(body, placed(one), plan.owner or "somebody", local(d.now))
    old = f"The older one is {link(PurePosixPath(kept).stem)}."
    d.set(notice=f"**{heading}** ({local(d.now)}):\n{why} {old}")
    d.set_plan(path=plan_path(case))
    what = box_of(d.case)
    head = newest[: len(newest) - len(body_of(newest).encode())]
    text = stamp(head + body.encode(), {"status": "review", "decision": ""})
    d.remember_box(text, what)
    d.set_plan(digest=d.text(plan_text(text)))
    d.write_box(plan, box_of(replace(case, state=State.PLANNING, notice=""), plan.path))
    d.commands += [Move(plan.path, kept), Publish(plan_path(case), d.text(with_box(text, what)))]


def _active_edited(d: DecisionBuilder, g: ActiveEdited) -> None:
    plan = g.note
    running = d.case.acting is State.RUNNING
    d.by_human(
        Action.PLAN_CHANGED_AFTER_APPROVAL,
        Entity.PLAN,
        digest=plan.digest,
        approved_digest=d.case.approval.digest,
        running=running,
    )
    if running:
        d.set(reported_edit=plan.digest)
        return
    _void_approval(d)
    why = (
        "The text was changed after it had been approved, so the approval is void. Read it again "
        "and move it to System/Active to approve it as it is now."
    )
    changes = diff_callout(g.approved, body_of(plan.raw))
    d.return_plan(plan, "Changed after approval", why, tail=changes)


# the notice's heading, and what it says after the reason
_NOT_TO_BE_RUN: Mapping[type[ApprovalVoid], tuple[str, str]] = {
    SandboxWeakened: ("Asked again", "To run it there, move it to System/Active again."),
    SignatureVoid: ("Asked again", "To run it, approve it again."),
    ModelChanged: ("Asked again", "To run it with them, approve it again."),
    TextLost: (
        "The journal is damaged",
        "Nothing has run since. To approve the plan as it is now, move it to System/Active.",
    ),
}


def _not_to_be_run(d: DecisionBuilder, g: ApprovalVoid) -> None:
    plan = g.note
    heading, hint = _NOT_TO_BE_RUN[type(g)]
    _void_approval(d)
    if isinstance(g, ModelChanged):
        d.set_plan(models=(*d.case.plan.models, *([g.model] if g.model else [])))
        d.set_plan(instructions=g.instructions or d.case.plan.instructions)
    d.row(Action.PLAN_REFUSED, Entity.PLAN, Actor.SYSTEM, digest=plan.digest, reason=g.why)
    d.return_plan(plan, heading, f"{g.why}\n{hint}")


def _files_changed(d: DecisionBuilder, g: FilesChanged) -> None:
    plan, drift = g.note, g.drift
    _void_approval(d)
    d.set_plan(based_on=drift.based_on)
    d.row(
        Action.PLAN_DRIFTED,
        Entity.PLAN,
        Actor.SYSTEM,
        digest=plan.digest,
        verdict=UNDER,
        tip=drift.tip,
        files=drift.paths[:MAX_PATHS],
        reason=drift.why,
    )
    why = f"{drift.why}\n{HOW_AFTER_DRIFT}"
    changes = {**TO_REVIEW, "base_commit": drift.tip}
    d.return_plan(plan, "Files changed under this plan", why, changes)


# --- other decisions on a plan


def _box_stale(d: DecisionBuilder, g: BoxStale) -> None:
    plan = g.note
    d.write_box(plan)
    if plan.folder is Folder.PLANS and not NO_APPROVAL.keys().isdisjoint(plan.meta):
        # stamps that an older placet left would refuse the next approval
        d.stamp_plan(plan, NO_APPROVAL)


def _rejected(d: DecisionBuilder, g: PlanRejected) -> None:
    plan, person = g.note, g.person
    found = rejection_in(plan, Rejection())
    _void_approval(d)
    d.set_plan(path=plan.path)
    d.set(rejection=found)
    claimed = _claimed(plan, "rejected_by")
    facts = {"reason": found.reason, "digest": plan.digest, **claimed}
    d.by_human(Action.PLAN_REJECTED, Entity.PLAN, person, **facts)
    d.write_box(plan)
    stamps = {**d.plan_status, "rejected_by": person.who, "rejected_at": d.now}
    properties = {"rejection_reason": found.reason, **cleared_decision(plan)}
    d.stamp_plan(plan, {**stamps, **properties, **NO_APPROVAL})
    d.move(plan, Folder.REJECTED)
    _archive_newest(d, plan)
    d.stamp_request(g.request)


def _rejection_explained(d: DecisionBuilder, g: RejectionExplained) -> None:
    plan = g.note
    found = rejection_in(plan, d.case.rejection)
    reason = found.reason
    d.set_plan(path=plan.path)
    d.set(rejection=found)
    facts = {"reason": reason, "digest": plan.digest}
    d.by_human(Action.PLAN_REJECTION_EXPLAINED, Entity.PLAN, BY_PROPERTY, **facts)
    d.stamp_plan(plan, {"rejection_reason": reason})


def _revision_asked(d: DecisionBuilder, g: RevisionAsked) -> None:
    plan, person, request = g.note, g.person, g.request
    claimed = _claimed(plan, "reviewed_by", d.case.reviewed.by)
    _void_approval(d)
    d.set_plan(path=plan.path)
    d.set(reviewed=Reviewed(person.who, d.now))
    known = d.case.request_digest, d.case.request_meaning
    if request is not None and g.asked is not None and not request.says(*known):
        # its keys are taken with its text
        d.keep_request(request)
        size = len(request.raw)
        d.by_human(Action.REQUEST_EDITED, Entity.REQUEST, digest=request.digest, size=size)
    d.take_keys(g.asked)
    d.set_basis(plan)
    d.by_human(
        Action.PLAN_REVISION_REQUESTED,
        Entity.PLAN,
        person,
        comment_count=len(open_comments(body_of(plan.raw))),
        digest=plan.digest,
        revision=d.case.plan.revision,
        **claimed,
    )
    stamps = {"reviewed_by": person.who, "reviewed_at": d.now, **cleared_decision(plan)}
    if decision_of(plan) == REVISE:
        stamps |= d.plan_status
    d.stamp_plan(plan, {**stamps, **NO_APPROVAL})
    d.move(plan, Folder.PLANS)
    _archive_newest(d, plan)
    d.stamp_request(request)


def _archive_newest(d: DecisionBuilder, plan: NoteSeen) -> None:
    """Publish the newest revision in the archive, if an older one was decided on."""
    if is_older(d.case, plan):
        kept = archived_path(d.case, f"_r{d.case.plan.revision}")
        d.commands.append(Publish(kept, d.case.plan.digest))


def _taken_back(d: DecisionBuilder, g: PlanTakenBack) -> None:
    plan = g.note
    # a plan of a stopped mission has been here since it was stopped
    person = d.case.stopped_by if d.case.stopped_by.via else g.person
    _void_approval(d)
    if d.case.spent_approvals:
        # This notice tells the note from an older copy, whose decision was used.
        when = local(d.now)
        d.set(notice=f"{person.as_subject} withdrew the approval ({when}). To run it, approve it.")
    d.set_plan(path=plan.path, revision=max(d.case.plan.revision, 1))
    own = str(plan.meta.get("rejection_reason") or "").strip()
    stamped = own == d.case.rejection.reason.strip()  # else you wrote it: keep it
    rejection = _NO_REJECTION if stamped else dict.fromkeys(_REJECTED)
    d.set(rejection=Rejection())
    # a plan without an approval came back: from the rejected ones, or after it was missing
    returned = {} if d.case.spent_approvals else {"returned": True}
    d.by_human(Action.PLAN_TAKEN_BACK, Entity.PLAN, person, digest=plan.digest, **returned)
    asks = plan.status == "needs_revision" or decision_of(plan) == REVISE
    # which the next look decides
    asked = {"status": STATUSES[State.REVISING].plan} if asks else d.plan_status
    d.write_box(plan)
    status = {**asked, **cleared_decision(plan)}
    d.stamp_plan(plan, {**status, **NO_APPROVAL, **rejection})
    d.move(plan, Folder.PLANS)
    d.stamp_request(g.request)


def _plan_edited(d: DecisionBuilder, g: PlanEdited) -> None:
    plan = g.note
    d.void_work()
    d.set_basis(plan)
    d.by_human(Action.PLAN_EDITED, Entity.PLAN, g.person, digest=plan.digest)
    if open_comments(body_of(plan.raw)):
        d.set(plannings=())


def _plan_gone(d: DecisionBuilder, g: PlanGone) -> None:
    _void_approval(d)
    d.by_human(Action.PLAN_WITHDRAWN, Entity.PLAN, path=d.case.plan.path)
    d.set_plan(path="")
    d.stamp_request(g.request)


_STOPS_WITH = {"cli": "`placet stop`", "board": "the board"}


def _stop_asked(d: DecisionBuilder, g: StopAsked) -> None:
    note = g.note
    used = _STOPS_WITH.get(g.person.via)
    d.set(stop=f"{g.person.who} used {used}" if used else g.why, stopped_by=g.person)
    d.set_plan(path=note.path if note is not None else "")
    # a property of the note says no: move it to the folder where the next look decides that
    if note is not None and note.folder is Folder.ACTIVE:
        decision = decision_of(note) or note.status
        rejected = decision in (REJECT, "rejected")
        if cleared := cleared_decision(note):
            status = STATUSES[State.REJECTED if rejected else State.REVISING].plan
            d.stamp_plan(note, {"status": status, **cleared})
        d.move(note, Folder.REJECTED if rejected else Folder.PLANS)
    d.by_human(Action.PLAN_TAKEN_BACK, Entity.PLAN, g.person, running=True)


def _void_approval(d: DecisionBuilder) -> None:
    """Make the approval and the work that rests on it void."""
    d.void_work()
    d.spend_approval()
    d.set(stop="", stopped_by=SOMEBODY)


def _claimed(note: NoteSeen, key: str, own: str = "") -> Mapping[str, str]:
    """Return who the note says decided, unverified; nothing for the daemon's `own` stamp."""
    claim = str(note.meta.get(key) or "")[:200]
    return {"claimed": claim} if claim not in ("", own, SOMEONE) else {}


def _without_comments(text: bytes) -> tuple[bytes, str]:
    """Return a plan's properties, and its text without people's comments, which are not edits."""
    body = read_note(text).body
    return text[: len(text) - len(body.encode())], uncommented(body)


_EFFECTS: Mapping[type[Event], Callable[[DecisionBuilder, Any], None]] = {
    RequestEdited: _request_changed,
    RequestReturned: _request_changed,
    RequestPending: _pending,
    RequestGone: _request_gone,
    PlanApproved: _approved,
    ApprovalRefused: _refused,
    ActiveEdited: _active_edited,
    SandboxWeakened: _not_to_be_run,
    SignatureVoid: _not_to_be_run,
    ModelChanged: _not_to_be_run,
    TextLost: _not_to_be_run,
    FilesChanged: _files_changed,
    PlanRejected: _rejected,
    RejectionExplained: _rejection_explained,
    RevisionAsked: _revision_asked,
    PlanTakenBack: _taken_back,
    PlanEdited: _plan_edited,
    PlanSuperseded: _superseded,
    BoxStale: _box_stale,
    PlanGone: _plan_gone,
    StopAsked: _stop_asked,
    Answered: answered,
    ScopeWidened: scope_widened,
    ScopeRefused: scope_refused,
    Drafted: drafted,
    PlanningFailed: planning_failed,
    Asked: asked,
    Started: _started,
    MissionCompleted: mission_ended,
    MissionFailed: mission_ended,
}
