"""What a mission's commands leave in the worktree, and what becomes of it: in commits, rows and reports, by the real daemon."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchkit import real
from disks import small_disk_at
from gitkit import git, make_repo, write
from placet.confine import ALWAYS
from placet.core.scope import Scope
from placet.repo import open_repo
from placet.sandbox import Level, probe
from placet.workshop import denied_in
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

    (tmp_path / "worktree").mkdir()
    with real(tmp_path / "worktree", scope=Scope(run=(("true",),)), level=Level.LANDLOCK) as tools:
        inside = replace(tools, place=replace(tools.place, run=fails(tools.place.box.worktree / "shut")))
        assert inside.dispatch("run_command", {"command": "true"}).error_type == "permission_denied"
        outside = replace(tools, place=replace(tools.place, run=fails(tmp_path / "elsewhere")))
        with pytest.raises(PermissionError):  # the machine's fault: the work waits
            outside.dispatch("run_command", {"command": "true"})


LINKS = """
import os
for name, target in (('System', 'System/Active'), ('all', '.'), ('up', '../x'), ('abs', '/etc/passwd'), ('deep/sys', '../System'),
                     ('chain', 'inner/Active'), ('fine', 'docs/a.md'), ('case', 'sYsTem/active')):
    os.makedirs('deep', exist_ok=True)
    os.symlink(target, 'l-' + name if '/' not in name else name)
"""


@needs_wall
def test_links_out_of_the_repository_or_to_what_nobody_may_write_are_in_no_commit(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    write(vault.root, {"docs/a.md": "x\n", "tool.py": LINKS})
    (vault.root / "inner").symlink_to("System")
    git(vault.root, "init", "-q", "-b", "main")
    git(vault.root, "add", "docs", "tool.py", "inner")
    git(vault.root, "commit", "-q", "-m", "Begin")
    plan = {**PLAN, "scope": {"write": ["**"], "run": ["python3 tool.py"]}, "steps": [{"title": "Do it", "tools": ["run_command"]}]}
    vault.script(("plan", [{"calls": [("submit_plan", plan)]}]), ("execute", [{"calls": [
        ("run_command", {"command": "python3", "args": ["tool.py"]}), ("complete_step", {"step": 1, "summary": "Done"}),
        ("finish", {"summary": "Done"})]}]))
    vault.drop("Do it.\n")
    vault.once()
    vault.approve()
    vault.once()
    assert changed(vault, vault.root) == ["A\tl-fine"]
    report = vault.reports()[0].read_text()
    assert "`l-fine`, a link to `docs/a.md`" in report
    assert all(f"`{name}`" in report for name in ("deep/sys", "l-System", "l-abs", "l-all", "l-case", "l-chain", "l-up"))


def test_a_repository_around_that_of_the_vault_keeps_the_vaults_folders_shut(tmp_path: Path) -> None:
    outer = make_repo(tmp_path / "outer", {"README.md": "x\n"})
    vault = make_vault(outer / "notes")
    git(vault.root, "init", "-q", "-b", "main")
    for path, shut in ((vault.root, ""), (outer, "notes/vault")):
        denied = denied_in(open_repo(path), vault.root)
        assert denied.root == shut
        assert denied.protects(f"{shut}/System/Active/x.md".lstrip("/"))
    assert denied_in(open_repo(make_repo(tmp_path / "other")), vault.root) == ALWAYS


PASSWORD = "hunter2-Zq81x-" + "secret"
LEAK = "import re\nv = re.search('=(.*)', open('.env').read())[1]\n"


@needs_wall
@pytest.mark.parametrize("where", ["open('src/settings.py', 'w').write('PASSWORD = %r' % v)", "open('src/' + v, 'w').write('x')",
                                   "import os; os.symlink(v, 'src/link')", "open('outside-' + v, 'w'); open('src/fine', 'w')"])
def test_a_value_of_the_env_file_reaches_neither_commit_nor_report_nor_row(tmp_path: Path, where: str) -> None:
    vault, repo = mission(tmp_path, {".env": f"DB_PASSWORD={PASSWORD}\n", "src/x": "x"}, {"write": ["src/**"]}, LEAK + where)
    fine = "outside" in where
    assert len(vault.rows("execution.completed" if fine else "execution.failed")) == 1
    assert PASSWORD not in vault.reports()[0].read_text()
    assert not [row["action_type"] for row in vault.rows() if PASSWORD in json.dumps(row)]
    with closing(sqlite3.connect(vault.db)) as db:
        assert not [key for key, body in db.execute("SELECT key, body FROM records") if body and PASSWORD.encode() in body]
    for ref in git(repo, "for-each-ref", "--format=%(refname)").split():  # what was kept of the attempt has it neither
        assert PASSWORD not in git(repo, "log", "-p", "--format=%B", f"main..{ref}"), ref
