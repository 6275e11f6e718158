"""What decides how git behaves in a worktree must be the same at the end of a mission as at its beginning."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from placet.repo.runner import Place, RepositoryChanged, settings_of
from placet.repo.worktree import Worktree


@dataclass(frozen=True, slots=True)
class Pins:
    """Digests of what decides how git behaves in a worktree, by name."""

    digests: tuple[tuple[str, str], ...]


def pins(wt: Worktree) -> Pins:
    """Return digests of what decides how git behaves here: configuration, hooks, attributes and pointers.

    Left out of the configuration is what a person's everyday work changes and placet never uses: `branch.*`,
    `remote.*`, `user.*`.
    """
    place = Place(wt.git_dir, wt.path, wt.path, wt.repo.on_call)
    local = [item for scope, item in settings_of(place) if scope in ("local", "worktree")]
    used = [item for item in local if not item.startswith(("branch.", "remote.", "user."))]
    common = wt.repo.common_dir
    named = {
        "configuration": _digest("\0".join(used).encode("utf-8", "surrogateescape")),
        "hooks": _digest(b"".join(_stamp(hook) for hook in sorted((common / "hooks").glob("*")))),
    }
    for path in (
        common / "info/attributes",
        common / "info/grafts",
        common / "objects/info/alternates",
        wt.git_dir / "info/attributes",
        wt.git_dir / "gitdir",
        wt.git_dir / "commondir",
        wt.git_dir / "HEAD",
        wt.path / ".git",
    ):
        named[str(path)] = _digest(_stamp(path))
    return Pins(tuple(named.items()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamp(path: Path) -> bytes:
    """Return name, kind, executable bit and content of a file as bytes to digest.

    A link is not followed.
    """
    if path.is_symlink():
        return b"link " + os.fsencode(path) + b"\0" + os.fsencode(path.readlink()) + b"\0"
    if not path.is_file():
        return b"other " + os.fsencode(path) + b"\0"
    mode = b"x" if path.stat().st_mode & 0o111 else b"-"
    return mode + os.fsencode(path) + b"\0" + path.read_bytes() + b"\0"


def check_pins(wt: Worktree, pinned: Pins) -> None:
    """Raise RepositoryChanged, naming what, unless everything is as it was when `pinned` was taken."""
    before, now = dict(pinned.digests), dict(pins(wt).digests)
    changed = [
        name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)
    ]
    if changed:
        raise RepositoryChanged(f"changed while the mission ran: {', '.join(changed)}")
