"""Run plain git commands: read changes, stage files, write a commit, move a reference."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path

from placet.disk.files import delete_tree
from placet.errors import ToolError, passing
from placet.git.run import (
    BULK_TIMEOUT_S,
    UNFLUSHED,
    Author,
    FileChange,
    GitDir,
    GitError,
    RepositoryChanged,
    items_of,
    run_git,
    text_of,
    with_env,
)

MAX_SEARCHED_BYTES = 16 * 1024 * 1024
"""Maximum size of a file that is searched for secrets; a larger one is not committed."""

Staged = Iterator[tuple[FileChange, bytes | None]]
"""Changes with the content that git will store; None if that cannot be searched."""

Allow = Callable[[Staged], Collection[str]]
"""Judges what is staged: returns the paths to leave out, or raises ToolError."""

MAX_LEFT_OUT = 20
"""If git cannot add more files than this, the files are not the cause."""


def read_status(place: GitDir, untracked: str = "all") -> tuple[str, list[FileChange], bool]:
    """Return HEAD's commit, what differs from it (by path), and whether anything is staged.

    Changes in submodules are ignored, because git would run git in there. A repository inside the
    worktree is listed as its plain files. So a commit holds its content instead of a link to
    nowhere.
    """
    options = ("--porcelain=v2", "-z", "--branch", "--no-ahead-behind", "--no-renames")
    what = (f"--untracked-files={untracked}", "--ignore-submodules=all")
    _, out = run_git(place, "status", *options, *what)
    tip, staged = "", False
    found: dict[str, str] = {}
    for item in items_of(out):
        match item[0]:
            case "#" if item.startswith("# branch.oid "):
                tip = item.removeprefix("# branch.oid ")
            case "#":
                continue
            case "?":
                for path in _files_of(place, item[2:]) if untracked == "all" else [item[2:]]:
                    found[path] = "M" if path in found else "A"
            case "1":
                _, xy, _, was, _, now, _, _, path = item.split(" ", 8)
                staged = staged or xy[0] != "."
                found[path] = _kind(was, now)
            case _:  # unmerged: a merge is in progress in the person's checkout
                staged = True
                found[item.split(" ", 10)[-1]] = "M"
    return tip, [FileChange(path, kind) for path, kind in sorted(found.items())], staged


def _kind(was: str, now: str) -> str:
    """Return the status letter for two octal modes; `000000` means no file."""
    if int(now, 8) == 0:
        return "D"
    if int(was, 8) == 0:
        return "A"
    return "M" if was[:2] == now[:2] else "T"


def _files_of(place: GitDir, path: str) -> list[str]:
    """Return `path`, or the plain files below it if it is a folder, that is a repository inside."""
    if not path.endswith("/"):
        return [path]
    assert place.work_tree is not None
    found: list[str] = []
    for folder, folders, files in os.walk(place.work_tree / path):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [name for name in folders if name.casefold() != ".git"]
        for name in (*files, *links):
            full = Path(folder) / name
            if name.casefold() != ".git" and (full.is_symlink() or full.is_file()):
                found.append(str(full.relative_to(place.work_tree)))
    return found


def stage(place: GitDir, changes: Sequence[FileChange], *, may_vanish: bool = False) -> str:
    """Put these paths, as they are now, into the index; return its tree.

    `may_vanish` is for a folder that people work in: a file that is gone counts as deleted.
    Otherwise that is an error.
    """
    _update_index(place, changes, may_vanish=may_vanish)
    asked = ("write-tree",)
    return text_of(run_git(place, *asked, config=(UNFLUSHED,), timeout_s=BULK_TIMEOUT_S)[1])


def stage_allowed(
    place: GitDir, changes: Sequence[FileChange], tip: str, allow: Allow | None
) -> str:
    """Stage those of these changes that `allow` allows; return the index's tree, "" for none.

    `allow` sees what git will store, which may differ from the files. If it raises, nothing but the
    commit `tip` is staged. Files that cannot be searched are not staged at all.
    """
    if allow is None:
        return stage(place, changes)
    unsearched = {change.path for change in changes if not _is_searchable(place, change)}
    chosen = [change for change in changes if change.path not in unsearched]
    others = ((change, None) for change in changes if change.path in unsearched)
    try:
        with _quarantine(place) as aside:
            tree = stage(aside, chosen)
            left = frozenset(allow(chain(_staged(aside, chosen), others)))
            if not left.isdisjoint(change.path for change in chosen):
                run_git(place, "read-tree", "--reset", tip)
                chosen = [change for change in chosen if change.path not in left]
                tree = stage(aside, chosen)
    except ToolError:
        run_git(place, "read-tree", "--reset", tip)
        raise
    return tree if chosen else ""


@contextmanager
def _quarantine(place: GitDir) -> Iterator[GitDir]:
    """Yield a place with a folder of its own for new objects of a worktree.

    The repository gets them at the end, but not if an error is raised.
    """
    assert place.git_dir is not None
    folder, objects = place.git_dir / "placet-objects", place.git_dir.parents[1] / "objects"
    delete_tree(folder)  # left by a killed git
    folder.mkdir()
    quoted = str(objects).replace("\\", r"\\").replace('"', r"\"")
    env = {"GIT_OBJECT_DIRECTORY": str(folder), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}
    try:
        yield with_env(place, env)
        for made in folder.glob("*/*"):
            target = objects / made.parent.name / made.name
            if not target.parent.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copymode(made.parent, target.parent)  # git's, by core.sharedRepository
            if not target.exists():
                made.rename(target)
    finally:
        delete_tree(folder)


def _is_searchable(place: GitDir, change: FileChange) -> bool:
    """Return whether a changed file may be staged, to be searched.

    A second hard link may be outside of the worktree.
    """
    info = None if change.status == "D" else _info(place, change.path)
    return (
        info is None
        or not stat.S_ISREG(info.st_mode)
        or (info.st_nlink == 1 and info.st_size <= MAX_SEARCHED_BYTES)
    )


def _info(place: GitDir, path: str) -> os.stat_result | None:
    assert place.work_tree is not None
    try:
        return os.lstat(place.work_tree / path)
    except OSError:
        return None  # git reports it


def _staged(place: GitDir, changes: Sequence[FileChange]) -> Staged:
    """Yield the staged changes that are not deletions. One git process reads up to 16 MiB."""
    group, size = list[FileChange](), 0
    for change in changes:
        info = None if change.status == "D" else _info(place, change.path)
        if info is None:
            continue
        if group and size + info.st_size > MAX_SEARCHED_BYTES:
            yield from _contents(place, group)
            group, size = [], 0
        group.append(change)
        size += info.st_size
    if group:
        yield from _contents(place, group)


def _contents(place: GitDir, group: Sequence[FileChange]) -> Staged:
    names = b"".join(b":0:" + os.fsencode(change.path) + b"\0" for change in group)
    # git may store more bytes than the file has, if it converts its encoding
    most = 3 * MAX_SEARCHED_BYTES
    _, out = run_git(place, "cat-file", "--batch", "-z", stdin=names, max_bytes=most)
    at = 0
    for change in group:
        found = _BLOB.match(out, at)
        start = len(out) if found is None else found.end()
        at = start + (0 if found is None else int(found[1])) + 1
        whole = found is not None and at <= len(out) and at - start <= MAX_SEARCHED_BYTES
        yield change, out[start : at - 1] if whole else None


_BLOB = re.compile(rb"[0-9a-f]+ blob (\d+)\n")


def _update_index(
    place: GitDir, changes: Sequence[FileChange], *, config: Sequence[str] = (), may_vanish: bool
) -> None:
    gone = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status == "D")
    here = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status != "D")
    vanishing = ("--remove",) if may_vanish else ()
    # First and by force, because git refuses to look for a deleted file if its folder became a
    # link.
    for paths, options in ((gone, ("--force-remove",)), (here, ("--add", "--replace", *vanishing))):
        if paths:
            asked = ("update-index", *options, "-z", "--stdin")
            settings = (UNFLUSHED, *config)
            run_git(place, *asked, stdin=paths, config=settings, timeout_s=BULK_TIMEOUT_S)


def stage_possible(
    place: GitDir, changes: Sequence[FileChange], *, config: Sequence[str] = ()
) -> list[str]:
    """Stage those of these paths that git can add; return the others, unchanged in the index.

    One file may violate its attributes (`working-tree-encoding`). Then git adds none of the paths.
    Raises GitError if the files are not the cause: the machine is at fault, or more than
    `MAX_LEFT_OUT` files cannot be added.
    """
    left_out: list[str] = []
    pieces = [list(changes)]
    while pieces:
        piece = pieces.pop()
        try:
            _update_index(place, piece, config=config, may_vanish=True)
        except GitError as error:
            if passing(error) or len(left_out) >= MAX_LEFT_OUT:
                raise
            if len(piece) == 1:
                left_out.append(piece[0].path)
            else:
                pieces += [piece[len(piece) // 2 :], piece[: len(piece) // 2]]
    return sorted(left_out)


def write_commit(
    place: GitDir, tree: str, parents: Sequence[str], message: str, who: Author, when: datetime
) -> str:
    """Create a commit of `tree` by this author and committer, on no reference; return it."""
    text = message.encode("utf-8", "replace").replace(b"\0", b"")
    asked = ["commit-tree", *(word for parent in parents for word in ("-p", parent)), tree]
    done = run_git(as_author(place, who, when), *asked, stdin=text, config=(UNFLUSHED,))
    return text_of(done[1])


def as_author(place: GitDir, who: Author, when: datetime) -> GitDir:
    """Return `place` with this author, committer and time for commits made there."""
    named = {"NAME": who.name, "EMAIL": who.email, "DATE": f"@{int(when.timestamp())} +0000"}
    roles = ("AUTHOR", "COMMITTER")
    return with_env(
        place, {f"GIT_{role}_{what}": value for role in roles for what, value in named.items()}
    )


def update_ref(place: GitDir, ref: str, new: str, old: str = "") -> None:
    """Move `ref` from `old` (zeros: must not exist; empty: wherever it is) to `new`.

    Raises RepositoryChanged if it is somewhere else.
    """
    try:
        run_git(place, "update-ref", "-m", "placet", ref, new, *([old] if old else []))
    except GitError as error:
        _find_fault(error)
        _, out = run_git(place, "for-each-ref", "--format=%(objectname)", ref)
        now = text_of(out) or "0" * len(new)
        # git had moved it before it was killed or could not write its reference log
        if now == new and (passing(error) or old != "0" * len(new)):
            return
        if old and now != old:
            raise RepositoryChanged(f"{ref} was moved by another program") from error
        raise


def _find_fault(error: GitError) -> None:
    """Set `errno` if git could not create a folder although it had permission."""
    for path in re.findall(r"unable to create directory for (.+)", error.stderr):
        above = next((folder for folder in Path(path).parents if folder.is_dir()), None)
        if above is not None and os.access(above, os.W_OK | os.X_OK):
            error.errno = error.errno or errno.EIO
