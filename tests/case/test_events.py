"""Test what the events of a case have in common."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from placet.case.events import Asked, Drafted, MissionEnded, PlanningFailed, Started


def test_outcomes_of_work_name_their_generation() -> None:
    work = (Drafted, PlanningFailed, Asked, Started, *get_args(MissionEnded))
    assert all(fields(event)[0].name == "generation" for event in work)
