"""Free a full disk: delete what a command wrote, and restore the files of the last checkpoint."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from placet.disk.files import delete_tree
from placet.git.checkpoint import restore_files
from placet.git.worktree import Worktree
from placet.wording import counted

# bytes; a longer folder path leaves too little room below PATH_MAX for its files
_LONG_PATH = 3_000


def undo_since(wt: Worktree, ref: str, since_ns: int) -> str:
    """Free a full disk: delete a worktree's files written since a moment; return a summary.

    Counts the time of a file's last change of any kind (ctime), because no command can set it.
    Deleted files are written again from the commit at `ref`, or from the branch if there is no such
    reference. Deleting takes no space. Raises OSError or GitError.
    """
    deleted = _delete_since(wt.path, since_ns)
    back = restore_files(wt, ref, deleted) if deleted else []
    return (
        f"placet deleted what it had written, to free disk space: "
        f"{counted(len(deleted), 'file')}, "
        f"{len(back)} restored from the last checkpoint"
    )


def _delete_since(top: Path, since_ns: int) -> list[str]:
    deleted: list[str] = []
    ahead, seen = [top], []
    while ahead:
        folder = ahead.pop()
        if len(os.fsencode(folder)) > _LONG_PATH:
            delete_tree(folder)
            continue
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            folder.chmod(0o700)
        seen.append(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    ahead.append(Path(entry.path))
                elif info.st_ctime_ns > since_ns and not (folder == top and entry.name == ".git"):
                    os.unlink(entry.path)  # noqa: PTH108 - slower, and there may be half a million
                    deleted.append(os.path.relpath(entry.path, top))
    for folder in reversed(seen[1:]):
        with suppress(OSError):  # not empty
            if folder.stat().st_ctime_ns > since_ns:
                folder.rmdir()
    return deleted
