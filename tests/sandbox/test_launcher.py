"""Test the launcher of commands: its limits, its messages, and that it kills what it started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from placet.sandbox import launcher
from vaultkit import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and subreapers")


PYTHON = (sys.executable, "-I", "-S")


class Launched:
    """A launcher that runs a command, its status, and the lifeline that ends it."""

    def __init__(self, folder: Path, script: str, *items: str) -> None:
        self._status, status = os.pipe()
        lifeline, self._lifeline = os.pipe()
        words = [f"status={status}", f"lifeline={lifeline}", f"folder={folder}", "processes=64"]
        self.process = subprocess.Popen(
            [*PYTHON, launcher.__file__, *words, *items, "--", "/bin/sh", "-c", script],
            pass_fds=(status, lifeline),
            start_new_session=True,
        )
        os.close(status)
        os.close(lifeline)

    def cut(self) -> None:
        """Close the lifeline, and wait for the launcher."""
        os.close(self._lifeline)
        self.process.wait(30)

    def messages(self) -> dict[str, int | str]:
        """Return all that it told, once it ended."""
        self.process.wait(30)
        with open(self._status, "rb") as file:  # noqa: PTH123 - a handle
            lines = [json.loads(line) for line in file]
        return {key: value for line in lines for key, value in line.items()}


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exec false", 1)]
)
def test_exit_code_of_command_is_told(tmp_path: Path, script: str, code: int) -> None:
    started = Launched(tmp_path, script)
    assert started.messages()["exit-code"] == code
    started.cut()


def test_missing_folder_is_told_and_nothing_starts(tmp_path: Path) -> None:
    started = Launched(tmp_path / "gone", f"touch {tmp_path / 'made'}")
    assert "gone" in str(started.messages()["error"])
    started.cut()
    assert not (tmp_path / "made").exists()


def test_closed_lifeline_kills_daemonised_processes(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeps = f"setsid sh -c 'echo $$ > {pid}; exec sleep 600' & sleep 600"
    started = Launched(tmp_path, sleeps)
    try:
        until(lambda: pid.exists() and pid.read_text().strip(), "its start", 30)
    finally:
        started.cut()
    assert "exit-code" not in started.messages()
    assert not Path("/proc", pid.read_text().strip()).exists()


def test_limit_is_in_force_for_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    started = Launched(tmp_path, f"ulimit -f > {out}", "limit=FSIZE:4096")
    assert started.messages()["exit-code"] == 0
    started.cut()
    assert out.read_text() == "8\n", "blocks of 512 bytes"


def test_parents_of_running_processes_are_known() -> None:
    assert launcher._parents()[os.getpid()] == os.getppid()
    assert launcher._tasks_of_this_user() >= 1
