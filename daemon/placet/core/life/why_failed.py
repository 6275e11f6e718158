"""Explain a failed mission from its journal rows, and write a request that continues it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet.activity import Action, CommittedRow
from placet.case.case import Case
from placet.case.ends import ENDS, FailureClass
from placet.case.estimate import against_estimate
from placet.core import wording
from placet.core.wording import at_most, counted
from placet.errors import End
from placet.note.escape import code
from placet.note.frontmatter import new_note
from placet.note.outline import escaped
from placet.note.paths import show
from placet.plan.plan import Plan

MAX_REFUSED = 5  # refused calls named
MAX_CHARS = 160  # of a tool's name or target

Events = Sequence[CommittedRow]


def of_last_mission(rows: Events) -> Events:
    """Return the rows of a case from its last mission's beginning on."""
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].action_type == Action.EXECUTION_STARTED:
            return rows[i:]
    return ()


_TOOLS = (Action.TOOL_CALLED, Action.TOOL_REFUSED)


def advice(end: End, rows: Events) -> str:
    """Return what to do after a mission that ended so; `rows` are its own."""
    last = next((row for row in reversed(rows) if row.action_type in _TOOLS), None)
    circles = ENDS[end].kind is FailureClass.CIRCLES
    if last is None or not circles or last.details.get("error_type") != "outside_scope":
        return ENDS[end].advice
    return (
        "What it called last was refused, as it lies outside the scope that was approved. Where "
        "that is needed, widen `write` or `run` in the plan's scope, or ask for a plan with a "
        "wider one."
    )


def what_happened(facts: Mapping[str, Any], plan: Plan, rows: Events) -> list[str]:
    """Say how a mission ended, its last tool error, what was refused, and what is saved.

    `facts` are those of its `execution.failed`. What a model named stands as inline code.
    """
    budget = plan.scope.budget_usd
    cost = against_estimate(
        facts["cost_usd"],
        facts.get("typical_cost_usd"),
        None if budget is None else float(budget),
    )
    lines = [
        f"{ENDS[End(facts['reason'])].meaning} It ended after "
        f"{counted(facts['iterations'], 'turn')}. Cost: {cost}."
    ]
    called = [row for row in rows if row.action_type == Action.TOOL_CALLED]
    if wrong := next((row for row in reversed(called) if _went_wrong(row.details)), None):
        lines.append(f"Last tool error: {code(f'{_call(wrong)}: {_result(wrong)}')}.")
    refused = [row for row in rows if row.action_type == Action.TOOL_REFUSED]
    if names := list(dict.fromkeys(code(_call(row)) for row in refused)):
        more = f" and {len(names) - MAX_REFUSED} more" if len(names) > MAX_REFUSED else ""
        lines.append(f"Refused: {', '.join(names[:MAX_REFUSED])}{more}.")
    if facts.get("left_at"):
        saved = f"Its work is still in {code(show(facts['left_at']))}."
    elif facts.get("kept"):
        count = counted(len(facts["files_changed"]) + facts.get("files_more", 0), "changed file")
        saved = f"Its work is saved at {code(facts['kept'])}: {count}."
    else:
        saved = "No work of it is saved."
    return [*lines, saved]


def _went_wrong(data: Mapping[str, Any]) -> bool:
    return not data["ok"] or data.get("exit_code") not in (None, 0)


def _call(row: CommittedRow) -> str:
    """Return the tool and target of a call on one line."""
    tool, target = (at_most(show(str(row.details[key])), MAX_CHARS) for key in ("tool", "target"))
    return f"{tool} {target}".strip()


def _result(row: CommittedRow) -> str:
    if (exit_code := row.details.get("exit_code")) is not None:
        return f"exit code {exit_code}"
    return f"failed, {row.details['error_type']}"


# --- going on


@dataclass(frozen=True, slots=True)
class Remains:
    """The remains of a failed mission: its end, the completed steps, and the place of its work.

    `kept` is a ref, empty if nothing had been changed; `kept_commit` the commit it names, `files`
    those it changes.
    """

    end: End
    detail: str
    steps: tuple[int, ...]
    files: tuple[str, ...]
    kept: str
    kept_commit: str


def remains(facts: Mapping[str, Any], detail: str, rows: Events) -> Remains:
    """Return a mission's remains.

    They come from the facts of its `execution.failed`, the error's `detail`, and its rows.
    """
    steps = sorted(
        {row.details["step"] for row in rows if row.action_type == Action.STEP_COMPLETED}
    )
    return Remains(
        End(facts["reason"]),
        detail,
        tuple(steps),
        tuple(facts.get("files_changed", ())),
        facts.get("kept", ""),
        facts.get("kept_commit", ""),
    )


def ready_request(case: Case, plan: Plan, left: Remains) -> str:
    """Return a request, as a note, that goes on where a mission broke off."""
    request = case.request
    keys = {
        "agent": request.agent,
        "portal": request.portal,
        "complexity": request.complexity.value if request.complexity else "",
        "budget_usd": float(request.budget_usd) if request.budget_usd is not None else "",
    }
    done = [f"- {n}. {_words(plan.steps[n - 1].title)}" for n in left.steps if n <= len(plan.steps)]
    to_do = [f"- {n}. {_words(step.title)}" for n, step in plan.kept if n not in left.steps]
    lines = [
        f"# Go on with: {_words(plan.title)}",
        "",
        _words(plan.summary),
        "",
        f"An earlier attempt ended with `{left.end.value}`: {_words(left.detail)}",
        *(["", "Still to be done:", *to_do] if to_do else []),
    ]
    if plan.left_out:
        unwanted = (f"- {n}. {_words(plan.steps[n - 1].title)}" for n in plan.left_out)
        lines += ["", "Left out by the person who approved it, so not to be done:", *unwanted]
    if done:
        lines += ["", "The earlier attempt had done:", *done]
    if left.kept:
        names = ", ".join(f"`{one_line(name)}`" for name in left.files[:10])
        lines += [
            "",
            f"Its work is kept at `{left.kept}` (commit `{left.kept_commit}`)"
            + (f", with changes in: {names}." if names else "."),
            f"To build on it, set `base_commit: {left.kept_commit}` and `if_changed: proceed` in "
            "the plan before it is approved; else it is done again.",
        ]
    if (found := ENDS[left.end]).kind in (
        FailureClass.TOOL,
        FailureClass.CIRCLES,
        FailureClass.AGENT,
    ):
        lines += ["", f"Do not do again what failed there: {found.meaning}"]
    return new_note(
        {key: value for key, value in keys.items() if value != ""}, "\n".join(lines) + "\n"
    ).decode()


def one_line(text: str) -> str:
    """Return a text as one line that cannot begin a block or end a code span."""
    return show(wording.one_line(text.replace("`", "'")))[:500]


def _words(text: str) -> str:
    return escaped(one_line(text))
