"""Whose note it is: its `trace_id` says so; its place only where no other note has the `trace_id`.

And when a note is gone.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from pathlib import Path

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping
from placet.core.life.case import Case, KnownPlan, State
from placet.core.life.commands import Move, Stamp
from placet.core.life.sight import look_at
from placet.core.life.sorting import sort_notes
from placet.core.text.blocks import Frontmatter
from placet.host.watch import Mode
from placet.loop.outbox import OutboxPorts, perform
from vaultkit import TestVault

TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
OTHER = "11111111-2222-4333-8444-555555555555"
CASE = Case(
    TRACE,
    "todo",
    State.REVIEW,
    request_path="Inbox/Requests/todo.md",
    plan=KnownPlan(path="Inbox/Plans/todo_plan.md", revision=1),
)


def cases_of(vault: TestVault) -> dict[str, tuple[str, str]]:
    """Return by request_id the state and the request's place."""
    with closing(sqlite3.connect(vault.db)) as connection:
        return {
            name: (state, path)
            for name, state, path in connection.execute(
                "SELECT request_id, state, body->>'request_path' FROM cases"
            )
        }


def test_the_trace_wins_over_the_place_in_every_order() -> None:
    renamed = look_at(
        "Inbox/Requests/hello.md",
        f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode(),
        "ann",
    )
    newer = look_at("Inbox/Requests/todo.md", b"Bake a cake\n", "ann")
    plan = look_at(
        "System/Active/x.md",
        f"---\ntrace_id: {TRACE}\nrequest_id: todo\nrevision: 1\n---\n# X\n".encode(),
        "ann",
    )
    stray = look_at("Inbox/Plans/todo_plan.md", b"# Not a plan\n", "ann")
    for notes in permutations([renamed, newer, plan, stray]):
        found = sort_notes({TRACE: CASE}, notes)
        assert found.of_case[TRACE].request is renamed
        assert found.of_case[TRACE].plans == [plan]
        assert found.new == [newer]


def test_an_editor_that_drops_the_properties_makes_no_new_request_of_a_note() -> None:
    bare = look_at("Inbox/Requests/todo.md", b"Say hello, please\n", "ann")
    found = sort_notes({TRACE: CASE}, [bare])
    assert found.of_case[TRACE].request is bare
    assert not found.new


@pytest.mark.parametrize("looks", ["none", "between", "down"])
@pytest.mark.parametrize("first", ["rename", "write"])
@pytest.mark.thinned(3)
def test_a_renamed_request_keeps_its_case_and_what_has_its_name_is_a_new_one(
    tmp_path: Path, looks: str, first: str
) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        note = vault.drop("Say hello\n", "todo.md")
        running.settle()
        rename_and_write(vault, note, first, running if looks == "between" else None)
        if looks != "down":
            running.settle()
    if looks == "down":
        with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
            running.settle()
    assert cases_of(vault) == {
        "todo": ("review", "Inbox/Requests/hello.md"),
        "todo-2": ("review", "Inbox/Requests/todo.md"),
    }
    assert not vault.rows("request.edited")


def rename_and_write(vault: TestVault, note: Path, first: str, running: Running | None) -> None:
    look: Callable[[], object] = running.settle if running is not None else lambda: None
    if first == "rename":
        note.rename(note.with_name("hello.md"))
        look()
        vault.drop("Bake a cake\n", "todo.md")
    else:  # as a program does that keeps the old text under another name and writes a new one over it
        os.link(note, note.with_name("hello.md"))
        new = note.with_name("todo.md.tmp")
        new.write_text("Bake a cake\n")
        new.replace(note)


def test_a_command_for_a_note_touches_no_other_that_has_its_name_by_now(tmp_path: Path) -> None:
    """A stamp that was recorded before a crash is done after a person has put something else in the
    note's place.
    """
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        desk = OutboxPorts(running.loop.book.vault, lambda _: b"", Frontmatter.YAML)
        mine = vault.drop("Bake a cake\n", "todo.md")
        perform(Stamp("Inbox/Requests/todo.md", {"trace_id": TRACE}, "0" * 64), CASE, desk)
        assert mine.read_text() == "Bake a cake\n"
        mine.write_text(f"---\ntrace_id: {OTHER}\n---\nBake a cake\n")
        perform(Stamp("Inbox/Requests/todo.md", {"status": "planned"}), CASE, desk)
        perform(Move("Inbox/Requests/todo.md", "Inbox/Archive/todo.md"), CASE, desk)
        assert mine.read_text() == f"---\ntrace_id: {OTHER}\n---\nBake a cake\n"


@pytest.mark.parametrize("known", [True, False])
def test_a_note_that_is_written_all_the_time_holds_no_absence_back(
    tmp_path: Path, known: bool
) -> None:
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        vault.drop("Say hello\n")
        if known:
            vault.drop("It began\n", "Transcript.md")
        running.settle()
        transcript = vault.root / "Inbox/Requests/Transcript.md"
        vault.plan().unlink()
        took = 0.0
        while not vault.rows("plan.withdrawn") and took < 30:
            with transcript.open("a") as file:
                file.write("and then she said\n")
            running.loop.tick((), Mode.POLLING)
            time.pass_time(0.2)
            took += 0.2
    assert took < (1.5 if known else 6.5)


def test_a_new_note_that_is_still_written_may_be_the_one_that_is_missed(tmp_path: Path) -> None:
    """A plan that is copied into another folder piece by piece, and removed where it lay: it was
    not taken away.
    """
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        vault.drop("Say hello\n")
        running.settle()
        raw = vault.plan().read_bytes()
        vault.plan().unlink()
        for end in range(0, len(raw), len(raw) // 10):
            vault.active().write_bytes(raw[:end])
            running.loop.tick((), Mode.POLLING)
            time.pass_time(0.2)
        vault.active().write_bytes(raw)
        running.settle()
    assert not vault.rows("plan.withdrawn")
    assert vault.rows("plan.approved")
