"""Test which cases `python -m tests quick` chooses, and how their times are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import tests.quick as quick


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("daemon/placet/note/box.py", ["tests/note/"]),
        (
            "daemon/placet/sandbox/run.py",
            ["tests/sandbox/", "tests/contract/test_sandbox_level.py"],
        ),
        ("daemon/placet_board/pages.py", ["tests/board/"]),
        ("daemon/placet_team/worker.py", ["tests/team/"]),
        ("daemon/docs/guide.md", ["tests/docs/"]),
        ("tests/cli/test_run.py", ["tests/cli/test_run.py"]),
        ("systemd/placet.service", []),
    ],
)
def test_changed_file_selects_tests_of_its_room(path: str, tests: list[str]) -> None:
    assert quick.tests_of(path) == tests


def test_room_without_tests_has_its_contracts() -> None:
    assert "tests/contract/test_tools.py" in quick.tests_of("daemon/placet/tools/base.py")
    assert "tests/property/test_codec.py" in quick.tests_of("daemon/placet/codec.py")


def test_cheapest_and_changed_cases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        quick, "recorded", lambda: {"a::cheap": 0.1, "a::dear": 144.8, "b::dear": 144.8}
    )
    config: Any = SimpleNamespace(
        option=SimpleNamespace(quick=True, whole=["b"]),
        hook=SimpleNamespace(pytest_deselected=lambda items: None),
    )
    names = ["a::dear", "a::cheap[1]", "a::cheap[2]", "a::new", "b::dear"]
    items: Any = [Mock(nodeid=name) for name in names]
    quick.pytest_collection_modifyitems(config, items)
    assert [item.nodeid for item in items] == ["a::cheap[1]", "a::cheap[2]", "a::new", "b::dear"]


def test_time_changes_only_when_it_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tests/test_x.py"
    file.parent.mkdir()
    file.write_text("def test_a(): ...\ndef test_b(): ...\ndef test_new(): ...\n")
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    old = {f"tests/test_x.py::test_{name}": 1.0 for name in ("a", "b", "gone")}
    monkeypatch.setattr(quick, "recorded", lambda: old)
    measured = {"test_a": 1.9, "test_b[1]": 2.0, "test_b[2]": 4.468, "test_new": 0.0001}
    text = quick.as_lines({f"tests/test_x.py::{name}": cost for name, cost in measured.items()})
    assert json.loads(text) == {
        "tests/test_x.py": {"test_a": 1.0, "test_b": 3.2, "test_new": 0.005}
    }
    assert text.count("\n") == 3, "a line is a file"
