"""Test worktrees that cannot be made, and names that are taken."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.git.test_commit import failing

from gitkit import git, make_repo
from placet.git import repository, worktree
from placet.git import run as runner

pytestmark = pytest.mark.usefixtures("home")


WHEN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_failed_worktree_creation_leaves_nothing(tmp_path: Path) -> None:
    repo = repository.open_repo(make_repo(tmp_path / "theirs"))
    place, base = tmp_path / "plan", repository.head(repo)
    lock = repo.common_dir / "worktrees/plan/index.lock"
    with failing(tmp_path, "write", lock), pytest.raises(runner.GitError, match="write error"):
        worktree.add_worktree(repo, place, "", base)
    assert not place.exists()
    assert worktree.registered(repo, place) is None


@pytest.mark.parametrize("packed", [False, True])
def test_packed_branch_name_counts_as_taken(tmp_path: Path, packed: bool) -> None:
    path = make_repo(tmp_path / "theirs")
    git(path, "branch", "feat/x-1")
    if packed:
        git(path, "pack-refs", "--all")
    repo = repository.open_repo(path)
    found = repository.all_refs(repo)
    assert found.free_branch("x", "1", WHEN) == "feat/x-1-20261121120000"
