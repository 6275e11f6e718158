"""The one loop: scan, observe, decide, record, perform.

A ring of the bell or the timer starts a tick. A tick lists the watched folders, lets pure functions say what changed and
what follows, records each decision in one transaction, performs its commands, and starts the work that is due.
Workers run beside it in threads of their own and come back with values; only the loop decides.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path, PurePosixPath

from placet.aftermath import Looked, Open, look_at_branches
from placet.briefing import agents
from placet.clock import rfc3339
from placet.config import portal_path
from placet.core.activity import Action, Activity, Actor, Entity
from placet.core.budget import Limits, money_problem
from placet.core.case import (
    CASE_JSON,
    COMMAND_JSON,
    PLAN_STAMPS,
    WORKING,
    Case,
    Complexity,
    Decision,
    Drafted,
    Event,
    Gesture,
    Kind,
    MissionEnded,
    NoteSeen,
    PlanningFailed,
    Started,
    State,
)
from placet.core.decide import adopt_outcome, adopt_plan, decide, open_case, settle_branch
from placet.core.drift import KEY, IfChanged
from placet.core.lease import Owner
from placet.core.mission import Ended, Outcome
from placet.core.names import QUEUES, Folder, conflict_of, is_request_id, is_utf8, request_id, show, trace_id
from placet.core.note import Frontmatter, UnsafeEdit, read_note, stamp, without_keys
from placet.core.observe import CaseNotes, look_at, observe, sort_notes
from placet.core.plan import parse_plan
from placet.core.plan_comments import diff_callout
from placet.core.postmortem import median, of_last_mission
from placet.core.price import cost_usd
from placet.core.request import MAX_REQUEST_BYTES, Request, RequestProblems, read_request
from placet.core.settle import Looks, look
from placet.core.talk import Purpose, Usage
from placet.core.waiting import Hold, Why, told
from placet.dialogue import ATTEMPT, Interrupted, Postponed, Record, count_unseen
from placet.executor import Mission, broken, resumption
from placet.explain import MODEL, put, side_note, side_of, take_away
from placet.journal import (
    AcquireLease,
    AddActivity,
    Committed,
    DropSeen,
    Enqueue,
    Guard,
    LeaseHeld,
    LeaseLost,
    MarkDone,
    MarkFailed,
    PendingCommand,
    PutCase,
    PutSeen,
    PutText,
    Reader,
    ReleaseLease,
    RenewLease,
    Write,
)
from placet.perform import Desk, perform
from placet.planner import Assignment
from placet.report import Circumstances, outcome_of
from placet.sandbox import Level
from placet.tools import PLANNABLE
from placet.vault import AlreadyThere, Found, Gone, NotAFile, NotSettled, Problem, Stale, TooLarge, Vault, VaultTrouble
from placet.vault import Kind as FileKind
from placet.watch import Mode
from placet.workshop import Ports, facts_of

LEASE_TTL_S = 30.0
"""How long a lease lives without a heartbeat, and HEARTBEAT_S how often it gets one (measured as cheap: 9 µs each)."""
HEARTBEAT_S = 5.0
BRANCHES_EVERY_S = 60.0
"""How often the loop asks git what people did with branches: one process a repository while nothing has moved there."""
ARCHIVE_EVERY_S = 86_400.0
MAX_BACKOFF_S = 60.0
MAX_ROWS = 10_000
"""How many rows of a case a report is made from, the last ones."""
MAX_REPORT_CHARS = 40_000
"""How much of a Failure Report the next planning reads."""
READ_AGAIN_S = 5.0
SLICE_S = 1.0
"""How long a tick reads, takes up and performs at most, each: after it people, leases and SIGTERM get their turn."""
TAKE_UP_AT_ONCE = 100
"""New requests that share one durable commit."""
DONE_AT_ONCE_S = 0.05
"""How long commands that were performed wait for others, to be marked as done in one commit."""
CANCEL_S = 2.0
"""How long a worker that is told to leave everything gets to kill its command and hang up on its model."""


@dataclass(slots=True)
class Job:
    """A worker under way for one case."""

    trace_id: str
    generation: int
    planning: bool
    token: int | None
    cancel: threading.Event = field(default_factory=threading.Event)
    stop: str = ""
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class _Back:
    """What a worker came back with; None where it was interrupted and its work stays to be done."""

    job: Job
    event: Drafted | PlanningFailed | MissionEnded | None
    postponed: Postponed | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick says about the next: at most so many seconds away, and whether anything is left to do at all.

    `waiting` says what waits and for what; `settling` that a note is there, or gone, of which it is not certain yet.
    """

    again_in_s: float
    idle: bool
    waiting: tuple[str, ...] = ()
    settling: bool = False


@dataclass(slots=True)
class Loop:
    """The daemon's state between ticks. Everything in it can be built again from the vault and the journal.

    `ring` ends the bell's wait, `say` is for the daemon's own log, `tell` is told of a case that entered a new state and of a hold,
    `reload` gives the ports with the configuration as it is now; `draft` and `carry_out` are the workers, `start` sets a
    thread going in which one of them works.
    """

    ports: Ports
    vault: Vault
    owner: Owner
    ring: Callable[[], None]
    say: Callable[[str], None]
    tell: Callable[[Case | Hold], None]
    reload: Callable[[Ports], Ports]
    draft: Callable[[Ports, Assignment, Callable[[], bool]], Drafted | PlanningFailed]
    carry_out: Callable[[Ports, Mission, Callable[[], bool], Callable[[], str]], Ended]
    start: Callable[[threading.Thread], None] = threading.Thread.start
    looks: Looks = field(default_factory=Looks)
    notes: dict[str, NoteSeen] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    cases: dict[str, Case] = field(default_factory=dict)
    commands: list[PendingCommand] = field(default_factory=list)
    retry_at: dict[int, float] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    back: queue.SimpleQueue[_Back] = field(default_factory=queue.SimpleQueue)
    not_before: dict[str, tuple[float, Postponed]] = field(default_factory=dict)
    hold: Hold | None = None
    literal: dict[str, bool] = field(default_factory=dict)  # by digest: whether an approved plan needs no model
    gone: frozenset[str] = frozenset()
    unseen: set[Problem] = field(default_factory=set)
    to_read: set[str] = field(default_factory=set)
    read_again: dict[str, float] = field(default_factory=dict)  # what could not be read, and when it is tried again
    scan_cost_s: float = 0.0
    beaten_at: float = float("-inf")
    looked: queue.SimpleQueue[tuple[Looked, ...]] = field(default_factory=queue.SimpleQueue)
    refs: dict[Path, str] = field(default_factory=dict)
    looked_at: float = float("-inf")
    archived_at: float = float("-inf")
    looking: threading.Thread | None = None
    dirty: bool = True
    stopping: bool = False

    # --- life -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take up what the journal knows: cases, commands that were recorded and not performed, leases left behind."""
        with self.ports.journal.read() as reader:
            for row in reader.cases():
                self.cases[row.trace_id] = replace(CASE_JSON.validate_json(row.body), version=row.version)
            self.commands = list(reader.pending_commands())
            self.seen = {row.path: row.digest for row in reader.seen()}
            self._load_waits(reader)
            cut_off = [case for case in self.cases.values() if case.state in WORKING
                       and any(row.key.startswith(ATTEMPT) for row in reader.records(case.trace_id, case.generation))]
        for case in cut_off:
            count_unseen(Record.load(self.ports.journal, case, case.generation, self.ports.clock),
                         _PURPOSE.get(case.state, Purpose.EXECUTE))

    def _load_waits(self, reader: Reader) -> None:
        """Take up for what work waited: a server's wish holds over a restart; whether all is mended is tried at once."""
        now = self.ports.clock.monotonic()
        row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
        if row is not None and row.action_type == Action.MODEL_WAITING:
            self.hold = Hold(Why(row.details["why"]), row.details["reason"], now)
        for trace in (case.trace_id for case in self.cases.values() if case.state in WORKING):
            row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_CALLED, trace_id=trace)
            if row is not None and row.action_type == Action.MODEL_WAITING:
                left_s = (datetime.fromisoformat(row.details["until"]) - self.ports.clock.wall()).total_seconds()
                self.not_before[trace] = now + left_s, Postponed(row.details["reason"], left_s, Why(row.details["why"]))

    def tick(self, hinted: Iterable[str], mode: Mode) -> Tick:
        """Do everything that can be done now. `hinted` are paths that were just closed or moved into place."""
        clock = self.ports.clock
        # What is known to be due is done before looking, so that the look shows it.
        self._take_back()
        self._perform()
        began = clock.monotonic()
        scan = self.vault.scan(QUEUES)
        self.scan_cost_s = clock.monotonic() - began
        if not scan.present:
            return Tick(self.ports.config.daemon.scan_interval_s, idle=False, waiting=("the vault is not there",))
        self._reload()
        expected = {p for c in self.cases.values() if c.state in _EXPECTING for p in (c.request_path, c.plan_path) if p}
        verdict = look(self.looks, {p: f.fingerprint for p, f in scan.found.items()}, clock.monotonic(), hinted=tuple(hinted),
                       expected=expected, unlisted=[p.path for p in scan.problems])
        self.looks = verdict.looks
        unlisted = verdict.looks.seen.keys() - scan.found.keys()
        self._read(scan.found, verdict.fresh, verdict.settled, unlisted)
        for path in (self.notes.keys() | self.odd.keys()) - verdict.looks.seen.keys():
            if path in verdict.gone or path not in verdict.looks.missing:
                self.notes.pop(path, None)
                self.odd.pop(path, None)
                self.dirty = True
        # A file whose present text was not read yet may be the very note that is missing elsewhere, and so may one in a folder
        # that cannot be listed.
        unread = scan.found.keys() - (verdict.settled & (self.notes.keys() | self.odd.keys()))
        unseen = {p for p in scan.problems if p.path in QUEUES}
        for problem in unseen - self.unseen:
            self.say(f"{problem.path} cannot be listed: {problem.why}. Until it can, nothing counts as taken away.")
        self.unseen = unseen
        gone = verdict.gone if not unread and not unseen else frozenset()
        if gone - self.gone:
            self.dirty = True
        self.gone = gone
        if self.dirty:
            self.dirty = False
            # What is known of a file that is missing or not listed, or has changed and not settled yet, may be out of date.
            unsure = (frozenset(verdict.looks.missing) - verdict.gone) | (scan.found.keys() - verdict.settled) | unlisted
            self._decide(unsure, scan.side_notes, frozenset(unread))
            self._perform()
        self._heartbeat()
        self._look_at_branches()
        self._lift()
        self._archive()
        if not self.stopping and not self.ports.config.daemon.paused:
            self._start_work()
        return self._next(verdict.again_in_s, mode, began)

    def stop(self, grace_s: float) -> None:
        """End cleanly: let the rounds in flight end for `grace_s` seconds, then leave what is left of them to be resumed."""
        self.stopping = True
        self.ports.leaving.set()
        self._join(grace_s)
        for job in self.jobs.values():
            job.cancel.set()
        self._join(CANCEL_S)
        self._take_back()
        self._perform()

    def _join(self, patience_s: float) -> None:
        until = self.ports.clock.monotonic() + patience_s
        for job in list(self.jobs.values()):
            if job.thread is not None:
                job.thread.join(max(0.0, until - self.ports.clock.monotonic()))

    # --- gathering ------------------------------------------------------------------------------------------

    def _read(self, found: Mapping[str, Found], fresh: frozenset[str], settled: frozenset[str], unlisted: Set[str]) -> None:
        """Read the notes that are new or changed, people's decisions before requests, for as long as a slice of the tick."""
        now = self.ports.clock.monotonic()
        due = {path for path, at in self.read_again.items() if at <= now}
        for path in due | fresh:
            self.notes.pop(path, None)
            self.odd.pop(path, None)
            self.read_again.pop(path, None)
        self.to_read = (self.to_read | fresh | due) & (settled | unlisted)
        until = now + SLICE_S
        for path in sorted(self.to_read & settled, key=lambda path: (path.startswith(f"{Folder.REQUESTS}/"), path)):
            self.dirty = True
            self.to_read.discard(path)
            self._read_one(path, found[path])
            if self.ports.clock.monotonic() > until:
                break

    def _read_one(self, path: str, thing: Found) -> None:
        if thing.kind is not FileKind.FILE:
            self.odd[path] = _ODD[thing.kind]
            return
        if (original := conflict_of(PurePosixPath(path).name)) is not None:
            self.odd[path] = (f"This is a conflict copy of `{original}`, made by a sync tool. It is no request and approves "
                              "nothing. Compare the two, put what you want to keep into one, and delete the other.")
            return
        try:
            raw, _ = self.vault.read(path)
            self.notes[path] = look_at(path, raw, self.vault.owner(path))
        except (Gone, NotSettled):
            pass  # the next look sees what became of it
        except TooLarge:
            self.odd[path] = f"This file is too large for a note. A request may have {MAX_REQUEST_BYTES:,} bytes."
        except NotAFile as error:
            self.odd[path] = f"This file cannot be read: {error}"
        except VaultTrouble as error:
            self.odd[path] = f"This file cannot be read: {error}"
            self.read_again[path] = self.ports.clock.monotonic() + READ_AGAIN_S

    def _difference(self, copy: str) -> str:
        """Return how a conflict copy differs from its original as it is now; empty where one of them cannot be read."""
        place = PurePosixPath(copy)
        original = self.notes.get(f"{place.parent}/{conflict_of(place.name)}")
        if original is None:
            return ""
        try:
            old, new = (raw.decode(errors="replace") for raw in (original.raw, self.vault.read(copy)[0]))
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return ""
        return "\n" + diff_callout(old, new) if old != new else "\nBoth have the same text."

    # --- deciding -------------------------------------------------------------------------------------------

    def _decide(self, unsure: frozenset[str], side_notes: Mapping[str, Found], unread: frozenset[str]) -> None:
        # A note that is missing may be on its way: if it is seen elsewhere, that place counts; if not, its case waits until
        # it is certain where the note is and what it says.
        present = {(n.trace_id, n.is_plan) for p, n in self.notes.items() if p not in unsure}
        astray = {n.trace_id for p in unsure if (n := self.notes.get(p)) is not None and (n.trace_id, n.is_plan) not in present}
        written = {c.trace_id for c in self.cases.values() if not unread.isdisjoint((c.request_path, c.plan_path))}
        busy = {c.trace_id for c in self.commands} | astray | written
        found = sort_notes(self.cases, [n for p, n in sorted(self.notes.items()) if p not in unsure])
        notices = {n.path: why for n, why in found.notices}
        for trace, its in found.of_case.items():
            case = self.cases[trace]
            if trace not in busy and (gesture := self._observe(case, its)) is not None:
                self._apply(case, gesture)
            elif trace not in busy:
                self._acknowledge_places(case, its)
        for trace, case in list(self.cases.items()):
            if case.state in _EXPECTING and trace not in busy and trace not in found.of_case \
                    and (gesture := self._observe(case, CaseNotes())) is not None:
                self._apply(case, gesture)
        taken = {case.request_id for case in self.cases.values()}
        unjudged = unread | unsure
        if unread:  # the request of a plan may be among them
            unjudged |= {note.path for note in found.orphans}
        else:
            notices |= self._adopt(found.orphans, taken)
        problems, later = self._take_up([n for n in found.new if n.path not in unread and n.trace_id not in self.cases], taken)
        notices |= problems
        for path, why in self.odd.items():
            notices[path] = why + self._difference(path)
        self._add_notices_of_cases(notices)
        self._explain(notices, side_notes, unjudged | later)

    def _add_notices_of_cases(self, notices: dict[str, str]) -> None:
        """Add what is to be said beside notes that can be used: a planning that failed, an edit in vain, what work waits for."""
        for case in self.cases.values():
            if case.state is State.FAILED and not case.report_path and case.request_path in self.notes:
                notices.setdefault(case.request_path, f"There is no plan: {case.failure}\nSet `status: pending` in the request to "
                                                      "try again.")
            if case.state is State.RUNNING and case.reported_edit and (plan := self.notes.get(case.plan_path)) is not None \
                    and plan.digest == case.reported_edit:
                approved = self._text(case.approved_digest).decode(errors="replace")
                notices.setdefault(plan.path, EDITED_IN_RUN + diff_callout(approved, without_keys(plan.raw, PLAN_STAMPS).decode(
                    errors="replace")))
        for trace, (_, postponed) in self.not_before.items():
            if (path := self.cases[trace].request_path) and path in self.notes:
                notices.setdefault(path, told(postponed.why, postponed.reason, postponed.after_s))
        if self.hold is not None:
            notices[MODEL] = self.hold.notice

    def _observe(self, case: Case, its: CaseNotes) -> Gesture | None:
        """Return what a person did to a case's notes, once it is certain: an absence has to outlive the settling time."""
        gesture = observe(case, its, PLANNABLE)
        if gesture is None:
            return None
        if gesture.kind is Kind.PLAN_APPROVED:
            why = self._unpayable(gesture)
            if why:
                return replace(gesture, kind=Kind.APPROVAL_REFUSED, why=why)
            assert gesture.note is not None
            # No plan of the daemon's where a person put one together for a case that had none: then every line is theirs.
            known = case.plan_digest if gesture.note.digest != case.plan_digest else ""
            return replace(gesture, level=int(self.ports.sandbox), written_text=self._body_if_known(known))
        if gesture.kind is Kind.ACTIVE_EDITED:
            return replace(gesture, approved_text=read_note(self._text(case.approved_digest)).body)
        if gesture.note is None:
            path = case.request_path if gesture.kind is Kind.REQUEST_GONE else case.plan_path
            other = self.notes.get(path)
            if path not in self.gone and not (other is not None and other.trace_id not in ("", case.trace_id)):
                return None
        return gesture

    def _body_if_known(self, name: str) -> str:
        """Return the body of a plan that the daemon wrote; empty where the journal is older than the keeping of these texts."""
        with self.ports.journal.read() as reader:
            text = reader.text(name) if name else None
        return "" if text is None else read_note(text).body

    def _unpayable(self, gesture: Gesture) -> str:
        """Say why a plan's money limit cannot be kept to, empty if it can: an unknown price is not guessed."""
        assert gesture.note is not None
        model = self.ports.config.model
        limits = Limits(usd=parse_plan(read_note(gesture.note.raw).body, PLANNABLE).scope.budget_usd)
        known = cost_usd(Usage(), model.name, self.ports.prices, free=model.provider == "scripted") is not None
        return money_problem(limits, model.name, price_known=known) or ""

    def _adopt(self, orphans: Sequence[NoteSeen], taken: set[str]) -> dict[str, str]:
        """Take up plans whose cases the journal does not know; return what is wrong with those that cannot be.

        `taken` are the request ids that are in use; the new ones are added.
        """
        problems: dict[str, str] = {}
        asked = {n.trace_id: n for n in self.notes.values() if not n.is_plan and not n.problem and n.folder is Folder.REQUESTS} \
            if orphans else {}
        for note in orphans:
            named = str(note.meta.get("request_id") or "")
            if note.trace_id in self.cases:
                continue  # the second of two with one trace_id, the first was adopted just now: the next look sees two plans
            if is_request_id(named) and named not in taken:
                taken.add(named)
                self._record(adopt_plan(note, asked.get(note.trace_id), self.ports.clock.now()))
            else:
                problems[note.path] = ("The journal does not know this plan, and its request_id is taken by another, missing, or "
                                       "not one that placet would give.")
        return problems

    def reconcile(self, outcomes: Iterable[Outcome], problems: Sequence[str]) -> None:
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
        row = Activity(self.ports.clock.now(), "", Actor.SYSTEM, Action.JOURNAL_RECONCILED, Entity.DAEMON, "placet", "",
                       {"adopted": adopted, "begun": begun, "problems": list(problems)})
        self.ports.journal.commit([AddActivity(row)])
        left = f" {len(begun)} branches have commits of missions without a report." if begun else ""
        self.say(f"The journal is older than the vault: it was lost, or put back from a backup. {len(adopted)} missions were taken "
                 f"up again from their reports.{left} Plans that the journal does not know await review where they lie.")
        for problem in problems:
            self.say(problem)

    def _take_up(self, new: Sequence[NoteSeen], taken: set[str]) -> tuple[dict[str, str], frozenset[str]]:
        """Open cases for new requests, as many as a slice of the tick lets.

        `taken` are the request ids that are in use; the new ones are added. Return the problems of those that have some, and the
        paths of those that have to wait for the next tick.
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
            taken.add(named)
            opened[trace] = open_case(note, request, trace, named, self.ports.clock.now())
            if len(opened) == TAKE_UP_AT_ONCE:
                self._record(*opened.values())
                opened.clear()
                if self.ports.clock.monotonic() > until:
                    later = frozenset(note.path for note in new[number:])
                    break  # recording made the loop dirty: the next tick goes on
        self._record(*opened.values())
        return problems, later

    def _request_of(self, note: NoteSeen) -> Request | str:
        """Return the request that a note is, or what is wrong with it."""
        config = self.ports.config
        try:
            request = read_request(note.path, read_note(note.raw), agents(self.ports.vault), config.portals,
                                   config.vault.default_agent)
            stamp(note.raw, {"status": "planning", "trace_id": "0" * 8}, kind_if_none=Frontmatter(config.vault.frontmatter))
        except RequestProblems as found:
            return "\n".join(found.problems)
        except UnsafeEdit as error:
            return str(error)
        return request

    def _acknowledge_places(self, case: Case, notes: CaseNotes) -> None:
        """Remember where a case's notes lie now: renaming one means nothing, but commands need its place."""
        request_path = notes.request.path if notes.request is not None and is_utf8(notes.request.path) else case.request_path
        plan_path = notes.plans[0].path if len(notes.plans) == 1 and is_utf8(notes.plans[0].path) else case.plan_path
        if (request_path, plan_path) != (case.request_path, case.plan_path) and case.request_path:
            self._record(Decision(replace(case, request_path=request_path, plan_path=plan_path), ()))

    def _apply(self, case: Case, event: Event, *writes: Write) -> Committed | None:
        """Decide an event and record what follows; None where nothing does."""
        decision = decide(case, event, self.ports.clock.now())
        if decision is None:
            return None
        job = self.jobs.get(case.trace_id)
        committed = self._record(decision, writes=writes)
        if job is not None:
            if decision.case.generation != job.generation:
                job.cancel.set()
            elif decision.case.stop:
                job.stop = decision.case.stop
                job.cancel.set()
        return committed

    def _record(self, *decisions: Decision, writes: Iterable[Write] = ()) -> Committed:
        """Write decisions down in one transaction; only then do they exist."""
        batch = list(writes)
        commands = [(decision.case.trace_id, COMMAND_JSON.dump_json(command).decode())
                    for decision in decisions for command in decision.commands]
        for decision in decisions:
            case = decision.case
            batch += [
                *(PutText(sha256(raw).hexdigest(), raw) for raw in decision.texts),
                PutCase(case.trace_id, case.request_id, case.state.value, CASE_JSON.dump_json(case).decode(), case.version),
                *(AddActivity(row) for row in decision.rows),
            ]
        batch += [Enqueue(trace, command) for trace, command in commands]
        committed = self.ports.journal.commit(batch, durable=bool(commands))
        self.commands += [PendingCommand(number, trace, command, 0, "", "")
                          for number, (trace, command) in zip(committed.outbox, commands, strict=True)]
        for decision in decisions:
            case = decision.case
            before = self.cases.get(case.trace_id)
            self.cases[case.trace_id] = replace(case, version=case.version + 1)
            self.not_before.pop(case.trace_id, None)
            self.dirty = True
            if before is not None and before.state is not case.state:
                self.tell(self.cases[case.trace_id])
        return committed

    # --- explaining -----------------------------------------------------------------------------------------

    def _explain(self, notices: Mapping[str, str], side_notes: Mapping[str, Found], unsure: frozenset[str]) -> None:
        """Make the notes beside people's notes say what is to be said now, and take away those that are answered.

        What was said of the notes `unsure`, which cannot be judged yet, stays as it is. Changes as many as a slice of the tick
        lets.
        """
        until = self.ports.clock.monotonic() + SLICE_S
        wanted = {side_of(path): (path, why) for path, why in notices.items()}
        known = {path for case in self.cases.values() for path in (case.request_path, case.plan_path)}
        for side in sorted(side_notes.keys() - wanted.keys() - {side_of(path) for path in unsure}):
            try:
                take_away(self.vault, side)
            except Stale:
                self.dirty = True  # somebody is at it: the next look decides again
            except (NotAFile, TooLarge, VaultTrouble) as error:
                self.say(f"cannot take {side} away: {error}")
            if self.ports.clock.monotonic() > until:
                self.dirty = True
                return
        for side, (path, why) in wanted.items():
            text = side_note(path, why)
            try:
                changed = put(self.vault, side, text)
            except (Stale, AlreadyThere):
                self.dirty = True  # somebody is at it: the next look decides again
                continue
            except (NotAFile, TooLarge, VaultTrouble) as error:
                self.say(f"cannot write {side}: {error}")
                continue
            mark = sha256(text).hexdigest()
            if path != MODEL and self.seen.get(show(path)) != mark:
                self._journal_notice(path, why, mark, known=path in known)
            if changed and self.ports.clock.monotonic() > until:
                self.dirty = True
                return
        answered = self.seen.keys() - {show(path) for path in notices.keys() | unsure}
        if answered:
            self.ports.journal.commit([DropSeen(path) for path in sorted(answered)])
            self.seen = {path: mark for path, mark in self.seen.items() if path not in answered}

    def _journal_notice(self, path: str, why: str, mark: str, *, known: bool) -> None:
        action = Action.NOTE_EXPLAINED if known or not path.startswith(f"{Folder.REQUESTS}/") else Action.REQUEST_INVALID
        note = self.notes.get(path)
        row = Activity(self.ports.clock.now(), note.trace_id if note is not None else "", Actor.SYSTEM, action, Entity.REQUEST,
                       request_id(PurePosixPath(path).name, ()), "", {"path": show(path), "reason": why[:2000]})
        self.ports.journal.commit([AddActivity(row), PutSeen(show(path), mark, action.value, why[:2000])])
        self.seen[show(path)] = mark

    # --- performing -----------------------------------------------------------------------------------------

    def _perform(self) -> None:
        """Perform the commands that are due, in order, for as long as a slice of the tick.

        One that fails holds back the later ones of its case.
        """
        clock = self.ports.clock
        now = clock.monotonic()
        desk = Desk(self.vault, self._text, Frontmatter(self.ports.config.vault.frontmatter))
        held: set[str] = set()
        left: list[PendingCommand] = []
        done: list[Write] = []
        marked_at = now
        # What follows from people's decisions goes before the stamps of a thousand new requests.
        in_order = sorted(self.commands, key=lambda pending: self.cases[pending.trace_id].state is State.PLANNING)
        for number, pending in enumerate(in_order):
            if clock.monotonic() > now + SLICE_S:
                left += in_order[number:]
                break
            if pending.trace_id in held or self.retry_at.get(pending.id, now) > now:
                held.add(pending.trace_id)
                left.append(pending)
                continue
            try:
                perform(COMMAND_JSON.validate_json(pending.command), self.cases[pending.trace_id], desk)
            except (VaultTrouble, Stale, AlreadyThere, NotAFile, TooLarge) as error:
                held.add(pending.trace_id)
                left.append(self._put_off(pending, error))
                continue
            done.append(MarkDone(pending.id))
            self.retry_at.pop(pending.id, None)
            self.dirty = True
            if clock.monotonic() > marked_at + DONE_AT_ONCE_S:
                self.ports.journal.commit(done)
                done, marked_at = [], clock.monotonic()
        if done:
            self.ports.journal.commit(done)
        self.commands = left

    def _put_off(self, pending: PendingCommand, error: Exception) -> PendingCommand:
        wait_s = min(MAX_BACKOFF_S, 0.5 * 2 ** min(pending.attempts, 10))
        self.retry_at[pending.id] = self.ports.clock.monotonic() + wait_s
        text = str(error)
        if text != pending.error:
            self.say(text)
        self.ports.journal.commit([MarkFailed(pending.id, text)])
        return replace(pending, attempts=pending.attempts + 1, error=text)

    def _text(self, name: str) -> bytes:
        with self.ports.journal.read() as reader:
            text = reader.text(name)
        assert text is not None, f"text {name} was stored with the decision that names it"
        return text

    # --- work -----------------------------------------------------------------------------------------------

    def _start_work(self) -> None:
        """Start what is due, within the limits: the highest priority first, then the oldest."""
        now = self.ports.clock.monotonic()
        busy = {c.trace_id for c in self.commands}
        limits = self.ports.config.daemon
        free = {True: limits.plans_at_once, False: limits.missions_at_once}
        for job in self.jobs.values():
            free[job.planning] -= 1
        due = [c for c in self.cases.values()
               if c.state in WORKING and c.trace_id not in self.jobs and c.trace_id not in busy
               and self.not_before.get(c.trace_id, (now, None))[0] <= now]
        if self.hold is not None:
            due = self._not_held(due, now)
        for case in sorted(due, key=_before_others):
            planning = case.state in _DRAFTING
            if free[planning] <= 0:
                continue
            free[planning] -= 1
            self._start_planning(case) if planning else self._start_mission(case)

    def _not_held(self, due: Sequence[Case], now: float) -> list[Case]:
        """Return what of `due` a hold does not keep: plans that no model carries out, and the piece that tries for all."""
        assert self.hold is not None
        for case in due:
            if case.state not in _DRAFTING and case.approved_digest not in self.literal:
                plan = parse_plan(read_note(self._text(case.approved_digest)).body, PLANNABLE)
                self.literal[case.approved_digest] = all(step.actions for step in plan.steps)
        free = [case for case in due if case.state not in _DRAFTING and self.literal[case.approved_digest]]
        asking = [case for case in due if case not in free]
        if not asking or self.hold.probe is not None or now < self.hold.until_s:
            return free
        probe = min(asking, key=_before_others)
        with self.ports.journal.read() as reader:
            self.hold = replace(self.hold, probe=(probe.trace_id, reader.last_id()))
        return [*free, probe]

    def _start_planning(self, case: Case) -> None:
        request = read_note(self._text(case.request_digest)).body
        current = read_note(self._text(case.basis_digest)).body if case.basis_digest else None
        job = Job(case.trace_id, case.generation, planning=True, token=None)
        assignment = Assignment(case, request, PurePosixPath(case.request_path).stem, current, self._what_failed(case))
        self._run(job, lambda: self.draft(self.ports, assignment, job.cancel.is_set))

    def _what_failed(self, case: Case) -> str:
        """Return what the next plan is told of a failure: the report as it stands in the vault, with what people wrote into it."""
        if not case.failure or not case.report_path:
            return case.failure
        try:
            return read_note(self.vault.read(case.report_path)[0]).body[:MAX_REPORT_CHARS]
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return case.failure

    def _start_mission(self, case: Case) -> None:
        raw = self._text(case.approved_digest)
        note = read_note(raw)
        with self.ports.journal.read() as reader:
            lease = reader.lease(case.trace_id)
        # The vault's lock proves that no other daemon lives here, so a lease of this machine that is still held is a dead one's.
        gone = lease.token if lease is not None and lease.held and lease.owner.host == self.owner.host else None
        acquire = AcquireLease(case.trace_id, self.owner, LEASE_TTL_S, gone)
        plan = parse_plan(note.body, PLANNABLE)
        facts = {"digest": case.approved_digest, "sandbox": self.ports.sandbox.title, "revision": case.revision,
                 "steps": len(plan.steps)}
        if case.state is State.APPROVED and plan.scope.run and int(self.ports.sandbox) < case.approved_level:
            self._ask_again(case)
            return
        try:
            if case.state is State.APPROVED:
                committed = self._apply(case, Started(case.generation, facts), acquire)
                assert committed is not None, "an approved case can always be started"
            else:
                record = Record.load(self.ports.journal, case, case.generation, self.ports.clock)
                rows = [self._row(case, Action.EXECUTION_RESUMED, **facts, **resumption(record))]
                committed = self.ports.journal.commit([acquire, *(AddActivity(row) for row in rows)], durable=True)
        except LeaseHeld as held:
            # The journal came from another machine, or this one had another name: the lease runs out unless its holder lives.
            self._wait(case, Postponed(str(held), HEARTBEAT_S, Why.LEASE))
            return
        case = self.cases[case.trace_id]
        token = committed.token
        self.ports.journal.commit([AddActivity(self._row(case, Action.LEASE_ACQUIRED, token=token, owner=str(self.owner)))])
        mission = Mission(case, plan,
                          Complexity(str(note.meta.get("complexity") or Complexity.STANDARD)), token,
                          str(note.meta.get("base_commit") or ""), IfChanged(note.meta.get(KEY, IfChanged.ASK)))
        job = Job(case.trace_id, case.generation, planning=False, token=token, stop=case.stop)
        if case.stop:
            job.cancel.set()
        self._run(job, lambda: self._mission(mission, job))

    def _ask_again(self, case: Case) -> None:
        """Send a plan back to review whose commands would run behind a weaker wall than the person knew of."""
        note = self.notes.get(case.plan_path)
        if note is None:
            return  # it is on its way: the next look says where
        now, then = self.ports.sandbox, Level(case.approved_level)
        why = f"It was approved when commands ran in: {then.title}. Now they would run in: {now.title}, which is weaker."
        self._apply(case, Gesture(Kind.WALL_WEAKENED, note, why))

    def _mission(self, mission: Mission, job: Job) -> MissionEnded:
        """Carry a mission out and write its report (in the worker's thread)."""
        ports = self.ports
        try:
            ended = self.carry_out(ports, mission, job.cancel.is_set, lambda: job.stop)
        except (Interrupted, Postponed, LeaseLost):
            raise
        except Exception as error:
            ended = broken(ports, mission, error)
        return self._report(mission, ended)

    def _report(self, mission: Mission, ended: Ended) -> MissionEnded:
        ports = self.ports
        moment = ports.clock.wall()
        with ports.journal.read() as reader:
            rows = of_last_mission(reader.activity(mission.case.trace_id, limit=MAX_ROWS, newest=True))
            costs = reader.costs(mission.complexity.value)
        return outcome_of(ended, Circumstances(
            mission.case, mission.plan, mission.complexity, ports.config.model.name, ports.config.model.provider,
            ports.sandbox.title, moment,
            rfc3339(moment), Frontmatter(ports.config.vault.frontmatter), rows, median(costs)))

    def _run(self, job: Job, work: Callable[[], Drafted | PlanningFailed | MissionEnded]) -> None:
        def run() -> None:
            try:
                back = _Back(job, work())
            except Interrupted:
                back = _Back(job, None)
            except Postponed as postponed:
                back = _Back(job, None, postponed)
            except Exception as error:
                back = _Back(job, PlanningFailed(job.generation, f"placet made a mistake: {error!r}", "InternalError")
                             if job.planning else None,
                             None if job.planning else Postponed(f"placet made a mistake: {error!r}", 60, Why.MISTAKE))
            self.back.put(back)
            self.ring()

        thread = threading.Thread(target=run, name=f"{'plan' if job.planning else 'mission'}-{job.trace_id[:8]}", daemon=True)
        self.jobs[job.trace_id] = job
        try:
            self.start(thread)
        except RuntimeError as error:  # so Python says that the system has no thread left to give
            self.back.put(_Back(job, None, Postponed(str(error), HEARTBEAT_S, Why.MACHINE)))
            self.ring()
        else:
            job.thread = thread

    def _take_back(self) -> None:
        """Take in what workers came back with."""
        while True:
            try:
                back = self.back.get_nowait()
            except queue.Empty:
                return
            del self.jobs[back.job.trace_id]
            self.dirty = True
            case = self.cases[back.job.trace_id]
            if case.generation != back.job.generation:
                self._release(back.job)
            elif back.postponed is not None:
                self._wait(case, back.postponed)
                self._release(back.job)
            elif back.event is None:
                self._release(back.job)
            else:
                self._finish(case, back.event, back.job.token)

    def _wait(self, case: Case, postponed: Postponed) -> None:
        """Let one piece of work wait, or all of it: then people are told once, however many pieces come to the same."""
        clock = self.ports.clock
        until = clock.monotonic() + postponed.after_s
        facts = {"why": postponed.why.value, "reason": postponed.reason,
                 "until": rfc3339(clock.wall() + timedelta(seconds=postponed.after_s))}
        if not postponed.why.holds_all:
            self.not_before[case.trace_id] = until, postponed
            self.say(f"{case.request_id}: {told(postponed.why, postponed.reason, postponed.after_s)}")
            if postponed.why is Why.ASKED_TO_WAIT:
                self.ports.journal.commit([AddActivity(self._row(case, Action.MODEL_WAITING, **facts))])
            return
        known = self.hold is not None and self.hold.why is postponed.why
        self.hold = Hold(postponed.why, postponed.reason, until)
        if not known:
            self._journal_hold(Action.MODEL_WAITING, **facts)
            self.say(f"All work waits for the model: {self.hold.notice}")
            self.tell(self.hold)

    def _lift(self) -> None:
        """Let all work go on once the piece that was let through was answered, or nobody waits any more."""
        if self.hold is None:
            return
        if self.hold.probe is not None:
            trace, newest = self.hold.probe
            with self.ports.journal.read() as reader:
                answered = reader.answered_since(newest)
            if not answered:
                if trace not in self.jobs:  # it ended without being answered: another one tries
                    self.hold = replace(self.hold, probe=None)
                return
        elif any(case.state in WORKING for case in self.cases.values()):
            return
        self.hold = None
        self.dirty = True
        self._journal_hold(Action.MODEL_RESUMED)
        self.say("Work with the model goes on.")

    def _journal_hold(self, action: Action, **metadata: object) -> None:
        self.ports.journal.commit([AddActivity(Activity(self.ports.clock.now(), "", Actor.SYSTEM, action, Entity.DAEMON, "placet",
                                                        "", metadata))])

    def _reload(self) -> None:
        """Take a changed configuration up; it may have mended what work waits for."""
        before = self.ports.config
        self.ports = self.reload(self.ports)
        now = self.ports.config
        if self.hold is not None and (now.model, now.limits) != (before.model, before.limits):
            self.hold = replace(self.hold, until_s=self.ports.clock.monotonic())

    def _finish(self, case: Case, event: Drafted | PlanningFailed | MissionEnded, token: int | None) -> None:
        if token is None:
            self._apply(case, event)
            return
        row = self._row(case, Action.LEASE_RELEASED, token=token)
        note = self.notes.get(case.plan_path)
        here = note is not None and note.folder is Folder.ACTIVE and not note.problem and not case.stop
        drift = event.drift if isinstance(event, MissionEnded) and here else None
        what = event if drift is None else Gesture(Kind.FILES_CHANGED, note, drift=drift)
        try:
            self._apply(case, what, Guard(case.trace_id, token), ReleaseLease(case.trace_id, token), AddActivity(row))
        except LeaseLost:
            self.say(f"{case.request_id}: another daemon has taken this mission over; what was done here counts for nothing")

    def _release(self, job: Job) -> None:
        if job.token is None:
            return
        case = self.cases[job.trace_id]
        try:
            self.ports.journal.commit([ReleaseLease(job.trace_id, job.token),
                                       AddActivity(self._row(case, Action.LEASE_RELEASED, token=job.token))])
        except LeaseLost:
            self.say(f"{case.request_id}: another daemon has taken this mission over")

    # --- what people did with branches ----------------------------------------------------------------------

    def _look_at_branches(self) -> None:
        """Ask git, in a thread of its own and from time to time, what became of branches; decide what it found."""
        while not self.looked.empty():
            for found in self.looked.get():
                self._settle_branches(found)
            self.looking = None
        now = self.ports.clock.monotonic()
        if self.stopping or self.looking is not None or now - self.looked_at < BRANCHES_EVERY_S:
            return
        self.looked_at = now
        config = self.ports.config
        ask: dict[Path, list[Open]] = {}
        for case in self.cases.values():
            is_open = case.state is State.COMPLETED and case.tip and not case.became
            if is_open and (not case.portal or case.portal in config.portals):
                ask.setdefault(portal_path(self.ports.vault, config, case.portal), []).append(
                    Open(case.trace_id, case.generation, case.branch, case.base, case.tip))
        if not ask:
            return
        known = {path: self.refs.get(path, "") for path in ask}

        def look() -> None:
            try:
                self.looked.put(tuple(look_at_branches(path, opens, known[path]) for path, opens in ask.items()))
            except Exception as error:
                self.looked.put(())
                self.say(f"placet made a mistake while it looked at branches: {error!r}")
            self.ring()

        thread = threading.Thread(target=look, name="branches", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # as for a worker; the next time is soon enough
            self.say(f"what became of branches cannot be looked at: {error}")
        else:
            self.looking = thread

    def _settle_branches(self, found: Looked) -> None:
        if found.problem and found.problem != self.refs.get(found.path):
            self.say(f"what became of branches cannot be seen: {found.problem}")
        if found.calls:
            now, place = self.ports.clock.now(), str(found.path)
            self.ports.journal.commit([AddActivity(Activity(now, "", Actor.SYSTEM, Action.GIT_RAN, Entity.REPOSITORY, place,
                                                            metadata=facts_of(call))) for call in found.calls])
        for fate in found.fates:
            case = self.cases[fate.trace_id]
            by, reason = ("", "") if fate.commit_sha else self._why_dropped(case)
            decision = settle_branch(case, fate.generation, fate.commit_sha, fate.how, reason, by or found.owner,
                                     self.ports.clock.now())
            if decision is not None:
                self._record(decision)
        self.refs[found.path] = found.refs or found.problem  # a problem is said once, and never equal to references

    def _why_dropped(self, case: Case) -> tuple[str, str]:
        """Return who dropped a branch and why, as its report says (`dropped_by`, `dropped_reason`); empty where it does not."""
        try:
            meta = read_note(self.vault.read(case.report_path)[0]).meta
        except (Stale, NotAFile, TooLarge, VaultTrouble):
            return "", ""
        return str(meta.get("dropped_by") or ""), str(meta.get("dropped_reason") or "")

    def _heartbeat(self) -> None:
        now = self.ports.clock.monotonic()
        if now - self.beaten_at < HEARTBEAT_S:
            return
        self.beaten_at = now
        for job in self.jobs.values():
            if job.token is None:
                continue
            try:
                self.ports.journal.commit([RenewLease(job.trace_id, job.token, LEASE_TTL_S)])
            except LeaseLost:
                job.cancel.set()

    def _archive(self) -> None:
        """Once a day, move old events out of the journal if the configuration says after how long."""
        days, now = self.ports.config.journal.archive_after_days, self.ports.clock.monotonic()
        if not days or now - self.archived_at < ARCHIVE_EVERY_S:
            return
        self.archived_at = now
        before = rfc3339(self.ports.clock.wall() - timedelta(days=days))
        is_open = {c.trace_id for c in self.cases.values() if c.state in _EXPECTING or (c.tip and not c.became)}
        path = self.ports.journal.archive(before, keep=is_open)
        if path is not None:
            self.say(f"Events before {before[:10]} were moved to {path}.")
            self.ports.journal.commit([AddActivity(Activity(self.ports.clock.now(), "", Actor.SYSTEM, Action.JOURNAL_ARCHIVED,
                                                            Entity.DAEMON, "placet", "", {"path": path.name, "before": before}))])

    def _row(self, case: Case, action: Action, **metadata: object) -> Activity:
        return Activity(self.ports.clock.now(), case.trace_id, Actor.SYSTEM, action, Entity.MISSION, case.request_id, case.agent,
                        metadata)

    # --- what comes next ------------------------------------------------------------------------------------

    def _next(self, settle_in_s: float | None, mode: Mode, began_s: float) -> Tick:
        now = self.ports.clock.monotonic()
        interval_s = self.ports.config.daemon.scan_interval_s
        waits = [max(interval_s, self.scan_cost_s * SCAN_SHARE) if mode is Mode.EVENTS else interval_s]
        if settle_in_s is not None:
            waits.append(settle_in_s)
        firsts = {c.trace_id: c.id for c in reversed(self.commands)}  # the others of a case wait for its first
        waits += [self.retry_at.get(first, now) - now for first in firsts.values()]
        # What was due when the tick began and did not start waits for something else than the time.
        waits += [until - now for until, _ in self.not_before.values() if until > began_s]
        held = self.hold is not None and self.hold.probe is None and now < self.hold.until_s
        if self.hold is not None and held:
            waits.append(self.hold.until_s - now)
        if self.dirty:
            waits.append(0.0)
        if self.jobs:
            waits.append(HEARTBEAT_S)
        paused = self.ports.config.daemon.paused
        at_rest = settle_in_s is None and not self.jobs and not self.commands and self.looking is None
        idle = not self.dirty and at_rest and (paused or not any(
            c.state in WORKING and c.trace_id not in self.not_before for c in self.cases.values()))
        waiting = [f"all work waits for the model: {self.hold.notice}"] if self.hold is not None and held else []
        waiting += [f"{self.cases[t].request_id}: {told(p.why, p.reason, p.after_s)}" for t, (_, p) in self.not_before.items()]
        waiting += [c.error for c in self.commands if c.error]
        return Tick(max(0.0, min(waits)), idle, tuple(waiting), settling=settle_in_s is not None)


SCAN_SHARE = 1000
"""Where events arrive, listing very full folders takes at most a thousandth of the time: events can be lost, not often."""

_PURPOSE = {State.PLANNING: Purpose.PLAN, State.REVISING: Purpose.REVISE}
_DRAFTING = frozenset(_PURPOSE)
_EXPECTING = frozenset({State.PLANNING, State.REVIEW, State.REVISING, State.APPROVED, State.RUNNING})
EDITED_IN_RUN = ("This text was changed while its mission runs. The mission goes on with the text that was approved; the change "
                 "has no effect. To stop the mission, move this note to Inbox/Plans.\n")
_ODD = {
    FileKind.SYMLINK: "This is a symbolic link. Links are not followed: put the note itself here.",
    FileKind.DIRECTORY: "This is a folder whose name ends in `.md`. Rename it, or put the note itself here.",
    FileKind.OTHER: "This is neither a file nor a folder that can be read, so it is no note.",
}


def _before_others(case: Case) -> tuple[int, str, str]:
    return -case.priority, case.since, case.request_id
