"""Test that a request is planned only after its writer has stopped."""

from __future__ import annotations

import errno
import os
import time as real_time
from collections.abc import Callable
from pathlib import Path

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Reply
from placet.loop.intake import OPEN_S
from vaultkit import DONE, PLAN, TestVault, make_vault, running, until


def typed(vault: TestVault, text: str, name: str = "Say hello.md") -> None:
    """Save a note as an editor does that writes in place."""
    path = vault.root / "Inbox/Requests" / name
    old = path.read_text() if path.exists() else ""
    head = old[: old.index("---\n", 4) + 4] if old.startswith("---\n") else ""
    path.write_text(head + text)


def test_renamed_note_has_the_id_of_its_name(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path, "[vault]\nquiet_s = 30\n"), Time()

    def detected(ticks: int) -> list[str]:
        for _ in range(ticks):
            run.loop.tick()
            time.clock.sleep(0.5)
        return [row["entity_id"] for row in vault.rows("request.detected")]

    with looping(vault, time=time, model=lambda: Fake(greeter)) as run:
        run.loop.intake.no_wait = False
        typed(vault, "Say hello\n", "Untitled 2.md")
        typed(vault, "Say goodbye\n", "Untitled.md")
        assert detected(8) == []
        requests = vault.root / "Inbox/Requests"
        (requests / "Untitled 2.md").rename(requests / "Fix the login.md")
        assert detected(8) == ["fix-the-login"]
        assert detected(80) == ["fix-the-login", "untitled"], "nobody gave it a name"
    assert not list(requests.glob("*.placet.md"))


def test_ten_autosaves_cost_one_plan(tmp_path: Path) -> None:
    vault, time, model = bare_vault(tmp_path, "[vault]\nquiet_s = 30\n"), Time(), Fake(greeter)
    with looping(vault, time=time, model=lambda: model) as run:
        run.loop.intake.no_wait = False
        for save in range(10):
            typed(vault, "Say hello" + " again" * save + "\n")
            for _ in range(8):
                run.loop.tick()
                time.clock.sleep(0.5)
        assert len(vault.rows("request.detected")) == 1  # at once
        assert len(model.asks) == 0
        for _ in range(80):
            run.loop.tick()
            time.clock.sleep(0.5)
        run.settle()
        assert len(model.asks) == 1
        assert "again " * 8 in str(model.asks[0].turns)
        typed(vault, "Say goodbye\n")  # of a plan that waits: the revision waits for quiet too
        for _ in range(20):
            run.loop.tick()
            time.clock.sleep(0.5)
        assert len(model.asks) == 1
        for _ in range(80):
            run.loop.tick()
            time.clock.sleep(0.5)
        run.settle()
        assert len(vault.rows("plan.revised")) == 1


def test_planning_that_began_resumes_at_once(tmp_path: Path) -> None:
    vault, time, model = bare_vault(tmp_path, "[vault]\nquiet_s = 30\n"), Time(), Fake(greeter)
    hanging = Hanging(greeter)
    with looping(vault, time=time, model=lambda: hanging) as run:
        typed(vault, "Say hello\n")
        ticks(run, 40)
        until(lambda: run.loop.tick() and hanging.asks, "the call", 30)
    typed(vault, "Say hello\n")  # the daemon stamped it again before it was killed, say
    with looping(vault, time=time, model=lambda: model) as run:
        run.loop.intake.no_wait = False
        ticks(run, 5)
        until(lambda: run.loop.tick() and vault.rows("plan.created"), "the plan", 30)


class Hanging(Fake):
    """A model that answers nothing but what says `stop`, until its call is cut."""

    def reply(self, ask: Ask, cancelled: Callable[[], bool], *_: object) -> Reply:
        self.asks.append(ask)
        if "stop" not in str(ask.turns):
            until(cancelled, "the call is cut")
            raise ModelError(ModelErrorKind.CANCELLED, "the call was cut", served=True)
        return greeter(ask)


def ticks(run: Running, seconds: float) -> None:
    for _ in range(int(2 * seconds)):
        run.loop.tick()
        run.loop.ports.clock.sleep(0.5)


def test_edits_during_planning_interrupt_one_call(tmp_path: Path) -> None:
    vault, model = bare_vault(tmp_path, "[vault]\nquiet_s = 30\n"), Hanging(greeter)
    with looping(vault, time=Time(), model=lambda: model) as run:
        run.loop.intake.no_wait = False
        typed(vault, "Say hello\n")
        ticks(run, 40)
        until(lambda: model.asks, "the first call")
        for save in range(8):
            typed(vault, "Say hello" + " again" * save + "\n")
            ticks(run, 10)
        until(lambda: run.loop.tick() and vault.rows("model.failed"))
        assert len(model.asks) == 1
        typed(vault, "Say hello and stop\n")
        ticks(run, 40)
        run.settle()
        assert vault.plan().exists()
    assert len(model.asks) == 2


def test_moved_in_request_is_planned_immediately(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    vault.configure(
        (vault.root / "System/placet.toml").read_text().replace("quiet_s = 0", "quiet_s = 3600")
    )
    with running(vault):
        vault.click("submit", "Say hello")
        elsewhere = tmp_path / "Say more.md"
        elsewhere.write_text("Say more\n")
        real_time.sleep(0.05)  # a file system's clock ticks every few milliseconds
        elsewhere.rename(vault.root / "Inbox/Requests/Say more.md")
        typed(vault, "Say the rest\n", "Typed.md")
        until(lambda: vault.plan().exists() and vault.plan("say-more").exists(), "plans")
        vault.await_action("request.detected", 3)
        assert not vault.plan("typed").exists()
    vault.once()  # who starts this wants it now
    assert vault.plan("typed").exists()


def test_draft_is_ignored_until_status_changes(tmp_path: Path) -> None:
    vault, time, model = bare_vault(tmp_path), Time(), Fake(greeter)
    path = vault.drop("---\nstatus: draft\n---\nSay hel\n")
    with looping(vault, time=time, model=lambda: model) as run:
        run.settle()
        assert not vault.rows("request.detected")
        assert not list(vault.root.rglob("*.placet.md"))
        path.write_text("---\nstatus: pending\n---\nSay hello\n")
        run.settle()
        assert vault.plan().exists()
        path.write_text(
            path.read_text().replace("status: planned", "status: draft").replace("hello", "goodb")
        )
        run.settle()
        assert not vault.rows("request.edited")
        assert not list(vault.root.rglob("*.placet.md"))
        path.write_text(
            "".join(
                line
                for line in path.read_text().replace("goodb", "goodbye").splitlines(keepends=True)
                if not line.startswith("status")
            )
        )
        run.settle()
        assert len(vault.rows("plan.revised")) == 1


def test_request_turned_draft_stops_planning(tmp_path: Path) -> None:
    vault, model = bare_vault(tmp_path), Hanging(greeter)
    path = vault.drop("Say hello\n")
    with looping(vault, time=Time(), model=lambda: model) as run:
        until(lambda: ticks(run, 1) or model.asks, "the first call")
        ticks(run, 2)
        path.write_text(path.read_text().replace("status: planning", "status: draft"))
        until(lambda: ticks(run, 1) or vault.rows("model.failed"), "the call is cut")
        ticks(run, 10)
        assert "status: draft" in vault.click("why", "say-hello").stdout
        assert len(model.asks) == 1
        path.write_text(path.read_text().replace("status: draft\n", "") + "and stop\n")
        run.settle()
    assert vault.plan().exists()


@pytest.mark.parametrize("fails", [False, True])
def test_draft_stays_draft_when_its_plan_ends(tmp_path: Path, *, fails: bool) -> None:
    """The person writes on in a request whose plan is carried out: the daemon's own stamps do not
    say that they are ready.
    """
    vault = make_vault(tmp_path)
    work = [{"calls": [("give_up", {"reason": "no"})]}] if fails else DONE
    vault.script(
        *((purpose, [{"calls": [("submit_plan", PLAN)]}]) for purpose in ("plan", "revise")),
        ("execute", work),
    )
    path = vault.drop("Say hello\n")
    vault.here()
    path.write_text(path.read_text().replace("status: planned", "status: draft") + "And say good\n")
    vault.approve()
    vault.here()
    vault.here()
    assert "status: draft" in path.read_text()
    assert len(vault.rows("execution.failed" if fails else "execution.completed")) == 1
    assert len(vault.rows("plan.created") + vault.rows("plan.revised")) == 1
    path.write_text(path.read_text().replace("status: draft\n", "") + "bye, too.\n")
    vault.here()
    assert len(vault.rows("plan.created") + vault.rows("plan.revised")) == 2


def test_revision_waits_while_request_is_draft(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(
        *((purpose, [{"calls": [("submit_plan", PLAN)]}]) for purpose in ("plan", "revise"))
    )
    path = vault.drop("Say hello\n")
    vault.here()
    path.write_text(path.read_text().replace("status: planned", "status: draft"))
    vault.plan().write_text(
        vault.plan().read_text().replace("status: review", "status: needs_revision")
        + "\n## Review Comments\n\n- Shorter, please.\n"
    )
    vault.here()
    assert "status: draft" in path.read_text()
    assert not vault.rows("plan.revised")
    path.write_text(path.read_text().replace("status: draft", "status: pending"))
    vault.here()
    assert len(vault.rows("plan.revised")) == 1
    assert "status: planned" in path.read_text()


def test_folder_request_is_planned_after_restart(
    tmp_path: Path,
) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    config = (vault.root / "System/placet.toml").read_text()
    vault.configure(config + "\n[daemon]\npaused = true\n")
    path = vault.drop("Say hello\n")
    vault.here()
    assert "status: planning" in path.read_text()
    path.unlink()
    path.mkdir()
    vault.configure(config)
    vault.here()
    assert vault.plan().exists()


def test_changing_file_delays_withdrawal_by_one_minute(tmp_path: Path) -> None:
    """While its properties are cut off it could be the note that is missing."""
    vault, time = bare_vault(tmp_path), Time()
    with looping(vault, time=time, model=lambda: Fake(greeter)) as run:
        vault.drop("Say hello.\n")
        run.settle()
        vault.plan().unlink()
        restless = vault.root / "Inbox/Requests/p.md"
        restless.write_text("---\nstatus: rev")
        counted_at_s = []
        for number in range(400):
            os.utime(restless, (4e9 + number, 4e9 + number))
            time.pass_time(0.2)
            run.loop.tick()
            if vault.rows("plan.withdrawn"):
                break
            counted_at_s = [0.2 * number]
    assert 55 < counted_at_s[0] < 65


def test_open_prompt_counts_after_a_while(tmp_path: Path) -> None:
    """Somebody's editor may keep an agent's note open all night."""
    vault = bare_vault(tmp_path, "")
    note = vault.root / "System/Agents/default.md"
    with looping(vault, time=Time(), model=lambda: Fake(greeter)) as run, note.open("ab"):
        assert not run.loop.intake.prompts_are_written()
        run.loop.ports.clock.sleep(OPEN_S + 1)
        assert run.loop.intake.prompts_are_written()


def test_prompt_missing_for_a_moment_holds_work(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path, "")
    prompt = vault.root / "System/Agents/default.md"
    prompt.write_text("Be brief.\n")
    with looping(vault, time=Time(), model=lambda: Fake(greeter)) as run:
        for _ in range(2):
            run.loop.intake.prompts_are_written()
            run.loop.ports.clock.sleep(OPEN_S)
        assert run.loop.intake.prompts_are_written()
        prompt.rename(prompt.with_suffix(".bak"))
        assert not run.loop.intake.prompts_are_written()
        prompt.with_suffix(".bak").rename(prompt)
        assert run.loop.intake.prompts_are_written()


def test_unreadable_agents_stop_no_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = bare_vault(tmp_path, "")

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    with looping(vault, time=Time(), model=lambda: Fake(greeter)) as run:
        typed(vault, "Say hello\n")
        with monkeypatch.context() as failing:
            failing.setattr(Path, "glob", broken)
            ticks(run, 5)
        assert vault.rows("request.detected")
