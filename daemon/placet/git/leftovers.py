"""Keep the work that a crash left in worktrees, then remove them and old references."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from placet.disk.files import delete_tree
from placet.disk.real_path import real_path
from placet.errors import PlacetError, UserError
from placet.git.changes import status
from placet.git.checkpoint import save
from placet.git.history import BRANCHES, refs_with
from placet.git.removal import WorkNotKept, remove_worktree
from placet.git.repository import resolve
from placet.git.run import GitError, Repo, RepositoryChanged, neutral, place_of, rows_of, run_git
from placet.git.worktree import (
    Worktree,
    clear_stale_locks,
    delete,
    holding,
    known_worktrees,
    place_for,
    registered,
)


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
    ref, place = f"refs/placet/left/{path.name}", real_path(path.parent) / path.name
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
        is_ours = place.parent == real_path(worktrees) and not any(
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
