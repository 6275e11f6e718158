"""The fate of one branch: merged, dropped, or open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placet.case.case import Branch
from placet.git.history import (
    branches_with,
    changes,
    contained_in,
    is_ancestor,
    merge_base,
    merged_by,
    touched_by,
)
from placet.git.repository import current_branch, resolve
from placet.repo.patches import same_patches
from placet.repo.places import Repo
from placet.repo.refs import Refs, all_refs
from placet.repo.traces import commits_traced


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a branch: `merged`, as `commit_sha` and seen by `how`.

    `dropped`; empty where it is there again.
    """

    of: Branch
    became: str
    commit_sha: str = ""
    how: str = ""


def fate_of(repo: Repo, one: Branch, refs: Refs | None = None) -> Fate | None:
    """Return what became of a branch, None while it is open.

    Open is a branch that is there and unmerged, or gone but kept by another branch.

    `refs` are the repository's, where they are known.
    """
    refs = refs or all_refs(repo)
    first: dict[str, str] = {}
    for target in ends_up_in(refs, one):
        first.setdefault(refs.at[target], target)  # one of those that are at the same commit
    for target in first.values():
        if found := _merged(repo, one, target):
            return Fate(one, "merged", *found)
    if resolve(repo, one.ref) is None and not kept_elsewhere(repo, one):
        return Fate(one, "dropped")
    return None


def fate_here(repo: Repo, one: Branch) -> Fate | None:
    """Return how the branch that is checked out got a mission's work; None where it has not."""
    on = current_branch(repo)
    found = (
        _merged(repo, one, "HEAD")
        if on not in ("", one.name) and resolve(repo, f"refs/heads/{on}") is not None
        else None
    )
    return Fate(one, "merged", *found) if found else None


def merged_elsewhere(repo: Repo, one: Branch) -> str:
    """Return a branch of yours that the work was merged into by a commit; empty for none.

    A branch that only has the same commits, or goes on from them, is no merge.
    """
    for name in branches_with(repo, one.tip):
        if name != one.name and merged_by(repo, one.tip, f"refs/heads/{name}") != one.tip:
            return name
    return ""


def main_lines(refs: Refs) -> list[str]:
    """Return the branches on which work is taken back, here and at remotes.

    They are the default one and the one that is checked out.
    """
    return refs.named([name for name in dict.fromkeys((refs.default, refs.current)) if name])


def ends_up_in(refs: Refs, one: Branch) -> list[str]:
    """Return the branches that count as merged into, here and at remotes.

    They are the default one and the one that was planned from.
    """
    names = [name for name in (refs.default, one.base_branch) if name]
    return [ref for ref in refs.named(names) if ref != one.ref]


_EVERYWHERE = ("--branches", "--remotes")


def kept_elsewhere(repo: Repo, one: Branch) -> bool:
    """Return whether some branch has the work: under another name, reworked, or squashed."""
    if resolve(repo, one.tip) is None or resolve(repo, one.base) is None:
        return False
    if contained_in(repo, one.tip) or same_patches(repo, one.base, one.tip, _EVERYWHERE, one.named):
        return True
    found = commits_traced(repo, one.trace_id, one.digest, _EVERYWHERE, one.base)
    return bool(found) and _touch_all(repo, found, one)


def _merged(repo: Repo, one: Branch, target: str) -> tuple[str, str] | None:
    """Return by which commit of `target` the branch got there, and how that shows."""
    # a dropped branch's commits are collected as garbage some day
    there = resolve(repo, one.tip) is not None
    if there and is_ancestor(repo, one.tip, target):
        sha = merged_by(repo, one.tip, target)
        return sha, "fast-forward" if sha == one.tip else "merge"
    since = (merge_base(repo, one.tip, target) if there else None) or (
        one.base if resolve(repo, one.base) is not None else ""
    )
    if there and since and (sha := same_patches(repo, since, one.tip, (target,), one.named)):
        return sha, "the same changes"
    found = commits_traced(repo, one.trace_id, one.digest, (target,), since)
    if found and (not there or _touch_all(repo, found, one)):
        return found[0], "trailer"
    return None


def _touch_all(repo: Repo, found: Sequence[str], one: Branch) -> bool:
    """Return whether these commits touch every file of the branch: one of three is no merge."""
    touched = {path for sha in found for path in touched_by(repo, sha)}
    return {c.path for c in changes(repo, one.base, one.tip)} <= touched
