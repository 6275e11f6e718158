"""A wider scope than the approved one: what is added, as a difference, and the plan with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from placet.note.escape import bounded
from placet.note.outline import fenced, outline_of
from placet.plan.scope import Scope, scope_from

_LINE = re.compile(r"(\r\n|\n|\r)")


def widened(scope: Scope, write: Sequence[str], run: Sequence[str], *, network: bool) -> Scope:
    """Return the scope with these permissions as well; raises ScopeProblems."""
    more = scope_from({"write": list(write), "run": list(run)})
    return Scope(
        tuple(dict.fromkeys([*scope.write, *more.write])),
        tuple(dict.fromkeys([*scope.run, *more.run])),
        scope.network or network,
        scope.shell,
        scope.budget_usd,
        scope.max_iterations,
        scope.tools,
    )


def difference(before: Scope, after: Scope) -> str:
    """Return the whole of `after` as a code block, a permission a line; `+` marks what is new."""
    had = set(_permissions(before))
    lines = [f"{' ' if line in had else '+'} {bounded(line)}" for line in _permissions(after)]
    return fenced("\n".join(lines), "diff")


def with_scope(body: str, scope: Scope) -> str:
    """Return a plan's body with this scope in the block of its section; all else stays.

    The body has to be one that `parse_plan` reads.
    """
    from placet.plan.toml_text import scope_toml

    outline = outline_of(body)
    parts = outline.parts(0, len(outline.lines), 2)
    section = next(part for part in parts if part.level == 2 and part.name == "scope")
    start = min(at for at in outline.fences if section.at < at < section.end)
    pieces = _LINE.split(body)
    end = pieces[1] if len(pieces) > 1 else "\n"
    block = [line + end for line in scope_toml(scope).splitlines()]
    first, last = 2 * (start + 1), 2 * outline.fences[start]
    return "".join([*pieces[:first], *block, *pieces[last:]])


def _permissions(scope: Scope) -> list[str]:
    return [
        *(f"write    {pattern}" for pattern in scope.write),
        *(f"run      {command}" for command in scope.commands),
        f"network  {'yes' if scope.network else 'no'}",
        *(["shell    yes"] if scope.shell else []),
        *([] if scope.budget_usd is None else [f"cost     at most ${scope.budget_usd}"]),
    ]
