"""From what a model submitted to a plan, or to everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

from placet.plan.left_out import outside
from placet.plan.limits import MAX_NOTE_CHARACTERS, MAX_STEPS, plan_excess
from placet.plan.plan import LiteralCall, Plan, Step, render_plan
from placet.plan.scope import Scope, ScopeProblems, scope_from


def plan_from(
    given: Mapping[str, Any], tools: Collection[str], *, budget_usd: Decimal | None
) -> tuple[Plan | None, list[str]]:
    """Return the plan that `given` (the arguments of `submit_plan`) states, and its problems.

    The plan is None with any. `tools` are the names that steps may use. `budget_usd` is the
    request's own limit, which the plan's scope carries.
    """
    if len(given["steps"]) > MAX_STEPS:
        return None, [
            f"the plan has {len(given['steps']):,} steps; at most {MAX_STEPS} are allowed"
        ]
    problems: list[str] = []
    for number, step in enumerate(given["steps"], 1):
        for tool in (*step["tools"], *(action["tool"] for action in step["actions"])):
            if tool not in tools:
                problems.append(
                    f"step {number}: there is no tool {tool!r};"
                    f" there are {', '.join(sorted(tools))}"
                )
    scope = Scope()
    try:
        scope = scope_from(
            {**given["scope"], **({"budget_usd": budget_usd} if budget_usd is not None else {})}
        )
    except ScopeProblems as found:
        problems += [f"scope.{key}: {why}" for key, why in found.problems]
    else:
        problems += _mismatches(given["steps"], scope)
    if problems:
        return None, problems
    try:
        plan = Plan(
            title=given["title"],
            summary=given["summary"],
            steps=tuple(
                Step(
                    step["title"],
                    step["description"],
                    tuple(dict.fromkeys(step["tools"])),
                    tuple(step["done_when"]),
                    tuple(LiteralCall(a["tool"], a["params"]) for a in step["actions"]),
                )
                for step in given["steps"]
            ),
            scope=scope,
            risks=tuple(given["risks"]),
        )
    except ValueError as error:
        return None, [str(error)]
    problems = plan_excess(plan)
    if not problems and (size := len(render_plan(plan))) > MAX_NOTE_CHARACTERS:
        problems = [
            f"the plan has {size:,} characters; at most {MAX_NOTE_CHARACTERS:,} are allowed"
        ]
    return (None if problems else plan), problems


def _mismatches(steps: Sequence[Mapping[str, Any]], scope: Scope) -> list[str]:
    """Return where the steps need more than the scope allows: such a plan could only fail."""
    problems = []
    for number, step in enumerate(steps, 1):
        named = {*step["tools"], *(action["tool"] for action in step["actions"])}
        if named & {"write_file", "edit_file"} and not scope.write:
            problems.append(f"step {number} uses a tool that writes, but scope.write is empty")
        if "run_command" in named and not scope.run:
            problems.append(f"step {number} uses run_command, but scope.run is empty")
        for action in step["actions"]:
            if what := outside(action["tool"], action["params"], scope):
                problems.append(f"step {number} {what}")
    return problems
