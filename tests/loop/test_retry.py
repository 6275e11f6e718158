"""Test for how long work waits, and what ends a wait."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from looping import Fake, Time, bare_vault, greeter, looping
from placet.agent.day_budget import day_of
from placet.chat.messages import Usage


def test_waits_count_the_time_asleep(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[limits]\nday_tokens = 12000\n"), Time()
    spent = Usage(input_tokens=11_000, output_tokens=1_000)
    model = Fake(lambda ask: dataclasses.replace(greeter(ask), usage=spent))
    with looping(vault, time=time, model=lambda: model) as running:
        vault.drop("Say hello.\n")
        running.settle()
        vault.drop("Say more.\n", "More.md")
        assert "resumes tomorrow" in running.settle().waiting[0]
        time.fall_asleep((day_of(time.wall())[1] - time.wall()).total_seconds() + 1)
        running.settle()
        assert len(vault.rows("plan.created")) == 2
