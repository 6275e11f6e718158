"""Define a plan: its steps, its literal actions and its scope."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

from placet.note.escape import clean, one_line
from placet.note.outline import named
from placet.plan.scope import TOOL_NAME, Scope
from placet.plan.sections import REJECTIONS

SECTIONS = ("steps", "scope", "risks", "review comments")
NOTHING = frozenset({"", "-", "—", "none", "none known", "n/a", "nothing"})


@dataclass(frozen=True, slots=True)
class LiteralCall:
    """One literal tool call of a step, executed exactly as written.

    `params` has only what TOML and JSON share: strings, whole numbers of 64 bits, finite numbers,
    booleans, lists, tables. Raises ValueError for anything else, null among it (leave the key out
    instead).
    """

    tool: str
    params: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        if not TOOL_NAME.fullmatch(self.tool):
            raise ValueError(f"{self.tool[:80]!r} is not the name of a tool")
        if why := _unwritable(dict(self.params)):
            raise ValueError(f"the params of `{self.tool}` {why}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; its number is its place in the plan, from 1. `left_out`: a person left it out.

    `called` is the number in its heading, or 0 if that is the same or missing.

    Texts are normalised on construction: titles and conditions to one line, no control characters,
    no blank edges. Raises ValueError for an empty title or an invalid tool name.
    """

    title: str
    description: str = ""
    tools: tuple[str, ...] = ()
    done_when: tuple[str, ...] = ()
    actions: tuple[LiteralCall, ...] = ()
    left_out: bool = False
    called: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "description", clean(self.description))
        object.__setattr__(self, "tools", tuple(dict.fromkeys(self.tools)))
        object.__setattr__(
            self, "done_when", tuple(line for t in self.done_when if (line := one_line(t)))
        )
        if not self.title:
            raise ValueError("a step needs a title")
        for tool in self.tools:
            if not TOOL_NAME.fullmatch(tool):
                raise ValueError(f"{tool[:80]!r} is not the name of a tool")

    @property
    def named(self) -> tuple[str, ...]:
        """The tools that the step names, in its list or its actions."""
        return (*self.tools, *(action.tool for action in self.actions))


@dataclass(frozen=True, slots=True)
class Section:
    """A section that a person added to a plan under a heading of their own."""

    title: str
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "text", clean(self.text))
        if not self.title or named(self.title) in (*SECTIONS, *REJECTIONS):
            raise ValueError(f"{self.title[:80]!r} cannot be the title of an added section")


def agent_steps(steps: Sequence[Step]) -> int:
    """Return how many of these steps take turns of the model: literal ones take none."""
    return sum(not step.actions for step in steps)


@dataclass(frozen=True, slots=True)
class Plan:
    """The content of a plan. Raises ValueError without a title or a step."""

    title: str
    summary: str
    steps: tuple[Step, ...]
    """All steps of the note, those that were left out too."""
    scope: Scope
    risks: tuple[str, ...] = ()
    comments: str = ""
    """The text under "Review Comments"."""
    others: tuple[Section, ...] = ()
    """Sections that a person added. Only a rejection is not kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "summary", clean(self.summary))
        risks = (one_line(risk) for risk in self.risks)
        object.__setattr__(
            self, "risks", tuple(r for r in risks if r.casefold().rstrip(".") not in NOTHING)
        )
        object.__setattr__(self, "comments", clean(self.comments))
        if not self.title:
            raise ValueError("a plan needs a title")
        if not self.steps:
            raise ValueError("a plan needs a step")

    @property
    def kept(self) -> tuple[tuple[int, Step], ...]:
        """The steps to execute, with their numbers."""
        return tuple((n, step) for n, step in enumerate(self.steps, 1) if not step.left_out)

    def kept_from(self, number: int) -> Sequence[tuple[int, Step]]:
        """Return the kept steps from a number on."""
        return [(n, step) for n, step in self.kept if n >= number]

    @property
    def left_out(self) -> tuple[int, ...]:
        """The numbers of the left-out steps."""
        return tuple(n for n, step in enumerate(self.steps, 1) if step.left_out)

    @property
    def files_named(self) -> frozenset[str]:
        """The files that the plan may write by their whole names, in its scope or its actions."""
        paths = (a.params.get("path") for _, step in self.kept for a in step.actions)
        in_actions = {normpath(path) for path in paths if isinstance(path, str)}
        return frozenset({*self.scope.by_name(), *in_actions})

    @property
    def tools(self) -> frozenset[str]:
        """The tools that the scope names.

        Of an older plan without that line, those that the kept steps name, or else any step.
        """
        if self.scope.tools is not None:
            return frozenset(self.scope.tools)
        kept = {name for _, step in self.kept for name in step.named}
        return frozenset(kept or {name for step in self.steps for name in step.named})


@dataclass(frozen=True, slots=True)
class Approved:
    """A plan that a person approved: its note's text without stamps and box, and the digest of it.

    `plan` is what the text states.
    """

    text: bytes
    plan: Plan
    digest: str


def _unwritable(value: object, depth: int = 0) -> str | None:
    """Return why a value cannot be written as TOML and read back, or None."""
    match value:
        case bool():
            return None
        case str():
            return "hold half a surrogate pair" if re.search("[\ud800-\udfff]", value) else None
        case int():
            return None if -(2**63) <= value < 2**63 else "hold a number beyond 64 bits"
        case float():
            return None if math.isfinite(value) else "hold a number that is not finite"
        case _ if depth > 20:
            return "are nested more than 20 deep"
        case list() | tuple():
            return next((why for item in value if (why := _unwritable(item, depth + 1))), None)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                return "have a key that is not a text"
            inside = [*value, *value.values()]
            return next((why for item in inside if (why := _unwritable(item, depth + 1))), None)
        case None:
            return "hold null, which TOML does not have; leave the key out"
        case _:
            return (
                f"hold a {type(value).__name__}; use texts, numbers, true, false, lists and tables"
            )
