"""Deleting folders that somebody hostile filled."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
from pathlib import Path


def delete_tree(path: Path) -> None:
    """Delete a folder, also where its folders are not writable or hundreds deep.

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
    """Make every folder below `top` one right in it that can be deleted: no path is too long then, and no recursion too deep."""
    top.chmod(0o700)
    ahead, moved = [top], itertools.count()
    prefix = secrets.token_hex(8)  # that nothing in there has
    while ahead:
        folder = ahead.pop()
        with os.scandir(folder) as entries:
            below = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        for inner in below:
            inner.chmod(0o700)
            ahead.append(inner if folder == top else inner.rename(top / f"{prefix}-{next(moved)}"))
