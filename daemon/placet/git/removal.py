"""Remove a mission's worktree when it ends. Uncommitted work is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from placet.errors import PlacetError
from placet.git.changes import changes_in, status
from placet.git.checkpoint import delete_ref, save, save_commit, tree_in
from placet.git.index import update_ref
from placet.git.repository import resolve, tree_of
from placet.git.run import GitDir, Repo, neutral, place_of, run_git
from placet.git.worktree import (
    Worktree,
    clear_stale_locks,
    delete,
    git_dir_of_worktree,
    holding,
    place_for,
    registered,
    remove_ref_lock,
)


class WorkNotKept(PlacetError):  # noqa: N818 - names a state, not an error
    """A worktree was not removed, because its `paths` hold uncommitted work."""

    def __init__(self, path: Path, paths: Sequence[str]) -> None:
        super().__init__(f"{path} holds uncommitted work: {', '.join(map(ascii, paths[:5]))}")


def remove_worktree(wt: Worktree, kept: str | None = None, *, ref: str = "") -> None:
    """Remove the worktree, and its checkpoint at `ref`; the branch stays. Safe to repeat.

    Raises WorkNotKept for uncommitted work, unless the commit (or tree) `kept` has exactly the same
    content. Ignored files are deleted.
    """
    with holding(wt.path) as held:
        if wt.has_index:
            place = git_dir_of_worktree(wt, held)
            changes = [] if kept and _is_kept(wt, place, kept) else changes_in(wt, place).files
            if changes:
                raise WorkNotKept(wt.path, [change.path for change in changes])
            if ref:
                delete_ref(wt.repo, ref, place=place)
        elif ref:
            delete_ref(wt.repo, ref)
        delete(wt)


def _is_kept(wt: Worktree, place: GitDir, kept: str) -> bool:
    tip, tree = tree_in(wt, place)
    return kept == tip or tree == tree_of(wt.repo, kept)


def abandon_worktree(repo: Repo, path: Path, branch: str, base: str) -> None:
    """Undo an unfinished `add_worktree`: remove the worktree, and the branch if it is at `base`."""
    path = place_for(repo, path)
    with holding(path):
        if (admin := registered(repo, path)) is not None:
            delete(Worktree(repo, path, admin, branch, base))
    ref = f"refs/heads/{branch}"
    if resolve(repo, ref) == base:
        remove_ref_lock(repo.common_dir / f"{ref}.lock")
        run_git(neutral(place_of(repo)), "update-ref", "-d", ref, base)


def roll_back(wt: Worktree, keep_ref: str, message: str, when: datetime) -> str | None:
    """Undo a failed attempt: keep its work at `keep_ref`, delete its branch and its worktree.

    Returns the kept commit, or None if nothing had been done. `message` is for the commit of the
    uncommitted work. Calling it again after a crash finishes the job.
    """
    wt.must_have_branch()
    clear_stale_locks(wt, (keep_ref,))
    lock_worktree(wt)
    tip, kept = resolve(wt.repo, wt.ref), resolve(wt.repo, keep_ref)
    if wt.has_index and (tip != wt.base or kept is not None or status(wt)):
        kept = save(wt, keep_ref, message, when)
    elif tip not in (None, wt.base) and kept is None:  # the worktree is lost, but the commits exist
        kept = tip
        save_commit(wt.repo, tip, keep_ref, when)
    with holding(wt.path):
        delete(wt)
    if tip is not None:
        run_git(neutral(place_of(wt.repo)), "update-ref", "-d", wt.ref, tip)
    return kept


def lock_worktree(wt: Worktree) -> None:
    """Put a worktree back on its branch. Create a deleted branch at the base.

    Files and index stay unchanged.
    """
    with holding(wt.path) as held:
        if wt.has_index:
            if resolve(wt.repo, wt.ref) is None:
                update_ref(git_dir_of_worktree(wt, held), wt.ref, wt.base, "0" * len(wt.base))
            (wt.git_dir / "HEAD").write_text(f"{wt.head}\n")
