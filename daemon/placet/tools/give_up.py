"""`give_up`: the mission cannot be done."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.tools.base import Args, Effect, Tool, Workplace


class GiveUp(Args):
    """Arguments of `give_up`."""

    reason: str = Field(
        min_length=1, description="Why it cannot be done, and what a person could change."
    )


def _run(place: Workplace, args: GiveUp) -> dict[str, Any]:
    return place.control.give_up(args.reason)


TOOL = Tool(
    "give_up",
    "End the mission as a failure: it cannot be done within the plan.",
    GiveUp,
    Effect.CONTROL,
    _run,
    subject=(),
)
