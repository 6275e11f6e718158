"""The day's budget of a team: it holds across its machines, at the same moment, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pytest

import pgkit
from placet.agent.day_budget import DayBudget
from placet.case.lease import Owner
from placet.chat.budget import Exceeded, Ledger, Limits, ModelCall, Room
from placet.chat.cancel import Cancel
from placet.host.clock import Clock
from placet.journal.database import address_file
from placet.journal.writer import Journal
from placet.journal.writes import AcquireLease, ReleaseLease
from placet_team.day import TeamDay
from placet_team.postgres_schema import make_ready
from test_journal import World

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

CALL = ModelCall(1_000, 1_000, Decimal(0), Decimal(0))
"""A call that may use 2,000 tokens."""


@pytest.fixture(scope="module")
def server() -> Iterator[pgkit.Server]:
    with pgkit.server() as found:
        yield found


@pytest.fixture
def machines(tmp_path: Path, server: pgkit.Server) -> Iterator[list[tuple[Journal, DayBudget]]]:
    address = server.fresh()
    make_ready(address)
    with ExitStack() as stack:
        found = []
        for n in range(4):
            (tmp_path / f"{n}").mkdir()
            address_file(tmp_path / f"{n}" / "journal.db").write_text(address)
            world = World(tmp_path / f"{n}" / "journal.db")
            journal = stack.enter_context(world.open())
            journal.commit([AcquireLease(f"t{n}", Owner(f"host{n}", f"boot{n}", 7, "1"), 30.0)])
            found.append((journal, DayBudget(TeamDay(journal))))
        yield found


def test_calls_of_all_machines_count_before_they_are_answered(machines) -> None:
    limits, granted, held = Limits(tokens=5_000), [], threading.Barrier(4)

    def call(n: int) -> None:
        journal, book = machines[n]
        cancel = Cancel()
        cancel.set()  # nobody waits for room
        with book.room(
            journal, Clock(), Ledger("own", Limits()), limits, f"t{n}:1", CALL, cancel
        ) as found:
            granted.append(found)
            held.wait(30)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rooms = [found for found in granted if isinstance(found, Room)]
    assert sum(room.worst.tokens for room in rooms) <= 5_000
    assert len(rooms) in (2, 3)  # the third has room for a shorter answer
    assert any(isinstance(found, Exceeded) for found in granted)
    version, left = machines[0][1].shared.held()
    assert left == {}
    assert version >= 2


def test_what_a_dead_machine_held_counts_no_more(machines) -> None:
    journal, book = machines[0]
    limits = Limits(tokens=3_000)
    assert machines[1][1].shared.hold("t1:1", CALL.worst(1_000), 0)
    assert book.shared.held()[1].keys() == {"t1:1"}
    machines[1][0].commit([ReleaseLease("t1", 1)])
    with book.room(
        journal, Clock(), Ledger("own", Limits()), limits, "t0:1", CALL, Cancel()
    ) as found:
        assert isinstance(found, Room)
