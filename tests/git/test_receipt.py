"""Test that a receipt is one commit, and that commits are read as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitkit import commit_all, git, make_repo, write
from placet.git.receipt import (
    RECEIPTS,
    changes_between,
    is_older,
    parents_in,
    receipt_files,
    write_receipt,
)
from placet.git.repository import open_repo
from placet.git.run import GitError, Repo

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
REF = f"{RECEIPTS}550e8400-1"
FILES = {"receipt.json": b"{}\n", "plan-1.md": b"\xff plan \r\n"}


@pytest.fixture
def folder(tmp_path: Path, home: None) -> Path:
    return make_repo(tmp_path / "repo", {"a.txt": "a\n"})


@pytest.fixture
def repo(folder: Path) -> Repo:
    return open_repo(folder)


def at(folder: Path, rev: str = "HEAD") -> str:
    return git(folder, "rev-parse", rev)


def test_receipt_is_child_of_tip(folder: Path, repo: Repo) -> None:
    write_receipt(repo, REF, at(folder), FILES, "Receipt", WHEN)
    assert at(folder, f"{REF}^@") == at(folder)
    assert receipt_files(repo, REF) == FILES
    assert git(folder, "log", "-1", "--format=%an %aI", REF).startswith("placet 2026-01-02")
    assert git(folder, "status", "--porcelain") == ""


def test_receipt_written_again_is_the_same(folder: Path, repo: Repo) -> None:
    for _ in range(2):
        write_receipt(repo, REF, at(folder), FILES, "Receipt", WHEN)
    first = at(folder, REF)
    write_receipt(repo, REF, at(folder), {"receipt.json": b"new"}, "Receipt", WHEN)
    assert first != at(folder, REF)
    assert git(folder, "for-each-ref", "--format=%(refname)", RECEIPTS) == REF


def test_folder_in_a_receipt_is_not_looked_into(folder: Path, repo: Repo) -> None:
    tree = git(folder, "mktree", stdin=b"")
    for _ in range(6):  # 200 ** 6 folders
        rows = "".join(f"040000 tree {tree}\t{number}\n" for number in range(200))
        tree = git(folder, "mktree", stdin=rows.encode())
    with pytest.raises(ValueError, match="not a receipt"):
        receipt_files(repo, git(folder, "commit-tree", "-m", "Bomb", tree))


def test_lock_of_killed_git_is_removed(folder: Path, repo: Repo) -> None:
    write(folder / ".git", {f"{REF}.lock": ""})
    write_receipt(repo, REF, at(folder), FILES, "Receipt", WHEN)
    assert receipt_files(repo, REF) == FILES


def test_attributes_do_not_change_the_files(folder: Path, repo: Repo) -> None:
    write(folder, {".gitattributes": "* text eol=crlf\n"})
    git(folder, "config", "core.autocrlf", "true")
    write_receipt(repo, REF, "", FILES, "Receipt", WHEN)
    assert receipt_files(repo, REF) == FILES


@pytest.mark.parametrize("what", ["link", "folder"])
def test_other_commit_is_not_a_receipt(folder: Path, repo: Repo, what: str) -> None:
    if what == "link":
        (folder / "x").symlink_to("a.txt")
    else:
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{at(folder)},module")
    commit_all(folder, "More") if what == "link" else git(folder, "commit", "-qm", "More")
    with pytest.raises(ValueError, match="not a receipt"):
        receipt_files(repo, at(folder))


def test_submodule_that_settings_hide_is_seen(folder: Path, repo: Repo) -> None:
    base = at(folder)
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{base},module")
    git(folder, "commit", "-qm", "Add")
    added = at(folder)
    git(folder, "update-index", "--cacheinfo", f"160000,{added},module")
    git(folder, "commit", "-qm", "Move")
    for key, value in (("path", "module"), ("url", "./x"), ("ignore", "all")):
        git(folder, "config", f"submodule.module.{key}", value)
    write(folder, {".gitmodules": '[submodule "module"]\npath = module\nignore = all\n'})
    git(folder, "config", "diff.ignoreSubmodules", "all")
    (found,) = changes_between(repo, added, at(folder))
    assert (found.path, found.mode_before, found.mode) == ("module", "160000", "160000")
    assert found.blob_before == base


def test_parents_are_those_that_commits_name(folder: Path, repo: Repo) -> None:
    base = at(folder)
    write(folder, {"b.txt": "b\n"})
    middle = at(commit_all(folder, "Middle"))
    write(folder, {"c.txt": "c\n"})
    tip = at(commit_all(folder, "Tip"))
    git(folder, "commit-graph", "write", "--reachable")
    git(folder, "replace", "--graft", tip, base)
    write(folder / ".git", {"info/grafts": f"{tip} {base}\n{middle}\n"})
    assert parents_in(repo, [tip, middle, base]) == {tip: (middle,), middle: (base,), base: ()}
    with pytest.raises(GitError):
        parents_in(repo, ["0" * 40])
    assert is_older(repo, base, middle)
    assert not is_older(repo, middle, base)
    assert not is_older(repo, "0" * 40, base)
