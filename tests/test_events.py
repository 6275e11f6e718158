"""Live events: each committed row once, one schema.

Slow, dead and foreign clients; the socket comes and goes with the daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from placet.activity import Action
from placet.cli.events import events_path, live_events
from placet.errors import UserError
from placet.host.events import (
    EVENT,
    MAX_CLIENTS,
    MAX_WAITING,
    POLL_S,
    Broadcast,
    FailureDetected,
    Skipped,
    event_of,
    line_of,
    listen,
    places,
)
from vaultkit import PLAN, TestVault, make_vault, printing, running, until

SECRET = "sk-ant-api03-" + "Zq9" * 31 + "AA"


@dataclass(frozen=True)
class Row:
    id: int
    action_type: str = "tool.called"
    timestamp: str = "2026-01-01T00:00:00.000Z"
    trace_id: str = "t"
    actor: str = "agent"
    agent: str = "default"
    entity_type: str = "mission"
    entity_id: str = "say-hello"
    details: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "events.sock"


def connect(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    handle = os.open(path.parent, os.O_PATH)
    try:
        sock.connect(f"/proc/self/fd/{handle}/{path.name}")  # tests' folders have long names
    finally:
        os.close(handle)
    return sock


def connected(server: Broadcast, path: Path, count: int = 1) -> socket.socket:
    sock = connect(path)
    until(lambda: len(server._clients) == count, f"{count} clients")
    return sock


def events(sock: socket.socket, until_type: str = "", count: int = 0) -> list[Any]:
    found: list[Any] = []
    with sock.makefile("rb") as stream:
        for line in stream:
            assert line.endswith(b"\n")
            found.append(EVENT.validate_json(line))
            if found[-1].type == until_type or len(found) == count:
                break
    return found


# --- a whole mission
# ----------------------------------------------------------------------------------------


@pytest.fixture
def runtime() -> Iterator[str]:
    """A runtime folder; its name is short, so that the kernel's list of sockets shows it whole."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="placet-") as folder:
        yield folder


def test_a_mission_is_followed_live_on_socket_and_journal(tmp_path: Path, runtime: str) -> None:
    vault = make_vault(tmp_path)
    vault.extra["XDG_RUNTIME_DIR"] = runtime
    plan = {
        **PLAN,
        "steps": [
            {
                "title": "Look",
                "description": "At it.",
                "tools": ["read_file", "write_file", "run_command"],
            }
        ],
        "scope": {"write": ["hello.txt"], "run": ["echo"]},
    }
    vault.script(
        ("plan", [{"calls": [("submit_plan", plan)]}]),
        (
            "execute",
            [
                {"calls": [("run_command", {"command": "echo", "args": [SECRET]})]},
                *({"calls": [("read_file", {"path": f"nowhere{n}.txt"})]} for n in range(3)),
                {"calls": [("give_up", {"reason": "It is nowhere."})]},
            ],
        ),
    )
    with running(vault) as daemon:
        where = Path(vault.cli("events", "path").stdout.strip())
        assert where.is_relative_to(runtime)
        with (
            printing(vault, "events") as client,
            printing(vault, "journal", "--follow", "--json", "--limit", "0") as follower,
        ):
            await_clients(daemon.pid, where, 1)
            await_follower(vault, follower)
            vault.drop("# Say hello\n")
            until(lambda: vault.plan().exists(), "the plan")
            vault.approve()
            followed = lines(follower, "execution.failed")
            daemon.send_signal(signal.SIGTERM)
            seen = [EVENT.validate_json(line) for line in client.stdout]
            assert client.wait(60) == 0
            assert "the daemon has stopped" in client.stderr.read()
    assert not where.exists()
    rows = [row for row in vault.rows() if row["id"] >= seen[0].id]
    assert [(e.id, e.type, e.metadata) for e in seen] == [
        (r["id"], r["action_type"], r["metadata"]) for r in rows
    ]
    assert {"request.detected", "execution.failed", "daemon.stopped"} <= {e.type for e in seen}
    (pattern,) = [e for e in seen if isinstance(e, FailureDetected)]
    assert (pattern.request_id, pattern.pattern, pattern.affected_tool) == (
        "say-hello",
        "repeated-tool-error",
        "read_file",
    )
    assert pattern.description
    assert pattern.suggested_action
    assert SECRET not in str(seen) + str(followed)
    assert "daemon.started" not in [row["action_type"] for row in followed], (
        "with --limit 0 only what is new"
    )


def lines(process: subprocess.Popen[str], last: str) -> list[dict[str, Any]]:
    found = []
    for line in process.stdout or ():
        found.append(json.loads(line))
        if found[-1]["action_type"] == last:
            break
    return found


def await_follower(vault: TestVault, follower: subprocess.Popen[str]) -> None:
    """Wait until it follows, which nothing shows but that it prints a row: notes that nobody can
    use make some.
    """
    for number in range(60):
        vault.drop("---\nkey: [unclosed\n---\n", f"Odd {number}.md")
        if select.select([follower.stdout], [], [], 1.5)[0]:
            return
    raise AssertionError("it does not follow")


def await_clients(pid: int, where: Path, count: int) -> None:
    """Wait until so many are connected: the kernel lists the socket once for the listener and once
    for each of them.
    """
    sockets = Path(f"/proc/{pid}/net/unix")
    until(
        lambda: (
            sum(line.endswith(f" {where}") for line in sockets.read_text().splitlines()) > count
        ),
        "clients",
    )


def test_a_daemon_that_was_killed_leaves_a_socket_that_the_next_one_replaces(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    where = events_path(vault.site)
    with running(vault) as daemon:
        daemon.kill()
        daemon.wait()
    assert stat.S_ISSOCK(where.lstat().st_mode), "left behind"
    with pytest.raises(UserError, match="placet run"):
        next(live_events(vault.site))
    with running(vault):
        assert stat.S_IMODE(where.lstat().st_mode) == 0o600
        assert stat.S_IMODE(where.parent.lstat().st_mode) == 0o700
        with connect(where):
            pass
    assert not where.exists()


# --- clients that are a burden
# ------------------------------------------------------------------------------


def test_a_client_that_does_not_read_holds_nobody_up_and_is_told_what_it_missed(path: Path) -> None:
    big = {"reason": "x" * 1_000}
    with Broadcast(path, pytest.fail) as server, contextlib.ExitStack() as stack:
        slow = stack.enter_context(connected(server, path))
        quick = stack.enter_context(connected(server, path, 2))
        began = time.monotonic()
        for n in range(1, 3_001):
            server.publish([Row(n, details=big)])
            assert events(quick, count=1)[0].id == n
        assert time.monotonic() - began < 120
        held = next(iter(server._clients.values()))
        assert len(held.waiting) <= MAX_WAITING
        found = events(slow, "events.skipped")
        ids = [e.id for e in found[:-1]]
        assert ids == list(range(1, len(ids) + 1)), "in order, without a gap, none torn"
        assert isinstance(found[-1], Skipped)
        assert found[-1].skipped == 3_000 - len(ids)
        server.publish([Row(3_001)])
        assert events(slow, count=1)[0].id == 3_001


def test_publishing_does_not_wait_for_a_thread_that_is_stuck(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broadcast(path, pytest.fail) as server, connected(server, path) as sock:
        go = threading.Event()
        monkeypatch.setattr(
            "placet.host.events.line_of", lambda event, real=line_of: go.wait(20) and real(event)
        )
        for n in range(1, MAX_WAITING + 501):
            server.publish([Row(n)])
        go.set()
        found = events(sock, "events.skipped")
        assert len(found) - 1 + found[-1].skipped == MAX_WAITING + 500
        assert 1 <= found[-1].skipped <= 500


def test_dead_clients_are_let_go_and_one_that_only_listens_is_kept(path: Path) -> None:
    with Broadcast(path, pytest.fail) as server:
        connected(server, path).close()
        until(lambda: not server._clients, "the dead one is gone")
        with connected(server, path) as half:
            half.sendall(b"hello?\n")
            half.shutdown(socket.SHUT_WR)
            time.sleep(0.05)
            server.publish([Row(1)])
            assert [e.id for e in events(half, count=1)] == [1]
        until(lambda: not server._clients, "the half-closed one has gone, too")
        clients = [connected(server, path, n) for n in range(1, MAX_CLIENTS + 1)]
        with connect(path) as one_too_many:
            assert one_too_many.recv(1) == b""
        clients.pop().close()
        until(lambda: len(server._clients) < MAX_CLIENTS, "room")
        with connect(path) as instead:
            until(lambda: len(server._clients) == MAX_CLIENTS, "full")
            server.publish([Row(2)])
            for sock in (*clients, instead):
                assert [e.id for e in events(sock, count=1)] == [2]
                sock.close()
        until(lambda: not server._clients, "all are gone")
        until(
            lambda: not any("process_request" in t.name for t in threading.enumerate()),
            "no thread is left",
        )


def test_the_end_does_not_wait_for_a_client_that_does_not_read(path: Path) -> None:
    with Broadcast(path, pytest.fail) as server:
        sock = connected(server, path)
        server.publish([Row(n, details={"reason": "x" * 1_000}) for n in range(1, 1_001)])
        client = next(iter(server._clients.values()))
        until(
            lambda: select.select([sock], [], [], 0)[0] and len(client.waiting) < 1_000,
            "its thread is sending",
        )
        began = time.monotonic()
    assert time.monotonic() - began < 20
    assert not server._clients
    assert not path.exists()
    assert [e.id for e in events(sock)][:3] == [1, 2, 3]
    sock.close()


def test_an_idle_server_is_not_woken_and_ends_at_once(path: Path) -> None:
    with Broadcast(path, pytest.fail), connect(path):
        (thread,) = [t for t in threading.enumerate() if t.name == "events"]
        assert POLL_S > 60 or sys.platform != "linux"
        began = time.monotonic()
    assert time.monotonic() - began < 10
    thread.join(10)
    assert not thread.is_alive()


def test_what_was_committed_last_arrives_before_the_end(path: Path) -> None:
    with Broadcast(path, pytest.fail) as server:
        sock = connected(server, path)
        server.publish([Row(n) for n in range(1, 101)])
    assert [e.id for e in events(sock)] == list(range(1, 101))
    sock.close()
    assert not path.exists()


# --- whose socket it is
# -------------------------------------------------------------------------------------


def _connect_as_nobody(path: Path) -> int:
    """Return 0 where another user is hung up on, 1 where the system does not let it connect, 2 for
    anything else.
    """
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(60)
                client.connect(str(path))
                code = 0 if client.recv(1) == b"" else 2
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_listen(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are closed to others already
    try:
        path = folder / "run" / "events.sock"
        with Broadcast(path, pytest.fail) as server:
            folder.chmod(0o755)
            assert _connect_as_nobody(path) == 1
            path.parent.chmod(0o755)
            path.chmod(0o666)
            assert _connect_as_nobody(path) == 0, "even where the modes let it in, it is hung up on"
            assert not server._clients
    finally:
        shutil.rmtree(folder)


def test_a_place_that_is_not_ours_is_not_used(path: Path) -> None:
    said: list[str] = []
    with Broadcast(path, pytest.fail), Broadcast(path, said.append):
        assert len(said) == 1
        with connect(path):
            pass
    path.parent.rmdir()
    elsewhere = path.parent.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    path.parent.symlink_to(elsewhere)
    with Broadcast(path, said.append):
        assert list(elsewhere.iterdir()) == []
    assert ["another daemon" in said[0], "a link" in said[1]] == [True] * 2


def test_the_runtime_folder_is_used_only_as_its_specification_has_it(tmp_path: Path) -> None:
    state = tmp_path / "state" / "vault-1"
    fallback = state / "run" / "events.sock"
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    assert places(state, {"XDG_RUNTIME_DIR": str(runtime)}) == (
        runtime / "placet" / "vault-1" / "events.sock",
        fallback,
    )
    runtime.chmod(0o755)
    for bad in (str(runtime), "relative", "", str(tmp_path / "missing")):
        assert places(state, {"XDG_RUNTIME_DIR": bad}) == (fallback,)
    with pytest.raises(UserError, match="No daemon"):
        next(listen([fallback]))


def test_a_successors_socket_is_left_alone(path: Path) -> None:
    with Broadcast(path, pytest.fail):
        path.unlink()
        other = socket.socket(socket.AF_UNIX)
        handle = os.open(path.parent, os.O_PATH)
        other.bind(f"/proc/self/fd/{handle}/events.sock")
        os.close(handle)
    assert path.exists()
    other.close()


# --- the schema
# ---------------------------------------------------------------------------------------------


def test_one_schema_names_every_type_and_each_validates_as_itself() -> None:
    schema = EVENT.json_schema()
    kinds = schema["discriminator"]
    assert kinds["propertyName"] == "type"
    assert set(kinds["mapping"]) == {action.value for action in Action} | {"events.skipped"}
    with pytest.raises(ValueError, match="type"):
        EVENT.validate_json('{"type": "made.up", "id": 1}')
    assert json.loads(line_of(event_of(Row(1, details={"path": "b\udc80d"}))))["metadata"] == {
        "path": "b\udc80d"
    }
