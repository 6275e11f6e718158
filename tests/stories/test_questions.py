"""Test questions and wider scopes: a mission asks you, waits, and resumes from its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitkit import git
from looping import Fake, Running, Time, bare_vault, looping, results, says, turns_taken
from placet.case.life_cycle import State
from placet.chat.messages import Ask, Purpose, Reply
from placet.note.frontmatter import read_note, stamp
from vaultkit import PLAN, TestVault, rows

pytestmark = pytest.mark.bare

QUESTION = {
    "question": "Which greeting?",
    "options": ["Hello", "Good morning"],
    "why": "The file says it.",
}
WIDER = {"why": "The greeting has a test.", "write": ["test_hello.py"], "run": ["pytest -q"]}


def state(run: Running) -> State:
    (case,) = run.loop.cases.held.values()
    return case.state


def question(vault: TestVault, number: int = 1) -> Path:
    return vault.root / f"Inbox/Questions/hello_{number}.md"


def archived(vault: TestVault, number: int = 1, sort: str = "question") -> Path:
    return vault.root / f"Inbox/Archive/hello_{sort}{number}.md"


def amendment(vault: TestVault, number: int = 1) -> Path:
    return vault.root / f"Inbox/Plans/hello_amendment{number}.md"


def tick(path: Path, option: str) -> None:
    text = path.read_text()
    assert f"- [ ] {option}" in text
    path.write_text(text.replace(f"- [ ] {option}", f"- [x] {option}"))


def asker(ask: Ask) -> Reply:
    """Ask in the mission before the file is written, and write the answer into it."""
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PLAN))
    match turns_taken(ask):
        case 0:
            draft = {"path": "hello.txt", "content": "a draft"}
            return says(("write_file", draft), ("ask_person", QUESTION))
        case 1:
            answer = json.loads(results(ask)[-1])
            return says(
                ("write_file", {"path": "hello.txt", "content": str(answer.get("answer", "none"))}),
                ("complete_step", {"step": 1, "summary": "Hello"}),
                ("finish", {"summary": "Done."}),
            )
    raise AssertionError("a round too many")


def planner_asks(ask: Ask) -> Reply:
    if ask.purpose is Purpose.EXECUTE:
        return asker(ask)
    if turns_taken(ask) == 0:
        return says(("ask_person", QUESTION))
    answer = json.loads(results(ask)[-1])
    return says(("submit_plan", {**PLAN, "summary": f"They said: {answer.get('answer', 'none')}"}))


def widener(ask: Ask, more: Mapping[str, Any] = WIDER) -> Reply:
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PLAN))
    match turns_taken(ask):
        case 0:
            return says(
                ("write_file", {"path": "hello.txt", "content": "hello\n"}),
                ("request_scope", more),
            )
        case 1:
            said = json.loads(results(ask)[-1])
            if said.get("approved"):
                return says(
                    ("write_file", {"path": "test_hello.py", "content": "assert True\n"}),
                    ("complete_step", {"step": 1, "summary": "Hello"}),
                    ("finish", {"summary": "Done."}),
                )
            return says(
                ("complete_step", {"step": 1, "summary": "Hello"}),
                ("finish", {"summary": f"Without: {said['error']}"}),
            )
    raise AssertionError("a round too many")


def drop_and_approve(run: Running) -> None:
    vault = run.vault
    vault.drop("Please say hello.\n", "hello.md")
    run.settle()
    vault.plan("hello").rename(vault.active("hello"))
    run.settle()


def written(vault: TestVault, path: str = "hello.txt") -> str:
    (row,) = rows(vault, "execution.completed")
    return git(vault.root, "show", f"{row['branch']}:{path}")


# --- questions


def test_mission_resumes_with_ticked_answer(vault: TestVault) -> None:
    model = Fake(asker)
    with looping(vault, model=lambda: model, time=Time()) as run:
        drop_and_approve(run)
        assert state(run) is State.ASKING
        note = question(vault)
        text = note.read_text()
        assert "Which greeting?" in text
        assert read_note(note.read_bytes()).meta["status"] == "open"
        (asked,) = rows(vault, "question.asked")
        assert asked["options"] == 2
        assert rows(vault, "lease.released")
        calls = len(model.asks)
        so_far = vault.click("diff", "hello")
        assert "+a draft" in so_far.stdout
        assert "hello is waiting for your answer. This is what it has changed" in so_far.stderr
        run.settle()
        assert len(model.asks) == calls, "nothing is asked of the model meanwhile"
        tick(note, "Good morning")
        run.settle()
        (row,) = rows(vault, "question.answered")
        assert (row["via"], row["chosen"]) == ("property", 2)
        assert not note.exists()
        assert read_note(archived(vault).read_bytes()).meta["status"] == "answered"
    assert written(vault) == "Good morning"
    called = [row["tool"] for row in rows(vault, "tool.called")]
    assert (called.count("write_file"), called.count("ask_person")) == (2, 1)


def test_conflicting_answers_are_ignored_and_explained(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        other = note.with_name("hello_1 2.md")
        other.write_bytes(note.read_bytes())
        tick(other, "Hello")
        tick(note, "Good morning")
        run.settle()
        assert state(run) is State.ASKING
        side = note.with_name("hello_1.placet.md").read_text()
        assert "answer" in side
        other.unlink()
        run.settle()
    assert written(vault) == "Good morning"


def test_revision_and_mission_receive_earlier_answers(vault: TestVault) -> None:
    model = Fake(planner_asks)
    with looping(vault, model=lambda: model, time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        tick(question(vault), "Good morning")
        run.settle()
        plan = vault.plan("hello")
        text = plan.read_bytes() + b"\n## Review Comments\n\n- Shorter, please.\n"
        plan.write_bytes(stamp(text, {"decision": "revise"}))
        run.settle()
        question(vault, 2).unlink()
        run.settle()
        vault.plan("hello").rename(vault.active("hello"))
        run.settle()
    first, _, revision, _, mission = [str(ask.turns[0].blocks) for ask in model.asks]
    answer = "Question: Which greeting?\\nsomeone who can write the vault answered:\\nGood morning"
    assert "answered" not in first
    assert answer in revision
    assert answer in mission
    assert "Question: Which greeting?\\nIt was not answered." in mission
    assert [row["taken_away"] for row in rows(vault, "question.answered")] == [False, True]


def test_unfinished_answer_does_not_delay_stop(vault: TestVault) -> None:
    vault.configure((vault.root / "System/placet.toml").read_text() + "[vault]\nquiet_s = 3600\n")
    time = Time()
    time.began = datetime.now(UTC)  # files have the machine's time
    with looping(vault, model=lambda: Fake(asker), time=time) as run:
        drop_and_approve(run)
        run.loop.intake.no_wait = False
        question(vault).write_text(question(vault).read_text() + "\nHalf of an ans")
        vault.active("hello").rename(vault.plan("hello"))
        run.settle()
    assert rows(vault, "plan.taken_back")
    assert rows(vault, "execution.failed"), "the mission is stopped"
    assert not rows(vault, "question.answered")
    assert not question(vault).exists()


@pytest.mark.parametrize("allowed", [0, 3])
def test_mission_cannot_exceed_question_limit(vault: TestVault, allowed: int) -> None:
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(f"{config}\n[questions]\nper_mission = {allowed}\n")

    def curious(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", PLAN))
        taken = turns_taken(ask)
        if taken <= allowed:
            return says(("ask_person", {"question": f"Really, {taken}?", "options": ["yes"]}))
        return says(
            ("write_file", {"path": "hello.txt", "content": results(ask)[-1]}),
            ("complete_step", {"step": 1, "summary": "Hello"}),
            ("finish", {"summary": "Done."}),
        )

    with looping(vault, model=lambda: Fake(curious), time=Time()) as run:
        drop_and_approve(run)
        for number in range(1, allowed + 1):
            tick(question(vault, number), "yes")
            run.settle()
    assert "too_many_questions" in written(vault)


def test_edit_during_planning_question_restarts_planning(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(planner_asks), time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        path = vault.root / "Inbox/Requests/hello.md"
        path.write_text(path.read_text() + "\nLoudly.\n")
        run.settle()
        assert state(run) is State.ASKING
        assert vault.notes("Inbox/Questions") == ["hello_2.md"]
        assert read_note(archived(vault).read_bytes()).meta["status"] == "void"


# --- a wider scope


@pytest.mark.parametrize("way", ["property", "move"])
def test_amendment_shows_scope_diff_and_approval_grants_it(vault: TestVault, way: str) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        assert state(run) is State.ASKING
        note = amendment(vault)
        first = read_note(note.read_bytes()).body.split("\n")[:12]
        assert "  write    hello.txt" in first
        assert "+ write    test_hello.py" in first
        assert "+ run      pytest -q" in first
        before = rows(vault, "plan.approved")[0]["digest"]
        if way == "property":
            note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        else:
            note = note.rename(vault.root / "System/Active/more.md")
        run.settle()
        (row,) = rows(vault, "plan.amended")
        assert row["via"] == way
        assert row["before"] == before
        assert row["digest"] == rows(vault, "plan.amendment_requested")[0]["digest"] != before
        assert not note.exists()
        assert archived(vault, sort="amendment").exists()
    assert written(vault, "test_hello.py") == "assert True"
    log = git(vault.root, "log", "--format=%B", "--all")
    assert f"Placet-Plan: {row['digest']}" in log
    kept = (vault.root / "Inbox/Archive/hello_plan.md").read_text()
    assert '"test_hello.py"' in kept
    assert "plan.changed_after_approval" not in vault.actions()


@pytest.mark.parametrize("way", ["property", "move", "gone"])
@pytest.mark.thinned(2)
def test_model_learns_of_rejected_scope(vault: TestVault, way: str) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault)
        if way == "property":
            words = {"decision": "reject", "rejection_reason": "too much"}
            note.write_bytes(stamp(note.read_bytes(), words))
        elif way == "move":
            note.write_text(note.read_text() + "\n## Rejection\n\ntoo much\n")
            note.rename(vault.root / "Inbox/Rejected/x.md")
        else:
            note.unlink()
        run.settle()
        (row,) = rows(vault, "plan.amendment_rejected")
        assert row["reason"] == (
            "too much" if way != "gone" else "the note that asked for it was taken away"
        )
        assert row["via"] == ("property" if way == "property" else "move")
    assert written(vault) == "hello"
    (report,) = vault.reports()
    assert "too much" in report.read_text() or way == "gone"


def test_ungrantable_scope_requests_are_refused_without_asking(vault: TestVault) -> None:
    said: list[str] = []

    def greedy(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", PLAN))
        said.extend(results(ask)[len(said) :])
        wanted: list[dict[str, Any]] = [
            {"why": "w", "write": ["Inbox/Plans/x.md"]},
            {"why": "w", "write": [".git/config"]},
            {"why": "w", "write": ["../x"]},
            {"why": "w", "write": ["hello.txt"]},
            {"why": "w", "run": [""]},
            {"why": "w", "hosts": ["127.0.0.1"]},
        ]
        taken = turns_taken(ask)
        if taken < len(wanted):
            return says(("request_scope", wanted[taken]))
        return says(("give_up", {"reason": "no"}))

    with looping(vault, model=lambda: Fake(greedy), time=Time()) as run:
        drop_and_approve(run)
        assert not vault.notes("Inbox/Plans") or amendment(vault).name not in vault.notes(
            "Inbox/Plans"
        )
    kinds = [json.loads(one)["error_type"] for one in said]
    assert kinds == [
        "protected",
        "protected",
        "invalid_scope",
        "already_allowed",
        "invalid_scope",
        "invalid_scope",
    ]
    assert "call `write_file` with" in said[3]


def test_approved_amendment_grants_its_hosts(vault: TestVault) -> None:
    more = {**WIDER, "hosts": ["packages.example"]}
    asks: list[Ask] = []

    def model(ask: Ask) -> Reply:
        asks.append(ask)
        return widener(ask, more)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault)
        assert "\n+ host     packages.example\n" in note.read_text()
        note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        run.settle()
    assert rows(vault, "plan.amendment_requested")[0]["hosts"] == ["packages.example"]
    granted = json.loads(results(asks[-1])[-1])["scope"]
    assert granted["network"] == ["packages.example"]
    kept = (vault.root / "Inbox/Archive/hello_plan.md").read_text()
    assert 'network = ["packages.example"]' in kept


def test_ineffective_edits_during_amendment_get_side_notes(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        active, request = vault.active("hello"), vault.root / "Inbox/Requests/hello.md"
        active.write_text(active.read_text().replace("Write a greeting.", "Write a long greeting."))
        request.write_bytes(stamp(request.read_bytes(), {"status": "pending"}) + b"And more.\n")
        run.settle()
        assert "no effect" in active.with_name("hello.placet.md").read_text()
        assert "no effect" in request.with_name("hello.placet.md").read_text()
        assert state(run) is State.ASKING
        note = amendment(vault)
        note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        run.settle()
    assert [row["running"] for row in rows(vault, "plan.changed_after_approval")] == [True]
    assert len(rows(vault, "plan.amendment_requested")) == 1
    assert written(vault, "test_hello.py") == "assert True"


def test_tidying_keeps_worktree_of_asking_mission(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[daemon]\ntidy_after_days = 0\n"), Time()
    time.began = datetime.now(UTC) + timedelta(days=1)  # files have the machine's time
    with looping(vault, model=lambda: Fake(asker), time=time) as run:
        drop_and_approve(run)
        (tree,) = (p for p in vault.state.glob("*/worktrees/*") if p.is_dir())
        vault.drop("Please paint the fence.\n", "fence.md")
        run.settle()
        vault.plan("fence").rename(vault.active("fence"))
        run.settle()
        tick(vault.root / "Inbox/Questions/fence_1.md", "Hello")
        run.settle()
        assert len(rows(vault, "execution.completed")) == 1
        assert (tree / "hello.txt").read_text() == "a draft"


def test_amended_failed_plan_is_reapproved_as_unedited(vault: TestVault) -> None:
    def gives_up(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE or turns_taken(ask) == 0:
            return widener(ask)
        return says(("give_up", {"reason": "no"}))

    with looping(vault, model=lambda: Fake(gives_up), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault)
        note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        run.settle()
        assert len(rows(vault, "execution.failed")) == 1
        plan = vault.plan("hello")
        assert '"test_hello.py"' in plan.read_text()
        plan.write_bytes(stamp(plan.read_bytes(), {"decision": "approve"}))
        run.settle()
    first, again = rows(vault, "plan.approved")
    assert again["edited"] is False
    assert again["digest"] != first["digest"]


def test_secret_in_answer_reaches_no_model_or_journal(vault: TestVault) -> None:
    key = "sk-ant-" + "api03-" + "A1b2C3d4" * 12
    model = Fake(asker)
    with looping(vault, model=lambda: model, time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        note.write_text(note.read_text() + f"\nUse {key}, please.\n")
        run.settle()
    assert "Use [redacted" in written(vault)
    assert not any(key in result for ask in model.asks for result in results(ask))
    assert all(key.encode() not in p.read_bytes() for p in vault.state.rglob("*") if p.is_file())


def test_question_note_dropped_as_request_is_planned(vault: TestVault) -> None:
    time = Time()
    with looping(vault, model=lambda: Fake(planner_asks), time=time) as run:
        run.loop.stopping = True  # it is seen, and planned by another life
        text = "---\nrequest_id: other\nasked_at: 2026-11-20T12:16:41.020Z\n---\nWhich greeting?\n"
        vault.drop(text, "hello.md")
        for _ in range(20):
            run.loop.tick()
            run.loop.ports.clock.sleep(0.5)
    with looping(vault, model=lambda: Fake(planner_asks), time=time) as run:
        run.settle()
        assert rows(vault, "question.asked"), "it is planned as any request is"
