"""Talking to a model: its calls are carried out, on the record, until somebody says that it is over."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NoReturn, Protocol

from pydantic import TypeAdapter

from placet.agent.model_call import Line, ask_model
from placet.agent.record import Postponed, Record
from placet.core.activity import Action, Actor
from placet.core.errors import Interrupted
from placet.core.life.waiting import Why
from placet.core.secrets import redact
from placet.core.turn.budget import Room
from placet.core.turn.compaction import Compaction, compacted, make_room
from placet.core.turn.mission import Spent
from placet.core.turn.talk import (
    Ask,
    Purpose,
    StopReason,
    ToolUse,
    Turn,
    text_block,
    user_turn,
)
from placet.host.clock import Clock
from placet.journal.writes import REPLY
from placet.tools.base import Effect, Outcome, Tool, Toolbox, Workplace
from placet.tools.output import Results
from placet.tools.registry import BY_NAME

MACHINE_RETRY_S = 3.0
"""How often work that met a full disk, or the like, tries again."""
MACHINE_FAULTS = frozenset({"disk_full", "io_error"})
"""What a tool answers when the machine is at fault.

A model could do nothing about it, so it is not told.
"""

OUTCOME_JSON = TypeAdapter(Outcome)
"""How the record keeps what a call came to."""


class Watcher(Protocol):
    """Who conducts a conversation: checks its limits and sees what its calls came to."""

    def before(self, iteration: int) -> Sequence[str]:
        """Return remarks for the model before it is asked for the `iteration`-th time.

        Raise Stop at a limit.
        """
        ...

    def saw(self, use: ToolUse, outcome: Outcome) -> None:
        """See what a call came to, now or in an earlier life of the conversation.

        May raise Stop.
        """
        ...

    def room(self, ask: Ask) -> AbstractContextManager[Room]:
        """Hold what a call may come to while it is made.

        Raise Stop, or Postponed, where a budget has no room for it.
        """
        ...

    def instead(self, use: ToolUse) -> Outcome | None:
        """Return what to answer a call with instead of carrying it out, None to carry it out.

        May raise Stop.
        """
        ...

    def no_call(self, text: str, stop_reason: StopReason) -> str:
        """Return what to tell the model after a turn that called no tool, and said `text`.

        May leave the conversation.
        """
        ...

    def turn_over(self, stop_reason: StopReason) -> None:
        """See that a turn of the model, with its calls, is over."""
        ...

    def round_over(self, iteration: int, uses: Sequence[ToolUse]) -> None:
        """See that every call of a turn has its outcome."""
        ...

    def bring_back(self, iteration: int, uses: Sequence[ToolUse]) -> bool:
        """Make the place what it was when `uses`, the turn's calls so far, were done.

        False where that cannot be.
        """
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything a conversation needs that stays the same from turn to turn.

    `system` and `opening` are as they are sent (`opened`), `tools` those that the model is offered.
    `context_tokens` are what the model can take in: before that is full, old results make room.
    """

    purpose: Purpose
    system: tuple[str, ...]
    tools: Mapping[str, Tool[Any]]
    opening: Turn
    max_tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Opening:
    """How a conversation begins: the system prompt's blocks, the texts of the first turn, and what a person is told of them.

    `remarks` say which instructions were cut or left out, and why.
    """

    system: tuple[str, ...]
    texts: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def turn(self) -> Turn:
        """The first turn."""
        return user_turn([text_block(text) for text in self.texts])


OPENING_JSON = TypeAdapter(Opening)


def opened(record: Record, place: Workplace, write: Callable[[], Opening]) -> Opening:
    """Return how a conversation begins, as it is sent: written once, without secrets, and from then on the record's.

    So one that goes on after a kill is the same byte for byte, whatever was written into the notes and files meanwhile.
    """
    known = record.outcome(_OPENING)
    if known is None:
        made = write()
        said = [
            tuple(redact(text, place.secrets)[0] for text in texts)
            for texts in (made.system, made.texts, made.remarks)
        ]
        known = OPENING_JSON.dump_json(Opening(*said))
        record.settle(_OPENING, known)
    return OPENING_JSON.validate_json(known)


_OPENING = "opening"


def converse(
    talk: Conversation, place: Workplace, record: Record, watcher: Watcher, spent: Spent, line: Line
) -> NoReturn:
    """Let the model work until something ends it: reply, calls, results fed back, and again.

    It is left by an exception only: a control tool's, the watcher's Stop, or what `ask_model`
    raises.
    """
    case = record.case
    specs = tuple(tool.spec() for tool in talk.tools.values())
    turns = [talk.opening]
    stopped: StopReason | None = None
    iteration = 0
    while True:
        iteration += 1
        remarks = watcher.before(iteration)
        ask = Ask(
            talk.purpose,
            case.request_id,
            case.trace_id,
            talk.system,
            specs,
            tuple(turns),
            talk.max_tokens,
        )
        turns = _prepared(
            ask, iteration, remarks, talk.context_tokens, record, spent, place.results, stopped
        )
        reply = ask_model(
            line,
            replace(ask, turns=tuple(turns)),
            f"{REPLY}{iteration}",
            record,
            spent,
            cancelled=place.cancelled,
            room=watcher.room,
        )
        turns.append(reply.turn)
        stopped = reply.stop_reason
        uses = reply.turn.tool_uses
        if uses:
            outcomes = _calls(
                iteration, uses, talk.tools, place, record, watcher, cut=stopped in _BROKEN_OFF
            )
            watcher.round_over(iteration, uses)
            turns.append(
                user_turn(
                    [_result(use, outcome) for use, outcome in zip(uses, outcomes, strict=True)]
                )
            )
        elif stopped is not StopReason.PAUSE_TURN:
            turns.append(user_turn([text_block(watcher.no_call(reply.turn.text, stopped))]))
        watcher.turn_over(stopped)


_BROKEN_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.REFUSAL})
"""The answer ended in the middle: a call in it may be half of one."""


def _prepared(
    ask: Ask,
    iteration: int,
    remarks: Sequence[str],
    context_tokens: int,
    record: Record,
    spent: Spent,
    results: Results,
    stopped: StopReason | None,
) -> list[Turn]:
    """Return the turns as they are sent for the `iteration`-th time: with remarks, and old results replaced if it gets tight.

    What is decided is recorded before it is sent, so that a resumed conversation says the same again, byte for byte.
    """
    key = f"turn:{iteration}"
    known = record.outcome(key)
    if known is None:
        full = stopped is StopReason.CONTEXT_FULL
        made = make_room(ask, spent.last_usage, context_tokens, results.keep, full=full)
        known = json.dumps(
            {"remarks": list(remarks), "compaction": None if made is None else asdict(made)}
        ).encode()
        row = record.row(
            Action.CONVERSATION_COMPACTED,
            Actor.SYSTEM,
            iteration=iteration,
            **(asdict(made) if made else {}),
        )
        record.settle(key, known, *([row] if made else []))
    decided = json.loads(known)
    turns = list(ask.turns)
    if decided["compaction"] is not None:
        turns = list(compacted(turns, Compaction(**decided["compaction"]), results.keep))
    said = [text_block(remark) for remark in decided["remarks"]]
    if said and turns[-1].role == "user":
        turns[-1] = user_turn([*turns[-1].blocks, *said])
    elif said:
        turns.append(user_turn(said))
    return turns


def _calls(
    iteration: int,
    uses: Sequence[ToolUse],
    tools: Mapping[str, Tool[Any]],
    place: Workplace,
    record: Record,
    watcher: Watcher,
    *,
    cut: bool,
) -> list[Outcome]:
    """Carry the calls of one turn out, in order.

    Reads that follow one another are done at the same time.

    What they came to is recorded and shown to the watcher in order all the same.
    """
    prefix = f"call:{iteration}"
    outcomes: list[Outcome] = []
    ahead: dict[int, _Done] = {}
    try:
        for i, use in enumerate(uses):
            if i not in ahead and not cut:
                ahead = _reads_at_once(prefix, uses, i, tools, place, record)
            known = record.outcome(f"{prefix}:{i}")
            if known is not None:
                outcome = OUTCOME_JSON.validate_json(known)
            elif cut:
                outcome = CUT_OFF
            elif (answer := watcher.instead(use)) is not None:
                outcome = answer
                settle_call(f"{prefix}:{i}", use, outcome, 0.0, place.secrets, record)
            else:
                outcome = call_on_record(
                    f"{prefix}:{i}",
                    use,
                    tools,
                    place,
                    record,
                    ahead.get(i),
                    again=partial(watcher.bring_back, iteration, uses[:i]),
                    hold=_reads(tools, use),
                )
            watcher.saw(use, outcome)
            outcomes.append(outcome)
    finally:
        record.flush()
    return outcomes


_Done = tuple[Outcome, float]
"""What a call came to, and the milliseconds that it took."""

READERS = 8
"""Reads that are done at the same time: they wait for the disk, not for a processor."""


def _reads_at_once(
    prefix: str,
    uses: Sequence[ToolUse],
    start: int,
    tools: Mapping[str, Tool[Any]],
    place: Workplace,
    record: Record,
) -> dict[int, _Done]:
    """Do the reads from `start` up to the next call that is none at the same time.

    Nothing for fewer than two.
    """
    end = start
    if record.halt is not None:
        return {}
    while (
        end < len(uses) and record.outcome(f"{prefix}:{end}") is None and _reads(tools, uses[end])
    ):
        end += 1
    if end - start < 2:
        return {}
    from concurrent.futures import ThreadPoolExecutor  # here: an idle daemon does without it

    with ThreadPoolExecutor(
        max_workers=min(READERS, end - start), thread_name_prefix="read"
    ) as pool:
        done = list(pool.map(lambda use: _timed(use, tools, place, record.clock), uses[start:end]))
    return dict(enumerate(done, start))


def _reads(tools: Mapping[str, Tool[Any]], use: ToolUse) -> bool:
    tool = tools.get(use.name)
    return tool is not None and tool.effect is Effect.READ


def _timed(use: ToolUse, tools: Mapping[str, Tool[Any]], place: Workplace, clock: Clock) -> _Done:
    began = clock.monotonic()
    outcome = Toolbox(tools, place).dispatch(use.name, use.input)
    return outcome, (clock.monotonic() - began) * 1000


def may_be_half_done(name: str) -> bool:
    """Say whether a call of this tool that was cut off may have done part of its work, or work that cannot be done twice."""
    tool = BY_NAME.get(name)
    return tool is not None and (tool.effect is Effect.EXECUTE or tool.name == "edit_file")


def call_on_record(
    key: str,
    use: ToolUse,
    tools: Mapping[str, Tool[Any]],
    place: Workplace,
    record: Record,
    done: _Done | None = None,
    *,
    again: Callable[[], bool],
    hold: bool = False,
) -> Outcome:
    """Carry a call out between its intent and its outcome, and journal it.

    `done` is a read that was carried out already.

    `hold` is as for `Record.settle`.

    A call that an earlier life began and did not see the end of is repeated: at once where that
    does no harm (reading, writing a whole file, the mission's own controls), and where half of it
    may be done after `again`, which makes the place what it was before it. Where that cannot be
    done the call is answered as interrupted.
    """
    record.fresh()
    tool = tools.get(use.name)
    if record.cut_off(key) and tool is not None and may_be_half_done(use.name) and not again():
        outcome, took_ms = INTERRUPTED, 0.0
    elif done is not None:
        outcome, took_ms = done
        outcome = replace(outcome, took_s=took_ms / 1000)
    else:
        if not _reads(tools, use):
            record.intend(key, json.dumps({"tool": use.name, "input": dict(use.input)}).encode())
        outcome, took_ms = _timed(use, tools, place, record.clock)
        outcome = replace(outcome, took_s=took_ms / 1000)
        if place.cancelled() and tool is not None and tool.effect is Effect.EXECUTE:
            raise Interrupted(f"stopped during {use.name}")
    if outcome.error_type in MACHINE_FAULTS:
        raise Postponed(json.loads(outcome.content)["error"], MACHINE_RETRY_S, Why.MACHINE)
    settle_call(key, use, outcome, took_ms, place.secrets, record, hold=hold)
    return outcome


def settle_call(
    key: str,
    use: ToolUse,
    outcome: Outcome,
    took_ms: float | None,
    secrets: Sequence[str],
    record: Record,
    *,
    hold: bool = False,
) -> None:
    """Record what a call came to, with its row: `tool.refused` for whatever a policy or a guard said no to.

    `took_ms` is None where nobody saw the end of it.
    """
    about, took_ms = target(use, secrets), None if took_ms is None else round(took_ms, 1)
    if outcome.refused:
        row = record.row(
            Action.TOOL_REFUSED,
            Actor.AGENT,
            tool=use.name,
            target=about,
            error_type=outcome.error_type,
            ok=False,
            duration_ms=took_ms,
        )
    else:
        row = record.row(
            Action.TOOL_CALLED,
            Actor.AGENT,
            tool=use.name,
            target=about,
            ok=outcome.ok,
            error_type=outcome.error_type,
            exit_code=outcome.exit_code,
            size=len(outcome.content),
            duration_ms=took_ms,
        )
    record.settle(key, OUTCOME_JSON.dump_json(outcome), row, hold=hold)


CUT_OFF = Outcome(
    json.dumps(
        {
            "error": "Your answer was cut off at the token limit, so this call was not carried out. Make "
            "smaller calls.",
            "error_type": "cut_off",
        }
    ),
    ok=False,
    error_type="cut_off",
)
INTERRUPTED = Outcome(
    json.dumps(
        {
            "error": "The daemon was stopped during this call; part of it may have taken effect. Look "
            "before you repeat it.",
            "error_type": "interrupted",
        }
    ),
    ok=False,
    error_type="interrupted",
)


def target(use: ToolUse, secrets: Sequence[str] = ()) -> str:
    """Return what a call was about, for a journal row or a report: a path, a command, a pattern.

    Never a content.
    """
    tool = BY_NAME.get(use.name)
    return "" if tool is None else tool.target(use.input, secrets)


def _result(use: ToolUse, outcome: Outcome) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = outcome.content
    if outcome.image:
        content = [
            {"type": "text", "text": outcome.content},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": outcome.image},
            },
        ]
    return {
        "type": "tool_result",
        "tool_use_id": use.id,
        "content": content,
        "is_error": not outcome.ok,
    }
