"""Failure patterns: seen in the last steps, told to the model so that it can correct itself.

Never a punishment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from placet.core.turn.history import Deed, StepRecord
from placet.core.turn.talk import StopReason

LOOK_BACK = 3
"""Steps that have to show a pattern."""


class FailureKind(StrEnum):
    """The patterns, in the order in which they are looked for."""

    REPEATED_TOOL_ERROR = "repeated-tool-error"
    TOOL_REJECTION_LOOP = "tool-rejection-loop"
    NO_PROGRESS = "no-progress"
    MAX_STEPS_APPROACHING = "max-steps-approaching"


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """A pattern: what was seen, what the model should do about it, and the tool (empty where it is about none)."""

    kind: FailureKind
    description: str
    action: str
    tool: str = ""

    def note(self) -> str:
        """Return what is put before the model."""
        return f"Noticed ({self.kind}): {self.description} {self.action}"


def classify_failure_pattern(steps: Sequence[StepRecord], max_steps: int) -> FailurePattern | None:
    """Return the first pattern that the last steps show, or None.

    `max_steps` is the mission's cap on model turns.

    Asked in the order of FailureKind. A step in which a write succeeded is progress, whatever its
    result says.
    """
    last = steps[-LOOK_BACK:]
    if len(last) == LOOK_BACK and all(step.calls for step in last):
        calls = [seen for step in last for seen in step.calls]
        tools = {seen.call.tool for seen in calls}
        tool = next(iter(tools)) if len(tools) == 1 else ""
        if tool and not any(seen.ok or seen.refused for seen in calls):
            return FailurePattern(
                FailureKind.REPEATED_TOOL_ERROR,
                f"Every call of `{tool}` in the last {LOOK_BACK} turns failed.",
                "Read what the last error says before the next call; use other arguments or another tool.",
                tool,
            )
        if all(seen.refused for seen in calls):
            return FailurePattern(
                FailureKind.TOOL_REJECTION_LOOP,
                f"Every call in the last {LOOK_BACK} turns was refused; none was carried out.",
                "Stay within the plan's scope. If the plan cannot be done there, call `give_up` and say what is missing.",
                tool,
            )
        if _nothing_new(last):
            return FailurePattern(
                FailureKind.NO_PROGRESS,
                f"The last {LOOK_BACK} turns brought the same results, or none.",
                "More of the same will bring no more: look elsewhere, or go on to the plan's next step.",
                tool,
            )
    if len(steps) == max_steps - 1:
        return FailurePattern(
            FailureKind.MAX_STEPS_APPROACHING,
            f"Turn {len(steps)} of {max_steps} is done; one is left.",
            "Use it to call `finish` if the plan is done, or `give_up` with what is missing.",
        )
    return None


def detected(steps: Sequence[StepRecord], max_steps: int) -> FailurePattern | None:
    """Return the pattern that the last step has brought about: None as long as one that was there before goes on."""
    now = classify_failure_pattern(steps, max_steps)
    if now is None or not steps:
        return now
    before = classify_failure_pattern(steps[:-1], max_steps)
    return None if before is not None and before.kind is now.kind else now


def _nothing_new(last: Sequence[StepRecord]) -> bool:
    if any(step.stop_reason is not StopReason.TOOL_USE for step in last):
        return False
    if any(
        seen.ok and seen.call.deed in (Deed.WRITE, Deed.CONTROL)
        for step in last
        for seen in step.calls
    ):
        return False
    results = {tuple(d for seen in step.calls if (d := seen.result_digest)) for step in last}
    return len(results - {()}) <= 1
