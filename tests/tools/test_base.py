"""Test what every call of a tool passes through."""

from __future__ import annotations

from placet.plan.scope import Scope
from placet.testing import InMemoryToolDispatcher


def test_unknown_tool_names_the_nearest() -> None:
    outcome = InMemoryToolDispatcher({}, scope=Scope()).dispatch("read_fil", {"path": "a"})
    assert outcome.error_type == "unknown_tool"
    assert "read_file" in outcome.content


def test_wrong_arguments_are_named() -> None:
    outcome = InMemoryToolDispatcher({}, scope=Scope()).dispatch(
        "read_file", {"path": 3, "colour": "red"}
    )
    assert outcome.error_type == "invalid_arguments"
    assert "colour" in outcome.content
