"""Test how events become a reply, and what is sent for a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from placet.chat.messages import (
    Ask,
    ModelError,
    Purpose,
    StopReason,
    ToolSpec,
    Turn,
    text_block,
    user_turn,
)
from placet.models.messages import (
    MOST_TOKENS,
    EventReader,
    JoinedEvents,
    OverLimit,
    reply_of,
    request_of,
)

STREAM = (
    b'event: a\ndata: {"x":\ndata: 1}\n\n: a comment\n\nevent: b\r\ndata:\xc3\xa9\r\n\r\nevent: c\n'
)
CALL = {"type": "tool_use", "id": "1", "name": "grep", "input": {}}


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_events_are_read_in_pieces_of_any_size(size: int) -> None:
    reader = EventReader()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    found = [event for piece in pieces for event in reader.read(piece)]
    assert found == [("a", '{"x":\n1}'), ("b", "é")]


def test_overlong_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placet.models.messages._MAX_EVENT_BYTES", 100)
    reader = EventReader()
    assert list(reader.read(b"event: a\ndata: 1\n\n" * 50))
    with pytest.raises(OverLimit):
        list(reader.read(b"data: " + b"x" * 100))


def joined(*pieces: str, reason: str = "tool_use", **message: Any) -> JoinedEvents:
    events = JoinedEvents()
    events.add({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 7}}})
    events.add({"type": "content_block_start", "index": 0, "content_block": CALL})
    for piece in pieces:
        delta = {"type": "input_json_delta", "partial_json": piece}
        events.add({"type": "content_block_delta", "index": 0, "delta": delta})
    end = {"stop_reason": reason}
    events.add({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    assert events.message is not None
    events.message.update(message)
    return events


def test_input_of_call_is_joined_from_pieces() -> None:
    reply = reply_of(joined('{"pat', 'tern": ', '"x"}').received(), "m")
    assert reply.turn.blocks == ({**CALL, "input": {"pattern": "x"}},)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 3)
    assert (reply.stop_reason, reply.model) == (StopReason.TOOL_USE, "m")


@pytest.mark.parametrize(("reason", "is_usable"), [("max_tokens", True), ("tool_use", False)])
def test_part_of_an_input_is_never_a_call(reason: str, is_usable: bool) -> None:
    received = joined('{"pattern": "x', reason=reason).received()
    if is_usable:
        assert reply_of(received, "m").turn.blocks[0]["input"] == {}
    else:
        with pytest.raises(ModelError, match="not JSON"):
            reply_of(received, "m")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"stop_reason": None, "content": []}, "cut before"),
        ({"stop_reason": "end_turn"}, "no content"),
        ({"stop_reason": "end_turn", "content": [{}]}, "no type"),
        ({"stop_reason": "end_turn", "content": [{**CALL, "name": ""}]}, "no name"),
        ({"stop_reason": "end_turn", "content": [{**CALL, "input": []}]}, "not an object"),
        ({"stop_reason": "end_turn", "content": [CALL, CALL]}, "same id"),
        ({"stop_reason": "end_turn", "content": [{"type": "text", "text": "\ud800"}]}, "sent back"),
    ],
)
def test_unusable_reply_says_what_is_wrong(message: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        reply_of((message, {}), "m")


@pytest.mark.parametrize("count", [None, -1, True, "7", 1.5, MOST_TOKENS + 1])
def test_implausible_token_count_is_missing(count: Any) -> None:
    message = {"stop_reason": "end_turn", "content": [], "usage": {"input_tokens": count}}
    assert reply_of((message, {}), "m").usage.input_tokens == 0


def test_request_marks_three_places_for_the_cache() -> None:
    thinks = {"type": "thinking", "thinking": "…", "signature": "s"}
    ask = Ask(
        Purpose.PLAN,
        "r",
        "t",
        ("Stable.", " ", "Changing."),
        (ToolSpec("grep", "Search.", {"type": "object"}), ToolSpec("glob", "Find.", {})),
        (user_turn([text_block("Hi")]), Turn("assistant", (thinks,)), Turn("user", ())),
    )
    request = request_of(ask, "m")
    assert [block["text"] for block in request["system"]] == ["Stable.", "Changing."]
    assert ["cache_control" in part for part in request["system"]] == [False, True]
    assert ["cache_control" in part for part in request["tools"]] == [False, True]
    assert "cache_control" in request
    assert [turn["role"] for turn in request["messages"]] == ["user", "assistant"]
    assert request["messages"][0]["content"] == [text_block("Hi")]
    assert "thinking" not in json.dumps(request["messages"]), "the API refuses it at the end"
