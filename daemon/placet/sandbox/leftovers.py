"""Boxes for which nobody waits any more: bwrap, killed with its daemon as it starts, can leave a child that waits for ever."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

_GONE_S = 5.0


def end_left_behind(worktrees: Path) -> int:
    """End every box whose worktree lies in the folder `worktrees`.

    Return how many processes were told to.

    The caller is the only one who runs something there (it holds the vault's lock), and does not
    yet. A person's own shell in a box is left alone. Linux only: elsewhere there is no bwrap.
    """
    told = 0
    with ExitStack() as stack:
        ended = select.poll()
        for pid, number in _boxes(worktrees) if sys.platform == "linux" else ():
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, process)
            if pid not in dict(_boxes(worktrees, [str(pid)])):
                continue  # another process has its number by now
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(process, number)
                ended.register(process, select.POLLIN)
                told += 1
        waited_for = told
        while waited_for and (gone := ended.poll(_GONE_S * 1000)):
            for process, _ in gone:
                ended.unregister(process)
            waited_for -= len(gone)
    return told


def _boxes(worktrees: Path, pids: list[str] | None = None) -> Iterator[tuple[int, signal.Signals]]:
    """Give the processes that are boxes there, each with the signal at which it takes down all that is in it."""
    below = os.fsencode(worktrees) + b"/"
    for pid in (
        [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        if pids is None
        else pids
    ):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile, or another person's
        options = words[: words.index(b"--")] if b"--" in words else []
        if b"--new-session" in options and any(
            one == b"--bind" and two.startswith(below) for one, two in pairwise(options)
        ):
            yield int(pid), signal.SIGKILL  # bwrap, or the first process of its namespace
        elif b"session=1" in options and any(
            word.startswith(b"worktree=" + below) for word in options
        ):
            # the launcher: at SIGKILL it would leave what it has adopted
            yield int(pid), signal.SIGTERM
