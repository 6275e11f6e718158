"""A mission that goes in circles ends by itself, for a reason that can be named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vaultkit import PLAN, TestVault, make_vault

READ = {"calls": [("read_file", {"path": "Home.md"})]}


def carried_out(tmp_path: Path, replies: list[dict[str, Any]], **plan: Any) -> TestVault:
    vault = make_vault(tmp_path)
    steps = [{"title": "Do it", "tools": ["read_file", "write_file"]}]
    vault.script(
        ("plan", [{"calls": [("submit_plan", {**PLAN, "steps": steps, **plan})]}]),
        ("execute", replies),
    )
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault


def test_a_loop_is_told_and_then_ended(tmp_path: Path) -> None:
    vault = carried_out(tmp_path, [READ] * 8)
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["reason"] == "repetition"
    assert failed["iterations"] == 3
    refused = [row["metadata"]["error_type"] for row in vault.rows("tool.refused")]
    assert refused[:1] == ["repeated_call"]
    assert "Why it ended: `repetition`" in vault.reports()[0].read_text()


@pytest.mark.parametrize(("complexity", "turns"), [("trivial", 6), ("standard", 10)])
def test_the_cap_on_turns_is_kept_to(tmp_path: Path, complexity: str, turns: int) -> None:
    replies = [
        {"calls": [("write_file", {"path": "hello.txt", "content": f"{n}\n"})]} for n in range(30)
    ]
    vault = carried_out(tmp_path, replies, complexity=complexity)
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["reason"] == "iteration_cap"
    assert failed["error_type"] == "iteration_cap"
    assert failed["iterations"] == turns
    assert [event.pattern for event in vault.failures_told()] == [
        "max-steps-approaching",
        "iteration_cap",
    ]


def test_money_that_cannot_be_counted_is_not_promised(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
    vault.drop("---\nbudget_usd: 0.5\n---\nSay hello.\n")
    vault.once()
    vault.configure('[model]\nname = "nobody-knows-its-price"\nbase_url = "http://127.0.0.1:9"\n')
    vault.approve()
    vault.once()
    assert "plan.approved" not in vault.actions()
    assert "price" in vault.plan().read_text()
