"""Turn a command's intent into the change of notes that the same gesture makes by hand.

An intent is bound to what its person saw: a note with its place and digest, and the case's state
and generation. If any of these is another by now, the note wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from placet.case.case import Case, NoteSeen, Person
from placet.case.commands import Decision, Edit, Move
from placet.case.decision_builder import plan_path
from placet.case.events import (
    Answered,
    ApprovalRefused,
    Gesture,
    PlanApproved,
    PlanEdited,
    PlanRejected,
    PlanTakenBack,
    RequestPending,
    RevisionAsked,
    ScopeRefused,
    ScopeWidened,
    StopAsked,
)
from placet.case.explain import state_sentence
from placet.case.notes import inspect_note
from placet.case.question_note import answer_in, shown_digest, with_answer
from placet.case.sorting import CaseNotes
from placet.case.warnings import missing_keys
from placet.codec import Stored, sha256
from placet.note.frontmatter import UnsafeEdit, read_note, stamp
from placet.note.paths import Folder, show
from placet.plan.comments import with_comments
from placet.plan.left_out import Ticked, other_tick, with_tick

What = Literal[
    "approve",
    "reject",
    "revise",
    "comment",
    "tick",
    "stop",
    "answer",
    "retry",
    "merge",
    "undo",
    "drop",
]
EDITS = ("comment", "tick")
"""Change a plan and decide nothing. Several may wait for one case."""
CLAIMS = ("merge", "undo", "drop")
"""Done by the command itself; the intent only says who did it. `digest` is a commit."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What a person asked for by a command."""

    id: str
    what: What
    trace_id: str
    path: str
    """The note that they saw."""
    digest: str
    """Its digest then; a commit in an intent of `CLAIMS`."""
    state: str = ""
    """The case's state that they saw."""
    generation: int = 0
    """The case's generation that they saw."""
    texts: tuple[str, ...] = ()
    """The reason, the answer, the comments, or the numbers of steps."""
    via: Literal["cli", "board"] = "cli"
    name: str = ""
    """Name of a login of the board."""
    who: str = ""
    """Owner of the intent's file; what the file says there is ignored."""
    signature: str = ""
    """Of an approval: the signature of `Case.to_sign`."""

    @property
    def person(self) -> Person:
        """The maker, for a gesture."""
        return Person(self.who, self.via, self.name if self.name != self.who else "")


INTENT_JSON: Stored[Intent] = Stored(Intent)

WANTED: Mapping[str, tuple[type[Gesture], ...]] = {
    "approve": (PlanApproved, ApprovalRefused, ScopeWidened),
    "reject": (PlanRejected, ScopeRefused),
    "revise": (RevisionAsked, PlanEdited),
    "stop": (StopAsked, PlanTakenBack),
    "answer": (Answered,),
    "retry": (RequestPending,),
}
"""The gestures that a decision can be."""


class OutdatedError(Exception):
    """An intent that cannot be performed; the text says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of an intent: the notes after it, and the commands that write it.

    `texts` are named by the commands.
    """

    notes: CaseNotes
    commands: tuple[Edit | Move, ...] = ()
    texts: tuple[bytes, ...] = ()

    def before(self, decision: Decision) -> Decision:
        """Return a decision on the changed notes that writes the change first."""
        return replace(
            decision,
            commands=(*self.commands, *decision.commands),
            texts=(*self.texts, *decision.texts),
        )


def change_of(case: Case, intent: Intent, notes: CaseNotes, at: str) -> Change:
    """Return the change that an intent makes to a case's notes; `at` is the local time.

    Raises OutdatedError if the person saw something else than what is there now.
    """
    _must_be_current(case, intent)
    note = _its_note(case, intent, notes)
    try:
        return _changed(case, intent, notes, note, at)
    except UnsafeEdit as error:
        raise OutdatedError(f"{show(note.path)}: {error}") from error


def edits_of(
    case: Case, intents: Sequence[Intent], notes: CaseNotes, at: str
) -> Iterator[tuple[Intent, Change | OutdatedError]]:
    """Give for each comment or tick what it changes, or why it cannot be performed.

    They were made on the same text, so that two ticks of one step mean the same. Each change is
    that of the plan as the one before it leaves it.
    """
    now = notes
    for intent in intents:
        try:
            change_of(case, intent, notes, at)
            change = _small_edit(intent, now, notes.plans[0], at)
        except OutdatedError as outdated:
            yield intent, outdated
        else:
            now = change.notes
            yield intent, change


def _must_be_current(case: Case, intent: Intent) -> None:
    # A mission may begin, or ask something, while its person asks to stop it.
    same_state = intent.what == "stop" or intent.state == case.state.value
    if not same_state or intent.generation != case.generation:
        raise OutdatedError(f"{state_sentence(case)} now. Nothing was changed.")


def _its_note(case: Case, intent: Intent, notes: CaseNotes) -> NoteSeen:
    """Return the note that an intent is about."""
    found: Sequence[NoteSeen] = notes.plans
    if intent.what == "retry":
        found = [notes.request] if notes.request is not None else []
    elif _is_asked(case, intent):
        found = notes.asked
    if len(found) > 1:
        places = ", ".join(sorted(show(note.path) for note in found))
        raise OutdatedError(
            f"There are {len(found)} notes for {case.request_id}: {places}. Delete all but one."
        )
    if not found or found[0].path != intent.path:
        raise OutdatedError(f"{show(intent.path)} was moved meanwhile. Nothing was changed.")
    note = found[0]
    if note.problem:
        raise OutdatedError(f"{show(note.path)}: {note.problem}")
    if note.digest != intent.digest:
        raise OutdatedError(f"{show(note.path)} was changed since you read it.")
    return note


def _is_asked(case: Case, intent: Intent) -> bool:
    asking = case.asking
    return asking is not None and (intent.what == "answer" or intent.path == asking.path)


def _changed(case: Case, intent: Intent, notes: CaseNotes, note: NoteSeen, at: str) -> Change:
    texts = intent.texts
    if intent.what == "stop":
        home = plan_path(case)
        moved = replace(note, path=home, folder=Folder.PLANS)
        return Change(replace(notes, plans=[moved]), (Move(note.path, home),))
    if intent.what == "answer":
        assert case.asking is not None, "_its_note found the note that asks"
        options = case.asking.options
        existing = answer_in(note, options)
        if existing.text or existing.problem:
            raise OutdatedError(existing.problem or f"{show(note.path)} has an answer already.")
        change = _edited(notes, note, intent, at, with_answer(note.raw, texts[0], options))
        if not answer_in(change.notes.asked[0], options).text:
            raise OutdatedError("Nothing of this answer would be seen in the note.")
        return change
    if _is_asked(case, intent):
        return _of_wider_scope(case, intent, notes, note, at)
    if intent.what == "retry":
        text = with_comments(note.raw, texts, intent.who, at)
        return _edited(notes, note, intent, at, text, status="pending")
    if why := missing_keys(case, note):
        raise OutdatedError(f"{show(note.path)}: {why}")
    if intent.what in EDITS:
        return _small_edit(intent, notes, note, at)
    if intent.what == "reject":
        return _edited(
            notes, note, intent, at, note.raw, decision="reject", rejection_reason=texts[0]
        )
    text = with_comments(note.raw, texts, intent.who, at)
    return _edited(notes, note, intent, at, text, decision=intent.what)


def _of_wider_scope(
    case: Case, intent: Intent, notes: CaseNotes, note: NoteSeen, at: str
) -> Change:
    """Return the decision on a wider scope."""
    assert case.asking is not None, "_its_note found the note that asks"
    if intent.what == "approve":
        if shown_digest(note.raw) != case.asking.digest:
            raise OutdatedError(f"{show(note.path)} was edited, so it approves nothing.")
        return _edited(notes, note, intent, at, note.raw, decision="approve")
    if intent.what != "reject":
        raise OutdatedError("A wider scope can only be approved or rejected.")
    text = stamp(note.raw, {"rejection_reason": intent.texts[0]})
    return _edited(notes, note, intent, at, text, decision="reject")


def _small_edit(intent: Intent, notes: CaseNotes, read: NoteSeen, at: str) -> Change:
    """Return the change of a comment, or a tick, in the plan that its person read as `read`."""
    (plan,) = notes.plans
    if intent.what == "comment":
        text = with_comments(plan.raw, intent.texts, intent.who, at)
        return _edited(notes, plan, intent, at, text)
    body, steps = read_note(read.raw).body, list[Ticked]()
    for number in intent.texts:
        try:
            steps.append(other_tick(body, int(number)))
        except ValueError as error:
            raise OutdatedError(f"Step {number}: {error}.") from error
    return _edited(notes, plan, intent, at, with_ticks(plan.raw, steps), tuple(steps))


def with_ticks(raw: bytes, steps: Sequence[Ticked]) -> bytes:
    """Return a plan's note with these steps ticked, or unticked, as they say.

    Raises ValueError for a step that it does not have.
    """
    body = text = read_note(raw).body
    for step in steps:
        text = with_tick(text, step)
    return raw[: len(raw) - len(body.encode())] + text.encode()


def _edited(
    notes: CaseNotes,
    note: NoteSeen,
    intent: Intent,
    at: str,
    text: bytes,
    steps: tuple[Ticked, ...] = (),
    **decision: str,
) -> Change:
    """Return a note with another text; `decision` is only seen, as the daemon stamps it itself."""
    seen = inspect_note(note.path, stamp(text, decision) if decision else text, note.owner)
    if seen.problem:
        raise OutdatedError(f"{show(note.path)}: {seen.problem}")
    commands: tuple[Edit, ...] = ()
    if text != note.raw:
        comments = intent.texts if intent.what in ("approve", "revise", "comment", "retry") else ()
        edit = Edit(note.path, sha256(note.raw), sha256(text), comments, intent.who, at, steps)
        if intent.what in EDITS:
            person = intent.person
            edit = replace(edit, intent=intent.id, via=person.via, login=person.name)
        commands = (edit,)
    texts = (text,) if commands else ()
    if note is notes.request:
        return Change(replace(notes, request=seen), commands, texts)
    if note in notes.asked:
        return Change(replace(notes, asked=[seen]), commands, texts)
    return Change(replace(notes, plans=[seen]), commands, texts)
