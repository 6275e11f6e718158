"""Read git's attributes of files, and find files that a commit would not store as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placet.git.changes import submodules
from placet.git.rules import ATTRIBUTES, may_have_rules
from placet.git.run import items_of, place_of, run_git
from placet.git.worktree import Worktree, query_place


@dataclass(frozen=True, slots=True)
class Attributes:
    """What git's attributes say of a file: its filter, `working-tree-encoding`, and `eol`."""

    filter: str = ""
    encoding: str = ""
    eol: str = ""


_ATTRIBUTES = ("filter", "working-tree-encoding", "eol")
_WITHOUT_VALUE = frozenset({"unspecified", "unset", "set"})


def attributes(wt: Worktree, paths: Sequence[str]) -> dict[str, Attributes]:
    """Return git's attributes of these paths."""
    if not paths or not may_have_rules(wt, paths, ATTRIBUTES):
        return {path: Attributes() for path in paths}
    names = os.fsencode("\0".join([*paths, ""]))
    asked = ("check-attr", "-z", "--stdin", *_ATTRIBUTES)
    items = items_of(run_git(query_place(wt), *asked, stdin=names)[1])
    values = ["" if value in _WITHOUT_VALUE else value for value in items[2::3]]
    rows = zip(*(values[n::3] for n in range(3)), strict=True)
    return {path: Attributes(*row) for path, row in zip(items[::9], rows, strict=True)}


def not_kept_here(
    wt: Worktree, paths: Sequence[str], known: Mapping[str, Attributes] | None = None
) -> dict[str, str]:
    """Return for each of these paths why a commit would not store it as it is, if so.

    `known` are their attributes, if the caller has them.
    """
    found = {
        path: f"git stores it through the filter {name}, which placet does not run"
        for path, name in _filters(wt, attributes(wt, paths) if known is None else known).items()
    }
    for module in submodules(wt):
        found |= {
            path: f"it is in the submodule {module}, which is another repository"
            for path in paths
            if path == module or path.startswith(f"{module}/")
        }
    return found


def _filters(wt: Worktree, known: Mapping[str, Attributes]) -> dict[str, str]:
    """Return the filters without which git would not commit these files: LFS, or a required one."""
    found = {
        path: one.filter
        for path, one in known.items()
        if one.filter and not (wt.path / path).is_symlink()
    }
    needed = {name for name in set(found.values()) if name == "lfs" or _required(wt, name)}
    return {path: name for path, name in found.items() if name in needed}


def _required(wt: Worktree, name: str) -> bool:
    key = f"filter.{name}.required"
    if all(item.partition("\n")[0] != key for _, item in wt.repo.settings):
        return False
    # The value may be missing, a number or a word, so let git parse it.
    _, out = run_git(place_of(wt.repo), "config", "--type=bool", "--get", key)
    return out.strip() == b"true"


def found_in_modules(wt: Worktree) -> list[str]:
    """Return one file of each submodule that contains any.

    Its folder is empty in a new worktree, and git does not look there.
    """
    found = []
    for module in submodules(wt):
        folder = wt.path / module
        above = [one for one in (folder, *folder.parents) if one.is_relative_to(wt.path)][:-1]
        if any(one.is_symlink() for one in above):
            continue  # it leads elsewhere
        first = next((Path(inner, files[0]) for inner, _, files in os.walk(folder) if files), None)
        if first is not None:
            found.append(str(first.relative_to(wt.path)))
    return found
