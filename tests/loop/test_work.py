"""Test how work waits for an unreachable model, tells you once, and resumes."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping, says
from messages_api import MessagesApi, call, closed_port, reply
from placet.agent.model_call import LEAST_FREE_BYTES
from placet.case.case import CASE_JSON
from placet.case.lease import Owner
from placet.case.life_cycle import State
from placet.case.waiting import Hold, WaitReason
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Purpose, Reply
from placet.chat.retry import RetryPolicy
from placet.cli.screen import status_screen
from placet.client.cases import status
from placet.client.site import Site
from placet.client.why import why as why_of
from placet.host.config import load
from placet.journal.writes import AcquireLease, Conflict, PutCase, ReleaseLease
from placet.loop.app import daemon
from placet.loop.build import teller
from placet.models.anthropic import AnthropicModel
from vaultkit import PLAN, TestVault


class Line:
    """A model that a test can take away and give back."""

    def __init__(self) -> None:
        self.error: ModelError | None = None
        self.model = Fake(self.answer)

    def answer(self, ask: Ask) -> Reply:
        if self.error is not None:
            raise self.error
        return greeter(ask)

    def opened(self) -> Fake:
        return self.model


def holds(running: Running) -> list[Hold]:
    return [told for told in running.told if isinstance(told, Hold)]


def side_notes(vault: TestVault) -> list[str]:
    return [name for name in vault.notes("Inbox/Requests") if name.endswith(".placet.md")]


def shown(vault: TestVault) -> str:
    return status_screen(status(Site(str(vault.root), {"PLACET_STATE_HOME": str(vault.state)})))


def finished(running: Running, count: int = 1) -> None:
    for plan in (running.vault.root / "Inbox/Plans").glob("*_plan.md"):
        running.vault.approve(plan.name.removesuffix("_plan.md"))
    running.settle()
    assert len(running.vault.rows("execution.completed")) == count
    assert running.vault.rows("plan.failed") == running.vault.rows("execution.failed") == []


def test_hour_without_network_loses_no_work(tmp_path: Path) -> None:
    """A real connection that is refused, at every stage; then a server that is there."""
    vault, time = bare_vault(tmp_path), Time()
    write = call("write_file", {"path": "hello.txt", "content": "hello\n"})
    with MessagesApi(
        [
            reply(call("submit_plan", PLAN)),
            reply(write, call("complete_step", {"step": 1, "summary": "Hi"})),
            reply(call("finish", {"summary": "Done."})),
        ]
    ) as api:
        nobody = closed_port()
        url = [nobody]
        with looping(
            vault,
            time=time,
            retry=RetryPolicy(first_wait_s=20),
            model=lambda: AnthropicModel("claude-opus-5-5", url[0], "key", 10),
        ) as running:
            vault.drop("Say hello.\n")
            for stage in ("plan.created", "execution.completed"):
                url[0], until = nobody, time.now_s + 3600
                while time.now_s < until:
                    waits = running.settle()
                    assert "cannot connect" in waits.waiting[0]
                    assert running.loop.threads.jobs == {}, "no slot is held"
                    time.pass_time(waits.again_in_s)
                assert (
                    "cannot connect"
                    in (vault.root / "Inbox/Requests/Say hello.placet.md").read_text()
                )
                assert stage not in vault.actions()
                url[0], back_s = api.url, time.now_s
                while stage not in vault.actions():
                    time.pass_time(running.settle().again_in_s)
                assert time.now_s - back_s <= 121, "a server that is back is noticed soon"
                if stage == "plan.created":
                    vault.approve()
                    url[0] = nobody
            running.settle()
    assert [
        row for row in vault.actions() if row.endswith(".failed") and row != "model.failed"
    ] == []
    assert holds(running) == []
    assert side_notes(vault) == []
    assert 60 < len(vault.rows("model.failed")) < 100, (
        "it is asked less and less often, up to every two minutes"
    )
    assert len(vault.rows("note.explained")) <= 8, (
        "and what people read is not written anew for each try"
    )
    assert len(vault.rows("execution.completed")) == 1


def test_permanent_error_is_reported_once_until_fixed(tmp_path: Path) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    line.error = ModelError(ModelErrorKind.PERMANENT, "the account has no credit")
    for n in range(5):
        vault.drop(f"Say hello {n}.\n", f"Hello {n}.md")
    with looping(vault, time=time, model=line.opened) as running:
        for _ in range(4):
            tick = running.settle()
            assert tick.waiting == (
                f"all work waits for the model: {running.loop.state.waits.hold.notice}",
            )
            time.pass_time(tick.again_in_s)
        assert [hold.why for hold in holds(running)] == [WaitReason.BLOCKED]
        assert len([said for said in running.said if "credit" in said]) == 1
        assert side_notes(vault) == ["Model.placet.md"]
        assert "no credit" in (vault.root / "Inbox/Requests/Model.placet.md").read_text()
        assert "no credit" in shown(vault)
        assert len(line.model.asks) < 8, "one piece of work tries for all"
    with looping(vault, time=time, model=line.opened) as running:
        time.pass_time(running.settle().again_in_s)
        running.settle()
        assert (holds(running), running.said) == ([], []), "a restart tells nothing again"
        line.error = None
        time.pass_time(60)
        running.settle()
        assert [row["metadata"].get("why") for row in vault.rows("model.waiting")] == ["blocked"]
        assert len(vault.rows("model.resumed")) == 1
        assert side_notes(vault) == []
        assert "credit" not in shown(vault)
        assert len(vault.rows("plan.created")) == 5
        finished(running, 5)


def test_new_hold_cause_replaces_earlier_one(tmp_path: Path) -> None:
    """No key, then a wrong one, then no network: each is what holds work up, and telling of an
    older one helps nobody.
    """
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    vault.drop("Say hello.\n")
    tried = (
        (ModelErrorKind.PERMANENT, "there is no key"),
        (ModelErrorKind.PERMANENT, "the key is wrong"),
        (ModelErrorKind.TRANSIENT, "cannot connect"),
    )
    for kind, words in tried:
        line.error = ModelError(kind, words)
        with looping(vault, time=time, model=line.opened) as running:
            for _ in range(3):  # a try for all work
                time.pass_time(running.settle().again_in_s)
            assert len([said for said in running.said if words in said]) == 1
            assert len(holds(running)) == (words == "there is no key"), (
                "a notice is for what is new"
            )
            assert words in shown(vault)
        why = why_of(Site(str(vault.root), {"PLACET_STATE_HOME": str(vault.state)}), "say-hello")
        assert any(words in said for said in why.why), why
        assert not any(other in f"{why} {shown(vault)}" for _, other in tried if other != words)
        assert why.next == ("Fix that first.", "Start it: placet run")
    assert len(vault.rows("model.waiting")) == 2, "one for each reason that you must fix"


def test_request_during_hold_waits_silently(
    tmp_path: Path,
) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    line.error = ModelError(ModelErrorKind.PERMANENT, "no such model")
    request = vault.drop("Say hello.\n")
    with looping(vault, time=time, model=line.opened) as running:
        running.settle()
        asked = len(line.model.asks)
        other = vault.drop("Say more.\n", "More.md")
        running.settle()
        assert len(line.model.asks) == asked
        assert side_notes(vault) == ["Model.placet.md"]
        request.unlink()
        other.unlink()
        for _ in range(20):
            running.loop.tick()
            time.pass_time(1)
        assert running.loop.state.waits.hold is None
        assert side_notes(vault) == []


def test_waiting_for_server_is_reported_once(
    tmp_path: Path,
) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    vault.drop("# Say hello\n")
    with looping(vault, time=time, model=line.opened) as loop:
        line.error = ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
        said: list[str] = []
        loop.loop.state.waits.say = said.append
        for _ in range(4):
            loop.settle()
            time.pass_time(1000)
        assert len(vault.rows("model.failed")) > 3
        assert [told for told in said if "waiting for the model" in told] == said[:1]
        line.error = None
        loop.settle()
        assert vault.rows("plan.created")


def test_machine_fault_retries_back_off(tmp_path: Path) -> None:
    """Each try is written down: a full disk would fill up with them."""
    vault, time = bare_vault(tmp_path), Time()
    vault.drop("# Say hello\n")

    def full(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE:
            raise OSError(errno.ENOSPC, "No space left on device")
        return greeter(ask)

    with looping(vault, time=time, model=lambda: Fake(full)) as loop:
        loop.settle()
        vault.approve()
        for _ in range(120):
            loop.settle()
            time.pass_time(3)
        tries = len(vault.rows("execution.resumed"))
    assert 5 <= tries <= 15


def test_work_waits_while_disk_space_is_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    free = [LEAST_FREE_BYTES - 1]
    monkeypatch.setattr("placet.agent.model_call.free_bytes", lambda _: free[0])
    with looping(vault, time=time, model=line.opened) as loop:
        said: list[str] = []
        loop.loop.state.waits.say = said.append
        vault.drop("Say hello.\n")
        for _ in range(4):
            loop.settle()
            time.pass_time(60)
        assert line.model.asks == []
        assert ["has less than 16 MB free" in told for told in said] == [True], said
        free[0] = LEAST_FREE_BYTES
        loop.settle()
    assert vault.rows("plan.created")


def test_long_retry_after_holds_no_slot_across_restart(
    tmp_path: Path,
) -> None:
    vault, time, line = bare_vault(tmp_path, "[daemon]\nplans_at_once = 1\n"), Time(), Line()
    line.error = ModelError(ModelErrorKind.TRANSIENT, "slow down", status=429, retry_after_s=600)
    vault.drop("Say hello.\n")
    with looping(vault, time=time, model=line.opened) as running:
        running.settle()
        assert running.loop.threads.jobs == {}
        assert len(line.model.asks) == 1
        line.error = None
        vault.drop("Say more.\n", "More.md")
        running.settle()
        assert len(vault.rows("plan.created")) == 1, "the only slot was free for another"
    time.pass_time(300)
    with looping(vault, time=time, model=line.opened) as running:
        assert "tries again" in running.settle().waiting[0]
        assert len(line.model.asks) == 2
        time.pass_time(300)
        running.settle()
        assert len(vault.rows("plan.created")) == 2
        assert len(line.model.asks) == 3


def test_work_waits_without_free_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    with looping(vault, time=time, model=line.opened) as running:
        begin = running.loop.threads.start

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        running.loop.threads.start = refuse
        vault.drop("Say hello.\n")
        assert "can't start new thread" in running.settle().waiting[0]
        running.loop.threads.start = begin
        time.pass_time(5)
        running.settle()
        vault.approve()
        running.settle()
        assert len(vault.rows("execution.completed")) == 1
        monkeypatch.setattr(threading.Thread, "start", refuse)
        time.pass_time(60)
        running.settle()
        assert running.said[-1] == "placet cannot look at branches: can't start new thread"


def test_unreadable_branches_are_reported_once(tmp_path: Path) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    with looping(vault, time=time, model=line.opened) as running:
        vault.drop("Say hello.\n")
        running.settle()
        finished(running)
        (vault.root / ".git").rename(vault.root / "away")
        for _ in range(5):
            time.pass_time(60)
            running.settle()
            if running.loop.branches.thread is not None:
                running.loop.branches.thread.join()
        assert len([said for said in running.said if "cannot see the fate" in said]) == 1


def test_mission_ended_by_another_daemon_is_not_resumed(
    tmp_path: Path,
) -> None:
    """As when this one stood still for long, and the other one believed that it was gone."""
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    with looping(vault, time=time, model=line.opened) as running:
        vault.drop("Say hello.\n")
        running.settle()
        vault.approve()
        line.error = ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
        running.settle()
        journal = running.loop.ports.journal
        with journal.read() as reader:
            row, lease = next(iter(reader.cases())), reader.lease(*running.loop.cases)
        ended = replace(CASE_JSON.validate_json(row.body), state=State.FAILED)
        writes = [
            PutCase(
                row.trace_id,
                ended.request_id,
                "failed",
                CASE_JSON.dump_json(ended).decode(),
                row.version,
            )
        ]
        journal.commit(
            [
                *writes,
                *(
                    [ReleaseLease(lease.trace_id, lease.token)]
                    if lease is not None and lease.held
                    else []
                ),
            ]
        )
        line.error = None
        time.pass_time(3600)
        with pytest.raises(Conflict):
            running.settle()
    assert vault.rows("execution.resumed") == []


def test_lease_of_another_machine_is_awaited(tmp_path: Path) -> None:
    """As in a journal that was carried here from a machine where the daemon was killed."""
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    with looping(vault, time=time, model=line.opened) as running:
        vault.drop("Say hello.\n")
        running.settle()
        running.loop.ports.journal.commit(
            [AcquireLease(*running.loop.cases, Owner("elsewhere", "its boot", 7, "1"), 30.0)]
        )
        vault.approve()
        assert "pid 7 on elsewhere holds the lease" in running.settle().waiting[0]
        assert vault.rows("lease.expired") == []
        for _ in range(8):
            time.pass_time(5)
            running.settle()
        assert len(vault.rows("execution.completed")) == 1
        (expired,) = vault.rows("lease.expired")
        assert expired["metadata"] == {"owner": "pid 7 on elsewhere"}


def test_hold_runs_notify_command_with_link(tmp_path: Path) -> None:
    vault = bare_vault(
        tmp_path,
        f'[notify]\ncommand = ["sh", "-c", "echo $PLACET_EVENT $PLACET_LINK > {tmp_path}/told"]\n',
    )
    with teller(load(vault.root), vault.root, print) as tell:
        tell(Hold(WaitReason.BLOCKED, "no key", 0.0))
    assert (
        (tmp_path / "told").read_text()
        == "needs_you obsidian://open?vault=vault&file=Inbox%2FRequests%2FModel.placet.md\n"
    )


def test_status_shows_used_mission_budget(tmp_path: Path) -> None:
    vault, line = bare_vault(tmp_path), Line()
    vault.drop("---\nbudget_usd: 0.5\n---\nSay hello.\n")
    with looping(vault, time=Time(), model=line.opened) as running:
        running.settle()
        vault.approve()
        line.error = ModelError(ModelErrorKind.TRANSIENT, "slow down", retry_after_s=600)
        running.settle()
    assert "0 iterations, $0.0000 of $0.50" in shown(vault)


@pytest.mark.parametrize("wrong", ['provider = "nobody"', 'provider = "scripted"\nscript = "gone"'])
def test_unusable_model_setting_blocks_without_failing(tmp_path: Path, wrong: str) -> None:
    vault, time = bare_vault(tmp_path), Time()
    vault.plays(
        PLAN,
        [
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
            ("complete_step", {"step": 1, "summary": "Done"}),
        ],
        [("finish", {"summary": "Done."})],
    )
    right = (vault.root / "System/placet.toml").read_text()
    with looping(vault, time=time) as running:
        vault.drop("Say hello.\n")
        running.settle()
        vault.configure(f"[model]\n{wrong}\n")
        vault.approve()
        vault.drop("Say more.\n", "More.md")
        tick = running.settle()
        assert "[model]" in tick.waiting[0]
        assert [hold.why for hold in holds(running)] == [WaitReason.BLOCKED]
        vault.configure(right)
        running.settle()
        vault.approve()  # it came back, as another model was set
        running.settle()
        assert len(vault.rows("execution.completed")) == 1
        assert vault.rows("plan.failed") == []


def literal(ask: Ask) -> Reply:
    actions = [{"tool": "write_file", "params": {"path": "hello.txt", "content": "hello\n"}}]
    return says(("submit_plan", {**PLAN, "steps": [{"title": "Say hello", "actions": actions}]}))


def test_literal_plan_runs_despite_model_hold(tmp_path: Path) -> None:
    vault, time, line = bare_vault(tmp_path), Time(), Line()
    line.model.answer = lambda ask: literal(ask) if line.error is None else line.answer(ask)
    with looping(vault, time=time, model=line.opened) as running:
        vault.drop("Say hello.\n")
        running.settle()
        line.error = ModelError(ModelErrorKind.PERMANENT, "the account has no credit")
        vault.drop("Say more.\n", "More.md")
        running.settle()
        asked = len(line.model.asks)
        vault.approve()
        running.settle()
        assert len(vault.rows("execution.completed")) == 1
        assert len(line.model.asks) == asked
        assert running.loop.state.waits.hold is not None


def test_run_once_reads_note_dropped_last(tmp_path: Path) -> None:
    vault, line = bare_vault(tmp_path, '[daemon]\nwatch = "polling"\n'), Line()
    vault.drop("Say hello.\n")

    def answer(_ask: Ask) -> Reply:
        vault.drop("Say more.\n", "More.md")
        raise ModelError(ModelErrorKind.PERMANENT, "the account has no credit")

    line.model.answer = answer
    with (
        patch("placet.loop.app.model_opener", return_value=line.opened),
        daemon(vault.root, vault.env, lambda _: None) as running,
    ):
        tick = running.run_once()
    assert "no credit" in tick.waiting[0]
    assert len(vault.rows("request.detected")) == 2


def test_new_reason_of_a_hold_replaces_the_old_one(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path), Time()
    reasons = iter(("there is no key", "there is no credit", "there is no credit"))

    def refuses(_: Ask) -> Reply:
        raise ModelError(ModelErrorKind.PERMANENT, next(reasons))

    vault.drop("Say hello.\n")
    with looping(vault, time=time, model=lambda: Fake(refuses)) as running:
        for _ in range(3):
            running.settle()
            time.pass_time(61)
    told = [row["metadata"]["reason"] for row in vault.rows("model.waiting")]
    assert told == ["there is no key", "there is no credit"]
