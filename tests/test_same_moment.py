"""Commands that run at the very moment at which a daemon takes the same request up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from placet.case.case import Case
from placet.case.life_cycle import State
from placet.cli import journal
from placet.errors import UserError
from placet.loop.outbox import Outbox
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
        journal.follow(vault.site, trace, lambda: pytest.fail("it is over"), as_json=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_plan_that_was_moved_is_not_decided_on_again(
    vault: TestVault, command: tuple[str, ...]
) -> None:
    vault.here()
    text = vault.plan().read_bytes()
    vault.approve()
    done = vault.click(*command, check=False)
    assert (done.returncode, "say-hello_plan.md is not there" in done.stderr) == (1, True)
    assert vault.active().read_bytes() == text
