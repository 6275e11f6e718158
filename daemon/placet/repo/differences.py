"""What differs from a commit in a work tree."""

from __future__ import annotations

import os
from pathlib import Path

from placet.repo.runner import FileChange, Place, items_of, run_git


def read_status(place: Place, untracked: str = "all") -> tuple[str, list[FileChange], bool]:
    """Return HEAD's commit, what differs from it (by path), and whether anything is staged.

    Submodules are not looked into: git would run git in there. A repository that lies in the
    worktree is listed as its plain files, so that a commit holds its content instead of a link to
    nowhere.
    """
    _, out = run_git(
        place,
        "status",
        "--porcelain=v2",
        "-z",
        "--branch",
        "--no-ahead-behind",
        "--no-renames",
        f"--untracked-files={untracked}",
        "--ignore-submodules=all",
    )
    tip, staged = "", False
    found: dict[str, str] = {}
    for item in items_of(out):
        match item[0]:
            case "#":
                tip = (
                    item.removeprefix("# branch.oid ") if item.startswith("# branch.oid ") else tip
                )
            case "?":
                for path in _files_of(place, item[2:]) if untracked == "all" else [item[2:]]:
                    found[path] = "M" if path in found else "A"
            case "1":
                _, xy, _, was, _, now, _, _, path = item.split(" ", 8)
                staged = staged or xy[0] != "."
                found[path] = _kind(was, now)
            case _:  # unmerged, in the person's checkout: a merge is in progress
                staged = True
                found[item.split(" ", 10)[-1]] = "M"
    return tip, [FileChange(path, kind) for path, kind in sorted(found.items())], staged


def _kind(was: str, now: str) -> str:
    """Return the status letter for two octal modes; `000000` is no file."""
    if int(now, 8) == 0:
        return "D"
    if int(was, 8) == 0:
        return "A"
    return "M" if was[:2] == now[:2] else "T"


def _files_of(place: Place, path: str) -> list[str]:
    """Return `path`, or the plain files below it where it is a folder (git lists a repository inside so)."""
    if not path.endswith("/"):
        return [path]
    assert place.work_tree is not None
    found: list[str] = []
    for folder, folders, files in os.walk(place.work_tree / path):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [name for name in folders if name.casefold() != ".git"]
        for name in (*files, *links):
            full = Path(folder) / name
            if name.casefold() != ".git" and (full.is_symlink() or full.is_file()):
                found.append(str(full.relative_to(place.work_tree)))
    return found
