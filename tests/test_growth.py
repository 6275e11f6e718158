"""What many finished missions cost: nothing that is done again and again depends on how many lie behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.case import CASE_JSON, Case, State
from placet.journal import AddActivity, Journal, PutCase, Reader
from placet.journal.reading import connect
from vaultkit import PLAN, TestVault, make_vault, started

TRACE = "{:08x}-0000-4000-8000-000000000000".format


def case_of(number: int, state: State = State.COMPLETED, **changes: Any) -> Case:
    case = Case(TRACE(number), f"request-{number}", state, request_digest="0" * 64, plan_digest="1" * 64, title="Done",
                agent="default", plan_path=f"Inbox/Archive/request-{number}_plan.md", revision=1, base="0" * 40, tip="1" * 40,
                became="merged", since="2026-01-01T00:00:00.000Z")
    return replace(case, **changes)


def put(journal: Journal, *cases: Case) -> None:
    journal.commit([PutCase(case.trace_id, case.request_id, case.state.value, CASE_JSON.dump_json(case).decode(), 0,
                            case.request_path, case.plan_path, bool(case.watched)) for case in cases])


def mission(journal: Journal, number: int) -> None:
    """Write what one finished mission leaves, near enough."""
    def row(action: Action, **facts: object) -> AddActivity:
        return AddActivity(Activity(f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}T{number % 24:02}:00:00.000Z", TRACE(number),
                                    Actor.AGENT, action, Entity.MISSION, f"request-{number}", "default", facts))

    used = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.01}
    journal.submit([row(Action.MODEL_CALLED, purpose="plan", **used), *(row(Action.TOOL_CALLED, tool="read_file"),) * 6,
                    *(row(Action.MODEL_CALLED, purpose="execute", **used),) * 3,
                    row(Action.EXECUTION_COMPLETED, complexity="standard", cost_usd=0.03),
                    AddActivity(Activity("2025-01-01T00:00:00.000Z", "", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, "x"))])
    put(journal, case_of(number))


QUESTIONS: dict[str, Callable[[Reader], object]] = {
    "the day's use": lambda reader: reader.used_since("2026-11-21T23:00:00.000Z"),
    "a planning's use": lambda reader: reader.used_planning(TRACE(7)),
    "what a size costs": lambda reader: reader.costs("standard"),
    "cases of notes": lambda reader: reader.cases_of([TRACE(7), "x"], ["Inbox/Archive/request-8_plan.md", "Inbox/Requests/new.md"]),
    "open cases": lambda reader: reader.cases(State.PLANNING, State.REVIEW),
    "watched branches": lambda reader: reader.watched_cases(),
    "a name": lambda reader: reader.is_taken("request-9"),
    "an ID": lambda reader: reader.cases_named(TRACE(5)[:8]),
    "ended cases": lambda reader: reader.latest_cases("completed", 5),
    "an outage": lambda reader: reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id=""),
    "a wait": lambda reader: reader.last_of(Action.MODEL_WAITING, Action.MODEL_CALLED, trace_id=TRACE(7)),
    "the outbox": lambda reader: reader.pending_commands(),
}


def steps(path: Path) -> dict[str, int]:
    """How many of SQLite's own steps each question takes: work, and not time."""
    found = {}
    for name, question in QUESTIONS.items():
        connection, count = connect(path), 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        connection.set_progress_handler(step, 1)
        question(Reader(connection, path.parent / "blobs"))
        connection.close()
        found[name] = count
    return found


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
    return vault


def test_what_is_asked_again_and_again_takes_the_same_steps_however_many_missions_lie_behind(vault):
    with started(vault) as daemon:
        for number in range(60):
            mission(daemon.journal, number)
        few = steps(daemon.journal.path)
        for number in range(60, 1_200):
            mission(daemon.journal, number)
        many = steps(daemon.journal.path)
    grown = {name: (few[name], many[name]) for name in QUESTIONS if many[name] > 1.5 * few[name] + 50}
    assert not grown


def test_the_sums_are_what_the_rows_come_to(vault):
    with started(vault) as daemon:
        for number in range(30):
            mission(daemon.journal, number)
        with daemon.journal.read() as reader:
            assert reader.used_since("2025-01-01T00:00:00.000Z") == (30 * 4 * 110, Decimal("1.2"))
            assert reader.used_planning(TRACE(3)) == (110, Decimal("0.01"))
            assert reader.costs("standard", 3) == (0.03,) * 3
            assert reader.costs("trivial") == ()


def test_the_daemon_holds_what_is_open_and_what_has_a_note_and_nothing_else(vault):
    rejected = case_of(500, State.REJECTED, request_path="Inbox/Requests/No.md", plan_path="Inbox/Rejected/request-500_rejected.md")
    open_branch = case_of(501, branch="feat/x", became="")
    with started(vault) as daemon:
        put(daemon.journal, *(case_of(number) for number in range(300)), rejected, open_branch, case_of(502, State.REVIEW))
    (vault.root / "Inbox/Requests/No.md").write_text(f"---\nstatus: rejected\ntrace_id: {rejected.trace_id}\n---\nNo.\n")
    with started(vault) as daemon:
        loop = daemon.loop
        assert sorted(loop.cases) == [TRACE(502)], "those that are open, before anything was looked at"
        daemon.run_once()
        assert TRACE(500) in set(loop.cases), "its request lies in the folder"
        assert len(loop.cases) <= 2
        assert list(loop.cases.watched) == [TRACE(501)]
        assert loop.cases[TRACE(7)].request_id == "request-7", "one that is over is found when it is asked for"
        assert TRACE(999) not in loop.cases


def test_a_finished_case_is_found_by_the_note_that_names_it_and_by_the_place_where_it_lay(vault):
    """The plan of a mission that is over is dragged back from the archive; a rejected request loses its trace_id to an edit."""
    plan = "---\ntrace_id: {}\nrequest_id: request-3\nstatus: completed\nrevision: 1\n---\n# Done\n"
    rejected = case_of(4, State.REJECTED, request_path="Inbox/Requests/No.md", plan_path="")
    with started(vault) as daemon:
        put(daemon.journal, *(case_of(number) for number in range(4)), rejected)
        daemon.run_once()
        (vault.root / "Inbox/Plans/back.md").write_text(plan.format(TRACE(3)))
        (vault.root / "Inbox/Requests/No.md").write_text("---\nstatus: pending\n---\nAsk again.\n")
        daemon.run_once()
        assert [row["trace_id"] for row in vault.rows("plan.taken_back")] == [TRACE(3)]
        assert daemon.loop.cases[TRACE(3)].state is State.REVIEW
        assert {row["trace_id"] for row in vault.rows("request.detected")} == {TRACE(4)}, "it is the rejected one, which asks again"


def test_names_of_finished_requests_stay_taken(vault):
    with started(vault) as daemon:
        put(daemon.journal, case_of(1))
        vault.drop("Do it.\n", "Request 1.md")
        daemon.run_once()
    assert vault.rows("request.detected")[0]["entity_id"] == "request-1-2"
