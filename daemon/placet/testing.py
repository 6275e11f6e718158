r"""Test an agent without a model, a sandbox or a repository: run placet's tools on your files.

The tools, the scope, the wall around paths and the redaction of secrets are the real ones. The
worktree is a temporary folder, deleted with the dispatcher; commands are not run but answered from
a table; the calls that steer a mission (`complete_step`, `finish`, ...) are recorded. Nothing
outside the temporary folder is touched.

>>> from placet.plan.scope import Scope
>>> from placet.testing import InMemoryToolDispatcher
>>> tools = InMemoryToolDispatcher(
...     {"src/main.py": "print('helo')\n"},
...     scope=Scope(write=("src/**",), run=(("pytest",),)),
...     commands={"pytest -q": (0, "1 passed\n", "")},
...     failures={("write_file", 0): "the disk is full"},
... )
>>> tools.dispatch("edit_file", {"path": "src/main.py", "old": "helo", "new": "hello"}).ok
True
>>> tools.files["src/main.py"]
b"print('hello')\n"
>>> outcome = tools.dispatch("write_file", {"path": "README.md", "content": "Hello"})
>>> outcome.ok, outcome.error_type  # that call was to fail; the next one is not in the scope
(False, 'injected_failure')
>>> tools.dispatch("write_file", {"path": "README.md", "content": "Hello"}).error_type
'outside_scope'
>>> tools.dispatch("run_command", {"command": "pytest", "args": ["-q"]}).exit_code
0
>>> tools.dispatch("complete_step", {"step": 1, "summary": "Greet people properly"}).ok
True
>>> tools.steps_done
[(1, 'Greet people properly')]
"""

from __future__ import annotations

import hashlib
import os
import shlex
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from placet.chat.messages import ToolSpec
from placet.disk.confine import Root
from placet.errors import ToolError
from placet.plan.scope import Scope
from placet.sandbox.box import Box, Level, Ran
from placet.tools.base import Outcome, Tool, Toolbox, Workplace
from placet.tools.control import CompleteStep, Finish, GiveUp, SubmitPlan
from placet.tools.registry import TOOLS

# a command's answer: a `Ran`, or exit code, standard output and standard error
Answer = Ran | tuple[int, str, str]

Answers = Mapping[str, Answer] | Callable[[Sequence[str]], Answer]


class InMemoryToolDispatcher:
    """Runs the tools on a test's files.

    `files` are the worktree's at first, content by path. `scope` is the approved one; by default
    everything may be written and nothing run. `commands` answers commands: by their words ("python
    -m pytest"; for `bash` the shell's text), or by a function of the argument list. `failures`
    makes the n-th call (from 0) of a tool fail: `{("write_file", 1): ToolError("disk_full", "…")}`;
    a plain text is its message. `knowledge` are the notes of the vault's Knowledge folder, None for
    a vault without one. `secrets` are redacted in every result. `tools` are those that can be
    called, by default all.

    `calls` has every call: name and arguments. `plans` are the plans given to `submit_plan`,
    `steps_done` number and summary of each completed step. `finished` and `gave_up` are what these
    calls said, None if they were not called. Thread-safe. Raises ToolError for a path in `files` or
    `knowledge` that no tool could name.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        scope: Scope | None = None,
        commands: Answers | None = None,
        failures: Mapping[tuple[str, int], ToolError | str] | None = None,
        knowledge: Mapping[str, str | bytes] | None = None,
        secrets: Sequence[str] = (),
        tools: Sequence[Tool[Any]] | None = None,
    ) -> None:
        held = ExitStack()
        weakref.finalize(self, held.close)
        top = Path(held.enter_context(TemporaryDirectory(prefix="placet-testing-")))
        self._root = root = _filled(held, top / "worktree", files or {}, writable=True)
        notes = None
        if knowledge is not None:
            notes = _filled(held, top / "Knowledge", knowledge, writable=False)
        self._failures = dict(failures or {})
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.plans: list[Any] = []
        self.steps_done: list[tuple[int, str]] = []
        self.finished: str | None = None
        self.gave_up: str | None = None
        place = Workplace(
            root,
            notes,
            Scope(write=("**",)) if scope is None else scope,
            Box(root.path),
            Level.BUBBLEWRAP,
            # by a proxy: else the folder would outlive the dispatcher
            partial(InMemoryToolDispatcher.steer, weakref.proxy(self)),
            lambda: False,
            secrets=tuple(secrets),
            run=partial(_answered, commands or {}),
        )
        self._box = Toolbox(
            {tool.name: tool for tool in (TOOLS if tools is None else tools)}, place
        )

    @property
    def files(self) -> dict[str, bytes]:
        """Every file as it is now, by path."""
        return dict(sorted(_all(self._root)))

    def steer(self, args: Any) -> dict[str, Any]:
        """Record a control call; it ends nothing."""
        match args:
            case SubmitPlan():
                self.plans.append(args)
                return {"accepted": True}
            case CompleteStep(step=step, summary=summary):
                if step in dict(self.steps_done):
                    raise ToolError("step_done", f"Step {step} is complete already.")
                self.steps_done.append((step, summary))
                files = (os.fsencode(name) + b"\0" + data for name, data in _all(self._root))
                commit = hashlib.sha1(b"\0".join(files), usedforsecurity=False).hexdigest()
                return {"step": step, "commit": commit}
            case Finish(summary=summary):
                self.finished = summary
                return {"finished": True}
            case GiveUp(reason=reason):
                self.gave_up = reason
                return {"gave_up": True}
        raise ToolError("unknown_tool", f"{type(args).__name__} is not a control call.")

    def offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools as a model is offered them."""
        return tuple(tool.spec() for tool in self._box.tools.values())

    def dispatch(self, name: str, given: Mapping[str, Any]) -> Outcome:
        """Run a call, or fail it if `failures` says so; never raise.

        The result's `content` is the text for the model.
        """
        with self._lock:
            failure = self._failures.get((name, self._counts[name]))
            self._counts[name] += 1
            self.calls.append((name, dict(given)))
        if failure is None:
            return self._box.dispatch(name, given)
        error = ToolError("injected_failure", failure) if isinstance(failure, str) else failure
        return self._box.failed(error)


def _filled(
    held: ExitStack, folder: Path, files: Mapping[str, str | bytes], *, writable: bool
) -> Root:
    """Make a folder with these files; return its `Root`, which the stack `held` closes."""
    folder.mkdir()
    root = held.enter_context(Root(folder, writable=writable))
    for path, content in files.items():
        place = folder / root.relative(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def _all(root: Root) -> list[tuple[str, bytes]]:
    paths = (entry.path for entry in root.walk(max_entries=1_000_000_000))
    return [(path, (root.path / path).read_bytes()) for path in paths]


def _answered(
    commands: Answers,
    argv: Sequence[str],
    box: Box,  # noqa: ARG001 - as run
    level: Level,  # noqa: ARG001 - as run
    *,
    cancelled: Callable[[], bool],  # noqa: ARG001 - as run
) -> Ran:
    """Answer a command instead of running it. Raises ToolError if there is no answer."""
    words = argv[-1] if argv[:1] == ["bash"] and "-c" in argv else shlex.join(argv)
    if callable(commands):
        answer = commands(argv)
    elif words in commands:
        answer = commands[words]
    else:
        raise ToolError("command_not_found", f"there is no answer for the command: {words}")
    if isinstance(answer, Ran):
        return answer
    code, stdout, stderr = answer
    return Ran(code, stdout, stderr)
