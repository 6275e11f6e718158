"""Make journal rows with the actor `system`."""

from __future__ import annotations

from placet.activity import Action, Activity, Actor, Entity
from placet.case.case import Case, row_of
from placet.host.clock import Clock
from placet.journal.writes import AddActivity


def of_case(clock: Clock, case: Case, action: Action, **facts: object) -> AddActivity:
    """Return the row of an event in a case's mission or planning."""
    return AddActivity(row_of(case, clock.now(), action, facts))


def of_daemon(clock: Clock, action: Action, **facts: object) -> AddActivity:
    """Return the row of an event that belongs to no case."""
    return AddActivity(
        Activity(clock.now(), "", Actor.SYSTEM, action, Entity.DAEMON, "placet", "", facts)
    )
