"""Clean up after commands: restore a replaced `.git`, delete odd files, kill abandoned boxes."""

from __future__ import annotations

import os
import secrets
import select
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from placet.codec import sha256
from placet.disk.files import delete_tree
from placet.errors import UserError

_GONE_S = 5.0


@contextmanager
def kept_git_file(worktree: Path, *, strict: bool) -> Iterator[None]:
    """Restore `worktree/.git`, if it is a file, when the context ends.

    Landlock cannot remove a right below a writable folder. So a command may replace the worktree's
    `.git`, a pointer of one line. A `.git` folder cannot be restored; `strict` then raises
    UserError.
    """
    path = worktree / ".git"
    before = _read(path)
    if before is None and strict and os.path.lexists(path):
        raise UserError(
            f"{path} is not the file of a git worktree, and this level of the sandbox cannot "
            "protect it",
            "run the command in a worktree made by `git worktree add`, or install bubblewrap",
        )
    try:
        yield
    finally:
        if before is not None and worktree.is_dir() and _read(path) != before:
            _restore_file(path, before)


def _restore_file(path: Path, content: bytes) -> None:
    """Write the file again, and delete whatever is there instead."""
    # the command has no process left that could take this name
    away = path.with_name(f".git.{secrets.token_hex(8)}.removed")
    path.parent.chmod(path.parent.stat().st_mode | stat.S_IRWXU)
    with suppress(FileNotFoundError):
        path.rename(away)
    with path.open("xb") as file:
        file.write(content)
    if away.is_dir() and not away.is_symlink():
        delete_tree(away)
    else:
        away.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 64 * 1024) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)


def delete_special_files(worktree: Path) -> None:
    """Delete pipes, sockets and devices, because git would block on a pipe named `.gitignore`.

    Folders without permissions get them back, because git looks for such names in them too.
    """
    ahead = [str(worktree)]
    while ahead:
        folder = ahead.pop()
        try:
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(folder, 0o700)  # noqa: PTH101 - as below
            with os.scandir(folder) as entries:
                for entry in entries:  # no Path objects: there may be many entries
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                        os.unlink(entry.path)  # noqa: PTH108
        except OSError:
            continue  # the path is too long, also for git


def temporary() -> Path:
    """Return where boxes have their private temporary folders: on a disk if there is one."""
    disk = Path("/var/tmp")  # noqa: S108  used with mkdtemp
    return disk if os.access(disk, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def scratch_prefix(worktree: Path) -> str:
    """Return how the names of the temporary folders begin, for boxes beside this worktree."""
    return f"placet-box-{sha256(os.fsencode(worktree.parent))[:12]}-"


def end_left_behind(worktrees: Path) -> int:
    """Kill every box whose worktree is below `worktrees`, and delete the temporary folders.

    Return the number of signals sent.

    If bwrap is killed together with its daemon while it starts, it can leave a child that waits
    forever. The caller holds the vault's lock and has started no command yet, so every box there is
    abandoned. A user's shell in `placet sandbox` is left alone. Linux only, because bwrap does not
    run elsewhere.
    """
    signalled = 0
    with ExitStack() as stack:
        ended = select.poll()
        for pid, number in _boxes(worktrees) if sys.platform == "linux" else ():
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, process)
            if pid not in dict(_boxes(worktrees, [str(pid)])):
                continue  # the number was reused by another process
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(process, number)
                ended.register(process, select.POLLIN)
                signalled += 1
        waited_for = signalled
        while waited_for and (gone := ended.poll(_GONE_S * 1000)):
            for process, _ in gone:
                ended.unregister(process)
            waited_for -= len(gone)
    for left in temporary().glob(f"{scratch_prefix(worktrees / 'any')}*"):
        with suppress(FileNotFoundError):
            if left.lstat().st_uid == os.getuid():
                delete_tree(left)
    return signalled


def _boxes(worktrees: Path, pids: list[str] | None = None) -> Iterator[tuple[int, signal.Signals]]:
    """Yield the processes that are boxes below `worktrees`, with the signal that kills each."""
    below = os.fsencode(worktrees) + b"/"
    for pid in (
        [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        if pids is None
        else pids
    ):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended, or another user's
        options = words[: words.index(b"--")] if b"--" in words else []
        if b"--new-session" in options and any(
            one == b"--bind" and two.startswith(below) for one, two in pairwise(options)
        ):
            yield int(pid), signal.SIGKILL  # bwrap, or the first process of its namespace
        elif b"session=1" in options and any(
            word.startswith(b"worktree=" + below) for word in options
        ):
            # the launcher: SIGKILL would orphan the processes that it adopted
            yield int(pid), signal.SIGTERM
