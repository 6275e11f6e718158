"""Run each piece of work in its thread until it returns a value."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from placet.agent.ports import Ports
from placet.agent.record import Postponed
from placet.agent.tool_calls import AsksPerson
from placet.case.case import Case
from placet.case.events import Asked, Drafted, MissionEnded, PlanningFailed
from placet.case.lease import Owner
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.chat.messages import ModelError
from placet.errors import End, Interrupted, UserError, describe_bug
from placet.host.clock import Clock
from placet.journal.writes import BodyDamaged, Write
from placet.models import prepare

CANCEL_S = 2.0  # time for a cancelled worker to kill its command and close its model call
NO_THREAD_RETRY_S = 5.0
MISTAKE_RETRY_S = 60.0


Result = Drafted | PlanningFailed | MissionEnded


@dataclass(slots=True)
class Job:
    """A worker's job for one case."""

    trace_id: str
    generation: int
    planning: bool
    token: int | None
    taken: bool = False
    """Whether a worker of a team has it. That worker renews its lease."""
    cancel: Cancel = field(default_factory=Cancel)
    """Interrupts the work; with a reason, its mission ends."""
    hold: Cancel = field(default_factory=Cancel)
    """Has the mission stop after the running round, and resume when it is started again."""
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """A worker's return.

    It has no event if the worker was interrupted or has to wait; then the work is still to be done.
    """

    job: Job
    event: Result | Asked | None
    postponed: Postponed | None = None


@dataclass(slots=True)
class Threads:
    """The running jobs, by trace_id.

    `ring` wakes the loop when one returns. `start` starts a thread.
    """

    clock: Clock
    ring: Callable[[], None]
    start: Callable[[threading.Thread], None]
    jobs: dict[str, Job] = field(default_factory=dict)
    back: queue.SimpleQueue[JobResult] = field(default_factory=queue.SimpleQueue)

    def run_job(self, job: Job, work: Callable[[], Result]) -> None:
        """Do `work` for a job; the job returns in any case, also after a bug in placet."""

        def run() -> None:
            try:
                back = JobResult(job, work())
            except Interrupted:
                back = JobResult(job, None)
            except AsksPerson as asks:
                back = JobResult(job, asks.asked)
            except Postponed as postponed:
                back = JobResult(job, None, postponed)
            except BodyDamaged as damaged:
                end, why = End.RECORD, str(damaged)
                back = (
                    JobResult(job, PlanningFailed(job.generation, why, end.value, end=end))
                    if job.planning
                    else JobResult(
                        job, None, Postponed(str(damaged), MISTAKE_RETRY_S, WaitReason.MISTAKE)
                    )
                )
            except Exception as error:
                why = describe_bug(error)
                back = (
                    JobResult(job, PlanningFailed(job.generation, why, End.INTERNAL_ERROR.value))
                    if job.planning
                    else JobResult(job, None, Postponed(why, MISTAKE_RETRY_S, WaitReason.MISTAKE))
                )
            self.back.put(back)
            self.ring()

        thread = threading.Thread(
            target=run,
            name=f"{'plan' if job.planning else 'mission'}-{job.trace_id[:8]}",
            daemon=True,
        )
        self.jobs[job.trace_id] = job
        try:
            self.start(thread)
        except RuntimeError as error:  # Python raises this if the system allows no more threads
            self.back.put(
                JobResult(job, None, Postponed(str(error), NO_THREAD_RETRY_S, WaitReason.MACHINE))
            )
            self.ring()
        else:
            job.thread = thread

    def next_result(self) -> JobResult | None:
        """Return one finished job, None if there is none."""
        try:
            back = self.back.get_nowait()
        except queue.Empty:
            return None
        del self.jobs[back.job.trace_id]
        return back

    def leave(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for running rounds, then interrupt the remaining workers."""
        self._join(grace_s)
        for job in self.jobs.values():
            job.cancel.set()
        self._join(CANCEL_S)

    def _join(self, patience_s: float) -> None:
        until = self.clock.monotonic() + patience_s
        for job in list(self.jobs.values()):
            if job.thread is not None:
                job.thread.join(max(0.0, until - self.clock.monotonic()))


class AssignedWorker(Protocol):
    """A team worker that took a case's work.

    `level` is its sandbox, `token` its lease, 0 before it has one, which runs for `lease_s`.
    """

    @property
    def worker(self) -> str:
        """Its name."""

    @property
    def owner(self) -> Owner:
        """Its process."""

    @property
    def level(self) -> int:
        """Its sandbox."""

    @property
    def token(self) -> int:
        """The token of its lease."""

    @property
    def lease_s(self) -> float:
        """Seconds from each heartbeat until its lease expires."""


class Workers(Protocol):
    """The workers of a team, which take work from a queue."""

    def claim(
        self, case: Case, level: Callable[[], int], *, planning: bool
    ) -> AssignedWorker | None:
        """Return the worker that took a case's work, or None; raises Postponed.

        `level` is the sandbox that the approval requires.
        """

    def is_here(self, case: Case) -> bool:
        """Return whether the daemon itself ends or runs a mission."""

    def withdraw(self, wanted: Collection[str], works: Mapping[str, int]) -> None:
        """Withdraw offers for cases that are not in `wanted`.

        A worker loses its assignment if `works`, the generations of cases with work to do, no
        longer has it.
        """

    def look(self) -> bool:
        """Read what workers did; return whether one came or left since then."""

    def full(self, portal: str, working: Collection[Case]) -> bool:
        """Return whether a portal has as many missions as it may have."""

    def release(self, case: Case, *, ended: bool) -> Sequence[Write]:
        """Return the writes that delete an assignment, and all of a case's where it `ended`."""


def expect_model(ports: Ports) -> None:
    """Open the model early, in a thread, as it will be needed soon.

    A no-op if it cannot be used yet.
    """
    if not ports.config.daemon.paused:
        with suppress(ModelError, UserError):
            ports.open_model()
            prepare(ports.config.model.provider)
