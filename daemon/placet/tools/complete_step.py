"""`complete_step`: a step of the plan is done; what it changed is committed."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.tools.base import Args, Effect, Tool, Workplace


class CompleteStep(Args):
    """Arguments of `complete_step`."""

    step: int = Field(ge=1, description="The step's number in the plan.")
    summary: str = Field(description="What was done, in one line; it becomes the commit's subject.")


def _run(place: Workplace, args: CompleteStep) -> dict[str, Any]:
    return place.control.complete_step(args.step, args.summary)


TOOL = Tool(
    "complete_step",
    "Say that a step of the plan is done. What it changed is committed.",
    CompleteStep,
    Effect.CONTROL,
    _run,
    subject=("step",),
)
