"""Test which git repositories on this machine placet pushes to, and that it runs no hook there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitkit import git, make_repo
from placet.git.repository import open_repo
from placet.git.run import GitError
from placet_team.git_fetching import BASE, push, trouble_with
from placet_team.git_refs import bare_repo_at
from placet_team.path_remotes import trouble_with_path

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = bare_repo_at(tmp_path / "srv/work.git", sha256=False).path
    (path / "hooks").mkdir()
    (path / "hooks/update").write_text("#!/bin/sh\n")
    return path


def test_own_repository_below_sticky_folder_is_safe(remote: Path) -> None:
    remote.parent.chmod(0o1777)
    assert not trouble_with_path(remote)
    assert not trouble_with_path(remote.with_name("missing"))


@pytest.mark.parametrize(
    "part",
    ["..", ".", "config", "HEAD", "hooks", "hooks/update", "objects", "objects/info", "refs"],
)
def test_repository_that_others_can_write_is_refused(remote: Path, part: str) -> None:
    (remote / part).chmod(0o777)
    why = trouble_with_path(remote)
    assert f"Other users can change {(remote / part).resolve()}," in why
    assert "chmod" in why
    assert trouble_with_path(remote.with_suffix("")) == why  # git looks there, too


def test_sticky_repository_that_others_can_write_is_refused(remote: Path) -> None:
    remote.chmod(0o1777)
    assert trouble_with_path(remote)


def test_link_in_folder_of_others_is_refused(remote: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open/link.git").symlink_to(remote)
    (tmp_path / "open").chmod(0o777)
    assert trouble_with_path(tmp_path / "open/link.git")
    assert not trouble_with_path(remote)


def test_each_link_of_a_chain_is_checked(remote: Path, tmp_path: Path) -> None:
    for name in ("first", "open", "last"):
        (tmp_path / name).mkdir()
    (tmp_path / "last/work.git").symlink_to(remote)
    (tmp_path / "open/next").symlink_to(tmp_path / "last")
    (tmp_path / "first/work.git").symlink_to("../open/next/work.git")
    assert not trouble_with_path(tmp_path / "first/work.git")
    (tmp_path / "open").chmod(0o777)
    assert trouble_with_path(tmp_path / "first/work.git")
    (tmp_path / "open/next").unlink()
    (tmp_path / "open/next").symlink_to("next")  # a circle
    assert trouble_with_path(tmp_path / "first/work.git"), "others can put something else there"


def test_git_dir_behind_file_is_checked(remote: Path, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.git").write_text(f"gitdir: {remote}\n")
    assert not trouble_with_path(tmp_path / "tree")
    (remote / "config").chmod(0o666)
    assert trouble_with_path(tmp_path / "tree")


@as_root
@pytest.mark.parametrize("part", ["..", ".", "hooks", "objects"])
def test_repository_of_another_user_is_refused(remote: Path, part: str) -> None:
    os.chown(remote / part, NOBODY, -1)
    assert trouble_with_path(remote)


@as_root
def test_only_shared_group_makes_repository_unsafe(remote: Path) -> None:
    remote.chmod(0o2775)  # root alone is in its group
    assert not trouble_with_path(remote)
    os.chown(remote, -1, NOBODY)
    assert trouble_with_path(remote)


@as_root
@pytest.mark.parametrize("form", ["{}", "file://{}", "file://%2F{}"])
def test_hook_of_another_user_never_runs(remote: Path, tmp_path: Path, form: str) -> None:
    code, made = make_repo(tmp_path / "code"), tmp_path / "made"
    os.chown(remote / "hooks", -1, NOBODY)
    (remote / "hooks").chmod(0o775)
    hook = remote / "hooks/pre-receive"
    hook.write_text(f"#!/bin/sh\nid > {made}\n")
    hook.chmod(0o755)
    os.chown(hook, NOBODY, NOBODY)
    url, head = form.format(remote), git(code, "rev-parse", "HEAD")
    with pytest.raises(GitError, match="Other users can change"):
        push(open_repo(code), url, {f"{BASE}t/{head}": head})
    assert "Other users can change" in trouble_with(url)
    assert not made.exists()


def test_push_to_path_runs_no_program_there(remote: Path, tmp_path: Path) -> None:
    code, made = make_repo(tmp_path / "code"), tmp_path / "made"
    for name in ("pre-receive", "update", "post-receive", "post-update", "reference-transaction"):
        (remote / "hooks" / name).write_text(f"#!/bin/sh\ntouch {made}\n")
        (remote / "hooks" / name).chmod(0o755)
    git(remote, "config", "core.alternateRefsCommand", f"touch {made}; :")
    (remote / "objects/info/alternates").write_text(f"{code}/.git/objects\n")
    head = git(code, "rev-parse", "HEAD")
    for url in (str(remote), f"file://{remote}"):
        push(open_repo(code), url, {f"{BASE}{len(url)}/{head}": head})
    assert len(git(remote, "for-each-ref", BASE).splitlines()) == 2
    assert not made.exists()
