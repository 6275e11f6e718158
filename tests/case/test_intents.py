"""Test what a command's intent changes in a note, and for which text it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.case.test_observe import BODY, CASE, NOW, REQUEST, plan_at

from placet.case.case import Person
from placet.case.commands import Edit
from placet.case.intents import Change, Intent, OutdatedError, change_of, edits_of, with_ticks
from placet.case.sorting import CaseNotes
from placet.plan.comments import comments

PLAN = plan_at(CASE.plan.path)
NOTES = CaseNotes(REQUEST, [PLAN])
APPROVE = Intent(
    "1", "approve", CASE.trace_id, PLAN.path, PLAN.digest, CASE.state.value, 1, who="cleo"
)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"digest": "0" * 64}, "was changed since you read it"),
        ({"state": "running"}, "Nothing was changed"),
        ({"generation": 9}, "Nothing was changed"),
        ({"path": "Inbox/Plans/other.md"}, "was moved meanwhile"),
    ],
)
def test_intent_for_another_text_is_outdated(other: dict[str, Any], why: str) -> None:
    with pytest.raises(OutdatedError, match=why):
        change_of(CASE, replace(APPROVE, **other), NOTES, NOW)


def test_two_plans_are_named_and_neither_approved() -> None:
    both = CaseNotes(REQUEST, [PLAN, plan_at("Inbox/Plans/copy.md")])
    with pytest.raises(OutdatedError, match=r"There are 2 notes.*copy\.md.*Delete all but one"):
        change_of(CASE, APPROVE, both, NOW)


def test_approval_writes_only_its_remark() -> None:
    bare = change_of(CASE, APPROVE, NOTES, NOW)
    assert (bare.commands, bare.texts) == ((), ())
    assert bare.notes.plans[0].meta["decision"] == "approve"
    said = change_of(CASE, replace(APPROVE, texts=("Be brief.",)), NOTES, NOW)
    (edit,) = said.commands
    assert isinstance(edit, Edit)
    assert (edit.path, edit.comments, edit.who) == (PLAN.path, ("Be brief.",), "cleo")
    assert [one.text for one in comments(said.texts[0].decode())] == ["Be brief."]


def test_reason_of_rejection_is_seen_with_it() -> None:
    change = change_of(CASE, replace(APPROVE, what="reject", texts=("No.",)), NOTES, NOW)
    meta = change.notes.plans[0].meta
    assert (meta["decision"], meta["rejection_reason"]) == ("reject", "No.")


def test_edits_of_one_text_build_on_each_other() -> None:
    two = [
        replace(APPROVE, id="1", what="comment", texts=("First.",)),
        replace(APPROVE, id="2", what="tick", texts=("1",)),
        replace(APPROVE, id="3", what="tick", texts=("7",)),
    ]
    first, second, third = (change for _, change in edits_of(CASE, two, NOTES, NOW))
    assert isinstance(first, Change)
    assert isinstance(second, Change)
    assert b"First." in second.texts[0]
    assert b"- [ ] Do this step" in second.texts[0]
    assert isinstance(third, OutdatedError)
    assert "Step 7" in str(third)


def test_tick_changes_only_the_body() -> None:
    (step,) = change_of(CASE, replace(APPROVE, what="tick", texts=("1",)), NOTES, NOW).commands
    assert isinstance(step, Edit)
    raw = PLAN.raw.replace(b"status: review", b"status:   review  # mine")
    changed = with_ticks(raw, step.steps)
    head = raw[: raw.index(BODY[:7].encode())]
    assert changed.startswith(head)
    assert changed.count(b"- [ ] Do this step") == 1


@pytest.mark.parametrize(("name", "wanted"), [("cleo", ""), ("ann", "ann")])
def test_login_is_named_if_not_the_user(name: str, wanted: str) -> None:
    assert replace(APPROVE, via="board", name=name).person == Person("cleo", "board", wanted)
