"""The conditions under which a note in System/Active is approved and its mission begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

from placet.core.life.case import Case, NoteSeen, State
from placet.core.life.drift import KEY, IfChanged
from placet.core.life.plan_note import below, headed, says, show
from placet.core.life.sight import APPROVE, body_of, decision_of, same_moment
from placet.core.life.sorting import CaseNotes
from placet.core.text.names import Folder
from placet.core.text.partial import contradictions
from placet.core.text.plan import Plan
from placet.core.text.plan_reader import PlanProblems, parse_plan
from placet.core.turn.budget import Complexity

# `status` of a plan that does not contradict its approval: the daemon's words, and no person's no
_APPROVABLE = frozenset({"", "review", "approved", "error"})
OUTDATED = (
    "What stood on top of the plan was not what it may do now: its scope or its place was edited, "
    "or the callout was changed or taken away. It is written again: read it, and move the plan to "
    "System/Active again."
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
        and plan.digest == case.approval.digest
        and plan.status not in ("rejected", "needs_revision")
    )


def refusal(case: Case, plan: NoteSeen, tools: Collection[str], *, put_back: bool = False) -> str:
    """Return why this note in System/Active is not approved, or an empty string if it is.

    With `put_back` the reason will be in the note itself, above its text: lines are counted with
    it.
    """
    moment = plan.meta.get("approved_at")
    said = decision_of(plan)
    if case.state is State.COMPLETED:
        return "This plan has been carried out. To have something done again, drop a new request."
    # of a rejected plan the status is the daemon's own word, and the property is newer
    undone = said == APPROVE and case.state is State.REJECTED and plan.status == "rejected"
    if plan.status not in _APPROVABLE and not undone:
        return (
            f"It says `status: {plan.status}`, so it was not approved. Set `status: review` if you "
            "mean to approve it, and move it to System/Active again."
        )
    if said and said != APPROVE:
        return (
            f"It says `decision: {said}`, so it was not approved. To approve it, clear that "
            "property and move the plan to System/Active again."
        )
    revision = plan.meta.get("revision")
    if said and isinstance(revision, int) and revision < case.plan.revision:
        return (
            f"This is revision {revision} of the plan, and revision {case.plan.revision} was "
            "written since. A text that came back is approved only by moving it to System/Active."
        )
    if any(same_moment(moment, spent) for spent in case.spent_approvals):
        return (
            f"This approval (of {moment}) was used already, or given before the journal was lost "
            "or put back from a backup. To approve the plan again, move it to Inbox/Plans, read "
            "it, and move it to System/Active from there."
        )
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
        return f"It says `complexity: {size}`, which is none of {', '.join(Complexity)}."
    if problems := plan_problems(plan, tools, case if put_back else None):
        return "\n".join(problems)
    # Only a text under today's callout is approved: not an edited scope, a callout that was taken
    # away, the old note of a failed plan. A plan that was taken away, or could not be revised,
    # still has its callout of the review; but so has a copy of an approved one, whose approval is
    # used up.
    as_it_was = case.state is State.WITHDRAWN or (
        case.state is State.FAILED and not case.outcome.report_path
    )
    states = (case.state, State.REVIEW) if as_it_was and not case.spent_approvals else (case.state,)
    return (
        ""
        if any(says(plan.raw, show(replace(case, state=state), plan.path)) for state in states)
        else OUTDATED
    )


@lru_cache(maxsize=32)
def plan_in(body: str, tools: frozenset[str]) -> Plan:
    """Return the plan that a note's body states, whose steps may use `tools`; raises PlanProblems.

    The same text is parsed once, on the way from its approval to the start of its mission.
    """
    return parse_plan(body, tools)


def plan_problems(
    plan: NoteSeen, tools: Collection[str], told_in: Case | None = None
) -> Sequence[str]:
    """Return the problems of a plan's text, each a sentence with its line in the file.

    With `told_in` they will be in the callout of that case's plan: lines are counted with it.
    """
    body = body_of(plan.raw)
    try:
        return contradictions(plan_in(body, frozenset(tools)))
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
