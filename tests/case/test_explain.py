"""Test that failures explain themselves in the report, `placet why` and the next plan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from messages_api import MessagesApi, call, reply
from placet.case.case import Branch, Case, KnownPlan, Request
from placet.case.estimate import against_estimate, estimate, median
from placet.case.explain import (
    advice,
    explain_state,
    how_it_ended,
    of_last_mission,
    refused_calls,
    what_happened,
)
from placet.case.life_cycle import State
from placet.chat.budget import Complexity
from placet.client.notes import not_there
from placet.errors import ENDS, End, FailureClass
from placet.plan.plan import Plan, Step
from placet.plan.scope import Scope
from vaultkit import PLAN, TestVault, make_vault, running, until

CASE = Case(
    "9b20b19d-bd92-5906-8be0-05a93c00a401",
    "say-hello",
    State.REVIEW,
    request_path="Inbox/Requests/Say hello.md",
    plan=KnownPlan(revision=2, path="Inbox/Plans/say-hello_plan.md"),
    since="2026-01-02T03:04:05.000Z",
    request=Request(agent="default", portal="code"),
)


@dataclass(frozen=True)
class Row:
    id: int
    action_type: str
    details: dict[str, Any] = field(default_factory=dict)
    timestamp: str = "2026-01-02T03:04:05.678Z"
    trace_id: str = CASE.trace_id
    actor: str = "agent"
    agent: str = "default"
    entity_type: str = "mission"
    entity_id: str = "say-hello"


def called(
    number: int,
    tool: str = "read_file",
    target: str = "a.py",
    *,
    ok: bool = True,
    exit_code: int | None = None,
) -> Row:
    return Row(
        number,
        "tool.called",
        {
            "tool": tool,
            "target": target,
            "ok": ok,
            "error_type": "" if ok else "not_found",
            "exit_code": exit_code,
            "duration_ms": 250.0,
        },
    )


def refused(number: int, target: str = "x") -> Row:
    return Row(
        number,
        "tool.refused",
        {
            "tool": "write_file",
            "target": target,
            "ok": False,
            "error_type": "outside_scope",
            "duration_ms": 0.0,
        },
    )


def model(number: int) -> Row:
    return Row(
        number, "model.called", {"purpose": "execute", "duration_ms": 1000.0, "cost_usd": 0.25}
    )


# --- pure

MISSION = [
    Row(1, "plan.approved", {"reviewed_by": "cleo", "digest": "d"}, actor="human"),
    Row(2, "execution.started", {"steps": 2}),
    Row(3, "lease.acquired"),
    Row(4, "git.branch_created"),
    model(5),
    called(6),
    refused(7),
    called(8, ok=False),
    Row(9, "model.failed", {"kind": "overloaded", "reason": "529", "attempt": 1}),
    model(10),
    called(11, "run_command", "make", exit_code=2),
    Row(12, "failure.detected", {"pattern": "no-progress", "description": "Nothing new."}),
    called(13),
    model(14),
    called(15),
    Row(16, "execution.resumed", {}),
    Row(30, "git.ran", {"command": "status"}),
    refused(17, "y"),
    Row(18, "step.completed", {"step": 1, "of": 2}),
    model(19),
    called(20),
    Row(21, "plan.taken_back", {"reviewed_by": "cleo"}, actor="human"),
    Row(22, "git.rolled_back"),
]


def facts(end: End, **others: Any) -> dict[str, Any]:
    return {"reason": end.value, "iterations": 3, "cost_usd": 0.5, "files_changed": [], **others}


MENDING = Plan("Mend it", "Soon.", (Step("One"),), Scope())


def test_failure_is_explained_in_four_sentences() -> None:
    rows = of_last_mission([*MISSION[:2], *MISSION])
    saved = {"kept": "refs/placet/failed/x", "files_changed": ["a.py"], "files_more": 1}
    assert what_happened(facts(End.ITERATION_CAP, **saved), MENDING, rows) == [
        "The agent used all iterations that the plan allows. It ended after 3 iterations. Cost: $0.5000; "
        "no estimate (fewer than three similar missions are known); no limit in the plan.",
        "Last tool error: `run_command make: exit code 2`.",
        "Refused: `write_file x`, `write_file y`.",
        "Its work is saved at `refs/placet/failed/x`: 2 changed files.",
    ]


@pytest.mark.parametrize(
    ("error_type", "said"),
    [
        ("outside_scope", "Refused: `write_file x`."),
        ("path_denied", "Refused: `write_file x` (no mission may use that path)."),
        ("needs_bubblewrap", "Refused: `write_file x` (hosts need bubblewrap)."),
        ("of.tomorrow", "Refused: `write_file x`."),
    ],
)
def test_refused_call_says_why(error_type: str, said: str) -> None:
    details = {"tool": "write_file", "target": "x", "error_type": error_type}
    assert refused_calls([Row(1, "tool.refused", details)]) == said


def test_failed_calls_are_escaped_in_explanation() -> None:
    rows = [
        called(1, target="a\nb\u202e`x` ![y](https://example.com)", ok=False),
        called(2, target="ok.py"),
        *(refused(n, f"{n}") for n in range(3, 13)),
        refused(13, "x" * 5000),
        refused(14, "3"),
    ]
    _, error, barred, saved = what_happened(
        facts(End.SCOPE, left_at="/state/worktrees/x"), MENDING, rows
    )
    assert error.count("\n") == 0
    assert "\u202e" not in error
    assert error.endswith("failed, not_found``.")
    assert barred.endswith("`write_file 7` and 6 more.")
    assert saved == "Its work is still in `/state/worktrees/x`."
    assert what_happened(facts(End.TALK), MENDING, [])[1:] == ["No work of it is saved."]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (End.GAVE_UP, "The agent gave up: No `make`. It had done 1 of 2 steps."),
        (End.STOPPED_BY_PERSON, "cleo stopped the mission. It had done 1 of 2 steps."),
        (End.BUDGET, ENDS[End.BUDGET].meaning + " It had done 1 of 2 steps."),
        (End.TOOL_ERROR, "A literal step failed: No `make`. It had done 1 of 2 steps."),
    ],
)
def test_end_is_said_in_words_for_people(end: End, said: str) -> None:
    ended = Row(40, "execution.failed", facts(end, detail="No `make`."))
    assert how_it_ended([*MISSION, ended]) == said
    kept = replace(ended, details={**ended.details, "kept": "refs/placet/failed/x"})
    assert how_it_ended([*MISSION, kept]) == f"{said} Its work is saved."
    # a new plan, or a new mission, makes it old news
    for later in (Row(41, "plan.revised"), Row(41, "execution.started", {"steps": 2})):
        assert how_it_ended([*MISSION, ended, later]) == ""


@pytest.mark.parametrize("end", list(End))
def test_every_end_has_class_meaning_and_advice(end: End) -> None:
    found = ENDS[end]
    assert (found.kind is FailureClass.NONE) is (end is End.FINISHED)
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")


def test_repetition_after_scope_refusals_advises_wider_scope() -> None:
    edge = [called(1), refused(2), refused(3)]
    assert "widen `write`" in advice(End.REPETITION, edge)
    assert advice(End.REPETITION, [*edge, called(4)]) == ENDS[End.REPETITION].advice
    assert advice(End.TIMEOUT, edge) == ENDS[End.TIMEOUT].advice
    assert advice(End.REPETITION, []) == ENDS[End.REPETITION].advice


def test_estimate_needs_three_missions() -> None:
    assert median([0.1, 0.3]) is None
    assert median([0.3, 0.1, 0.2]) == 0.2
    assert (
        against_estimate(0.5, 0.2, 1.0)
        == "$0.5000; similar missions cost about $0.2000; limit $1.0000"
    )
    assert "unknown" in against_estimate(None, None, None)


def test_estimate_states_past_cost() -> None:
    found = estimate([0.11, 0.10, 0.23], Complexity.STANDARD, None)
    assert found is not None
    assert found.sentence == "Similar missions: about $0.11, up to $0.23 so far."


@pytest.mark.parametrize(("budget", "warned"), [("0.10", True), ("0.11", False), ("0.2", False)])
def test_estimate_warns_of_a_budget_below_it(budget: str, warned: bool) -> None:
    found = estimate([0.11, 0.10, 0.23], Complexity.STANDARD, Decimal(budget))
    assert found is not None
    assert found.sentence.endswith("may stop before it is done.") is warned
    assert ("This plan's budget is $0.10:" in found.sentence) is warned


@pytest.mark.parametrize(
    ("case", "rows", "said", "helps"),
    [
        (CASE, [], "Revision 2 of its plan waits for you", "placet approve say-hello"),
        (
            CASE,
            [Row(1, "plan.refused", {"reason": "No scope."})],
            "put back: No scope.",
            "placet approve",
        ),
        (
            CASE,
            [Row(1, "plan.refused", {"reason": "No scope."}), Row(2, "plan.revised")],
            "waits for you",
            "placet approve",
        ),
        (
            CASE,
            [Row(1, "plan.drifted", {"reason": "`a.py` changed."})],
            "put back: `a.py` changed.",
            "placet approve",
        ),
        (
            CASE,
            [
                Row(1, "plan.created"),
                Row(
                    2, "execution.failed", {"reason": "stopped_by_person", "report": "Reports/r.md"}
                ),
            ],
            "earlier mission of it ended with `stopped_by_person`; its report: Reports/r.md",
            "placet approve",
        ),
        (
            CASE,
            [Row(1, "plan.changed_after_approval")],
            "changed after its approval",
            "placet show",
        ),
        (
            replace(CASE, state=State.REJECTED),
            [Row(1, "plan.rejected", {"reviewed_by": "cleo", "reason": "Too dear."})],
            "cleo rejected its plan at 2026-01-02T03:04:05.000Z: Too dear.",
            "status: pending",
        ),
        (
            replace(
                CASE,
                state=State.FAILED,
                outcome=replace(CASE.outcome, failure="The model submitted 3 plans."),
            ),
            [],
            "There is no plan: The model",
            "Say hello.md",
        ),
        (
            replace(CASE, state=State.WITHDRAWN),
            [Row(1, "request.withdrawn", {"path": "Inbox/Requests/a.md"})],
            "Requests/a.md",
            "back",
        ),
        (
            replace(CASE, state=State.PLANNING),
            [model(1), Row(2, "model.failed", {"reason": "529", "attempt": 3})],
            "asked 3 times, last at 2026-01-02T03:04:05.678Z: 529",
            "resumes",
        ),
        (
            replace(CASE, state=State.PLANNING),
            [Row(2, "model.failed", {"reason": "529", "attempt": 3}), model(3)],
            "being planned",
            "Wait",
        ),
        (replace(CASE, state=State.APPROVED), [], "about to begin", "Wait"),
        (
            replace(CASE, state=State.RUNNING),
            [
                Row(1, "execution.started"),
                Row(2, "failure.detected", {"description": "Same results."}),
            ],
            "Same results.",
            "placet stop say-hello",
        ),
        (
            replace(
                CASE,
                state=State.COMPLETED,
                outcome=replace(CASE.outcome, branch="feat/x", report_path="r.md"),
                branches=(Branch("t", "feat/x", "b", "c0", report_path="r.md"),),
            ),
            [],
            "not merged yet",
            "placet merge say-hello",
        ),
        (
            replace(
                CASE,
                state=State.COMPLETED,
                branches=(Branch("t", "feat/x", "b", "c0", became="merged"),),
            ),
            [],
            "merged",
            "placet undo say-hello",
        ),
    ],
)
def test_every_state_explains_why_and_next_step(
    case: Case, rows: list[Row], said: str, helps: str
) -> None:
    why, following = explain_state(case, rows, daemon_runs=True, paused=False)
    assert said in why
    assert helps in " ".join(following)


def test_idle_work_names_command_that_starts_it() -> None:
    case = replace(CASE, state=State.PLANNING)
    assert explain_state(case, [], daemon_runs=False, paused=False)[1] == ("Start it: placet run",)
    assert explain_state(case, [], daemon_runs=True, paused=True)[1] == ("Resume: placet resume",)


# --- through the daemon


STEPS = [
    {"title": "Write it", "description": "A file.", "tools": ["write_file"]},
    {"title": "Print it", "tools": ["read_file"]},
]


def answers(body: Any) -> Any:
    """A planner that plans two steps, an agent that does one of them and gives up."""
    if "submit_plan" in {tool["name"] for tool in body["tools"]}:
        return reply(call("submit_plan", {**PLAN, "steps": STEPS}))
    if len(body["messages"]) == 1:
        return reply(
            call("write_file", {"path": "hello.txt", "content": "hello\n"}),
            call("complete_step", {"step": 1, "summary": "Written"}),
        )
    return reply(call("give_up", {"reason": "There is no paper."}))


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with MessagesApi(answers) as server:
        yield server


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def failed(vault: TestVault, count: int) -> dict[str, Any]:
    """Approve the plan, wait for its mission's failure and what is written of it; return the
    journal's row.
    """
    vault.approve()
    row = vault.await_action("execution.failed", count)
    until(lambda: len(vault.reports()) == count, "the report")
    until(
        lambda: vault.plan().exists() and "status: error" in vault.plan().read_text(),
        "the plan, back again",
    )
    return row


def test_failed_mission_is_explained_and_continued(tmp_path: Path, api: MessagesApi) -> None:
    vault = make_vault(tmp_path, ANTHROPIC_API_KEY="sk-ant-test", ANTHROPIC_BASE_URL=api.url)
    with running(vault):
        vault.drop("---\nbudget_usd: 2.5\n---\n# Say hello\n")
        until(
            lambda: vault.plan().exists() and "status: review" in vault.plan().read_text(),
            "the plan",
        )
        facts = failed(vault, 1)["metadata"]
        assert (facts["reason"], facts["iterations"], facts["files_changed"]) == (
            "gave_up",
            2,
            ["hello.txt"],
        )
        report = vault.reports()[0].read_text()
        summary = report.split("## Error Summary\n")[1].split("\n\n")[0].splitlines()
        assert len(summary) == 4
        assert summary[0].startswith(
            "- The agent gave up. It ended after 2 iterations. "
            f"Cost: ${facts['cost_usd']:.4f}; no estimate"
        )
        assert "limit $2.5000" in summary[0]
        assert summary[1].startswith("- There is no paper.")
        assert summary[2] == f"- Its work is saved at `{facts['kept']}`: 1 changed file."
        assert facts["kept"] in report
        request = vault.click("why", "say-hello", "--request").stdout
        folded = report.split("> [!example]- ")[1]
        assert all(f"> {line}".rstrip() in folded.splitlines() for line in request.splitlines())
        told = vault.click("why", "say-hello").stdout
        assert all(line.removeprefix("- ").rstrip(".") in told for line in summary)

        # what a person adds to it is read as well
        vault.reports()[0].write_text(report + "\nThe paper is in the cupboard.\n")
        returned = vault.plan()
        text = returned.read_text() + "\n## Review Comments\n\n- Again, please.\n"
        returned.write_text(text.replace('decision: ""', "decision: revise"))
        assert vault.await_action("plan.revised")["metadata"]["revision"] == 2
        asked = api.requests[-1].body["messages"][0]["content"]
        spoken = "\n".join(block["text"] for block in asked)
        assert all(
            piece in spoken
            for piece in ("<plan>", "# Failure Report: Say hello", "gave_up", "in the cupboard")
        )

        until(
            lambda: vault.plan().exists() and "revision: 2" in vault.plan().read_text(),
            "the revision",
        )
        base = re.search("base_commit: .*", vault.plan().read_text())
        assert base is not None
        # as the ready request says
        edit(vault.plan(), base[0], f"base_commit: {facts['kept_commit']}\nif_changed: proceed")
        until(
            lambda: f"made from commit `{facts['kept_commit'][:12]}`" in vault.plan().read_text(),
            "the callout says so",
        )
        assert failed(vault, 2)["metadata"]["base"] == facts["kept_commit"]

        path = vault.click("submit", "--file", "-", stdin=request).stdout.strip()
        assert path == "Inbox/Requests/Continue Say hello.md"
        vault.await_action("plan.created", 2)


def test_why_explains_unusable_note_and_unknown_id(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.drop("---\nportal: nowhere\n---\nDo it.\n", "Do it.md")
    vault.script(("plan", [{"calls": [("submit_plan", {**PLAN, "title": ""})]}] * 3))
    vault.drop("Say hello.\n")
    vault.once()
    (failed_plan,) = vault.rows("plan.failed")
    assert (failed_plan["metadata"]["end"], failed_plan["metadata"]["iterations"]) == (
        "model_error",
        3,
    )
    said = vault.click("why", "say-hello").stdout
    assert said.count("3 plans that are not valid") == 1, (
        "the note beside the request says the same"
    )
    assert "placet retry say-hello" in said
    told = json.loads(vault.click("why", "do-it", "--json").stdout)
    assert (told["request_id"], told["state"]) == ("do-it", "unusable")
    assert json.loads(vault.click("why", "do", "--json").stdout) == told, (
        "the beginning of an id will do"
    )
    assert "nowhere" in told["why"][0]
    assert vault.click("why", "nobody", check=False).returncode == 3
    assert vault.click("why", "", check=False).returncode == 3
    assert vault.click("why", "do-it", "--request", check=False).returncode == 1


def test_error_escapes_newline_in_file_name() -> None:
    error = not_there(CASE, "Inbox/Requests/two\nlines.md")
    assert error.what.startswith("Inbox/Requests/two\\nlines.md is not there")
