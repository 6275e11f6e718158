"""Define the events of a case: people's gestures, and the results of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from placet.case.case import SOMEBODY, NoteSeen, Person, Request
from placet.case.life_cycle import EventKind
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
# filled in by the loop, which asks the journal and the settings.

BY_MOVE = Person(via="move")
BY_PROPERTY = Person(via="property")


# --- the request


@dataclass(frozen=True, slots=True)
class RequestChanged:
    """An edit of the request, or its return; `asked` is its content."""

    kind: Literal[EventKind.REQUEST_EDITED, EventKind.REQUEST_RETURNED]
    note: NoteSeen
    plan: NoteSeen | None
    asked: Request | None = None


@dataclass(frozen=True, slots=True)
class RequestPending:
    """A person's wish for a new plan; `asked` is the content of the request `note`."""

    note: NoteSeen
    plan: NoteSeen | None
    person: Person
    asked: Request | None = None
    kind: Literal[EventKind.REQUEST_PENDING] = EventKind.REQUEST_PENDING


@dataclass(frozen=True, slots=True)
class RequestGone:
    """A request that was taken away; `plan` is its plan's note, None without a usable one."""

    plan: NoteSeen | None = None
    kind: Literal[EventKind.REQUEST_GONE] = EventKind.REQUEST_GONE


# --- the approval


@dataclass(frozen=True, slots=True)
class PlanApproved:
    """An approval; `approved` is what it binds.

    `level` is how strong the box for commands is. `written` is the daemon's own text, without the
    keys that are stamped, if the approved one is another.
    """

    note: NoteSeen
    request: NoteSeen | None
    approved: Approved
    person: Person
    level: int = 0
    written: bytes = b""
    kind: Literal[EventKind.PLAN_APPROVED] = EventKind.PLAN_APPROVED


@dataclass(frozen=True, slots=True)
class ApprovalRefused:
    """An approval that does not count, and why.

    Of an older revision: `newest` is the text of the newest one.
    """

    note: NoteSeen
    why: str
    person: Person
    newest: bytes = b""
    kind: Literal[EventKind.APPROVAL_REFUSED] = EventKind.APPROVAL_REFUSED


@dataclass(frozen=True, slots=True)
class ActiveEdited:
    """An edit in System/Active; `approved` is the body that was approved."""

    note: NoteSeen
    approved: str = ""
    kind: Literal[EventKind.ACTIVE_EDITED] = EventKind.ACTIVE_EDITED


VoidKind = Literal[EventKind.WALL_WEAKENED, EventKind.MODEL_CHANGED, EventKind.TEXT_LOST]


@dataclass(frozen=True, slots=True)
class ApprovalVoid:
    """A finding of the loop's, in a sentence, after which an approval does not hold.

    `model` and `instructions` are those that the next approval is for; empty if unchanged.
    """

    kind: VoidKind
    note: NoteSeen
    why: str
    model: str = ""
    instructions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """The files that changed under a plan since it was written."""

    note: NoteSeen
    drift: Drifted
    kind: Literal[EventKind.FILES_CHANGED] = EventKind.FILES_CHANGED


# --- other decisions on a plan


@dataclass(frozen=True, slots=True)
class PlanRejected:
    """A person rejected the plan."""

    note: NoteSeen
    request: NoteSeen | None
    person: Person
    kind: Literal[EventKind.PLAN_REJECTED] = EventKind.PLAN_REJECTED


@dataclass(frozen=True, slots=True)
class RevisionAsked:
    """A wish for changes; `asked` is the request's content, None if no text of it is left."""

    note: NoteSeen
    request: NoteSeen | None
    person: Person
    asked: Request | None = None
    kind: Literal[EventKind.REVISION_ASKED] = EventKind.REVISION_ASKED


@dataclass(frozen=True, slots=True)
class PlanTakenBack:
    """A plan that is to be reviewed again, after its approval or its end."""

    note: NoteSeen
    request: NoteSeen | None
    person: Person
    kind: Literal[EventKind.PLAN_TAKEN_BACK] = EventKind.PLAN_TAKEN_BACK


@dataclass(frozen=True, slots=True)
class RejectionExplained:
    """A reason that was written into a rejected plan."""

    note: NoteSeen
    kind: Literal[EventKind.REJECTION_EXPLAINED] = EventKind.REJECTION_EXPLAINED


@dataclass(frozen=True, slots=True)
class PlanEdited:
    """An edit of the plan while it is revised."""

    note: NoteSeen
    person: Person = SOMEBODY
    kind: Literal[EventKind.PLAN_EDITED] = EventKind.PLAN_EDITED


@dataclass(frozen=True, slots=True)
class PlanSuperseded:
    """An older revision is in Inbox/Plans instead of the newest, whose text is `newest`.

    A person saved the older one while placet was writing the newest.
    """

    note: NoteSeen
    newest: bytes = b""
    kind: Literal[EventKind.PLAN_SUPERSEDED] = EventKind.PLAN_SUPERSEDED


@dataclass(frozen=True, slots=True)
class BoxStale:
    """A plan's box that is not the one that placet would write now."""

    note: NoteSeen
    kind: Literal[EventKind.BOX_STALE] = EventKind.BOX_STALE


@dataclass(frozen=True, slots=True)
class PlanGone:
    """A plan that was taken away."""

    request: NoteSeen | None
    kind: Literal[EventKind.PLAN_GONE] = EventKind.PLAN_GONE


@dataclass(frozen=True, slots=True)
class StopAsked:
    """An order to stop the mission; `note` is its plan, None if it was taken away."""

    note: NoteSeen | None
    why: str
    person: Person
    kind: Literal[EventKind.STOP_ASKED] = EventKind.STOP_ASKED


# --- answers


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer; `chosen` is the number of the option, 0 for a text.

    If the question's note was removed, the answer is empty and `note` is None.
    """

    note: NoteSeen | None
    text: str
    chosen: int
    person: Person
    kind: Literal[EventKind.ANSWERED] = EventKind.ANSWERED


@dataclass(frozen=True, slots=True)
class ScopeWidened:
    """A yes to a wider scope; `level` is as in `PlanApproved`, `written` is the plan with it."""

    note: NoteSeen
    plan: NoteSeen | None
    person: Person
    level: int = 0
    written: bytes = b""
    kind: Literal[EventKind.SCOPE_WIDENED] = EventKind.SCOPE_WIDENED


@dataclass(frozen=True, slots=True)
class ScopeRefused:
    """A person rejected a wider scope; `note` is None if its note was removed."""

    note: NoteSeen | None
    why: str
    person: Person
    kind: Literal[EventKind.SCOPE_REFUSED] = EventKind.SCOPE_REFUSED


LeadsToPlan = RequestChanged | RequestPending | RevisionAsked
"""A plan is written after these."""
Answering = Answered | ScopeWidened | ScopeRefused
"""These answer what work asks; their kinds are `ANSWERS`."""
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
    """A planner's result: the whole plan note.

    `facts` go into the journal, `about_worktree` are the facts of `KnownPlan`. `note` is the plan
    in the new one's place, read at this moment, or None. The other fields are as in `KnownPlan`.
    """

    generation: int
    text: bytes
    revision: int
    kind: Literal[EventKind.PLAN_DRAFTED] = EventKind.PLAN_DRAFTED
    facts: Mapping[str, Any] = field(default_factory=dict)
    base_branch: str = ""
    based_on: tuple[tuple[str, str], ...] = ()
    base_commit: str = ""
    uncommitted: int = 0
    about_worktree: tuple[str, ...] = ()
    day_usd: Decimal = Decimal(0)
    model: str = ""
    instructions: tuple[tuple[str, str], ...] = ()
    names_tools: bool = False
    note: NoteSeen | None = None


@dataclass(frozen=True, slots=True)
class PlanningFailed:
    """A planner's failure.

    `reason` is a sentence for a person, `iterations` counts the model's turns.
    """

    generation: int
    reason: str
    error_type: str
    kind: Literal[EventKind.PLANNING_FAILED] = EventKind.PLANNING_FAILED
    end: End = End.INTERNAL_ERROR
    iterations: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of the model's that only a person can answer; its work waits until then.

    `call` is the call's key in the record. `wider` are the permissions that are asked for, None for
    a question; then `approved` is the plan's text as it is approved now, and `first` as it was
    approved first. `frontmatter` is that of the vault's notes.
    """

    generation: int
    call: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    why: str = ""
    wider: Scope | None = None
    approved: bytes = b""
    first: bytes = b""
    frontmatter: Frontmatter = Frontmatter.YAML
    kind: Literal[EventKind.PERSON_ASKED] = EventKind.PERSON_ASKED


@dataclass(frozen=True, slots=True)
class Started:
    """The start of a mission. `facts` go into the journal."""

    generation: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal[EventKind.MISSION_STARTED] = EventKind.MISSION_STARTED


@dataclass(frozen=True, slots=True)
class MissionEnded:
    """A mission's result: the whole report note, and `facts` for the journal.

    `pictures` are the files that the report shows, PNGs by their paths.
    `reason` is a sentence for a person, `detail` the error's own words. With `drift` the plan goes
    back to review instead, if its note is still in System/Active.
    """

    generation: int
    kind: Literal[EventKind.MISSION_COMPLETED, EventKind.MISSION_FAILED]
    report: bytes
    report_path: str
    facts: Mapping[str, Any]
    reason: str = ""
    branch: str = ""
    drift: Drifted | None = None
    detail: str = ""
    pictures: tuple[tuple[str, bytes], ...] = ()


Event = Gesture | Drafted | PlanningFailed | Asked | Started | MissionEnded
