"""Show what a worktree lacks of its checkout: in its place, for one command at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from placet.sandbox.box import Box


@contextmanager
def mount_points(box: Box) -> Iterator[dict[Path, Path]]:
    """Give the places of the shared paths in the box, each with what it shows.

    A place that the worktree uses otherwise is left alone. bwrap makes the missing ones in the
    worktree; they are removed at the end.
    """
    free = {path: shown for path, shown in box.brought.items() if _is_free(box.worktree, path)}
    with _without_new(box.worktree, free):
        yield {box.folder / path: shown for path, shown in free.items()}


@contextmanager
def linked(box: Box) -> Iterator[None]:
    """Link the shared paths into the worktree, where there are no mounts."""
    free = {path: shown for path, shown in box.brought.items() if _is_free(box.worktree, path)}
    with _without_new(box.worktree, free):
        for path, shown in free.items():
            link = box.worktree / path
            link.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(link):
                link.symlink_to(shown)
        yield


@contextmanager
def _without_new(worktree: Path, paths: Iterable[PurePosixPath]) -> Iterator[None]:
    """Remove links and empty files and folders at and above these paths that were not there."""
    above = {worktree / p for path in paths for p in (path, *path.parents) if p.parts}
    missing = sorted((path for path in above if not os.path.lexists(path)), reverse=True)
    try:
        yield
    finally:
        for path in missing:
            if has_plain_parents(worktree, path):
                with suppress(OSError):  # a command may have used a folder on the way
                    path.rmdir()
                with suppress(OSError):
                    if path.is_symlink() or path.lstat().st_size == 0:
                        path.unlink()


def _is_free(worktree: Path, path: PurePosixPath) -> bool:
    """Return whether a place in the worktree is missing or empty, with no link on the way."""
    place = worktree / path
    if not has_plain_parents(worktree, place):
        return False
    try:
        info = place.lstat()
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(info.st_mode):
        return not any(place.iterdir())
    return stat.S_ISREG(info.st_mode) and info.st_size == 0


def has_plain_parents(worktree: Path, place: Path) -> bool:
    """Return whether all folders between the worktree and a place are folders, or missing."""
    between = (folder for folder in place.parents if folder.is_relative_to(worktree))
    return all(
        not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink())
        for folder in between
    )


def to_mask(shown: Mapping[Path, Path], box: Box) -> Iterator[Path]:
    """Yield the places that nobody may reach, of places and what they show.

    Those are unix sockets with a server, and settings of pip with a login. git's folders are
    searched, dependencies when they are shown first: they may have 100,000 files. Of tool chains,
    which may have more, only sockets that the kernel lists are known.
    """
    listed = [Path(line[-1]) for line in _unix_sockets() if line[-1].startswith("/")]
    often = {*box.read_only, *((box.git[0],) if box.git else ())}
    for place, path in shown.items():
        found = {unix for unix in listed if unix.is_relative_to(path) and unix.is_socket()}
        if path in often:
            found |= {*_found(path)}
        elif path in box.brought.values() or path in box.readable:
            found |= {*_known(path)}
        yield from (place / one.relative_to(path) for one in found)


def _unix_sockets() -> list[list[str]]:
    return [line.split(maxsplit=7) for line in Path("/proc/net/unix").read_text().splitlines()]


@lru_cache(maxsize=1024)
def _known(folder: Path) -> tuple[Path, ...]:
    return tuple(_found(folder))


def _found(top: Path) -> Iterator[Path]:
    ahead = [str(top)]
    while ahead:
        with suppress(OSError), os.scandir(ahead.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                elif entry.name == "pip.conf" or _is_socket(entry):
                    yield Path(entry.path)


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
        return False  # known without a system call
    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
