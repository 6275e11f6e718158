"""Define a journal row: what happened, to what, by whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Actor(StrEnum):
    """The actor of a journal row."""

    HUMAN = "human"
    AGENT = "agent"
    SYSTEM = "system"


class Entity(StrEnum):
    """The object of a journal row."""

    REQUEST = "request"
    PLAN = "plan"
    MISSION = "mission"
    REPOSITORY = "repository"
    DAEMON = "daemon"


class Action(StrEnum):
    """The event of a journal row, as `domain.verb`.

    Queries rely on these names; more may be added, none renamed.
    """

    REQUEST_DETECTED = "request.detected"
    REQUEST_INVALID = "request.invalid"
    REQUEST_EDITED = "request.edited"
    REQUEST_WITHDRAWN = "request.withdrawn"
    PLAN_CREATED = "plan.created"
    PLAN_FAILED = "plan.failed"
    PLAN_APPROVED = "plan.approved"
    PLAN_REJECTED = "plan.rejected"
    PLAN_REJECTION_EXPLAINED = "plan.rejection_explained"
    PLAN_REVISION_REQUESTED = "plan.revision_requested"
    PLAN_REVISED = "plan.revised"
    PLAN_CHANGED_AFTER_APPROVAL = "plan.changed_after_approval"
    PLAN_REFUSED = "plan.refused"
    PLAN_DRIFTED = "plan.drifted"
    PLAN_EDITED = "plan.edited"
    PLAN_ADOPTED = "plan.adopted"
    PLAN_TAKEN_BACK = "plan.taken_back"
    PLAN_WITHDRAWN = "plan.withdrawn"
    PLAN_AMENDMENT_REQUESTED = "plan.amendment_requested"
    PLAN_AMENDED = "plan.amended"
    PLAN_AMENDMENT_REJECTED = "plan.amendment_rejected"
    QUESTION_ASKED = "question.asked"
    QUESTION_ANSWERED = "question.answered"
    NOTE_EXPLAINED = "note.explained"
    LEASE_ACQUIRED = "lease.acquired"
    LEASE_RELEASED = "lease.released"
    LEASE_EXPIRED = "lease.expired"
    EXECUTION_STARTED = "execution.started"
    EXECUTION_COMPLETED = "execution.completed"
    EXECUTION_FAILED = "execution.failed"
    EXECUTION_RESUMED = "execution.resumed"
    STEP_COMPLETED = "step.completed"
    TOOL_CALLED = "tool.called"
    TOOL_REFUSED = "tool.refused"
    MODEL_CALLED = "model.called"
    MODEL_FAILED = "model.failed"
    MODEL_WAITING = "model.waiting"
    MODEL_RESUMED = "model.resumed"
    CONVERSATION_COMPACTED = "conversation.compacted"
    FAILURE_DETECTED = "failure.detected"
    GIT_RAN = "git.ran"
    GIT_SNAPSHOTTED = "git.snapshotted"
    GIT_INITIALIZED = "git.initialized"
    GIT_BRANCH_CREATED = "git.branch_created"
    GIT_COMMITTED = "git.committed"
    GIT_TIDIED = "git.tidied"
    GIT_ROLLED_BACK = "git.rolled_back"
    REPORT_WRITTEN = "report.written"
    PR_MERGED = "pr.merged"
    PR_REVERTED = "pr.reverted"
    PR_GONE = "pr.gone"
    PR_REJECTED = "pr.rejected"
    PR_REJECTION_EXPLAINED = "pr.rejection_explained"
    PR_REOPENED = "pr.reopened"
    JOURNAL_RECONCILED = "journal.reconciled"
    CONFIG_ACCEPTED = "config.accepted"
    CONFIG_CHANGED = "config.changed"
    SIGNERS_ACCEPTED = "signers.accepted"
    SIGNERS_CHANGED = "signers.changed"
    DAEMON_STARTED = "daemon.started"
    DAEMON_STOPPED = "daemon.stopped"


@dataclass(frozen=True, slots=True)
class Activity:
    """One row of table `activity`.

    `timestamp` is UTC, RFC 3339, ending in `Z`. `metadata` holds digests and sizes, never contents
    or secrets. Raises ValueError for a row of a human that does not say which one (`reviewed_by`),
    and how (`via`).
    """

    timestamp: str
    trace_id: str
    actor: Actor
    action: Action
    entity_type: Entity
    entity_id: str
    agent: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.actor is Actor.HUMAN and not (
            self.metadata.get("reviewed_by") and self.metadata.get("via")
        ):
            raise ValueError(
                f"{self.action}: a human's row must name the person in metadata.reviewed_by,"
                " and say how in via"
            )


@dataclass(frozen=True, slots=True)
class CommittedRow:
    """A row of table `activity` as it was stored. `metadata` is JSON, `hash` the chain's."""

    id: int
    timestamp: str
    trace_id: str
    actor: str
    agent: str
    action_type: str
    entity_type: str
    entity_id: str
    metadata: str
    hash: str

    @property
    def details(self) -> Mapping[str, Any]:
        """Return the metadata; raises ValueError if a hand-made row has no JSON object."""
        try:
            value = json.loads(self.metadata)
        except RecursionError as error:
            raise ValueError(f"row {self.id} is nested too deeply") from error
        if not isinstance(value, dict):
            raise ValueError(f"row {self.id} is not an object")  # noqa: TRY004 - the text is wrong
        return value
