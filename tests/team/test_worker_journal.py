"""Test that the day's budget holds across a team's machines, at the same moment too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import pgkit
from placet.activity import Action, Activity, Actor, Entity
from placet.agent.day_budget import DayBudget
from placet.chat.budget import Exceeded, Ledger, Limits, ModelCall, Room
from placet.chat.cancel import Cancel
from placet.chat.prices import Price, pricer, unpriced
from placet.host.clock import Clock
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, LeaseLost, ReleaseLease
from placet.wording import rfc3339
from placet_team.worker_journal import TeamDay, WorkerJournal
from teamkit import Workers, handed, journal_in, journal_of, team_database

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

CALL = ModelCall(1_000, 1_000, Decimal(0), Decimal(0))
"""A call that may use 2,000 tokens."""


@dataclass
class Team:
    """Four machines: the daemon's journal, each worker's and its budget, and the callers' keys."""

    daemon: Journal
    machines: list[tuple[WorkerJournal, DayBudget]]
    keys: list[str]


@pytest.fixture
def four(tmp_path: Path, server: pgkit.Server) -> Iterator[Team]:
    workers = Workers(server, team_database(server))
    with ExitStack() as stack:
        daemon = stack.enter_context(journal_in(tmp_path, workers.address))
        found = Team(daemon, [], [])
        for n in range(4):
            workers.beat(f"w{n}")
            token = handed(daemon, workers, f"w{n}", f"t{n}")
            journal = stack.enter_context(closing(journal_of(workers, f"w{n}")))
            found.machines.append((journal, DayBudget(TeamDay(journal))))
            found.keys.append(f"t{n}:1:{token}")
        yield found


def reserved(four: Team) -> Any:
    """Return what is reserved."""
    journal, book = four.machines[0]
    with journal.read() as reader:
        return book.shared.held(reader)


def test_day_budget_counts_pending_calls_across_machines(four: Team) -> None:
    limits, granted, held = Limits(tokens=5_000), [], threading.Barrier(4)

    def call(n: int) -> None:
        journal, book = four.machines[n]
        cancel = Cancel()
        cancel.set()  # nobody waits for room
        with book.room(
            journal, Clock(), Ledger("own", Limits()), limits, four.keys[n], CALL, unpriced, cancel
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
    assert reserved(four) == {}


def test_released_lease_frees_reserved_day_budget(four: Team) -> None:
    journal, book = four.machines[0]
    limits = Limits(tokens=3_000)
    since = Clock().wall()
    held = four.machines[1][1].shared
    assert held.hold(four.keys[1], CALL.worst(1_000), limits, since, sure=True)
    assert reserved(four).keys() == {four.keys[1]}
    four.daemon.commit([ReleaseLease("t1", int(four.keys[1].split(":")[2]))])
    with book.room(
        journal, Clock(), Ledger("own", Limits()), limits, four.keys[0], CALL, unpriced, Cancel()
    ) as found:
        assert isinstance(found, Room)


def test_worker_without_lease_reserves_no_budget(four: Team) -> None:
    journal, book = four.machines[0]
    four.daemon.commit([ReleaseLease("t0", int(four.keys[0].split(":")[2]))])
    asked = Ledger("own", Limits()), Limits(tokens=3_000), four.keys[0], CALL, unpriced, Cancel()
    with pytest.raises(LeaseLost), book.room(journal, Clock(), *asked):
        pass


def test_late_price_counts_in_the_team_journal(four: Team) -> None:
    now = Clock().wall()
    called = Activity(
        rfc3339(now), "t0", Actor.AGENT, Action.MODEL_CALLED, Entity.MISSION, "r", "",
        {"model": "m", "asked": "m", "purpose": "plan", "input_tokens": 2_000_000},
    )  # fmt: skip
    four.daemon.commit([AddActivity(called)])
    price = pricer([Price("m", *[Decimal(1)] * 4, since=date(2026, 1, 1))], "m")
    with four.daemon.read() as reader:
        assert reader.calls.used_since("2026", price)[1] == 2
        assert reader.calls.used_planning("t0", price)[1] == 2
