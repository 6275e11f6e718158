"""Build a running daemon from a vault's path. No other module builds the object graph."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from placet import __version__
from placet.activity import Action, CommittedRow
from placet.agent.commits import remove_leftover_worktrees
from placet.agent.mission import run_mission
from placet.agent.planner import draft
from placet.agent.ports import Ports
from placet.case.adopt import distrust
from placet.case.case import CASE_JSON
from placet.case.life_cycle import DRAFTING, State
from placet.chat.messages import ModelError
from placet.chat.retry import RetryPolicy
from placet.disk.vault import Vault
from placet.disk.watch import Mode, Watcher
from placet.errors import PlacetError, UserError
from placet.host.clock import Clock, boottime_s
from placet.host.config import Config
from placet.host.lock import boot_id, this_process
from placet.host.plugins import WORKERS, plugin
from placet.host.state import StateFolder, remember
from placet.journal.database import address_of, database_of
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, Conflict, JournalPaused
from placet.loop.build import (
    model_opener,
    own_secrets,
    sandbox_level,
    systemd_notifier,
    teller,
)
from placet.loop.claim import claim, knows_its_marks, lock_vault, mark_end, must_be_there
from placet.loop.config_watch import ConfigWatch
from placet.loop.gestures import refuse
from placet.loop.rows import of_daemon
from placet.loop.run import Daemon, Ending, journal_pause_as_user_error
from placet.loop.threads import Workers
from placet.loop.tick import Loop
from placet.loop.work import Draft, RunMission
from placet.note.paths import CONFIG_PATH, QUEUES, Folder
from placet.sandbox.cleanup import end_left_behind
from placet.sandbox.probe import make_undumpable
from placet.wording import counted

SWITCH_S = 0.0005
"""Interpreter switch interval: a tenth of the default, so that the loop gets its turn."""
MAX_LEFT_OVER = 50
"""Maximum of unfinished missions that a row names."""

Say = Callable[[str], None]
Follow = Callable[[Sequence[CommittedRow]], None]


@contextmanager
def daemon(
    vault: Path,
    env: Mapping[str, str],
    say: Say,
    *,
    take_over: bool = False,
    follow: Follow = lambda _rows: None,
    ending: Ending | None = None,
    ask_kernel: bool = True,
) -> Iterator[Daemon]:
    """Start a daemon: read the configuration, take the locks, open the journal and the watches.

    Raises UserError if it cannot start. `take_over` claims a vault that another machine's daemon
    works on. `follow` is called with each group of rows once it is in the journal, on the journal's
    thread: it must be quick and not raise. Set `ending` to stop the start or the daemon.
    `ask_kernel` is as in `Vault`.
    """
    until = ending or Ending()
    make_undumpable()
    sys.setswitchinterval(SWITCH_S)
    _must_be_a_vault(vault)
    clock = Clock()
    with ExitStack() as stack:
        folder = stack.enter_context(Vault(vault, ask_kernel=ask_kernel))
        notify = systemd_notifier(env, say)
        process = this_process()
        state, marker = lock_vault(folder, env, process, clock, say, stack, take_over=take_over)
        settings = ConfigWatch.load(vault, env, state, clock, say)
        settings.ask_kernel = ask_kernel
        config = settings.held.config
        claim(vault, config, socket.gethostname(), say, take_over=take_over)
        remember(state)
        folder.ensure_folders()
        folder.sweep_temporaries()
        if left := end_left_behind(state.worktrees):
            ended = counted(left, "process", "processes")
            say(f"Killed {ended} that a crashed daemon had left running in its worktrees.")
        stack.enter_context(journal_pause_as_user_error())
        journal = _journal(state, clock, say, follow, notify, stack, config, until)
        until.rings(journal.stop_waiting)
        if address := address_of(journal.path):  # daemons of other machines can reach it
            lock, whose = database_of(address).lock, str(folder.marker())
            lease_s = config.team.lease_s
            stack.enter_context(lock(journal, whose, this_process(), lease_s, say, until))
        loop, watcher = _loop(folder, env, say, settings, journal, clock, stack)
        if journal.set_aside is not None or not knows_its_marks(journal, state.mark, folder):
            distrust_journal(loop)
        _remove_leftovers(loop.ports)
        journal.commit([_started(loop, watcher)])
        settings.accept_first(journal)
        settings.tell(journal)
        mark_end(journal, state.mark, folder)

        def end() -> None:
            watcher.ring()
            journal.stop_waiting()

        until.rings(end)
        with _ended(loop, state):
            yield Daemon(vault, journal, watcher, loop, say, notify, until, marker)


def _must_be_a_vault(vault: Path) -> None:
    if not os.path.isfile(vault / CONFIG_PATH):
        raise UserError(
            f"{vault} has no {CONFIG_PATH}, so it is not a placet vault, or it is not mounted.",
            f"Mount it. Or make it a vault: placet init {vault}",
            exit_code=2,
        )


def _started(loop: Loop, watcher: Watcher) -> AddActivity:
    model = loop.ports.config.model
    facts = {
        "version": __version__,
        "pid": os.getpid(),
        "watch": watcher.mode.value,
        "sandbox": loop.ports.sandbox.title,
        "provider": model.provider,
        "model": model.name,
    }
    return of_daemon(loop.ports.clock, Action.DAEMON_STARTED, **facts, **_unfinished_work(loop))


def _journal(
    state: StateFolder,
    clock: Clock,
    say: Say,
    follow: Follow,
    notify: Callable[[str], None],
    stack: ExitStack,
    config: Config,
    until: Ending,
) -> Journal:
    """Open the journal. It calls `follow` with each group of new rows."""

    def waits(why: str) -> None:
        # The loop is blocked in a tick or in the start, and a restart would not help: keep the
        # watchdog calm.
        notify(f"WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS={why[:200]}")

    reported: list[str] = []

    def waits_for_start(why: str) -> None:
        waits(why)
        if not reported:
            reported.append(why)
            say(why)

    must_be_there(config, state, waits_for_start, until)
    journal = stack.enter_context(
        Journal(
            state.journal,
            now=clock.wall,
            boottime_s=boottime_s,
            boot_id=boot_id(),
            on_trouble=say,
            on_rows=None if config.team.workers else follow,
            on_wait=waits,
        )
    )
    if config.team.workers:
        stack.enter_context(plugin(WORKERS, "team").all_rows(journal, follow))
    if journal.set_aside is not None:
        say(f"The journal was damaged. placet kept it as {journal.set_aside} and began a new one.")
    return journal


def _loop(
    folder: Vault,
    env: Mapping[str, str],
    say: Say,
    settings: ConfigWatch,
    journal: Journal,
    clock: Clock,
    stack: ExitStack,
) -> tuple[Loop, Watcher]:
    """Build the loop with its ports and its watcher, and load its cases."""
    vault, config = folder.root, settings.held.config
    level = sandbox_level(config, say)
    queues = [queue for queue in QUEUES if queue is not Folder.REQUESTS]
    mode, intents = Mode(config.daemon.watch), settings.state.intents
    watcher = stack.enter_context(Watcher(vault, queues, [Folder.REQUESTS], mode, intents))
    opener = model_opener(config, vault, env)
    try:
        opener()
    except ModelError as error:
        say(f"The model cannot be used yet: {error}")
    ports = Ports(
        vault,
        config,
        level,
        own_secrets(env),
        settings.state.worktrees,
        journal,
        clock,
        opener,
        config.model.prices,
        RetryPolicy(),
        say,
    )
    if config.daemon.paused:
        say("Paused: no new work starts until `placet resume`.")
    tell = stack.enter_context(teller(config, vault, say))
    do_draft: Draft = draft
    do_mission: RunMission = run_mission
    team: Workers | None = None
    if settings.held.config.team.workers or address_of(journal.path):
        do_draft, do_mission, team = plugin(WORKERS, "team").choose_workers(
            lambda: settings.held.config, journal, watcher.ring, say, stack
        )
    loop = Loop(
        ports,
        folder,
        this_process(),
        watcher.ring,
        say,
        tell,
        settings.reload,
        do_draft,
        do_mission,
        team=team,
    )
    loop.load()
    return loop, watcher


_LOST = "The journal was lost, or restored from a backup."


def distrust_journal(loop: Loop) -> None:
    """Drop all pending commands and intents, and have open approvals reviewed again.

    They were meant for an older state of the notes. The next look sends plans in System/Active
    back to review.
    """
    state = loop.state
    state.outbox.forget()
    while loop.read_intents():
        refuse(state, f"{_LOST} Decide again.", *chain(*state.intents.waiting.values()))
    open_ones = [
        case for case in state.cases.values() if case.acting in (State.APPROVED, State.RUNNING)
    ]
    clock = state.ports.clock
    state.record(*(distrust(case, clock.now()) for case in open_ones))
    facts = {"to_review": [case.request_id for case in open_ones]}
    state.ports.journal.commit([of_daemon(clock, Action.JOURNAL_RECONCILED, **facts)])
    state.say(f"{_LOST} Open requests and plans are read again, and plans come back for review.")


def _remove_leftovers(ports: Ports) -> None:
    """Remove the worktrees that a crash left, and log where their work was saved."""
    try:
        left = remove_leftover_worktrees(ports)
    except (PlacetError, OSError) as error:
        ports.say(f"Worktrees left by a crash could not be removed: {ports.worktrees}: {error}")
        return
    for one in left:
        if not one.removed:
            ports.say(f"{one.path} is left over from a crash and stays: {one.problem}")
        elif one.kept:
            ports.say(f"Removed {one.path}, left over from a crash. Its work is kept at {one.kept}")
        else:
            ports.say(f"Removed {one.path}, left over from a crash. It was empty.")
    if removed := [str(one.path) for one in left if one.removed]:
        facts = {"path": str(ports.worktrees), "gone": removed}
        ports.journal.commit([of_daemon(ports.clock, Action.GIT_TIDIED, **facts)])


@contextmanager
def _ended(loop: Loop, state: StateFolder) -> Iterator[None]:
    """Journal that the daemon stopped; raises UserError if the journal could not be written."""
    journal, orderly = loop.ports.journal, False
    try:
        yield
        orderly = True
    except JournalPaused:
        orderly = True
        raise
    except Conflict as error:
        raise UserError(
            f"Another program wrote to the journal {state.journal}: {error}.",
            "Make sure that no other daemon uses it, then type: placet run",
        ) from error
    finally:
        with suppress(JournalPaused, UserError):  # a missing journal was reported already
            facts = {"pid": os.getpid(), "orderly": orderly}
            stopped = of_daemon(
                loop.ports.clock, Action.DAEMON_STOPPED, **facts, **_unfinished_work(loop)
            )
            journal.commit([stopped])
            mark_end(journal, state.mark, loop.state.vault)


def _unfinished_work(loop: Loop) -> dict[str, Any]:
    """Return the work that the next start resumes.

    That is each mission with its step, and the numbers of plans being written, of plans that
    wait for you and of open questions.
    """
    live = [case for case in loop.cases.values() if case.is_working]
    missions = []
    with loop.ports.journal.read() as reader:
        over = [CASE_JSON.validate_json(row.body) for row in reader.cases(State.FAILED)]
        failed = sum(case.plan.path.startswith(f"{Folder.PLANS}/") for case in over)
        for case in live:
            if case.acting is not State.RUNNING:
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
        "planning": sum(case.acting in DRAFTING for case in live),
        "review": sum(case.state is State.REVIEW for case in loop.cases.values()) + failed,
        "asking": sum(case.state is State.ASKING for case in loop.cases.values()),
    }
