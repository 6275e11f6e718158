"""Run a worker's process: open the database, wait for its name, take work, stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from placet.disk.files import delete_tree, sweep
from placet.errors import UserError, cannot_write
from placet.host.clock import Clock, boottime_s
from placet.host.lock import VaultLock, is_alive, this_process
from placet.host.state import make_private
from placet.journal.database import DatabaseAway
from placet.journal.writes import JournalPaused
from placet.loop.build import own_secrets, sandbox_level
from placet.loop.run import Ending
from placet.sandbox.box import Level
from placet.sandbox.cleanup import end_left_behind
from placet.sandbox.probe import make_undumpable
from placet.wording import counted
from placet_team.cache import GAP_S
from placet_team.clones import clear_clones
from placet_team.postgres import PostgresConnection, error_line, shown
from placet_team.tables import (
    has_team_tables,
    labels_of,
    member_rows,
    quiet_limit_s,
    server_now_s,
)
from placet_team.work_dispatch import OWNER_JSON
from placet_team.worker import AGAIN_S, Worker, WorkerId, name_taken, not_let_in
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_setup import Machine, WorkerSettings


def run(
    address: str,
    ident: WorkerId,
    own: WorkerSettings,
    folder: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    ending: Ending,
) -> None:
    """Work for a team until `ending` is set; running work then finishes its round.

    While the database is away it ends at once: nothing that was recorded is lost. `folder` is where
    the worker keeps clones and worktrees; they can be deleted while it does not run. Raises
    UserError for a database that cannot be used, or a name that another worker has.
    """
    make_undumpable()
    with ExitStack() as stack:
        _prepared(ident.name, folder, stack, say)
        journal = stack.enter_context(closing(WorkerJournal(address, folder / "journal", say)))
        ending.rings(journal.stop_waiting)
        try:
            if _awaited(address, say, ending):
                _work(ident, own, folder, env, say, ending, journal)
        except JournalPaused as error:
            say(f"Ended while the database could not be reached: {error}")
        except psycopg.Error as error:
            raise UserError(
                f"This worker cannot use the database {shown(address)}: {error_line(error)}.",
                "The guide has the rights that its role needs, under “Roles” in “The journal in "
                "PostgreSQL”. Then start the worker again.",
            ) from error


def _work(
    ident: WorkerId,
    own: WorkerSettings,
    folder: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
    ending: Ending,
    journal: WorkerJournal,
) -> None:
    with ExitStack() as stack:
        with journal.read() as reader:
            labels = labels_of(reader.connection, ident.name)
            ahead_s = server_now_s(reader.connection) - boottime_s()
        # the database's time, whatever this machine's says: the team shares the budget of a day
        clock = Clock(wall=lambda: datetime.fromtimestamp(boottime_s() + ahead_s, UTC))
        if not labels:
            raise not_let_in(ident.name)
        if not (own.remote or own.remotes):
            say("This worker has no git remote, so it can do no work. Start it with --remote URL")
        level = sandbox_level(own.config, say)
        if level is Level.NONE and own.config.commands.sandbox != "none":
            say("This machine has no sandbox, so the worker takes no work that runs commands.")
        owner = OWNER_JSON.dump_json(this_process()).decode()
        machine = Machine(journal, folder, env, level, own_secrets(env), say, own, clock=clock)
        worker = Worker(ident, journal, machine, say, owner)
        if not _join(stack, worker, say, ending):
            return
        facts = f"{counted(ident.slots, 'slot')}, labels {', '.join(labels)}, {level.title}"
        say(f"worker {ident.name} takes work: {facts}; stop with Ctrl-C")

        def is_stopping() -> bool:
            if ending.is_set() or worker.failed:
                machine.leaving.set()
            return machine.leaving.is_set() or worker.draining

        worker.work(is_stopping)
        if worker.failed:
            raise worker.failed
        if worker.draining:
            say(f"{ident.name} was drained: it has finished its work.")


def _join(stack: ExitStack, worker: Worker, say: Callable[[str], None], ending: Ending) -> bool:
    """Join the team until the stack is left; return False if told to stop before.

    An earlier process of this name may be gone. If it ran on this machine, that is known at once.
    Otherwise this waits until it has given no sign of life for `lease_s`, while the database was
    reachable. Raises UserError if it lives.
    """
    name, mine = worker.ident.name, OWNER_JSON.validate_json(worker.owner)
    reported, began_s = False, boottime_s()
    looked_s = began_s
    while not ending.is_set():
        with worker.journal.read() as reader:
            found, lease_s = member_rows(reader.connection, name), quiet_limit_s(reader)
        dead_owner = ""
        if found:
            other = OWNER_JSON.validate_json(found[0].owner)
            if (other.host, other.boot_id) == (mine.host, mine.boot_id):
                if is_alive(other):
                    raise name_taken(name, "this machine")
                dead_owner = found[0].owner
        now_s = boottime_s()
        began_s = now_s if now_s - looked_s > GAP_S else began_s  # the database was away
        looked_s = now_s
        if not found or dead_owner or now_s - began_s >= lease_s:
            try:
                stack.enter_context(worker.joined(dead_owner))
            except UserError:
                if found and not dead_owner:
                    raise
            else:
                return True
        # else another worker was quicker, and the next look names it
        if not reported and not dead_owner:
            reported, waits = True, f"This one waits {lease_s:.0f} s: that may have ended."
            say(f"{name_taken(name).what} {waits}")
        ending.wait(AGAIN_S)
    return False


def _awaited(address: str, say: Callable[[str], None], ending: Ending) -> bool:
    """Wait until the database and the team's tables are there; return False if told to end."""
    reported = ""
    while True:
        try:
            with closing(PostgresConnection(address)) as connection:
                if has_team_tables(connection):
                    return True
            waits = (
                f"The database {shown(address)} has no team yet. This worker waits until you type, "
                "on the vault's machine: placet team init ADDRESS"
            )
        except DatabaseAway as error:
            waits = (
                f"The database {shown(address)} cannot be reached: {error}. This worker waits "
                "until it can be reached."
            )
        if waits != reported:
            reported = waits
            say(waits)
        if ending.wait(AGAIN_S):
            return False


def _prepared(name: str, folder: Path, stack: ExitStack, say: Callable[[str], None]) -> None:
    """Make the worker's folder ready, held by this process alone.

    Delete what a killed worker left: it is all recorded or void.
    """
    try:
        make_private(folder)
        sweep(folder)
        stack.enter_context(VaultLock(folder / "lock", this_process(), Clock().now()))
    except OSError as error:
        raise cannot_write(folder, error) from error
    except UserError as error:
        raise name_taken(name, "this machine") from error
    worktrees = folder / "worktrees"
    make_private(worktrees)
    sweep(worktrees)
    if left := end_left_behind(worktrees):
        say(f"Ended {counted(left, 'process', 'processes')} that a killed worker had left.")
    delete_tree(worktrees)
    make_private(worktrees)
    clear_clones(folder / "clones")
    delete_tree(folder / "vaults")
    make_private(folder / "vaults")
