"""`finish`: the mission is done."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.tools.base import Args, Effect, Tool, Workplace


class Finish(Args):
    """Arguments of `finish`."""

    summary: str = Field(
        min_length=1,
        description="For the person who asked: what was done, and the answer if one was asked for.",
    )


def _run(place: Workplace, args: Finish) -> dict[str, Any]:
    return place.control.finish(args.summary)


TOOL = Tool(
    "finish",
    "End the mission: everything in the plan is done.",
    Finish,
    Effect.CONTROL,
    _run,
    subject=(),
)
