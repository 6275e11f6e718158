"""Open, read and write below a folder by handles: one name at a time, never through a link.

A path that is checked first and opened later can be swapped in between. A name that is opened
from its folder's handle with `O_NOFOLLOW` cannot. `Root` and `Vault` use only these functions
on disk. All of them raise OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

# O_NONBLOCK: opening a FIFO must not wait for its other end. O_NOCTTY: a terminal must not become
# this process's controlling terminal.
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# For a folder on the way to a path. O_PATH needs only search permission, as resolving a path does.
PASSAGE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

Name = str | bytes

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# CIFS and some FUSE file systems; EBADF for an O_PATH handle.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF})


class EntryKind(StrEnum):
    """The type of an entry. `other` is a FIFO, a socket, a device, or an unreadable folder."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


def kind_of(info: os.stat_result) -> EntryKind:
    """Return the type of the entry with this state."""
    if stat.S_ISREG(info.st_mode):
        return EntryKind.FILE
    if stat.S_ISDIR(info.st_mode):
        return EntryKind.DIRECTORY
    return EntryKind.SYMLINK if stat.S_ISLNK(info.st_mode) else EntryKind.OTHER


def enter(folder: int, name: Name, flags: int) -> int:
    """Open one name in a folder; return its handle.

    Raises OSError: ELOOP for a link, EXDEV for anything but a single name (`..`, `a/b`).
    """
    if (name == ".." or "/" in name) if isinstance(name, str) else (name == b".." or b"/" in name):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        # With O_DIRECTORY the system calls a link "not a directory". Report the link instead.
        if target(folder, name) is not None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def target(folder: int, name: Name) -> bytes | None:
    """Return the path in the link `name`, or None for anything but a link."""
    try:
        return os.readlink(os.fsencode(name), dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def descend(base: int, names: Sequence[Name], flags: int, *, create: bool = False) -> int:
    """Return a new handle of the folder `names` below `base`; without names, of `base` itself.

    With `create`, missing folders are created, and flushed if `flags` allow it.
    """
    here = base
    try:
        for name in names:
            try:
                below = enter(here, name, flags)
            except FileNotFoundError:
                if not create:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                    sync(here)
                below = enter(here, name, flags)
            if here != base:
                os.close(here)
            here = below
    except BaseException:
        if here != base:
            os.close(here)
        raise
    return os.dup(base) if here == base else here


class Held:
    """Close an open handle at the end of a `with` block."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *error: object) -> None:
        os.close(self.handle)


def open_below(base: int, names: Sequence[Name], flags: int) -> int:
    """Return a handle of `names` below `base`, or of `base` for no names, opened with `flags`."""
    if len(names) < 2:
        return enter(base, names[0] if names else ".", flags)
    with Held(descend(base, names[:-1], PASSAGE)) as folder:
        return enter(folder, names[-1], flags)


def read_at_most(handle: int, limit_bytes: int, size: int) -> bytes:
    """Return the content of an open file; of a longer one, its first `limit_bytes + 1` bytes.

    `size` is a guess: the file may be growing, and files in /proc report 0.
    """
    data = os.read(handle, min(limit_bytes, max(size, 4096)) + 1)
    if len(data) == size:
        return data  # the read asked for one byte more, so this is the end
    while len(data) <= limit_bytes and (piece := os.read(handle, limit_bytes + 1 - len(data))):
        data += piece
    return data


@dataclass(slots=True)
class Temporary:
    """A new file under a temporary name. Set `is_kept` after the name was taken over or renamed."""

    name: str
    handle: int
    is_kept: bool = False


@contextlib.contextmanager
def temporary(
    folder: int, name: str, data: bytes, mode: int, prepare: Callable[[int], object]
) -> Iterator[Temporary]:
    """Make a file `name` with these bytes, flushed; delete it at the end unless it is kept.

    Calls `prepare` with its handle while the file is empty. Raises FileExistsError for a taken
    name.
    """
    temp = Temporary(name, os.open(name, _NEW, mode, dir_fd=folder))
    try:
        prepare(temp.handle)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(temp.handle, rest) :]
        os.fsync(temp.handle)
        yield temp
    finally:
        try:
            if not temp.is_kept:
                with contextlib.suppress(OSError):  # a sweep finds it
                    os.unlink(temp.name, dir_fd=folder)
        finally:
            os.close(temp.handle)


def sync(folder: int) -> None:
    """Flush a folder's names to disk, if its handle and its file system allow it."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
