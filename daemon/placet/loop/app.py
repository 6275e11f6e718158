"""The only place that builds the object graph: from a vault's path to a running daemon."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from placet import __version__
from placet.agent.mission import carry_out
from placet.agent.planner import draft
from placet.agent.prompts import plan_of
from placet.agent.replay import as_json, replay
from placet.agent.workplace import Ports
from placet.core.activity import Action, Activity, Actor, CommittedRow, Entity
from placet.core.errors import UserError
from placet.core.life.case import WORKING, Case, State
from placet.core.life.lease import Owner
from placet.core.life.settle import SETTLE_S
from placet.core.life.waiting import Hold
from placet.core.secret_files import environment_secrets
from placet.core.secrets import MIN_LITERAL
from placet.core.text.names import CONFIG_PATH, MARKER, QUEUES, Folder, show
from placet.core.turn.price import DEFAULT_PRICES, Price
from placet.core.turn.retry import RetryPolicy
from placet.core.turn.talk import Model, ModelError
from placet.files.vault import Vault
from placet.host.accepted import InForce, accept, differing, in_force
from placet.host.broadcast import Broadcast
from placet.host.clock import Clock
from placet.host.config import Config, portal_path, write_setting
from placet.host.configured import read_settings
from placet.host.lock import MarkerLock, VaultLock, boot_id, boottime_s, this_process
from placet.host.sockets import places
from placet.host.state import StateFolder as VaultState
from placet.host.state import (
    known_id,
    original_of,
    remember,
    vault_state,
    write_private,
)
from placet.host.watch import Bell, Mode, Rung
from placet.journal.reader import open_reader
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, CommittedActivity, Conflict, JournalPaused
from placet.loop.notices import MODEL, side_of
from placet.loop.recover import look_back, reconcile
from placet.loop.tick import Loop, Tick
from placet.models import ModelSettings, check, open_model
from placet.sandbox.leftovers import end_left_behind
from placet.sandbox.probe import make_undumpable, probe
from placet.sandbox.values import Level


@dataclass(slots=True)
class Daemon:
    """A daemon that holds its vault: lock, journal, bell and loop are up."""

    vault: Path
    state: VaultState
    config: Config
    journal: Journal
    bell: Bell
    loop: Loop
    say: Callable[[str], None]
    notify: Callable[[str], None]
    ending: Ending

    def run(self) -> None:
        """Work until `ending` is set."""
        self.notify("READY=1")
        rung = Rung(frozenset(), any=False)
        while not self.ending.is_set():
            tick = self.loop.tick(rung.paths, self.bell.mode, rung.moved)
            self.notify(f"WATCHDOG=1\nSTATUS={self._status(tick)}")
            rung = self.bell.wait(min(tick.again_in_s, MAX_WAIT_S))
            if not rung.any:
                self.bell.check()
        self._end()

    def _end(self) -> None:
        self.notify("STOPPING=1")
        if self.loop.crew.jobs:
            self.say(
                f"Ending: what is at work gets {self.config.daemon.stop_grace_s:.0f} s to come to a safe point."
            )
        self.loop.stop(self.config.daemon.stop_grace_s)

    def run_once(self) -> Tick:
        """Work until nothing is left to do that needs no person.

        Return the last tick, which says what waits and why.

        Requests are planned at once: whoever starts it wants the work done now. A vault that goes
        away is waited for as long as work is under way, and AWAY_S more.
        """
        hinted: frozenset[str] = frozenset()
        here_at = time.monotonic()
        self.loop.drafts.hurried = True
        while True:
            tick = self.loop.tick(hinted, self.bell.mode)
            if self.ending.is_set():
                self._end()
                return replace(tick, waiting=("it was told to end before that", *tick.waiting))
            if tick.idle:
                return tick
            if not tick.away or self.loop.crew.jobs:
                here_at = time.monotonic()
            elif time.monotonic() - here_at > AWAY_S:
                return tick
            if tick.waiting and not (self.loop.crew.jobs or self.loop.book.dirty or tick.settling):
                return tick
            hinted = self.bell.wait(min(tick.again_in_s, MAX_WAIT_S)).paths

    def _status(self, tick: Tick) -> str:
        if tick.waiting:
            return tick.waiting[0].splitlines()[0][:200]
        running = len(self.loop.crew.jobs)
        return f"{running} at work" if running else "waiting for requests and decisions"


class Ending(threading.Event):
    """Set when the daemon is to end. `ring` is called then, from a signal's handler."""

    ring: Callable[[], None] = staticmethod(lambda: None)

    def set(self) -> None:
        """End what waits on it."""
        super().set()
        self.ring()


@contextmanager
def heeding_signals() -> Iterator[Ending]:
    """Give an event that SIGTERM, SIGINT and SIGHUP set.

    Entered before a daemon starts up: one that is told to end then ends well.

    SIGHUP says that the terminal was closed; under nohup(1) it is ignored, and stays so.
    """
    ending = Ending()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {
        number: signal.signal(number, lambda _number, _frame: ending.set()) for number in numbers
    }
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


AWAY_S = 5.0
"""How long `run --once` waits for a vault that went away: a sync tool may be putting its marker back."""
SWITCH_S = 0.0005
"""How long a thread that has the interpreter keeps it from others that wait for it, the loop first of all: a tenth of the usual."""
MAX_WAIT_S = 10.0
"""Longest wait between two ticks: well below the service manager's watchdog (WatchdogSec in systemd/placet@.service)."""


@contextmanager
def daemon(
    vault: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    *,
    take_over: bool = False,
    follow: Callable[[Sequence[CommittedRow]], None] = lambda _rows: None,
    ending: Ending | None = None,
) -> Iterator[Daemon]:
    """Take a vault up: configuration, lock, journal, watches.

    Raises UserError where something stands in the way.

    `take_over` claims a vault that another machine's daemon works on. `follow` is given each group
    of rows once it is in the journal, on the journal's thread: it must be quick and not raise.
    `ending` is set by whoever wants it to end.
    """
    until = ending or Ending()

    def on_rows(rows: Sequence[CommittedActivity]) -> None:
        events.publish(rows)
        follow(rows)

    make_undumpable()
    sys.setswitchinterval(SWITCH_S)
    if not (vault / CONFIG_PATH).is_file():
        raise UserError(
            f"{vault} has no {CONFIG_PATH}: it is no vault of placet's, or it is not mounted.",
            f"Mount it, or make it one: placet init {vault}",
            exit_code=2,
        )
    clock = Clock()
    owner = this_process()
    notify = _systemd_notifier(env, say)

    def waits(why: str) -> None:
        # It lives, and waits in the middle of a tick or of its start: to be ended and started again
        # would help nobody.
        notify(f"WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS={why[:200]}")

    with ExitStack() as stack:
        folder = stack.enter_context(Vault(vault))
        state = _take(folder, env, owner, clock, say, stack)
        # Before it is read: what is edited while we start up is taken up too.
        seen = _settled(vault, state) or _stamps(vault, state)
        held = read_settings(state)
        config = held.config
        _claim(vault, config, socket.gethostname(), say, take_over=take_over)
        remember(state)
        folder.ensure_folders()
        folder.sweep_temporaries()
        if left := end_left_behind(state.worktrees):
            say(f"{left} processes that a killed daemon had left in its worktrees were ended.")
        events = stack.enter_context(Broadcast(places(state.folder, env)[0], say))
        journal = stack.enter_context(
            Journal(
                state.journal,
                now=clock.wall,
                boottime_s=boottime_s,
                boot_id=boot_id(),
                on_trouble=say,
                on_rows=on_rows,
                on_wait=waits,
            )
        )
        _refuse_emptied(vault, seen, journal, config)
        if journal.set_aside is not None:
            say(f"The journal was damaged and is kept as {journal.set_aside}; a new one was begun.")
        settings = _Settings(vault, env, state, seen, held, journal, clock, say)
        level = sandbox_level(config, say)
        bell = stack.enter_context(
            Bell(
                vault,
                [f for f in QUEUES if f is not Folder.REQUESTS],
                [Folder.REQUESTS],
                Mode(config.daemon.watch),
            )
        )
        opener = _model_opener(config, vault, env)
        try:
            opener()
        except ModelError as error:
            say(f"The model cannot be used yet: {error}")
        ports = Ports(
            vault,
            state.worktrees,
            config,
            journal,
            clock,
            opener,
            prices(config),
            RetryPolicy(),
            level,
            own_secrets(env),
            say,
        )
        if config.daemon.paused:
            say("Paused: no new work is taken up until `placet resume`.")
        teller = stack.enter_context(_teller(config, vault, say))
        loop = Loop(ports, folder, owner, bell.ring, say, teller, settings.reload, draft, carry_out)
        loop.load()
        known = journal.set_aside is None and _knows_its_mark(journal, state.mark)
        if not known:
            portals = {name: portal_path(vault, config, name) for name in config.portals}
            outcomes, problems = look_back(folder, {"": vault} | portals)
            if outcomes or state.mark.exists():  # else it is the first start on this vault
                reconcile(loop.book, outcomes, problems)
        _note(
            journal,
            clock,
            Action.DAEMON_STARTED,
            version=__version__,
            pid=os.getpid(),
            watch=bell.mode.value,
            sandbox=level.title,
            provider=config.model.provider,
            model=config.model.name,
            **_left_over(loop, journal),
        )
        if not held.settled:
            _accept_all(journal, clock, state, held, say)
        settings.tell()
        _mark(journal, state.mark)

        def end() -> None:
            bell.ring()
            journal.stop_waiting()

        until.ring = end
        if until.is_set():
            end()  # it was told so while it started up
        orderly = False
        try:
            yield Daemon(vault, state, config, journal, bell, loop, say, notify, until)
            orderly = True
        except JournalPaused as error:
            orderly = True
            raise UserError(
                f"Ended while the journal could not be written: {error}.",
                "Nothing is lost: what was not written is done by the next start.",
            ) from error
        except Conflict as error:
            raise UserError(
                f"Something else wrote into the journal {state.journal} meanwhile: {error}.",
                "Make sure that no other daemon works on it, then start this one again.",
            ) from error
        finally:
            with suppress(JournalPaused):
                _note(
                    journal,
                    clock,
                    Action.DAEMON_STOPPED,
                    pid=os.getpid(),
                    orderly=orderly,
                    **_left_over(loop, journal),
                )
                _mark(journal, state.mark)


def _left_over(loop: Loop, journal: Journal) -> dict[str, Any]:
    """Return what goes on at the next start: missions with their steps, how many plans are written, how many wait for a person."""
    live = [case for case in loop.cases.values() if case.state in WORKING]
    missions = []
    with journal.read() as reader:
        for case in live:
            if case.state is not State.RUNNING:
                continue
            row = reader.last_of(
                Action.STEP_COMPLETED, Action.EXECUTION_STARTED, trace_id=case.trace_id
            )
            facts = {} if row is None else row.details
            missions.append(
                f"{case.request_id}, step {min(facts.get('step', 0) + 1, of)} of {of}"
                if (of := facts.get("of", facts.get("steps")))
                else case.request_id
            )
    missions += [f"{case.request_id}, approved" for case in live if case.state is State.APPROVED]
    return {
        "missions": missions[:MAX_LEFT_OVER],
        "planning": sum(case.state in (State.PLANNING, State.REVISING) for case in live),
        "review": sum(case.state is State.REVIEW for case in loop.cases.values()),
    }


MAX_LEFT_OVER = 50
"""How many missions a row names that go on at the next start."""


def _knows_its_mark(journal: Journal, mark: Path) -> bool:
    """Return whether the journal is the one that the last daemon left, and not an older one or none at all."""
    with journal.read() as reader:
        try:
            row_id, _, row_hash = mark.read_text("ascii", errors="replace").strip().partition(" ")
        except FileNotFoundError:
            # one of a placet that left no mark; without events it is new, or lost with its mark
            return reader.last()[0] > 0
        except OSError:
            return False
        return row_id.isdecimal() and reader.knows(int(row_id), row_hash)


def _mark(journal: Journal, mark: Path) -> None:
    """Remember the journal's last event. A mark of an earlier end does as well."""
    with journal.read() as reader:
        row_id, row_hash = reader.last()
    with suppress(OSError):
        write_private(mark, f"{row_id} {row_hash}\n".encode())


@dataclass(frozen=True, slots=True)
class _VaultBounds:
    vault: Path
    config: Config
    sandbox: Level
    secrets: tuple[str, ...]


def replay_mission(
    vault: Path, env: Mapping[str, str], case: Case, say: Callable[[str], None]
) -> dict[str, Any]:
    """Carry a mission out again from its record and compare; return what it came to as plain data.

    Raises UserError where the case has no mission, or it cannot be replayed.
    """
    state = vault_state(vault, env)
    config = in_force(vault, env).config
    with open_reader(state.journal) as reader:
        # An approval is used up by what it allowed; the journal still names the text that was
        # carried out.
        ran = [
            row.details["digest"]
            for row in reader.activity(case.trace_id, limit=10_000)
            if row.action_type == Action.EXECUTION_STARTED
        ]
        text = reader.text(ran[-1]) if ran else None
        outcomes: dict[str, bytes] = {}
        for attempt in range(case.generation, -1, -1):
            rows = reader.records(case.trace_id, attempt)
            if any(row.key == "place" for row in rows):
                outcomes = {row.key: row.body for row in rows if row.kind == "outcome"}
                break
    if text is None:
        raise UserError(
            f"{case.request_id} was never carried out, so there is nothing to replay.",
            "See: placet status",
        )
    plan = plan_of(text)
    bounds = _VaultBounds(vault, config, sandbox_level(config, say), own_secrets(env))
    return as_json(replay(bounds, state.worktrees, case, plan, outcomes))


def sandbox_level(config: Config, say: Callable[[str], None]) -> Level:
    """Return the wall that commands get: what the probe finds, none only where the configuration says so in so many words."""
    if config.commands.sandbox == "none":
        say('Commands run outside any sandbox: System/placet.toml says sandbox = "none".')
        return Level.NONE
    found = probe()
    return found.level


@dataclass(slots=True)
class _Settings:
    """The configuration as a daemon heeds it: what changes is taken up if it can be used and, where it has to be, is accepted.

    `seen` is what the files were when they were read last. Many programs empty a file and then write it: a change is taken up
    once two looks agree on it, and a file that was emptied is never taken for one that asks for the defaults.
    """

    vault: Path
    env: Mapping[str, str]
    state: VaultState
    seen: tuple[_FileStamp | None, _FileStamp | None]
    held: InForce
    journal: Journal
    clock: Clock
    say: Callable[[str], None]

    def reload(self, ports: Ports) -> Ports:
        """Return the ports with the configuration as it is now.

        One that cannot be used is said once and not taken.

        This waits while it is being written (`_settled`): what is dropped after a change is judged
        by that change.
        """
        if _stamps(self.vault, self.state) == self.seen:
            return ports
        now = _settled(self.vault, self.state)
        if now is None or now[0] is None or now == self.seen:
            return ports
        before = self.held
        try:
            if now[0].size == 0 and before.config != Config():
                raise _emptied(self.vault / CONFIG_PATH)
            held = read_settings(self.state)
        except UserError as error:
            if _stamps(self.vault, self.state) == now:
                self.seen = now
                self.say(
                    f"{error}\n  Until then the daemon goes on with the configuration that it had."
                )
            return ports
        if _stamps(self.vault, self.state) != now:
            return ports  # written while it was read: the next tick looks again
        self.seen, self.held = now, held
        if new := [".".join(key) for key in differing(before.accepted, self.held.accepted)]:
            _note(self.journal, self.clock, Action.CONFIG_ACCEPTED, keys=new)
            self.say(f"Accepted on this machine: {', '.join(map(show, new))}.")
        if self.held.digest != before.digest:
            self.tell()
        config = self.held.config
        if (config.daemon.watch, config.commands, config.notify) != (
            ports.config.daemon.watch,
            ports.config.commands,
            ports.config.notify,
        ):
            self.say(
                "The configuration changed; `watch`, [commands] and [notify] are taken up by the next start."
            )
        opener = (
            ports.open_model
            if config.model == ports.config.model
            else _model_opener(config, self.vault, self.env)
        )
        return replace(ports, config=config, open_model=opener, prices=prices(config))

    def tell(self) -> None:
        """Say and journal that settings were changed which nobody accepted.

        The same difference is journalled once.
        """
        if not self.held.refused:
            return
        self.say(self.held.problem)
        with self.journal.read() as reader:
            last = reader.last_of(Action.CONFIG_CHANGED, Action.CONFIG_ACCEPTED, trace_id="")
        if last is None or last.details.get("digest") != self.held.digest:
            _note(
                self.journal,
                self.clock,
                Action.CONFIG_CHANGED,
                keys=self.held.names,
                digest=self.held.digest,
            )


def _accept_all(
    journal: Journal, clock: Clock, state: VaultState, held: InForce, say: Callable[[str], None]
) -> None:
    """Accept what is there, because nothing was accepted on this machine yet: the first start, or one after the state was lost."""
    if names := [".".join(key) for key in held.written]:
        with journal.read() as reader:
            last = reader.last_of(Action.CONFIG_ACCEPTED, Action.DAEMON_STOPPED, trace_id="")
        # else a start was killed before it wrote them down
        if last is None or last.details.get("keys") != names:
            _note(journal, clock, Action.CONFIG_ACCEPTED, keys=names)
    accept(state, held.config)
    if names:
        say(
            f"The first start on this vault with this state folder, so these settings of {CONFIG_PATH} are accepted as they are: "
            f"{', '.join(map(show, names))}. From now on a change of them has to be accepted: placet config accept"
        )


def _take(
    folder: Vault,
    env: Mapping[str, str],
    owner: Owner,
    clock: Clock,
    say: Callable[[str], None],
    stack: ExitStack,
) -> VaultState:
    """Make this process the only daemon of a vault, and return the vault's state.

    Both are locked, the state folder and the vault: one vault can be reached by several paths,
    users and state folders. Raises UserError where another daemon works on it.
    """
    vault, marker = folder.root, folder.root / MARKER
    if folder.marker() is None:
        folder.create_marker(known_id(vault, env) or os.urandom(16).hex())
    if original_of(vault, env) is not None:
        with MarkerLock(marker, say):  # no daemon works on it under the id that it has
            original = original_of(vault, env)
        if original is not None:  # unlocked: a file that is open for writing is not replaced
            folder.renew_marker(os.urandom(16).hex())
            say(
                f"This vault is a copy of {original}, which is still there. It gets an id and a journal of its own."
            )
    state = vault_state(vault, env)
    for warning in state.ensure():
        say(warning)
    stack.enter_context(VaultLock(state.lock, owner, clock.now()))
    stack.enter_context(MarkerLock(marker, say))
    with suppress(OSError):
        state.sweep()
    return state


class _FileStamp(NamedTuple):
    """What changes when a file does."""

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


def _stamps(vault: Path, state: VaultState) -> tuple[_FileStamp | None, _FileStamp | None]:
    return _stat(vault / CONFIG_PATH), _stat(state.accepted)


def _stat(path: Path) -> _FileStamp | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return _FileStamp(info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _settled(vault: Path, state: VaultState) -> tuple[_FileStamp | None, _FileStamp | None] | None:
    """Return what the configuration's files are once nobody writes them.

    None where somebody does for CONFIG_WAIT_S.

    At once where they are older than SETTLE_S, else when two looks that far apart agree.
    """
    now = _stamps(vault, state)
    until = time.monotonic() + CONFIG_WAIT_S
    # Only the change time: the other one is whatever a sync tool says. Where it lies ahead, the
    # clock was set back.
    while not all(
        time.time() - stamp.ctime_ns / 1e9 >= SETTLE_S for stamp in now if stamp is not None
    ):
        if time.monotonic() >= until:
            return None
        time.sleep(SETTLE_S)
        before, now = now, _stamps(vault, state)
        if now == before:
            break
    return now


CONFIG_WAIT_S = 1.0
"""How long one tick, or a start, waits for a configuration that is being written."""


def _emptied(path: Path) -> UserError:
    return UserError(
        f"{path} is empty, and was not: whatever emptied it may not be done, or lost what it wrote.",
        "Put it back, from a backup or another machine. For the defaults write a comment into it: # defaults",
        exit_code=2,
    )


def _refuse_emptied(
    vault: Path, seen: tuple[_FileStamp | None, _FileStamp | None], journal: Journal, config: Config
) -> None:
    """Raise UserError for a configuration that a crash may have left empty: the daemon before asked another model than the default.

    Notes would go to a provider whom nobody chose for them.
    """
    if seen[0] is None or seen[0].size > 0:
        return
    with journal.read() as reader:
        last = reader.last_of(Action.DAEMON_STARTED, trace_id="")
    model = config.model
    if last is not None and (last.details.get("provider"), last.details.get("model")) != (
        model.provider,
        model.name,
    ):
        raise _emptied(vault / CONFIG_PATH)


def _claim(
    vault: Path, config: Config, host: str, say: Callable[[str], None], *, take_over: bool
) -> None:
    """Make sure that no other machine's daemon has claimed the vault (`placet init` does).

    Raises UserError for one that has.
    """
    if config.vault.host in ("", host):
        return
    if not take_over:
        raise UserError(
            f"The daemon of {config.vault.host} works on this vault ([vault] host in System/placet.toml); this is {host}.",
            "Two daemons on one synced vault would do everything twice. Stop the other, then: placet run --take-over",
        )
    write_setting(vault, ("vault", "host"), host)
    say(f"Taken over from {config.vault.host}.")


@contextmanager
def _teller(
    config: Config, vault: Path, say: Callable[[str], None]
) -> Iterator[Callable[[Case | Hold], None]]:
    """Give a function that tells of a case or a hold, in a thread of its own: a slow webhook must not slow the loop.

    Raises UserError (exit code 2) for a way of telling that cannot be used.
    """
    table = config.notify
    if not (table.desktop or table.command or table.webhook):
        yield lambda _case: None
        return
    # Only here: HTTP and TLS cost 4 MB, which a daemon without notices must not.
    from placet.host.notify import Event, Messenger, Notice, NotifySettings

    events = {
        State.REVIEW: Event.PLAN_WAITS,
        State.COMPLETED: Event.MISSION_COMPLETED,
        State.FAILED: Event.MISSION_FAILED,
    }

    with Messenger(NotifySettings(table.desktop, table.command, table.webhook), say) as messenger:

        def tell(case: Case | Hold) -> None:
            if isinstance(case, Hold):
                messenger.send(Notice(Event.NEEDS_YOU, "", "", vault.name, side_of(MODEL)))
                return
            event = events.get(case.state)
            if event is None:
                return
            if case.state is State.FAILED and not case.report_path:
                event = Event.NEEDS_YOU  # planning failed: there was no mission
            path = (
                case.report_path
                if case.state is not State.REVIEW and case.report_path
                else case.plan_path
            )
            messenger.send(
                Notice(
                    event,
                    case.request_id,
                    case.trace_id,
                    vault.name,
                    path or case.request_path,
                    case.state,
                )
            )

        yield tell


def own_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the daemon itself must keep: secret values of its environment, and the service manager's credentials."""
    values = list(environment_secrets(env))
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        for path in sorted(Path(folder).iterdir()):
            values.append(path.read_bytes().decode(errors="replace").strip())
    return tuple(value for value in dict.fromkeys(values) if len(value) >= MIN_LITERAL)


def prices(config: Config) -> tuple[Price, ...]:
    """Return the price list: the configuration's rows, then the ones that placet knows."""
    own = tuple(
        Price(row.model, row.input, row.output, row.cache_read, row.cache_write, row.since)
        for row in config.model.price
    )
    named = {row.model for row in own}
    return (*own, *(row for row in DEFAULT_PRICES if row.model not in named))


def _model_opener(config: Config, vault: Path, env: Mapping[str, str]) -> Callable[[], Model]:
    """Return a function that opens the model once, when it is first asked for, from whichever thread."""
    settings = _model_settings(config, vault)
    lock = threading.Lock()
    opened: list[Model] = []

    def open_once() -> Model:
        with lock:
            if not opened:
                opened.append(open_model(settings, env))
            return opened[0]

    return open_once


def model_answers(config: Config, vault: Path, env: Mapping[str, str]) -> bool:
    """Ask the model's server whether it takes the key and knows the model; return False where it does not say.

    Raises UserError for settings that a person must correct, ModelError for a bad key or a server that cannot be reached.
    Only for providers that have a server.
    """
    settings = _model_settings(config, vault)
    open_model(settings, env)
    return check(settings, env)


def _model_settings(config: Config, vault: Path) -> ModelSettings:
    return ModelSettings(
        provider=config.model.provider,
        name=config.model.name,
        base_url=config.model.base_url,
        script=str(vault / config.model.script) if config.model.script else "",
        timeout_s=config.model.timeout_s,
    )


def _note(journal: Journal, clock: Clock, action: Action, **metadata: object) -> None:
    journal.commit(
        [
            AddActivity(
                Activity(
                    clock.now(), "", Actor.SYSTEM, action, Entity.DAEMON, "placet", "", metadata
                )
            )
        ]
    )


def _systemd_notifier(env: Mapping[str, str], say: Callable[[str], None]) -> Callable[[str], None]:
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
                say(f"The service manager cannot be told: {error}")

    return notify
