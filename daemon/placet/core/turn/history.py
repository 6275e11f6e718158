"""The history of a mission, folded call by call and turn by turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice, takewhile
from pathlib import PurePosixPath
from typing import Any

from placet.chat.messages import StopReason


class Deed(StrEnum):
    """The effect of a tool; the values are those of the tools' effects."""

    READ = "read"
    WRITE = "write"
    RUN = "execute"
    CONTROL = "control"


def canonical(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the text by which two calls are the same: tool and arguments as canonical JSON."""
    given = json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{tool}|{given}"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that the model asks for.

    `path` is the file that it reads or writes, the folder that it lists or searches; empty is
    everything. `about` is how it is named in what people read (no contents).
    """

    tool: str
    arguments: Mapping[str, Any]
    deed: Deed
    path: str = ""
    about: str = ""
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", canonical(self.tool, self.arguments))
        path = str(PurePosixPath(self.path))
        object.__setattr__(self, "path", "" if path == "." else path)

    def __str__(self) -> str:
        return f"`{self.tool} {self.about}`" if self.about else f"`{self.tool}`"


@dataclass(frozen=True, slots=True)
class CallSeen:
    """A call and its outcome.

    `ok` says that the tool worked; a command that ran and ended with an error code worked.
    `refused` that policy said no, `repeated` that a guard did (`check_call` said Instead).
    `result_digest` is a digest of the result, empty for an empty one.
    """

    call: CallRecord
    ok: bool = True
    refused: bool = False
    repeated: bool = False
    result_digest: str = ""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model turn: the calls that it asked for, in order, and the reason why it stopped."""

    calls: tuple[CallSeen, ...]
    stop_reason: StopReason

    def did(self, *deeds: Deed) -> bool:
        """Return whether a call of one of these kinds succeeded."""
        return any(seen.ok and seen.call.deed in deeds for seen in self.calls)


class Pattern(StrEnum):
    """Patterns that the model is told of once, and that end the mission if they go on."""

    REFUSAL = "refusal"
    CONTEXT_FULL = "context_full"
    CUT_OFF = "cut_off"
    LOOP = "loop"
    REPETITION = "repetition"
    ALTERNATION = "alternation"
    FAILING = "failing"
    REFUSED = "refused"
    TALK = "talk"
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class Nudge:
    """Go on, and put `text` before the model; add it to the history (`with_nudge`)."""

    patterns: tuple[Pattern, ...]
    text: str


@dataclass(frozen=True, slots=True)
class History:
    """A mission so far.

    `under_way` are the calls of the open turn; `nudged` has the number of turns after which the
    model was told of a pattern.
    """

    steps: tuple[StepRecord, ...] = ()
    under_way: tuple[CallSeen, ...] = ()
    nudged: Mapping[Pattern, int] = field(default_factory=dict)

    def with_call(self, call: CallSeen) -> History:
        """Add a call of the turn under way."""
        return replace(self, under_way=(*self.under_way, call))

    def with_step(self, stop_reason: StopReason) -> History:
        """Close the turn under way, with the calls added since the last one."""
        return replace(
            self, steps=(*self.steps, StepRecord(self.under_way, stop_reason)), under_way=()
        )

    def with_nudge(self, nudge: Nudge) -> History:
        """Note that the model was told; the same turn counts for it no more."""
        told = {pattern: len(self.steps) for pattern in nudge.patterns}
        return replace(self, nudged={**told, **self.nudged})

    def backwards(self) -> Iterator[CallSeen]:
        """Yield every call, the newest first."""
        yield from reversed(self.under_way)
        for step in reversed(self.steps):
            yield from reversed(step.calls)


# --- how often something stands at the end


def count_at_end(steps: Sequence[StepRecord], counts: Callable[[StepRecord], bool]) -> int:
    """Return how many steps at the end are of one kind."""
    return sum(1 for _ in takewhile(counts, reversed(steps)))


def turns_of_talk(steps: Sequence[StepRecord]) -> int:
    """Return the number of turns at the end that called no tool.

    One that was paused or cut short is neither talk nor its end.
    """
    silent = steps[len(steps) - count_at_end(steps, lambda step: not step.calls) :]
    return sum(step.stop_reason in _TALKED for step in silent)


_TALKED = frozenset(
    {StopReason.END_TURN, StopReason.STOP_SEQUENCE, StopReason.TOOL_USE, StopReason.UNKNOWN}
)


def idle_turns(steps: Sequence[StepRecord]) -> int:
    """Return the number of turns since the last one that wrote a file or completed a step.

    0 before the first write.
    """
    if not any(step.did(Deed.WRITE) for step in steps):
        return 0
    return count_at_end(steps, lambda step: not step.did(Deed.WRITE, Deed.CONTROL))


def identical_rounds(steps: Sequence[StepRecord]) -> int:
    """Return how many of the last turns with calls made the very same ones, in the same order."""
    rounds = [[seen.call.key for seen in step.calls] for step in steps if step.calls]
    return sum(1 for _ in takewhile(rounds[-1].__eq__, reversed(rounds)))


def alternating_calls(history: History) -> int:
    """Return the number of calls at the end of the form … A B A B; 0 for two equal last calls."""
    pair = [seen.call.key for seen in islice(history.backwards(), 2)]
    if len(set(pair)) < 2:
        return 0
    calls = enumerate(history.backwards())
    return sum(1 for _ in takewhile(lambda one: one[1].call.key == pair[one[0] % 2], calls))


def failures_of(history: History, failed: CallSeen) -> int:
    """Return how often this very call failed since it last worked.

    Calls that were not tried do not count.
    """
    same = (seen for seen in history.backwards() if seen.call.key == failed.call.key)
    return sum(not seen.repeated for seen in takewhile(lambda seen: not seen.ok, same))
