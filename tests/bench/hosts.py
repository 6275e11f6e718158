"""Measure what a command with hosts costs beside one without: `python -m tests.bench hosts`."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from placet.plan.hosts import Host
from placet.sandbox.box import Box, Level
from placet.sandbox.run import run

_PR_SET_CHILD_SUBREAPER = 36
PYTHON = str(Path(sys.executable).resolve())
COMMANDS = {
    "true": ["/bin/true"],
    "a test run of 0.2 s": [PYTHON, "-c", "import asyncio, unittest; sum(range(6_000_000))"],
}
ASKS = (
    "import socket\nfor _ in range(5):\n s = socket.create_connection(('127.0.0.1', 3128))\n"
    " s.sendall(b'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n'); s.recv(999)\n"
)


def cpu_ms(argv: Sequence[str], box: Box, times: int) -> float:
    """Return the processor time of a command, with all that was started for it."""

    def used() -> float:
        found = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        return sum(one.ru_utime + one.ru_stime for one in found) * 1000

    def reap() -> None:
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)  # the box's first process is adopted, so its time counts

    run(argv, box, Level.BUBBLEWRAP)
    reap()
    before = used()
    for _ in range(times):
        run(argv, box, Level.BUBBLEWRAP)
        reap()
    return (used() - before) / times


def command_cost(folder: Path, told: Callable[[str, str, str], None], times: int = 20) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    listed = Box(folder, hosts=(Host("packages.example"),))
    for name, argv in {**COMMANDS, "5 refused connections": [PYTHON, "-c", ASKS]}.items():
        began = time.perf_counter()
        with_hosts = cpu_ms(argv, listed, times)
        took = (time.perf_counter() - began) * 1000 / (times + 1)
        without = cpu_ms(argv, Box(folder), times) if name in COMMANDS else 0.0
        beside = f"without: {without:.0f} ms, ratio {with_hosts / without:.2f}; " if without else ""
        told(
            f"processor of {name}, with hosts",
            f"{with_hosts:.0f} ms",
            f"{beside}{took:.0f} ms long",
        )
