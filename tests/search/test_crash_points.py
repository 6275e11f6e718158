"""Kill the daemon wherever it writes, and restart it: nothing is lost, repeated or half done.

A sample runs always. `pytest -m sweep` kills at every failpoint and at write-side system calls. It
also shows that the sweep finds the faults of a deliberately naive daemon.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KIT = Path(__file__).parents[1] / "kit"
PARTS = 3


def run(tmp_path: Path, kind: str, step: int, *rest: str, parts: int = 1) -> dict[str, Any]:
    """Run a sweep in so many processes at once; return their tallies as one.

    `step`: every so-manieth point, or rounds.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "PLACET", "GIT_"))}
    started = [
        subprocess.Popen(
            [
                sys.executable,
                str(KIT / "crashkit.py"),
                kind,
                str(tmp_path / str(part)),
                str(part),
                str(parts),
                str(step),
                *rest,
            ],
            env=env,
            cwd=KIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(parts)
    ]
    total: dict[str, Any] = {"points": 0, "killed": 0, "cut": 0, "bad": []}
    for process in started:
        out, err = process.communicate()
        assert process.returncode == 0, err
        for key, value in json.loads(out).items():
            total[key] += value
    print(
        kind,
        *rest,
        {**total, "bad": len(total["bad"])},
        *(str(bad)[:6000] for bad in total["bad"]),
        sep="\n",
    )
    return total


@pytest.mark.parametrize(("place", "step"), [("after git update-ref", 3), ("before os.rename", 2)])
@pytest.mark.thinned(2)
def test_daemon_killed_at_known_bad_point_recovers(tmp_path: Path, place: str, step: int) -> None:
    found = run(tmp_path, "failpoints", step, "", place)
    assert found["killed"] == found["points"] >= 3
    assert found["bad"] == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_killed_at_every_failpoint(tmp_path: Path) -> None:
    found = run(tmp_path, "failpoints", 1, "", parts=PARTS)
    assert found["bad"] == []
    # Whether a folder for an object is there already depends on its digest, and that on the time: a
    # few points are met or not.
    assert found["points"] * 0.98 <= found["killed"] <= found["points"]
    assert found["points"] >= 100


@pytest.mark.parametrize(
    "story",
    ["ask", *(pytest.param(one, marks=pytest.mark.sweep) for one in ("widen", "refuse"))],
)
def test_note_decided_before_restart_is_not_written_twice(tmp_path: Path, story: str) -> None:
    found = run(tmp_path, "stories", 1, story, "", "early", "after Vault.publish")
    assert found["killed"] == found["points"] >= 3
    assert found["bad"] == []


def test_box_written_before_kill_is_recognised(tmp_path: Path) -> None:
    found = run(tmp_path, "failpoints", 1, "", "before Vault.move")
    assert found["killed"] == found["points"] >= 2
    assert found["bad"] == []


def test_outbox_command_is_performed_once(tmp_path: Path) -> None:
    found = run(tmp_path, "stories", 2, "command", "", "", "after Vault.move")
    assert found["killed"] == found["points"] >= 3
    assert found["bad"] == []


def test_signed_approval_is_not_lost_or_repeated(tmp_path: Path) -> None:
    found = run(tmp_path, "stories", 9, "sign", "", "", "after Journal.commit")
    assert found["killed"] == found["points"] >= 5
    assert found["bad"] == []


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("early", ["", "early"])
@pytest.mark.parametrize("story", ["ask", "widen", "refuse", "command", "sign"])
def test_kill_at_every_failpoint_during_question_loses_nothing(
    tmp_path: Path, story: str, early: str
) -> None:
    found = run(tmp_path, "stories", 1, story, "", early, parts=PARTS)
    assert found["bad"] == []
    assert found["points"] * 0.98 <= found["killed"] <= found["points"]
    assert found["points"] >= 500


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", ["outbox", "record"])
def test_question_sweep_detects_naive_daemon(tmp_path: Path, variant: str) -> None:
    assert run(tmp_path, "stories", 25, "ask", variant, parts=PARTS)["bad"]


def test_plan_edited_without_daemon_does_not_run(tmp_path: Path) -> None:
    found = run(tmp_path, "edited", 60, "")
    assert found["killed"] >= 3
    assert found["bad"] == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_plan_edited_after_any_kill_does_not_run(tmp_path: Path) -> None:
    found = run(tmp_path, "edited", 1, "", parts=PARTS)
    assert found["killed"] >= 100
    assert found["bad"] == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", ["outbox", "record"])
def test_kill_sweep_detects_naive_daemon(tmp_path: Path, variant: str) -> None:
    assert run(tmp_path, "failpoints", 5, variant, parts=PARTS)["bad"]


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_killed_at_every_write_side_system_call(tmp_path: Path) -> None:
    found = run(tmp_path, "calls", 1, "signal=SIGKILL", parts=PARTS)
    assert found["bad"] == []
    assert found["points"] >= 250


@pytest.mark.parametrize(
    ("error", "call", "step"),
    [("ENOSPC", "os.mkdir", 7), pytest.param("EIO", "os.rename", 4, marks=pytest.mark.sweep)],
)
def test_work_waits_for_failing_disk_and_resumes(
    tmp_path: Path, error: str, call: str, step: int
) -> None:
    found = run(tmp_path, "errors", step, error, call)
    assert found["points"] >= 3
    assert found["bad"] == []


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EACCES"])
def test_an_error_at_every_call_that_writes(tmp_path: Path, error: str) -> None:
    found = run(tmp_path, "errors", 1, error, parts=PARTS)
    assert found["bad"] == []
    assert found["points"] >= 100


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EACCES"])
def test_error_at_every_second_write_call_loses_nothing(tmp_path: Path, error: str) -> None:
    found = run(tmp_path, "calls", 2, f"error={error}", parts=PARTS)
    assert found["bad"] == []


def test_one_of_six_daemons_does_the_work(tmp_path: Path) -> None:
    found = run(tmp_path, "crowd", 2, "")
    assert (found["points"], found["bad"]) == (2, [])


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_one_of_six_daemons_works_hundred_times(tmp_path: Path) -> None:
    assert run(tmp_path, "crowd", 100, "", parts=PARTS)["bad"] == []
    assert run(tmp_path / "control", "crowd", 6, "trusting")["bad"], (
        "daemons that trust each other do it twice"
    )


def test_holder_stopped_past_its_lease_writes_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, "stopped", 3, "")
    assert (found["points"], found["bad"]) == (3, [])


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_holder_stopped_at_fifty_points_writes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "stopped", 51, "", parts=PARTS)["bad"] == []
    assert run(tmp_path / "control", "stopped", 12, "trusting")["bad"], (
        "a holder that trusts in its lease does it twice"
    )
