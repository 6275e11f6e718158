"""From a case's notes to a gesture.

A gesture is how places and texts differ from the last acknowledged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from placet.core.life.approval import refusal
from placet.core.life.case import TABLE, Case, EventKind, NoteSeen, State
from placet.core.life.events import Gesture
from placet.core.life.plan_note import is_stale, show
from placet.core.life.sight import ASKS, DRAFT, reason_of
from placet.core.life.sorting import CaseNotes
from placet.core.text.names import Folder

# `status` of a failed plan in Inbox/Plans with which a person reviews it again; it rests as `error`
_TAKEN_BACK = frozenset({"", "review", "approved", "needs_revision"})
# why the mission stops, by the folder where its plan is now
_STOPPED = {
    Folder.REJECTED: "its plan was moved to Inbox/Rejected",
    Folder.PLANS: "its plan was moved back to Inbox/Plans",
    Folder.REQUESTS: "its plan was moved to Inbox/Requests",
}
_PENDING_PLAN = (Folder.REQUESTS, "pending", "")
_DECIDED = {"needs_revision": EventKind.REVISION_ASKED, "rejected": EventKind.PLAN_REJECTED}


def observe(case: Case, notes: CaseNotes, tools: Collection[str]) -> Gesture | None:
    """Return a person's one gesture since these notes were last acknowledged, or None.

    `tools` are the names that a plan may use. Of several things the one that stops work comes
    first; the others show again on the next look. Only gestures that `TABLE` has for the case's
    state are returned.
    """
    plan = notes.plans[0] if len(notes.plans) == 1 else None
    request = notes.request if notes.request is not None and not notes.request.problem else None
    for gesture in _candidates(case, notes, plan, request, tools):
        if (case.state, gesture.kind) in TABLE:
            return replace(gesture, plan=plan, request=request)
    return None


def _candidates(
    case: Case,
    notes: CaseNotes,
    plan: NoteSeen | None,
    request: NoteSeen | None,
    tools: Collection[str],
) -> Iterable[Gesture]:
    if plan is None and not notes.plans:
        yield from _without_plan(case)
    elif plan is not None and not plan.problem:
        if plan.folder in _STOPPED and case.state is State.RUNNING and not case.stop:
            yield Gesture(EventKind.STOP_ASKED, plan, _STOPPED[plan.folder])
        yield from _IN_FOLDER[plan.folder](case, plan, tools)
    if notes.request is None:
        if case.request_path:
            yield Gesture(EventKind.REQUEST_GONE)
    elif request is None or request.folder is not Folder.REQUESTS or request.status == DRAFT:
        return
    else:
        yield from _of_request(case, request)
    # a plan that came back from a failed mission was set to pending; its request may be gone
    if plan is not None and (plan.folder, plan.status, plan.problem) == _PENDING_PLAN:
        yield Gesture(EventKind.REQUEST_PENDING, plan)


def _of_request(case: Case, request: NoteSeen) -> Iterable[Gesture]:
    if not case.request_path:
        yield Gesture(EventKind.REQUEST_RETURNED, request)
    if request.digest != case.request_digest:
        yield Gesture(EventKind.REQUEST_EDITED, request)
    if request.status in ASKS:
        yield Gesture(EventKind.REQUEST_PENDING, request)


def _without_plan(case: Case) -> Iterable[Gesture]:
    if case.state is State.RUNNING and not case.stop:
        yield Gesture(EventKind.STOP_ASKED, why="its plan was taken out of System/Active")
    if case.plan_path:
        yield Gesture(EventKind.PLAN_GONE)


def _in_active(case: Case, plan: NoteSeen, tools: Collection[str]) -> Iterable[Gesture]:
    if case.state is State.APPROVED:
        if plan.digest != case.approved_digest:
            yield Gesture(EventKind.ACTIVE_EDITED, plan)
        elif plan.status in _DECIDED:
            yield Gesture(_DECIDED[plan.status], plan)
    elif case.state is State.RUNNING:
        if not case.stop and plan.status in _DECIDED:
            why = f"its plan was set to `status: {plan.status}`"
            yield Gesture(EventKind.STOP_ASKED, plan, why)
        if plan.digest not in (case.approved_digest, case.reported_edit):
            yield Gesture(EventKind.ACTIVE_EDITED, plan)
    elif why := refusal(case, plan, tools, put_back=True):
        yield Gesture(EventKind.APPROVAL_REFUSED, plan, why)
    else:
        yield Gesture(EventKind.PLAN_APPROVED, plan)


def _in_rejected(case: Case, plan: NoteSeen, _: Collection[str]) -> Iterable[Gesture]:
    yield Gesture(EventKind.PLAN_REJECTED, plan)
    if case.state is not State.REJECTED:
        return
    told = (plan.digest, plan.meta.get("rejection_reason") or "")
    if (
        plan.status in ("", "rejected")
        and told != (case.rejected_digest, case.rejection_reason)
        and reason_of(plan) != case.rejection_reason
    ):
        yield Gesture(EventKind.REJECTION_EXPLAINED, plan)
    if is_stale(plan.raw, show(case, plan.path)):
        yield Gesture(EventKind.CALLOUT_STALE, plan)


def _in_plans(case: Case, plan: NoteSeen, _: Collection[str]) -> Iterable[Gesture]:
    # A failed plan rests here; the next decision on it shows in its status or place.
    if case.state is State.FAILED and plan.status == "rejected":
        yield Gesture(EventKind.PLAN_REJECTED, plan)
    elif case.state is State.FAILED and plan.status == "pending":
        yield Gesture(EventKind.REQUEST_PENDING, plan)
    elif case.state not in (State.REVIEW, State.REVISING):
        if case.state is not State.FAILED or plan.status in _TAKEN_BACK:
            yield Gesture(EventKind.PLAN_TAKEN_BACK, plan)
    elif plan.status in _DECIDED:
        yield Gesture(_DECIDED[plan.status], plan)
    if plan.digest != case.basis_digest:
        yield Gesture(EventKind.PLAN_EDITED, plan)
    if is_stale(plan.raw, show(case, plan.path)):
        yield Gesture(EventKind.CALLOUT_STALE, plan)


def _in_requests(_: Case, plan: NoteSeen, __: Collection[str]) -> Iterable[Gesture]:
    why = "A plan does not belong in Inbox/Requests."
    yield Gesture(EventKind.PLAN_MISPLACED, plan, why)


_IN_FOLDER: Mapping[Folder, Callable[[Case, NoteSeen, Collection[str]], Iterable[Gesture]]] = {
    Folder.ACTIVE: _in_active,
    Folder.REJECTED: _in_rejected,
    Folder.PLANS: _in_plans,
    Folder.REQUESTS: _in_requests,
}
