"""Turn the state of a case's notes into a gesture.

A gesture is how places and texts differ from the last acknowledged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from placet.case.approval import approval, is_older
from placet.case.callout import box_is_current, box_of
from placet.case.case import Asking, Case, NoteSeen, Rejection
from placet.case.events import (
    BY_MOVE,
    BY_PROPERTY,
    ActiveEdited,
    Answered,
    ApprovalRefused,
    Approving,
    BoxStale,
    Gesture,
    PlanApproved,
    PlanEdited,
    PlanGone,
    PlanRejected,
    PlanSuperseded,
    PlanTakenBack,
    RejectionExplained,
    RequestEdited,
    RequestGone,
    RequestPending,
    RequestReturned,
    RevisionAsked,
    ScopeRefused,
    ScopeWidened,
    StopAsked,
)
from placet.case.life_cycle import DRAFTING, STATUSES, State
from placet.case.notes import (
    APPROVE,
    ASKS,
    DRAFT,
    REJECT,
    REVISE,
    body_of,
    decision_of,
    rejection_in,
)
from placet.case.question_note import TAKEN_AWAY, answer_in, is_approved, shown_digest
from placet.case.sorting import CaseNotes
from placet.case.transitions import target
from placet.note.paths import Folder
from placet.plan.comments import comments, open_comments

# `status` of a plan that no person writes to say something
_NOBODYS = frozenset({"", "review", "error"})
# by the property `decision`, or by `status`
_DECIDED: Mapping[str, type[RevisionAsked] | type[PlanRejected]] = {
    REVISE: RevisionAsked,
    REJECT: PlanRejected,
    "needs_revision": RevisionAsked,
    "rejected": PlanRejected,
}


def _decided(plan: NoteSeen) -> tuple[str, type[RevisionAsked] | type[PlanRejected]] | None:
    """Return the property that rejects a plan or asks for a revision, and which of both; or None.

    A plan without an open comment is not revised, because nothing says what to change.
    """
    for key, value in (("decision", decision_of(plan)), ("status", plan.status)):
        what = _DECIDED.get(value)
        if what is PlanRejected or (what is not None and open_comments(body_of(plan.raw))):
            return f"{key}: {value}", what
    return None


def observe(case: Case, notes: CaseNotes, tools: Collection[str]) -> Gesture | None:
    """Return a person's one gesture since these notes were last acknowledged, or None.

    `tools` are the names that a plan may use. Of several things an answer comes first, because it
    stays true, then what stops work; the others show again on the next look. Where approvals are
    signed, no note shows one.
    """
    found = gestures(case, notes, tools)
    return next((one for one in found if not (case.must_sign and isinstance(one, Approving))), None)


def gestures(case: Case, notes: CaseNotes, tools: Collection[str]) -> Iterator[Gesture]:
    """Give all gestures that the notes show and that `TABLE` has for the case's state."""
    plan = notes.plans[0] if len(notes.plans) == 1 else None
    request = notes.request if notes.request is not None and not notes.request.problem else None
    found = chain(
        _answered(case, notes.asked),
        _candidates(case, notes, plan, request, tools),
        _of_asked(case, notes.asked, plan),
    )
    return (one for one in found if target(case, type(one)) is not None)


def _candidates(
    case: Case,
    notes: CaseNotes,
    plan: NoteSeen | None,
    request: NoteSeen | None,
    tools: Collection[str],
) -> Iterable[Gesture]:
    if plan is None and not notes.plans:
        yield from _without_plan(case, request)
    elif plan is not None and not plan.problem:
        moved = plan.folder is not Folder.ACTIVE
        if moved and case.acting is State.RUNNING and not case.stop:
            yield StopAsked(plan, f"its plan was moved to {plan.folder}", BY_MOVE)
        if (look := _IN_FOLDER.get(plan.folder)) is not None:
            yield from look(case, plan, request, tools)
    if notes.request is None:
        if case.request_path:
            yield RequestGone(plan if plan is not None and not plan.problem else None)
    elif request is not None and request.folder is Folder.REQUESTS and request.status != DRAFT:
        yield from _of_request(case, request, plan)


def _of_asked(case: Case, notes: Sequence[NoteSeen], plan: NoteSeen | None) -> Iterable[Gesture]:
    """Give a person's decision on a wider scope, or that the question was taken away."""
    if (asking := case.asking) is None or any(note.problem for note in notes):
        return
    if not notes and asking.amended:
        yield ScopeRefused(None, TAKEN_AWAY, BY_MOVE)
    elif not notes:
        yield Answered(None, "", 0, BY_MOVE)
    elif asking.amended and len(notes) == 1:
        yield from _widening(notes[0], asking, plan)


def _answered(case: Case, notes: Sequence[NoteSeen]) -> Iterable[Gesture]:
    """Give the answer to a question; two different answers cancel each other."""
    asking = case.asking
    if asking is None or asking.amended or any(note.problem for note in notes):
        return
    answers = [(note, answer_in(note, asking.options)) for note in notes]
    given = [(note, answer) for note, answer in answers if answer.text]
    if len({answer.text for _, answer in given}) == 1 and not any(a.problem for _, a in answers):
        note, answer = given[0]
        yield Answered(note, answer.text, answer.chosen, BY_PROPERTY)


def _widening(note: NoteSeen, asking: Asking, plan: NoteSeen | None) -> Iterable[Gesture]:
    """Give a person's word on a wider scope; only the note as it was written approves it."""
    no = _decided(note)
    person = BY_PROPERTY if note.folder is Folder.PLANS else BY_MOVE
    if (no is not None and no[1] is PlanRejected) or note.folder is Folder.REJECTED:
        remarks = [comment.text for comment in comments(body_of(note.raw))]
        why = "\n".join([*filter(None, [rejection_in(note, Rejection()).reason]), *remarks])
        yield ScopeRefused(note, why, person)
    elif is_approved(note) and shown_digest(note.raw) == asking.digest:
        yield ScopeWidened(note, plan, person)


def _of_request(case: Case, request: NoteSeen, plan: NoteSeen | None) -> Iterable[Gesture]:
    if not case.request_path:
        yield RequestReturned(request, plan)
    if not request.says(case.request_digest, case.request_meaning):
        yield RequestEdited(request, plan)
    if request.status in ASKS:
        yield RequestPending(request, plan, BY_PROPERTY)


def _without_plan(case: Case, request: NoteSeen | None) -> Iterable[Gesture]:
    if case.acting is State.RUNNING and not case.stop:
        yield StopAsked(None, "its plan was taken out of System/Active", BY_MOVE)
    if case.plan.path:
        yield PlanGone(request)


def _in_active(
    case: Case, plan: NoteSeen, request: NoteSeen | None, tools: Collection[str]
) -> Iterable[Gesture]:
    if case.acting is State.APPROVED:
        if not plan.says(case.approval.digest, case.approval.meaning):
            yield ActiveEdited(plan)
        elif (no := _decided(plan)) is not None:
            yield no[1](plan, request, BY_PROPERTY)
    elif case.acting is State.RUNNING:
        if not case.stop and (no := _decided(plan)) is not None:
            yield StopAsked(plan, f"its plan was set to `{no[0]}`", BY_PROPERTY)
        approved = plan.says(case.approval.digest, case.approval.meaning)
        if not approved and plan.digest != case.reported_edit:
            yield ActiveEdited(plan)
    elif case.must_sign and (no := _decided(plan)) is not None:
        yield no[1](plan, request, BY_PROPERTY)
    else:
        yield _approval(case, plan, request, tools)
        yield from _stale_box(case, plan)


def _approval(
    case: Case, plan: NoteSeen, request: NoteSeen | None, tools: Collection[str]
) -> Gesture:
    """Return the approval that a note's place or `decision` asks for, or its refusal."""
    person = BY_MOVE if plan.folder is Folder.ACTIVE else BY_PROPERTY
    approved = approval(case, plan, tools, in_box=True)
    if isinstance(approved, str):
        return ApprovalRefused(plan, approved, person)
    return PlanApproved(plan, request, approved, person)


def _in_rejected(
    case: Case, plan: NoteSeen, request: NoteSeen | None, tools: Collection[str]
) -> Iterable[Gesture]:
    yield PlanRejected(plan, request, BY_MOVE)
    if case.acting is not State.REJECTED:
        return
    if decision_of(plan) == APPROVE:
        yield _approval(case, plan, request, tools)
    elif _decided(plan) == (f"decision: {REVISE}", RevisionAsked):
        yield PlanTakenBack(plan, request, BY_PROPERTY)
    reason = rejection_in(plan, case.rejection).reason
    if plan.status in ("", "rejected") and reason not in ("", case.rejection.reason):
        yield RejectionExplained(plan)
    yield from _stale_box(case, plan)


def _in_plans(
    case: Case, plan: NoteSeen, request: NoteSeen | None, tools: Collection[str]
) -> Iterable[Gesture]:
    # A failed plan rests here; the next decision on it shows in its properties or its place.
    failed = case.acting is State.FAILED
    if decision_of(plan) == APPROVE and (failed or case.acting in (State.REVIEW, State.REVISING)):
        yield _approval(case, plan, request, tools)
    no = _decided(plan)
    if no is not None and no[0] == "status: needs_revision" and is_older(case, plan):
        no = None  # the newer one was written for that
    if failed and no is not None and no[1] is PlanRejected:
        yield PlanRejected(plan, request, BY_PROPERTY)
    elif failed and no is not None:
        yield PlanTakenBack(plan, request, BY_PROPERTY)
    elif case.acting not in (State.REVIEW, State.REVISING):
        if not failed or case.stopped_by.via:  # a stopped one is where it was moved
            yield PlanTakenBack(plan, request, BY_MOVE)
    elif no is not None:
        yield no[1](plan, request, BY_PROPERTY)
    if not plan.says(case.plan.basis_digest, case.plan.basis_meaning):
        yield PlanEdited(plan)
    if is_older(case, plan):
        yield PlanSuperseded(plan)
    yield from _stale_box(case, plan)


def _stale_box(case: Case, plan: NoteSeen) -> Iterable[Gesture]:
    # an emptied note, or one without its properties, gets none
    if plan.trace_id and not box_is_current(plan.raw, box_of(case, plan.path)):
        yield BoxStale(plan)


RESTS_IN = {
    State.REVIEW: Folder.PLANS,
    State.APPROVED: Folder.ACTIVE,
    State.RUNNING: Folder.ACTIVE,
    State.FAILED: Folder.PLANS,
    State.REJECTED: Folder.REJECTED,
}


def stale_statuses(case: Case, notes: CaseNotes) -> Iterable[tuple[NoteSeen, str]]:
    """Yield the notes with an outdated `status` of the daemon, each with the right one.

    A status that a person wrote is not among them: it is a decision, or a side note explains it.
    """
    wanted, request = STATUSES[case.acting], notes.request
    if request is not None and request.folder is Folder.REQUESTS and not request.problem:
        status = request.status
        ours = {"", "planning", "planned", *case.stamped}
        if case.acting in DRAFTING:  # it is what was asked for
            ours.add("pending")
        asks = status in ASKS and target(case, RequestPending) is not None
        if status in ours - {wanted.request} and not asks:
            yield request, wanted.request
    plan = notes.plans[0] if len(notes.plans) == 1 else None
    if plan is None or plan.problem or not plan.trace_id or case.stop:
        return
    if plan.folder is RESTS_IN.get(case.acting) and plan.status in _NOBODYS - {wanted.plan}:
        yield plan, wanted.plan


_IN_FOLDER: Mapping[
    Folder,
    Callable[[Case, NoteSeen, NoteSeen | None, Collection[str]], Iterable[Gesture]],
] = {
    Folder.ACTIVE: _in_active,
    Folder.REJECTED: _in_rejected,
    Folder.PLANS: _in_plans,
}
