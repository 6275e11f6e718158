"""Test what a decision remembers, and where it has notes moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.case.test_observe import CASE, NOW, REQUEST, plan_at

from placet.activity import Action, Actor, Entity
from placet.case.case import Approval, Person
from placet.case.commands import Move, Stamp
from placet.case.decision_builder import SPENT_KEPT, DecisionBuilder
from placet.case.life_cycle import State
from placet.note.paths import Folder

LATER = "2026-02-02T00:00:00.000Z"


@pytest.mark.parametrize(
    ("to", "since", "notice"), [(State.REVIEW, NOW, "why"), (State.APPROVED, LATER, "")]
)
def test_only_new_state_has_new_time_and_notice(to: State, since: str, notice: str) -> None:
    case = DecisionBuilder(replace(CASE, notice="why"), to, LATER).done().case
    assert (case.since, case.notice) == (since, notice)


def test_used_approval_never_counts_again() -> None:
    case = replace(CASE, approval=Approval(at="a0"))
    for number in range(1, SPENT_KEPT + 2):
        d = DecisionBuilder(case, State.REVIEW, LATER)
        d.spend_approval()
        assert not d.done().case.approval.at
        case = replace(d.done().case, approval=Approval(at=f"a{number}"))
    assert len(case.spent_approvals) == SPENT_KEPT
    assert case.spent_approvals[-1] == f"a{SPENT_KEPT}"


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        (Folder.PLANS, []),
        (Folder.ACTIVE, [Move(CASE.plan.path, "System/Active/say-hello.md")]),
        (Folder.REJECTED, [Move(CASE.plan.path, "Inbox/Rejected/say-hello_rejected.md")]),
    ],
)
def test_plan_moves_only_into_another_folder(folder: Folder, wanted: list[Move]) -> None:
    d = DecisionBuilder(CASE, State.REVIEW, LATER)
    d.move(plan_at(CASE.plan.path), folder)
    assert d.commands == wanted
    assert d.case.plan.path == (wanted[0].dst if wanted else CASE.plan.path)


def test_stamp_of_request_names_the_value_it_saw() -> None:
    d = DecisionBuilder(CASE, State.PLANNING, LATER)
    d.stamp_request(REQUEST)
    marks = {"status": "planning", "trace_id": CASE.trace_id}
    assert d.commands == [Stamp(REQUEST.path, marks, REQUEST.digest, {"status": "planned"})]
    assert "planning" in d.case.stamped


@pytest.mark.parametrize(
    ("person", "via", "kept"),
    [(Person(), "move", True), (Person("cleo", "cli"), "cli", False)],
)
def test_row_of_person_says_how_it_was_done(person: Person, via: str, kept: bool) -> None:
    d = DecisionBuilder(replace(CASE, plannings=((1, NOW),)), State.APPROVED, LATER)
    d.by_human(Action.PLAN_APPROVED, Entity.PLAN, person)
    (row,) = d.done().rows
    assert (row.actor, row.metadata["via"]) == (Actor.HUMAN, via)
    assert bool(d.case.plannings) == kept, "a command asks for the planning"
