"""Say what leads from one state of a case to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from placet.case.case import Case
from placet.case.events import (
    ActiveEdited,
    Answering,
    ApprovalRefused,
    Asked,
    BoxStale,
    Drafted,
    Event,
    FilesChanged,
    MissionCompleted,
    MissionFailed,
    ModelChanged,
    PlanApproved,
    PlanEdited,
    PlanGone,
    PlanningFailed,
    PlanRejected,
    PlanSuperseded,
    PlanTakenBack,
    RejectionExplained,
    RequestEdited,
    RequestGone,
    RequestPending,
    RequestReturned,
    RevisionAsked,
    SandboxWeakened,
    SignatureVoid,
    Started,
    StopAsked,
    TextLost,
)
from placet.case.life_cycle import State

S = State

TABLE: Mapping[tuple[State, type[Event]], State] = {
    (S.PLANNING, RequestEdited): S.PLANNING,
    (S.PLANNING, RequestGone): S.WITHDRAWN,
    (S.PLANNING, Drafted): S.REVIEW,
    (S.PLANNING, PlanningFailed): S.FAILED,
    (S.REVIEW, RequestEdited): S.REVISING,
    (S.REVIEW, RequestPending): S.REVISING,
    (S.REVIEW, RequestGone): S.WITHDRAWN,
    (S.REVIEW, PlanApproved): S.APPROVED,
    (S.REVIEW, ApprovalRefused): S.REVIEW,
    (S.REVIEW, BoxStale): S.REVIEW,
    (S.REVIEW, PlanRejected): S.REJECTED,
    (S.REVIEW, RevisionAsked): S.REVISING,
    (S.REVIEW, PlanSuperseded): S.REVIEW,
    (S.REVIEW, PlanGone): S.WITHDRAWN,
    (S.REVISING, RequestEdited): S.REVISING,
    (S.REVISING, RequestGone): S.WITHDRAWN,
    (S.REVISING, PlanEdited): S.REVISING,
    (S.REVISING, PlanApproved): S.APPROVED,
    (S.REVISING, ApprovalRefused): S.REVISING,
    (S.REVISING, PlanRejected): S.REJECTED,
    (S.REVISING, PlanGone): S.WITHDRAWN,
    (S.REVISING, Drafted): S.REVIEW,
    (S.REVISING, PlanningFailed): S.FAILED,
    (S.APPROVED, ActiveEdited): S.REVIEW,
    (S.APPROVED, PlanTakenBack): S.REVIEW,
    (S.APPROVED, RevisionAsked): S.REVISING,
    (S.APPROVED, PlanRejected): S.REJECTED,
    (S.APPROVED, PlanGone): S.WITHDRAWN,
    (S.APPROVED, SandboxWeakened): S.REVIEW,
    (S.APPROVED, ModelChanged): S.REVIEW,
    (S.APPROVED, SignatureVoid): S.REVIEW,
    (S.APPROVED, TextLost): S.REVIEW,
    (S.APPROVED, Started): S.RUNNING,
    (S.RUNNING, ActiveEdited): S.RUNNING,
    (S.RUNNING, StopAsked): S.RUNNING,
    (S.RUNNING, FilesChanged): S.REVIEW,
    (S.RUNNING, TextLost): S.REVIEW,
    (S.RUNNING, MissionCompleted): S.COMPLETED,
    (S.RUNNING, MissionFailed): S.FAILED,
    (S.PLANNING, Asked): S.ASKING,
    (S.REVISING, Asked): S.ASKING,
    (S.RUNNING, Asked): S.ASKING,
    (S.FAILED, RequestPending): S.PLANNING,
    (S.FAILED, RequestGone): S.WITHDRAWN,
    (S.FAILED, PlanApproved): S.APPROVED,
    (S.FAILED, ApprovalRefused): S.FAILED,
    (S.FAILED, BoxStale): S.FAILED,
    (S.FAILED, PlanTakenBack): S.REVIEW,
    (S.FAILED, PlanRejected): S.REJECTED,
    (S.REJECTED, RequestPending): S.PLANNING,
    (S.REJECTED, PlanApproved): S.APPROVED,
    (S.REJECTED, PlanTakenBack): S.REVIEW,
    (S.REJECTED, RejectionExplained): S.REJECTED,
    (S.REJECTED, ApprovalRefused): S.REJECTED,
    (S.REJECTED, BoxStale): S.REJECTED,
    (S.WITHDRAWN, RequestReturned): S.PLANNING,
    (S.WITHDRAWN, RequestPending): S.PLANNING,
    (S.WITHDRAWN, PlanTakenBack): S.REVIEW,
    (S.WITHDRAWN, PlanApproved): S.APPROVED,
    (S.WITHDRAWN, ApprovalRefused): S.WITHDRAWN,
    (S.COMPLETED, RequestPending): S.PLANNING,
    (S.COMPLETED, RequestEdited): S.PLANNING,
    (S.COMPLETED, PlanTakenBack): S.REVIEW,
    (S.COMPLETED, ApprovalRefused): S.COMPLETED,
}
"""The whole life cycle, which begins in `planning`; a pair that is not here is a no-op.

Work that waits for an answer can be decided on as before: see `target`.
"""


def target(case: Case, kind: type[Event]) -> State | None:
    """Return the state to which an event of this class leads, None if it has no effect.

    While a question is open, people can do whatever they could do during the work. Events that do
    not touch the work leave the question open.
    """
    if case.asking is not None and issubclass(kind, Answering):
        return case.acting
    return TABLE.get((case.acting, kind))


def diagram() -> str:
    """Return `TABLE` as a Mermaid state diagram: one arrow for each pair of states."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (source, kind), to in TABLE.items():
        if source is not to:
            arrows.setdefault((source, to), []).append(kind.words)
    answers = ", ".join(kind.words for kind in get_args(Answering))
    lines = [
        "stateDiagram-v2",
        f"  [*] --> {S.PLANNING}: request arrived",
        *(f"  {source} --> {to}: {', '.join(words)}" for (source, to), words in arrows.items()),
        *(f"  {to} --> {work}: {answers}" for work, to in arrows if to is S.ASKING),
    ]
    return "\n".join(lines) + "\n"
