"""Commit a mission's changes, and detect changes to its git configuration, hooks and pointers."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from placet.errors import ToolError
from placet.git.index import Allow, read_status, stage_allowed, update_ref, write_commit
from placet.git.repository import IGNORED, is_kept
from placet.git.run import (
    BOT,
    Author,
    FileChange,
    GitDir,
    RepositoryChanged,
    items_of,
    place_of,
    run_git,
    settings_of,
    with_env,
)
from placet.git.worktree import (
    BROUGHT,
    BY_NAME,
    Worktree,
    git_dir_of_worktree,
    holding,
    must_be_on_branch,
    query_place,
)
from placet.note.paths import show
from placet.wording import some_of

# Files that a mission's commit would not store as they are: ignored, filtered, in a submodule.


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


# --- caches

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


# --- what differs from the last commit


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
    modules = tuple(f"{module}/" for module in _modules(wt))
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


# --- ignored


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


# --- brought from the checkout


_AT_ONCE = 500  # paths on one command line


def note_brought(wt: Worktree, paths: Sequence[str]) -> frozenset[str]:
    """Note that placet brings these paths; return them without those that the commit has.

    From then on they are no changes of the worktree.
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
    if not paths:
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


# --- filtered, or in a submodule


@dataclass(frozen=True, slots=True)
class Attributes:
    """What git's attributes say of a file: its filter, `working-tree-encoding`, and `eol`."""

    filter: str = ""
    encoding: str = ""
    eol: str = ""


_ATTRIBUTES = ("filter", "working-tree-encoding", "eol")
_WITHOUT_VALUE = frozenset({"unspecified", "unset", "set"})


def attributes(wt: Worktree, paths: Sequence[str]) -> dict[str, Attributes]:
    """Return git's attributes of these paths."""
    if not paths:
        return {}
    names = os.fsencode("\0".join([*paths, ""]))
    asked = ("check-attr", "-z", "--stdin", *_ATTRIBUTES)
    items = items_of(run_git(query_place(wt), *asked, stdin=names)[1])
    values = ["" if value in _WITHOUT_VALUE else value for value in items[2::3]]
    rows = zip(*(values[n::3] for n in range(3)), strict=True)
    return {path: Attributes(*row) for path, row in zip(items[::9], rows, strict=True)}


def not_kept_here(
    wt: Worktree, paths: Sequence[str], known: Mapping[str, Attributes] | None = None
) -> dict[str, str]:
    """Return for each of these paths why a commit would not store it as it is, if so.

    `known` are their attributes, if the caller has them.
    """
    found = {
        path: f"git stores it through the filter {name}, which placet does not run"
        for path, name in _filters(wt, attributes(wt, paths) if known is None else known).items()
    }
    for module in _modules(wt):
        found |= {
            path: f"it is in the submodule {module}, which is another repository"
            for path in paths
            if path == module or path.startswith(f"{module}/")
        }
    return found


def _filters(wt: Worktree, known: Mapping[str, Attributes]) -> dict[str, str]:
    """Return the filters without which git would not commit these files: LFS, or a required one."""
    found = {
        path: one.filter
        for path, one in known.items()
        if one.filter and not (wt.path / path).is_symlink()
    }
    needed = {name for name in set(found.values()) if name == "lfs" or _required(wt, name)}
    return {path: name for path, name in found.items() if name in needed}


def _required(wt: Worktree, name: str) -> bool:
    key = f"filter.{name}.required"
    if all(item.partition("\n")[0] != key for _, item in wt.repo.settings):
        return False
    # The value may be missing, a number or a word, so let git parse it.
    _, out = run_git(place_of(wt.repo), "config", "--type=bool", "--get", key)
    return out.strip() == b"true"


def found_in_modules(wt: Worktree) -> list[str]:
    """Return one file of each submodule that contains any.

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
    """Return the submodules of the last commit. The files in the worktree may say otherwise."""
    rows = items_of(run_git(query_place(wt), "ls-files", "-z", "--stage")[1])
    return [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]


MAX_NAMED = 20
"""Maximum number of files that an error names."""

_SUBJECT_LENGTH = 72
# what placet and git read back from a message as a fact; git allows blanks before a trailer
_FACT = re.compile(
    r"^(?=\s*(?:placet-|approved-by:|co-authored-by:|signed-off-by:|this\s+reverts\s+commit))",
    re.IGNORECASE,
)


class Writing:
    """Commit changes in a locked worktree: call `changes`, then `commit`.

    `caches` are the known caches with new files, which are no changes.
    """

    def __init__(self, wt: Worktree, place: GitDir) -> None:
        self._wt, self._place = wt, place
        self._tip = ""
        self._found: list[FileChange] = []
        self.caches: list[str] = []

    def changes(self) -> list[str]:
        """Return the paths that differ from the branch's last commit.

        Raises RepositoryChanged if the branch is gone.
        """
        self._tip, self._found, begun, self.caches = since_tip(self._wt, self._place)
        if begun:  # a killed commit staged it; unstage, so that only the requested files go in
            run_git(self._place, "read-tree", "--reset", self._tip)
            self._tip, self._found, _, self.caches = changes_in(self._wt, self._place)
        return [change.path for change in self._found]

    def check_pins(self, pinned: Pins) -> None:
        """Raise RepositoryChanged, with the names, if anything differs from `pinned`."""
        now = pins(self._wt, self._place)
        changed = [name for name in sorted(pinned | now) if pinned.get(name) != now.get(name)]
        if changed:
            raise RepositoryChanged(f"changed while the mission ran: {', '.join(changed)}")

    def commit(
        self,
        paths: Collection[str],
        message: str,
        author: Author,
        when: datetime,
        allow: Allow | None = None,
    ) -> str | None:
        """Commit the changes that are among `paths`; return the commit, or None if there are none.

        `allow` sees what git will store, and may leave out more. What it raises is passed on.

        There are no empty commits, and a commit made before a crash is not made twice. The branch
        is moved by compare-and-swap. Raises RepositoryChanged if somebody else moved it since
        `changes`. Raises ToolError `outside_scope` if the commit would change other files: a file
        that replaces a folder deletes the folder's content.
        """
        wanted = frozenset(paths)
        chosen = [change for change in self._found if change.path in wanted]
        if not chosen:
            return None
        tree = stage_allowed(self._place, chosen, self._tip, allow)
        if not tree:
            return None
        asked = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self._tip, tree)
        differs = items_of(run_git(self._place, *asked)[1])
        if not differs:  # identical once committed, such as other line ends
            return None
        if more := sorted(set(differs) - wanted):
            named = some_of([show(path) for path in more], MAX_NAMED)
            raise ToolError(
                "outside_scope",
                "Nothing was committed: the commit would also change or delete "
                f"{named}, which the plan does not allow. Put that back as it "
                "was.",
                refused=True,
                paths=named,
            )
        new = write_commit(self._place, tree, (self._tip,), message, author, when)
        # Last: a kill before this leaves staged files, which `changes` then unstages.
        update_ref(self._place, self._wt.ref, new, self._tip)
        return new


@contextmanager
def writing(wt: Worktree) -> Iterator[Writing]:
    """Lock a mission's worktree for a commit.

    Raises RepositoryChanged if it is no longer on its branch.
    """
    wt.must_have_branch()
    with holding(wt.path) as held:
        must_be_on_branch(wt)
        yield Writing(wt, git_dir_of_worktree(wt, held))


def since_tip(wt: Worktree, place: GitDir) -> Changes:
    """Return the result of `changes_in`; raise RepositoryChanged if the branch is gone."""
    found = changes_in(wt, place)
    if found.tip == "(initial)":
        raise branch_gone(wt)
    return found


def branch_gone(wt: Worktree) -> RepositoryChanged:
    """Return the error for a mission's branch that is gone."""
    return RepositoryChanged(f"the branch {wt.branch} was deleted by another program")


# --- what must not change while a mission runs

Pins = dict[str, str]
"""Digests of everything that decides how git behaves in a worktree, by name."""


def pins(wt: Worktree, place: GitDir | None = None) -> Pins:
    """Return digests of everything that decides how git behaves in a worktree.

    That is configuration, hooks, attributes and pointers. `branch.*`, `remote.*` and `user.*` are
    left out, because a person's everyday work changes them and placet never uses them. `place` is
    where git works, if the caller has one.
    """
    place = place or query_place(wt)
    settings = place.settings or settings_of(place)
    local = [item for scope, item in settings if scope in ("local", "worktree")]
    used = [item for item in local if not item.startswith(("branch.", "remote.", "user."))]
    common = wt.repo.common_dir
    named = {
        "configuration": "\0".join(used).encode("utf-8", "surrogateescape"),
        "hooks": b"".join(_stamp(hook) for hook in sorted((common / "hooks").glob("*"))),
    }
    for path in (
        common / "info/attributes",
        common / "info/grafts",
        common / "objects/info/alternates",
        wt.git_dir / "info/attributes",
        wt.git_dir / "gitdir",
        wt.git_dir / "commondir",
        wt.git_dir / "HEAD",
        wt.path / ".git",
    ):
        named[str(path)] = _stamp(path)
    return {name: hashlib.sha256(content).hexdigest() for name, content in named.items()}


def _stamp(path: Path) -> bytes:
    """Return name, kind, executable bit and content of a file, without following a link."""
    if path.is_symlink():
        return b"link " + os.fsencode(path) + b"\0" + os.fsencode(path.readlink()) + b"\0"
    if not path.is_file():
        return b"other " + os.fsencode(path) + b"\0"
    mode = b"x" if path.stat().st_mode & 0o111 else b"-"
    return mode + os.fsencode(path) + b"\0" + path.read_bytes() + b"\0"


# --- the message


def commit_message(
    subject: str, body: str, trace_id: str, plan_digest: str, approved_by: str, co_author: str = ""
) -> str:
    """Return a commit message: subject, body, `[ExoTrace: …]`, trailers, with blank lines between.

    The subject is one line of at most 72 characters. `co_author` is a name for a `Co-authored-by`
    trailer with placet's address, or "". Control characters are dropped. A line `---`, which git
    would take for the end of the message, is indented by a space, and a line that would read as a
    trailer or a revert is quoted by `> `. Then `git interpret-trailers` finds the trailers.
    """
    line = _quoted(_one_line(subject).lstrip("-# ")) or "Run the plan"
    if len(line) > _SUBJECT_LENGTH:
        line = line[: _SUBJECT_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"
    parts = (_quoted(_printable(part).rstrip()) for part in body.splitlines())
    text = "\n".join(parts).strip("\n")
    text = re.sub(r"^---", " ---", text, flags=re.MULTILINE)
    trailers = [
        f"Placet-Trace: {_one_line(trace_id)}",
        f"Placet-Plan: {_one_line(plan_digest)}",
        f"Approved-By: {_one_line(approved_by)}",
    ]
    if co_author:
        name = re.sub("[<>]", "", _one_line(co_author))
        trailers.append(f"Co-authored-by: {name} <{BOT.email}>")
    pieces = [line, text, f"[ExoTrace: {_one_line(trace_id)}]", "\n".join(trailers)]
    return "\n\n".join(filter(None, pieces)) + "\n"


def _quoted(line: str) -> str:
    return _FACT.sub("> ", line)


def _printable(text: str) -> str:
    """Return a line without control characters, except tabs, and without lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", plain)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split())).strip()
