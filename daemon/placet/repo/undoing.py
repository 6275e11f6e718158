"""Giving a full disk back: what a command wrote is deleted, and what was there before is put back from the last checkpoint."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from placet.disk import delete_tree
from placet.repo.worktree import Worktree, put_back

_LONG_PATH = 3_000  # bytes; of a folder whose path is longer not everything could be named


def undo_since(wt: Worktree, ref: str, since_ns: int) -> str:
    """Delete the files of a worktree that were written since a moment; say how many.

    What counts is the time of a file's last change of any kind (ctime), which no command can set.
    Those that the commit at `ref` has (of the worktree, where there is none) are then written again
    as they are there. Deleting takes no space. Raises OSError or GitError.
    """
    gone = _delete_since(wt.path, since_ns)
    back = put_back(wt, ref, gone) if gone else []
    return (
        f"what it had written was deleted, so that there is room again: {len(gone)} files, of which {len(back)} are again as "
        "they were at the last checkpoint"
    )


def _delete_since(top: Path, since_ns: int) -> list[str]:
    gone: list[str] = []
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
                    os.unlink(entry.path)  # noqa: PTH108 - there may be half a million
                    gone.append(os.path.relpath(entry.path, top))
    for folder in reversed(seen[1:]):
        with suppress(OSError):  # something is in it
            if folder.stat().st_ctime_ns > since_ns:
                folder.rmdir()
    return gone
