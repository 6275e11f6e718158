"""Test when a request is planned too often."""

from __future__ import annotations

import pytest

from placet.case.brake import with_planning
from placet.case.case import Case
from placet.case.life_cycle import State

NOW = "2026-11-21T12:00:00.000Z"


@pytest.mark.parametrize(
    ("before", "stopped"),
    [
        ("2026-11-21T11:30:00.000Z", True),
        ("2026-11-21T12:01:00.000Z", True),
        ("2026-11-21T11:00:00.000Z", False),
        ("2027-11-21T12:00:00.000Z", False),
    ],
)
def test_only_recent_plannings_stop_the_next(before: str, stopped: bool) -> None:
    """A clock may be set back between two plannings: by a minute, or by a year."""
    case = Case(
        "t", "r", State.PLANNING, generation=4, plannings=tuple((n, before) for n in range(3))
    )
    now = with_planning(case, NOW)
    assert (now is None) == stopped
