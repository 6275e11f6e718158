"""Tool calls on the record: an intent before, the outcome and its journal row after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placet.activity import Action, Actor
from placet.agent.entries import Begun, Key
from placet.agent.record import Postponed, Record
from placet.case.events import Asked
from placet.case.waiting import Why
from placet.chat.messages import ToolUse
from placet.errors import Interrupted, PlacetError
from placet.tools.base import Effect, Outcome, Tool, Toolbox, Workplace
from placet.tools.registry import BY_NAME

MACHINE_RETRY_S = 3.0
"""Retry interval after a full disk or similar."""
MACHINE_FAULTS = frozenset({"disk_full", "io_error"})
"""Error types of the machine's faults; the model could do nothing about them and is not told."""


class AsksPerson(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A call that waits for a person's answer; `asked` is the event of the case."""

    def __init__(self, asked: Asked) -> None:
        super().__init__("a person is asked")
        self.asked = asked


Tools = Mapping[str, Tool[Any]]


def _not_done(error_type: str, message: str) -> Outcome:
    error = {"error": message, "error_type": error_type}
    return Outcome(json.dumps(error), ok=False, error_type=error_type)


CUT_OFF = _not_done(
    "cut_off",
    "Your answer was cut off at the token limit, so this call was not carried out. "
    "Make smaller calls.",
)
INTERRUPTED = _not_done(
    "interrupted",
    "The daemon was stopped during this call; part of it may have taken effect. "
    "Look before you repeat it.",
)


def target(use: ToolUse, secrets: Sequence[str] = ()) -> str:
    """Return a call's subject for a journal row or a report: a path, a command, a pattern.

    Never a content.
    """
    tool = BY_NAME.get(use.name)
    return "" if tool is None else tool.target(use.input, secrets)


def effect_of(name: str) -> Effect | None:
    """Return the effect of the tool of this name, None where there is no such tool."""
    tool = BY_NAME.get(name)
    return None if tool is None else tool.effect


def changes_files(name: str) -> bool:
    """Return whether a call of this tool may change files."""
    return effect_of(name) in (Effect.WRITE, Effect.EXECUTE)


def may_change(use: ToolUse) -> bool:
    """Return whether a call may change the worktree.

    `complete_step` carries out the literal steps that follow.
    """
    return changes_files(use.name) or use.name == "complete_step"


def may_be_half_done(name: str) -> bool:
    """Return whether a call of this tool, cut off, may have done work that cannot be repeated."""
    return effect_of(name) is Effect.EXECUTE or name == "edit_file"


def reads(tools: Tools, use: ToolUse) -> bool:
    """Return whether a call only reads."""
    tool = tools.get(use.name)
    return tool is not None and tool.effect is Effect.READ


def carried_out(use: ToolUse, tools: Tools, place: Workplace, record: Record) -> Outcome:
    """Carry a call out, off the record; the outcome says how long it took."""
    began = record.clock.monotonic()
    outcome = Toolbox(tools, place).dispatch(use.name, use.input)
    return replace(outcome, took_s=record.clock.monotonic() - began)


def call_on_record(
    entry: Key[Outcome],
    use: ToolUse,
    tools: Tools,
    place: Workplace,
    record: Record,
    done: Outcome | None = None,
    *,
    again: Callable[[], bool],
    hold: bool = False,
) -> Outcome:
    """Carry a call out between its intent and its outcome, and journal it.

    `done` is a read that was carried out already; `hold` is as for `Record.settle`. An outcome that
    ends the conversation is not recorded: after a kill the call is made again.

    A call that an earlier life began and did not see the end of is repeated: at once where that
    does no harm (reading, writing a whole file, the mission's own controls), and where half of it
    may be done after `again`, which makes the place what it was before it. Where that cannot be
    done the call is answered as interrupted.
    """
    record.fresh()
    tool = tools.get(use.name)
    if record.cut_off(entry) and tool is not None and may_be_half_done(use.name) and not again():
        outcome = INTERRUPTED
    elif done is not None:
        outcome = done
    else:
        if not reads(tools, use):
            record.intend(Key(entry.key, Begun), Begun(use.name, dict(use.input)))
        try:
            outcome = carried_out(use, tools, place, record)
        except AsksPerson as asks:
            raise AsksPerson(replace(asks.asked, call=entry.key)) from None
        if place.cancelled() and tool is not None and tool.effect is Effect.EXECUTE:
            raise Interrupted(f"stopped during {use.name}")
    if outcome.error_type in MACHINE_FAULTS:
        raise Postponed(json.loads(outcome.content)["error"], MACHINE_RETRY_S, Why.MACHINE)
    if outcome.ends is None:
        settle_call(entry, use, outcome, outcome.took_s, place.secrets, record, hold=hold)
    return outcome


def settle_call(
    entry: Key[Outcome],
    use: ToolUse,
    outcome: Outcome,
    took_s: float | None,
    secrets: Sequence[str],
    record: Record,
    *,
    hold: bool = False,
) -> None:
    """Record a call's outcome, with its row: `tool.refused` for what a policy or a guard refused.

    `took_s` is None where nobody saw the end of it.
    """
    facts: dict[str, Any] = {
        "tool": use.name,
        "target": target(use, secrets),
        "ok": outcome.ok,
        "error_type": outcome.error_type,
    }
    action = Action.TOOL_REFUSED
    if not outcome.refused:
        action = Action.TOOL_CALLED
        facts |= {"exit_code": outcome.exit_code, "size": len(outcome.content)}
    facts["duration_ms"] = None if took_s is None else round(took_s * 1000, 1)
    record.settle(entry, outcome, record.row(action, Actor.AGENT, **facts), hold=hold)
