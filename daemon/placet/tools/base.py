"""Define tools; check, run and redact each call."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from placet.chat.guards import Effect
from placet.chat.messages import ToolSpec
from placet.disk.confine import Root
from placet.errors import ToolError, UserError
from placet.git.attributes import Attributes
from placet.note.paths import show
from placet.plan.scope import Scope
from placet.sandbox.box import Box, Level, Ran
from placet.sandbox.run import run
from placet.secrets import redact, redacted
from placet.tools.arguments import A, Args, checked, did_you_mean, schema
from placet.tools.output import Results, present

# maximum characters of a call's target in a journal row
MAX_TARGET = 200


# Receives the control calls: the planner, the mission or a test. It gets the call's arguments and
# returns its result, or the arguments themselves if they end the conversation. It raises ToolError
# for the model.
Steer = Callable[[Args], Any]


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a readable path.

    `files` is its folder, `path` its name there, `prefix` what the model writes before it.
    """

    files: Root
    path: str
    prefix: str = ""

    def shown(self, path: str) -> str:
        """Return a path in `files` as the model names it."""
        return self.prefix + path


@dataclass(frozen=True, slots=True)
class Workplace:
    """The place where tools work, and their permissions there."""

    root: Root
    """The worktree."""
    knowledge: Root | None
    """The vault's Knowledge folder, read-only; None if the vault has none."""
    scope: Scope
    box: Box
    """How commands are run in the sandbox."""
    level: Level
    """How strong the sandbox is."""
    steer: Steer
    cancelled: Callable[[], bool]
    unboxed: bool = False
    """Whether the settings allow commands without a sandbox."""
    secrets: tuple[str, ...] = ()
    """Known values that are redacted in every result."""
    run: Callable[..., Ran] = run
    refuse: Callable[[Sequence[str]], Mapping[str, Attributes]] = lambda _paths: {}
    """Raises ToolError for files that git would not commit; returns the others' attributes."""
    attributes: Callable[[Sequence[str]], Mapping[str, Attributes]] = lambda _paths: {}
    """Returns git's attributes of files."""
    literal: bool = False
    """What is written is the text of an approved plan, as it is."""
    undo: Callable[[int], str] = lambda _since_ns: ""
    """Frees a full disk.

    It deletes what was written since a moment (in ns of the system's clock), and returns what
    it did.
    """
    results: Results = field(default_factory=Results)
    """Keeps long results, so that the model can read what was cut."""
    facts: tuple[str, ...] = ()
    """Sentences on what the worktree lacks."""
    modules: frozenset[str] = frozenset()
    """Its submodules, which are empty folders."""

    def readable(self, path: str) -> Location:
        """Return the location of `path`. `Knowledge/…` that the worktree lacks is the vault's.

        If a name exists only in another Unicode form (macOS decomposes `é`), that one is meant.
        """
        canonical = self.root.relative(path)
        first, _, rest = canonical.partition("/")
        if first == "Knowledge" and self.knowledge is not None and not self.root.exists(canonical):
            return Location(self.knowledge, _as_spelt(self.knowledge, rest or "."), "Knowledge/")
        return Location(self.root, _as_spelt(self.root, canonical))

    def has(self, path: object) -> bool:
        """Return whether this is the absolute path of something in the worktree."""
        return isinstance(path, str) and Path(path).is_relative_to(self.box.worktree)

    def may_commit(self, path: str) -> bool:
        """Return whether a change of this file may be committed: a command may have made it."""
        return self.scope.allows_write(path) and not self.root.denied.protects(path)

    def changeable(self, path: str) -> str:
        """Return the canonical path of a file that the approved scope lets the mission change.

        Raises ToolError `outside_scope`, which says what is allowed.
        """
        canonical = self.root.relative(path)
        if not self.scope.allows_write(canonical):
            raise refusal(self.scope.refusal_write(canonical))
        return canonical

    def writable(self, path: str) -> tuple[str, Attributes]:
        """Return the canonical path of a file that the mission may write, and git's attributes.

        Raises ToolError as `changeable`, and `other_spelling` for a name that exists in another
        Unicode form: two files must not look the same. Passes on what `refuse` raises.
        """
        canonical = self.changeable(path)
        known: Mapping[str, Attributes] = {}
        if not self.root.denied.protects(canonical):  # else the write reports it
            known = self.refuse((canonical,))
        there = _as_spelt(self.root, canonical)
        if there != canonical:
            raise ToolError(
                "other_spelling",
                f"{show(canonical)} exists already in another Unicode form, as {there!a}. "
                "Write another file, or leave this one to a person.",
                existing=there,
            )
        return canonical, known.get(canonical, Attributes())


def _as_spelt(files: Root, path: str) -> str:
    """Return `path`; if it is missing, the one existing path that differs in Unicode form only."""
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


def refusal(result: Mapping[str, Any]) -> ToolError:
    """Return the ToolError for a refusal of the scope."""
    rest = {key: value for key, value in result.items() if key not in ("error", "error_type")}
    return ToolError(result["error_type"], result["error"], refused=True, **rest)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """One tool."""

    name: str
    about: str
    """Its description for the model."""
    args: type[A]
    effect: Effect
    run: Callable[[Workplace, A], Any]
    """Returns a value for `output.present`, or raises ToolError."""
    subject: tuple[str, ...] = ("path",)
    """The arguments that a journal row names."""
    unusable: Callable[[Scope, Level], str] = lambda _scope, _level: ""
    """Returns why the tool cannot work with a scope at a level of the sandbox, "" if it can.

    An unusable tool is not offered.
    """
    steps_may_name: tuple[str, ...] = ()
    """The tools that the schema offers for a step of a plan."""

    def spec(self) -> ToolSpec:
        """Return the tool as the model is offered it."""
        shown = schema(self.args)
        if self.steps_may_name:
            names = shown["$defs"]["StepArgs"]["properties"]["tools"]["items"]
            names["enum"] = [*self.steps_may_name]
        return ToolSpec(self.name, self.about, shown)

    def target(self, given: Mapping[str, Any], secrets: Sequence[str] = ()) -> str:
        """Return the subject of a call for a journal row or a report: a path, a command, a pattern.

        It is never a file's content.
        """
        words: list[str] = []
        for value in (given[name] for name in self.subject if given.get(name) is not None):
            words += map(str, value if isinstance(value, list) else [value])
        return show(redact(" ".join(words), secrets)[0])[:MAX_TARGET]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call."""

    content: str
    """What goes to the model."""
    ok: bool
    error_type: str = ""
    refused: bool = False
    """Whether a policy refused the call."""
    exit_code: int | None = None
    image: str = ""
    """A PNG in base64 that goes to the model as well; empty for none."""
    took_s: float = 0.0
    ends: Any = None
    """The arguments of the call that ended the conversation."""
    hosts: tuple[Mapping[str, Any], ...] = ()
    """What a command reached or was refused, as journal rows have it."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The real dispatcher: a set of tools in a workplace."""

    tools: Mapping[str, Tool[Any]]
    place: Workplace

    def dispatch(self, name: str, given: Mapping[str, Any]) -> Outcome:
        """Run a call. An error is a result, not an exception.

        Only the exceptions by which a control tool leaves the conversation pass. Known secrets and
        known token formats are redacted in every result, and in the arguments of control tools,
        which become notes and commit messages.
        """
        tool = self.tools.get(name)
        if tool is None:
            return self.failed(
                ToolError(
                    "unknown_tool",
                    f"There is no tool {name[:100]!r} here.{did_you_mean(name, self.tools)}",
                    refused=True,
                    available=sorted(self.tools),
                )
            )
        if tool.effect is Effect.CONTROL:
            given = redacted(dict(given), self.place.secrets)
        try:
            result = tool.run(self.place, checked(tool.name, tool.args, given))
        except ToolError as error:
            return self.failed(error)
        except UserError as error:
            # The box failed. A person must act, and the model must know that it cannot.
            return self.failed(ToolError("sandbox_failed", str(error)))
        except PermissionError as error:
            # A command may have removed a folder's permissions. Any other error is the machine's:
            # work waits.
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
        facts = result if isinstance(result, dict) else {}
        hosts = tuple(redacted(facts.pop("hosts", ()), self.place.secrets))
        content, image = self._shown(result)
        exit_code = facts.get("exit_code")
        return Outcome(content, ok=True, exit_code=exit_code, image=image, hosts=hosts)

    def failed(self, error: ToolError) -> Outcome:
        """Return an error as the result of a call."""
        content, _ = self._shown(error.as_result())
        return Outcome(content, ok=False, error_type=error.error_type, refused=error.refused)

    def _shown(self, result: Any) -> tuple[str, str]:
        return present(redacted(result, self.place.secrets), self.place.results)
