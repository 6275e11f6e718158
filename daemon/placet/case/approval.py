"""Say what a note in System/Active approves, and why a decision has no effect."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from placet.case.callout import box_of, box_says
from placet.case.case import Case, NoteSeen
from placet.case.drift import KEY, IfChanged
from placet.case.explain import state_sentence
from placet.case.life_cycle import OVER, State
from placet.case.notes import APPROVE, body_of, decision_of, same_moment
from placet.case.sorting import CaseNotes
from placet.case.warnings import NO_COMMENT, missing_keys
from placet.chat.budget import Complexity
from placet.codec import sha256
from placet.note.escape import code
from placet.note.paths import Folder
from placet.plan.comments import open_comments
from placet.plan.digest import plan_text
from placet.plan.left_out import contradictions
from placet.plan.limits import comment_excess, plan_excess
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Approved
from placet.plan.statement import FULL_COMMIT

# `status` of a plan that may be approved: values that placet writes, not refusals
_APPROVABLE = frozenset({"", "review", "approved", "error"})
NOT_SIGNED = "Approvals are signed here, and this one is not."
NO_RECORD = "There is no record that anyone approved this plan. Please review it again."
NO_TOOLS = (
    "The line `tools` is missing in the scope. Put it back, with the tools that the agent may use: "
    '`tools = ["read_file"]`.'
)
OUTDATED = (
    "What this plan may do changed after placet wrote its summary box: a step, the scope, the "
    "portal or the box itself. placet updated the box. Read it, then approve the plan again."
)


def may_begin(case: Case, notes: CaseNotes) -> bool:
    """Return whether the mission may begin.

    It may if the case's only plan is in System/Active with the approved text.
    """
    if case.state is not State.APPROVED or len(notes.plans) != 1:
        return False
    plan = notes.plans[0]
    return (
        plan.folder is Folder.ACTIVE
        and not plan.problem
        and plan.says(case.approval.digest, case.approval.meaning)
        and plan.status not in ("rejected", "needs_revision")
    )


def is_older(case: Case, plan: NoteSeen) -> bool:
    """Return whether a newer revision of this plan was written."""
    revision = plan.meta.get("revision")
    return isinstance(revision, int) and 0 < revision < case.plan.revision


def approval(
    case: Case, plan: NoteSeen, tools: Collection[str], *, in_box: bool = False
) -> Approved | str:
    """Return what this note in System/Active approves, or why it approves nothing.

    With `in_box` the reason is for the note's own box: lines are counted from there.
    """
    if why := _denial(case, plan):
        return why
    if isinstance(approved := valid_plan(plan, tools, in_box=in_box), str):
        return approved
    if case.plan.names_tools and approved.plan.scope.tools is None:
        return NO_TOOLS
    # Only a text below its own box is approved: not an edited scope, a box that was taken away, the
    # old note of a failed plan. A plan that was taken away, or could not be revised, still has its
    # box of the review; but so has a copy of an approved one, whose approval is used up.
    as_it_was = case.state is State.WITHDRAWN or (
        case.state is State.FAILED and not case.outcome.report_path
    )
    states = (case.state, State.REVIEW) if as_it_was and not case.spent_approvals else (case.state,)
    # one that waits for its signature has another box in System/Active
    paths = (plan.path, f"{Folder.PLANS}/") if case.must_sign else (plan.path,)
    boxes = (
        box_of(replace(case, state=state), path) for state, path in itertools.product(states, paths)
    )
    return approved if any(box_says(plan.raw, box) for box in boxes) else OUTDATED


ONCE_MORE = "After your approval placet shows it to you once more."
"""What follows the approval of a plan that was written under other settings."""


def changed_model(case: Case, now: str) -> str:
    """Return a sentence on the model `now`, which no person knows may work on a plan, or ""."""
    known = case.plan.models
    if not known or now in known:
        return ""
    return f"This plan was written for the model {known[0]}. The settings now name {now}."


def changed_instructions(case: Case, now: Sequence[tuple[str, str]]) -> str:
    """Return a sentence on the notes for agents that changed since a plan was written, or "".

    `now` are the digests of today's notes, by path, as in `KnownPlan`.
    """
    known = dict(case.plan.instructions)
    if not known:
        return ""
    if others := [code(path) for path, _ in now if path not in known]:
        return f"The agent would follow {' and '.join(others)}. Another agent wrote this plan."
    if not (changed := [code(path) for path, digest in now if known[path] != digest]):
        return ""
    return (
        f"{' and '.join(changed)} changed after this plan was written, and the agent takes its "
        "instructions from there."
    )


_DECIDABLE: Mapping[str, tuple[frozenset[State], str]] = {
    "approve": (frozenset({State.REVIEW, State.REVISING, State.FAILED}), "no plan to approve"),
    "reject": (frozenset({State.REVIEW, State.REVISING, State.FAILED}), "no plan to reject"),
    "revise": (frozenset({State.REVIEW, State.REVISING, State.FAILED}), "no plan to comment on"),
    "comment": (frozenset({State.REVIEW, State.REVISING}), "no plan to comment on"),
    "tick": (frozenset({State.REVIEW, State.REVISING}), "no plan to tick"),
    "stop": (frozenset({State.APPROVED, State.RUNNING}), "nothing to stop"),
    "retry": (OVER | {State.REVIEW}, "nothing to try again"),
}


def refusal(
    case: Case, note: NoteSeen | None, decision: str, tools: Collection[str] = ()
) -> str | None:
    """Return why a person's `decision` has no effect, in a sentence; None if it has one.

    `note` is the plan, or for `retry` the request, with what the decision adds; without it the
    case alone is asked, which says what to offer. `tools` are the names that a plan may use.
    """
    if decision in ("approve", "reject") and case.asking is not None and case.asking.amended:
        return None  # of a wider scope, which has its own note
    states, what = _DECIDABLE[decision]
    allowed = case.acting in states
    if decision == "retry" and case.state is State.REVIEW:
        allowed = bool(case.outcome.report_path)
    elif case.state is State.FAILED and decision != "retry":
        allowed = allowed and bool(case.plan.path)
    if not allowed:
        return f"{state_sentence(case)}, so there is {what}."
    if note is None or decision == "retry":
        return None
    if why := note.problem or missing_keys(case, note):
        return why
    if decision == "approve":
        found = approval(case, note, tools)
        return found if isinstance(found, str) else None
    return NO_COMMENT if decision == "revise" and not open_comments(body_of(note.raw)) else None


def _denial(case: Case, plan: NoteSeen) -> str:
    """Return what in a note's properties, or in its case, denies that it is approved."""
    moment = plan.meta.get("approved_at")
    decision = decision_of(plan)
    if case.state is State.COMPLETED:
        return "This plan is done already. To have something done again, write a new request."
    if decision == APPROVE and is_older(case, plan):
        return (
            f"This is revision {plan.meta['revision']} of the plan, and revision "
            f"{case.plan.revision} was written since. A text that came back is approved only by "
            "moving it to System/Active."
        )
    # of a rejected plan the status is the daemon's own word, and the property is newer
    undone = decision == APPROVE and case.state is State.REJECTED and plan.status == "rejected"
    if plan.status not in _APPROVABLE and not undone:
        return (
            f"It says `status: {plan.status}`, so it was not approved. Set `status: review` if you "
            "mean to approve it, and move it to System/Active again."
        )
    if decision and decision != APPROVE:
        return (
            f"It says `decision: {decision}`, so it was not approved. To approve it, clear that "
            "property and move the plan to System/Active again."
        )
    if any(same_moment(moment, spent) for spent in case.spent_approvals):
        return (
            f"This approval (of {moment}) was used already. To approve the plan again, move it to "
            "Inbox/Plans, read it, and move it to System/Active from there."
        )
    if moment is not None:  # which the daemon stamps with the approval that it records
        return NO_RECORD
    if (named := plan.meta.get("request_id")) is not None and str(named) != case.request_id:
        return f"It says `request_id: {named}`, but its trace_id belongs to {case.request_id}."
    changed = plan.meta.get(KEY, IfChanged.ASK)
    if changed not in list(IfChanged):
        return (
            f"It says `{KEY}: {changed}`, which is neither `{IfChanged.ASK}` nor "
            f"`{IfChanged.PROCEED}`."
        )
    size = str(plan.meta.get("complexity") or Complexity.STANDARD)
    if size not in list(Complexity):
        return f"It says `complexity: {size}`, not one of {', '.join(Complexity)}."
    base = str(plan.meta.get("base_commit") or "")
    if case.must_sign and not FULL_COMMIT.fullmatch(base):
        return (
            f"Where approvals are signed, `base_commit` is a full commit id, and this is {base!r}. "
            "See it in the repository: git rev-parse HEAD"
        )
    return missing_keys(case, plan) or _other_place(case, plan)


def _other_place(case: Case, plan: NoteSeen) -> str:
    """Return why a plan cannot be for the portal that it names: its base commit is of another."""
    portal, known = str(plan.meta.get("portal") or ""), case.planned_portal
    base = str(plan.meta.get("base_commit") or "")
    if portal == known or not base or base != case.plan.base_commit:
        return ""
    restore = f"Restore `portal: {known}`." if known else "Remove the value of `portal`."
    return (
        f"It says `portal: {portal}`, but it was planned for "
        + (f"the portal {known}" if known else "this vault")
        + f". {restore} To have it planned for another place, change `portal` in the request."
    )


def valid_plan(plan: NoteSeen, tools: Collection[str], *, in_box: bool = False) -> Approved | str:
    """Return the plan that a note states, or all that is wrong with its text, a sentence a line."""
    try:
        approved = approved_in(plan.raw, tools)
    except PlanProblems as found:
        return "\n".join(_with_lines(plan.raw, found, in_box=in_box))
    body = body_of(plan.raw)
    if problems := [*plan_excess(approved.plan), *comment_excess(body)]:
        return "\n".join(problems)
    if problems := contradictions(approved.plan):
        return "\n".join(problems)
    return approved


def approved_in(raw: bytes, tools: Collection[str]) -> Approved:
    """Return the plan of a note as an approval binds it; its steps may use `tools`.

    Raises PlanProblems.
    """
    text = plan_text(raw)
    return Approved(text, parse_plan(body_of(raw), tools), sha256(text))


def _with_lines(raw: bytes, found: PlanProblems, *, in_box: bool) -> Sequence[str]:
    """Return the problems of a plan's text, each a sentence with its line in the file.

    With `in_box` lines are counted from the plan's own box.
    """
    if in_box:
        return [f"Line {p.line} below this box: {p.message}" for p in found.problems]
    # an editor counts the properties and the box, too
    above = raw[: len(raw) - len(body_of(raw).encode())].count(b"\n")
    return [f"Line {above + p.line}: {p.message}" for p in found.problems]
