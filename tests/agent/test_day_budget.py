"""Test the day's budget: how work waits for it, and when it resumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.loop.test_work import shown, side_notes

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.agent.day_budget import day_of
from placet.case.waiting import WaitReason
from placet.chat.messages import Usage
from placet.client import cases
from vaultkit import PLAN, TestVault


def status_of(vault: TestVault, time: Time) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "Clock", lambda: time.clock)
        return shown(vault)


def test_day_budget_survives_restart_and_delays_work(
    tmp_path: Path,
) -> None:
    vault, time = bare_vault(tmp_path, "[limits]\nday_tokens = 57000\n"), Time()
    model = Fake(
        lambda ask: dataclasses.replace(
            greeter(ask), usage=Usage(input_tokens=9_000, output_tokens=500)
        )
    )
    for n in range(8):
        vault.drop(f"Say hello {n}.\n", f"Hello {n}.md")
    said = []
    for _ in range(2):  # the second daemon finds all that is used up in the journal
        with looping(vault, time=time, model=lambda: model) as running:
            waits = running.settle()
            said += running.said
            assert running.loop.state.waits.hold.why is WaitReason.DAY
            assert "tomorrow" in waits.waiting[0]
    assert len([words for words in said if words.startswith("Today's budget is used up (")]) == 1
    assert len(model.asks) == 6, "9,500 tokens each"
    assert side_notes(vault) == ["Model.placet.md"]
    assert "57,000 of 57,000 tokens" in status_of(vault, time)
    with looping(vault, time=time, model=lambda: model) as running:
        running.settle()
        time.pass_time((day_of(time.wall())[1] - time.wall()).total_seconds() + 1)
        running.settle()
        assert len(vault.rows("plan.created")) == 8
        assert side_notes(vault) == []
        assert len(vault.rows("model.resumed")) == 1


def test_call_without_room_today_delays_only_its_case(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[limits]\nday_tokens = 80000\n"), Time()
    spent = Usage(input_tokens=30_000, output_tokens=500)
    model = Fake(lambda ask: dataclasses.replace(greeter(ask), usage=spent))
    with looping(vault, time=time, model=lambda: model) as running:
        vault.drop("Say hello.\n")
        running.settle()
        vault.drop("Say more. " * 5_000 + "\n", "More.md")
        (reason,) = running.settle().waiting
        assert "has no room for this call (30,500 of 80,000 tokens used" in reason
        vault.drop("Say little.\n", "Little.md")
        running.settle()
        assert running.loop.state.waits.hold is None
        assert len(vault.rows("plan.created")) == 2
        time.pass_time((day_of(time.wall())[1] - time.wall()).total_seconds() + 1)
        running.settle()
        assert len(vault.rows("plan.created")) == 3


def test_call_above_the_day_limit_waits_for_a_raise(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[limits]\nday_tokens = 30000\n"), Time()
    model = Fake(greeter)
    with looping(vault, time=time, model=lambda: model) as running:
        vault.drop("Say more. " * 5_000 + "\n", "More.md")
        (reason,) = running.settle().waiting
        what, how = reason.splitlines()
        assert "more than a whole day's limit (limits.day_tokens = 30000)" in what
        assert "tomorrow" not in reason
        vault.drop("Say little.\n", "Little.md")
        running.settle()
        assert len(vault.rows("plan.created")) == 1
        for _ in range(2):
            time.pass_time(86_400)
            running.settle()
            assert len(vault.rows("plan.created")) == 1
        wanted = how.rpartition(" ")[2]
        vault.configure((vault.root / "System/placet.toml").read_text().replace("30000", wanted))
        running.settle()
        assert len(vault.rows("plan.created")) == 2


def test_raised_daily_budget_resumes_work(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[limits]\nday_tokens = 10000\n"), Time()
    model = Fake(lambda ask: says(("submit_plan", PLAN), usage=Usage(9_000, 300)))
    vault.drop("Say hello.\n")
    vault.drop("Say more.\n", "More.md")
    with looping(vault, time=time, model=lambda: model) as running:
        running.settle()
        assert len(vault.rows("plan.created")) == 1
        vault.configure((vault.root / "System/placet.toml").read_text().replace("10000", "100000"))
        running.settle()
        assert len(vault.rows("plan.created")) == 2
