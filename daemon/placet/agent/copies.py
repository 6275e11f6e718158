"""Copy files of a checkout into a mission's worktree, after a search for secrets."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from placet.agent.dependencies import Brought, is_configured
from placet.disk.files import delete_tree
from placet.disk.real_path import real_path
from placet.git.worktree import Worktree
from placet.sandbox.brought import has_plain_parents
from placet.sandbox.visible_paths import SYSTEM
from placet.secret_files import find_secrets, secret_file

_MAX_FILE_BYTES = 1_000_000
_MAX_BYTES = 50_000_000


def bring_into(tree: Worktree, what: Brought, known: Sequence[str]) -> None:
    """Copy what a mission has of its own into its worktree; `known` are secrets.

    Repeated after a kill. A path that the commit has stays as it is. Raises OSError.
    """
    top, left, now = tree.repo.path, _MAX_BYTES, time.time()
    for path in (*what.copied, *what.generated):
        _remove(tree.path, path)
    for path in what.copied:
        if _can_take(tree.path, path):
            _copy_whole(top / path, tree.path / path)
    for path in what.generated:
        for file in _files_below(top, path):
            source = top / file
            if not source.exists():
                continue
            size = (source.lstat() if _is_link(source) else source.stat()).st_size
            if size <= min(left, _MAX_FILE_BYTES) and not _must_stay_out(source, file, known):
                left -= size
                _copy_file(source, tree.path, file, now)


def _can_take(worktree: Path, path: PurePosixPath) -> bool:
    place = worktree / path
    return has_plain_parents(worktree, place) and not os.path.lexists(place)


def _remove(worktree: Path, path: PurePosixPath) -> None:
    place = worktree / path
    if has_plain_parents(worktree, place) and os.path.lexists(place):
        delete_tree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def _copy_whole(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, ignore=_special)
    else:
        shutil.copy2(source, place)


def _special(folder: str, names: list[str]) -> list[str]:
    """Return the names of sockets, pipes and devices."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}  # noqa: PTH118
    good = (stat.S_ISDIR, stat.S_ISREG, stat.S_ISLNK)
    return [name for name, mode in modes.items() if not any(is_one(mode) for is_one in good)]


def _files_below(top: Path, path: PurePosixPath) -> Iterator[PurePosixPath]:
    if not (top / path).is_dir():
        yield path
    for folder, folders, names in os.walk(top / path):
        folders.sort()
        yield from (PurePosixPath(Path(folder, name).relative_to(top)) for name in sorted(names))


def _must_stay_out(source: Path, path: PurePosixPath, known: Sequence[str]) -> bool:
    """Return whether a file is not a plain file, leads out of the checkout, or holds a secret.

    A link to a file of the system, as automake makes them, is that file.
    """
    if _is_link(source):
        target = source.readlink()
        return target.is_absolute() or ".." in target.parts
    source = real_path(source)
    if not stat.S_ISREG(source.lstat().st_mode) or secret_file(str(path)) is not None:
        return True
    return bool(find_secrets(source.read_bytes(), path=str(path), known=known))


def _is_link(path: Path) -> bool:
    """Return whether this is a link that does not lead to a system file."""
    return path.is_symlink() and not any(map(real_path(path).is_relative_to, SYSTEM))


def _copy_file(source: Path, worktree: Path, path: PurePosixPath, now: float) -> None:
    if not _can_take(worktree, path):
        return
    place = worktree / path
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, place, follow_symlinks=not _is_link(source))
    if is_configured(place.name) and not place.is_symlink():
        # one time for all, else make would configure again: the commit's files are newer
        os.utime(place, (now, now))
