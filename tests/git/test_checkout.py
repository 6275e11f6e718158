"""Test that a merge and an undo overwrite no file that a person saves meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gitkit import git, make_repo, write
from placet.errors import PlacetError, UserError
from placet.git import checkout
from placet.git import run as runner
from placet.git.repository import open_repo

pytestmark = pytest.mark.usefixtures("home")

WHEN = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
FILES = {
    "changed.txt": "old\n",
    "deleted.txt": "old\n",
    "other.txt": "old\n",
    ".gitignore": "*.log\n",
}
MISSION = {"changed.txt": "new\n", "added.txt": "new\n", "added.log": "new\n"}
SAVED = "what the PERSON saved\n"


@pytest.fixture
def repo(tmp_path: Path) -> runner.Repo:
    """A checkout of `main`, and a branch `feat` that changes, adds and deletes files."""
    path = make_repo(tmp_path / "repo", FILES)
    git(path, "switch", "-qc", "feat")
    write(path, MISSION)
    (path / "deleted.txt").unlink()
    git(path, "add", "-Af")
    git(path, "commit", "-qm", "the mission")
    git(path, "switch", "-q", "main")
    return open_repo(path)


def merge(repo: runner.Repo) -> str:
    tip = git(repo.path, "rev-parse", "feat")
    checkout.branch_to_change(repo, tip)
    return checkout.merge_into_checkout(repo, "main", tip, "Merge feat", WHEN)


def undo(repo: runner.Repo) -> str:
    checkout.branch_to_change(repo, "HEAD")
    return checkout.revert_in_checkout(repo, "main", ["HEAD"], "Revert feat", WHEN)


def with_merge(repo: runner.Repo) -> None:
    merge(repo)


def nothing(_repo: runner.Repo) -> None:
    pass


def lock_head(repo: runner.Repo) -> None:
    """Let git fail after it has written all files and its index."""
    (repo.git_dir / "HEAD.lock").touch()


@contextmanager
def before_git_call(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` right before git is started for the nth time."""
    starts = itertools.count()
    real = runner.start_git

    def start(*args: Any, **more: Any) -> Any:
        if next(starts) == number:
            act()
        return real(*args, **more)

    with patch.object(runner, "start_git", start), suppress(PlacetError):
        yield


@pytest.mark.parametrize(
    "path", ["changed.txt", "added.txt", "added.log", "deleted.txt", "other.txt"]
)
@pytest.mark.parametrize("fault", [nothing, lock_head])
@pytest.mark.parametrize(("first", "command"), [(nothing, merge), (with_merge, undo)])
def test_no_save_between_git_calls_is_overwritten(
    repo: runner.Repo,
    first: Callable[[runner.Repo], None],
    command: Callable[[runner.Repo], str],
    fault: Callable[[runner.Repo], None],
    path: str,
) -> None:
    first(repo)
    head, saves = git(repo.path, "rev-parse", "HEAD"), 0

    def save() -> None:
        nonlocal saves
        (repo.path / path).write_text(SAVED)
        saves += 1

    for number in itertools.count():
        fault(repo)
        with before_git_call(number, save):
            command(repo)
        (repo.git_dir / "HEAD.lock").unlink(missing_ok=True)
        if saves == number:  # git was started fewer times
            break
        assert (repo.path / path).read_text() == SAVED, f"before call {number} of git"
        git(repo.path, "reset", "-q", "--hard", head)
        git(repo.path, "clean", "-qfdx")
    assert number > 9


def save_around_merge(path: Path, first: str | None, then: str) -> AbstractContextManager[object]:
    """Save a file right before git moves the checkout (`first`), and right after (`then`)."""
    real = checkout.run_git

    def saving(place: runner.GitDir, *args: str, **more: Any) -> tuple[int, bytes]:
        if args[0] != "merge":
            return real(place, *args, **more)
        if first is not None:
            path.write_text(first)
        try:
            return real(place, *args, **more)
        finally:
            path.write_text(then)

    return patch.object(checkout, "run_git", saving)


def test_failed_git_leaves_checkout_as_before(repo: runner.Repo) -> None:
    kept = {name: (repo.path / name).read_text() for name in FILES}
    lock_head(repo)
    with pytest.raises(runner.GitError, match=r"HEAD\.lock"):
        merge(repo)
    (repo.git_dir / "HEAD.lock").unlink()
    assert git(repo.path, "status", "--porcelain", "--ignored") == ""
    assert {name: (repo.path / name).read_text() for name in FILES} == kept


def test_save_in_failed_merge_is_named(repo: runner.Repo) -> None:
    path = repo.path / "changed.txt"
    lock_head(repo)
    with save_around_merge(path, None, SAVED), pytest.raises(UserError) as caught:
        merge(repo)
    assert "These files changed meanwhile: changed.txt." in caught.value.what
    assert "reset" not in caught.value.hint, "it would overwrite the save"
    assert path.read_text() == SAVED
    assert git(repo.path, "status", "--porcelain", "--ignored") == " M changed.txt"


def test_refused_merge_keeps_save_equal_to_its_own(repo: runner.Repo) -> None:
    path = repo.path / "changed.txt"
    with (
        save_around_merge(path, "a draft\n", MISSION["changed.txt"]),
        pytest.raises(runner.GitError, match="would be overwritten"),
    ):
        merge(repo)
    assert path.read_text() == MISSION["changed.txt"]
