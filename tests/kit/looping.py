"""Run the daemon's loop in the test's process, with real vault, journal, git and workers.

A test may supply the model and the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from placet.agent.mission import run_mission
from placet.agent.planner import draft
from placet.agent.ports import Ports
from placet.case.case import Case
from placet.case.lease import Owner
from placet.case.waiting import Hold
from placet.chat.messages import Ask, Model, Purpose, Reply, StopReason, Turn, Usage, text_block
from placet.chat.retry import RetryPolicy
from placet.disk.vault import Vault
from placet.host.accepted import holding
from placet.host.clock import Clock
from placet.host.config import load
from placet.host.state import vault_state
from placet.journal.writer import Journal
from placet.loop.build import model_opener, own_secrets
from placet.loop.config_watch import ConfigWatch, stamps
from placet.loop.tick import Loop, Tick
from placet.sandbox.box import Level
from vaultkit import PLAN, TestVault

TICKS = 400


class Time:
    """A clock that a test moves: waiting takes no time."""

    def __init__(self) -> None:
        self.now_s = self.asleep_s = 0.0
        self.began = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def wall(self) -> datetime:
        return self.began + timedelta(seconds=self.now_s)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def clock(self) -> Clock:
        return Clock(
            self.wall,
            lambda: self.now_s - self.asleep_s,
            self.pass_time,
            lambda: self.now_s,
        )

    def fall_asleep(self, seconds: float) -> None:
        """Let time pass that the monotonic clock does not count, as on a laptop that sleeps."""
        self.now_s += seconds
        self.asleep_s += seconds


def bare_vault(folder: Path, config: str = "") -> TestVault:
    """A vault without a process being started for it."""
    vault = TestVault(folder / "vault", folder / "state")
    for path in ("System/Agents", "Inbox/Requests", "Knowledge"):
        (vault.root / path).mkdir(parents=True)
    vault.configure(
        '[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n' + config
    )
    return vault


@dataclass
class Fake:
    """A model whose replies are a function of what it is asked; `asks` is what it was asked."""

    answer: Callable[[Ask], Reply]
    provider: str = "scripted"
    name: str = "test"
    asks: list[Ask] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, ask: Ask, cancelled: Callable[[], bool], *_: object) -> Reply:
        with self.lock:
            self.asks.append(ask)
        return self.answer(ask)


def says(
    *calls: tuple[str, Mapping[str, Any]], text: str = "", usage: Usage | None = None
) -> Reply:
    """A reply with these calls."""
    blocks: list[Any] = [text_block(text)] if text else []
    blocks += [
        {"type": "tool_use", "id": f"call_{n}", "name": name, "input": dict(given)}
        for n, (name, given) in enumerate(calls)
    ]
    return Reply(
        Turn("assistant", tuple(blocks)),
        StopReason.TOOL_USE if calls else StopReason.END_TURN,
        usage or Usage(),
        "test",
    )


def greeter(ask: Ask) -> Reply:
    """Plan PLAN, and carry it out in two turns."""
    if ask.purpose is not Purpose.EXECUTE:
        return says(("submit_plan", PLAN))
    if sum(turn.role == "assistant" for turn in ask.turns) == 0:
        return says(
            ("write_file", {"path": "hello.txt", "content": "hello\n"}),
            ("complete_step", {"step": 1, "summary": "Hello"}),
        )
    return says(("finish", {"summary": "Done."}))


@dataclass
class Running:
    """A loop with its vault, and what it said and told."""

    vault: TestVault
    loop: Loop
    said: list[str]
    told: list[Case | Hold]
    step_s: float
    model: Fake | None = None

    def settle(self, ticks: int = TICKS) -> Tick:
        """Tick until nothing is left to do that needs no person, or everything waits."""
        clock = self.loop.ports.clock
        for _ in range(ticks):
            tick = self.loop.tick()
            # The clock may be a test's, whose time passes at once; threads and git take real time.
            for thread in [
                self.loop.branches.thread,
                *(job.thread for job in self.loop.threads.jobs.values()),
            ]:
                if thread is not None:
                    thread.join(30)
            at_rest = (
                not self.loop.threads.jobs
                and not self.loop.state.dirty
                and self.loop.threads.back.empty()
                and tick.again_in_s >= 1
                and not tick.settling
            )
            if tick.idle or (tick.waiting and at_rest):
                return tick
            clock.sleep(self.step_s)
        raise AssertionError(f"it did not come to rest: {self.vault.actions()[-20:]}")


@contextmanager
def looping(
    vault: TestVault,
    *,
    model: Callable[[], Model] | None = None,
    time: Time | None = None,
    env: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    ask_kernel: bool = True,
) -> Iterator[Running]:
    """A loop on a vault, as `app.daemon` builds it."""
    said: list[str] = []
    told: list[Case | Hold] = []
    environ = env or {}
    config = load(vault.root)
    clock = time.clock if time is not None else Clock()
    state = vault_state(vault.root, {"PLACET_STATE_HOME": str(vault.state)})
    state.ensure()
    with ExitStack() as stack:
        folder = stack.enter_context(Vault(vault.root, ask_kernel=ask_kernel))
        folder.ensure_folders()
        if folder.marker() is None:
            folder.create_marker("0" * 32)
        journal = stack.enter_context(
            Journal(
                state.journal,
                now=clock.wall,
                boottime_s=clock.boottime,
                boot_id="boot",
                on_trouble=said.append,
            )
        )
        opener = model or model_opener(config, vault.root, environ)
        ports = Ports(
            vault.root,
            config,
            Level.NONE,
            own_secrets(environ),
            state.worktrees,
            journal,
            clock,
            opener,
            config.model.prices,
            retry or RetryPolicy(),
        )
        settings = ConfigWatch(
            vault.root,
            environ,
            state,
            clock,
            said.append,
            stamps(vault.root, state),
            holding(config, state),
            ask_kernel=ask_kernel,
        )
        loop = Loop(
            ports,
            folder,
            Owner("here", "boot", 1, "1"),
            lambda: None,
            said.append,
            told.append,
            settings.reload,
            draft,
            run_mission,
        )
        loop.intake.no_wait = True
        loop.load()
        try:
            yield Running(vault, loop, said, told, 0.5 if time is not None else 0.02)
        finally:
            loop.stop(5)


def turns_taken(ask: Ask) -> int:
    """How many turns the model of this conversation has taken."""
    return sum(turn.role == "assistant" for turn in ask.turns)


def results(ask: Ask) -> list[str]:
    """The texts of all tool results in what is sent, in order."""
    return [
        str(block["content"])
        for turn in ask.turns
        for block in turn.blocks
        if block.get("type") == "tool_result"
    ]
