"""From notes to events: whose note it is, and how where it lies differs from what was last acknowledged."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from placet.core.life.case import TABLE, Case, EventKind, Gesture, NoteSeen, State
from placet.core.life.drift import KEY, IfChanged
from placet.core.life.plan_note import below, headed, is_stale, says, show
from placet.core.text.blocks import Frontmatter
from placet.core.text.comments import diff_callout, rejection_reason
from placet.core.text.names import QUEUES, Folder, is_utf8
from placet.core.text.names import show as shown
from placet.core.text.note import PLAN_STAMPS, REQUEST_STAMPS, Note, digest, read_note, stamp
from placet.core.text.plan import Plan
from placet.core.text.plan_reader import MAX_PLAN_CHARACTERS, PlanProblems, parse_plan
from placet.core.text.scalars import UnsafeEdit
from placet.core.turn.budget import Complexity

ASKS = frozenset({"", "pending"})
"""`status` of a request that asks for a plan."""
DRAFT = "draft"
"""`status` of a request that is still being written: nothing is done with it, and nothing is said about it."""


@dataclass(slots=True)
class CaseNotes:
    """The settled notes that belong to one case."""

    request: NoteSeen | None = None
    plans: list[NoteSeen] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Every note with its owner.

    `notices` are notes that stay as they are, each with the reason for a person.
    """

    of_case: Mapping[str, CaseNotes]
    new: tuple[NoteSeen, ...]
    orphans: tuple[NoteSeen, ...]
    notices: tuple[tuple[NoteSeen, str], ...]


def sort_notes(cases: Mapping[str, Case], notes: Iterable[NoteSeen]) -> Sorted:
    """Say for each note which case it belongs to: by its `trace_id`, else by the place where it was last seen.

    The place counts only where no other note has the `trace_id`: an editor may have dropped a note's properties, but what lies
    where a note was that has been renamed is something else. `cases` is keyed by trace_id. A note that belongs to none is a new
    request, or an orphan: a plan whose case the journal does not know.
    """
    of_case: dict[str, CaseNotes] = {}
    requests: dict[str, list[NoteSeen]] = {}
    new: list[NoteSeen] = []
    orphans: list[NoteSeen] = []
    notices: list[tuple[NoteSeen, str]] = []
    strangers: list[tuple[NoteSeen, str]] = []
    at_path: dict[str, Case] = {}
    for case in cases.values():
        if case.state is not State.COMPLETED and case.request_path:
            at_path[case.request_path] = case
        if case.plan_path:
            at_path.setdefault(case.plan_path, case)
    every = list(notes)
    marked = {(note.trace_id, note.is_plan) for note in every}
    for note in every:
        owner = cases.get(note.trace_id) or (at_path.get(note.path) if not note.trace_id else None)
        if (
            owner is not None
            and not note.trace_id
            and (owner.trace_id, note.path == owner.plan_path) in marked
        ):
            owner = None
        plan_place = note.folder is not Folder.REQUESTS
        if owner is None:
            if note.problem:
                notices.append((note, note.problem))
            elif note.is_plan and note.trace_id:
                orphans.append(note)
            elif note.is_plan:
                notices.append(
                    (
                        note,
                        "This note has a plan's keys (`request_id`, `revision`) but no `trace_id`, so nobody knows "
                        "whose plan it is. Put its `trace_id` back, or remove these lines as well.",
                    )
                )
            elif plan_place:
                notices.append((note, _STRANGER[note.folder]))
            elif note.status == DRAFT:
                continue
            elif why := _not_asking(note):
                strangers.append((note, why))
            else:
                new.append(note)
        elif (
            note.is_plan
            or note.path == owner.plan_path != owner.request_path
            or (plan_place and note.problem)
        ):
            # One that became unreadable as it was moved no longer says what it is; where it lies
            # does.
            of_case.setdefault(owner.trace_id, CaseNotes()).plans.append(note)
            if note.problem:
                notices.append((note, note.problem))
        elif plan_place:
            notices.append(
                (
                    note,
                    "This is a request, not a plan: nothing is approved by moving it here. Move it back "
                    f"to `{Folder.REQUESTS}`; its plan is what you approve.",
                )
            )
            requests.setdefault(owner.trace_id, []).append(note)
        else:
            requests.setdefault(owner.trace_id, []).append(note)
            if note.problem:
                notices.append((note, note.problem))
    adopted = {note.trace_id for note in orphans}
    notices += [(note, why) for note, why in strangers if note.trace_id not in adopted]
    for trace_id, found in requests.items():
        known = cases[trace_id].request_path
        # A copy among the plans is nobody's request, whatever its name: the one that was renamed
        # lies with the requests.
        chosen = min(
            found, key=lambda n: (n.folder is not Folder.REQUESTS, n.path != known, n.path)
        )
        of_case.setdefault(trace_id, CaseNotes()).request = chosen
        for note in found:
            if note is not chosen:
                notices.append(
                    (
                        note,
                        f"This note has the same `trace_id` as `{shown(chosen.path)}`, so it is taken for a copy and "
                        "nothing is done with it. To make it a request of its own, remove its "
                        "`trace_id` and `status` lines." + _difference(chosen, note),
                    )
                )
    for trace_id, its in of_case.items():
        if len(its.plans) > 1:
            places = ", ".join(
                f"`{shown(n.path)}`" for n in sorted(its.plans, key=lambda n: n.path)
            )
            for note in its.plans:
                other = its.plans[0] if note is not its.plans[0] else its.plans[1]
                notices.append(
                    (
                        note,
                        f"There are {len(its.plans)} plans with the trace_id {trace_id}: {places}. None of "
                        "them counts until only one is left: delete the others, or move them out of "
                        "these folders." + _difference(other, note),
                    )
                )
    return Sorted(of_case, tuple(new), tuple(orphans), tuple(notices))


def _difference(one: NoteSeen, other: NoteSeen) -> str:
    """Return how a note differs from another one, as a line or a callout below a reason."""
    if one.raw == other.raw:
        return f"\nIts text is the same as that of `{shown(one.path)}`."
    return "\n" + diff_callout(one.raw.decode(errors="replace"), other.raw.decode(errors="replace"))


_KNOWN_STATUS = frozenset({*ASKS, "planning", "planned", "completed", "rejected", "error"})
_APPROVABLE = frozenset({"", "review", "approved", "error"})
"""`status` of a plan that says nothing against its approval: what the daemon writes, and nothing that a person may mean as a no."""

_TAKEN_BACK = frozenset({"", "review", "approved", "needs_revision"})
"""`status` of a failed plan in Inbox/Plans with which a person reviews it again.

It rests there as `error`.
"""

_STRANGER = {
    Folder.PLANS: "This note has no `trace_id`, so it is no plan of placet's and nothing is done with it.",
    Folder.ACTIVE: "This note has no `trace_id`, so it is no plan that was reviewed, and nothing of it runs. Drop a request "
    f"into `{Folder.REQUESTS}`, and move its plan here once you have read it.",
    Folder.REJECTED: "This note has no `trace_id`, so it is no plan of placet's and nothing is done with it.",
}


def _not_asking(note: NoteSeen) -> str:
    """Say why a request that belongs to no case asks for nothing, empty if it asks for a plan."""
    if note.status in ASKS or note.status == "planning":
        return ""
    what = (
        "says that this request was taken up, but the journal does not know it"
        if note.status in _KNOWN_STATUS
        else "is not a status that placet knows"
    )
    return f"`status: {note.status}` {what}. To ask for a plan, remove the line or write `status: pending`."


def observe(case: Case, notes: CaseNotes, tools: Collection[str]) -> Gesture | None:
    """Return the one thing that a person did to this case's notes since it was last acknowledged, or None.

    `tools` are the names that a plan may use. Of several things the one that stops work comes first; the others
    show again on the next look. Only what `TABLE` has for the case's state is returned.
    """
    for gesture in _candidates(case, notes, tools):
        if (case.state, gesture.kind) in TABLE:
            return replace(gesture, plan=notes.plans[0] if len(notes.plans) == 1 else None)
    return None


def _candidates(case: Case, notes: CaseNotes, tools: Collection[str]) -> Iterable[Gesture]:
    request = notes.request if notes.request is not None and not notes.request.problem else None
    if len(notes.plans) <= 1:
        yield from _plan_gestures(case, notes.plans[0] if notes.plans else None, request, tools)
    if notes.request is None:
        if case.request_path:
            yield Gesture(EventKind.REQUEST_GONE)
        yield from _pending_plan(notes, None)
        return
    if request is None or request.folder is not Folder.REQUESTS or request.status == DRAFT:
        return
    if not case.request_path:
        yield Gesture(EventKind.REQUEST_RETURNED, request, request=request)
    if request.digest != case.request_digest:
        yield Gesture(EventKind.REQUEST_EDITED, request, request=request)
    if request.status in ASKS:
        yield Gesture(EventKind.REQUEST_PENDING, request, request=request)
    yield from _pending_plan(notes, request)


def _pending_plan(notes: CaseNotes, request: NoteSeen | None) -> Iterable[Gesture]:
    """A plan that came back from a failed mission was set to pending; its request may be gone."""
    if (
        len(notes.plans) == 1
        and notes.plans[0].folder is Folder.REQUESTS
        and notes.plans[0].status == "pending"
        and not notes.plans[0].problem
    ):
        yield Gesture(EventKind.REQUEST_PENDING, notes.plans[0], request=request)


def _plan_gestures(
    case: Case, plan: NoteSeen | None, request: NoteSeen | None, tools: Collection[str]
) -> Iterable[Gesture]:
    if plan is None:
        if case.state is State.RUNNING and not case.stop:
            yield Gesture(
                EventKind.STOP_ASKED, why="its plan was taken out of System/Active", request=request
            )
        if case.plan_path:
            yield Gesture(EventKind.PLAN_GONE, request=request)
        return
    if plan.problem:
        return
    match plan.folder:
        case Folder.ACTIVE:
            yield from _in_active(case, plan, request, tools)
        case Folder.REJECTED:
            if case.state is State.RUNNING and not case.stop:
                yield Gesture(
                    EventKind.STOP_ASKED, plan, "its plan was moved to Inbox/Rejected", request
                )
            yield Gesture(EventKind.PLAN_REJECTED, plan, request=request)
            if (
                case.state is State.REJECTED
                and plan.status in ("", "rejected")
                and (plan.digest, plan.meta.get("rejection_reason") or "")
                != (case.rejected_digest, case.rejection_reason)
                and reason_of(plan) != case.rejection_reason
            ):
                yield Gesture(EventKind.REJECTION_EXPLAINED, plan, request=request)
            if case.state is State.REJECTED and is_stale(plan.raw, show(case, plan.path)):
                yield Gesture(EventKind.CALLOUT_STALE, plan, request=request)
        case Folder.PLANS:
            if case.state is State.RUNNING and not case.stop:
                yield Gesture(
                    EventKind.STOP_ASKED, plan, "its plan was moved back to Inbox/Plans", request
                )
            # A failed plan rests here; what is done with it next shows in its status or place.
            if case.state is State.FAILED and plan.status == "rejected":
                yield Gesture(EventKind.PLAN_REJECTED, plan, request=request)
            elif case.state is State.FAILED and plan.status == "pending":
                yield Gesture(EventKind.REQUEST_PENDING, plan, request=request)
            elif case.state not in (State.REVIEW, State.REVISING):
                if case.state is not State.FAILED or plan.status in _TAKEN_BACK:
                    yield Gesture(EventKind.PLAN_TAKEN_BACK, plan, request=request)
            elif plan.status == "needs_revision":
                yield Gesture(EventKind.REVISION_ASKED, plan, request=request)
            elif plan.status == "rejected":
                yield Gesture(EventKind.PLAN_REJECTED, plan, request=request)
            if plan.digest != case.basis_digest:
                yield Gesture(EventKind.PLAN_EDITED, plan, request=request)
            if is_stale(plan.raw, show(case, plan.path)):
                yield Gesture(EventKind.CALLOUT_STALE, plan, request=request)
        case Folder.REQUESTS:
            if case.state is State.RUNNING and not case.stop:
                yield Gesture(
                    EventKind.STOP_ASKED, plan, "its plan was moved to Inbox/Requests", request
                )
            yield Gesture(
                EventKind.PLAN_MISPLACED, plan, "A plan does not belong in Inbox/Requests.", request
            )


def reason_of(plan: NoteSeen) -> str:
    """Return why a plan was rejected, as its note says; empty where it does not."""
    return str(plan.meta.get("rejection_reason") or "") or rejection_reason(body_of(plan.raw))


def is_by_place(notes: CaseNotes) -> bool:
    """Whether the request's note is the case's only by its place: one that was renamed, and has the trace_id, may be unread."""
    return notes.request is not None and not notes.request.trace_id


def may_begin(case: Case, notes: CaseNotes) -> bool:
    """Whether the mission of an approved case may begin: its only plan lies in System/Active and says what was approved."""
    if case.state is not State.APPROVED or len(notes.plans) != 1:
        return False
    plan = notes.plans[0]
    return (
        plan.folder is Folder.ACTIVE
        and not plan.problem
        and plan.digest == case.approved_digest
        and plan.status not in ("rejected", "needs_revision")
    )


def _in_active(
    case: Case, plan: NoteSeen, request: NoteSeen | None, tools: Collection[str]
) -> Iterable[Gesture]:
    if case.state is State.APPROVED:
        if plan.digest != case.approved_digest:
            yield Gesture(EventKind.ACTIVE_EDITED, plan, request=request)
        elif plan.status == "needs_revision":
            yield Gesture(EventKind.REVISION_ASKED, plan, request=request)
        elif plan.status == "rejected":
            yield Gesture(EventKind.PLAN_REJECTED, plan, request=request)
    elif case.state is State.RUNNING:
        if not case.stop and plan.status in ("rejected", "needs_revision"):
            yield Gesture(
                EventKind.STOP_ASKED, plan, f"its plan was set to `status: {plan.status}`", request
            )
        if plan.digest not in (case.approved_digest, case.reported_edit):
            yield Gesture(EventKind.ACTIVE_EDITED, plan, request=request)
    elif why := refusal(case, plan, tools, put_back=True):
        yield Gesture(EventKind.APPROVAL_REFUSED, plan, why, request)
    else:
        yield Gesture(EventKind.PLAN_APPROVED, plan, request=request)


def refusal(case: Case, plan: NoteSeen, tools: Collection[str], *, put_back: bool = False) -> str:
    """Say why moving this note to System/Active approves nothing; empty if it does approve.

    `put_back` says that the reason will stand in the note itself, above its text: lines are counted
    with it.
    """
    moment = plan.meta.get("approved_at")
    if case.state is State.COMPLETED:
        return "This plan has been carried out. To have something done again, drop a new request."
    if plan.status not in _APPROVABLE:
        return (
            f"It says `status: {plan.status}`, so it was not approved. Set `status: review` if you mean to approve "
            "it, and move it to System/Active again."
        )
    if any(_same_moment(moment, spent) for spent in case.spent_approvals):
        return (
            f"This approval (of {moment}) was used already, or given before the journal was lost or put back from a backup. To "
            "approve the plan again, move it to Inbox/Plans, read it, and move it to System/Active from there."
        )
    if (named := plan.meta.get("request_id")) is not None and str(named) != case.request_id:
        return f"It says `request_id: {named}`, but its trace_id belongs to {case.request_id}."
    said = plan.meta.get(KEY, IfChanged.ASK)
    if said not in list(IfChanged):
        return f"It says `{KEY}: {said}`, which is neither `{IfChanged.ASK}` nor `{IfChanged.PROCEED}`."
    size = str(plan.meta.get("complexity") or Complexity.STANDARD)
    if size not in list(Complexity):
        return f"It says `complexity: {size}`, which is none of {', '.join(Complexity)}."
    if problems := plan_problems(plan, tools, case if put_back else None):
        return "\n".join(problems)
    # What was never shown like this is not approved: an edited scope, a callout that was taken
    # away, the old note of a failed plan. One that was taken away, or could not be revised, still
    # says what it said in review; but so does a copy of one that was approved, which is used up.
    as_it_was = case.state is State.WITHDRAWN or (
        case.state is State.FAILED and not case.report_path
    )
    states = (case.state, State.REVIEW) if as_it_was and not case.spent_approvals else (case.state,)
    return (
        ""
        if any(says(plan.raw, show(replace(case, state=state), plan.path)) for state in states)
        else OUTDATED
    )


OUTDATED = (
    "What stood on top of the plan was not what it may do now: its scope or its place was edited, or the callout was "
    "changed or taken away. It is written anew: read it, and move the plan to System/Active again."
)


def _same_moment(value: object, spent: str) -> bool:
    """Compare a stamp as a note's format reads it (YAML and TOML read a datetime) with one that the daemon wrote."""
    if isinstance(value, datetime):
        return value == datetime.fromisoformat(spent)
    return value == spent


@lru_cache(maxsize=32)
def plan_in(body: str, tools: frozenset[str]) -> Plan:
    """Return the plan that a note's body states, whose steps may use `tools`; raises PlanProblems.

    The same text is parsed once, on the way from its approval to the start of its mission.
    """
    return parse_plan(body, tools)


def plan_problems(
    plan: NoteSeen, tools: Collection[str], told_in: Case | None = None
) -> Sequence[str]:
    """Return every problem of a plan's text, each a sentence with its line in the file.

    Empty if it can be carried out.

    With `told_in`, that case's plan will say so in its callout: lines are counted with it.
    """
    body = body_of(plan.raw)
    try:
        plan_in(body, frozenset(tools))
    except PlanProblems as found:
        # an editor counts the frontmatter, too
        above = plan.raw[: len(plan.raw) - len(body.encode())].count(b"\n")
        if told_in is not None:
            before, text = below(body)
            told = headed(
                plan.raw, show(replace(told_in, notice="-\n" * (len(found.problems) + 1)))
            )
            above = told.count(b"\n") - text.encode().count(b"\n") - before
        return [f"Line {above + p.line}: {p.message}" for p in found.problems]
    return ()


def body_of(raw: bytes) -> str:
    """Return a note's text below the frontmatter."""
    return read_note(raw).body


MAX_PLAN_BYTES = 2 * MAX_PLAN_CHARACTERS
"""How large a plan's note may be with its properties and all that was said in it, in whatever script."""
NOT_UTF8 = (
    "The name of this file is not UTF-8, so it cannot be told from others for sure. Rename it."
)
_TRACE = re.compile(
    rb"trace_id[\"']?\s*[:=]\s*[\"']?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)


def trace_of(raw: bytes) -> str:
    """Return the trace_id that a note says it has, empty where it says none, or what is none."""
    said = _trace_said(read_note(raw))
    try:
        return str(UUID(said)) if said else ""
    except ValueError:
        return ""


def is_draft(raw: bytes) -> bool:
    """Tell whether a note is a request that says that it is still being written."""
    meta = read_note(raw).meta
    return "revision" not in meta and str(meta.get("status") or "").strip().lower() == DRAFT


def _trace_said(note: Note) -> str:
    said = str(note.meta.get("trace_id") or "")
    if note.problem and not said and (hint := _TRACE.search(note.raw[:4096])):
        return hint[1].decode()
    return said


def look_at(path: str, raw: bytes, owner: str) -> NoteSeen:
    """Return a note as it is seen: whose it is, what it says of itself, and what is wrong with it.

    A note whose frontmatter cannot be read still belongs to the case whose trace_id stands in it,
    so that a slip of the pen never reads as "the plan was taken away".
    """
    note = read_note(raw)
    folder = next(f for f in QUEUES if path.startswith(f"{f}/"))
    meta = note.meta
    problem = note.problem if is_utf8(path) else NOT_UTF8
    if len(raw) > MAX_PLAN_BYTES and folder is not Folder.REQUESTS:
        problem = problem or (
            f"It is {len(raw):,} bytes long, and no more than {MAX_PLAN_BYTES:,} of a plan are read. Shorten it, "
            "or delete it and ask for several smaller ones."
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
        # A note that cannot be stamped would ask for the same thing for ever.
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
