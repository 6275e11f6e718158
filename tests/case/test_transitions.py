"""Test that the life cycle knows every event."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args, get_type_hints

from placet.case.decide import _EFFECTS
from placet.case.events import (
    Answering,
    Asked,
    Drafted,
    Event,
    MissionEnded,
    PlanningFailed,
    Started,
)
from placet.case.transitions import TABLE


def test_every_event_is_in_table() -> None:
    in_table = {kind for _, kind in TABLE}
    assert in_table | set(get_args(Answering)) == set(get_args(Event))


def test_every_event_has_its_effect() -> None:
    assert set(_EFFECTS) == set(get_args(Event))
    for kind, effect in _EFFECTS.items():
        _, takes, _ = get_type_hints(effect).values()
        assert issubclass(kind, takes), effect


def test_outcomes_of_work_name_their_generation() -> None:
    work = (Drafted, PlanningFailed, Asked, Started, *get_args(MissionEnded))
    assert all(fields(event)[0].name == "generation" for event in work)
