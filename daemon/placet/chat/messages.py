"""Define a conversation's types and the Model protocol.

The assistant's blocks are kept exactly as they came (plain JSON objects, thinking blocks too) and
sent back unchanged: the Messages API requires it, and prompt caching needs byte-equal prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from placet.errors import PlacetError

# one content block of the Messages API: `{"type": "text", "text": …}`, `tool_use`, `tool_result`, …
Block = Mapping[str, Any]


class Purpose(StrEnum):
    """The purpose of a conversation.

    The scripted model chooses its replies by it, and the journal names it.
    """

    PLAN = "plan"
    REVISE = "revise"
    EXECUTE = "execute"


class StopReason(StrEnum):
    """The model's stop reason, as the Messages API names it; `unknown` for a new one."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    TOOL_USE = "tool_use"
    PAUSE_TURN = "pause_turn"
    REFUSAL = "refusal"
    CONTEXT_FULL = "model_context_window_exceeded"
    STOP_SEQUENCE = "stop_sequence"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is offered it. `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call that the model asked for."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: `role` is `user` or `assistant`, `blocks` its content, in order."""

    role: str
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines; thinking is not text."""
        return "\n".join(str(b.get("text", "")) for b in self.blocks if b.get("type") == "text")

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls asked for in this turn, in order."""
        return tuple(
            ToolUse(
                str(b["id"]), str(b["name"]), b["input"] if isinstance(b["input"], Mapping) else {}
            )
            for b in self.blocks
            if b.get("type") == "tool_use"
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply.

    `input_tokens` counts neither cache reads nor cache writes, as in the Messages API.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt: uncached, read from the cache and written to it."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class Ask:
    """Everything one model call needs. `system` blocks come in order, stable ones first.

    `must_call`: the answer has to be a call of one of the tools.
    """

    purpose: Purpose
    request_id: str
    trace_id: str
    system: tuple[str, ...]
    tools: tuple[ToolSpec, ...]
    turns: tuple[Turn, ...]
    max_tokens: int = 8_192
    must_call: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete answer of a model. `written` is the call that it wrote as text, if any."""

    turn: Turn
    stop_reason: StopReason
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    written: ToolUse | None = None

    @property
    def uses(self) -> tuple[ToolUse, ...]:
        """The calls asked for, in order."""
        return self.turn.tool_uses or (() if self.written is None else (self.written,))


class ModelErrorKind(StrEnum):
    """What to do after a failed call."""

    # overload, rate limit, reset, cut stream, time-out, connection refused: try again
    TRANSIENT = "transient"
    # no key, no credit, unknown model: wait until a person fixes it
    PERMANENT = "permanent"
    CONTEXT_FULL = "context_full"  # the prompt is too long: shorten it
    BAD_REQUEST = "bad_request"  # this request cannot succeed: a retry is pointless
    CANCELLED = "cancelled"  # the daemon is stopping, or the mission was stopped


class ModelError(PlacetError):
    """A model call failed. `retry_after_s` is the server's Retry-After, None without one.

    `served`: the server may have worked on it, and may charge for it. `used` is the usage that it
    reported by then, None for none. `unusable`: the answer came whole, and cannot be used. The
    message never has the request, its headers or the key.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        served: bool = False,
        unusable: bool = False,
    ) -> None:
        super().__init__(message)
        self.served = served
        self.unusable = unusable
        self.used: Usage | None = None
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s


class Model(Protocol):
    """A source of replies. One call is one attempt; the caller decides on retries."""

    @property
    def provider(self) -> str:
        """The provider's name in the configuration."""
        ...

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    def reply(
        self,
        ask: Ask,
        cancelled: Callable[[], bool],
        received: Callable[[int], None] = lambda _pieces: None,
    ) -> Reply:
        """Answer `ask`, or raise ModelError.

        `cancelled` is polled while waiting (at least every 0.5 s). `received` is told then how many
        pieces of the answer have come; with most servers a piece is a token.
        """
        ...


def user_turn(blocks: Sequence[Block]) -> Turn:
    """Return a user turn of these blocks."""
    return Turn("user", tuple(blocks))


def text_block(text: str) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text}
