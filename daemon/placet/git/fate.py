"""The fate of one branch: merged, dropped, or open."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from placet.case.case import Branch
from placet.chat.result import After
from placet.disk.files import Stamp, owner_of, stamp_of
from placet.errors import UserError
from placet.git.history import (
    ahead_behind,
    branches_with,
    changes,
    contained_in,
    is_ancestor,
    merge_base,
    merge_preview,
    merged_by,
    parents_of,
    touched_by,
)
from placet.git.repository import (
    Refs,
    all_refs,
    current_branch,
    dirty_paths,
    is_repository,
    notes,
    open_repo,
    remote_of,
    resolve,
)
from placet.git.run import (
    BULK_TIMEOUT_S,
    GitCall,
    GitError,
    Repo,
    ask,
    items_of,
    place_of,
    run_git,
    text_of,
)

# Commits by the missions that they name: whose work they are, and whose they take back.
#
# A mission's commits have the trailer `Placet-Trace`. Where people squash or merge commits, it may
# be on any line of the message.

REVERTS = "Placet-Reverts"
"""The trailer of a commit by which `placet undo` takes a mission's work back; its trace id."""
MAX_REVERTS = 50
_REVERT = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)


def commits_traced(
    repo: Repo, trace_id: str, digest: str, among: Sequence[str], since: str
) -> list[str]:
    """Return the commits of `among` whose message has the trace's trailer, newest first.

    `among` are revisions, or `--branches` and the like; commits of `since` are left out, if it is
    given. A commit that names a plan must name that with the `digest`, if one is given: other
    missions of the request have others.
    """
    named = f"^[[:space:]]*Placet-Trace: {re.escape(trace_id)}[[:space:]]*$"
    found = _matching(repo, named, *among, *([f"^{since}"] if since else []))
    return [commit for commit, message in found if _names(message, trace_id, digest)]


def of_others(repo: Repo, among: Sequence[str], since: str, of: tuple[str, str]) -> frozenset[str]:
    """Return the commits of `among` beyond `since` that name missions, but not this one.

    `of` is its trace id and its plan's digest.
    """
    found = _matching(repo, "^[[:space:]]*Placet-Trace: ", *among, f"^{since}")
    return frozenset(sha for sha, message in found if not _names(message, *of))


def _matching(repo: Repo, pattern: str, *asked: str) -> list[tuple[str, str]]:
    """Return commits whose message matches a pattern, with their messages, newest first."""
    options = ("-z", "--format=%H%n%B", "--no-notes", "--extended-regexp", f"--grep={pattern}")
    out = ask(repo, "log", *options, *asked, "--", timeout_s=BULK_TIMEOUT_S)
    rows = (item.partition("\n") for item in items_of(out))
    return [(sha, message) for sha, _, message in rows]


def _names(message: str, trace_id: str, digest: str) -> bool:
    """Return whether a message names this mission, and, of the plans that it names, its plan."""
    plans = _said_by("Placet-Plan", message)
    is_plan = not digest or not plans or digest in plans
    return is_plan and trace_id in _said_by("Placet-Trace", message)


def _said_by(trailer: str, message: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"^\s*{trailer}: (\S+)\s*$", message, re.MULTILINE)))


def trailers_of(repo: Repo, commit: str, *keys: str) -> list[str]:
    """Return the last value of each of these trailers of a commit, empty for a missing one."""
    form = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x01)" for key in keys)
    out = ask(repo, "log", "-1", f"--format={form}", "--no-notes", "--end-of-options", commit)
    text = out.decode("utf-8", "replace").removesuffix("\n")
    return [values.split("\x01")[-1] for values in text.split("\0")]


# --- reverts


def messages_since(repo: Repo, news: Sequence[str], then: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commits of `news` that may take others back, with their messages, newest first.

    Commits of `then` are left out; without `then` it is those of the last 30 days. One process.
    """
    since = [f"^{sha}" for sha in then] or ["--since=30.days"]
    pattern = f"^(This reverts commit [0-9a-f]{{40,64}}|{REVERTS}: )"
    return _matching(repo, pattern, f"-n{MAX_REVERTS}", *news, *since)


def reverts_in(repo: Repo, messages: Iterable[tuple[str, str]]) -> list[tuple[str, str, str, bool]]:
    """Return the commits that take a mission's work back, or bring it in again.

    Each is the mission's trace, the commit of the work or "", the commit itself, and whether it
    brings the work in again, by taking such a commit back. `placet undo` writes the trace; else it
    is in the commit that is taken back, or in those that it merged: two or three processes each.
    """
    found: list[tuple[str, str, str, bool]] = []
    for sha, message in messages:
        said, of, again = message, "", True
        for _ in range(MAX_REVERTS):  # of reverts of reverts
            if traces := _said_by(REVERTS, said):
                of, again = "", not again
                break
            if not (of := next(iter(_REVERT.findall(said)), "")):
                break
            again = not again
            said = _message(repo, of)
            if traces := _traces_of(repo, of, said):
                break
        found += [(trace, of, sha, again) for trace in traces]
    return found[:MAX_REVERTS]


def _message(repo: Repo, sha: str) -> str:
    asked = ("log", "-1", "--format=%B", "--no-notes", "--end-of-options", sha)
    code, out = run_git(place_of(repo), *asked, ok=(0, 128))
    return out.decode("utf-8", "replace") if code == 0 else ""


def _traces_of(repo: Repo, sha: str, message: str) -> list[str]:
    """Return the missions that a commit's message names, or else the one that it merged."""
    traces = _said_by("Placet-Trace", message)
    if message and not traces and len(parents := parents_of(repo, sha)) > 1:
        traces = _said_by("Placet-Trace", _message(repo, parents[1]))
    return traces


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


# Many open branches at once: find those that somebody may have taken over, by a few processes.
#
# The answer is "maybe" too often rather than too rarely; `fate_of` then asks about each.

_TRACE = re.compile(r"^\s*Placet-Trace: (\S+)\s*$", re.MULTILINE)

Ends = frozenset[str]
"""Commits of the branches that work ends up in."""


@dataclass(slots=True)
class _Newer:
    """A commit that came: its message, the files that it changes, whether it merges others."""

    message: str
    merges: bool
    files: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class News:
    """The commits that came to a repository, and the branches whose work they may contain.

    `messages` are of the commits that `new` has and `then` has not, newest first. `maybe` are the
    tips of branches that somebody may have taken over, `files` those that each branch changed, by
    its tip.
    """

    maybe: frozenset[str] = frozenset()
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    new: Ends = frozenset()
    then: Ends = frozenset()
    messages: Sequence[tuple[str, str]] = ()


def sift(
    repo: Repo,
    ends: Mapping[Branch, tuple[Ends, Ends]],
    files: Mapping[str, frozenset[str]],
) -> News:
    """Return what came between the ends of each branch, those of then and of now.

    `files` are those that are known of some branches.
    """
    files = {one.tip: files[one.tip] for one in ends if one.tip in files}
    asked = [one for one, (then, now) in ends.items() if now - then]
    if not asked:
        return News(files=files)
    then = Ends().union(*(ends[one][0] for one in asked))
    new = Ends().union(*(ends[one][1] - ends[one][0] for one in asked))
    try:
        came = _commits_since(repo, new, then)
        files |= _files_of(repo, [one for one in asked if one.tip not in files])
        messages = [(sha, commit.message) for sha, commit in came.items()]
        return News(_maybe(repo, asked, came, files), files, new, then, messages)
    except GitError:  # what was there then is gone after a rewrite, or it is too much to list
        return News(frozenset(one.tip for one in asked), files)


def _maybe(
    repo: Repo,
    asked: Sequence[Branch],
    came: Mapping[str, _Newer],
    files: Mapping[str, frozenset[str]],
) -> frozenset[str]:
    touched = frozenset[str]().union(*(commit.files for commit in came.values()))
    named = {trace for commit in came.values() for trace in _TRACE.findall(commit.message)}
    # Whoever takes work over, in whatever way, touches all of its files.
    left = [one for one in asked if files[one.tip] <= touched]
    silent = [one for one in left if one.tip not in came and one.trace_id not in named]
    if len(silent) < 2:  # to ask about one costs no more than to compare
        return frozenset(one.tip for one in left)
    wanted = frozenset[str]().union(*(files[one.tip] for one in silent))
    like = [
        sha
        for sha, commit in came.items()
        if not commit.merges and not commit.files.isdisjoint(wanted)
    ]
    there = set(patch_ids(repo, like).values())
    # All as one commit (squash), or one by one (rebase): then the last one is there, too.
    whole = patch_ids(repo, [f"{one.tip} {one.base}" for one in silent])
    last = patch_ids(repo, [one.tip for one in silent])
    for one in silent:
        # a merge, or an empty commit, has no patch of its own: maybe
        is_last_there = one.tip not in last or last[one.tip] in there
        if whole.get(one.tip) not in there and not is_last_there:
            left.remove(one)
    return frozenset(one.tip for one in left)


def _commits_since(repo: Repo, new: Collection[str], then: Collection[str]) -> dict[str, _Newer]:
    """Return the commits that any of `new` has and not all of `then` have, newest first."""
    beyond = sorted(then)
    if len(beyond) > 1:
        asked = ("merge-base", "--octopus", *beyond)
        code, out = run_git(place_of(repo), *asked, ok=(0, 1), timeout_s=BULK_TIMEOUT_S)
        beyond = text_of(out).split() if code == 0 else []
    mark = secrets.token_hex(8)  # that no file is named
    _, out = run_git(
        place_of(repo),
        *("log", "-m", "-z", f"--format={mark} %H %P%x00%B", "--name-only", "--no-renames"),
        *("--no-notes", "--no-show-signature", "--no-ext-diff", "--no-textconv"),
        *(*sorted(new), *(f"^{sha}" for sha in beyond), "--"),
        config=("log.showRoot=true",),
        timeout_s=BULK_TIMEOUT_S,
    )
    found: dict[str, _Newer] = {}
    items = iter(items_of(out))
    at = _Newer("", merges=False)
    for item in items:
        if item.startswith(f"{mark} "):
            sha, *parents = item.split()[1:]
            at = found.setdefault(sha, _Newer(next(items, ""), len(parents) > 1))
        elif name := item.removeprefix("\n"):
            at.files.add(name)
    return found


def _files_of(repo: Repo, branches: Sequence[Branch]) -> dict[str, frozenset[str]]:
    """Return the files that these branches changed, by their tips; one process."""
    if not branches:
        return {}
    pairs = {one.tip: one.base for one in branches}
    lines = "".join(f"{tip} {base}\n" for tip, base in pairs.items()).encode()
    asked = ("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff")
    _, out = run_git(place_of(repo), *asked, stdin=lines, timeout_s=BULK_TIMEOUT_S)
    found: dict[str, set[str]] = {tip: set() for tip in pairs}
    tip = ""
    for item in items_of(out):
        if item in found:
            tip = item
        else:
            found[tip].add(item)
    return {tip: frozenset(files) for tip, files in found.items()}


# A mission's branch afterwards: facts for the report, then merges, drops and reverts as they come.
#
# Reads only.

MAX_UNSEEN = 10
"""Maximum of uncommitted files named in a report."""


def look_after(repo: Repo, branch: str, base_branch: str) -> After:
    """Return git's facts for the report on a success' branch, begun on `base_branch` (or empty).

    A question that git cannot answer is among the notes.
    """
    try:
        refs = all_refs(repo)
        into = refs.ends_in(base_branch)
        ahead = behind = 0
        conflicts: Sequence[str] = ()
        if into:
            ahead, behind = ahead_behind(repo, branch, into)
            conflicts = (
                merge_preview(repo, f"refs/heads/{into}", f"refs/heads/{branch}") if behind else ()
            )
        said = list(notes(repo))
        if _signs_commits(repo):
            said.append("Your commits are signed; placet's are not.")
        if _has_hooks(repo):
            said.append("Your git hooks did not run on placet's commits.")
        remote, theirs = remote_of(repo)
        if f"refs/remotes/{remote}/{into}" in refs.at:
            theirs = into
        return After(
            into,
            ahead,
            behind,
            tuple(conflicts),
            tuple(said),
            tuple(dirty_paths(repo)[:MAX_UNSEEN]),
            remote,
            theirs,
            bare=repo.is_bare,
        )
    except (GitError, UserError) as error:
        return After(
            "", 0, 0, (), (f"What git says of the branch could not be found out: {error}",), ()
        )


def _signs_commits(repo: Repo) -> bool:
    said = [item.partition("\n") for scope, item in repo.settings if scope != "command"]
    signs = [
        not given or value.lower() in ("true", "yes", "on", "1")
        for key, given, value in said
        if key == "commit.gpgsign"
    ]
    return signs[-1:] == [True]


def _has_hooks(repo: Repo) -> bool:
    """Return whether git would run hooks on a commit, in the folder that `core.hooksPath` names."""
    named = [
        item.partition("\n")[2]
        for scope, item in repo.settings
        if scope != "command" and item.startswith("core.hookspath\n")
    ]
    own = os.path.expanduser(named[-1]) if named else ""  # noqa: PTH111 - nobody's `~`
    folder = repo.path / (own or repo.common_dir / "hooks")
    hooks = ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")
    return any((folder / name).exists() for name in hooks)


# --- what became of it
# ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Revert:
    """A commit that takes back what the commit `of` brought in, of the mission of `trace_id`.

    Or that brings it in `again`.
    """

    trace_id: str
    of: str
    commit_sha: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """Facts carried from one look at a repository to the next.

    `looked` is whether there was one, `asked` the tips of the branches that it was for. `refs` are
    all references as they were, None if not everything could be looked at. `files` are those that
    an open branch changed, by its tip. `stamps` are of the files that hold the references that
    count.
    """

    looked: bool = False
    asked: frozenset[str] = frozenset()
    refs: Refs | None = None
    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stamps: Mapping[Path, Stamp] = field(default_factory=dict)

    @classmethod
    def without_answer(cls, branches: Sequence[Branch]) -> Memory:
        """Return the memory of a look at these branches that failed."""
        return cls(looked=True, asked=frozenset(one.tip for one in branches))


@dataclass(frozen=True, slots=True)
class BranchNews:
    """The result of one look at a repository.

    `memory` is for the next look, `owner` who owns it, `problem` why it, or a branch, could not be
    looked at, `calls` the git processes that it took where a reference had moved. `reverts` are the
    commits that came and take others back, `asked` how many branches were looked at.
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

    Starts no process: the loop asks every two seconds, by a few stat calls for each branch. That is
    why the places of git's files are known here. They are only looked at for a change, and a change
    that they do not show (a new remote, another default branch) is found by the next look.
    """
    moved = _stamps(known.stamps) != known.stamps
    return not known.looked or not {one.tip for one in branches} <= known.asked or moved


def _stamps(files: Iterable[Path]) -> dict[Path, Stamp]:
    return {file: stamp_of(file) for file in files}


def _kept_in(repo: Repo, refs: Refs, branches: Sequence[Branch]) -> set[Path]:
    """Return the files in which git keeps what decides the fate of these branches."""
    ends = (ref for one in branches for ref in ends_up_in(refs, one))
    names = {*(one.ref for one in branches), *main_lines(refs), *ends, "packed-refs"}
    return {repo.common_dir / name for name in names}


def look_at_branches(path: Path, branches: Sequence[Branch], known: Memory) -> BranchNews:
    """Return what became of these branches since the look that `known` is from, and reverts there.

    Two git processes where no reference has moved; else a few more for all branches together, and
    some for each that somebody may have taken over.
    """
    failed = Memory.without_answer(branches)
    if not is_repository(path):
        return BranchNews(path, failed, problem=f"{path} is not there, or no repository any more")
    calls: list[GitCall] = []
    try:
        repo = open_repo(path, on_call=calls.append)
        stamps = _stamps(known.stamps)  # first: what moves from now on has another
        refs = all_refs(repo)
        if (kept_in := _kept_in(repo, refs, branches)) != stamps.keys():
            # A move in between is found by the next look, which asks git whatever the files say.
            stamps = _stamps(kept_in)
        if known.looked and known.refs == refs and failed.asked <= known.asked:
            return BranchNews(path, replace(known, stamps=stamps))
        news = sift(repo, _ends(refs, known, branches), known.files)
        fates, problem = [], ""
        for one in branches:
            try:
                fates.append(_fate(repo, one, refs, news))
            except GitError as error:  # of a broken branch: the others are seen all the same
                problem = str(error)
        memory = replace(failed, refs=None if problem else refs, files=news.files, stamps=stamps)
        reverts = _reverts(repo, refs, known, news)
    except (GitError, UserError) as error:
        return BranchNews(path, failed, problem=str(error), calls=tuple(calls), asked=len(branches))
    return BranchNews(
        path,
        memory,
        tuple(filter(None, fates)),
        reverts,
        owner_of(repo.common_dir.stat()),
        problem,
        tuple(calls),
        len(branches),
    )


def _ends(refs: Refs, known: Memory, branches: Sequence[Branch]) -> dict[Branch, tuple[Ends, Ends]]:
    """Return the ends of each branch that is at its tip: those of the last look, those of now."""
    ends = {}
    for one in branches:
        if refs.at.get(one.ref) == one.tip and one.became != "dropped":
            then = frozenset({one.base})
            if known.refs is not None and one.tip in known.asked:
                then = frozenset(known.refs.at[ref] for ref in ends_up_in(known.refs, one))
            ends[one] = then, frozenset(refs.at[ref] for ref in ends_up_in(refs, one))
    return ends


def _fate(repo: Repo, one: Branch, refs: Refs, news: News) -> Fate | None:
    at = refs.at.get(one.ref)
    if one.became == "dropped":  # as long as it is gone there is nothing to look for
        if at is None:
            return None
        back = Fate(one, "") if kept_elsewhere(repo, one) else None
        return fate_of(repo, one, refs) or back
    return fate_of(repo, one, refs) if at != one.tip or one.tip in news.maybe else None


def _reverts(repo: Repo, refs: Refs, known: Memory, news: News) -> tuple[Revert, ...]:
    """Return what was taken back, or brought in again, since the last look, newest first.

    Before the first look, in a month.
    """
    there = known.refs
    then = frozenset(there.at[ref] for ref in main_lines(there)) if there else frozenset()
    new = frozenset(refs.at[ref] for ref in main_lines(refs)) - then
    if not new:
        return ()
    try:
        known_already = then and (news.new, news.then) == (new, then)
        said = news.messages if known_already else messages_since(repo, sorted(new), sorted(then))
    except GitError:  # what was there then is gone after a rewrite
        said = messages_since(repo, sorted(new), ())
    return tuple(Revert(*found) for found in reverts_in(repo, said))
