"""Take work from the queue, do it, and return the result.

A worker needs no vault. It records each step in the database before the next one begins, so another
worker can continue from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg

from placet import __version__
from placet.agent.mission import run_mission
from placet.agent.mission_end import bug_result
from placet.agent.planner import draft
from placet.agent.ports import Ports
from placet.agent.record import Postponed
from placet.agent.tool_calls import MACHINE_RETRY_S, AsksPerson
from placet.agent.work import Mission
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.errors import End, Interrupted, Stop, UserError, describe_bug, passing
from placet.git.run import GitError
from placet.host.clock import boottime_s
from placet.journal.writes import (
    BodyDamaged,
    Guard,
    JournalPaused,
    LeaseLost,
    Write,
)
from placet_team.tables import LEASE_S, PutResult, WorkRow, text_of, work_row, work_rows
from placet_team.work_item import (
    ITEM_JSON,
    LEFT,
    MISTAKE,
    Wait,
    packed_result,
)
from placet_team.worker_journal import WorkerJournal
from placet_team.worker_setup import Machine

BEATS = 5
"""Signs of life within the time that one is good for."""
LOOK_S = 1.0
"""Seconds between two looks for what the daemon says of work under way."""
FIRST_LOOK_S = 0.05
"""Seconds until a worker first checks whether the daemon handed it the work that it took."""


@dataclass(frozen=True, slots=True)
class WorkerId:
    """A worker as the team knows it: its name, which is its role in the database, and its slots."""

    name: str
    slots: int


@dataclass(slots=True)
class Worker:
    """A worker's process."""

    ident: WorkerId
    journal: WorkerJournal
    machine: Machine
    say: Callable[[str], None]
    owner: str
    """Owner of its leases, as JSON."""
    taken: dict[str, object] = field(default_factory=dict)
    """Each piece of work by trace_id, with its job."""
    under_way: dict[str, tuple[int, Cancel]] = field(default_factory=dict)
    """The tokens of granted work, and how to stop it."""
    lease_s: float = LEASE_S
    """How long a sign of life is valid."""
    draining: bool = False
    failed: UserError | psycopg.Error | None = None
    """A lasting fault: the database refuses, or another worker has its name."""

    # --- signs of life

    @contextmanager
    def alive(self, dead_owner: str = "") -> Iterator[None]:
        """Give signs of life in a separate thread; at the end, tell the team that it ended.

        The thread also tells work under way what the daemon says. `gone` is the owner (JSON) of a
        process that had this name and has ended. Raises UserError where another worker has it.
        """
        stop = threading.Event()
        self._beat(dead_owner)

        def live() -> None:
            last_s = boottime_s()
            try:
                while not stop.wait(min(LOOK_S, self.lease_s / BEATS)):
                    self._heed()
                    if boottime_s() - last_s >= self.lease_s / BEATS:
                        last_s = boottime_s()
                        self._beat()
            except (UserError, psycopg.Error) as error:
                self.failed = error
            except JournalPaused:
                return

        thread = threading.Thread(target=live, name="alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            with suppress(JournalPaused):
                self.journal.call("worker_leave", self.owner)

    def _beat(self, dead_owner: str = "") -> None:
        level, slots = int(self.machine.level), self.ident.slots
        beat = (self.owner, level, __version__, slots, dead_owner, [*self.under_way])
        answer, lease_s = self.journal.call("worker_beat", *beat)
        if answer == "taken":
            raise name_taken(self.ident.name)
        if answer == "unknown":
            raise not_let_in(self.ident.name)
        self.draining, self.lease_s = answer == "draining", float(lease_s)

    def _heed(self) -> None:
        """Tell the work under way what the daemon says."""
        if not self.under_way:
            return
        with self.journal.read() as reader:
            rows = {row.trace_id: row for row in work_rows(reader.connection, self.owner)}
        for trace_id, (token, cancel) in list(self.under_way.items()):
            row = rows.get(trace_id)
            if row is None or row.token != token:
                cancel.set()
            elif row.stop:
                cancel.set(row.stop)

    # --- work

    def take(self, trace_id: object, generation: object) -> None:
        """Take a piece of work, wait until the daemon hands it over, and do it.

        Every worker can write jobs, so one with bad arguments is ignored.
        """
        if not (
            isinstance(trace_id, str) and isinstance(generation, int) and 0 < generation < 1 << 63
        ):
            return
        job = object()
        if self.taken.setdefault(trace_id, job) is not job:
            return  # a second job for it: the daemon queued it again meanwhile
        try:
            self._take(trace_id, generation)
        except psycopg.Error as error:  # the caller reports nothing
            self.failed = error
        finally:
            del self.taken[trace_id]

    def _take(self, trace_id: str, generation: int) -> None:
        try:
            claim = (trace_id, generation, self.owner, int(self.machine.level))
            if not self.journal.call("worker_claim", *claim):
                return  # it was withdrawn
        except JournalPaused:
            return
        with suppress(JournalPaused, LeaseLost):
            row = self._await_assignment(trace_id, generation)
            if row is not None:
                self._carry(row)

    def _await_assignment(self, trace_id: str, generation: int) -> WorkRow | None:
        """Wait until a piece of work is handed over; return None if the daemon withdraws it."""
        wait_s = FIRST_LOOK_S
        while not self.machine.leaving.is_set():
            with self.journal.read() as reader:
                row = work_row(reader.connection, trace_id)
            if row is None or (row.generation, row.owner) != (generation, self.owner):
                return None
            if row.token:
                return row
            self.machine.clock.wait(wait_s, self.machine.leaving.is_set)
            wait_s = min(2 * wait_s, LOOK_S)
        return None

    def _carry(self, row: WorkRow) -> None:
        with self.journal.read() as reader:
            text = text_of(reader.connection, "item", row.trace_id, row.token)
        if text is None:
            return
        cancel = Cancel()
        self.under_way[row.trace_id] = row.token, cancel
        try:
            kind, result, writes = self._done(text, row.token, cancel)
            guard = Guard(row.trace_id, row.token)
            self.journal.commit([guard, *writes, PutResult(kind, result)])
        except LeaseLost:
            self.say(f"{row.trace_id[:8]} now belongs to another worker; unrecorded steps are lost")
        finally:
            del self.under_way[row.trace_id]

    def _done(self, text: str, token: int, cancel: Cancel) -> tuple[str, str, list[Write]]:
        """Do a piece of work (a WorkItem as JSON); return its result, and writes to go with it."""
        writes = list[Write]()
        try:
            item = ITEM_JSON.validate_json(text)
            what = "plans" if item.assignment is not None else "runs"
            self.say(f"{what} {item.case.request_id}")
            if item.assignment is not None:
                ports, _ = self.machine.ports(item, cancel)
                drafted = draft(ports, item.assignment, cancel)
                return *packed_result(drafted), writes
            with self.machine.mission(item, token, cancel) as (ports, mission, carriers):
                ended = self._ended(ports, mission, cancel)
                for carrier in carriers[-1:]:
                    writes += carrier.writes()
            return *packed_result(ended), writes
        except AsksPerson as asks:
            return *packed_result(asks.asked), writes
        except Postponed as postponed:
            self.say(f"returned to the queue: {postponed.reason}")
            return *packed_result(Wait.of(postponed)), writes
        except Interrupted:
            return LEFT, "", writes
        except Stop as stop:
            if stop.end is End.LEASE_LOST:
                raise LeaseLost(stop.detail) from stop
            return MISTAKE, describe_bug(stop), writes
        except BodyDamaged as damaged:
            return MISTAKE, f"{damaged}", writes
        except (JournalPaused, LeaseLost):
            raise
        except Exception as error:  # it must come back in any case, with a mistake of placet's too
            return *_mishap(error), writes

    def _ended(self, ports: Ports, mission: Mission, cancel: Cancel) -> MissionResult:
        try:
            return run_mission(ports, mission, cancel)
        except (Interrupted, Postponed, AsksPerson, LeaseLost, JournalPaused, BodyDamaged):
            raise
        except Exception as error:
            if isinstance(error, Stop) and error.end is End.LEASE_LOST:
                raise
            return bug_result(ports, mission, error)


def name_taken(name: str, where: str = "another machine") -> UserError:
    """Return the error for a worker whose name a running one has."""
    return UserError(
        f"A worker named {name} runs on {where} already.",
        "Stop it first, or give this one another role: placet team init --worker NAME",
        exit_code=2,
    )


def not_let_in(name: str) -> UserError:
    """Return the error for a worker that the team does not know."""
    return UserError(
        f"This team has no worker named {name}.",
        f"On the vault's machine, run: placet team init --worker {name}",
        exit_code=2,
    )


def _mishap(error: Exception) -> tuple[str, str]:
    """Return the result of work that failed before it began: it waits if the fault may pass."""
    why = passing(error) if isinstance(error, UserError | GitError | OSError) else ""
    if why:
        return packed_result(Wait(why, MACHINE_RETRY_S, WaitReason.MACHINE))
    return MISTAKE, describe_bug(error)
