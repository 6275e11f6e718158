"""From a case's notes to a gesture that can be decided.

It has who made it, and what it needs from outside the notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placet.agent.prompts import agents, plan_of, plannable
from placet.core.life.approval import OUTDATED
from placet.core.life.case import Case, EventKind
from placet.core.life.commands import Decision
from placet.core.life.events import Gesture, Hand
from placet.core.life.observe import observe
from placet.core.life.request import unknown_agent, unknown_portal
from placet.core.life.sorting import CaseNotes
from placet.core.text.names import is_utf8, show
from placet.core.text.note import read_note
from placet.core.turn.budget import Limits, money_problem
from placet.core.turn.price import cost_usd
from placet.core.turn.talk import Usage
from placet.host.acts import forget, word_of
from placet.loop.casebook import Casebook
from placet.loop.intake import Intake
from placet.loop.requests import Drafts, Requests

_DECISIONS: Mapping[EventKind, str] = {
    EventKind.PLAN_APPROVED: "approve",
    EventKind.APPROVAL_REFUSED: "approve",
    EventKind.PLAN_REJECTED: "reject",
    EventKind.REVISION_ASKED: "revise",
    EventKind.REQUEST_PENDING: "retry",
}
# After these a word that was left before is used, or stale.
_OVERTAKES = frozenset(
    {
        *_DECISIONS,
        EventKind.PLAN_TAKEN_BACK,
        EventKind.PLAN_MISPLACED,
        EventKind.PLAN_GONE,
        EventKind.STOP_ASKED,
    }
)
_PLANNED_FROM = frozenset(
    {
        EventKind.REQUEST_EDITED,
        EventKind.REQUEST_PENDING,
        EventKind.REQUEST_RETURNED,
        EventKind.REVISION_ASKED,
    }
)


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
        if book.apply(case, gesture) is not None:
            if gesture.kind in _OVERTAKES:
                forget(book.acts, case.trace_id)
            if gesture.kind is EventKind.REQUEST_PENDING and gesture.hand.via == "cli":
                # no editor has it open
                self.drafts.quiet.end(book.cases[case.trace_id].request_path)
        return True

    def acknowledge_places(self, case: Case, notes: CaseNotes) -> None:
        """Remember where a case's notes are now.

        A renamed note is no gesture, but commands need its place.
        """
        request_path, plan_path = case.request_path, case.plan_path
        # an empty one was archived, or taken away
        if request_path and notes.request is not None and is_utf8(notes.request.path):
            request_path = notes.request.path
        if plan_path and len(notes.plans) == 1 and is_utf8(notes.plans[0].path):
            plan_path = notes.plans[0].path
        if (request_path, plan_path) != (case.request_path, case.plan_path):
            moved = replace(case, request_path=request_path, plan_path=plan_path)
            self.book.record(Decision(moved, ()))

    def _made(self, case: Case, its: CaseNotes) -> Gesture | None:
        """Return the gesture that a case's notes show, once it is certain."""
        gesture = observe(case, its, plannable())
        if gesture is None:
            return None
        if gesture.kind is EventKind.PLAN_APPROVED and not self.intake.all_plans_read:
            return None  # a file that came just now may be another plan of this case
        gesture = self._with_hand(case, gesture)
        if gesture.kind is EventKind.PLAN_APPROVED or gesture.why == OUTDATED:
            return self._approval(case, gesture)
        if gesture.kind in _PLANNED_FROM:
            return self._with_keys(gesture)
        if gesture.kind is EventKind.ACTIVE_EDITED:
            approved = read_note(self.book.text_to_show(case.approved_digest)).body
            return replace(gesture, approved_text=approved)
        return gesture if gesture.note is not None or self._is_gone(case, gesture) else None

    def _is_gone(self, case: Case, gesture: Gesture) -> bool:
        gone = case.request_path if gesture.kind is EventKind.REQUEST_GONE else case.plan_path
        other = self.intake.notes.get(gone)
        return gone in self.intake.gone or (
            other is not None and other.trace_id not in ("", case.trace_id)
        )

    def _with_hand(self, case: Case, gesture: Gesture) -> Gesture:
        """Return a gesture with its maker, if a person's command left word of exactly this."""
        if (what := _DECISIONS.get(gesture.kind)) is None or gesture.note is None:
            return gesture
        word = word_of(self.book.acts, case.trace_id)
        if word is None or (word.what, word.digest) != (what, gesture.note.digest):
            return gesture
        return replace(gesture, hand=Hand(word.who, word.via))

    def _approval(self, case: Case, gesture: Gesture) -> Gesture:
        """Return an approval with the text that it is compared with, or as a refused one."""
        assert gesture.note is not None
        found = [self._unpayable(gesture) or self._not_there(case, gesture), gesture.why]
        if why := "\n".join(filter(None, found)):
            return replace(gesture, kind=EventKind.APPROVAL_REFUSED, why=why)
        # A person may have put this plan together for a case that had none: then there is no text
        # of the daemon's, and every line is theirs.
        known = case.plan_digest if gesture.note.digest != case.plan_digest else ""
        level = int(self.book.ports.sandbox)
        return replace(gesture, level=level, written=self.book.text_to_show(known))

    def _unpayable(self, gesture: Gesture) -> str:
        """Return why a plan's money limit cannot be kept, or an empty string.

        An unknown price is not guessed.
        """
        assert gesture.note is not None
        ports = self.book.ports
        model = ports.config.model
        plan = plan_of(gesture.note.raw)
        price = cost_usd(Usage(), model.name, ports.prices, free=model.provider == "scripted")
        limits = Limits(usd=plan.scope.budget_usd)
        return money_problem(limits, model.name, price_known=price is not None) or ""

    def _not_there(self, case: Case, gesture: Gesture) -> str:
        """Return which agent or portal of a plan does not exist, or an empty string."""
        assert gesture.note is not None
        meta, ports = gesture.note.meta, self.book.ports
        return "\n".join(
            [
                *unknown_agent(str(meta.get("agent") or case.agent), agents(ports.vault)),
                *unknown_portal(str(meta.get("portal") or ""), ports.config.portals),
            ]
        )

    def _with_keys(self, gesture: Gesture) -> Gesture | None:
        """Return a gesture that leads to a plan, with the request as it is now.

        None, with the reason in `unplanned`, if the request cannot be used.
        """
        note = gesture.request
        if note is None:
            # its request may be a file that was not read yet
            certain = gesture.kind is EventKind.REVISION_ASKED or self.intake.is_certain
            return gesture if certain else None
        asked = self.requests.read(note)
        if not isinstance(asked, str):
            return replace(gesture, asked=asked)
        self.unplanned[note.path] = (
            f"{asked}\nNothing is planned from it until that is fixed; earlier decisions hold."
        )
        if gesture.note is not None and gesture.note.is_plan:
            self.unplanned[gesture.note.path] = (
                "The changes wait for the request: beside it stands what is wrong with "
                f"`{show(note.path)}`."
            )
        return None
