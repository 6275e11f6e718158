"""Define the lines of live events, for clients on this machine such as a status bar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from placet.activity import Action, Actor, CommittedRow, Entity

if TYPE_CHECKING:
    JournalType = str
else:
    JournalType = Literal[
        tuple(action.value for action in Action if action is not Action.FAILURE_DETECTED)
    ]


class _Row(BaseModel):
    """The fields of every journal event; both ids are empty for rows about no request."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: int = Field(description="The row's number in the journal; numbers go up.")
    timestamp: str = Field(description="UTC, RFC 3339, ending in Z.")
    trace_id: str
    request_id: str
    actor: Actor = Field(description="Who did it.")
    agent: str
    metadata: Mapping[str, Any] = Field(
        description="The row's details: digests and sizes, never contents."
    )


class Happened(_Row):
    """A row of the journal; `type` is its `action_type`."""

    type: JournalType


class FailureDetected(_Row):
    """A failure pattern was seen in running work; you may want to look."""

    type: Literal["failure.detected"] = "failure.detected"
    pattern: str = Field(
        description=(
            "repeated-tool-error, tool-rejection-loop, no-progress, max-steps-approaching,"
            " crash_loop, or the name of the guard that spoke."
        )
    )
    description: str
    suggested_action: str
    affected_tool: str = Field(description="Empty if it is about no single tool.")


Event = Annotated[Happened | FailureDetected, Field(discriminator="type")]
EVENT: TypeAdapter[Happened | FailureDetected] = TypeAdapter(Event)
"""The schema of a line: validates one, and writes itself as JSON Schema."""


def event_of(row: CommittedRow) -> Happened | FailureDetected:
    """Return a committed row as an event."""
    data = row.details
    own = "" if row.entity_type == Entity.DAEMON else row.entity_id
    about: dict[str, Any] = {
        "id": row.id,
        "timestamp": row.timestamp,
        "trace_id": row.trace_id,
        "request_id": own,
        "actor": Actor(row.actor),
        "agent": row.agent,
        "metadata": data,
    }
    if row.action_type == Action.FAILURE_DETECTED:
        return FailureDetected(
            **about,
            pattern=data["pattern"],
            description=data["description"],
            suggested_action=data["suggested_action"],
            affected_tool=data["affected_tool"],
        )
    return Happened(**about, type=row.action_type)


def line_of(event: Happened | FailureDetected) -> str:
    """Return an event as a line of ASCII: a name that is not UTF-8 must not spoil the stream."""
    return json.dumps(event.model_dump())
