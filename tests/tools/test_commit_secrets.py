"""Test that a mission commits no secret, and that kept work is redacted."""

from __future__ import annotations

from pathlib import Path

from tests.property.test_secrets import TOKENS

from gitkit import git, make_repo
from vaultkit import PLAN, make_vault


def test_commit_adding_secret_is_refused_with_line(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"a.py": f'OLD = "{TOKENS["GitLab token"]}"\n'})
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    key = TOKENS["GitHub token"]
    plan = {
        **PLAN,
        "scope": {"write": ["*.py"]},
        "steps": [{"title": "Write", "tools": ["read_file", "write_file", "edit_file"]}],
    }
    vault.plays(
        plan,
        [
            ("read_file", {"path": "a.py"}),
            ("write_file", {"path": "b.py", "content": f'x = 1\nKEY = "{key}"\n'}),
            ("complete_step", {"step": 1, "summary": "Add a key"}),
        ],
        [
            ("write_file", {"path": "b.py", "content": "import os\nKEY = os.environ['KEY']\n"}),
            ("edit_file", {"path": "a.py", "old": "OLD", "new": "NEW"}),
            ("complete_step", {"step": 1, "summary": "Read the key from the environment"}),
            ("finish", {"summary": "Done."}),
        ],
    )
    vault.drop("---\nportal: code\n---\nUse the key.\n")
    vault.once()
    vault.approve()
    vault.once()
    refused = vault.rows("tool.refused")
    assert [row["metadata"]["error_type"] for row in refused] == ["secret_in_commit"]
    done = vault.rows("execution.completed")[0]["metadata"]
    # edited around what it never saw
    assert git(repo, "show", f"{done['branch']}:a.py") == f'NEW = "{TOKENS["GitLab token"]}"'
    assert key.encode() not in _objects(repo)


def test_mission_with_secret_fails_and_keeps_redacted_work(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo")
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    key = TOKENS["AWS key"]
    plan = {**PLAN, "scope": {"write": ["*.txt"]}}
    vault.plays(
        plan,
        [
            ("write_file", {"path": "first.txt", "content": "one\n"}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("write_file", {"path": "notes.txt", "content": f"one\ntwo\n{key}\n"}),
        ],
        [("finish", {"summary": "Done."})],
    )
    vault.drop("---\nportal: code\n---\nNote it.\n")
    vault.once()
    vault.approve()
    vault.once()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["error_type"] == "secret_in_commit"
    report = vault.reports()[0].read_text()
    assert "notes.txt:3: AWS key" in report.split("## Error Details")[0]
    assert "[redacted" not in report.split("## Error Details")[0]
    assert git(repo, "show", f"{failed['kept']}:notes.txt") == "one\ntwo\n[redacted: AWS key]"
    assert key.encode() not in _objects(repo)
    assert key not in report


def _objects(repo: Path) -> bytes:
    return git(repo, "cat-file", "--batch-all-objects", "--batch", "--buffer").encode(
        "utf-8", "surrogateescape"
    )
