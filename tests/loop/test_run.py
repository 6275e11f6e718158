"""Test how a daemon stops: when its terminal closes, and with blocked notices and logs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from messages_api import MessagesApi, call, hang, reply
from placet.agent.record import Record
from placet.host import notify
from placet.host.config import NotifyTable
from placet.host.notify import Event, Messenger, Notice
from placet.loop.app import daemon
from vaultkit import PLAN, TestVault, make_vault, until

KEY = "sk-ant-test-0123456789"
NOTICE = Notice(Event.TEST, "", "", "vault", "")


def start(vault: TestVault, **options: Any) -> subprocess.Popen[bytes]:
    count = len(vault.rows("daemon.started"))
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)],
        env=vault.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        **options,
    )
    until(lambda: len(vault.rows("daemon.started")) > count, "daemon.started")
    return process


def ended(process: subprocess.Popen[bytes], how: signal.Signals) -> int:
    process.send_signal(how)
    try:
        return process.wait(60)
    finally:
        process.kill()


def planner(body: dict[str, Any]) -> Any:
    return (
        reply(call("submit_plan", PLAN))
        if "submit_plan" in {tool["name"] for tool in body["tools"]}
        else hang()
    )


def test_closed_terminal_stops_daemon_cleanly(tmp_path: Path) -> None:
    with MessagesApi(planner) as api:
        vault = make_vault(tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY=KEY)
        vault.configure("[daemon]\nstop_grace_s = 0.2\n")
        vault.drop("Say hello\n")
        vault.here()
        vault.approve()
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs the tests may ignore it
        try:
            process = start(vault, stderr=subprocess.DEVNULL)
        finally:
            signal.signal(signal.SIGHUP, before)
        until(lambda: len(api.requests) > 1, "the mission asks")
        assert ended(process, signal.SIGHUP) == 0
    assert vault.rows("daemon.stopped")[-1]["metadata"]["orderly"] is True
    assert not vault.rows("execution.failed")


def test_nohup_daemon_survives_closed_terminal(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup(1) leaves it to what it starts
    try:
        process = start(vault, stderr=subprocess.DEVNULL, restore_signals=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    assert ended(process, signal.SIGTERM) == 0


def test_only_unclean_exit_counts_as_crash(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.drop("Say hello\n")
    vault.here()  # there is no key, so it waits

    def begin(error: Exception | None = None) -> int:
        with suppress(ValueError), daemon(vault.root, vault.env, lambda _: None) as one:
            (case,) = one.loop.cases.values()
            crashes = Record.load(
                one.journal, case, case.generation, one.loop.ports.clock
            ).start_run()
            if error is not None:
                raise error
        return crashes

    assert [begin() for _ in range(4)] == [0, 0, 0, 0]
    assert [begin(ValueError()) for _ in range(3)] == [0, 1, 2]
    assert begin() == 3


def closed_pipe() -> tuple[Any, Callable[[], None]]:
    read, write = os.pipe()
    return os.fdopen(write, "wb"), lambda: os.close(read)


def full_disk() -> tuple[Any, Callable[[], None]]:
    return Path("/dev/full").open("wb"), lambda: None


@pytest.mark.parametrize("log", [closed_pipe, full_disk])
def test_daemon_keeps_running_without_its_log(
    tmp_path: Path, log: Callable[[], tuple[Any, Callable[[], None]]]
) -> None:
    if log is full_disk and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    right = (vault.root / "System/placet.toml").read_text()
    stderr, gone = log()
    with stderr:
        process = start(vault, stderr=stderr)
        gone()
        vault.configure("[daemon\n")  # something to say
        time.sleep(2.5)
        vault.configure(right)
        vault.drop("Say hello\n")
        until(lambda: vault.plan().exists() or process.poll() is not None, "a plan")
        assert process.poll() is None
        assert ended(process, signal.SIGTERM) == 0


def test_slow_notices_do_not_delay_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "LAST_S", 2.0)
    said: list[str] = []
    began = time.monotonic()
    with Messenger(NotifyTable(command=("sleep", "60")), said.append, 1.0) as messenger:
        for _ in range(8):
            messenger.send(NOTICE)
    assert time.monotonic() - began < 10
    assert any("notices were not sent" in line for line in said)


def test_shutdown_abandons_stuck_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "LAST_S", 1.5)
    over = threading.Event()
    monkeypatch.setattr(notify, "send", lambda *_: over.wait(60) and ())
    said: list[str] = []
    began = time.monotonic()
    with Messenger(NotifyTable(command=("true",)), said.append) as messenger:
        messenger.send(NOTICE)
        time.sleep(0.1)
    assert time.monotonic() - began < 30
    over.set()
    assert said == ["A notice was still being sent when the daemon ended."]


def test_pending_notices_are_sent_before_exit(tmp_path: Path) -> None:
    said: list[str] = []
    with Messenger(
        NotifyTable(command=("sh", "-c", f"echo x >> {tmp_path}/told")), said.append
    ) as messenger:
        for _ in range(3):
            messenger.send(NOTICE)
    assert (tmp_path / "told").read_text() == "x\n" * 3
    assert said == []


def test_run_once_ends_when_vault_disappears(tmp_path: Path) -> None:
    def slow(body: dict[str, Any]) -> Any:
        time.sleep(1)
        return planner(body)

    with MessagesApi(slow) as api:
        vault = make_vault(tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY=KEY)
        vault.drop("Say hello\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--once", "--vault", str(vault.root)],
            env=vault.env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: api.requests, "a call")
        vault.root.rename(tmp_path / "away")
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 1
    assert "the vault is not there" in said


def test_terminated_run_once_stops_cleanly(tmp_path: Path) -> None:
    with MessagesApi(lambda _body: hang()) as api:
        vault = make_vault(tmp_path, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY=KEY)
        vault.configure("[daemon]\nstop_grace_s = 0.2\n")
        vault.drop("Say hello\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--once", "--vault", str(vault.root)],
            env=vault.env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: api.requests, "a call")
        process.terminate()
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 1
    assert "it was stopped before that" in said
    assert vault.rows("daemon.stopped")[-1]["metadata"]["orderly"] is True


GIT = """#!/bin/sh
for word; do
    if [ "$word" = {command} ] && [ {one} "$GIT_INDEX_FILE" ] && rm {trap} 2>/dev/null; then
        touch {trap}.caught; exec sleep 300
    fi
done
exec {git} "$@"
"""


@pytest.mark.parametrize(
    ("command", "one"),
    [
        pytest.param("status", "-n", id="what the vault became", marks=pytest.mark.sweep),
        pytest.param("read-tree", "-z", id="check-out"),
        pytest.param("status", "-z", id="commit", marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize("by_hand", [True, False])
def test_slow_git_delays_neither_stop_nor_exit(
    tmp_path: Path,
    command: str,
    one: str,
    by_hand: bool,
) -> None:
    (tmp_path / "bin").mkdir()
    trap, program = tmp_path / "trap", tmp_path / "bin/git"
    program.write_text(GIT.format(command=command, one=one, trap=trap, git=shutil.which("git")))
    program.chmod(0o755)
    vault = make_vault(tmp_path, PATH=f"{program.parent}:{os.environ['PATH']}")
    vault.configure("[daemon]\nstop_grace_s = 0.2\n")
    vault.plays(
        PLAN,
        [
            ("write_file", {"path": "hello.txt", "content": "hi"}),
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done"}),
        ],
    )
    vault.drop("Say hello\n")
    vault.once()
    vault.approve()
    trap.touch()
    process = start(vault, stderr=subprocess.DEVNULL)
    until(lambda: Path(f"{trap}.caught").exists(), "git hangs")
    began = time.monotonic()
    if by_hand:
        vault.click("stop", "say-hello")
        end = vault.await_action("execution.failed")
        assert (time.monotonic() - began) < 20
        assert end["metadata"]["reason"] == "stopped_by_person"
    assert ended(process, signal.SIGTERM) == 0
    assert (time.monotonic() - began) < 25
    left = subprocess.run(
        ["git", "for-each-ref", "--format=%(refname)", "refs/heads/feat"],
        cwd=vault.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if by_hand:
        assert not left
        assert not list((vault.db.parent / "worktrees").glob("[!.]*-*"))
        return
    assert not vault.rows("execution.failed")
    vault.once()
    assert len(vault.rows("execution.completed")) == 1


TWICE = """
import os, signal
from placet.loop.run import signal_handlers
with signal_handlers() as ending:
    told = ending._cond.notify_all
    def meanwhile():  # the moment at which the event's own lock is held
        ending._cond.notify_all = told
        os.kill(os.getpid(), signal.SIGHUP)
        told()
    ending._cond.notify_all = meanwhile
    os.kill(os.getpid(), signal.SIGTERM)
    assert ending.wait(20)
print("in order")
"""
NOT_WOKEN = """
import signal, threading
from placet.loop.run import signal_handlers
def of_another_thread():  # it does not end the main thread's wait, nor does one that came before
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
with signal_handlers() as ending:
    answer = threading.Event()
    ending.rings(answer.set)
    threading.Timer(0.2, of_another_thread).start()
    answer.wait()
print("in order")
"""
STUCK = """
import os, signal, threading
from placet.loop.run import signal_handlers
with signal_handlers():
    print("stuck", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("what", [TWICE, NOT_WOKEN])
def test_nested_and_cross_thread_signals_are_handled(what: str) -> None:
    """Also within another one, as a shell and a closed terminal send two, and before a wait."""
    done = subprocess.run([sys.executable, "-c", what], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"in order\n"), done.stderr


def test_second_interrupt_ends_hanging_daemon() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)  # at the same time: not a second wish
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 128 + signal.SIGINT
        finally:
            process.kill()
