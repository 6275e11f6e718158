"""Commands that run at the very moment at which a daemon takes the same request up."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from placet.cli import watch
from placet.cli import written as writing
from placet.cli.site import Site
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.loop.outbox import Outbox
from test_answer_command import QUESTION, asking_vault
from vaultkit import PLAN, TestVault, make_vault

COMMANDS = (
    ("approve", "say-hello", "--yes"),
    ("reject", "say-hello", "--reason", "No."),
    ("revise", "say-hello", "--comment", "Shorter."),
)


class Killed(BaseException):
    """The daemon's end in the middle of its work."""


def killed_before_writing(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, when: Callable[[Case], bool]
) -> None:
    """Run a daemon that is killed when it has decided on such a case, and written nothing yet."""
    real = Outbox.perform

    def perform(self: Outbox, cases: Any, *rest: Any) -> bool:
        if any(when(cases[pending.trace_id]) for pending in self.pending):
            raise Killed
        return real(self, cases, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "perform", perform)
        with pytest.raises(Killed):
            vault.here()


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    """A vault whose mission gives up; nothing is planned yet."""
    found = make_vault(tmp_path)
    found.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", PLAN)]}]),
        ("execute", [{"calls": [("give_up", {"reason": "It is nowhere."})]}]),
    )
    found.drop("# Say hello\n")
    return found


@pytest.mark.parametrize("end", [State.FAILED, State.REJECTED])
def test_a_retry_is_not_lost_in_the_writing_of_the_end(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, end: State
) -> None:
    vault.here()
    if end is State.FAILED:
        vault.approve()
    else:
        vault.plan().rename(vault.root / "Inbox/Rejected/say-hello_rejected.md")
    killed_before_writing(vault, monkeypatch, lambda case: case.state is end)
    vault.click("retry", "say-hello")
    vault.here()
    again = [row for row in vault.rows("request.detected") if row["metadata"].get("again")]
    assert len(again) == 1
    assert again[0]["metadata"]["via"] == "cli"
    assert len(vault.rows("plan.created") + vault.rows("plan.revised")) == 2


def test_a_plan_waits_for_nobody_before_its_note_is_written(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_writing(vault, monkeypatch, lambda case: case.state is State.REVIEW)
    assert vault.click("plans").stdout == "No plan waits for you.\n"
    assert "its note is written once a daemon runs" in vault.click("status").stdout
    why = vault.click("why", "say-hello").stdout
    assert "Inbox/Plans/say-hello_plan.md is still to be written." in why
    assert "Start the daemon: placet run" in why
    for command in COMMANDS:
        done = vault.click(*command, check=False)
        assert (done.returncode, "is still to be written" in done.stderr) == (1, True), command
    vault.here()
    assert "say-hello_plan.md" in vault.click("plans").stdout
    vault.click(*COMMANDS[0])


def test_a_question_waits_for_nobody_before_its_note_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = asking_vault(tmp_path, ("ask_person", QUESTION), approved=False)
    vault.approve()
    killed_before_writing(vault, monkeypatch, lambda case: case.state is State.ASKING)
    assert vault.click("plans").stdout == "No plan waits for you.\n"
    done = vault.click("answer", "say-hello", "1", check=False)
    assert "Inbox/Questions/say-hello_1.md is still to be written." in done.stderr
    vault.here()
    vault.click("answer", "say-hello", "1")


def test_a_command_waits_for_the_note_that_a_daemon_is_about_to_write(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before_writing(vault, monkeypatch, lambda case: case.state is State.REVIEW)
    monkeypatch.setattr(Site, "daemon", "one that runs")
    daemon = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: vault.here())
    monkeypatch.setattr(writing, "time", daemon)  # of this module only: the daemon waits too
    monkeypatch.setattr("placet.cli.decisions.ANSWER_S", 0)
    vault.click(*COMMANDS[0])
    monkeypatch.setattr(Site, "daemon", None)
    vault.here()
    assert vault.rows("plan.approved")


def test_an_end_that_cannot_be_written_is_still_the_end_of_a_watch(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.here()
    vault.approve()
    killed_before_writing(vault, monkeypatch, lambda case: case.state is State.FAILED)
    with closing(sqlite3.connect(vault.db)) as db, db:
        db.execute(
            "UPDATE outbox SET error = 'Read-only file system.' "
            "WHERE id = (SELECT min(id) FROM outbox WHERE done_at IS NULL)"
        )
    trace = vault.rows("plan.created")[0]["trace_id"]
    with pytest.raises(UserError, match=r"say-hello failed: .*nowhere"):
        watch.follow(vault.site, trace, lambda: pytest.fail("it is over"), as_json=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_plan_of_another_name_is_decided_on_and_one_that_was_moved_is_not_decided_on_again(
    vault: TestVault, command: tuple[str, ...]
) -> None:
    vault.here()
    text = vault.plan().read_bytes()
    vault.approve()
    done = vault.click(*command, check=False)
    assert (done.returncode, "is not there any more" in done.stderr) == (1, True)
    assert vault.active().read_bytes() == text
    vault.active().rename(vault.plan().with_name("mine.md"))
    vault.click(*command)
