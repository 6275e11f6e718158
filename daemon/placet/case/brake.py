"""Stop planning a request whose text keeps changing without a comment or a command."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from placet.case.case import Case

MOST_PLANNINGS = 3
"""How many plannings of a request may begin within WITHIN_S without a comment or a command."""
WITHIN_S = 3600
TOO_OFTEN = (
    f"placet planned this request {MOST_PLANNINGS} times within an hour, and its text changed "
    "again. A plug-in may be rewriting it."
)


def with_planning(case: Case, now: str) -> Case | None:
    """Return the case with the planning that begins now, or None if there were too many.

    A planning that resumes is not another one. `now` is RFC 3339.
    """
    if case.plannings and case.plannings[-1][0] == case.generation:
        return case
    moment = datetime.fromisoformat(now)
    recent = [
        (generation, at)
        for generation, at in case.plannings
        if abs((moment - datetime.fromisoformat(at)).total_seconds()) < WITHIN_S
    ]
    if len(recent) >= MOST_PLANNINGS:
        return None
    return replace(case, plannings=(*recent, (case.generation, now)))
