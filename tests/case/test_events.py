"""Test that the events of a case and their kinds belong together."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from itertools import chain
from typing import get_args, get_type_hints

from placet.case import events
from placet.case.events import Event
from placet.case.life_cycle import TABLE, EventKind

KINDS = {event: get_args(get_type_hints(event)["kind"]) for event in get_args(Event)}


def test_each_kind_has_one_event() -> None:
    # the first event of a case makes it: `open_case`
    counted = Counter(chain.from_iterable(KINDS.values()))
    assert set(EventKind) - counted.keys() == {EventKind.REQUEST_ARRIVED}
    assert set(counted.values()) == {1}


def test_each_kind_changes_some_state() -> None:
    assert {kind for _, kind in TABLE} | {
        EventKind.ANSWERED,
        EventKind.SCOPE_WIDENED,
        EventKind.SCOPE_REFUSED,
    } == set(EventKind)


def test_kind_that_is_the_only_one_is_default() -> None:
    for event, kinds in KINDS.items():
        (kind,) = (one for one in fields(event) if one.name == "kind")
        if len(kinds) == 1:
            assert kind.default is kinds[0], event.__name__


def test_outcomes_of_work_name_their_generation() -> None:
    work = (
        events.Drafted,
        events.PlanningFailed,
        events.Asked,
        events.Started,
        events.MissionEnded,
    )
    assert all(fields(event)[0].name == "generation" for event in work)
