"""Take work from the queue, do it, and return the result.

A worker needs no vault. It records each step in the database before the next one begins, so another
worker can continue from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
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
from placet.journal.database import DatabaseAway
from placet.journal.writes import (
    BodyDamaged,
    Guard,
    JournalPaused,
    LeaseLost,
    Write,
)
from placet_team.postgres import PostgresConnection
from placet_team.tables import LEASE_S, WORK, PutResult, own_work, text_of
from placet_team.work_item import (
    ITEM_JSON,
    LEFT,
    MISTAKE,
    Wait,
    packed_result,
)
from placet_team.worker_journal import WorkerJournal, call_once
from placet_team.worker_setup import Machine

BEATS = 5
"""Signs of life within the time that one is good for."""
LOOK_S = 0.25
"""Seconds after which a worker's threads notice that it is to stop."""
PAUSE_S = 0.02
"""Seconds from one look to the next at least: any worker can send notices."""
AGAIN_S = 1.0
"""Seconds between two attempts to reach a database that is away."""


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
    taken: set[str] = field(default_factory=set)
    """The work that it claimed, by trace_id."""
    under_way: dict[str, tuple[int, Cancel]] = field(default_factory=dict)
    """The tokens of work that was handed over, and how to stop it."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Its work at the last look, by trace_id; the token is 0 before it is handed over."""
    looks: tuple[int, int] = (0, 0)
    """The looks that it began, and those that it ended."""
    lease_s: float = LEASE_S
    """How long a sign of life is valid."""
    draining: bool = False
    failed: UserError | psycopg.Error | None = None
    """A lasting fault: the database refuses, or another worker has its name."""
    _claiming: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _slots: list[threading.Thread] = field(default_factory=list)
    _is_stopping: Callable[[], bool] = bool
    _offers: int = 1
    """Announcements of work."""
    _gone: int = 0
    """Those after which it found no more work."""

    # --- its life

    @contextmanager
    def joined(self, dead_owner: str = "") -> Iterator[None]:
        """Join the team, and leave it at the end. Raises UserError where another has its name.

        `dead_owner` is the owner (JSON) of a process that had this name and has ended.
        """
        self._heard(self.journal.call("worker_beat", *self._beat(dead_owner)))
        try:
            yield
        finally:
            with suppress(JournalPaused):
                self.journal.call("worker_leave", self.owner)

    def work(self, is_stopping: Callable[[], bool]) -> None:
        """Take work until `is_stopping`, in a thread for each slot. Then let them finish.

        One connection hears what the daemon announces, and gives signs of life.
        """
        self._is_stopping = is_stopping
        for n in range(self.ident.slots):
            slot = threading.Thread(target=self._slot, name=f"slot-{n}")
            slot.daemon = True
            self._slots.append(slot)
            slot.start()
        failures = 0
        while self._is_needed():
            try:
                with closing(PostgresConnection(self.journal.address)) as line:
                    line.execute(f"LISTEN {WORK}")
                    if failures > 1:
                        self.say("The journal can be reached again. This worker takes work.")
                    failures = 0
                    while self._is_needed():
                        self._listen(line)
            except DatabaseAway as error:
                failures += 1
                if failures == 2:  # a connection that was cut says nothing of why
                    why = f"The journal cannot be reached: {error}."
                    self.say(f"{why} This worker takes work when it can.")
                with self._news:
                    self._news.wait(AGAIN_S if failures > 1 else 0)
            except (UserError, psycopg.Error) as error:
                self.failed = error
                self._is_stopping()
                for slot in self._slots:
                    slot.join()

    def _is_needed(self) -> bool:
        """Return whether a slot still works; one at work does not ask whether it is to stop."""
        self._is_stopping()
        return any(slot.is_alive() for slot in self._slots)

    def _listen(self, line: PostgresConnection) -> None:
        """Look at what the daemon says, give a sign of life, and listen until the next one is due.

        The sign makes up for announcements that were lost.
        """
        self._heard(call_once(line, "worker_beat", *self._beat()))
        self._look(line)
        due_s = boottime_s() + self.lease_s / BEATS
        with self._news:
            self._offers += 1
            self._news.notify_all()
        while boottime_s() < due_s and self._is_needed():
            names = {name for _, name in line.notices(LOOK_S)}
            if self.ident.name in names:
                self._look(line)
            with self._news:
                self._offers += "" in names
                self._news.notify_all()
                self._news.wait(PAUSE_S)

    def _beat(self, dead_owner: str = "") -> tuple[object, ...]:
        level, slots = int(self.machine.level), self.ident.slots
        return self.owner, level, __version__, slots, dead_owner, [*self.under_way]

    def _heard(self, answer: tuple[str, str]) -> None:
        state, lease_s = answer
        if state == "taken":
            raise name_taken(self.ident.name)
        if state == "unknown":
            raise not_let_in(self.ident.name)
        self.draining, self.lease_s = state == "draining", float(lease_s)

    def _look(self, line: PostgresConnection) -> None:
        """Read what the daemon says of this worker's work, and tell it."""
        with self._news:
            number = self.looks[0] + 1
            self.looks = number, self.looks[1]
        rows = own_work(line, self.owner)
        for trace_id, (token, cancel) in list(self.under_way.items()):
            now, stop = rows.get(trace_id, (0, ""))
            if now != token:
                cancel.set()
            elif stop:
                cancel.set(stop)
        with self._news:
            self.tokens = {trace_id: token for trace_id, (token, _) in rows.items()}
            self.looks = number, number
            self._news.notify_all()

    # --- work

    def _slot(self) -> None:
        while not self._is_stopping():
            with self._news:
                self._news.wait_for(lambda: self._offers > self._gone, LOOK_S)
            try:
                if trace_id := self._claimed():
                    self._take(trace_id)
            except (JournalPaused, LeaseLost):
                continue
            except psycopg.Error as error:
                self.failed = error

    def _take(self, trace_id: str) -> None:
        """Wait until a piece of work is handed over, and do it."""
        try:
            if token := self._handed(trace_id):
                self._carry(trace_id, token)
        finally:
            with self._news:
                self.taken.discard(trace_id)
                self._offers += 1  # it may be offered again

    def _claimed(self) -> str:
        """Claim a piece of work, if one was announced; return its trace_id, empty for none."""
        with self._claiming:
            offers = self._offers
            if offers == self._gone or self._is_stopping():
                return ""
            found = self.journal.call("worker_claim", self.owner, [*self.taken])
            if found is None:
                self._gone = offers
                return ""
            self.taken.add(found)
            return str(found)

    def _handed(self, trace_id: str) -> int:
        """Wait until a piece of work is handed over; return its token, 0 if it is withdrawn."""
        with self._news:
            before, _ = self.looks

            def is_decided() -> bool:
                looked = self.looks[1] > before and self.tokens.get(trace_id) != 0
                return looked or self.machine.leaving.is_set()

            while not self._news.wait_for(is_decided, LOOK_S):
                pass
            return self.tokens.get(trace_id, 0) if self.looks[1] > before else 0

    def _carry(self, trace_id: str, token: int) -> None:
        with self.journal.ask() as reader:
            text = text_of(reader.connection, "item", trace_id, token)
        if text is None:
            return
        cancel = Cancel()
        self.under_way[trace_id] = token, cancel
        try:
            kind, result, writes = self._done(text, token, cancel)
            self.journal.commit([Guard(trace_id, token), *writes, PutResult(kind, result)])
        except LeaseLost:
            self.say(f"{trace_id[:8]} now belongs to another worker; unrecorded steps are lost")
        finally:
            del self.under_way[trace_id]

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
