"""The history of a mission, folded call by call and turn by turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from placet.core.turn.talk import StopReason


class Deed(StrEnum):
    """What a tool does; the values are those of the tools' effects."""

    READ = "read"
    WRITE = "write"
    RUN = "execute"
    CONTROL = "control"


def canonical(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the text by which two calls are the same call: the tool and its arguments as canonical JSON."""
    return f"{tool}|{json.dumps(dict(arguments), sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


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
    """A call and what it came to.

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
    """One model turn: the calls that it asked for, in order, and why it stopped.

    `iteration` counts from 1.
    """

    iteration: int
    calls: tuple[CallSeen, ...]
    stop_reason: StopReason


class Pattern(StrEnum):
    """What is told once and then ends the mission."""

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
class History:
    """A mission so far: its turns, the calls of the turn under way, and after how many turns it was nudged for what."""

    steps: tuple[StepRecord, ...] = ()
    under_way: tuple[CallSeen, ...] = ()
    nudged: Mapping[Pattern, int] = field(default_factory=dict)

    def with_call(self, call: CallSeen) -> History:
        """Add a call of the turn under way."""
        return replace(self, under_way=(*self.under_way, call))

    def with_step(self, stop_reason: StopReason) -> History:
        """Close the turn under way, with the calls added since the last one."""
        step = StepRecord(len(self.steps) + 1, self.under_way, stop_reason)
        return replace(self, steps=(*self.steps, step), under_way=())

    def with_nudge(self, nudge: Nudge) -> History:
        """Note that the model was told; the same turn counts for it no more."""
        return replace(
            self, nudged={**{pattern: len(self.steps) for pattern in nudge.patterns}, **self.nudged}
        )

    def backwards(self) -> Iterator[CallSeen]:
        """Yield every call, the newest first."""
        yield from reversed(self.under_way)
        for step in reversed(self.steps):
            yield from reversed(step.calls)


@dataclass(frozen=True, slots=True)
class Nudge:
    """Go on, and put `text` before the model; add it to the history (`with_nudge`)."""

    patterns: tuple[Pattern, ...]
    text: str
