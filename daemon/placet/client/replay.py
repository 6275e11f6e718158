"""Repeat a mission from its record."""

from __future__ import annotations

from placet.activity import Action
from placet.agent.ports import Bounds
from placet.agent.prompts import plan_of
from placet.agent.record import PLACE, Recorded
from placet.agent.replay import Replayed, replay
from placet.case.case import Case
from placet.client.site import Site
from placet.errors import UserError
from placet.journal.reader import open_reader
from placet.loop.build import own_secrets, sandbox_level


def replay_mission(site: Site, case: Case) -> Replayed:
    """Repeat a mission from its record, and compare the result with its branch.

    Raises UserError if the case has no mission, or it cannot be replayed.
    """
    config = site.in_force().config
    with open_reader(site.state.journal) as reader:
        # The case no longer has the approved text: a mission uses its approval up. The journal has
        # it.
        ran = [
            row.details["digest"]
            for row in reader.activity(case.trace_id, limit=10_000)
            if row.action_type in (Action.EXECUTION_STARTED, Action.PLAN_AMENDED)
        ]
        text = reader.text(ran[-1]) if ran else None
        for attempt in range(case.generation, -1, -1):
            record = Recorded()
            record.take(reader.records(case.trace_id, attempt))
            if record.has(PLACE):
                break
    if text is None:
        raise UserError(
            f"{case.request_id} never ran, so there is nothing to replay.",
            "See: placet status",
        )
    plan = plan_of(text)
    bounds = Bounds(site.vault, config, sandbox_level(config, site.say), own_secrets(site.env))
    return replay(bounds, site.state.worktrees, case, plan, record)
