"""Say why a git repository on this machine is not safe to push to: other users can change it.

git runs programs that a repository's `hooks` and configuration name, as the user who pushes to it.
A worker that could change them would run commands as the daemon's user.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shlex import quote

from placet.git.repository import common_dir_at
from placet.note.paths import show

_SUFFIXES = ("/.git", "", ".git/.git", ".git")
"""What git appends to a path, in this order, to find a repository."""


def trouble_with_path(path: Path) -> str:
    """Return why git must not use the repository at a path, and what helps; "" if it may."""
    places = (Path(f"{path}{suffix}") for suffix in _SUFFIXES)
    if (found := next(filter(os.path.lexists, places), None)) is None:
        return ""
    git_dir = common_dir_at(found.parent if found.name == ".git" else found) or found
    inside = next(filter(_others_write, _parts(git_dir)), None)
    above = next((one for one in _above(found, git_dir) if _others_write(one, sticky=True)), None)
    if (part := inside or above) is None:
        return ""
    helps = f"chmod -R go-w {quote(str(git_dir))}" if inside else f"chmod go-w {quote(str(above))}"
    return (
        f"Other users can change {show(str(part))}, and git would run their hooks as you. "
        f"If it is yours: {helps}. Otherwise use an ssh address"
    )


def _above(*places: Path) -> Iterator[Path]:
    """Give the folders above some places: as they are written, and where each link leads."""
    left, seen = [place.absolute() for place in places], set[Path]()
    while left:
        place = left.pop()
        for part in (place, *place.parents):
            if part not in seen and part.is_symlink():
                left.append(part.parent / part.readlink())
            seen.add(part)
        yield from place.parents


def _parts(git_dir: Path) -> Iterator[Path]:
    """Give the files and folders that say which programs git runs, and where it writes."""
    yield git_dir
    for folder in (git_dir, git_dir / "hooks", git_dir / "objects", git_dir / "objects" / "info"):
        if folder.is_dir():
            yield from folder.iterdir()


def _others_write(path: Path, *, sticky: bool = False) -> bool:
    """Return whether a user besides this one and root can change a file or folder.

    With `sticky`, a sticky folder is safe: only the owner of what is in it can replace that.
    """
    try:
        info = path.stat()
    except OSError:  # it is gone, or a link to nothing
        return False
    if info.st_uid not in (0, os.geteuid()):
        return True
    if sticky and info.st_mode & stat.S_ISVTX:
        return False
    group = info.st_mode & stat.S_IWGRP and not _is_private(info.st_gid, os.geteuid())
    return bool(info.st_mode & stat.S_IWOTH or group)


@cache
def _is_private(gid: int, uid: int) -> bool:
    """Return whether a group has no member but this user and root."""
    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    return members <= {0, uid}
