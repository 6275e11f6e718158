"""Put a worktree's `.git` file back after a command, where the level cannot freeze it in place.

Landlock only adds rights and never takes one away below a folder, so whoever may write in the
worktree may replace its `.git`. It is a pointer of one line; afterwards it is again what it was,
and the daemon's own git never follows it.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placet.core.errors import UserError
from placet.disk import delete_tree


@contextmanager
def kept_git_file(worktree: Path, *, strict: bool) -> Iterator[None]:
    """Restore `worktree/.git`, if it is a file, on the way out.

    A `.git` folder cannot be kept so; `strict` then raises UserError.
    """
    path = worktree / ".git"
    before = _read(path)
    if before is None and strict and os.path.lexists(path):
        raise UserError(
            f"{path} is not the file of a git worktree, and this level of the sandbox cannot protect it",
            "run the command in a worktree made by `git worktree add`, or install bubblewrap",
        )
    try:
        yield
    finally:
        if before is not None and worktree.is_dir() and _read(path) != before:
            _put_back(path, before)


def _put_back(path: Path, content: bytes) -> None:
    """Put the file where it was, and delete what stands there, whatever that is and whoever may write in it."""
    # nobody is left who could take the name
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
    """The file's content; None for anything that is not a regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 64 * 1024) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    finally:
        os.close(fd)
