"""Save the worktree after a round as a commit on one of placet's references, and restore it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from placet.git.changes import approved_by_name, is_work, since_tip
from placet.git.history import is_ancestor
from placet.git.index import Allow, stage_allowed, update_ref, write_commit
from placet.git.repository import resolve, tree_of
from placet.git.run import (
    BOT,
    BULK_TIMEOUT_S,
    FileChange,
    GitDir,
    Repo,
    items_of,
    neutral,
    place_of,
    run_git,
    with_env,
)
from placet.git.worktree import (
    Worktree,
    git_dir_of_worktree,
    holding,
    must_be_on_branch,
    remove_ref_lock,
)


def checkpoint_ref(name: str) -> str:
    """Return the ref of the checkpoints of the mission whose worktree has this name."""
    return f"refs/placet/ckpt/{name}"


def snapshot(wt: Worktree) -> str:
    """Return the tree of everything in the worktree (untracked files too, ignored not)."""
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        return tree_in(wt, git_dir_of_worktree(wt, held))[1]


def tree_in(wt: Worktree, place: GitDir) -> tuple[str, str]:
    """Return the worktree's last commit, and the tree of everything in it. Keeps the index."""
    tip, changes, *_ = since_tip(wt, place)
    return tip, _staged_aside(wt, place, tip, changes) or tree_of(wt.repo, tip)


def save(
    wt: Worktree,
    ref: str,
    message: str,
    when: datetime,
    allow: Allow | None = None,
) -> str:
    """Keep everything in the worktree (untracked files too, ignored not) as a commit at `ref`.

    Returns the commit: the branch's own if nothing is uncommitted, else a child of it. Branch and
    index stay unchanged. `ref` must be `refs/placet/…` and is moved if it exists. Only the
    worktree's holder moves it. `allow` sees what git will store, and may leave some out. If it
    raises, nothing is kept. Raises RepositoryChanged if the branch is gone.
    """
    _must_be_ours(ref)
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        place = git_dir_of_worktree(wt, held)
        new, changes, *_ = since_tip(wt, place)
        if tree := _staged_aside(wt, place, new, changes, allow):
            new = write_commit(place, tree, (new,), message, BOT, when)
        update_ref(place, ref, new)
    return new


def _staged_aside(
    wt: Worktree,
    place: GitDir,
    tip: str,
    changes: Sequence[FileChange],
    allow: Allow | None = None,
) -> str:
    """Return the tree of the last commit `tip` with these changes, "" for none."""
    if not changes:
        return ""
    index = wt.git_dir / "placet-index"
    # left by a killed git; there is only one writer
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
    try:
        # Copy the time too. git distrusts an entry as young as the index. A younger copy would hide
        # a change of the same size in the second of the check-out.
        shutil.copy2(wt.git_dir / "index", index)
        aside = with_env(place, {"GIT_INDEX_FILE": str(index)})
        return stage_allowed(aside, changes, tip, allow)
    finally:
        with suppress(OSError):  # the next call replaces it
            index.unlink()


def restore(wt: Worktree, kept: str) -> None:
    """Make the worktree's files those of the checkpoint `kept`; the branch does not move.

    Deletes files that the checkpoint lacks, except ignored ones. Take a checkpoint first.
    """
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        place = git_dir_of_worktree(wt, held)
        run_git(place, "read-tree", "--reset", "-u", kept, timeout_s=BULK_TIMEOUT_S)
        run_git(place, "clean", "-d", "-f", "-f", "-q", timeout_s=BULK_TIMEOUT_S)
        # not in the checkpoint; git clean skips ignored files
        for path in approved_by_name(wt, ()):
            (wt.path / path).unlink()
        run_git(place, "read-tree", "--reset", wt.ref)


def leave_out(wt: Worktree, paths: Sequence[str]) -> None:
    """Reset these files to the branch's last commit. Delete those that it lacks."""
    for path in paths:
        if is_work(wt, path):
            (wt.path / path).unlink()
    if paths:
        restore_files(wt, wt.ref, paths)


def save_commit(repo: Repo, tip: str, ref: str, when: datetime) -> None:
    """Keep the commit `tip` at `ref`, along with what `ref` has already.

    If neither contains the other, a merge keeps both. It has the files of the commit that `ref`
    had.
    """
    _must_be_ours(ref)
    place, old = neutral(place_of(repo)), resolve(repo, ref)
    if old is not None and is_ancestor(repo, tip, old):
        return
    if old is not None and not is_ancestor(repo, old, tip):
        message = "Work that was kept at two times"
        tip = write_commit(place, tree_of(repo, old), (old, tip), message, BOT, when)
    update_ref(place, ref, tip, old or "0" * len(tip))


def delete_ref(repo: Repo, ref: str, at: str = "", *, place: GitDir | None = None) -> None:
    """Delete one of placet's own references; a missing one is not an error.

    With `at` it raises GitError unless the reference is at that commit. `place` is where git works,
    if the caller has one.
    """
    _must_be_ours(ref)
    remove_ref_lock(repo.common_dir / f"{ref}.lock")
    run_git(place or neutral(place_of(repo)), "update-ref", "-d", ref, *([at] if at else []))


def restore_files(wt: Worktree, ref: str, paths: Sequence[str]) -> list[str]:
    """Write those of the files that the commit at `ref` has; return which."""
    index = wt.git_dir / "placet-index"
    with holding(wt.path) as held:
        place = with_env(git_dir_of_worktree(wt, held), {"GIT_INDEX_FILE": str(index)})
        try:
            run_git(place, "read-tree", resolve(wt.repo, ref) or wt.ref)
            known = frozenset(items_of(run_git(place, "ls-files", "-z")[1]))
            back = [path for path in paths if path in known]
            names = os.fsencode("\0".join([*back, ""]))
            asked = ("checkout-index", "-f", "-q", "-z", "--stdin")
            if back:
                run_git(place, *asked, stdin=names, timeout_s=BULK_TIMEOUT_S)
        finally:
            with suppress(OSError):
                index.unlink()
    return back


def _must_be_ours(ref: str) -> None:
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
