"""The note of a plan: from what the model submitted, with remarks for the person who reviews it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath

from placet.agent.workplace import Ports
from placet.case.callout import PlanHead, compose
from placet.case.case import Case
from placet.case.decision import archived_path
from placet.case.estimate import estimate
from placet.case.events import Drafted
from placet.case.request import changed_keys
from placet.chat.budget import Complexity
from placet.chat.result import Spent
from placet.core.text.blocks import Frontmatter
from placet.core.text.kept_comments import with_old_comments
from placet.core.text.plan_changes import Said
from placet.core.wording import counted
from placet.note.escape import code, link
from placet.plan.changes import delta
from placet.plan.comments import Comment, open_comments, with_answers
from placet.plan.plan import Plan, render_plan
from placet.tools.control import SubmitPlan


@dataclass(frozen=True, slots=True)
class Assignment:
    """The planner's input: the request's text, and for a revision the plan's body as it is now.

    `token` fences the record's writes where a worker of another machine plans.
    `current` is None if the plan was for another repository. `left` are the comments without an
    answer in the plan before this one, which is in the archive. `request_link` is the request's
    name for a wikilink; `earlier` is the reason for which an earlier planning of the case failed,
    or the Failure Report of its mission.
    """

    case: Case
    request_text: str
    request_link: str
    current: str | None = None
    left: tuple[Comment, ...] = ()
    earlier: str = ""
    token: int | None = None


def plan_note(
    ports: Ports,
    job: Assignment,
    plan: Plan,
    given: SubmitPlan,
    base: str,
    spent: Spent,
    remarks: Sequence[str],
) -> Drafted:
    """Return the plan's note, and what the journal says of it.

    `given` are the arguments of the call that submitted `plan`, `base` is the commit that it was
    written from, `remarks` are for the person who reviews it.
    """
    case = job.case
    revision = case.plan.revision + 1
    complexity = case.request.complexity or Complexity(given.complexity)
    body, tail, changes = render_plan(plan), "", ""
    if (old := job.current) is not None:
        open_ones = open_comments(old)
        answers = [*getattr(given, "answers", ())][: len(open_ones)]
        answers += [""] * (len(open_ones) - len(answers))
        said = [Said(*one) for one in zip(open_ones, answers, strict=True)]
        changes = delta(old, plan, said, case.plan.revision)
        body, tail = with_old_comments(with_answers(old, answers), body)
    head = PlanHead(
        case.trace_id,
        case.request_id,
        case.request.agent,
        case.request.portal,
        complexity,
        revision,
        base,
        ports.clock.now(),
    )
    known = case.plan.keys
    changed = changed_keys(dict(known), dict(case.request.keys)) if known else ""
    remarks = [
        *remarks,
        *filter(None, [changed, _left(job)]),
        *_estimate(ports, complexity, plan.scope.budget_usd),
        f"Commands would run in: {ports.sandbox.title}.",
        _by(spent, ports),
    ]
    kind = Frontmatter(ports.config.vault.frontmatter)
    text = compose(head, body, remarks=remarks, kind=kind, above=changes, tail=tail)
    facts = {
        "steps": len(plan.steps),
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.cost_usd is None else float(spent.cost_usd),
    }
    return Drafted(case.generation, text, revision, facts=facts)


def _estimate(ports: Ports, complexity: Complexity, budget_usd: Decimal | None) -> list[str]:
    """Say what missions of this size cost so far, where the journal knows of three."""
    with ports.journal.read() as reader:
        costs = reader.calls.mission_costs(complexity.value)
    found = estimate(costs, complexity, budget_usd)
    return [] if found is None else [found.sentence]


def _left(job: Assignment) -> str:
    """Say where comments are that the plan before this one left without an answer."""
    if not job.left:
        return ""
    archived = PurePosixPath(archived_path(job.case, f"_r{job.case.plan.revision}"))
    return (
        f"The plan before this one has {counted(len(job.left), 'comment')} without an answer. The "
        f"planner has read what they say: {link(archived.stem)}."
    )


def _by(spent: Spent, ports: Ports) -> str:
    cost = spent.cost("unknown cost")
    turns = counted(spent.replies, "turn")
    model = ports.config.model
    return f"Planned by {code(model.name)} ({model.provider}) in {turns} for {cost}."
