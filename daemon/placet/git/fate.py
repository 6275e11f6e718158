"""Find out whether a mission's branch was merged, dropped or is still open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from placet.case.case import Branch
from placet.disk.files import Stamp, owner_of, stamp_of
from placet.errors import UserError
from placet.git.checkpoint import delete_ref
from placet.git.history import (
    BRANCHES,
    Commit,
    FilePatch,
    digests_at,
    file_patches,
    is_ancestor,
    log,
    merge_base,
    merged_by,
    parents_of,
    refs_with,
    touched_by,
)
from placet.git.index import update_ref
from placet.git.repository import (
    Refs,
    all_refs,
    current_branch,
    is_repository,
    open_repo,
    resolve,
)
from placet.git.run import (
    GitCall,
    GitError,
    Repo,
    neutral,
    place_of,
)
from placet.git.trailers import TRACED, commits_traced, trailer_values

MAX_REVERTS = 50
"""Maximum of reverts that are looked at each time."""
_REVERT = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)


def commits_since(repo: Repo, new: Sequence[str], then: Sequence[str]) -> list[Commit]:
    """Return the commits that name missions or revert others, newest first.

    They are the commits of `new` that `then` lacks. Without `then` they are those of the last 30
    days.
    """
    since = [f"^{sha}" for sha in then] or ["--since=30.days"]
    which = f"{TRACED}|^This reverts commit [0-9a-f]{{40,64}}"
    return log(repo, "-E", f"--grep={which}", *new, *since)


def reverts_in(repo: Repo, commits: Iterable[Commit], into: str = "") -> list[Revert]:
    """Return which of these commits revert a mission's work, or revert such a revert.

    A message only says where to look. A commit that leaves the files unchanged reverts nothing, and
    a mission's own commit reverts nothing. `into` is the branch that has the commits.
    """
    found: list[Revert] = []
    reverts = [
        commit
        for commit in commits
        if _REVERT.search(commit.message) and not trailer_values("Placet-Trace", commit.message)
    ]
    for commit in reverts[:MAX_REVERTS]:
        at, again, traces = commit, True, list[str]()
        while not traces and (one := _REVERT.search(at.message)) and resolve(repo, one[1]):
            at, again = log(repo, "-1", one[1])[0], not again
            traces = _traces_of(repo, at)
        for trace in traces:
            own = _own_commits(repo, at, trace, commit.sha)
            undone, files = _undone_files(repo, own, commit, again=again)
            if undone:
                of = at.sha if len(at.parents) > 1 else own[0].sha
                in_part = undone < files
                found.append(Revert(trace, of, commit.sha, again, in_part, into))
    return found


def _own_commits(repo: Repo, at: Commit, trace_id: str, before: str) -> list[Commit]:
    """Return the commits that brought in the mission's work, newest first; `at` is one of them.

    For a merge that is the merge itself. They are in the history of the commit `before`.
    """
    if len(at.parents) > 1:
        return [at]
    plans = trailer_values("Placet-Plan", at.message)
    digest = plans[0] if len(plans) == 1 else ""
    own = commits_traced(repo, trace_id, digest, (before,), "")
    found = [one for sha in own if len((one := log(repo, "-1", sha)[0]).parents) < 2]
    return found or [at]


def _undone_files(
    repo: Repo, own: Sequence[Commit], revert: Commit, *, again: bool
) -> tuple[int, int]:
    """Return how many of the files that the commits `own` changed are as they were before.

    Also return how many there are. The first number is 0 if `revert` touches none of them. With
    `again` it counts those that are as the mission left them.
    """
    work = _added_up([file_patches(repo, one.sha) for one in reversed(own)])
    if len(own[0].parents) > 1:  # it may have brought in more than the mission
        since = f"^{own[0].parents[0]}"
        named = log(repo, "--no-merges", "-E", f"--grep={TRACED}", own[0].sha, since)
        paths = {path for one in named for path in touched_by(repo, one.sha)}
        work = {path: patch for path, patch in work.items() if path in paths or not paths}
    made = file_patches(repo, revert.sha)
    if not work.keys() & made.keys():
        return 0, len(work)
    now = digests_at(repo, revert.sha, sorted(work))
    undone = 0
    for path, patch in work.items():
        wanted = patch if again else patch.reversed
        undone += now.get(path, "") == wanted.after or (path in made and wanted in made[path])
    return undone, len(work)


def _added_up(patches: Iterable[Mapping[str, FilePatch]]) -> dict[str, FilePatch]:
    """Return the changes of some commits, oldest first, by file."""
    found: dict[str, FilePatch] = {}
    for one in patches:
        for path, patch in one.items():
            found[path] = found[path] + patch if path in found else patch
    return found


def _traces_of(repo: Repo, commit: Commit) -> list[str]:
    """Return the missions that a commit's message names; for a merge also those that it merged."""
    traces = trailer_values("Placet-Trace", commit.message)
    if not traces and len(commit.parents) > 1:
        merged = log(repo, "-E", f"--grep={TRACED}", commit.sha, f"^{commit.parents[0]}")
        traces = [trace for one in merged for trace in trailer_values("Placet-Trace", one.message)]
    return list(dict.fromkeys(traces))


def brought_in(repo: Repo, branch: Branch, sha: str) -> list[str]:
    """Return the commits to revert, newest first, of a branch that was merged by `sha`.

    Returns the merge itself only if all that it brought in belongs to the mission or was built on
    it.
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
    return commits_traced(repo, branch.trace_id, branch.digest, (sha,), since) or [sha]


def _commits(repo: Repo, *which: str) -> list[str]:
    return [commit.sha for commit in log(repo, "--no-merges", *which)]


@dataclass(frozen=True, slots=True)
class Fate:
    """What happened to a branch.

    `became` is `merged` (by `commit_sha` on `into`, detected by `how`), `dropped` (by `placet
    drop`), or `gone` (nobody knows why). It is empty if the branch exists again.
    """

    of: Branch
    became: str
    commit_sha: str = ""
    how: str = ""
    into: str = ""


@dataclass(frozen=True, slots=True)
class Revert:
    """A commit that reverts what the commit `of` brought in, for the mission of `trace_id`.

    With `again` it brings the work in again, `in_part` not all of it. `into` is the branch that has
    it.
    """

    trace_id: str
    of: str
    commit_sha: str
    again: bool = False
    in_part: bool = False
    into: str = ""

    def is_of(self, repo: Repo, branch: Branch) -> bool:
        """Return whether it is about the work of this branch."""
        if self.trace_id != branch.trace_id:
            return False
        of = log(repo, "-1", self.of)[0]
        if branch.digest and (plans := trailer_values("Placet-Plan", of.message)):
            return branch.digest in plans
        brought = is_ancestor(repo, branch.tip, of.sha)
        return not (brought and of.parents and is_ancestor(repo, branch.tip, of.parents[0]))


def fate_of(repo: Repo, one: Branch, refs: Refs | None = None) -> Fate | None:
    """Return what happened to a branch, or None while it is open.

    A branch is open if it exists unmerged, or if it is gone but another reference has its commits.
    `refs` are the repository's, if the caller has them.
    """
    refs = refs or all_refs(repo)
    first: dict[str, str] = {}
    for target in ends_up_in(refs, one):
        first.setdefault(refs.at[target], target)  # one reference per commit is enough
    for target in first.values():
        if found := _merged(repo, one, target):
            return Fate(one, "merged", *found, short_name(target))
    if one.ref in refs.at:
        return None
    kept = refs_with(repo, one.tip)
    if any(not ref.startswith("refs/placet/") for ref in kept):
        return None
    is_dropped = any(ref.startswith(kept_refs(one)[0]) for ref in kept)
    return Fate(one, "dropped" if is_dropped else "gone")


DROPPED = "refs/placet/dropped/"
"""Where `placet drop` keeps commits."""
REOPENED = "refs/placet/reopened/"
"""Where they are once the branch is back: the reference says no longer that it was dropped."""


def kept_refs(one: Branch) -> tuple[str, ...]:
    """Return how the names of references begin that keep the commits of a dropped branch."""
    name = one.name.partition("/")[2] or one.name.removeprefix("feat-")
    begin, trace8, _ = name.partition(one.trace_id[:8])
    return tuple(f"{where}{begin}{trace8}-" for where in (DROPPED, REOPENED))


def _retire_dropped(repo: Repo, one: Branch, refs: Refs) -> None:
    """Move the references of a dropped branch that is back, so that they do not count later."""
    dropped, reopened = kept_refs(one)
    place = neutral(place_of(repo))
    for ref in sorted(refs.ours):
        if ref.startswith(dropped) and (at := resolve(repo, ref)) is not None:
            update_ref(place, free_ref(repo, reopened + ref.removeprefix(dropped), at), at)
            delete_ref(repo, ref, at, place=place)


def free_ref(repo: Repo, wanted: str, at: str) -> str:
    """Return `wanted`, or that with a number if it is taken by another commit than `at`."""
    names = (f"{wanted}-{n}" if n > 1 else wanted for n in count(1))
    return next(name for name in names if resolve(repo, name) in (None, at))


def short_name(ref: str) -> str:
    """Return the name by which people call a branch, here or at a remote."""
    return ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def fate_in_checkout(repo: Repo, one: Branch) -> Fate | None:
    """Return how the checked-out branch got a mission's work, or None if it has not."""
    on = current_branch(repo)
    found = (
        _merged(repo, one, "HEAD")
        if on not in ("", one.name) and resolve(repo, f"refs/heads/{on}") is not None
        else None
    )
    return Fate(one, "merged", *found, on) if found else None


def merged_elsewhere(repo: Repo, one: Branch) -> str:
    """Return a branch of the person's that has the work by a merge commit; "" for none.

    A branch that only has the same commits, or continues from them, is not a merge.
    """
    for ref in refs_with(repo, one.tip, "refs/heads"):
        if ref != one.ref and merged_by(repo, one.tip, ref) != one.tip:
            return ref.removeprefix("refs/heads/")
    return ""


def main_lines(refs: Refs) -> list[str]:
    """Return the branches on which work is reverted, here and at remotes.

    They are the default branch and the checked-out one.
    """
    return refs.named([name for name in dict.fromkeys((refs.default, refs.current)) if name])


def ends_up_in(refs: Refs, one: Branch) -> list[str]:
    """Return the branches that count as merge targets, here and at remotes.

    They are the default branch and the one that the plan started from.
    """
    names = [name for name in (refs.default, one.base_branch) if name]
    return [ref for ref in refs.named(names) if ref != one.ref]


def _merged(repo: Repo, one: Branch, target: str) -> tuple[str, str] | None:
    """Return which commit of `target` brought the branch in, and how placet can tell.

    None if git has deleted the branch's commits, because then its changes are unknown.
    """
    if resolve(repo, one.tip) is None or resolve(repo, one.base) is None:
        return None
    if is_ancestor(repo, one.tip, target):
        sha = merged_by(repo, one.tip, target)
        return sha, "fast-forward" if sha == one.tip else "merge"
    since = merge_base(repo, one.tip, target) or one.base
    found = commits_traced(repo, one.trace_id, one.digest, (target,), since)
    if found and _has_patch(repo, one, found):
        return found[0], "trailer"
    return None


def _has_patch(repo: Repo, one: Branch, found: Sequence[str]) -> bool:
    """Return whether these commits, newest first, bring in a branch's work.

    They change each of its files, because one of three commits is not a merge. They make most of
    its changes: a person who squashes may change some lines, but a message alone is not enough.
    """
    work = file_patches(repo, one.tip, one.base)
    made = _added_up([file_patches(repo, sha) for sha in reversed(found)])
    if not work.keys() <= made.keys():
        return False
    there = sum(
        patch.size if made[path].after == patch.after else patch.common(made[path])
        for path, patch in work.items()
    )
    return 2 * there >= sum(patch.size for patch in work.values())


@dataclass(frozen=True, slots=True)
class Memory:
    """Facts carried from one look at a repository to the next.

    `at` has the commit of each branch that was checked. For a branch that was gone, it has the
    commits of all references. `ends` are the commits of the branches that work is merged into, None
    before the first look. `stamps` are of the files that hold these references.
    """

    at: Mapping[Branch, object] = field(default_factory=dict)
    ends: frozenset[str] | None = None
    stamps: Mapping[Path, Stamp] = field(default_factory=dict)

    def without_answer(self, branches: Sequence[Branch]) -> Memory:
        """Return the memory after a failed look at these branches."""
        ends = self.ends or frozenset()
        return replace(self, at=dict.fromkeys(branches, _UNKNOWN), ends=ends)


_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class BranchNews:
    """The result of one look at a repository.

    `memory` is for the next look. `owner` is who owns the repository. `problem` says why it, or a
    branch, could not be checked. `calls` are the git processes that ran if a reference had moved.
    `reverts` are the new commits that revert others. `asked` is the number of branches that were
    checked.
    """

    path: Path
    memory: Memory = field(default_factory=Memory)
    fates: tuple[Fate, ...] = ()
    reverts: tuple[Revert, ...] = ()
    owner: str = ""
    problem: str = ""
    calls: tuple[GitCall, ...] = ()
    asked: int = 0


def may_have_moved(branches: Sequence[Branch], known: Memory) -> bool:
    """Return whether a look at these branches might find something new, as far as files tell.

    Starts no process: the loop calls this every two seconds, and each branch costs a few stat
    calls. That is why this module knows where git keeps its files. It only compares their stamps.
    The next look finds a change that the files do not show (a new remote, another default branch).
    """
    is_first = known.ends is None or any(one not in known.at for one in branches)
    return is_first or _stamps(known.stamps) != known.stamps


def _stamps(files: Iterable[Path]) -> dict[Path, Stamp]:
    return {file: stamp_of(file) for file in files}


def _kept_in(repo: Repo, refs: Refs, branches: Sequence[Branch]) -> set[Path]:
    """Return the files in which git stores the references that decide these branches' fate."""
    ends = (ref for one in branches for ref in ends_up_in(refs, one))
    names = {*(one.ref for one in branches), *main_lines(refs), *ends, "packed-refs"}
    return {repo.common_dir / name for name in names}


def look_at_branches(path: Path, branches: Sequence[Branch], known: Memory) -> BranchNews:
    """Return what happened to these branches since the look that `known` is from, and reverts.

    Starts two git processes if no reference has moved. Otherwise one more finds the missions that
    new commits name. Then git is asked about those branches, and about each that moved or is gone.
    """
    failed = known.without_answer(branches)
    if not is_repository(path):
        return BranchNews(path, failed, problem=f"{path} is gone, or is no longer a repository")
    calls: list[GitCall] = []
    try:
        repo = open_repo(path, on_call=calls.append)
        stamps = _stamps(known.stamps)  # first, so that a later move changes the stamp
        refs = all_refs(repo)
        if (kept_in := _kept_in(repo, refs, branches)) != stamps.keys():
            # The next look finds a move in between, because it asks git whatever the files say.
            stamps = _stamps(kept_in)
        ends = [refs.at[ref] for one in branches for ref in ends_up_in(refs, one)]
        ends += [refs.at[ref] for ref in main_lines(refs)]
        # For a branch that is gone, all references: another one may have its commits.
        at = {b: refs.at.get(b.ref) or (None if b.became else refs.at) for b in branches}
        memory = Memory(at, frozenset(ends), stamps)
        moved = {one for one in branches if known.at.get(one, _UNKNOWN) != memory.at[one]}
        if not moved and memory.ends == known.ends:
            return BranchNews(path, memory)
        came = _news(repo, frozenset(ends), known.ends or frozenset())
        named = {trace for one in came for trace in trailer_values("Placet-Trace", one.message)}
        asked = [one for one in branches if one in moved or one.trace_id in named]
        fates, problem = list[Fate | None](), ""
        for one in asked:
            try:
                fates.append(_fate(repo, one, refs))
            except GitError as error:  # for a broken branch; the others are checked anyway
                problem, memory = str(error), memory.without_answer(branches)
        reverts = tuple(reverts_in(repo, came, short_name(next(iter(main_lines(refs)), ""))))
        owner = owner_of(repo.common_dir.stat())
    except (GitError, UserError, OSError) as error:
        return BranchNews(path, failed, problem=str(error), calls=tuple(calls), asked=len(branches))
    found = tuple(filter(None, fates))
    return BranchNews(path, memory, found, reverts, owner, problem, tuple(calls), len(asked))


def _news(repo: Repo, new: frozenset[str], then: frozenset[str]) -> list[Commit]:
    if not new - then:
        return []
    try:
        return commits_since(repo, sorted(new - then), sorted(then))
    except GitError:  # a rewrite removed the old commits
        return commits_since(repo, sorted(new), ())


def _fate(repo: Repo, one: Branch, refs: Refs) -> Fate | None:
    found = fate_of(repo, one, refs)
    if found is not None and found.became == "merged":
        return found
    if one.became:  # it is news only if the name exists again with its commits
        if one.ref not in refs.at or not refs_with(repo, one.tip, *BRANCHES):
            return None
        _retire_dropped(repo, one, refs)
        return Fate(one, "")
    return found
