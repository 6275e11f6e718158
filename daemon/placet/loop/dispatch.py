"""The work on cases: start it, keep its leases, take back what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from placet.agent.asked_report import asked_section
from placet.agent.calls import AsksPerson
from placet.agent.checkpoints import resumption
from placet.agent.commits import executes
from placet.agent.ending import broken
from placet.agent.plan_writing import Assignment
from placet.agent.prompts import plan_of
from placet.agent.record import Postponed, Record
from placet.agent.report import outcome_of
from placet.agent.report_parts import Circumstances
from placet.agent.underway import Mission
from placet.agent.workplace import Ports
from placet.core.activity import Action
from placet.core.box import Level
from placet.core.errors import MISTAKES, Interrupted, mistake
from placet.core.life.approval import may_begin
from placet.core.life.case import WORKING, Case, EventKind, State
from placet.core.life.commands import Decision
from placet.core.life.drift import KEY, IfChanged
from placet.core.life.estimate import median
from placet.core.life.events import Asked, Drafted, Event, MissionEnded, PlanningFailed, Started
from placet.core.life.gestures import ApprovalVoid, FilesChanged, VoidKind
from placet.core.life.lease import Owner
from placet.core.life.sight import look_at
from placet.core.life.sorting import CaseNotes
from placet.core.life.waiting import Why
from placet.core.life.why_failed import of_last_mission
from placet.core.text.blocks import Frontmatter
from placet.core.text.comments import open_comments
from placet.core.text.names import Folder
from placet.core.text.note import parse_note, read_note
from placet.core.text.plan import Plan
from placet.core.turn.budget import Complexity
from placet.core.turn.cancel import Cancel
from placet.core.turn.mission import Ended
from placet.core.wording import rfc3339
from placet.files.errors import Unreadable
from placet.journal.writes import (
    AcquireLease,
    BodyDamaged,
    Committed,
    Guard,
    LeaseHeld,
    LeaseLost,
    ReleaseLease,
    RenewLease,
)
from placet.loop.casebook import Casebook
from placet.loop.decisions import Decisions
from placet.loop.requests import Drafts
from placet.loop.rows import of_case
from placet.loop.workers import MISTAKE_RETRY_S, Job, Result, expect_model

LEASE_TTL_S = 30.0  # lifetime of a lease without a heartbeat
HEARTBEAT_S = 5.0  # measured as cheap: 9 µs each
MAX_ROWS = 10_000
"""Maximum of a case's rows that a report is made from, the last ones."""
MAX_REPORT_CHARS = 40_000
"""Characters of a Failure Report that the next planning reads."""
WALL_RETRY_S = 60.0
DRAFTING = frozenset({State.PLANNING, State.REVISING})

Draft = Callable[[Ports, Assignment, Cancel], Drafted | PlanningFailed]
CarryOut = Callable[[Ports, Mission, Cancel], Ended]


@dataclass(slots=True)
class Dispatch:
    """The work under way and due, for one process `owner`.

    `draft` and `carry_out` are the workers' functions.
    """

    book: Casebook
    decisions: Decisions
    drafts: Drafts
    owner: Owner
    draft: Draft
    carry_out: CarryOut
    beaten_at: float = float("-inf")

    def start_work(self) -> None:
        """Start what is due, within the limits: the highest priority first, then the oldest."""
        book = self.book
        busy, jobs = book.outbox.busy, book.crew.jobs
        limits = book.ports.config.daemon
        free = {True: limits.plans_at_once, False: limits.missions_at_once}
        for job in jobs.values():
            free[job.planning] -= 1
        due = [
            case
            for case in book.cases.values()
            if case.state in WORKING
            and case.trace_id not in jobs
            and case.trace_id not in busy
            and self.decisions.is_judged(case)
            and not (case.state in DRAFTING and self._is_written(case))
        ]
        due.sort(key=lambda case: (-case.request.priority, case.since, case.request_id))
        for case in book.waits.may_start(due, self._needs_no_model):
            planning = case.state in DRAFTING
            if free[planning] <= 0:
                continue
            free[planning] -= 1
            try:
                self._start_planning(case) if planning else self._start_mission(case)
            except BodyDamaged as damaged:
                self._cannot_go_on(case, damaged)
            except MISTAKES as error:
                self._hold_up(case, error)

    def take_back(self) -> None:
        """Take in what workers came back with."""
        book = self.book
        while (back := book.crew.take_back()) is not None:
            book.dirty = True
            case = book.cases[back.job.trace_id]
            current = case.generation == back.job.generation
            if current and back.postponed is not None:
                book.waits.postpone(case, back.postponed)
            asks_nobody = isinstance(back.event, Asked) and case.stop
            if current and back.event is not None and not asks_nobody:
                try:
                    self._finish(case, back.event, back.job.token)
                except BodyDamaged as damaged:
                    self._release(case, back.job.token)
                    self._cannot_go_on(case, damaged)
                except MISTAKES as error:
                    self._release(case, back.job.token)
                    self._hold_up(case, error)
            else:
                self._release(case, back.job.token)

    def heartbeat(self) -> None:
        """Renew the leases, if it is time; work that lost its lease is left."""
        now = self.book.ports.clock.monotonic()
        if now - self.beaten_at < HEARTBEAT_S:
            return
        self.beaten_at = now
        for job in self.book.crew.jobs.values():
            if job.token is None:
                continue
            try:
                renewal = RenewLease(job.trace_id, job.token, LEASE_TTL_S)
                self.book.ports.journal.commit([renewal])
            except LeaseLost:
                job.cancel.set()

    # --- planning

    def _is_written(self, case: Case) -> bool:
        return self.drafts.is_draft(case) or self.drafts.left_s(case.request_path) > 0

    def _start_planning(self, case: Case) -> None:
        book = self.book
        expect_model(book.ports)
        request = read_note(book.text(case.request_digest)).body
        current = (
            read_note(book.text(case.plan.basis_digest)).body
            if case.plan.basis_digest and not case.is_elsewhere
            else None
        )
        job = Job(case.trace_id, case.generation, planning=True, token=None)
        name = PurePosixPath(case.request_path).stem
        assignment = Assignment(case, request, name, current, self._what_failed(case))
        book.crew.set_to(job, lambda: self.draft(book.ports, assignment, job.cancel))

    def _what_failed(self, case: Case) -> str:
        """Return what the next planning is told of a failure.

        It is the report in the vault, with people's remarks.
        """
        if case.outcome.failure and case.outcome.report_path:
            try:
                raw, _ = self.book.vault.read(case.outcome.report_path)
                return parse_note(raw)[1][:MAX_REPORT_CHARS]
            except Unreadable:
                pass
        return case.outcome.failure

    # --- missions

    def _needs_no_model(self, case: Case) -> bool:
        """Return whether the approved plan has literal steps only."""
        if case.state in DRAFTING:
            return False
        try:
            plan = plan_of(self.book.text(case.approval.digest))
        except BodyDamaged:
            return True  # it need not wait to report that
        return all(step.actions for _, step in plan.kept)

    def _start_mission(self, case: Case) -> None:
        if case.state is State.APPROVED and not self._says_so_still(case):
            return
        ports = self.book.ports
        raw = self.book.text(case.approval.digest)
        meta, plan = read_note(raw).meta, plan_of(raw)
        if int(ports.sandbox) < case.approval.level and executes(plan) and not case.stop:
            self._ask_again(case)
            return
        try:
            committed = self._begin(case, plan)
        except LeaseHeld as held:
            # The journal came from another machine, or this one had another name: the lease runs
            # out unless its holder lives.
            self.book.waits.postpone(case, Postponed(str(held), HEARTBEAT_S, Why.LEASE))
            return
        case = self.book.cases[case.trace_id]
        if not self._needs_no_model(case):
            expect_model(ports)
        token = committed.token
        facts = {"token": token, "owner": str(self.owner)}
        rows = [of_case(ports.clock, case, Action.LEASE_ACQUIRED, **facts)]
        if (before := committed.taken_from) is not None:
            expired = of_case(ports.clock, case, Action.LEASE_EXPIRED, owner=str(before))
            rows.insert(0, expired)
        ports.journal.commit(rows)
        mission = Mission(
            case,
            plan,
            Complexity(str(meta.get("complexity") or Complexity.STANDARD)),
            token,
            str(meta.get("base_commit") or ""),
            IfChanged(meta.get(KEY, IfChanged.ASK)),
            open_comments(read_note(raw).body),
        )
        job = Job(case.trace_id, case.generation, planning=False, token=token)
        if case.stop:
            job.cancel.set(case.stop)
        self.book.crew.set_to(job, lambda: self._mission(mission, job))

    def _begin(self, case: Case, plan: Plan) -> Committed:
        """Record that a mission begins or goes on, with its lease; raises LeaseHeld."""
        ports = self.book.ports
        with ports.journal.read() as reader:
            lease = reader.lease(case.trace_id)
        # The vault's lock proves that no other daemon lives here, so a lease of this machine that
        # is still held is a dead one's.
        left = lease is not None and lease.held and lease.owner.host == self.owner.host
        gone = lease.token if lease is not None and left else None
        acquire = AcquireLease(case.trace_id, self.owner, LEASE_TTL_S, gone)
        facts = {
            "digest": case.approval.digest,
            "sandbox": ports.sandbox.title,
            "revision": case.plan.revision,
            "steps": len(plan.steps),
            **({"steps_left_out": list(plan.left_out)} if plan.left_out else {}),
        }
        if case.state is State.APPROVED:
            committed = self.book.apply(case, Started(case.generation, facts), acquire)
            assert committed is not None, "an approved case can always be started"
            return committed
        record = Record.load(ports.journal, case, case.generation, ports.clock)
        facts |= resumption(record)
        row = of_case(ports.clock, case, Action.EXECUTION_RESUMED, **facts).activity
        # With the case: who took this mission over while we stood still may have ended it, and its
        # lease is free then.
        return self.book.record(Decision(case, (row,)), writes=[acquire])

    def _says_so_still(self, case: Case) -> bool:
        """Return whether the note in System/Active still has the approved text.

        If not, the next look decides.
        """
        path = self.decisions.shown[case.trace_id].plans[0].path
        try:
            note = look_at(path, self.book.vault.read(path)[0], "")
        except Unreadable:
            return False
        return may_begin(case, CaseNotes(plans=[note]))

    def _ask_again(self, case: Case) -> None:
        """Put back a plan whose sandbox would be weaker than the one it was approved for.

        A mission waits.
        """
        now, then = self.book.ports.sandbox, Level(case.approval.level)
        why = (
            f"It was approved when commands ran in: {then.title}. Now they would run in: "
            f"{now.title}, which is weaker."
        )
        if case.state is State.RUNNING:
            hint = (
                "What was done by then is kept. It goes on when a daemon with the former sandbox "
                "is started; or move the plan to Inbox/Plans, and approve it again."
            )
            wait = Postponed(f"{why} {hint}", WALL_RETRY_S, Why.WALL)
            self.book.waits.postpone(case, wait)
        else:
            self._put_back(case, EventKind.WALL_WEAKENED, why)

    def _cannot_go_on(self, case: Case, damaged: BodyDamaged) -> None:
        """Stop the work on a case whose texts or record are damaged.

        Nothing is carried out from what is left.
        """
        self.book.say(f"{case.request_id}: {damaged}")
        if case.state in DRAFTING:
            failed = PlanningFailed(case.generation, str(damaged), type(damaged).__name__)
            self.book.apply(case, failed)
        else:
            why = f"The journal is not as it was written: {damaged.what}."
            self._put_back(case, EventKind.TEXT_LOST, why)

    def _hold_up(self, case: Case, error: BaseException) -> None:
        """Let a case wait whose work met a mistake of placet's; all others go on."""
        self.book.waits.postpone(case, Postponed(mistake(error), MISTAKE_RETRY_S, Why.MISTAKE))

    def _put_back(self, case: Case, kind: VoidKind, why: str) -> None:
        # without a note it is on its way: the next look finds it
        if (note := self.decisions.intake.notes.get(case.plan.path)) is not None:
            self.book.apply(case, ApprovalVoid(kind, note, why))

    def _mission(self, mission: Mission, job: Job) -> MissionEnded:
        """Carry a mission out and write its report (in the worker's thread)."""
        ports = self.book.ports
        try:
            ended = self.carry_out(ports, mission, job.cancel)
        except (Interrupted, Postponed, AsksPerson, LeaseLost):
            raise
        except Exception as error:
            ended = broken(ports, mission, error)
        return self._report(mission, ended)

    def _report(self, mission: Mission, ended: Ended) -> MissionEnded:
        ports = self.book.ports
        case, moment = mission.case, ports.clock.wall()
        record = Record.load(ports.journal, case, case.generation, ports.clock)
        with ports.journal.read() as reader:
            rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True)
            costs = reader.calls.mission_costs(mission.complexity.value)
            asked = asked_section(case, rows, record, reader)
        return outcome_of(
            ended,
            Circumstances(
                case,
                mission.plan,
                mission.complexity,
                ports.config.model.name,
                ports.config.model.provider,
                ports.sandbox.title,
                moment,
                rfc3339(moment),
                Frontmatter(ports.config.vault.frontmatter),
                of_last_mission(rows),
                median(costs),
                lambda path: os.path.lexists(ports.vault / path),
                record.pictures(),
                mission.remarks,
                asked,
            ),
        )

    def _finish(self, case: Case, event: Result | Asked, token: int | None) -> None:
        book = self.book
        if isinstance(event, Asked) and event.wider is not None:
            # parsed again by nobody: these are the texts that were approved
            texts = map(book.text, (case.approval.digest, case.first_approved))
            event = replace(event, approved=next(texts), first=next(texts))
        if token is None:
            book.apply(case, event)
            return
        note = self.decisions.intake.notes.get(case.plan.path)
        what: Event = event
        if (
            isinstance(event, MissionEnded)
            and event.drift is not None
            and note is not None
            and note.folder is Folder.ACTIVE
            and not (note.problem or case.stop)
        ):
            what = FilesChanged(note, event.drift)
        try:
            book.apply(
                case,
                what,
                Guard(case.trace_id, token),
                ReleaseLease(case.trace_id, token),
                of_case(book.ports.clock, case, Action.LEASE_RELEASED, token=token),
            )
        except LeaseLost:
            book.say(
                f"{case.request_id}: another daemon has taken this mission over; what was done "
                "here counts for nothing"
            )

    def _release(self, case: Case, token: int | None) -> None:
        if token is None:
            return
        row = of_case(self.book.ports.clock, case, Action.LEASE_RELEASED, token=token)
        try:
            self.book.ports.journal.commit([ReleaseLease(case.trace_id, token), row])
        except LeaseLost:
            self.book.say(f"{case.request_id}: another daemon has taken this mission over")
