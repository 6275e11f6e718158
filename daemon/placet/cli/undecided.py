"""A person's acts that no daemon took up yet, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from placet.core.life.case import EventKind as Did
from placet.core.life.gestures import (
    Answering,
    ApprovalRefused,
    Gesture,
    PlanGone,
    RequestGone,
    StopAsked,
)
from placet.core.life.intents import Intent
from placet.core.text.names import Folder
from placet.core.wording import rfc3339
from placet.files.scan import Found


@dataclass(frozen=True, slots=True)
class Undecided:
    """Something a person did that the journal does not know, and what follows from it.

    `at` is when, RFC 3339; empty for what left no trace of its time.
    """

    what: str
    follows: str
    at: str

    @property
    def sentence(self) -> str:
        """The act and its time, without a full stop."""
        at = f" at {self.at}" if self.at else ""
        return f"{self.what[:1].upper()}{self.what[1:]}{at}, which was not taken up yet"


def changed_ns(found: Found) -> int:
    """Return the time in ns at which a file's text or its place changed last."""
    # A move keeps the time of the last change of a file's text, and sets the other one.
    return max(found.fingerprint.mtime_ns, found.fingerprint.ctime_ns)


def undecided_of(gesture: Gesture, listed: Mapping[str, Found]) -> Undecided:
    """Return the words for a gesture that shows in notes alone; `listed` has the notes' times."""
    what, follows = _WORDS.get(gesture.kind, ("its notes were changed", "that is looked at"))
    note = None if isinstance(gesture, RequestGone | PlanGone) else gesture.note
    if isinstance(gesture, StopAsked):
        what = gesture.why
    elif isinstance(gesture, Answering) and note is None:
        what = "the note that asks was taken away"
    elif isinstance(gesture, ApprovalRefused):
        follows = f"it is put back: {gesture.why}"
    if gesture.kind in _APPROVALS and note is not None and note.folder is not Folder.ACTIVE:
        what = "its plan was approved in its properties"
    at = ""
    if note is not None and note.path in listed:
        at = rfc3339(datetime.fromtimestamp(changed_ns(listed[note.path]) / 1e9, UTC))
    return Undecided(what, follows, at)


def asked_for(intent: Intent) -> Undecided:
    """Return the words for an intent that the daemon has not performed yet."""
    at = datetime.fromtimestamp(int(intent.id.partition("-")[0]) / 1e9, UTC)
    return Undecided(f"`placet {intent.what}` waits", "it is performed", rfc3339(at))


_APPROVALS = (Did.PLAN_APPROVED, Did.APPROVAL_REFUSED)
_WORDS: Mapping[Did, tuple[str, str]] = {
    Did.REQUEST_EDITED: ("its request was edited", "it is planned again"),
    Did.REQUEST_PENDING: ("a new plan was asked for", "one is written"),
    Did.REQUEST_RETURNED: ("its request was put back", "it is planned"),
    Did.REQUEST_GONE: ("its request was taken away", "it is withdrawn"),
    Did.PLAN_APPROVED: ("its plan was moved to System/Active", "it is approved, and carried out"),
    Did.APPROVAL_REFUSED: ("its plan was moved to System/Active", "it is put back"),
    Did.PLAN_REJECTED: ("its plan was rejected", "that is recorded"),
    Did.REJECTION_EXPLAINED: ("a reason for its rejection was written", "that is recorded"),
    Did.REVISION_ASKED: ("changes of its plan were asked for", "a new revision is written"),
    Did.PLAN_TAKEN_BACK: ("its plan was moved back to Inbox/Plans", "it waits for your decision"),
    Did.PLAN_MISPLACED: ("its plan was moved to Inbox/Requests", "it is moved back to Inbox/Plans"),
    Did.PLAN_EDITED: ("its plan was edited", "the revision begins again from that"),
    Did.PLAN_GONE: ("its plan was taken away", "it is withdrawn"),
    Did.ACTIVE_EDITED: (
        "its approved plan was edited",
        "the approval is void, or, once it runs, the edit has no effect",
    ),
    Did.STOP_ASKED: ("it was stopped", "its mission ends, with a report"),
    Did.ANSWERED: ("what it asks was answered", "it goes on with that"),
    Did.SCOPE_WIDENED: ("its wider scope was approved", "its mission goes on with it"),
    Did.SCOPE_REFUSED: ("its wider scope was rejected", "its mission goes on, and is told so"),
}
