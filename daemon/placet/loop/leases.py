"""Take a lease when work starts; release it when the result is recorded."""

from __future__ import annotations

from functools import partial

from placet.activity import Action
from placet.agent.checkpoints import resumption
from placet.agent.record import Postponed, Record
from placet.case.case import Case
from placet.case.commands import Decision
from placet.case.events import Started
from placet.case.lease import Owner
from placet.case.life_cycle import State
from placet.case.waiting import WaitReason
from placet.host.clock import Clock
from placet.host.lock import is_alive, this_process
from placet.journal.reader import Reader
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    Committed,
    LeaseHeld,
    LeaseLost,
    ReleaseLease,
)
from placet.loop.rows import of_case
from placet.loop.state import LoopState
from placet.loop.threads import AssignedWorker, Workers
from placet.plan.plan import Plan
from placet.sandbox.box import Level

LEASE_TTL_S = 30.0  # lifetime of a lease without a heartbeat
HEARTBEAT_S = 5.0  # a renewal takes 9 µs


def begin(
    state: LoopState, owner: Owner, case: Case, plan: Plan, worker: AssignedWorker | None
) -> int:
    """Start or resume a mission, and journal its lease; return the lease's token.

    `owner` is this process. `worker` is the worker of a team that holds the lease instead. Raises
    LeaseHeld.
    """
    told = partial(_lease_rows, state.ports.clock, case, owner, worker)
    if worker is not None:
        acquire = AcquireLease(case.trace_id, worker.owner, worker.lease_s, told=told)
    else:
        with state.ports.journal.read() as reader:
            lease = reader.lease(case.trace_id)
            # The vault's lock proves that no other daemon runs here. So a lease of this machine
            # belongs to a dead one, unless a worker holds it.
            left = lease is not None and lease.held and lease.owner.host == owner.host
            left = left and not is_with_worker(reader, case.trace_id)
        dead_token = lease.token if lease is not None and left else None
        acquire = AcquireLease(case.trace_id, owner, LEASE_TTL_S, dead_token, told)
    return _begun(state, case, plan, worker, acquire).token


def _lease_rows(
    clock: Clock,
    case: Case,
    owner: Owner,
    worker: AssignedWorker | None,
    token: int,
    before: Owner | None,
) -> list[AddActivity]:
    """Return the rows of a lease that was taken, maybe from a holder `before` that is gone."""
    facts: dict[str, object] = {
        "token": token,
        "owner": str(owner if worker is None else worker.owner),
        **({} if worker is None else {"worker": worker.worker}),
    }
    rows = [of_case(clock, case, Action.LEASE_ACQUIRED, **facts)]
    if before is not None:
        rows.insert(0, of_case(clock, case, Action.LEASE_EXPIRED, owner=str(before)))
    return rows


def is_with_worker(reader: Reader, trace_id: str) -> bool:
    """Return whether a worker of a team holds a case's lease and may still run."""
    lease = reader.lease(trace_id)
    row = reader.last_of(Action.LEASE_ACQUIRED, trace_id=trace_id)
    if lease is None or not lease.held or row is None or "worker" not in row.details:
        return False
    return lease.owner.host != this_process().host or is_alive(lease.owner)


def _begun(
    state: LoopState, case: Case, plan: Plan, worker: AssignedWorker | None, acquire: AcquireLease
) -> Committed:
    """Record that a mission starts or resumes, with its lease; raises LeaseHeld."""
    ports = state.ports
    sandbox = ports.sandbox if worker is None else Level(worker.level)
    facts = {
        "digest": case.approval.digest,
        "sandbox": sandbox.title,
        "revision": case.plan.revision,
        "steps": len(plan.steps),
        **({"steps_left_out": list(plan.left_out)} if plan.left_out else {}),
    }
    if case.state is State.APPROVED:
        committed = state.apply(case, Started(case.generation, facts), acquire)
        assert committed is not None, "an approved case can always be started"
        return committed
    record = Record.load(ports.journal, case, case.generation, ports.clock)
    facts |= resumption(record)
    row = of_case(ports.clock, case, Action.EXECUTION_RESUMED, **facts).activity
    # In one transaction with the case: another daemon may have taken the mission over and ended it
    # while this one was suspended, and then its lease is free.
    return state.record(Decision(case, (row,)), writes=[acquire])


def planner_token(state: LoopState, case: Case, worker: AssignedWorker) -> int | None:
    """Return the token of a worker that plans; None while another worker holds the lease."""
    if worker.token:
        return worker.token
    ports = state.ports

    def told(token: int, _: Owner | None) -> list[AddActivity]:
        return _lease_rows(ports.clock, case, worker.owner, worker, token, None)

    acquire = AcquireLease(case.trace_id, worker.owner, worker.lease_s, told=told)
    try:
        return ports.journal.commit([acquire]).token
    except LeaseHeld as held:
        state.waits.postpone(case, Postponed(str(held), HEARTBEAT_S, WaitReason.LEASE))
        return None


def release(state: LoopState, team: Workers | None, case: Case, token: int | None) -> None:
    """Release the lease of unfinished work, and delete a worker's assignment."""
    ports = state.ports
    if token is None or (team is not None and ports.leaving.is_set()):
        return  # a team's worker continues while no daemon runs
    row = of_case(ports.clock, case, Action.LEASE_RELEASED, token=token)
    released = () if team is None else team.release(case, ended=False)
    try:
        ports.journal.commit([ReleaseLease(case.trace_id, token), row, *released])
    except LeaseLost:
        if team is None:  # a team's work is offered to another worker
            state.say(f"{case.request_id}: another daemon has taken this mission over")
