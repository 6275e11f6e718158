"""Test what a case says of its own state, branches and work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placet.case.case import Asking, Branch, Case, LastOutcome, Request
from placet.case.events import Answered, ScopeRefused, ScopeWidened, StopAsked
from placet.case.life_cycle import State
from placet.case.transitions import target

CASE = Case("9b20b19d-bd92-5906-8be0-05a93c00a401", "say-hello", State.RUNNING)
ASKING = Asking(State.RUNNING, "call:1", "Inbox/Questions/q.md", "d", "t", 1)
ASKS = replace(CASE, state=State.ASKING, asking=ASKING)
FIRST = Branch("t", "feat/1", "a", "b", report_path="1.md")
SECOND = Branch("t", "feat/2", "b", "c", report_path="2.md")


def test_gestures_during_question_count_as_during_work() -> None:
    assert ASKS.acting is State.RUNNING
    assert not ASKS.is_working
    assert target(ASKS, StopAsked) is target(CASE, StopAsked)


@pytest.mark.parametrize("kind", [Answered, ScopeWidened, ScopeRefused])
def test_answer_resumes_work_only_if_question_is_open(kind: type) -> None:
    assert target(ASKS, kind) is State.RUNNING
    assert target(CASE, kind) is None


@pytest.mark.parametrize(
    ("fates", "wanted"),
    [
        (("", ""), "feat/2"),
        (("", "merged"), "feat/1"),
        (("dropped", "merged"), "feat/2"),
    ],
)
def test_open_branch_is_newest_undecided_one(fates: tuple[str, str], wanted: str) -> None:
    case = replace(CASE, branches=(FIRST, SECOND))
    for branch, fate in zip(case.branches, fates, strict=True):
        case = case.with_branch(branch, became=fate)
    assert case.open_branch is not None
    assert case.open_branch.name == wanted


def test_branch_of_failed_retry_is_an_earlier_one() -> None:
    done = replace(CASE, state=State.COMPLETED, branches=(FIRST, SECOND))
    assert replace(done, outcome=LastOutcome(report_path="2.md")).last_branch == SECOND
    assert replace(done, outcome=LastOutcome(report_path="3.md")).last_branch is None
    failed = replace(done, state=State.FAILED, outcome=LastOutcome(report_path="2.md"))
    assert failed.last_branch is None
    assert failed.branch == SECOND


def test_merged_and_reverted_branches_are_not_watched() -> None:
    case = replace(CASE, branches=(FIRST, replace(SECOND, became="dropped")))
    assert case.watched == case.branches
    assert not case.with_branch(FIRST, became="merged").branches[0].is_watched
    assert not case.with_branch(FIRST, became="reverted").branches[0].is_watched


def test_request_for_another_portal_is_elsewhere() -> None:
    case = replace(CASE, request=Request(portal="site"))
    planned = replace(case, plan=replace(case.plan, keys=(("portal", "app"),)))
    assert (case.is_elsewhere, planned.is_elsewhere) == (False, True)
    assert planned.planned_portal == "app"
