"""Define the events of a case: people's gestures, and the results of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from placet.case.case import SOMEBODY, NoteSeen, Person, Request, Signed
from placet.case.mission_result import Drifted
from placet.errors import End
from placet.note.frontmatter import Frontmatter
from placet.plan.plan import Approved
from placet.plan.scope import Scope

# The gestures: what people do to a case's notes, and what the loop finds about an approved plan.
#
# `note` is the note in which a gesture shows. `request` and `plan` are the case's other notes as
# they are now, None if it is missing or unreadable. `person` made the gesture, in the gestures
# that a command can make. `observe` reads all of that from the notes; a field with a default is
# filled in by the loop, which asks the journal and the settings. `words` name an event in the
# diagram of the life cycle.

BY_MOVE = Person(via="move")
BY_PROPERTY = Person(via="property")


# --- the request


@dataclass(frozen=True, slots=True)
class _RequestChanged:
    """Another text of the request; `asked` is its content."""

    note: NoteSeen
    plan: NoteSeen | None
    asked: Request | None = None


@dataclass(frozen=True, slots=True)
class RequestEdited(_RequestChanged):
    """A person edited the request."""

    words: ClassVar[str] = "request edited"


@dataclass(frozen=True, slots=True)
class RequestReturned(_RequestChanged):
    """A person returned the request."""

    words: ClassVar[str] = "request returned"


@dataclass(frozen=True, slots=True)
class RequestPending:
    """A person's wish for a new plan; `asked` is the content of the request `note`."""

    words: ClassVar[str] = "request set to pending"
    note: NoteSeen
    plan: NoteSeen | None
    person: Person
    asked: Request | None = None


@dataclass(frozen=True, slots=True)
class RequestGone:
    """A request that was taken away; `plan` is its plan's note, None without a usable one."""

    words: ClassVar[str] = "request taken away"
    plan: NoteSeen | None = None


# --- the approval


@dataclass(frozen=True, slots=True)
class PlanApproved:
    """An approval; `approved` is what it binds.

    `level` is how strong the box for commands is. `written` is the daemon's own text, without the
    keys that are stamped, if the approved one is another. `signed` is its verified signature.
    """

    words: ClassVar[str] = "plan moved to Active"
    note: NoteSeen
    request: NoteSeen | None
    approved: Approved
    person: Person
    level: int = 0
    written: bytes = b""
    signed: Signed | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRefused:
    """An approval that does not count, and why.

    Of an older revision: `newest` is the text of the newest one.
    """

    words: ClassVar[str] = "approval that contradicts itself"
    note: NoteSeen
    why: str
    person: Person
    newest: bytes = b""


@dataclass(frozen=True, slots=True)
class ActiveEdited:
    """An edit in System/Active; `approved` is the body that was approved."""

    words: ClassVar[str] = "approved text changed"
    note: NoteSeen
    approved: str = ""


@dataclass(frozen=True, slots=True)
class _ApprovalVoid:
    """A finding of the loop's after which an approval does not hold; `why` is a sentence."""

    note: NoteSeen
    why: str


@dataclass(frozen=True, slots=True)
class SandboxWeakened(_ApprovalVoid):
    """The sandbox is weaker than the one that the plan was approved for."""

    words: ClassVar[str] = "sandbox weaker than it was when the plan was approved"


@dataclass(frozen=True, slots=True)
class SignatureVoid(_ApprovalVoid):
    """What was signed does not hold now, or nothing was signed and it has to be."""

    words: ClassVar[str] = "signature missing, or of other terms"


@dataclass(frozen=True, slots=True)
class TextLost(_ApprovalVoid):
    """The journal has lost the approved text, or a part of the record."""

    words: ClassVar[str] = "approved text or record damaged in the journal"


@dataclass(frozen=True, slots=True)
class ModelChanged(_ApprovalVoid):
    """The mission would use another model, or other notes of its agent, than the plan.

    `model` and `instructions` are those that the next approval is for; empty if unchanged.
    """

    words: ClassVar[str] = "model or instructions other than those that the plan was written with"
    model: str = ""
    instructions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """The files that changed under a plan since it was written."""

    words: ClassVar[str] = "files changed under the plan"
    note: NoteSeen
    drift: Drifted


# --- other decisions on a plan


@dataclass(frozen=True, slots=True)
class PlanRejected:
    """A person rejected the plan."""

    words: ClassVar[str] = "plan moved to Rejected"
    note: NoteSeen
    request: NoteSeen | None
    person: Person


@dataclass(frozen=True, slots=True)
class RevisionAsked:
    """A wish for changes; `asked` is the request's content, None if no text of it is left."""

    words: ClassVar[str] = "changes asked for"
    note: NoteSeen
    request: NoteSeen | None
    person: Person
    asked: Request | None = None


@dataclass(frozen=True, slots=True)
class PlanTakenBack:
    """A plan that is to be reviewed again, after its approval or its end."""

    words: ClassVar[str] = "plan moved back to Plans"
    note: NoteSeen
    request: NoteSeen | None
    person: Person


@dataclass(frozen=True, slots=True)
class RejectionExplained:
    """A reason that was written into a rejected plan."""

    words: ClassVar[str] = "reason for the rejection given"
    note: NoteSeen


@dataclass(frozen=True, slots=True)
class PlanEdited:
    """An edit of the plan while it is revised."""

    words: ClassVar[str] = "plan edited while it is revised"
    note: NoteSeen
    person: Person = SOMEBODY


@dataclass(frozen=True, slots=True)
class PlanSuperseded:
    """An older revision is in Inbox/Plans instead of the newest, whose text is `newest`.

    A person saved the older one while placet was writing the newest.
    """

    words: ClassVar[str] = "older revision in the place of the newest"
    note: NoteSeen
    newest: bytes = b""


@dataclass(frozen=True, slots=True)
class BoxStale:
    """A plan's box that is not the one that placet would write now."""

    words: ClassVar[str] = "box that says something else"
    note: NoteSeen


@dataclass(frozen=True, slots=True)
class PlanGone:
    """A plan that was taken away."""

    words: ClassVar[str] = "plan taken away"
    request: NoteSeen | None


@dataclass(frozen=True, slots=True)
class StopAsked:
    """An order to stop the mission; `note` is its plan, None if it was taken away."""

    words: ClassVar[str] = "active plan taken away during the mission"
    note: NoteSeen | None
    why: str
    person: Person


# --- answers


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer; `chosen` is the number of the option, 0 for a text.

    If the question's note was removed, the answer is empty and `note` is None.
    """

    words: ClassVar[str] = "question answered"
    note: NoteSeen | None
    text: str
    chosen: int
    person: Person


@dataclass(frozen=True, slots=True)
class ScopeWidened:
    """A yes to a wider scope; `written` is the plan with it, all else as in `PlanApproved`."""

    words: ClassVar[str] = "wider scope approved"
    note: NoteSeen
    plan: NoteSeen | None
    person: Person
    level: int = 0
    written: bytes = b""
    signed: Signed | None = None


@dataclass(frozen=True, slots=True)
class ScopeRefused:
    """A person rejected a wider scope; `note` is None if its note was removed."""

    words: ClassVar[str] = "wider scope rejected"
    note: NoteSeen | None
    why: str
    person: Person


RequestChanged = RequestEdited | RequestReturned
ApprovalVoid = SandboxWeakened | ModelChanged | SignatureVoid | TextLost
LeadsToPlan = RequestChanged | RequestPending | RevisionAsked
"""A plan is written after these."""
Answering = Answered | ScopeWidened | ScopeRefused
"""After these the work that asked resumes where it was."""
Approving = PlanApproved | ScopeWidened
"""After these a text holds; where approvals are signed, they need a signature."""
ByHand = (
    RequestPending
    | PlanApproved
    | ApprovalRefused
    | PlanRejected
    | RevisionAsked
    | PlanTakenBack
    | StopAsked
    | PlanEdited
    | Answering
)
"""A person's command can make these too."""
Gesture = (
    LeadsToPlan
    | ByHand
    | RequestGone
    | ActiveEdited
    | ApprovalVoid
    | FilesChanged
    | RejectionExplained
    | PlanSuperseded
    | BoxStale
    | PlanGone
)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A planner's result. The fields without a sentence are as in `KnownPlan`."""

    words: ClassVar[str] = "plan drafted"
    generation: int
    text: bytes
    """The whole plan note."""
    revision: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the journal."""
    base_branch: str = ""
    based_on: tuple[tuple[str, str], ...] = ()
    base_commit: str = ""
    uncommitted: int = 0
    about_worktree: tuple[str, ...] = ()
    day_usd: Decimal = Decimal(0)
    command_notes: tuple[str, ...] = ()
    model: str = ""
    instructions: tuple[tuple[str, str], ...] = ()
    names_tools: bool = False
    note: NoteSeen | None = None
    """The plan in the new one's place, read at this moment, or None."""


@dataclass(frozen=True, slots=True)
class PlanningFailed:
    """A planner's failure.

    `reason` is a sentence for a person, `iterations` counts the model's turns.
    """

    words: ClassVar[str] = "planning failed"
    generation: int
    reason: str
    error_type: str
    end: End = End.INTERNAL_ERROR
    iterations: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of the model's that only a person can answer; its work waits until then."""

    words: ClassVar[str] = "a person asked for an answer"
    generation: int
    call: str = ""
    """The call's key in the record."""
    question: str = ""
    options: tuple[str, ...] = ()
    why: str = ""
    wider: Scope | None = None
    """The permissions that are asked for; None for a question."""
    approved: bytes = b""
    """The plan's text as it is approved now; empty for a question."""
    first: bytes = b""
    """The plan's text as it was approved first; empty for a question."""
    frontmatter: Frontmatter = Frontmatter.YAML
    """That of the vault's notes."""


@dataclass(frozen=True, slots=True)
class Started:
    """The start of a mission. `facts` go into the journal."""

    words: ClassVar[str] = "mission started"
    generation: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _MissionEnded:
    """A mission's result: the whole report note, and `facts` for the journal.

    `pictures` are the files that the report shows, PNGs by their paths.
    """

    generation: int
    report: bytes
    report_path: str
    facts: Mapping[str, Any]
    branch: str = ""
    pictures: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class MissionCompleted(_MissionEnded):
    """The mission carried out its whole plan."""

    words: ClassVar[str] = "mission completed"
    doubts: tuple[str, ...] = ()
    """As in `LastOutcome`."""
    changed_tests: str = ""
    """As in `LastOutcome`."""


@dataclass(frozen=True, slots=True)
class MissionFailed(_MissionEnded):
    """The mission ended early.

    `reason` is a sentence for a person, `detail` the error's own words. With `drift` the plan goes
    back to review instead, if its note is still in System/Active.
    """

    words: ClassVar[str] = "mission failed"
    reason: str = ""
    detail: str = ""
    drift: Drifted | None = None


MissionEnded = MissionCompleted | MissionFailed
Event = Gesture | Drafted | PlanningFailed | Asked | Started | MissionEnded
