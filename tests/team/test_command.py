"""Test `placet team`, and what other commands say about a team."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
import yaml
from click import unstyle
from psycopg.conninfo import conninfo_to_dict

import pgkit
from guidekit import blocks
from placet.case.lease import Owner
from placet.host.config import PortalTable
from placet.journal.database import Connection, DatabaseAway, address_file
from placet.journal.schema import latest
from placet.journal.writer import Journal
from placet.journal.writes import Guard
from placet.models.server import CREDENTIAL as KEY
from placet_team.cache import TeamCache
from placet_team.doctor import team_lines
from placet_team.postgres import CREDENTIAL, PostgresConnection
from placet_team.postgres_schema import create_tables
from placet_team.removal import shut_out
from placet_team.status_text import status_text, workers_text
from placet_team.tables import (
    Drain,
    MemberRow,
    PutResult,
    PutWork,
    WorkRow,
    member_rows,
    queue_of,
    team_rows,
    work_rows,
)
from placet_team.work_dispatch import OWNER_JSON
from placet_team.worker_command import worker_command
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_status import team as look
from teamkit import TestTeam, Workers, claim, handed, journal_in, owner_json, running_team
from vaultkit import DONE, PLAN, TestVault, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def test_longest_allowed_label_fits_queue_name(journal: Journal) -> None:
    longest = "L" * 30
    assert PortalTable(path="code", label=longest).label == longest
    with pytest.raises(ValueError, match="should match"):
        PortalTable(path="code", label=longest + "L")
    with patch("placet_team.tables.__version__", "10.123.4"):
        queue = queue_of(longest, 3)
        journal.commit([PutWork("t", 1, planning=True, queue=queue, priority=0)])


def draining(journal: Journal, name: str) -> bool:
    with journal.read() as reader:
        (found,) = [one for one in member_rows(reader.connection) if one.name == name]
    return found.draining


def test_team_cache_discards_older_overlapping_read(
    journal: Journal, workers: Workers, address: str
) -> None:
    """A daemon took work from its worker, as it had seen again what it was before it was handed."""
    cache = TeamCache(journal, lambda: None)
    has_seen, goes_on = threading.Event(), threading.Event()

    def slowly(connection: Connection) -> tuple[list[WorkRow], list[MemberRow]]:
        found = team_rows(connection)
        if threading.current_thread() is slow:
            has_seen.set()
            assert goes_on.wait(30)
        return found

    slow = threading.Thread(target=cache.look)
    with patch("placet_team.cache.team_rows", slowly):
        slow.start()
        assert has_seen.wait(30)
        workers.beat("ann")
        cache.look()
        goes_on.set()
        slow.join()
    assert list(cache.members) == ["ann"]


def test_daemon_and_worker_start_during_database_outage(tmp_path: Path) -> None:
    waits, tries = "waits until it can be reached", "placet keeps trying"
    with pgkit.server() as own, running_team(tmp_path, own) as found:
        found.role("ann"), found.role("bob")
        own.stop()
        began = [found.host(), found.worker("ann")]
        until(lambda: tries in found.log("host") and waits in found.log("ann"), "the waits", 60)
        for process in began:
            process.send_signal(signal.SIGINT)
        assert [process.wait(10) for process in began] == [1, 0]
        found.host()
        found.worker("bob")
        until(lambda: found.log("host").count(tries) > 1 and waits in found.log("bob"), "", 60)
        own.start()
        until(lambda: "watching" in found.log("host"), found.logs(), 60)
        until(lambda: "takes work" in found.log("bob"), found.logs(), 60)
        said = [line for line in found.log("bob").splitlines() if waits in line]
        assert len(said) == len(set(said)), "each reason once"


OWNER = OWNER_JSON.dump_json(Owner("far", "boot", 7, "1")).decode()
"""A worker's process on another machine."""


@pytest.fixture
def team(tmp_path: Path, server: pgkit.Server) -> Iterator[TestTeam]:
    """A vault whose journal is in a database that is as a daemon leaves it; none runs."""
    with running_team(tmp_path, server, lease_s=600) as found:
        create_tables(found.address)
        state = found.vault.site.state
        state.folder.mkdir(parents=True, exist_ok=True)
        address_file(state.journal).write_text(found.address)
        yield found


@pytest.fixture
def rows(team: TestTeam) -> Iterator[Journal]:
    """A journal by which a test does what the team's other machines do."""
    with journal_in(team.folder / "writer", team.address) as found:
        yield found


@pytest.fixture
def team_workers(team: TestTeam) -> Workers:
    return Workers(team.server, team.address)


def asked(vault: TestVault, *words: str) -> Any:
    return json.loads(vault.click(*words, "--json").stdout)


def test_table_owner_cannot_become_worker(team: TestTeam) -> None:
    refused = team.vault.click("team", "init", "--worker", "placet", check=False)
    assert refused.returncode == 2
    assert "The role placet owns the tables or is a superuser" in refused.stderr
    for words in (("Build",), ("a_b",), ("a", "--labels", "x y")):
        refused = team.vault.click("team", "init", "--worker", *words, check=False)
        assert refused.returncode == 2, words
    assert team.sql("SELECT 1 FROM team_workers") == []


def test_the_doctor_says_which_extra_is_missing(team: TestTeam) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; sys.argv[1:] = ['doctor']; "
        "from placet.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=team.vault.env,
        cwd=team.vault.root,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert "pip install 'placet[team]'" in done.stdout + done.stderr


def test_team_workers_lists_each_workers_state(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    vault = team.vault
    said = vault.click("team", "workers")
    assert said.stdout == ""
    assert "No worker is running. Let one in: placet team init --worker NAME" in said.stderr
    assert asked(vault, "team", "workers") == []
    team_workers.beat("ann", labels="gpu,any")
    team_workers.beat("bob", version="9.1.0")
    team_workers.beat("cyd", level=1, slots=1)
    team_workers.beat("dan", level=7)
    rows.commit([Drain("cyd", draining=True)])
    team.sql("UPDATE team_members SET beat_s = beat_s - 700 WHERE name = 'dan' RETURNING 1")
    lines = vault.click("team", "workers").stdout.splitlines()
    assert lines[0].split() == ["worker", "labels", "slots", "sandbox", "version", "heard", "state"]
    assert len({line.index("any") for line in lines[1:] if " gpu" not in line}) == 1
    ann, bob, cyd, dan = lines[1:]
    assert ann.startswith("ann     gpu, any  0/2    level 3 ")
    assert ann.endswith("takes work")
    assert bob.endswith("takes nothing: version 9.1.0, the daemon has 0.1")
    assert cyd.endswith("draining")
    assert dan.endswith("gone: no sign of life for 11 min")
    found = {one["name"]: one for one in asked(vault, "team", "workers")}
    assert found["ann"]["labels"] == ["gpu", "any"]
    assert (found["ann"]["slots"], found["ann"]["used"]) == (2, 0)
    assert [name for name, one in found.items() if one["gone"]] == ["dan"]
    assert 0 <= found["ann"]["quiet_s"] < 60 < found["dan"]["quiet_s"]


def test_worker_drain_can_be_undone(team: TestTeam, rows: Journal, team_workers: Workers) -> None:
    vault = team.vault
    team_workers.beat("ann")
    team_workers.beat("bob")
    assert "ann takes no more work, and then ends" in vault.click("team", "drain", "ann").stderr
    assert draining(rows, "ann")
    assert not draining(rows, "bob")
    assert "ann takes work" in vault.click("team", "drain", "ann", "--undo").stderr
    assert not draining(rows, "ann")
    wrong = vault.click("team", "drain", "anna", check=False)
    assert wrong.returncode == 3
    assert "There is no worker named 'anna'." in wrong.stderr
    assert "Did you mean ann?" in wrong.stderr
    assert "placet team workers" in vault.click("team", "drain", "zz", check=False).stderr
    team.sql("UPDATE team_members SET beat_s = beat_s - 700 WHERE name = 'bob' RETURNING 1")
    assert "bob gave no sign of life for 11 min" in vault.click("team", "drain", "bob").stderr
    assert draining(rows, "bob")


def test_removed_workers_work_is_offered_again(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    vault = team.vault
    team_workers.beat("lost-1")
    token = handed(rows, team_workers, "lost-1", "t1")
    assert team_workers.call("lost-1", "worker_hold", f"t1:1:{token}", 5, "0.1", *[None] * 4)
    wrong = vault.click("team", "remove", "lost-2", check=False)
    assert wrong.returncode == 3
    assert "Did you mean lost-1?" in wrong.stderr
    theirs = PostgresConnection(team_workers.role("lost-1"))
    found = asked(vault, "team", "remove", "lost-1")
    assert (found["name"], found["left"], found["wrote"]) == ("lost-1", [], [])
    for table in ("team_workers", "team_members", "team_work", "team_held"):
        assert team.sql(f"SELECT 1 FROM {table}") == [], table
    assert team.sql("SELECT held FROM leases WHERE trace_id = 't1'") == [(False,)]
    with closing(theirs), pytest.raises(DatabaseAway):
        theirs.execute("SELECT 1")


def test_removal_ends_a_session_that_locks_chain_and_role(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    team_workers.beat("eve")
    token = handed(rows, team_workers, "eve", "t1")
    lock = ("t1", token, 1, [], [], [], [], [], [], "", "", "")
    with closing(PostgresConnection(team_workers.role("eve"))) as eve:
        eve.execute("BEGIN")
        eve.execute("SET idle_in_transaction_session_timeout = 0")
        eve.execute("ALTER ROLE eve PASSWORD 'own'")
        eve.execute(f"SELECT worker_append({', '.join('?' * len(lock))})", lock)
        began_s = time.monotonic()
        assert asked(team.vault, "team", "remove", "eve")["left"] == []
        assert time.monotonic() - began_s < 15
        with pytest.raises(DatabaseAway):
            eve.execute("SELECT 1")


def test_removal_without_role_rights_prints_sql(
    team: TestTeam, rows: Journal, team_workers: Workers, server: pgkit.Server
) -> None:
    team_workers.beat("bob")
    server.sql("CREATE ROLE modest LOGIN IN ROLE placet_reader")
    modest = team.address.replace("//placet@", "//modest@")
    with closing(PostgresConnection(modest)) as connection:
        left = shut_out(connection, "bob")
    assert left[0] == 'ALTER ROLE "bob" NOLOGIN;'
    server.sql("\n".join(left[:1]))
    server.sql('ALTER ROLE "bob" LOGIN')


@pytest.mark.parametrize("words", [("status",), ("workers",), ("drain", "ann")])
def test_team_commands_without_team_suggest_init(tmp_path: Path, words: tuple[str, ...]) -> None:
    vault = make_vault(tmp_path)
    done = vault.click("team", *words, check=False)
    assert done.returncode == 2
    assert "This vault's journal is not in a database yet." in done.stderr
    assert "placet team init ADDRESS" in done.stderr


def test_team_init_without_role_rights_prints_sql(tmp_path: Path, server: pgkit.Server) -> None:
    vault, address = make_vault(tmp_path), server.fresh()
    missing = ("placet_reader", "placet_worker")
    with patch("placet_team.postgres_schema._missing_roles", return_value=missing):
        said = vault.click("team", "init", address).stderr
    for role in missing:
        assert f'CREATE ROLE {role} NOLOGIN ROLE "placet";' in said
    assert "placet_reader" not in vault.click("team", "init", address).stderr
    server.sql("CREATE ROLE plain LOGIN")
    server.sql("CREATE DATABASE plain OWNER plain")
    plain = address.rpartition("/")[0].replace("//placet@", "//plain@") + "/plain"
    vault.click("team", "init", plain)
    granted = "SELECT has_schema_privilege('placet_reader', 'placet', 'USAGE')"
    assert server.sql(granted, "plain") == "t"
    queue = "SELECT has_table_privilege('placet_reader', 'placet.team_work', 'SELECT')"
    assert server.sql(queue, "plain") == "t"
    wrong = vault.click("team", "init", f"{address}-that-is-not-there", check=False)
    assert wrong.returncode == 1
    assert "database-password" in wrong.stderr


def test_team_status_explains_missing_daemon_or_workers(
    tmp_path: Path, server: pgkit.Server
) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.click("team", "init", server.fresh())
    done = vault.click("team", "status", check=False)
    assert (done.returncode, "placet run" in done.stderr) == (2, True)
    vault.once()
    done = vault.click("team", "status", check=False)
    assert done.returncode == 2
    assert "its daemon does the work itself" in done.stderr
    assert "placet config set team.workers true" in done.stderr
    vault.click("config", "set", "team.workers", "true")
    assert "No worker is running" in vault.click("team", "workers").stderr


def named(team: TestTeam, ident: str) -> str:
    sql = f"SELECT trace_id FROM team_work JOIN cases USING (trace_id) WHERE request_id = '{ident}'"
    ((trace_id,),) = until(lambda: team.sql(sql), f"an offer of {ident}", 30)
    return str(trace_id)


def test_status_shows_worker_or_wait_reason(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    vault = team.vault
    host = team.host()
    vault.drop("Say hello.\n")
    team.until("request.detected")
    until(lambda: "no worker is running for it" in vault.click("why", "say-hello").stdout, "", 30)
    assert re.search("say-hello +waits for a worker", vault.click("status").stdout)
    assert [one["state"] for one in look(vault.site)["work"]] == ["waiting"]

    team_workers.beat("ann", slots=1, owner=OWNER)
    trace_id = named(team, "say-hello")
    (queued,) = look(vault.site)["work"]
    assert (queued["request_id"], queued["state"]) == ("say-hello", "queued")
    assert queued["waits_for"] == "a worker takes it within seconds"
    host.send_signal(signal.SIGSTOP)  # it would take the offer back
    team_workers.beat("ann", labels="gpu", slots=1, owner="next", gone=OWNER)
    said = vault.click("why", "say-hello").stdout
    assert "It waits for a worker: no worker is running for it." in said
    assert "(let one in: placet team init --worker NAME)" in team.log("host")
    assert "placet team status" in said

    team_workers.beat("ann", slots=1, owner=OWNER, gone=owner_json("next"))
    assert claim(team_workers, "ann", OWNER) == trace_id
    host.send_signal(signal.SIGCONT)
    until(lambda: team.sql("SELECT 1 FROM team_work WHERE token IS NOT NULL"), "the lease", 30)
    (case,) = asked(vault, "status")["cases"]
    assert (case["carrier"]["state"], case["carrier"]["worker"]) == ("at work", "ann")
    by = "worker ann is working on it"
    assert re.search(f"planning +say-hello +{by}", vault.click("status").stdout)
    assert by in vault.click("show", "say-hello").stdout
    assert f": {by}." in vault.click("why", "say-hello").stdout

    vault.drop("Say goodbye.\n", "Say goodbye.md")
    goodbye = named(team, "say-goodbye")
    said = vault.click("why", "say-goodbye").stdout
    assert "It waits for a worker: all slots are in use (ann)." in said
    text = vault.click("team", "status").stdout
    assert re.search("say-hello +at work +ann +for ", text)
    assert re.search("say-goodbye +queued +all slots are in use", text)

    host.terminate()
    host.wait(30)
    assert "daemon    not running (placet run)" in vault.click("team", "status").stdout
    status = vault.click("status").stdout
    assert re.search(f"say-hello +{by}", status)
    assert re.search("say-goodbye +.* when a daemon runs", status)
    said = vault.click("why", "say-hello").stdout
    assert by in said
    assert "The result waits for the daemon: placet run" in said
    assert claim(team_workers, "ann", OWNER) == goodbye
    states = {one["request_id"]: one["state"] for one in look(vault.site)["work"]}
    assert states == {"say-hello": "at work", "say-goodbye": "taken"}
    with rows.read() as reader:
        (token,) = [row.token for row in work_rows(reader.connection) if row.token]
    with closing(WorkerJournal(team.role("ann"), Path("journal"), print)) as journal:
        journal.commit([Guard(trace_id, token), PutResult("left", "")])
    done = "worker ann is done; the daemon reads the result next"
    assert done in vault.click("status").stdout
    assert done in vault.click("why", "say-hello").stdout
    assert re.search("say-hello +given back +ann", vault.click("team", "status").stdout)


def test_daemon_exits_with_error_when_database_refuses(team: TestTeam) -> None:
    host = team.host()
    team.vault.drop("Say hello.\n")
    team.until("request.detected")
    team.change("ALTER TABLE team_members RENAME COLUMN beat_s TO heard_s")
    assert host.wait(60) == 1
    for said in (team.log("host"), team.vault.click("team", "workers", check=False).stderr):
        assert "Traceback" not in said
        assert 'The database of the journal refuses: column "beat_s" does not exist.' in said


def test_missing_worker_remark_disappears_when_worker_joins(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    vault = team.vault
    team.host()
    vault.drop("Say hello.\n")
    until(lambda: "no worker is running for it" in vault.click("status").stdout, "the remark", 30)
    team_workers.beat("ann", slots=1, owner=OWNER)
    named(team, "say-hello")
    until(lambda: "no worker is running" not in vault.click("status").stdout, "no old remark", 30)
    assert re.search("say-hello +waits for a worker", vault.click("status").stdout)


def test_team_output_fits_terminal_width(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    team_workers.beat("a-worker-with-a-rather-long-name", labels="gpu,any,large")
    team_workers.beat("b", version="9")
    found = look(team.vault.site)
    with patch("placet.cli.drawing.on_terminal", return_value=True):
        for width in ("40", "80"):
            with patch.dict(os.environ, {"COLUMNS": width}):
                for shown in (workers_text(found), status_text(found)):
                    lines = [line for line in unstyle(shown).splitlines() if "=" not in line]
                    assert max(map(len, lines)) <= int(width)
                    assert "a-worker-with-a-rather-long-name" in shown


def checked(vault: TestVault, *whats: str) -> dict[str, tuple[str, str]]:
    """What the doctor finds of a team: a state and words, by what it looked at."""
    lines = list(team_lines(vault.site, vault.site.in_force().config))
    for line in lines:
        assert bool(line.helps) == (line.state != "good"), line
    return {line.what: (line.state, line.found) for line in lines}


def test_doctor_checks_database_clock_queue_workers_and_rights(
    team: TestTeam, rows: Journal, team_workers: Workers
) -> None:
    vault = team.vault
    found = checked(vault)
    told = r"user=placet .*: PostgreSQL \d+\.\d+, a round trip takes \d+\.\d ms"
    assert re.fullmatch(told, found["database"][1])
    assert found["database"][0] == "good"
    assert found["clock"][0] == "good"
    assert found["tables"] == ("good", f"schema {latest()} of {latest()}")
    assert found["queue"] == ("good", "0 pieces of work in it")
    assert found["workers"] == ("warn", "0 workers running")
    team_workers.beat("ann")
    team_workers.beat("bob", version="9.1.0")
    ahead = datetime.now(UTC) + timedelta(minutes=5)
    with patch("placet_team.doctor.wall", return_value=ahead):
        found = checked(vault)
    assert found["clock"][0] == "warn"
    assert re.search(r"is (299|300)\.\d s ahead of the database's", found["clock"][1])
    assert found["workers"] == ("warn", "of another version: bob (9.1.0)")
    said = vault.click("doctor", check=False).stdout
    assert "ok    workers        1 worker running\n" in said
    assert re.search(
        r"(?m)^ok    model          .*: the workers ask it, each with its own key", said
    )
    assert "note  workers        of another version: bob (9.1.0)\n" in said
    assert found["rights"] == ("good", "workers can write only through placet's functions")
    team.change("GRANT UPDATE ON chain TO bob")
    assert checked(vault)["rights"][0] == "bad"
    assert "the worker bob may write the table chain" in checked(vault)["rights"][1]
    team.sql("UPDATE team_members SET beat_s = beat_s - 700 RETURNING 1")
    assert checked(vault)["workers"] == ("warn", "0 workers running; the last was heard 11 min ago")


def test_doctor_reports_missing_or_newer_database_schema(
    tmp_path: Path, server: pgkit.Server
) -> None:
    vault = make_vault(tmp_path)
    assert checked(vault) == {}
    address = server.fresh()
    vault.click("team", "init", address)
    assert list(checked(vault)) == ["database", "clock", "tables"], (
        "its daemon does the work itself"
    )
    vault.click("config", "set", "team.workers", "true")
    assert checked(vault)["queue"] == ("good", "0 pieces of work in it")
    server.sql("UPDATE placet.schema_number SET number = 99", address.rpartition("/")[2])
    assert checked(vault)["tables"] == (
        "bad",
        f"schema 99 is of a newer placet; this one knows {latest()}",
    )
    server.sql("DROP SCHEMA placet CASCADE", address.rpartition("/")[2])
    found = checked(vault)
    assert found["tables"] == ("warn", "none yet")
    assert "queue" not in found
    vault.click("config", "set", "team.database", "postgresql://placet@127.0.0.1:1/placet")
    found = checked(vault)
    assert found["database"][0] == "bad"
    assert "cannot be reached" in found["database"][1]


def test_doctor_and_status_name_who_locks(
    team: TestTeam, rows: Journal, team_workers: Workers, server: pgkit.Server
) -> None:
    server.sql("CREATE ROLE dba LOGIN SUPERUSER")
    dba = team.address.replace("//placet@", "//dba@")
    with closing(PostgresConnection(dba)) as other, patch("placet_team.blockers.SHORT_S", 0.0):
        other.execute("BEGIN")
        other.execute("LOCK TABLE team_workers")
        said = r"the session \d+ of the database user dba has kept a transaction open for \d+ s"
        (words,) = look(team.vault.site)["blocked"]
        assert re.match(said, words)
        began_s = time.monotonic()
        found = checked(team.vault)
        assert time.monotonic() - began_s < 20
        assert found["locks"][0] == "bad"
        assert re.match(said, found["locks"][1])
        assert "blocked" in team.vault.click("team", "status").stdout
    assert "locks" not in checked(team.vault)


def test_doctor_reports_denied_database_permission(team: TestTeam, server: pgkit.Server) -> None:
    server.sql("CREATE ROLE nobody_here LOGIN")
    address = team.address.replace("//placet@", "//nobody_here@")
    team.vault.click("config", "set", "team.database", address)
    found = checked(team.vault)
    assert "cannot be used: permission denied for " in found["database"][1]


def sql_blocks(page: str) -> list[str]:
    return [block.text for block in blocks(page, "sql")]


def test_documented_roles_suffice_and_grant_nothing_more(
    tmp_path: Path, server: pgkit.Server
) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    roles, *watch = sql_blocks("team.md")
    with running_team(tmp_path, server, vault=vault) as found:
        database = found.address.rpartition("/")[2]
        found.host()
        until(lambda: "done by workers" in found.log("host"), "the daemon", 60)
        words = ("team", "init", "--worker", "build-1", "--labels", "gpu,any")
        assert vault.click(*words).stdout == roles
        server.sql(roles, database)
        theirs = found.address.replace("//placet@", "//build-1@")
        where = ("--config", found.config, "--remote", str(found.remote))
        found.start("worker", theirs, *where, log="build-1")
        vault.drop("Say hello.\n")
        found.until("plan.created")
        until(vault.plan().exists)
        vault.approve()
        found.until("report.written")
        server.sql("CREATE ROLE anna LOGIN IN ROLE placet_reader")
        reads = found.address.replace("//placet@", "//anna@")
        with closing(PostgresConnection(reads)) as connection:
            assert connection.execute("SELECT 1 FROM activity WHERE actor = 'agent'").fetchone()
            told = [connection.execute(query).fetchall() for query in watch]
            with pytest.raises(psycopg.Error, match="permission denied"):
                connection.execute("INSERT INTO team_bodies VALUES ('x', '', 0)")
        assert told[0] == [(0, 0, 0, 1, 1, 0)], "the metrics"
        assert len(told) == 4
        assert [row[0] for row in told[2]] == ["build-1"]
        assert all(told[2:]), "each but the queue has rows"
        removed = vault.click("team", "remove", "build-1")
        assert "build-1 can write nothing more" in removed.stderr
        lines = removed.stdout.splitlines()
        assert lines[0].split() == ["request", "since", "until", "rows", "commits", "cost"]
        assert [line.split()[0] for line in lines[1:]] == ["say-hello"] * 2, "planning, mission"
        assert [line.split()[4] for line in lines[1:]] == ["0", "1"], "commits"
        with pytest.raises(DatabaseAway, match="not permitted to log in"):
            PostgresConnection(theirs)
        until(lambda: "not permitted to log in" in found.log("build-1"), found.logs(), 60)


def test_compose_file_configures_worker_and_database_securely() -> None:
    found = yaml.safe_load((Path(__file__).parents[2] / "daemon/compose.yaml").read_text())
    worker, database = found["services"]["worker"], found["services"]["database"]
    assert worker["environment"]["CREDENTIALS_DIRECTORY"] == "/run/secrets"
    assert {KEY, CREDENTIAL} <= {*worker["secrets"]}
    assert {*worker["secrets"], *database["secrets"]} == {*found["secrets"]}
    address = worker["environment"]["PLACET_DATABASE"]
    parts = conninfo_to_dict(address)
    assert (parts["user"], parts["host"]) == ("build-1", "database")
    assert parts["sslmode"] == "verify-full"
    assert str(parts["sslrootcert"]).removeprefix("/run/secrets/") in worker["secrets"]
    # the image makes POSTGRES_USER, `postgres` without one, a superuser
    assert "POSTGRES_USER" not in database["environment"]
    assert "-c ssl=on" in database["command"]
    assert all(port.startswith("127.0.0.1:") for port in database["ports"])
    lines = found["configs"]["access"]["content"].splitlines()
    assert not [line for line in lines if not line.startswith(("local ", "hostssl "))]
    with patch.dict("os.environ", {"PLACET_DATABASE": address}):
        given = worker_command.make_context("worker", worker["command"].split()[2:]).params
    remote = "ssh://git@vault.example.org/srv/git/work.git"
    own = {"config": None, "signers": None}
    assert given == {"address": address, "slots": 2, "remote": remote, **own}
