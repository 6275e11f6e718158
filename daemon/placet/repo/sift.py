"""Many branches at once: which of them somebody may have taken over.

Few git processes, however many branches there are.

It says "maybe" too often rather than too rarely; what became of a branch of which it does,
`afterwards` finds out for itself.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from placet.repo.history import patch_ids
from placet.repo.runner import BULK_TIMEOUT_S, GitError, Repo, items_of, place_of, run_git, text_of

_TRACE = re.compile(r"^\s*Placet-Trace: (\S+)\s*$", re.MULTILINE)


@dataclass(slots=True)
class Newer:
    """A commit that came since: its parents, the files that it changes beside each of them, and its message."""

    parents: tuple[str, ...]
    message: str
    files: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Open:
    """A branch that is where its mission left it: what is to be looked at are the commits that `news` have and `then` has not."""

    trace_id: str
    base: str
    tip: str
    news: frozenset[str]
    then: frozenset[str]


def commits_since(repo: Repo, news: Collection[str], then: Collection[str]) -> dict[str, Newer]:
    """Return the commits that any of `news` has and not all of `then` have, by one process, two for several."""
    beyond = sorted(then)
    if len(beyond) > 1:
        code, out = run_git(
            place_of(repo), "merge-base", "--octopus", *beyond, ok=(0, 1), timeout_s=BULK_TIMEOUT_S
        )
        beyond = text_of(out).split() if code == 0 else []
    mark = secrets.token_hex(8)  # that no file is named
    _, out = run_git(
        place_of(repo),
        "log",
        "-m",
        "-z",
        f"--format={mark} %H %P%x00%B",
        "--name-only",
        "--no-renames",
        "--no-notes",
        "--no-show-signature",
        "--no-ext-diff",
        "--no-textconv",
        *sorted(news),
        *(f"^{sha}" for sha in beyond),
        "--",
        config=("log.showRoot=true",),
        timeout_s=BULK_TIMEOUT_S,
    )
    found: dict[str, Newer] = {}
    items = iter(items_of(out))
    at = Newer((), "")
    for item in items:
        if item.startswith(f"{mark} "):
            sha, *parents = item.split(" ")[1:]
            message = next(items, "")
            at = found.setdefault(sha, Newer(tuple(filter(None, parents)), message))
        elif name := item.removeprefix("\n"):
            at.files.add(name)
    return found


def files_of(repo: Repo, branches: Iterable[Open]) -> dict[str, frozenset[str]]:
    """Return the files that these branches changed, by their tips; one process."""
    pairs = {one.tip: one.base for one in branches}
    if not pairs:
        return {}
    _, out = run_git(
        place_of(repo),
        "diff-tree",
        "--stdin",
        "-r",
        "-z",
        "--name-only",
        "--no-renames",
        "--no-ext-diff",
        stdin="".join(f"{tip} {base}\n" for tip, base in pairs.items()).encode(),
        timeout_s=BULK_TIMEOUT_S,
    )
    found: dict[str, set[str]] = {tip: set() for tip in pairs}
    tip = ""
    for item in items_of(out):
        if item in found:
            tip = item
        else:
            found[tip].add(item)
    return {tip: frozenset(files) for tip, files in found.items()}


class Sieve:
    """What came to a repository since, and what of it could be the work of one of these branches.

    `commits` are those that came, `maybe` the tips of the branches that somebody may have taken
    over, `files` those of all of them.
    """

    def __init__(
        self, repo: Repo, branches: Sequence[Open], files: Mapping[str, frozenset[str]]
    ) -> None:
        self.maybe: set[str] = set()
        self.files = dict(files)
        self.commits: dict[str, Newer] = {}
        self._then = frozenset[str]()
        asked = [one for one in branches if one.news]
        if not asked:
            return
        try:
            news, then = (
                frozenset[str]().union(*sets)
                for sets in ([one.news for one in asked], [one.then for one in asked])
            )
            self.commits, self._then = commits_since(repo, news, then), then
            self.files |= files_of(repo, [one for one in asked if one.tip not in self.files])
            self._sift(repo, asked)
        except GitError:  # what was there then is gone after a rewrite, or it is too much to list
            self.maybe = {one.tip for one in asked}

    def messages(
        self, news: Collection[str], then: Collection[str]
    ) -> list[tuple[str, str]] | None:
        """Return the commits that `news` have and `then` have not, with messages, newest first.

        None where it looked at others.
        """
        if frozenset(then) != self._then or len(then) != 1 or not self.commits.keys() >= set(news):
            return None
        came = self._closure(news)
        return [(sha, commit.message) for sha, commit in self.commits.items() if sha in came]

    def _sift(self, repo: Repo, asked: Sequence[Open]) -> None:
        reached: dict[tuple[frozenset[str], frozenset[str]], tuple[set[str], set[str]]] = {}
        left: list[tuple[Open, set[str]]] = []
        for one in asked:
            key = one.news, one.then
            if key not in reached:
                shas = self._closure(one.news) - self._closure(one.then)
                reached[key] = shas, set().union(*(self.commits[sha].files for sha in shas))
            shas, touched = reached[key]
            # Whoever takes work over, in whatever way, touches all of its files.
            if self.files[one.tip] <= touched:
                left.append((one, shas))
        if left:
            self._compare(repo, left)

    def _closure(self, tips: Collection[str]) -> set[str]:
        seen: set[str] = set()
        ahead = [sha for sha in tips if sha in self.commits]
        while ahead:
            sha = ahead.pop()
            if sha not in seen:
                seen.add(sha)
                ahead += [parent for parent in self.commits[sha].parents if parent in self.commits]
        return seen

    def _compare(self, repo: Repo, left: Sequence[tuple[Open, set[str]]]) -> None:
        """Keep those of which a commit that came has the trace, or all of whose changes came."""
        named: dict[str, set[str]] = {}
        for sha, commit in self.commits.items():
            for trace in _TRACE.findall(commit.message):
                named.setdefault(trace, set()).add(sha)
        silent = [
            (one, shas)
            for one, shas in left
            if one.tip not in shas and named.get(one.trace_id, set()).isdisjoint(shas)
        ]
        if len(silent) == 1:  # to ask for it costs no more than to compare
            silent = []
        self.maybe |= {one.tip for one, _ in left} - {one.tip for one, _ in silent}
        if not silent:
            return
        files = frozenset[str]().union(*(self.files[one.tip] for one, _ in silent))
        like = [
            sha
            for sha, commit in self.commits.items()
            if len(commit.parents) < 2 and not commit.files.isdisjoint(files)
        ]
        there = patch_ids(repo, like)
        whole = patch_ids(repo, [f"{one.tip} {one.base}" for one, _ in silent])
        own = commits_since(repo, {one.tip for one, _ in silent}, {one.base for one, _ in silent})
        each = patch_ids(repo, [sha for sha, commit in own.items() if len(commit.parents) < 2])
        for one, shas in silent:
            came = {there[sha] for sha in like if sha in shas and sha in there}
            if whole.get(one.tip) in came or self._each(one, own, each) <= came:
                self.maybe.add(one.tip)

    def _each(self, one: Open, own: Mapping[str, Newer], patches: Mapping[str, str]) -> set[str]:
        """Return the patch-ids of a branch's commits one by one.

        None, which counts as all of them, where they are not known.
        """
        found: set[str] = set()
        seen, ahead = {one.base}, [one.tip]
        while ahead:
            sha = ahead.pop()
            if sha in seen:
                continue
            seen.add(sha)
            if sha not in own:
                return set()
            if sha in patches:
                found.add(patches[sha])
            ahead += own[sha].parents
        return found
