"""Test how git's index of a worktree is read and staged."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from gitkit import git, make_repo
from placet.git.checkpoint import save
from placet.git.index import read_status, stage
from placet.git.repository import head, open_repo
from placet.git.run import GitDir, neutral
from placet.git.worktree import add_worktree


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


def test_object_folders_of_shared_repository_are_shared(tmp_path: Path, home: Path) -> None:
    path = make_repo(tmp_path / "repo", {"a": "a\n"})
    git(path, "init", "-q", "--shared=group")
    tree = add_worktree(open_repo(path), tmp_path / "m", "feat/x", head(open_repo(path)))
    for n in range(20):
        (tree.path / f"{n}").write_text(f"{n}\n")
    before = set((path / ".git/objects").iterdir())
    mask = os.umask(0o022)
    try:
        save(tree, "refs/placet/ckpt/m", "m", datetime.now(UTC), lambda _: ())
    finally:
        os.umask(mask)
    made = set((path / ".git/objects").iterdir()) - before
    assert len(made) > 1
    assert {folder.stat().st_mode & 0o2777 for folder in made} == {0o2775}
