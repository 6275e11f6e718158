"""The part of a plan that is approved: what was left out, and what cannot stand without it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from placet.errors import numbered_steps
from placet.note.checkboxes import DAMAGED, box, boxes, number_in
from placet.note.escape import code, codes, literal
from placet.note.markdown import read_markdown
from placet.note.outline import Part, outline_of
from placet.plan.comment_blocks import places_of, step_parts
from placet.plan.comments import with_lines
from placet.plan.plan import LiteralCall, Plan, Step
from placet.plan.scope import Scope

_WRITES = frozenset({"write_file", "edit_file"})
_RUNS = frozenset({"run_command", "bash"})
_NEEDS_THE_FILE = frozenset({"edit_file", "read_file"})
_PATH = re.compile(r"[^\s`]*(?:/|\.[A-Za-z0-9])[^\s`]*")
_LINE_END = re.compile(r"(\r\n|\n|\r)")
_BRACKETS = re.compile(r"\[.\]")
_MOST_SPANS = 1_000  # code spans of a plan, and writes to one file, that are asked about
_MOST_WRITES = 200
HOW_TO_GO_ON = "tick it again, give the line back, or leave this step out too"


def left_out(plan: Plan) -> str:
    """Return what a person left out of a plan, as inline markdown; empty if that is nothing."""
    said = [_by_name(plan)] if plan.left_out else []
    if plan.offered is not None:
        for key, offered, kept in _lists(plan.offered, plan.scope):
            if gone := list((Counter(offered) - Counter(kept)).elements()):
                said.append(f"{codes(gone)} of `{key}`")
        said += [
            f"`{key}`"
            for key in ("network", "shell")
            if getattr(plan.offered, key) and not getattr(plan.scope, key)
        ]
    return "; ".join(said)


def _by_name(plan: Plan) -> str:
    """Return the steps that are left out by number, or by title where headings count otherwise."""
    if not any(step.called for step in plan.steps):
        return numbered_steps(plan.left_out)
    titles = (f"“{literal(plan.steps[n - 1].title)}”" for n in plan.left_out)
    return f"the {'steps' if len(plan.left_out) > 1 else 'step'} {', '.join(titles)}"


def _lists(offered: Scope, kept: Scope) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    yield "write", offered.write, kept.write
    yield "run", [*map(shlex.join, offered.run)], [*map(shlex.join, kept.run)]


def with_other_tick(body: str, number: int) -> str:
    """Return a plan's body with the box of a step ticked, or unticked where it was ticked.

    A step without a box gets an unticked one. Every other line stays as it is. Raises ValueError
    for a step that there is not.
    """
    parts = _boxes_of_steps(body)
    at = places_of([part for part, _ in parts]).get(number, 0)
    if not at:
        raise ValueError(f"there is no step {number}; the last one is {len(parts)}")
    part, marks = parts[at - 1]
    if not marks:
        return with_lines(body, {part.at: ["", box(ticked=False)]})
    ticked = all(mark in "xX" for mark in marks.values())
    pieces = _LINE_END.split(body)
    for at, mark in marks.items():
        if mark == DAMAGED:
            pieces[2 * at] = box(ticked=True)
            continue
        line = pieces[2 * at] if ticked else pieces[2 * at].replace("~~", "")
        pieces[2 * at] = _BRACKETS.sub("[ ]" if ticked else "[x]", line, count=1)
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class Ticked:
    """A step as its heading has it; it is done unless one of its boxes is unticked."""

    number: int
    title: str
    done: bool


def ticks(body: str) -> list[Ticked]:
    """Return the steps of a plan's body, also of a plan of which no step is left to do."""
    return [
        Ticked(
            number_in(part.heading) or place,
            part.title.removeprefix(f"{number_in(part.heading)}. "),
            all(mark in "xX" for mark in marks.values()),
        )
        for place, (part, marks) in enumerate(_boxes_of_steps(body), 1)
    ]


def _boxes_of_steps(body: str) -> list[tuple[Part, dict[int, str]]]:
    outline = outline_of(body)
    code = outline.code
    return [
        (part, boxes(outline.lines, part.at + 1, part.end, code)) for part in step_parts(outline)
    ]


def outside(tool: str, params: Mapping[str, Any], scope: Scope) -> str:
    """Return what a literal action does that the scope does not allow, empty if it allows it."""
    path, command = params.get("path"), params.get("command")
    if tool in _WRITES and isinstance(path, str) and not scope.allows_write(normpath(path)):
        return f"writes {path!r}, which scope.write does not allow"
    if tool == "run_command" and isinstance(command, str):
        argv = [command, *(str(word) for word in params.get("args", []))]
        if not scope.allows_run(argv):
            return f"runs `{' '.join(argv)}`, which scope.run does not allow"
    if tool == "bash" and not scope.shell:
        return "uses bash, which scope.shell does not allow"
    return ""


def contradictions(plan: Plan) -> list[str]:
    """Return why the kept steps cannot be carried out without what was left out."""
    found: list[str] = []
    parts = _Parts.of(plan)
    for number, step in plan.kept:
        found += [
            f"Step {number} {what}"
            for action in step.actions
            if (what := outside(action.tool, action.params, plan.scope))
        ]
        found += [f"{why}; {HOW_TO_GO_ON}." for why in _rests_on(plan, parts, number, step)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Parts:
    """What each step is asked about: the steps' tools, and the writing actions by their files."""

    kept: frozenset[int]
    named: frozenset[str]
    runs: bool
    writes: Mapping[str, Sequence[tuple[int, LiteralCall]]]

    @classmethod
    def of(cls, plan: Plan) -> _Parts:
        writes: dict[str, list[tuple[int, LiteralCall]]] = {}
        for number, step in enumerate(plan.steps, 1):
            for made in step.actions:
                if made.tool in _WRITES:
                    path = normpath(str(made.params.get("path")))
                    writes.setdefault(path, []).append((number, made))
        named = frozenset(name for step in plan.steps for name in step.named)
        return cls(
            frozenset(number for number, _ in plan.kept),
            named,
            not named or not plan.tools.isdisjoint(_RUNS),
            writes,
        )


def _rests_on(plan: Plan, parts: _Parts, number: int, step: Step) -> Iterator[str]:
    """Give what a kept step needs of a step, or of a line of the scope, that was left out."""
    fewer = len(parts.kept) < len(plan.steps)
    for action in step.actions if fewer else ():
        makers = _makers(parts, number, action)
        if makers and parts.kept.isdisjoint(makers):
            path = code(str(action.params["path"]))
            yield (
                f"Step {number} needs what {numbered_steps(makers)} "
                f"{'writes' if len(makers) == 1 else 'write'} to {path}, and that is left out"
            )
    spans = _spans(step) if plan.offered is not None or fewer else []
    for span in spans[: 1 + _MOST_SPANS // len(parts.kept)]:
        if plan.offered is not None and (
            _allows(plan.offered, span) and not _allows(plan.scope, span)
        ):
            yield f"Step {number} names {code(span)}, which only a struck line allows"
        elif not (parts.runs or parts.named.isdisjoint(_RUNS)) and _allows_run(plan.scope, span):
            yield (
                f"Step {number} names {code(span)}, but only "
                f"{numbered_steps(plan.left_out)} may run commands, and that is left out"
            )


def _makers(parts: _Parts, number: int, action: LiteralCall) -> list[int]:
    """Return the steps before whose literal actions write the file, or the text, that one needs."""
    path, old = action.params.get("path"), action.params.get("old")
    if action.tool not in _NEEDS_THE_FILE or not isinstance(path, str):
        return []
    before = [(n, made) for n, made in parts.writes.get(normpath(path), ()) if n < number]
    before = before[-_MOST_WRITES:]
    of_file = [n for n, made in before if made.tool == "write_file"]
    of_text = [
        n
        for n, made in before
        if old
        and str(old) in str(made.params.get("content", made.params.get("new")))
        and str(old) not in str(made.params.get("old", ""))
    ]
    found = of_text if parts.kept.isdisjoint(of_text) and of_text else of_file
    return sorted(set(found))


def _spans(step: Step) -> list[str]:
    """Return the code spans of a step's text and of its `Done when`, without blank edges."""
    text = "\n\n".join([step.description, *step.done_when])
    return [s.strip() for _, s in read_markdown(text.split("\n")).spans if s.strip()]


def _allows(scope: Scope, span: str) -> bool:
    is_path = _PATH.fullmatch(span) or span in scope.by_name()
    return bool(is_path and scope.allows_write(normpath(span))) or _allows_run(scope, span)


def _allows_run(scope: Scope, span: str) -> bool:
    with suppress(ValueError):
        return scope.allows_run(shlex.split(span))
    return False
