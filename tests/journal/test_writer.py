"""Test the journal's writer: batches are whole, answered in order, and told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.journal.test_reader import TRACE

from journalkit import World
from placet.activity import Action, Activity, Actor, Entity
from placet.case.lease import Owner
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    Enqueue,
    Guard,
    JournalPaused,
    LeaseLost,
    PutText,
    ReleaseLease,
    RenewLease,
)


def row(number: int, **facts: object) -> AddActivity:
    return AddActivity(
        Activity(
            "2026-11-21T10:00:00.000Z",
            TRACE(number),
            Actor.SYSTEM,
            Action.PLAN_CREATED,
            Entity.PLAN,
            f"request-{number}",
            "default",
            facts,
        )
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal.db")


def test_refused_write_undoes_only_its_batch(world: World) -> None:
    with world.open() as journal:
        good, bad, other = (
            journal.submit([row(1)]),
            journal.submit([row(2), Enqueue("t", "{}"), Guard("t", 1)]),
            journal.submit([row(3), Enqueue("t", "{}")]),
        )
        good.result()
        with pytest.raises(LeaseLost):
            bad.result()
        assert len(other.result().outbox) == 1
        with journal.read() as reader:
            assert [one.trace_id for one in reader.activity()] == [TRACE(1), TRACE(3)]
    assert [one.trace_id for one in world.rows] == [TRACE(1), TRACE(3)]


def test_value_that_cannot_be_stored_fails_alone(world: World) -> None:
    with world.open() as journal:
        before, bad, after = (
            journal.submit([write])
            for write in (
                PutText("a", b"a"),
                RenewLease("t", 1 << 70, 60),
                PutText("c", b"c"),
            )
        )
        before.result()
        after.result()
        with pytest.raises(OverflowError):
            bad.result()
        with journal.read() as reader:
            assert (reader.text("a"), reader.text("c")) == (b"a", b"c")


def test_guard_begins_every_batch(world: World) -> None:
    owner = Owner("host", "boot-1", 1, "1")
    with world.open() as journal:
        token = journal.commit([AcquireLease(TRACE(1), owner, 60)]).token
        journal.guard = Guard(TRACE(1), token)
        journal.commit([row(1)])
        journal.commit([ReleaseLease(TRACE(1), token)])
        with pytest.raises(LeaseLost):
            journal.commit([row(2)])
    assert [one.trace_id for one in world.rows if one.action_type == Action.PLAN_CREATED] == [
        TRACE(1)
    ]


def test_two_threads_may_ask_at_once(world: World) -> None:
    with world.open() as journal, journal.ask() as one, journal.ask() as other:
        assert one.connection is not other.connection
        journal.commit([PutText("a", b"a")])
        assert (one.text("a"), other.text("a")) == (b"a", b"a")


def test_who_asks_during_close_leaves_no_open_file(world: World) -> None:
    journal = world.open()
    with journal.ask() as reader:
        assert reader.text("a") is None
        journal.close()
        assert reader.text("a") is None
        file = reader.connection
        assert file._connection is not None
    assert file._connection is None


def test_closed_journal_refuses_and_keeps_rows(world: World) -> None:
    journal = world.open()
    journal.submit([row(1)])
    journal.close()
    with pytest.raises(JournalPaused):
        journal.commit([row(2)])
    with world.open() as again, again.read() as reader:
        assert [one.trace_id for one in reader.activity()] == [TRACE(1)]
    assert not world.said


def test_metadata_must_be_json(world: World) -> None:
    with world.open() as journal, pytest.raises((TypeError, ValueError)):
        journal.submit([row(1, when=object())])
    assert not world.rows
