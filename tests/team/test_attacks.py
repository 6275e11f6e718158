"""Test that a worker with its role cannot stop the others, fill memory or disk, or spend for all."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

import pgkit
from placet import __version__
from placet.activity import Action, Activity, Actor, Entity
from placet.case.events import Asked
from placet.chat.prices import DEFAULT_PRICES
from placet.host.clock import Clock
from placet.host.config import Config
from placet.journal.database import DatabaseAway
from placet.journal.writer import Journal
from placet.journal.writes import (
    AddActivity,
    AddRecord,
    Conflict,
    Guard,
    LeaseLost,
    PutCase,
    PutText,
    ReleaseLease,
)
from placet.plan.scope import Scope
from placet_team.blockers import Blocker, blockers, watched
from placet_team.command import let_in
from placet_team.postgres import PostgresConnection
from placet_team.postgres_schema import create_tables
from placet_team.tables import DropWork, PutRefs, PutResult, PutWork, queue_of
from placet_team.work_item import _KINDS, LEFT, MISTAKE, Wait, most_used, packed_result, result_of
from placet_team.worker_journal import WorkerJournal
from teamkit import Workers, claim, handed, journal_of, owner_json
from vaultkit import until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

MB = 1_000_000


@pytest.fixture
def ann(workers: Workers) -> Iterator[PostgresConnection]:
    """A connection with a worker's role, for what its functions do not offer."""
    assert workers.beat("ann")
    with closing(PostgresConnection(workers.role("ann"))) as connection:
        yield connection


WHOLE: dict[Action, dict[str, Any]] = {
    Action.MODEL_CALLED: {"purpose": "execute", "model": "m", "cost_usd": None},
    Action.TOOL_CALLED: {"tool": "bash", "target": "ls", "ok": True, "error_type": ""},
    Action.STEP_COMPLETED: {"step": 1, "of": 2},
}


def called(trace: str, action: Action = Action.MODEL_CALLED, **facts: Any) -> AddActivity:
    whole = {**WHOLE.get(action, {}), **facts}
    row = Activity(Clock().now(), trace, Actor.AGENT, action, Entity.MISSION, "r", "", whole)
    return AddActivity(row)


def journal_rows(workers: Workers, sql: str) -> list[tuple[Any, ...]]:
    """What the owner of the database reads."""
    with closing(PostgresConnection(workers.address)) as owner:
        return [tuple(row) for row in owner.execute(sql)]


@contextmanager
def unlimited_digits() -> Iterator[None]:
    """Let this process write numbers that another cannot read."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def entry(trace: str, seq: int, body: bytes = b"{}") -> AddRecord:
    return AddRecord(trace, 1, seq, "outcome", f"reply:{seq}", body)


# --- the queue


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO team_work (trace_id, generation, planning, queue, put_at) "
        "SELECT 'x' || n, 1, TRUE, '0.1/any/0', '' FROM generate_series(1, 100000) AS n",
        "UPDATE team_members SET beat_s = 'infinity'",
        "UPDATE team_work SET priority = 99",
        "DELETE FROM team_work",
        "LOCK TABLE team_work IN ROW EXCLUSIVE MODE",
        "LOCK TABLE chain IN ACCESS SHARE MODE",
        "SELECT 1 FROM team_work FOR UPDATE",
        "SELECT 1 FROM chain FOR UPDATE",
        "CREATE TABLE placet.mine (one int)",
        "CREATE TEMP TABLE mine (one int)",
        "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')",
        "SET temp_file_limit = '1TB'",
    ],
)
def test_worker_cannot_write_lock_or_fill(
    journal: Journal, ann: PostgresConnection, sql: str
) -> None:
    journal.commit([PutWork("t1", 1, planning=True, queue=queue_of("any", 0), priority=0)])
    ann.execute("BEGIN")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ann.execute(sql)


def test_worker_takes_no_more_than_its_slots(
    journal: Journal, workers: Workers, address: str
) -> None:
    puts = [
        PutWork(f"t{n}", 1, planning=True, queue=queue_of("any", 0), priority=0) for n in range(5)
    ]
    workers.beat("ann", slots=64)
    let_in(address, "ann", "any", slots=2)
    workers.call("ann", "worker_beat", owner_json("ann"), 3, __version__, 64, "", [])
    (seen,) = journal_rows(workers, "SELECT slots FROM team_members")
    assert seen == (2,)
    journal.commit(puts)

    def take(owner: str, *taken: str) -> Any:
        return workers.call("ann", "worker_claim", owner_json(owner), [*taken])

    assert [take("ann"), take("ann", "t0"), take("ann", "t0", "t1")] == ["t0", "t1", None]
    gone = owner_json("ann")  # another process of it has no slots of its own
    workers.call("ann", "worker_beat", owner_json("next"), 3, __version__, 64, gone, [])
    assert take("next") is None
    journal.commit([DropWork("t0", 1)])
    assert take("next") == "t2"


def test_tables_without_slots_are_upgraded(workers: Workers, address: str) -> None:
    workers.beat("ann")
    with closing(PostgresConnection(address)) as owner:
        owner.execute("ALTER TABLE team_workers DROP COLUMN slots")
    create_tables(address)
    assert journal_rows(workers, "SELECT name, slots FROM team_workers") == [("ann", 2)]


def test_worker_let_in_again_keeps_what_it_has(workers: Workers, address: str) -> None:
    new, first = let_in(address, "fay"), let_in(address, "fay", "gpu", slots=5)
    again = let_in(address, "fay")
    assert [(one.labels, one.slots) for one in (new, first, again)] == [
        ("any", 2),
        ("gpu", 5),
        ("gpu", 5),
    ]
    assert "CONNECTION LIMIT 14" in again.sql


def test_role_has_few_connections(workers: Workers, address: str) -> None:
    workers.server.sql(let_in(address, "few", slots=1).sql, address.rpartition("/")[2])
    theirs = address.replace("//placet@", "//few@")
    opened = [PostgresConnection(theirs) for _ in range(6)]
    with pytest.raises(DatabaseAway, match="too many connections for role"):
        PostgresConnection(theirs)
    for one in opened:
        one.close()


# --- memory and disk


def test_record_of_a_case_has_a_largest_sum(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    seq, wrote = 0, 0
    for _ in range(2):  # a new lease begins with what the last one brought
        token = handed(journal, workers, "ann", "t1")
        with closing(journal_of(workers, "ann")) as mine:
            for _ in range(3):
                seq += 1
                with suppress(Conflict):
                    mine.commit([Guard("t1", token), entry("t1", seq, bytes(15 * MB))])
                    wrote += 15
            mine.commit([Guard("t1", token), PutResult("left", "")])  # it can still end
        journal.commit([ReleaseLease("t1", token), DropWork("t1", 1)])
    assert wrote == 60
    token, refs = handed(journal, workers, "ann", "t2"), PutRefs('{"a": "' + "x" * MB + '"}')
    with closing(journal_of(workers, "ann")) as mine:
        with pytest.raises(Conflict):
            mine.commit([Guard("t2", token), entry("t2", 1, bytes(17 * MB))])
        mine.commit([Guard("t2", token), entry("t2", 1, bytes(1 * MB))])
        for _ in range(62):  # each leaves a dead row
            mine.commit([Guard("t2", token), refs])
        with pytest.raises(Conflict, match="64 MB"):
            mine.commit([Guard("t2", token), entry("t2", 2, bytes(2 * MB))])


def test_keys_and_rows_count(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    guard = Guard("t1", handed(journal, workers, "ann", "t1"))

    def named(*seqs: int, key: str = "x") -> list[AddRecord]:
        return [AddRecord("t1", 1, seq, "intent", key, b"") for seq in seqs]

    with closing(journal_of(workers, "ann")) as mine:
        for writes in (
            named(1, key="x" * 201),
            named(*range(1, 5002)),
            [called("t1", Action.TOOL_CALLED)] * 5001,
            [PutResult("x" * 5_000_000, "")],
            [PutResult("other", "{}")],
        ):
            with pytest.raises(Conflict, match="so much"):
                mine.commit([guard, *writes])
        mine.commit([guard, *named(1, 2, key="y" * 200), called("t1", Action.TOOL_CALLED)])
        (row,) = journal_rows(workers, "SELECT bytes FROM team_used")
        assert row[0] > 2 * (200 + len("intent") + 200) + 200
        with closing(PostgresConnection(workers.address)) as owner:
            owner.execute("UPDATE team_used SET bytes = 64000000")
        with pytest.raises(Conflict, match="64 MB"):
            mine.commit([guard, *named(3)])
        mine.commit([guard, PutResult(*packed_result(QUESTION))])
    (row,) = journal_rows(workers, "SELECT kind FROM team_work")
    assert row == ("asked",)


def test_database_knows_the_kinds_of_results() -> None:
    sql = files("placet_team").joinpath("workers.sql").read_text("utf-8")
    (listed,) = re.findall(r"kind_ NOT IN \(\s*('', [^)]*)\)", sql)
    assert {*re.findall("'([^']*)'", listed)} == {"", LEFT, MISTAKE, *_KINDS}


def test_long_row_and_long_result_are_refused(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    guard = Guard("t1", handed(journal, workers, "ann", "t1"))
    with closing(journal_of(workers, "ann")) as mine:
        with pytest.raises(Conflict, match="64 KB"):
            mine.commit([guard, called("t1", Action.TOOL_CALLED, blanks=" " * 66_000)])
        mine.commit([guard, called("t1", Action.TOOL_CALLED, blanks=" " * 60_000)])
        with pytest.raises(Conflict, match="so much"):
            mine.commit([guard, PutResult("wait", json.dumps("x" * 2 * MB))])


REACHED = {"host": "a.example", "port": 443, "verdict": "allowed"} | dict.fromkeys(
    ("connections", "sent_bytes", "received_bytes"), 1
)


@pytest.mark.parametrize(
    "change",
    [
        *({"timestamp": f"2026-11-25T{at}Z"} for at in ("10:20:60", "24:00:00", "10:20", "99:00:00")),
        {"timestamp": "0001-01-01T00:00:00Z"},
        {"entity_id": "other"},
        {"agent": "a\nb"},
        *({"action": Action.STEP_COMPLETED, "metadata": facts} for facts in (
            {}, {"step": 1}, {"step": "1", "of": 2}, {"step": 1.0, "of": 2}, {"step": -1, "of": 2},
            {"step": 1, "of": 2, "more": 10**5000}, {"step": 1, "of": 2, "more": [{"a": -1e16}]},
        )),
        {"action": Action.FAILURE_DETECTED, "metadata": {"description": "d"}},
        {"action": Action.GIT_COMMITTED, "metadata": {"branch": "b"}},
        {"action": Action.MODEL_CALLED, "metadata": {"purpose": "execute", "model": "m"}},
        {"action": Action.PLAN_DRIFTED, "metadata": {"reason": "Approve it again."}},
        {"action": Action.TOOL_REFUSED, "metadata": {"tool": "bash", "target": ["ls"]}},
        *({"action": Action.TOOL_CALLED, "metadata": {**WHOLE[Action.TOOL_CALLED], **facts}} for facts in (
            {"ok": 1}, {"iteration": "x"}, {"hosts": [REACHED, {}]}, {"hosts": REACHED}, {"hosts": [{**REACHED, "port": ""}]},
        )),
    ],
)  # fmt: skip
def test_row_that_readers_cannot_read_is_refused(
    journal: Journal, workers: Workers, change: dict[str, Any]
) -> None:
    workers.beat("ann")
    guard = Guard("t1", handed(journal, workers, "ann", "t1"))
    journal.commit([PutCase("t1", "r", "running", "{}", 0)])
    good = called("t1", Action.TOOL_CALLED, hosts=[REACHED]).activity
    with closing(journal_of(workers, "ann")) as mine, unlimited_digits():
        mine.commit([guard, AddActivity(good)])
        with pytest.raises(Conflict, match="no row"):
            mine.commit([guard, AddActivity(replace(good, **change))])


QUESTION = Asked(1, question="Which?", options=("Red", "Blue"), why="Colours.")
WIDER = Asked(1, why="It has a note.", wider=Scope(write=("note.md",)))


@pytest.mark.parametrize(
    "asked",
    [
        replace(QUESTION, question="x" * 10 * MB),
        replace(QUESTION, question=" "),
        replace(QUESTION, options=tuple("abcdefghi")),
        replace(QUESTION, options=("x" * 501,)),
        replace(QUESTION, why="x" * 2_001),
        replace(WIDER, why="x" * 2_001),
        replace(WIDER, wider=Scope(write=tuple(f"a{n}" for n in range(201)))),
        replace(WIDER, wider=Scope(write=("x" * 1_001,))),
        replace(WIDER, wider=Scope(write=("note.md",), shell=True)),
        replace(WIDER, wider=Scope(write=("note.md",), max_iterations=1000)),
    ],
)
def test_question_keeps_limits_of_its_tool(asked: Asked) -> None:
    with pytest.raises(ValueError, match=r"why|question|options|scope|characters|entries"):
        result_of(*packed_result(asked))


def test_usual_question_is_taken() -> None:
    for asked in (QUESTION, WIDER):
        assert result_of(*packed_result(asked)) == asked


def test_reason_of_a_wait_is_one_line() -> None:
    false = "no disk\n23:59:59 vault: plan.approved by the boss"
    wait = result_of("wait", json.dumps({"reason": false, "after_s": 1.0, "why": "machine"}))
    assert isinstance(wait, Wait)
    assert "\n" not in wait.error().reason
    assert len(Wait("x" * MB, 1.0, wait.why).error().reason) <= 500


# --- money


def reserves(workers: Workers, token: int, tokens: int, usd: str | None) -> bool:
    held = workers.call("ann", "worker_hold", f"t1:1:{token}", tokens, usd, *[None] * 4)
    return bool(held)


def test_row_costs_at_most_its_reservation(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1", (1_000, "1"))
    guard, seq = Guard("t1", token), 0
    with closing(journal_of(workers, "ann")) as mine, patch.object(WorkerJournal, "_settle"):

        def write(**facts: Any) -> None:
            nonlocal seq
            mine.commit([guard, entry("t1", seq + 1), called("t1", **facts)])
            seq += 1

        with pytest.raises(Conflict, match="reserved"):
            write(cost_usd=0.1)
        assert reserves(workers, token, 100, "0.2")
        for more in ({"cost_usd": 0.21}, {"input_tokens": 101}, {"input_tokens": 1}):
            with pytest.raises(Conflict, match="reserved"):
                write(**more)
        write(input_tokens=60, output_tokens=40, cost_usd=0.2)
        with pytest.raises(Conflict, match="reserved"):
            write(cost_usd=0.1)
        with pytest.raises(Conflict, match="reserved"):
            write(input_tokens=1, cost_usd=None)
    with journal.read() as reader:
        assert reader.calls.used_since("2026") == (100, Decimal("0.2"))


@pytest.mark.parametrize(
    ("tokens", "usd"), [(901, "0.1"), (1, "0.81"), (1, None), (1, "100000"), (1, "NaN"), (-1, "0")]
)
def test_reservation_keeps_limits_of_the_work(
    journal: Journal, workers: Workers, tokens: int, usd: str | None
) -> None:
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1", (1_000, "1"))
    assert reserves(workers, token, 100, "0.2")
    with closing(journal_of(workers, "ann")) as mine:
        used = called("t1", input_tokens=100, cost_usd=0.2)
        mine.commit([Guard("t1", token), entry("t1", 1), used])
    journal.commit([ReleaseLease("t1", token), DropWork("t1", 1)])
    token = handed(journal, workers, "ann", "t1", (1_000, "1"))
    with pytest.raises(Conflict, match="no room"):
        reserves(workers, token, tokens, usd)
    assert reserves(workers, token, 900, "0.8")


def test_lease_has_one_reservation(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1")
    assert reserves(workers, token, 100, "0.1")
    for key in (f"t1:1:{token}:2", f"t1:1:0{token}", f"t1:1: {token}", f"t1:01:{token}", "t1:1:"):
        with pytest.raises((Conflict, LeaseLost)):
            workers.call("ann", "worker_hold", key, 1, "0", *[None] * 4)
    with pytest.raises(Conflict, match="no room"):
        reserves(workers, token, 1, "0." + "0" * 39)
    assert reserves(workers, token, 200, "0.3")
    assert journal_rows(workers, "SELECT tokens, usd FROM team_held") == [(200, "0.3")]


def test_cost_of_a_lost_reservation_is_short(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1")
    with closing(journal_of(workers, "ann")) as mine:  # a float has more digits than its text
        mine.commit([Guard("t1", token), entry("t1", 1), called("t1", tokens=1, cost_usd=0.1)])


def test_dearer_reply_is_reserved_before_its_row(journal: Journal, workers: Workers) -> None:
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1", (1_000, "1"))
    with closing(journal_of(workers, "ann")) as mine:
        assert reserves(workers, token, 10, "0.1")
        rows = [called("t1", input_tokens=200, cost_usd=0.3)]
        mine.commit([Guard("t1", token), entry("t1", 1), *rows])
        with pytest.raises(Conflict, match="no room"):
            mine.commit([Guard("t1", token), entry("t1", 2), called("t1", cost_usd=0.8)])


def test_paid_answer_at_the_limit_is_kept(journal: Journal, workers: Workers) -> None:
    config = Config()
    limit = config.limits.mission_tokens
    most = most_used(config, DEFAULT_PRICES, Scope(budget_usd=Decimal(1)))
    assert most.tokens == limit + config.model.context_tokens
    assert most.usd is not None
    assert Decimal(1) < most.usd < Decimal(3)
    assert most_used(config, (), Scope(budget_usd=Decimal(1))).usd == 1, "no price is known"
    assert most_used(config, DEFAULT_PRICES, None).tokens > config.limits.planning_tokens
    workers.beat("ann")
    token = handed(journal, workers, "ann", "t1", (most.tokens, str(most.usd)))
    with closing(journal_of(workers, "ann")) as mine:
        assert reserves(workers, token, limit, "1")
        rows = [called("t1", input_tokens=limit + 100_000, cost_usd=1.2)]
        mine.commit([Guard("t1", token), entry("t1", 1), *rows])
        with pytest.raises(Conflict, match="no room"):
            reserves(workers, token, config.model.context_tokens, "0.1")


# --- locks


def test_blocking_session_is_named_and_ended(
    journal: Journal, workers: Workers, address: str, ann: PostgresConnection
) -> None:
    token, said = handed(journal, workers, "ann", "t1"), list[str]()
    lock = ("t1", token, 1, [], [], [], [], [], [], "", "", "")
    ann.execute("BEGIN")
    ann.execute("SET idle_in_transaction_session_timeout = 0")
    ann.execute(f"SELECT worker_append({', '.join('?' * len(lock))})", lock)
    began_s = time.monotonic()
    writing = threading.Thread(target=journal.commit, args=([PutText("digest", b"text")],))
    writing.start()
    with (
        patch("placet_team.blockers.SHORT_S", 0.5),
        closing(PostgresConnection(address)) as other,
    ):
        (found,) = until(lambda: blockers(other), "who blocks", 20)
        assert (found.user, found.is_worker, found.waiting) == ("ann", True, 1)
        with watched(address, 3.0, said.append):
            writing.join(30)
    assert not writing.is_alive()
    assert time.monotonic() - began_s < 25, "not by the server's own limit"
    assert any("worker ann" in line for line in said)
    assert said[-1].startswith("Ended a session that blocked the journal: the session")
    with pytest.raises(DatabaseAway):
        ann.execute("SELECT 1")
    assert claim(workers, "ann") is None


def test_sessions_that_hide_each_other_are_ended(
    journal: Journal, workers: Workers, address: str, ann: PostgresConnection
) -> None:
    token, said = handed(journal, workers, "ann", "t1"), list[str]()
    lock = ("t1", token, 1, [], [], [], [], [], [], "", "", "")
    with closing(PostgresConnection(workers.role("ann"))) as second:
        second.execute("SELECT pg_advisory_lock(1)")  # and no transaction is open
        ann.execute("BEGIN")
        ann.execute("SET lock_timeout = 0")
        ann.execute(f"SELECT worker_append({', '.join('?' * len(lock))})", lock)
        ended = threading.Event()

        def wait() -> None:
            with pytest.raises(DatabaseAway):
                ann.execute("SELECT pg_advisory_xact_lock(1)")
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        with watched(address, 1.0, said.append):
            assert ended.wait(20)
        waiting.join()
    assert said[-1].startswith("Ended a session")
    journal.commit([PutText("digest", b"text")])


def test_old_transaction_is_ended_though_nobody_waits(
    workers: Workers, address: str, ann: PostgresConnection
) -> None:
    said = list[str]()
    with closing(PostgresConnection(workers.role("ann"))) as young:
        young.execute("SELECT 1")
        ann.execute("LISTEN placet_rows")  # what is announced is kept until it has heard of it
        ann.execute("BEGIN")
        ann.execute("SELECT 1")
        with watched(address, 1.0, said.append):
            until(lambda: said, "what was ended", 20)
        with pytest.raises(DatabaseAway):
            ann.execute("SELECT 1")
        young.execute("SELECT 1")
    assert re.match(r"Ended a session: the session \d+ of the worker ann has kept a tr", said[0])


def test_session_that_is_over_is_not_said(workers: Workers, address: str) -> None:
    gone = Blocker(0, "ann", is_worker=True, open_s=60.0, waiting=0)  # no session has this number
    said, looks = list[str](), list[int]()

    def old(*_: object) -> list[Blocker]:
        looks.append(1)
        return [gone]

    with (
        patch("placet_team.blockers.old_sessions", old),
        watched(address, 0.3, said.append),
    ):
        until(lambda: len(looks) > 1, "two looks", 20)
    assert said == []


def test_watch_outlives_sessions_of_unknown_age_and_errors(
    journal: Journal, address: str, server: pgkit.Server
) -> None:
    server.sql("CREATE ROLE watcher LOGIN IN ROLE placet_reader")
    said, calls = list[str](), list[int]()

    def old(*_: object) -> list[Blocker]:
        calls.append(1)
        if len(calls) == 1:
            raise psycopg.errors.InternalError_("the cache lookup failed")
        return []

    with (
        closing(PostgresConnection(address)) as other,
        patch("placet_team.blockers.old_sessions", old),
        watched(address.replace("//placet@", "//watcher@"), 0.3, said.append),
    ):
        other.execute("BEGIN")
        other.execute("LOCK TABLE team_workers")
        until(lambda: said, "who blocks", 20)
        seen = len(calls)
        until(lambda: len(calls) > seen + 1, "another look", 20)
    assert "of the database user placet has kept a transaction open for an unknown time" in said[0]
