"""Decide what one look at the folders shows.

That is which case each note belongs to, what you did, and what placet has to explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import is_

from placet.case.approval import ONCE_MORE, changed_model, may_begin
from placet.case.callout import WAITS_FOR_SIGNATURE
from placet.case.case import Branch, Case, NoteSeen
from placet.case.decide import stamp_new
from placet.case.intents import EDITS, Intent
from placet.case.life_cycle import OPEN, State
from placet.case.notes import APPROVE, DRAFT, body_of, decision_of
from placet.case.observe import stale_statuses
from placet.case.settle import OPEN_POLL_S
from placet.case.sorting import CaseNotes, NotesByOwner, is_by_place, sort_notes
from placet.case.warnings import warnings_for
from placet.disk.errors import NotAFile, OpenForWriting, Stale, TooLarge, VaultTrouble
from placet.disk.scan import Found
from placet.errors import BUGS, describe_bug
from placet.loop.gestures import acknowledge_places, perform, perform_edits, refuse, take
from placet.loop.requests import adopt, open_requests
from placet.loop.side_notes import MODEL, SideNotes
from placet.loop.signing import renew_statement
from placet.loop.state import LoopState
from placet.note.frontmatter import Frontmatter, UnsafeEdit, stamp
from placet.note.paths import Folder
from placet.plan.differences import diff_callout
from placet.plan.digest import plan_text
from placet.plan.parse import PlanProblems, parse_plan

EDITED_IN_RUN = (
    "This text was changed while its mission runs. The change has no effect: the mission follows "
    "the approved text. To stop the mission, move this note to Inbox/Plans.\n"
)
_LEFT = "placet leaves this request alone until you change one of its notes or update placet."


@dataclass(slots=True)
class Decider:
    """Decide on each look."""

    state: LoopState
    notices: SideNotes
    shown: Mapping[str, CaseNotes] = field(default_factory=dict)
    """By trace_id the notes of cases that the last look was sure of."""
    mistakes: dict[str, str] = field(default_factory=dict)
    """The error of each case that hit a bug in placet: it stops that case, and no other."""
    _at_rest: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Open cases without anything to do, with the notes that the last look saw.

    The same case and notes need not be looked at again.
    """
    _to_stamp: set[str] = field(default_factory=set)
    """Requests whose writer may not be done, so that they are not stamped yet."""
    _warned: dict[str, tuple[tuple[object, ...], Mapping[str, str]]] = field(default_factory=dict)
    """Warnings of the last look, with the case and the notes that they are about."""

    def decide(self, side_notes: Mapping[str, Found]) -> None:
        """Decide what a look shows, and write side notes; `side_notes` are those in the vault."""
        state, intake = self.state, self.state.intake
        state.cases.find(intake.notes.values(), intake.unread)
        found = sort_notes(
            state.cases.held, [n for p, n in sorted(intake.notes.items()) if p not in intake.unsure]
        )
        uncertain = self._uncertain(found)
        busy = state.outbox.busy | uncertain
        self.shown = {trace: its for trace, its in found.of_case.items() if trace not in busy}
        intake.learn_drafts(self.shown, state.cases.held)
        self._take_gestures(found, busy)
        self._hold_back_work(found)
        notices = self._notices_of_new(found) | intake.unplanned | intake.notices()
        busy |= state.outbox.busy
        notices = self._notices_of_cases(found, busy) | notices | self._notices_of_mistakes(found)
        # a note may be explained by another one that was not read yet
        if not intake.has_started or self.notices.show(
            notices, side_notes, self._unjudged(found, busy), intake.notes, self._places()
        ):
            intake.look_again()
        state.cases.let_go(
            intake.notes.values(),
            intake.notes.keys() | intake.unread | intake.unsure,
            state.outbox.busy | state.threads.jobs.keys(),
        )

    def _hold_back_work(self, found: NotesByOwner) -> None:
        """Cancel the planning of drafts, and hold work whose plan is missing."""
        state, intake = self.state, self.state.intake
        for job in state.threads.jobs.values():
            if job.planning and intake.is_draft(state.cases[job.trace_id]):
                # Keep the last usable version; the request is read again when it is finished.
                job.cancel.set()
            its = found.of_case.get(job.trace_id, CaseNotes())
            if not its.plans and intake.is_missing(state.cases[job.trace_id].plan.path):
                job.hold.set()  # until its plan is found, or counts as gone

    def _places(self) -> dict[str, tuple[str, str]]:
        """Return by path whose notes cases have: trace_id and request_id."""
        cases = self.state.cases
        places = {
            path: (case.trace_id, case.request_id)
            for case in cases.values()
            for path in case.places
        }
        refused = self._refused()
        return places | {
            one.report_path: (one.trace_id, cases[one.trace_id].request_id) for one in refused
        }

    def _approved_in_vain(self, case: Case, plan: NoteSeen) -> str:
        """Return why an approval would not start a plan in review.

        It is for another model, or not signed.
        """
        if case.must_sign and case.to_sign and decision_of(plan) == APPROVE:
            return WAITS_FOR_SIGNATURE.format(case.request_id)
        why = changed_model(case, self.state.ports.config.model.who)
        if not why or case.state is not State.REVIEW or plan.problem:
            return ""
        with suppress(PlanProblems):
            if all(step.actions for _, step in parse_plan(body_of(plan.raw)).kept):
                return ""  # it needs no model
        return f"{why} {ONCE_MORE}"

    def _refused(self) -> list[Branch]:
        """Return the branches whose report has a decision that was not done."""
        watched = self.state.cases.watched.values()
        return [branch for branches in watched for branch in branches if branch.refused]

    def _unjudged(self, found: NotesByOwner, busy: Set[str]) -> Set[str]:
        """Return the paths of notes whose side notes stay as they are."""
        intake = self.state.intake
        unjudged = intake.unread | intake.unsure | intake.unfinished
        if not intake.is_certain:  # the plan's request may be among the unread notes
            unjudged |= {note.path for note in found.orphans}
        for trace in busy:
            its = found.of_case.get(trace, CaseNotes())
            unjudged |= {n.path for n in (*its.plans, *its.asked, its.request) if n is not None}
        return unjudged

    def _notices_of_new(self, found: NotesByOwner) -> dict[str, str]:
        """Open cases for new notes; return by path why others open none."""
        state, intake = self.state, self.state.intake
        notices = {n.path: why for n, why in found.notices}
        if intake.is_certain:
            notices |= adopt(state, found.orphans, intake.notes.values())
        new = [
            n for n in found.new if n.path not in intake.unread and n.trace_id not in state.cases
        ]
        problems = open_requests(state, [*new, *self._arrivals()])
        known = self._places()
        problems |= {
            n.path: notices.pop(n.path)
            for n, _ in found.notices
            if n.folder is Folder.REQUESTS and n.path in notices.keys() - known
        }
        waiting = problems.keys() | self._to_stamp
        intake.unfinished = frozenset(path for path in waiting if intake.left_s(path))
        return notices | {p: why for p, why in problems.items() if p not in intake.unfinished}

    def _notices_of_mistakes(self, found: NotesByOwner) -> dict[str, str]:
        """Return the notices to the notes of cases that hit a bug."""
        notices: dict[str, str] = {}
        for trace, why in self.mistakes.items():
            its = found.of_case.get(trace, CaseNotes())
            notes = (*its.plans, *its.asked, its.request)
            notices |= {note.path: f"{why}. {_LEFT}" for note in notes if note is not None}
        return notices

    def _arrivals(self) -> list[NoteSeen]:
        """Return the new requests that have not settled; none while one of them may be known.

        A known request that has no trace_id yet may be missing because it was saved as another
        file.
        """
        state, intake = self.state, self.state.intake
        arrived = intake.arrivals
        if not arrived or any(
            case.unstamped is not None and intake.is_missing(case.request_path)
            for case in state.cases.values()
        ):
            return []
        new = sort_notes(state.cases.held, [*intake.notes.values(), *arrived.values()]).new
        return [note for note in new if note.path in arrived]

    def is_judged(self, case: Case) -> bool:
        """Return whether a mission may start or resume: its note was read, and you did not stop it.

        What you did while no daemon ran is decided first: an edited plan does not start, and a
        removed one does not resume.
        """
        its = self.shown.get(case.trace_id, CaseNotes())
        if case.acting is State.RUNNING:
            return bool(case.stop or its.plans) or case.plan.path in self.state.intake.odd
        return case.state is not State.APPROVED or may_begin(case, its)

    def _uncertain(self, found: NotesByOwner) -> Set[str]:
        """Return the trace ids of cases that this look is not certain about.

        A missing note may be on its way to another folder. If it is seen elsewhere, that place
        counts. If not, its case waits until it is certain where the note is and what it says. Two
        plans block each other, also while one of them is moved or edited.
        """
        intake = self.state.intake
        present = {_identity(n) for p, n in intake.notes.items() if p not in intake.unsure}
        misplaced = {
            n.trace_id
            for p in intake.unsure
            if (n := intake.notes.get(p)) is not None
            and (_identity(n) not in present or (n.is_plan and p in intake.unread))
        }
        written = {
            c.trace_id for c in self.state.cases.values() if not intake.unread.isdisjoint(c.places)
        }
        # the note in the place of a renamed one is another, even if the renamed one keeps changing
        by_place = {
            trace
            for trace, its in found.of_case.items()
            if is_by_place(its, self.state.cases[trace])
            and (not intake.is_certain or intake.is_being_written(trace))
        }
        return misplaced | written | by_place

    def _take_gestures(self, found: NotesByOwner, busy: Set[str]) -> None:
        state, cases = self.state, self.state.cases
        state.intake.unplanned = {}
        self._to_stamp = set()
        before, self.mistakes = self.mistakes, {}
        for trace, its in found.of_case.items():
            if trace not in busy:
                self._take(cases[trace], its, before)
        for trace, case in list(cases.items()):
            if trace not in busy and trace not in found.of_case:
                self._take(case, CaseNotes(), before)
        for trace, intents in list(state.intents.waiting.items()):
            if trace not in busy | state.outbox.busy:
                self._perform(intents, found)
        self.shown = {t: its for t, its in self.shown.items() if t not in self.mistakes}

    def _take(self, case: Case, its: CaseNotes, before: Mapping[str, str]) -> None:
        """Decide on a case's notes; `before` are the errors that the last look reported."""
        seen = (self.state.ports.config, *_seen(case, its))
        if _same(seen, self._at_rest.pop(case.trace_id, ())):
            self._at_rest[case.trace_id] = seen
            return
        try:
            if taken := take(self.state, case, its):
                return
            acknowledge_places(self.state, case, its)
            case = self.state.cases[case.trace_id]
            if (stated := renew_statement(self.state, case, its)) is not None:
                self.state.record(stated)
                return
            if case.trace_id in self.state.intents.waiting:  # about the note as read
                return
            renewed = self._stamp_new(case, its) or self._renew_statuses(case, its)
            if taken is None and not renewed and case.state in OPEN and not case.asking:
                self._at_rest[case.trace_id] = seen
        except BUGS as error:
            why = self.mistakes[case.trace_id] = describe_bug(error)
            if before.get(case.trace_id) != why:
                self.state.say(f"{case.request_id}: {why}. {_LEFT}")

    def _cached_warnings(self, case: Case, its: CaseNotes) -> Mapping[str, str]:
        """Return the warnings for a case's notes, from the cache if neither has changed."""
        seen = _seen(case, its)
        last, warnings = self._warned.pop(case.trace_id, ((), {}))
        if not _same(seen, last):
            warnings = warnings_for(case, its)
        self._warned[case.trace_id] = seen, warnings
        return warnings

    def _renew_statuses(self, case: Case, its: CaseNotes) -> bool:
        """Stamp notes whose `status` lags behind their case; return whether there were any.

        A note that is being changed waits.
        """
        kind = Frontmatter(self.state.ports.config.vault.frontmatter)
        stale = [*stale_statuses(case, its)]
        for note, status in stale:
            if self.state.intake.left_s(note.path):
                self._to_stamp.add(note.path)
                continue
            keys = {"status": status, "trace_id": case.trace_id}
            text = partial(_stamped, note.raw, keys, kind)
            try:
                self.state.vault.edit(note.path, text)
            except OpenForWriting:
                self.state.intake.look_again(OPEN_POLL_S)
            except (VaultTrouble, Stale, NotAFile, TooLarge, UnsafeEdit):
                pass
        return bool(stale)

    def _stamp_new(self, case: Case, its: CaseNotes) -> bool:
        """Stamp a new request once its writer is done; return whether it is not stamped yet."""
        note = its.request
        if case.unstamped is None:
            return False
        if note is None or note.status == DRAFT:
            return True
        if self.state.intake.left_s(note.path):
            self._to_stamp.add(note.path)
        else:
            self.state.record(stamp_new(case, note, self.state.ports.clock.now()))
        return True

    def _perform(self, intents: Sequence[Intent], found: NotesByOwner) -> None:
        """Perform a case's first intent once it is certain which notes the case has.

        Further edits of the same text are performed with it.
        """
        first = intents[0]
        alike = [*takewhile(lambda one: one.what in EDITS and one.digest == first.digest, intents)]
        case, its = self.state.cases.get(first.trace_id), found.of_case.get(first.trace_id)
        try:
            if case is None:
                refuse(self.state, f"There is no request {first.trace_id}.", first)
            elif its is None and not self.state.intake.is_certain:
                return
            elif alike:
                perform_edits(self.state, case, its or CaseNotes(), alike)
            else:
                perform(self.state, case, its or CaseNotes(), first)
        except BUGS as error:
            refuse(self.state, f"{describe_bug(error)}.", *(alike or [first]))

    def _notices_of_cases(self, found: NotesByOwner, busy: Set[str]) -> dict[str, str]:
        """Return notices to usable notes: planning failed, an edit has no effect, work waits.

        Cases that are not `busy` also get warnings.
        """
        state, notes = self.state, self.state.intake.notes
        notices: dict[str, str] = {}
        for case in state.cases.values():
            path = case.request_path
            if case.state is State.FAILED and not case.outcome.report_path and path in notes:
                notices.setdefault(
                    path,
                    f"There is no plan: {case.outcome.failure}\n"
                    "Set `status: pending` in the request to try again.",
                )
            plan = next(iter(self.shown.get(case.trace_id, CaseNotes()).plans), None)
            if (
                case.acting is State.RUNNING
                and case.reported_edit
                and plan is not None
                and plan.digest == case.reported_edit
            ):
                approved, now = (
                    raw.decode(errors="replace")
                    for raw in (
                        state.text_to_show(case.approval.digest),
                        plan_text(plan.raw),
                    )
                )
                notices.setdefault(plan.path, EDITED_IN_RUN + diff_callout(approved, now))
        for trace, why in state.waits.sentences().items():
            if (path := state.cases[trace].request_path) and path in notes:
                notices.setdefault(path, why)
        for trace, its in self.shown.items():
            for note in (*its.plans, *its.asked):
                if why := self._approved_in_vain(state.cases[trace], note):
                    notices.setdefault(note.path, why)
        for branch in self._refused():
            notices[branch.report_path] = branch.refused
        if state.waits.hold is not None:
            notices[MODEL] = state.waits.hold.notice
        for trace in found.of_case.keys() - busy - self.mistakes.keys():
            warnings = self._cached_warnings(state.cases[trace], found.of_case[trace])
            notices = {**warnings, **notices}
        self._warned = {t: one for t, one in self._warned.items() if t in found.of_case}
        return notices


def _seen(case: Case, its: CaseNotes) -> tuple[object, ...]:
    return (case, its.request, *its.plans, *its.asked)


def _same(seen: tuple[object, ...], last: tuple[object, ...]) -> bool:
    """Return whether these are the same objects; cases and notes are immutable."""
    return len(seen) == len(last) and all(map(is_, seen, last))


def _stamped(seen: bytes, keys: Mapping[str, str], kind: Frontmatter, now: bytes) -> bytes:
    """Return a note with these keys, or unchanged if it was edited since it was read."""
    return stamp(now, keys, kind_if_none=kind) if now == seen else now


def _identity(note: NoteSeen) -> tuple[str, bool, str]:
    """Return the properties by which a moved note is recognised.

    For a plan that includes its text, as two plans may have one trace_id.
    """
    known = "question" if note.asks else ""
    return note.trace_id, note.is_plan, note.digest if note.is_plan else known
