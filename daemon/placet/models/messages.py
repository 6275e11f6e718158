"""The Messages API as values: a request's JSON, an answer out of its events, the meaning of errors.

Tools are offered without `strict`: the API compiles all strict schemas of a request into one
grammar and refuses the whole request if that grows too large, at an undocumented size; placet
checks every input itself anyway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from placet.core.turn.talk import (
    Ask,
    Block,
    ModelError,
    ModelErrorKind,
    Reply,
    StopReason,
    Turn,
    Usage,
)

_CACHED = {"type": "ephemeral"}

Received = tuple[Mapping[str, Any], Mapping[int, str]]
"""A joined message, and by block index the JSON text of each tool call's input."""


class JoinedEvents:
    """Joins the events of one answer.

    The SDK's helper parses a call's input again with each piece, in the square of its length.
    """

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def add(self, event: Any) -> None:
        """Add the next event.

        Raises ValueError, TypeError, LookupError or AttributeError for a malformed one.
        """
        match event["type"]:
            case "content_block_delta":
                self._add_piece(event["index"], event["delta"])
            case "content_block_start":
                self._blocks.append(dict(event["content_block"]))
            case "message_start":
                if self.message is not None or self._blocks:
                    raise ValueError("a second message, or one that began before its start")
                self.message = dict(event["message"])
            case "message_delta":
                if self.message is None:
                    raise ValueError("the end of a message that has not begun")
                self.message["stop_reason"] = event["delta"].get("stop_reason")
                counts = event.get("usage") or {}  # not every server counts
                self.message["usage"] = {
                    **(self.message.get("usage") or {}),
                    **{key: count for key, count in counts.items() if count is not None},
                }

    def _add_piece(self, index: int, delta: Any) -> None:
        if index < 0:
            raise IndexError(index)
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" if block["type"] == "text":
                self._pieces.setdefault((index, "text"), []).append(delta["text"])
            case "input_json_delta":
                self._pieces.setdefault((index, "input"), []).append(delta["partial_json"])
            case "thinking_delta" if block["type"] == "thinking":
                self._pieces.setdefault((index, "thinking"), []).append(delta["thinking"])
            case "signature_delta" if block["type"] == "thinking":
                block["signature"] = delta["signature"]
            case "citations_delta" if block["type"] == "text":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    @property
    def used(self) -> Usage | None:
        """Return the server's token counts so far; None before the first."""
        told = _usage(self.message.get("usage")) if self.message is not None else Usage()
        return told if told != Usage() else None

    def received(self) -> Received:
        """Return the joined message. Raises TypeError for pieces that are no text."""
        inputs: dict[int, str] = {}
        for (index, key), pieces in self._pieces.items():
            if key == "input":
                inputs[index] = "".join(pieces)
            else:
                self._blocks[index][key] = "".join([self._blocks[index].get(key) or "", *pieces])
        return {**(self.message or {}), "content": self._blocks}, inputs


def request_of(ask: Ask, name: str) -> dict[str, Any]:
    """Return the request's arguments for `ask`.

    All before the last turn is the same, byte for byte, in every request of a conversation. Three
    cache marks: the tools, the system prompt (both outlive the conversation, and hold if a turn of
    more than 20 blocks puts the third out of reach), and, at the top, the last block. Turns without
    blocks are left out, because the API refuses them; for more see `_content`.
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
    return request


def _content(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn's blocks as they are sent.

    The API refuses thinking at the end of a turn, so an answer that broke off in its thinking goes
    without it; one of nothing else is replaced by a sentence of ours.
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
    text blocks without text. The input of a call that `max_tokens` cut off is `{}`, never a part.
    """
    message, inputs = received
    reason = message.get("stop_reason")
    if reason is None:
        raise _malformed("the stream was cut before the answer was complete")
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
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if len(set(calls)) < len(calls):
        raise _malformed("two calls of the answer have the same id")
    try:
        json.dumps(blocks, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        raise _malformed(
            "the answer holds characters or numbers that cannot be sent back"
        ) from None
    model = message.get("model")
    return Reply(
        Turn("assistant", tuple(blocks)),
        _stop_reason(reason),
        _usage(message.get("usage")),
        model if isinstance(model, str) and model else name,
    )


# the model was stopped in the middle of a block
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


def _stop_reason(reason: Any) -> StopReason:
    return StopReason(reason) if reason in tuple(StopReason) else StopReason.UNKNOWN


def _usage(usage: Any) -> Usage:
    counts = usage if isinstance(usage, Mapping) else {}
    return Usage(
        input_tokens=_count(counts.get("input_tokens")),
        output_tokens=_count(counts.get("output_tokens")),
        cache_read_tokens=_count(counts.get("cache_read_input_tokens")),
        cache_write_tokens=_count(counts.get("cache_creation_input_tokens")),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _malformed(what: str) -> ModelError:
    # transient: asked again, a model seldom makes the same mistake
    return ModelError(ModelErrorKind.TRANSIENT, what, served=True)
