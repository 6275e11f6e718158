"""Test that a worker's database role can do its own work, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

import pgkit
from placet.activity import Action, Activity, Actor, Entity
from placet.journal.database import DatabaseAway
from placet.journal.maintenance import verify
from placet.journal.writer import Journal
from placet.journal.writes import (
    AddActivity,
    AddRecord,
    Conflict,
    Guard,
    LeaseLost,
    ReleaseLease,
    Write,
)
from placet_team.postgres import PostgresConnection
from placet_team.tables import Drain, PutRefs, PutResult, PutWork, queue_of, work_rows
from placet_team.worker_journal import WorkerJournal
from teamkit import Workers, claim, handed, journal_in, journal_of, owner_json, team_database

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


@pytest.fixture
def workers(server: pgkit.Server) -> Workers:
    found = Workers(server, team_database(server))
    for name in ("ann", "bob"):
        assert found.beat(name)
    return found


@pytest.fixture
def daemon(tmp_path: Path, workers: Workers) -> Iterator[Journal]:
    with journal_in(tmp_path, workers.address) as found:
        yield found


def event(trace: str, action: Action = Action.GIT_TIDIED, **facts: Any) -> AddActivity:
    when = "2026-11-25T10:20:30Z"
    return AddActivity(
        Activity(
            when, trace, Actor.AGENT, action, Entity.MISSION, "caf\u00e9 \U0001f4a1", "", facts
        )
    )


def test_worker_rows_join_hash_chain_and_totals(daemon: Journal, workers: Workers) -> None:
    token = handed(daemon, workers, "ann", "t1")
    used = {
        "model": "m",
        "purpose": "plan",
        "tokens": 1,
        "input_tokens": 3,
        "cost_usd": 0.25,
        "text": "\u00fc\n\0\ud800",
    }
    with closing(journal_of(workers, "ann")) as journal:
        call = AddRecord("t1", 1, 1, "intent", "attempt:1", b"{}")
        journal.commit([Guard("t1", token), call, event("t1")])
        daemon.commit([event("t2")])
        reply = AddRecord("t1", 1, 2, "outcome", "reply:1", b"\0\xff")
        rows = [event("t1", Action.MODEL_CALLED, **used), event("t1")]
        journal.commit([Guard("t1", token), reply, *rows, PutResult("left", "")])
        with journal.read() as reader:
            assert [one.body for one in reader.records("t1", 1)] == [b"{}", b"\0\xff"]
            assert len(reader.activity()) == 3, "its own rows alone"
    with daemon.read() as reader:
        assert [row.id for row in reader.activity()] == [1, 2, 3, 4]
        assert verify(daemon.path) is None
        assert reader.calls.used_since("2026-11-25T10:00:00Z")[0] == 4
        assert reader.connection.execute("SELECT count(*) FROM asked").fetchone() == (0,)
        (row,) = work_rows(reader.connection)
        assert row.kind == "left"


def test_worker_append_with_lost_reply_is_not_repeated(daemon: Journal, workers: Workers) -> None:
    token = handed(daemon, workers, "ann", "t1")
    with closing(journal_of(workers, "ann")) as journal:
        batch = [Guard("t1", token), AddRecord("t1", 1, 1, "intent", "x", b""), event("t1")]
        journal.commit(batch)
        (calls,) = journal._calls.values()
        calls.turn -= 1  # it knows nothing of the answer
        journal.commit(batch)
        with pytest.raises(Conflict, match="is taken"):
            journal.commit(batch)
        journal.commit([Guard("t1", token), event("t1")])
        calls.turn += 1  # the database was restored since
        with pytest.raises(LeaseLost, match="was restored"):
            journal.commit([Guard("t1", token), event("t1")])
        other = handed(daemon, workers, "ann", "t2")  # and goes on with new work
        for _ in range(2):
            journal.commit([Guard("t2", other), event("t2")])
    with daemon.read() as reader:
        assert [row.trace_id for row in reader.activity()] == ["t1", "t1", "t2", "t2"]
    key, sure = f"t1:1:{token}", True
    for _ in range(2):
        assert workers.call("ann", "worker_hold", key, 5, "0.1", 5, "0.1", "", sure) is True
    assert workers.call("ann", "worker_hold", key, 6, "0.1", 5, "0.1", "", sure) is False
    assert workers.call("ann", "worker_hold", key, 6, None, *[None] * 4) is True


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def refused_batches(token: int, theirs: int) -> dict[str, list[Write]]:
    mine = Guard("t1", token)
    human = Activity(
        *("2026-11-25T10:20:30Z", "t1", Actor.HUMAN, Action.PLAN_APPROVED, Entity.PLAN, "x", ""),
        {"reviewed_by": "Ann", "via": "move"},
    )
    return {
        "another's lease": [Guard("t2", theirs), event("t2")],
        "another's token": [Guard("t1", token + 1), event("t1")],
        "a person's row": [mine, AddActivity(human)],
        "a decision": [mine, event("t1", Action.PLAN_APPROVED)],
        "the end of a mission": [mine, event("t1", Action.EXECUTION_COMPLETED, cost_usd=1)],
        "another's row": [mine, event("t2")],
        "less than nothing": [mine, event("t1", Action.MODEL_CALLED, input_tokens=-5)],
        "another attempt": [mine, AddRecord("t1", 2, 1, "outcome", "y", b"")],
        "where it is": [mine, AddRecord("t1", 1, 2, "outcome", "place", b"")],
        "for whom it is": [mine, AddRecord("t1", 1, 2, "outcome", "author", b"")],
        "an odd kind": [mine, AddRecord("t1", 1, 2, "other", "y", b"")],
        "a wait of its own": [mine, event("t1", Action.MODEL_WAITING, why="asleep")],
        "part of a token": [mine, event("t1", Action.MODEL_CALLED, input_tokens=0.5)],
        "tokens as a text": [mine, event("t1", Action.MODEL_CALLED, input_tokens="5")],
        "a deep row": [mine, event("t1", deep=nested(30))],
        "a number of no record": [mine, AddRecord("t1", 1, 2**63 - 1, "outcome", "y", b"")],
        "references that are none": [mine, PutRefs("[1]")],
        "a reference to a number": [mine, PutRefs('{"refs/heads/x": 1}')],
        "two outcomes": [mine, *(AddRecord("t1", 1, n, "outcome", "y", b"") for n in (2, 3))],
        "too much": [mine, event("t1", Action.MODEL_CALLED, tokens=9 * 10**18)],
        "a NaN": [mine, event("t1", Action.MODEL_CALLED, cost_usd="NaN")],
        "Infinity": [mine, event("t1", Action.MODEL_CALLED, cost_usd="Infinity")],
        "a large body": [mine, AddRecord("t1", 1, 2, "outcome", "y", b"x" * 16_000_001)],
        "an end that is no JSON": [mine, PutResult("ended", '{"duration_s":NaN}')],
    }


def test_forbidden_worker_write_rejects_whole_batch(daemon: Journal, workers: Workers) -> None:
    token, theirs = (
        handed(daemon, workers, name, trace) for name, trace in (("ann", "t1"), ("bob", "t2"))
    )
    workers.call("ann", "worker_hold", f"t1:1:{token}", 10**6, *[None] * 5)
    with closing(journal_of(workers, "ann")) as journal, patch.object(WorkerJournal, "_settle"):
        for what, batch in refused_batches(token, theirs).items():
            with pytest.raises((Conflict, LeaseLost, psycopg.DataError)):
                journal.commit([*batch[:1], AddRecord("t1", 1, 1, "intent", "x", b""), *batch[1:]])
            with journal.read() as reader:
                assert reader.records("t1", 1) == (), what
        daemon.commit([ReleaseLease("t1", token)])
        with pytest.raises(LeaseLost):
            journal.commit([Guard("t1", token), event("t1")])
    with daemon.read() as reader:
        assert reader.activity() == ()


GOOD = ["2026-11-25T10:20:30Z", "t1", "agent", "", "git.tidied", "mission", "x", "{}"]


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "tomorrow"),
        (0, "9999-01-01T00:00:00Z"),
        (5, "vault"),
        (7, "[]"),
        (7, "no json"),
        (7, None),
        (8, "a ninth text"),
    ],
)
def test_unreadable_worker_row_is_refused(
    daemon: Journal, workers: Workers, at: int, text: str | None
) -> None:
    token = handed(daemon, workers, "ann", "t1")

    def append(row: list[Any]) -> None:
        values = ("t1", token, 1, [], [], [], [], [], [row], "", "", "")
        workers.call("ann", "worker_append", *values)

    with pytest.raises((Conflict, psycopg.DataError)):
        append([*GOOD[:at], text, *GOOD[at + 1 :]])
    append(GOOD)
    assert verify(daemon.path) is None


def test_misshapen_worker_row_list_is_refused(daemon: Journal, workers: Workers) -> None:
    token = handed(daemon, workers, "ann", "t1")
    for events in (GOOD, [[GOOD]]):
        values = ("t1", token, 1, [], [], [], [], [], events, None, None, None)
        with pytest.raises(Conflict):
            workers.call("ann", "worker_append", *values)


@pytest.mark.parametrize(
    "owner", ["[]", "no json", '"' + "\\ud800" + '"', '{"pid": 1e999}x', "x" * 3000]
)
def test_worker_with_unreadable_owner_claims_no_work(
    daemon: Journal, workers: Workers, owner: str
) -> None:
    daemon.commit([PutWork("t1", 1, planning=True, queue=queue_of("any", 2), priority=0)])
    with suppress(psycopg.DataError):
        assert workers.call("ann", "worker_beat", owner, 3, "0.1.0", 1, "", [])[0] == "taken"
        assert not workers.call("ann", "worker_claim", owner, [])
    with daemon.read() as reader:
        (row,) = work_rows(reader.connection)
    assert row.worker == ""


def test_worker_temp_tables_cannot_shadow_placet_tables(daemon: Journal, workers: Workers) -> None:
    """A trigger of a worker's ran with the owner's rights: temporary tables are found first."""
    handed(daemon, workers, "ann", "t1")
    role = workers.address.replace("//placet@", "//ann@")
    database = workers.address.rpartition("/")[2]
    workers.server.sql(f"GRANT TEMPORARY ON DATABASE {database} TO ann", database)
    with closing(PostgresConnection(role)) as connection:
        connection.execute(
            "CREATE TEMP TABLE team_members (LIKE placet.team_members INCLUDING ALL)"
        )
        connection.execute("GRANT ALL ON pg_temp.team_members TO PUBLIC")
        connection.execute("SELECT worker_beat('{}', 3, '0.1.0', 1, 'ann', ARRAY['t1'])")
        assert connection.execute("SELECT 1 FROM pg_temp.team_members").fetchone() is None


def test_worker_sees_only_its_own_work(daemon: Journal, workers: Workers) -> None:
    for name, trace in (("ann", "t1"), ("bob", "t2")):
        token = handed(daemon, workers, name, trace)
        with closing(journal_of(workers, name)) as journal:
            record = AddRecord(trace, 1, 1, "intent", "x", b"")
            journal.commit([Guard(trace, token), record, event(trace)])
    with closing(journal_of(workers, "ann")) as journal, journal.read() as reader:
        for table in ("records", "activity", "team_work"):
            sql = f"SELECT DISTINCT trace_id FROM {table}"
            assert reader.connection.execute(sql).fetchall() == [("t1",)], table
        assert reader.text("text of t1") == b"the plan"
        assert reader.text("text of t2") is None


def test_worker_claims_only_matching_label_and_sandbox_level(
    daemon: Journal, workers: Workers
) -> None:
    daemon.commit([PutWork("t1", 1, planning=True, queue=queue_of("gpu", 2), priority=0)])
    assert not claim(workers, "ann"), "it has another label"
    for level, version in ((1, "0.1.0"), (2, "0.10.0"), (2, "1.0.0")):
        workers.beat("cyd", labels="any,gpu", level=level, version=version)
        assert not claim(workers, "cyd"), (level, version)
    workers.beat("cyd", level=2)
    assert not claim(workers, "cyd", owner_json("another process"))
    assert claim(workers, "cyd") == "t1"
    assert not claim(workers, "ann")


def test_urgent_work_is_claimed_before_old(daemon: Journal, workers: Workers) -> None:
    queue = queue_of("any", 2)
    for trace, priority in (("old", 5), ("low", 1), ("high", 9)):
        daemon.commit([PutWork(trace, 1, planning=True, queue=queue, priority=priority)])
    assert [claim(workers, name) for name in ("ann", "bob")] == ["high", "old"]


def test_claim_with_lost_reply_is_repeated(daemon: Journal, workers: Workers) -> None:
    queue, owner = queue_of("any", 2), owner_json("ann")
    for trace in ("t1", "t2"):
        daemon.commit([PutWork(trace, 1, planning=True, queue=queue, priority=0)])
    assert [claim(workers, "ann") for _ in range(2)] == ["t1", "t1"]
    assert workers.call("ann", "worker_claim", owner, ["t1"]) == "t2"
    assert workers.call("ann", "worker_claim", owner, ["t1", "t2"]) is None


def test_draining_or_removed_worker_claims_nothing(daemon: Journal, workers: Workers) -> None:
    daemon.commit([PutWork("t1", 1, planning=True, queue=queue_of("any", 2), priority=0)])
    daemon.commit([Drain("ann", draining=True)])
    assert not claim(workers, "ann")
    with closing(PostgresConnection(workers.address)) as owner:
        owner.execute("DELETE FROM team_workers WHERE name = 'bob'")
    assert not claim(workers, "bob")


def test_claims_at_once_get_different_work(daemon: Journal, workers: Workers) -> None:
    queue, got = queue_of("any", 2), list[str | None]()
    puts = [PutWork(f"t{n}", 1, planning=True, queue=queue, priority=0) for n in range(8)]
    daemon.commit(puts)

    def take(name: str) -> None:
        for _ in range(4):
            known = [one for one in got if one]
            got.append(workers.call(name, "worker_claim", owner_json(name), known))

    threads = [threading.Thread(target=take, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(filter(None, got)) == [f"t{n}" for n in range(8)]


TABLES = """activity asked cases chain intents leases outbox paid records schema_number seen spent
 team_bodies team_day team_held team_members team_refs team_used team_work team_workers texts
 writers"""


def test_worker_role_cannot_write_or_alter_tables(daemon: Journal, workers: Workers) -> None:
    handed(daemon, workers, "ann", "t1")
    with closing(PostgresConnection(workers.address)) as owner:
        found = owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'placet'")
        known = {name for (name,) in found}
    assert known == {*TABLES.split()}, "each new table is decided about here"
    role = workers.address.replace("//placet@", "//ann@")
    with closing(PostgresConnection(role)) as connection:
        for table in TABLES.split():
            for sql in (
                f"INSERT INTO {table} SELECT * FROM {table}",
                f"UPDATE {table} SET {{}} = NULL",
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
                f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
                f"DROP TABLE {table}",
            ):
                column = "one" if table in ("chain", "schema_number", "team_day") else "ctid"
                with pytest.raises(psycopg.Error, match=r"permission denied|must be owner|ctid"):
                    connection.execute(sql.replace("{}", column))
        for sql in (
            "CREATE TABLE more (one int)",
            "CREATE FUNCTION worker_holds(text) RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'",
            "SET ROLE placet",
            "SET SESSION AUTHORIZATION bob",
            "ALTER ROLE ann SUPERUSER",
        ):
            with pytest.raises(psycopg.Error, match=r"permission denied|must be"):
                connection.execute(sql)


def test_heartbeat_is_refused_for_unregistered_role(workers: Workers) -> None:
    database = workers.address.rpartition("/")[2]
    workers.server.sql("CREATE ROLE eve LOGIN IN ROLE placet_worker", database)
    assert workers.call("eve", "worker_beat", "{}", 3, "0.1.0", 1, "", [])[0] == "unknown"
    workers.server.sql("CREATE ROLE mallory LOGIN", database)
    theirs = workers.address.replace("//placet@", "//mallory@", 1)
    refused = pytest.raises(
        (psycopg.Error, DatabaseAway), match=r"does not exist|permission denied"
    )
    with closing(PostgresConnection(theirs)) as connection, refused:
        connection.execute("SELECT placet.worker_beat('{}', 3, '0.1.0', 1, '', '{}')")


READ = """activity cases leases paid records schema_number spent team_bodies team_day team_held
 team_members team_refs team_work team_workers texts"""
CHANGES = "INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER"


def test_worker_may_read_few_tables_and_change_none(workers: Workers) -> None:
    with closing(PostgresConnection(workers.address)) as owner:

        def allowed(rights: str, kinds: str, test: str = "has_table_privilege") -> set[str]:
            found = owner.execute(
                f"SELECT relname FROM pg_class WHERE relnamespace = 'placet'::regnamespace "
                f"AND relkind = ANY (?) AND {test}('ann', oid, ?)",
                ([*kinds], rights),
            )
            return {str(name) for (name,) in found}

        assert allowed(CHANGES, "rpvmf") == set()
        assert (
            allowed(CHANGES.split(", DELETE", maxsplit=1)[0], "rpvmf", "has_any_column_privilege")
            == set()
        )
        assert allowed("USAGE, SELECT, UPDATE", "S", "has_sequence_privilege") == set()
        assert allowed("SELECT", "rpvmf") == {*READ.split()}
        unseen = owner.execute(
            "SELECT relname FROM pg_class WHERE relname = ANY (?) AND NOT relrowsecurity",
            (READ.split(),),
        )
        sums = "leases paid schema_number spent team_bodies team_day team_held team_members"
        assert {name for (name,) in unseen} == {*sums.split(), "team_workers"}
