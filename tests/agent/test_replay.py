"""Test that replay makes the same tree from the record alone, or names the first difference."""

from __future__ import annotations

import json
from pathlib import Path

from gitkit import fingerprint, git, make_repo
from vaultkit import PLAN, TestVault, make_vault

STEP = "import pathlib, sys\np = pathlib.Path('hello.txt')\np.write_text(p.read_text() + pathlib.Path({!r}).read_text())\n"


def finished(tmp_path: Path) -> tuple[TestVault, Path]:
    """A mission of a literal step and one with a command, whose result hangs on a file outside."""
    (tmp_path / "outside").write_text("more\n")
    step = STEP.format(str(tmp_path / "outside"))
    files = {"step.py": step, "other.txt": "w\r\n", "gone.txt": ""}
    repo = make_repo(tmp_path / "repo", files)
    vault = make_vault(tmp_path)
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    plan = {
        **PLAN,
        "scope": {"write": ["hello.txt", "other.txt", "gone.txt"], "run": ["python3 step.py"]},
        "steps": [
            {
                "title": "Begin",
                "actions": [
                    {"tool": "write_file", "params": {"path": "other.txt", "content": "x\n"}}
                ],
            },
            {
                "title": "Write it",
                "tools": ["write_file", "edit_file", "delete_file", "run_command"],
            },
            {"title": "End", "tools": ["write_file"]},
        ],
    }
    vault.plays(
        plan,
        [
            ("write_file", {"path": "hello.txt", "content": "one\n"}),
            ("write_file", {"path": "no.txt", "content": "n"}),
            ("edit_file", {"path": "hello.txt", "old": "one", "new": "two"}),
            ("delete_file", {"path": "gone.txt"}),
        ],
        [
            ("run_command", {"command": "python3", "args": ["step.py"]}),
            ("complete_step", {"step": 2, "summary": "Hello"}),
        ],
        [
            ("write_file", {"path": "other.txt", "content": "y\n"}),
            ("complete_step", {"step": 3, "summary": "End"}),
            ("finish", {"summary": "Done."}),
        ],
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault, repo


def test_replay_reproduces_mission_or_names_first_difference(tmp_path: Path) -> None:
    vault, repo = finished(tmp_path)
    done = vault.rows("execution.completed")[0]["metadata"]
    (vault.root / "System/replies.toml").unlink()  # no model could answer
    before, rows, refs = fingerprint(repo), len(vault.rows()), git(repo, "for-each-ref")
    found = json.loads(vault.click("replay", "say-hello", "--json").stdout)
    assert found["equal"] is True
    assert (found["calls"], found["steps"]) == (6, 3)
    assert "gone.txt" not in git(repo, "ls-tree", "--name-only", done["branch"])
    assert "\r" not in git(repo, "show", f"{done['branch']}~2:other.txt")
    assert found["tree"] == git(repo, "rev-parse", f"{done['branch']}^{{tree}}")
    assert (fingerprint(repo), len(vault.rows()), git(repo, "for-each-ref")) == (before, rows, refs)
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert list(vault.state.glob("*/worktrees/replay-*")) == []
    (tmp_path / "outside").write_text("something else\n")
    other = vault.click("replay", "say-hello", check=False)
    assert other.returncode == 1
    assert "different from step 2 on" in other.stdout
    assert "hello.txt" in other.stdout
    assert list(vault.state.glob("*/worktrees/replay-*")) == []


def test_request_without_mission_cannot_be_replayed(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.once()
    said = vault.click("replay", "say-hello", check=False)
    assert said.returncode == 1
    assert "never ran" in said.stderr
