"""Test the outcomes of tool calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_steps import FINISH, WRITE, carried_out, done


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
