"""Test how a mission resumes after a crash, and when it cannot."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import pytest

from benchkit import recorded
from gitkit import git, make_repo
from placet.agent import planner
from placet.agent.record import (
    ATTEMPT,
    CALL,
    CHECKPOINT,
    NOTICED,
    TURN,
    Attempted,
    Postponed,
    Prepared,
    Record,
    Recorded,
)
from placet.agent.work import private_dir
from placet.chat.budget import Amount
from placet.errors import Interrupted
from placet.git.repository import open_repo
from placet.journal.writes import Write
from placet.tools.base import Outcome
from vaultkit import PLAN, TestVault, make_vault, running, until

SLOW: dict[str, Any] = {
    **PLAN,
    "scope": {"write": ["hello.txt"], "run": ["python3 step.py"]},
    "steps": [{"title": "Write it", "tools": ["write_file", "edit_file", "run_command"]}],
}
COMMAND = ("run_command", {"command": "python3", "args": ["step.py"]})


def vault_with(tmp_path: Path, *replies: dict[str, Any], plan: dict[str, Any] = SLOW) -> TestVault:
    """A vault whose mission is approved.

    Its command adds a line, and then takes 30 s unless `quick` is there or it has an argument.
    """
    vault = make_vault(tmp_path)
    (vault.root / "step.py").write_text(
        "import pathlib, sys, time\n"
        "p = pathlib.Path('hello.txt')\n"
        "p.write_text((p.read_text() if p.exists() else '') + 'more\\n')\n"
        "if sys.argv[1:]: sys.exit()\n"
        "pathlib.Path('began').write_text('')\n"
        f"time.sleep(30 if not pathlib.Path({str(tmp_path / 'quick')!r}).exists() else 0)\n"
    )
    vault.configure('[commands]\nsandbox = "none"\n')
    vault.plays(plan, *list(replies))
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    return vault


def kill_in_command(vault: TestVault) -> None:
    with running(vault) as process:
        until(lambda: list(vault.state.glob("*/worktrees/*/began")), "the command began")
        process.kill()
        process.wait()


def asked(vault: TestVault) -> int:
    """Return how often a first reply was asked for."""
    with sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True) as connection:
        found = connection.execute(
            "SELECT count(*) FROM records WHERE key = 'attempt:reply:1:1' AND kind = 'intent'"
        ).fetchone()[0]
    connection.close()
    return int(found)


@pytest.mark.parametrize("said", ["/home/ann", "/code/.git/worktrees/hers", "..", ""])
def test_record_cannot_name_git_folder(tmp_path: Path, said: str) -> None:
    repo = open_repo(make_repo(tmp_path / "code"))
    folder, recorded = repo.common_dir / "worktrees", tmp_path / "ann" / "ab12-1"
    for name, found in ((said, "ab12-1"), ("/elsewhere/ab12-12", "ab12-12")):
        record = Recorded(outcomes={"branch": json.dumps(name).encode()})
        assert private_dir(repo, recorded, record) == folder / found


WRITE = ("write_file", {"path": "hello.txt", "content": "one\n"})
END = {
    "calls": [("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})]
}


def test_interrupted_command_repeats_from_checkpoint(tmp_path: Path) -> None:
    vault = vault_with(tmp_path, {"calls": [WRITE]}, {"calls": [COMMAND]}, END)
    kill_in_command(vault)
    (tmp_path / "quick").touch()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:hello.txt") == "one\nmore"  # once
    went_on = vault.rows("execution.resumed")[0]["metadata"]
    assert went_on["iteration"] == 2
    assert went_on["from"].startswith("checkpoint ")
    assert git(vault.root, "for-each-ref", "refs/placet/ckpt") == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a box ends with its daemon")
def test_leftover_process_in_worktree_is_killed_first(tmp_path: Path) -> None:
    vault = vault_with(tmp_path, {"calls": [WRITE]}, {"calls": [COMMAND]}, END)
    kill_in_command(vault)
    (tmp_path / "quick").touch()
    (began,) = vault.state.glob("*/worktrees/*/began")
    worktree = began.parent
    # A process with the words of bwrap, whose child can outlive it if it is killed as it starts.
    words = ["--new-session", "--bind", worktree, worktree, "--"]
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *words])
    try:
        vault.once()
        assert left.poll() == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()
    assert vault.rows("execution.completed")


def test_deletion_before_interrupted_command_is_repeated(tmp_path: Path) -> None:
    delete = ("delete_file", {"path": "hello.txt"})
    tools = ["write_file", "delete_file", "run_command"]
    plan = {**SLOW, "steps": [{"title": "Write it", "tools": tools}]}
    vault = vault_with(tmp_path, {"calls": [WRITE]}, {"calls": [delete, COMMAND]}, END, plan=plan)
    kill_in_command(vault)
    (tmp_path / "quick").touch()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:hello.txt") == "more"
    assert [row["metadata"]["tool"] for row in vault.rows("tool.called")].count("delete_file") == 1


def test_writes_before_interrupted_command_are_restored(tmp_path: Path) -> None:
    edit = ("edit_file", {"path": "hello.txt", "old": "one", "new": "two"})
    vault = vault_with(tmp_path, {"calls": [WRITE, edit, COMMAND]}, END)
    kill_in_command(vault)
    (tmp_path / "quick").touch()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:hello.txt") == "two\nmore"
    assert [row["metadata"]["tool"] for row in vault.rows("tool.called")].count("edit_file") == 1


def test_model_learns_of_interruption_after_finished_command(tmp_path: Path) -> None:
    first = ("run_command", {"command": "python3", "args": ["step.py", "quick"]})
    vault = vault_with(tmp_path, {"calls": [WRITE, first, COMMAND]}, {"calls": [WRITE]}, END)
    kill_in_command(vault)
    (tmp_path / "quick").touch()
    vault.once()
    assert vault.rows("execution.resumed")[0]["metadata"]["from"] == "record"
    called = [row["metadata"] for row in vault.rows("tool.called")]
    assert [c["error_type"] for c in called if c["tool"] == "run_command"] == ["", "interrupted"]
    assert len(vault.rows("execution.completed")) == 1


def test_missing_worktree_is_rebuilt_on_resume(tmp_path: Path) -> None:
    vault = vault_with(
        tmp_path,
        {"calls": [("write_file", {"path": "hello.txt", "content": "zero\n"})]},
        {"calls": [WRITE, COMMAND]},
        END,
    )
    kill_in_command(vault)
    shutil.rmtree(next(vault.state.glob("*/worktrees/*/began")).parent)
    (tmp_path / "quick").touch()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:hello.txt") == "one\nmore"


@pytest.mark.parametrize("reply", ["command", "step"])
def test_unrebuildable_worktree_fails_mission_and_reports_work(tmp_path: Path, reply: str) -> None:
    """With what no commit had, which the report and `why` name, and without a branch."""
    quick = ("run_command", {"command": "true", "args": []})
    scope = {"write": ["*.txt"], "run": ["python3 step.py", "true"]}
    done = ("complete_step", {"step": 1, "summary": "One"})
    kept = ("write_file", {"path": "two.txt", "content": "no commit has this\n"})
    vault = vault_with(
        tmp_path,
        {"calls": [WRITE, *([done] if reply == "command" else [])]},
        {"calls": [kept]},
        # in the second case the branch goes on after the checkpoint that is left
        {"calls": [quick, *([done] if reply == "step" else []), COMMAND]},
        plan={**SLOW, "scope": scope, "steps": [SLOW["steps"][0], SLOW["steps"][0]]},
    )
    kill_in_command(vault)
    shutil.rmtree(next(vault.state.glob("*/worktrees/*/began")).parent)
    vault.once()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["reason"] == "repository"
    assert git(vault.root, "branch", "--list", "feat/*") == ""
    (ref,) = git(vault.root, "for-each-ref", "--format=%(refname)", "refs/placet").splitlines()
    assert git(vault.root, "show", f"{ref}:two.txt") == "no commit has this"
    assert git(vault.root, "show", f"{ref}:hello.txt") == "one"
    assert f"branch rescue {ref}" in vault.reports()[0].read_text()
    assert ref in vault.click("why", "say-hello").stdout
    assert failed["files_changed"] == ["hello.txt", "two.txt"]
    assert list(vault.state.glob("*/worktrees/*")) == []


def test_read_only_round_makes_no_checkpoint(tmp_path: Path) -> None:
    vault = vault_with(
        tmp_path, {"calls": [("read_file", {"path": "step.py"})]}, {"calls": [COMMAND]}, END
    )
    kill_in_command(vault)
    assert git(vault.root, "for-each-ref", "refs/placet/ckpt") == ""
    base = vault.rows("git.branch_created")[0]["metadata"]["base"]
    (tmp_path / "quick").touch()
    vault.once()
    done = vault.rows("execution.completed")[0]["metadata"]
    assert git(vault.root, "show", f"{done['branch']}:hello.txt") == "more"
    assert vault.rows("execution.resumed")[0]["metadata"]["from"] == f"checkpoint {base[:12]}"


def test_no_secret_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    vault = vault_with(
        tmp_path,
        {"calls": [("write_file", {"path": "hello.txt", "content": key + "\n"})]},
        {"calls": [("write_file", {"path": "hello.txt", "content": "clean\n"})]},
        END,
    )
    vault.once()
    assert len(vault.rows("execution.completed")) == 1
    everything = git(vault.root, "cat-file", "--batch-all-objects", "--batch")
    assert "clean" in everything
    assert key not in everything


@pytest.mark.parametrize(("orderly", "planned"), [(False, False), (True, True)])
def test_three_planning_crashes_fail_the_plan(tmp_path: Path, orderly: bool, planned: bool) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    real, lives = planner._talk, []

    def left(*given: Any) -> Any:
        lives.append(given)
        if len(lives) < 5:
            raise Interrupted("the daemon ends")
        return real(*given)

    # Who is killed does not write down that it leaves.
    noted = Record.end_run if orderly else lambda _record: None
    with patch.object(planner, "_talk", left), patch.object(Record, "end_run", noted):
        vault.here()
    assert vault.plan().exists() is planned
    assert len(lives) == (5 if planned else 3)
    if not planned:
        failed = vault.rows("plan.failed")[0]["metadata"]
        assert "crashed 3 times in a row at the same place" in failed["reason"]
        assert [event.pattern for event in vault.failures_told()] == ["crash_loop"]


def test_three_crashes_at_same_place_fail_mission(tmp_path: Path) -> None:
    vault = vault_with(tmp_path, {"calls": [WRITE]}, {"calls": [COMMAND]}, END)
    for _ in range(3):
        kill_in_command(vault)
        for left in vault.state.glob("*/worktrees/*/began"):
            left.unlink()
    vault.once()
    failed = vault.rows("execution.failed")[0]["metadata"]
    assert failed["reason"] == "crash_loop"
    assert failed["iterations"] == 2
    words = vault.reports()[0].read_text()
    assert "crashed 3 times in a row at the same place" in words
    assert "write_file (1)" in words
    assert git(vault.root, "show", f"{failed['kept']}:hello.txt").startswith("one")
    assert git(vault.root, "for-each-ref", "refs/placet/ckpt") == ""


def test_graceful_stop_finishes_round_in_flight(tmp_path: Path) -> None:
    """The reply that is being waited for is not thrown away, and what it asks for is done.

    No other is asked for.
    """
    vault = vault_with(tmp_path, {"delay_s": 3, "calls": [WRITE]}, END)
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + "[daemon]\nstop_grace_s = 60\n"
    )
    with running(vault) as process:
        until(lambda: asked(vault) == 2, "the mission's model is asked")
        process.terminate()
        process.wait(90)
    assert [row["metadata"]["tool"] for row in vault.rows("tool.called")] == ["write_file"]
    assert [row["metadata"]["purpose"] for row in vault.rows("model.called")] == ["plan", "execute"]
    assert "execution.completed" not in vault.actions()
    vault.once()
    assert len(vault.rows("execution.completed")) == 1


def test_stop_waits_no_longer_than_configured(tmp_path: Path) -> None:
    vault = vault_with(tmp_path, {"delay_s": 20, "calls": [WRITE]})
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(config + "[daemon]\nstop_grace_s = 60\n")
    with running(vault) as process:
        until(lambda: asked(vault) == 2, "the mission's model is asked")
        vault.configure(config + "[daemon]\nstop_grace_s = 0.5\n")
        vault.drop("---\nporta: x\n---\nLook.\n", "Later.md")  # what shows that it looked
        beside = vault.root / "Inbox/Requests/Later.placet.md"
        until(beside.exists, "it looked")
        began = time.monotonic()
        process.terminate()
        process.wait(90)
    assert time.monotonic() - began < 18  # the reply comes after 20 s
    assert [row["metadata"]["purpose"] for row in vault.rows("model.called")] == ["plan"]
    assert vault.rows("daemon.stopped")


class SlowCarrier:
    """Carries commits once it is let, or says why it cannot."""

    def __init__(self, why: Exception | None = None) -> None:
        self.may, self.carried, self.why = Event(), 0, why

    def writes(self) -> list[Write]:
        if not self.carried:
            assert self.may.wait(30)
            if self.why is not None:
                raise self.why
        return []

    def sent(self) -> None:
        self.carried += 1


def known(record: Record) -> Recorded:
    """Return what another machine would find on the record."""
    return Record.load(record.journal, record.case, record.attempt, record.clock)


CALLED, ATTEMPTED = CALL.at(1, 0), Attempted(Amount(1))


def under_way(record: Record, carrier: SlowCarrier) -> None:
    """Let a call's commit be on its way while the model is asked."""
    record.carrier = carrier
    record.settle(CALLED, Outcome("done", ok=True), hold=True)
    record.settle(CHECKPOINT.at("after", CALLED.key), "c0ffee", hold=True)
    record.carry()
    record.settle(TURN.at(2), Prepared((), None), hold=True)
    record.intend(ATTEMPT.at(2, 1), ATTEMPTED, ahead=True)


def test_model_is_asked_while_commit_is_carried(tmp_path: Path) -> None:
    carrier = SlowCarrier()
    with recorded(tmp_path) as (record, _):
        under_way(record, carrier)
        found = known(record)
        assert found.begun(ATTEMPT.at(2, 1)) == ATTEMPTED
        assert not found.has(CALLED), "no machine has its commit"
        assert not found.has(TURN.at(2)), "it rests on the call"
        reply = Thread(target=record.settle, args=(NOTICED, "a reply"))
        reply.start()
        time.sleep(0.2)
        assert not known(record).has(NOTICED), "a reply waits for what it rests on"
        carrier.may.set()
        reply.join(30)
        found = known(record)
        assert all(
            map(found.has, (CALLED, CHECKPOINT.at("after", CALLED.key), TURN.at(2), NOTICED))
        )
        with record.journal.read() as reader:
            rows = reader.records(record.case.trace_id, record.attempt)
        assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
        assert rows[0].key == ATTEMPT.at(2, 1).key


def test_reply_without_carried_commit_is_not_recorded(tmp_path: Path) -> None:
    carrier = SlowCarrier(Postponed("away", 1.0))
    with recorded(tmp_path) as (record, _):
        record.start_run()
        under_way(record, carrier)
        carrier.may.set()
        for _ in range(2):
            with pytest.raises(Postponed):
                record.settle(NOTICED, "a reply")
        record.end_run()
        record.close()
        found = known(record)
        assert not any(map(found.has, (CALLED, CHECKPOINT.at("after", CALLED.key), NOTICED)))
        again = Record.load(record.journal, record.case, record.attempt, record.clock)
        assert again.start_run() == 0, "that is no crash"


def test_end_of_life_waits_for_carried_commit(tmp_path: Path) -> None:
    carrier = SlowCarrier()
    with recorded(tmp_path) as (record, _):
        record.start_run()
        under_way(record, carrier)
        ends = Thread(target=record.end_run)
        ends.start()
        carrier.may.set()
        ends.join(30)
        record.close()
        assert all(map(known(record).has, (CALLED, CHECKPOINT.at("after", CALLED.key))))
