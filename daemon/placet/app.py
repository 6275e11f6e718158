"""The only place that builds the object graph: from a vault's path to a running daemon."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from placet import __version__
from placet.clock import Clock
from placet.config import CONFIG_PATH, Config, load
from placet.core import case as cases
from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.case import Case
from placet.core.errors import UserError
from placet.core.names import QUEUES, Folder
from placet.core.price import DEFAULT_PRICES, Price
from placet.core.retry import RetryPolicy
from placet.core.talk import Model, ModelError
from placet.executor import carry_out
from placet.journal import AddActivity, CommittedActivity, Journal
from placet.lease import VaultLock, boot_id, boottime_s, this_process
from placet.loop import Loop, Tick
from placet.models import ModelSettings, open_model
from placet.notify import Event, Notice, NotifySettings, send
from placet.planner import draft
from placet.sandbox import Level, make_undumpable, probe
from placet.state import State, vault_state
from placet.vault import Vault
from placet.watch import Bell, Mode
from placet.workshop import Ports


def find_vault(given: str | None, env: Mapping[str, str], here: Path) -> Path:
    """Return the vault: the one given, else `$PLACET_VAULT`, else the first folder upwards that has System/placet.toml.

    Raises UserError (exit code 2) where there is none.
    """
    named = given or env.get("PLACET_VAULT")
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_dir():
            raise UserError(f"The vault {path} is not a folder.", f"Make one there: placet init {path}", exit_code=2)
        return path
    for folder in (here, *here.parents):
        if (folder / CONFIG_PATH).is_file():
            return folder
    raise UserError(f"There is no vault in {here} or above it.",
                    "Name one with --vault DIR or PLACET_VAULT, or make one: placet init DIR", exit_code=2)


@dataclass(slots=True)
class Daemon:
    """A daemon that holds its vault: lock, journal, bell and loop are up."""

    vault: Path
    state: State
    config: Config
    journal: Journal
    bell: Bell
    loop: Loop
    say: Callable[[str], None]

    def run(self) -> None:
        """Work until SIGTERM or SIGINT."""
        stop = threading.Event()

        def on_signal(_number: int, _frame: object) -> None:
            stop.set()
            self.bell.ring()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_signal)
        notify = _systemd_notifier(os.environ)
        notify("READY=1")
        hinted: frozenset[str] = frozenset()
        while not stop.is_set():
            tick = self.loop.tick(hinted, self.bell.mode)
            notify(f"WATCHDOG=1\nSTATUS={self._status(tick)}")
            rung = self.bell.wait(min(tick.again_in_s, MAX_WAIT_S))
            if not rung.any:
                self.bell.check()
            hinted = rung.paths
        notify("STOPPING=1")
        self.loop.stop(self.config.daemon.stop_grace_s)

    def run_once(self) -> Tick:
        """Work until nothing is left to do that needs no person; return the last tick, which says what waits and why."""
        hinted: frozenset[str] = frozenset()
        while True:
            tick = self.loop.tick(hinted, self.bell.mode)
            if tick.idle:
                return tick
            if tick.waiting and not self.loop.jobs and not self.loop.dirty:
                return tick
            hinted = self.bell.wait(min(tick.again_in_s, MAX_WAIT_S)).paths

    def _status(self, tick: Tick) -> str:
        if tick.waiting:
            return tick.waiting[0].splitlines()[0][:200]
        running = len(self.loop.jobs)
        return f"{running} at work" if running else "waiting for requests and decisions"


MAX_WAIT_S = 10.0
"""Longest wait between two ticks: well below the service manager's watchdog (WatchdogSec in systemd/placet@.service)."""


@contextmanager
def daemon(vault: Path, env: Mapping[str, str], say: Callable[[str], None],
           on_rows: Callable[[Sequence[CommittedActivity]], None] | None = None) -> Iterator[Daemon]:
    """Take a vault over: configuration, lock, journal, watches. Raises UserError where something stands in the way."""
    make_undumpable()
    if not (vault / CONFIG_PATH).is_file():
        raise UserError(f"{vault} has no {CONFIG_PATH}: it is no vault of placet's, or it is not mounted.",
                        f"Mount it, or make it one: placet init {vault}", exit_code=2)
    config = load(vault)
    clock = Clock()
    state = vault_state(vault, env)
    for warning in state.ensure():
        say(warning)
    owner = this_process()
    with ExitStack() as stack:
        stack.enter_context(VaultLock(state.lock, owner, clock.now()))
        folder = stack.enter_context(Vault(vault))
        folder.ensure_folders()
        folder.sweep_temporaries()
        if not folder.has_marker():
            folder.create_marker(os.urandom(16).hex())
        journal = stack.enter_context(Journal(state.journal, now=clock.wall, boottime_s=boottime_s, boot_id=boot_id(),
                                              on_trouble=say, on_rows=on_rows))
        if journal.set_aside is not None:
            say(f"The journal was damaged and is kept as {journal.set_aside}; a new one was begun. Cases are taken up again from "
                "the vault's notes.")
        level = sandbox_level(config, say)
        bell = stack.enter_context(Bell(vault, [f for f in QUEUES if f is not Folder.REQUESTS], [Folder.REQUESTS],
                                        Mode(config.daemon.watch)))
        opener = _model_opener(config, vault, env)
        try:
            opener()
        except ModelError as error:
            say(f"The model cannot be used yet: {error}")
        ports = Ports(vault, state.worktrees, config, journal, clock, opener, prices(config), RetryPolicy(), level)
        teller = stack.enter_context(_teller(notify_settings(config), vault, say))
        loop = Loop(ports, folder, owner, bell.ring, say, teller, draft, carry_out)
        loop.load()
        _note(journal, clock, Action.DAEMON_STARTED, version=__version__, pid=os.getpid(), watch=bell.mode.value,
              sandbox=level.title, provider=config.model.provider, model=config.model.name)
        try:
            yield Daemon(vault, state, config, journal, bell, loop, say)
        finally:
            _note(journal, clock, Action.DAEMON_STOPPED, pid=os.getpid())


def sandbox_level(config: Config, say: Callable[[str], None]) -> Level:
    """Return the wall that commands get: what the probe finds, none only where the configuration says so in so many words."""
    if config.commands.sandbox == "none":
        say('Commands run outside any sandbox: System/placet.toml says sandbox = "none".')
        return Level.NONE
    found = probe()
    return found.level


def notify_settings(config: Config) -> NotifySettings:
    """Return where notices go. Raises UserError (exit code 2) for a way that cannot be used."""
    return NotifySettings(config.notify.desktop, config.notify.command, config.notify.webhook)


_NOTICES = {
    cases.State.REVIEW: Event.PLAN_WAITS,
    cases.State.COMPLETED: Event.MISSION_COMPLETED,
    cases.State.FAILED: Event.MISSION_FAILED,
}
"""Transitions that somebody is told of: entering these states."""


@contextmanager
def _teller(settings: NotifySettings, vault: Path, say: Callable[[str], None]) -> Iterator[Callable[[Case], None]]:
    """Give a function that tells of a case, in a thread of its own: a slow webhook must not slow the loop."""
    if not settings.is_on:
        yield lambda _case: None
        return
    def told(notice: Notice) -> None:
        for problem in send(notice, settings):
            say(problem)

    with ThreadPoolExecutor(1, "notify") as pool:
        def tell(case: Case) -> None:
            event = _NOTICES.get(case.state)
            if event is None:
                return
            if case.state is cases.State.FAILED and not case.report_path:
                event = Event.NEEDS_YOU  # planning failed: there was no mission
            path = case.report_path if case.state is not cases.State.REVIEW and case.report_path else case.plan_path
            notice = Notice(event, case.request_id, case.trace_id, vault.name, path or case.request_path, case.state)
            pool.submit(told, notice)

        yield tell


def prices(config: Config) -> tuple[Price, ...]:
    """Return the price list: the configuration's rows, then the ones that placet knows."""
    own = tuple(Price(row.model, row.input, row.output, row.cache_read, row.cache_write, row.since)
                for row in config.model.price)
    named = {row.model for row in own}
    return (*own, *(row for row in DEFAULT_PRICES if row.model not in named))


def _model_opener(config: Config, vault: Path, env: Mapping[str, str]) -> Callable[[], Model]:
    """Return a function that opens the model once, when it is first asked for, from whichever thread."""
    settings = ModelSettings(provider=config.model.provider, name=config.model.name, base_url=config.model.base_url,
                             script=str(vault / config.model.script) if config.model.script else "",
                             timeout_s=config.model.timeout_s)
    lock = threading.Lock()
    opened: list[Model] = []

    def open_once() -> Model:
        with lock:
            if not opened:
                opened.append(open_model(settings, env))
            return opened[0]

    return open_once


def _note(journal: Journal, clock: Clock, action: Action, **metadata: object) -> None:
    journal.commit([AddActivity(Activity(clock.now(), "", Actor.SYSTEM, action, Entity.DAEMON, "placet", "", metadata))])


def _systemd_notifier(env: Mapping[str, str]) -> Callable[[str], None]:
    """Return sd_notify(3) where a service manager listens, else a function that does nothing."""
    address = env.get("NOTIFY_SOCKET", "")
    if not address:
        return lambda _message: None
    target = "\0" + address[1:] if address.startswith("@") else address

    def notify(message: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.sendto(message.encode(), target)
            except OSError as error:
                print(f"placet: the service manager cannot be told: {error}", file=sys.stderr)  # noqa: T201 - its log

    return notify
