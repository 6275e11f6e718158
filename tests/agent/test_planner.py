"""Test plans that the model does not finish, or makes too long."""

from __future__ import annotations

from pathlib import Path

from vaultkit import PLAN, make_vault


def test_plan_with_more_steps_than_turns_is_refused(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure("[limits]\niterations_ceiling = 8\n")
    steps = [{**PLAN["steps"][0], "title": f"Part {n}"} for n in range(4)]
    vault.script(
        (
            "plan",
            [
                {"calls": [("submit_plan", {**PLAN, "steps": steps})]},
                {"calls": [("submit_plan", {**PLAN, "steps": steps[:3]})]},
            ],
        )
    )
    vault.drop("Say hello.\n")
    vault.once()
    assert "### 3. Part 2" in vault.plan().read_text()
    assert "Part 3" not in vault.plan().read_text()
    submitted = [row["metadata"]["ok"] for row in vault.rows("tool.called")]
    assert submitted == [False], "the accepted one is the plan"


def test_model_failure_leaves_reason_and_no_plan(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    bad = {**PLAN, "scope": {"write": ["../out"]}}
    vault.script(("plan", [{"calls": [("submit_plan", bad)]}] * 3))
    request = vault.drop("Say hello.\n")
    vault.once()
    assert "status: error" in request.read_text()
    assert vault.notes("Inbox/Plans") == []
    assert vault.rows("plan.failed")[0]["metadata"]["error_type"] == "invalid_plan"
    assert "not valid" in (vault.root / "Inbox/Requests/Say hello.placet.md").read_text()
    vault.once()
    assert len(vault.rows("model.called")) == 3  # it does not go on asking


def test_a_turn_without_a_plan_is_nudged_once(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"text": "Here is my plan: …"}, {"calls": [("submit_plan", PLAN)]}]))
    vault.drop("Say hello.\n")
    vault.once()
    assert vault.plan().exists()
