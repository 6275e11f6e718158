"""Test the team's rows of workers: who drains, and who is forgotten."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.team.test_command import draining

import pgkit
from placet.journal.writer import Journal
from placet_team.postgres import PostgresConnection
from placet_team.tables import (
    Drain,
    member_rows,
)
from teamkit import Workers, owner_json

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def test_restarted_worker_is_no_longer_draining(journal: Journal, workers: Workers) -> None:
    workers.beat("ann", owner="first")
    journal.commit([Drain("ann", draining=True)])
    workers.beat("ann", owner="first")
    assert draining(journal, "ann")
    workers.beat("ann", owner="second", gone=owner_json("first"))
    assert not draining(journal, "ann")


def test_worker_silent_for_a_day_is_forgotten(workers: Workers, address: str) -> None:
    for name in ("ann", "bob", "cyd"):
        workers.beat(name)
    with closing(PostgresConnection(address)) as connection:
        for name, hours in (("bob", 23), ("cyd", 25)):
            connection.execute(
                "UPDATE team_members SET beat_s = beat_s - ? WHERE name = ?", (hours * 3600, name)
            )
        workers.beat("ann")
        assert [one.name for one in member_rows(connection)] == ["ann", "bob"]
