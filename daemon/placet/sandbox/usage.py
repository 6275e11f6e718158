"""Limit the resources of a running command that no kernel limit covers.

RLIMIT_FSIZE bounds one file and not how many there are, on the disk or in memory (memfd_create(2),
which RLIMIT_DATA does not count); RLIMIT_NPROC does not bind root. So the disk's free space, the
machine's shared memory and the number of tasks are looked at while the command runs. A hostile tree
cannot lie about free space: it counts files that were deleted and are still open, and folders too
deep to be walked, and asking costs the same for any tree.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from placet.errors import ToolError
from placet.sandbox.box import BoxLimits

_PERIOD_S = 0.05  # a disk takes some 100 MB in that time
# that often tasks are counted one by one, whatever the machine's number of them says
_COUNT_PERIOD_S = 1.0


class CommandUsage:
    """The resource usage of one command; made before it starts.

    Others who write to the same disk count too: better one command too many is ended than one
    too few.
    """

    def __init__(self, folders: Sequence[Path], limits: BoxLimits, now_s: float) -> None:
        """Measure the start; raises ToolError `disk_full` where a disk has no room."""
        self._limits = limits
        self._least: list[tuple[Path, int, int]] = []
        for folder in folders:
            room, files = _left(folder)
            if room < limits.free_bytes:
                raise ToolError(
                    "disk_full",
                    f"The disk has {room:,} bytes left, and a command starts only where there are "
                    f"{limits.free_bytes:,}. A person can make room, or lower "
                    "limits.free_disk_bytes.",
                )
            self._least.append(
                (folder, max(limits.free_bytes, room - limits.disk_bytes), files - limits.files)
            )
        self._tasks = _all_tasks() + limits.processes
        # The two private temporary file systems are shared memory too, and have their own limit.
        self._shared = _shared_memory() + limits.memory_bytes + 2 * limits.tmp_bytes
        self._next_s = now_s + _PERIOD_S
        self._next_count_s = now_s + _COUNT_PERIOD_S

    def exceeded(self, launcher: int, now_s: float) -> str:
        """Return the limit that the command exceeds: `disk`, `memory`, `processes`, or "".

        `launcher` is the id of the process that the daemon started.
        """
        if now_s < self._next_s:
            return ""
        self._next_s = now_s + _PERIOD_S
        for folder, least_room, least_files in self._least:
            room, files = _left(folder)
            if room < least_room or files < least_files:
                return "disk"
        if _shared_memory() > self._shared:
            return "memory"
        # All tasks of the machine are one number, and where that has not grown it is seldom worth
        # asking whose they are.
        if _binds_not() and (now_s >= self._next_count_s or _all_tasks() > self._tasks):
            self._next_count_s = now_s + _COUNT_PERIOD_S
            if tasks_below(launcher) > self._limits.processes:
                return "processes"
        return ""


def _left(folder: Path) -> tuple[int, int]:
    """Return the bytes and the files that the folder's disk has room for."""
    found = os.statvfs(folder)
    # btrfs counts no files
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else sys.maxsize


def _shared_memory() -> int:
    """Return the bytes of shared memory on this machine; 0, and so no limit, except on Linux."""
    if sys.platform != "linux":
        return 0
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - asked twenty times a second
        return int(file.read().partition(b"Shmem:")[2].split(maxsplit=1)[0]) * 1024


def _binds_not() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


def _all_tasks() -> int:
    if not _binds_not():
        return 0
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def tasks_below(ancestor: int) -> int:
    """Return the number of threads, as RLIMIT_NPROC counts, of a process' descendants (Linux)."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - half the cost, and there may be thousands
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123 - as above
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended meanwhile
        parents[int(name)], threads[int(name)] = int(fields[1]), int(fields[17])
    below: set[int] = set()
    new = {pid for pid, parent in parents.items() if parent == ancestor}
    while new:
        below |= new
        new = {pid for pid, parent in parents.items() if parent in new} - below
    return sum(threads[pid] for pid in below)
