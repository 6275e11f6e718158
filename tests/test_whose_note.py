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
from unicodedata import normalize

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping, says
from placet.case.case import Case, KnownPlan
from placet.case.commands import Move, Stamp
from placet.case.life_cycle import State
from placet.case.notes import look_at
from placet.case.settle import AGAIN_S
from placet.case.sorting import sort_notes
from placet.chat.messages import Ask, Purpose, Reply
from placet.disk.watch import Mode
from placet.loop.outbox import OutboxPorts, perform
from placet.note.frontmatter import Frontmatter, plan_digest
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


def look(running: Running, time: Time, *hinted: str) -> None:
    """Let the daemon look once, 0.1 s later."""
    time.pass_time(0.1)
    running.loop.tick(hinted, Mode.EVENTS)


def two_requests(vault: TestVault, running: Running, time: Time) -> tuple[Path, Path]:
    notes = vault.drop("Paint the fence\n", "a.md"), vault.drop("Write a letter\n", "b.md")
    running.settle()
    time.pass_time(AGAIN_S)
    return notes


@pytest.mark.parametrize("listed", [True, False])
def test_another_note_in_its_place_takes_nothing_away(tmp_path: Path, *, listed: bool) -> None:
    """The folder may be listed before the note comes into it, and its old place after that."""
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        one, other = two_requests(vault, running, time)
        moved = vault.root / ("Inbox/Requests/Home/a.md" if listed else "Notes/a.md")
        moved.parent.mkdir()
        one.rename(moved)
        other.rename(one)
        look(running, time, "Inbox/Requests/a.md")
        (vault.root / "Inbox/Requests/Home").mkdir(exist_ok=True)
        moved.rename(vault.root / "Inbox/Requests/Home/a.md")
        running.settle()
    assert not vault.rows("request.withdrawn")
    assert cases_of(vault) == {
        "a": ("review", "Inbox/Requests/Home/a.md"),
        "b": ("review", "Inbox/Requests/a.md"),
    }


def test_a_note_under_another_one_is_gone_after_a_while(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        one, other = two_requests(vault, running, time)
        other.replace(one)
        running.settle()
    assert [row["entity_id"] for row in vault.rows("request.withdrawn")] == ["a"]


def test_plans_that_swap_names_are_not_taken_away(tmp_path: Path) -> None:
    """One of them was saved a moment before: its next hint is let through later."""
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        two_requests(vault, running, time)
        one, other = vault.plan("a"), vault.plan("b")
        one.write_text(one.read_text() + "\n")
        look(running, time, "Inbox/Plans/a_plan.md")
        between = vault.root / "Inbox/.swap"
        one.rename(between)
        other.rename(one)
        between.rename(other)
        look(running, time, "Inbox/Plans/a_plan.md", "Inbox/Plans/b_plan.md")
        running.settle()
    assert not vault.rows("plan.withdrawn")
    assert {row[0] for row in cases_of(vault).values()} == {"review"}


@pytest.mark.parametrize("apart_s", [0.0, 0.2])
def test_a_renamed_note_that_never_rests_is_not_gone(tmp_path: Path, apart_s: float) -> None:
    """A program writes on in a plan that was renamed; `apart_s` it is empty before each save."""
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        vault.drop("Say hello\n")
        running.settle()
        place = vault.plan().rename(vault.plan("renamed"))
        raw = place.read_bytes()
        for number in range(60):
            if apart_s:
                place.write_bytes(b"")
                running.loop.tick((), Mode.POLLING)
                time.pass_time(apart_s)
            place.write_bytes(raw + b"\n" * number)
            running.loop.tick((), Mode.POLLING)
            time.pass_time(0.2)
        assert not vault.rows("plan.withdrawn")
        running.settle()
    assert not vault.rows("plan.withdrawn")


@pytest.mark.parametrize("how", ["deleted", "deleted while no daemon ran", "same text"])
def test_the_name_of_an_ended_request_is_free(tmp_path: Path, how: str) -> None:
    vault = bare_vault(tmp_path)
    text = "Say hello\n" if how == "same text" else "Write a letter\n"
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        note = vault.drop("Say hello\n", "todo.md")
        running.settle()
        vault.plan("todo").rename(vault.root / "Inbox/Rejected/todo_rejected.md")
        running.settle()
        (vault.root / "Inbox/Rejected/todo_rejected.md").unlink()
        note.unlink()
        if "no daemon" not in how:
            running.settle()
            vault.drop(text, "todo.md")
            running.settle()
    vault.drop(text, "todo.md") if "no daemon" in how else None
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        running.settle()
    assert {name: state for name, (state, _) in cases_of(vault).items()} == {
        "todo": "rejected",
        "todo-2": "review",
    }
    assert len(vault.rows("plan.created")) == 2


def test_an_ended_request_without_its_properties_stays_itself(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        note = vault.drop("Say hello\n", "todo.md")
        running.settle()
        vault.plan("todo").rename(vault.root / "Inbox/Rejected/todo_rejected.md")
        running.settle()
        note.write_text("Say hello\n")
        running.settle()
    assert cases_of(vault) == {"todo": ("review", "Inbox/Requests/todo.md")}


def test_a_request_that_cannot_be_read_is_not_gone(tmp_path: Path) -> None:
    def gives_up(ask: Ask) -> Reply:
        is_plan = ask.purpose is not Purpose.EXECUTE
        return greeter(ask) if is_plan else says(("give_up", {"reason": "It is impossible."}))

    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(gives_up), time=Time()) as running:
        note = vault.drop("Say hello\n")
        running.settle()
        vault.approve()
        running.settle()
        good = note.read_text()
        note.write_text(good.replace("status:", "status: ["))
        running.settle()
        plan = vault.plan()
        plan.write_text(plan.read_text().replace("status: error", "status: pending"))
        running.settle()
        assert cases_of(vault)["say-hello"] == ("failed", "Inbox/Requests/Say hello.md")
        assert (
            "wait for the request" in vault.plan("say-hello").with_suffix(".placet.md").read_text()
        )
        note.write_text(good)
        running.settle()
    assert cases_of(vault)["say-hello"] == ("review", "Inbox/Requests/Say hello.md")


def test_a_taken_long_name_is_cut_and_numbered(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    name = "a" * 252 + ".md"
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        desk = OutboxPorts(running.loop.book.vault, lambda _: b"", Frontmatter.YAML)
        for number in range(4):
            vault.drop(f"---\ntrace_id: {TRACE}\n---\nSay {number}\n", name)
            perform(Move(f"Inbox/Requests/{name}", f"Inbox/Archive/{name}"), CASE, desk)
    kept = [note.read_text()[-2:-1] for note in (vault.root / "Inbox/Archive").iterdir()]
    assert sorted(kept) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("said", ["pending", "draft", "completed"])
def test_a_request_that_asks_again_is_not_archived(tmp_path: Path, said: str) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        desk = OutboxPorts(running.loop.book.vault, lambda _: b"", Frontmatter.YAML)
        note = vault.drop(f"---\ntrace_id: {TRACE}\nstatus: {said}\n---\nSay hello\n", "todo.md")
        seen = look_at("Inbox/Requests/todo.md", note.read_bytes(), "ann").digest
        perform(Move("Inbox/Requests/todo.md", "Inbox/Archive/todo.md", seen), CASE, desk)
        assert note.exists() == (said != "completed")


@pytest.mark.parametrize("comes", ["copied", "moved"])
def test_a_stale_copy_of_a_finished_plan_reopens_nothing(tmp_path: Path, comes: str) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        vault.drop("Say hello\n")
        running.settle()
        stale = vault.plan().read_text().replace('decision: ""', "decision: approve")
        vault.approve()
        running.settle()
        archived = vault.root / "Inbox/Archive/say-hello_plan.md"
        if comes == "copied":
            vault.plan().write_text(stale)
        else:
            archived.rename(vault.plan())
        running.settle()
        beside = vault.plan().with_suffix(".placet.md")
        assert bool(vault.rows("plan.taken_back")) == (comes == "moved")
        assert beside.exists() == (comes == "copied")
        assert not beside.exists() or f"`{archived.relative_to(vault.root)}`" in beside.read_text()


def test_composed_and_decomposed_names_are_the_same(tmp_path: Path) -> None:
    """macOS writes file names decomposed, Obsidian writes properties composed."""
    vault = bare_vault(tmp_path)
    composed, decomposed = (normalize(form, "prüfer") for form in ("NFC", "NFD"))
    vault.configure(f'[portals."{decomposed}"]\npath = "{tmp_path / "vault"}"\n')
    (vault.root / f"System/Agents/{decomposed}.md").write_text("Be as brief as a bee.\n")
    asked: list[Fake] = []

    def model() -> Fake:
        asked.append(Fake(greeter))
        return asked[-1]

    with looping(vault, model=model, time=Time()) as running:
        vault.drop(f"---\nagent: {composed}\nportal: {composed}\n---\nSay hello\n")
        running.settle()
    assert vault.rows("plan.created")
    (ask,) = (ask for model in asked for ask in model.asks)
    assert "brief as a bee" in "".join(ask.system)


def test_rows_of_edits_say_edit(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as running:
        note = vault.drop("Say hello\n")
        running.settle()
        note.write_text(note.read_text() + "And goodbye\n")
        running.settle()
    assert [row["metadata"]["via"] for row in vault.rows("request.edited")] == ["edit"]


def test_a_note_in_the_place_of_a_plan_has_a_plans_digest() -> None:
    raw = f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode()
    note = look_at("Inbox/Plans/todo_plan.md", raw, "ann")
    (plan,) = sort_notes({TRACE: CASE}, [note]).of_case[TRACE].plans
    assert plan.digest == plan_digest(raw) != note.digest
