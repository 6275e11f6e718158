"""List a worktree's changes, and the files that git ignores in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from placet.git.index import read_status
from placet.git.repository import IGNORED, is_kept
from placet.git.rules import IGNORE, may_have_rules, may_have_submodules
from placet.git.run import FileChange, GitDir, RepositoryChanged, items_of, run_git, with_env
from placet.git.worktree import (
    BROUGHT,
    BY_NAME,
    Worktree,
    git_dir_of_worktree,
    must_be_on_branch,
    query_place,
)


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule by which git ignores a file: the file that contains it, its line and its pattern.

    A rule `for_good` keeps files out of the history of a vault that placet keeps. No approval
    overrides it.
    """

    file: str
    line: int
    pattern: str
    for_good: bool

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.pattern}"


CACHES = frozenset({
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox",
    ".ipynb_checkpoints", "node_modules", ".gradle", ".parcel-cache", ".turbo", ".sass-cache",
})  # fmt: skip
"""Names of folders that programs fill again."""


_CACHE_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
_TARGET_OF = ("Cargo.toml", "pom.xml")


def cache_of(top: Path, path: str, seen: dict[str, str] | None = None) -> str:
    """Return the folder of a known cache that a path is in, with a slash; "" for none.

    It is known by its name, or by a file that says so. `seen` keeps answers for further paths.
    """
    folder, _, _ = path.rpartition("/")
    seen = {"": ""} if seen is None else seen
    if folder not in seen:
        here = top / folder
        is_cache = (
            here.name in CACHES
            or any((here / mark).is_file() for mark in _CACHE_MARKS)
            or (here.name == "target" and any((here.parent / of).is_file() for of in _TARGET_OF))
        )
        seen[folder] = cache_of(top, folder, seen) or (f"{folder}/" if is_cache else "")
    return seen[folder]


def new_in_cache(wt: Worktree, paths: Sequence[str]) -> dict[str, str]:
    """Return the cache of each of these paths that is in one and not in the last commit."""
    found = {path: cache for path in paths if (cache := cache_of(wt.path, path))}
    if found:
        for path in items_of(run_git(query_place(wt), "ls-files", "-z", "--", *found)[1]):
            found.pop(path, None)
    return found


def status(wt: Worktree) -> list[FileChange]:
    """Return the uncommitted changes: untracked files too, ignored ones not, no line counts.

    Raises RepositoryChanged if the worktree is no longer on its branch.
    """
    must_be_on_branch(wt)
    return changes_in(wt, git_dir_of_worktree(wt)).files


class Changes(NamedTuple):
    """What differs from the commit `tip`, and whether anything is staged.

    New files in the known `caches` are left out.
    """

    tip: str
    files: list[FileChange]
    begun: bool
    caches: list[str]


def changes_in(wt: Worktree, place: GitDir) -> Changes:
    """Return the result of `read_status`, plus ignored files that a person approved by name."""
    tip, changes, begun = read_status(place)
    more = approved_by_name(wt, {change.path for change in changes})
    changes += [FileChange(path, "A") for path in more]
    brought = _listed(wt, BROUGHT)
    changes = [change for change in changes if not is_below(change.path, brought)]
    seen = {"": ""}
    inside = [cache_of(wt.path, one.path, seen) if one.status == "A" else "" for one in changes]
    files = [one for one, cache in zip(changes, inside, strict=True) if not cache]
    files.sort(key=lambda change: change.path)
    return Changes(tip, files, begun, sorted({*inside} - {""}))


def approved_by_name(wt: Worktree, changed: Collection[str]) -> list[str]:
    """Return the ignored files that a person approved by name, without `changed`."""
    matching = [path for path in _listed(wt, BY_NAME).difference(changed) if is_work(wt, path)]
    if not matching:
        return []
    modules = tuple(f"{module}/" for module in submodules(wt))
    rules = _rules(wt, [path for path in matching if not path.startswith(modules)])
    return [path for path, rule in rules.items() if not rule.for_good]


def is_work(wt: Worktree, path: str) -> bool:
    """Return whether `path` is a file or link of the mission's, with no link on the way to it."""
    pure = PurePosixPath(path)
    if ".git" in map(str.casefold, pure.parts):
        return False
    if any((wt.path / folder).is_symlink() for folder in pure.parents):
        return False
    try:
        mode = (wt.path / path).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def ignored(wt: Worktree, paths: Sequence[str]) -> dict[str, IgnoreRule]:
    """Return the ignore rule of each of these paths that git would not commit.

    A file that a person approved by name is committed, unless its rule is `for_good`.
    """
    named, rules = _listed(wt, BY_NAME), _rules(wt, paths)
    return {path: rule for path, rule in rules.items() if rule.for_good or path not in named}


def ignored_files(wt: Worktree) -> list[str]:
    """Return the ignored files in the worktree.

    If git ignores everything in a folder, the folder is one entry, with a slash.
    """
    found = items_of(run_git(query_place(wt), "ls-files", "-z", *IGNORED)[1])
    brought = _listed(wt, BROUGHT)
    return [path for path in found if not is_below(path, brought)]


_AT_ONCE = 500  # paths on one command line


def note_brought(wt: Worktree, paths: Sequence[str]) -> frozenset[str]:
    """Note that placet brings these paths; return them without those that the commit has.

    From then on they do not count as changes of the worktree.
    """
    tracked: set[str] = set()
    for at in range(0, len(paths), _AT_ONCE):
        asked = ("ls-files", "-z", "--", *paths[at : at + _AT_ONCE])
        for one in items_of(run_git(query_place(wt), *asked)[1]):
            tracked.update((one, *map(str, PurePosixPath(one).parents)))
    free = [path for path in paths if path not in tracked]
    (wt.git_dir / BROUGHT).write_bytes(os.fsencode("\0".join(free)))
    return frozenset(free)


def is_below(path: str, folders: Collection[str]) -> bool:
    """Return whether a path is one of these, or below one."""
    pure = PurePosixPath(path)
    return str(pure) in folders or any(str(folder) in folders for folder in pure.parents)


def _listed(wt: Worktree, file: str) -> frozenset[str]:
    """Return the paths of one of placet's lists in a worktree: BY_NAME or BROUGHT."""
    with suppress(FileNotFoundError):
        names = os.fsdecode((wt.git_dir / file).read_bytes()).split("\0")
        return frozenset(filter(None, names))
    return frozenset()


def _rules(wt: Worktree, paths: Sequence[str]) -> dict[str, IgnoreRule]:
    if not paths or not may_have_rules(wt, paths, IGNORE):
        return {}
    common, mine = wt.repo.common_dir, wt.repo.common_dir / "info/exclude"
    # check-ignore accepts no literal names, and after `./` no character is special. It fails for a
    # path beyond a link, where nothing is written anyway.
    place = with_env(query_place(wt), {"GIT_LITERAL_PATHSPECS": "0"})
    names = os.fsencode("".join(f"./{path}\0" for path in paths))
    asked = ("check-ignore", "-v", "-z", "--stdin")
    items = items_of(run_git(place, *asked, stdin=names, ok=(0, 1, 128))[1])
    found = {}
    for file, line, pattern, path in zip(*(items[n::4] for n in range(4)), strict=True):
        whole = Path(wt.path, file)
        above = [top for top in (wt.path, common.parent) if whole.is_relative_to(top)]
        shown = str(whole.relative_to(above[0])) if above else file
        if not pattern.startswith("!"):
            for_good = whole == mine and is_kept(wt.repo)
            found[path.removeprefix("./")] = IgnoreRule(shown, int(line), pattern, for_good)
    return found


def submodules(wt: Worktree) -> list[str]:
    """Return the submodules of the last commit. The files in the worktree may say otherwise."""
    if not may_have_submodules(wt):
        return []
    rows = items_of(run_git(query_place(wt), "ls-files", "-z", "--stage")[1])
    return [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]


def since_tip(wt: Worktree, place: GitDir) -> Changes:
    """Return the result of `changes_in`; raise RepositoryChanged if the branch is gone."""
    found = changes_in(wt, place)
    if found.tip == "(initial)":
        raise branch_gone(wt)
    return found


def branch_gone(wt: Worktree) -> RepositoryChanged:
    """Return the error for a mission's branch that is gone."""
    return RepositoryChanged(f"the branch {wt.branch} was deleted by another program")
