"""Test how git's index of a worktree is read and staged."""

from __future__ import annotations

from pathlib import Path

from gitkit import git, make_repo
from placet.git.index import read_status, stage
from placet.git.repository import open_repo
from placet.git.run import GitDir, neutral


def test_status_names_new_changed_and_deleted_files(tmp_path: Path, home: Path) -> None:
    path = make_repo(tmp_path / "repo", {"changed": "a\n", "deleted": "b\n"})
    (path / "changed").write_text("c\n")
    (path / "deleted").unlink()
    (path / "new").write_text("d\n")
    repo = open_repo(path)
    place = neutral(GitDir(repo.git_dir, repo.path, repo.path, repo.on_call))
    _, changes, _ = read_status(place)
    assert {one.path: one.status for one in changes} == {
        "changed": "M",
        "deleted": "D",
        "new": "A",
    }
    tree = stage(place, changes)
    assert git(path, "ls-tree", "--name-only", tree).split() == ["changed", "new"]
