"""Files that a commit of a mission would not hold as they are: ignored, filtered, in a submodule.

A tool asks before each write, so git is started only where a file of rules, or the index, says that
there is something to ask about.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from placet.git.index import read_status
from placet.git.repository import is_kept
from placet.git.run import Place, items_of, run_git
from placet.git.worktree import BY_NAME, Worktree, inside, looking, must_be_on_branch
from placet.repo.places import persons_file, place_of, with_env
from placet.repo.values import FileChange, RepositoryChanged

_MAX_RULES_BYTES = 1_000_000  # git reads a larger file, whose memory is not the daemon's
_MODULE_MODE = b"\0\0\xe0\0"  # in an index, of a submodule


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule by which git ignores a file: the file that it is in, its line and its pattern.

    `for_good` is one that leaves files out of the history of a vault that placet keeps: no approval
    overrules it.
    """

    file: str
    line: int
    pattern: str
    for_good: bool

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.pattern}"


# --- what differs from the last commit


def status(wt: Worktree) -> list[FileChange]:
    """Return the uncommitted changes: untracked files too, ignored ones not, no line counts.

    Raises RepositoryChanged where the worktree is no longer on its branch.
    """
    must_be_on_branch(wt)
    return changes_in(wt, inside(wt))[1]


def changes_in(wt: Worktree, place: Place) -> tuple[str, list[FileChange], bool]:
    """Return what `read_status` does, with ignored files that a person approved by name."""
    tip, changes, begun = read_status(place)
    more = approved_by_name(wt, {change.path for change in changes})
    changes += [FileChange(path, "A") for path in more]
    return tip, sorted(changes, key=lambda change: change.path), begun


def approved_by_name(wt: Worktree, changed: Collection[str]) -> list[str]:
    """Return the ignored files that a person approved by name, without `changed`."""
    there = [path for path in _named(wt).difference(changed) if is_work(wt, path)]
    if not there:
        return []
    modules = tuple(f"{module}/" for module in _modules(wt))
    rules = _rules(wt, [path for path in there if not path.startswith(modules)])
    return [path for path, rule in rules.items() if not rule.for_good]


def is_work(wt: Worktree, path: str) -> bool:
    """Return whether a file or link of the mission's is at `path`, reached through no link."""
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


# --- ignored


def ignored(wt: Worktree, paths: Sequence[str]) -> dict[str, IgnoreRule]:
    """Return the rule by which git ignores a file, of each of these that it would not commit.

    A file that a person approved by name is committed, unless it is left out for good.
    """
    named, rules = _named(wt), _rules(wt, paths)
    return {path: rule for path, rule in rules.items() if rule.for_good or path not in named}


def ignored_files(wt: Worktree) -> list[str]:
    """Return the ignored files in the worktree.

    A folder of which git ignores everything is one entry, with a slash.
    """
    options = ("--others", "--ignored", "--exclude-standard", "--directory")
    return items_of(run_git(looking(wt), "ls-files", "-z", *options)[1])


def _named(wt: Worktree) -> frozenset[str]:
    with suppress(FileNotFoundError):
        names = os.fsdecode((wt.git_dir / BY_NAME).read_bytes()).split("\0")
        return frozenset(filter(None, names))
    return frozenset()


def _rules(wt: Worktree, paths: Sequence[str]) -> dict[str, IgnoreRule]:
    common, mine = wt.repo.common_dir, wt.repo.common_dir / "info/exclude"
    outside = (mine, persons_file(wt.repo, "core.excludesfile", "ignore"))
    if not _any_says(wt, paths, ".gitignore", outside, b""):
        return {}
    # check-ignore takes no literal names, and behind `./` none is magic. It fails for what lies
    # beyond a link, where nothing is written anyway.
    place = with_env(looking(wt), {"GIT_LITERAL_PATHSPECS": "0"})
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


# --- filtered, or in a submodule


def not_kept_here(wt: Worktree, paths: Sequence[str]) -> dict[str, str]:
    """Return the reason why a commit would not hold a file as it is, of each such path."""
    found = {
        path: f"git stores it through the filter {name}, which placet does not run"
        for path, name in _filters(wt, paths).items()
    }
    for module in _modules(wt):
        found |= {
            path: f"it is in the submodule {module}, which is a repository of its own"
            for path in paths
            if path == module or path.startswith(f"{module}/")
        }
    return found


def _filters(wt: Worktree, paths: Sequence[str]) -> dict[str, str]:
    """Return the filters without which git would not commit these files: LFS, or a required one."""
    paths = [path for path in paths if not (wt.path / path).is_symlink()]
    outside = (
        wt.repo.common_dir / "info/attributes",
        persons_file(wt.repo, "core.attributesfile", "attributes"),
    )
    if not _any_says(wt, paths, ".gitattributes", outside, b"filter"):
        return {}
    names = os.fsencode("\0".join([*paths, ""]))
    items = items_of(run_git(looking(wt), "check-attr", "-z", "--stdin", "filter", stdin=names)[1])
    found = dict(zip(items[0::3], items[2::3], strict=True))
    needed = {name for name in set(found.values()) if name == "lfs" or _required(wt, name)}
    return {path: name for path, name in found.items() if name in needed}


def _required(wt: Worktree, name: str) -> bool:
    key = f"filter.{name}.required"
    if all(item.partition("\n")[0] != key for _, item in wt.repo.settings):
        return False
    # a value may be missing, a number or a word: git's own reading counts
    _, out = run_git(place_of(wt.repo), "config", "--type=bool", "--get", key)
    return out.strip() == b"true"


def found_in_modules(wt: Worktree) -> list[str]:
    """Return a file of each submodule in which there is one.

    Its folder is empty in a new worktree, and git does not look there.
    """
    found = []
    for module in _modules(wt):
        folder = wt.path / module
        above = [one for one in (folder, *folder.parents) if one.is_relative_to(wt.path)][:-1]
        if any(one.is_symlink() for one in above):
            continue  # it leads elsewhere
        first = next((Path(inner, files[0]) for inner, _, files in os.walk(folder) if files), None)
        if first is not None:
            found.append(str(first.relative_to(wt.path)))
    return found


def _modules(wt: Worktree) -> list[str]:
    """Return the submodules of the last commit: the files in the worktree may say otherwise."""
    try:
        index = (wt.git_dir / "index").read_bytes()
    except FileNotFoundError as error:
        raise RepositoryChanged(f"{wt.git_dir} was taken away by somebody else") from error
    if _MODULE_MODE not in index:
        return []
    rows = items_of(run_git(looking(wt), "ls-files", "-z", "--stage")[1])
    return [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]


# --- whether there is something to ask git about


def _any_says(
    wt: Worktree, paths: Sequence[str], name: str, outside: Sequence[Path], word: bytes
) -> bool:
    """Return whether a file of rules that counts for these paths may have a line with `word`.

    Such files are those `outside`, and those of this name in the folders above the paths.
    """
    if not paths:
        return False
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    inside_ = [wt.path / folder / name for folder in folders]
    followed = [file for file in inside_ if not file.is_symlink()]  # as git does
    return any(_may_say(file, word) for file in (*outside, *followed))


def _may_say(file: Path, word: bytes) -> bool:
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_RULES_BYTES:
            return True
        lines = file.read_bytes().splitlines()
        return any(line.strip() and line[:1] != b"#" and word in line for line in lines)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # git says what is wrong with it
        return True
