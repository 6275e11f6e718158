"""Play a vault, a daemon and its people in one process, from a seed.

Loop, Vault and Journal are real, on real folders. The clock is simulated, and fake workers answer at
random. A kill is an exception before or after any write: memory is dropped, and a new daemon opens
the same folders. People act between any two writes of the daemon. A model records what they did, and
the daemon's behaviour is compared with it.
"""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path

from placet.activity import Action, Activity, Actor
from placet.agent.planner import Assignment
from placet.agent.ports import Ports
from placet.agent.record import CALL, Begun, Key, Postponed, Record
from placet.agent.tool_calls import AsksPerson, answered_before
from placet.agent.work import Mission
from placet.case.case import CASE_JSON, Case, NoteSeen
from placet.case.commands import COMMAND_JSON, Edit
from placet.case.events import Asked, Drafted, PlanningFailed
from placet.case.intents import CLAIMS, EDITS, Intent, What
from placet.case.lease import Owner
from placet.case.life_cycle import OPEN, STATUSES, WORKING, State
from placet.case.mission_result import MissionResult, Spent
from placet.case.notes import APPROVE, ASKS, DRAFT, REJECT, decision_of, inspect_note
from placet.case.observe import RESTS_IN
from placet.case.question import ANSWERS_KEPT
from placet.case.question_note import answer_in, is_approved, is_question_note, shown_digest
from placet.case.request import RequestProblems, read_request
from placet.chat.cancel import Cancel
from placet.chat.retry import RetryPolicy
from placet.disk.vault import Vault
from placet.errors import End, Interrupted, UserError
from placet.git.fate import BranchNews, Fate, Revert
from placet.host.clock import Clock
from placet.host.config import Config, VaultTable
from placet.host.intents import leave, waiting_in
from placet.journal.maintenance import verify
from placet.journal.reader import open_reader, query
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, AnswerIntent, Committed, Enqueue, PutCase, PutText
from placet.loop.branches import BranchWatch
from placet.loop.tick import Loop
from placet.note.checkboxes import box
from placet.note.frontmatter import UnsafeEdit, read_note, stamp
from placet.note.paths import (
    QUEUES,
    TEMP_PREFIX,
    Folder,
    conflict_of,
    is_side_note,
    side_note_name,
)
from placet.plan.parse import parse_plan
from placet.plan.scope import Scope
from placet.sandbox.box import Level
from placet.tools.registry import PLANNABLE

STEPS = 60
"""Things that happen in one play, before everything is left to settle."""
LOG_LINES = int(os.environ.get("PLACET_LOG", "150"))
"""Of what happened, told where a play fails; the rest shows with `PLACET_LOG=10000`."""
PATIENCE = 100
"""Ticks in which everything must have settled."""

MARK = re.compile(rb"mark-\d{5}")
ENDED = re.compile(rb"(?m)^status: (rejected|error)$")
STOPS = frozenset({"rejected", "needs_revision"})
"""`status` of a plan in System/Active that stops its mission."""
ENDS = frozenset({Action.EXECUTION_COMPLETED, Action.EXECUTION_FAILED})
CLAIMED = {
    "merge": Action.PR_MERGED,
    "drop": Action.PR_REJECTED,
    "undo": Action.PR_REVERTED,
}
TAKEN_AWAY = frozenset({Action.REQUEST_WITHDRAWN, Action.PLAN_WITHDRAWN, Action.PLAN_TAKEN_BACK})
ONCE = frozenset({Action.EXECUTION_STARTED, Action.REPORT_WRITTEN, *ENDS})


Everything = tuple[dict[str, bytes], list[tuple[object, ...]]]


class Killed(BaseException):
    """The daemon is killed at this very point."""


class Broken(BaseException):
    """The daemon did what it must never do; the seed and all that happened are in the message.

    No Exception: the loop takes those of its workers for a mission's mistake.
    """


@cache
def _empty_journal() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        Journal(
            path,
            now=lambda: datetime.now(UTC),
            boottime_s=lambda: 0.0,
            boot_id="boot",
            on_trouble=print,
        ).close()
        return path.read_bytes()


class WatchedVault(Vault):
    """The real one; before and after each write the play may go on, or end for this daemon."""

    play: Play

    def scan(self, folders):
        found = super().scan(folders)
        if Folder.ACTIVE in folders:
            self.play.looked()
        return found

    def publish(self, path: str, data: bytes) -> bool:
        with self.play.effect(f"publish {path}", path):
            return super().publish(path, data)

    def replace(self, path: str, expected: str, data: bytes):
        with self.play.effect(f"replace {path}", path):
            return super().replace(path, expected, data)

    def move(self, src: str, dst: str, expected: str) -> None:
        with self.play.effect(f"move {src} to {dst}"):
            super().move(src, dst, expected)

    def remove(self, path: str, expected: str) -> bool:
        with self.play.effect(f"remove {path}"):
            return super().remove(path, expected)


class WatchedJournal(Journal):
    """The real one; what it commits is held against the model."""

    play: Play

    def commit(self, writes, *, durable=False) -> Committed:
        with self.play.effect(f"commit {', '.join(type(w).__name__ for w in writes)}"):
            done = super().commit(writes, durable=durable)
            self.play.committed(writes)
        return done


@dataclass
class Work:
    """A completed mission's branch as git has it: `is_at` is `open`, `merged`, `reverted` and so on.

    `reason` is that of a drop, `partly` a commit that reverts some of its work.
    """

    trace_id: str
    is_at: str = "open"
    merged_as: str = ""
    reverted_by: str = ""
    partly: str = ""
    reason: str = ""


class WatchedBranches(BranchWatch):
    """Finds what people did in git, as the play has it."""

    play: Play

    def look(self, branches) -> None:
        if found := self.play.news():
            self._looked.put((found,))


class Play:
    """One seed's play.

    `loop_type` is the daemon's loop, or a naive variant of it that must be caught.
    """

    def __init__(self, seed: int, folder: Path, loop_type: type[Loop] = Loop) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        # of its own, so that what people do in git changes nothing else
        self.git_dice = random.Random(seed)
        self.work_of: dict[str, Work] = {}  # by the last commit of a mission
        self.reverts: set[str] = set()  # commits that undo all of a mission, or bring it in again
        self.commits = 0
        self.root = folder / "vault"
        self.state = folder / "state"
        self.loop_type = loop_type
        self.log: list[str] = []
        self.said: list[str] = []
        # the clock
        self.mono = 1000.0
        self.wall_off = 0.0
        # what people did
        self.required: set[bytes] = set()
        # digest -> body that a person put into System/Active, and no run used yet
        self.approved: set[str] = set()
        self.stash: list[tuple[str, bytes]] = []
        self.marks = 0
        self.stamp_ns = 10**18
        # by path, what the watched folders held when the daemon looked last
        self.seen: dict[str, NoteSeen] = {}
        # what the daemon did
        # trace -> digest and body of the run that was started
        self.running: dict[str, tuple[str, str]] = {}
        self.once: set[tuple[str, int, str]] = set()
        self.revisions: set[tuple[str, int]] = set()
        # by path: the trace, and the run that it tells of
        self.reports: dict[str, tuple[str, str]] = {}
        self.last_report: dict[str, str] = {}  # by trace
        # by trace: the words of the last run that came to an end
        self.ended_run: dict[str, str] = {}
        self.restarts = self.runs = self.gestures = self.ticks = self.midway = 0
        self.kinds: set[str] = set()
        self.crash_in = -1
        self.quiet = False
        self.waiting: list = []
        # how often people answered in each generation of a case
        self.answered: Counter[tuple[str, int]] = Counter()
        # digests of the notes by which people approved a wider scope, and of those that asked
        self.widened: set[str] = set()
        # by mark, the request that a person wrote it into as a new one; none before it is seen
        self.fresh: dict[bytes, str] = {}
        # by trace, how many questions were over
        self.told: Counter[str] = Counter()
        # what was asked for by commands, by id, until it is answered
        self.intents: dict[str, Intent] = {}
        self.asked_for: list[str] = []
        # where requests lay that ended and were deleted
        self.free: list[str] = []
        self.asked: dict[tuple[str, int], str] = {}
        # whose note a program is writing just now; nobody else does anything meanwhile
        self.written = ""
        for path in (self.root / "System" / "Agents", self.state):
            path.mkdir(parents=True)
        (self.root / "System" / "Agents" / "reviewer.md").write_text("Be brief.\n")
        (self.state / "journal.db").write_bytes(_empty_journal())
        self.start()

    # --- the daemon's life
    # ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what there is, as `app.daemon` does."""
        clock = Clock(self.wall, lambda: self.mono, self.pass_time, lambda: self.mono)
        # every second seed plays where the kernel does not say who writes
        self.vault = WatchedVault(self.root, ask_kernel=self.seed % 2 == 0)
        self.vault.play = self
        crash, self.crash_in = self.crash_in, -1
        quiet, self.quiet = self.quiet, True
        self.vault.ensure_folders()
        self.vault.sweep_temporaries()
        if self.vault.marker() is None:
            self.vault.create_marker("simulated")
        left = [str(p) for p in self.root.rglob(f"{TEMP_PREFIX}*")]
        self.must(not left, f"temporary files outlived the sweep: {left}")
        self.journal = WatchedJournal(
            self.state / "journal.db",
            now=self.wall,
            boottime_s=lambda: self.mono,
            boot_id="boot",
            on_trouble=self.said.append,
        )
        self.journal.play = self
        self.must(self.journal.set_aside is None, "the journal was damaged")
        self.crash_in, self.quiet = crash, quiet

        def no_model():
            raise UserError("Nothing here asks a model.", "")

        config = Config(vault=VaultTable(quiet_s=0))
        ports = Ports(
            self.root,
            config,
            Level.NONE,
            (),
            self.state / "worktrees",
            self.journal,
            clock,
            no_model,
            (),
            RetryPolicy(),
        )
        self.waiting = []
        self.loop = self.loop_type(
            ports,
            self.vault,
            Owner("here", "boot", 1, str(self.restarts)),
            lambda: None,
            self.said.append,
            lambda _case: None,
            lambda ports: (ports, None),
            self.draft,
            self.run_mission,
            self.waiting.append,
        )
        self.loop.branches = WatchedBranches(clock, self.said.append, lambda: None)
        self.loop.branches.play = self
        self.loop.load()

    def kill(self) -> None:
        self.journal.close()
        self.vault.close()

    def restart(self) -> None:
        self.kill()
        self.restarts += 1
        self.crash_in = -1
        if not (self.quiet or self.written):
            self.downtime()
        self.start()

    def downtime(self) -> None:
        """Let people do things while no daemon runs, move the vault's folder among them."""
        while self.dice.random() < 0.5:
            self.note("(no daemon runs)")
            self.gesture()
        if self.dice.random() < 0.1:
            moved = self.root.with_name(f"vault {self.restarts}")
            self.root.rename(moved)
            self.root = moved
            self.note(f"> the vault is moved to {moved.name}")

    def wall(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(seconds=self.mono + self.wall_off)

    def pass_time(self, seconds: float) -> None:
        self.mono += seconds

    @contextmanager
    def effect(self, what: str, path: str = "") -> Iterator[None]:
        """Everything that the daemon writes goes through here: people may act just before, a kill
        may come before or after.
        """
        if not (self.quiet or self.written) and self.dice.random() < 0.04:
            self.midway += 1
            self.note("(meanwhile)")
            self.gesture()
        alone = self.quiet or self.written
        if not alone and path.endswith(".md") and self.dice.random() < 0.04:
            self.midway += 1
            self.meddle(path)
        if self.crash_in == 0 and self.dice.random() < 0.5:
            self.crash_in = -1
            self.note(f"killed before: {what}")
            if path and self.dice.random() < 0.5:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).with_name(
                    f"{TEMP_PREFIX}{self.dice.randrange(10**6)}"
                ).write_bytes(b"half")
            raise Killed
        yield
        self.note(f"  {what}")
        if self.crash_in == 0:
            self.crash_in = -1
            self.note(f"killed after: {what}")
            raise Killed
        if self.crash_in > 0:
            self.crash_in -= 1

    def meddle(self, path: str) -> None:
        """Save the very note that the daemon is about to write, or one of its case."""
        if not (self.root / path).is_file() or is_side_note(path):
            return
        self.note("(in this moment)")
        if b"revision:" not in (self.root / path).read_bytes():
            self.dice.choice([self.edit, lambda ps: self.set_status(ps, ("pending", "draft"))])(
                [path]
            )
        elif path.startswith(tuple(f"{q}/" for q in QUEUES)):
            ways = [self.edit, self.comment, self.set_decision, self.refuse_with_words]
            self.dice.choice(ways)([path])

    def tick(self):
        self.ticks += 1
        self.note("tick")
        try:
            tick = self.loop.tick()
        except Killed:
            self.restart()
            return None
        wrong = [
            *self.loop.decider.mistakes.values(),
            *(p.error for p in self.loop.state.outbox.pending if "has a bug" in p.error),
        ]
        self.must(not wrong, f"placet has a bug: {wrong}")
        return tick

    def looked(self) -> None:
        """Remember what the watched folders hold in the moment in which the daemon lists them."""
        self.seen = {}
        for path in self.files(*QUEUES):
            # folders below the others than Requests are not listed
            listed = path.startswith(f"{Folder.REQUESTS}/") or str(Path(path).parent) in QUEUES
            if listed and conflict_of(Path(path).name) is None:
                self.seen[path] = inspect_note(path, (self.root / path).read_bytes(), "alice")

    def work(self) -> None:
        """Let one worker come to its end."""
        if self.waiting:
            thread = self.waiting.pop(self.dice.randrange(len(self.waiting)))
            self.note(f"{thread.name} works")
            try:
                thread.run()
            except Killed:
                self.restart()

    # --- the workers
    # ----------------------------------------------------------------------------------------

    def draft(
        self, ports: Ports, assignment: Assignment, cancel: Cancel
    ) -> Drafted | PlanningFailed:
        case = assignment.case
        if cancel.is_set():
            raise Interrupted("stopped")
        luck = self.dice.random()
        if luck < 0.08:
            return PlanningFailed(case.generation, "the request cannot be understood", "Unclear")
        if luck < 0.12 and not self.quiet:
            raise Postponed("busy", 3.0)
        if luck < 0.14:
            raise RuntimeError("a mistake")
        self.must_have_its_keys(assignment)
        self.must_know_the_answers(ports, case)
        self.may_ask(ports, case)
        text = plan_text(
            case.trace_id,
            case.request_id,
            case.plan.revision + 1,
            f"draft {self.dice.randrange(10**9)}",
        )
        model = ports.config.model.who
        return Drafted(case.generation, text, case.plan.revision + 1, model=model)

    def may_ask(self, ports: Ports, case: Case, *, wider: bool = False) -> None:
        """Ask a person now and then; go on where that has an answer, which a person gave."""
        record = Record.load(ports.journal, case, case.generation, ports.clock)
        number = 1
        while record.has(CALL.at(number, 0)):
            number += 1
        self.must(
            number - 1 <= self.answered[case.trace_id, case.generation],
            f"an answer is on the record of {case.request_id} that no person gave",
        )
        began = record.begun(Key(CALL.at(number, 0).key, Begun))
        if began is None and (self.dice.random() >= 0.2 or number > 2):
            return
        entry = CALL.at(number, 0)
        wider = wider if began is None else began.tool == "request_scope"
        record.intend(Key(entry.key, Begun), Begun("request_scope" if wider else "ask_person", {}))
        more = Scope(write=(f"more{number}.txt",)) if wider else None
        raise AsksPerson(Asked(case.generation, entry.key, "Which?", ("yes", "no"), "Why.", more))

    def must_know_the_answers(self, ports: Ports, case: Case) -> None:
        """Hold that work is told of every question that is over, whenever it was asked."""
        known = "".join(answered_before(ports, case)).count("Question: ")
        over = min(self.told[case.trace_id], ANSWERS_KEPT)
        self.must(known == over, f"{case.request_id} is told of {known} of {over} answers")

    def must_have_its_keys(self, assignment: Assignment) -> None:
        """Hold what a planner is told of a request's keys against the text of the request that it
        plans.
        """
        case = assignment.case
        with open_reader(self.journal.path) as reader:
            raw = reader.text(case.request_digest)
        note = inspect_note(f"{Folder.REQUESTS}/x.md", raw, "alice")
        if note.is_plan:
            return  # there is no request: the plan's own text is all that is known
        try:
            asked = read_request("x.md", read_note(raw), ["default", "reviewer"], {}, "default")
        except RequestProblems as problems:
            self.must(
                False,  # noqa: FBT003
                f"{case.request_id} is planned from a request that cannot be used: {problems}",
            )
        else:
            told, says = case.request.keys, asked.keys
            self.must(
                told == says,
                f"the planner of {case.request_id} is told {told}, but its request says {says}",
            )

    def run_mission(self, ports: Ports, mission: Mission, cancel: Cancel) -> MissionResult:
        trace = mission.case.trace_id
        expected = self.running.get(trace)
        self.must(
            expected is not None, f"{mission.case.request_id} is carried out, but was not started"
        )
        self.must(
            mission.case.approval.digest == expected[0],
            "another text is carried out than the one that was started",
        )
        self.must(
            mission.plan == parse_plan(expected[1], PLANNABLE),
            "the text that is carried out is not the approved one",
        )
        self.runs += 1
        self.ended_run.pop(trace, None)
        if cancel.must_leave():
            raise Interrupted("stopped")
        luck = self.dice.random()
        if luck < 0.1 and not self.quiet:
            raise Postponed("busy", 3.0)
        if luck < 0.15:
            raise RuntimeError("a mistake")
        self.must_know_the_answers(ports, mission.case)
        if not cancel.is_set():
            self.may_ask(ports, mission.case, wider=self.dice.random() < 0.5)
        ok = luck < 0.7 and not cancel.is_set()
        words = f"It was run {self.runs}."
        self.ended_run[trace] = words
        done = MissionResult(spent=Spent(self.runs), repository="", summary=words)
        if ok:
            name = f"feat/{mission.case.request_id}-{self.runs}"
            tip = self.commit() if self.git_dice.random() < 0.8 else ""
            return replace(done, branch=name, base="0" * 40, commit=tip)
        end = End.STOPPED_BY_PERSON if cancel.is_set() else End.GAVE_UP
        return replace(done, end=end, summary="", detail=words, error_type="Error")

    # --- what is recorded
    # -----------------------------------------------------------------------------------

    def committed(self, writes) -> None:
        """Hold a committed batch against what people did."""
        cases = {
            w.trace_id: CASE_JSON.validate_json(w.body) for w in writes if isinstance(w, PutCase)
        }
        rows = [w.activity for w in writes if isinstance(w, AddActivity)]
        texts = {w.digest: w.body for w in writes if isinstance(w, PutText)}
        self.must_drop_no_answer(cases, rows)
        self.must_be_asked_for(writes, rows)
        for row in rows:
            self.kinds.add(row.action.value)
            self.must_be_true(row)
            self.must(
                row.action not in TAKEN_AWAY or row.trace_id != self.written,
                f"{row.action} of {row.entity_id}, whose note a program only writes anew",
            )
            if row.action in (Action.REQUEST_DETECTED, Action.REQUEST_EDITED):
                self.must_be_the_same_request(row, texts.get(row.metadata["digest"], b""))
            case = cases.get(row.trace_id) or self.loop.cases.get(row.trace_id)
            if row.action in ONCE:
                event = "end" if row.action in ENDS else row.action.value
                key = (row.trace_id, case.generation, event)
                self.must(
                    key not in self.once, f"{row.action} twice in one generation of {row.entity_id}"
                )
                self.once.add(key)
            if row.action is Action.EXECUTION_STARTED:
                name = row.metadata["digest"]
                self.must(
                    name in self.approved,
                    f"a mission of {row.entity_id} began with a text that nobody put into System/Active since its last run",
                )
                self.must(row.trace_id not in self.running, "a mission began while one was running")
                self.approved.remove(name)
                lay = [n for n in self.seen.values() if n.folder is Folder.ACTIVE and n.is_plan]
                self.must(
                    any(n.digest == name and n.trace_id in ("", row.trace_id) for n in lay)
                    and all(n.digest == name for n in lay if n.trace_id == row.trace_id),
                    f"a mission of {row.entity_id} began with {name}, and in System/Active lay {lay}",
                )
                began = next(n for n in lay if n.digest == name)
                self.running[row.trace_id] = (name, read_note(began.raw).body)
                left_out = parse_plan(self.running[row.trace_id][1], PLANNABLE).left_out
                self.must(
                    tuple(row.metadata.get("steps_left_out", ())) == left_out,
                    f"a mission of {row.entity_id} does not leave out {left_out}",
                )
                self.kinds |= {"steps left out"} if left_out else set()
            elif row.action in ENDS:
                if row.action is Action.EXECUTION_COMPLETED and row.metadata["commit"]:
                    self.work_of[row.metadata["commit"]] = Work(row.trace_id)
                self.must(
                    self.running.pop(row.trace_id, None) is not None,
                    "a mission ended that was not running",
                )
            elif row.action is Action.REPORT_WRITTEN:
                path = row.metadata["path"]
                self.must(path not in self.reports, f"two reports are said to be at {path}")
                self.reports[path] = (row.trace_id, self.ended_run.pop(row.trace_id, "a mistake"))
                self.last_report[row.trace_id] = path
            elif row.action is Action.REQUEST_EDITED:
                self.must_be_its_own(row)
            elif row.action in (Action.QUESTION_ASKED, Action.PLAN_AMENDMENT_REQUESTED):
                self.must_be_asked_once(row, case)
            elif row.action in (Action.QUESTION_ANSWERED, Action.PLAN_AMENDMENT_REJECTED):
                self.answered[row.trace_id, case.generation] += 1
                if row.action is Action.QUESTION_ANSWERED:
                    self.told[row.trace_id] += 1
                    self.must_be_a_persons(row)
            elif row.action is Action.PLAN_AMENDED:
                self.answered[row.trace_id, case.generation] += 1
                self.must_be_widened(row)
            elif row.action in (Action.PLAN_CREATED, Action.PLAN_REVISED):
                revision = (row.trace_id, row.metadata["revision"])
                self.must(
                    revision not in self.revisions,
                    f"revision {revision[1]} of {row.entity_id} was made twice",
                )
                self.revisions.add(revision)

    def must_be_true(self, row: Activity) -> None:
        """Hold a row about what a person did against the notes that the daemon listed last."""
        its = [n for n in self.seen.values() if n.trace_id == row.trace_id]
        match row.action:
            case Action.PLAN_CHANGED_AFTER_APPROVAL:
                with open_reader(self.journal.path) as reader:
                    old = reader.text(row.metadata["approved_digest"])
                new = [n for n in its if n.digest == row.metadata["digest"]]
                self.must(
                    not new or any(own_text(n.raw) != own_text(old) for n in new),
                    f"{row.entity_id} is said to be changed by a person, who changed nothing",
                )
            case Action.PLAN_WITHDRAWN:
                there = [n.path for n in its if n.is_plan and not n.problem]
                self.must(not there, f"the plan of {row.entity_id} was taken away, and is {there}")
            case Action.PLAN_TAKEN_BACK if row.metadata.get("running"):
                lay = [n.path for n in its if n.is_plan and n.folder is Folder.ACTIVE]
                said = [n for n in its if decision_of(n) or n.status in STOPS]
                self.must(not lay or bool(said), f"{row.entity_id} was stopped, and is {lay}")
            case Action.REQUEST_WITHDRAWN:
                there = [
                    n.path for n in its if not (n.is_plan or n.asks) and n.folder is Folder.REQUESTS
                ]
                self.must(not there, f"{row.entity_id} was taken away, and is {there}")
            case Action.PR_REVERTED:
                made = row.metadata["commit_sha"]
                self.must(made in self.reverts, f"{made} reverts some of {row.entity_id} at most")
            case Action.PR_REJECTED if why := row.metadata["reason"]:
                its = [w for w in self.work_of.values() if w.trace_id == row.trace_id]
                gave = [w for w in its if w.reason == why]
                self.must(bool(gave), f"{row.entity_id} is dropped for {why!r}, an old reason")
                gave[0].reason = ""
            case Action.PR_MERGED | Action.PR_REOPENED if row.actor is Actor.HUMAN:
                by = row.metadata["via"]
                self.must(by == "cli", f"{row.action} of {row.entity_id} names a person by {by}")
            case Action.QUESTION_ANSWERED if row.metadata["taken_away"]:
                there = [n.path for n in its if n.asks and n.status == "open" and not is_wider(n)]
                self.must(not there, f"a question of {row.entity_id} is gone, and is {there}")

    def must_be_the_same_request(self, row: Activity, text: bytes) -> None:
        """Hold that a request that a person wrote as a new one is not planned as an ended one."""
        fresh = [mark for mark in MARK.findall(text) if mark in self.fresh]
        if row.action is Action.REQUEST_DETECTED and not row.metadata.get("again"):
            self.fresh |= dict.fromkeys(fresh, row.trace_id)
        elif (case := self.loop.cases.get(row.trace_id)) is not None and case.state not in OPEN:
            others = [m for m in fresh if self.fresh[m] not in ("", row.trace_id)]
            new = [m for m in fresh if not self.fresh[m]]
            notes = [n for n in self.seen.values() if n.digest == row.metadata["digest"]]
            self.must(
                not (new or others) or any(n.trace_id for n in notes) or not notes,
                f"{row.entity_id} had ended, and a new request is taken for it: {text!r}",
            )

    def must_drop_no_answer(self, cases: Mapping[str, Case], rows: Sequence[Activity]) -> None:
        """Hold that no finished answer in its place is void because of something else."""
        over = {r.trace_id for r in rows if r.action is Action.QUESTION_ANSWERED}
        for trace, now in cases.items():
            was = self.loop.cases.get(trace)
            if was is None or was.asking is None or now.asking is not None or trace in over:
                continue
            asking, notes = was.asking, [n for n in self.seen.values() if n.asks]
            its = [n for n in notes if n.trace_id == trace and is_question_note(n, asking)]
            if not asking.amended and len(its) == 1 and its[0].path == asking.path:
                said = answer_in(its[0], asking.options)
                dropped = said.text and not (said.problem or its[0].problem)
                self.must(not dropped, f"the answer {said.text!r} of {now.request_id} is dropped")

    def must_be_asked_for(self, writes: Sequence[object], rows: Sequence[Activity]) -> None:
        """Hold that each command is performed once, for the note that its person saw, or refused.

        And that a row names a person by a command only where that command is answered.
        """
        asked = set()
        for answer in [w for w in writes if isinstance(w, AnswerIntent)]:
            intent = self.intents.pop(answer.id, None)
            self.must(intent is not None, f"the command {answer.id} is answered twice")
            self.kinds.add(
                f"{intent.what} refused" if answer.refused else f"{intent.what} performed"
            )
            asked.add(intent.trace_id)
            self.must(
                intent.what not in EDITS or "replaced" not in answer.refused,
                f"`{intent.what}` is dropped for a later command",
            )
            if intent.what in CLAIMS:
                (told,) = rows
                act = (CLAIMED[intent.what], intent.trace_id)
                self.must(
                    (told.action, told.trace_id) == act and not answer.refused,
                    f"who used `placet {intent.what}` is named in {told.action}",
                )
            elif not answer.refused and intent.what in EDITS:
                # A comment or a box, ticked by a command, in a plan that was put into System/Active
                # and not begun, is an edit of what was approved like one by hand.
                edited = [r for r in rows if r.action is Action.PLAN_EDITED]
                if intent.digest in self.approved:
                    self.approved |= {r.metadata["digest"] for r in edited}
            elif not answer.refused:
                self.must_have_been_seen(intent)
        enqueued = [w.command for w in writes if isinstance(w, Enqueue)]
        for command in map(COMMAND_JSON.validate_json, enqueued):
            if isinstance(command, Edit) and command.intent:
                self.must_have_been_seen(self.intents[command.intent])
        for row in rows:
            if row.metadata.get("via") == "cli":
                named = f"{row.action} of {row.entity_id} names who ran a command"
                self.must(row.trace_id in asked, f"{named}, and none is performed")

    def must_have_been_seen(self, intent: Intent) -> None:
        """Hold that a command is performed on the note that its person saw, and after their edits."""
        note = self.seen.get(intent.path)
        before = [one.what for one in self.intents.values() if self.is_edit_before(one, intent)]
        self.must(not before, f"`{intent.what}` is performed before {before} of the same text")
        self.must(
            intent.path.startswith(Folder.ARCHIVE)
            or (note is not None and note.digest == intent.digest),
            f"`{intent.what}` is performed on {intent.path}, which its person did not see",
        )

    def is_edit_before(self, one: Intent, other: Intent) -> bool:
        """Return whether `one` is an edit of the text of the decision `other`, asked for first."""
        order = [*self.asked_for]
        return (
            (one.trace_id, one.digest) == (other.trace_id, other.digest)
            and (one.what in EDITS) > (other.what in EDITS)
            and order.index(one.id) < order.index(other.id)
        )

    def must_be_asked_once(self, row: Activity, case: Case) -> None:
        """Hold that the same thing is not asked twice."""
        key = (row.trace_id, case.generation, f"{row.action} {case.asking.call}")
        self.must(key not in self.once, f"{row.entity_id} asks the same thing twice")
        self.once.add(key)
        self.asked[row.trace_id, case.amendments] = case.asking.digest

    def must_be_a_persons(self, row: Activity) -> None:
        """Hold that a note had an answer when it was looked at, or that it was taken away."""
        away = [inspect_note(f"{Folder.QUESTIONS}/x.md", raw, "") for raw in self.archived()]
        notes = [*self.seen.values(), *away]
        asked = [n for n in notes if n.asks and n.trace_id in ("", row.trace_id)]
        given = [n for n in asked if answer_in(n, ("yes", "no")).text]
        self.must(
            bool(given) or row.metadata["taken_away"] or row.metadata["via"] == "cli",
            f"a question of {row.entity_id} was answered by nobody",
        )

    def archived(self) -> list[bytes]:
        """Return the notes in the archive."""
        return [(self.root / path).read_bytes() for path in self.files(Folder.ARCHIVE)]

    def must_be_widened(self, row: Activity) -> None:
        """Hold that a person approved this wider scope, in the note as it was written."""
        told = self.asked[row.trace_id, row.metadata["number"]]
        self.must(told in self.widened, f"nobody approved the wider scope of {row.entity_id}")
        with open_reader(self.journal.path) as reader:
            raw = reader.text(row.metadata["digest"])
        self.running[row.trace_id] = (row.metadata["digest"], read_note(raw).body)

    def must_be_its_own(self, row: Activity) -> None:
        """Hold that an edited request is the one that has the case's trace_id, as long as some note
        has it.
        """
        its = {
            n.digest
            for n in self.seen.values()
            if n.folder is Folder.REQUESTS
            and n.trace_id == row.trace_id
            and not n.is_plan
            and not n.asks
            and not n.problem
        }
        self.must(
            not its or row.metadata["digest"] in its,
            f"another note was taken for an edit of {row.entity_id}",
        )

    # --- people
    # ---------------------------------------------------------------------------------------------

    def note(self, line: str) -> None:
        self.log.append(line)

    def must(self, holds: bool, why: str) -> None:
        if not holds:
            raise Broken(f"seed {self.seed}: {why}\n" + "\n".join(self.log[-LOG_LINES:]))

    def mark(self) -> str:
        """Give words that occur nowhere else, so that a lost text is noticed."""
        self.marks += 1
        self.required.add(f"mark-{self.marks:05}".encode())
        return f"mark-{self.marks:05}"

    def files(self, *folders: str) -> list[str]:
        found = []
        for folder in folders:
            found += [
                p.relative_to(self.root).as_posix()
                for p in (self.root / folder).rglob("*")
                if p.is_file()
                and not p.is_symlink()
                and not p.name.startswith(".")
                and not is_side_note(p.name)
                and p.suffix.lower() == ".md"
            ]
        return sorted(found)

    def write(self, path: str, raw: bytes) -> None:
        """Save a file as an editor does: in place, or under another name first."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        old = place.read_bytes() if place.is_file() else b""
        self.required -= set(MARK.findall(old)) - set(MARK.findall(raw))
        if self.dice.random() < 0.5:
            place.write_bytes(raw)
        else:
            beside = place.with_name(".editor.tmp")
            beside.write_bytes(raw)
            beside.replace(place)
        # Two saves within one tick of this file system's clock must not look like none.
        self.stamp_ns += 10**6
        os.utime(place, ns=(self.stamp_ns, self.stamp_ns))

    def put(self, path: str, raw: bytes) -> None:
        """Remember that a person approved this text, by its place or its property."""
        folders = tuple(f"{q}/" for q in QUEUES)
        if not path.startswith(folders) or conflict_of(Path(path).name) is not None:
            return
        seen = inspect_note(path, raw, "alice")
        said = seen.folder in (Folder.PLANS, Folder.REJECTED) and decision_of(seen) == APPROVE
        if seen.asks:
            self.widened |= {shown_digest(raw)} if is_approved(seen) else set()
        elif seen.folder is Folder.ACTIVE or said:
            # which takes back a reason in the properties
            reason = str(seen.meta.get("rejection_reason") or "")
            self.required -= set(MARK.findall(reason.encode()))
            self.approved.add(seen.digest)

    def rename(self, src: str, dst: str) -> None:
        place = self.root / dst
        number = 1
        while place.exists() or place.is_symlink():
            number += 1
            place = (self.root / dst).with_name(f"{Path(dst).stem} {number}.md")
        dst = place.relative_to(self.root).as_posix()
        place.parent.mkdir(parents=True, exist_ok=True)
        raw = (self.root / src).read_bytes()
        (self.root / src).rename(place)
        self.note(f"> move {src} to {dst}")
        self.put(dst, raw)

    def gesture(self) -> None:
        """Do something that a person, or a sync tool of theirs, can do."""
        self.gestures += 1
        notes = self.files(*QUEUES)
        plans = [p for p in notes if b"revision:" in (self.root / p).read_bytes()]
        reviews = [p for p in plans if p.startswith(Folder.PLANS)]
        ways: list[tuple[int, Callable[[], None]]] = [
            (3 if len(notes) > 6 else 8, self.drop),
            (1, self.odd),
            (2, self.bring_back),
            (1, self.handmade),
        ]
        if notes:
            ways += [(8, lambda: self.command(notes))]
        if len(notes) > 1:
            ways += [(4, lambda: self.swap(notes)), (3, lambda: self.shift(notes))]
        if reviews:
            ways += [(14, lambda: self.move_plan(reviews, Folder.ACTIVE))]
        if plans:
            ways += [
                (6, lambda: self.move_plan(plans)),
                (6, lambda: self.edit(plans)),
                (4, lambda: self.comment(plans)),
                (
                    3,
                    lambda: self.set_status(
                        plans,
                        ("review", "needs_revision", "rejected", "approved", "pending", "nonsense"),
                    ),
                ),
                (2, lambda: self.spoil(plans)),
                (6, lambda: self.set_decision(plans)),
                (8, lambda: self.leave_out(plans)),
                (4, lambda: self.refuse_with_words(plans)),
                (3, lambda: self.type_into_the_box(plans)),
            ]
        if asked := [p for p in notes if b"asked_at:" in (self.root / p).read_bytes()]:
            ways += [
                (12, lambda: self.answer(asked)),
                (2, lambda: self.answer_and_archive(asked)),
                (4, lambda: self.answer_and_edit(asked, notes)),
            ]
        if refused := [p for p in plans if p.startswith(Folder.REJECTED)]:
            ways += [(8, lambda: self.add_words(refused))]
        if notes:
            ways += [
                (6, lambda: self.edit(notes)),
                (3, lambda: self.delete(notes)),
                (3, lambda: self.copy(notes)),
                (3, lambda: self.stash_one(notes)),
                (2, self.stale_save),
                (2, lambda: self.rename_in_place(notes)),
                (
                    4,
                    lambda: self.set_status(
                        notes, ("pending", "", "planned", "planning", "error", "completed")
                    ),
                ),
                (1, lambda: self.spoil(notes)),
            ]
        if requests := [p for p in notes if p.startswith(f"{Folder.REQUESTS}/") and p not in plans]:
            ended = [p for p in requests if ENDED.search((self.root / p).read_bytes())]
            ways += [(6, lambda: self.put_away(ended))] if ended else []
            ways += [
                (3, lambda: self.replace_request(requests)),
                (4, lambda: self.set_keys(requests)),
            ]
        if failed := [p for p in notes if b"status: error" in (self.root / p).read_bytes()]:
            ways += [(6, lambda: self.set_status(failed, ("pending",)))]
        if active := [p for p in plans if p.startswith(Folder.ACTIVE)]:
            ways += [(6, lambda: self.edit(active))]
        if archived := self.files(Folder.ARCHIVE):
            ways += [
                (1, lambda: self.move_plan(archived)),
                (1, lambda: self.copy(archived)),
                (4, lambda: self.ask_again(archived)),
            ]
        self.dice.choices([way for _, way in ways], [weight for weight, _ in ways])[0]()

    def commit(self) -> str:
        """Give a commit that is nowhere else."""
        self.commits += 1
        return f"{self.commits:040x}"

    def act_in_git(self) -> None:
        """Merge, drop, delete, restore or revert a mission's branch: by a command, or with git."""
        if not self.work_of:
            return
        tip = self.git_dice.choice(sorted(self.work_of))
        self.act_on(tip)
        while self.git_dice.random() < 0.6:  # before the daemon looks
            self.act_on(tip)

    def act_on(self, tip: str) -> None:
        """Do one thing with the branch whose last commit is `tip`."""
        work, by_command = self.work_of[tip], self.git_dice.random() < 0.5
        if work.is_at == "open":
            what, commit = "merge", self.commit()
            if self.git_dice.random() < 0.7:  # what is merged is dropped no more
                what, commit = "drop", tip
                work.is_at = "dropped" if by_command else "gone"
                if by_command:
                    self.give_reason(work, tip)
            else:
                if not by_command and self.git_dice.random() < 0.5:
                    commit = tip  # fast-forward
                work.is_at, work.merged_as = "merged", commit
        elif work.is_at in ("dropped", "gone"):
            what, by_command = "restore", False
            work.is_at = "open"
        else:
            what, commit = ("undo" if work.is_at == "merged" else "merge"), self.commit()
            if what == "undo" and self.git_dice.random() < 0.3:
                work.partly, by_command = commit, False  # or a message that only says so
            else:
                work.is_at = "reverted" if what == "undo" else "merged"
                work.reverted_by = commit
                self.reverts.add(commit)
        self.note(f"> {what} {tip[-3:]} {'by a command' if by_command else 'with git'}")
        if by_command:
            ident = f"{self.git_dice.randrange(16**32):032x}"
            claim = Intent(ident, what, work.trace_id, "", commit)
            leave(self.state / "intents", claim)
            self.intents[ident] = claim

    def give_reason(self, work: Work, tip: str) -> None:
        """Write into the report of a branch why it is dropped, as `placet drop` does."""
        case = self.loop.cases.get(work.trace_id)
        its = [b.report_path for b in (case.branches if case else ()) if b.tip == tip]
        if its and (self.root / its[0]).is_file():
            work.reason = f"It is too slow, {self.commits}."
            raw = (self.root / its[0]).read_bytes()
            self.write(its[0], self.stamp_of(raw, {"dropped_reason": work.reason}))

    def news(self) -> BranchNews | None:
        """Return what git shows of all branches that differs from what the daemon recorded."""
        fates, reverts = list[Fate](), list[Revert]()
        for tip, work in self.work_of.items():
            case = self.loop.cases.get(work.trace_id)
            for branch in [b for b in (case.branches if case else ()) if b.tip == tip]:
                merged = work.is_at in ("merged", "reverted")
                if branch.is_watched and merged:
                    fates.append(Fate(branch, "merged", work.merged_as, "merge", "main"))
                elif branch.is_watched and work.is_at == "open" and branch.became:
                    fates.append(Fate(branch, ""))
                elif branch.is_watched and work.is_at != "open" and not branch.became:
                    fates.append(Fate(branch, work.is_at))
                elif not branch.is_watched and work.is_at != branch.became:
                    again = work.is_at == "merged"
                    one = Revert(work.trace_id, work.merged_as, work.reverted_by, again)
                    reverts.append(one)
                if work.partly and merged:
                    part = Revert(work.trace_id, work.merged_as, work.partly, in_part=True)
                    reverts.append(part)
        found = BranchNews(self.root, fates=tuple(fates), reverts=tuple(reverts), owner="alice")
        return found if fates or reverts else None

    def command(self, notes: list[str]) -> None:
        """Decide by a command: it is about the note as it is now, and its case as it was known."""
        path = self.dice.choice(notes)
        note = inspect_note(path, (self.root / path).read_bytes(), "alice")
        case = self.loop.cases.get(note.trace_id)
        if case is None:
            return
        ways = ("approve", "approve", "approve", "reject", "revise", "comment", "tick", "stop")
        what = self.dice.choice(ways if note.is_plan else ("retry",))
        if note.asks:
            what = "answer" if "amendment" not in note.meta else self.dice.choice(ways[2:4])
        self.leave(what, path, note, case)
        while what in EDITS and self.dice.random() < 0.5:  # before the daemon looks
            what = self.dice.choice(("approve", "tick", "comment", "reject"))
            self.leave(what, path, note, case)

    def leave(self, what: What, path: str, note: NoteSeen, case: Case) -> None:
        """Ask for something by a command."""
        said = {"reject": "It is too broad.", "revise": "Shorter.", "comment": "Hm.", "tick": "1"}
        given = {**said, "answer": self.dice.choice(("1", "no", "Rather both."))}.get(what)
        digest = shown_digest(note.raw) if "amendment" in note.meta else note.digest
        ident = f"{self.dice.randrange(16**32):032x}"
        seen = (path, note.digest, case.state.value, case.generation)
        intent = Intent(ident, what, case.trace_id, *seen, (given,) if given else ())
        leave(self.state / "intents", intent)
        self.intents[intent.id] = intent
        self.asked_for.append(intent.id)
        self.note(f"> placet {what} {case.request_id}, whose note is {path}")
        if what == "approve":
            self.widened |= {digest} if note.asks else set()
            self.approved.add(note.digest)

    def swap(self, notes: list[str]) -> None:
        """Let two notes change places, in one look."""
        alike = [p for p in notes if Path(p).parent == Path(self.dice.choice(notes)).parent]
        some = alike if len(alike) > 1 and self.dice.random() < 0.7 else notes
        one, other = self.dice.sample(some, 2)
        between = self.root / "Inbox" / ".swap"
        (self.root / one).rename(between)
        (self.root / other).rename(self.root / one)
        between.rename(self.root / other)
        self.note(f"> swap {one} and {other}")
        for path in (one, other):
            self.put(path, (self.root / path).read_bytes())

    def shift(self, notes: list[str]) -> None:
        """Move some notes, each to where the one before it lay, the first to a place of its own."""
        alike = [p for p in notes if Path(p).parent == Path(self.dice.choice(notes)).parent]
        some = self.dice.sample(alike or notes, min(len(alike or notes), self.dice.randrange(2, 5)))
        folder = Path(some[0]).parent.as_posix()
        home = f"{folder}/Home" if folder.startswith(Folder.REQUESTS) else folder
        self.rename(some[0], f"{home}/shifted {self.dice.randrange(100)}.md")
        for free, path in pairwise(some):
            self.rename(path, free)

    def put_away(self, ended: list[str]) -> None:
        """Delete a request that ended, and write another one of that name, soon or later."""
        path = self.dice.choice(ended)
        self.delete([path])
        self.free.append(path)
        if self.dice.random() < 0.5:
            self.drop()

    def drop(self) -> None:
        name = self.dice.choice(
            [
                "Fix it",
                "Fix it",
                "Größe",
                "a b c",
                "日本",
                "Fix it 2",
                "Sub/Deep/One",
                "x" * 60,
                "Upper.MD",
            ]
        )
        folder = self.dice.choice(
            [Folder.REQUESTS] * 12 + [Folder.PLANS, Folder.ACTIVE, Folder.REJECTED]
        )
        path = f"{folder}/{name}" + ("" if name.endswith(".MD") else ".md")
        if self.free and self.dice.random() < 0.5:
            path = self.free.pop()
        if (self.root / path).exists():
            path = f"{folder}/{name.removesuffix('.MD')} {self.dice.randrange(100)}.md"
            if (self.root / path).exists():
                return
        words = f"Do something, {self.mark()}.\n"
        text = self.dice.choice(
            [
                words,
                words,
                words,
                f"# Title\n\n{words}",
                f"---\nstatus: pending\npriority: 7\n---\n{words}",
                f'+++\nstatus = "pending"\n+++\n{words}',
                f"---\nagent: nobody\n---\n{words}",
                f"---\npriority: [\n---\n{words}",
                f"---\nstatus: pending\nstatus: pending\n---\n{words}",
                f"---\nstatus: whatever\n---\n{words}",
                f"---\ntrace_id: nonsense\n---\n{words}",
                f"\ufeff{words}",
                words.replace("\n", "\r\n"),
                f"---\ntitle: x\n---\n{words}",
                f"---\nstatus: &a pending\nother: *a\n---\n{words}",
                f"---\nstatus: planned\n---\n{words}",
            ]
        )
        raw = self.dice.choice([text.encode()] * 12 + [b"", b"  \n", b"caf\xe9 " + words.encode()])
        self.required -= {m for m in MARK.findall(text.encode()) if m not in raw}
        self.fresh |= dict.fromkeys(MARK.findall(raw), "")
        self.note(f"> drop {path}: {raw[:40]!r}")
        if len(raw) > 30 and self.dice.random() < 0.2:  # written in two goes
            self.write(path, raw[:-9])
            self.pass_time(0.05)
        self.write(path, raw)

    def odd(self) -> None:
        path = (
            self.root
            / Folder.REQUESTS
            / self.dice.choice(["Link.md", "Folder.md", ".hidden.md", "draft.md.tmp"])
        )
        if path.exists() or path.is_symlink():
            return
        self.note(f"> odd {path.name}")
        match path.name:
            case "Link.md":
                path.symlink_to("../../System/Agents/reviewer.md")
            case "Folder.md":
                path.mkdir()
            case _:
                path.write_bytes(b"nothing\n")

    def handmade(self) -> None:
        """Put a plan there that nobody here wrote: of another vault, or by hand without a trace_id."""
        request = self.dice.choice(["other", "fix-it", "theirs"])
        raw = plan_text(
            f"99999999-2222-3333-4444-{self.dice.randrange(10**12):012}", request, 1, self.mark()
        )
        if self.dice.random() < 0.5:
            raw = re.sub(rb"(?m)^trace_id.*\n", b"", raw, count=1)
        folder = self.dice.choice([Folder.PLANS, Folder.ACTIVE, Folder.REJECTED, Folder.REQUESTS])
        path = f"{folder}/handmade {self.dice.randrange(10**6)}.md"
        self.note(f"> handmade {path}")
        self.save(path, raw)

    def move_plan(self, plans: list[str], where: Folder | None = None) -> None:
        src = self.dice.choice(plans)
        where = where or self.dice.choice(
            [Folder.PLANS, Folder.ACTIVE, Folder.REJECTED, Folder.REQUESTS]
        )
        name = Path(src).name
        if where is Folder.ACTIVE and self.dice.random() < 0.7:
            name = name.replace("_plan", "")
        if where is Folder.ACTIVE and self.dice.random() < 0.2:  # by the command line
            with_name = self.stamped(src, {"approved_by": "bob"})
            if with_name is not None:
                self.write(src, with_name)
        if f"{where}/{name}" != src:
            self.rename(src, f"{where}/{name}")

    def stamped(self, path: str, changes: dict[str, str | None]) -> bytes | None:
        try:
            return stamp((self.root / path).read_bytes(), changes)
        except UnsafeEdit:
            return None

    def save(self, path: str, raw: bytes) -> None:
        """Save a changed note.

        In System/Active that is an approval only where no approval was acknowledged yet. Another
        decision than a rejection takes back the reason in the properties.
        """
        self.write(path, raw)
        seen = (
            inspect_note(path, raw, "alice")
            if path.startswith(tuple(f"{q}/" for q in QUEUES))
            else None
        )
        if seen is not None:
            if decision_of(seen) != REJECT:
                reason = str(seen.meta.get("rejection_reason") or "")
                self.required -= set(MARK.findall(reason.encode()))
            case = self.loop.cases.get(seen.trace_id)
            if case is None or case.state not in (State.APPROVED, State.RUNNING):
                self.put(path, raw)

    def edit(self, notes: list[str]) -> None:
        path = self.dice.choice(notes)
        raw = (self.root / path).read_bytes()
        words = self.mark()
        if self.dice.random() < 0.6 or not MARK.search(raw):
            new = (
                raw.replace(b"Its summary.", f"Its summary. {words}.".encode(), 1)
                if b"Its summary." in raw
                else raw + f"\nAnd {words}.\n".encode()
            )
        else:
            new = MARK.sub(words.encode(), raw)
        self.note(f"> edit {path} ({words})")
        self.save(path, new)

    def comment(self, plans: list[str]) -> None:
        path = self.dice.choice(plans)
        raw, words = (self.root / path).read_bytes(), f"Not like this, {self.mark()}."
        at_step, is_remark = self.marks % 2, self.marks % 3 == 0
        if at_step and b"\n## Scope" in raw:
            raw = raw.replace(b"\n## Scope", f"\n> @placet {words}\n\n## Scope".encode(), 1)
        else:
            raw += f"\n## Review Comments\n\n- {words}\n".encode()
        with suppress(UnsafeEdit):
            raw = raw if is_remark else stamp(raw, {"status": "needs_revision"})
        self.note(f"> comment on {path} (mark-{self.marks:05})")
        self.save(path, raw)

    def set_status(self, notes: list[str], values: tuple[str, ...]) -> None:
        path, value = self.dice.choice(notes), self.dice.choice(values)
        new = self.stamped(path, {"status": value or None})
        if new is not None:
            self.note(f"> set {path} to {value!r}")
            self.save(path, new)

    def answer(self, asked: list[str]) -> None:
        """Answer a question, or decide on a wider scope."""
        path = self.dice.choice(asked)
        raw = (self.root / path).read_bytes()
        way = self.dice.randrange(6)
        if b"amendment:" not in raw:
            new = [
                raw.replace(b"- [ ] yes", b"- [x] yes"),
                raw.replace(b"- [ ] no", b"- [x] no"),
                raw + (f"\nRather {self.mark()}.\n" if way == 2 else "").encode(),
                self.stamp_of(raw, {"answer": "2"}),
                raw.replace(b"- [ ] ", b"- [x] "),
                self.stamp_of(raw, {"answer": "perhaps"}),
            ][way]
            self.note(f"> answer {way} in {path} (mark-{self.marks:05})")
            self.save(path, new)
        elif way < 2:
            self.rename(path, f"{self.dice.choice([Folder.ACTIVE, Folder.REJECTED])}/wider.md")
        else:
            said = self.dice.choice(("approve", "approve", "reject", "revise"))
            self.note(f"> decide {said} in {path}")
            self.save(path, self.stamp_of(raw, {"decision": said}))

    def answer_and_archive(self, asked: list[str]) -> None:
        """Answer a question, and put it away, in one look."""
        path = self.dice.choice(asked)
        raw = (self.root / path).read_bytes()
        if b"amendment:" not in raw:
            self.note(f"> answer in {path}, and put it away")
            self.save(path, self.stamp_of(raw, {"answer": "1"}))
            self.rename(path, f"{Folder.ARCHIVE}/{Path(path).name}")

    def answer_and_edit(self, asked: list[str], notes: list[str]) -> None:
        """Answer a question, and edit another note of its case, in one look."""
        path = self.dice.choice(asked)
        trace = inspect_note(path, (self.root / path).read_bytes(), "alice").trace_id
        its = [p for p in notes if p != path and trace.encode() in (self.root / p).read_bytes()]
        self.answer([path])
        if trace and its:
            self.edit(its)

    def refuse_with_words(self, plans: list[str]) -> None:
        """Decide against a plan, with a reason, by its properties or by its text."""
        path, said = self.dice.choice(plans), self.dice.choice(("reject", "reject", "revise"))
        new = self.stamped(path, {"decision": said})
        if new is None:
            return
        words = f"Too broad, {self.mark()}."
        if said == "reject" and self.dice.random() < 0.6:
            new = stamp(new, {"rejection_reason": words})
        else:
            new += f"\n## Rejection\n\n{words}\n".encode()
        self.note(f"> refuse {said} {path} ({words})")
        self.save(path, new)

    def add_words(self, refused: list[str]) -> None:
        """Add to the reason of a plan that was rejected."""
        path = self.dice.choice(refused)
        raw = (self.root / path).read_bytes()
        more = f"\nAnd besides, {self.mark()}.\n"
        if b"\n## Rejection" not in raw:
            more = f"\n## Rejection\n{more}"
        self.note(f"> add words to {path} (mark-{self.marks:05})")
        self.save(path, raw + more.encode())

    def type_into_the_box(self, plans: list[str]) -> None:
        """Write a line between the marks of placet's box."""
        path = self.dice.choice(plans)
        raw = (self.root / path).read_bytes()
        begin, end = raw.find(b"%% placet %%\n"), raw.find(b"\n%% /placet %%")
        if -1 < begin < end:
            lines = [begin + 13, *(m.end() for m in re.finditer(rb"\n", raw[: end + 1]))]
            at = self.dice.choice([place for place in lines if place >= begin + 13])
            words = self.dice.choice(("", "> ")) + f"By the way, {self.mark()}.\n"
            self.note(f"> type into the box of {path} (mark-{self.marks:05})")
            self.save(path, raw[:at] + words.encode() + raw[at:])

    def set_decision(self, plans: list[str]) -> None:
        """Decide by the property."""
        path = self.dice.choice(plans)
        said = self.dice.choice(
            ("approve", "approve", "approve", "reject", "revise", "Approve ", "x")
        )
        new = self.stamped(path, {"decision": said})
        if new is None:
            return
        self.note(f"> decide {said!r} in {path}")
        self.save(path, new)

    def leave_out(self, plans: list[str]) -> None:
        """Tick or untick a step, or strike a line of the scope."""
        path = self.dice.choice(plans)
        raw = (self.root / path).read_bytes()
        places = [*re.finditer(rb"(?m)^- \[( |x)\] Do this|^write = (.*)$", raw)]
        if not places:
            return
        found = self.dice.choice(places)
        if found[1] is not None:
            at, old, new = found.start(1), found[1], b" " if found[1] == b"x" else b"x"
        else:
            at, old, entry = found.start(2), found[2], b'"b.txt"'
            struck = b"~~" + entry + b"~~"
            new = old.replace(struck, entry) if struck in old else old.replace(entry, struck)
        self.note(f"> {new.decode()} for {old.decode()} in {path}")
        self.save(path, raw[:at] + new + raw[at + len(old) :])

    def spoil(self, notes: list[str]) -> None:
        """Make something of a note's frontmatter that it should not be."""
        path = self.dice.choice(notes)
        raw = (self.root / path).read_bytes()
        how = self.dice.randrange(6)
        new = [
            lambda: re.sub(rb"(?m)^trace_id.*\n", b"", raw, count=1),
            lambda: re.sub(rb"(?m)^request_id: .*$", b"request_id: another", raw, count=1),
            lambda: raw.replace(b"---\n", b"---\n[broken\n", 1),
            lambda: re.sub(rb"(?m)^status: (.*)$", rb"status: &s \1\nmine: *s", raw, count=1),
            lambda: re.sub(rb"(?m)^approved_at.*\n", b"", raw, count=1),
            lambda: raw.replace(b"tools", b"tolos", 1).replace(b"Tools", b"Tolos", 1),
        ][how]()
        if new != raw:
            self.note(f"> spoil {path} ({how})")
            self.save(path, new)

    def delete(self, notes: list[str]) -> None:
        path = self.dice.choice(notes)
        self.note(f"> delete {path}")
        self.stash.append((path, (self.root / path).read_bytes()))
        self.required -= set(MARK.findall((self.root / path).read_bytes()))
        (self.root / path).unlink()

    def copy(self, notes: list[str]) -> None:
        src = self.dice.choice(notes)
        stem = Path(src).stem
        name = self.dice.choice(
            [
                f"{stem} 2.md",
                f"{stem} copy.md",
                f"{stem} (conflicted copy 2026-11-21).md",
                f"{stem}.sync-conflict-20261121-120000-ABCDEFG.md",
            ]
        )
        folder = self.dice.choice([str(Path(src).parent)] * 4 + list(QUEUES))
        path = f"{folder}/{name}"
        if not (self.root / path).exists():
            self.note(f"> copy {src} to {path}")
            raw = (self.root / src).read_bytes()
            self.write(path, raw)
            if Path(src).parent != Path(path).parent:
                self.put(path, raw)

    def stash_one(self, notes: list[str]) -> None:
        path = self.dice.choice(notes)
        self.stash.append((path, (self.root / path).read_bytes()))

    def bring_back(self) -> None:
        """A sync tool or a backup brings an old file back.

        With a stamp of an approval it approves nothing.
        """
        if self.stash:
            path, raw = self.dice.choice(self.stash[-8:])
            if not (self.root / path).exists():
                self.note(f"> bring {path} back")
                self.write(path, raw)
                if path.startswith(Folder.ACTIVE) and not read_note(raw).meta.get("approved_at"):
                    self.put(path, raw)

    def stale_save(self) -> None:
        """An editor that had a file open saves over what has become of it since."""
        if self.stash:
            path, raw = self.dice.choice(self.stash[-8:])
            if (self.root / path).is_file():
                self.note(f"> save a stale {path}")
                self.save(path, raw + f"\nStale {self.mark()}.\n".encode())

    def rename_in_place(self, notes: list[str]) -> None:
        path = self.dice.choice(notes)
        self.rename(
            path, str(Path(path).with_name(f"{Path(path).stem}-r{self.dice.randrange(9)}.md"))
        )

    def replace_request(self, requests: list[str]) -> None:
        """Rename a request, and write another one under its old name."""
        path = self.dice.choice(requests)
        self.rename(
            path, str(Path(path).with_name(f"{Path(path).stem}-old{self.dice.randrange(9)}.md"))
        )
        self.note(f"> a new {path}")
        raw = f"Something quite different, {self.mark()}.\n".encode()
        self.fresh |= dict.fromkeys(MARK.findall(raw), "")
        self.write(path, raw)

    def set_keys(self, requests: list[str]) -> None:
        """Set keys of a request: in most cases to what can be, now and then to what cannot."""
        path = self.dice.choice(requests)
        changes = self.dice.choice(
            [
                {"priority": str(self.dice.randrange(11))},
                {"agent": "reviewer"},
                {"agent": None},
                {"complexity": "complex"},
                {"budget_usd": "0.5"},
                {"budget_usd": None},
                {"priority": "99"},
                {"portal": "nowhere"},
                {"portal": None},
            ]
        )
        new = self.stamped(path, changes)
        if new is not None:
            if self.dice.random() < 0.3:
                new = self.stamp_of(new, {"status": "pending"})
            self.note(f"> set {changes} in {path}")
            self.save(path, new)

    def ask_again(self, archived: list[str]) -> None:
        """Put a finished request back, and ask for it anew."""
        requests = [p for p in archived if b"revision:" not in (self.root / p).read_bytes()]
        if requests:
            path = self.dice.choice(requests)
            self.write(path, self.stamp_of((self.root / path).read_bytes(), {"status": "pending"}))
            self.rename(path, f"{Folder.REQUESTS}/{Path(path).name}")

    def stamp_of(self, raw: bytes, changes: dict[str, str | None]) -> bytes:
        try:
            return stamp(raw, changes)
        except UnsafeEdit:
            return raw

    # --- the play
    # -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it to the end.

        Broken where the daemon did what it must not, with all that happened.
        """
        try:
            for _ in range(STEPS):
                self.step()
            self.grow()
            self.have_it_done_again()
            self.use_branches()
            self.settle()
            self.answer_all()
            self.check_end()
            before = self.everything()
            self.restart()
            self.settle()
            self.must_be_same(before, self.everything())
        except Broken:
            raise
        except Exception as error:
            raise Broken(
                f"seed {self.seed}: {error!r} left the daemon\n" + "\n".join(self.log[-LOG_LINES:])
            ) from error
        finally:
            self.kill()

    def write_slowly(self) -> None:
        """Let a program write a note anew and pause meanwhile, as editors and sync tools do.

        The daemon looks in between; nobody else does anything.
        """
        self.let_work()
        notes = [p for p in self.files(*QUEUES) if conflict_of(Path(p).name) is None]
        seen = {p: inspect_note(p, (self.root / p).read_bytes(), "alice") for p in notes}
        known = [p for p, n in seen.items() if n.trace_id and not (n.problem or n.asks)]
        alone = Counter(seen[p].trace_id for p in known)
        if not (known := [p for p in known if alone[seen[p].trace_id] <= 2]):
            return
        path = self.dice.choice(known)
        way = self.dice.choice(("two steps", "two steps", "delete and create", "placeholder"))
        words, place, raw = self.mark(), self.root / path, seen[path].raw
        new = raw + f"\nSlowly {words}.\n".encode()
        at = len(raw) + self.dice.randrange(2, 9)
        self.note(f"> write {path} slowly: {way} ({words})")
        self.written = seen[path].trace_id
        evicted = place.with_name(f"{place.name}.nextcloud")
        if way == "placeholder":
            evicted.touch()
        if way != "two steps":
            place.unlink()
            self.look_for(8.0 if way == "placeholder" else self.dice.choice((0.5, 1.5, 3.0)))
        with place.open("wb") as file:
            file.write(new[:at])
            file.flush()
            self.look_for(self.dice.choice((0.5, 1.5, 3.0)))
            file.write(new[at:])
        evicted.unlink(missing_ok=True)
        case = self.loop.cases.get(self.written)
        if case is None or case.state not in (State.APPROVED, State.RUNNING):
            self.put(path, new)
        self.look_for(0.5)
        self.written = ""

    def look_for(self, seconds: float) -> None:
        """Let the daemon look for a while."""
        while seconds > 0:
            self.tick()
            self.pass_time(0.5)
            seconds -= 0.5

    def step(self) -> None:
        if self.git_dice.random() < 0.15:
            self.act_in_git()
        luck = self.dice.random()
        if luck < 0.04:
            self.write_slowly()
        elif luck < 0.42:
            self.gesture()
        elif luck < 0.82:
            self.tick()
        elif luck < 0.93:
            self.work()
        elif luck < 0.97:
            self.crash_in = self.dice.randrange(12)
        elif luck < 0.985:
            self.wall_off += self.dice.choice([-86_400.0, -3600.0, -1.0, 1.0, 3600.0, 86_400.0])
            self.note(f"> the clock jumps to {self.wall()}")
        else:
            self.note("> restart")
            self.restart()
        self.pass_time(self.dice.choice([0.0, 0.01, 0.1, 0.3, 1.0, 5.0]))

    def grow(self) -> None:
        """Let some program write one note, and not close it: what people took away counts as taken
        away all the same.
        """
        if self.dice.random() < 0.7:
            return
        quiet, self.quiet, self.crash_in = self.quiet, True, -1
        path = f"{Folder.REQUESTS}/Dictation.md"
        raw = f"A long story, {self.mark()}.\n".encode()
        if plans := self.files(Folder.PLANS, Folder.ACTIVE):
            self.delete(plans)
        for number in range(40):
            self.write(path, raw + b"And more.\n" * number)
            self.tick()
            while self.waiting and number % 5 == 0:
                self.work()
            self.pass_time(2.0)
        row_chart = [
            inspect_note(p, (self.root / p).read_bytes(), "alice") for p in self.files(*QUEUES)
        ]
        of_plans = {n.trace_id for n in row_chart if n.is_plan}
        for case in self.loop.cases.values():
            there = case.trace_id in of_plans or (self.root / case.plan.path).is_file()
            if (
                case.plan.path
                and not there
                and case.state in (State.REVIEW, State.REVISING, State.APPROVED, State.RUNNING)
            ):
                self.must(
                    bool(case.stop),
                    f"the plan of {case.request_id} was taken away 80 s ago, and it is {case.state}",
                )
        self.quiet = quiet

    def have_it_done_again(self) -> None:
        """Approve what awaits review, ask anew for what that came to, and approve that on the same
        day.
        """
        if self.dice.random() < 0.7:
            return
        quiet, self.quiet, self.crash_in = self.quiet, True, -1
        self.write(f"{Folder.REQUESTS}/Once more.md", f"Do it, {self.mark()}.\n".encode())
        self.let_work()
        for _ in range(2):
            for path in self.files(Folder.PLANS):
                self.rename(path, f"{Folder.ACTIVE}/{Path(path).name}")
            self.let_work()
            ended = [
                p
                for p in self.files(Folder.REQUESTS, Folder.PLANS)
                if b"status: error" in (self.root / p).read_bytes()
            ]
            if ended:
                self.set_status(ended, ("pending",))
            if archived := self.files(Folder.ARCHIVE):
                self.ask_again(archived)
            self.let_work()
        self.quiet = quiet

    def use_branches(self) -> None:
        """Merge, drop, restore and revert what the missions made, for a while."""
        for _ in range(12 if self.work_of else 0):
            self.act_in_git()
            self.tick()
            self.pass_time(0.3)

    def answer_all(self) -> None:
        """Answer what is still asked; two notes of one question may leave it open."""
        for _ in range(4):
            for path in self.files(Folder.QUESTIONS, Folder.PLANS):
                raw = (self.root / path).read_bytes()
                if b"asked_at:" in raw and b"revision:" not in raw:
                    self.save(path, self.stamp_of(raw, {"answer": "1", "decision": "approve"}))
            self.settle()

    def let_work(self) -> None:
        for _ in range(10):
            self.tick()
            while self.waiting:
                self.work()
            self.pass_time(0.3)

    def settle(self) -> None:
        """Nobody does anything any more: what can be done is done."""
        self.quiet, self.crash_in = True, -1
        for _ in range(PATIENCE):
            tick = self.tick()
            assert tick is not None
            while self.waiting:
                self.work()
            self.pass_time(0.3 if tick.again_in_s < 1 else 5.0)
            # A mission whose note cannot be read any more waits, and that is said.
            working = [
                c
                for c in self.loop.cases.values()
                if c.state in WORKING
                and not self.loop.intake.is_draft(c)
                and not any(
                    why.startswith(f"{c.request_id}: its mission waits") for why in tick.waiting
                )
            ]
            if tick.idle and not working:
                return
        self.must(False, "it does not come to rest")  # noqa: FBT003 - says what is so

    def everything(self) -> Everything:
        files = {
            p.relative_to(self.root).as_posix(): p.read_bytes()
            for p in self.root.rglob("*")
            if p.is_file()
        }
        return files, query(
            self.journal.path, "SELECT action_type, entity_id, metadata FROM activity ORDER BY id"
        )[1]

    def must_be_same(self, before: Everything, after: Everything) -> None:
        names = sorted(before[0].keys() | after[0].keys())
        changed = {
            p: (before[0].get(p), after[0].get(p))
            for p in names
            if before[0].get(p) != after[0].get(p)
        }
        self.must(
            before == after,
            f"a restart with nothing to do changed {changed or 'nothing'} "
            f"and wrote {after[1][len(before[1]) :]}",
        )

    def check_end(self) -> None:
        with open_reader(self.journal.path) as reader:
            self.must(verify(self.journal.path) is None, "the chain of rows is broken")
            pending = reader.pending_commands()
        self.must(not pending, f"commands were left: {pending}")
        unanswered = [one for one in self.intents.values() if one.what not in CLAIMS]
        self.must(not unanswered, f"nobody answered {unanswered}")
        left = waiting_in(self.state / "intents")
        self.must(not left, f"intents were left: {left}")
        for tip, work in self.work_of.items():
            known = [b.became for b in self.loop.cases[work.trace_id].branches if b.tip == tip]
            is_at = "" if work.is_at == "open" else work.is_at
            both = ("dropped", "gone")  # a reason makes the one of the other
            self.must(
                known == [is_at] or (is_at in both and known[0] in both),
                f"the branch {tip[-3:]} of {work.trace_id} is {work.is_at}, and is told as {known}",
            )
        asks = {c.trace_id for c in self.loop.cases.values() if c.state is State.ASKING}
        self.must(self.running.keys() <= asks, "a mission was started and never ended")
        files, _ = self.everything()
        reports = {p for p in files if p.startswith(f"{Folder.REPORTS}/")}
        self.must(
            reports == self.reports.keys(),
            f"reports are at {sorted(reports)}, and are said to be at {sorted(self.reports)}",
        )
        for path, (trace, words) in self.reports.items():
            self.must(words.encode() in files[path], f"{path} should tell of {trace}: {words}")
        for trace, path in self.last_report.items():
            case = self.loop.cases[trace]
            self.must(
                case.outcome.report_path in ("", path),
                f"{case.request_id} names {case.outcome.report_path}, its last report is {path}",
            )
        rows = json.dumps(self.everything()[1], default=str).encode()
        self.must_say_the_truth(files)
        kept = b"\0".join([*files.values(), *self.texts(), rows])
        lost = {m for m in self.required if m not in kept}
        self.must(not lost, f"texts that people wrote are lost: {lost}")
        # One that is approved still waits for its plan's note, which cannot be read: that is said
        # beside the plan. One that asks has two answers, which is said beside the question.
        still = (State.APPROVED, State.ASKING)
        waits = {
            known
            for case in self.loop.cases.values()
            if case.state in still
            for known in (case.trace_id, case.request_path)
        }
        for path in self.files(Folder.REQUESTS):
            seen = inspect_note(path, files[path], "alice")
            if not waits.isdisjoint((seen.trace_id, path)):
                continue
            beside = f"{Path(path).parent.as_posix()}/{side_note_name(Path(path).name)}"
            self.must(
                seen.is_plan or seen.status not in ASKS or beside in files,
                f"{path} asks for a plan, and nobody answers: {files[path][:200]!r}",
            )

    def must_say_the_truth(self, files: Mapping[str, bytes]) -> None:
        """Hold what the notes of cases say at the end against the cases."""
        for path in self.files(Folder.ARCHIVE):
            meta = read_note(files[path]).meta
            case = self.loop.cases.get(str(meta.get("trace_id") or ""))
            if case is not None and case.state is State.COMPLETED and "asked_at" not in meta:
                asks = "revision" not in meta and meta.get("status") == "pending"
                self.must(not asks, f"{path} of {case.request_id} is archived and asks for a plan")
        for case in self.loop.cases.values():
            wanted = STATUSES[case.acting]
            for path, said in ((case.request_path, wanted.request), (case.plan.path, wanted.plan)):
                if path not in files or not path.startswith(tuple(f"{q}/" for q in QUEUES)):
                    continue
                note = inspect_note(path, files[path], "alice")
                beside = f"{Path(path).parent.as_posix()}/{side_note_name(Path(path).name)}"
                if note.problem or note.trace_id != case.trace_id or beside in files:
                    continue
                rests = RESTS_IN.get(case.acting) if note.is_plan else Folder.REQUESTS
                if note.folder is not rests or (not note.is_plan and note.status == DRAFT):
                    continue
                self.must(note.status == said, f"{path} says {note.status!r}, and is {case.acting}")
                stamped = case.state is State.REVIEW and note.meta.get("approved_at")
                self.must(not stamped, f"{path} says that it is approved, and is in review")

    def texts(self) -> list[bytes]:
        return [bytes(row[0]) for row in query(self.journal.path, "SELECT body FROM texts")[1]]


def own_text(raw: bytes) -> str:
    """Return a note's text without placet's box."""
    body = read_note(raw).body
    return body.partition("\n%% /placet %%\n")[2] or body


def is_wider(note: NoteSeen) -> bool:
    """Return whether a note asks for a wider scope."""
    return "amendment" in note.meta


def plan_text(trace: str, request: str, revision: int, words: str) -> bytes:
    """Return a plan's note as the planner writes it."""
    body = (
        f"# A plan\n\nIts summary. {words}\n\n## Steps\n\n### 1. Do it\n\n{box(ticked=True)}\n\n"
        f"Tools: `write_file`\n\n### 2. Do more\n\n{box(ticked=True)}\n\n## Scope\n\n```toml\n"
        'write = ["a.txt", "b.txt"]\n```\n\n## Risks\n\n- none\n'
    )
    return stamp(
        body.encode(),
        {
            "trace_id": trace,
            "request_id": request,
            "status": "review",
            "agent": "default",
            "portal": "",
            "complexity": "standard",
            "revision": revision,
            "base_commit": "0" * 40,
            "created_at": "2026-11-21T12:00:00.000Z",
        },
    )


def play(seed: int, loop_type: type[Loop] = Loop) -> Play:
    """Play one seed in a folder of its own, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        a_play = Play(seed, Path(folder), loop_type)
        a_play.run()
        return a_play
