"""Queue work for workers, and see which worker took it.

The daemon queues a piece of work. A worker takes it and waits. The daemon reads the note again,
acquires the lease in the worker's name, and hands the work over (`handover`). The worker renews the
lease and can write only while it holds it. When the lease runs out, the daemon queues the work
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from placet.agent.record import Postponed
from placet.case.case import Case
from placet.case.lease import Owner
from placet.case.waiting import WaitReason
from placet.codec import Stored
from placet.host.config import PortalTable
from placet.journal.writer import JournalAccess
from placet.journal.writes import LeaseLost, ReleaseLease, Write
from placet_team.cache import TeamCache
from placet_team.tables import (
    ANY,
    DropRefs,
    DropWork,
    MemberRow,
    PutWork,
    WorkRow,
    began_here,
    needs,
    queue_of,
)

OWNER_JSON = Stored[Owner](Owner)
NO_WORKER_S = 15.0
"""Seconds after which work without a worker is offered again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker that took a piece of work; `token` is its lease, 0 before it was handed over.

    A lease runs for `lease_s` from each sign of life on.
    """

    worker: str
    owner: Owner
    level: int
    token: int
    lease_s: float


@dataclass(slots=True)
class Team:
    """The workers, as the daemon knows them.

    `lease_s` is how long a worker may be quiet, `portals` gives those of the settings that hold.
    """

    journal: JournalAccess
    cache: TeamCache
    lease_s: float
    portals: Callable[[], Mapping[str, PortalTable]]
    seen: frozenset[tuple[str, str, bool, bool]] = frozenset()
    here: dict[tuple[str, int], bool] = field(default_factory=dict)

    def claim(self, case: Case, level: Callable[[], int], *, planning: bool) -> Claim | None:
        """Return the worker that took a case's work. Without one, queue the work and return None.

        Raises Postponed if no running worker could take it.
        """
        row = self.cache.work.get(case.trace_id)
        if row is not None and row.generation == case.generation and not self._is_stale(row):
            if not row.worker:
                self._must_have_worker(row.queue)
                return None
            with suppress(ValueError):  # what a worker wrote may be anything: it is offered again
                owner = OWNER_JSON.validate_json(row.owner)
                return Claim(row.worker, owner, row.level, row.token, self.lease_s)
        portal = self.portals().get(case.request.portal)
        queue = queue_of(portal.label if portal is not None else ANY, level())
        self._must_have_worker(queue)
        writes: list[Write] = [] if row is None else [DropWork(row.trace_id, row.generation)]
        writes.append(
            PutWork(case.trace_id, case.generation, planning, queue, case.request.priority)
        )
        self.journal.commit(writes)
        self.cache.look()
        return None

    def is_here(self, case: Case) -> bool:
        """Return whether the daemon runs or ends a mission itself.

        No worker has it, and a person stopped it, or this daemon began it.
        """
        row = self.cache.work.get(case.trace_id)
        if row is not None and row.token and not self._is_stale(row):
            return False
        if case.stop:
            return True
        key = case.trace_id, case.generation
        if key not in self.here:
            with self.journal.ask() as reader:
                self.here[key] = began_here(reader.connection, *key)
        return self.here[key]

    def withdraw(self, wanted: Collection[str], works: Mapping[str, int]) -> None:
        """Withdraw queued work of cases that are not in `wanted`.

        Work that a worker has is withdrawn if `works`, the generations by case, lacks it: a person
        decided while no daemon ran.
        """
        for row in list(self.cache.work.values()):
            if row.trace_id in wanted or (row.token and works.get(row.trace_id) == row.generation):
                continue
            if row.token:
                with suppress(LeaseLost):
                    self.journal.commit([ReleaseLease(row.trace_id, row.token)])
            void = [DropRefs(row.trace_id, row.generation)] if row.token else []
            self.journal.commit([DropWork(row.trace_id, row.generation), *void])
            self.cache.forget(row.trace_id)

    def look(self) -> bool:
        """Return whether workers came, went or were told to end since the last call.

        A worker without a sign of life has gone. It comes back with its next one.
        """
        if self.cache.is_old():  # the thread that looks has met an error, or the database is away
            self.cache.look()
        members = self.cache.members.values()
        now = frozenset(
            (one.name, one.owner, one.draining, one.lives(self.lease_s)) for one in members
        )
        before, self.seen = self.seen, now
        return now != before

    def full(self, portal: str, working: Collection[Case]) -> bool:
        """Return whether a portal has reached its limit of missions at once."""
        table = self.portals().get(portal)
        most = table.missions_at_once if table is not None else 0
        return bool(most) and sum(case.request.portal == portal for case in working) >= most

    def release(self, case: Case, *, ended: bool) -> list[Write]:
        """Return the writes that delete a piece of work, and its references if it `ended`."""
        self.cache.forget(case.trace_id)
        refs: list[Write] = [DropRefs(case.trace_id, case.generation)] if ended else []
        return [DropWork(case.trace_id, case.generation), *refs]

    def _is_stale(self, row: WorkRow) -> bool:
        """Return whether the worker that took a piece of work is gone."""
        if row.kind:
            return False
        if row.token:
            return row.expired and self.cache.watched_s() >= self.lease_s
        if not row.worker:
            return False
        member = self.cache.members.get(row.worker)
        return member is None or member.owner != row.owner or not member.lives(self.lease_s)

    def _must_have_worker(self, queue: str) -> None:
        found = [one for one in self.cache.members.values() if one.lives(self.lease_s)]
        if why := nobody_for(queue, found):
            label = needs(queue)[1]
            labels = f" --labels {label}" if label != ANY else ""
            start = f"placet team init --worker NAME{labels}"
            raise Postponed(f"{why} (let one in: {start})", NO_WORKER_S, WaitReason.WORKER)


def nobody_for(queue: str, living: Sequence[MemberRow]) -> str:
    """Return why no living worker may take a queue's work; empty if one may."""
    version, label, level = needs(queue)
    if any(may_take(one, version, label, level) for one in living):
        return ""
    what = f"with the label {label}" if label != ANY else "for it"
    if any(may_take(one, version, label, 0) for one in living):
        what = f"whose sandbox is strong enough (level {level})"
    elif living and not any(one.has_version(version) for one in living):
        what = f"of version {version}"
    return f"no worker is running {what}"


def may_take(one: MemberRow, version: str, label: str, level: int) -> bool:
    """Return whether a member takes work of this version and label that needs this sandbox."""
    return (
        one.has_version(version)
        and label in one.labels.split(",")
        and one.level >= level
        and not one.draining
        and one.slots > 0
    )
