"""Hold the state of the loop, and record decisions. Nothing else changes a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from placet.activity import Action, Entity
from placet.agent.ports import Ports
from placet.case.approval import approved_in
from placet.case.case import CASE_JSON, Case, Person
from placet.case.commands import COMMAND_JSON, Decision, Edit
from placet.case.decide import decide
from placet.case.decision_builder import DecisionBuilder
from placet.case.events import Event, PlanApproved, PlanEdited
from placet.case.intents import Change
from placet.case.notes import inspect_note
from placet.case.waiting import Hold
from placet.codec import sha256
from placet.disk.vault import Vault
from placet.host.intents import Mailbox
from placet.journal.writes import (
    AddActivity,
    AnswerIntent,
    BodyDamaged,
    Committed,
    Enqueue,
    PendingCommand,
    PutCase,
    PutText,
    Write,
)
from placet.loop.intake import Intake
from placet.loop.open_cases import OpenCases
from placet.loop.outbox import Outbox, OutboxPorts
from placet.loop.retry import WorkWaits
from placet.loop.rows import of_case
from placet.loop.threads import Threads
from placet.note.frontmatter import Frontmatter
from placet.plan.plan import Approved
from placet.tools.registry import PLANNABLE


@dataclass(slots=True)
class LoopState:
    """The state that all parts of the loop share."""

    ports: Ports
    """Replaced when the configuration changes."""
    vault: Vault
    threads: Threads
    say: Callable[[str], None]
    """Writes to the daemon's log."""
    tell: Callable[[Case | Hold], None]
    """Called with each case that entered a new state, and with each hold."""
    dirty: bool = True
    """Whether the next tick has something to decide."""
    unmarked: bool = False
    """Whether a case entered a new state after the journal's end was marked."""
    cases: OpenCases = field(init=False)
    _approved: dict[str, Approved] = field(default_factory=dict)
    """The approved plans by trace_id, each parsed once in this process."""
    outbox: Outbox = field(init=False)
    intake: Intake = field(init=False)
    waits: WorkWaits = field(init=False)
    intents: Mailbox = field(init=False)

    def __post_init__(self) -> None:
        journal, clock = self.ports.journal, self.ports.clock
        self.cases = OpenCases(journal)
        self.intake = Intake(self.vault, clock, self.say)
        self.outbox = Outbox(journal, clock, self.say, self.reported, self.edited)
        self.intents = Mailbox(self.ports.worktrees.parent / "intents", self.say)
        self.waits = WorkWaits(journal, clock, self.say, self.tell, self.ports.retry.longest_rest_s)

    def apply(
        self, case: Case, event: Event, *writes: Write, change: Change | None = None
    ) -> Committed | None:
        """Decide an event and record the decision with `writes`; return None if nothing follows.

        The commands of `change`, which were performed before the event was seen, come first.
        Running work that became void, or has to stop, is cancelled.
        """
        decision = decide(case, event, self.ports.clock.now())
        if decision is None:
            return None
        if change is not None:
            decision = change.before(decision)
        committed = self.record(decision, writes=writes)
        if isinstance(event, PlanApproved):
            self._approved[case.trace_id] = event.approved
        self._cancel_void_work(decision.case)
        return committed

    def _cancel_void_work(self, case: Case) -> None:
        if (job := self.threads.jobs.get(case.trace_id)) is not None:
            if case.generation != job.generation:
                job.cancel.set()
            elif case.stop:
                job.cancel.set(case.stop)

    def record(self, *decisions: Decision, writes: Sequence[Write] = ()) -> Committed:
        """Record decisions in one transaction. They take effect only then."""
        batch: list[Write] = [*writes]
        commands = [
            (decision.case.trace_id, COMMAND_JSON.dump_json(command).decode())
            for decision in decisions
            for command in decision.commands
        ]
        for decision in decisions:
            batch += _writes(decision)
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
            self.waits.postponed.pop(case.trace_id, None)
            if not case.approval.digest:
                self._approved.pop(case.trace_id, None)
            self.dirty = True
            if before is not None and before.state is not case.state:
                self.unmarked = True
                self.tell(self.cases[case.trace_id])
        return committed

    def perform(self) -> None:
        """Perform the commands that are due."""
        kind = Frontmatter(self.ports.config.vault.frontmatter)
        desk = OutboxPorts(self.vault, self.text, kind)
        self.dirty |= self.outbox.perform(self.cases, desk)

    def reported(self, case: Case, wanted: str, place: str, size: int) -> list[Write]:
        """Return the writes for a report published at `place`; `wanted` may have been in use."""
        row = of_case(self.ports.clock, case, Action.REPORT_WRITTEN, path=place, size=size)
        if place == wanted:
            return [row]
        failure = case.outcome.failure.replace(wanted, place)
        if case.branches and case.branches[-1].report_path == wanted:
            case = case.with_branch(case.branches[-1], report_path=place)
        case = replace(case, outcome=replace(case.outcome, report_path=place, failure=failure))
        self.cases.put(replace(case, version=case.version + 1))
        return [_put(case), row]

    def edited(self, case: Case, edit: Edit, raw: bytes, refused: str) -> list[Write]:
        """Return the writes for a comment or a tick of a command, which left the note as `raw`.

        `refused` says why it was not made, or is empty.
        """
        self.intents.forget([edit.intent])
        self.dirty = True
        if refused:
            return [AnswerIntent(edit.intent, refused)]
        now, person = self.ports.clock.now(), Person(edit.who, edit.via, edit.login)
        note = inspect_note(edit.path, raw)
        if (decision := decide(case, PlanEdited(note, person), now)) is None:
            only_told = DecisionBuilder(case, case.state, now)
            only_told.by_human(Action.PLAN_EDITED, Entity.PLAN, person, digest=note.digest)
            decision = only_told.done()
        self.cases.put(replace(decision.case, version=case.version + 1))
        self._cancel_void_work(decision.case)
        return [AnswerIntent(edit.intent), *_writes(decision)]

    def approved(self, case: Case) -> Approved:
        """Return what a case's approval binds; after a start it is read from the journal.

        Raises BodyDamaged.
        """
        known = self._approved.get(case.trace_id)
        if known is None or known.digest != case.approval.digest:
            known = approved_in(self.text(case.approval.digest), PLANNABLE)
            self._approved[case.trace_id] = known
        return known

    def text(self, name: str) -> bytes:
        """Return a stored text; raises BodyDamaged."""
        with self.ports.journal.ask() as reader:
            text = reader.text(name)
        assert text is not None, f"text {name} was stored with the decision that names it"
        return text

    def text_to_show(self, name: str) -> bytes:
        """Return a stored text, "" if it is missing or damaged: whoever uses it reports that."""
        with self.ports.journal.ask() as reader:
            try:
                return (reader.text(name) if name else None) or b""
            except BodyDamaged:
                return b""


def _writes(decision: Decision) -> list[Write]:
    """Return the writes of a decision without its commands."""
    return [
        *(PutText(sha256(raw), raw) for raw in decision.texts),
        _put(decision.case),
        *(AddActivity(row) for row in decision.rows),
    ]


def _put(case: Case) -> PutCase:
    return PutCase(
        case.trace_id,
        case.request_id,
        case.state.value,
        CASE_JSON.dump_json(case).decode(),
        case.version,
        case.request_path,
        case.plan.path,
        bool(case.watched),
    )
