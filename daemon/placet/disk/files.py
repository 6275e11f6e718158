"""Write files whole, lock, flush and stamp them, find their owners, and delete folders."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import pwd
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

_LOCK_STEP_S = 0.02
_TEMPORARY = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def put(path: Path, data: bytes, *, mode: int = 0o600, aside: Path | None = None) -> None:
    """Write a file whole or not at all, flushed. Raises OSError.

    Until then it has the name `aside`, in a folder on the same disk. By default that is
    `NAME.PID.tmp`, which `sweep` finds. It is locked meanwhile.
    """
    aside = aside or path.with_name(f"{path.name}.{os.getpid()}.tmp")
    handle = os.open(aside, _TEMPORARY, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(OSError):  # a file system without locks
                lock(handle)
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
            aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def sweep(folder: Path) -> None:
    """Delete the temporary files that killed processes left in a folder. Raises OSError."""
    for path in folder.glob("*.*.tmp"):
        pid = path.name.split(".")[-2]
        if pid.isdecimal() and not is_running(int(pid)):
            path.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Return whether a process has this id on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file; return False if another process holds it.

    Raises OSError, also for a file system without locks.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FileLock:
    """An exclusive lock on a file or folder. A context manager.

    Entering waits up to `wait_s` seconds for another process, then raises BlockingIOError. It
    raises OSError for a path that cannot be opened or locked. With `make` a missing file is
    created.

    The kernel frees the lock when the process ends for any reason, so there is no stale state. A
    child keeps the lock only if it inherits `handle`, the open descriptor. Never unlink the file
    while anybody may still need it. A second process could lock a new one while the first holds the
    old.
    """

    def __init__(self, path: Path, wait_s: float, *, make: bool = True) -> None:
        self.path = path
        self.handle = -1
        self._wait_s = wait_s
        self._made = os.O_CREAT if make else 0

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._wait_s
        while not self._try():
            if time.monotonic() >= deadline:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process holds it", str(self.path))
            time.sleep(_LOCK_STEP_S)
        return self

    def __exit__(self, *_: object) -> None:
        handle, self.handle = self.handle, -1
        os.close(handle)

    def _try(self) -> bool:
        """Lock the file; return False if another process holds it, or the file was replaced."""
        handle = self._open()
        try:
            if lock(handle) and os.path.samestat(os.fstat(handle), os.lstat(self.path)):
                self.handle = handle
        except FileNotFoundError:
            pass
        finally:
            if self.handle < 0:
                os.close(handle)
        return self.handle >= 0

    def _open(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # NFS needs write access for an exclusive lock
            return os.open(self.path, os.O_RDWR | self._made | flags, 0o600)
        except OSError as error:
            if self._made or error.errno not in (errno.EACCES, errno.EROFS, errno.EISDIR):
                raise
            return os.open(self.path, os.O_RDONLY | flags)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FileStamp(NamedTuple):
    """Values that change with a file. After two saves in one moment, inode or size may differ."""

    ino: int
    size: int
    mtime_ns: int


Stamp = FileStamp | None
"""None for a missing file."""


def free_bytes(folder: Path) -> int:
    """Return the number of bytes that can still be written to a folder's disk. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of the file at `path`, which differs after a change."""
    try:
        at = path.stat()
    except OSError:
        return None
    return FileStamp(at.st_ino, at.st_size, at.st_mtime_ns)


def is_missing(path: Path) -> bool:
    """Return whether nothing is at `path`; False if the system does not say."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return device and inode of `path`, or None if it cannot be read."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def owner_of(info: os.stat_result) -> str:
    """Return the owner of the file with this state: a user name, or `uid:1000`."""
    try:
        return pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        return f"uid:{info.st_uid}"


def delete_tree(path: Path) -> None:
    """Delete a folder, even if its folders are not writable or hundreds deep.

    Symbolic links in it are not followed.
    """
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        _flatten(path)
        shutil.rmtree(path)


def _flatten(top: Path) -> None:
    """Move every folder below `top` directly into it, so that no path is too long or deep."""
    top.chmod(0o700)
    ahead, moved = [top], itertools.count()
    prefix = secrets.token_hex(8)  # unused in there
    while ahead:
        folder = ahead.pop()
        with os.scandir(folder) as entries:
            below = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for inner in below:
            inner.chmod(0o700)
            ahead.append(inner if folder == top else inner.rename(top / f"{prefix}-{next(moved)}"))
