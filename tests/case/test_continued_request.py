"""Test the request that continues a failed mission."""

from __future__ import annotations

from tests.case.test_explain import CASE, Row

from placet.case.continued_request import continued_request
from placet.plan.plan import Plan, Step
from placet.plan.scope import Scope


def test_continued_request_lists_finished_and_open_work() -> None:
    plan = Plan("Mend it", "Soon.", (Step("One"), Step("Two")), Scope())
    facts = {
        "reason": "budget",
        "files_changed": ["a.py"],
        "kept": "refs/placet/failed/x",
        "kept_commit": "c0ffee",
    }
    done = [Row(1, "step.completed", {"step": 1})]
    text = continued_request(CASE, plan, facts, "no\n# money", done)
    assert text.startswith("---\nagent: default\nportal: code\n---\n# Continue: Mend it\n")
    assert "- 2. Two\n\nThe earlier attempt had done:\n- 1. One\n" in text
    assert "base_commit: c0ffee" in text
    assert "\n# money" not in text


def test_continued_request_escapes_model_text() -> None:
    beacon = "![x](https://example.com/?q) %% hidden"
    plan = Plan(beacon, beacon, (Step(beacon), Step(beacon)), Scope())
    done = [Row(1, "step.completed", {"step": 1})]
    text = continued_request(CASE, plan, {"reason": "gave_up"}, beacon, done)
    assert text.count("example.com") == text.count("!\\[x") + text.count("\\![x") == 5
    assert " %% " not in text


def test_refused_commit_is_no_base_and_no_step() -> None:
    plan = Plan("Mend it", "Soon.", (Step("One"), Step("Two")), Scope())
    facts = {"reason": "scope", "kept": "refs/placet/failed/x", "kept_commit": "c0ffee"}
    done = [Row(1, "step.completed", {"step": 1})]
    assert "base_commit: c0ffee" in continued_request(CASE, plan, facts, "no", done)
    text = continued_request(CASE, plan, {**facts, "refused": True}, "no", done)
    assert "c0ffee" not in text
    assert "Still to be done:\n- 1. One\n- 2. Two\n" in text
