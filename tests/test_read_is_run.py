"""What is read is what runs, at every seam: what was done to the notes while no daemon ran, or as
it began, counts first.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from looping import Fake, Time, bare_vault, greeter, looping, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from placet.disk.watch import Mode
from vaultkit import PLAN, TestVault, make_vault, running, until

WORK = [
    {"calls": [("write_file", {"path": "hello.txt", "content": "hello\n"})]},
    {"calls": [("complete_step", {"step": 1, "summary": "Hello"})]},
    {"calls": [("finish", {"summary": "Done."})]},
]
"""A mission that does what PLAN says."""


def case_of(vault: TestVault) -> dict[str, Any]:
    """Return what the journal has on the only case."""
    with closing(sqlite3.connect(vault.db)) as connection:
        ((body,),) = connection.execute("SELECT body FROM cases").fetchall()
    return dict(json.loads(body))


def approved(folder: Path) -> TestVault:
    """A vault whose only plan was approved, and whose mission has not begun: work is paused, and no
    daemon runs.
    """
    vault = make_vault(folder)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("execute", WORK))
    vault.drop("Say hello\n")
    vault.here()
    vault.configure((vault.root / "System/placet.toml").read_text() + "\n[daemon]\npaused = true\n")
    vault.approve()
    vault.here()
    assert case_of(vault)["state"] == "approved"
    vault.configure(
        (vault.root / "System/placet.toml").read_text().replace("paused = true", "paused = false")
    )
    return vault


def test_an_approved_plan_is_carried_out_by_the_next_daemon(tmp_path: Path) -> None:
    vault = approved(tmp_path)
    vault.here()
    assert case_of(vault)["state"] == "completed"


def test_an_edit_that_was_made_while_no_daemon_ran_is_seen_before_the_mission_begins(
    tmp_path: Path,
) -> None:
    vault = approved(tmp_path)
    vault.active().write_text(
        vault.active().read_text().replace("Write a greeting.", "Write an edited greeting.")
    )
    vault.here()
    assert not vault.rows("execution.started")
    (row,) = vault.rows("plan.changed_after_approval")
    assert row["metadata"]["running"] is False
    assert case_of(vault)["state"] == "review"
    assert "+Write an edited greeting." in vault.plan().read_text().replace("> ", ""), (
        "the difference is shown"
    )


def test_a_copy_from_before_the_stamp_approves_nothing_once_the_approval_was_taken_away(
    tmp_path: Path,
) -> None:
    """The person moves the plan, and deletes it before its mission begins.

    A sync tool brings back what the person had moved.
    """
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]), ("execute", WORK))
    vault.drop("Say hello\n")
    vault.here()
    vault.configure((vault.root / "System/placet.toml").read_text() + "\n[daemon]\npaused = true\n")
    vault.approve()
    moved = vault.active().read_bytes()
    with running(vault):
        vault.await_action("plan.approved")
        until(lambda: b"status: approved" in vault.active().read_bytes(), "stamped")
        vault.active().unlink()
        vault.await_action("plan.withdrawn")
    vault.configure(
        (vault.root / "System/placet.toml").read_text().replace("paused = true", "paused = false")
    )
    vault.active().write_bytes(moved)
    vault.here()
    assert not vault.rows("execution.started")
    assert vault.rows("plan.refused")
    assert case_of(vault)["state"] == "review"
    vault.approve()  # it lies in Inbox/Plans again, under the callout of today
    vault.here()
    assert case_of(vault)["state"] == "completed"


def _unreadable(vault: TestVault) -> None:
    vault.active().write_text(
        vault.active().read_text().replace("status: approved", "status: [approved")
    )


def _copied(vault: TestVault) -> None:
    shutil.copy(vault.active(), vault.root / "System/Active/copy.md")


def _no_file(vault: TestVault) -> None:
    vault.active().unlink()
    vault.active().mkdir()


@pytest.mark.parametrize("act", [_unreadable, _copied, _no_file])
def test_a_mission_whose_note_cannot_be_judged_does_not_begin_and_says_so(
    tmp_path: Path, act: Callable[[TestVault], None]
) -> None:
    vault = approved(tmp_path)
    act(vault)
    vault.once(code=1)
    assert not vault.rows("execution.started")
    assert list((vault.root / "System/Active").glob("*.placet.md"))


@pytest.mark.parametrize(
    ("where", "state"),
    [("Inbox/Plans/x.md", "review"), ("Inbox/Rejected/x.md", "rejected"), ("mine.md", "withdrawn")],
)
def test_a_plan_that_was_moved_away_while_no_daemon_ran_does_not_begin(
    tmp_path: Path, where: str, state: str
) -> None:
    vault = approved(tmp_path)
    vault.active().rename(vault.root / where)
    vault.here()
    assert not vault.rows("execution.started")
    assert case_of(vault)["state"] == state


def test_a_plan_that_was_renamed_in_active_while_no_daemon_ran_begins(tmp_path: Path) -> None:
    vault = approved(tmp_path)
    vault.active().rename(vault.active("another name"))
    vault.here()
    assert case_of(vault)["state"] == "completed"


def test_an_edit_between_the_look_and_the_start_voids_the_approval(tmp_path: Path) -> None:
    """The note is read once more as its mission is about to begin: here a save comes after the look
    that would let it begin.
    """
    vault = bare_vault(tmp_path)
    time = Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        vault.drop("Say hello\n")
        running.settle()
        vault.approve()
        start = running.loop.dispatch.start_work

        def saved_just_before() -> None:
            if case_of(vault)["state"] == "approved" and "edited" not in vault.active().read_text():
                vault.active().write_text(
                    vault.active()
                    .read_text()
                    .replace("Write a greeting.", "Write an edited greeting.")
                )
            start()

        type(running.loop.dispatch).start_work, kept = (
            (lambda _: saved_just_before()),
            type(running.loop.dispatch).start_work,
        )
        try:
            running.settle()
        finally:
            type(running.loop.dispatch).start_work = kept  # type: ignore[method-assign]
    assert not vault.rows("execution.started")
    assert case_of(vault)["state"] == "review"


def under_way(folder: Path) -> TestVault:
    """A vault whose only mission was left after its first turn, which read the folder.

    Its daemon was ended.
    """
    vault = bare_vault(folder)

    def leaves(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return greeter(ask)
        running.loop.ports.leaving.set()
        return says(("list_directory", {"path": "."}))

    with looping(vault, model=lambda: Fake(leaves)) as running:
        vault.drop("Say hello\n")
        running.settle()
        vault.approve()
        until(lambda: running.loop.tick((), Mode.POLLING) and running.loop.ports.leaving.is_set())
    assert case_of(vault)["state"] == "running"
    return vault


def rest(vault: TestVault) -> list[Ask]:
    """Let the next daemon work until nothing is left to do; return what its model was asked."""
    model = Fake(
        lambda ask: (
            says(
                ("write_file", {"path": "hello.txt", "content": "hello\n"}),
                ("complete_step", {"step": 1, "summary": "Hello"}),
            )
            if turns_taken(ask) < 2
            else says(("finish", {"summary": "Done."}))
        )
    )
    with looping(vault, model=lambda: model) as running:
        running.settle()
    return model.asks


def test_a_mission_that_was_under_way_goes_on_with_the_approved_text_and_the_edit_is_shown(
    tmp_path: Path,
) -> None:
    vault = under_way(tmp_path)
    note = vault.active()
    note.write_text(note.read_text().replace("Write a greeting.", "Write an edited greeting."))
    asked = rest(vault)
    assert "edited greeting" not in str(asked)
    (row,) = vault.rows("plan.changed_after_approval")
    assert row["metadata"]["running"] is True
    assert case_of(vault)["state"] == "completed"


def test_a_mission_whose_plan_was_taken_away_while_no_daemon_ran_does_not_go_on(
    tmp_path: Path,
) -> None:
    vault = under_way(tmp_path)
    vault.active().rename(vault.plan())
    assert rest(vault) == []
    assert vault.rows("plan.taken_back")
    assert vault.rows("execution.failed")


def test_a_text_that_was_damaged_in_the_journal_is_mended_by_the_note_that_has_it(
    tmp_path: Path,
) -> None:
    """The request still says in the vault what the journal lost: to ask again is enough."""
    vault = make_vault(tmp_path)
    vault.script(
        ("plan", [{"calls": [("submit_plan", PLAN)]}]),
        ("revise", [{"calls": [("submit_plan", PLAN)]}]),
        ("execute", [{"calls": [("give_up", {"reason": "no"})]}]),
    )
    vault.drop("Say hello\n")
    vault.here()
    vault.approve()
    vault.here()
    with closing(sqlite3.connect(vault.db)) as connection, connection:
        assert connection.execute("UPDATE texts SET body = x'00'").rowcount
    vault.click("retry", "say-hello")
    vault.here()
    assert vault.rows("plan.revised")
    assert not vault.rows("plan.failed")
