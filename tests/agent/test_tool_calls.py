"""Test the outcomes of tool calls, and which paths no mission may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_steps import FINISH, WRITE, carried_out, done

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.agent.tool_calls import never_written
from placet.chat.messages import Ask, Reply
from placet.disk.path_text import VAULT
from vaultkit import PLAN


@pytest.mark.parametrize(
    "call",
    [
        ("read_file", {"path": "../outside.md"}),
        ("read_file", {"path": "src/../hello.txt"}),
        ("list_directory", {"path": "a/../.."}),
        ("write_file", {"path": "../hello.txt", "content": "x"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("glob", {"pattern": "../*"}),
        ("grep", {"pattern": "x", "glob": "/etc/*"}),
        ("grep", {"pattern": "x", "path": "a/.."}),
        ("search_files", {"pattern": "x", "path": "~"}),
    ],
)
@pytest.mark.thinned(3)
def test_path_traversal_is_journalled_as_refusal(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:
    step = {
        "title": "Do it",
        "tools": ["write_file", "read_file", "list_directory", "glob", "grep", "search_files"],
    }
    vault = carried_out(tmp_path, [step], [[call], [WRITE, done(1), FINISH]])
    assert [row["metadata"]["tool"] for row in vault.rows("tool.refused")] == [call[0]]
    assert len(vault.rows("execution.completed")) == 1


def test_entries_below_protected_folders_are_named(tmp_path: Path) -> None:
    bad = ["Inbox/**", "System/placet.toml", "inbox/", ".git/config", "SYSTEM_PROMPT.md"]
    good = ["**", "Notes/**", "Inbox.md", "!System/**", "*/Inbox/x.md"]
    assert [one.split()[1] for one in never_written([*good, *bad], VAULT, tmp_path)] == bad


def test_scope_entry_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to("notes")
    good = ["notes/**", "notes/a.md", "!notes", "link", "new"]
    assert never_written([*good, "notes"], VAULT, tmp_path) == []
    (problem,) = never_written(["link", "new", "notes"], VAULT, tmp_path)
    assert problem.endswith("notes is a folder. Name files in it, or all: notes/**")


def test_plan_for_a_protected_path_is_refused(tmp_path: Path) -> None:
    asked: list[Ask] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask)
        if len(asked) == 1:
            return says(("submit_plan", {**PLAN, "scope": {"write": ["Inbox/**"]}}))
        return greeter(ask)

    vault = bare_vault(tmp_path)
    vault.drop("Get to inbox zero.\n")
    with looping(vault, model=lambda: Fake(answer), time=Time()) as running:
        running.settle()
    assert "Inbox/** can never be written" in str(asked[1].turns[-1])
    assert len(vault.rows("plan.created")) == 1
