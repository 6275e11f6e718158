"""Run the main job on real parts: daemon process, real SDK, local Messages API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitkit import fingerprint, git, make_repo
from messages_api import MessagesApi, call, reply, text
from vaultkit import PLAN, TestVault, make_vault, running, until

KEY = "sk-ant-test-0123456789-this-must-never-show"


def script(body: dict[str, Any]) -> Any:
    """Answer as a model that plans, and works, would: by what it was offered and how far the talk
    is.
    """
    tools = {tool["name"] for tool in body["tools"]}
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    if "submit_plan" in tools:
        plan = {
            **PLAN,
            "title": "Fix the greeting",
            "scope": {"write": ["hello.py"], "run": ["python3 -m unittest"]},
            "steps": [{"title": "Fix it", "tools": ["read_file", "edit_file", "run_command"]}],
        }
        return [
            reply(text("I look first."), call("read_file", {"path": "hello.py"})),
            reply(call("submit_plan", plan)),
        ][turn]
    return [
        reply(
            call("read_file", {"path": "hello.py"}),
            usage={"input_tokens": 100, "output_tokens": 20},
        ),
        reply(call("edit_file", {"path": "hello.py", "old": "helo", "new": "hello"})),
        reply(call("run_command", {"command": "python3", "args": ["-m", "unittest"]})),
        reply(call("complete_step", {"step": 1, "summary": "Mend the spelling"})),
        reply(call("finish", {"summary": "The greeting is right."})),
    ][turn]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = make_repo(
        tmp_path / "repo",
        {
            "hello.py": 'def greet():\n    return "helo"\n',
            "test_hello.py": "import unittest\nfrom hello import greet\n\n\nclass T(unittest.TestCase):\n"
            "    def test_it(self):\n        self.assertEqual(greet(), 'hello')\n",
            ".gitignore": "__pycache__/\n",
        },
    )
    (path / "dirty.txt").write_text("untracked, a person's\n")
    (path / "test_hello.py").write_text((path / "test_hello.py").read_text() + "# being edited\n")
    return path


def vault_with(tmp_path: Path, api: MessagesApi, portal: Path | None) -> TestVault:
    vault = make_vault(tmp_path, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=api.url)
    vault.configure(f'[portals.code]\npath = "{portal}"\n' if portal else "")
    return vault


def test_a_request_becomes_a_branch_and_a_report(tmp_path: Path, repository: Path) -> None:
    before = fingerprint(repository)
    with MessagesApi(script) as api:
        vault = vault_with(tmp_path, api, repository)
        with running(vault):
            vault.drop("---\nportal: code\n---\nThe greeting is misspelt.\n", "Fix the greeting.md")
            vault.await_action("plan.created")
            plan = until(
                lambda: (
                    vault.plan("fix-the-greeting").exists()
                    and vault.plan("fix-the-greeting").read_text()
                ),
                "plan",
            )
            assert "status: review" in plan
            assert 'write = ["hello.py"]' in plan
            vault.approve("fix-the-greeting")
            done = vault.await_action("execution.completed")
            until(vault.reports, "report")
            until(lambda: "Fix the greeting.md" not in vault.notes("Inbox/Requests"), "archived")
    branch = done["metadata"]["branch"]
    assert branch == f"feat/fix-the-greeting-{done['trace_id'][:8]}"
    assert done["metadata"]["files_changed"] == ["hello.py"]
    assert '"hello"' in git(repository, "show", f"{branch}:hello.py")
    message = git(repository, "log", "-1", "--format=%B", branch)
    assert message.startswith("Mend the spelling\n\n")
    assert (
        f"\n\n[ExoTrace: {done['trace_id']}]\n\nPlacet-Trace: {done['trace_id']}\nPlacet-Plan: "
        in message
    )
    assert "\nApproved-By: " in message
    assert git(repository, "log", "--format=%s", f"HEAD..{branch}").splitlines() == [
        "Mend the spelling"
    ]
    assert fingerprint(repository) == before
    report = vault.reports()[0].read_text()
    assert "status: completed" in report
    assert "| `hello.py` | changed | +1 \N{MINUS SIGN}1 |" in report
    assert "| `python3 -m unittest` | 0 |" in report
    assert vault.notes("Inbox/Archive") == ["Fix the greeting.md", "fix-the-greeting_plan.md"]
    assert (
        vault.notes("System/Active")
        == vault.notes("Inbox/Plans")
        == vault.notes("Inbox/Requests")
        == []
    )
    worktrees = git(repository, "worktree", "list", "--porcelain")
    assert worktrees.count("worktree ") == 1
    order = [
        a for a in vault.actions() if a.startswith(("request.", "plan.", "execution.", "report."))
    ]
    assert order == [
        "request.detected",
        "plan.created",
        "plan.approved",
        "execution.started",
        "execution.completed",
        "report.written",
    ]
    approved = vault.rows("plan.approved")[0]
    assert approved["actor"] == "human"
    assert approved["metadata"]["reviewed_by"]
    assert approved["metadata"]["digest"] == vault.rows("plan.created")[0]["metadata"]["digest"]
    for path in [*tmp_path.rglob("*")]:
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_request_without_portal_works_on_vault(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(
        {**PLAN, "scope": {"write": ["Knowledge/Notes.md"]}},
        [
            ("write_file", {"path": "Knowledge/Notes.md", "content": "# Notes\n"}),
            ("write_file", {"path": "System/Active/evil.md", "content": "x"}),
        ],
        [
            ("write_file", {"path": "Knowledge/Notes.md", "content": "# Notes\n\nMore.\n"}),
            ("complete_step", {"step": 1, "summary": "Begin the notes"}),
            ("finish", {"summary": "Done."}),
        ],
    )
    (vault.root / "Knowledge" / "Old.md").write_text("a person's note\n")
    vault.drop("Begin some notes.\n")
    vault.once()
    assert not (vault.root / ".git" / "index.lock").exists()
    tracked = git(vault.root, "ls-files").split()
    assert "Knowledge/Old.md" in tracked
    assert not [p for p in tracked if p.startswith(("Inbox/", "System/"))]
    vault.approve()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:Knowledge/Notes.md") == "# Notes\n\nMore."
    assert not (vault.root / "Knowledge" / "Notes.md").exists()  # the person's checkout is theirs
    assert not (vault.root / "System" / "Active" / "evil.md").exists()
    assert vault.rows("tool.refused")[0]["metadata"]["tool"] == "write_file"
    assert len(vault.rows("git.initialized")) == 1
    assert "remote add" not in vault.reports()[0].read_text()  # a vault needs none


def test_failure_returns_to_user(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    before = fingerprint(repo)
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(
        PLAN,
        [("write_file", {"path": "hello.txt", "content": "hello\n"})],
        [("give_up", {"reason": "There is nobody to greet."})],
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["reason"] == "gave_up"
    assert failed["iterations"] == 2
    assert "There is nobody to greet." in failed["detail"]
    assert "status: error" in (vault.root / "Inbox/Requests/Say hello.md").read_text()
    back = vault.root / "Inbox/Plans/say-hello_plan.md"
    assert "status: error" in back.read_text()
    report = vault.reports()[0]
    assert report.name.endswith("_failure.md")
    words = report.read_text()
    assert "There is nobody to greet." in words
    assert "- Plan: revision 1 for [[Say hello]], approved by" in words
    assert (
        "1. For a new plan: `placet retry say-hello`, or set `status: pending` in `Inbox/Requests/Say hello.md`."
        in words
    )
    assert "- Tools executed before failure: write_file (1)" in words
    assert git(repo, "show", f"{failed['kept']}:hello.txt") == "hello"
    assert not git(repo, "branch", "--list", "feat/*")
    assert fingerprint(repo) == before
    vault.once()
    # inert until a person sets it to pending
    assert vault.actions().count("execution.started") == 1


def test_a_question_succeeds_with_its_answer(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    ask = {**PLAN, "steps": [{"title": "Read", "tools": ["read_file"]}], "scope": {}}
    vault.plays(
        ask,
        [("read_file", {"path": "Home.md"}), ("complete_step", {"step": 1, "summary": "Done"})],
        [("finish", {"summary": "Forty-two.\n# Forged heading"})],
    )
    vault.drop("What is the answer?\n")
    vault.once()
    vault.approve()
    vault.once()
    assert vault.rows("execution.completed")[0]["metadata"]["files_changed"] == []
    report = vault.reports()[0].read_text()
    assert "Forty-two." in report
    assert "\n# Forged heading" not in report


def test_the_demo_shows_the_whole_of_it(tmp_path: Path) -> None:
    vault = TestVault(tmp_path, tmp_path / "state")
    shown = vault.cli("demo", "--keep", str(tmp_path / "kept")).stdout
    for piece in (
        "SCRIPTED",
        "It may write `stats.py`, `README.md`; run `python3 -m unittest` (with any further words)",
        "$ mv Inbox/Plans/",
        "step 2 of 2 done",
        "# Mission Report",
        "+    middle = len(ordered) // 2",
        "OK",
        "execution.completed",
        "export ANTHROPIC_API_KEY=…",
        "init ~/vault",
    ):
        assert piece in shown, piece
    assert "\x1b[" not in shown
    assert "waits for you: placet review" not in shown
    assert " more lines\n" in shown
    assert max(len(part.splitlines()) for part in shown.split("\n$ ")) < 50
    assert (tmp_path / "kept" / "vault" / "Knowledge" / "Reports").is_dir()
