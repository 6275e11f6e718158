"""Test that the life cycle knows every event."""

from __future__ import annotations

from typing import get_args, get_type_hints

from placet.case.decide import _EFFECTS
from placet.case.events import (
    Answering,
    Event,
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
