"""Processes as owners of leases, the clock of leases, and the locks: one daemon per vault."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from placet.case.lease import Owner
from placet.disk.files import lock
from placet.errors import UserError, cannot_write

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h
# a daemon that is stopping, or a status command that looks, is waited for this long
_LOCK_PATIENCE_S = 0.5
_LOCK_STEP_S = 0.05
_LOCK_TEXT_BYTES = 4096


def boottime_s() -> float:
    """Return the seconds since boot, time asleep included, whatever the wall clock does.

    macOS has no CLOCK_BOOTTIME; there CLOCK_MONOTONIC counts time asleep (clock_gettime(3)).
    """
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return an id of this boot of the machine."""
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "kern.bootsessionuuid")
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def this_process() -> Owner:
    """Return the calling process as an owner."""
    pid = os.getpid()
    start = _pid_start(pid)
    if start is None:
        raise OSError(f"cannot read the start time of process {pid}")
    return Owner(_host(), boot_id(), pid, start)


def is_alive(owner: Owner) -> bool:
    """Return whether the process of an owner lives on this machine."""
    return owner.boot_id == boot_id() and _pid_start(owner.pid) == owner.pid_start


class _Flock:
    """An exclusive flock on a file.

    The kernel frees it when the process ends, however it ends, so there is no stale state. The file
    is never unlinked: a second process could lock the new one while the first still holds the old.
    Neither exec'd nor forked children keep it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        this = weakref.ref(self)

        def forget() -> None:
            lock = this()
            if lock is not None:
                lock._close()  # closing a copy leaves the parent's flock alone

        os.register_at_fork(after_in_child=forget)

    def _lock(self) -> bool:
        """Lock the file; return False if another process holds it for over _LOCK_PATIENCE_S."""
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not self._try():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_STEP_S)
        return True

    def _try(self) -> bool:
        """Lock the file; return False if another process holds it, or the file was replaced."""
        try:
            fd = self._open()
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise cannot_write(self._path, error) from error
            raise UserError(
                f"cannot use the lock file {self._path}: {error.strerror}",
                "it must be a plain file that you may write to",
            ) from error
        try:
            mine = lock(fd) and os.path.samestat(os.fstat(fd), os.lstat(self._path))
        except FileNotFoundError:
            mine = False
        except OSError:
            os.close(fd)
            raise
        if mine:
            self._fd = fd
        else:
            os.close(fd)
        return mine

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _unlock(self) -> None:
        if self._fd >= 0:
            # now, even if a child was forked and has not run yet
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class VaultLock(_Flock):
    """One daemon per state folder: a lock on a file that names its holder.

    Entering raises UserError (exit code 2) that names the other holder.
    """

    def __init__(self, path: Path, owner: Owner, since: str) -> None:
        super().__init__(path)
        self._text = json.dumps({"pid": owner.pid, "host": owner.host, "since": since})

    def __enter__(self) -> VaultLock:
        if not self._lock():
            raise UserError(
                f"another placet daemon works on this vault: {_read_text(self._path)} "
                f"({self._path})",
                "stop it first, or use `placet status` to see what it does",
                exit_code=2,
            )
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, self._text.encode(), 0)
        except OSError as error:
            self._unlock()
            raise cannot_write(self._path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:  # a forked child has closed its copy, and must not touch the text
            os.ftruncate(self._fd, 0)
        self._unlock()


class MarkerLock(_Flock):
    """One daemon per vault, by any path, user or state folder: a lock on the vault's marker.

    `say` is told if the file system has no locks: then the state folder's lock is the only one.
    Entering raises UserError (exit code 2) if another daemon works on the vault.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        super().__init__(path)
        self._say = say

    def __enter__(self) -> MarkerLock:
        try:
            free = self._lock()
        except OSError as error:  # no server for locks, or none on this file system
            self._say(
                f"{self._path} cannot be locked: {error.strerror}. Make sure that no daemon of "
                "another user or machine works on this vault."
            )
            return self
        if not free:
            raise UserError(
                f"another placet daemon works on this vault: it holds {self._path}",
                "Another user may have started it, or it has another state folder. Stop it first.",
                exit_code=2,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._unlock()

    def _open(self) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # NFS locks exclusively only what may be written
            return os.open(self._path, os.O_RDWR | flags)
        except PermissionError:
            return os.open(self._path, os.O_RDONLY | flags)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return os.open(self._path, os.O_RDONLY | flags)


def lock_holder(path: Path) -> str | None:
    """Return the holder of the vault's lock ("pid 7 on host since …"); None if no daemon runs.

    This takes a shared lock for microseconds; a daemon that starts at that moment waits for it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return None if lock(fd, shared=True) else _read_text(path)
    finally:
        os.close(fd)


def _read_text(path: Path) -> str:
    """Return the holder that the lock file names, as part of a sentence."""
    try:
        with path.open("rb") as file:
            holder = json.loads(file.read(_LOCK_TEXT_BYTES))
        return f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "a process that is just starting or stopping"


def _host() -> str:
    """Return the machine's name, and the pid namespace if it is not the first."""
    name = socket.gethostname() or "localhost"
    if sys.platform == "darwin":
        return name
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return name if namespace == _FIRST_PID_NAMESPACE else f"{name}#{namespace}"


def _pid_start(pid: int) -> str | None:
    """Return the process's start time as the system writes it; None if it cannot be read."""
    if sys.platform == "darwin":
        return _output("ps", "-o", "lstart=", "-p", str(pid)) or None
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # proc(5): the name, in parentheses, may hold anything; starttime is field 22
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[19].decode("ascii")


def _output(*argv: str) -> str:
    run = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"},
    )
    return run.stdout.strip()


_MAX_BYTES = 4096


@contextmanager
def announced(path: Path, told: Mapping[str, object]) -> Iterator[None]:
    """Say in a file where a server is, as long as the block lasts.

    The file is locked meanwhile: who listens at that address after a server was killed may be
    anybody. Raises UserError if the file cannot be written.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot_write(path, error) from error
    with os.fdopen(handle, "wb", buffering=0) as file:
        try:
            lock(handle)
            file.write(json.dumps(told).encode())
            aside.replace(path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise cannot_write(path, error) from error
        try:
            yield
        finally:
            with suppress(OSError):
                if os.path.samestat(path.stat(), os.fstat(handle)):  # else another came later
                    path.unlink()


def announced_at(path: Path) -> Any:
    """Return what a server that lives has said; None without one. Raises ValueError."""
    try:
        with path.open("rb") as file:
            return None if lock(file.fileno(), shared=True) else json.loads(file.read(_MAX_BYTES))
    except OSError:
        return None
