"""Test that an attack counts as blocked only if it does not succeed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from placet.sandbox import attacks


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "secret").write_text("canary")
    found = {"outside": str(tmp_path), "canary": "canary"}
    monkeypatch.setattr(attacks, "_TARGETS", found)
    return found


def fails() -> None:
    raise PermissionError


def test_only_exception_or_signal_is_a_block() -> None:
    assert not attacks.blocked(lambda: None)
    assert attacks.blocked(fails)
    assert attacks.blocked(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_attacks_succeed_without_a_sandbox(targets: dict[str, Any], tmp_path: Path) -> None:
    for attack in (attacks.read_secret, attacks.write_outside, attacks.stat_outside):
        assert not attacks.blocked(attack), attack.__name__
    assert (tmp_path / "written").read_text() == "x"


def test_other_content_is_no_secret(targets: dict[str, Any]) -> None:
    targets["canary"] = "another"
    assert attacks.blocked(attacks.read_secret)


@pytest.mark.skipif(sys.platform != "linux", reason="a system call of Linux")
def test_failed_system_call_is_an_error() -> None:
    with pytest.raises(OSError, match="close"):
        attacks._libc("close", -1)
