"""Work on cases: start it, renew its leases, record its results."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from placet.activity import Action
from placet.agent.commits import executes
from placet.agent.instruction_notes import digests_of, notes_of_agent
from placet.agent.mission_end import bug_result, failed_result
from placet.agent.planner import Assignment
from placet.agent.ports import Ports
from placet.agent.receipt import with_receipt
from placet.agent.record import Postponed, Record
from placet.agent.report import ReportData, asked_section, outcome_of
from placet.agent.tool_calls import MACHINE_RETRY_S, AsksPerson
from placet.agent.work import Mission, mission_of
from placet.case.approval import changed_instructions, changed_model, may_begin
from placet.case.brake import TOO_OFTEN, with_planning
from placet.case.case import Case, NoteSeen
from placet.case.commands import Decision
from placet.case.estimate import median
from placet.case.events import (
    ApprovalVoid,
    Asked,
    Drafted,
    Event,
    FilesChanged,
    MissionEnded,
    MissionFailed,
    ModelChanged,
    PlanningFailed,
    SandboxWeakened,
    SignatureVoid,
    TextLost,
)
from placet.case.explain import of_last_mission
from placet.case.lease import Owner
from placet.case.life_cycle import DRAFTING, State
from placet.case.mission_result import MissionResult
from placet.case.notes import body_of, inspect_note
from placet.case.sorting import CaseNotes, as_it_counts
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.disk.confine import Root
from placet.disk.errors import Gone, Unreadable
from placet.errors import BUGS, End, Interrupted, UserError, describe_bug
from placet.journal.writes import (
    BodyDamaged,
    Guard,
    LeaseHeld,
    LeaseLost,
    ReleaseLease,
    RenewLease,
)
from placet.loop.decider import Decider
from placet.loop.leases import HEARTBEAT_S, LEASE_TTL_S, begin, planner_token, release
from placet.loop.rows import of_case
from placet.loop.signing import signature_problem
from placet.loop.state import LoopState
from placet.loop.threads import MISTAKE_RETRY_S, AssignedWorker, Job, Result, Workers, expect_model
from placet.note.frontmatter import Frontmatter, parse_note, read_note
from placet.note.paths import Folder
from placet.plan.comments import open_comments
from placet.sandbox.box import Level
from placet.wording import one_line, rfc3339

MAX_ROWS = 10_000
"""How many of a case's latest rows a report uses."""


def report(
    ports: Ports, mission: Mission, ended: MissionResult, record: Record | None = None
) -> MissionEnded:
    """Return the end of a mission as the loop takes it, with its report, and write its receipt.

    `record` replaces one that cannot be read. Raises BodyDamaged for that, and Postponed where the
    receipt cannot be written.
    """
    case, moment = mission.case, ports.clock.wall()
    record = record or Record.load(ports.journal, case, case.generation, ports.clock)
    ended = with_receipt(ports, mission, record, ended)
    with ports.journal.read() as reader:
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True)
        costs = reader.calls.mission_costs(mission.complexity.value)
        asked = asked_section(case, rows, record, reader)
    return outcome_of(
        ended,
        ReportData(
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


MAX_REASON = 300
"""Maximum characters of why a record cannot be read."""
MAX_REPORT_CHARS = 40_000
"""Characters of a Failure Report that the next planning reads."""
WALL_RETRY_S = 60.0

Draft = Callable[[Ports, Assignment, Cancel], Drafted | PlanningFailed]
RunMission = Callable[[Ports, Mission, Cancel], MissionResult]


@dataclass(slots=True)
class Dispatch:
    """The work under way and due, for one process `owner`.

    `draft` and `run_mission` are the workers' functions; with a `team` its workers do the work.
    """

    state: LoopState
    decider: Decider
    owner: Owner
    draft: Draft
    run_mission: RunMission
    team: Workers | None = None
    last_beat_s: float = float("-inf")

    def start_work(self) -> None:
        """Start what is due, within the limits: the highest priority first, then the oldest."""
        state = self.state
        if self.team is not None and self.team.look():
            state.waits.try_again(WaitReason.WORKER)
        busy, jobs = state.outbox.busy, state.threads.jobs
        limits = state.ports.config.daemon
        free = {True: limits.plans_at_once, False: limits.missions_at_once}
        for job in jobs.values():
            free[job.planning] -= 1
        due = [
            case
            for case in state.cases.values()
            if case.is_working
            and case.trace_id not in jobs
            and case.trace_id not in busy
            and self.decider.is_judged(case)
            and not (case.acting in DRAFTING and self._may_be_unfinished(case))
        ]
        due.sort(key=lambda case: (-case.request.priority, case.since, case.request_id))
        wanted = set(jobs)
        ready = state.waits.may_start(due, self._needs_no_model)
        if ready and not state.intake.prompts_are_written():
            ready = []
        for case in ready:
            planning = case.acting in DRAFTING
            if free[planning] <= 0 or not (planning or self._has_room(case)):
                continue
            free[planning] -= 1
            wanted.add(case.trace_id)
            try:
                self._start(case, planning=planning)
            except (BodyDamaged, *BUGS) as error:
                self._stop_or_postpone(case, error)
        if self.team is not None:
            works = (case for case in state.cases.values() if case.is_working)
            self.team.withdraw(wanted, {case.trace_id: case.generation for case in works})

    def _has_room(self, case: Case) -> bool:
        """Return whether a mission's portal may have one more under way."""
        if self.team is None:
            return True
        jobs = [one for one in self.state.threads.jobs.values() if not one.planning]
        working = [self.state.cases[one.trace_id] for one in jobs]
        return not self.team.full(case.request.portal, working)

    def _start(self, case: Case, *, planning: bool) -> None:
        """Start a piece of work; a team's is offered first, and started once it is taken.

        A mission that a person stopped needs no worker to end, where none has it, nor does one
        that this daemon began.
        """
        if planning:
            if (counted := self._counted(case)) is None:
                return
            case = counted
        worker: AssignedWorker | None = None
        if self.team is not None and (planning or not self.team.is_here(case)):
            try:
                worker = self.team.claim(case, partial(self._level, case), planning=planning)
            except Postponed as nobody:
                self.state.waits.postpone(case, nobody)
                return
            self.state.dirty |= self.state.waits.end_wait(case.trace_id, WaitReason.WORKER)
            if worker is None:
                return
        if planning:
            self._start_planning(case, worker)
        else:
            self._start_mission(case, worker)

    def collect_results(self) -> None:
        """Record the results of workers."""
        state = self.state
        while (back := state.threads.next_result()) is not None:
            state.dirty = True
            case = state.cases[back.job.trace_id]
            current = case.generation == back.job.generation
            if current and back.postponed is not None:
                state.waits.postpone(case, back.postponed)
            asks_nobody = isinstance(back.event, Asked) and case.stop
            if current and back.event is not None and not asks_nobody:
                try:
                    self._finish(case, back.event, back.job.token)
                except (BodyDamaged, *BUGS) as error:
                    release(state, self.team, case, back.job.token)
                    self._stop_or_postpone(case, error)
            else:
                release(state, self.team, case, back.job.token)

    def heartbeat(self) -> None:
        """Renew the leases, if it is time; work that lost its lease is left."""
        now = self.state.ports.clock.monotonic()
        if now - self.last_beat_s < HEARTBEAT_S:
            return
        self.last_beat_s = now
        for job in self.state.threads.jobs.values():
            if job.token is None or job.taken:
                continue
            try:
                renewal = RenewLease(job.trace_id, job.token, LEASE_TTL_S)
                self.state.ports.journal.commit([renewal])
            except LeaseLost:
                job.cancel.set()

    # --- planning

    def _may_be_unfinished(self, case: Case) -> bool:
        """Return whether the request may be unfinished; planning that began resumes at once."""
        intake = self.state.intake
        if case.unstamped is not None:
            return True
        if intake.is_draft(case) or not intake.left_s(case.request_path):
            return intake.is_draft(case)
        with self.state.ports.journal.ask() as reader:
            return not reader.records(case.trace_id, case.generation, last=True)

    def _counted(self, case: Case) -> Case | None:
        """Return the case with its planning counted; None if that was the last for now."""
        counted = with_planning(case, self.state.ports.clock.now())
        if counted is None:
            self.state.apply(
                case, PlanningFailed(case.generation, TOO_OFTEN, "too_often", end=End.REPETITION)
            )
        elif counted is not case:
            self.state.record(Decision(counted, ()))
        return counted and self.state.cases[case.trace_id]

    def _start_planning(self, case: Case, worker: AssignedWorker | None) -> None:
        state, token = self.state, None
        if worker is None:
            expect_model(state.ports)
        elif (token := planner_token(state, case, worker)) is None:
            return
        request = read_note(state.text(case.request_digest)).body
        current = (
            read_note(state.text(case.plan.basis_digest)).body
            if case.plan.basis_digest and not case.is_elsewhere
            else None
        )
        taken = worker is not None
        job = Job(case.trace_id, case.generation, planning=True, token=token, taken=taken)
        name = PurePosixPath(case.request_path).stem
        left = case.plan.left
        assignment = Assignment(
            case,
            request,
            name,
            current,
            open_comments(body_of(state.text(left))) if left else (),
            self._what_failed(case),
            token,
        )
        state.threads.run_job(job, lambda: self.draft(state.ports, assignment, job.cancel))

    def _what_failed(self, case: Case) -> str:
        """Return what the next planning reads about a failure.

        It is the report in the vault, with people's remarks.
        """
        if case.outcome.failure and case.outcome.report_path:
            try:
                raw, _ = self.state.vault.read(case.outcome.report_path)
                return parse_note(raw)[1][:MAX_REPORT_CHARS]
            except Unreadable:
                pass
        return case.outcome.failure

    # --- missions

    def _level(self, case: Case) -> int:
        """Return the sandbox that a piece of work was promised."""
        if case.acting in DRAFTING:
            return int(self.state.ports.sandbox)
        plan = self.state.approved(case).plan
        return case.approval.level if executes(plan) and not case.stop else 0

    def _needs_no_model(self, case: Case) -> bool:
        """Return whether the approved plan has literal steps only."""
        if case.acting in DRAFTING:
            return False
        try:
            plan = self.state.approved(case).plan
        except BodyDamaged:
            return True  # it need not wait to report that
        return all(step.actions for _, step in plan.kept)

    def _start_mission(self, case: Case, worker: AssignedWorker | None) -> None:
        if case.state is State.APPROVED and not self._is_still_approved(case):
            return
        ports = self.state.ports
        approved = self.state.approved(case)
        plan, sandbox = approved.plan, ports.sandbox if worker is None else Level(worker.level)
        if sandbox < case.approval.level and executes(plan) and not case.stop:
            self._ask_again(case)
            return
        if self._has_another_model(case) or self._has_other_instructions(case):
            return
        if self._is_unsigned(case):
            return
        token = worker.token if worker is not None else 0
        if not token:
            try:
                token = begin(self.state, self.owner, case, plan, worker)
            except LeaseHeld as held:
                # The journal came from another machine, or this one had another name: the lease
                # runs out unless its holder lives.
                self.state.waits.postpone(case, Postponed(str(held), HEARTBEAT_S, WaitReason.LEASE))
                return
        case = self.state.cases[case.trace_id]
        if worker is None and not (case.stop or self._needs_no_model(case)):
            expect_model(ports)
        mission = mission_of(case, approved, token)
        taken = worker is not None
        job = Job(case.trace_id, case.generation, planning=False, token=token, taken=taken)
        if case.stop:
            job.cancel.set(case.stop)
        self.state.threads.run_job(job, lambda: self._mission(mission, job, sandbox))

    def _has_another_model(self, case: Case) -> bool:
        """Put an approved plan back if it was written for another model. Return whether it was."""
        now = self.state.ports.config.model.who
        begun = case.state is not State.APPROVED or bool(case.stop)
        if begun or not (why := changed_model(case, now)) or self._needs_no_model(case):
            return False
        self._return_to_review(case, lambda note: ModelChanged(note, why, now))
        return True

    def _has_other_instructions(self, case: Case) -> bool:
        """Put a plan back if its agent would read other notes now. Return whether it waits."""
        if case.state is not State.APPROVED or case.stop or self._needs_no_model(case):
            return False
        try:
            with Root(self.state.ports.vault, writable=False) as vault:
                now = digests_of(notes_of_agent(vault, case.request.agent, []))
        except (OSError, UserError) as error:
            why = f"the agent's instructions cannot be read: {one_line(str(error))}"
            self.state.waits.postpone(case, Postponed(why, MACHINE_RETRY_S, WaitReason.MACHINE))
            return True
        if not (why := changed_instructions(case, now)):
            return False
        self._return_to_review(case, lambda note: ModelChanged(note, why, instructions=now))
        return True

    def _is_unsigned(self, case: Case) -> bool:
        """Put a plan back whose signature is missing or does not hold. Return whether it waits."""
        if case.state is not State.APPROVED or case.stop:
            return False
        try:
            why = signature_problem(self.state, case)
        except (OSError, UserError) as error:
            cause = f"its signature cannot be checked: {one_line(str(error))}"
            self.state.waits.postpone(case, Postponed(cause, MACHINE_RETRY_S, WaitReason.MACHINE))
            return True
        if why:
            self._return_to_review(case, lambda note: SignatureVoid(note, why))
        return bool(why)

    def _is_still_approved(self, case: Case) -> bool:
        """Return whether the note in System/Active still has the approved text.

        If not, the next look decides.
        """
        path = self.decider.shown[case.trace_id].plans[0].path
        try:
            note = inspect_note(path, self.state.vault.read(path)[0])
        except Unreadable:
            return False
        return may_begin(case, CaseNotes(plans=[as_it_counts(case, note)]))

    def _ask_again(self, case: Case) -> None:
        """Put back a plan whose sandbox would be weaker than the one it was approved for.

        A mission waits.
        """
        now, then = self.state.ports.sandbox, Level(case.approval.level)
        why = (
            f"It was approved when commands ran in: {then.title}. Now they would run in: "
            f"{now.title}, which is weaker."
        )
        if case.acting is State.RUNNING:
            hint = (
                "The work so far is kept. It resumes when a daemon with the former sandbox starts. "
                "Or move the plan to Inbox/Plans, and approve it again."
            )
            wait = Postponed(f"{why} {hint}", WALL_RETRY_S, WaitReason.SANDBOX)
            self.state.waits.postpone(case, wait)
        else:
            self._return_to_review(case, lambda note: SandboxWeakened(note, why))

    def _stop_or_postpone(self, case: Case, error: Exception) -> None:
        """Stop the work on a case with a damaged text or record; postpone it after a bug."""
        if not isinstance(error, BodyDamaged):
            bug = Postponed(describe_bug(error), MISTAKE_RETRY_S, WaitReason.MISTAKE)
            self.state.waits.postpone(case, bug)
            return
        self.state.say(f"{case.request_id}: {error}")
        if case.acting in DRAFTING:
            end = End.RECORD
            failed = PlanningFailed(case.generation, str(error), end.value, end=end)
            self.state.apply(case, failed)
        else:
            why = f"The journal is not as it was written: {error.what}."
            self._return_to_review(case, lambda note: TextLost(note, why))

    def _in_place(self, case: Case) -> NoteSeen | None:
        """Return the plan that is in the place of a new one, or None."""
        path = case.plan.path
        if not path.startswith(f"{Folder.PLANS}/"):
            return None
        if case.trace_id in self.state.outbox.busy:
            self.state.perform()  # what placet writes itself is not an edit
        try:
            raw, _ = self.state.vault.read(path)
        except Gone:
            return None
        except Unreadable:
            raw = b""
        return inspect_note(path, raw)

    def _stamped_plan(self, case: Case) -> NoteSeen | None:
        """Return a case's plan with what was stamped or written in it since the last look.

        None for one that is on its way: the next look finds it.
        """
        if (seen := self.state.intake.notes.get(case.plan.path)) is None:
            return None
        try:
            note = inspect_note(seen.path, self.state.vault.read(seen.path)[0], seen.owner)
        except Unreadable:
            return None
        return as_it_counts(case, note) if note.trace_id in ("", case.trace_id) else None

    def _return_to_review(self, case: Case, void: Callable[[NoteSeen], ApprovalVoid]) -> None:
        if (note := self._stamped_plan(case)) is not None:
            self.state.apply(case, void(note))

    def _mission(self, mission: Mission, job: Job, sandbox: Level) -> MissionEnded:
        """Carry a mission out and write its report (in the worker's thread)."""
        leaving = Cancel(self.state.ports.leaving, job.hold)
        ports = replace(self.state.ports, sandbox=sandbox, leaving=leaving)
        case = mission.case
        try:
            try:
                ended = self.run_mission(ports, mission, job.cancel)
            except (Interrupted, Postponed, AsksPerson, LeaseLost, BodyDamaged):
                raise
            except Exception as error:
                ended = bug_result(ports, mission, error)
            return report(ports, mission, ended)
        except BodyDamaged as error:
            unread = Record(ports.journal, case, case.generation, ports.clock)
            why = UserError(one_line(str(error), MAX_REASON))
            ended = failed_result(ports, mission, why, End.RECORD, unread)
            return report(ports, mission, ended, unread)

    def _finish(self, case: Case, event: Result | Asked, token: int | None) -> None:
        state = self.state
        if isinstance(event, Asked) and event.wider is not None:
            # not parsed again: these are the approved texts
            texts = map(state.text, (case.approval.digest, case.first_approved))
            event = replace(event, approved=next(texts), first=next(texts))
        if isinstance(event, Drafted):
            event = replace(event, note=self._in_place(case))
        if token is None:
            state.apply(case, event)
            return
        ends = not isinstance(event, Asked)
        released = () if self.team is None else self.team.release(case, ended=ends)
        what: Event = event
        if isinstance(event, MissionFailed) and event.drift is not None and not case.stop:
            note = self._stamped_plan(case)
            if note is not None and note.folder is Folder.ACTIVE and not note.problem:
                what = FilesChanged(note, event.drift)
        try:
            state.apply(
                case,
                what,
                Guard(case.trace_id, token),
                ReleaseLease(case.trace_id, token),
                of_case(state.ports.clock, case, Action.LEASE_RELEASED, token=token),
                *released,
            )
        except LeaseLost:
            state.say(
                f"{case.request_id}: another daemon has taken this mission over; what was done "
                "here counts for nothing"
            )
