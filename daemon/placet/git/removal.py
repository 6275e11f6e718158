"""Remove worktrees after a success, a failure or a crash. Uncommitted work is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from placet.disk.files import delete_tree
from placet.errors import PlacetError, UserError
from placet.git.changes import changes_in, status
from placet.git.checkpoint import delete_ref, save, save_commit, tree_in
from placet.git.history import BRANCHES, refs_with
from placet.git.index import update_ref
from placet.git.repository import resolve, tree_of
from placet.git.run import (
    GitDir,
    GitError,
    Repo,
    RepositoryChanged,
    neutral,
    place_of,
    rows_of,
    run_git,
)
from placet.git.worktree import (
    Worktree,
    clear_stale_locks,
    delete,
    git_dir_of_worktree,
    holding,
    known_worktrees,
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


# --- after a crash, and after the end of a mission


@dataclass(frozen=True, slots=True)
class Leftover:
    """The result of tidying one worktree that a crash left.

    `kept` is the reference with its work. `problem` says why the worktree still exists.
    """

    path: Path
    removed: bool = False
    kept: str = ""
    problem: str = ""


Redact = Callable[[Worktree, Sequence[str]], Sequence[str]]
"""Redacts the secrets in these files of a worktree; returns the files that it cannot search."""


def remove_leftovers(
    repos: Sequence[Repo],
    worktrees: Path,
    live: Collection[str],
    before: datetime,
    when: datetime,
    redact: Redact,
) -> list[Leftover]:
    """Keep the work of finished missions, and remove their worktrees.

    `live` are the `trace8` of running missions. Only worktrees unchanged since `before` are
    considered, and only those of `repos` are removed. Kept work is redacted. A worktree with a file
    that `redact` cannot search stays.
    """
    found = []
    for path in sorted(p for p in worktrees.iterdir() if p.is_dir()) if worktrees.is_dir() else ():
        try:
            young = path.stat().st_mtime > before.timestamp()
        except FileNotFoundError:  # a mission that just ended removed it
            continue
        if not young and not any(trace8 in path.name for trace8 in live):
            found.append(_remove_leftover(repos, path, when, redact))
    for repo in repos:
        found += [
            Leftover(path, removed=True)
            for path in _forget_missing_worktrees(repo, worktrees, live)
        ]
    return found


def _remove_leftover(repos: Sequence[Repo], path: Path, when: datetime, redact: Redact) -> Leftover:
    if path.name.endswith(".removed"):  # its work was kept before the rename
        delete_tree(path)
        return Leftover(path, removed=True)
    ref, place = f"refs/placet/left/{path.name}", path.parent.resolve() / path.name
    for repo in repos:
        if (admin := registered(repo, place)) is not None:
            try:
                kept = _keep_and_remove(repo, place_for(repo, path), admin, ref, when, redact)
            except (PlacetError, OSError) as error:
                return Leftover(path, problem=str(error))
            return Leftover(path, removed=True, kept=ref if kept else "")
    problem = "it belongs to no repository that is configured; name that one as a portal"
    return Leftover(path, problem=problem)


def _keep_and_remove(
    repo: Repo, place: Path, admin: Path, ref: str, when: datetime, redact: Redact
) -> bool:
    """Remove a worktree; return whether its work, or commits only its HEAD has, are at `ref`.

    Raises WorkNotKept if its content is not at `ref` afterwards.
    """
    line = (admin / "HEAD").read_text("utf-8", "replace").strip()
    tip = resolve(repo, line.removeprefix("ref: "))
    branch = line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""
    wt = Worktree(repo, place, admin, branch, tip or "")
    if tip is None or not wt.has_index:
        files = sorted(entry.name for entry in place.iterdir()) if place.exists() else []
        if set(files) - {".git"}:
            raise WorkNotKept(place, files)
        with holding(place):
            delete(wt)
        return False
    kept = ""
    clear_stale_locks(wt)
    changed = [change.path for change in status(wt)]
    if unsearched := redact(wt, changed):
        names = ", ".join(map(ascii, unsearched[:5]))
        raise UserError(
            f"placet cannot look for secrets in {names}", f"Look at them, then: rm -r '{place}'"
        )
    if changed or not refs_with(repo, tip, *BRANCHES):
        kept = save(wt, ref, "Left over from a crash", when)
    remove_worktree(wt, kept or None)
    return bool(kept)


def _forget_missing_worktrees(repo: Repo, worktrees: Path, live: Collection[str]) -> Iterator[Path]:
    """Remove git's data about worktrees whose folders are gone; yield those folders.

    Otherwise git would treat their branches as checked out. Worktrees whose name contains one of
    `live` stay.
    """
    for admin, place in list(known_worktrees(repo)):
        is_ours = place.parent == worktrees.resolve() and not any(
            name in place.name for name in live
        )
        if is_ours and not os.path.lexists(place):
            delete_tree(admin)
            yield place


def delete_leftovers(
    repo: Repo,
    worktrees: Path,
    live: Collection[str],
    before: datetime,
    when: datetime,
    redact: Redact,
) -> list[str]:
    """Remove what ended missions left in a repository, if it is older than `before`.

    Returns the names of the references and worktrees. A reference is removed only if a branch, of
    the person or of a remote, contains all that it keeps. A worktree is removed only after its work
    is at a reference.
    """
    left = remove_leftovers([repo], worktrees, live, before, when, redact)
    removed = [str(one.path) for one in left if one.removed]
    asked = ("refname", "objectname", "committerdate:unix")
    try:
        for ref, sha, made in list(rows_of(place_of(repo), asked, "refs/placet")):
            old = made and datetime.fromtimestamp(int(made), UTC) < before
            if (
                old
                and not any(trace8 in ref for trace8 in live)
                and refs_with(repo, sha, *BRANCHES)
            ):
                run_git(neutral(place_of(repo)), "update-ref", "-d", ref, sha)
                removed.append(ref)
    except (GitError, RepositoryChanged):
        pass  # the next mission retries; git's output is in the journal
    return removed
