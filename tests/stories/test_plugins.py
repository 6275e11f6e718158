"""Test that plug-ins and formatters neither pay for plannings nor void an approval."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping
from placet.chat.messages import Ask, Purpose
from placet.note.frontmatter import stamp
from vaultkit import DONE, PLAN, TestVault, make_vault

MINUTES = 10


def plannings(model: Fake) -> int:
    return sum(ask.purpose is not Purpose.EXECUTE for ask in model.asks)


def bump(path: Path, at: float) -> None:
    """Do what the plug-in "Update time on edit" does."""
    path.write_bytes(stamp(path.read_bytes(), {"updated": f"at {at:.0f}"}))


class Stamping:
    """The plug-in: it stamps each note that changed, after 2 s, at most once a minute."""

    def __init__(self, root: Path) -> None:
        self.root, self.seen = root, dict[Path, bytes]()
        self.due, self.last = dict[Path, float](), dict[Path, float]()

    def pass_by(self, now_s: float) -> None:
        for path in self.root.glob("Inbox/*/*.md"):
            raw = path.read_bytes()
            if raw != self.seen.get(path):
                self.due.setdefault(path, now_s + 2)
                self.seen[path] = raw
            late = now_s >= self.due.get(path, now_s + 1)
            if late and now_s - self.last.get(path, -60) >= 60:
                bump(path, now_s)
                self.seen[path] = path.read_bytes()
                self.last[path] = now_s
                del self.due[path]


def for_minutes(running: Running, time: Time, meanwhile: Callable[[float], None]) -> None:
    while time.now_s < MINUTES * 60:
        running.settle()
        time.pass_time(1)
        meanwhile(time.now_s)
    running.settle()


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return bare_vault(tmp_path)


def test_stamping_plugin_costs_one_planning(vault: TestVault) -> None:
    model, time = Fake(greeter), Time()
    vault.drop("Say hello\n")
    with looping(vault, model=lambda: model, time=time) as running:
        for_minutes(running, time, Stamping(vault.root).pass_by)
    assert plannings(model) == 1
    assert "request.edited" not in vault.actions()


def test_index_plugin_costs_few_plannings(vault: TestVault) -> None:
    model, time = Fake(greeter), Time()
    index = vault.drop("# Notes\n", "Requests.md")

    last = 0.0

    def rewrite(now_s: float) -> None:
        nonlocal last
        if now_s - last >= 20:
            last = now_s
            text = re.sub(r"%% begin %%.*", "", index.read_text(), flags=re.DOTALL)
            index.write_text(f"{text}%% begin %%\n- note {now_s}\n%% end %%\n")

    with looping(vault, model=lambda: model, time=time) as running:
        for_minutes(running, time, rewrite)
        assert 1 < plannings(model) <= 4
        side = (vault.root / "Inbox/Requests/Requests.placet.md").read_text()
        assert "planned this request 3 times within an hour" in side
        before = plannings(model)
        vault.click("retry", "requests")
        running.settle()
        assert plannings(model) == before + 1


def test_plugin_key_keeps_waiting_approval(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    vault.drop("Say hello.\n")
    vault.once()
    vault.click("pause")
    vault.approve()
    vault.once()
    active = vault.active()
    keyed = stamp(active.read_bytes(), {"modified": "x"})
    active.write_bytes(keyed.replace(b"\n", b"\r\n"))
    vault.once()
    assert active.exists()
    vault.click("resume")
    vault.once()
    assert "plan.changed_after_approval" not in vault.actions()
    assert "execution.completed" in vault.actions()


def test_other_keys_stay_outside_of_prompts(vault: TestVault) -> None:
    asks: list[Ask] = []

    def answer(ask: Ask):
        asks.append(ask)
        return greeter(ask)

    vault.drop("---\nsecret_key: zebra\ntags: [okapi]\n---\nSay hello\n")
    with looping(vault, model=lambda: Fake(answer), time=Time()) as running:
        running.settle()
    sent = "".join(map(repr, asks))
    assert "Say hello" in sent
    assert "zebra" not in sent
    assert "okapi" not in sent


def test_merge_in_agent_note_stops_planning(vault: TestVault) -> None:
    model, time = Fake(greeter), Time()
    agent = vault.root / "System/Agents/default.md"
    agent.write_text("<<<<<<< HEAD\nBe kind.\n=======\nBe quick.\n>>>>>>> phone\n")
    vault.drop("Say hello\n")
    with looping(vault, model=lambda: model, time=time) as running:
        running.settle()
        side = (vault.root / "Inbox/Requests/Say hello.placet.md").read_text()
        assert "`System/Agents/default.md` holds an unresolved merge" in side
        assert not model.asks
        agent.write_text("Be kind.\n")
        time.pass_time(61)
        running.settle()
    assert plannings(model) == 1
