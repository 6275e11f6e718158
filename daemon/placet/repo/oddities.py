"""Oddities of a repository that a mission feels: changes, unfinished work, filters, submodules."""

from __future__ import annotations

import os
from collections.abc import Sequence

from placet.git.index import read_status
from placet.git.repository import resolve
from placet.git.run import BULK_TIMEOUT_S, Place, items_of, run_git
from placet.repo.places import Repo, neutral, persons_file, place_of
from placet.repo.values import GitError


def dirty_paths(repo: Repo) -> list[str]:
    """Return the paths whose changes a worktree at HEAD lacks: uncommitted or untracked ones.

    Reads only, the index is not refreshed; submodules are not looked into. Untracked folders are
    one path.
    """
    if repo.is_bare:
        return []
    place = neutral(Place(repo.git_dir, repo.path, repo.path, repo.on_call))
    _, changes, _ = read_status(place, untracked="normal")
    return [change.path for change in changes]


_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
    "sequencer": "cherry-pick or revert",
}


def in_progress(repo: Repo) -> str:
    """Return the operation that is unfinished in the checkout, as `rebase`; "" for none."""
    there = (what for name, what in _IN_PROGRESS.items() if (repo.git_dir / name).exists())
    return next(there, "")


def notes(repo: Repo) -> list[str]:
    """Return a sentence for each peculiarity of the repository that a mission will feel."""
    said = []
    if repo.is_bare:
        said.append("The repository is bare: nobody has it checked out.")
    elif not (repo.git_dir / "HEAD").read_bytes().startswith(b"ref: "):
        said.append("HEAD is detached: the mission begins at that commit, not at a branch.")
    if repo.git_dir != repo.common_dir:
        said.append(f"The folder is a worktree of {repo.common_dir}: the branch appears there too.")
    if repo.is_shallow:
        said.append("The clone is shallow: older history is missing.")
    if what := in_progress(repo):
        said.append(f"A {what} is in progress in {repo.path}; it is left as it is.")
    if (repo.common_dir / "objects/info/alternates").exists():
        said.append("Some objects are borrowed from another repository (objects/info/alternates).")
    try:
        _, out = run_git(place_of(repo), "ls-tree", "-r", "-z", "HEAD", timeout_s=BULK_TIMEOUT_S)
    except GitError:
        if resolve(repo, "HEAD") is not None:
            raise
        return [*said, "There is no commit yet."]
    rows = [item.split("\t", 1) for item in items_of(out)]
    modules = [path for what, path in rows if what.startswith("160000 ")]
    if modules:
        said.append(
            f"Submodules are empty folders in a worktree: {', '.join(map(ascii, modules[:5]))}."
        )
    filters = filters_named(repo, rows)
    if filters:
        if "lfs" in filters:
            said.append(
                "Files kept with git LFS appear as small pointer files, and must not be edited."
            )
        said += [
            f"The filter {name!a} is not run: its files appear as they are stored."
            for name in filters
            if name != "lfs"
        ]
    return said


def filters_named(repo: Repo, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the filters that `.gitattributes` among these rows of `ls-tree`, or others, name."""
    outside = _filters_outside(repo, [path for _, path in rows])
    attributes = [
        what.split(" ")[2] for what, path in rows if path.split("/")[-1] == ".gitattributes"
    ]
    if not attributes:
        return sorted(outside)
    _, out = run_git(
        place_of(repo), "cat-file", "--batch", stdin="\n".join([*attributes, ""]).encode()
    )
    words = {
        word
        for line in out.decode("utf-8", "replace").splitlines()
        if not line.startswith("#")
        for word in line.split()[1:]
    }
    return sorted(
        outside | {word.removeprefix("filter=") for word in words if word.startswith("filter=")}
    )


def _filters_outside(repo: Repo, paths: Sequence[str]) -> set[str]:
    files = (
        persons_file(repo, "core.attributesfile", "attributes"),
        repo.common_dir / "info/attributes",
    )
    if not paths or not any(file.is_file() for file in files):
        return set()
    _, out = run_git(
        place_of(repo),
        "check-attr",
        "-z",
        "--stdin",
        "filter",
        stdin=os.fsencode("\0".join([*paths, ""])),
    )
    return {value for value in items_of(out)[2::3] if value not in ("unspecified", "unset", "set")}
