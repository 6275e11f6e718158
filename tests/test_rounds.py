"""Rounds of review: each asked for once, each answered once, and only the plan's own text compared."""

from __future__ import annotations

from pathlib import Path

from vaultkit import PLAN, make_vault


def test_every_round_is_answered_once(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    polite = {**PLAN, "title": "Say hello politely", "answers": ["Yes.", "No, because."]}
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", polite)]}]),
    )
    vault.drop("Say hello.\n")
    vault.once()
    for round_number in (1, 2, 3):
        vault.cli(
            "revise",
            "say-hello",
            "--comment",
            f"✅ round {round_number}",
            "--comment",
            "❌ not this ⚠️ 💡",
        )
        vault.once()
        assert len(vault.rows("plan.revision_requested")) == round_number, vault.actions()
        assert len(vault.rows("plan.revised")) == round_number
        assert vault.rows("plan.revision_requested")[-1]["metadata"]["comment_count"] == 2
        text = vault.plan().read_text()
        assert f"revision: {round_number + 1}" in text
        assert "status: review" in text
        assert text.count("**Answer:**") == 2 * round_number
        assert text.count("What changed") == 1, "of an older revision it goes"
        assert ("**Nothing** in the plan changed" in text) is (round_number > 1), (
            "comments are no change of the plan"
        )


def test_a_comment_without_an_answer_stays_open_and_is_named(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    curt = {**PLAN, "title": "Say hello politely", "answers": ["Yes."]}
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", curt)]}]),
    )
    vault.drop("Say hello.\n")
    vault.once()
    vault.click("revise", "say-hello", "--comment", "one", "--comment", "two")
    vault.once()
    text = vault.plan().read_text()
    assert "> - Comment: “two”\n> - Answer: **none**" in text
    assert text.count("**Answer:**") == 1
    vault.click("revise", "say-hello", "--comment", "three")
    vault.once()
    assert [row["metadata"]["comment_count"] for row in vault.rows("plan.revision_requested")] == [
        2,
        2,
    ]


def test_a_plan_that_was_sent_back_names_nobody_who_approved_it(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
    vault.drop("Say hello.\n")
    vault.once()
    text = vault.plan().read_text().replace("status: review", "status: review\napproved_by: ada")
    vault.plan().write_text(text.replace("Tools: `write_file`", "Tools: `rm_rf`"))
    vault.approve()
    vault.once()
    assert vault.rows("plan.refused")
    assert "approved_by" not in vault.plan().read_text()
