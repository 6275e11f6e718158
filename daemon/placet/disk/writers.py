"""Ask the kernel whether a program has a file open for writing.

The kernel grants a read lease only while no program has. As long as placet holds it, a program that
opens the file for writing waits, and placet can see that one does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from placet.case.settle import Writers
from placet.disk.handles import FILE, Held

# f_type of the file systems that see every writer (linux/magic.h). Overlays, FUSE and network file
# systems do not, and grant a lease all the same.
_SEE_WRITERS = frozenset(
    {
        0xEF53,  # ext4
        0x58465342,  # xfs
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0xF2F52010,  # f2fs
        0x2FC12FC1,  # zfs
    }
)
_STATFS_BYTES = 512  # more than any struct statfs; f_type is its first word


class Lease:
    """The kernel's answer about writers, and the lease if it granted one."""

    def __init__(self, handle: int, writers: Writers) -> None:
        self._handle = handle
        self.writers = writers

    @property
    def is_broken(self) -> bool:
        """Whether a program that wants to write waits for the lease."""
        if sys.platform != "linux" or self.writers is not Writers.NONE:
            return False
        return fcntl.fcntl(self._handle, fcntl.F_GETLEASE) == fcntl.F_UNLCK


@contextlib.contextmanager
def lease(handle: int, *, ask: bool = True) -> Iterator[Lease]:
    """Hold a read lease on a file opened for reading, if the kernel grants one.

    Do nothing slow meanwhile: a program that opens the file for writing waits. Without `ask` the
    answer is UNKNOWN, as on macOS.
    """
    taken = Lease(handle, _take(handle) if ask else Writers.UNKNOWN)
    try:
        yield taken
    finally:
        if sys.platform == "linux" and taken.writers is Writers.NONE:
            with contextlib.suppress(OSError):  # the kernel took it after a long wait
                fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def writers_of(path: Path) -> Writers:
    """Return whether a program has the file at `path` open for writing, if the kernel knows."""
    try:
        handle = os.open(path, FILE)
    except OSError:
        return Writers.UNKNOWN
    with Held(handle), lease(handle) as held:
        return held.writers


def _take(handle: int) -> Writers:
    """Take a read lease; return what that says about writers."""
    if sys.platform != "linux" or _file_system(handle) not in _SEE_WRITERS:
        return Writers.UNKNOWN
    try:
        # A broken lease sends a signal. The default one, SIGIO, kills a process that has no
        # handler; SIGURG is ignored by default, in every thread.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # anything else, such as EACCES for the file of another user, says nothing about writers
        return Writers.SOME if error.errno == errno.EAGAIN else Writers.UNKNOWN
    return Writers.NONE


def _file_system(handle: int) -> int:
    """Return the type of an open file's file system, 0 if it is unknown."""
    result = ctypes.create_string_buffer(_STATFS_BYTES)
    if _fstatfs()(handle, result) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(result).value & 0xFFFFFFFF


@cache
def _fstatfs() -> Any:
    return ctypes.CDLL(None, use_errno=True).fstatfs
