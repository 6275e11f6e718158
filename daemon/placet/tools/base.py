"""What a tool is: one value from which schema, prompt text, validation, policy and dispatch derive."""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from placet.core.errors import ToolError, UserError
from placet.core.secrets import redact, redacted
from placet.core.text.names import show
from placet.core.text.scope import Scope
from placet.core.turn.talk import ToolSpec
from placet.files.confine import Root
from placet.sandbox.process import run
from placet.sandbox.values import Box, Level, Ran
from placet.tools.output import Results, Shown, present


class Effect(StrEnum):
    """What a call of a tool can do. `control` steers the conversation itself."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    CONTROL = "control"


class Args(BaseModel):
    """Base of every tool's arguments: unknown names are errors, and every problem is found at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Steer = Callable[[Args], Any]
"""The receiver of the calls that steer a conversation: the planner's, the mission's or a test's.

It is given the call's arguments and returns its result, or the arguments themselves where they end
the conversation; it raises ToolError for the model.
"""


class Run(Protocol):
    """Runs a command in a box; `placet.sandbox.run` is the real one."""

    def __call__(
        self, argv: Sequence[str], box: Box, level: Level, *, cancelled: Callable[[], bool]
    ) -> Ran:
        """Return how it ended.

        Raise ToolError for a command that cannot be, UserError where the box fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a path is read: `files` is the folder it is in, `path` the path there, `prefix` what the model's has before it."""

    files: Root
    path: str
    prefix: str = ""

    def shown(self, path: str) -> str:
        """Return a path of `files` as the model names it."""
        return self.prefix + path


def _nothing(_paths: Sequence[str]) -> None:
    """Refuse no file."""


def _keep(_since_ns: int) -> str:
    """Undo nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where tools work, and what they may do there.

    `root` is the worktree; `knowledge` the vault's Knowledge folder, read-only, None where the
    vault has none. `box` and `level` are the wall around commands; `unboxed` that a person wrote
    that none is needed. `secrets` are known values that are redacted wherever they turn up.
    `results` keeps long results, so that what was cut can be read on. `refuse` raises ToolError for
    files that a commit could not hold. `undo` gives a full disk back: it deletes what was written
    since a moment (in ns of the system's clock), and says what it did.
    """

    root: Root
    knowledge: Root | None
    scope: Scope
    box: Box
    level: Level
    steer: Steer
    cancelled: Callable[[], bool]
    unboxed: bool = False
    secrets: tuple[str, ...] = ()
    run: Run = run
    refuse: Callable[[Sequence[str]], None] = _nothing
    undo: Callable[[int], str] = _keep
    results: Results = field(default_factory=Results)

    def readable(self, path: str) -> Spot:
        """Return where `path` is read. `Knowledge/…` that the worktree lacks is the vault's.

        A name that is there in another Unicode form only (as macOS writes `é`) is taken for the one
        that was meant.
        """
        canonical = self.root.relative(path)
        first, _, rest = canonical.partition("/")
        if first == "Knowledge" and self.knowledge is not None and not self.root.exists(canonical):
            return Spot(self.knowledge, _as_spelt(self.knowledge, rest or "."), "Knowledge/")
        return Spot(self.root, _as_spelt(self.root, canonical))

    def has(self, path: object) -> bool:
        """Tell whether this is the absolute path of something in the worktree."""
        return isinstance(path, str) and Path(path).is_relative_to(self.box.worktree)

    def may_commit(self, path: str) -> bool:
        """Tell whether a change of this file may go into a commit: a command may have made it, past what `writable` refuses."""
        return self.scope.allows_write(path) and not self.root.protects(path)

    def writable(self, path: str) -> str:
        """Return the canonical path of a file that the approved scope lets the mission write.

        Raises ToolError `outside_scope`, which says what would have been allowed, and
        `other_spelling` for a name that is there already in another Unicode form: two files that
        look the same are what nobody wants. And what `refuse` raises.
        """
        canonical = self.root.relative(path)
        if not self.scope.allows_write(canonical):
            raise refusal(self.scope.refusal_write(canonical))
        if not self.root.protects(canonical):  # else the write itself says so
            self.refuse((canonical,))
        there = _as_spelt(self.root, canonical)
        if there != canonical:
            raise ToolError(
                "other_spelling",
                f"{show(canonical)} exists already in another Unicode form, as {there!a}. "
                "Write another file, or leave this one to a person.",
                existing=there,
            )
        return canonical


def _as_spelt(files: Root, path: str) -> str:
    """Return `path`, or where it is not there the one that is the same but for its Unicode form."""
    if path.isascii() or files.exists(path):
        return path
    here = "."
    for name in path.split("/"):
        step = name if here == "." else f"{here}/{name}"
        if not files.exists(step):
            try:
                names = [entry.path.rsplit("/", 1)[-1] for entry in files.list(here)]
            except ToolError:
                return path
            same = [
                other
                for other in names
                if unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", name)
            ]
            if len(same) != 1:
                return path
            step = same[0] if here == "." else f"{here}/{same[0]}"
        here = step
    return here


def refusal(said: Mapping[str, Any]) -> ToolError:
    """Return the scope's structured refusal as the error that a tool raises."""
    rest = {key: value for key, value in said.items() if key not in ("error", "error_type")}
    return ToolError(said["error_type"], said["error"], refused=True, **rest)


A = TypeVar("A", bound=Args)


def _anywhere(_scope: Scope, _level: Level) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """One tool.

    `about` is what the model reads; `run` returns something that `output.present` can, or raises
    ToolError.

    `subject` are the arguments that a journal row names. `unusable` says why the tool is of no use
    with a scope at a level of the sandbox, or "" where it is: one of no use is not offered.
    """

    name: str
    about: str
    args: type[A]
    effect: Effect
    run: Callable[[Workplace, A], Any]
    subject: tuple[str, ...] = ("path",)
    unusable: Callable[[Scope, Level], str] = _anywhere

    def spec(self) -> ToolSpec:
        """Return the tool as the model is offered it."""
        return ToolSpec(self.name, self.about, _schema(self.args))

    def target(self, given: Mapping[str, Any], secrets: Sequence[str] = ()) -> str:
        """Return what a call is about, for a journal row or a report: a path, a command, a pattern.

        Never a content.
        """
        words: list[str] = []
        for name in self.subject:
            value = given.get(name)
            words += (
                [str(word) for word in value]
                if isinstance(value, list)
                else []
                if value is None
                else [str(value)]
            )
        return show(redact(" ".join(words), secrets)[0])[:MAX_TARGET]


MAX_TARGET = 200
"""Characters of a call's target that a journal row holds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to.

    `content` is what the model is given.
    `image` is a PNG in base64 that goes to the model with it, empty for none. `took_s` are the
    seconds that it took.
    """

    content: str
    ok: bool
    error_type: str = ""
    refused: bool = False
    exit_code: int | None = None
    image: str = ""
    took_s: float = 0.0
    ends: Any = None  # the arguments of the call that ended the conversation


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The real dispatcher: these tools, at this place of work."""

    tools: Mapping[str, Tool[Any]]
    place: Workplace

    def dispatch(self, name: str, given: Mapping[str, Any]) -> Outcome:
        """Carry one call out. What went wrong is the result, never an exception.

        Only the exceptions by which a control tool leaves the conversation pass through. Known
        secrets and known formats of tokens are redacted in every result, and in what a control tool
        is given: it becomes notes and commit messages.
        """
        tool = self.tools.get(name)
        if tool is None:
            return self.failed(
                ToolError(
                    "unknown_tool",
                    f"There is no tool {name[:100]!r} here.{_near(name, self.tools)}",
                    refused=True,
                    available=sorted(self.tools),
                )
            )
        if tool.effect is Effect.CONTROL:
            given = redacted(dict(given), self.place.secrets)
        try:
            result = tool.run(self.place, _checked(tool, given))
        except ToolError as error:
            return self.failed(error)
        except (
            UserError
        ) as error:  # the box broke: a person must act, and the model must know that it cannot
            return self.failed(ToolError("sandbox_failed", str(error)))
        except PermissionError as error:  # a command may have shut a folder; elsewhere it is the machine's fault, and work waits
            if not self.place.has(error.filename):
                raise
            return self.failed(
                ToolError(
                    "permission_denied",
                    f"{tool.name} was not done: {error.strerror}: {error.filename!r}.",
                )
            )
        if isinstance(result, Args):
            return Outcome("", ok=True, ends=result)
        shown = self._shown(result)
        exit_code = result.get("exit_code") if isinstance(result, dict) else None
        return Outcome(
            shown.content,
            ok=True,
            exit_code=exit_code,
            image=shown.image,
        )

    def failed(self, error: ToolError) -> Outcome:
        """Return an error as what a call came to."""
        shown = self._shown(error.as_result())
        return Outcome(
            shown.content,
            ok=False,
            error_type=error.error_type,
            refused=error.refused,
        )

    def _shown(self, result: Any) -> Shown:
        return present(redacted(result, self.place.secrets), self.place.results)


def check_args(tool: Tool[Any], given: Mapping[str, Any]) -> None:
    """Raise ToolError `invalid_arguments` with every problem unless `given` fits the tool."""
    _checked(tool, given)


def _checked(tool: Tool[A], given: Mapping[str, Any]) -> A:
    try:
        if other := {key: value for key, value in given.items() if key != "path"}:
            json.dumps(other, ensure_ascii=False).encode()
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        # A path may hold bytes that are not UTF-8, written as half of a surrogate pair; nothing
        # else may.
        why = (
            "half of a surrogate pair is no text"
            if isinstance(error, UnicodeEncodeError)
            else "they are no JSON"
        )
        raise ToolError(
            "invalid_arguments",
            f"{tool.name} was not called: 1 problem(s) in its arguments.",
            problems=[f"arguments: {why}"],
            parameters=sorted(tool.args.model_fields),
        ) from error
    try:
        return tool.args.model_validate(dict(given))
    except ValidationError as error:
        names = sorted(tool.args.model_fields)
        problems = [
            f"{'.'.join(str(p) for p in e['loc']) or 'arguments'}: {e['msg']}"
            + (_near(str(e["loc"][-1]), names) if e["type"] == "extra_forbidden" else "")
            for e in error.errors()
        ]
        raise ToolError(
            "invalid_arguments",
            f"{tool.name} was not called: {len(problems)} problem(s) in its arguments.",
            problems=problems,
            parameters=names,
        ) from error


def _near(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word[:100], list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _schema(args: type[Args]) -> dict[str, Any]:
    """Return the JSON Schema of some arguments, without the titles that only repeat the names."""

    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                k: bare(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))
            }
        return [bare(v) for v in node] if isinstance(node, list) else node

    schema: dict[str, Any] = args.model_json_schema()
    properties = {name: bare(value) for name, value in schema.get("properties", {}).items()}
    return {
        **{
            k: bare(v) for k, v in schema.items() if k not in ("title", "properties", "description")
        },
        "properties": properties,
    }
