"""A person's checkout: whether a command may change it, and who has a branch checked out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placet.disk.files import lock
from placet.errors import UserError
from placet.git.index import read_status
from placet.git.repository import current_branch, private_dirs, resolve
from placet.git.run import BULK_TIMEOUT_S, Place, items_of, run_git
from placet.repo.oddities import filters_named, in_progress
from placet.repo.places import Repo, neutral, place_of
from placet.repo.values import GitError


@contextmanager
def one_at_a_time(repo: Repo) -> Iterator[int]:
    """Hold the repository while a command of a person's looks at it and changes it.

    Others of placet's wait.

    The lock is on the git directory itself, so that nothing is left behind; given is its
    descriptor, for git to inherit.
    """
    descriptor = os.open(repo.git_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(descriptor, wait=True)
        yield descriptor
    finally:
        os.close(descriptor)


def must_be_ready(repo: Repo, rev: str) -> str:
    """Return the branch that the person has checked out.

    `rev` is to be brought in or taken out. Raises UserError where nothing must be changed in the
    checkout. Untracked files are no reason by themselves; one that would be written over is,
    ignored or not.
    """
    at = repo.by_hand
    if repo.is_bare:
        raise UserError(
            f"{repo.path} is bare: there is no checkout to work in.",
            "Do it in a clone of it, and push.",
        )
    if what := in_progress(repo):
        begin = what.split()[0]
        raise UserError(
            f"A {what} is in progress in {repo.path}.",
            f"Finish it first, or: {at} {begin} {'reset' if begin == 'bisect' else '--abort'}",
        )
    branch = current_branch(repo)
    if not branch:
        raise UserError(
            f"HEAD is detached in {repo.path}: there is no branch to work on.",
            f"Check one out: {at} switch BRANCH",
        )
    if resolve(repo, "HEAD") is None:
        raise UserError(
            f"{branch} has no commit yet in {repo.path}.",
            f"Check another branch out: {at} switch BRANCH",
        )
    _must_be_clean(repo)
    rows = []
    for commit in ("HEAD", rev):
        asked = ("ls-tree", "-r", "-z", "--end-of-options", commit)
        _, out = run_git(place_of(repo), *asked, timeout_s=BULK_TIMEOUT_S)
        rows += [item.split("\t", 1) for item in items_of(out)]
    if filters_named(repo, rows):
        raise UserError(
            f"Files of {repo.path} pass through a filter (git LFS or another), which placet does "
            "not run.",
            "Do it with git, which does; `placet show` has the branch.",
        )
    return branch


def _must_be_clean(repo: Repo) -> None:
    index, lock = repo.git_dir / "index", repo.git_dir / "index.lock"
    if lock.exists():
        raise UserError(
            f"git is at work in {repo.path}, or was killed there: {lock} exists.",
            "Wait for it; if no git runs there, delete that file.",
        )
    try:
        _, changed, _ = read_status(in_checkout(repo), untracked="no")
    except GitError as error:
        if "index" not in error.stderr:
            raise
        raise UserError(
            f"{index} is damaged: git keeps there what it knows of the files, and cannot read it. "
            "Your files and the history are not touched by that.",
            f"Have git make it again: rm {shlex.quote(str(index))} && {repo.by_hand} reset -q",
        ) from error
    if changed:
        named = ", ".join(ascii(change.path) for change in changed[:5])
        raise UserError(
            f"{repo.path} has uncommitted changes: {named}.",
            f"Commit them, or put them aside: {repo.by_hand} stash",
        )


def in_checkout(repo: Repo) -> Place:
    """Work in the person's checkout, with its drivers switched off."""
    return neutral(Place(repo.git_dir, repo.path, repo.path, repo.on_call))


def where_checked_out(repo: Repo, branch: str) -> Path | None:
    """Return the checkout of the person, or another worktree, that is on this branch or rebases it.

    None where none is.
    """
    line = f"refs/heads/{branch}"
    for folder in (repo.common_dir, *private_dirs(repo)):
        for name in ("HEAD", "rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"):
            with suppress(OSError):
                said = (
                    (folder / name)
                    .read_text("utf-8", "surrogateescape")
                    .strip()
                    .removeprefix("ref: ")
                )
                if said not in (line, branch) or (
                    name == "HEAD" and folder == repo.git_dir and repo.is_bare
                ):
                    continue
                with suppress(OSError):
                    return Path(os.fsdecode((folder / "gitdir").read_bytes()).rstrip("\n")).parent
                return repo.path if folder == repo.git_dir else folder.parent
    return None
