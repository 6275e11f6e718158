"""A mission's branch afterwards: facts for the report, then merges, drops and reverts as they come.

Reads only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from placet.case.case import Branch
from placet.chat.result import After
from placet.disk.files import Stamp, owner_of, stamp_of
from placet.errors import UserError
from placet.git.fate import Fate, ends_up_in, fate_of, kept_elsewhere, main_lines
from placet.git.history import (
    ahead_behind,
    merge_preview,
)
from placet.git.repository import is_repository, open_repo
from placet.repo.oddities import dirty_paths, notes
from placet.repo.places import Repo
from placet.repo.refs import Refs, all_refs, remote_of
from placet.repo.sift import Ends, News, sift
from placet.repo.traces import messages_since, reverts_in
from placet.repo.values import GitCall, GitError

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
class Looked:
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


def look_at_branches(path: Path, branches: Sequence[Branch], known: Memory) -> Looked:
    """Return what became of these branches since the look that `known` is from, and reverts there.

    Two git processes where no reference has moved; else a few more for all branches together, and
    some for each that somebody may have taken over.
    """
    failed = Memory.without_answer(branches)
    if not is_repository(path):
        return Looked(path, failed, problem=f"{path} is not there, or no repository any more")
    calls: list[GitCall] = []
    try:
        repo = open_repo(path, on_call=calls.append)
        stamps = _stamps(known.stamps)  # first: what moves from now on has another
        refs = all_refs(repo)
        if (kept_in := _kept_in(repo, refs, branches)) != stamps.keys():
            # A move in between is found by the next look, which asks git whatever the files say.
            stamps = _stamps(kept_in)
        if known.looked and known.refs == refs and failed.asked <= known.asked:
            return Looked(path, replace(known, stamps=stamps))
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
        return Looked(path, failed, problem=str(error), calls=tuple(calls), asked=len(branches))
    return Looked(
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
