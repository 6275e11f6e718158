"""Test how a daemon follows what workers write."""

from __future__ import annotations

import time
from collections.abc import Sequence
from unittest.mock import patch

import pytest

import pgkit
from placet.activity import Action, Activity, Actor, CommittedRow, Entity
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity
from placet_team.wiring import all_rows

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def test_rows_of_the_last_moment_are_told(journal: Journal) -> None:
    told = list[CommittedRow]()
    with patch("placet_team.wiring.PAUSE_S", 1.0), all_rows(journal, told.extend):
        for n in range(5):
            when = "2026-11-25T10:20:30Z"
            row = Activity(when, "t", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, f"r{n}")
            time.sleep(0.1)
            journal.commit([AddActivity(row)])
    assert [row.entity_id for row in told] == [f"r{n}" for n in range(5)]


def test_row_that_cannot_be_told_does_not_end_the_thread(journal: Journal) -> None:
    told = list[str]()

    def tell(rows: Sequence[CommittedRow]) -> None:
        told.append(rows[0].entity_id)
        if told == ["bad"]:
            raise ValueError

    with all_rows(journal, tell):
        for name in ("bad", "good"):
            when = "2026-11-25T10:20:30Z"
            row = Activity(when, "t", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, name)
            journal.commit([AddActivity(row)])
    assert told == ["bad", "good"]
