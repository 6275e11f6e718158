"""Moving references by compare-and-swap: one `git update-ref` process for all that a mission moves."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from placet.core.errors import KILLED
from placet.repo.runner import CALL_TIMEOUT_S, GitCall, GitError, Place, RepositoryChanged, end, run_git, start_git, text_of


class Mover:
    """`git update-ref --stdin`, started at the first move and again after one that failed; to be closed.

    Each move is a transaction of its own, which git has finished before `move` returns. One thread at a time.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._input = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def move(self, ref: str, new: str, old: str) -> None:
        """Move `ref` from `old` (zeros: must not exist) to `new` (zeros: delete it). Raises GitError where git refuses."""
        self._ask(("update-ref", ref, new, old), f"update {ref} {new} {old}\n")

    def _ask(self, argv: tuple[str, ...], request: str) -> None:
        began = time.monotonic()
        started = self._process is None
        process = self._process or self._start()
        # Prepare is said outright: git then answers before it commits, and says why not.
        with suppress(BrokenPipeError):
            os.write(self._input, f"start\n{request}prepare\ncommit\n".encode())
        said, late = self._answers(process, began + CALL_TIMEOUT_S)
        code, wrong = 0, ""
        if b"commit: ok\n" not in said:
            if late:
                end(process)
            code, wrong = self._end(process)
            if late:
                wrong = f"no answer within {CALL_TIMEOUT_S:g} s"
        if self._place.on_call is not None:
            self._place.on_call(GitCall(argv, code, (time.monotonic() - began) * 1000, wrong, int(started)))
        if wrong:
            raise GitError(argv, code, wrong)

    def _start(self) -> subprocess.Popen[bytes]:
        source, self._input = os.pipe()
        with os.fdopen(source, "rb") as reading:
            try:
                self._process = start_git(self._place, ("update-ref", "-m", "placet", "--stdin"), reading)
            except BaseException:
                os.close(self._input)
                raise
        return self._process

    def _answers(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
        """Return what git answered, to its last answer or its end, and whether time ran out."""
        assert process.stdout is not None
        said = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"commit: ok\n" not in said:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return said, True
                piece = os.read(process.stdout.fileno(), 65_536)
                if not piece:
                    break
                said += piece
        return said, False

    def _end(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Let go of the process, which ends when nothing comes any more; return its exit code and what it said."""
        self._process = None
        os.close(self._input)
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            error = process.stderr.read(65_536)
        code = process.wait()
        if code < 0:
            return code, f"it {KILLED} {-code}"
        return code, error.decode("utf-8", "backslashreplace").strip()[:2000] or "it said nothing"

    def close(self) -> None:
        """End the process; nothing where there is none."""
        if self._process is not None:
            self._end(self._process)


def update_ref(place: Place, ref: str, new: str, old: str, mover: Mover | None = None) -> None:
    """Move `ref` from `old` (zeros: must not exist) to `new`; RepositoryChanged where it is elsewhere."""
    try:
        if mover is not None:
            mover.move(ref, new, old)
        else:
            run_git(place, "update-ref", "-m", "placet", ref, new, old)
    except GitError as error:
        _, out = run_git(place, "for-each-ref", "--format=%(objectname)", ref)
        now = text_of(out) or "0" * len(old)
        if now == new and error.returncode < 0:  # git was killed right after it had done it
            return
        if now != old:
            raise RepositoryChanged(f"{ref} was moved by somebody else") from error
        raise
