"""A case's rows in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import Case


def row_of(
    case: Case,
    now: str,
    action: Action,
    facts: Mapping[str, Any],
    *,
    actor: Actor = Actor.SYSTEM,
    entity: Entity = Entity.MISSION,
) -> Activity:
    """Return the row of an event of this case at `now`, as its agent's."""
    return Activity(
        now, case.trace_id, actor, action, entity, case.request_id, case.request.agent, facts
    )
