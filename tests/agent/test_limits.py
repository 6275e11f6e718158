"""Test that missions and plannings keep to their budgets, to the token."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping, says, turns_taken
from placet.chat.budget import prompt_at_most
from placet.chat.messages import (
    Ask,
    ModelError,
    ModelErrorKind,
    Purpose,
    Reply,
    Usage,
)
from placet.loop.tick import Tick
from vaultkit import PLAN, TestVault, make_vault

STEP = [{"title": "Do it", "tools": ["read_file", "write_file", "list_directory"]}]


LONG = {**PLAN, "steps": STEP, "complexity": "complex"}


def plan(complexity: str = "standard") -> Reply:
    return says(("submit_plan", {**LONG, "complexity": complexity}))


def paid(vault: TestVault) -> TestVault:
    """The same vault with a provider that takes money."""
    path = vault.root / "System" / "placet.toml"
    vault.configure(path.read_text().replace('"scripted"', '"anthropic"'))
    return vault


def mission(
    folder: Path, answer: Callable[[Ask], Reply], *, config: str = "", time: Time | None = None
) -> Running:
    """Plan, approve, carry out; `answer` is the mission's model."""
    vault = paid(bare_vault(folder, config))
    model = Fake(lambda ask: plan() if ask.purpose is Purpose.PLAN else answer(ask))
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: model, time=time) as running:
        running.settle()
        vault.approve()
        running.settle()
    running.model = model
    return running


def end(running: Running) -> dict[str, Any]:
    rows = [
        row
        for row in running.vault.rows()
        if row["action_type"] in ("execution.completed", "execution.failed")
    ]
    assert len(rows) == 1, running.vault.actions()
    return rows[0]["metadata"]


def writes(ask: Ask) -> Reply:
    return says(
        ("write_file", {"path": "hello.txt", "content": f"{turns_taken(ask)}\n"}),
        usage=Usage(1_000, 100),
    )


def slowly(time: Time) -> Callable[[Ask], Reply]:
    def answer(ask: Ask) -> Reply:
        time.pass_time(100)
        return writes(ask)

    return answer


@pytest.mark.parametrize(
    ("config", "turns"),
    [
        ("mission_time_s = 301.0", 4),
        ("mission_time_s = 300.0", 3),
        ("mission_wall_time_s = 301.0", 4),
        ("mission_wall_time_s = 300.0", 3),
    ],
)
@pytest.mark.thinned(2)
def test_timeout_uses_named_clock(tmp_path: Path, config: str, turns: int) -> None:
    time = Time()
    ended = end(mission(tmp_path, slowly(time), config=f"[limits]\n{config}\n", time=time))
    assert (ended["reason"], ended["iterations"]) == ("timeout", turns)


def test_retry_waits_are_excluded_from_working_time(tmp_path: Path) -> None:
    time = Time()
    down = iter([True, True])

    def answer(ask: Ask) -> Reply:
        if next(down, False):
            raise ModelError(ModelErrorKind.TRANSIENT, "overloaded", retry_after_s=25)
        time.pass_time(1)
        return greeter(ask)

    running = mission(tmp_path, answer, config="[limits]\nmission_time_s = 10.0\n", time=time)
    assert "execution.completed" in running.vault.actions()


class Greedy:
    """A model that never stops calling tools and takes every token that it is given."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.last: dict[str, Usage] = {}

    def __call__(self, ask: Ask) -> Reply:
        if ask.purpose is Purpose.PLAN:
            return plan("complex")
        usage = Usage(prompt_at_most(ask, self.last.get(ask.trace_id)), ask.max_tokens)
        self.last[ask.trace_id] = usage
        self.used[ask.trace_id] = (
            self.used.get(ask.trace_id, 0) + usage.input_tokens + usage.output_tokens
        )
        return dataclasses.replace(writes(ask), usage=usage)


def eight(folder: Path, limit: str) -> tuple[TestVault, Greedy, Tick]:
    """Let eight missions that never stop work at once until they end or wait."""
    config = f"max_tokens = 2000\n[limits]\n{limit}\n[daemon]\nmissions_at_once = 8\n"
    vault, greedy = bare_vault(folder, config), Greedy()
    for n in range(8):
        vault.drop(f"Say hello {n}.\n", f"Hello {n}.md")
    with looping(vault, model=lambda: Fake(greedy)) as running:
        running.settle()
        for n in range(8):
            vault.approve(f"hello-{n}")
        return vault, greedy, running.settle(4000)


def test_eight_endless_missions_use_exactly_their_limits(
    tmp_path: Path,
) -> None:
    vault, greedy, _ = eight(tmp_path, "mission_tokens = 90000")
    ends = [row["metadata"] for row in vault.rows("execution.failed")]
    assert [ended["reason"] for ended in ends] == ["budget"] * 8
    assert len(greedy.used) == 8
    assert max(greedy.used.values()) <= 90_000
    assert min(greedy.used.values()) > 90_000 - 20_000, (
        "what is left does not pay for another prompt"
    )
    asked = [
        row["metadata"]
        for row in vault.rows("model.called")
        if row["metadata"]["purpose"] == "execute"
    ]
    assert sum(row["input_tokens"] + row["output_tokens"] for row in asked) == sum(
        greedy.used.values()
    )


def test_eight_missions_never_exceed_day_budget(tmp_path: Path) -> None:
    vault, greedy, waits = eight(tmp_path, "day_tokens = 300000")
    assert "Today's budget" in waits.waiting[0]
    assert vault.rows("execution.failed") == []
    assert 300_000 - 40_000 < sum(greedy.used.values()) <= 300_000


def test_planning_has_its_own_budget(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path, "[limits]\nplanning_tokens = 20000\n")
    vault.drop("Say hello.\n")
    model = Fake(lambda ask: says(("list_directory", {"path": "."}), usage=Usage(9_000, 100)))
    with looping(vault, model=lambda: model) as running:
        running.settle()
    assert vault.rows("plan.failed")[0]["metadata"]["error_type"] == "budget"
    assert "planning" in (vault.root / "Inbox/Requests/Say hello.placet.md").read_text()
    assert len(model.asks) == 2


def test_revisions_share_planning_budget(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path, "[limits]\nplanning_tokens = 26000\n")
    vault.drop("Say hello.\n")
    model = Fake(
        lambda ask: says(
            (
                "submit_plan",
                {**LONG, "answers": ["Yes."]} if ask.purpose is Purpose.REVISE else LONG,
            ),
            usage=Usage(9_000, 500),
        )
    )
    with looping(vault, model=lambda: model) as running:
        running.settle()
        for _ in range(3):
            if "plan.failed" in vault.actions():
                break
            text = vault.plan().read_text()
            text = text.replace("status: review", "status: needs_revision")
            vault.plan().write_text(text + "\n> @placet Shorter, please.\n")
            running.settle()
    assert len(model.asks) == 2, "the third could come to more than is left of 26,000"
    assert vault.rows("plan.failed")[0]["metadata"]["error_type"] == "budget"


def test_retry_resets_planning_budget(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path, "[limits]\nplanning_tokens = 20000\n")
    request = vault.drop("Say hello.\n")
    model = Fake(lambda ask: says(("list_directory", {"path": "."}), usage=Usage(9_000, 100)))
    with looping(vault, model=lambda: model) as running:
        running.settle()
        assert len(model.asks) == 2
        request.write_text(request.read_text().replace("status: error", "status: pending"))
        running.settle()
    assert [len(model.asks), len(vault.rows("plan.failed"))] == [4, 2]


def test_approval_refuses_budget_for_unpriced_model(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("---\nbudget_usd: 0.5\n---\nSay hello.\n")
    vault.once()
    vault.configure('[model]\nname = "nobody-knows-its-price"\nbase_url = "http://127.0.0.1:9"\n')
    vault.approve()
    vault.once()
    assert "plan.approved" not in vault.actions()
    assert "price" in vault.plan().read_text()
