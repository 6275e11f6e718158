"""`InMemoryToolDispatcher`: every tool of placet on files that are only in memory, for people who test agents.

The tools are the real ones; what is below them is not: a dictionary instead of a worktree, a table of answers instead
of processes, a list instead of a mission.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from placet.core.errors import ToolError
from placet.core.text.scope import Scope
from placet.core.turn.talk import ToolSpec
from placet.files.confine import (
    ALWAYS,
    MAX_DEPTH,
    MAX_PATH_BYTES,
    MAX_READ_BYTES,
    MAX_WRITE_BYTES,
    Denied,
    Entry,
    EntryKind,
    Fault,
    is_there,
)
from placet.sandbox.process import never
from placet.sandbox.values import Box, Level, Ran
from placet.tools.base import Outcome, Tool, Toolbox, Workplace
from placet.tools.registry import TOOLS

ROOT = Path("/worktree")
"""What the virtual worktree is called in absolute paths."""

_MAX_NAME_BYTES = 255  # NAME_MAX of Linux and macOS


class MemoryFiles:
    """Files in memory, with the manners of `placet.files.confine.Root`: the same paths are taken, the same refused."""

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        writable: bool = True,
        denied: Denied = ALWAYS,
    ) -> None:
        self.writable = writable
        self.denied = denied
        self._files: dict[str, bytes] = {}
        self._lock = Lock()
        for path, content in (files or {}).items():
            self._files[self.relative(path)] = (
                content.encode() if isinstance(content, str) else bytes(content)
            )

    def snapshot(self) -> dict[str, bytes]:
        """Return every file as it is now."""
        with self._lock:
            return dict(sorted(self._files.items()))

    def relative(self, path: str) -> str:
        """Return the canonical relative path, by the rules of `Root.relative`."""
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise _fault(
                Fault.BAD_PATH, "has characters that a file name cannot hold", path
            ) from None
        if not path or "\0" in path or size > MAX_PATH_BYTES:
            raise _fault(Fault.BAD_PATH, "is empty, too long or has a NUL character in it", path)
        parts = tuple(
            part for part in os.fsdecode(os.fsencode(path)).split("/") if part not in ("", ".")
        )
        if ".." in parts:
            fault = Fault.PATH_OUTSIDE if _climbs_out(path, parts) else Fault.BAD_PATH
            raise ToolError(fault.value, f"{path[:200]!r} has '..' in it", refused=True)
        if path.startswith("/"):
            if parts[: len(ROOT.parts) - 1] != ROOT.parts[1:]:
                raise _fault(
                    Fault.PATH_OUTSIDE, "is outside of the root folder; use a relative path", path
                )
            parts = parts[len(ROOT.parts) - 1 :]
        if parts and parts[0] == "~":
            raise _fault(Fault.PATH_OUTSIDE, "is in a home folder; use a relative path", path)
        if len(parts) > MAX_DEPTH:
            raise _fault(Fault.TOO_DEEP, f"has more than {MAX_DEPTH} parts", path)
        canonical = "/".join(parts) or "."
        if self.denied.hides(canonical):
            raise _fault(
                Fault.PATH_DENIED, "is protected and can be neither read nor written", path
            )
        return canonical

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        """Return a file's content."""
        entry = self._found(path)
        if entry.kind is EntryKind.DIRECTORY:
            raise _fault(Fault.IS_A_DIRECTORY, "is a folder", path)
        if entry.size > min(limit_bytes or MAX_READ_BYTES, MAX_READ_BYTES):
            raise _fault(Fault.TOO_LARGE, "is too large", path)
        return self.snapshot()[entry.path]

    def exists(self, path: str) -> bool:
        """Tell whether something is there."""
        return is_there(self._found, path)

    def list(self, path: str = ".") -> list[Entry]:
        """Return what is in a folder, sorted by name."""
        folder = self._folder(path)
        start = 0 if folder == "." else len(folder) + 1
        found: dict[str, Entry] = {}
        for name, content in self.snapshot().items():
            if folder == "." or name.startswith(folder + "/"):
                first, rest, _ = name[start:].partition("/")
                inner = name[:start] + first
                found[inner] = (
                    Entry(inner, EntryKind.DIRECTORY, 0)
                    if rest
                    else Entry(inner, EntryKind.FILE, len(content))
                )
        return [found[name] for name in sorted(found)]

    def protects(self, path: str) -> bool:
        """Tell whether a canonical path can never be written."""
        return self.denied.protects(path)

    def walk(self, path: str = ".", *, max_entries: int) -> Iterator[Entry]:
        """Give every file below a folder."""
        folder = self._folder(path)
        below = [
            n for n in self.snapshot().items() if folder == "." or n[0].startswith(folder + "/")
        ]
        if len(below) > max_entries:
            raise _fault(
                Fault.TOO_LARGE,
                f"has more than {max_entries} entries below it; name a smaller folder",
                path,
            )
        yield from (
            Entry(name, EntryKind.FILE, len(content))
            for name, content in sorted(below, key=lambda n: n[0].split("/"))
        )

    def write(self, path: str, data: bytes) -> int:
        """Make or replace a file; return its size."""
        canonical = self.relative(path)
        if not self.writable:
            raise _fault(
                Fault.READ_ONLY, "cannot be changed: this folder is for reading only", path
            )
        if canonical == "." or path.endswith("/"):
            raise _fault(Fault.IS_A_DIRECTORY, "names a folder, not a file", path)
        if self.denied.protects(canonical):
            raise _fault(
                Fault.PATH_DENIED, "is protected and can never be written, whatever the scope", path
            )
        if len(data) > MAX_WRITE_BYTES:
            raise _fault(Fault.TOO_LARGE, "was not written: too large", path)
        if self.exists(path) and self._found(path).kind is EntryKind.DIRECTORY:
            raise _fault(Fault.IS_A_DIRECTORY, "is a folder", path)
        parents = canonical.split("/")[:-1]
        with self._lock:
            if any("/".join(parents[: n + 1]) in self._files for n in range(len(parents))):
                raise _fault(Fault.NOT_A_DIRECTORY, "lies below something that is no folder", path)
            self._files[canonical] = data
        return len(data)

    def _found(self, path: str) -> Entry:
        canonical = self.relative(path)
        if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in canonical.split("/")):
            raise _fault(Fault.BAD_PATH, "has a name that is too long", path)
        files = self.snapshot()
        if canonical in files:
            return Entry(canonical, EntryKind.FILE, len(files[canonical]))
        if canonical == "." or any(name.startswith(canonical + "/") for name in files):
            return Entry(canonical, EntryKind.DIRECTORY, 0)
        parts = canonical.split("/")
        if any("/".join(parts[:n]) in files for n in range(1, len(parts))):
            raise _fault(Fault.NOT_A_DIRECTORY, "lies below something that is no folder", path)
        raise _fault(Fault.NOT_FOUND, "does not exist", path)

    def _folder(self, path: str) -> str:
        entry = self._found(path)
        if entry.kind is not EntryKind.DIRECTORY:
            raise _fault(Fault.NOT_A_DIRECTORY, "is no folder", path)
        return entry.path


def _fault(fault: Fault, sentence: str, path: str) -> ToolError:
    refused = fault in (Fault.PATH_OUTSIDE, Fault.PATH_DENIED, Fault.READ_ONLY)
    return ToolError(fault.value, f"{path[:200]!r} {sentence}", refused=refused)


def _climbs_out(path: str, parts: Sequence[str]) -> bool:
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0 or (part == ".." and path.startswith("/")):
            return True
    return False


@dataclass(slots=True)
class _Steps:
    """The control tools' other side: everything is taken down, nothing ends."""

    files: MemoryFiles
    plans: list[Any] = field(default_factory=list)
    done: list[tuple[int, str]] = field(default_factory=list)
    finished: str | None = None
    gave_up: str | None = None

    def submit_plan(self, plan: Any) -> dict[str, Any]:
        self.plans.append(plan)
        return {"accepted": True}

    def complete_step(self, step: int, summary: str) -> dict[str, Any]:
        if step in (number for number, _ in self.done):
            raise ToolError("step_done", f"Step {step} is complete already.")
        self.done.append((step, summary))
        content = b"\0".join(
            os.fsencode(name) + b"\0" + data for name, data in self.files.snapshot().items()
        )
        return {"step": step, "commit": hashlib.sha1(content, usedforsecurity=False).hexdigest()}

    def finish(self, summary: str) -> dict[str, Any]:
        self.finished = summary
        return {"finished": True}

    def give_up(self, reason: str) -> dict[str, Any]:
        self.gave_up = reason
        return {"gave_up": True}


Answer = Ran | tuple[int, str, str]
"""What a command comes to: as the sandbox says it, or exit code, standard output and standard error."""


class InMemoryToolDispatcher:
    """Every tool on a virtual file system: what is written is what is read afterwards.

    Nothing outside is touched.

    `files` are the worktree's at first, by path. `scope` is the approved one; by default everything
    may be written. `commands` answers commands: by their words ("python -m pytest"; for `bash` the
    shell's text), or by a function of the argument list. `failures` makes the n-th call (from 0) of
    a tool fail: `{("write_file", 1): ToolError("disk_full", "…")}`; a plain text is its message.
    `secrets` are redacted in every result. Safe in several threads.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        scope: Scope | None = None,
        commands: Mapping[str, Answer] | Callable[[Sequence[str]], Answer] | None = None,
        failures: Mapping[tuple[str, int], ToolError | str] | None = None,
        knowledge: Mapping[str, str | bytes] | None = None,
        secrets: Sequence[str] = (),
        tools: Sequence[Tool[Any]] | None = None,
    ) -> None:
        self._files = MemoryFiles(files)
        self._commands = commands or {}
        self._failures = dict(failures or {})
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._steps = _Steps(self._files)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        notes = None if knowledge is None else MemoryFiles(knowledge, writable=False)
        place = Workplace(
            self._files,
            notes,
            Scope(write=("**",)) if scope is None else scope,
            Box(ROOT),
            Level.BUBBLEWRAP,
            self._steps,
            never,
            secrets=tuple(secrets),
            run=self._ran,
        )
        self._box = Toolbox(
            {tool.name: tool for tool in (TOOLS if tools is None else tools)}, place
        )

    @property
    def files(self) -> dict[str, bytes]:
        """Every file as it is now, by path."""
        return self._files.snapshot()

    @property
    def plans(self) -> list[Any]:
        """What was given to `submit_plan`, in order."""
        return list(self._steps.plans)

    @property
    def steps_done(self) -> list[tuple[int, str]]:
        """Number and summary of each step that was completed, in order."""
        return list(self._steps.done)

    @property
    def finished(self) -> str | None:
        """The summary given to `finish`, None where it was not called."""
        return self._steps.finished

    @property
    def gave_up(self) -> str | None:
        """The reason given to `give_up`, None where it was not called."""
        return self._steps.gave_up

    def offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools that can be called, as a model is offered them."""
        return self._box.offered()

    def dispatch(self, name: str, given: Mapping[str, Any]) -> Outcome:
        """Carry one call out, or fail it where a failure was asked for.

        Never raises for what a model did.
        """
        with self._lock:
            failure = self._failures.get((name, self._counts[name]))
            self._counts[name] += 1
            self.calls.append((name, dict(given)))
        if failure is None:
            return self._box.dispatch(name, given)
        error = ToolError("injected_failure", failure) if isinstance(failure, str) else failure
        return self._box.failed(error)

    def _ran(
        self,
        argv: Sequence[str],
        box: Box,  # noqa: ARG002 - as run
        level: Level,  # noqa: ARG002 - as run
        *,
        cancelled: Callable[[], bool],  # noqa: ARG002 - as run
    ) -> Ran:
        if callable(self._commands):
            return _as_ran(self._commands(argv))
        words = argv[-1] if argv[:1] == ["bash"] and "-c" in argv else shlex.join(argv)
        if words not in self._commands:
            raise ToolError("command_not_found", f"no answer is known to the command: {words}")
        return _as_ran(self._commands[words])


def _as_ran(answer: Answer) -> Ran:
    if isinstance(answer, Ran):
        return answer
    code, stdout, stderr = answer
    return Ran(
        code, stdout, stderr, timed_out=False, cancelled=False, truncated=False, duration_s=0.0
    )
