"""Failure patterns of the last steps, told to the model so that it can correct itself.

They never end a mission; `guards` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from placet.chat.messages import StopReason
from placet.core.turn.history import Deed, StepRecord

# Steps that have to show a pattern.
LOOK_BACK = 3


class FailureKind(StrEnum):
    """The patterns, in the order in which they are looked for."""

    REPEATED_TOOL_ERROR = "repeated-tool-error"
    TOOL_REJECTION_LOOP = "tool-rejection-loop"
    NO_PROGRESS = "no-progress"
    MAX_STEPS_APPROACHING = "max-steps-approaching"


_SAID = {
    FailureKind.REPEATED_TOOL_ERROR: (
        "Every call of `{tool}` in the last {turns} turns failed.",
        "Read what the last error says before the next call; use other arguments or another tool.",
    ),
    FailureKind.TOOL_REJECTION_LOOP: (
        "Every call in the last {turns} turns was refused; none was carried out.",
        "Stay within the plan's scope. If the plan cannot be done there, call `give_up` and say"
        " what is missing.",
    ),
    FailureKind.NO_PROGRESS: (
        "The last {turns} turns brought the same results, or none.",
        "More of the same will bring no more: look elsewhere, or go on to the plan's next step.",
    ),
    FailureKind.MAX_STEPS_APPROACHING: (
        "Turn {taken} of {most} is done; one is left.",
        "Use it to call `finish` if the plan is done, or `give_up` with what is missing.",
    ),
}


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """A pattern: its description, the advice for the model, and the tool (empty for several)."""

    kind: FailureKind
    description: str
    action: str
    tool: str

    def note(self) -> str:
        """Return the text that is put before the model."""
        return f"Noticed ({self.kind}): {self.description} {self.action}"


def detected(steps: Sequence[StepRecord], max_steps: int) -> FailurePattern | None:
    """Return the pattern that the last step has brought about, None if an earlier one goes on.

    `max_steps` is the mission's cap on model turns.
    """
    kind, tool = failure_kind(steps, max_steps)
    if kind is None or (steps and kind is failure_kind(steps[:-1], max_steps)[0]):
        return None
    description, action = _SAID[kind]
    said = description.format(tool=tool, turns=LOOK_BACK, taken=len(steps), most=max_steps)
    return FailurePattern(kind, said, action, tool)


def failure_kind(steps: Sequence[StepRecord], max_steps: int) -> tuple[FailureKind | None, str]:
    """Return the first pattern that the last steps show, and the one tool that it is about.

    A step in which a write succeeded is progress, whatever its result says.
    """
    last = steps[-LOOK_BACK:]
    if len(last) == LOOK_BACK and all(step.calls for step in last):
        calls = [seen for step in last for seen in step.calls]
        tools = {seen.call.tool for seen in calls}
        tool = tools.pop() if len(tools) == 1 else ""
        if tool and not any(seen.ok or seen.refused for seen in calls):
            return FailureKind.REPEATED_TOOL_ERROR, tool
        if all(seen.refused for seen in calls):
            return FailureKind.TOOL_REJECTION_LOOP, tool
        if _nothing_new(last):
            return FailureKind.NO_PROGRESS, tool
    return (FailureKind.MAX_STEPS_APPROACHING if len(steps) == max_steps - 1 else None), ""


def _nothing_new(last: Sequence[StepRecord]) -> bool:
    if any(
        step.stop_reason is not StopReason.TOOL_USE or step.did(Deed.WRITE, Deed.CONTROL)
        for step in last
    ):
        return False
    results = {tuple(d for seen in step.calls if (d := seen.result_digest)) for step in last}
    return len(results - {()}) <= 1
