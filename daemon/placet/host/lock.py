"""Lock the vault for one daemon, and identify processes that own leases."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from placet.case.lease import Owner
from placet.disk.files import FileLock, lock
from placet.errors import UserError, cannot_write

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h
# how long to wait for a stopping daemon or a running `status`
_WAIT_S = 0.5
_MAX_BYTES = 4096


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


class VaultLock(FileLock):
    """One daemon per state folder: a lock on a file that names its holder.

    Entering raises UserError (exit code 2) that names the other holder.
    """

    def __init__(self, path: Path, owner: Owner, since: str) -> None:
        super().__init__(path, _WAIT_S)
        self._text = json.dumps({"pid": owner.pid, "host": owner.host, "since": since})

    def __enter__(self) -> Self:
        try:
            super().__enter__()
            os.ftruncate(self.handle, 0)
            os.pwrite(self.handle, self._text.encode(), 0)
        except BlockingIOError as error:
            raise UserError(
                f"another placet daemon works on this vault: {lock_holder(self.path)} "
                f"({self.path})",
                "stop it first, or use `placet status` to see what it does",
                exit_code=2,
            ) from error
        except OSError as error:
            if self.handle >= 0:
                super().__exit__()
            raise cannot_write(self.path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a disk that fails; the lock counts, not the text
            os.ftruncate(self.handle, 0)
        super().__exit__()


class VaultTaken(UserError):  # noqa: N818 - named for what is the case
    """Another daemon works on the vault."""


class MarkerLock(FileLock):
    """One daemon per vault, by any path, user or state folder: a lock on the vault's marker.

    `say` is told if the file system has no locks: then the state folder's lock is the only one.
    Entering raises VaultTaken (exit code 2) if another daemon works on the vault.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        super().__init__(path, _WAIT_S, make=False)
        self._say = say

    def __enter__(self) -> Self:
        try:
            super().__enter__()
        except BlockingIOError as error:
            raise VaultTaken(
                f"another placet daemon works on this vault: it holds {self.path}",
                "Another user may have started it, or it has another state folder. Stop it first.",
                exit_code=2,
            ) from error
        except OSError as error:  # no server for locks, or none on this file system
            self._say(
                f"{self.path} cannot be locked: {error.strerror}. Make sure that no daemon of "
                "another user or machine works on this vault."
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.handle >= 0:
            super().__exit__()

    def renew(self) -> None:
        """Lock the marker again if a sync tool replaced it: a lock is on a file, not on its name.

        Raises VaultTaken if another daemon was faster.
        """
        try:
            same = os.path.samestat(os.fstat(self.handle), self.path.lstat())
        except OSError:  # it has no lock, or the vault is away
            return
        if not same:
            super().__exit__()
            self.__enter__()


def lock_holder(path: Path) -> str | None:
    """Return the holder of the vault's lock ("pid 7 on host since …"); None if no daemon runs.

    This takes a shared lock for microseconds; a daemon that starts at that moment waits for it.
    """
    try:
        holder = announced_at(path)
        return holder and f"pid {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "a process that is just starting or stopping"


def announced_at(path: Path) -> Any:
    """Return what the process says that holds the lock of a file; None without one.

    Raises ValueError.
    """
    try:
        with path.open("rb") as file:
            return None if lock(file.fileno(), shared=True) else json.loads(file.read(_MAX_BYTES))
    except OSError:
        return None


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
