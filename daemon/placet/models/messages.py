"""Convert between values and the Messages API: write a request, join an answer from its events.

Tools are offered without `strict`: the API compiles all strict schemas of a request into one
grammar and refuses the request if that is too large, at an undocumented size. placet checks every
input itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placet.chat.messages import (
    Ask,
    Block,
    ModelError,
    ModelErrorKind,
    Reply,
    StopReason,
    Turn,
    Usage,
)
from placet.codec import is_deeper
from placet.wording import megabytes

_CACHED = {"type": "ephemeral"}

MAX_REPLY_BYTES = 32_000_000
"""Longest answer on the wire. 128,000 tokens take about 20 MB if each one is an event."""

MAX_ERROR_BYTES = 1_000_000
"""Longest error answer."""

_MAX_EVENT_BYTES = 4_000_000
_MAX_CONTENT_CHARACTERS = 4_000_000
_MAX_BLOCKS = 1_000
_MAX_DEPTH = 100  # pydantic's limit is 255, and a block is nested in other values


class OverLimit(ValueError):  # noqa: N818 - named for what happened, as Stop is
    """An answer is longer than any model's; the message is for people."""


class EventReader:
    """Reads server-sent events in time linear in their bytes.

    The SDK's decoder copies an unfinished event with each piece that arrives.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._bytes = 0

    def read(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """Yield name and data of each event that ends in `piece`.

        Raises OverLimit for an event that is too long, ValueError for bytes that are not UTF-8.
        """
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._add(end)
            line = b"".join(self._line).removesuffix(b"\r").decode()
            self._line.clear()
            if line:
                self._read_field(line)
                continue
            if self._name:
                yield self._name, "\n".join(self._data)
            self._name, self._data, self._bytes = "", [], 0
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._line.append(part)
        self._bytes += len(part)
        if self._bytes > _MAX_EVENT_BYTES:
            raise OverLimit(f"an event of the answer is longer than {megabytes(_MAX_EVENT_BYTES)}")

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)


Received = tuple[Mapping[str, Any], Mapping[int, str]]
"""A joined message, and by block index the JSON text of each tool call's input."""


class JoinedEvents:
    """Joins the events of one answer. `pieces` counts the parts of blocks.

    The SDK's helper parses a call's input again with each piece, which takes quadratic time.
    """

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._characters = 0
        self.pieces = 0

    def add(self, event: Any) -> None:
        """Add the next event.

        Raises ValueError, TypeError, LookupError or AttributeError for a malformed one, OverLimit
        for one that makes the answer too long.
        """
        match event["type"]:
            case "content_block_delta":
                self._add_piece(event["index"], event["delta"])
            case "content_block_start":
                if len(self._blocks) == _MAX_BLOCKS:
                    raise OverLimit(f"the answer has more than {_MAX_BLOCKS:,} parts")
                self._blocks.append(dict(event["content_block"]))
            case "message_start":
                if self.message is not None or self._blocks:
                    raise ValueError("a second message, or one that began before its start")
                self.message = dict(event["message"])
            case "message_delta":
                if self.message is None:
                    raise ValueError("the end of a message that has not begun")
                self.message["stop_reason"] = event["delta"].get("stop_reason")
                counts = event.get("usage") or {}  # not every server counts tokens
                self.message["usage"] = {
                    **(self.message.get("usage") or {}),
                    **{key: count for key, count in counts.items() if count is not None},
                }

    def _add_piece(self, index: int, delta: Any) -> None:
        if index < 0:
            raise IndexError(index)
        self.pieces += 1
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" if block["type"] == "text":
                self._append(index, "text", delta["text"])
            case "input_json_delta":
                self._append(index, "input", delta["partial_json"])
            case "thinking_delta" if block["type"] == "thinking":
                self._append(index, "thinking", delta["thinking"])
            case "signature_delta" if block["type"] == "thinking":
                block["signature"] = delta["signature"]

    def _append(self, index: int, key: str, piece: str) -> None:
        self._characters += len(piece)
        if self._characters > _MAX_CONTENT_CHARACTERS:
            most = _MAX_CONTENT_CHARACTERS // 1_000_000
            raise OverLimit(f"the answer is longer than {most} million characters")
        self._pieces.setdefault((index, key), []).append(piece)

    @property
    def used(self) -> Usage | None:
        """Return the server's latest token counts; None before the first."""
        usage = _usage(self.message.get("usage")) if self.message is not None else Usage()
        return usage if usage != Usage() else None

    def received(self) -> Received:
        """Return the joined message. Raises TypeError for pieces that are not text."""
        inputs: dict[int, str] = {}
        for (index, key), pieces in self._pieces.items():
            if key == "input":
                inputs[index] = "".join(pieces)
            else:
                self._blocks[index][key] = "".join([self._blocks[index].get(key) or "", *pieces])
        return {**(self.message or {}), "content": self._blocks}, inputs


def request_of(ask: Ask, name: str) -> dict[str, Any]:
    """Return the request's arguments for `ask`.

    Everything before the last turn is the same, byte for byte, in every request of a conversation.
    Three cache marks: the tools, the system prompt (both outlive the conversation, and still hit if
    a turn of more than 20 blocks puts the third out of reach), and the last block. The API refuses
    turns without blocks, so they are left out; for more see `_content`.
    """
    request: dict[str, Any] = {
        "max_tokens": ask.max_tokens,
        "messages": [
            {"role": turn.role, "content": content}
            for turn in ask.turns
            if (content := _content(turn))
        ],
        "model": name,
        "cache_control": _CACHED,
    }
    system = [{"type": "text", "text": words} for words in ask.system if words.strip()]
    if system:
        request["system"] = _marked(system)
    if ask.tools:
        request["tools"] = _marked(
            [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": dict(tool.input_schema),
                }
                for tool in ask.tools
            ]
        )
    if ask.must_call:
        request["tool_choice"] = {"type": "any"}
    return request


def _content(turn: Turn) -> list[dict[str, Any]]:
    """Return the blocks to send for a turn.

    The API refuses thinking at the end of a turn, so an answer that was cut off while thinking is
    sent without it. An answer of thinking only is replaced by a fixed sentence.
    """
    blocks = [dict(block) for block in turn.blocks]
    while turn.role == "assistant" and blocks and blocks[-1].get("type") in _THOUGHTS:
        blocks.pop()
    return blocks or ([dict(_UNSAID)] if turn.blocks else [])


_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_UNSAID = {"type": "text", "text": "[This answer ended before anything was said.]"}


def _marked(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*parts[:-1], {**parts[-1], "cache_control": _CACHED}]


def reply_of(received: Received, name: str) -> Reply:
    """Return the reply in a received message; raises ModelError (transient) for an unusable one.

    Blocks stay as they came, except for what the API would refuse later: keys that are null, and
    empty text blocks. The input of a call that `max_tokens` cut off is `{}`, never a part.
    """
    message, inputs = received
    reason = message.get("stop_reason")
    if reason is None:
        why = "the stream was cut before the answer was complete"
        raise ModelError(ModelErrorKind.TRANSIENT, why, served=True)
    content = message.get("content")
    if not isinstance(content, list):
        raise _malformed("the answer has no content")
    blocks: list[Block] = []
    for index, raw in enumerate(content):
        if not isinstance(raw, Mapping) or not isinstance(raw.get("type"), str):
            raise _malformed("a block of the answer has no type")
        block = {key: value for key, value in raw.items() if value is not None}
        if block["type"] == "tool_use":
            if inputs.get(index):
                block["input"] = _input_of(inputs[index], cut=reason in _BREAKING_OFF)
            _check_call(block)
        elif block["type"] == "text" and not str(block.get("text", "")).strip():
            continue
        blocks.append(block)
    if is_deeper(blocks, _MAX_DEPTH):
        raise _malformed(f"the answer is nested more than {_MAX_DEPTH} levels deep")
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if len(set(calls)) < len(calls):
        raise _malformed("two calls of the answer have the same id")
    try:
        json.dumps(blocks, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise _malformed(
            "the answer holds characters or numbers that cannot be sent back"
        ) from None
    return Reply(
        Turn("assistant", tuple(blocks)),
        StopReason(reason) if reason in tuple(StopReason) else StopReason.UNKNOWN,
        _usage(message.get("usage")),
        _model_name(message.get("model")) or name,
    )


_MODEL_NAME_CHARACTERS = 200


def _model_name(value: Any) -> str:
    """Return the server's name for the model; "" for one that a journal row cannot have."""
    is_name = isinstance(value, str) and len(value) <= _MODEL_NAME_CHARACTERS
    return value if is_name and value.isprintable() else ""


# the answer was cut off in the middle of a block
_BREAKING_OFF = (StopReason.MAX_TOKENS, StopReason.CONTEXT_FULL, StopReason.REFUSAL)


def _input_of(text: str, *, cut: bool) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if cut:
            return {}
        raise _malformed("the stream is malformed: the input of a call is not JSON") from None


def _check_call(block: Mapping[str, Any]) -> None:
    for key in ("id", "name"):
        if not isinstance(block.get(key), str) or not block[key]:
            raise _malformed(f"a call of the answer has no {key}")
    if not isinstance(block.get("input"), Mapping):
        raise _malformed("the input of a call is not an object")


def _usage(usage: Any) -> Usage:
    counts = usage if isinstance(usage, Mapping) else {}
    return Usage(
        input_tokens=_count(counts.get("input_tokens")),
        output_tokens=_count(counts.get("output_tokens")),
        cache_read_tokens=_count(counts.get("cache_read_input_tokens")),
        cache_write_tokens=_count(counts.get("cache_creation_input_tokens")),
    )


MOST_TOKENS = 1_000_000_000
"""Largest plausible token count. A larger one is treated as missing."""


def _count(value: Any) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MOST_TOKENS else 0


def _malformed(what: str) -> ModelError:
    # transient: a larger model seldom repeats such a mistake
    return ModelError(ModelErrorKind.TRANSIENT, what, served=True, unusable=True)
