"""Commits by the changes that they make: patch-ids, whatever the place in a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from placet.case.case import Branch
from placet.git.history import changes, merge_base, parents_of
from placet.git.repository import resolve
from placet.git.run import BULK_TIMEOUT_S, run_git, text_of
from placet.repo.places import Repo, ask, place_of
from placet.repo.traces import commits_traced, of_others


def same_patches(
    repo: Repo, since: str, tip: str, among: Sequence[str], of: tuple[str, str]
) -> str:
    """Return the newest commit of `among` beyond `since` that repeats `since..tip`; "" for none.

    `among` are revisions, or `--branches` and the like. Either all of the commits are repeated one
    by one (rebase, cherry-pick), or all of them as one (squash). Commits that name another mission
    than `of` (its trace id and its plan's digest) are that one's, whatever they change.
    """
    paths = [change.path for change in changes(repo, since, tip)]
    there = patches_of(repo, among, (since,), paths)
    if not there:
        return ""
    branch, whole = patches_of(repo, (tip,), (since,)), patch_of(repo, since, tip)
    found = _repeats(there, branch, whole)
    if found and (others := of_others(repo, among, since, of)):
        found = _repeats(patches_of(repo, among, (since,), paths, without=others), branch, whole)
    return found


def _repeats(there: Mapping[str, str], branch: Mapping[str, str], whole: str) -> str:
    if branch and branch.keys() <= there.keys():
        shas = {there[patch] for patch in branch}
        return next(sha for sha in there.values() if sha in shas)
    return there.get(whole, "")


def patches_of(
    repo: Repo,
    among: Sequence[str],
    beyond: Sequence[str],
    paths: Sequence[str] = (),
    without: Collection[str] = (),
) -> dict[str, str]:
    """Return patch-ids with their commits, of `among` but not `beyond`, newest first; no merges.

    Only of commits that touch one of `paths`, if some are given, and not of those `without`. No
    setting of the person's on how patches look changes them.
    """
    only = () if any("\n" in path for path in paths) else paths  # a line each
    lines = os.fsencode("\n".join(["--", *only, ""])) if only else b"\n"
    wanted = (*among, *(f"^{sha}" for sha in beyond), "--stdin")
    asked = ("rev-list", "--no-merges", "--full-history", *wanted)
    found = ask(repo, *asked, stdin=lines, timeout_s=BULK_TIMEOUT_S).decode().split()
    patches = patch_ids(repo, [sha for sha in found if sha not in without])
    return {patch: sha for sha, patch in patches.items()}


def patch_of(repo: Repo, base: str, tip: str) -> str:
    """Return the patch-id of all that differs between two commits; empty where nothing does."""
    return patch_ids(repo, [f"{tip} {base}"]).get(tip, "")


def patch_ids(repo: Repo, commits: Sequence[str]) -> dict[str, str]:
    """Return the patch-id of each of these commits, in their order.

    `COMMIT BASE` is the difference from that base. A commit that changes nothing has no patch-id.
    Two processes.
    """
    if not commits:
        return {}
    lines = "".join(f"{line}\n" for line in commits).encode()
    options = ("-p", "-r", "--root", "--no-ext-diff", "--no-textconv", "--no-renames")
    asked = ("diff-tree", *options, "--full-index", "--stdin")
    patches = ask(repo, *asked, stdin=lines, timeout_s=BULK_TIMEOUT_S)
    patches = patches or b"\n"
    out = ask(repo, "patch-id", "--stable", stdin=patches, timeout_s=BULK_TIMEOUT_S)
    return {sha: patch for patch, sha in (line.split() for line in out.decode().splitlines())}


def brought_in(repo: Repo, branch: Branch, sha: str) -> list[str]:
    """Return the commits to take back, newest first, of a branch that was merged by `sha`.

    A merge as such only where all that it brought in is the mission's, or was done on top of it.
    """
    base, tip = branch.base, branch.tip
    if resolve(repo, tip) is None:
        return [sha]
    own = _commits(repo, f"{base}..{tip}")
    parents = parents_of(repo, sha)
    if len(parents) > 1:
        after = _commits(repo, "--ancestry-path", f"{tip}..{sha}")
        return (
            [sha]
            if set(_commits(repo, sha, f"^{parents[0]}")) <= {*own, *after} or not own
            else own
        )
    if sha == tip:
        return own
    since = merge_base(repo, tip, sha) or base
    wanted = patches_of(repo, (tip,), (base,))
    there = patches_of(
        repo,
        (sha,),
        (since,),
        without=of_others(repo, (sha,), since, (branch.trace_id, branch.digest)),
    )
    if wanted.keys() <= there.keys():
        return [commit for patch, commit in there.items() if patch in wanted]
    if patch_of(repo, base, tip) in there:
        return [sha]
    return commits_traced(repo, branch.trace_id, branch.digest, (sha,), since) or [sha]


def _commits(repo: Repo, *which: str) -> list[str]:
    return text_of(
        run_git(place_of(repo), "rev-list", "--no-merges", *which, "--", timeout_s=BULK_TIMEOUT_S)[
            1
        ]
    ).split()
