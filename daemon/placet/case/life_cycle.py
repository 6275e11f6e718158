"""Name the states of a case, and the statuses of its notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a case; `TABLE` in `transitions` says what leads to which."""

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


S = State


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

WORKING = frozenset({S.PLANNING, S.REVISING, S.APPROVED, S.RUNNING})
"""States in which it is the daemon's turn."""
DRAFTING = frozenset({S.PLANNING, S.REVISING})
"""States in which a plan is written."""
OPEN = WORKING | {S.REVIEW, S.ASKING}
"""States that wait for a person; the case's notes should be there."""
OVER = frozenset(S) - OPEN
"""States in which nothing follows until you act."""
