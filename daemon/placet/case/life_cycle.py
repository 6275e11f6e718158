"""Name the states of a case, what leads from one to another, and the statuses of its notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a case; `TABLE` has the transitions."""

    PLANNING = "planning"  # the agent writes the first plan, or a new one after a failure
    REVIEW = "review"  # a plan in Inbox/Plans waits for a person
    # the agent answers comments, or an edit of the request, with a new revision
    REVISING = "revising"
    APPROVED = "approved"  # a person moved the plan to System/Active; its mission has not begun
    RUNNING = "running"  # the plan is leased and runs
    ASKING = "asking"  # work waits until a person has answered it
    COMPLETED = "completed"
    FAILED = "failed"  # planning or the mission failed; inert until a person acts
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"  # a person took the request or the plan away

    @property
    def title(self) -> str:  # type: ignore[override] # states are shown in lower case
        """The state in words that fit after "It is …" and also alone."""
        return _TITLES.get(self, self.value)

    @property
    def next_step(self) -> str:
        """A sentence on what a daemon does next, without its end; empty where nothing follows."""
        return _NEXT_STEPS.get(self, "")


_TITLES = {
    State.PLANNING: "being planned",
    State.REVIEW: "waiting for you",
    State.REVISING: "being revised",
    State.APPROVED: "about to begin",
    State.RUNNING: "at work",
    State.ASKING: "waiting for your answer",
    State.COMPLETED: "done",
}
_NEXT_STEPS = {
    State.PLANNING: "its plan is written",
    State.REVISING: "its plan is revised",
    State.APPROVED: "its mission begins",
    State.RUNNING: "its mission continues",
}


class EventKind(StrEnum):
    """The events of a case: people's gestures first, then results of the daemon's own work."""

    REQUEST_ARRIVED = "request arrived"
    REQUEST_EDITED = "request edited"
    REQUEST_PENDING = "request set to pending"
    REQUEST_GONE = "request taken away"
    REQUEST_RETURNED = "request put back"
    PLAN_APPROVED = "plan moved to Active"
    PLAN_REJECTED = "plan moved to Rejected"
    REJECTION_EXPLAINED = "reason for the rejection given"
    REVISION_ASKED = "changes asked for"
    PLAN_TAKEN_BACK = "plan moved back to Plans"
    PLAN_EDITED = "plan edited while it is revised"
    PLAN_SUPERSEDED = "older revision in the place of the newest"
    PLAN_GONE = "plan taken away"
    ACTIVE_EDITED = "approved text changed"
    APPROVAL_REFUSED = "approval that contradicts itself"
    BOX_STALE = "box that says something else"
    STOP_ASKED = "active plan taken away during the mission"
    PLAN_DRAFTED = "plan drafted"
    PLANNING_FAILED = "planning failed"
    WALL_WEAKENED = "sandbox weaker than it was when the plan was approved"
    MODEL_CHANGED = "model or instructions other than those that the plan was written with"
    FILES_CHANGED = "files changed under the plan"
    TEXT_LOST = "approved text or record damaged in the journal"
    MISSION_STARTED = "mission started"
    MISSION_COMPLETED = "mission completed"
    MISSION_FAILED = "mission failed"
    PERSON_ASKED = "a person asked for an answer"
    ANSWERED = "question answered"
    SCOPE_WIDENED = "wider scope approved"
    SCOPE_REFUSED = "wider scope rejected"


S, K = State, EventKind

TABLE: Mapping[tuple[State | None, EventKind], State] = {
    (None, K.REQUEST_ARRIVED): S.PLANNING,
    (S.PLANNING, K.REQUEST_EDITED): S.PLANNING,
    (S.PLANNING, K.REQUEST_GONE): S.WITHDRAWN,
    (S.PLANNING, K.PLAN_DRAFTED): S.REVIEW,
    (S.PLANNING, K.PLANNING_FAILED): S.FAILED,
    (S.REVIEW, K.REQUEST_EDITED): S.REVISING,
    (S.REVIEW, K.REQUEST_PENDING): S.REVISING,
    (S.REVIEW, K.REQUEST_GONE): S.WITHDRAWN,
    (S.REVIEW, K.PLAN_APPROVED): S.APPROVED,
    (S.REVIEW, K.APPROVAL_REFUSED): S.REVIEW,
    (S.REVIEW, K.BOX_STALE): S.REVIEW,
    (S.REVIEW, K.PLAN_REJECTED): S.REJECTED,
    (S.REVIEW, K.REVISION_ASKED): S.REVISING,
    (S.REVIEW, K.PLAN_SUPERSEDED): S.REVIEW,
    (S.REVIEW, K.PLAN_GONE): S.WITHDRAWN,
    (S.REVISING, K.REQUEST_EDITED): S.REVISING,
    (S.REVISING, K.REQUEST_GONE): S.WITHDRAWN,
    (S.REVISING, K.PLAN_EDITED): S.REVISING,
    (S.REVISING, K.PLAN_APPROVED): S.APPROVED,
    (S.REVISING, K.APPROVAL_REFUSED): S.REVISING,
    (S.REVISING, K.PLAN_REJECTED): S.REJECTED,
    (S.REVISING, K.PLAN_GONE): S.WITHDRAWN,
    (S.REVISING, K.PLAN_DRAFTED): S.REVIEW,
    (S.REVISING, K.PLANNING_FAILED): S.FAILED,
    (S.APPROVED, K.ACTIVE_EDITED): S.REVIEW,
    (S.APPROVED, K.PLAN_TAKEN_BACK): S.REVIEW,
    (S.APPROVED, K.REVISION_ASKED): S.REVISING,
    (S.APPROVED, K.PLAN_REJECTED): S.REJECTED,
    (S.APPROVED, K.PLAN_GONE): S.WITHDRAWN,
    (S.APPROVED, K.WALL_WEAKENED): S.REVIEW,
    (S.APPROVED, K.MODEL_CHANGED): S.REVIEW,
    (S.APPROVED, K.TEXT_LOST): S.REVIEW,
    (S.APPROVED, K.MISSION_STARTED): S.RUNNING,
    (S.RUNNING, K.ACTIVE_EDITED): S.RUNNING,
    (S.RUNNING, K.STOP_ASKED): S.RUNNING,
    (S.RUNNING, K.FILES_CHANGED): S.REVIEW,
    (S.RUNNING, K.TEXT_LOST): S.REVIEW,
    (S.RUNNING, K.MISSION_COMPLETED): S.COMPLETED,
    (S.RUNNING, K.MISSION_FAILED): S.FAILED,
    (S.PLANNING, K.PERSON_ASKED): S.ASKING,
    (S.REVISING, K.PERSON_ASKED): S.ASKING,
    (S.RUNNING, K.PERSON_ASKED): S.ASKING,
    (S.FAILED, K.REQUEST_PENDING): S.PLANNING,
    (S.FAILED, K.REQUEST_GONE): S.WITHDRAWN,
    (S.FAILED, K.PLAN_APPROVED): S.APPROVED,
    (S.FAILED, K.APPROVAL_REFUSED): S.FAILED,
    (S.FAILED, K.BOX_STALE): S.FAILED,
    (S.FAILED, K.PLAN_TAKEN_BACK): S.REVIEW,
    (S.FAILED, K.PLAN_REJECTED): S.REJECTED,
    (S.REJECTED, K.REQUEST_PENDING): S.PLANNING,
    (S.REJECTED, K.PLAN_APPROVED): S.APPROVED,
    (S.REJECTED, K.PLAN_TAKEN_BACK): S.REVIEW,
    (S.REJECTED, K.REJECTION_EXPLAINED): S.REJECTED,
    (S.REJECTED, K.APPROVAL_REFUSED): S.REJECTED,
    (S.REJECTED, K.BOX_STALE): S.REJECTED,
    (S.WITHDRAWN, K.REQUEST_RETURNED): S.PLANNING,
    (S.WITHDRAWN, K.REQUEST_PENDING): S.PLANNING,
    (S.WITHDRAWN, K.PLAN_TAKEN_BACK): S.REVIEW,
    (S.WITHDRAWN, K.PLAN_APPROVED): S.APPROVED,
    (S.WITHDRAWN, K.APPROVAL_REFUSED): S.WITHDRAWN,
    (S.COMPLETED, K.REQUEST_PENDING): S.PLANNING,
    (S.COMPLETED, K.REQUEST_EDITED): S.PLANNING,
    (S.COMPLETED, K.PLAN_TAKEN_BACK): S.REVIEW,
    (S.COMPLETED, K.APPROVAL_REFUSED): S.COMPLETED,
}
"""The whole life cycle; a pair that is not here is a no-op.

Work that waits for an answer can be decided on as before: see `target`.
"""


@dataclass(frozen=True, slots=True)
class Statuses:
    """The property `status` of a case's request and of its plan; empty where none is written."""

    request: str
    plan: str


STATUSES: Mapping[State, Statuses] = {
    S.PLANNING: Statuses("planning", ""),
    S.REVIEW: Statuses("planned", "review"),
    S.REVISING: Statuses("planning", "needs_revision"),
    S.APPROVED: Statuses("planned", "approved"),
    S.RUNNING: Statuses("planned", "approved"),
    S.COMPLETED: Statuses("completed", "completed"),
    S.FAILED: Statuses("error", "error"),
    S.REJECTED: Statuses("rejected", "rejected"),
    S.WITHDRAWN: Statuses("rejected", "rejected"),
}
"""The `status` of a case's notes, by its acting state; no other is written.

A decision stamps it with what it does. A look stamps a note that says something older.
"""

ANSWERS = frozenset({K.ANSWERED, K.SCOPE_WIDENED, K.SCOPE_REFUSED})
"""After these the work that asked resumes where it was."""

WORKING = frozenset({S.PLANNING, S.REVISING, S.APPROVED, S.RUNNING})
"""States in which it is the daemon's turn."""
DRAFTING = frozenset({S.PLANNING, S.REVISING})
"""States in which a plan is written."""
OPEN = WORKING | {S.REVIEW, S.ASKING}
"""States that wait for a person; the case's notes should be there."""
OVER = frozenset(S) - OPEN
"""States in which nothing follows until you act."""


def diagram() -> str:
    """Return `TABLE` as a Mermaid state diagram: one arrow for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (source, kind), target in TABLE.items():
        if source is not target:
            arrows.setdefault(
                (source.value if source is not None else "[*]", target.value), []
            ).append(kind.value)
    lines = [
        f"  {source} --> {target}: {', '.join(kinds)}" for (source, target), kinds in arrows.items()
    ]
    answers = ", ".join(kind.value for kind in K if kind in ANSWERS)
    lines += [
        f"  {S.ASKING} --> {work}: {answers}"
        for (work, kind), to in TABLE.items()
        if kind is K.PERSON_ASKED and to is S.ASKING
    ]
    return "\n".join(["stateDiagram-v2", *lines]) + "\n"
