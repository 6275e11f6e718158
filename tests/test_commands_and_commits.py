"""What a mission's commands leave in the worktree, and what becomes of it: in commits, rows and reports, by the real daemon."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchkit import real
from disks import small_disk_at
from gitkit import git, make_repo
from placet.core.scope import Scope
from placet.sandbox import Level, probe
from vaultkit import PLAN, TestVault, make_vault

needs_wall = pytest.mark.skipif(probe().level < Level.LANDLOCK, reason="needs a sandbox")


def mission(
    tmp_path: Path, files: dict[str, str], scope: dict[str, Any], script: str, *before: tuple[str, dict[str, Any]],
    config: str = "",
) -> tuple[TestVault, Path]:
    """Return a vault and the repository of a mission that ran `script` (Python), after the calls `before`, and has ended."""
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"README.md": "x\n", "tool.py": script, **files})
    vault.configure(f'[portals.code]\npath = "{repo}"\n{config}')
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
    done = next(iter(vault.rows("execution.completed")), None)
    assert done is not None, "\n".join(f"{row['action_type']} {row['metadata']}" for row in vault.rows()[-12:])
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


FILL = """
import os
n = 0
while True:
    os.makedirs('src/%d' % n)
    try:
        f = os.open('src/%d/f' % n, os.O_CREAT | os.O_WRONLY)
        os.posix_fallocate(f, 0, 8 * 2**20)
    except OSError:
        break
    n += 1
os.chmod('src/0', 0)
open('README.md', 'w')
import time
time.sleep(60)
"""


@needs_wall
def test_a_disk_that_a_command_filled_is_given_back_before_anything_is_journalled(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "90m") as place:
        vault, repo = mission(
            place, {}, {"write": ["src/**", "kept.txt"]}, FILL, ("write_file", {"path": "kept.txt", "content": "k"}),
            config="[limits]\nfree_disk_bytes = 8000000\n")
        (call,) = [row for row in vault.rows("tool.called") if row["metadata"]["tool"] == "run_command"]
        assert call["metadata"].get("error_type", "") == ""
        assert changed(vault, repo) == ["A\tkept.txt"]  # what it had written is gone, README.md is as it was
        assert not list(vault.state.rglob("src"))
        disk = os.statvfs(place)
        assert disk.f_bavail * disk.f_frsize > 60_000_000


def test_a_folder_that_a_command_shut_is_told_and_nothing_waits_for_it(tmp_path: Path) -> None:
    def fails(at: Path) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied", str(at))
        return run

    with real(tmp_path, scope=Scope(run=(("true",),)), level=Level.LANDLOCK) as tools:
        inside = replace(tools, place=replace(tools.place, run=fails(tools.place.box.worktree / "shut")))
        assert inside.dispatch("run_command", {"command": "true"}).error_type == "permission_denied"
        outside = replace(tools, place=replace(tools.place, run=fails(tmp_path / "elsewhere")))
        with pytest.raises(PermissionError):  # the machine's fault: the work waits
            outside.dispatch("run_command", {"command": "true"})
