"""The person's own checkout: only for a person's own command (`placet merge`, `placet undo`); no mission gets here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from placet.core.errors import PlacetError, UserError
from placet.repo.differences import read_status
from placet.repo.history import changes, commits_with_trailer, merge_base, patch_ids
from placet.repo.repository import current_branch, filters_named, head, identity, resolve
from placet.repo.runner import (
    BULK_TIMEOUT_S,
    GitError,
    Place,
    Repo,
    RepositoryChanged,
    items_of,
    neutral,
    place_of,
    run_git,
    text_of,
    with_env,
)
from placet.repo.worktrees import commit_tree, update_ref


class Conflicts(PlacetError):  # noqa: N818 - named for what is the case
    """A merge or a revert conflicts in `paths`; the checkout is as it was."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"conflicts in {', '.join(map(ascii, paths[:5]))}")
        self.paths = tuple(paths)


def not_ready(repo: Repo, rev: str) -> str:
    """Return why the person's checkout must not be worked in, to bring `rev` in or take it out; empty where it may.

    Untracked files are no reason by themselves; one that would be written over is, ignored or not.
    """
    if repo.is_bare:
        return f"{repo.path} is bare: there is no checkout to merge in."
    if not current_branch(repo):
        return f"HEAD is detached in {repo.path}: there is no branch to merge into."
    if (repo.git_dir / "index.lock").exists():
        return f"git is at work in {repo.path}, or was killed there (index.lock)."
    for name, what in (("rebase-merge", "rebase"), ("rebase-apply", "rebase"), ("MERGE_HEAD", "merge"),
                       ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert"), ("BISECT_LOG", "bisect"),
                       ("sequencer", "cherry-pick or revert")):
        if (repo.git_dir / name).exists():
            return f"A {what} is in progress in {repo.path}."
    _, changed, _ = read_status(neutral(Place(repo.git_dir, repo.path, repo.path, repo.on_call)), untracked="no")
    if changed:
        return f"{repo.path} has uncommitted changes: {', '.join(ascii(c.path) for c in changed[:5])}."
    rows = [item.split("\t", 1) for at in ("HEAD", rev)
            for item in items_of(run_git(place_of(repo), "ls-tree", "-r", "-z", "--end-of-options", at,
                                         timeout_s=BULK_TIMEOUT_S)[1])]
    if filters_named(repo, rows):
        return f"Files of {repo.path} pass through a filter (git LFS or another), which placet does not run."
    return ""


def _in_checkout(repo: Repo, branch: str, when: datetime) -> Place:
    """Work in the person's checkout, as the person, with drivers, hooks and options of the branch switched off."""
    place = neutral(Place(repo.git_dir, repo.path, repo.path, repo.on_call))
    count = int(place.env["GIT_CONFIG_COUNT"])
    # In the environment, not by -c, which splits at the first `=`: a branch's name may have one.
    settings = ((f"branch.{branch}.mergeOptions", ""), ("rerere.enabled", "false"), ("merge.autoStash", "false"))
    env = {"GIT_CONFIG_COUNT": str(count + len(settings))}
    for n, (key, value) in enumerate(settings, count):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    who, stamp = identity(repo), f"@{int(when.timestamp())} +0000"
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": who.name, f"GIT_{role}_EMAIL": who.email, f"GIT_{role}_DATE": stamp}
    return with_env(place, env)


def _must_not_cover(repo: Repo, tree: str) -> None:
    """Raise UserError where files of `tree` that HEAD lacks lie in the checkout already: git writes over ignored ones."""
    for change in changes(repo, "HEAD", tree):
        path = repo.path / change.path
        inside = [repo.path / parent for parent in Path(change.path).parents if parent != Path()]
        if change.status == "A" and (os.path.lexists(path) or any(p.is_symlink() or p.is_file() for p in inside)):
            raise UserError(f"{path} is in the way: it is in no commit, and would be written over.", "Move it away first.")


def merge_into_checkout(repo: Repo, branch: str, tip: str, message: str, when: datetime) -> str:
    """Merge the commit `tip` into the person's `branch`, which is checked out, with a merge commit; return it.

    The caller has seen that the checkout is ready. Raises Conflicts, UserError (a file in the way) or GitError; then the
    checkout is as it was.
    """
    _must_not_cover(repo, tip)
    place = _in_checkout(repo, branch, when)
    code, _ = run_git(place, "merge", "--no-ff", "--no-edit", "--commit", "--no-squash", "--no-log", "--no-stat", "--no-signoff",
                   "--no-verify-signatures", "--no-autostash", "-s", "ort", "-q", "-m", message, tip, ok=(0, 1),
                   timeout_s=BULK_TIMEOUT_S)
    if code != 0:
        paths = _unmerged(place)
        if (repo.git_dir / "MERGE_HEAD").exists():
            run_git(place, "merge", "--abort", timeout_s=BULK_TIMEOUT_S)
        if not paths:
            raise GitError(("merge", tip), code, "git refused; nothing was changed")
        raise Conflicts(paths)
    return head(repo)


def _unmerged(place: Place) -> list[str]:
    _, out = run_git(place, "diff", "--name-only", "--diff-filter=U", "-z", "--no-ext-diff", "--no-textconv")
    return sorted(set(items_of(out)))


def brought_in(repo: Repo, base: str, tip: str, trace_id: str, sha: str) -> list[str]:
    """Return the commits to take back, newest first, where `sha` is the commit by which a mission's branch was merged."""
    _, out = run_git(place_of(repo), "rev-list", "--parents", "-n", "1", "--end-of-options", sha)
    if len(out.split()) > 2 or resolve(repo, tip) is None:
        return [sha]
    if sha == tip:
        return text_of(run_git(place_of(repo), "rev-list", "--end-of-options", f"{base}..{tip}")[1]).split()
    since = merge_base(repo, tip, sha) or base
    wanted = patch_ids(repo, "log", f"{base}..{tip}")
    there = patch_ids(repo, "log", f"{since}..{sha}")
    if wanted.keys() <= there.keys():
        return [commit for patch, commit in there.items() if patch in wanted]
    if any(patch in there for patch in patch_ids(repo, "diff-tree", base, tip)):
        return [sha]
    return commits_with_trailer(repo, "Placet-Trace", trace_id, sha, since) or [sha]


def revert_in_checkout(repo: Repo, branch: str, commits: Sequence[str], message: str, when: datetime) -> str:
    """Take these commits (newest first) back by one new commit on the person's `branch`, which is checked out; return it.

    Raises Conflicts, UserError (a file in the way) or GitError; then the checkout is as it was.
    """
    for sha in commits:  # what was deleted comes back, and must not be written over something new
        _must_not_cover(repo, f"{sha}^1")
    place = _in_checkout(repo, branch, when)
    before = head(repo)
    try:
        for sha in commits:
            _, out = run_git(place, "rev-list", "--parents", "-n", "1", "--end-of-options", sha)
            mainline = ("-m", "1") if len(out.split()) > 2 else ()
            code, _ = run_git(place, "revert", "--no-commit", "--no-edit", *mainline, sha, ok=(0, 1), timeout_s=BULK_TIMEOUT_S)
            if code != 0:
                raise Conflicts(_unmerged(place))
        tree = text_of(run_git(place, "write-tree")[1])
        if tree == text_of(run_git(place, "rev-parse", f"{before}^{{tree}}")[1]):
            raise GitError(("revert", *commits), 1, "it was taken back already")
        author = identity(repo)
        new = commit_tree(place, tree, before, message, author, author, when)
        update_ref(place, f"refs/heads/{branch}", new, before)
    except PlacetError:
        run_git(place, "read-tree", "--reset", "-u", before, timeout_s=BULK_TIMEOUT_S)
        run_git(place, "revert", "--quit", ok=(0, 128))
        raise
    run_git(place, "revert", "--quit", ok=(0, 128))
    return new


def is_checked_out(repo: Repo, branch: str) -> bool:
    """Say whether the person's checkout, or another worktree, is on this branch."""
    _, out = run_git(place_of(repo), "worktree", "list", "--porcelain", "-z")
    return f"branch refs/heads/{branch}" in items_of(out)


def drop_branch(repo: Repo, branch: str, tip: str, keep_ref: str) -> None:
    """Delete a mission's branch that is at `tip`; its commits stay reachable at `keep_ref`.

    Raises RepositoryChanged where it is checked out somewhere, or was moved.
    """
    if is_checked_out(repo, branch):
        raise RepositoryChanged(f"{branch} is checked out")
    old = resolve(repo, keep_ref)
    update_ref(place_of(repo), keep_ref, tip, old or "0" * len(tip))
    run_git(place_of(repo), "update-ref", "-d", f"refs/heads/{branch}", tip)
