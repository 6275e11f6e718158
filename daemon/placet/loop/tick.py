"""The one loop: scan, observe, decide, record, perform.

A ring of the bell or the timer starts a tick. A tick lists the watched folders, lets pure functions
say what changed and what follows, records each decision in one transaction, performs its commands,
and starts the work that is due. Workers run beside it in threads of their own and come back with
values; only the loop decides.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path, PurePosixPath

from placet.agent.mission import Mission, broken, executes, resumption
from placet.agent.model_call import count_unseen
from placet.agent.planner import Assignment
from placet.agent.prompts import agents
from placet.agent.record import LIFE, Postponed, Record
from placet.agent.report import Circumstances, outcome_of
from placet.agent.workplace import Ports, failure_of
from placet.core.activity import Action, Activity, Actor, Entity, rfc3339
from placet.core.errors import Interrupted, UserError
from placet.core.life.case import (
    CASE_JSON,
    COMMAND_JSON,
    OPEN,
    WORKING,
    Branch,
    Case,
    Decision,
    Drafted,
    Event,
    EventKind,
    Gesture,
    Hand,
    MissionEnded,
    NoteSeen,
    PlanningFailed,
    Request,
    Started,
    State,
)
from placet.core.life.decide import (
    adopt_outcome,
    adopt_plan,
    decide,
    distrust,
    open_case,
    settle_branch,
    settle_revert,
)
from placet.core.life.drift import KEY, IfChanged
from placet.core.life.lease import Owner
from placet.core.life.notice import beside
from placet.core.life.observe import (
    DRAFT,
    OUTDATED,
    CaseNotes,
    is_by_place,
    look_at,
    may_begin,
    observe,
    sort_notes,
)
from placet.core.life.quiet import Quiet
from placet.core.life.request import RequestProblems, read_request, unknown_agent, unknown_portal
from placet.core.life.waiting import Hold, Why
from placet.core.life.why_failed import median, of_last_mission
from placet.core.text.blocks import Frontmatter
from placet.core.text.comments import diff_callout
from placet.core.text.names import (
    QUEUES,
    Folder,
    is_request_id,
    is_utf8,
    request_id,
    show,
    trace_id,
)
from placet.core.text.note import PLAN_STAMPS, parse_note, read_note, stamp, without_keys
from placet.core.text.plan_reader import parse_plan
from placet.core.text.scalars import UnsafeEdit
from placet.core.turn.budget import Complexity, Limits, money_problem
from placet.core.turn.cancel import Cancel
from placet.core.turn.mission import Ended, KeptOutcome
from placet.core.turn.price import cost_usd
from placet.core.turn.talk import ModelError, Usage
from placet.files.vault import Found, NotAFile, Stale, TooLarge, Vault, VaultTrouble
from placet.host.acts import forget, word_of
from placet.host.config import portal_path, repositories
from placet.host.watch import Mode
from placet.journal.maintenance import ARCHIVING
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    BodyDamaged,
    Committed,
    Enqueue,
    Guard,
    LeaseHeld,
    LeaseLost,
    PendingCommand,
    PutCase,
    PutText,
    ReleaseLease,
    RenewLease,
    Write,
)
from placet.loop.branches import BranchWatch
from placet.loop.cases import Cases, Taken
from placet.loop.dispatch import Waits
from placet.loop.intake import Intake, Look
from placet.loop.notices import MODEL, Notices
from placet.loop.outbox import Outbox, OutboxPorts
from placet.loop.workers import Crew, Job
from placet.models import prepare
from placet.repo.afterwards import Looked, Revert
from placet.repo.repository import is_repository
from placet.sandbox.values import Level
from placet.tools.registry import PLANNABLE

LEASE_TTL_S = 30.0
"""How long a lease lives without a heartbeat, and HEARTBEAT_S how often it gets one (measured as cheap: 9 µs each)."""
HEARTBEAT_S = 5.0
ARCHIVE_EVERY_S = 86_400.0
ARCHIVE_AT_ONCE = 5_000
"""Events that go to the archive at once: a tenth of a second, in which nothing else is written."""
MAX_ROWS = 10_000
"""How many rows of a case a report is made from, the last ones."""
MAX_REPORT_CHARS = 40_000
"""How much of a Failure Report the next planning reads."""
WALL_RETRY_S = 60.0
SLICE_S = 1.0
"""How long a tick reads, takes up and performs at most, each: after it people, leases and SIGTERM get their turn."""
TAKE_UP_AT_ONCE = 100
"""New requests that share one durable commit."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick says about the next: at most so many seconds away, and whether anything is left to do at all.

    `waiting` says what waits and for what; `settling` that a note is there, or gone, of which it is not certain yet; `away` that
    the vault is not there.
    """

    again_in_s: float
    idle: bool
    waiting: tuple[str, ...] = ()
    settling: bool = False
    away: bool = False


@dataclass(slots=True)
class Loop:
    """The daemon's state between ticks.

    Everything in it can be built again from the vault and the journal.

    `ring` ends the bell's wait, `say` is for the daemon's own log, `tell` is told of a case that
    entered a new state and of a hold, `reload` gives the ports with the configuration as it is now;
    `draft` and `carry_out` are the workers, `start` sets a thread going in which one of them works.
    """

    ports: Ports
    vault: Vault
    owner: Owner
    ring: Callable[[], None]
    say: Callable[[str], None]
    tell: Callable[[Case | Hold], None]
    reload: Callable[[Ports], Ports]
    draft: Callable[[Ports, Assignment, Cancel], Drafted | PlanningFailed]
    carry_out: Callable[[Ports, Mission, Cancel], Ended]
    start: Callable[[threading.Thread], None] = threading.Thread.start
    # what the last look was certain of, of cases that it judged
    shown: Mapping[str, CaseNotes] = field(default_factory=dict)
    # by trace: whether the request was a draft when it was last certain
    drafts: dict[str, bool] = field(default_factory=dict)
    # why nothing is planned from notes of known cases, by their paths
    unplanned: dict[str, str] = field(default_factory=dict)
    # by digest: whether an approved plan needs no model
    literal: dict[str, bool] = field(default_factory=dict)
    scan_cost_s: float = 0.0
    beaten_at: float = float("-inf")
    archived_at: float = float("-inf")
    archiving: str = ""  # before when events go to the archive, while they do
    dirty: bool = True
    stopping: bool = False
    hurried: bool = False  # nobody is waited for who may still be writing
    quiet: Quiet = field(default_factory=Quiet)
    cases: Cases = field(init=False)
    sight: Intake = field(init=False)
    notices: Notices = field(init=False)
    outbox: Outbox = field(init=False)
    waits: Waits = field(init=False)
    branches: BranchWatch = field(init=False)
    crew: Crew = field(init=False)

    def __post_init__(self) -> None:
        self.cases = Cases(self.ports.journal)
        self.sight = Intake(self.vault, self.ports.clock, self.say)
        self.notices = Notices(self.vault, self.ports.journal, self.ports.clock, self.say)
        self.outbox = Outbox(self.ports.journal, self.ports.clock, self.say, self._reported)
        self.waits = Waits(
            self.ports.journal,
            self.ports.clock,
            self.say,
            self.tell,
            self.ports.retry.longest_rest_s,
        )
        self.branches = BranchWatch(self.ports.clock, self.say, self.ring)
        self.crew = Crew(self.ports.clock, self.ring, self.start)

    # --- life
    # -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up what the journal knows: cases, commands that were recorded and not performed, leases left behind."""
        with self.ports.journal.read() as reader:
            self.cases.load(reader)
            self.outbox.pending = list(reader.pending_commands())
            for case in self.cases.values():
                if case.state in (State.APPROVED, State.RUNNING):
                    forget(self._acts, case.trace_id)  # a crash came between its use and this
            self.notices.said = {row.path: row.digest for row in reader.seen()}
            self.waits.load(reader, (case for case in self.cases.values() if case.state in WORKING))
            last = reader.last_of(Action.DAEMON_STARTED, Action.DAEMON_STOPPED, trace_id="")
            ended_well = (
                last is not None
                and last.action_type == Action.DAEMON_STOPPED
                and last.details.get("orderly", False)
            )
            begun = [
                case
                for case in self.cases.values()
                if ended_well
                and case.state in WORKING
                and reader.has_record(case.trace_id, case.generation, LIFE)
            ]
            asked = reader.asked()
        # whatever has become of the case since: it may have been decided on before the daemon died
        for trace, attempt in asked:
            with suppress(BodyDamaged):  # said when its work is taken up
                count_unseen(
                    Record.load(self.ports.journal, self.cases[trace], attempt, self.ports.clock)
                )
        # then a worker that did not come back in time was left, and did not crash
        for case in begun:
            with suppress(BodyDamaged):
                Record.load(
                    self.ports.journal, case, case.generation, self.ports.clock
                ).leave_life()

    def tick(self, hinted: Iterable[str], mode: Mode, moved: Collection[str] = ()) -> Tick:
        """Do everything that can be done now.

        `hinted` are paths that were just closed or moved into place, `moved` the latter.
        """
        clock = self.ports.clock
        # What is known to be due is done before looking, so that the look shows it.
        self._take_back()
        self._perform()
        began = clock.monotonic()
        scan = self.vault.scan(QUEUES)
        self.scan_cost_s = clock.monotonic() - began
        if not scan.present:
            return Tick(
                self.ports.config.daemon.scan_interval_s,
                idle=False,
                waiting=("the vault is not there",),
                away=True,
            )
        self._reload()
        expected = {
            p
            for c in self.cases.values()
            if c.state in OPEN
            for p in (c.request_path, c.plan_path)
            if p
        }
        view = self.sight.look(scan, hinted, expected, SLICE_S)
        self.dirty |= view.changed
        if view.changed or moved:
            asked = {
                path: thing.fingerprint
                for path, thing in scan.found.items()
                if path.startswith(f"{Folder.REQUESTS}/")
            }
            self.quiet.look(
                (n for n in self.sight.notes.values() if n.folder is Folder.REQUESTS),
                asked,
                [path for path in moved if path.startswith(f"{Folder.REQUESTS}/")],
                clock.monotonic(),
                clock.wall().timestamp(),
            )
        if self.dirty:
            self.dirty = False
            self._decide(view, scan.side_notes)
            self._perform()
        self._heartbeat()
        self._look_at_branches()
        self.dirty |= self.waits.lift(self.crew.jobs, self.cases.values())
        self._archive()
        if not self.stopping and not self.ports.config.daemon.paused:
            self._start_work()
        return self._next(view.again_in_s, mode, began)

    def stop(self, grace_s: float) -> None:
        """End cleanly: let the rounds in flight end for `grace_s` seconds, then leave what is left of them to be resumed."""
        self.stopping = True
        self.ports.leaving.set()
        self.crew.leave(grace_s)
        self._take_back()
        self._perform()

    # --- deciding
    # -------------------------------------------------------------------------------------------

    def _decide(self, view: Look, side_notes: Mapping[str, Found]) -> None:
        unread, unsure = view.unread, view.unsure
        # A note that is missing may be on its way: if it is seen elsewhere, that place counts; if
        # not, its case waits until it is certain where the note is and what it says. Of two plans
        # neither counts, also while one is on its way or edited.
        notes = self.sight.notes
        self.cases.find(notes.values(), unread)
        present = {_what(n) for p, n in notes.items() if p not in unsure}
        astray = {
            n.trace_id
            for p in unsure
            if (n := notes.get(p)) is not None
            and (_what(n) not in present or (n.is_plan and p in unread))
        }
        found = sort_notes(
            self.cases.held, [n for p, n in sorted(notes.items()) if p not in unsure]
        )
        by_place = (
            set()
            if self.sight.is_certain
            else {t for t, its in found.of_case.items() if is_by_place(its)}
        )
        written = {
            c.trace_id
            for c in self.cases.values()
            if not unread.isdisjoint((c.request_path, c.plan_path))
        }
        busy = self.outbox.busy | astray | written | by_place
        notices = {n.path: why for n, why in found.notices}
        self.unplanned = {}
        self.shown = {trace: its for trace, its in found.of_case.items() if trace not in busy}
        self.drafts = {
            trace: known for trace, known in self.drafts.items() if trace in self.cases.held
        } | {
            trace: its.request is not None and its.request.status == DRAFT
            for trace, its in self.shown.items()
        }
        for trace, its in found.of_case.items():
            case = self.cases[trace]
            if trace not in busy and (gesture := self._observe(case, its)) is not None:
                self._apply(case, gesture)
            elif trace not in busy:
                self._acknowledge_places(case, its)
        for trace, case in list(self.cases.items()):
            if (
                case.state in OPEN
                and trace not in busy
                and trace not in found.of_case
                and (gesture := self._observe(case, CaseNotes())) is not None
            ):
                self._apply(case, gesture)
        for job in self.crew.jobs.values():
            if job.planning and self._is_draft(self.cases[job.trace_id]):
                # what it has so far is kept; the request is read anew once it says that it is ready
                job.cancel.set()
        taken = Taken(self.cases)
        unjudged = unread | unsure
        if not self.sight.is_certain:  # the request of a plan may be among what is unread
            unjudged |= {note.path for note in found.orphans}
        else:
            notices |= self._adopt(found.orphans, taken)
        problems, later = self._take_up(
            [n for n in found.new if n.path not in unread and n.trace_id not in self.cases], taken
        )
        notices |= problems
        notices |= self.unplanned
        notices |= self.sight.notices()
        self._add_notices_of_cases(notices)
        busy |= self.outbox.busy
        for trace in found.of_case.keys() - busy:
            for path, why in beside(self.cases[trace], found.of_case[trace]).items():
                notices.setdefault(path, why)
        known = {
            path for case in self.cases.values() for path in (case.request_path, case.plan_path)
        }
        self.dirty |= self.notices.show(
            notices, side_notes, unjudged | later, notes, known, SLICE_S
        )
        self.cases.let_go(
            notes.values(), notes.keys() | unread | unsure, self.outbox.busy | self.crew.jobs.keys()
        )

    def _add_notices_of_cases(self, notices: dict[str, str]) -> None:
        """Add what is to be said beside notes that can be used: a planning that failed, an edit in vain, what work waits for."""
        for case in self.cases.values():
            if (
                case.state is State.FAILED
                and not case.report_path
                and case.request_path in self.sight.notes
            ):
                notices.setdefault(
                    case.request_path,
                    f"There is no plan: {case.failure}\nSet `status: pending` in the request to "
                    "try again.",
                )
            if (
                case.state is State.RUNNING
                and case.reported_edit
                and (plan := self.sight.notes.get(case.plan_path)) is not None
                and plan.digest == case.reported_edit
            ):
                approved = self._known_text(case.approved_digest).decode(errors="replace")
                notices.setdefault(
                    plan.path,
                    EDITED_IN_RUN
                    + diff_callout(
                        approved, without_keys(plan.raw, PLAN_STAMPS).decode(errors="replace")
                    ),
                )
        for trace, why in self.waits.told().items():
            if (path := self.cases[trace].request_path) and path in self.sight.notes:
                notices.setdefault(path, why)
        if self.waits.hold is not None:
            notices[MODEL] = self.waits.hold.notice

    def _observe(self, case: Case, its: CaseNotes) -> Gesture | None:
        """Return what a person did to a case's notes, once it is certain: an absence has to outlive the settling time."""
        gesture = observe(case, its, PLANNABLE)
        if gesture is None:
            return None
        if gesture.kind is EventKind.PLAN_APPROVED and not self.sight.all_plans_read:
            return None  # what came just now may be another plan of this case: then neither counts
        gesture = self._with_hand(case, gesture)
        if gesture.kind is EventKind.PLAN_APPROVED or gesture.why == OUTDATED:
            found = [self._unpayable(gesture) or self._not_there(case, gesture), gesture.why]
            why = "\n".join(filter(None, found))
            if why:
                return replace(gesture, kind=EventKind.APPROVAL_REFUSED, why=why)
            assert gesture.note is not None
            # No plan of the daemon's where a person put one together for a case that had none: then
            # every line is theirs.
            known = case.plan_digest if gesture.note.digest != case.plan_digest else ""
            return replace(
                gesture, level=int(self.ports.sandbox), written=self._text_if_known(known)
            )
        if gesture.kind in _PLANNED_FROM:
            return self._with_keys(gesture)
        if gesture.kind is EventKind.ACTIVE_EDITED:
            return replace(
                gesture, approved_text=read_note(self._known_text(case.approved_digest)).body
            )
        if gesture.note is None:
            path = case.request_path if gesture.kind is EventKind.REQUEST_GONE else case.plan_path
            other = self.sight.notes.get(path)
            if path not in self.sight.gone and not (
                other is not None and other.trace_id not in ("", case.trace_id)
            ):
                return None
        return gesture

    def _with_hand(self, case: Case, gesture: Gesture) -> Gesture:
        """Return a gesture with who made it, where a command of a person's left word of just this."""
        if (what := _DECISIONS.get(gesture.kind)) is None or gesture.note is None:
            return gesture
        word = word_of(self._acts, case.trace_id)
        if word is None or (word.what, word.digest) != (what, gesture.note.digest):
            return gesture
        return replace(gesture, hand=Hand(word.who, word.via))

    @property
    def _acts(self) -> Path:
        return self.ports.worktrees.parent / "acts"

    def _with_keys(self, gesture: Gesture) -> Gesture | None:
        """Return a gesture that leads to a plan, with what the request says now.

        None, and why, where that cannot be used.
        """
        note = gesture.request
        if note is None:
            # Its request may be a file that was not read yet.
            return (
                gesture
                if gesture.kind is EventKind.REVISION_ASKED or self.sight.is_certain
                else None
            )
        asked = self._request_of(note)
        if not isinstance(asked, str):
            return replace(gesture, asked=asked)
        self.unplanned[note.path] = (
            f"{asked}\nNothing is planned from it until that is mended; what was decided before holds."
        )
        if gesture.note is not None and gesture.note.is_plan:
            self.unplanned[gesture.note.path] = (
                "The changes wait for the request: beside it stands what is wrong with "
                f"`{show(note.path)}`."
            )
        return None

    def _text_if_known(self, name: str) -> bytes:
        """Return a plan that the daemon wrote.

        Empty where the journal is older than the keeping of these texts.
        """
        with self.ports.journal.read() as reader:
            try:
                text = reader.text(name) if name else None
            except BodyDamaged:
                text = None
        return text or b""

    def _unpayable(self, gesture: Gesture) -> str:
        """Say why a plan's money limit cannot be kept to, empty if it can: an unknown price is not guessed."""
        assert gesture.note is not None
        model = self.ports.config.model
        limits = Limits(
            usd=parse_plan(read_note(gesture.note.raw).body, PLANNABLE).scope.budget_usd
        )
        known = (
            cost_usd(Usage(), model.name, self.ports.prices, free=model.provider == "scripted")
            is not None
        )
        return money_problem(limits, model.name, price_known=known) or ""

    def _not_there(self, case: Case, gesture: Gesture) -> str:
        """Say what a plan names that there is not: who is to do it, or where.

        Empty if both are there.
        """
        assert gesture.note is not None
        meta = gesture.note.meta
        return "\n".join(
            [
                *unknown_agent(str(meta.get("agent") or case.agent), agents(self.ports.vault)),
                *unknown_portal(str(meta.get("portal") or ""), self.ports.config.portals),
            ]
        )

    def _adopt(self, orphans: Sequence[NoteSeen], taken: Taken) -> dict[str, str]:
        """Take up plans whose cases the journal does not know.

        Return what is wrong with those that cannot be.

        `taken` are the request ids that are in use; the new ones are added.
        """
        problems: dict[str, str] = {}
        notes = self.sight.notes.values() if orphans else ()
        asked = {
            n.trace_id: n
            for n in notes
            if not n.is_plan and not n.problem and n.folder is Folder.REQUESTS
        }
        for note in sorted(orphans, key=lambda n: (n.folder is not Folder.ACTIVE, n.path)):
            named = str(note.meta.get("request_id") or "")
            if note.trace_id in self.cases:
                # the second of two with one trace_id, the first was adopted just now: the next look
                # sees two plans
                continue
            if is_request_id(named) and named not in taken:
                taken.given.add(named)
                copies = [
                    n
                    for n in orphans
                    if n.trace_id == note.trace_id and n.folder is Folder.ACTIVE and n is not note
                ]
                self._record(
                    adopt_plan(note, asked.get(note.trace_id), self.ports.clock.now(), copies)
                )
            else:
                problems[note.path] = (
                    "The journal does not know this plan, and its request_id is taken by another, missing, or "
                    "not one that placet would give."
                )
        return problems

    def reconcile(self, outcomes: Iterable[KeptOutcome], problems: Sequence[str]) -> None:
        """Bring a journal that was lost or put back up to what reports and branches tell, and say what was found."""
        adopted: list[str] = []
        begun: list[str] = []
        for outcome in outcomes:
            case = self.cases.get(outcome.trace_id)
            decision = adopt_outcome(case, outcome, self.ports.clock.now())
            if decision is not None:
                self._record(decision)
                adopted.append(decision.case.request_id)
            elif not outcome.report_path and (case is None or not case.report_path):
                begun.append(case.request_id if case is not None else outcome.trace_id)
        for path in sorted(self.vault.scan([Folder.ACTIVE]).found):
            with suppress(Stale, NotAFile, TooLarge, VaultTrouble):  # then it approves nothing
                note = look_at(path, self.vault.read(path)[0], self.vault.owner(path))
                case = self.cases.get(note.trace_id)
                if (
                    case is not None
                    and (decision := distrust(case, note, self.ports.clock.now())) is not None
                ):
                    self._record(decision)
        row = Activity(
            self.ports.clock.now(),
            "",
            Actor.SYSTEM,
            Action.JOURNAL_RECONCILED,
            Entity.DAEMON,
            "placet",
            "",
            {"adopted": adopted, "begun": begun, "problems": list(problems)},
        )
        self.ports.journal.commit([AddActivity(row)])
        left = f" {len(begun)} branches have commits of missions without a report." if begun else ""
        self.say(
            f"The journal is older than the vault: it was lost, or put back from a backup. {len(adopted)} missions were taken "
            f"up again from their reports.{left} Plans that the journal does not know, or whose approval it does not know, "
            "await review."
        )
        for problem in problems:
            self.say(problem)

    def _take_up(
        self, new: Sequence[NoteSeen], taken: Taken
    ) -> tuple[dict[str, str], frozenset[str]]:
        """Open cases for new requests, as many as a slice of the tick lets.

        `taken` are the request ids that are in use; the new ones are added. Return the problems of
        those that have some, and the paths of those that have to wait for the next tick.
        """
        problems: dict[str, str] = {}
        opened: dict[str, Decision] = {}
        later: frozenset[str] = frozenset()
        until = self.ports.clock.monotonic() + SLICE_S
        for number, note in enumerate(new, 1):
            request = self._request_of(note)
            if isinstance(request, str):
                problems[note.path] = request
                continue
            name = PurePosixPath(note.path).name
            trace, ordinal = note.trace_id, 0
            while not trace or trace in self.cases or trace in opened:
                trace, ordinal = trace_id(name, note.digest, ordinal), ordinal + 1
            named = request_id(name, taken)
            taken.given.add(named)
            self.drafts[trace] = False
            opened[trace] = open_case(
                note,
                request,
                trace,
                named,
                self.ports.clock.now(),
                ready=not self._quiet_left_s(note.path),
            )
            if len(opened) == TAKE_UP_AT_ONCE:
                self._record(*opened.values())
                opened.clear()
                if self.ports.clock.monotonic() > until:
                    later = frozenset(note.path for note in new[number:])
                    break  # recording made the loop dirty: the next tick goes on
        self._record(*opened.values())
        if opened:
            self._expect_model()
        return problems, later

    def _request_of(self, note: NoteSeen) -> Request | str:
        """Return the request that a note is, or what is wrong with it."""
        config = self.ports.config
        try:
            request = read_request(
                note.path,
                read_note(note.raw),
                agents(self.ports.vault),
                config.portals,
                config.vault.default_agent,
                config.vault.own_keys,
            )
            stamp(
                note.raw,
                {"status": "planning", "trace_id": "0" * 8},
                kind_if_none=Frontmatter(config.vault.frontmatter),
            )
        except RequestProblems as found:
            return "\n".join(found.problems)
        except UnsafeEdit as error:
            return str(error)
        return request

    def _acknowledge_places(self, case: Case, notes: CaseNotes) -> None:
        """Remember where a case's notes lie now: renaming one means nothing, but commands need its place."""
        request_path = (
            notes.request.path
            if notes.request is not None and is_utf8(notes.request.path)
            else case.request_path
        )
        plan_path = (
            notes.plans[0].path
            if len(notes.plans) == 1 and is_utf8(notes.plans[0].path)
            else case.plan_path
        )
        if not case.request_path:
            request_path = ""  # it was archived, or taken away
        if not case.plan_path:
            plan_path = ""
        if (request_path, plan_path) != (case.request_path, case.plan_path):
            self._record(
                Decision(replace(case, request_path=request_path, plan_path=plan_path), ())
            )

    def _apply(self, case: Case, event: Event, *writes: Write) -> Committed | None:
        """Decide an event and record what follows; None where nothing does."""
        decision = decide(case, event, self.ports.clock.now())
        if decision is None:
            return None
        job = self.crew.jobs.get(case.trace_id)
        committed = self._record(decision, writes=writes)
        if isinstance(event, Gesture) and event.kind in _OVERTAKES:
            forget(self._acts, case.trace_id)
        if (
            isinstance(event, Gesture)
            and event.kind is EventKind.REQUEST_PENDING
            and event.hand.via == "cli"
        ):
            self.quiet.end(decision.case.request_path)  # no editor has it open
        if job is not None:
            if decision.case.generation != job.generation:
                job.cancel.set()
            elif decision.case.stop:
                job.cancel.set(decision.case.stop)
        return committed

    def _record(self, *decisions: Decision, writes: Sequence[Write] = ()) -> Committed:
        """Write decisions down in one transaction; only then do they exist."""
        batch: list[Write] = [*writes]
        commands = [
            (decision.case.trace_id, COMMAND_JSON.dump_json(command).decode())
            for decision in decisions
            for command in decision.commands
        ]
        for decision in decisions:
            case = decision.case
            batch += [
                *(PutText(sha256(raw).hexdigest(), raw) for raw in decision.texts),
                _put(case),
                *(AddActivity(row) for row in decision.rows),
            ]
        batch += [Enqueue(trace, command) for trace, command in commands]
        committed = self.ports.journal.commit(batch, durable=bool(commands or writes))
        self.outbox.pending += [
            PendingCommand(number, trace, command, 0, "")
            for number, (trace, command) in zip(committed.outbox, commands, strict=True)
        ]
        for decision in decisions:
            case = decision.case
            before = self.cases.get(case.trace_id)
            self.cases.put(replace(case, version=case.version + 1))
            self.waits.over(case.trace_id)
            self.dirty = True
            if before is not None and before.state is not case.state:
                self.tell(self.cases[case.trace_id])
        return committed

    # --- performing
    # -----------------------------------------------------------------------------------------

    def _perform(self) -> None:
        desk = OutboxPorts(self.vault, self._text, Frontmatter(self.ports.config.vault.frontmatter))
        self.dirty |= self.outbox.perform(self.cases, desk, SLICE_S)

    def _reported(self, case: Case, wanted: str, place: str, size: int) -> list[Write]:
        """Return what is written down of a report that was published at `place`: where it lies, also if `wanted` was taken."""
        row = Activity(
            self.ports.clock.now(),
            case.trace_id,
            Actor.SYSTEM,
            Action.REPORT_WRITTEN,
            Entity.MISSION,
            case.request_id,
            case.agent,
            {"path": place, "size": size},
        )
        if place == wanted:
            return [AddActivity(row)]
        case = replace(case, report_path=place, failure=case.failure.replace(wanted, place))
        self.cases.put(replace(case, version=case.version + 1))
        return [_put(case), AddActivity(row)]

    def _known_text(self, name: str) -> bytes:
        """Return a text to be shown: nothing where it is damaged, which is said when it is to be used."""
        try:
            return self._text(name)
        except BodyDamaged:
            return b""

    def _text(self, name: str) -> bytes:
        with self.ports.journal.read() as reader:
            text = reader.text(name)
        assert text is not None, f"text {name} was stored with the decision that names it"
        return text

    # --- work
    # -----------------------------------------------------------------------------------------------

    def _start_work(self) -> None:
        """Start what is due, within the limits: the highest priority first, then the oldest."""
        busy = self.outbox.busy
        limits = self.ports.config.daemon
        free = {True: limits.plans_at_once, False: limits.missions_at_once}
        for job in self.crew.jobs.values():
            free[job.planning] -= 1
        due = [
            c
            for c in self.cases.values()
            if c.state in WORKING
            and c.trace_id not in self.crew.jobs
            and c.trace_id not in busy
            and self._is_judged(c)
            and not (
                c.state in _DRAFTING and (self._is_draft(c) or self._quiet_left_s(c.request_path))
            )
        ]
        for case in self.waits.may_start(sorted(due, key=_before_others), self._needs_no_model):
            planning = case.state in _DRAFTING
            if free[planning] <= 0:
                continue
            free[planning] -= 1
            try:
                self._start_planning(case) if planning else self._start_mission(case)
            except BodyDamaged as damaged:
                self._cannot_go_on(case, damaged)

    def _cannot_go_on(self, case: Case, damaged: BodyDamaged) -> None:
        """Stop the work on a case whose texts or record are not as they were written.

        Nothing is carried out from what is left.
        """
        self.say(f"{case.request_id}: {damaged}")
        if case.state in _DRAFTING:
            self._apply(case, PlanningFailed(case.generation, str(damaged), type(damaged).__name__))
        elif (
            note := self.sight.notes.get(case.plan_path)
        ) is not None:  # else it is on its way: the next look says where
            self._apply(
                case,
                Gesture(
                    EventKind.TEXT_LOST,
                    note,
                    f"The journal is not as it was written: {damaged.what}.",
                ),
            )

    def _is_draft(self, case: Case) -> bool:
        """Whether its request says that it is still being written, or was not looked at in this life. A folder says nothing."""
        return self.drafts.get(
            case.trace_id, bool(case.request_path) and not self.sight.is_no_note(case.request_path)
        )

    def _quiet_left_s(self, request_path: str) -> float:
        """Return for how long a request has to be left alone until it is planned."""
        if self.hurried:
            return 0.0
        return self.quiet.left_s(
            request_path, self.ports.clock.monotonic(), self.ports.config.vault.quiet_s
        )

    def _is_judged(self, case: Case) -> bool:
        """Whether a look of this life has shown the note whose mission is to begin or to go on, and nothing speaks against that.

        What a person did while no daemon ran is decided first: an edited plan is not begun, one that was taken away not resumed.
        """
        its = self.shown.get(case.trace_id, CaseNotes())
        if case.state is State.RUNNING:
            return bool(case.stop or its.plans) or case.plan_path in self.sight.odd
        return case.state is not State.APPROVED or may_begin(case, its)

    def _says_so_still(self, case: Case) -> bool:
        """Whether the note in System/Active says in this moment what was approved.

        Else the next look says what it does.
        """
        path = self.shown[case.trace_id].plans[0].path
        try:
            note = look_at(path, self.vault.read(path)[0], "")
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return False
        return may_begin(case, CaseNotes(plans=[note]))

    def _needs_no_model(self, case: Case) -> bool:
        """Whether a plan was approved that says what to do, call for call."""
        if case.state in _DRAFTING:
            return False
        if case.approved_digest not in self.literal:
            try:
                plan = parse_plan(read_note(self._text(case.approved_digest)).body, PLANNABLE)
            except BodyDamaged:
                return True  # it need not wait to be told so
            self.literal[case.approved_digest] = all(step.actions for step in plan.steps)
        return self.literal[case.approved_digest]

    def _expect_model(self) -> None:
        """Let the model be made ready while something else is done: it will be asked soon.

        Nothing where it cannot be used yet.
        """
        if not self.ports.config.daemon.paused:
            with suppress(ModelError, UserError):
                self.ports.open_model()
                prepare(self.ports.config.model.provider)

    def _start_planning(self, case: Case) -> None:
        self._expect_model()
        request = read_note(self._text(case.request_digest)).body
        current = (
            read_note(self._text(case.basis_digest)).body
            if case.basis_digest and not case.is_elsewhere
            else None
        )
        job = Job(case.trace_id, case.generation, planning=True, token=None)
        assignment = Assignment(
            case, request, PurePosixPath(case.request_path).stem, current, self._what_failed(case)
        )
        self.crew.set_to(job, lambda: self.draft(self.ports, assignment, job.cancel))

    def _what_failed(self, case: Case) -> str:
        """Return what the next plan is told of a failure: the report as it stands in the vault, with what people wrote into it."""
        if not case.failure or not case.report_path:
            return case.failure
        try:
            return parse_note(self.vault.read(case.report_path)[0])[1][:MAX_REPORT_CHARS]
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return case.failure

    def _start_mission(self, case: Case) -> None:
        if case.state is State.APPROVED and not self._says_so_still(case):
            return
        raw = self._text(case.approved_digest)
        note = read_note(raw)
        with self.ports.journal.read() as reader:
            lease = reader.lease(case.trace_id)
        # The vault's lock proves that no other daemon lives here, so a lease of this machine that
        # is still held is a dead one's.
        gone = (
            lease.token
            if lease is not None and lease.held and lease.owner.host == self.owner.host
            else None
        )
        acquire = AcquireLease(case.trace_id, self.owner, LEASE_TTL_S, gone)
        plan = parse_plan(note.body, PLANNABLE)
        facts = {
            "digest": case.approved_digest,
            "sandbox": self.ports.sandbox.title,
            "revision": case.revision,
            "steps": len(plan.steps),
        }
        if int(self.ports.sandbox) < case.approved_level and executes(plan) and not case.stop:
            self._ask_again(case)
            return
        try:
            if case.state is State.APPROVED:
                committed = self._apply(case, Started(case.generation, facts), acquire)
                assert committed is not None, "an approved case can always be started"
            else:
                record = Record.load(self.ports.journal, case, case.generation, self.ports.clock)
                row = self._row(case, Action.EXECUTION_RESUMED, **facts, **resumption(record))
                # With the case: who took this mission over while we stood still may have ended it,
                # and its lease is free then.
                committed = self._record(Decision(case, (row,)), writes=[acquire])
        except LeaseHeld as held:
            # The journal came from another machine, or this one had another name: the lease runs
            # out unless its holder lives.
            self.waits.postpone(case, Postponed(str(held), HEARTBEAT_S, Why.LEASE))
            return
        case = self.cases[case.trace_id]
        if not self._needs_no_model(case):
            self._expect_model()
        token = committed.token
        self.ports.journal.commit(
            [
                AddActivity(
                    self._row(case, Action.LEASE_ACQUIRED, token=token, owner=str(self.owner))
                )
            ]
        )
        mission = Mission(
            case,
            plan,
            Complexity(str(note.meta.get("complexity") or Complexity.STANDARD)),
            token,
            str(note.meta.get("base_commit") or ""),
            IfChanged(note.meta.get(KEY, IfChanged.ASK)),
        )
        job = Job(case.trace_id, case.generation, planning=False, token=token)
        if case.stop:
            job.cancel.set(case.stop)
        self.crew.set_to(job, lambda: self._mission(mission, job))

    def _ask_again(self, case: Case) -> None:
        """Send a plan back to review whose commands would run behind a weaker wall than the person knew of; a mission waits."""
        now, then = self.ports.sandbox, Level(case.approved_level)
        why = f"It was approved when commands ran in: {then.title}. Now they would run in: {now.title}, which is weaker."
        if case.state is State.RUNNING:
            hint = (
                "What was done by then is kept. It goes on when a daemon with the former sandbox is started; or move the plan "
                "to Inbox/Plans, and approve it again."
            )
            self.waits.postpone(case, Postponed(f"{why} {hint}", WALL_RETRY_S, Why.WALL))
        elif (
            note := self.sight.notes.get(case.plan_path)
        ) is not None:  # else it is on its way: the next look says where
            self._apply(case, Gesture(EventKind.WALL_WEAKENED, note, why))

    def _mission(self, mission: Mission, job: Job) -> MissionEnded:
        """Carry a mission out and write its report (in the worker's thread)."""
        ports = self.ports
        try:
            ended = self.carry_out(ports, mission, job.cancel)
        except (Interrupted, Postponed, LeaseLost):
            raise
        except Exception as error:
            ended = broken(ports, mission, error)
        return self._report(mission, ended)

    def _report(self, mission: Mission, ended: Ended) -> MissionEnded:
        ports = self.ports
        moment = ports.clock.wall()
        with ports.journal.read() as reader:
            rows = of_last_mission(
                reader.activity(mission.case.trace_id, limit=MAX_ROWS, newest=True)
            )
            costs = reader.calls.mission_costs(mission.complexity.value)
        return outcome_of(
            ended,
            Circumstances(
                mission.case,
                mission.plan,
                mission.complexity,
                ports.config.model.name,
                ports.config.model.provider,
                ports.sandbox.title,
                moment,
                rfc3339(moment),
                Frontmatter(ports.config.vault.frontmatter),
                rows,
                median(costs),
                lambda path: os.path.lexists(ports.vault / path),
            ),
        )

    def _take_back(self) -> None:
        """Take in what workers came back with."""
        while (back := self.crew.take_back()) is not None:
            self.dirty = True
            case = self.cases[back.job.trace_id]
            if case.generation != back.job.generation:
                self._release(back.job)
            elif back.postponed is not None:
                self.waits.postpone(case, back.postponed)
                self._release(back.job)
            elif back.event is None:
                self._release(back.job)
            else:
                self._finish(case, back.event, back.job.token)

    def _reload(self) -> None:
        """Take a changed configuration up; it may have mended what work waits for."""
        before = self.ports.config
        self.ports = self.reload(self.ports)
        now = self.ports.config
        if (now.model, now.limits) != (before.model, before.limits):
            self.waits.try_now()
        if now.vault != before.vault:
            self.waits.try_again(Why.HISTORY)

    def _finish(
        self, case: Case, event: Drafted | PlanningFailed | MissionEnded, token: int | None
    ) -> None:
        if token is None:
            self._apply(case, event)
            return
        row = self._row(case, Action.LEASE_RELEASED, token=token)
        note = self.sight.notes.get(case.plan_path)
        here = (
            note is not None and note.folder is Folder.ACTIVE and not note.problem and not case.stop
        )
        drift = event.drift if isinstance(event, MissionEnded) and here else None
        what = event if drift is None else Gesture(EventKind.FILES_CHANGED, note, drift=drift)
        try:
            self._apply(
                case,
                what,
                Guard(case.trace_id, token),
                ReleaseLease(case.trace_id, token),
                AddActivity(row),
            )
        except LeaseLost:
            self.say(
                f"{case.request_id}: another daemon has taken this mission over; what was done here counts for nothing"
            )

    def _release(self, job: Job) -> None:
        if job.token is None:
            return
        case = self.cases[job.trace_id]
        try:
            self.ports.journal.commit(
                [
                    ReleaseLease(job.trace_id, job.token),
                    AddActivity(self._row(case, Action.LEASE_RELEASED, token=job.token)),
                ]
            )
        except LeaseLost:
            self.say(f"{case.request_id}: another daemon has taken this mission over")

    # --- what people did with branches
    # ----------------------------------------------------------------------

    def _look_at_branches(self) -> None:
        """Decide what people did with branches since the last look, and begin the next one."""
        for found in self.branches.take():
            self._settle_branches(found)
        if not self.stopping:
            self.branches.look(self._open_branches)

    def _open_branches(self) -> dict[Path, list[Branch]]:
        config = self.ports.config
        found: dict[Path, list[Branch]] = {}
        for branches in self.cases.watched.values():
            for branch in branches:
                if not branch.portal or branch.portal in config.portals:
                    found.setdefault(
                        portal_path(self.ports.vault, config, branch.portal), []
                    ).append(branch)
        for place in repositories(self.ports.vault, config):
            # where nothing is open a merge may be taken back
            if place not in found and is_repository(place):
                found[place] = []
        return found

    def _settle_branches(self, found: Looked) -> None:
        if found.calls and (
            found.asked or found.reverts or any(call.stderr for call in found.calls)
        ):
            now, place = self.ports.clock.now(), str(found.path)
            facts = {
                "operation": "look at the branches",
                "processes": len(found.calls),
                "branches": found.asked,
                "duration_ms": round(sum(call.duration_ms for call in found.calls), 1),
            }
            self.ports.journal.commit(
                [
                    AddActivity(
                        Activity(
                            now,
                            "",
                            Actor.SYSTEM,
                            Action.GIT_RAN,
                            Entity.REPOSITORY,
                            place,
                            metadata=one,
                        )
                    )
                    for one in (facts, *(failure_of(call) for call in found.calls if call.stderr))
                ]
            )
        for fate in found.fates:
            by, reason = self._why_dropped(fate.of) if fate.became == "dropped" else ("", "")
            decision = settle_branch(
                self.cases[fate.of.trace_id],
                fate.of,
                fate.became,
                fate.commit_sha,
                fate.how,
                reason,
                by,
                found.owner,
                self.ports.clock.now(),
            )
            if decision is not None:
                self._record(decision)
        settled: set[str] = set()
        for revert in found.reverts:  # the newest of a mission's says how it stands
            if revert.trace_id not in settled and self._settle_revert(revert, found.owner):
                settled.add(revert.trace_id)

    def _settle_revert(self, found: Revert, who: str) -> bool:
        """Decide what follows from a revert; return whether it was one of a mission's merge."""
        case = self.cases.get(found.trace_id)
        if case is None or case.became not in ("merged", "reverted"):
            return False
        with self.ports.journal.ask() as reader:
            row = reader.last_of(Action.PR_MERGED, trace_id=case.trace_id)
        merged = str(row.details.get("commit_sha", "")) if row is not None else ""
        if found.of not in ("", merged):
            return False
        decision = settle_revert(
            case, merged, found.commit_sha, who, self.ports.clock.now(), again=found.again
        )
        if decision is not None:
            self._record(decision)
        return True

    def _why_dropped(self, branch: Branch) -> tuple[str, str]:
        """Return who dropped a branch and why, as its report says (`dropped_by`, `dropped_reason`).

        Empty where it does not.
        """
        try:
            meta, _ = parse_note(self.vault.read(branch.report_path)[0])
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return "", ""
        return str(meta.get("dropped_by") or ""), str(meta.get("dropped_reason") or "")

    def _heartbeat(self) -> None:
        now = self.ports.clock.monotonic()
        if now - self.beaten_at < HEARTBEAT_S:
            return
        self.beaten_at = now
        for job in self.crew.jobs.values():
            if job.token is None:
                continue
            try:
                self.ports.journal.commit([RenewLease(job.trace_id, job.token, LEASE_TTL_S)])
            except LeaseLost:
                job.cancel.set()

    def _archive(self) -> None:
        """Once a day, move old events out of the journal if the configuration says after how long: a piece of them each tick."""
        days, now = self.ports.config.journal.archive_after_days, self.ports.clock.monotonic()
        if (
            self.stopping
            or not days
            or (not self.archiving and now - self.archived_at < ARCHIVE_EVERY_S)
        ):
            return
        self.archived_at = now
        if not self.archiving:
            self.archiving = rfc3339(self.ports.clock.wall() - timedelta(days=days))
        is_open = {c.trace_id for c in self.cases.values() if c.state in OPEN} | {
            trace
            for trace, branches in self.cases.watched.items()
            if any(not branch.became for branch in branches)
        }
        path = self.ports.journal.archive(self.archiving, keep=is_open, most=ARCHIVE_AT_ONCE)
        if path is not None and path.name.endswith(ARCHIVING):
            return
        before, self.archiving = self.archiving, ""
        if path is not None:
            self.say(f"Events before {before[:10]} were moved to {path}.")
            self.ports.journal.commit(
                [
                    AddActivity(
                        Activity(
                            self.ports.clock.now(),
                            "",
                            Actor.SYSTEM,
                            Action.JOURNAL_ARCHIVED,
                            Entity.DAEMON,
                            "placet",
                            "",
                            {"path": path.name, "before": before},
                        )
                    )
                ]
            )

    def _row(self, case: Case, action: Action, **metadata: object) -> Activity:
        return Activity(
            self.ports.clock.now(),
            case.trace_id,
            Actor.SYSTEM,
            action,
            Entity.MISSION,
            case.request_id,
            case.agent,
            metadata,
        )

    # --- what comes next
    # ------------------------------------------------------------------------------------

    def _next(self, settle_in_s: float | None, mode: Mode, began_s: float) -> Tick:
        interval_s = self.ports.config.daemon.scan_interval_s
        waits = [
            max(interval_s, self.scan_cost_s * SCAN_SHARE) if mode is Mode.EVENTS else interval_s
        ]
        if settle_in_s is not None:
            waits.append(settle_in_s)
        waits += self.outbox.waits_s()
        waits += self.waits.left_s(began_s)
        if self.dirty or self.archiving:
            waits.append(0.0)
        if self.crew.jobs:
            waits.append(HEARTBEAT_S)
        paused = self.ports.config.daemon.paused
        at_rest = (
            settle_in_s is None
            and not self.crew.jobs
            and not self.outbox.pending
            and not self.branches.asks
        )
        drafting = [c for c in self.cases.values() if c.state in _DRAFTING]
        waits += [left_s for c in drafting if (left_s := self._quiet_left_s(c.request_path))]
        drafts = {c.trace_id for c in drafting if self._is_draft(c)}
        working = [
            c
            for c in self.cases.values()
            if c.state in WORKING and c.trace_id not in self.waits.postponed.keys() | drafts
        ]
        unjudged = [c for c in working if not self._is_judged(c)] if at_rest else []
        idle = (
            not self.dirty
            and not self.archiving
            and at_rest
            and (paused or len(working) == len(unjudged))
        )
        waiting = (
            [f"all work waits for the model: {held.notice}"]
            if (held := self.waits.holding()) is not None
            else []
        )
        waiting += [
            f"{self.cases[trace].request_id}: {why}" for trace, why in self.waits.told().items()
        ]
        waiting += [c.error for c in self.outbox.pending if c.error]
        waiting += [
            f"{c.request_id}: its mission waits until {show(c.plan_path)} can be read, and is the only note of that plan"
            for c in unjudged
        ]
        return Tick(max(0.0, min(waits)), idle, tuple(waiting), settling=settle_in_s is not None)


SCAN_SHARE = 1000
"""Where events arrive, listing very full folders takes at most a thousandth of the time: events can be lost, not often."""

_DRAFTING = frozenset({State.PLANNING, State.REVISING})
_DECISIONS: Mapping[EventKind, str] = {
    EventKind.PLAN_APPROVED: "approve",
    EventKind.APPROVAL_REFUSED: "approve",
    EventKind.PLAN_REJECTED: "reject",
    EventKind.REVISION_ASKED: "revise",
    EventKind.REQUEST_PENDING: "retry",
}
_OVERTAKES = frozenset(
    {
        *_DECISIONS,
        EventKind.PLAN_TAKEN_BACK,
        EventKind.PLAN_MISPLACED,
        EventKind.PLAN_GONE,
        EventKind.STOP_ASKED,
    }
)
"""After these a word that was left before is used, or stale."""
_PLANNED_FROM = frozenset(
    {
        EventKind.REQUEST_EDITED,
        EventKind.REQUEST_PENDING,
        EventKind.REQUEST_RETURNED,
        EventKind.REVISION_ASKED,
    }
)
EDITED_IN_RUN = (
    "This text was changed while its mission runs. The mission goes on with the text that was approved; the change "
    "has no effect. To stop the mission, move this note to Inbox/Plans.\n"
)


def _before_others(case: Case) -> tuple[int, str, str]:
    return -case.priority, case.since, case.request_id


def _put(case: Case) -> PutCase:
    return PutCase(
        case.trace_id,
        case.request_id,
        case.state.value,
        CASE_JSON.dump_json(case).decode(),
        case.version,
        case.request_path,
        case.plan_path,
        bool(case.watched),
    )


def _what(note: NoteSeen) -> tuple[str, bool, str]:
    """Return by what a note is known again in another place: a plan by its text too, as there may be two with one trace_id."""
    return note.trace_id, note.is_plan, note.digest if note.is_plan else ""
