"""Test questions after lost worktrees, lost journals, kills and odd bytes."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.stories.test_questions import (
    QUESTION,
    WIDER,
    amendment,
    asker,
    drop_and_approve,
    question,
    state,
    tick,
    widener,
    written,
)

from gitkit import git
from looping import Fake, Running, Time, bare_vault, looping, says, turns_taken
from placet.agent.replay import replay
from placet.case.life_cycle import State
from placet.chat.messages import Ask, Purpose, Reply
from placet.note.frontmatter import stamp
from placet.plan.plan import Plan
from placet.sandbox.box import Level
from vaultkit import PLAN, TestVault, make_vault, rows

SCOPE = {"write": ["hello.txt", "other.txt"], "run": ["cp hello.txt other.txt"]}
MORE = {
    **PLAN,
    "scope": SCOPE,
    "steps": [{**PLAN["steps"][0], "tools": ["write_file", "run_command", "edit_file"]}],
}
WRITE = ("write_file", {"path": "hello.txt", "content": "one\n"})
EDIT = ("edit_file", {"path": "hello.txt", "old": "one", "new": "two"})
RUN = ("run_command", {"command": "cp", "args": ["hello.txt", "other.txt"]})
ASK = ("ask_person", QUESTION)


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return bare_vault(tmp_path, '[commands]\nsandbox = "none"\n')


def mission(*turns: list[tuple[str, Any]]) -> Any:
    """A model that takes these turns, then completes the step and finishes."""

    def model(ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return says(("submit_plan", MORE))
        taken = turns_taken(ask)
        if taken < len(turns):
            return says(*turns[taken])
        return says(
            ("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})
        )

    return model


def worktrees(vault: TestVault) -> list[Path]:
    return [path for path in vault.db.parent.glob("worktrees/*") if path.is_dir()]


def called(vault: TestVault, tool: str) -> int:
    return sum(row["tool"] == tool for row in rows(vault, "tool.called"))


# --- a worktree that is lost


@pytest.mark.parametrize(
    ("turns", "text", "counted"),
    [
        ([[WRITE, ASK]], "one", (1, 0, 0)),
        ([[WRITE, EDIT, ASK]], "two", (1, 1, 0)),
        ([[WRITE], [EDIT, ASK]], "two", (1, 1, 0)),
        ([[WRITE, RUN], [EDIT, ASK]], "two", (1, 1, 1)),
        ([[ASK, WRITE]], "one", (1, 0, 0)),
        ([[WRITE, RUN, ASK]], "one", (1, 0, 1)),
        ([[WRITE, RUN, EDIT, ASK]], "two", (1, 1, 1)),
    ],
)
@pytest.mark.parametrize("lost", ["", "folder", "git's half"])
@pytest.mark.thinned(3)
def test_worktree_lost_during_question_is_restored(
    vault: TestVault, turns: Any, text: str, counted: tuple[int, int, int], lost: str
) -> None:
    with looping(vault, model=lambda: Fake(mission(*turns)), time=Time()) as run:
        drop_and_approve(run)
        assert state(run) is State.ASKING
        if lost:
            (tree,) = worktrees(vault)
            private = (tree / ".git").read_text().removeprefix("gitdir: ").strip()
            shutil.rmtree(tree if lost == "folder" else private)
        tick(question(vault), "Hello")
        run.settle()
    assert written(vault) == text
    if counted[2]:
        assert written(vault, "other.txt") == "one"
    tools = ("write_file", "edit_file", "run_command")
    assert tuple(called(vault, tool) for tool in tools) == counted


def test_portal_lost_during_question_ends_mission(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty")
    vault = bare_vault(tmp_path, f'[portals.code]\npath = "{repo}"\n')
    with looping(vault, model=lambda: Fake(mission([WRITE, ASK])), time=Time()) as run:
        vault.drop("---\nportal: code\n---\nPlease say hello.\n", "hello.md")
        run.settle()
        vault.plan("hello").rename(vault.active("hello"))
        run.settle()
        assert state(run) is State.ASKING
        repo.rename(tmp_path / "elsewhere")
        tick(question(vault), "Hello")
        run.settle()
        assert state(run) is State.FAILED
        assert not question(vault).exists()
    assert len(vault.reports()) == 1


# --- the sandbox


def level(run: Running, sandbox: Level) -> None:
    run.loop.state.ports = replace(run.loop.state.ports, sandbox=sandbox)


@pytest.mark.parametrize("sort", ["question", "amendment"])
def test_answer_does_not_approve_weaker_sandbox(vault: TestVault, sort: str) -> None:
    call = ASK if sort == "question" else ("request_scope", WIDER)
    with looping(vault, model=lambda: Fake(mission([WRITE, call])), time=Time()) as run:
        reload = run.loop.reload
        run.loop.reload = lambda ports: (
            replace(reload(ports)[0], sandbox=run.loop.ports.sandbox),
            None,
        )
        level(run, max(Level))
        drop_and_approve(run)
        assert state(run) is State.ASKING
        level(run, Level.NONE)
        if sort == "question":
            tick(question(vault), "Hello")
        else:
            note = amendment(vault)
            note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
        tock = run.settle()
        assert state(run) is State.RUNNING
        assert "weaker" in " ".join(tock.waiting)
        level(run, max(Level))
        run.loop.ports.clock.sleep(120)
        run.settle()
    assert rows(vault, "execution.completed")


# --- the journal


def real_vault(tmp_path: Path, *calls: tuple[str, Any]) -> TestVault:
    """A vault with its daemon's own start, whose mission asks this."""
    vault = make_vault(tmp_path)
    vault.configure('[commands]\nsandbox = "none"\n')
    vault.plays(
        PLAN,
        [WRITE, *calls],
        [("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})],
    )
    vault.drop("Say hello.\n", "hello.md")
    vault.here()
    vault.approve("hello")
    return vault


def decided(vault: TestVault) -> Path:
    """Decide on what is asked, as a person who trusts placet."""
    if amendment(vault).exists():
        note = amendment(vault)
        note.write_bytes(stamp(note.read_bytes(), {"decision": "approve"}))
    else:
        note = question(vault)
        tick(note, "Hello")
    return note


def side_of(note: Path) -> str:
    return note.with_name(f"{note.stem}.placet.md").read_text()


@pytest.mark.parametrize("call", [ASK, ("request_scope", WIDER)])
def test_answer_after_journal_loss_runs_nothing(tmp_path: Path, call: tuple[str, Any]) -> None:
    vault = real_vault(tmp_path, call)
    vault.here()
    note = decided(vault)
    answered = note.read_bytes()
    for path in vault.db.parent.glob("journal.db*"):
        path.unlink()
    vault.here()
    assert note.read_bytes() == answered
    assert "There is no record of this plan" in side_of(note) or "question is closed" in side_of(
        note
    )
    assert not vault.rows("execution.started")
    assert not vault.rows("plan.amended")
    assert vault.plan("hello").exists(), "its plan awaits review again"
    vault.here()
    assert not vault.rows("execution.started")


@pytest.mark.parametrize("call", [ASK, ("request_scope", WIDER)])
def test_answer_to_question_missing_from_backup_is_ignored(
    tmp_path: Path, call: tuple[str, Any]
) -> None:
    vault = real_vault(tmp_path, call)
    copy = tmp_path / "copy"
    with closing(sqlite3.connect(vault.db)) as db, closing(sqlite3.connect(copy)) as to:
        db.backup(to)
    vault.here()
    note = decided(vault)
    answered = note.read_bytes()
    journal = vault.db
    for path in journal.parent.glob("journal.db*"):
        path.unlink()
    shutil.copy(copy, journal)
    vault.here()
    assert note.read_bytes() == answered
    assert side_of(note)
    assert not vault.rows("execution.started")
    assert not vault.rows("plan.amended")
    # approved again it asks again, in a note of its own
    vault.plan("hello").rename(vault.active("hello"))
    vault.here()
    asked = "question.asked" if call is ASK else "plan.amendment_requested"
    assert len(vault.rows(asked)) == 1
    assert not vault.rows("question.answered")
    assert not vault.rows("plan.amended")
    assert note.read_bytes() == answered
    assert (
        len([n for n in vault.notes(str(note.parent.relative_to(vault.root))) if "placet" not in n])
        == 2
    )


# --- a daemon that is killed, one that is asked to do nothing else


def test_run_once_succeeds_with_open_question(tmp_path: Path) -> None:
    vault = real_vault(tmp_path, ASK)
    vault.once()
    assert vault.rows("question.asked")
    assert not vault.rows("execution.completed")
    with closing(sqlite3.connect(vault.db)) as db:
        assert db.execute("SELECT count(*) FROM leases WHERE held").fetchone() == (0,)
    vault.click("pause")
    tick(question(vault), "Hello")
    vault.once()
    assert vault.rows("question.answered")
    assert not vault.rows("execution.completed")
    vault.click("resume")
    vault.once()
    assert vault.rows("execution.completed")


# --- replay


@pytest.mark.parametrize("sort", ["question", "amendment"])
def test_replay_uses_recorded_answer_without_asking_again(
    tmp_path: Path, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sort == "question":
        vault = real_vault(tmp_path, ASK)
    else:
        more = ("write_file", {"path": "test_hello.py", "content": "x\n"})
        vault = real_vault(tmp_path, ("request_scope", WIDER), more)
    vault.here()
    decided(vault)
    vault.here()
    assert vault.rows("execution.completed")
    before = len(vault.rows())
    plans: list[Plan] = []

    def seen(bounds: Any, worktrees: Any, case: Any, plan: Plan, record: Any) -> Any:
        plans.append(plan)
        return replay(bounds, worktrees, case, plan, record)

    monkeypatch.setattr("placet.client.replay.replay", seen)
    done = vault.click("replay", "hello")
    (plan,) = plans
    assert plan.scope.allows_write("test_hello.py") is (sort == "amendment")
    assert done.stdout.startswith("equal: "), done.stdout
    assert len(vault.rows()) == before
    assert not vault.notes("Inbox/Questions")


# --- every byte of a person's


# --- a journal that is damaged


def sql(vault: TestVault, text: str, *values: object) -> None:
    with closing(sqlite3.connect(vault.db)) as db, db:
        assert db.execute(text, values).rowcount == 1


@pytest.mark.parametrize("call", [ASK, ("request_scope", WIDER)])
def test_record_damaged_during_question_returns_plan_to_review(
    tmp_path: Path, call: tuple[str, Any]
) -> None:
    vault = real_vault(tmp_path, call)
    vault.here()
    sql(vault, "UPDATE records SET body = 'other' WHERE key = 'call:1:0' AND kind = 'outcome'")
    decided(vault)
    vault.here()
    assert "The journal is damaged" in vault.plan("hello").read_text()
    assert not vault.rows("execution.completed")
    assert called(vault, "write_file") == 1
    vault.here()


def test_damaged_amendment_text_approves_nothing(tmp_path: Path) -> None:
    vault = real_vault(tmp_path, ("request_scope", WIDER))
    vault.here()
    digest = vault.rows("plan.amendment_requested")[0]["metadata"]["digest"]
    sql(vault, "UPDATE texts SET body = 'other' WHERE digest = ?", digest)
    decided(vault)
    vault.here()
    assert "The journal is damaged" in vault.plan("hello").read_text()
    assert not vault.rows("plan.amended")
    assert not amendment(vault).exists()
    vault.here()


def test_planning_record_damaged_during_question_fails_planning(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.configure('[commands]\nsandbox = "none"\n')
    plan = ("submit_plan", PLAN)
    vault.script(("plan", [{"calls": [("list_directory", {"path": "."}), ASK]}, {"calls": [plan]}]))
    vault.drop("Say hello.\n", "hello.md")
    vault.here()
    sql(vault, "UPDATE records SET body = 'other' WHERE key = 'opening' AND kind = 'outcome'")
    decided(vault)
    vault.here()
    assert vault.rows("plan.failed")
    assert not vault.plan("hello").exists()


def test_damaged_plan_text_allows_no_amendment(vault: TestVault) -> None:
    def model(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE:
            digest = rows(vault, "plan.approved")[0]["digest"]
            sql(vault, "UPDATE texts SET body = 'other' WHERE digest = ?", digest)
        return widener(ask)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        drop_and_approve(run)
        assert state(run) is State.REVIEW
        assert "The journal is damaged" in vault.plan("hello").read_text()
    assert not rows(vault, "plan.amendment_requested")


def test_amendment_keeps_unticked_steps_and_paths(vault: TestVault) -> None:
    step = PLAN["steps"][0]
    plan = {
        **PLAN,
        "steps": [step, {**step, "title": "Write more"}],
        "scope": {"write": ["hello.txt", "other.txt"]},
    }

    def model(ask: Ask) -> Reply:
        return widener(ask) if ask.purpose is Purpose.EXECUTE else says(("submit_plan", plan))

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        note = vault.plan("hello")
        text = note.read_text()
        assert "### 2. Write more" in text
        head, step = text.split("### 2. Write more")
        step = step.replace("- [x] Do this step", "- [ ] Do this step")
        assert '    "other.txt",\n' in step
        note.write_text(f"{head}### 2. Write more" + step.replace('    "other.txt",\n', "", 1))
        run.settle()
        run.settle()
        note.rename(vault.active("hello"))
        run.settle()
        assert state(run) is State.ASKING
        asked = amendment(vault)
        assert "other.txt" not in asked.read_text()
        asked.write_bytes(stamp(asked.read_bytes(), {"decision": "approve"}))
        run.settle()
    kept = (vault.root / "Inbox/Archive/hello_plan.md").read_text()
    assert "### 2. Write more\n\n- [ ] Do this step\n" in kept
    assert '"other.txt"' not in kept
    assert rows(vault, "execution.completed")


# --- notes that cannot be read, or are written over


@pytest.mark.parametrize("wrong", ["status: [open", "answer: Hello\nanswer: Good morning"])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.thinned(2)
def test_unreadable_question_note_keeps_question_open(
    vault: TestVault, wrong: str, moved: bool
) -> None:
    with looping(vault, model=lambda: Fake(asker), time=Time()) as run:
        drop_and_approve(run)
        note = question(vault)
        good = note.read_bytes()
        note.write_text(note.read_text().replace("status: open", wrong).replace("[ ] H", "[x] H"))
        if moved:
            note = note.rename(vault.root / "System/Active/question.md")
        run.settle()
        assert state(run) is State.ASKING
        told = list(vault.root.rglob("*.placet.md"))
        assert [path.parent for path in told] == [note.parent], "nothing is said beside the plan"
        assert "plans" not in told[0].read_text()
        note.write_bytes(good.replace(b"[ ] H", b"[x] H"))
        run.settle()
    assert written(vault) == "Hello"
    assert not list(vault.root.rglob("*.placet.md"))


@pytest.mark.parametrize("place", ["Inbox/Plans", "System/Active"])
def test_unreadable_amendment_decides_nothing(vault: TestVault, place: str) -> None:
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        note = amendment(vault).rename(vault.root / place / "amendment.md")
        good = note.read_bytes()
        note.write_bytes(good.replace(b"status: review", b"status: [review"))
        run.settle()
        assert state(run) is State.ASKING
        assert not rows(vault, "plan.amendment_rejected")
        # the plan is still the plan: it can be taken back meanwhile
        vault.active("hello").rename(vault.plan("hello"))
        run.settle()
    assert rows(vault, "execution.failed")


def test_amendment_moved_over_plan_stops_mission(vault: TestVault) -> None:
    """`mv …_amendment1.md System/Active/hello.md` writes over the plan: the mission stops."""
    with looping(vault, model=lambda: Fake(widener), time=Time()) as run:
        drop_and_approve(run)
        amendment(vault).rename(vault.active("hello"))
        run.settle()
    assert rows(vault, "execution.failed")
    assert not rows(vault, "plan.amended")


@pytest.mark.parametrize("where", ["_finish", "_start_mission"])
def test_loop_bug_affects_only_its_case(vault: TestVault, where: str) -> None:
    """What a worker came back with, or the start of work, meets a bug: the others go on."""
    from placet.loop.work import Dispatch

    real = getattr(Dispatch, where)

    def broken(self: Dispatch, case: Any, *rest: Any) -> Any:
        if case.request_id == "hello" and case.state in (State.RUNNING, State.APPROVED):
            raise ValueError("a bug")
        return real(self, case, *rest)

    def model(ask: Ask) -> Reply:
        return widener(ask, WIDER)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        with patch.object(Dispatch, where, broken):
            drop_and_approve(run)
            vault.drop("Please say hello, too.\n", "other.md")
            run.settle()
            vault.plan("other").rename(vault.active("other"))
            for _ in range(30):
                run.settle()
        assert (vault.root / "Inbox/Plans/other_amendment1.md").exists()
        assert not amendment(vault).exists()
        assert any("placet has a bug: ValueError: a bug" in said for said in run.said)
        # and once the bug is fixed it goes on by itself
        for _ in range(200):
            run.loop.tick()
            run.loop.ports.clock.sleep(1)
        run.settle()
        assert amendment(vault).exists()
