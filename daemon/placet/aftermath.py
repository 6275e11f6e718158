"""What git says of a mission's branch afterwards: for the report, and later what people did with it. Reads only."""

from __future__ import annotations

import pwd
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from placet.core.errors import UserError
from placet.core.mission import After
from placet.repo import (
    GitCall,
    GitError,
    Repo,
    RepositoryChanged,
    WorkNotKept,
    ahead_behind,
    changes,
    commits_with_trailer,
    contained_in,
    default_branch,
    dirty_paths,
    is_ancestor,
    is_repository,
    is_worktree_of,
    kept_refs,
    let_go,
    merge_base,
    merge_preview,
    merged_by,
    notes,
    open_repo,
    references,
    remove_leftover,
    resolve,
    same_patches,
    signs_commits,
)

MAX_UNSEEN = 10
"""How many of the person's uncommitted files a report names."""


def look_after(repo: Repo, branch: str) -> After:
    """Return what a report says of a success' branch. What git cannot answer is said among the notes."""
    try:
        into = default_branch(repo)
        ahead = behind = 0
        conflicts: Sequence[str] = ()
        if into:
            ahead, behind = ahead_behind(repo, branch, into)
            conflicts = merge_preview(repo, f"refs/heads/{into}", f"refs/heads/{branch}") if behind else ()
        said = list(notes(repo))
        if signs_commits(repo):
            said.append("Your commits are signed; placet's are not.")
        if any((repo.common_dir / "hooks" / name).exists() for name in ("pre-commit", "commit-msg", "post-commit")):
            said.append("Your git hooks did not run on placet's commits.")
        return After(into, ahead, behind, tuple(conflicts), tuple(said), tuple(dirty_paths(repo, MAX_UNSEEN)))
    except (GitError, UserError) as error:
        return After("", 0, 0, (), (f"What git says of the branch could not be found out: {error}",), ())


# --- tidying up ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leftover:
    """What became of a worktree that a crash left.

    `kept` is the ref with the work that was in it, `problem` says why it is still there.
    """

    path: Path
    removed: bool = False
    kept: str = ""
    problem: str = ""


def remove_leftovers(repos: Sequence[Repo], worktrees: Path, live: Collection[str], before: datetime,
                     when: datetime) -> list[Leftover]:
    """Remove worktrees of missions that are not at work (`live` are the `trace8` of those that are), after keeping their work.

    Only those in which nothing changed since `before`, and only of these repositories.
    """
    found = []
    for path in sorted(p for p in worktrees.iterdir() if p.is_dir()) if worktrees.is_dir() else ():
        owner = next((repo for repo in repos if is_worktree_of(repo, path)), None)
        if any(trace8 in path.name for trace8 in live) or path.stat().st_mtime > before.timestamp():
            continue
        if owner is None:
            found.append(Leftover(path, problem="it belongs to no repository that is configured"))
            continue
        ref = f"refs/placet/left/{path.name}"
        try:
            found.append(Leftover(path, removed=True, kept=ref if remove_leftover(owner, path, ref, when) else ""))
        except (GitError, RepositoryChanged, WorkNotKept, UserError) as error:
            found.append(Leftover(path, problem=str(error)))
    return found


def tidy(repo: Repo, worktrees: Path, live: Collection[str], before: datetime, when: datetime) -> list[str]:
    """Take away what ended missions left in a repository before `before`; return names of references and worktrees.

    A reference goes only where a branch, of the person or of a remote, has everything that it keeps; a worktree only after what
    was in it is at a reference.
    """
    gone = [str(one.path) for one in remove_leftovers([repo], worktrees, live, before, when) if one.removed]
    try:
        for ref, sha, made in kept_refs(repo):
            if made < before and not any(trace8 in ref for trace8 in live) and let_go(repo, ref, sha):
                gone.append(ref)
    except (GitError, RepositoryChanged):
        pass  # the next mission tries again; what git said is in the journal
    return gone


# --- what became of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """A completed mission whose branch nobody has merged or dropped yet. `base` and `tip` are the commits it lies between."""

    trace_id: str
    generation: int
    branch: str
    base: str
    tip: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mission's branch: merged, as the commit `commit_sha` and seen by `how`; dropped where that is empty."""

    trace_id: str
    generation: int
    commit_sha: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at one repository found.

    `refs` is what its references were then, `owner` who owns it, `problem` why it could not be looked at, `calls` the git
    processes that it took where a reference had moved.
    """

    path: Path
    refs: str
    fates: tuple[Fate, ...] = ()
    owner: str = ""
    problem: str = ""
    calls: tuple[GitCall, ...] = ()


def look_at_branches(path: Path, branches: Sequence[Open], known: str) -> Looked:
    """Return what became of these branches. One git process where no reference has moved since `known` was returned."""
    if not is_repository(path):
        return Looked(path, "", problem=f"{path} is not there, or no repository any more")
    calls: list[GitCall] = []
    try:
        repo = open_repo(path, on_call=calls.append)
        refs = references(repo)
        if refs == known:
            return Looked(path, refs)
        fates = tuple(fate for one in branches if (fate := fate_of(repo, one)) is not None)
        return Looked(path, refs, fates, _owner(repo.common_dir), calls=tuple(calls))
    except (GitError, UserError) as error:
        return Looked(path, "", problem=str(error), calls=tuple(calls))


def _owner(path: Path) -> str:
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid:{uid}"


def fate_of(repo: Repo, one: Open) -> Fate | None:
    """Return what became of a branch, None while it is open: there and unmerged, or gone but kept by another branch."""
    into = default_branch(repo)
    for target in (f"refs/heads/{into}", f"refs/remotes/origin/{into}"):
        if into and into != one.branch and resolve(repo, target) is not None and (found := _merged(repo, one, target)):
            return Fate(one.trace_id, one.generation, *found)
    if resolve(repo, f"refs/heads/{one.branch}") is None and not contained_in(repo, one.tip):
        return Fate(one.trace_id, one.generation)
    return None


def _merged(repo: Repo, one: Open, target: str) -> tuple[str, str] | None:
    """Return by which commit of `target` the branch got there, and how that shows."""
    there = resolve(repo, one.tip) is not None  # a dropped branch's commits are collected as garbage some day
    if there and is_ancestor(repo, one.tip, target):
        sha = merged_by(repo, one.tip, target)
        return sha, "fast-forward" if sha == one.tip else "merge"
    since = (merge_base(repo, one.tip, target) if there else None) or (one.base if resolve(repo, one.base) is not None else "")
    if there and since and (sha := same_patches(repo, since, one.tip, target)):
        return sha, "the same changes"
    found = commits_with_trailer(repo, "Placet-Trace", one.trace_id, target, since)
    if found and (not there or _touch_all(repo, found, one)):
        return found[0], "trailer"
    return None


def _touch_all(repo: Repo, found: Sequence[str], one: Open) -> bool:
    """Say whether these commits touch every file that the branch changed: one of three picked commits is no merge."""
    touched = {c.path for sha in found for c in changes(repo, f"{sha}^", sha)}
    return {c.path for c in changes(repo, one.base, one.tip)} <= touched
