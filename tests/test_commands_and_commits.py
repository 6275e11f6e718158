"""What a mission's commands leave in the worktree, and what becomes of it: in commits, rows and reports, by the real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitkit import git, make_repo
from placet.sandbox import Level, probe
from vaultkit import PLAN, TestVault, make_vault

needs_wall = pytest.mark.skipif(probe().level < Level.LANDLOCK, reason="needs a sandbox")


def mission(
    tmp_path: Path, files: dict[str, str], scope: dict[str, Any], script: str, *before: tuple[str, dict[str, Any]],
) -> tuple[TestVault, Path]:
    """Return a vault and the repository of a mission that ran `script` (Python), after the calls `before`, and has ended."""
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"README.md": "x\n", "tool.py": script, **files})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    plan = {**PLAN, "scope": {"run": ["python3 tool.py"], **scope},
            "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}]}
    vault.script(("plan", [{"calls": [("submit_plan", plan)]}]), ("execute", [{"calls": [
        *before, ("run_command", {"command": "python3", "args": ["tool.py"]}), ("complete_step", {"step": 1, "summary": "Done"}),
        ("finish", {"summary": "Done"})]}]))
    vault.drop("---\nportal: code\n---\nDo it.\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault, repo


def changed(vault: TestVault, repo: Path) -> list[str]:
    """What the mission's branch changes, as `git diff --name-status` has it."""
    (done,) = vault.rows("execution.completed")
    return git(repo, "diff", "--name-status", "main", done["metadata"]["branch"]).splitlines()


@needs_wall
@pytest.mark.parametrize(("files", "write", "script", "expected", "told"), [
    ({"tests/a": "1", "tools/b": "2", "top": "1"}, ["t*"],
     "import shutil\nfor d in ('tests', 'tools'):\n    shutil.rmtree(d); open(d, 'w').write('x')\nopen('top', 'w').write('x')\n",
     ["M\ttop"], ["tests", "tests/a", "tools", "tools/b"]),
    ({"LICENSE": "MIT"}, ["LICENSE/**", "new"],
     "import os\nos.unlink('LICENSE'); os.mkdir('LICENSE'); open('LICENSE/x', 'w').write('x'); open('new', 'w')\n",
     ["A\tnew"], ["LICENSE", "LICENSE/x"]),
    ({"tests/a": "1"}, ["tests", "tests/**"], "import shutil\nshutil.rmtree('tests'); open('tests', 'w').write('x')\n",
     ["A\ttests", "D\ttests/a"], []),
], ids=["folder-becomes-file", "file-becomes-folder", "allowed"])
def test_what_is_outside_the_scope_is_not_deleted_by_what_takes_its_place(
    tmp_path: Path, files: dict[str, str], write: list[str], script: str, expected: list[str], told: list[str],
) -> None:
    vault, repo = mission(tmp_path, files, {"write": write}, script)
    assert changed(vault, repo) == expected
    report = vault.reports()[0].read_text()
    assert all(f"`{path}`" in report for path in told)
    assert ("outside the approved scope" in report) is bool(told)
