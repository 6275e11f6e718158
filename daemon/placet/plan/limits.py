"""Check a plan that a model submitted, and limit what a request, a plan and a scope may hold.

What is approved already runs on, whatever it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

from placet.note.escape import bounded, code
from placet.plan.comments import comments
from placet.plan.left_out import WRITES, outside
from placet.plan.plan import LiteralCall, Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope, ScopeProblems, scope_from

MAX_NOTE_CHARACTERS = 256 * 1024
"""A longer one would not fit into a model's context together with the repository."""
MAX_LINES = 10_000
"""A plan of 200 steps has some thousand. The loop's thread reads 250,000 in a second."""
MAX_HEADINGS = 5_000
"""Maximum lines that look like a heading. A plan of 200 steps has some hundred."""
_HEADINGS = re.compile(r"^ {0,3}#{1,6}[ \t\r\n]", re.MULTILINE)
MAX_SPECIAL = 50_000
"""Maximum characters that may begin markup or hide something. Code has one in ten."""
_SPECIAL = re.compile(r"[`$<&%\[\\]|[^\w\x00-\x7f]")
MAX_STEPS = 200
MAX_COMMENTS = 200
MAX_SCOPE_ENTRIES = 200
MAX_ENTRY_CHARACTERS = 1_000
MAX_ACTION_BYTES = 64 * 1024

_SHOWN = 60


def text_excess(body: str) -> str:
    """Return why a plan's text is too long to be read; empty if it is not."""
    for what, count, most in (
        ("characters", len(body), MAX_NOTE_CHARACTERS),
        ("lines", max(body.count("\n"), body.count("\r")), MAX_LINES),
        ("headings", len(_HEADINGS.findall(body)), MAX_HEADINGS),
        ("special characters", len(_SPECIAL.findall(body)), MAX_SPECIAL),
    ):
        if count > most:
            return (
                f"the plan has {count:,} {what}, and more than {most:,} are not read; shorten it,"
                " or reject it and ask for several smaller ones"
            )
    return ""


def plan_excess(plan: Plan) -> list[str]:
    """Return a sentence for each limit that a plan exceeds."""
    sentences = []
    if len(plan.steps) > MAX_STEPS:
        sentences.append(
            f"The plan has {len(plan.steps):,} steps. At most {MAX_STEPS} are allowed. "
            "Split the request into several."
        )
    for number, step in enumerate(plan.steps[:MAX_STEPS], 1):
        for action in step.actions:
            size = len(json.dumps(action.params, ensure_ascii=False, default=str).encode())
            if size > MAX_ACTION_BYTES:
                sentences.append(
                    f"An action of step {number} has {size:,} bytes. "
                    f"At most {MAX_ACTION_BYTES:,} are allowed. Split it into several."
                )
    return [*sentences, *scope_excess(plan.scope)]


def scope_excess(scope: Scope) -> list[str]:
    """Return a sentence for each limit that a scope exceeds, and each entry not shown whole."""
    entries = [
        *(("write", one) for one in scope.write),
        *(("run", one) for one in scope.commands),
        *(("network", str(one)) for one in scope.hosts),
    ]
    if len(entries) > MAX_SCOPE_ENTRIES:
        return [
            f"The scope has {len(entries):,} entries in `write`, `run` and `network`. "
            f"At most {MAX_SCOPE_ENTRIES} are allowed. Use patterns such as `src/**`."
        ]
    sentences = []
    for key, entry in entries:
        name = f"{code(entry[:_SHOWN])}{'…' if len(entry) > _SHOWN else ''} in `{key}`"
        if len(entry) > MAX_ENTRY_CHARACTERS:
            sentences.append(
                f"{name} has {len(entry):,} characters. "
                f"At most {MAX_ENTRY_CHARACTERS:,} are allowed, so that you can read it."
            )
        elif bounded(entry) != entry:
            sentences.append(
                f"{name} cannot be shown as it is. "
                "Write it without hidden characters and long gaps."
            )
    return sentences


def comment_excess(body: str) -> Sequence[str]:
    """Return a sentence if a plan's text has more comments than anybody reads."""
    number = len(comments(body))
    if number <= MAX_COMMENTS:
        return ()
    return (f"The plan has {number:,} comments. At most {MAX_COMMENTS} are allowed. Delete some.",)


def plan_from(
    given: Mapping[str, Any], tools: Collection[str], *, budget_usd: Decimal | None
) -> tuple[Plan | None, list[str]]:
    """Return the plan that `given` (the arguments of `submit_plan`) states, and its problems.

    With problems the plan is None. `tools` are the names that steps may use. `budget_usd` is the
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
        if named & WRITES and not scope.write:
            problems.append(f"step {number} uses a tool that writes, but scope.write is empty")
        if "run_command" in named and not scope.run:
            problems.append(f"step {number} uses run_command, but scope.run is empty")
        for action in step["actions"]:
            if what := outside(action["tool"], action["params"], scope):
                problems.append(f"step {number} {what}")
    return problems
