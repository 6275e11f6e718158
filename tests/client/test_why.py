"""Test that reports name what happened, and that their next step works when pasted."""

from __future__ import annotations

import shlex
import shutil
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import sleep, time
from unittest.mock import patch

import pytest
from tests.case.test_explain import CASE, Row

from gitkit import make_repo
from looping import Fake, Running, Time, bare_vault, greeter, looping, says, turns_taken
from placet.case.explain import explain_state
from placet.chat.messages import Ask, Purpose, Reply
from placet.client.cases import status
from placet.client.site import Site
from placet.client.why import why
from placet.client.words import turn
from placet.note.frontmatter import stamp
from vaultkit import ME, PLAN, TestVault, make_vault

pytestmark = pytest.mark.bare


def test_commands_name_both_duplicate_plans(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        copy = vault.root / "System/Active/hello_plan.md"
        shutil.copyfile(vault.plan("hello"), copy)
        run.settle()
        both = ("Inbox/Plans/hello_plan.md", "System/Active/hello_plan.md")
        vault.click("approve", "hello", "--yes")
        run.settle()
        assert not vault.rows("plan.approved")
        assert vault.plan("hello").exists()
        assert copy.exists()
        (said,) = (line for line in run.said if "`placet approve` was not performed" in line)
        for told in (said, vault.click("why", "hello").stdout, vault.click("status").stdout):
            assert all(place in told for place in both), told
        copy.unlink()
        run.settle()
        vault.click("approve", "hello", "--yes")
        run.settle()
    assert vault.rows("execution.completed")


def test_missing_plan_can_be_restored(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        vault.plan("hello").unlink()
        vault.active("hello").touch()  # empty, so it may become the plan: nothing is decided yet
        run.loop.tick()
        explained = vault.click("why", "hello").stdout
        assert "hello  review\n" in explained
        assert "Inbox/Plans/hello_plan.md\nThat file is missing.\n" in explained
        assert "placet show hello --plan > Inbox/Plans/hello_plan.md" in explained
        text = vault.click("show", "hello", "--plan").stdout
        assert 'decision: ""\n' in text
        assert "\n## Steps\n" in text


def test_change_elsewhere_returns_no_plan() -> None:
    rows = [
        Row(1, "plan.approved"),
        Row(2, "plan.drifted", {"verdict": "changed elsewhere", "files": ["b.txt"]}),
        Row(3, "plan.taken_back"),
    ]
    why, _ = explain_state(CASE, rows, daemon_runs=True, paused=False)
    assert "put back" not in why
    rows[1] = Row(2, "plan.drifted", {"reason": "b.txt changed"})
    why, _ = explain_state(CASE, rows, daemon_runs=True, paused=False)
    assert "It was put back: b.txt changed" in why


@dataclass
class Held:
    """A mission that waits in the middle until it is let go on."""

    entered: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def answer(self, ask: Ask) -> Reply:
        if ask.purpose is not Purpose.EXECUTE:
            return greeter(ask)
        if turns_taken(ask) == 0:
            return says(("write_file", {"path": "hello.txt", "content": "hello\n"}))
        self.entered.set()
        assert self.go.wait(60)
        return says(("finish", {"summary": "Done."}))


def tick_until(run: Running, seen: Callable[[], object]) -> None:
    for _ in range(2000):
        if seen():
            return
        run.loop.tick()
        run.loop.ports.clock.sleep(0.5)
        sleep(0.005)  # the mission's thread needs real time
    raise AssertionError(run.vault.actions())


def stopped(run: Running, held: Held, stop: Callable[[], object]) -> str:
    """Have a mission stopped by a person; return its report."""
    run.vault.drop("Please say hello.\n", "hello.md")
    run.settle()
    run.vault.click("approve", "hello", "--yes")
    tick_until(run, held.entered.is_set)
    stop()
    tick_until(run, lambda: run.vault.rows("plan.taken_back"))
    held.go.set()
    run.settle()
    (report,) = run.vault.reports()
    return report.read_text()


def test_status_and_why_say_what_a_slow_model_does(vault: TestVault) -> None:
    held, name = Held(), "A request of quite some length that goes on and on.md"
    with looping(vault, model=lambda: Fake(held.answer), time=Time()) as run:
        vault.drop("Please say hello.\n", name)
        run.settle()
        vault.click("approve", "a-request", "--yes")
        tick_until(run, held.entered.is_set)
        trace_id = vault.rows("plan.approved")[0]["trace_id"]
        shown = vault.site.state.journal.parent / f"answer-{trace_id}"
        shown.write_text(f"{time() - 245} 0")
        with patch.object(Site, "daemon", "pid 1 on here since now"):
            said = vault.click("why", "a-request").stdout
            doing = turn(status(vault.site).cases[0], daemon=True)
        assert "The model: reading the prompt, 4 min." in said
        assert doing.startswith("reading the prompt, 4 min; "), "a line may be cut at its end"
        held.go.set()
        run.settle()


@pytest.mark.parametrize("way", ["stop", "reject", "delete"])
@pytest.mark.thinned(2)
def test_report_commands_work_after_stop(vault: TestVault, way: str) -> None:
    plan = vault.active("hello")
    ways: Mapping[str, Callable[[], object]] = {
        "stop": lambda: vault.click("stop", "hello"),
        "reject": lambda: plan.rename(vault.root / "Inbox/Rejected/hello_rejected.md"),
        "delete": plan.unlink,
    }
    held = Held()
    with looping(vault, model=lambda: Fake(held.answer), time=Time()) as run:
        report = stopped(run, held, ways[way])
        assert vault.rows("execution.failed")[0]["metadata"]["reason"] == "stopped_by_person"
        if way == "stop":
            by = [row["metadata"] for row in vault.rows("plan.taken_back")]
            assert [(row["reviewed_by"], row["via"]) for row in by] == [(ME, "cli")] * 2
            assert f"{ME} used `placet stop`" in report
        request = vault.click("why", "hello", "--request").stdout
        assert "Continue: Say hello" in request
        assert "placet why hello --request | placet submit --file -" in report
        vault.click("submit", "--file", "-", stdin=request)
        assert "`placet retry hello`" in report
        assert "stopped on purpose" in report
        vault.click("retry", "hello")
        run.settle()
    written = [*vault.rows("plan.created"), *vault.rows("plan.revised")]
    assert len([row for row in written if row["entity_id"] == "hello"]) == 2


def test_retry_replans_completed_or_withdrawn_request(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        vault.click("approve", "hello", "--yes")
        run.settle()
        assert (vault.root / "Inbox/Archive/hello.md").exists()
        branch = vault.rows("execution.completed")[0]["metadata"]["branch"]
        vault.click("retry", "hello", "--comment", "For the notes of today.")
        run.settle()
        assert not (vault.root / "Inbox/Archive/hello.md").exists()
        plan = vault.plan("hello").read_text()
        assert f"on the new branch `{branch}…`" in plan
        vault.click("approve", "hello", "--yes")
        run.settle()
        second = vault.rows("execution.completed")[1]["metadata"]["branch"]
        assert second.startswith(branch)
        assert second != branch
        archived = [p.read_text() for p in (vault.root / "Inbox/Archive").glob("hello_plan*.md")]
        for name in (branch, second):
            assert sum(f"on the new branch `{name}`" in text for text in archived) == 1
        vault.click("retry", "hello")
        run.settle()
        vault.plan("hello").unlink()
        run.settle()
        assert vault.rows("plan.withdrawn")
        why = vault.click("why", "hello").stdout
        assert "placet retry hello" in why
        vault.click("retry", "hello")
        run.settle()
        assert vault.plan("hello").exists()
        # its request is gone: nothing can be tried again, and the next step says what works
        (vault.root / "Inbox/Requests/hello.md").unlink()
        run.settle()
        assert vault.rows("request.withdrawn")
        done = vault.click("retry", "hello", check=False)
        assert done.returncode == 3
        assert "The request of hello was taken away." in done.stderr
        vault.click("show", "hello")


@pytest.fixture
def plain(tmp_path: Path) -> TestVault:
    """A vault without a history."""
    vault = make_vault(tmp_path)
    vault.plays(PLAN)
    return vault


def test_request_waiting_for_history_names_command(plain: TestVault) -> None:
    plain.click("config", "set", "vault.history", "false")
    plain.drop("Please say hello.\n", "hello.md")
    plain.once(code=1)
    why, status = plain.click("why", "hello").stdout, plain.click("status").stdout
    assert "It waits for you: may placet keep a history of the vault?" in why
    assert "Waits for you (1)" in status
    assert "Under way" not in status
    assert "a request: hello" in plain.click("plans").stdout
    assert "when one starts, its plan is written" not in why
    assert "`placet config set vault.history true`" in why
    assert "- Start it: placet run" in why
    assert "remark  Inbox/Requests/hello.md" in status
    plain.click("config", "set", "vault.history", "true")
    plain.once()
    assert plain.plan("hello").exists()


def config_of(vault: TestVault) -> str:
    return (vault.root / "System/placet.toml").read_text()


@pytest.mark.parametrize("known", [False, True])
def test_draft_is_named_with_way_to_end_it(plain: TestVault, known: bool) -> None:
    if known:
        path = plain.drop("Please say hello.\n", "hello.md")
        plain.configure("[daemon]\npaused = true\n" + config_of(plain))
        plain.once()
        plain.configure(config_of(plain).replace("paused = true", "paused = false"))
        path.write_bytes(stamp(path.read_bytes(), {"status": "draft"}))
    else:
        plain.drop("---\nstatus: draft\n---\nPlease say hello.\n", "hello.md")
    plain.once()
    told = plain.click("why", "hello").stdout
    assert "status: draft" in told
    assert "pending" in told
    assert "not read it yet" not in told
    assert "a plan is written" not in told
    plain.once()
    assert not plain.plan("hello").exists()


def test_request_in_quiet_time_is_not_planned(tmp_path: Path) -> None:
    vault = bare_vault(tmp_path)
    vault.configure(config_of(vault).replace("quiet_s = 0", "quiet_s = 30"))
    (vault.root / "Inbox/Requests/Say hello.md").write_text("Say hello.\n")
    clock = Time()
    with looping(vault, model=lambda: Fake(greeter), time=clock) as run:
        run.loop.intake.no_wait = False
        for _ in range(3):
            run.loop.tick()
            clock.pass_time(1)
        with patch.object(Site, "daemon", "a daemon"):
            assert "unchanged for 30 s" in why(vault.site, "say-hello").why[0]
            (case,) = status(vault.site).cases
            assert turn(case, daemon=True).startswith("is planned once you stop writing")


def test_note_is_explained_after_editing_stops(vault: TestVault) -> None:
    vault.configure(config_of(vault).replace("quiet_s = 0", "quiet_s = 30"))
    clock = Time()
    with looping(vault, model=lambda: Fake(greeter), time=clock) as run:
        run.loop.intake.no_wait = False

        def look(seconds: float) -> list[str]:
            until = clock.now_s + seconds
            while clock.now_s < until:
                tick = run.loop.tick()
                clock.pass_time(min(tick.again_in_s or 0.1, until - clock.now_s))
            return [note for note in vault.notes("Inbox/Requests") if ".placet" in note]

        requests = vault.root / "Inbox/Requests"
        (requests / "new.md").write_text("")
        (requests / "other.md").write_text("---\na: [\n")
        assert look(20) == []
        (requests / "new.md").write_text("---\nportal: o\n---\nSay hello.\n")
        assert look(20) == ["other.placet.md"]
        assert look(15) == ["new.placet.md", "other.placet.md"]
        (requests / "new.md").write_text("Say hello.\n")
        assert look(5) == ["other.placet.md"]


def test_init_names_folder_in_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = make_vault(tmp_path)
    folder = tmp_path / "my notes"
    said = vault.click("init", str(folder)).stderr
    command = said.partition("To forbid it: placet ")[2].splitlines()[0]
    vault.click(*shlex.split(command))
    assert tomllib.loads((folder / "System/placet.toml").read_text())["vault"]["history"] is False
    (folder / "System/placet.toml").unlink()
    (folder / "note.md").write_text("mine\n")
    said = vault.click("init", str(folder)).stderr
    command = said.partition("To allow it: placet ")[2].splitlines()[0]
    vault.click(*shlex.split(command))
    assert tomllib.loads((folder / "System/placet.toml").read_text())["vault"]["history"] is True
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with monkeypatch.context() as patch:
        patch.setattr(vault, "root", here)
        assert "To forbid it: placet init --no-history" in vault.click("init").stderr


def test_submit_to_unaccepted_portal_is_refused(plain: TestVault) -> None:
    plain.once()
    other = make_repo(plain.root.parent / "other")
    config = config_of(plain) + f'\n[portals.other]\npath = "{other}"\n'
    plain.configure(config, accepted=False)
    done = plain.click("submit", "--portal", "other", "Say hello", check=False)
    assert done.returncode == 2
    assert "no portal `other`" in done.stderr
    assert "`placet config accept`" in done.stderr
    assert not plain.notes("Inbox/Requests")
    plain.click("config", "accept", "--yes")
    plain.click("submit", "--portal", "other", "Say hello")


def test_a_kept_demo_names_its_state_folder(plain: TestVault) -> None:
    plain.drop("Please say hello.\n", "hello.md")
    plain.once()
    vault = replace(plain, state=plain.root.parent / "none")
    done = vault.click("show", "hello", check=False)
    assert done.returncode == 3
    export = done.stderr.partition("export ")[2].strip()
    assert export == f"PLACET_STATE_HOME={plain.root.parent / 'state'}"
    replace(plain, state=Path(export.partition("=")[2])).click("show", "hello")


def test_status_lists_work_before_remarks(vault: TestVault) -> None:
    with looping(vault, model=lambda: Fake(greeter), time=Time()) as run:
        vault.drop("Please say hello.\n", "done.md")
        run.settle()
        vault.click("approve", "done", "--yes")
        run.settle()
        vault.drop("", "empty.md")
        path = vault.drop("Please say hello.\n", "hello.md")
        run.settle()
        path.write_bytes(stamp(path.read_bytes(), {"status": "soon"}))
        run.settle()
        lines = vault.click("status").stdout.partition("\n\n")[2].splitlines()
        assert [line.split()[0] for line in lines if line.startswith("  ")] == [
            "review",
            "completed",
            "unusable",
            "remark",
        ]
        assert vault.click("why", "empty").stdout.splitlines()[0] == "empty  unusable"
