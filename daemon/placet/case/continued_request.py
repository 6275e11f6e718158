"""Write a request that continues where a failed mission stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placet.activity import Action
from placet.case.case import Case
from placet.case.explain import Events, one_line
from placet.errors import ENDS, End, FailureClass
from placet.note.escape import escaped
from placet.note.frontmatter import new_note
from placet.plan.plan import Plan


def continued_request(
    case: Case, plan: Plan, facts: Mapping[str, Any], detail: str, rows: Events
) -> str:
    """Return a request note that continues where a mission stopped.

    `facts` are the details of its `execution.failed` row, `detail` quotes the error, `rows` are the
    mission's.
    """
    request, end, kept = case.request, End(facts["reason"]), facts.get("kept_commit", "")
    refused = bool(facts.get("refused"))  # a worker's commits that the plan does not allow
    steps = sorted(
        {
            row.details["step"]
            for row in rows
            if row.action_type == Action.STEP_COMPLETED and not refused
        }
    )
    keys = {
        "agent": request.agent,
        "portal": request.portal,
        "complexity": request.complexity.value if request.complexity else "",
        "budget_usd": float(request.budget_usd) if request.budget_usd is not None else "",
    }
    done = [f"- {n}. {_words(plan.steps[n - 1].title)}" for n in steps if n <= len(plan.steps)]
    to_do = [f"- {n}. {_words(step.title)}" for n, step in plan.kept if n not in steps]
    lines = [
        f"# Continue: {_words(plan.title)}",
        "",
        _words(plan.summary),
        "",
        f"An earlier attempt ended with `{end.value}`: {_words(detail)}",
        *(["", "Still to be done:", *to_do] if to_do else []),
    ]
    if plan.left_out:
        unwanted = (f"- {n}. {_words(plan.steps[n - 1].title)}" for n in plan.left_out)
        lines += ["", "Left out when the plan was approved. Do not do it:", *unwanted]
    if done:
        lines += ["", "The earlier attempt had done:", *done]
    if facts.get("kept") and not refused:
        names = ", ".join(f"`{one_line(name)}`" for name in facts.get("files_changed", ())[:10])
        lines += [
            "",
            f"Its work is kept at `{facts['kept']}` (commit `{kept}`)"
            + (f", with changes in: {names}." if names else "."),
            f"To build on it, set `base_commit: {kept}` and `if_changed: proceed` in "
            "the plan before it is approved; else it is done again.",
        ]
    if (found := ENDS[end]).kind in (
        FailureClass.TOOL,
        FailureClass.CIRCLES,
        FailureClass.AGENT,
        FailureClass.NO_CHANGE,
    ):
        lines += ["", f"Do not do again what failed there: {found.meaning}"]
    return new_note(
        {key: value for key, value in keys.items() if value != ""}, "\n".join(lines) + "\n"
    ).decode()


def _words(text: str) -> str:
    return escaped(one_line(text))
