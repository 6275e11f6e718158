"""Rounds of review: each asked for once, each answered once, and only the plan's own text compared."""

from __future__ import annotations

from pathlib import Path

from vaultkit import PLAN, make_vault


def test_every_round_is_answered_once(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    polite = {**PLAN, "title": "Say hello politely", "answers": ["Yes.", "No, because."]}
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("revise", [{"calls": [("submit_plan", polite)]}]))
    vault.drop("Say hello.\n")
    vault.once()
    for round_number in (1, 2, 3):
        vault.cli("revise", "say-hello", "--comment", f"✅ round {round_number}", "--comment", "❌ not this ⚠️ 💡")
        vault.once()
        assert len(vault.rows("plan.revision_requested")) == round_number, vault.actions()
        assert len(vault.rows("plan.revised")) == round_number
        assert vault.rows("plan.revision_requested")[-1]["metadata"]["comment_count"] == 2
        text = vault.plan().read_text()
        assert f"revision: {round_number + 1}" in text
        assert "status: review" in text
        assert text.count("**Answer:**") == 2 * round_number
        assert text.count("What changed") == (1 if round_number == 1 else 0), "comments are no change of the plan"
