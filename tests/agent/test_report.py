"""Test that reports name what happened, briefly and without meaning of their own."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, settings
from tests.property.test_foreign_words import ONE, WORDS, assert_is_only_read, spans

from placet.agent.report import ReportData, commands_table, outcome_of
from placet.case.case import Approval, Case
from placet.case.events import MissionFailed
from placet.case.life_cycle import State
from placet.case.mission_result import (
    ChangedFile,
    CommandRun,
    MissionResult,
    Spent,
    StepDone,
)
from placet.chat.budget import Complexity
from placet.errors import End
from placet.note.frontmatter import Frontmatter, read_note
from placet.note.markdown import ACTS
from placet.plan.plan import Plan, Step
from placet.plan.scope import Scope


@given(WORDS, WORDS, WORDS)
@settings(max_examples=150, deadline=None)
def test_report_content_is_inert(one: str, other: str, third: str) -> None:
    title = "x" + one
    plan = Plan(title, one, (Step(title), Step("y" + other)), Scope(("a",)))
    case = Case(
        ONE[1],
        "r",
        State.RUNNING,
        request_path="Inbox/Requests/R.md",
        approval=Approval(by=third, digest="d" * 64),
    )
    at = ReportData(
        case,
        plan,
        Complexity.STANDARD,
        third,
        "anthropic",
        "bubblewrap",
        datetime(2026, 1, 1, tzinfo=UTC),
        "s",
        Frontmatter.YAML,
    )
    work = MissionResult(
        branch="feat/r-1",
        base="a" * 40,
        steps=(StepDone(1, other, "c" * 40),),
        files=(ChangedFile(third, "A", 1, 1),),
        left_out=(other,),
        commands=(CommandRun(third, 0),),
        calls={one: 1},
        spent=Spent(replies=1),
        repository="/app",
        worker=other,
        not_allowed=(third,),
    )
    finished = replace(work, summary=one, commit="b" * 40)
    text = read_note(outcome_of(finished, at).report).body
    assert_is_only_read(text, headings=7)
    failed = replace(
        work,
        end=End.GAVE_UP,
        detail=other,
        error_type="X",
        error={"error": one, "error_type": other},
        last_success=third,
    )
    text = read_note(outcome_of(failed, at).report).body
    assert not [span for span in spans(text) if ACTS.match(span)]
    assert len(re.findall(r"(?m)^#{1,2} ", re.sub(r"(?ms)^(`{3,}).*?^\1`*$", "", text))) == 6


def test_report_shortens_long_commands() -> None:
    ran = (CommandRun(f"python -c {'x' * 230}", 0), CommandRun("ls", 1))
    work = MissionResult(commands=ran, spent=Spent(replies=1), repository="")
    lines = commands_table(work).splitlines()
    assert max(map(len, lines)) < 120
    assert lines[-1] == "| `ls` | 1 |"


def test_report_and_row_name_at_most_200_files() -> None:
    plan = Plan("T", "", (Step("Do"),), Scope(write=("**",)))
    case = Case("1" * 8, "r", State.RUNNING, approval=Approval(by="me", digest="d" * 64))
    at = ReportData(
        case,
        plan,
        Complexity.STANDARD,
        "me",
        "anthropic",
        "bubblewrap",
        datetime(2026, 1, 1, tzinfo=UTC),
        "s",
        Frontmatter.YAML,
    )
    work = MissionResult(
        files=tuple(ChangedFile(f"{n}.txt", "A", 1, 0) for n in range(1_000)),
        spent=Spent(replies=1),
        repository="/app",
    )
    ended = outcome_of(replace(work, commit="b" * 40), at)
    assert len(ended.facts["files_changed"]) == 200
    assert ended.facts["files_more"] == 800
    assert ended.report.count(b".txt") == 200
    assert b"And 800 more files." in ended.report


def test_reached_limit_is_told_by_its_meaning() -> None:
    case = Case("1" * 8, "r", State.RUNNING, approval=Approval(by="me", digest="d" * 64))
    at = ReportData(
        case,
        Plan("<% T %>", "", (Step("Do"),), Scope(write=("**",))),
        Complexity.STANDARD,
        "me",
        "anthropic",
        "bubblewrap",
        datetime(2026, 1, 1, tzinfo=UTC),
        "s",
        Frontmatter.YAML,
    )
    sums = "the mission: $0.0155 of $0.0500 used; the next call may take $0.0614 more"
    work = MissionResult(spent=Spent(replies=1), repository="/app", detail=sums)
    ended = outcome_of(replace(work, end=End.BUDGET, last_words="Let me look."), at)
    assert isinstance(ended, MissionFailed)
    assert ended.reason.startswith("The rest of the budget is too small for another iteration (see")
    assert b"0155 of" in ended.report
    assert read_note(ended.report).meta["title"] == "< % T %>"
    crashed = outcome_of(replace(work, end=End.TOOL_ERROR, last_words="So."), at)
    assert isinstance(crashed, MissionFailed)
    assert crashed.reason.startswith(sums)
