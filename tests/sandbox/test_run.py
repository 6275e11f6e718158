"""Test what is kept of a command's output, and when its use exceeds a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placet.errors import ToolError, UserError
from placet.sandbox import run as sandbox_run
from placet.sandbox.box import Box, BoxLimits, Level
from placet.sandbox.run import CommandUsage, Kept, run, tasks_below


@pytest.mark.parametrize("piece", [1, 3, 1_000])
def test_head_and_tail_of_output_are_kept(piece: int) -> None:
    kept, data = Kept(10), b"head-" + b"x" * 90 + b"-tail"
    for at in range(0, len(data), piece):
        kept.feed(data[at : at + piece])
    assert kept.left_out == 90
    assert kept.text() == "head-\n[90 bytes left out]\n-tail"


def test_output_within_the_limit_is_whole() -> None:
    kept = Kept(10)
    kept.feed(b"0123456789")
    assert (kept.left_out, kept.text()) == (0, "0123456789")


def test_no_character_is_split() -> None:
    kept = Kept(6)
    kept.feed("éé".encode() + b"x" * 9 + "éé".encode())
    assert "\ufffd" not in kept.text()


def test_command_needs_free_space_to_start(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        CommandUsage([tmp_path], BoxLimits(free_bytes=1 << 62), 0.0)
    assert caught.value.error_type == "disk_full"


def test_lost_disk_space_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = (1_000_000, 1_000)
    monkeypatch.setattr(sandbox_run, "_left", lambda _: left)
    usage = CommandUsage([tmp_path], BoxLimits(disk_bytes=1_000, files=10, free_bytes=1), 0.0)
    assert usage.exceeded(os.getpid(), 1.0) == ""
    left = (998_999, 1_000)
    assert usage.exceeded(os.getpid(), 1.01) == "", "it is asked every 0.05 s"
    assert usage.exceeded(os.getpid(), 2.0) == "disk"
    left = (1_000_000, 989)
    assert usage.exceeded(os.getpid(), 3.0) == "disk"


@pytest.mark.parametrize(
    ("messages", "stderr", "why"),
    [
        ({"error": "no bwrap"}, "", "no bwrap"),
        ({}, "killed\n", "killed"),
        ({}, "", "without a message"),
        ({"exit-code": 1, "error": "broke later"}, "", "broke later"),
    ],
)
def test_broken_sandbox_is_no_exit_code(
    messages: dict[str, int | str], stderr: str, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        sandbox_run._exit_code(messages, stderr, Level.NONE)


def test_unfinished_message_is_left_for_later() -> None:
    assert sandbox_run._messages(b'{"child-pid": 7}\n{"exit-code": 3') == {"child-pid": 7}
    assert sandbox_run._messages(b'{"a": 1}\n{"exit-code": 3}\n')["exit-code"] == 3


def test_command_gives_code_and_both_streams(tmp_path: Path) -> None:
    ran = run(["sh", "-c", "echo out; echo err >&2; exit 3"], Box(tmp_path), Level.NONE)
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.killed) == (3, "out\n", "err\n", "")


def test_cancelled_command_leaves_no_process(tmp_path: Path) -> None:
    ran = run(
        ["sh", "-c", "sleep 60 & sleep 60"], Box(tmp_path), Level.NONE, cancelled=lambda: True
    )
    assert (ran.exit_code, ran.killed) == (None, "cancelled")
    assert tasks_below(os.getpid()) == 0
