"""Test that repeated work does not grow with the number of finished missions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from looping import Fake, Time, bare_vault, greeter, looping
from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import CASE_JSON, Branch, Case, KnownPlan, Request
from placet.case.life_cycle import State
from placet.case.observe import observe
from placet.journal.reader import Reader, connect_file
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, PutCase
from vaultkit import PLAN, TestVault, make_vault, started

TRACE = "{:08x}-0000-4000-8000-000000000000".format


def case_of(number: int, state: State = State.COMPLETED, **changes: Any) -> Case:
    case = Case(
        TRACE(number),
        f"request-{number}",
        state,
        request_digest="0" * 64,
        plan=KnownPlan(digest="1" * 64, path=f"Inbox/Archive/request-{number}_plan.md", revision=1),
        request=Request(title="Done", agent="default"),
        branches=(Branch(TRACE(number), "feat/x", "0" * 40, "1" * 40, became="merged"),),
        since="2026-01-01T00:00:00.000Z",
    )
    return replace(case, **changes)


def put(journal: Journal, *cases: Case) -> None:
    journal.commit(
        [
            PutCase(
                case.trace_id,
                case.request_id,
                case.state.value,
                CASE_JSON.dump_json(case).decode(),
                0,
                case.request_path,
                case.plan.path,
                bool(case.watched),
            )
            for case in cases
        ]
    )


def mission(journal: Journal, number: int) -> None:
    """Write what one finished mission leaves, near enough."""

    def row(action: Action, **facts: object) -> AddActivity:
        return AddActivity(
            Activity(
                f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}T{number % 24:02}:00:00.000Z",
                TRACE(number),
                Actor.AGENT,
                action,
                Entity.MISSION,
                f"request-{number}",
                "default",
                facts,
            )
        )

    used = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.01}
    journal.submit(
        [
            row(Action.MODEL_CALLED, purpose="plan", **used),
            *(row(Action.TOOL_CALLED, tool="read_file"),) * 6,
            *(row(Action.MODEL_CALLED, purpose="execute", **used),) * 3,
            row(Action.EXECUTION_COMPLETED, complexity="standard", cost_usd=0.03),
            AddActivity(
                Activity(
                    "2025-01-01T00:00:00.000Z",
                    "",
                    Actor.SYSTEM,
                    Action.GIT_RAN,
                    Entity.REPOSITORY,
                    "x",
                )
            ),
        ]
    )
    put(journal, case_of(number))


QUESTIONS: dict[str, Callable[[Reader], object]] = {
    "the day's use": lambda reader: reader.calls.used_since("2026-11-21T23:00:00.000Z"),
    "a planning's use": lambda reader: reader.calls.used_planning(TRACE(7)),
    "what a size costs": lambda reader: reader.calls.mission_costs("standard"),
    "cases of notes": lambda reader: reader.cases_of(
        [TRACE(7), "x"], ["Inbox/Archive/request-8_plan.md", "Inbox/Requests/new.md"]
    ),
    "open cases": lambda reader: reader.cases(State.PLANNING, State.REVIEW),
    "watched branches": lambda reader: reader.watched_cases(),
    "a name": lambda reader: reader.is_taken("request-9"),
    "an ID": lambda reader: reader.cases_named(TRACE(5)[:8]),
    "ended cases": lambda reader: reader.latest_cases("completed", 5),
    "an outage": lambda reader: reader.last_of(
        Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id=""
    ),
    "what was tried since": lambda reader: reader.calls.failed_since(reader.last()[0] - 3),
    "a wait": lambda reader: reader.last_of(
        Action.MODEL_WAITING, Action.MODEL_CALLED, trace_id=TRACE(7)
    ),
    "the outbox": lambda reader: reader.pending_commands(),
}


def steps(path: Path) -> dict[str, int]:
    """How many of SQLite's own steps each question takes: work, and not time."""
    found = {}
    for name, question in QUESTIONS.items():
        connection, count = connect_file(path), 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        connection.set_progress_handler(step, 1)
        question(Reader(connection))
        connection.close()
        found[name] = count
    return found


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    return vault


def test_repeated_queries_do_not_grow_with_history(vault):
    with started(vault) as daemon:
        for number in range(60):
            mission(daemon.journal, number)
        few = steps(daemon.journal.path)
        for number in range(60, 1_200):
            mission(daemon.journal, number)
        many = steps(daemon.journal.path)
    grown = {
        name: (few[name], many[name]) for name in QUESTIONS if many[name] > 1.5 * few[name] + 50
    }
    assert not grown


def test_drop_reads_no_unchanged_case(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    for number in range(5):
        vault.drop("Say hello.\n", f"Waiting {number}.md")
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        run.settle()
        looked: list[str] = []

        def look(case: Case, *more: Any) -> Any:
            looked.append(case.request_id)
            return observe(case, *more)

        with (
            patch("placet.loop.gestures.observe", look),
            patch("placet.case.sorting.box_edits_to_text", side_effect=AssertionError("parsed")),
        ):
            vault.drop("Say hello.\n", "New.md")
            run.settle()
            assert set(looked) == {"new"}
            plan = vault.plan("waiting-3")
            plan.write_text(plan.read_text() + "\nAn edit.\n")
            run.settle()
            assert set(looked) == {"new", "waiting-3"}


HEAVY = {
    "tomlkit",
    "git",
    "sqlite_utils",
    "anthropic",
    "httpx2",
    "ssl",
    "asyncio",
    "psycopg",
    "placet.tools",
    "placet.git",
    "placet.loop.tick",
}


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("status",),
        ("plans",),
        ("why", "say-hello"),
        ("show", "say-hello"),
        ("journal",),
    ],
)
@pytest.mark.thinned(3)
def test_read_commands_import_no_heavy_modules(vault, words):
    vault.drop("Say hello.\n")
    vault.here()
    code = (
        f"import sys; sys.argv = ['placet', *{words!r}]\ntry:\n    import placet.__main__\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=vault.root,
        env=vault.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert HEAVY & set(done.stderr.splitlines()) == set()


def test_status_shows_open_and_last_ended_cases(vault):
    with started(vault) as daemon:
        put(
            daemon.journal,
            *(case_of(number) for number in range(60)),
            case_of(500, State.REVIEW),
            case_of(501, State.REJECTED, request_path="Inbox/Requests/No.md"),
            *(case_of(number, State.REJECTED) for number in range(600, 640)),
        )
    (vault.root / "Inbox/Requests/No.md").write_text(
        f"---\nstatus: rejected\ntrace_id: {TRACE(501)}\n---\nNo.\n"
    )
    found = json.loads(vault.click("status", "--json").stdout)
    shown = {case["trace_id"] for case in found["cases"]}
    assert {TRACE(500), TRACE(501)} <= shown
    assert len(shown) in (42, 41)
    assert found["earlier"] == 102 - len(shown)
    assert "101 ended earlier" in vault.click("status").stdout, "one has a note that waits"
    assert json.loads(vault.click("show", "request-3", "--json").stdout)["state"] == "completed"
