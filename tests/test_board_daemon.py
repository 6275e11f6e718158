"""The board as a part of the daemon: it comes and goes with it, and gets none of its secrets."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from placet.cli.board import child
from vaultkit import TestVault, make_vault, running, until

ON = '[board]\nenabled = true\nlisten = "127.0.0.1:0"\n'


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    vault = make_vault(tmp_path)
    vault.configure(ON + (vault.root / "System" / "placet.toml").read_text())
    return vault


def where(vault: TestVault) -> Path:
    return vault.db.parent / "board.at"


def test_a_link_opens_the_board_that_the_daemon_serves(vault: TestVault) -> None:
    with running(vault):
        until(where(vault).exists, "the board")
        other = vault.cli("board", "--listen", "127.0.0.1:0", check=False)
        assert "The board of this vault runs already" in other.stderr
        assert "placet board login" in other.stderr
        link = vault.cli("board", "login", "--name", "Anna").stdout.strip()
        with urllib.request.urlopen(link, timeout=10) as page:
            assert b"logs this browser in" in page.read()
    until(lambda: not where(vault).exists(), "the end of the board")
    assert "No board of this vault runs." in vault.cli("board", "login", check=False).stderr


def test_a_board_ends_with_a_daemon_that_was_killed(vault: TestVault) -> None:
    with running(vault) as daemon:
        until(where(vault).exists, "the board")
        at = json.loads(where(vault).read_text())
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        until(lambda: not where(vault).exists(), "the end of the board")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{at['port']}/", timeout=5)


def test_a_board_gets_no_secret_of_the_daemon(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it gets is what the process shows: a program in its place writes that down."""
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho broken >&2\nexit 3\n")
    spy.chmod(0o700)
    monkeypatch.setattr(child.sys, "executable", str(spy))
    said: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    env: Mapping[str, str] = {
        **vault.env,
        "ANTHROPIC_API_KEY": "sk-ant-secret",
        "CREDENTIALS_DIRECTORY": "/run/credentials",
        "PATH": os.environ["PATH"],
    }
    with child.board_beside(vault.root, env, say):
        assert told.wait(10)
    assert said == ["The board has ended: broken. It is started again in 60 s."]
    seen = (tmp_path / "seen").read_text()
    assert "sk-ant" not in seen
    assert "CREDENTIALS" not in seen
    assert f"PLACET_STATE_HOME={vault.env['PLACET_STATE_HOME']}" in seen


def test_a_board_that_ended_is_started_again(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\necho once >> {tmp_path}/runs\n")
    spy.chmod(0o700)
    monkeypatch.setattr(child.sys, "executable", str(spy))
    monkeypatch.setattr(child, "AGAIN_S", 0.01)
    runs = tmp_path / "runs"
    with child.board_beside(vault.root, vault.env, lambda _: None):
        until(lambda: runs.exists() and len(runs.read_text().splitlines()) > 2, "three starts")


def test_a_board_is_no_setting_that_a_synced_vault_can_make(vault: TestVault) -> None:
    off = (vault.root / "System" / "placet.toml").read_text().replace(ON, "")
    vault.configure(off)
    with running(vault):
        pass
    vault.configure(ON + off, accepted=False)
    with running(vault):
        assert "board.enabled" in vault.cli("status").stdout
        assert not where(vault).exists()
