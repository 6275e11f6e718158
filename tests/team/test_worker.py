"""Test workers that start, stop, and lose the database or their name."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.team.test_command import asked

import pgkit
from placet.case.lease import Owner
from placet.host.lock import this_process
from placet.journal.database import VAULT, address_file
from placet.journal.writer import Journal
from placet.journal.writes import AcquireLease
from placet.sandbox.box import Level
from placet_team.postgres import PostgresConnection
from placet_team.postgres_schema import create_tables
from placet_team.tables import (
    Drain,
    PutWork,
    member_rows,
    queue_of,
)
from placet_team.work_dispatch import OWNER_JSON
from placet_team.worker import Worker, WorkerId
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_setup import Machine, WorkerSettings
from teamkit import LEASE_S, TestTeam, Workers, owner_json, running_team
from vaultkit import until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


def test_all_worker_slots_run_concurrently(
    tmp_path: Path, journal: Journal, workers: Workers
) -> None:
    slots, queue = 6, queue_of("any", 0)
    puts = [PutWork(f"t{n}", 1, planning=True, queue=queue, priority=0) for n in range(slots)]
    together, over = threading.Barrier(slots), threading.Event()

    class Meeting(Worker):
        def _take(self, trace_id: str) -> None:
            try:
                together.wait(20)
            finally:
                over.set()

    with closing(WorkerJournal(workers.role("ann"), tmp_path / "journal", print)) as own:
        machine = Machine(own, tmp_path, {}, Level.BUBBLEWRAP, (), print, WorkerSettings())
        worker = Meeting(WorkerId("ann", slots), own, machine, print, owner_json("ann"))
        with worker.joined():
            doing = threading.Thread(target=worker.work, args=(over.is_set,))
            doing.start()
            journal.commit(puts)  # which is announced
            doing.join(60)
    assert not together.broken
    assert worker.failed is None


def test_busy_worker_notices_that_it_is_to_stop(
    tmp_path: Path, journal: Journal, workers: Workers
) -> None:
    begun, asked_in, over = threading.Event(), set[str](), threading.Event()

    class Busy(Worker):
        def _take(self, trace_id: str) -> None:
            begun.set()
            assert over.wait(20)

    def is_stopping() -> bool:
        asked_in.add(threading.current_thread().name)
        return over.is_set()

    journal.commit([PutWork("t1", 1, planning=True, queue=queue_of("any", 0), priority=0)])
    with closing(WorkerJournal(workers.role("ann"), tmp_path / "journal", print)) as own:
        machine = Machine(own, tmp_path, {}, Level.BUBBLEWRAP, (), print, WorkerSettings())
        worker = Busy(WorkerId("ann", 1), own, machine, print, owner_json("ann"))
        with worker.joined():
            doing = threading.Thread(target=worker.work, args=(is_stopping,), name="main")
            doing.start()
            assert begun.wait(20)
            asked_in.clear()
            until(lambda: "main" in asked_in, "a look while the slot is at work", 10)
            over.set()
            doing.join(20)
    assert not doing.is_alive()


@contextmanager
def worker_of(folder: Path, address: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a worker named ann; give it, and the file with what it says."""
    said = folder / "said"
    with open(said, "wb") as log:  # noqa: PTH123 - a handle for the child
        worker = subprocess.Popen(
            [sys.executable, "-m", "placet", "worker", address],
            env={"PLACET_STATE_HOME": str(folder / "state"), "PATH": "/usr/bin:/bin"},
            stdout=log,
            stderr=log,
        )
    try:
        yield worker, said
    finally:
        worker.kill()
        worker.wait()


def beating(workers: Workers, owner: str, worker: subprocess.Popen[bytes]) -> None:
    """Let another worker of that name show signs of life until this one ends."""
    while worker.poll() is None:
        workers.beat("ann", owner=owner)
        time.sleep(0.2)


def test_killed_draining_worker_takes_work_after_restart(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    killed = owner_json(this_process().pid_start + "0")
    workers.beat("ann", owner=killed)
    journal.commit([Drain("ann", draining=True)])
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        until(lambda: "takes work" in said.read_text(), "a start", 60)
        time.sleep(1.5)  # a look at its rows
        assert worker.poll() is None, said.read_text()
        journal.commit([Drain("ann", draining=True)])
        assert worker.wait(30) == 0, said.read_text()
    assert "has finished its work" in said.read_text()
    with closing(PostgresConnection(address)) as connection:
        assert member_rows(connection) == []


def test_worker_name_live_on_another_machine_is_refused(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    """Two machines that were made from one picture have one name, and start at the same moment."""
    journal.commit([AcquireLease(VAULT, Owner("host", "boot", 7, "70"), LEASE_S)])
    theirs = owner_json("x", host=this_process().host)
    workers.beat("ann", owner=theirs)
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        beating(workers, theirs, worker)
    text = said.read_text()
    assert worker.returncode == 2, text
    assert "A worker named ann runs on another machine already. This one waits 2 s" in text


def test_worker_keeps_name_after_database_outage(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    journal.commit([AcquireLease(VAULT, Owner("host", "boot", 7, "70"), LEASE_S)])
    theirs = owner_json("x")
    workers.beat("ann", owner=theirs)
    with closing(PostgresConnection(address)) as connection:
        connection.execute("UPDATE team_members SET beat_s = beat_s - 100")
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        until(lambda: "already. This one waits" in said.read_text(), "the newcomer", 60)
        beating(workers, theirs, worker)
    assert worker.returncode == 2, said.read_text()
    assert "takes work" not in said.read_text()


def test_worker_name_live_on_this_machine_is_refused(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    """Of two users, or with two state folders, which have a lock each."""
    workers.beat("ann", owner=OWNER_JSON.dump_json(this_process()).decode())
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        assert worker.wait(60) == 2
    assert "A worker named ann runs on this machine already." in said.read_text()


def test_worker_terminated_while_waiting_takes_no_work(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    workers.beat("ann", owner=owner_json("x"))
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        until(lambda: "already. This one waits" in said.read_text(), "the newcomer", 60)
        worker.terminate()
        assert worker.wait(60) == 0
    assert "takes work" not in said.read_text()


def test_worker_with_revoked_rights_exits_with_error(
    tmp_path: Path, server: pgkit.Server, workers: Workers
) -> None:
    """One that lived on without signs of life would take work that nobody hands it."""
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        until(lambda: "takes work" in said.read_text(), "a start", 60)
        server.sql("REVOKE placet_worker FROM ann")
        assert worker.wait(60) == 1, said.read_text()
    text = " ".join(said.read_text().split())
    assert re.search("This worker cannot use the database .*: .*(denied|does not exist)", text), (
        text
    )
    assert "Traceback" not in text


def test_resumed_worker_exits_when_name_was_taken(
    tmp_path: Path, address: str, journal: Journal, workers: Workers
) -> None:
    journal.commit([AcquireLease(VAULT, Owner("host", "boot", 7, "70"), LEASE_S)])
    workers.beat("ann", owner=owner_json("x", boot_id="before"))
    with worker_of(tmp_path, workers.role("ann")) as (worker, said):
        until(lambda: "takes work" in said.read_text(), "a start once the other is quiet", 60)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 0.5)
        theirs = owner_json("x")
        workers.beat("ann", owner=theirs)
        worker.send_signal(signal.SIGCONT)
        beating(workers, theirs, worker)
    assert worker.returncode == 2, said.read_text()
    assert "runs on another machine already" in said.read_text().rpartition("takes work")[2]


def test_worker_without_journal_access_exits_with_error(
    tmp_path: Path, server: pgkit.Server, address: str
) -> None:
    server.sql("DO $$ BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN OTHERS THEN NULL; END $$")
    with worker_of(tmp_path, address.replace("//placet@", "//poor@")) as (worker, said):
        assert worker.wait(60) == 1
    text = " ".join(said.read_text().split())
    assert "This worker cannot use the database " in text
    assert "permission denied for schema placet" in text
    assert not any(
        wrong in text for wrong in ("Traceback", "can be reached again", "cannot be reached")
    )


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
def team_workers(team: TestTeam) -> Workers:
    return Workers(team.server, team.address)


def test_new_labels_apply_after_worker_restart(team: TestTeam, team_workers: Workers) -> None:
    team_workers.beat("ann", owner="first")
    said = team.vault.click("team", "init", "--worker", "ann", "--labels", "gpu").stderr
    assert "from its next start" in said
    team_workers.call("ann", "worker_beat", owner_json("first"), 3, "0.1.0", 1, "", [])
    assert asked(team.vault, "team", "workers")[0]["labels"] == ["any"]
    gone = owner_json("first")
    team_workers.call("ann", "worker_beat", owner_json("next"), 3, "0.1.0", 1, gone, [])
    assert asked(team.vault, "team", "workers")[0]["labels"] == ["gpu"]
