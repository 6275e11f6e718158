"""Tell which steps of a plan you left out, and what the kept ones cannot do within the scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from posixpath import normpath
from typing import Any

from placet.note.checkboxes import box, boxes, number_in
from placet.note.escape import literal
from placet.note.outline import Part, outline_of
from placet.plan.comments import without_comments
from placet.plan.plan import Plan
from placet.plan.scope import Scope
from placet.plan.sections import COMMENTS, places_of, step_parts, with_lines
from placet.wording import numbered_steps

WRITES = frozenset({"write_file", "edit_file", "delete_file"})
"""The tools that `scope.write` permits."""
_LINE_END = re.compile(r"(\r\n|\n|\r)")


def left_out(plan: Plan) -> str:
    """Return the steps that a person left out, by number, as inline markdown; empty for none.

    By title where headings count otherwise.
    """
    if not any(step.called for step in plan.steps):
        return numbered_steps(plan.left_out) if plan.left_out else ""
    titles = [f"“{literal(plan.steps[n - 1].title)}”" for n in plan.left_out]
    return f"the {'steps' if len(titles) > 1 else 'step'} {', '.join(titles)}" if titles else ""


NOT_APPROVED = "Not approved: a person left this step out. Do nothing of it."


def text_to_do(body: str, plan: Plan) -> str:
    """Return an approved plan's text from its title on, without the parts that were left out.

    Its comments, rejections and the boxes of steps go; a step that was left out is its heading.
    """
    whole = outline_of(body)
    outline = without_comments(whole)
    parts = outline.parts(0, len(outline.lines), 2)
    steps = step_parts(outline)
    removed = {*outline.left_out, *range(next(part.at for part in parts if part.level == 1))}
    for part in parts:
        if part.level == 2 and (part.name == COMMENTS or part.name.startswith("rejection")):
            removed.update(range(part.at, part.end))
    for at, end in ((part.at, part.end) for part in steps):
        removed.update(boxes(whole.lines, at + 1, end, whole.code))
    lines = list(outline.lines)
    for number in plan.left_out:
        part = steps[number - 1]
        removed.update(range(part.at + 1, part.end))
        lines[part.at] += f"\n\n{NOT_APPROVED}\n"
    return "\n".join(line for at, line in enumerate(lines) if at not in removed).strip()


@dataclass(frozen=True, slots=True)
class Ticked:
    """A step as its heading has it; it is done unless its box is unticked."""

    number: int
    title: str
    done: bool


def ticks(body: str) -> list[Ticked]:
    """Return the steps of a plan's body, even if every step is left out."""
    return [step for *_, step in _steps(body)]


def other_tick(body: str, number: int) -> Ticked:
    """Return a step of a plan's body as it is once its box is toggled.

    Raises ValueError for an unknown step.
    """
    *_, step = _step(body, number)
    return replace(step, number=number, done=not step.done)


def with_tick(body: str, step: Ticked) -> str:
    """Return a plan's body with the box of `step` as it says; no other line changes.

    A step that is left out gets a box if it has none. Raises ValueError if no step has this number
    and this title.
    """
    part, marks, now = _step(body, step.number)
    if now.title != step.title:
        raise ValueError(f"there is no step {step.number} with this title")
    if not marks:
        return body if step.done else with_lines(body, {part.at: ["", box(ticked=False)]})
    pieces = _LINE_END.split(body)
    for line in marks:
        pieces[2 * line] = box(ticked=step.done)
    return "".join(pieces)


def _step(body: str, number: int) -> tuple[Part, dict[int, str], Ticked]:
    """Return a step's part, boxes and tick. Raises ValueError for an unknown step."""
    steps = _steps(body)
    at = places_of([part for part, *_ in steps]).get(number, 0)
    if not at:
        raise ValueError(f"there is no step {number}; the last one is {len(steps)}")
    return steps[at - 1]


def _steps(body: str) -> list[tuple[Part, dict[int, str], Ticked]]:
    outline = outline_of(body)
    code, steps = outline.code, []
    for place, part in enumerate(step_parts(outline), 1):
        marks = boxes(outline.lines, part.at + 1, part.end, code)
        own = number_in(part.heading)
        title, done = part.title.removeprefix(f"{own}. "), all(m in "xX" for m in marks.values())
        steps.append((part, marks, Ticked(own or place, title, done)))
    return steps


def outside(tool: str, params: Mapping[str, Any], scope: Scope) -> str:
    """Return what a literal action does that the scope does not allow, empty if it allows it."""
    path, command = params.get("path"), params.get("command")
    if tool in WRITES and isinstance(path, str) and not scope.allows_write(normpath(path)):
        does = "deletes" if tool == "delete_file" else "writes"
        return f"{does} {path!r}, which scope.write does not allow"
    if tool == "run_command" and isinstance(command, str):
        argv = [command, *(str(word) for word in params.get("args", []))]
        if not scope.allows_run(argv):
            return f"runs `{' '.join(argv)}`, which scope.run does not allow"
    if tool == "bash" and not scope.shell:
        return "uses bash, which scope.shell does not allow"
    return ""


def contradictions(plan: Plan) -> list[str]:
    """Return what the literal actions of kept steps do that the scope does not allow."""
    tools = plan.scope.tools
    actions = [(number, action) for number, step in plan.kept for action in step.actions]
    return [
        f"Step {number} {what}"
        for number, one in actions
        if (
            what := f"uses {one.tool}, which scope.tools does not name"
            if tools is not None and one.tool not in tools
            else outside(one.tool, one.params, plan.scope)
        )
    ]
