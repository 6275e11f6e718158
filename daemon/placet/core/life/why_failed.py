"""Explain a failed mission from its journal rows.

The explanation has the rows that prove the end, the calls tried, and what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placet.core import wording
from placet.core.activity import Action, CommittedRow
from placet.core.errors import End
from placet.core.life.case import Case
from placet.core.life.ends import ENDS, FailureClass
from placet.core.text.names import show
from placet.core.text.note import new_note
from placet.core.text.plan import Plan
from placet.core.text.plan_text import escaped
from placet.core.wording import at_most

PROOF = 3  # rows shown as proof
MAX_TRIED = 25  # calls listed, the last ones
MAX_CHARS = 160  # of a value in a row

Rows = Sequence[CommittedRow]


# --- the journal's word


def of_last_mission(rows: Rows) -> Rows:
    """Return the rows of a case from its last mission's beginning on."""
    for i in range(len(rows) - 1, -1, -1):
        if rows[i].action_type == Action.EXECUTION_STARTED:
            return rows[i:]
    return ()


def proof(end: End, rows: Rows) -> Rows:
    """Return the three rows of a mission that show its end best, in order.

    They are the last ones that fit, else the last ones.
    """
    rows = [
        row
        for row in rows
        if row.action_type not in _AFTERWARDS
        # a git process that went well shows nothing
        and (row.action_type != Action.GIT_RAN or "stderr" in row.details)
    ]
    fitting = [row for row in rows if _shows(end, row, rows)][-PROOF:]
    others = [row for row in rows if row not in fitting]
    # who may carry a mission out is the daemon's concern: only where there is nothing else
    others.sort(key=lambda row: not row.action_type.startswith("lease."))
    missing = PROOF - len(fitting)
    return sorted([*fitting, *(others[-missing:] if missing else ())], key=lambda row: row.id)


_AFTERWARDS = (
    Action.EXECUTION_FAILED,
    Action.EXECUTION_COMPLETED,
    Action.GIT_ROLLED_BACK,
    Action.REPORT_WRITTEN,
    Action.LEASE_RELEASED,
)
_TOOLS = (Action.TOOL_CALLED, Action.TOOL_REFUSED)


def _shows(end: End, row: CommittedRow, rows: Rows) -> bool:
    kind, data = row.action_type, row.details
    if end is End.REPETITION:
        last = next((r.details for r in reversed(rows) if r.action_type in _TOOLS), {})
        return kind in _TOOLS and (data["tool"], data["target"]) == (last["tool"], last["target"])
    if end is End.SCOPE:
        return kind == Action.TOOL_REFUSED
    match ENDS[end].kind:
        case FailureClass.TOOL:
            return kind in _TOOLS and went_wrong(data)
        case FailureClass.LIMIT:
            return kind == (Action.TOOL_CALLED if end is End.TOOL_CALL_CAP else Action.MODEL_CALLED)
        case FailureClass.CIRCLES:
            return (
                kind in (*_TOOLS, Action.FAILURE_DETECTED)
                if end is End.STALL
                else kind == Action.MODEL_CALLED
            )
        case FailureClass.MODEL:
            return kind in (Action.MODEL_CALLED, Action.MODEL_FAILED)
        case FailureClass.REPOSITORY:
            return kind.startswith("git.")
        case FailureClass.PERSON:
            return row.actor == "human"
        case FailureClass.DAEMON:
            return kind in (
                Action.EXECUTION_STARTED,
                Action.EXECUTION_RESUMED,
                Action.LEASE_ACQUIRED,
                Action.LEASE_EXPIRED,
            )
        case _:
            return kind in _TOOLS


def advice(end: End, rows: Rows) -> str:
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


def went_wrong(data: Mapping[str, Any]) -> bool:
    """Return whether a call failed, by its row."""
    return not data["ok"] or data.get("exit_code") not in (None, 0)


def row_line(row: CommittedRow) -> str:
    """Return a row as one line of text: its number, time, actor, action and facts."""
    facts = " ".join(
        f"{key}={_value(value)}"
        for key, value in row.details.items()
        if value not in (None, "", [])
    )
    return f"#{row.id} {row.timestamp} {row.actor} {row.action_type} {facts}".rstrip()


def _value(value: object) -> str:
    text = show(value if isinstance(value, str) else str(value))
    return at_most(text, MAX_CHARS)


def tried(rows: Rows) -> tuple[str, ...]:
    """Return a mission's calls with their results, a line each; repeats in a row share a line."""
    lines: list[tuple[str, int]] = []
    for row in rows:
        if row.action_type not in _TOOLS:
            continue
        line = f"{call_of(row)}: {came_to(row)}"
        if lines and lines[-1][0] == line:
            lines[-1] = line, lines[-1][1] + 1
        else:
            lines.append((line, 1))
    left_out = len(lines) - MAX_TRIED
    head = (f"({left_out} earlier ones: see the journal)",) if left_out > 0 else ()
    return (
        *head,
        *(line + (f" ({count} times)" if count > 1 else "") for line, count in lines[-MAX_TRIED:]),
    )


def call_of(row: CommittedRow) -> str:
    """Return the tool and target of a call, by its row."""
    return f"{_value(row.details['tool'])} {_value(row.details['target'])}".strip()


def came_to(row: CommittedRow) -> str:
    """Return the result of a call in a few words, by its row."""
    data = row.details
    if row.action_type == Action.TOOL_REFUSED:
        return f"refused, {data['error_type']}"
    if data.get("exit_code") is not None:
        return f"exit code {data['exit_code']}"
    return "done" if data["ok"] else f"failed, {data['error_type']}"


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


def remains(facts: Mapping[str, Any], detail: str, rows: Rows) -> Remains:
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
