"""From a case's notes to a gesture that can be decided.

It has who made it, and what it needs from outside the notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from placet.agent.asking import outcome_of, settled
from placet.agent.prompts import agents, plan_of, plannable
from placet.core.life.approval import OUTDATED
from placet.core.life.case import Case, EventKind, NoteSeen
from placet.core.life.commands import Decision
from placet.core.life.gestures import (
    ActiveEdited,
    Answered,
    Answering,
    ApprovalRefused,
    ApprovalVoid,
    ByHand,
    Gesture,
    Hand,
    LeadsToPlan,
    PlanApproved,
    PlanGone,
    PlanMisplaced,
    RequestChanged,
    RequestGone,
    RequestPending,
    RevisionAsked,
    ScopeWidened,
)
from placet.core.life.observe import observe
from placet.core.life.request import unknown_agent, unknown_portal
from placet.core.life.sight import look_at
from placet.core.life.sorting import CaseNotes
from placet.core.text.names import Folder, is_utf8, show
from placet.core.text.note import read_note
from placet.core.turn.budget import Limits, money_problem
from placet.core.turn.price import cost_usd, is_free
from placet.core.turn.talk import Usage
from placet.host.acts import forget, word_of
from placet.journal.writes import BodyDamaged, Write
from placet.loop.casebook import Casebook
from placet.loop.intake import Intake
from placet.loop.requests import Drafts, Requests

_DECISIONS: Mapping[EventKind, str] = {
    EventKind.PLAN_APPROVED: "approve",
    EventKind.APPROVAL_REFUSED: "approve",
    EventKind.PLAN_REJECTED: "reject",
    EventKind.REVISION_ASKED: "revise",
    EventKind.REQUEST_PENDING: "retry",
    EventKind.ANSWERED: "answer",
    EventKind.SCOPE_WIDENED: "approve",
    EventKind.SCOPE_REFUSED: "reject",
    EventKind.PLAN_TAKEN_BACK: "stop",
    EventKind.STOP_ASKED: "stop",
}


@dataclass(slots=True)
class Gestures:
    """The gestures of people.

    `unplanned` has by path, for this look, why nothing is planned from notes of known cases.
    """

    book: Casebook
    intake: Intake
    requests: Requests
    drafts: Drafts
    unplanned: dict[str, str] = field(default_factory=dict)

    def take(self, case: Case, its: CaseNotes) -> bool:
        """Decide what a person did to a case's notes; return whether that was anything."""
        gesture = self._made(case, its)
        if gesture is None:
            return False
        book = self.book
        answers = self._outcome(case, gesture) if isinstance(gesture, Answering) else []
        if book.apply(case, gesture, *answers) is not None:
            # a word that was left before is used, or stale
            if isinstance(gesture, ByHand | PlanMisplaced | PlanGone):
                forget(book.acts, case.trace_id)
            if isinstance(gesture, RequestPending) and gesture.hand.is_command:
                self.drafts.quiet.end(book.cases[case.trace_id].request_path)
        return True

    def _outcome(self, case: Case, gesture: Answering) -> list[Write]:
        """Return the writes that give an answer to the call that waits for it.

        Nothing for a damaged record: the work finds that when it is taken up, and does not go on.
        """
        ports, asking = self.book.ports, case.asking
        assert asking is not None, "only what is asked is answered"
        since = datetime.fromisoformat(asking.asked_at)
        waited_s = max(0.0, (ports.clock.wall() - since).total_seconds())
        with suppress(BodyDamaged):
            return settled(ports, case, outcome_of(gesture), waited_s)
        return []

    def acknowledge_places(self, case: Case, notes: CaseNotes) -> None:
        """Remember where a case's notes are now.

        A renamed note is no gesture, but commands need its place.
        """
        request_path, plan_path = case.request_path, case.plan.path
        # an empty one was archived, or taken away
        if request_path and notes.request is not None and is_utf8(notes.request.path):
            request_path = notes.request.path
        if plan_path and len(notes.plans) == 1 and is_utf8(notes.plans[0].path):
            plan_path = notes.plans[0].path
        asking = case.asking
        if asking is not None and len(notes.asked) == 1 and is_utf8(notes.asked[0].path):
            asking = replace(asking, path=notes.asked[0].path)
        if (request_path, plan_path, asking) != (case.request_path, case.plan.path, case.asking):
            plan = replace(case.plan, path=plan_path)
            moved = replace(case, request_path=request_path, plan=plan, asking=asking)
            self.book.record(Decision(moved, ()))

    def _made(self, case: Case, its: CaseNotes) -> Gesture | None:
        """Return the gesture that a case's notes show, once it is certain."""
        gesture = observe(case, its, plannable())
        if gesture is None:
            return None
        if isinstance(gesture, PlanApproved | ScopeWidened) and not self.intake.all_plans_read:
            return None  # a file that came just now may be another plan of this case
        if isinstance(gesture, ByHand):
            gesture = self._with_hand(case, gesture)
        if isinstance(gesture, Answering):
            return self._answer(case, gesture)
        if isinstance(gesture, LeadsToPlan):
            return self._with_keys(case, gesture)
        if isinstance(gesture, PlanApproved):
            return self._approval(case, gesture)
        if isinstance(gesture, ApprovalRefused) and gesture.why == OUTDATED:
            unusable = self._unusable(case, gesture.note)
            return replace(gesture, why="\n".join(filter(None, [unusable, OUTDATED])))
        if isinstance(gesture, ActiveEdited):
            approved = read_note(self.book.text_to_show(case.approval.digest)).body
            return replace(gesture, approved=approved)
        if isinstance(gesture, RequestGone):
            return gesture if self._is_gone(case, case.request_path) else None
        if isinstance(gesture, PlanGone) or gesture.note is None:
            return gesture if self._is_gone(case, case.plan.path) else None
        return gesture

    def _answer(self, case: Case, gesture: Answering) -> Gesture | None:
        """Return a person's answer; None while somebody may still be writing it."""
        asking, note = case.asking, gesture.note
        assert asking is not None, "only what is asked is answered"
        if note is None:
            return gesture if self._is_gone(case, asking.path, asks=True) else None
        if isinstance(gesture, Answered):
            unfinished = not (gesture.chosen or gesture.hand.is_command)
            return None if unfinished and self.drafts.left_s(note.path) else gesture
        if isinstance(gesture, ScopeWidened):
            try:
                written = self.book.text(asking.amended)
            except BodyDamaged as damaged:
                why = f"The journal is not as it was written: {damaged.what}."
                plan = gesture.plan
                return None if plan is None else ApprovalVoid(EventKind.TEXT_LOST, plan, why)
            return replace(gesture, level=int(self.book.ports.sandbox), written=written)
        return gesture

    def _is_gone(self, case: Case, path: str, *, asks: bool = False) -> bool:
        """Return whether a case's note is gone from its place; `asks` if it asks a person."""
        other = self.intake.notes.get(path)
        if other is None:
            return path in self.intake.gone
        # another note was moved over it, which may be one of the same case
        of_other_sort = other.is_plan if asks else other.asks
        return of_other_sort or other.trace_id not in ("", case.trace_id)

    def _with_hand(self, case: Case, gesture: ByHand) -> ByHand:
        """Return a gesture with its maker, if a person's command left word of exactly this."""
        if gesture.note is None:
            return gesture
        word = word_of(self.book.acts, case.trace_id)
        said = _DECISIONS[gesture.kind], gesture.note.digest
        if word is None or (word.what, word.digest) != said:
            return gesture
        return replace(gesture, hand=Hand(word.who, word.via))

    def _approval(self, case: Case, gesture: PlanApproved) -> PlanApproved | ApprovalRefused:
        """Return an approval with the text that it is compared with, or as a refused one."""
        note = gesture.note
        if why := self._unusable(case, note):
            return ApprovalRefused(note, why, gesture.hand)
        # A person may have put this plan together for a case that had none: then there is no text
        # of the daemon's, and every line is theirs.
        known = case.plan.digest if note.digest != case.plan.digest else ""
        level = int(self.book.ports.sandbox)
        return replace(gesture, level=level, written=self.book.text_to_show(known))

    def _unusable(self, case: Case, plan: NoteSeen) -> str:
        """Return why a plan that can be read cannot be carried out, or an empty string."""
        return self._unpayable(plan) or self._not_there(case, plan)

    def _unpayable(self, note: NoteSeen) -> str:
        """Return why a plan's money limit cannot be kept, or an empty string.

        An unknown price is not guessed.
        """
        ports = self.book.ports
        model = ports.config.model
        plan = plan_of(note.raw)
        price = cost_usd(Usage(), model.name, ports.prices, free=is_free(model.provider))
        limits = Limits(usd=plan.scope.budget_usd)
        return money_problem(limits, model.name, price_known=price is not None) or ""

    def _not_there(self, case: Case, note: NoteSeen) -> str:
        """Return which agent or portal of a plan does not exist, or an empty string."""
        meta, ports = note.meta, self.book.ports
        return "\n".join(
            [
                *unknown_agent(str(meta.get("agent") or case.request.agent), agents(ports.vault)),
                *unknown_portal(str(meta.get("portal") or ""), ports.config.portals),
            ]
        )

    def _with_kept_keys(self, case: Case, gesture: LeadsToPlan) -> Gesture:
        """Return a gesture with the keys of the request as it was read last, if it has any.

        An approval took those of the plan.
        """
        raw = self.book.text_to_show(case.request_digest)
        note = look_at(case.request_path or f"{Folder.REQUESTS}/{case.request_id}.md", raw, "")
        asked = self.requests.read(note) if raw and not note.is_plan else ""
        return gesture if isinstance(asked, str) else replace(gesture, asked=asked)

    def _with_keys(self, case: Case, gesture: LeadsToPlan) -> Gesture | None:
        """Return a gesture that leads to a plan, with the request as it is now.

        None, with the reason in `unplanned`, if the request cannot be used.
        """
        note = gesture.note if isinstance(gesture, RequestChanged) else gesture.request
        if note is None:
            # its request may be a file that was not read yet
            certain = isinstance(gesture, RevisionAsked) or self.intake.is_certain
            return self._with_kept_keys(case, gesture) if certain else None
        asked = self.requests.read(note)
        if not isinstance(asked, str):
            return replace(gesture, asked=asked)
        self.unplanned[note.path] = (
            f"{asked}\nNothing is planned from it until that is fixed; earlier decisions hold."
        )
        if gesture.note.is_plan:
            self.unplanned[gesture.note.path] = (
                "The changes wait for the request: beside it stands what is wrong with "
                f"`{show(note.path)}`."
            )
        return None
