"""Many open branches at once: find those that somebody may have taken over, by a few processes.

The answer is "maybe" too often rather than too rarely; `afterwards` then asks about each of these.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from placet.case.case import Branch
from placet.git.run import BULK_TIMEOUT_S, items_of, run_git, text_of
from placet.repo.patches import patch_ids
from placet.repo.places import Repo, place_of
from placet.repo.values import GitError

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
