"""Sort notes by owner: those of each case, new requests, unknown plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from placet.case.callout import box_edits_to_text, is_own_box
from placet.case.case import Case, NoteSeen
from placet.case.life_cycle import OPEN, State
from placet.case.notes import ASKS, DRAFT, not_a_word, plan_meaning
from placet.case.question_note import is_question_note
from placet.note.escape import code
from placet.note.paths import Folder, plan_name, show
from placet.plan.differences import diff_callout
from placet.plan.digest import plan_digest

_KNOWN_STATUS = frozenset({*ASKS, "planning", "planned", "completed", "rejected", "error"})
_NO_PLAN = "placet did not write this note (it has no `trace_id`), so it ignores the note."
_STRANGER = {
    Folder.PLANS: _NO_PLAN,
    Folder.ACTIVE: (
        "Nothing runs: this note has no `trace_id`, so it is not a plan that you reviewed. Drop a "
        f"request into `{Folder.REQUESTS}`. When you have read its plan, move the plan here."
    ),
    Folder.REJECTED: _NO_PLAN,
    Folder.QUESTIONS: (
        "placet asks nothing in this note, so it ignores the note. Move it to another folder."
    ),
}
_EMPTY = (
    "This note is empty. If it was a plan, put its text back: `placet show ID --plan`. If not, "
    "delete it."
)
_ANSWERED = (
    "This question is closed, so placet ignores the note. Delete it, or move it to "
    f"`{Folder.ARCHIVE}`."
)
_UNKNOWN = (
    "The journal does not know this question: it was lost, or restored from a backup. Delete this "
    f"note, or move it to `{Folder.ARCHIVE}`. placet asks again for what it needs."
)
_NO_TRACE = (
    "`trace_id` is missing, so placet cannot tell which request this plan answers. Restore it, or "
    "delete `request_id` and `revision` too."
)
_NO_APPROVAL = (
    "This is a request, not a plan: moving it here approves nothing. Move it back to "
    f"`{Folder.REQUESTS}`. You approve its plan."
)


@dataclass(slots=True)
class CaseNotes:
    """The settled notes that belong to one case."""

    request: NoteSeen | None = None
    plans: list[NoteSeen] = field(default_factory=list)
    asked: list[NoteSeen] = field(default_factory=list)  # in which the open question is asked


@dataclass(slots=True)
class NotesByOwner:
    """The notes by owner.

    `notices` are notes that stay as they are, each with the reason for a person.
    """

    of_case: dict[str, CaseNotes] = field(default_factory=dict)
    new: list[NoteSeen] = field(default_factory=list)
    orphans: list[NoteSeen] = field(default_factory=list)
    notices: list[tuple[NoteSeen, str]] = field(default_factory=list)

    def its(self, trace_id: str) -> CaseNotes:
        """Return the notes of a case, to add to."""
        return self.of_case.setdefault(trace_id, CaseNotes())

    def tell(self, note: NoteSeen, why: str) -> None:
        """Add a notice, if there is a reason for one."""
        if why:
            self.notices.append((note, why))


def sort_notes(cases: Mapping[str, Case], notes: Iterable[NoteSeen]) -> NotesByOwner:
    """Sort each note to its case: by its `trace_id`, else by the place where it was seen last.

    The place counts only if no other note has the `trace_id`: an editor may have dropped a note's
    properties, but a note in the old place of a renamed one is something else. If the case has
    ended, the text must be the same, too. `cases` is keyed by trace_id. A note without a case is a
    new request, or an orphan: a plan whose case the journal does not know.
    """
    found = NotesByOwner()
    every = list(notes)
    at_path = _places(cases) | _unstamped(cases, every)
    marked = {(note.trace_id, note.is_plan) for note in every if not note.asks}
    requests: dict[str, list[NoteSeen]] = {}
    strangers: list[NoteSeen] = []
    for note in every:
        owner = cases.get(note.trace_id)
        last = None if note.trace_id else at_path.get(note.path)
        if last is not None and not _is_another(note, last):
            if note.asks:
                _sort_asked(last, note, found)
                continue
            owner = last if (last.trace_id, note.path == last.plan.path) not in marked else None
        if owner is None:
            _sort_unowned(note, found, strangers)
            continue
        if note.asks:
            _sort_asked(owner, note, found)
            continue
        in_plans = note.folder is not Folder.REQUESTS
        at_plan = note.path == owner.plan.path != owner.request_path
        at_plan = at_plan and (in_plans or not note.trace_id)  # else it is the request, renamed
        # one that became unreadable as it was moved no longer says what it is; its place does
        if note.is_plan or at_plan or (in_plans and note.problem):
            found.its(owner.trace_id).plans.append(as_it_counts(owner, note))
            found.tell(note, note.problem)
        else:
            requests.setdefault(owner.trace_id, []).append(note)
            found.tell(note, _NO_APPROVAL if in_plans else note.problem)
    adopted = {note.trace_id for note in found.orphans}
    for note in strangers:
        if note.trace_id in adopted:
            continue
        if note.status in _KNOWN_STATUS:
            found.tell(note, not_asking(note))
        else:  # a slip: whoever opens requests names it with all other problems
            found.new.append(note)
    for trace_id, several in requests.items():
        _choose(cases[trace_id], several, found)
    for its in found.of_case.values():
        _tell_of_several_plans(its.plans, found)
    return found


def copies(new: Sequence[NoteSeen], notes: Iterable[NoteSeen]) -> dict[str, str]:
    """Return by path why new requests are not planned: each looks like a copy of another one.

    `notes` are all notes. A copy has the text of the other one in its folder, and its name and
    some words, which each program chooses.
    """
    same: dict[tuple[str, str], list[PurePosixPath]] = {}
    digests = {note.digest for note in new}
    for note in notes:
        if note.folder is Folder.REQUESTS and note.digest in digests and note.raw.strip():
            place = PurePosixPath(note.path)
            same.setdefault((str(place.parent), note.digest), []).append(place)
    out: dict[str, str] = {}
    for note in new:
        place = PurePosixPath(note.path)
        beside = same.get((str(place.parent), note.digest), [])
        if original := next((one for one in beside if _names_copy(one.stem, place.stem)), None):
            out[note.path] = (
                f"This note has the text and the name of `{show(original.name)}`, so it may be a "
                "copy that a program made. If it is one, delete it. To have it planned as well, "
                "change its text or give it another name."
            )
    return out


def _names_copy(original: str, name: str) -> bool:
    """Return whether `name` is `original` with other words before or behind it."""
    if original == name or original not in name:  # most of them: no pattern is compiled
        return False
    return re.search(rf"(?<![^\W_]){re.escape(original)}(?![^\W_])", name) is not None


def as_it_counts(case: Case, plan: NoteSeen) -> NoteSeen:
    """Return a plan's note with the lines that a person wrote into its box as text.

    A note that has lost a plan's keys still counts as a plan.
    """
    if plan.is_plan and plan.box is not None and is_own_box(plan.box, case):
        return plan  # most plans: nothing is parsed
    raw = box_edits_to_text(plan.raw, case, plan.path)
    if plan.problem or (plan.is_plan and raw == plan.raw):
        return plan
    return replace(plan, raw=raw, digest=plan_digest(raw), meaning=plan_meaning(raw))


def is_by_place(notes: CaseNotes, case: Case) -> bool:
    """Return whether the request's note was matched by its place or its text only.

    A renamed one, with the trace_id, may be unread.
    """
    request = notes.request
    return request is not None and not request.trace_id and request.file != case.unstamped


def _is_another(note: NoteSeen, last: Case) -> bool:
    """Return whether a note in the place of an ended case's request is another request."""
    at_request = note.path == last.request_path
    return at_request and last.state not in OPEN and note.digest != last.request_digest


def _sort_asked(case: Case, note: NoteSeen, found: NotesByOwner) -> None:
    if case.asking is not None and is_question_note(note, case.asking):
        found.its(case.trace_id).asked.append(note)
        found.tell(note, note.problem)
    else:
        found.tell(note, _ANSWERED)


def _unstamped(cases: Mapping[str, Case], notes: Iterable[NoteSeen]) -> dict[str, Case]:
    """Return by path the cases whose requests placet has not stamped yet.

    Such a request is known by its file, then by its place, then by its text: it may have been
    renamed, saved as another file, or copied. Another note in the old place of a renamed
    request belongs to no case.
    """
    waiting = [case for case in cases.values() if case.unstamped is not None]
    if not waiting:
        return {}
    new = [n for n in notes if n.folder is Folder.REQUESTS and not n.trace_id]
    found: dict[str, Case] = {}
    signs: list[tuple[Callable[[NoteSeen], object], Callable[[Case], object]]] = [
        (lambda note: note.file, lambda case: case.unstamped),
        (lambda note: note.path, lambda case: case.request_path),
        (lambda note: note.digest, lambda case: case.request_digest),
    ]
    for of_note, of_case in signs:
        by_sign = {of_note(note): note for note in reversed(new) if note.path not in found}
        left = []
        for case in waiting:
            note = by_sign.pop(of_case(case), None)
            if note is None:
                left.append(case)
            else:
                found[note.path] = case
        waiting = left
    return found


def _places(cases: Mapping[str, Case]) -> dict[str, Case]:
    places: dict[str, Case] = {}
    for case in cases.values():
        at_request = case.state is not State.COMPLETED and case.unstamped is None
        if at_request and case.request_path:
            places[case.request_path] = case
        if case.plan.path:
            places.setdefault(case.plan.path, case)
        if case.asking is not None:
            places.setdefault(case.asking.path, case)
    return places


def _sort_unowned(note: NoteSeen, found: NotesByOwner, strangers: list[NoteSeen]) -> None:
    if note.problem:
        found.tell(note, note.problem)
    elif note.is_plan and note.trace_id:
        found.orphans.append(note)
    elif note.is_plan:
        found.tell(note, _NO_TRACE)
    elif note.asks and note.trace_id:
        found.tell(note, _UNKNOWN)
    elif note.folder is not Folder.REQUESTS:
        found.tell(note, _STRANGER[note.folder] if note.raw.strip() else _EMPTY)
    elif not_asking(note):
        strangers.append(note)
    elif note.status != DRAFT:
        found.new.append(note)


def text_back(ident: str) -> str:
    """Return how the text of an emptied plan is put back for review."""
    return (
        f"Put its text back: `placet show {ident} --plan > {Folder.PLANS}/{plan_name(ident)}`, in "
        "the vault's folder"
    )


def _choose(case: Case, several: list[NoteSeen], found: NotesByOwner) -> None:
    """Take the request's note; the others are copies.

    First comes one among the requests, then the one in the known place.
    """
    chosen = min(
        several,
        key=lambda n: (n.folder is not Folder.REQUESTS, n.path != case.request_path, n.path),
    )
    found.its(case.trace_id).request = chosen
    for note in several:
        if note is not chosen:
            why = (
                f"This note has the same `trace_id` as `{show(chosen.path)}`, so placet treats "
                "it as a copy and ignores it. To make it a separate request, remove its "
                "`trace_id` and `status` lines."
            )
            found.tell(note, why + _difference(chosen, note))


def _tell_of_several_plans(plans: list[NoteSeen], found: NotesByOwner) -> None:
    if len(plans) < 2:
        return
    places = ", ".join(f"`{show(n.path)}`" for n in sorted(plans, key=lambda n: n.path))
    why = (
        f"There are {len(plans)} plans for one request: {places}. placet ignores all of them until "
        "you delete all but one, or move the others out of these folders."
    )
    for note in plans:
        other = plans[0] if note is not plans[0] else plans[1]
        found.tell(note, why + _difference(other, note))


def _difference(one: NoteSeen, other: NoteSeen) -> str:
    if one.raw == other.raw:
        return f"\nIts text is the same as that of `{show(one.path)}`."
    return "\n" + diff_callout(one.raw.decode(errors="replace"), other.raw.decode(errors="replace"))


def not_asking(note: NoteSeen) -> str:
    """Return why a request without a case asks for nothing, or an empty string."""
    if note.status in {*ASKS, DRAFT, "planning"}:
        return ""
    helps = "To ask for a plan, remove the line or write `status: pending`."
    if note.status in _KNOWN_STATUS:
        return (
            f"`status: {note.status}` says that placet has planned this request, but the journal "
            f"does not know it. {helps}"
        )
    wrong = (
        not_a_word(note.meta, "status") or f"placet does not know {code(f'status: {note.status}')}."
    )
    return f"{wrong} {helps}"
