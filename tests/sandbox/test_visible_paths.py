"""Test which programs and folders a command sees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placet.sandbox.box import Box
from placet.sandbox.visible_paths import is_environment, see


def environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    return folder


def test_environment_has_its_mark_and_programs(tmp_path: Path) -> None:
    assert is_environment(environment(tmp_path / "one"))
    (tmp_path / "two/bin").mkdir(parents=True)
    assert not is_environment(tmp_path / "two")


def test_project_comes_first_and_worktree_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worktree, project = tmp_path / "worktree", environment(tmp_path / "venv")
    (worktree / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{worktree}/bin{os.pathsep}/usr/bin")
    path = see(Box(worktree, readable=(project,))).path
    assert path[0] == f"{project}/bin"
    assert "/usr/bin" in path
    assert f"{worktree}/bin" not in path
