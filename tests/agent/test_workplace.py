"""Test which folders a mission may not touch, and what it sees of tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitkit import git, make_repo, write
from placet.agent.workplace import denied_in
from placet.disk.path_text import ALWAYS
from placet.git.repository import open_repo
from placet.sandbox import visible_paths
from placet.sandbox.box import Box
from vaultkit import make_vault


def test_vault_folders_stay_denied_in_outer_repository(
    tmp_path: Path,
) -> None:
    outer = make_repo(tmp_path / "outer", {"README.md": "x\n"})
    vault = make_vault(outer / "notes")
    git(vault.root, "init", "-q", "-b", "main")
    for path, shut in ((vault.root, ""), (outer, "notes/vault")):
        denied = denied_in(open_repo(path), vault.root)
        assert denied.root == shut
        for own in (
            "System/Active/x.md",
            "Knowledge/Reports/x.md",
            "knowledge /REPORTS",
            "Inbox",
            ".obsidian-phone/x",
        ):
            assert denied.protects(f"{shut}/{own}".lstrip("/")), own
        for free in ("Knowledge/x.md", "Knowledge/Reports.md", "Reports/x.md", "Knowledge"):
            assert not denied.protects(f"{shut}/{free}".lstrip("/")), free
    assert denied_in(open_repo(make_repo(tmp_path / "other")), vault.root) == ALWAYS


def test_tool_chain_containing_vault_is_shown_partly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = tmp_path / "venv"
    write(
        venv,
        {
            "pyvenv.cfg": "home = /usr/bin\n",
            "bin/tool": "",
            "lib/x.py": "",
            "state/journal.db": "",
            "vault/System/x": "",
            "state/worktrees/m/x": "",
        },
    )
    monkeypatch.setenv("PATH", f"{venv}/bin:{os.environ['PATH']}")
    for box in (
        Box(venv / "state/worktrees/m"),
        Box(tmp_path / "elsewhere", hidden=(venv / "vault",)),
    ):
        tools = visible_paths.see(box).tools
        assert venv / "bin" in tools
        assert venv / "lib" in tools
        assert not [
            tool
            for tool in tools
            if venv.is_relative_to(tool) or tool in (venv / "state", venv / "vault")
        ]
    assert venv in visible_paths.see(Box(tmp_path / "elsewhere")).tools
