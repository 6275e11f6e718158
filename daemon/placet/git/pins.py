"""Detect changes to what decides how git behaves in a mission's worktree."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from placet.git.run import GitDir, settings_of
from placet.git.worktree import Worktree, query_place

Pins = dict[str, str]
"""Digests of everything that decides how git behaves in a worktree, by name."""


def pins(wt: Worktree, place: GitDir | None = None) -> Pins:
    """Return digests of everything that decides how git behaves in a worktree.

    That is configuration, hooks, attributes and pointers. `branch.*`, `remote.*` and `user.*` are
    left out, because a person's everyday work changes them and placet never uses them. `place` is
    where git works, if the caller has one.
    """
    place = place or query_place(wt)
    settings = place.settings or settings_of(place)
    local = [item for scope, item in settings if scope in ("local", "worktree")]
    used = [item for item in local if not item.startswith(("branch.", "remote.", "user."))]
    common = wt.repo.common_dir
    named = {
        "configuration": "\0".join(used).encode("utf-8", "surrogateescape"),
        "hooks": b"".join(_stamp(hook) for hook in sorted((common / "hooks").glob("*"))),
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
        named[str(path)] = _stamp(path)
    return {name: hashlib.sha256(content).hexdigest() for name, content in named.items()}


def _stamp(path: Path) -> bytes:
    """Return name, kind, executable bit and content of a file, without following a link."""
    if path.is_symlink():
        return b"link " + os.fsencode(path) + b"\0" + os.fsencode(path.readlink()) + b"\0"
    if not path.is_file():
        return b"other " + os.fsencode(path) + b"\0"
    mode = b"x" if path.stat().st_mode & 0o111 else b"-"
    return mode + os.fsencode(path) + b"\0" + path.read_bytes() + b"\0"
