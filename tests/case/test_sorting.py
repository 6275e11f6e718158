"""Test which request a note belongs to, and when a note counts as gone.

The simulation shows the rest: renamed, swapped and replaced notes, and the names of ended requests
(`TakesThePlaceForTheNote`, `TakesANoteInThePlaceForAnAbsence`, `KeepsThePlaceOfAnEndedRequest`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from unicodedata import normalize

import pytest

from looping import Fake, Time, bare_vault, greeter, looping
from placet.activity import Action
from placet.case import sorting
from placet.case.callout import box_of, with_box
from placet.case.case import Case, KnownPlan
from placet.case.decide import decide
from placet.case.events import RequestGone, RequestPending
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.case.observe import gestures, observe
from placet.case.sorting import copies, sort_notes
from placet.plan.digest import plan_digest
from placet.tools.registry import PLANNABLE

TRACE = "9b20b19d-bd92-5906-8be0-05a93c00a401"
CASE = Case(
    TRACE,
    "todo",
    State.REVIEW,
    request_path="Inbox/Requests/todo.md",
    plan=KnownPlan(path="Inbox/Plans/todo_plan.md", revision=1),
)

OTHER = "0b20b19d-bd92-5906-8be0-05a93c00a402"
REQUEST = f"---\ntrace_id: {TRACE}\nstatus: planned\n---\nSay hello\n".encode()
PLAN_TEXT = f"---\ntrace_id: {TRACE}\nrequest_id: todo\nrevision: 1\n---\n# X\n".encode()
PLAN = inspect_note("Inbox/Plans/todo_plan.md", with_box(PLAN_TEXT, box_of(CASE)), "ann")


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


def test_overwritten_request_is_withdrawn() -> None:
    other = replace(CASE, trace_id=OTHER, request_id="b", request_path="Inbox/Requests/b.md")
    written_over = inspect_note(
        CASE.request_path, f"---\ntrace_id: {OTHER}\n---\nWrite a letter\n".encode(), "ann"
    )
    found = sort_notes({TRACE: CASE, OTHER: other}, [written_over, PLAN])
    assert found.of_case[OTHER].request is written_over
    gesture = observe(CASE, found.of_case[TRACE], PLANNABLE)
    assert gesture is not None
    assert isinstance(gesture, RequestGone)
    gesture = observe(other, found.of_case[OTHER], PLANNABLE)
    assert not isinstance(gesture, RequestGone)


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


def test_an_ended_request_without_its_properties_stays_itself() -> None:
    asked = inspect_note(CASE.request_path, REQUEST, "ann")
    ended = replace(CASE, state=State.REJECTED, request_digest=asked.digest)
    bare = inspect_note(CASE.request_path, b"Say hello\n", "ann")
    found = sort_notes({TRACE: ended}, [bare])
    assert found.of_case[TRACE].request is bare
    assert not found.new
    gesture = observe(ended, found.of_case[TRACE], PLANNABLE)
    assert gesture is not None
    assert isinstance(gesture, RequestPending)


def test_unreadable_request_is_not_withdrawn() -> None:
    good = inspect_note(CASE.request_path, REQUEST, "ann")
    failed = replace(CASE, state=State.FAILED, request_digest=good.digest)
    broken = inspect_note(good.path, REQUEST.replace(b"status:", b"status: ["), "ann")
    assert broken.problem
    its = sort_notes({TRACE: failed}, [broken, PLAN]).of_case[TRACE]
    assert its.request is broken
    assert RequestGone not in map(type, gestures(failed, its, PLANNABLE))
    pending = inspect_note(good.path, REQUEST.replace(b"planned", b"pending"), "ann")
    its = sort_notes({TRACE: failed}, [pending, PLAN]).of_case[TRACE]
    assert RequestPending in map(type, gestures(failed, its, PLANNABLE))


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


def test_rows_of_edits_say_edit() -> None:
    edited = inspect_note(CASE.request_path, REQUEST + b"And goodbye\n", "ann")
    its = sort_notes({TRACE: CASE}, [edited, PLAN]).of_case[TRACE]
    gesture = observe(CASE, its, PLANNABLE)
    assert gesture is not None
    decision = decide(CASE, gesture, "2026-01-02T03:04:05.000Z")
    assert decision is not None
    (row,) = (row for row in decision.rows if row.action is Action.REQUEST_EDITED)
    assert row.metadata["via"] == "edit"


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
        ("Inbox/Requests/maX 2.md", "Do it\n"),
        ("Inbox/Requests/2 Xenon.md", "Do it\n"),
    ],
)
def test_other_request_is_not_a_copy(path: str, text: str) -> None:
    original = inspect_note("Inbox/Requests/X.md", b"Do it\n", "")
    assert copies([note := inspect_note(path, text.encode(), "")], [original, note]) == {}


def test_copy_is_found_behind_longer_word() -> None:
    original, copy = (
        inspect_note(f"Inbox/Requests/{stem}.md", b"Do it\n", "") for stem in ("a", "banana a")
    )
    assert list(copies([copy], [original, copy])) == [copy.path]


def test_only_notes_with_new_texts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [inspect_note(f"Inbox/Requests/{n}.md", b"%d" % n, "") for n in range(9)]
    made: list[str] = []
    monkeypatch.setattr(sorting, "PurePosixPath", lambda path: made.append(path) or Path(path))
    assert copies([], notes) == copies(notes[:1], notes) == {}
    assert set(made) == {notes[0].path}
