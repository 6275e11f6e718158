"""A folder becomes a repository, with a first commit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from placet.core.errors import UserError
from placet.repo.differences import read_status
from placet.repo.mover import update_ref
from placet.repo.repository import identity, is_repository, open_repo, resolve
from placet.repo.runner import Author, OnCall, Place, Repo, neutral, run_git, text_of, with_env
from placet.repo.staging import stage
from placet.repo.store import write_commit
from placet.repo.worktrees import delete_tree

_INIT_FOLDER = ".placet-init"


def init_repo(
    path: Path, *, excludes: Sequence[str], message: str, when: datetime, author: Author | None = None,
    on_call: OnCall | None = None,
) -> tuple[Repo, str]:
    """Make `path` a repository with an initial commit of what is there, and return it with that commit.

    The commit is the person's, as git is set there, where no `author` is given.

    `excludes` are gitignore patterns that go into `.git/info/exclude` and stay out of the commit. A
    repository that has commits is returned as it is. A new one is built aside (`.placet-init`) and put in
    place whole by one rename; so a killed call leaves either nothing or all of it, and the next call begins
    again. Raises UserError where there is a repository without a commit but with staged files: that commit is
    the person's to make.
    """
    top = path.resolve()
    if any("\n" in line for line in excludes):
        raise ValueError("a pattern to exclude is one line")
    building = top / _INIT_FOLDER
    if building.is_dir() and not building.is_symlink():
        delete_tree(building)
    if is_repository(top):
        repo = open_repo(top, on_call=on_call)
        sha = resolve(repo, "HEAD")
        if sha is None:
            if repo.is_bare:
                raise UserError(f"{top} is a bare repository without a commit", "Push a first commit to it.")
            sha = _first_commit(repo, excludes, author or identity(repo), message, when)
        else:
            _put_index(repo)
        return repo, sha
    building.mkdir()
    outside = Place(None, None, building, on_call)
    _, out = run_git(outside, "config", "--get", "init.defaultBranch", ok=(0, 1))
    branch = text_of(out) or "main"
    run_git(outside, "init", "-q", "--template=", f"--initial-branch={branch}", "--", str(building),
            config=("init.defaultRefFormat=files",))  # not a reftable, which `open_repo` refuses
    made = Repo(top, building / ".git", building / ".git", is_bare=False, is_shallow=False, on_call=on_call)
    sha = _first_commit(made, excludes, author or identity(made), message, when)
    made.git_dir.rename(top / ".git")
    building.rmdir()
    return open_repo(top, on_call=on_call), sha


def _first_commit(repo: Repo, excludes: Sequence[str], author: Author, message: str, when: datetime) -> str:
    """Commit what is there as the repository's first commit, and return it."""
    place = Place(repo.git_dir, repo.path, repo.path, repo.on_call)
    if run_git(place, "ls-files", "-z")[1]:
        raise UserError(
            f"{repo.path} has staged files but no commit yet", f"Finish it: git -C '{repo.path}' commit",
        )
    exclude = repo.common_dir / "info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    present = exclude.read_bytes() if exclude.exists() else b""
    missing = [os.fsencode(line) for line in excludes if os.fsencode(line) not in present.splitlines()]
    if missing:
        new = exclude.with_name("exclude.placet")
        joint = b"" if not present or present.endswith(b"\n") else b"\n"
        new.write_bytes(present + joint + b"\n".join(missing) + b"\n")
        new.replace(exclude)
    index = repo.git_dir / "placet-index"
    for left in (index, index.with_name("placet-index.lock")):
        left.unlink(missing_ok=True)
    place = with_env(neutral(place), {"GIT_INDEX_FILE": str(index)})
    run_git(place, "read-tree", "--empty")
    _, found, _ = read_status(place)
    tree = stage(place, [change for change in found if not change.path.startswith(f"{_INIT_FOLDER}/")])
    sha = write_commit(repo.common_dir / "objects", tree, None, message, author, when)
    update_ref(place, "HEAD", sha, "0" * len(sha))
    _put_index(repo)
    return sha


def _put_index(repo: Repo) -> None:
    """Give the first commit its index, where a call of ours was killed before it could."""
    made, index = repo.git_dir / "placet-index", repo.git_dir / "index"
    if made.exists() and not index.exists():
        made.rename(index)
    made.unlink(missing_ok=True)
