"""Test what placet reads from the history of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitkit import commit_all, git, make_repo, settle_home, write
from placet.git import history
from placet.git.repository import open_repo
from placet.git.run import Repo


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", {"a.txt": "1\n2\n", "gone.txt": "x\n", "é b.txt": "é\n"})


@pytest.fixture
def repo(folder: Path) -> Repo:
    return open_repo(folder)


def at(folder: Path, rev: str = "HEAD") -> str:
    return git(folder, "rev-parse", rev)


def test_changes_name_status_lines_and_link(folder: Path, repo: Repo) -> None:
    base = at(folder)
    write(folder, {"a.txt": "1\n2\n3\n", "blob": b"\0\1", "é b.txt": "e\n"})
    (folder / "gone.txt").unlink()
    (folder / "link").symlink_to("a.txt")
    commit_all(folder, "Change")
    found = {
        one.path: (one.status, one.added, one.deleted, one.link)
        for one in history.changes(repo, base, at(folder))
    }
    assert found == {
        "a.txt": ("M", 1, 0, ""),
        "blob": ("A", None, None, ""),
        "gone.txt": ("D", 0, 1, ""),
        "link": ("A", 1, 0, "a.txt"),
        "é b.txt": ("M", 1, 1, ""),
    }


def test_log_keeps_messages_and_parents(folder: Path, repo: Repo) -> None:
    first = at(folder)
    git(folder, "commit", "-q", "--allow-empty", "-m", "Second\n\nA body.\n\nKey: value")
    newest, oldest = history.log(repo, "HEAD")
    assert (newest.sha, newest.parents, newest.subject) == (at(folder), (first,), "Second")
    assert newest.message.rstrip().endswith("Key: value")
    assert (oldest.sha, oldest.parents) == (first, ())


def test_patch_contains_smaller_patch_of_same_lines(folder: Path, repo: Repo) -> None:
    base = at(folder)
    write(folder, {"a.txt": "1\n2\n3\n"})
    commit_all(folder, "One line")
    small = history.file_patches(repo, at(folder))["a.txt"]
    write(folder, {"a.txt": "1\n2\n3\n4\n"})
    commit_all(folder, "Another")
    both = history.file_patches(repo, at(folder), base)["a.txt"]
    assert small in both
    assert both not in small
    assert (small.size, both.size, both.common(small)) == (1, 2, 1)
    assert small + history.file_patches(repo, at(folder))["a.txt"] == both
    assert both.reversed.gone == both.come


def test_merge_that_brought_commit_is_found(folder: Path, repo: Repo) -> None:
    git(folder, "checkout", "-q", "-b", "work")
    write(folder, {"new.txt": "n\n"})
    commit_all(folder, "Work")
    tip = at(folder)
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "--no-edit", "work")
    merge = at(folder)
    write(folder, {"later.txt": "l\n"})
    commit_all(folder, "Later")
    assert history.merged_by(repo, tip, "main") == merge
    assert history.merged_by(repo, merge, "main") == merge
    assert history.ahead_behind(repo, "main", "work") == (2, 0)
    assert history.is_ancestor(repo, tip, "main")
    assert history.refs_with(repo, merge) == ["refs/heads/main"]
    assert history.touched_by(repo, tip) == {"new.txt"}


def test_preview_of_conflict_changes_nothing(folder: Path, repo: Repo) -> None:
    git(folder, "checkout", "-q", "-b", "work")
    write(folder, {"a.txt": "mine\n"})
    commit_all(folder, "Mine")
    git(folder, "checkout", "-q", "main")
    write(folder, {"a.txt": "yours\n", "gone.txt": "y\n"})
    commit_all(folder, "Yours")
    assert history.merge_preview(repo, "main", "work") == ["a.txt"]
    assert git(folder, "status", "--porcelain") == ""


def test_missing_file_of_commit_is_empty(folder: Path, repo: Repo) -> None:
    assert history.content(repo, "HEAD", "a.txt", max_bytes=2) == b"1\n"
    assert history.content(repo, "HEAD", "nothing.txt", max_bytes=9) == b""
    assert history.digests_at(repo, "HEAD", ["a.txt", "nothing.txt"]).keys() == {"a.txt"}
