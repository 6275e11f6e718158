"""A mission's own worktree: made, committed in, kept as checkpoints, rolled back, removed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from placet.core.errors import Interrupted, PlacetError, ToolError, UserError
from placet.core.text.names import show
from placet.disk import delete_tree
from placet.repo.commit import filters_in_the_way, stage, update_ref, write_commit
from placet.repo.differences import read_status
from placet.repo.history import contained_in
from placet.repo.repository import is_kept, private_dirs, ref_now, resolve, tree_of
from placet.repo.runner import (
    BOT,
    BULK_TIMEOUT_S,
    CALL_TIMEOUT_S,
    Author,
    FileChange,
    Place,
    Repo,
    RepositoryChanged,
    configured,
    items_of,
    neutral,
    persons_file,
    place_of,
    run_git,
    with_env,
)


class WorkNotKept(PlacetError):  # noqa: N818 - named for what is the case, as Stop is
    """A worktree was not removed, since it holds work that no commit has.

    `paths` are some of the files.
    """

    def __init__(self, path: Path, paths: Sequence[str]) -> None:
        super().__init__(f"{path} holds uncommitted work: {', '.join(map(ascii, paths[:5]))}")
        self.path = path
        self.paths = tuple(paths)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A mission's own worktree.

    `git_dir` is its private directory under `common_dir/worktrees`, remembered here and never read
    from the `.git` file in the worktree, which a mission could replace. `base` is the commit it
    began at. Where `branch` is empty it is detached at `base`, and only read: that is what a plan
    is written from.
    """

    repo: Repo
    path: Path
    git_dir: Path
    branch: str
    base: str

    @property
    def ref(self) -> str:
        """The branch as a full reference name; the base commit where there is no branch."""
        return f"refs/heads/{self.branch}" if self.branch else self.base

    @property
    def head(self) -> str:
        """What its HEAD file must say."""
        return f"ref: {self.ref}" if self.branch else self.base


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _writing(path: Path, timeout_s: float = CALL_TIMEOUT_S) -> Iterator[int]:
    """Hold the lock beside the worktree at `path` and yield its descriptor, which git processes inherit.

    If the daemon dies, its git process keeps the lock until it ends. Raises UserError where that takes too
    long.
    """
    deadline = time.monotonic() + timeout_s
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with _lock_path(path).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"another git process has been working in {path} for {timeout_s:g} s",
                        f"See which: fuser '{_lock_path(path)}'",
                    ) from None
                time.sleep(0.02)
                continue
            # The holder before may have removed the file with its worktree: then this one locks
            # nothing.
            try:
                current = _lock_path(path).stat().st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield file.fileno()
                return


_SETTINGS = (
    ("core.splitIndex", "false"),
    ("core.untrackedCache", "false"),
    ("index.sparse", "false"),
    ("core.safecrlf", "false"),
)
"""What git is told in worktrees of ours, whatever the person has set: their index is one file, and has every file.

Where `core.safecrlf` is true git refuses every file that a check-out would give other line ends.
"""


def _looking(wt: Worktree) -> Place:
    """Ask something in the mission's worktree for which git reads no file through a driver: its index, rules, attributes."""
    return Place(wt.git_dir, wt.path, wt.path, wt.repo.on_call)


def _inside(wt: Worktree, held: int | None = None) -> Place:
    """Work in the mission's worktree, by names that we know, with its drivers switched off."""
    return configured(neutral(replace(_looking(wt), held=held)), _SETTINGS)


def _registered(repo: Repo, path: Path) -> Path | None:
    """Return the private git directory of the worktree at `path`, as the repository knows it."""
    return next((admin for admin, place in _worktrees(repo) if place == path), None)


def _worktrees(repo: Repo) -> Iterator[tuple[Path, Path]]:
    """Give the private git directory and the folder of each worktree that the repository knows.

    A broken entry is nobody's.
    """
    for admin in private_dirs(repo):
        with suppress(OSError):
            yield (
                admin,
                Path(
                    os.fsdecode((admin / "gitdir").read_bytes()).rstrip("\n").removesuffix("/.git")
                ),
            )


def _place_for(repo: Repo, path: Path) -> Path:
    """Return where a worktree asked for at `path` really lies.

    Raises UserError where that is no safe place.
    """
    place = path.parent.resolve() / path.name
    inside = [place.is_relative_to(repo.git_dir), place.is_relative_to(repo.common_dir)]
    if any(inside) or (not repo.is_bare and place.is_relative_to(repo.path)):
        raise UserError(
            f"a worktree cannot lie inside its own repository: {place}",
            "Set PLACET_STATE_HOME to a folder outside of it.",
            exit_code=2,
        )
    if place.is_symlink():
        raise UserError(
            f"{place} is a symbolic link, not a folder", f"Look at it, then: rm '{place}'"
        )
    return place


def _register(repo: Repo, path: Path, head_line: str) -> Path:
    """Make the private git directory and the worktree's `.git` file as `git worktree add` does.

    Return it.

    By hand, after gitrepository-layout(5) and in git's own order: the command would start three
    more processes, which read configuration for a branch (`includeIf`) that could not be looked at
    beforehand.
    """
    stale = repo.common_dir / "worktrees" / path.name
    if stale.is_dir() and not (stale / "gitdir").exists():  # a making of ours that was killed
        shutil.rmtree(stale)
    for n in range(1, 1_000):
        admin = stale if n == 1 else stale.with_name(f"{path.name}{n}")
        with suppress(FileExistsError):
            _make(admin)
            break
    else:
        raise UserError(f"there are too many worktrees named {path.name} in {repo.common_dir}")
    (admin / "locked").write_text("initializing")  # so that `git worktree prune` leaves it alone
    (admin / "commondir").write_text("../..\n")
    (admin / "HEAD").write_text(f"{head_line}\n")
    _point(path, admin)
    # Last, and whole: from here on the worktree is known.
    (admin / "gitdir.new").write_bytes(os.fsencode(f"{path / '.git'}\n"))
    (admin / "gitdir.new").replace(admin / "gitdir")
    (admin / "locked").unlink()
    return admin


def _point(path: Path, admin: Path) -> None:
    """Make the worktree's folder and its `.git` file, for who runs git in there.

    Nothing here reads it.
    """
    path.mkdir(exist_ok=True)
    (path / ".git").write_bytes(os.fsencode(f"gitdir: {admin}\n"))


def add_worktree(
    repo: Repo, path: Path, branch: str, base: str, *, by_name: Sequence[str] = ()
) -> Worktree:
    """Create `branch` at the commit `base` and check it out at `path`.

    Or finish what a killed call began.

    The caller holds the mission's lease; `path` is in the state folder and its last part is the
    mission's own. A branch that exists must descend from `base`; a worktree that was complete is
    left as it is, with its work. An empty `branch` makes none: the worktree is detached at `base`,
    to be read and removed; one that is there at another commit is made anew. `by_name` are files
    that are kept and committed although git ignores them, since a person approved them by name.
    Raises UserError where `path` is taken or not safe, RepositoryChanged where it belongs to
    something else.
    """
    good_branch = not branch or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", branch)
    if not good_branch or not re.fullmatch(r"[0-9a-f]{40,64}", base):
        raise ValueError(f"not a branch and a commit that placet makes: {branch!r}, {base!r}")
    path = _place_for(repo, path)
    with _writing(path) as held:
        admin = _registered(repo, path)
        # left by a call that was killed, and only read
        if admin is not None and not branch and _head_of(admin) != base:
            _delete(Worktree(repo, path, admin, branch, base))
            admin = None
        if admin is None:
            _check_free(path)
            admin = _register(repo, path, Worktree(repo, path, path, branch, base).head)
        elif not path.exists():  # deleted, or a killed removal: what is not in the branch is gone
            (admin / "index").unlink(missing_ok=True)
            _point(path, admin)
        wt = Worktree(repo, path, admin, branch, base)
        _check_head(wt)
        if by_name:
            (admin / _BY_NAME).write_bytes(os.fsencode("\0".join(by_name)))
        # the index is written last, so nothing has been worked on yet
        if not (admin / "index").exists():
            _remove_locks(wt)
            place = _inside(wt, held)
            if branch:
                _attach(wt, place)
            try:  # --reset writes over what a killed attempt had checked out
                run_git(place, "read-tree", "--reset", "-u", wt.ref, timeout_s=BULK_TIMEOUT_S)
            except Interrupted:
                if not branch:  # nobody goes on with one that is only read
                    _delete(wt)
                raise
    return wt


def abandon(repo: Repo, path: Path, branch: str, base: str) -> None:
    """Take away what an `add_worktree` that was left had begun, in which nobody worked: worktree, and branch while at `base`."""
    path = _place_for(repo, path)
    with _writing(path):
        if (admin := _registered(repo, path)) is not None:
            _delete(Worktree(repo, path, admin, branch, base))
    ref = f"refs/heads/{branch}"
    if ref_now(repo, ref) == base:
        _remove_ref_lock(repo.common_dir / f"{ref}.lock")
        run_git(neutral(place_of(repo)), "update-ref", "-d", ref, base)


def not_kept_here(wt: Worktree, paths: Sequence[str]) -> dict[str, str]:
    """Return why a commit would not hold these files as they are, of each for which it would not: a filter or a submodule."""
    plain = [path for path in paths if not (wt.path / path).is_symlink()]
    found = {
        path: f"git stores it through the filter {name}, which placet does not run"
        for path, name in filters_in_the_way(wt.repo, _looking(wt), plain).items()
    }
    for module in _modules(wt):
        found |= {
            path: f"it is in the submodule {module}, which is a repository of its own"
            for path in paths
            if path == module or path.startswith(f"{module}/")
        }
    return found


def found_in_modules(wt: Worktree) -> list[str]:
    """Return a file of each submodule that has any: its folder begins empty in a worktree, and git does not look there."""
    found = []
    for module in _modules(wt):
        folder = wt.path / module
        if any(
            above.is_symlink()
            for above in (folder, *folder.parents)
            if above != wt.path and above.is_relative_to(wt.path)
        ):
            continue  # it leads elsewhere, which is nobody's business
        first = next((Path(inner, files[0]) for inner, _, files in os.walk(folder) if files), None)
        if first is not None:
            found.append(str(first.relative_to(wt.path)))
    return found


def _modules(wt: Worktree) -> list[str]:
    """Return the submodules of the worktree's last commit: what is in the worktree may say otherwise."""
    try:
        index = (wt.git_dir / "index").read_bytes()
    except FileNotFoundError as error:
        raise RepositoryChanged(f"{wt.git_dir} was taken away by somebody else") from error
    if _MODULE_MODE not in index:
        return []
    rows = items_of(run_git(_looking(wt), "ls-files", "-z", "--stage")[1])
    return [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]


_MODULE_MODE = b"\0\0\xe0\0"  # in an index: without it there is nothing to ask git for


@dataclass(frozen=True, slots=True)
class Rule:
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


def ignored(wt: Worktree, paths: Sequence[str]) -> dict[str, Rule]:
    """Return the rule by which git ignores a file, of each of these that it would not commit.

    One that a person approved by name is committed all the same, unless it is left out for good.
    """
    named = _named(wt)
    return {
        path: rule for path, rule in _rules(wt, paths).items() if rule.for_good or path not in named
    }


def _rules(wt: Worktree, paths: Sequence[str]) -> dict[str, Rule]:
    if not paths or not _has_rules(wt, paths):
        return {}
    # Of a file that git has it says nothing, whatever the rules are. It takes no literal names;
    # behind `./` none is magic. It fails for what lies beyond a link, where nothing is written
    # anyway.
    place = with_env(_looking(wt), {"GIT_LITERAL_PATHSPECS": "0"})
    names = os.fsencode("".join(f"./{path}\0" for path in paths))
    items = items_of(
        run_git(place, "check-ignore", "-v", "-z", "--stdin", stdin=names, ok=(0, 1, 128))[1]
    )
    mine = wt.repo.common_dir / "info/exclude"
    kept = is_kept(wt.repo)
    return {
        path.removeprefix("./"): Rule(
            _shown_rules(wt, file), int(line), pattern, kept and Path(wt.path, file) == mine
        )
        for file, line, pattern, path in zip(
            items[0::4], items[1::4], items[2::4], items[3::4], strict=True
        )
        if not pattern.startswith("!")
    }


def _shown_rules(wt: Worktree, file: str) -> str:
    """Return a file of rules as a person finds it: below the repository, or where it is."""
    whole = Path(wt.path, file)
    for top in (wt.path, wt.repo.common_dir.parent):
        if whole.is_relative_to(top):
            return str(whole.relative_to(top))
    return file


_BY_NAME = "placet-by-name"
"""Has, in a worktree's private directory, the files that a person approved by name: they are work also where git ignores them."""


def _named(wt: Worktree) -> frozenset[str]:
    with suppress(FileNotFoundError):
        return frozenset(
            filter(None, os.fsdecode((wt.git_dir / _BY_NAME).read_bytes()).split("\0"))
        )
    return frozenset()


def _read_status(wt: Worktree, place: Place) -> tuple[str, list[FileChange], bool]:
    """Return what `read_status` does, with the files that git ignores and a person approved by name."""
    tip, changes, begun = read_status(place)
    more = _ignored_by_name(wt, {change.path for change in changes})
    return (
        tip,
        sorted(
            [*changes, *(FileChange(path, "A") for path in more)], key=lambda change: change.path
        ),
        begun,
    )


def _ignored_by_name(wt: Worktree, changed: Collection[str]) -> list[str]:
    """Return the files in the worktree that git ignores and a person approved by name.

    `changed` are those of which git tells.
    """
    if not (there := [path for path in _named(wt).difference(changed) if _is_work(wt, path)]):
        return []
    modules = tuple(f"{module}/" for module in _modules(wt))
    rules = _rules(wt, [path for path in there if not path.startswith(modules)])
    return [path for path, rule in rules.items() if not rule.for_good]


def _is_work(wt: Worktree, path: str) -> bool:
    """Say whether there is a file or a link at a path, reached through no link, that is not git's own."""
    parts = PurePosixPath(path).parts
    if ".git" in map(str.casefold, parts) or any(
        (wt.path / folder).is_symlink() for folder in PurePosixPath(path).parents
    ):
        return False
    try:
        mode = (wt.path / path).lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _has_rules(wt: Worktree, paths: Sequence[str]) -> bool:
    """Say whether there may be a rule that ignores any of these files; git is asked only then."""
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    return any(
        map(
            _may_say_something,
            (
                wt.repo.common_dir / "info/exclude",
                persons_file(wt.repo, "core.excludesfile", "ignore"),
                *(wt.path / folder / ".gitignore" for folder in folders),
            ),
        )
    )


_MAX_RULES_BYTES = 1_000_000


def _may_say_something(file: Path) -> bool:
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_RULES_BYTES:
            return True  # git says what is wrong with it
        return any(
            line.strip() and not line.startswith(b"#") for line in file.read_bytes().splitlines()
        )
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def ignored_files(wt: Worktree) -> list[str]:
    """Return the files in the worktree that git ignores.

    A folder of which it ignores all is given alone, with a slash.
    """
    _, out = run_git(
        _looking(wt), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"
    )
    return items_of(out)


def _check_free(path: Path) -> None:
    """Raise UserError unless `path` is unused, or holds only a `.git` file (a killed call of ours)."""
    if path.exists() and {entry.name for entry in path.iterdir()} - {".git"}:
        raise UserError(
            f"{path} is in the way of a new worktree, and git knows nothing of it",
            f"Look at what is in it, then: rm -r '{path}'",
        )


def _head_of(admin: Path) -> str:
    """Return what the HEAD file of a worktree's private git directory says, empty where there is none."""
    with suppress(FileNotFoundError):
        return (admin / "HEAD").read_text("utf-8", "replace").strip()
    return ""


def _check_head(wt: Worktree) -> None:
    """Raise RepositoryChanged unless the worktree is on its branch, or at its commit where it has none."""
    if _head_of(wt.git_dir) == wt.head:
        return
    for place in (wt.repo.common_dir, wt.path):
        if not place.is_dir():
            raise RepositoryChanged(f"{place} was taken away by somebody else")
    raise RepositoryChanged(f"{wt.path} is no longer at {wt.branch or wt.base[:12]}")


def _check_branch(wt: Worktree) -> None:
    """Raise ValueError for a worktree without a branch, which is only for reading."""
    if not wt.branch:
        raise ValueError(f"{wt.path} has no branch: it is only for reading")


def _attach(wt: Worktree, place: Place) -> None:
    """Make the branch at the base, unless it is there and descends from it."""
    try:
        update_ref(place, wt.ref, wt.base, "0" * len(wt.base))
    except RepositoryChanged as error:
        if run_git(place, "merge-base", "--is-ancestor", wt.base, wt.ref, ok=(0, 1))[0] != 0:
            what = f"the branch {wt.branch} exists and does not begin at {wt.base[:12]}"
            raise RepositoryChanged(what) from error


def open_worktree(repo: Repo, path: Path, branch: str, base: str) -> Worktree:
    """Return the worktree that `add_worktree` made.

    Raises RepositoryChanged where it is gone, or elsewhere.
    """
    place = _place_for(repo, path)
    admin = _registered(repo, place)
    if admin is None or not (admin / "index").exists() or not place.is_dir():
        raise RepositoryChanged(f"{place} is no longer a worktree of {repo.path}")
    wt = Worktree(repo, place, admin, branch, base)
    _check_head(wt)
    return wt


def status(wt: Worktree) -> list[FileChange]:
    """Return what differs from the branch's last commit: untracked files too, ignored ones not, no counts."""
    _check_head(wt)
    return _read_status(wt, _inside(wt))[1]


class Writing:
    """The sole right to write in a mission's worktree, as `writing` gives it: look at the changes first, then commit some."""

    def __init__(self, wt: Worktree, place: Place) -> None:
        self._wt, self._place = wt, place
        self._tip = ""
        self._found: list[FileChange] = []

    def changes(self) -> list[str]:
        """Return the paths of what differs from the branch's last commit.

        Raises RepositoryChanged where the branch is gone.
        """
        self._tip, self._found, begun = _since_tip(self._wt, self._place)
        # a killed commit: begin from the last one, so that only what is asked for goes in
        if begun:
            run_git(self._place, "read-tree", "--reset", self._tip)
            self._tip, self._found, _ = _read_status(self._wt, self._place)
        return [change.path for change in self._found]

    def commit(
        self, paths: Collection[str], message: str, author: Author, when: datetime
    ) -> str | None:
        """Commit those of the changes that are among `paths`.

        Return the new commit, None where that is nothing.

        There are no empty commits, and a commit that was made before a crash is not made twice. The
        branch is moved by compare-and-swap. Raises RepositoryChanged where somebody else moved it
        since the changes were looked at, and ToolError `outside_scope` where the commit would
        change more: a file that is put where a folder was takes away what was in it.
        """
        wanted = frozenset(paths)
        chosen = [change for change in self._found if change.path in wanted]
        if not chosen:
            return None
        tree = stage(self._place, chosen)
        differs = items_of(
            run_git(
                self._place, "diff-tree", "-r", "-z", "--name-only", "--no-renames", self._tip, tree
            )[1]
        )
        if not differs:  # other bytes in the folder, the same in a commit: line ends
            return None
        _must_be_chosen(wanted, differs)
        new = write_commit(self._place, tree, self._tip, message, author, when)
        # The branch comes last: a kill before it leaves something staged, from which the next call
        # begins again.
        update_ref(self._place, self._wt.ref, new, self._tip)
        return new


@contextmanager
def writing(wt: Worktree) -> Iterator[Writing]:
    """Hold a mission's worktree for a commit.

    Raises RepositoryChanged where it is no longer on its branch.
    """
    _check_branch(wt)
    with _writing(wt.path) as held:
        _check_head(wt)
        yield Writing(wt, _inside(wt, held))


def _must_be_chosen(chosen: Collection[str], changed: Collection[str]) -> None:
    """Raise ToolError where a commit changes, or deletes, a file that was not chosen for it."""
    if more := sorted(set(changed) - set(chosen)):
        named = ", ".join(map(show, more[:MAX_NAMED])) + (
            f" and {len(more) - MAX_NAMED} more" if len(more) > MAX_NAMED else ""
        )
        raise ToolError(
            "outside_scope",
            f"Nothing was committed: the commit would also change or delete {named}, which the plan "
            "does not allow. Put that back as it was.",
            refused=True,
            paths=[show(path) for path in more[:MAX_NAMED]],
        )


MAX_NAMED = 20
"""Files that an error names."""


def _since_tip(wt: Worktree, place: Place) -> tuple[str, list[FileChange], bool]:
    """Return what `read_status` does. Raises RepositoryChanged where the branch is gone."""
    found = _read_status(wt, place)
    if found[0] == "(initial)":
        raise RepositoryChanged(f"the branch {wt.branch} was deleted by somebody else")
    return found


def must_be_there(wt: Worktree) -> None:
    """Raise RepositoryChanged where the worktree's branch is gone, or it is on another."""
    _check_head(wt)
    if wt.branch and ref_now(wt.repo, wt.ref) is None:
        raise RepositoryChanged(f"the branch {wt.branch} was deleted by somebody else")


def _snapshot(
    wt: Worktree,
    place: Place,
    allow: Callable[[list[str]], object] = list,
    paths: Sequence[str] | None = None,
) -> tuple[str, str]:
    """Return the branch's commit and the tree of everything in the worktree, "" for the commit's own; its index is left alone.

    `paths` are the only files that can have changed, where that is known: git is not asked which then.
    """
    changes: Sequence[FileChange]
    if (
        paths is not None
        and all(_is_plain(wt, path) for path in paths)
        and (at := _tip(wt)) is not None
    ):
        tip, changes = (
            at,
            [FileChange(path, "M" if os.path.lexists(wt.path / path) else "D") for path in paths],
        )
    else:
        tip, changes, _ = _since_tip(wt, place)
    if not changes:
        return tip, ""
    allow([change.path for change in changes])
    index = wt.git_dir / "placet-index"
    # of a git that was ended; there is one writer
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)
    try:
        # With its time: git distrusts an entry as young as the index; a younger copy would hide a
        # change of the same size made within the second of the check-out.
        shutil.copy2(wt.git_dir / "index", index)
        return tip, stage(with_env(place, {"GIT_INDEX_FILE": str(index)}), changes)
    finally:
        index.unlink(missing_ok=True)


def _tip(wt: Worktree) -> str | None:
    """Return the branch's commit, None where there is no branch.

    Raises RepositoryChanged where it is gone.
    """
    must_be_there(wt)
    return ref_now(wt.repo, wt.ref) if wt.branch else None


def _is_plain(wt: Worktree, path: str) -> bool:
    """Say whether git can be told of a path as it is: it is a file's, or nothing is there, and no link leads to it."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return b"\0" not in name and (_is_work(wt, path) or not os.path.lexists(wt.path / path))


def snapshot(wt: Worktree) -> str:
    """Return the tree of everything in the worktree (untracked files too, ignored not), on no reference."""
    with _writing(wt.path) as held:
        _check_head(wt)
        tip, tree = _snapshot(wt, _inside(wt, held))
        return tree or tree_of(wt.repo, tip)


def checkpoint(
    wt: Worktree,
    ref: str,
    message: str,
    when: datetime,
    allow: Callable[[list[str]], object] = list,
    *,
    paths: Sequence[str] | None = None,
) -> str:
    """Keep everything in the worktree (untracked files too, ignored not) as a commit at `ref`.

    Return it.

    The commit is the branch's own where nothing is uncommitted, else a child of it. Branch and
    index stay as they are. `ref` must be `refs/placet/…`, and is moved where it exists. `allow` is
    told the changed paths before; what it raises is raised, and nothing is kept. `paths` are the
    only files that can have changed since the branch's commit, where that is known.
    """
    with _writing(wt.path) as held:
        _check_head(wt)
        return _checkpoint(wt, _inside(wt, held), ref, message, when, allow, paths)


def _checkpoint(
    wt: Worktree,
    place: Place,
    ref: str,
    message: str,
    when: datetime,
    allow: Callable[[list[str]], object] = list,
    paths: Sequence[str] | None = None,
) -> str:
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    tip, tree = _snapshot(wt, place, allow, paths)
    old, new = ref_now(wt.repo, ref) or "0" * len(tip), tip
    if tree:
        form = "--format=%(refname)%00%(objectname)%00%(tree)%00%(parent)%00"
        items = [
            item.lstrip("\n")
            for item in items_of(run_git(place, "for-each-ref", form, wt.ref, ref)[1])
        ]
        known = {
            name: (sha, of, parent)
            for name, sha, of, parent in zip(*(items[n::4] for n in range(4)), strict=True)
        }
        if known.get(ref) == (old, tree, tip):
            return old
        if known.get(wt.ref, ("", "", ""))[:2] != (tip, tree):
            new = write_commit(place, tree, tip, message, BOT, when)
    if new != old:
        update_ref(place, ref, new, old)
    return new


def restore(wt: Worktree, kept: str) -> None:
    """Make the worktree's files those of `kept`, a checkpoint; the branch stays where it is.

    Files that the checkpoint lacks are deleted, ignored ones are not: take a checkpoint first.
    """
    with _writing(wt.path) as held:
        _check_head(wt)
        place = _inside(wt, held)
        run_git(place, "read-tree", "--reset", "-u", kept, timeout_s=BULK_TIMEOUT_S)
        run_git(place, "clean", "-d", "-f", "-f", "-q", timeout_s=BULK_TIMEOUT_S)
        for path in _ignored_by_name(wt, ()):  # of no checkpoint, or made since
            (wt.path / path).unlink()
        run_git(place, "read-tree", "--reset", wt.ref)


def put_back(wt: Worktree, ref: str, paths: Sequence[str]) -> list[str]:
    """Write those of the files that the commit at `ref` has (where it is none: the branch's) as they are there; return which."""
    index = wt.git_dir / "placet-index"
    with _writing(wt.path) as held:
        place = with_env(_inside(wt, held), {"GIT_INDEX_FILE": str(index)})
        try:
            run_git(place, "read-tree", ref_now(wt.repo, ref) or wt.ref)
            known = frozenset(items_of(run_git(place, "ls-files", "-z")[1]))
            back = [path for path in paths if path in known]
            if back:
                run_git(
                    place,
                    "checkout-index",
                    "-f",
                    "-q",
                    "-z",
                    "--stdin",
                    stdin=os.fsencode("\0".join([*back, ""])),
                    timeout_s=BULK_TIMEOUT_S,
                )
        finally:
            index.unlink(missing_ok=True)
    return back


def kept_refs(repo: Repo) -> list[tuple[str, str, datetime]]:
    """Return placet's own references in a repository: name, commit, and when that was made."""
    form = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00"
    _, out = run_git(place_of(repo), "for-each-ref", form, "refs/placet")
    rows = [item.lstrip("\n") for item in items_of(out)]
    return [
        (name, sha, datetime.fromtimestamp(int(at), UTC))
        for name, sha, at in zip(rows[0::3], rows[1::3], rows[2::3], strict=True)
        if at
    ]


def let_go(repo: Repo, ref: str, sha: str) -> bool:
    """Delete one of placet's own references, which is at `sha`, if a branch has all that it keeps.

    Say whether it did.
    """
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    if not contained_in(repo, sha):
        return False
    run_git(neutral(place_of(repo)), "update-ref", "-d", ref, sha)
    return True


def delete_ref(repo: Repo, ref: str, at: str = "") -> None:
    """Delete one of placet's own references; nothing where it is gone already.

    Where `at` is given it raises GitError for one that is not there any more.
    """
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    _remove_ref_lock(repo.common_dir / f"{ref}.lock")
    if ref_now(repo, ref) is not None:
        run_git(neutral(place_of(repo)), "update-ref", "-d", ref, *([at] if at else []))


def _remove_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "placet-index", "placet-index.lock"):
        (wt.git_dir / name).unlink(missing_ok=True)
    for ref in (wt.ref, *refs):
        _remove_ref_lock(wt.repo.common_dir / f"{ref}.lock")


def _remove_ref_lock(lock: Path) -> None:
    """Remove the lock of a reference, once it is so old that no git holds it any more.

    What moves the references of a daemon that was killed ends by itself, but after the move that it
    is at.
    """
    deadline = time.monotonic() + MOVE_S
    with suppress(FileNotFoundError):
        while abs(time.time() - lock.stat().st_mtime) < MOVE_S and time.monotonic() < deadline:
            time.sleep(0.02)
        lock.unlink()


MOVE_S = 2.0
"""More than git needs to move a reference, from taking its lock to the end: milliseconds, and a flush to the disk."""


def clear_stale_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    """Remove lock files that a killed git left: in the worktree's private directory, and of its branch.

    `refs` are further references that are this mission's alone. The caller holds the lease; a git process
    that is still at work is waited for (one that moves a reference, for `MOVE_S`). No lock of the person's is ever touched.
    """
    if not all(ref.startswith("refs/placet/") for ref in refs):
        raise ValueError(f"not references of placet's own: {refs!r}")
    with _writing(wt.path):
        _remove_locks(wt, refs)


def _make(admin: Path) -> None:
    """Make a private git directory.

    Who removes the last worktree of a repository takes their common folder away, at any moment.
    """
    for _ in range(100):
        with suppress(FileExistsError):  # also where it was there, and is not any more
            admin.parent.mkdir()
        with suppress(FileNotFoundError):
            admin.mkdir()
            return
    admin.mkdir()


def _delete(wt: Worktree) -> None:
    """Delete the worktree and what git knows of it; finishes what a killed call began.

    It is first renamed, so that a half-deleted worktree is never taken for a mission's work.
    """
    gone = wt.path.with_name(f"{wt.path.name}.removed")
    delete_tree(gone)
    with suppress(FileNotFoundError):
        wt.path.rename(gone)
    delete_tree(gone)
    if wt.git_dir.is_dir():
        (wt.git_dir / "locked").unlink(missing_ok=True)
        delete_tree(wt.git_dir)
        with suppress(OSError):  # other worktrees are in it
            wt.git_dir.parent.rmdir()
    _lock_path(wt.path).unlink(missing_ok=True)


def remove_worktree(wt: Worktree, kept: str | None = None) -> None:
    """Remove the worktree; the branch stays. Does nothing where it is gone already.

    Raises WorkNotKept where it has uncommitted work, unless the commit (or tree) `kept` holds
    exactly what is in it. Ignored files are deleted with it.
    """
    with _writing(wt.path) as held:
        if wt.path.exists() and (wt.git_dir / "index").exists():
            place = _inside(wt, held)
            if kept is None:
                _, changes, _ = _read_status(wt, place)
                if changes:
                    raise WorkNotKept(wt.path, [change.path for change in changes])
            elif not _is_kept(wt, place, kept):
                raise WorkNotKept(wt.path, [change.path for change in _read_status(wt, place)[1]])
        _delete(wt)


def _is_kept(wt: Worktree, place: Place, kept: str) -> bool:
    """Say whether the commit (or tree) `kept` holds exactly what is in the worktree."""
    tip, tree = _snapshot(wt, place)
    return kept == tip or (tree or tree_of(wt.repo, tip)) == tree_of(wt.repo, kept)


def roll_back(wt: Worktree, keep_ref: str, message: str, when: datetime) -> str | None:
    """Undo a failed attempt: what it did is kept at `keep_ref`, its branch is deleted, its worktree removed.

    Returns the kept commit, None where nothing had been done. `message` is of the commit that holds what was
    uncommitted. Calling it again after a crash finishes the job.
    """
    _check_branch(wt)
    with _writing(wt.path) as held:
        _remove_locks(wt, (keep_ref,))
        kept = resolve(wt.repo, keep_ref)
        if wt.path.exists() and (wt.git_dir / "index").exists():
            place = _inside(wt, held)
            _take_hold(wt, place)
            at, changes, _ = _read_status(wt, place)
            if at != wt.base or kept is not None or changes:
                kept = _checkpoint(wt, place, keep_ref, message, when)
        tip = resolve(wt.repo, wt.ref)
        # the worktree is lost, the commits are not
        if tip is not None and tip != wt.base and kept is None:
            kept = tip
            update_ref(neutral(place_of(wt.repo)), keep_ref, tip, "0" * len(tip))
        _delete(wt)
        if tip is not None:
            run_git(neutral(place_of(wt.repo)), "update-ref", "-d", wt.ref, tip)
    return kept


def take_hold(wt: Worktree) -> None:
    """Put a worktree on its branch again, files and index as they are, where somebody else switched it or deleted the branch."""
    with _writing(wt.path) as held:
        if wt.path.exists() and (wt.git_dir / "index").exists():
            _take_hold(wt, _inside(wt, held))


def _take_hold(wt: Worktree, place: Place) -> None:
    if resolve(wt.repo, wt.ref) is None:
        update_ref(place, wt.ref, wt.base, "0" * len(wt.base))
    (wt.git_dir / "HEAD").write_text(f"{wt.head}\n")


def is_worktree_of(repo: Repo, path: Path) -> bool:
    """Say whether the repository knows a worktree at `path`."""
    return _registered(repo, path.parent.resolve() / path.name) is not None


def forget_lost(repo: Repo, worktrees: Path, live: Collection[str]) -> list[Path]:
    """Take out what git knows of worktrees below `worktrees` whose folders are gone.

    Return those folders.

    Git would count their branches as checked out for ever. `live` are parts of the names of those
    that are still needed.
    """
    gone = []
    for admin, place in list(_worktrees(repo)):
        if (
            place.parent == worktrees.resolve()
            and not os.path.lexists(place)
            and not any(name in place.name for name in live)
        ):
            delete_tree(admin)
            gone.append(place)
    return gone


def remove_leftover(repo: Repo, path: Path, ref: str, when: datetime) -> str:
    """Remove a worktree of ours that a crash left.

    Return the commit, at `ref`, that keeps what was in it, empty for nothing.

    Commits that only its HEAD has are kept too. Raises WorkNotKept where what is in it is not at
    `ref` afterwards.
    """
    place = _place_for(repo, path)
    admin = _registered(repo, place)
    if admin is None:
        raise RepositoryChanged(f"{place} is no longer a worktree of {repo.path}")
    line = (admin / "HEAD").read_text("utf-8", "replace").strip()
    tip = resolve(repo, line.removeprefix("ref: "))
    branch = line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""
    wt = Worktree(repo, place, admin, branch, tip or "")
    if tip is None or not (admin / "index").exists() or not place.exists():
        if place.exists() and any(entry.name != ".git" for entry in place.iterdir()):
            raise WorkNotKept(place, sorted(entry.name for entry in place.iterdir()))
        with _writing(place):
            _delete(wt)
        return ""
    with _writing(place) as held:
        _remove_locks(wt)
        inside = _inside(wt, held)
        _, found, _ = _read_status(wt, inside)
        kept = (
            _checkpoint(wt, inside, ref, "Left over from a crash", when)
            if found or not contained_in(repo, tip)
            else ""
        )
    remove_worktree(wt, kept or None)
    return kept
