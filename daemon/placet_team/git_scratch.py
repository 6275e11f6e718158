"""Keep what git needs for a moment in one private folder: repositories and ssh connections.

A process deletes its folder at its end, and those of killed processes before it makes its own.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from placet.disk.files import FileLock, delete_tree
from placet.git.run import GitDir

_PREFIX = "placet-git-"
_LONGEST_TOP = 16
"""Characters of the folder above. A socket's path has at most 104 on macOS; ours adds 82."""
_NEW_S = 60.0
"""Age below which another process may still be about to lock its folder."""
_HASH = {False: "", True: "[extensions]\n\tobjectformat = sha256\n"}
_making = threading.Lock()
_made: list[tuple[Path, FileLock]] = []


def folder() -> Path:
    """Return this process's folder; create it if it is missing, or was cleaned away."""
    with _making:
        if not _made:
            atexit.register(_end)
        if not _made or not (_made[-1][0] / "lock").exists():
            top = tempfile.gettempdir()
            _made.append(_make(Path(top if len(top) <= _LONGEST_TOP else "/tmp")))  # noqa: S108 - mkdtemp makes it private
        return _made[-1][0]


def _make(top: Path) -> tuple[Path, FileLock]:
    for left in top.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            info = left.lstat()
            if info.st_uid == os.geteuid() and time.time() - info.st_mtime > _NEW_S:
                with FileLock(left / "lock", 0.0):
                    _clear(left)
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=top))
    lock = FileLock(made / "lock", 0.0)
    lock.__enter__()
    return made, lock


def _end() -> None:
    for made, lock in _made:
        _clear(made)
        lock.__exit__()


def _clear(place: Path) -> None:
    """End the ssh connections of a folder, and delete it."""
    for socket in place.glob("ssh-*"):
        asked = ["ssh", f"-oControlPath={socket}", "-O", "exit", "any"]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(asked, capture_output=True, check=False, timeout=5.0)
    delete_tree(place)


def ssh_options() -> str:
    """Return the options with which all git commands of this process share their logins."""
    where = quote(str(folder() / "ssh-%C"))
    return f"-oControlMaster=auto -oControlPath={where} -oControlPersist=600"


@contextmanager
def bare_place(objects: Path | None, *, sha256: bool) -> Iterator[GitDir]:
    """Give an empty bare repository that reads and writes the objects of another one.

    It has none of the other's settings and references.
    """
    with tempfile.TemporaryDirectory(dir=folder(), ignore_cleanup_errors=True) as name:
        path = Path(name)
        for part in ("objects", "refs"):
            (path / part).mkdir()
        (path / "HEAD").write_text("ref: refs/heads/main\n")
        core = f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tbare = true\n"
        (path / "config").write_text(core + _HASH[sha256])
        env = {} if objects is None else {"GIT_OBJECT_DIRECTORY": str(objects)}
        yield GitDir(path, None, path, None, env)
