from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disks import small_disk_at
from journalkit import BOOT, World
from placet.activity import Action, Activity, Actor, Entity
from placet.case.lease import Owner
from placet.errors import UserError
from placet.journal import reader as reading
from placet.journal import schema
from placet.journal import writer as writing
from placet.journal.database import address_of
from placet.journal.maintenance import backup, verify
from placet.journal.reader import changes, open_reader, query
from placet.journal.schema import SCHEMA, migrate
from placet.journal.writer import Journal
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    AddRecord,
    BadRow,
    BodyDamaged,
    Conflict,
    DropSeen,
    Enqueue,
    Guard,
    JournalDamaged,
    JournalPaused,
    LeaseHeld,
    LeaseLost,
    MarkDone,
    MarkFailed,
    PutCase,
    PutSeen,
    PutText,
    ReleaseLease,
    RenewLease,
)
from placet.note.paths import show
from placet.wording import rfc3339
from placet_board.rows import Wanted, all_rows, first_since
from placet_team.postgres import PostgresConnection

LATE_S = (0, 10, 20, 13, 30, 31, 25, 40, 400, 45, 700, 900, 901, 700, 2_000)
"""When rows were made, in the order in which they were written: one waits for another's disk."""

TRACE = "550e8400-e29b-41d4-a716-446655440000"
ME = Owner("host", "boot-1", 11, "110")
YOU = Owner("host", "boot-1", 22, "220")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "journal.db")


@pytest.fixture
def journal(world: World) -> Iterator[Journal]:
    with world.open() as opened:
        yield opened


def event(
    n: int = 0,
    *,
    entity_id: str = "fix-login",
    trace: str = TRACE,
    at: str = "2026-11-21T10:00:00.000Z",
    **metadata: object,
) -> AddActivity:
    return AddActivity(
        Activity(
            at,
            trace,
            Actor.AGENT,
            Action.TOOL_CALLED,
            Entity.MISSION,
            entity_id,
            "coder",
            {"n": n, **metadata},
        )
    )


class Failing:
    """A connection whose next queries fail, as on a disk that does not answer."""

    def __init__(self, connection: sqlite3.Connection, left: list[Exception]) -> None:
        self.connection = connection
        self.left = left

    def execute(self, sql: str, *values: Any) -> Any:
        if self.left:
            raise self.left.pop()
        return self.connection.execute(sql, *values)

    def close(self) -> None:
        self.connection.close()


def io_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    return error


@pytest.mark.parametrize("way", ["read", "ask"])
@pytest.mark.parametrize("at_open", [True, False])
def test_reading_waits_until_the_disk_answers(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str, at_open: bool
) -> None:
    with world.open() as journal:
        journal.commit([event(1)])
        left: list[Exception] = [OSError(errno.EIO, "Input/output error"), io_error(), io_error()]

        def connect(path: Path, **more: Any) -> Any:
            if at_open and left:
                raise left.pop()
            return Failing(connected(path, **more), left)

        connected = reading.connect_file
        monkeypatch.setattr(writing, "_WAIT_S", 0.01)
        with monkeypatch.context() as patch:
            patch.setattr(reading, "connect_file", connect)
            with getattr(journal, way)() as reader:
                assert reader.last()[0] == 1
        assert not left
    assert [line for line in world.said if "cannot be read: disk I/O error" in line] == world.said
    assert len(world.said) == 1


def test_a_stopping_daemon_does_not_wait_to_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise io_error()

    with world.open() as journal:
        journal.stop_waiting()
        monkeypatch.setattr(reading, "connect_file", fail)
        with pytest.raises(JournalPaused, match="cannot be read"), journal.read() as reader:
            reader.last()


@contextlib.contextmanager
def raw(path: Path) -> Iterator[Any]:
    """A connection of someone who goes around placet."""
    address = address_of(path)
    connection = (
        PostgresConnection(address) if address else sqlite3.connect(path, isolation_level=None)
    )
    with contextlib.closing(connection):
        yield connection


def ns(path: Path) -> list[int]:
    """The numbers of the events in the journal, in order."""
    with raw(path) as connection:
        return [
            int(n) for (n,) in connection.execute("SELECT metadata->>'n' FROM activity ORDER BY id")
        ]


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def edit(path: Path, sql: str, *values: object) -> None:
    """What someone with a SQLite shell can do."""
    with raw(path) as connection:
        connection.execute(sql, values)


# --- events


def test_a_committed_event_is_read_back(world, journal):
    journal.commit([event(7, path="a ü.md", nested={"b": [1, None], "a": True})])
    with journal.read() as reader:
        (row,) = reader.activity()
    assert row.id == 1
    assert (
        row.trace_id,
        row.actor,
        row.agent,
        row.action_type,
        row.entity_type,
        row.entity_id,
    ) == (TRACE, "agent", "coder", "tool.called", "mission", "fix-login")
    assert row.metadata == '{"n":7,"nested":{"a":true,"b":[1,null]},"path":"a ü.md"}'
    assert row.details["path"] == "a ü.md"
    assert world.rows == [row]


def test_activity_table_has_contract_columns(journal):
    columns, _ = query(journal.path, "SELECT * FROM activity")
    assert columns == (
        "id",
        "timestamp",
        "trace_id",
        "actor",
        "agent",
        "action_type",
        "entity_type",
        "entity_id",
        "metadata",
        "hash",
    )


def test_human_decisions_are_found_by_index(world, journal):
    asked = "SELECT timestamp FROM activity WHERE actor = 'human' ORDER BY id"
    with contextlib.closing(sqlite3.connect(world.path)) as db:
        steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {asked}")]
    assert steps == ["SEARCH activity USING INDEX activity_human (actor=?)"]


def test_contract_queries_run_verbatim(journal):
    def plan(
        action: Action, name: str, at: str, actor: Actor = Actor.SYSTEM, **metadata: str
    ) -> AddActivity:
        trace = TRACE if name == "one" else f"trace-{name}"
        return AddActivity(Activity(at, trace, actor, action, Entity.PLAN, name, metadata=metadata))

    journal.commit(
        [
            plan(Action.PLAN_CREATED, "one", "2026-01-01T00:00:00Z", digest="d"),
            plan(Action.PLAN_CREATED, "two", "2026-01-02T00:00:00Z", digest="d"),
            plan(Action.PLAN_CREATED, "three", "2026-01-03T00:00:00Z", digest="d"),
            plan(Action.PLAN_CREATED, "four", "2026-01-04T00:00:00Z", digest="d"),
            plan(
                Action.PLAN_APPROVED,
                "one",
                "2026-01-06T00:00:00Z",
                Actor.HUMAN,
                reviewed_by="Ada",
                via="cli",
                digest="d",
            ),
            plan(
                Action.PLAN_REVISION_REQUESTED,
                "one",
                "2026-01-05T00:00:00Z",
                Actor.HUMAN,
                reviewed_by="Bo",
                via="cli",
            ),
            plan(
                Action.PLAN_REJECTED,
                "two",
                "2026-01-06T00:00:00Z",
                Actor.HUMAN,
                reviewed_by="Bo",
                via="cli",
                reason="no",
            ),
        ]
    )
    with raw(journal.path) as connection:
        assert connection.execute("""
            SELECT action_type, metadata->>'reviewed_by', timestamp FROM activity
            WHERE trace_id = '550e8400-e29b-41d4-a716-446655440000' AND actor = 'human' ORDER BY timestamp;
        """).fetchall() == [
            ("plan.revision_requested", "Bo", "2026-01-05T00:00:00Z"),
            ("plan.approved", "Ada", "2026-01-06T00:00:00Z"),
        ]
        assert connection.execute("""
            SELECT entity_id, timestamp FROM activity WHERE action_type = 'plan.created'
              AND entity_id NOT IN
                (SELECT entity_id FROM activity WHERE action_type IN ('plan.approved', 'plan.rejected'))
            ORDER BY timestamp DESC;
        """).fetchall() == [("four", "2026-01-04T00:00:00Z"), ("three", "2026-01-03T00:00:00Z")]
        assert connection.execute("""
            SELECT COUNT(*) FILTER (WHERE action_type = 'plan.rejected') * 100.0 / COUNT(*) AS rejection_rate
            FROM activity WHERE action_type IN ('plan.approved', 'plan.rejected');
        """).fetchall() == [(50.0,)]


def test_non_utf8_file_name_is_stored_readably(journal):
    name = os.fsdecode(b"caf\xe9.md")
    command = json.dumps({"path": name}, ensure_ascii=False)
    journal.commit([event(1, path=name, entity_id=name), Enqueue(name, command)])
    with raw(journal.path) as connection:
        assert connection.execute(
            "SELECT metadata->>'path', entity_id FROM activity"
        ).fetchone() == (r"caf\udce9.md", r"caf\udce9.md")
    with journal.read() as reader:
        assert json.loads(reader.pending_commands()[0].command) == {"path": name}
    assert verify(journal.path) is None


@pytest.mark.parametrize("metadata", [{"x": float("nan")}, {"x": object()}, {"x": b"bytes"}])
def test_unserializable_metadata_is_refused_on_submit(journal, metadata):
    with pytest.raises((TypeError, ValueError)):
        journal.submit([event(1, **metadata)])
    journal.commit([event(2)])
    assert ns(journal.path) == [2]


def test_activity_is_read_by_offset_trace_or_newest(journal):
    journal.commit([event(n, trace="ab"[n % 2]) for n in range(6)])
    with journal.read() as reader:
        assert [row.details["n"] for row in reader.activity(after_id=2, limit=2)] == [2, 3]
        assert [row.details["n"] for row in reader.activity("b")] == [1, 3, 5]
        assert [row.details["n"] for row in reader.activity("b", newest=True, limit=2)] == [3, 5]
        assert [row.details["n"] for row in reader.activity(after_id=5, newest=True)] == [5]


# --- batches


def test_a_batch_is_all_or_nothing(world, journal):
    journal.commit([PutCase("t", "r", "planned", "{}", 0)])
    with pytest.raises(Conflict):
        journal.commit(
            [
                event(1),
                Enqueue("t", "{}"),
                PutSeen("a.md", "d", "invalid", ""),
                PutCase("t", "r", "x", "{}", 7),
            ]
        )
    with journal.read() as reader:
        assert reader.activity() == ()
        assert reader.pending_commands() == ()
        assert reader.seen() == ()
        assert len(reader.cases("planned")) == 1
    assert world.rows == []


def test_conflicting_batch_fails_alone_in_group(world, journal):
    """The batches are queued while another program holds the lock, so they make one group."""
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = journal.submit([event(0)])
        good = [journal.submit([event(n), PutSeen(f"{n}.md", "d", "invalid", "")]) for n in (1, 2)]
        bad = journal.submit([event(3), MarkDone(99)])
        last = journal.submit([event(4)])
        other.execute("COMMIT")
    for future in (first, *good, last):
        future.result()
    with pytest.raises(Conflict):
        bad.result()
    assert ns(journal.path) == [0, 1, 2, 4]
    assert verify(journal.path) is None
    assert len(world.rows) == 4


def test_unstorable_batch_does_not_block_later_batches(journal):
    with pytest.raises(OverflowError):
        journal.commit([event(1), MarkDone(2**70)])
    journal.commit([event(2)])
    assert ns(journal.path) == [2]


def test_unstorable_row_fails_only_its_batch(journal):
    """The rows of a group are written together, and the sums with them."""
    call = replace(event(3, input_tokens=2**63).activity, action=Action.MODEL_CALLED)
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        good = [journal.submit([event(n)]) for n in (1, 2)]
        bad = journal.submit([PutSeen("a.md", "d", "invalid", ""), AddActivity(call)])
        last = journal.submit([event(4)])
        other.execute("COMMIT")
    for future in (*good, last):
        future.result()
    with pytest.raises(OverflowError):
        bad.result()
    journal.commit([event(5)])
    assert ns(journal.path) == [1, 2, 4, 5]
    assert verify(journal.path) is None
    with journal.read() as reader:
        assert reader.seen() == ()


def test_case_update_with_stale_version_conflicts(journal):
    journal.commit([PutCase("t", "r", "new", '{"a":1}', 0)])
    journal.commit([PutCase("t", "r", "planned", '{"a":2}', 1)])
    for stale in (0, 1, 3):
        with pytest.raises(Conflict):
            journal.commit([PutCase("t", "r", "active", "{}", stale)])
    with journal.read() as reader:
        (case,) = reader.cases("planned")
        assert (case.body, case.version) == ('{"a":2}', 2)


def test_one_of_many_concurrent_case_updates_wins(journal):
    journal.commit([PutCase("t", "r", "0", "{}", 0)])
    futures = [journal.submit([PutCase("t", "r", str(n), "{}", 1)]) for n in range(20)]
    assert [future.exception() is None for future in futures].count(True) == 1


def test_command_stays_queued_until_done(journal):
    (one, two) = journal.commit([Enqueue("t", '{"do":1}'), Enqueue("t", '{"do":2}')]).outbox
    journal.commit([MarkFailed(one, "no network"), MarkDone(two)])
    with journal.read() as reader:
        (left,) = reader.pending_commands()
    assert (left.id, left.attempts, left.error) == (one, 1, "no network")
    for again in (MarkDone(two), MarkFailed(two, "x"), MarkDone(99)):
        with pytest.raises(Conflict):
            journal.commit([again])
    journal.commit([MarkFailed(one, "again"), MarkDone(one)])
    with journal.read() as reader:
        assert reader.pending_commands() == ()


def test_seen_state_is_kept_for_any_file_name(journal):
    odd = show(os.fsdecode(b"Inbox/Requests/\xff.md"))
    journal.commit(
        [PutSeen(odd, "d1", "invalid", "why"), PutSeen("a.md", "d2", "conflict copy", "")]
    )
    journal.commit([PutSeen("a.md", "d3", "invalid", "other")])
    with journal.read() as reader:
        assert {(row.path, row.digest) for row in reader.seen()} == {(odd, "d1"), ("a.md", "d3")}
    journal.commit([DropSeen(odd), DropSeen("never there")])
    with journal.read() as reader:
        assert [row.path for row in reader.seen()] == ["a.md"]


def test_commit_wakes_change_watcher_promptly(journal: Journal) -> None:
    news = changes(journal.path, 0.01)
    next(news)
    for n in range(3):
        journal.commit([event(n)])
        began = time.monotonic()
        next(news)
        assert time.monotonic() - began < 30


def test_reader_sees_one_snapshot(journal):
    journal.commit([PutCase("t", "r", "new", "{}", 0), event(1)])
    with journal.read() as reader:
        before = reader.cases()
        journal.commit([PutCase("t", "r", "planned", "{}", 1), event(2)])
        assert reader.cases() == before
        assert len(reader.activity()) == 1
    with journal.read() as reader:
        assert len(reader.cases("planned")) == 1


# --- records and texts


def test_body_is_read_back_byte_for_byte(journal):
    small, long = os.urandom(100), bytes(range(256)) * 4_000
    journal.commit(
        [
            AddRecord("t", 1, 2, "outcome", "k", long),
            AddRecord("t", 1, 1, "intent", "k", small),
            PutText("plan-digest", long),
            PutText("small", b""),
        ]
    )
    with journal.read() as reader:
        found = [(record.seq, record.kind, record.body) for record in reader.records("t", 1)]
        assert found == [(1, "intent", small), (2, "outcome", long)]
        assert reader.records("t", 2) == ()
        assert reader.text("plan-digest") == long
        assert reader.text("small") == b""
        assert reader.text("none") is None


def test_duplicate_record_is_refused(journal):
    journal.commit([AddRecord("t", 1, 1, "intent", "k", b"first")])
    with pytest.raises(Conflict):
        journal.commit([AddRecord("t", 1, 1, "intent", "k", b"second")])
    with journal.read() as reader:
        assert reader.records("t", 1)[0].body == b"first"


@pytest.mark.parametrize("body", ["x'00'", "'text'"])
def test_damaged_body_is_refused(world, journal, body):
    journal.commit([PutText("d", b"text")])
    edit(world.path, f"UPDATE texts SET body = {body} WHERE digest = 'd'")
    with journal.read() as reader, pytest.raises(BodyDamaged):
        reader.text("d")


# --- leases


def test_held_lease_refusal_names_holder(world, journal):
    assert journal.commit([AcquireLease("t", ME, 30)]).token == 1
    world.boottime_s += 20
    with pytest.raises(LeaseHeld, match=r"pid 11 on host .* 10 s") as caught:
        journal.commit([event(1), AcquireLease("t", YOU, 30)])
    assert caught.value.lease.owner == ME
    assert ns(world.path) == []
    journal.commit([ReleaseLease("t", 1)])
    assert journal.commit([AcquireLease("t", YOU, 30)]).taken_from is None
    with journal.read() as reader:
        lease = reader.lease("t")
        assert (lease.owner, lease.token, lease.expires_s) == (YOU, 2, 1_050.0)


def test_renewed_lease_does_not_expire(world, journal):
    token = journal.commit([AcquireLease("t", ME, 30)]).token
    for _ in range(5):
        world.boottime_s += 20
        journal.commit([RenewLease("t", token, 30)])
    with pytest.raises(LeaseHeld):
        journal.commit([AcquireLease("t", YOU, 30)])


def test_write_with_stale_fencing_token_is_refused(world, journal):
    old = journal.commit([AcquireLease("t", ME, 30)]).token
    world.boottime_s += 30  # the holder was stopped for longer than its lease
    taken = journal.commit([AcquireLease("t", YOU, 30)])
    assert taken.taken_from == ME
    assert taken.token > old
    for write in (
        Guard("t", old),
        RenewLease("t", old, 30),
        ReleaseLease("t", old),
        Guard("none", 1),
    ):
        with pytest.raises(LeaseLost):
            journal.commit([event(1), write])
    journal.commit([event(2), Guard("t", taken.token)])
    assert ns(world.path) == [2]


def test_expired_lease_stays_valid_until_taken(world, journal):
    token = journal.commit([AcquireLease("t", ME, 30)]).token
    world.boottime_s += 1_000
    journal.commit([Guard("t", token), RenewLease("t", token, 30)])


def test_lease_and_its_rows_are_one_transaction(journal):
    def told(token, before):
        return [event(10 * token + (before is not None))]

    journal.commit([AcquireLease("t", ME, 30, told=told), event(1)])
    assert ns(journal.path) == [1, 10]
    with pytest.raises(LeaseHeld):
        journal.commit([AcquireLease("t", YOU, 30, told=told)])
    token = journal.commit([AcquireLease("u", ME, 30)]).token
    journal.commit([AcquireLease("u", YOU, 30, gone_token=token, told=told)])
    assert ns(journal.path) == [1, 10, 21]


def test_guard_fails_on_released_lease(journal):
    token = journal.commit([AcquireLease("t", ME, 30)]).token
    journal.commit([ReleaseLease("t", token)])
    with pytest.raises(LeaseLost):
        journal.commit([Guard("t", token)])
    with journal.read() as reader:
        lease = reader.lease("t")
    assert (lease.token, lease.held) == (token, False)


def test_lease_of_gone_holder_is_taken_immediately(journal):
    token = journal.commit([AcquireLease("t", ME, 30)]).token
    with pytest.raises(LeaseHeld):
        journal.commit([AcquireLease("t", YOU, 30, gone_token=token + 1)])
    assert journal.commit([AcquireLease("t", YOU, 30, gone_token=token)]).token == token + 1


@pytest.mark.parametrize("step", [timedelta(days=-400), timedelta(days=400)])
def test_wall_clock_step_does_not_affect_lease(world, journal, step):
    token = journal.commit([AcquireLease("t", ME, 30)]).token
    world.now += step
    with pytest.raises(LeaseHeld):
        journal.commit([AcquireLease("t", YOU, 30)])
    journal.commit([Guard("t", token)])
    world.boottime_s += 30
    journal.commit([AcquireLease("t", YOU, 30)])


def test_lease_from_earlier_boot_is_expired(world):
    with world.open() as journal:
        journal.commit([AcquireLease("t", ME, 1e6)])
    world.boot_id, world.boottime_s = "boot-2", 5.0
    with world.open() as journal:
        assert (
            journal.commit([AcquireLease("t", Owner("host", "boot-2", 11, "110"), 30)]).token == 2
        )


def test_unrenewed_lease_of_other_machine_expires_after_ttl(world):
    with world.open() as journal:
        journal.commit([AcquireLease("t", ME, 30)])
    world.boot_id, world.boottime_s = "boot-x", 5.0
    there = Owner("other", "boot-x", 3, "30")
    with world.open() as journal:
        for seconds, renewed in ((0.0, False), (29.0, False), (29.0, True), (29.0, False)):
            world.boottime_s += seconds
            if renewed:
                journal.commit([RenewLease("t", 1, 30)])
                world.boottime_s += 1
            with pytest.raises(LeaseHeld):
                journal.commit([AcquireLease("t", there, 30)])
        world.boottime_s += 1.1
        assert journal.commit([AcquireLease("t", there, 30)]).token == 2


# --- trouble


def test_writer_waits_for_foreign_database_lock(world, journal):
    journal.commit([event(0)])
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        futures = [journal.submit([event(n)]) for n in range(1, 6)]
        wait_until(lambda: world.said)
        assert not any(future.done() for future in futures)
        other.execute("COMMIT")
    for future in futures:
        future.result(timeout=60)
    journal.commit([event(6)])
    assert ns(journal.path) == [0, 1, 2, 3, 4, 5, 6]
    assert len(world.said) == 2, world.said
    assert "another program holds a lock" in world.said[0]
    assert "again" in world.said[1]


def pragma(journal: Journal, sql: str) -> None:
    """Change the writer's own connection under it: the portable way to a full or read-only
    database.
    """
    journal._store.connection.execute(f"PRAGMA {sql}")


@pytest.mark.parametrize(
    ("break_it", "mend_it", "word"),
    [
        ("max_page_count = 1", "max_page_count = 100000", "full"),
        ("query_only = 1", "query_only = 0", "read-only"),
    ],
)
def test_writer_waits_out_full_or_read_only_database(world, journal, break_it, mend_it, word):
    acked = [journal.commit([event(n, pad="x" * 500)]) for n in range(3)]
    pragma(journal, break_it)
    futures = []
    while not world.said:
        futures.append(journal.submit([event(3 + len(futures), pad="x" * 5_000)]))
        time.sleep(0.001)
    assert word in world.said[0]
    with journal.read() as reader:
        assert len(reader.activity()) >= len(acked), "reading goes on"
    pragma(journal, mend_it)
    for future in futures:
        future.result(timeout=60)
    assert ns(journal.path) == list(range(3 + len(futures)))
    assert verify(journal.path) is None


def test_writer_waits_while_journal_file_is_missing(world, journal):
    journal.commit([event(1)])
    away = world.path.with_name("away.db")
    world.path.rename(away)
    future = journal.submit([event(2)])
    wait_until(lambda: world.said)
    assert "moved" in world.said[0]
    # one that was deleted comes back by itself in no other way
    assert "put it back, or restart the daemon" in world.said[0]
    away.rename(world.path)
    future.result(timeout=60)
    assert ns(world.path) == [1, 2]


def test_closing_paused_journal_fails_queued_writes(world):
    journal = world.open()
    journal.commit([event(1)])
    pragma(journal, "query_only = 1")
    future = journal.submit([event(2)])
    wait_until(lambda: world.said)
    journal.close(timeout_s=0.1)
    with pytest.raises(JournalPaused):
        future.result(timeout=1)
    assert "closed" in world.said[-1]
    assert ns(world.path) == [1]


FULL_DISK = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
from placet.activity import *
from placet.journal.writer import *
from placet.journal.reader import *
from placet.journal.writes import *
folder = Path(sys.argv[1])
def make(n):
    return AddActivity(Activity("2026-11-21T10:00:00Z", "t", Actor.AGENT, Action.TOOL_CALLED, Entity.MISSION,
                                "e", metadata={"n": n, "pad": "x" * 200}))
with Journal(folder / "journal.db", now=lambda: datetime.now(UTC), boottime_s=time.monotonic, boot_id="b",
             on_trouble=lambda said: print("SAID", said, flush=True)) as journal:
    for n in range(int(sys.argv[2])):
        long = [PutText(f"d{n}", bytes([n % 251]) * 17_000)] if n % 50 == 49 else []
        journal.commit([make(n), *long])
        print("ACK", n, flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_at(tmp_path / "disk", "2m") as place:
        yield place


def test_full_disk_loses_no_event_and_writing_resumes(small_disk):
    filling = small_disk / "filling"
    filling.write_bytes(b"x" * 1_400_000)
    argv = [sys.executable, "-c", FULL_DISK, str(small_disk), "600"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acked, said = [], []
        for line in child.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ACK":
                acked.append(int(rest))
                continue
            said.append(rest)
            if len(said) == 1:
                assert "full" in rest.lower() or "space" in rest.lower()
                assert [n for n in ns(small_disk / "journal.db") if n in set(acked)] == acked
                filling.unlink()  # space returns; nobody tells the daemon
    assert child.returncode == 0
    assert len(said) >= 2
    assert acked == list(range(600)) == ns(small_disk / "journal.db")
    assert verify(small_disk / "journal.db") is None


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits: Linux")
def test_writer_retries_after_write_error(tmp_path):
    """The file-size limit makes write() fail with EFBIG: an I/O error that any user can make, and
    lift.
    """
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1))\n{FULL_DISK}"
    )
    argv = [sys.executable, "-c", script, str(tmp_path), "400"]
    said = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("SAID"):
                said.append(line)
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (-1, -1))
    assert child.returncode == 0
    assert len(said) == 2, said
    assert ns(tmp_path / "journal.db") == list(range(400))


def test_wal_filling_disk_is_freed_after_reader_closes(small_disk):
    """A reader that stays open holds up checkpoints; once it is gone, no one else frees space."""
    world = World(small_disk / "journal.db")
    with world.open() as journal:
        journal.commit([PutSeen("a.md", "first", "invalid", "")])

    def fill_it() -> None:
        for n in range(5_000):
            journal.commit([PutSeen("a.md", str(n), "invalid", "")])

    with world.open() as journal:
        filler = threading.Thread(target=fill_it)
        with journal.read() as reader:
            assert [row.digest for row in reader.seen()] == ["first"]
            filler.start()
            wait_until(lambda: world.said)
            assert "full" in world.said[0]
        filler.join()
        with journal.read() as reader:
            assert [row.digest for row in reader.seen()] == ["4999"]
    assert len(world.said) == 2, world.said


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"), [(0o400, 0o700), (0o600, 0o500), (0o444, 0o755)]
)
def test_read_only_journal_is_refused_at_start(file_mode, folder_mode):
    """Root may write anything, so as root the daemon is started as another user."""
    drop = "import os\nif os.geteuid() == 0: os.setuid(1000)\n"
    script = FULL_DISK.replace("with Journal", f"{drop}with Journal")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        World(path).open().close()
        path.chmod(file_mode)
        path.parent.chmod(folder_mode)
        if os.geteuid() == 0:
            os.chown(path, 1000, 1000)
            os.chown(folder, 1000, 1000)
        run = subprocess.run(
            [sys.executable, "-c", script, folder, "1"], capture_output=True, text=True
        )
        path.parent.chmod(0o700)
    assert "UserError: cannot open the journal" in run.stderr
    assert "ACK" not in run.stdout


# --- crashes

PRODUCER = """
import os, sys, time
from datetime import UTC, datetime
from pathlib import Path
from placet.activity import *
from placet.journal.writer import *
from placet.journal.reader import *
from placet.journal.writes import *
path, first, size, naive = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "naive"
def make(n):
    return AddActivity(Activity("2026-11-21T10:00:00Z", "t", Actor.AGENT, Action.TOOL_CALLED, Entity.MISSION,
                                "e", metadata={"n": n}))
with Journal(path, now=lambda: datetime.now(UTC), boottime_s=time.monotonic, boot_id="b",
             on_trouble=print) as journal:
    n = first
    while True:
        if naive:
            journal.submit([make(n + i) for i in range(size)])
        else:
            journal.commit([make(n + i) for i in range(size)], durable=n % 7 == 0)
        n += size
        os.write(1, b"%d\\n" % (n - 1))
        if naive:
            os.kill(os.getpid(), 9)  # right after an answer, when nothing may be missing
"""


def kill_rounds(
    path: Path, rounds: int, size: int, how: str, seed: int, acks: int = 0
) -> tuple[int, int, int]:
    """Kill a producer `rounds` times or until `acks` events were acknowledged, whichever takes
    longer.

    Return the events acknowledged, those of them that are lost, and the rounds.
    """
    World(path).open().close()
    rng = random.Random(seed)
    acked = lost = first = done = 0
    while done < rounds or acked < acks:
        done += 1
        argv = [sys.executable, "-c", PRODUCER, str(path), str(first), str(size), how]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            out = bytearray(child.stdout.readline())  # it writes
            assert out, "the producer did not start"
            stop = time.monotonic() + rng.uniform(0.0, 0.1 if rounds < 10 else 0.25)
            while (left := stop - time.monotonic()) > 0:
                if select.select([child.stdout], [], [], left)[0]:
                    out += os.read(child.stdout.fileno(), 65536)
            child.send_signal(signal.SIGKILL)
            out += child.stdout.read()
        last = int(bytes(out[: out.rindex(b"\n")]).split(b"\n")[-1])
        between = "SELECT count(*) FROM activity WHERE metadata->>'n' BETWEEN ? AND ?"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute(between, (first, last)).fetchone()
            (top,) = connection.execute("SELECT max(metadata->>'n') FROM activity").fetchone()
        acked += last + 1 - first
        lost += last + 1 - first - found
        first = max(last, top or 0) + 1
    assert verify(path) is None
    return acked, lost, done


def test_acknowledged_event_survives_kill_9(tmp_path):
    # a busy machine takes more rounds
    acked, lost, _ = kill_rounds(tmp_path / "journal.db", 8, 1, "ours", seed=1, acks=51)
    assert acked > 50
    assert lost == 0


def test_kill_test_detects_lost_events(tmp_path):
    _, lost, _ = kill_rounds(tmp_path / "journal.db", 3, 500, "naive", seed=2)
    assert lost > 0


@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_sweep_of_kill_9_loses_nothing_acknowledged(tmp_path):
    for size, acks in ((1, 0), (200, 500_000)):
        acked, lost, rounds = kill_rounds(
            tmp_path / f"journal-{size}.db", 100, size, "ours", seed=size, acks=acks
        )
        print(f"batches of {size}: {rounds} kills, {acked} acknowledged, {lost} lost")
        assert lost == 0
    acked, lost, rounds = kill_rounds(tmp_path / "naive.db", 50, 500, "naive", seed=3)
    print(f"acknowledged when queued: {rounds} kills, {acked} acknowledged, {lost} lost")
    assert lost > 0


def test_close_flushes_queue_and_leaves_one_file(world):
    with world.open() as journal:
        futures = [journal.submit([event(n)]) for n in range(3_000)]
    assert all(future.done() for future in futures)
    assert ns(world.path) == list(range(3_000))
    assert not world.path.with_name("journal.db-wal").exists()
    with pytest.raises(JournalPaused, match="closed"):
        journal.commit([event(1)])


def test_cancelled_queued_batch_is_not_written(journal):
    with contextlib.closing(sqlite3.connect(journal.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = journal.submit([event(1)])
        wait_until(first.running)
        second = journal.submit([event(2)])
        assert second.cancel()
        other.execute("COMMIT")
    journal.commit([event(3)])
    assert ns(journal.path) == [1, 3]


def test_only_durable_commits_sync_to_disk(world):
    levels = []
    with Journal(
        world.path,
        now=lambda: BOOT,
        boottime_s=lambda: 0.0,
        boot_id="b",
        on_trouble=world.said.append,
        on_rows=lambda rows: levels.append(
            journal._store.connection.execute("PRAGMA synchronous").fetchone()[0]
        ),
    ) as journal:
        for durable in (False, True, True, False):
            journal.commit([event(1)], durable=durable)
    assert levels == [1, 2, 2, 1]  # 1 is NORMAL, 2 is FULL: sqlite.org/pragma.html


def test_concurrent_producers_and_readers_lose_no_events(journal):
    def produce(base: int) -> None:
        for n in range(100):
            journal.commit([event(base + n), PutSeen(f"{base}.md", str(n), "invalid", "")])

    counts: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with journal.read() as reader:
                counts.append(len(reader.activity(limit=10_000)))

    producers = [threading.Thread(target=produce, args=(1_000 * k,)) for k in range(4)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in (*producers, *readers):
        thread.start()
    for thread in producers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert counts, "readers are not kept out"
    found = ns(journal.path)
    for k in range(4):
        assert [n for n in found if n // 1_000 == k] == list(range(1_000 * k, 1_000 * k + 100)), (
            "in order"
        )
    assert verify(journal.path) is None


def test_failing_listener_stops_journal_with_error(world):
    def fail(rows: object) -> None:
        raise RuntimeError("listener")

    journal = Journal(
        world.path,
        now=lambda: BOOT,
        boottime_s=lambda: 0.0,
        boot_id="b",
        on_trouble=world.said.append,
        on_rows=fail,
    )
    journal.commit([event(1)])  # it was committed, so it is acknowledged
    wait_until(lambda: world.said)
    with pytest.raises(RuntimeError, match="listener"):
        journal.commit([event(2)])
    journal.close()
    assert ns(world.path) == [1]


# --- opening


def test_only_owner_can_read_journal_files(world, journal):
    journal.commit([event(1)])
    for path in world.path.parent.glob("journal.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert world.path.with_name("journal.db-wal").exists()


def fill(world: World, events: int = 200) -> None:
    with world.open() as journal:
        journal.commit([event(n, pad="x" * 100) for n in range(events)])


@pytest.mark.parametrize("how", ["middle", "header", "garbage", "cut"])
@pytest.mark.thinned(2)
def test_damaged_journal_is_set_aside_and_reported(world, how):
    fill(world)
    raw = bytearray(world.path.read_bytes())
    match how:
        case "middle":
            raw[8192:8704] = bytes(byte ^ 0xFF for byte in raw[8192:8704])
        case "header":
            raw[:16] = b"not SQLite at al"
        case "garbage":
            raw[:] = random.Random(1).randbytes(len(raw))
        case _:
            del raw[len(raw) // 2 :]
    world.path.write_bytes(raw)
    wal = world.path.with_name("journal.db-wal")
    wal.write_bytes(b"what a crash left")
    with world.open() as journal:
        assert journal.set_aside is not None
        assert Path(f"{journal.set_aside}-wal").read_bytes() == b"what a crash left"
        assert journal.set_aside.read_bytes() == raw, "it is kept as it was found"
        assert stat.S_IMODE(journal.set_aside.stat().st_mode) == 0o600
        assert any("damaged" in said and str(journal.set_aside) in said for said in world.said)
        journal.commit([event(1)])
    assert ns(world.path) == [1]
    with world.open() as journal:
        assert journal.set_aside is None


def test_intact_journal_stays_in_place(world):
    fill(world)
    with world.open() as journal:
        assert journal.set_aside is None
        journal.commit([event(200)])
    assert ns(world.path) == list(range(201))
    assert world.said == []


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_flipped_bytes_raise_only_user_errors(tmp_path_factory, seed):
    """Opening a damaged file ends in one of its promised ways; never in another exception."""
    world = World(tmp_path_factory.mktemp("flip") / "journal.db")
    shutil.copyfile(_filled(tmp_path_factory), world.path)
    rng = random.Random(seed)
    with world.path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for _ in range(rng.choice((1, 64))):
            file.seek(rng.choice((rng.randrange(100), rng.randrange(size))))
            file.write(rng.randbytes(1))
    try:
        with world.open() as journal:
            journal.commit([event(-1)])
        verify(world.path)
    except UserError:
        pass


def test_journal_with_undecodable_schema_is_set_aside(world):
    """SQLite quotes the damaged name in its error, which Python then cannot decode."""
    fill(world)
    raw = world.path.read_bytes().replace(b"activity_trace", b"a\xf9tivity_trace")
    world.path.write_bytes(raw.replace(b"ON activity (trace_id)", b"ON activity (trace_id("))
    with pytest.raises(UserError), open_reader(world.path):
        pass
    with world.open() as journal:
        assert journal.set_aside is not None
        journal.commit([event(-1)])


def _filled(factory: pytest.TempPathFactory) -> Path:
    path = factory.getbasetemp() / "filled.db"
    if not path.exists():
        fill(World(path))
    return path


def test_newer_journal_version_is_refused_unchanged(world):
    fill(world)
    edit(world.path, f"PRAGMA user_version = {schema.latest() + 1}")
    before = world.path.read_bytes()
    for attempt in (world.open, lambda: open_reader(world.path).__enter__()):
        with pytest.raises(UserError, match="newer placet") as caught:
            attempt()
        assert caught.value.hint
    assert world.path.read_bytes() == before


def test_reader_refuses_missing_or_empty_journal(world):
    with pytest.raises(UserError, match="no journal yet") as caught, open_reader(world.path):
        pass
    assert "placet run" in caught.value.hint
    assert not world.path.exists()
    world.path.touch()
    with pytest.raises(UserError, match="empty"), open_reader(world.path):
        pass


def test_reader_reports_damaged_journal(world):
    fill(world)
    raw = bytearray(world.path.read_bytes())
    raw[4096:] = bytes(byte ^ 0xFF for byte in raw[4096:])
    world.path.write_bytes(raw)
    with pytest.raises(JournalDamaged), open_reader(world.path) as reader:
        reader.activity()


def test_reader_needs_no_daemon_even_after_crash(world):
    """After kill -9 the events are in the -wal file alone.

    A reader must see them without writing.
    """
    fill(world, 3)
    with open_reader(world.path) as reader:
        assert len(reader.activity()) == 3
    live = world.open()
    live.commit([event(3)])
    crashed = World(world.path.parent / "crashed" / "journal.db")
    crashed.path.parent.mkdir()
    for tail in ("", "-wal"):
        shutil.copyfile(f"{world.path}{tail}", f"{crashed.path}{tail}")
    live.close()
    with open_reader(crashed.path) as reader:
        assert len(reader.activity()) == 4


def test_symlink_or_folder_as_journal_is_refused(world):
    world.path.symlink_to(world.path.with_name("other.db"))
    with pytest.raises(UserError, match="is not a regular file"):
        world.open()
    world.path.unlink()
    world.path.mkdir()
    with pytest.raises(UserError):
        world.open()


# --- migrations

NEXT = (
    *SCHEMA,
    (
        "9998_next",
        ("ALTER TABLE cases ADD COLUMN note TEXT NOT NULL DEFAULT ''", "CREATE TABLE more (x)"),
    ),
)


def test_older_journal_is_backed_up_then_migrated(world, monkeypatch):
    with world.open() as journal:
        journal.commit([PutCase("t", "r", "new", "{}", 0), event(1)])
    monkeypatch.setattr(schema, "SCHEMA", NEXT)
    with pytest.raises(UserError, match="older placet"), open_reader(world.path):
        pass
    assert ns(world.path) == [1]
    assert verify(world.path) is None, "an older journal can still be checked and queried"
    assert query(world.path, "SELECT count(*) FROM cases")[1] == [(1,)]
    with world.open() as journal, journal.read() as reader:
        assert len(reader.cases("new")) == 1
        assert query(world.path, "SELECT note FROM cases")[1] == [("",)]
        journal.commit([event(2)])
    saved = world.path.with_name(f"journal.before-schema-{schema.latest(NEXT)}.db")
    assert ns(saved) == [1]
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert verify(world.path) is None


OF_SIX_STEPS = (
    "0001_journal",
    "0002_no_meta",
    "0003_no_not_before",
    "0004_flat",
    "0005_asked",
    "0006_outbox_of_case",
)


def test_journal_with_six_step_schema_still_migrates(world, monkeypatch):
    with world.open() as journal:
        journal.commit([PutCase("t", "r", "new", "{}", 0), event(1)])
    edit(world.path, "DELETE FROM _sqlite_migrations")
    for name in OF_SIX_STEPS:
        edit(
            world.path,
            f"INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('placet', '{name}', 'then')",
        )
    with world.open() as journal:
        journal.commit([event(2)])
    monkeypatch.setattr(schema, "SCHEMA", NEXT)
    with world.open() as journal, journal.read() as reader:
        assert len(reader.cases("new")) == 1
        journal.commit([event(3)])
    assert ns(world.path) == [1, 2, 3]
    assert query(world.path, "SELECT name FROM _sqlite_migrations")[1] == [
        (name,) for name in (*OF_SIX_STEPS, "9998_next")
    ]
    assert verify(world.path) is None


@pytest.mark.parametrize("number", [1, schema.FIRST - 1])
def test_prerelease_journal_is_refused_unchanged(world, number):
    with world.open() as journal:
        journal.commit([event(1)])
    edit(world.path, f"PRAGMA user_version = {number}")
    before = world.path.read_bytes()
    for attempt in (world.open, lambda: open_reader(world.path).__enter__()):
        with pytest.raises(UserError, match="before the first release") as caught:
            attempt()
    assert ns(world.path) == [1], "it can still be queried"
    assert verify(world.path) is None
    assert world.path.read_bytes() == before
    assert list(world.path.parent.glob("journal.before-schema-*")) == []
    subprocess.run(
        ["sh", "-c", re.search("mkdir .*? && mv .*?(?=[.] )", caught.value.hint)[0]], check=True
    )
    assert (world.path.parent / f"schema-{number}/journal.db").read_bytes() == before
    with world.open():
        pass
    assert ns(world.path) == [], "a new one was begun"


def test_journal_keeps_usage_sums(world):
    calls = [
        Activity(
            "2026-11-21T10:59:59.000Z",
            "t",
            Actor.AGENT,
            Action.MODEL_CALLED,
            Entity.MISSION,
            "r",
            "",
            facts,
        )
        for facts in (
            {"purpose": "plan", "input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25},
            {"purpose": "execute", "cache_read_tokens": 7, "cost_usd": 0.5},
            {"purpose": "plan", "tokens": 3},
        )
    ]
    ended = Activity(
        "2026-11-21T11:00:00.000Z",
        "t",
        Actor.AGENT,
        Action.EXECUTION_COMPLETED,
        Entity.MISSION,
        "r",
        "",
        {"complexity": "standard", "cost_usd": 0.75},
    )
    with world.open() as journal:
        journal.commit([*map(AddActivity, calls), AddActivity(ended)])
    new = tables_of(world.path)
    assert new["spent"] == [("2026-11-21T10:45", 25, 0.75, 1)]
    assert new["paid"] == [("standard", 4, 0.75)]
    with world.open() as journal, journal.read() as reader:
        assert reader.calls.used_since("2026-11-21T10:45:00.000Z") == (25, None)
        assert reader.calls.used_since("2026-11-21T11:00:00.000Z") == (0, Decimal("0.0"))
        assert reader.calls.used_planning("t") == (18, None)
        assert reader.calls.mission_costs("standard") == (0.75,)


def tables_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def test_failed_migration_changes_nothing(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        migrate(connection, SCHEMA)
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, (*NEXT, ("9999_bad", ("CREATE TABLE y (x)", "DROP TABLE none"))))
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert "more" not in tables
        assert "y" not in tables
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.latest(),)
        migrate(connection, NEXT)
        migrate(connection, NEXT)
        migrate(connection, SCHEMA)  # a slower, older daemon must not turn the number back
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.latest(NEXT),)


def test_migrations_are_recorded_in_sqlite_utils_table(world):
    fill(world)
    _, rows = query(world.path, "SELECT migration_set, name FROM _sqlite_migrations")
    assert rows == [("placet", name) for name, _ in SCHEMA]


def test_concurrent_opens_of_new_journal_lose_nothing(world):
    errors: list[BaseException] = []
    barrier = threading.Barrier(6)

    def start() -> None:
        barrier.wait()
        try:
            with World(world.path).open() as journal:
                for _ in range(10):
                    journal.commit([event(1)])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert ns(world.path) == [1] * 60
    assert verify(world.path) is None


# --- tamper evidence


def reference_chain(path: Path) -> list[str]:
    """The hashes as the module's docstring describes them, computed from the rows alone."""
    before, hashes = "0" * 64, []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for row_id, *texts in connection.execute(
            "SELECT id, timestamp, trace_id, actor, agent, action_type, entity_type, entity_id, metadata "
            "FROM activity ORDER BY id"
        ):
            lengths = " ".join(str(len(text)) for text in texts)
            before = hashlib.sha256(
                f"{before}\n{row_id}\n{lengths}\n{''.join(texts)}".encode()
            ).hexdigest()
            hashes.append(before)
    return hashes


def test_hash_chain_matches_documentation(world):
    fill(world, 20)
    _, rows = query(world.path, "SELECT hash FROM activity")
    assert [row_hash for (row_hash,) in rows] == reference_chain(world.path)
    assert verify(world.path) is None


COLUMNS = [
    "timestamp",
    "trace_id",
    "actor",
    "agent",
    "action_type",
    "entity_type",
    "entity_id",
    "metadata",
    "hash",
]
COPY = (
    "INSERT INTO activity SELECT {id}, timestamp, trace_id, actor, agent, action_type, entity_type, "
    "entity_id, metadata, hash FROM activity WHERE id = 5"
)


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        *(
            (f"UPDATE activity SET {column} = {column} || 'x' WHERE id = 7", 7)
            for column in COLUMNS
        ),
        ("UPDATE activity SET agent = x'00ff' WHERE id = 7", 7),
        ("UPDATE activity SET actor = 'agentcoder', agent = '' WHERE id = 7", 7),  # same letters
        ("DELETE FROM activity WHERE id = 7", 7),
        ("DELETE FROM activity WHERE id = 1", 1),
        ("DELETE FROM activity WHERE id = 20", 20),  # the last one
        ("DELETE FROM activity", 1),
        ("UPDATE activity SET id = 100 WHERE id = 7", 7),
        (COPY.format(id=21), 21),
        (COPY.format(id=0), 0),
    ],
)
@pytest.mark.thinned(3)
def test_verify_names_first_tampered_row(world, sql, row):
    fill(world, 20)
    edit(world.path, sql)
    found = verify(world.path)
    assert isinstance(found, BadRow)
    assert (found.id, bool(found.reason)) == (row, True)


def test_verify_finds_swapped_rows(world):
    fill(world, 20)
    for sql in ("SET id = 99 WHERE id = 7", "SET id = 7 WHERE id = 8", "SET id = 8 WHERE id = 99"):
        edit(world.path, f"UPDATE activity {sql}")
    assert verify(world.path).id == 7


def test_manually_inserted_row_does_not_block_writer(world):
    fill(world, 5)
    with world.open() as journal:
        edit(world.path, COPY.format(id=6))
        journal.commit([event(6)])
        with journal.read() as reader:
            assert reader.last()[0] == 7
    assert verify(world.path).id == 6


# --- queries, backups


COUNT = "WITH RECURSIVE c(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"


def test_user_query_is_read_only(world, journal):
    journal.commit([event(1)])
    assert query(world.path, "SELECT count(*) AS n, max(id) FROM activity") == (
        ("n", "max(id)"),
        [(1, 1)],
    )
    assert query(world.path, f"{COUNT} LIMIT 3")[1] == [(1,), (2,), (3,)]
    other = world.path.with_name("other.db")
    for sql in (
        "DELETE FROM activity",
        "UPDATE activity SET agent = ''",
        "CREATE TEMP TABLE t (x)",
        "PRAGMA query_only = 0",
        "PRAGMA writable_schema = 1",
        "PRAGMA user_version = 9",
        f"ATTACH '{other}' AS o",
        f"VACUUM INTO '{other}'",
        "SELECT load_extension('x')",
        "BEGIN",
        "COMMIT",
        "SELECT 1; SELECT 2",
        "SELECT nonsense",
    ):
        with pytest.raises(UserError) as caught:
            query(world.path, sql)
        assert caught.value.exit_code == 2
    assert not other.exists()
    assert ns(world.path) == [1]
    assert verify(world.path) is None


def test_endless_query_times_out(world, journal):
    with pytest.raises(UserError, match="took over"):
        query(world.path, COUNT.replace("SELECT x FROM", "SELECT count(*) FROM"), timeout_s=0.1)


def test_backup_during_writes_is_complete(world, journal):
    body = b"long" * 10_000
    journal.commit([PutText("d", body), event(0)])
    stop = threading.Event()

    def write() -> None:
        n = 1
        while not stop.is_set():
            journal.commit([event(n)])
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    target = world.path.parent / "copy" / "saved.db"
    target.parent.mkdir()
    for _ in range(3):
        backup(world.path, target)
    stop.set()
    writer.join()
    assert verify(target) is None
    found = ns(target)
    assert found == list(range(len(found)))
    with open_reader(target) as reader:
        assert reader.text("d") == body
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["saved.db"], (
        "long bodies too stand in the one file"
    )


def test_journal_killed_before_wal_mode_still_opens(world):
    """SQLite leaves a rollback journal then, which only a writer may play back."""
    script = (
        f"import os, signal, sqlite3\n"
        f"c = sqlite3.connect({str(world.path)!r}, isolation_level=None)\n"
        f"c.execute('PRAGMA synchronous = FULL')\n"
        f"c.execute('CREATE TABLE a (b)')\n"
        f"c.execute('PRAGMA cache_size = 1')\n"
        f"c.execute('BEGIN IMMEDIATE')\n"
        f"c.execute('INSERT INTO a SELECT randomblob(9000) FROM (VALUES (1), (2), (3), (4))')\n"
        f"os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert Path(f"{world.path}-journal").stat().st_size > 0
    with (
        pytest.raises(sqlite3.OperationalError, match="readonly"),
        contextlib.closing(
            sqlite3.connect(f"{world.path.as_uri()}?mode=ro", uri=True)
        ) as connection,
    ):
        connection.execute("SELECT * FROM a").fetchall()
    with world.open() as journal:
        assert journal.set_aside is None
        journal.commit([event(1)])
    assert verify(world.path) is None


def test_time_range_query_includes_late_rows(
    journal: Journal,
) -> None:
    times = [rfc3339(BOOT + timedelta(seconds=one)) for one in LATE_S]
    journal.commit([event(n, at=at) for n, at in enumerate(times)])
    for since in ("", "0001-01-01T00:00:00.000Z", "3000-01-01T00:00:00.000Z", *times):
        for until in ("", "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", *times):
            expected = [
                n for n, at in enumerate(times) if at >= since and (not until or at < until)
            ]
            found = [
                row.details["n"]
                for rows in all_rows(journal.path, Wanted(since=since, until=until))
                for row in rows
            ]
            assert found == expected[::-1], (since, until)
    with raw(journal.path) as db:
        for n, at in enumerate(times, 1):
            first = first_since(db, at)
            assert all(row >= first for row, one in enumerate(times, 1) if one >= at), n
