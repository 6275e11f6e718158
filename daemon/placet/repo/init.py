"""A folder becomes a repository, with a first commit.

Of a vault only what is text, and so much of it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from placet.core.wording import counted, megabytes
from placet.disk.files import delete_tree
from placet.errors import PlacetError, UserError
from placet.git.index import read_status, stage, stage_possible, update_ref, write_commit
from placet.git.repository import KEPT_MARK, identity, is_repository, open_repo, resolve
from placet.git.run import Place, run_git, text_of
from placet.repo.places import Repo, neutral, place_of, with_env
from placet.repo.sizes import INIT_FOLDER, Size, exclude, size_of, split, without_large
from placet.repo.values import Author, FileChange, OnCall

_BATCH_BYTES = 8_000_000
_SAY_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a first commit. `say` is told how far it is, once a second."""

    max_bytes: int
    max_files: int | None = None
    say: Callable[[str], None] = lambda _: None


class TooMuch(PlacetError):  # noqa: N818 - named for what is the case
    """A first commit would hold more than its allowance; nothing was begun."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            f"{counted(size.files, 'file')} with {counted(size.bytes, 'byte')}: too much for a "
            "first commit"
        )
        self.size = size


def init_repo(
    path: Path,
    *,
    excludes: Sequence[str],
    message: str,
    when: datetime,
    author: Author | None = None,
    on_call: OnCall | None = None,
    allowance: Allowance | None = None,
) -> tuple[Repo, str]:
    """Make `path` a repository with a first commit of its files; return it with that commit.

    The commit is the person's, as git is set there, where no `author` is given.

    `excludes` are gitignore patterns that go into `.git/info/exclude` and stay out of the commit. A
    repository that has commits is returned as it is. A new one is built aside (`.placet-init`) and
    put in place whole by one rename; so a killed call leaves either nothing or all of it, and the
    next call begins again. With `allowance` it is a vault's: large files are left out too, and the
    repository is marked as kept by placet (`is_kept`). Raises TooMuch where it is exceeded,
    UserError where there is a repository without a commit but with staged files: that commit is the
    person's to make.
    """
    top = path.resolve()
    if any("\n" in line for line in excludes):
        raise ValueError("a pattern to exclude is one line")
    building = top / INIT_FOLDER
    if building.is_dir() and not building.is_symlink():
        delete_tree(building)
    if is_repository(top):
        repo = open_repo(top, on_call=on_call)
        sha = resolve(repo, "HEAD")
        if sha is None:
            if repo.is_bare:
                raise UserError(
                    f"{top} is a bare repository without a commit", "Push a first commit to it."
                )
            sha = _first_commit(repo, excludes, author or identity(repo), message, when, allowance)
        else:
            _put_index(repo)
        return repo, sha
    building.mkdir()
    made = _begin(top, building, on_call)
    if allowance is not None:
        run_git(place_of(made), "config", "--file", str(made.git_dir / "config"), KEPT_MARK, "true")
    try:
        sha = _first_commit(made, excludes, author or identity(made), message, when, allowance)
    except TooMuch:
        delete_tree(building)
        raise
    made.git_dir.rename(top / ".git")
    building.rmdir()
    return open_repo(top, on_call=on_call), sha


def _begin(top: Path, building: Path, on_call: OnCall | None) -> Repo:
    outside = Place(None, None, building, on_call)
    _, out = run_git(outside, "config", "--get", "init.defaultBranch", ok=(0, 1))
    branch = text_of(out) or "main"
    run_git(
        outside,
        "init",
        "-q",
        "--template=",
        f"--initial-branch={branch}",
        "--",
        str(building),
        config=("init.defaultRefFormat=files",),
    )  # not a reftable, which `open_repo` refuses
    return Repo(
        top, building / ".git", building / ".git", is_bare=False, is_shallow=False, on_call=on_call
    )


def survey(path: Path, excludes: Sequence[str]) -> Size:
    """Return what the history of a folder that has none would hold; nothing is written in it."""
    top = path.resolve()
    with tempfile.TemporaryDirectory(prefix="placet-") as folder:
        repo = _begin(top, Path(folder), None)
        exclude(repo, excludes)
        _, found, _ = read_status(neutral(Place(repo.git_dir, top, top, None)))
        return size_of(top, split(top, [change.path for change in found])[0], excludes)


def _first_commit(
    repo: Repo,
    excludes: Sequence[str],
    author: Author,
    message: str,
    when: datetime,
    allowance: Allowance | None,
) -> str:
    place = Place(repo.git_dir, repo.path, repo.path, repo.on_call)
    if run_git(place, "ls-files", "-z")[1]:
        raise UserError(
            f"{repo.path} has staged files but no commit yet",
            f"Finish it: git -C '{repo.path}' commit",
        )
    exclude(repo, excludes)
    index = repo.git_dir / "placet-index"
    for left in (index, index.with_name("placet-index.lock")):
        left.unlink(missing_ok=True)
    place = with_env(neutral(place), {"GIT_INDEX_FILE": str(index)})
    run_git(place, "read-tree", "--empty")
    _, found, _ = read_status(place)
    found = [change for change in found if not change.path.startswith(f"{INIT_FOLDER}/")]
    tree = (
        stage(place, found, may_vanish=True)
        if allowance is None
        else _stage_within(repo, place, found, excludes, allowance)
    )
    sha = write_commit(place, tree, (), message, author, when)
    update_ref(place, "HEAD", sha, "0" * len(sha))
    _put_index(repo)
    return sha


def _stage_within(
    repo: Repo,
    place: Place,
    found: Sequence[FileChange],
    excludes: Sequence[str],
    allowance: Allowance,
) -> str:
    """Stage a vault's files, a piece at a time, into few packs; return the tree.

    Raises TooMuch before anything is stored.
    """
    kept, _ = split(repo.path, [change.path for change in found])
    total = sum(kept.values())
    if total > allowance.max_bytes or (
        allowance.max_files is not None and len(kept) > allowance.max_files
    ):
        raise TooMuch(size_of(repo.path, kept, excludes))
    found = without_large(repo, found)
    allowance.say(
        f"A history (git) of the vault begins, in {repo.path / '.git'}: "
        f"{counted(len(found), 'file')}, {megabytes(total)}."
    )
    batch, size, done, said = list[FileChange](), 0, 0, time.monotonic()
    for number, change in enumerate(found, 1):
        batch.append(change)
        size += kept.get(change.path, 0)
        if size >= max(_BATCH_BYTES, total // 50) or number == len(found):
            # Git would write each file into one of its own and flush it: what it takes for large
            # goes into one pack. the rest the next call tries, and tells
            stage_possible(place, batch, config=("core.bigFileThreshold=1",))
            done, batch, size = done + size, [], 0
            if time.monotonic() - said >= _SAY_EVERY_S and number < len(found):
                said = time.monotonic()
                allowance.say(
                    f"The vault's history: {number:,} of {counted(len(found), 'file')}, "
                    f"{done / 1e6:.1f} of {megabytes(total)}."
                )
    return stage(place, [])


def _put_index(repo: Repo) -> None:
    """Give the first commit its index, where a call of ours was killed before it could."""
    made, index = repo.git_dir / "placet-index", repo.git_dir / "index"
    if made.exists() and not index.exists():
        made.rename(index)
    made.unlink(missing_ok=True)
