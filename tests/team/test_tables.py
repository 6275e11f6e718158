"""Test the team's rows of workers: who drains, and who is forgotten."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.team.test_command import draining

import pgkit
from placet.journal.writer import Journal
from placet_team.postgres import PostgresConnection
from placet_team.postgres_schema import create_tables
from placet_team.tables import (
    Drain,
    member_rows,
)
from teamkit import Workers, claim, owner_json

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


OLD = (
    "CREATE TYPE procrastinate_job_status AS ENUM ('todo', 'doing')",
    "CREATE TABLE procrastinate_jobs (id bigserial PRIMARY KEY, status procrastinate_job_status)",
    "CREATE TABLE procrastinate_events (job bigint REFERENCES procrastinate_jobs (id))",
    "CREATE TYPE procrastinate_job_to_defer_v1 AS (queue text)",
    """CREATE FUNCTION procrastinate_defer_jobs_v1(jobs procrastinate_job_to_defer_v1[])
     RETURNS SETOF procrastinate_jobs LANGUAGE sql AS 'SELECT * FROM procrastinate_jobs'""",
    """CREATE FUNCTION worker_claim(trace text, generation_ bigint, owner_ text, level_ bigint)
     RETURNS boolean LANGUAGE sql AS 'SELECT TRUE'""",
    "DROP INDEX team_work_waiting",
    "ALTER TABLE team_work DROP COLUMN priority, DROP COLUMN most_usd, DROP COLUMN most_tokens",
    "DROP VIEW team_metrics",
    "DROP TABLE team_used",
    "ALTER TABLE team_day ADD COLUMN version bigint NOT NULL DEFAULT 0",
    "INSERT INTO team_work (trace_id, generation, planning, queue, put_at) "
    "VALUES ('t1', 1, TRUE, '0.1/any/2', '2026-11-28T00:00:00Z')",
)


def test_upgrade_drops_tables_of_procrastinate(workers: Workers, address: str) -> None:
    with closing(PostgresConnection(address)) as connection:
        for sql in OLD:
            connection.execute(sql)
        create_tables(address)
        left = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE '%procrastinate%' "
            "UNION ALL SELECT oid::regtype::text FROM pg_type WHERE typname LIKE '%procrastinate%' "
            "UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'procrastinate%'"
        ).fetchall()
        assert left == []
        claims = "SELECT count(*) FROM pg_proc WHERE proname = 'worker_claim'"
        assert connection.execute(claims).fetchone() == (1,)
    workers.beat("ann")
    assert claim(workers, "ann") == "t1"
