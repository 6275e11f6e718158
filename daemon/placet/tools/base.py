"""What a tool is: one value from which schema, prompt text, validation, policy and dispatch derive."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from placet.confine import Root
from placet.core.cut import cut_middle
from placet.core.errors import ToolError
from placet.core.scope import Scope
from placet.core.talk import ToolSpec, ToolUse
from placet.sandbox import Box, Level


class Effect(StrEnum):
    """What a call of a tool can do. `control` steers the conversation itself."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    CONTROL = "control"


class Args(BaseModel):
    """Base of every tool's arguments: unknown names are errors, and every problem is found at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Control(Protocol):
    """What the control tools steer. The planner and the executor each have their own.

    Each may raise ToolError for the model; `finish` and `give_up` leave the conversation by an exception.
    """

    def submit_plan(self, plan: Any) -> dict[str, Any]:
        """Take a plan in, or raise ToolError with every problem of it."""
        ...

    def complete_step(self, step: int, summary: str) -> dict[str, Any]:
        """Commit what a step did and note it as done."""
        ...

    def finish(self, summary: str) -> dict[str, Any]:
        """End the mission well."""
        ...

    def give_up(self, reason: str) -> dict[str, Any]:
        """End the mission as a failure."""
        ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where tools work, and what they may do there.

    `root` is the worktree; `knowledge` the vault's Knowledge folder, read-only, None where the vault has none.
    `box` and `level` are the wall around commands; `unboxed` that a person wrote that none is needed.
    """

    root: Root
    knowledge: Root | None
    scope: Scope
    box: Box
    level: Level
    control: Control
    cancelled: Callable[[], bool]
    unboxed: bool = False

    def readable(self, path: str) -> tuple[Root, str]:
        """Return the root a path is read in and the path there. `Knowledge/…` that the worktree lacks is the vault's."""
        canonical = self.root.relative(path)
        first, _, rest = canonical.partition("/")
        if first == "Knowledge" and self.knowledge is not None and not self.root.exists(canonical):
            return self.knowledge, rest or "."
        return self.root, canonical

    def writable(self, path: str) -> str:
        """Return the canonical path of a file that the approved scope lets the mission write.

        Raises ToolError `outside_scope`, which says what would have been allowed.
        """
        canonical = self.root.relative(path)
        if not self.scope.allows_write(canonical):
            raise refusal(self.scope.refusal_write(canonical))
        return canonical


def refusal(said: Mapping[str, Any]) -> ToolError:
    """Return the scope's structured refusal as the error that a tool raises."""
    rest = {key: value for key, value in said.items() if key not in ("error", "error_type")}
    return ToolError(said["error_type"], said["error"], refused=True, **rest)


A = TypeVar("A", bound=Args)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """One tool. `about` is what the model reads; `run` returns something that JSON can carry, or raises ToolError."""

    name: str
    about: str
    args: type[A]
    effect: Effect
    run: Callable[[Workplace, A], Any]

    def spec(self) -> ToolSpec:
        """Return the tool as the model is offered it."""
        return ToolSpec(self.name, self.about, _schema(self.args))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to. `content` is what the model is given, `words_cut` how much of it was left out."""

    content: str
    ok: bool
    error_type: str = ""
    refused: bool = False
    words_cut: int = 0
    exit_code: int | None = None


def dispatch(tools: Mapping[str, Tool[Any]], use: ToolUse, place: Workplace) -> Outcome:
    """Carry one call out. Never raises ToolError: what went wrong is the result.

    Exceptions by which a control tool leaves the conversation pass through.
    """
    try:
        tool = _known(use.name, tools)
        result = tool.run(place, _checked(tool, use.input))
    except ToolError as error:
        return Outcome(json.dumps(error.as_result(), ensure_ascii=False), ok=False, error_type=error.error_type,
                       refused=error.refused)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    text, words = cut_middle(text, hint="narrow the call down, or read a file in parts with offset and limit")
    exit_code = result.get("exit_code") if isinstance(result, dict) else None
    return Outcome(text, ok=True, words_cut=words, exit_code=exit_code)


def _known(name: str, tools: Mapping[str, Tool[Any]]) -> Tool[Any]:
    if name not in tools:
        raise ToolError("unknown_tool", f"There is no tool {name!r} here.{_near(name, tools)}", refused=True,
                        available=sorted(tools))
    return tools[name]


def check_args(tool: Tool[Any], given: Mapping[str, Any]) -> None:
    """Raise ToolError `invalid_arguments` with every problem unless `given` fits the tool."""
    _checked(tool, given)


def _checked(tool: Tool[A], given: Mapping[str, Any]) -> A:
    try:
        return tool.args.model_validate(dict(given))
    except ValidationError as error:
        names = sorted(tool.args.model_fields)
        problems = [f"{'.'.join(str(p) for p in e['loc']) or 'arguments'}: {e['msg']}"
                    + (_near(str(e["loc"][-1]), names) if e["type"] == "extra_forbidden" else "")
                    for e in error.errors()]
        raise ToolError("invalid_arguments", f"{tool.name} was not called: {len(problems)} problem(s) in its arguments.",
                        problems=problems, parameters=names) from error


def _near(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _schema(args: type[Args]) -> dict[str, Any]:
    """Return the JSON Schema of some arguments, without the titles that only repeat the names."""
    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: bare(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
        return [bare(v) for v in node] if isinstance(node, list) else node

    schema: dict[str, Any] = args.model_json_schema()
    properties = {name: bare(value) for name, value in schema.get("properties", {}).items()}
    return {**{k: bare(v) for k, v in schema.items() if k not in ("title", "properties", "description")},
            "properties": properties}
