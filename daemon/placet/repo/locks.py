"""Locks: the one on a worktree of ours, and those that a killed git left on references."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placet.disk.files import lock
from placet.errors import UserError
from placet.repo.program import CALL_TIMEOUT_S


def lock_path(path: Path) -> Path:
    """Return the lock file of the worktree at `path`."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def holding(path: Path) -> Iterator[int]:
    """Hold the lock of the worktree at `path`; yield its descriptor, which git processes inherit.

    If the daemon dies, its git process keeps the lock until it ends. Raises UserError after
    `CALL_TIMEOUT_S`.
    """
    deadline = time.monotonic() + CALL_TIMEOUT_S
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with lock_path(path).open("ab") as file:
            if not lock(file.fileno()):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"another git process has been working in {path} for {CALL_TIMEOUT_S:g} s",
                        f"See which: fuser '{lock_path(path)}'",
                    )
                time.sleep(0.02)
                continue
            # The holder before may have removed the file with its worktree: then this one locks
            # nothing.
            try:
                current = lock_path(path).stat().st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield file.fileno()
                return


def remove_ref_lock(at: Path) -> None:
    """Remove the lock of a reference, once it is so old that no git holds it any more.

    A git process of a killed daemon ends by itself, but only after the move that it is at.
    """
    deadline = time.monotonic() + MOVE_S
    with suppress(FileNotFoundError):
        while abs(time.time() - at.stat().st_mtime) < MOVE_S and time.monotonic() < deadline:
            time.sleep(0.02)
        at.unlink()


MOVE_S = 2.0
"""More than git needs to move a reference: milliseconds, and a flush to the disk."""
