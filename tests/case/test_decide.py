"""Test what placet decides on a mission's end and a person's gesture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.case.test_observe import CASE, NOW, ended, plan_at

from placet.case.case import (
    Person,
)
from placet.case.commands import Move, Stamp
from placet.case.decide import decide
from placet.case.events import Drafted, MissionCompleted, MissionFailed, RevisionAsked
from placet.case.life_cycle import State
from placet.note.frontmatter import read_note
from placet.plan.digest import plan_text


@pytest.mark.parametrize(
    ("kind", "status", "home"),
    [
        (MissionFailed, "error", "Inbox/Plans/say-hello_plan.md"),
        (MissionCompleted, "completed", "Inbox/Archive/say-hello_plan.md"),
    ],
)
def test_running_plan_moved_to_requests_is_archived(kind: type, status: str, home: str) -> None:
    where = "Inbox/Requests/odd name.md"
    plan = replace(CASE.plan, path=where)
    running = replace(CASE, state=State.RUNNING, stop="moved", plan=plan)
    decision = ended(running, kind)
    used_up = {} if status == "completed" else {"approved_by": None, "approved_at": None}
    assert (
        Stamp(where, {"status": status, **used_up}, seen={"status": "approved"})
        in decision.commands
    )
    assert Move(where, home) in decision.commands
    assert decision.case.plan.path == home


def test_withdrawn_running_plan_stays_where_user_moved_it() -> None:
    running = replace(CASE, state=State.RUNNING, stop="taken back")
    decision = ended(running, MissionFailed)
    assert decision.case.plan.path == CASE.plan.path
    assert not [c for c in decision.commands if isinstance(c, Move) and c.src == CASE.plan.path]


def test_revision_names_its_reviewer() -> None:
    note = plan_at(CASE.plan.path, keys="status: needs_revision")
    asked = decide(CASE, RevisionAsked(note, None, Person("cleo", "cli")), NOW)
    assert asked is not None
    text = plan_at(CASE.plan.path).raw.replace(b"revision: 1", b"revision: 2")
    drafted = Drafted(asked.case.generation, text, 2)
    revised = decide(asked.case, drafted, "2026-02-02T00:00:00.000Z")
    assert revised is not None
    meta = read_note(revised.texts[0]).meta
    assert meta["reviewed_by"] == "cleo"
    assert str(meta["reviewed_at"]).startswith("2026-01-02")
    assert revised.texts[1] == plan_text(text), "they are not part of what is approved"


def test_completed_mission_tells_its_doubts() -> None:
    said = {"doubts": ("`pytest` never ran.",), "changed_tests": "changes tests: `test_a.py` +1 −1"}  # noqa: RUF001 - a minus sign
    ended = MissionCompleted(1, b"# Report\n", "r.md", {"commit": "c"}, **said)
    decision = decide(replace(CASE, state=State.RUNNING), ended, NOW)
    assert decision is not None
    assert decision.case.outcome.doubts == decision.case.branches[0].doubts == said["doubts"]
    assert decision.case.outcome.changed_tests == said["changed_tests"]


def test_stop_after_last_step_archives_completed_plan() -> None:
    plan = replace(CASE.plan, path="Inbox/Rejected/x.md")
    case = replace(CASE, state=State.RUNNING, stop="its plan was rejected", plan=plan)
    decision = decide(case, MissionCompleted(1, b"# Report\n", "r.md", {}), NOW)
    assert decision is not None
    assert (
        Stamp(plan.path, {"status": "completed"}, seen={"status": "approved"}) in decision.commands
    )
    assert decision.case.plan.path == "Inbox/Archive/say-hello_plan.md"
    assert any(b"You stopped this mission after its last step" in one for one in decision.texts)
