"""Do what an operator does: pause, take over, check, back up, look into the sandbox."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

import vaultkit
from disks import fill_up, small_disk_at
from looping import looping
from messages_api import Answer, MessagesApi, reply, status
from placet.cli.main import main
from placet.client.doctor import doctor, look_at_git
from placet.disk.errors import VaultTrouble
from placet.errors import UserError, cannot_write
from placet.host.state import vault_state
from placet.loop.app import daemon
from placet.loop.config_watch import PAIR_S
from placet.sandbox.box import Level
from placet.sandbox.probe import Probe, probe
from vaultkit import DONE, PLAN, TestVault, make_vault, running, until


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    return vault


def test_paused_daemon_starts_and_forgets_nothing(vault: TestVault) -> None:
    with running(vault):
        vault.click("pause")
        vault.drop("Say hello.\n")
        vault.await_action("request.detected")
        said = vault.click("status").stdout
        assert "waits, as work is paused (placet resume)" in said
        assert "is being written" not in said
        assert vault.rows("model.called") == []
        vault.click("resume")
        until(lambda: vault.plan().exists(), "the plan")
    vault.click("pause")
    vault.approve()
    vault.once()
    assert "execution.started" not in vault.actions()
    vault.click("resume")
    vault.once()
    assert "execution.completed" in vault.actions()


def test_pausing_changes_one_line_of_the_configuration(vault: TestVault) -> None:
    path = vault.root / "System" / "placet.toml"
    before = "# mine\n[daemon]   # kept\nmissions_at_once = 1\n"
    path.write_text(before)
    vault.click("pause")
    assert path.read_text() == before + "paused = true\n"
    vault.click("resume")
    assert path.read_text() == before + "paused = false\n"


def test_partly_saved_configuration_is_ignored(vault: TestVault) -> None:
    """Many programs empty a file, then write it, in pieces: what lies there meanwhile is
    well-formed, and says something else.
    """
    vault.configure(
        "[daemon]\npaused = true\n" + (vault.root / "System" / "placet.toml").read_text()
    )
    path = vault.root / "System" / "placet.toml"
    good = path.read_text()
    took_s: list[float] = []

    def save() -> None:
        for _ in range(3):
            began = time.monotonic()
            with path.open("w") as file:
                time.sleep(0.005)
                file.write("# Settings\n")
                file.flush()
                time.sleep(0.005)
                file.write(good)
            took_s.append(time.monotonic() - began)
            time.sleep(0.1)

    saving = threading.Thread(target=save)
    with looping(vault) as run:
        saving.start()
        while saving.is_alive():
            run.loop.tick()
            assert run.loop.ports.config.daemon.paused
            time.sleep(0.01)
        saving.join()
        path.write_text(good.replace("paused = true", "paused = false"))
        run.settle()
        assert not run.loop.ports.config.daemon.paused
    # On a machine so busy that a save took longer than a file's rest, the file was really empty.
    assert run.said == ["Resumed."] or max(took_s) > PAIR_S / 2


def test_emptied_configuration_keeps_previous_settings(
    vault: TestVault,
) -> None:
    path = vault.root / "System" / "placet.toml"
    good = path.read_text()
    vault.once()
    path.write_text("")
    assert "placet ignores these changes" in " ".join(vault.cli("run", "--once").stderr.split())
    path.write_text(good)
    with looping(vault) as run:
        path.write_text("")
        run.settle()
        assert run.loop.ports.config.model.provider == "scripted"
        assert "is suddenly empty" in "".join(run.said)
        vault.configure("# defaults\n")
        run.settle()
        assert run.loop.ports.config.model.provider == "anthropic"
        path.write_text("")
        run.settle()
        assert sum("is suddenly empty" in line for line in run.said) == 2


def test_vault_of_another_machine_needs_take_over(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    path = vault.root / "System" / "placet.toml"
    vault.configure('[vault]\nhost = "elsewhere"\n' + path.read_text())
    done = vault.cli("run", "--once", check=False)
    assert done.returncode == 2
    assert "elsewhere" in done.stderr
    assert "--take-over" in done.stderr
    assert vault.rows() == []
    vault.cli("run", "--once", "--take-over")
    assert vault.plan().exists()
    vault.once()  # it is ours now


def test_daemon_exits_when_another_machine_claims_vault(vault: TestVault) -> None:
    path = vault.root / "System" / "placet.toml"
    said: list[str] = []
    with daemon(vault.root, vault.env, said.append) as running_here:
        vault.drop("Say hello.\n")
        vault.configure('[vault]\nhost = "elsewhere"\n' + path.read_text())
        with pytest.raises(UserError, match="The daemon of elsewhere works on this vault"):
            running_here.run()
    assert not vault.plan().exists()
    assert vault.rows("daemon.stopped")


@pytest.mark.parametrize(
    ("says", "state", "told"),
    [
        ("git version 2.30.2 (Apple Git-154)", "bad", "2.30.2"),
        ("git version 2.38.0", "good", "version 2.38.0"),
        ("git version", "bad", "does not say its version"),
        ("git version x.y", "bad", "does not say its version"),
        (None, "bad", "not installed"),
    ],
)
def test_the_doctor_asks_git_how_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, state: str, told: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if says is not None:
        (tmp_path / "git").write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / "git").chmod(0o755)
    line = look_at_git()
    assert line.state == state
    assert told in line.found
    assert bool(line.helps) == (state == "bad")


def test_full_journal_disk_is_shown_by_commands(vault: TestVault, tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "40m") as disk:
        vault = replace(vault, state=disk)
        vault.drop("Say hello.\n")
        vault.once()
        with running(vault):
            fill_up(disk / "fill")
            for said in (
                vault.click("status"),
                vault.click("why", "say-hello"),
                vault.click("doctor", check=False),
            ):
                assert "where the journal is, is full. Work waits" in " ".join(said.stdout.split())
            (disk / "fill").unlink()
            assert (
                "is full"
                not in vault.click("status").stdout + vault.click("why", "say-hello").stdout
            )
        fill_up(disk / "fill")
        for command in (("status",), ("why", "say-hello")):
            said = vault.click(*command, check=False)
            assert said.returncode == 0 or "its disk is full" in said.stderr, said.stderr


def test_start_on_full_disk_names_folder(vault: TestVault, tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "80m") as disk:
        vault = replace(vault, state=disk / "st")
        vault.drop("Say hello.\n")
        vault.here()
        whose = vault.db.with_name("vault.json").stat().st_mtime_ns
        for n, size in enumerate((65536, 4096, 512, 1)):
            with (disk / f"fill{n}").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(size))
        done = vault.click("run", "--once", check=False)
        assert vault.db.with_name("vault.json").stat().st_mtime_ns == whose
        assert done.returncode == 1
        assert "No space left on device" in done.stderr or "is full" in done.stderr
        assert str(vault.db.parent) in done.stderr
        assert "space" in done.stderr.replace("No space", "")
        (disk / "fill0").unlink()
        vault.once()
    assert not list(vault.state.parent.glob("*.tmp"))


def test_unwritable_setting_or_lock_names_remedy(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "40m") as disk:
        vault = make_vault(disk)
        vault.here()
        fill_up(disk / "fill")
        for command in (["pause"], ["portal", "add", "code", str(vault.root)]):
            said = vault.click(*command, check=False)
            assert said.returncode == 1
            assert "placet.toml cannot be written: No space left on device." in said.stderr
            assert f"Free some space on the disk of {vault.root}/System" in said.stderr
        (disk / "fill").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        said = vault.click("run", "--once", check=False)
        assert said.returncode == 1
        assert "lock cannot be written: Read-only file system." in said.stderr
        assert f"Mount the file system of {vault.db.parent} writable" in said.stderr


def test_full_disk_error_names_disk_and_remedy(vault: TestVault, tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "40m") as disk:
        vault = replace(vault, state=disk)
        vault.drop("Say hello.\n")
        vault.here()
        before = vault.plan().read_bytes()
        with running(vault):  # without one not even the journal can be opened for reading there
            fill_up(disk / "fill")
            for command in (
                ("approve", "say-hello", "--yes"),
                ("reject", "say-hello", "--reason", "No"),
            ):
                said = vault.click(*command, check=False)
                assert said.returncode == 1
                assert "cannot be written: No space left on device.\n" in said.stderr
                assert f"Free some space on the disk of {disk}/" in said.stderr
            assert vault.plan().read_bytes() == before
            assert not list(disk.glob("*/intents/*")), "nothing half written is left"
            (disk / "fill").unlink()
            vault.click("approve", "say-hello", "--yes")


@pytest.mark.parametrize(
    ("number", "helps"),
    [
        (errno.ENOSPC, "Free some space on the disk of /state/x, then try again."),
        (errno.EDQUOT, "Free some space on the disk of /state/x, then try again."),
        (errno.EROFS, "Mount the file system of /state/x writable, then try again."),
        (
            errno.EACCES,
            "Give the user that runs placet the right to write in /state/x, then try again.",
        ),
    ],
)
def test_unwritable_state_file_names_remedy(number: int, helps: str) -> None:
    error = cannot_write(Path("/state/x/vault.json"), OSError(number, os.strerror(number)))
    assert (error.what, error.hint) == (
        f"/state/x/vault.json cannot be written: {os.strerror(number)}.",
        helps,
    )


def test_disk_error_and_remedy_are_separate_sentences() -> None:
    said = " ".join(str(VaultTrouble("Inbox/Plans/a.md", OSError(errno.EROFS, ""))).split())
    assert said.startswith(
        "Inbox/Plans/a.md: Read-only file system. Mount that file system writable; "
    )


def test_emptied_plan_text_can_be_restored(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.here()
    before = vault.plan().read_text()
    vault.plan().write_bytes(b"")
    vault.here()
    assert vault.plan().read_bytes() == b"", "nothing says that it could be approved"
    beside = (vault.root / "Inbox/Plans/say-hello_plan.placet.md").read_text()
    told = re.search("This plan is empty, [^`]*`placet ([^`]*) > ([^`]*)`", beside)
    assert told is not None
    assert "or delete `Inbox/Plans/say-hello_plan.md`, which withdraws its request" in beside
    (helps,) = json.loads(vault.click("why", "say-hello", "--json").stdout)["next"]
    assert f"`placet {told[1]} > {told[2]}`" in helps
    for act in (
        ("reject", "--reason", "No"),
        ("revise", "--comment", "More"),
        ("approve", "--yes"),
    ):
        refused = vault.click(act[0], "say-hello", *act[1:], check=False)
        assert refused.returncode == 1
        assert "This plan is empty" in refused.stderr
    text = vault.click(*shlex.split(told[1])).stdout
    (vault.root / told[2]).write_text(text)
    vault.here()
    again = vault.plan().read_text()
    assert 'decision: ""\nstatus: review\n' in again
    assert again.partition("\n---\n")[2] == before.partition("\n---\n")[2], "with its box"
    assert not (vault.root / "Inbox/Plans/say-hello_plan.placet.md").exists()
    vault.click("reject", "say-hello", "--reason", "Too dear")
    vault.here()
    (row,) = vault.rows("plan.rejected")
    assert row["metadata"]["reason"] == "Too dear"


def test_unreadable_plan_is_named_as_such(vault: TestVault) -> None:
    vault.drop("Say hello.\n")
    vault.here()
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("status: review", "status: [oh: {"))
    vault.here()
    (helps,) = json.loads(vault.click("why", "say-hello", "--json").stdout)["next"]
    assert helps.startswith("Fix Inbox/Plans/say-hello_plan.md. ")
    refused = vault.click("approve", "say-hello", "--yes", check=False)
    assert refused.returncode == 1
    assert "broken YAML at line 3 (`status`)" in refused.stderr
    assert "trace_id" not in refused.stderr, "that line is there"


def test_show_plan_reports_missing_plan(vault: TestVault) -> None:
    vault.script(("plan", [{"text": "x"}]))
    vault.drop("Say hello.\n")
    vault.here()
    none = vault.click("show", "say-hello", "--plan", check=False)
    assert none.returncode == 3
    assert "There is no plan of say-hello" in none.stderr


def in_the_way(vault: TestVault) -> dict[str, str]:
    """Return what the doctor finds bad about writing, with what helps."""
    found = json.loads(vault.click("doctor", "--json", check=False).stdout)
    return {
        line["what"]: f"{line['found']} {line['helps']}"
        for line in found
        if line["state"] == "bad" and line["what"] in ("vault", "state", "journal")
    }


def test_doctor_tries_to_write_vault_and_state(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "40m") as disk:
        vault = make_vault(disk)
        vault.here()
        before = set(disk.rglob("*"))
        assert in_the_way(vault) == {}
        assert {path.name for path in set(disk.rglob("*")) - before} <= {
            "journal.db-shm",
            "journal.db-wal",
        }, "it leaves nothing"
        fill_up(disk / "fill")
        found = in_the_way(vault)
        assert "Inbox/Requests cannot be written: No space left on device" in found["vault"]
        assert f"df -h {vault.root}/Inbox" in found["vault"]
        assert f"df -h {vault.state}" in found["state"]
        (disk / "fill").unlink()
        assert in_the_way(vault) == {}
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        found = in_the_way(vault)
        for what in ("vault", "state"):
            assert "Read-only file system" in found[what]
            assert "remount,rw" in found[what]


@pytest.mark.parametrize(
    ("number", "helps"),
    [(errno.EACCES, "chmod u+rwx"), (errno.EDQUOT, "quota -s"), (errno.EIO, "dmesg")],
)
def test_doctor_names_remedy_for_each_write_error(
    vault: TestVault, number: int, helps: str
) -> None:
    vault.here()
    with patch("os.fsync", side_effect=OSError(number, os.strerror(number))):
        found = in_the_way(vault)
    assert (helps in found["vault"], helps in found["state"]) == (True, True)


@pytest.mark.parametrize(("uid", "said"), [(0, ["user"]), (1000, [])])
def test_the_doctor_advises_against_root(vault: TestVault, uid: int, said: list[str]) -> None:
    with (
        patch("os.geteuid", return_value=uid),
        patch("placet.sandbox.probe", return_value=Probe(Level.NONE, ())),
    ):
        found = doctor(vault.site)
    assert [line.what for line in found if "yourself" in line.helps] == said


@pytest.mark.skipif(probe().level is Level.NONE, reason="this machine has no sandbox")
def test_sandbox_command_opens_the_sandbox(vault: TestVault, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    (tmp_path / "work").mkdir()
    here = replace(vault, root=tmp_path / "work")
    assert here.cli("sandbox", "--", "sh", "-c", f"cat {secret}", check=False).returncode != 0
    assert here.cli("sandbox", "--", "sh", "-c", "exit 7", check=False).returncode == 7


@pytest.mark.skipif(probe().level < Level.BUBBLEWRAP, reason="needs bubblewrap")
def test_sandbox_command_reaches_only_its_hosts(vault: TestVault, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    here = replace(vault, root=tmp_path / "work")
    asks = ("--", "curl", "-s", "https://evil.example/")
    done = here.cli("sandbox", "--host", "packages.example", *asks, check=False)
    assert done.returncode == 56
    assert "refused: evil.example:443 is not in the plan's network" in done.stderr
    wrong = here.cli("sandbox", "--host", "https://x.example", *asks, check=False)
    assert wrong.returncode == 2
    assert "write only the name" in wrong.stderr


@pytest.mark.parametrize("inside", [".", "Inbox/Requests", "System", "..", "../state", "/", "~"])
def test_sandbox_that_could_approve_is_refused(vault: TestVault, inside: str) -> None:
    vault.here()
    (vault.root.parent / "home").mkdir()
    there = replace(
        vault,
        root=vault.root / inside if inside != "~" else vault.root.parent / "home",
        extra={"HOME": str(vault.root.parent / "home")},
    )
    done = there.click("sandbox", "--", "true", check=False)
    assert done.returncode == 2
    assert "could change all of this folder" in done.stderr


needs_two_walls = pytest.mark.skipif(probe().level < Level.BUBBLEWRAP, reason="needs two sandboxes")


@needs_two_walls
@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        ({"shell": True}, [{"title": "Do it", "tools": ["bash"]}]),
        (
            {"run": ["true"]},
            [
                {
                    "title": "Do it",
                    "actions": [{"tool": "run_command", "params": {"command": "true"}}],
                }
            ],
        ),
        ({}, [{"title": "Do it", "tools": ["take_screenshot"]}]),
    ],
    ids=["shell", "literal", "picture"],
)
@pytest.mark.thinned(2)
def test_weaker_sandbox_needs_new_approval(
    vault: TestVault,
    monkeypatch: pytest.MonkeyPatch,
    scope: dict[str, Any],
    steps: list[dict[str, Any]],
) -> None:
    plan = {**PLAN, "scope": {"write": ["hello.txt"], **scope}, "steps": steps}
    vault.configure('[commands]\nsandbox = "landlock"\n')
    vault.plays(plan, [("finish", {"summary": "Done"})])
    vault.drop("Say hello.\n")
    vault.once()
    vault.click("pause")
    vault.approve()
    vault.once()
    assert vault.rows("plan.approved")[0]["metadata"]["sandbox"] == int(probe().level)
    vault.click("resume")
    monkeypatch.setattr(vaultkit, "_probed", lambda: Probe(Level.LANDLOCK, ()))
    vault.once()
    assert "execution.started" not in vault.actions()
    assert "which is weaker" in vault.plan().read_text()
    vault.approve()  # knowing it
    vault.once()
    assert "execution.started" in vault.actions()


@needs_two_walls
def test_mission_waits_for_approval_of_weaker_sandbox(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {
        **PLAN,
        "scope": {"write": ["hello.txt"], "run": ["sleep"]},
        "steps": [{"title": "Do it", "tools": ["write_file", "run_command"]}],
    }
    vault.configure('[commands]\nsandbox = "landlock"\n')
    vault.plays(
        plan,
        [("write_file", {"path": "hello.txt", "content": "Hello"})],
        [("run_command", {"command": "sleep", "args": ["600"]})],
    )
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    with running(vault) as process:
        vault.await_action("tool.called")
        process.kill()
        process.wait()
    monkeypatch.setattr(vaultkit, "_probed", lambda: Probe(Level.LANDLOCK, ()))
    said = vault.once(code=1)
    assert "which is weaker" in said
    assert "execution.resumed" not in vault.actions()
    vault.active().rename(vault.plan())
    vault.once()
    (ended,) = vault.rows("execution.failed")
    assert ended["metadata"]["kept"]  # what was done is not lost
    calls = [
        (row["metadata"]["tool"], row["metadata"]["error_type"] or "")
        for row in vault.rows("tool.called")
    ]
    # the kill may cut it off
    assert calls in ([("write_file", "")], [("write_file", ""), ("run_command", "interrupted")])


def test_daemon_stopped_during_start_exits_cleanly(vault: TestVault) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)],
        env=vault.env,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: list(vault.state.glob("*/lock")), "the lock: the box is attacked after that")
    process.terminate()
    assert process.wait(180) == 0
    assert vault.actions() == ["daemon.started", "config.accepted", "daemon.stopped"]


def test_journal_limit_and_trace_select_rows(
    vault: TestVault,
) -> None:
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    assert len(vault.rows("git.ran")) >= 5, (
        "these are left out, and are none of the rows that were asked for"
    )
    lines = vault.click("journal", "--trace", "say-hello").stdout.splitlines()
    assert "request.detected" in lines[0]
    assert "report.written" in lines[-1]
    assert len(lines) == len(
        [r for r in vault.rows() if r["entity_id"] == "say-hello" and r["action_type"] != "git.ran"]
    )
    assert (
        vault.click("journal", "--trace", "say-hello", "--limit", "5").stdout.splitlines()
        == lines[-5:]
    )


def test_daemon_with_unwritable_journal_can_be_stopped(vault: TestVault) -> None:
    vault.once()
    with contextlib.closing(sqlite3.connect(vault.db, isolation_level=None)) as other:
        process = subprocess.Popen(
            [sys.executable, "-m", "placet", "run", "--vault", str(vault.root)],
            env=vault.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: len(vault.rows("daemon.started")) == 2)
        other.execute("BEGIN IMMEDIATE")
        vault.drop("Say hello.\n")
        assert process.stderr is not None
        until(lambda: "everything waits" in process.stderr.readline(), "it says what is wrong")
        process.terminate()
        said = process.communicate(timeout=90)[1]
        assert process.returncode == 1
        assert "The next start repeats what was not written." in said
        assert "Traceback" not in said
        other.execute("ROLLBACK")
    vault.once()
    assert vault.plan().exists()


# --- under a service manager


def test_service_manager_gets_ready_watchdog_and_stopping(
    vault: TestVault,
) -> None:
    """A daemon that waits in the middle of a tick, for a full disk or a lock, must not be ended as
    one that hangs.
    """
    heard: list[bytes] = []
    over = threading.Event()

    def listen() -> None:
        """As a service manager does, all the time: the system keeps ten messages, and lets the
        daemon wait with the next.
        """
        while True:
            try:
                heard.append(manager.recv(4096))
            except TimeoutError:
                if over.is_set():
                    return

    def held() -> list[bytes]:
        return [message for message in heard if b"cannot be written" in message]

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = vault.state.parent / "notify"
        manager.bind(str(address))
        manager.settimeout(0.1)
        listener = threading.Thread(target=listen)
        listener.start()
        try:
            with running(TestVault(vault.root, vault.state, {"NOTIFY_SOCKET": str(address)})):
                until(lambda: len(heard) >= 2, "two messages")
                with contextlib.closing(sqlite3.connect(vault.db, isolation_level=None)) as other:
                    other.execute("BEGIN IMMEDIATE")
                    vault.drop("Say hello.\n")
                    until(lambda: len(held()) >= 3, "three messages of a daemon that waits")
                    other.execute("ROLLBACK")
                vault.await_action("plan.created")
        finally:
            over.set()
            listener.join()
    assert heard[0] == b"READY=1"
    assert heard[1].startswith(b"WATCHDOG=1\nSTATUS=")
    assert all(
        message.startswith(b"WATCHDOG=1\n") and b"EXTEND_TIMEOUT_USEC=" in message
        for message in held()
    )
    assert heard[-1] == b"STOPPING=1"


def test_command_line_refuses_exactly_like_daemon(vault: TestVault, tmp_path: Path) -> None:
    asked = vault.click(
        "submit", "x", "--agent", "nobody", "--portal", "nope", "--budget-usd", "abc", check=False
    )
    assert asked.returncode == 2
    for said in (
        "System/Agents/nobody.md",
        "no portal `nope`",
        "budget_usd: abc",
        "Nothing was written",
    ):
        assert said in asked.stderr
    assert not list((vault.root / "Inbox/Requests").iterdir())
    assert "is not a vault" in vault.click("status", "--vault", str(tmp_path), check=False).stderr
    assert vault.click("submit", "x", "--vault", str(tmp_path), check=False).returncode == 2
    assert not (tmp_path / "Inbox").exists()

    assert "when the daemon runs: placet run" in vault.click("submit", "Say hello").stderr
    assert "1 note changed since the daemon last ran" in vault.click("status").stdout
    vault.drop("---\npriority: high\n---\nHi\n", "Odd.md")
    vault.once()
    status = vault.click("status").stdout
    assert "Inbox/Requests/Odd.md: `priority: high`" in status
    assert "changed since" not in status

    plan = vault.plan()
    plan.write_text(plan.read_text().replace("status: review", "status: needs_revision", 1))
    refused = vault.click("approve", "say-hello", "--yes", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "It says `status: needs_revision`, so it was not approved" in refused.stderr
    plan = vault.plan()
    plan.write_text(
        plan.read_text()
        .replace("status: needs_revision", "status: review")
        .replace("trace_id", "was_id", 1)
    )
    assert "Put them back" in vault.click("approve", "say-hello", "--yes", check=False).stderr
    plan.write_text(plan.read_text().replace("was_id", "trace_id", 1))
    for empty in (
        ["reject", "say-hello", "--reason", " "],
        ["revise", "say-hello", "--comment", ""],
    ):
        assert vault.click(*empty, check=False).returncode == 2
    assert "when the daemon runs" in vault.click("approve", "say-hello", "--yes").stderr
    plan.unlink()
    done = vault.click("approve", "say-hello", "--yes", check=False)
    assert "say-hello_plan.md is not there. It was moved" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("why",),
        ("approve",),
        ("reject", "--reason", "no"),
        ("revise", "--comment", "shorter"),
        ("stop",),
        ("replay",),
        ("diff",),
        ("merge",),
        ("undo", "--yes"),
        ("drop", "--reason", "no"),
        ("journal", "--trace"),
    ],
)
def test_commands_before_first_start_find_no_request(
    vault: TestVault, command: tuple[str, ...]
) -> None:
    done = vault.click(*command, "say-hello", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no request, plan or mission 'say-hello'" in done.stderr
    assert "placet run" in done.stderr


def test_vault_option_works_before_and_after_command(vault: TestVault, tmp_path: Path) -> None:
    root = str(vault.root)
    (tmp_path / "elsewhere").mkdir()
    vault.root = tmp_path / "elsewhere"  # where the commands are given: no vault
    for command in (
        ["status", "--json"],
        ["plans"],
        ["journal", "path"],
        ["portal", "list"],
    ):
        assert vault.click(*command, check=False).returncode == 2
        after = vault.click(*command, "--vault", root).stdout
        assert vault.click("--vault", root, *command).stdout == after
        assert vault.click("--vault", str(tmp_path), *command, "--vault", root).stdout == after
    assert (
        vault.click("journal", "--vault", root, "path").stdout
        == vault.click("journal", "path", "--vault", root).stdout
    )
    vault.click("--vault", str(tmp_path / "new"), "init")
    assert (tmp_path / "new/System/placet.toml").exists()
    assert not list(vault.root.iterdir())


def test_budget_option_becomes_note_property(vault: TestVault) -> None:
    path = vault.click(
        "submit", "Say hello", "--budget-usd", "0.5", "--priority", "7"
    ).stdout.strip()
    assert (vault.root / path).read_text() == "---\npriority: 7\nbudget_usd: 0.5\n---\nSay hello\n"


def test_init_prints_pasteable_next_commands(vault: TestVault) -> None:
    said = vault.click("init", "my vault").stderr
    place = shlex.quote(str(vault.root / "my vault"))  # another terminal is in another folder
    assert f"placet run --vault {place} " in said
    assert f"placet submit --vault {place} '" in said


def test_doctor_mentions_no_key_for_keyless_server(vault: TestVault) -> None:
    vault.configure('[model]\nbase_url = "http://127.0.0.1:9"\n')
    with patch("placet.sandbox.probe", return_value=Probe(Level.NONE, ())):
        (model,) = [line for line in doctor(vault.site) if line.what == "model"]
    assert model.state == "warn"
    assert model.found.startswith("not checked: ")
    assert "key is set" not in model.found


def test_doctor_omits_unset_key(tmp_path: Path) -> None:
    with MessagesApi([]) as api:
        api.models["claude-test"] = reply()
        vault = make_vault(tmp_path, ANTHROPIC_API_KEY="")
        vault.configure(f'[model]\nname = "claude-test"\nbase_url = "{api.url}"\n')
        with patch("placet.sandbox.probe", return_value=Probe(Level.NONE, ())):
            (model,) = [line for line in doctor(vault.site) if line.what == "model"]
    assert model.state == "good", model
    assert "its server knows the model" in model.found
    assert "key" not in model.found


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (reply(), "good", "takes the key and knows the model"),
        (
            status(401, "authentication_error", "invalid x-api-key"),
            "bad",
            "status 401, authentication_error",
        ),
        (
            status(404, "not_found_error", "no such path"),
            "warn",
            "does not say whether key and name are right",
        ),
        (status(529, "overloaded_error"), "warn", "not checked: "),
    ],
)
def test_doctor_checks_key_with_server(
    tmp_path: Path, answer: Answer, state: str, said: str
) -> None:
    with MessagesApi([]) as api:
        api.models["claude-test"] = answer
        vault = make_vault(
            tmp_path, ANTHROPIC_API_KEY="sk-ant-wrong-key", ANTHROPIC_BASE_URL=api.url
        )
        vault.configure('[model]\nname = "claude-test"\n')
        with patch("placet.sandbox.probe", return_value=Probe(Level.NONE, ())):
            (model,) = [line for line in doctor(vault.site) if line.what == "model"]
    assert (model.state, api.requests) == (state, []), model
    assert said in model.found
    assert "sk-ant-wrong-key" not in str(model)


@pytest.mark.parametrize(
    "text",
    [
        "[limits]\nday_usd = -1\n",
        "[limits\n",
        '[model]\nprovider = "oracle"\n',
        '[model]\nbase_url = "ftp://x"\n',
    ],
)
def test_doctor_survives_and_reports_bad_setting(vault: TestVault, text: str) -> None:
    vault.configure(text)
    done = vault.click("doctor", check=False)
    assert done.returncode == 1
    assert "BAD " in done.stdout
    assert "\\n" not in done.stdout
    assert any(
        word in done.stdout for word in ("day_usd", "not valid TOML", "oracle", "base_url")
    ), done.stdout
    assert "git" in done.stdout
    assert "journal" in done.stdout


def test_every_failure_of_a_command_is_a_sentence(vault: TestVault, tmp_path: Path) -> None:
    vault.once()
    none = str(tmp_path / "none" / "x.db")
    assert "cannot be written" in vault.click("journal", "backup", none, check=False).stderr
    broken = vault.click(
        "submit", "--file", "-", "--priority", "3", stdin="---\nbroken: [\n---\nHi\n", check=False
    )
    assert "broken YAML" in broken.stderr
    (vault.root / "Inbox/Plans").rename(vault.root / "Inbox/Later")
    told = vault.click("doctor", check=False)
    assert told.returncode == 1
    assert "Inbox/Plans: No such file or directory" in told.stdout


def test_binary_request_is_refused(vault: TestVault, tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(b"\xff\xfe\x00")
    for given, named in (("-", "Standard input"), (str(file), str(file))):
        done = CliRunner().invoke(
            main,
            ["submit", "--file", given, "--vault", str(vault.root)],
            input=file.read_bytes(),
            env=vault.env,
        )
        assert done.exit_code == 2
        assert done.stderr.startswith(f"placet: {named} is not text in UTF-8.\n")


@pytest.mark.skipif(probe().level is Level.NONE, reason="this machine has no box")
def test_a_program_that_is_not_there_is_named(vault: TestVault) -> None:
    (vault.root / "src").mkdir()
    there = replace(vault, root=vault.root / "src")
    assert "no-such-program" in there.click("sandbox", "--", "no-such-program", check=False).stderr


def test_start_removes_temporary_files_of_dead_processes(
    vault: TestVault,
) -> None:
    vault.here()
    folder = vault_state(vault.root, vault.env).folder
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, live = folder / f"vault.json.{gone.pid}.tmp", folder / f"accepted.json.{os.getppid()}.tmp"
    config = vault.root / f"System/.placet-tmp-{gone.pid}"
    for path in (left, live, config):
        path.write_text("{")
    vault.here()
    assert (left.exists(), config.exists(), live.exists()) == (False, False, True)
