"""Create, open and lock a mission's worktree."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from placet.disk.files import FileLock, delete_tree
from placet.disk.real_path import real_path
from placet.errors import Interrupted, UserError
from placet.git.index import update_ref
from placet.git.repository import missing_files, one_at_a_time, private_dirs
from placet.git.run import (
    BULK_TIMEOUT_S,
    CALL_TIMEOUT_S,
    GitDir,
    GitError,
    Repo,
    RepositoryChanged,
    configured,
    neutral,
    place_of,
    run_git,
)


def lock_path(path: Path) -> Path:
    """Return the lock file of the worktree at `path`."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def holding(path: Path) -> Iterator[int]:
    """Hold the lock of the worktree at `path`; yield its descriptor, which git processes inherit.

    If the daemon dies, its git process keeps the lock until it ends. Raises UserError after
    `CALL_TIMEOUT_S`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # FileLock creates the file again if its last holder removed it with the worktree.
    with ExitStack() as stack:
        try:
            held = stack.enter_context(FileLock(lock_path(path), CALL_TIMEOUT_S))
        except BlockingIOError as error:
            raise UserError(
                f"another git process has been working in {path} for {CALL_TIMEOUT_S:g} s",
                f"See which: fuser '{lock_path(path)}'",
            ) from error
        yield held.handle


def remove_ref_lock(at: Path) -> None:
    """Remove the lock of a reference once it is too old for any git to hold it.

    A git process of a killed daemon ends by itself, but only after its current move.
    """
    deadline = time.monotonic() + MOVE_S
    with suppress(FileNotFoundError):
        while abs(time.time() - at.stat().st_mtime) < MOVE_S and time.monotonic() < deadline:
            time.sleep(0.02)
        at.unlink()


MOVE_S = 2.0
"""Longer than git needs to move a reference, which is milliseconds and a flush to disk."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A mission's own worktree.

    `git_dir` is its private directory under `common_dir/worktrees`. It is stored here and never
    read from the `.git` file in the worktree, which a mission could replace. `base` is the commit
    it started at. With an empty `branch` it is detached at `base` and only read. Plans are written
    from such a worktree.
    """

    repo: Repo
    path: Path
    git_dir: Path
    branch: str
    base: str

    @property
    def ref(self) -> str:
        """The branch as a full reference name, or the base commit if there is no branch."""
        return f"refs/heads/{self.branch}" if self.branch else self.base

    @property
    def head(self) -> str:
        """The required content of its HEAD file."""
        return f"ref: {self.ref}" if self.branch else self.base

    @property
    def has_index(self) -> bool:
        """Whether the worktree exists and was once complete."""
        return self.path.exists() and (self.git_dir / "index").exists()

    def must_have_branch(self) -> None:
        """Raise ValueError for a read-only worktree, which has no branch."""
        if not self.branch:
            raise ValueError(f"{self.path} has no branch: it is only for reading")


BY_NAME = "placet-by-name"
"""The file in the private directory that lists the paths a person approved by name.

They count as work even if git ignores them.
"""
BROUGHT = "placet-brought"
"""The file there that lists what placet brought from the checkout: it is never work."""

# The index of placet's worktrees is one complete file, whatever the person has configured. With
# `core.safecrlf` git refuses each file whose line ends a check-out would change.
_SETTINGS = (
    ("core.splitIndex", "false"),
    ("core.untrackedCache", "false"),
    ("index.sparse", "false"),
    ("core.sparseCheckout", "false"),
    ("core.safecrlf", "false"),
)


def query_place(wt: Worktree) -> GitDir:
    """Return the place for questions about index, rules and attributes, which run no driver."""
    return GitDir(wt.git_dir, wt.path, wt.path, wt.repo.on_call)


def git_dir_of_worktree(wt: Worktree, held: int | None = None) -> GitDir:
    """Return the place for work in the worktree, with its drivers switched off."""
    return configured(neutral(replace(query_place(wt), held=held)), _SETTINGS)


def registered(repo: Repo, path: Path) -> Path | None:
    """Return the private git directory that the repository has for the worktree at `path`."""
    return next((admin for admin, place in known_worktrees(repo) if place == path), None)


def known_worktrees(repo: Repo) -> Iterator[tuple[Path, Path]]:
    """Yield the private git directory and the folder of each worktree that is not broken."""
    for admin in private_dirs(repo):
        with suppress(OSError):
            pointer = os.fsdecode((admin / "gitdir").read_bytes()).rstrip("\n")
            yield admin, Path(pointer.removesuffix("/.git"))


def place_for(repo: Repo, path: Path) -> Path:
    """Return the real path of a worktree at `path`. Raises UserError if it is unsafe."""
    place = real_path(path.parent) / path.name
    within = [place.is_relative_to(repo.git_dir), place.is_relative_to(repo.common_dir)]
    if any(within) or (not repo.is_bare and place.is_relative_to(repo.path)):
        raise UserError(
            f"a worktree cannot be inside its own repository: {place}",
            "Set PLACET_STATE_HOME to a folder outside of it.",
            exit_code=2,
        )
    if place.is_symlink():
        raise UserError(
            f"{place} is a symbolic link, not a folder", f"Look at it, then: rm '{place}'"
        )
    return place


def _make(wt: Worktree, held: int) -> Worktree:
    """Create the worktree, detached at its base and without files; return it.

    The result has its private folder. It gets its branch after placet has read its configuration,
    because `includeIf` may depend on the branch.
    """
    place = replace(neutral(place_of(wt.repo)), held=held)
    asked = ("worktree", "add", "--no-checkout", "--detach", str(wt.path), wt.base)
    # `known_worktrees` needs absolute paths. The person's sparse patterns do not apply to the
    # mission.
    config = ("worktree.useRelativePaths=false", "core.sparseCheckout=false")
    with one_at_a_time(wt.repo):  # git fails if another worktree is half created
        run_git(place, *asked, config=config)
    admin = registered(wt.repo, wt.path)
    assert admin is not None
    return replace(wt, git_dir=admin)


def add_worktree(
    repo: Repo,
    path: Path,
    branch: str,
    base: str,
    *,
    by_name: Sequence[str] = (),
    resumed: bool = False,
) -> Worktree:
    """Create `branch` at the commit `base` and check it out at `path`, or finish a killed call.

    The caller holds the mission's lease. `path` is in the state folder, and its last part is the
    mission's own. An existing branch must descend from `base`. A complete worktree is left as it
    is, with its work. An empty `branch` creates none: the worktree is detached at `base`, to be
    read and then removed. If such a worktree is at another commit, it is created again. `by_name`
    are files that are committed although git ignores them, because a person approved them by name.
    `resumed`: the mission had this worktree. If git has lost its half of it, the files stay.
    Raises UserError if `path` is taken or unsafe, and RepositoryChanged if it belongs to something
    else.
    """
    good_branch = not branch or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", branch)
    if not good_branch or not re.fullmatch(r"[0-9a-f]{40,64}", base):
        raise ValueError(f"not a branch and a commit that placet makes: {branch!r}, {base!r}")
    path = place_for(repo, path)
    with holding(path) as held:
        admin = registered(repo, path)
        wt = Worktree(repo, path, admin or path, branch, base)
        rest = path.with_name(f"{path.name}.rest")
        is_whole = admin is not None and wt.has_index
        has_files = path.is_dir() and any(path.iterdir())
        if resumed and has_files and not is_whole and not rest.exists():
            path.rename(rest)
        if rest.exists():
            wt = _rejoined(wt, rest, held)
            admin = wt.git_dir
        if admin is not None and not (wt.has_index and (branch or _head_of(admin) == base)):
            # a killed call left no index, which comes last; or it is read-only at another commit
            _clear(wt)
            admin = None
        if admin is None:
            if path.exists() and any(path.iterdir()) and branch:
                raise UserError(
                    f"{path} is in the way of a new worktree, and git knows nothing of it",
                    f"Look at what is in it, then: rm -r '{path}'",
                )
            _clear(wt)  # a folder that was only read from
            wt = _make(wt, held)
            _check_out(wt, held)
        must_be_on_branch(wt)
        if by_name:
            (wt.git_dir / BY_NAME).write_bytes(os.fsencode("\0".join(by_name)))
    return wt


def _rejoined(wt: Worktree, rest: Path, held: int) -> Worktree:
    """Return the worktree made again, with the files of `rest`: git had lost its half of it.

    Finishes a killed call.
    """
    is_made = wt.git_dir != wt.path and (wt.git_dir / "index").exists()
    if not is_made or os.path.lexists(wt.path / ".git"):
        _clear(wt)
        wt = _make(wt, held)
        _check_out(wt, held)
        if (rest / ".git").is_dir() and not (rest / ".git").is_symlink():
            delete_tree(rest / ".git")  # a command made it
        (wt.path / ".git").rename(rest / ".git")
    delete_tree(wt.path)
    rest.rename(wt.path)
    return wt


def _check_out(wt: Worktree, held: int) -> None:
    """Put a new worktree on its branch, and its files into it."""
    remove_locks(wt)
    try:
        if wt.branch:
            _attach(wt, git_dir_of_worktree(wt, held))
        place = git_dir_of_worktree(wt, held)  # again, because it is on the branch now
        run_git(place, "read-tree", "--reset", "-u", wt.ref, timeout_s=BULK_TIMEOUT_S)
    except (Interrupted, GitError) as error:
        if not wt.branch:  # nobody resumes a read-only worktree
            delete(wt)
        if isinstance(error, GitError) and (missing := missing_files(wt.repo, wt.base)) is not None:
            raise missing from error
        raise


def _head_of(admin: Path) -> str:
    with suppress(FileNotFoundError):
        return (admin / "HEAD").read_text("utf-8", "replace").strip()
    return ""


def must_be_on_branch(wt: Worktree) -> None:
    """Raise RepositoryChanged unless the worktree is on its branch, or at its commit."""
    if _head_of(wt.git_dir) == wt.head:
        return
    for place in (wt.repo.common_dir, wt.path):
        if not place.is_dir():
            raise RepositoryChanged(f"{place} was removed by another program")
    raise RepositoryChanged(f"{wt.path} is no longer at {wt.branch or wt.base[:12]}")


def _attach(wt: Worktree, place: GitDir) -> None:
    """Put HEAD on the branch. Create it at the base, unless it exists and descends from it."""
    try:
        update_ref(place, wt.ref, wt.base, "0" * len(wt.base))
    except RepositoryChanged as error:
        if run_git(place, "merge-base", "--is-ancestor", wt.base, wt.ref, ok=(0, 1))[0] != 0:
            what = f"the branch {wt.branch} exists and does not begin at {wt.base[:12]}"
            raise RepositoryChanged(what) from error
    run_git(place, "symbolic-ref", "HEAD", wt.ref)


def open_worktree(repo: Repo, path: Path, branch: str, base: str) -> Worktree:
    """Return the worktree that `add_worktree` made; RepositoryChanged if it is gone or moved."""
    place = place_for(repo, path)
    admin = registered(repo, place)
    if admin is None or not (admin / "index").exists() or not place.is_dir():
        raise RepositoryChanged(f"{place} is no longer a worktree of {repo.path}")
    wt = Worktree(repo, place, admin, branch, base)
    must_be_on_branch(wt)
    return wt


def remove_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    """Remove the locks of a held worktree, its branch and these references."""
    for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "placet-index", "placet-index.lock"):
        (wt.git_dir / name).unlink(missing_ok=True)
    for ref in (wt.ref, *refs):
        remove_ref_lock(wt.repo.common_dir / f"{ref}.lock")


def clear_stale_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    """Remove the lock files that a killed git left in the private directory and for the branch.

    `refs` are further references that belong only to this mission. The caller holds the lease. This
    waits for a git process that is still running, or for `MOVE_S` if it moves a reference. It never
    touches a lock of the person's.
    """
    if not all(ref.startswith("refs/placet/") for ref in refs):
        raise ValueError(f"not references of placet's own: {refs!r}")
    with holding(wt.path):
        remove_locks(wt, refs)


def delete(wt: Worktree) -> None:
    """Delete the worktree and git's data about it, or finish a killed call.

    It is renamed first, so that a half-deleted worktree never looks like a mission's work.
    """
    _clear(wt)
    lock_path(wt.path).unlink(missing_ok=True)


def _clear(wt: Worktree) -> None:
    """Delete the worktree, but not its lock, which the caller still holds."""
    removed_path = wt.path.with_name(f"{wt.path.name}.removed")
    delete_tree(removed_path)
    with suppress(FileNotFoundError):
        wt.path.rename(removed_path)
    delete_tree(removed_path)
    if wt.git_dir.is_dir():
        (wt.git_dir / "locked").unlink(missing_ok=True)
        with one_at_a_time(wt.repo):
            delete_tree(wt.git_dir)
            with suppress(OSError):  # it contains other worktrees
                wt.git_dir.parent.rmdir()
