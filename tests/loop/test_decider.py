"""Test that the daemon renews only the statuses of unchanged notes."""

from __future__ import annotations

from pathlib import Path

from tests.case.test_observe import edit, vault_with_plan

from looping import Fake, greeter, looping
from placet.case.notes import inspect_note
from placet.case.sorting import CaseNotes


def test_lost_status_is_stamped_again_after_rename(tmp_path: Path) -> None:
    vault = vault_with_plan(tmp_path)
    with looping(vault, model=lambda: Fake(greeter)) as run:
        run.settle()
        note = vault.root / "Inbox/Requests/Say hello.md"
        edit(note, "status: planned", "status: planning")
        note = note.rename(note.with_name("Greet.md"))
        run.settle()
        assert "status: planned" in note.read_text()


def test_a_note_that_changes_meanwhile_gets_no_status(tmp_path: Path) -> None:
    vault = vault_with_plan(tmp_path)
    note = vault.root / "Inbox/Requests/Say hello.md"
    with looping(vault, model=lambda: Fake(greeter)) as run:
        run.settle()
        edit(note, "status: planned", "status: planning")
        (case,) = run.loop.cases.values()
        old = inspect_note("Inbox/Requests/Say hello.md", note.read_bytes(), "cleo")
        edit(note, "status: planning", "status: pending")
        run.loop.decider._renew_statuses(case, CaseNotes(old))
        assert "status: pending" in note.read_text()
