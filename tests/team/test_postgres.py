"""Test the journal in PostgreSQL: what both journals promise, and what only a server does."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_journal import (  # noqa: F401 - pytest runs them here, too, against the other database
    ME,
    YOU,
    event,
    ns,
    test_a_batch_is_all_or_nothing,
    test_a_committed_event_is_read_back,
    test_activity_is_read_by_offset_trace_or_newest,
    test_backup_during_writes_is_complete,
    test_body_is_read_back_byte_for_byte,
    test_case_update_with_stale_version_conflicts,
    test_close_flushes_queue_and_leaves_one_file,
    test_command_stays_queued_until_done,
    test_commit_wakes_change_watcher_promptly,
    test_concurrent_producers_and_readers_lose_no_events,
    test_conflicting_batch_fails_alone_in_group,
    test_contract_queries_run_verbatim,
    test_duplicate_record_is_refused,
    test_failing_listener_stops_journal_with_error,
    test_guard_fails_on_released_lease,
    test_manually_inserted_row_does_not_block_writer,
    test_non_utf8_file_name_is_stored_readably,
    test_one_of_many_concurrent_case_updates_wins,
    test_reader_sees_one_snapshot,
    test_seen_state_is_kept_for_any_file_name,
    test_time_range_query_includes_late_rows,
    test_unserializable_metadata_is_refused_on_submit,
    test_verify_finds_swapped_rows,
    test_verify_names_first_tampered_row,
)

import pgkit
from journalkit import World
from linekit import line
from placet.case.lease import Owner
from placet.errors import UserError
from placet.host.lock import this_process
from placet.journal.database import DatabaseAway, address_file, address_of
from placet.journal.errors import rollback
from placet.journal.maintenance import verify
from placet.journal.reader import open_reader, query
from placet.journal.writer import Journal
from placet.journal.writes import (
    AcquireLease,
    Enqueue,
    Guard,
    JournalDamaged,
    LeaseHeld,
    LeaseLost,
    RenewLease,
)
from placet_team import postgres
from placet_team.journal_copy import move_in, move_out
from placet_team.postgres import PostgresConnection, PostgresStore, checked
from placet_team.postgres_plugin import lock
from placet_team.postgres_schema import create_tables
from vaultkit import DONE, PLAN, TestVault, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)

ELSEWHERE = Owner("elsewhere", "boot-2", 11, "110")


@pytest.fixture
def own_server() -> Iterator[pgkit.Server]:
    """A server for a test that stops it."""
    with pgkit.server() as found:
        yield found


def world_at(folder: Path, address: str) -> World:
    create_tables(address)
    address_file(folder / "journal.db").write_text(address)
    return World(folder / "journal.db")


@pytest.fixture
def world(tmp_path: Path, server: pgkit.Server) -> World:
    return world_at(tmp_path, server.fresh())


@pytest.fixture
def journal(world: World) -> Iterator[Journal]:
    with world.open() as opened:
        yield opened


# leases, on the database's clock


def test_lease_expires_by_database_clock(journal: Journal) -> None:
    token = journal.commit([AcquireLease("t", ME, 0.6)]).token
    for other in (YOU, ELSEWHERE):
        with pytest.raises(LeaseHeld, match=r"pid 11 on host .* for [01] s more"):
            journal.commit([AcquireLease("t", other, 30)])
    journal.commit([RenewLease("t", token, 0.6)])
    time.sleep(0.7)
    taken = journal.commit([AcquireLease("t", ELSEWHERE, 30)])
    assert taken.token > token
    assert taken.taken_from == ME
    with pytest.raises(LeaseLost):
        journal.commit([event(1), Guard("t", token)])
    assert ns(journal.path) == []


def test_fencing_tokens_grow_even_after_database_restore(journal: Journal) -> None:
    tokens = []
    with closing(PostgresConnection(address_of(journal.path))) as other:
        for _ in range(3):
            tokens.append(journal.commit([AcquireLease("t", ME, 30)]).token)
            other.execute("DELETE FROM leases")
    assert tokens == sorted({*tokens})


def test_daemon_stops_when_database_lost_its_writes(journal: Journal) -> None:
    journal.commit([event(1)])
    journal.commit([event(2)])
    with closing(PostgresConnection(address_of(journal.path))) as other:
        other.execute("UPDATE writers SET turn = turn - 1")
    with pytest.raises(JournalDamaged, match="lacks what this daemon wrote"):
        journal.commit([event(3)])
    assert ns(journal.path) == [1, 2]


def test_lease_from_earlier_boot_is_taken_over(journal: Journal) -> None:
    journal.commit([AcquireLease("t", ME, 30)])
    now = Owner(ME.host, "boot-9", 12, "120")
    assert journal.commit([AcquireLease("t", now, 30)]).taken_from == ME


# what PostgreSQL does not store


def test_nul_character_is_stored_as_escape(journal: Journal) -> None:
    journal.commit(
        [event(1, entity_id="a\0b", said="a\0b", literal=r"a\u0000b"), Enqueue("t\0", "{}")]
    )
    sql = "SELECT entity_id, metadata->>'said', metadata->>'literal' FROM activity"
    assert query(journal.path, sql)[1] == [(r"a\u0000b", r"a\u0000b", r"a\u0000b")]
    with journal.read() as reader:
        assert reader.pending_commands()[0].trace_id == r"t\u0000"
    assert verify(journal.path) is None


# a person's query


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM activity",
        "SELECT 1; DELETE FROM activity",
        "CREATE TABLE mine (x int)",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT set_config('role', 'placet', false), (SELECT 1/0)",
        "COPY activity TO '/tmp/placet-copy'",
        "no SQL at all",
    ],
)
def test_query_is_strictly_read_only(journal: Journal, sql: str) -> None:
    journal.commit([event(1)])
    with pytest.raises(UserError, match="the query failed"):
        query(journal.path, sql)
    assert ns(journal.path) == [1]


@pytest.mark.parametrize(
    ("zone", "found"),
    [
        ("right/UTC", "<here>"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("nonsense", "<here>"),
    ],
)
@pytest.mark.thinned(2)
def test_query_uses_local_time_zone(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, zone: str, found: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    _, ((told,),) = query(journal.path, "SELECT current_setting('timezone')")
    assert told.upper().startswith(found.upper())


def test_slow_query_is_cancelled(journal: Journal) -> None:
    with pytest.raises(UserError, match="took over 1 s"):
        query(journal.path, "SELECT pg_sleep(30)", timeout_s=1.0)


# addresses


@pytest.mark.parametrize(
    "address", ["postgresql://me:word@host/db", "host=h password=word", "host=h sslpassword=word"]
)
def test_database_address_with_password_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="contains a password") as caught:
        checked(address)
    assert "word@" not in str(caught.value)


def test_unreachable_database_is_reported(tmp_path: Path) -> None:
    address = f"postgresql://placet@127.0.0.1:{pgkit.free_port()}/none"
    with pytest.raises(UserError, match="cannot be used"):
        create_tables(address)
    address_file(tmp_path / "journal.db").write_text(address)
    with pytest.raises(UserError, match="cannot be reached"), open_reader(tmp_path / "journal.db"):
        pass


# moving

WHOSE = "an id"


def test_journal_moves_to_postgres_and_back_unchanged(tmp_path: Path, server: pgkit.Server) -> None:
    vault = carried_out(make_vault(tmp_path))
    path = vault.db
    before = everything(path)
    address = server.fresh()
    kept = move_in(path, address, WHOSE)
    assert not path.exists()
    assert everything(path) == before
    assert everything(kept) == before
    with pytest.raises(UserError, match="already holds a journal"):
        move_in(kept, address, WHOSE)
    schema = move_out(path)
    assert everything(path) == before
    with closing(PostgresConnection(address)) as connection:
        (rows,) = connection.execute(f"SELECT count(*) FROM {schema}.activity").fetchone()
    assert rows == len(before["activity"])
    vault.drop("# Say more\n", "Say more.md")
    vault.once()
    assert verify(path) is None


def everything(path: Path) -> dict[str, Any]:
    """The rows of a journal, and whether each of its texts can be read."""
    assert verify(path) is None
    with open_reader(path) as reader:
        return {
            "activity": reader.activity(limit=-1),
            "cases": reader.cases(),
            "commands": reader.pending_commands(),
            "seen": reader.seen(),
            "records": [reader.records(row.trace_id, 1) for row in reader.cases()],
            "texts": [
                reader.text(digest)
                for (digest,) in query(
                    path, "SELECT digest FROM texts WHERE digest <> 'vault' ORDER BY digest"
                )[1]
            ],
        }


def carried_out(vault: TestVault) -> TestVault:
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("execute", DONE),
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
    )
    vault.drop("# Say hello\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault


# faults


class Proxy:
    """A line to the server that can be cut: at once, or right after what was asked is sent on."""

    def __init__(self, port: int) -> None:
        self.server = port
        self.swallow = threading.Event()  # cut before the answer to a COMMIT comes back
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self.sock.accept()
                there = socket.create_connection(("127.0.0.1", self.server))
                mute = threading.Event()
                for source, target, ask in ((here, there, True), (there, here, False)):
                    threading.Thread(
                        target=self._carry, args=(source, target, ask, mute), daemon=True
                    ).start()

    def _carry(
        self, source: socket.socket, target: socket.socket, ask: bool, mute: threading.Event
    ) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(65_536):
                is_last = ask and b"COMMIT" in data and self.swallow.is_set()
                if is_last:
                    mute.set()
                if ask or not mute.is_set():
                    target.sendall(data)
                if is_last:
                    self.swallow.clear()
                    time.sleep(0.3)  # the server commits
                    source.shutdown(socket.SHUT_RDWR)
                    return


def test_commit_with_lost_reply_is_not_repeated(tmp_path: Path, server: pgkit.Server) -> None:
    address = server.fresh()
    create_tables(address)
    proxy = Proxy(server.port)
    world = world_at(tmp_path, address.replace(str(server.port), str(proxy.port)))
    with world.open() as journal:
        journal.commit([event(0)])
        for n in range(1, 4):
            proxy.swallow.set()
            done = journal.commit([event(n), Enqueue("t", "{}")])
            assert done.outbox == (n,)
        with journal.read() as reader:
            assert [command.id for command in reader.pending_commands()] == [1, 2, 3]
    assert ns(world.path) == [0, 1, 2, 3]
    assert sum("cannot be written" in one for one in world.said) == 3
    assert verify(world.path) is None


@pytest.mark.parametrize("before", range(8))
@pytest.mark.thinned(4)
def test_writer_recovers_after_any_failed_transaction(server: pgkit.Server, before: int) -> None:
    """psycopg prepares a statement at its sixth use, and counted one that the server passed over."""
    address = server.fresh()
    create_tables(address)
    store = PostgresStore(address)
    with closing(PostgresConnection(address)) as other:
        for end in ["ROLLBACK", *["COMMIT"] * before]:
            store.begin(durable=True)
            store.commit() if end == "COMMIT" else store.connection.execute(end)
        other.execute("ALTER TABLE chain RENAME TO elsewhere")
        with pytest.raises(DatabaseAway):
            store.begin(durable=True)
        rollback(store.connection)
        other.execute("ALTER TABLE elsewhere RENAME TO chain")
    for _ in range(2):
        store.ensure_writable()
        store.begin(durable=True)
        store.commit()
    assert store.was_kept()
    store.connection.close()


@pytest.mark.parametrize("pieces", range(10))
@pytest.mark.thinned(3)
def test_cut_off_writer_blocks_others_only_briefly(
    server: pgkit.Server, monkeypatch: pytest.MonkeyPatch, pieces: int, tmp_path: Path
) -> None:
    """What was sent of a pipeline would hold the chain's row for ever: no time limit ends it."""
    monkeypatch.setattr(postgres, "_WRITER", " -c idle_in_transaction_session_timeout=1s")
    address = server.fresh()
    (tmp_path / "far").mkdir()
    with line(server.port) as cable:
        world = world_at(tmp_path, address)
        far = tmp_path / "far" / "journal.db"
        address_file(far).write_text(address.replace(f":{server.port}/", f":{cable.port}/"))
        with world.open() as near, World(far).open() as cut:
            cut.commit([event(1)])
            cable.cut_after(pieces)
            writing = threading.Thread(target=cut.commit, args=([event(n) for n in range(2, 5)],))
            writing.start()
            time.sleep(0.3)
            began = time.monotonic()
            near.commit([event(9)])
            took_s = time.monotonic() - began
            cable.mend()
            writing.join(30)
            assert not writing.is_alive()
    assert took_s < 20
    assert sorted(ns(world.path)) == [1, 2, 3, 4, 9]


def test_commit_survives_connection_lost_during_rollback(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first statement that meets it does not always know that the line is cut."""
    execute, met = PostgresConnection.execute, []

    def cut(self: PostgresConnection, sql: str, values: Any = (), /) -> Any:
        if len(met) < 2 and sql.startswith(("UPDATE chain", "ROLLBACK")):
            met.append(sql)
            raise DatabaseAway("connection socket closed")
        return execute(self, sql, values)

    monkeypatch.setattr(PostgresConnection, "execute", cut)
    journal.commit([event(1)])
    assert met == ["UPDATE chain SET last_id = ?, last_hash = ?", "ROLLBACK"]
    assert ns(journal.path) == [1]


@pytest.mark.parametrize("how", ["fast", "kill"])
def test_server_restart_loses_nothing_while_readers_wait(
    tmp_path: Path, own_server: pgkit.Server, how: str
) -> None:
    world = world_at(tmp_path, own_server.fresh())
    with world.open() as journal:
        kept, over = [], threading.Event()

        def write() -> None:
            for n in range(10_000):
                journal.commit([event(n)])
                kept.append(n)
                if over.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(3):
            here = len(kept)
            until(lambda here=here: len(kept) > here + 20)
            with journal.read() as reader:
                seen = reader.last()[0]
                own_server.stop(how)
                starts = threading.Timer(0.5, own_server.start)
                starts.start()
                assert reader.last()[0] >= seen  # waits, and sees a later moment
                starts.join()
        over.set()
        writer.join()
        assert ns(world.path) == kept
        assert verify(world.path) is None
    assert any("is written again" in one for one in world.said)


def test_journal_closes_promptly_while_server_is_down(
    tmp_path: Path, own_server: pgkit.Server
) -> None:
    world = world_at(tmp_path, own_server.fresh())
    journal = world.open()
    own_server.stop()
    future = journal.submit([event(1)])
    journal.stop_waiting()
    began = time.monotonic()
    journal.close()
    assert time.monotonic() - began < 10
    assert future.exception() is not None


# two hosts


@contextmanager
def holding(world: World, owner: Owner, ttl_s: float = 1.0) -> Iterator[Journal]:
    with (
        world.open() as journal,
        lock(journal, "v", owner, ttl_s, world.said.append, threading.Event()),
    ):
        yield journal


def test_second_host_takes_over_silent_hosts_vault(tmp_path: Path, server: pgkit.Server) -> None:
    address = server.fresh()
    (tmp_path / "b").mkdir()
    first, second = world_at(tmp_path, address), world_at(tmp_path / "b", address)
    with ExitStack() as stack:
        journal = stack.enter_context(first.open())
        with lock(journal, "v", ME, 1.0, first.said.append, threading.Event()):
            time.sleep(1.5)  # it is renewed
            ending = threading.Event()
            ending.set()
            with (
                second.open() as other,
                pytest.raises(UserError, match="still works on this vault"),
            ):
                stack.enter_context(lock(other, "v", ELSEWHERE, 1.0, second.said.append, ending))
            assert "takes over when that one has given no sign of life for 1 s" in second.said[-1]
            # as one that was stopped: it renews nothing
            journal.guard, guard = None, journal.guard
            time.sleep(1.2)
            with holding(second, ELSEWHERE) as other:
                other.commit([event(2)])
                journal.guard = guard
                with pytest.raises(LeaseLost, match="took over this vault"):
                    journal.commit([event(1)])
    assert ns(first.path) == [2]


def test_journal_of_another_vault_is_refused(world: World) -> None:
    with holding(world, ME) as journal:
        journal.commit([event(1)])
    with (
        world.open() as journal,
        pytest.raises(UserError, match="of another vault"),
        lock(journal, "w", ME, 1.0, world.said.append, threading.Event()),
    ):
        raise AssertionError("it is held")
    assert ns(world.path) == [1]


def test_daemon_waits_for_live_daemon_on_same_machine(world: World) -> None:
    """A copy of the vault, with a state folder of its own, is locked by nothing else."""
    me, ending = this_process(), threading.Event()
    ending.set()
    with (
        holding(world, me, 30.0),
        world.open() as second,
        pytest.raises(UserError, match="still works on this vault"),
        lock(second, "v", me, 1.0, world.said.append, ending),
    ):
        raise AssertionError("both hold it")
    assert "This one waits" in world.said[-1]


def test_host_releases_vault_lock_on_exit(world: World) -> None:
    for owner in (ME, ELSEWHERE, YOU):
        with holding(world, owner, 30.0) as journal:
            journal.commit([event(1)])
    assert world.said == []


# the whole daemon


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.thinned(2)
def test_request_completes_despite_postgres_server_crash(
    tmp_path: Path, own_server: pgkit.Server, kill: bool
) -> None:
    vault = make_vault(tmp_path)
    vault.plays(
        PLAN,
        [("write_file", {"path": "hello.txt", "content": "Hello.\n"})],
        {"delay_s": 1.0, "calls": [("complete_step", {"step": 1, "summary": "Hello"})]},
        [("finish", {"summary": "Said."})],
    )
    address = own_server.fresh()
    assert vault.click("team", "init", address).stdout == f"{address}\n"
    vault.drop("# Say hello\n")
    with daemon_of(vault) as daemon:
        until(lambda: asked(vault, "plan.created"), "a plan")
        until(vault.plan().exists)
        vault.approve()
        until(lambda: asked(vault, "tool.called"), "work")
        own_server.stop("kill")
        if kill:
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
        time.sleep(1.0)
        own_server.start()
        with daemon_of(vault) if kill else ExitStack():
            until(lambda: asked(vault, "execution.completed"), "its end")
            until(lambda: asked(vault, "report.written"), "its report")
    assert len(asked(vault, "execution.completed")) == 1
    assert len(asked(vault, "step.completed")) == 1
    assert vault.click("journal", "verify").stdout
    assert not list(vault.state.glob("*/journal.db"))
    report = next((vault.root / "Knowledge/Reports").rglob("*.md")).read_text()
    assert "Said." in report


@contextmanager
def daemon_of(vault: TestVault) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)]
    process = subprocess.Popen(command, env=vault.env, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def asked(vault: TestVault, action: str) -> list[Any]:
    """The rows of an action, as a person asks for them."""
    sql = f"SELECT id FROM activity WHERE action_type = '{action}'"
    done = vault.click("journal", "--sql", sql, "--json", check=False)
    return list(json.loads(done.stdout)) if done.returncode == 0 else []


def test_daemon_refuses_to_run_until_journal_is_moved(tmp_path: Path, server: pgkit.Server) -> None:
    vault = carried_out(make_vault(tmp_path))
    address = server.fresh()
    said = vault.click("team", "init", address).stderr
    assert "placet journal move" in said
    hint = re.search(r"Move it: placet (.*)", vault.once(code=1))
    assert hint is not None
    moved = vault.click(*hint[1].split())
    assert moved.stdout == f"{address}\n"
    vault.once()
    assert "completed" in vault.click("status").stdout
    assert f"ok    journal        {address}" in vault.click("doctor", check=False).stdout
    vault.click("config", "set", "team.database", "")
    vault.click("journal", "move")
    vault.once()


def test_database_with_another_vaults_journal_is_refused(
    tmp_path: Path, server: pgkit.Server
) -> None:
    """Also before a daemon has run with it there."""
    (tmp_path / "other").mkdir()
    vault, other = carried_out(make_vault(tmp_path)), make_vault(tmp_path / "other")
    address = server.fresh()
    vault.click("team", "init", address)
    vault.click("journal", "move")
    count = len(vault.rows())
    refused = other.click("team", "init", address, check=False)
    assert refused.returncode == 2
    assert "holds the journal of another vault" in refused.stderr
    assert address not in (other.root / "System/placet.toml").read_text()
    other.click("config", "set", "team.database", address)
    assert "holds the journal of another vault" in other.once(code=2)
    assert len(vault.rows()) == count
    vault.once()
    assert "completed" in vault.click("status").stdout
