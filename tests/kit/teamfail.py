"""Run a process of placet that kills itself at a chosen place: `teamfail.py NUMBER LOG WORDS…`.

The places are before and after each journal transaction of its work and each git process. Their
names go to LOG. At place NUMBER (from 0; -1 for none) the process gets SIGKILL, or the signal named
in FAULT_SIGNAL.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from placet.cli.main import main
from placet.git import run
from placet.journal.writer import Journal
from placet.journal.writes import RenewLease, Write
from placet_team.worker_journal import WorkerJournal

_APART = ("worker_beat", "worker_leave")
_count = 0
_lock = threading.Lock()


def point(name: str, at: int, log: Path) -> None:
    global _count
    with _lock:
        number = _count
        _count += 1
        with log.open("a") as file:
            file.write(f"{name}\n")
    if number == at:
        os.kill(os.getpid(), getattr(signal, os.environ.get("FAULT_SIGNAL", "SIGKILL")))
        time.sleep(0.2)


def patch_commits(kind: Any, at: int, log: Path) -> None:
    commit = kind.commit

    def committed(self: Any, writes: Sequence[Write], **how: Any) -> Any:
        if not writes or all(isinstance(write, RenewLease) for write in writes):
            return commit(self, writes, **how)
        name = "+".join(dict.fromkeys(type(write).__name__ for write in writes))
        point(f"before {name}", at, log)
        answer = commit(self, writes, **how)
        point(f"after {name}", at, log)
        return answer

    kind.commit = committed


def patch(at: int, log: Path) -> None:
    patch_commits(Journal, at, log)
    patch_commits(WorkerJournal, at, log)
    call = WorkerJournal.call

    def called(self: WorkerJournal, function: str, *values: Any) -> Any:
        if function in _APART:
            return call(self, function, *values)
        point(f"before {function}", at, log)
        answer = call(self, function, *values)
        point(f"after {function}", at, log)
        return answer

    WorkerJournal.call = called  # type: ignore[method-assign]
    start, read = run.start_git, run._read_all

    def started(place: Any, args: Sequence[str], *rest: Any) -> Any:
        point(f"before git {args[0]}", at, log)
        return start(place, args, *rest)

    def read_all(*how: Any) -> Any:
        answer = read(*how)
        point("after git", at, log)
        return answer

    run.start_git, run._read_all = started, read_all


if __name__ == "__main__":
    number, log, *words = sys.argv[1:]
    patch(int(number), Path(log))
    sys.argv = ["placet", *words]
    main(words)
