"""Test which request a note belongs to, and when a note counts as gone.

The simulation shows the rest: renamed, swapped and replaced notes, and the names of ended requests
(`TakesThePlaceForTheNote`, `TakesANoteInThePlaceForAnAbsence`, `KeepsThePlaceOfAnEndedRequest`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from unicodedata import normalize

import pytest

from looping import Fake, Time, bare_vault, greeter, looping, says
from placet.case.case import Case, KnownPlan
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.sorting import copies, sort_notes
from placet.chat.messages import Ask, Purpose, Reply
from placet.plan.digest import plan_digest
from vaultkit import TestVault

TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
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


def test_trace_id_wins_over_path() -> None:
    renamed = inspect_note(
        "Inbox/Requests/hello.md",
        f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode(),
        "ann",
    )
    newer = inspect_note("Inbox/Requests/todo.md", b"Bake a cake\n", "ann")
    plan = inspect_note(
        "System/Active/x.md",
        f"---\ntrace_id: {TRACE}\nrequest_id: todo\nrevision: 1\n---\n# X\n".encode(),
        "ann",
    )
    stray = inspect_note("Inbox/Plans/todo_plan.md", b"# Not a plan\n", "ann")
    for notes in permutations([renamed, newer, plan, stray]):
        found = sort_notes({TRACE: CASE}, notes)
        assert found.of_case[TRACE].request is renamed
        assert found.of_case[TRACE].plans == [plan]
        assert found.new == [newer]


def test_request_in_place_of_moved_plan_is_found() -> None:
    place = "Inbox/Requests/plan.md"
    case = replace(CASE, plan=replace(CASE.plan, path=place))
    raw = f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode()
    its = sort_notes({TRACE: case}, [inspect_note(place, raw, "ann")]).of_case[TRACE]
    assert its.request is not None
    assert (its.request.path, its.plans) == (place, [])


def test_request_without_properties_is_not_new() -> None:
    bare = inspect_note("Inbox/Requests/todo.md", b"Say hello, please\n", "ann")
    found = sort_notes({TRACE: CASE}, [bare])
    assert found.of_case[TRACE].request is bare
    assert not found.new


def test_slowly_copied_plan_is_not_withdrawn(tmp_path: Path) -> None:
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
            running.loop.tick()
            time.pass_time(0.2)
        vault.active().write_bytes(raw)
        running.settle()
    assert not vault.rows("plan.withdrawn")
    assert vault.rows("plan.approved")


def test_overwritten_request_is_withdrawn(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, model=lambda: Fake(greeter), time=time) as running:
        one = vault.drop("Paint the fence\n", "a.md")
        other = vault.drop("Write a letter\n", "b.md")
        running.settle()
        other.replace(one)
        running.settle()
    assert [row["entity_id"] for row in vault.rows("request.withdrawn")] == ["a"]


@pytest.mark.parametrize("apart_s", [0.0, 0.2])
def test_renamed_note_under_constant_writes_is_not_withdrawn(
    tmp_path: Path, apart_s: float
) -> None:
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
                running.loop.tick()
                time.pass_time(apart_s)
            place.write_bytes(raw + b"\n" * number)
            running.loop.tick()
            time.pass_time(0.2)
        assert not vault.rows("plan.withdrawn")
        running.settle()
    assert not vault.rows("plan.withdrawn")


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


def test_unreadable_request_is_not_withdrawn(tmp_path: Path) -> None:
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
        assert cases_of(vault)["say-hello"] == ("failed", "Inbox/Requests/Say hello.md")
        note.write_text(good.replace("status: error", "status: pending"))
        running.settle()
    assert cases_of(vault)["say-hello"] == ("review", "Inbox/Requests/Say hello.md")


@pytest.mark.parametrize("comes", ["copied", "moved"])
def test_stale_copy_of_finished_plan_reopens_nothing(tmp_path: Path, comes: str) -> None:
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


def test_note_at_plan_path_has_plan_digest() -> None:
    raw = f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode()
    note = inspect_note("Inbox/Plans/todo_plan.md", raw, "ann")
    (plan,) = sort_notes({TRACE: CASE}, [note]).of_case[TRACE].plans
    assert plan.digest == plan_digest(raw) != note.digest


@pytest.mark.parametrize(
    "name",
    [
        "X (Case Conflict)",
        "X (Selective Sync Conflict)",
        "X-HOST",
        "X 2",
        "X(1)",
        "X copy",
        "Copy of X",
    ],
)
def test_copy_with_same_text_is_asked_about(name: str) -> None:
    original, copy = (
        inspect_note(f"Inbox/Requests/{stem}.md", b"Do it\n", "") for stem in ("X", name)
    )
    assert list(copies([original, copy], [original, copy])) == [copy.path]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Inbox/Requests/X 2.md", "Do that\n"),
        ("Inbox/Requests/Y.md", "Do it\n"),
        ("Inbox/Requests/Xenon.md", "Do it\n"),
        ("Inbox/Requests/more/X 2.md", "Do it\n"),
    ],
)
def test_other_request_is_not_a_copy(path: str, text: str) -> None:
    original = inspect_note("Inbox/Requests/X.md", b"Do it\n", "")
    assert copies([note := inspect_note(path, text.encode(), "")], [original, note]) == {}
