"""Run one suite on every provider: the real SDK against a local server, and the replay file."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise, repeat
from pathlib import Path
from unittest.mock import Mock, patch

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placet
from messages_api import (
    Answer,
    MessagesApi,
    call,
    closed_port,
    cut,
    drip,
    hang,
    hang_midway,
    pouring,
    raw,
    reply,
    reset,
    reset_midway,
    sse_error,
    status,
    text,
    thinking,
)
from placet.chat.messages import (
    Ask,
    ModelError,
    ModelErrorKind,
    Purpose,
    StopReason,
    ToolSpec,
    Turn,
    Usage,
    text_block,
    user_turn,
)
from placet.errors import UserError
from placet.host.config import ModelTable
from placet.models import PROVIDERS, check, open_model
from placet.models.messages import reply_of

KEY = "sk-test-0123456789abcdefghijklmnop"
TRANSIENT, PERMANENT = ModelErrorKind.TRANSIENT, ModelErrorKind.PERMANENT
BAD_REQUEST, CANCELLED = ModelErrorKind.BAD_REQUEST, ModelErrorKind.CANCELLED
FULL = ModelErrorKind.CONTEXT_FULL
TOOLS = (
    ToolSpec(
        "read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
    ),
    ToolSpec(
        "write_file",
        "Writes a file.",
        {"type": "object", "properties": {"path": {"type": "string"}}},
    ),
)


def never() -> bool:
    return False


def ask_of(*turns: Turn, **changes) -> Ask:
    fields = {
        "purpose": Purpose.EXECUTE,
        "request_id": "add-login",
        "trace_id": "t-1",
        "system": ("You work in a vault.", "", "The plan is: add a login page to the site."),
        "tools": TOOLS,
        "turns": turns or (user_turn([text_block("Begin.")]),),
        "max_tokens": 1000,
    }
    return Ask(**{**fields, **changes})


def table(provider: str = "anthropic", name: str = "", base_url: str = "", **more) -> ModelTable:
    named = {"name": name} if name else {}
    return ModelTable(provider=provider, base_url=base_url, **named, **more)


def model_at(url: str, *, timeout_s: float = 20.0):
    return open_model(
        table("anthropic", "claude-opus-5-5", url, timeout_s=timeout_s),
        {"ANTHROPIC_API_KEY": KEY},
    )


def error_of(*script, ask: Ask | None = None, timeout_s: float = 20.0) -> ModelError:
    with MessagesApi(script) as api, pytest.raises(ModelError) as caught:
        model_at(api.url, timeout_s=timeout_s).reply(ask or ask_of(), never)
    assert len(api.requests) == 1, "one call is one attempt"
    assert KEY not in str(caught.value)
    assert "login page" not in str(caught.value)
    return caught.value


# What is asked


def test_request_body_matches_messages_api_exactly():
    with MessagesApi([reply(text("Good."))]) as api:
        model_at(api.url).reply(ask_of(), never)
    assert api.refused == []
    sent = api.requests[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    mark = {"type": "ephemeral"}
    assert sent.body == {
        "model": "claude-opus-5-5",
        "max_tokens": 1000,
        "stream": True,
        "cache_control": mark,
        "system": [
            {"type": "text", "text": "You work in a vault."},
            {
                "type": "text",
                "text": "The plan is: add a login page to the site.",
                "cache_control": mark,
            },
        ],
        "tools": [
            {
                "name": "read_file",
                "description": "Reads a file.",
                "input_schema": TOOLS[0].input_schema,
            },
            {
                "name": "write_file",
                "description": "Writes a file.",
                "input_schema": TOOLS[1].input_schema,
                "cache_control": mark,
            },
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}],
    }


def test_empty_system_prompt_and_tools_are_omitted():
    with MessagesApi([reply(text("Good."))]) as api:
        model_at(api.url).reply(ask_of(system=(" ",), tools=()), never)
    assert {"system", "tools"}.isdisjoint(api.requests[0].body)


def prefix_of(sent: dict) -> bytes:
    """What comes before the last message, as bytes."""
    return json.dumps(
        [sent["tools"], sent["system"], sent["messages"][:-1]], ensure_ascii=False
    ).encode()


def test_request_is_serialized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=json.dumps)
    monkeypatch.setattr("json.dumps", made)
    with MessagesApi([reply(text("Done."))]) as api:
        model_at(api.url).reply(ask_of(user_turn([text_block("Begin.")])), never)
    (request,) = api.requests
    asked = [one for one in made.call_args_list if "messages" in one.args[0]]
    assert len(asked) == 1, asked
    assert request.headers["content-type"] == "application/json"
    assert request.body["stream"] is True


def test_long_conversation_prefix_stays_byte_identical():
    odd = {"path": "b.py", "limit": 3, "ratio": 1.0, "nothing": None, "deep": [{"x": {}}]}
    script = [
        reply(
            thinking("First I look, größer 🙂", "sig=="),
            text("I look."),
            call("read_file", {"path": "ä/🙂.py"}),
            call("read_file", odd),
        ),
        reply(
            thinking("", "sig-of-hidden-thought"),
            call("write_file", {"path": "a.py", "content": "é🙂\n" * 500}),
        ),
        reply(),
        reply(text("Done.")),
    ]
    with MessagesApi(script) as api:
        model = model_at(api.url)
        turns = [user_turn([text_block("Begin.")])]
        for _ in script:
            answer = model.reply(ask_of(*turns), never)
            turns.append(answer.turn)
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": "1\t🙂"}
                for use in answer.turn.tool_uses
            ]
            turns.append(user_turn(results or [text_block("Go on.")]))
    assert api.refused == []
    bodies = [request.body for request in api.requests]
    for earlier, later in pairwise(bodies):
        known = later["messages"][: len(earlier["messages"])]
        assert known == earlier["messages"]
        assert prefix_of({**later, "messages": known}) == prefix_of(earlier)
    raw_messages = [request.raw.split(b'"messages":[', 1)[1] for request in api.requests]
    for earlier, later in pairwise(raw_messages):
        same = earlier.split(b'],"model"', 1)[0]
        assert later.startswith(same), "the SDK writes what was sent before in the same bytes"
    # The blocks went back as they came; the reply without blocks was left out, as the API does not
    # take it.
    first = turns[1].blocks
    assert first[0] == thinking("First I look, größer 🙂", "sig==")
    assert first[1] == text("I look.")
    assert first[2]["input"] == {"path": "ä/🙂.py"}
    assert first[3]["input"] == odd
    assert turns[3].blocks[1]["input"]["content"] == "é🙂\n" * 500
    assert turns[3].blocks[0]["signature"] == "sig-of-hidden-thought"
    assert [message["role"] for message in bodies[3]["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "user",
    ]
    assert bodies[3]["messages"][1]["content"] == [dict(block) for block in first]


# What is answered


def test_reply_fields_are_parsed():
    used = {
        "input_tokens": 7,
        "output_tokens": 55,
        "cache_read_input_tokens": 9000,
        "cache_creation_input_tokens": 300,
    }
    answer = reply(
        text("Two calls."),
        call("read_file", {"path": "a"}),
        call("list_directory"),
        usage=used,
        model="claude-opus-5-5-20261001",
    )
    with MessagesApi([answer]) as api:
        got = model_at(api.url).reply(ask_of(), never)
    assert got.turn.role == "assistant"
    assert got.turn.text == "Two calls."
    assert [(use.name, use.input) for use in got.turn.tool_uses] == [
        ("read_file", {"path": "a"}),
        ("list_directory", {}),
    ]
    assert got.stop_reason is StopReason.TOOL_USE
    assert got.usage == Usage(7, 55, 9000, 300)
    assert got.model == "claude-opus-5-5-20261001"
    assert json.loads(json.dumps(got.turn.blocks, default=dict)) == [
        dict(block) for block in got.turn.blocks
    ]


@pytest.mark.parametrize(
    ("said", "meant"),
    [*((reason.value, reason) for reason in StopReason), ("tired", StopReason.UNKNOWN)],
)
def test_stop_reason_is_mapped_or_unknown(said, meant):
    assert reply_of(({"content": [], "stop_reason": said}, {}), "m").stop_reason is meant


@pytest.mark.parametrize("count", [2**63, 10**4000, -1, 1.5, True, "7", None, [1]])
def test_implausible_token_count_is_ignored(count):
    used = {"input_tokens": count, "output_tokens": 3}
    message = {"content": [text("Hi.")], "stop_reason": "end_turn", "usage": used}
    assert reply_of((message, {}), "m").usage == Usage(0, 3)


@pytest.mark.parametrize("name", ["", "m" * 201, "a\nb", "\ud800", 7])
def test_invalid_model_name_in_reply_is_ignored(name):
    message = {"content": [text("Hi.")], "stop_reason": "end_turn", "model": name}
    assert reply_of((message, {}), "asked-for").model == "asked-for"


def test_blank_text_block_is_dropped():
    with MessagesApi([reply(text(" \n"), call("read_file", {"path": "a"}))]) as api:
        got = model_at(api.url).reply(ask_of(), never)
    assert [block["type"] for block in got.turn.blocks] == ["tool_use"]


def test_truncated_tool_call_gets_no_partial_input():
    half = call("run_command", '{"command": "rm", "args": ["-rf", "build/ou', "toolu_1")
    with MessagesApi([reply(half, stop_reason="max_tokens"), reply(half)]) as api:
        model = model_at(api.url)
        assert model.reply(ask_of(), never).turn.tool_uses[0].input == {}
        with pytest.raises(ModelError, match="not JSON") as caught:
            model.reply(ask_of(), never)
    assert caught.value.kind is TRANSIENT
    assert caught.value.served, "the server worked for it, and may charge"


def test_slow_steady_stream_does_not_time_out():
    # which is more than the time limit for each of its pieces, in 18 of them
    words = "Slow but sure. " * 20
    began = time.monotonic()
    with MessagesApi([drip(reply(text(words)), 0.1)]) as api:
        assert model_at(api.url, timeout_s=1.5).reply(ask_of(), never).turn.text == words
    assert time.monotonic() - began > 1.5


def test_concurrent_threads_share_one_model():
    def echo(body):
        return reply(text(body["messages"][0]["content"][0]["text"]))

    with MessagesApi(echo) as api:
        model, got = model_at(api.url), {}

        def ask(n: int) -> None:
            got[n] = model.reply(ask_of(user_turn([text_block(f"number {n}")])), never).turn.text

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == {n: f"number {n}" for n in range(4)}


def test_client_lives_as_long_as_its_model():
    made = anthropic.AsyncAnthropic
    with (
        MessagesApi(lambda _: reply(text("Good."))) as api,
        patch("anthropic.AsyncAnthropic", side_effect=made) as opened,
    ):
        model = model_at(api.url)
        before = {thread for thread in threading.enumerate() if thread.name == "model"}
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(model.reply, [ask_of()] * 6, [never] * 6))
        assert opened.call_count == 1
        (own,) = {thread for thread in threading.enumerate() if thread.name == "model"} - before
        other = model_at(api.url)
        other.reply(ask_of(), never)
        assert opened.call_count == 2, "another key or address is another client"
        del model
        gc.collect()
        own.join(30)
        assert not own.is_alive()
        other.reply(ask_of(), never)


def test_redirect_target_never_receives_key():
    with (
        MessagesApi([reply(text("Thanks for the key."))]) as elsewhere,
        MessagesApi([status(307, headers={"location": f"{elsewhere.url}/v1/messages"})]) as api,
    ):
        with pytest.raises(ModelError, match="Redirects are not followed") as caught:
            model_at(api.url).reply(ask_of(), never)
        assert elsewhere.requests == []
    assert caught.value.kind is PERMANENT


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(text, st.text(min_size=1, max_size=90).filter(str.strip)),
            st.builds(thinking, st.text(max_size=90)),
            st.builds(
                call,
                st.just("grep"),
                st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=3),
            ),
        ),
        max_size=5,
    )
)
def test_stream_parser_agrees_with_sdk_helper(blocks):
    """The SDK's helper parses each piece anew, which is why it is not used.

    What comes out has to be the same.
    """
    numbered = [
        {**block, "id": f"toolu_{n}"} if block["type"] == "tool_use" else block
        for n, block in enumerate(blocks)
    ]
    with MessagesApi(
        lambda _: reply(*numbered, usage={"cache_read_input_tokens": 3}, model="m")
    ) as api:
        with (
            anthropic.Anthropic(api_key="k", base_url=api.url) as client,
            client.messages.stream(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]
            ) as stream,
        ):
            theirs = stream.get_final_message().to_dict(mode="json", warnings=False)
        got = model_at(api.url).reply(ask_of(), never)
    assert got == reply_of((theirs, {}), "m")


# Faults

LONG = call("write_file", {"path": "a", "content": "x" * 300})


STARTED = (
    b'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n'
    b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block":'
    b' {"type": "text", "text": ""}}\n\n'
)


def delta(said: str) -> bytes:
    """Return the event of a block's piece, and the end of its message."""
    return (
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": '
        + said.encode()
        + b'}\n\nevent: message_delta\ndata: {"type": "message_delta", "delta":'
        b' {"stop_reason": "end_turn"}}\n\n'
    )


@pytest.mark.parametrize(
    ("fault", "kind", "code", "words"),
    [
        (status(429, "rate_limit_error"), TRANSIENT, 429, "rate_limit_error: scripted"),
        (
            status(429, "rate_limit_error", error_code="enforced_spend_limit_reached"),
            PERMANENT,
            429,
            "account",
        ),
        (status(529, "overloaded_error"), TRANSIENT, 529, "overloaded_error"),
        (status(500), TRANSIENT, 500, "status 500"),
        (
            status(401, "authentication_error", "invalid bearer"),
            PERMANENT,
            401,
            "Check ANTHROPIC_API_KEY",
        ),
        (status(402, "billing_error"), PERMANENT, 402, "credit"),
        (status(400, "billing_error"), PERMANENT, 400, "account"),
        (status(403, "permission_error"), PERMANENT, 403, "ANTHROPIC_API_KEY"),
        (
            status(404, "not_found_error", "model: claude-opus-5-5"),
            PERMANENT,
            404,
            "Check name and base_url",
        ),
        (
            status(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
            FULL,
            400,
            "prompt is too long",
        ),
        (status(400, "exceed_context_size_error", "too many"), FULL, 400, "too many"),
        (
            status(500, "", "This model's maximum context length is 16384 tokens"),
            FULL,
            500,
            "maximum context",
        ),
        (
            sse_error("invalid_request_error", "the request exceeds the available context size"),
            FULL,
            200,
            "available context",
        ),
        (status(500, "api_error", "no context"), TRANSIENT, 500, "no context"),
        (status(401, "", "the context exceeds"), PERMANENT, 401, "the context exceeds"),
        (status(413, "request_too_large"), BAD_REQUEST, 413, "request_too_large"),
        (status(422, "invalid_request_error"), BAD_REQUEST, 422, "422"),
        (raw(b"[" * 100_000, 500, "application/json; charset=zlib"), TRANSIENT, 500, "status 500"),
        (raw(b"<html>502 Bad Gateway</html>", 502, "text/html"), TRANSIENT, 502, "status 502"),
        (
            raw(b'{"error": "model not found, try pulling it first"}', 404, "application/json"),
            PERMANENT,
            404,
            "try pulling it first",
        ),
        (
            status(307, headers={"location": "ftp://elsewhere/"}),
            PERMANENT,
            307,
            "base_url in [model]",
        ),
        (sse_error("overloaded_error"), TRANSIENT, 200, "mid-stream, overloaded_error"),
        (sse_error("billing_error", "x", text("It began well.")), PERMANENT, 200, "billing_error"),
        (sse_error("never_heard_of"), TRANSIENT, 200, "never_heard_of"),
        (raw(b"event: error\ndata: not even JSON\n\n"), TRANSIENT, 200, "mid-stream"),
        (reset(), TRANSIENT, None, "connection broke"),
        (reset_midway(), TRANSIENT, None, "broke in mid-stream"),
        (reset_midway(text("One block."), LONG), TRANSIENT, None, "broke in mid-stream"),
        (cut(), TRANSIENT, None, "cut"),
        (cut(LONG), TRANSIENT, None, "cut"),
        (raw(b""), TRANSIENT, None, "not an event stream"),
        (raw(b'{"content": []}', 200, "application/json"), TRANSIENT, None, "application/json"),
        (raw(b"event: message_start\ndata: {not JSON\n\n"), TRANSIENT, None, "malformed"),
        (raw(b"event: message_start\ndata: \xff\xfe\n\n"), TRANSIENT, None, "malformed"),
        (
            raw(b'event: message_stop\ndata: {"type": "message_stop"}\n\n'),
            TRANSIENT,
            None,
            "not an event stream",
        ),
        (
            raw(b'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n'),
            TRANSIENT,
            None,
            "malformed",
        ),
        (
            raw(
                b'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n'
                b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 4, "delta":'
                b' {"type": "text_delta", "text": "x"}}\n\n'
            ),
            TRANSIENT,
            None,
            "malformed",
        ),
        (raw(STARTED + delta('{"type": "text_delta", "text": 5}')), TRANSIENT, None, "malformed"),
        (
            raw(STARTED + delta('{"type": "text_delta", "text": null}')),
            TRANSIENT,
            None,
            "malformed",
        ),
        (
            raw(
                STARTED.replace(b'"text", "text": ""', b'"tool_use", "id": "a", "name": "b"')
                + delta('{"type": "input_json_delta", "partial_json": "%s"}' % ("[" * 100_000))
            ),
            TRANSIENT,
            None,
            "malformed",
        ),
        (reply(call("read_file", ["a"])), TRANSIENT, None, "not an object"),
        (reply(call("read_file", "{'path': 'a'}")), TRANSIENT, None, "malformed"),
        (reply(call("", {"path": "a"})), TRANSIENT, None, "no name"),
        (reply(call("a", {}, "same"), call("b", {}, "same")), TRANSIENT, None, "same id"),
    ],
)
def test_fault_is_classified_by_error_kind(fault, kind, code, words):
    error = error_of(fault)
    assert (error.kind, error.status) == (kind, code)
    assert words in str(error)
    assert "\n" not in str(error)
    began = code == 200 or (code is None and kind is TRANSIENT and fault.fault != "reset")
    assert error.served == began, "an answer that had begun may be charged for"


def piece(said: str) -> bytes:
    """Return the event of a piece of text."""
    event = {"index": 0, "delta": {"type": "text_delta", "text": said}}
    return sent("content_block_delta", **event)


def sent(kind: str, **event: object) -> bytes:
    """Return an event as it is sent."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **event})}\n\n".encode()


def endless(one: bytes, *first: bytes) -> Answer:
    """Return an answer that repeats `one` for ever."""
    return pouring(lambda: chain(first, repeat(one)))


def nested(depth: int) -> Answer:
    """Return a reply whose call has an input of this depth."""
    deep: object = 1
    for _ in range(depth):
        deep = [deep]
    return reply(call("grep", {"pattern": deep}, "t"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (endless(piece("x" * 60_000), STARTED), "longer than 4 million characters"),
        (endless(piece("x") * 1_000, STARTED), "longer than 32.0 MB"),
        (endless(b": %b\n\n" % (b"x" * 1_000) * 50), "longer than 32.0 MB"),
        (endless(b"x" * 60_000, b"data: "), "an event of the answer is longer than 4.0 MB"),
        (endless(b"data: x\n" * 1_000), "an event of the answer is longer than 4.0 MB"),
        (endless(sent("content_block_start", content_block={"type": "x"})), "1,000 parts"),
        (pouring(lambda: repeat(b"[" * 60_000), 500), "longer than 1.0 MB"),
        (pouring(lambda: [b"x"], content_encoding="gzip"), "compressed"),
        (pouring(lambda: [b"x"], 500, content_encoding="gzip"), "compressed"),
        (nested(101), "more than 100 levels deep"),
        (nested(600), "more than 100 levels deep"),
    ],
)
def test_answer_beyond_limits_is_abandoned(answer, words):
    error = error_of(answer)
    assert (error.kind, error.served) == (TRANSIENT, True)
    assert words in str(error)


def test_dripping_answer_hits_total_timeout():
    drips = drip(reply(text("word " * 1_000)), 0.05)
    began = time.monotonic()
    with MessagesApi([drips]) as api, pytest.raises(ModelError) as caught:
        model_at(api.url, timeout_s=0.2).reply(ask_of(), never)
    assert "no whole answer within 2 s" in str(caught.value)
    assert (caught.value.kind, caught.value.served) == (TRANSIENT, True)
    assert 1.9 < time.monotonic() - began < 20


def test_a_closed_port_is_transient():
    with pytest.raises(ModelError, match="cannot connect") as caught:
        model_at(closed_port()).reply(ask_of(), never)
    assert caught.value.kind is TRANSIENT


def certificate(folder: Path) -> ssl.SSLContext:
    """Return a server's context with a certificate that nobody signed."""
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    named = ("-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2")
    subprocess.run([*made, *named], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_untrusted_certificate_error_names_ssl_cert_file(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tls = certificate(tmp_path)

        def shake_hands() -> None:
            with contextlib.suppress(OSError):
                tls.wrap_socket(listener.accept()[0], server_side=True)

        threading.Thread(target=shake_hands, daemon=True).start()
        with pytest.raises(ModelError, match="export SSL_CERT_FILE=") as caught:
            model_at(f"https://localhost:{listener.getsockname()[1]}").reply(ask_of(), never)
    assert caught.value.kind is PERMANENT


def test_client_that_cannot_be_made_is_to_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "nothing://that.is.a:proxy")
    with pytest.raises(ModelError, match="Check SSL_CERT_FILE") as caught:
        model_at("http://192.0.2.1:1").reply(ask_of(), never)
    assert caught.value.kind is PERMANENT


def test_loopback_server_is_asked_without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port())
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with MessagesApi([reply(text("Hello."))]) as api:
        assert model_at(api.url).reply(ask_of(), never).turn.text == "Hello."


def test_connection_error_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = closed_port()
    monkeypatch.setenv("HTTP_PROXY", proxy.replace("//", "//me:secret@"))
    with pytest.raises(ModelError, match=re.escape(proxy.partition("//")[2])) as caught:
        model_at("http://192.0.2.1:1").reply(ask_of(), never)
    assert "HTTP_PROXY" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("silent", "words"),
    [
        (hang(), "no answer in time"),
        (hang_midway(), "silent for 1.5 s"),
        (hang_midway(LONG), "silent for 1.5 s"),
    ],
)
def test_silent_server_times_out(silent, words):
    began = time.monotonic()
    error = error_of(silent, timeout_s=1.5)
    assert error.kind is TRANSIENT
    assert words in str(error)
    assert error.served == (silent.fault == "hang_midway")
    assert 1.5 <= time.monotonic() - began < 60


@pytest.mark.parametrize("silent", [hang(), hang_midway(), drip(reply(text("x" * 9999)), 0.3)])
def test_cancelled_call_closes_connection_promptly(silent):
    asked: list[float] = []

    def stop() -> bool:
        """Wait until the server has the request: the first call of all loads the SDK, which may
        take longer than anything else.
        """
        if api.requests and not asked:
            asked.append(time.monotonic())
        return bool(asked) and time.monotonic() - asked[0] > 0.3

    with MessagesApi([silent]) as api:
        with pytest.raises(ModelError) as caught:
            model_at(api.url, timeout_s=60).reply(ask_of(), stop)
        assert time.monotonic() - asked[0] < 30  # the server would hold it for 60 s
        assert api.hung_up.wait(30), "the connection is closed, so that the server stops writing"
    assert caught.value.kind is CANCELLED


def test_call_cancelled_before_start_sends_no_request():
    with MessagesApi([]) as api, pytest.raises(ModelError) as caught:
        model_at(api.url).reply(ask_of(), lambda: True)
    assert caught.value.kind is CANCELLED
    assert api.requests == []


def test_next_attempt_after_faults_succeeds():
    with MessagesApi([reset_midway(), status(529), reply(text("At last."))]) as api:
        model = model_at(api.url)
        for _ in range(2):
            with pytest.raises(ModelError):
                model.reply(ask_of(), never)
        assert model.reply(ask_of(), never).turn.text == "At last."


@pytest.mark.parametrize("unwritable", ["lone \ud800 surrogate", float("nan"), {1, 2}])
def test_unserializable_turn_is_bad_request(unwritable):
    turn = user_turn([{"type": "text", "text": unwritable}])
    with MessagesApi([]) as api, pytest.raises(ModelError, match="JSON") as caught:
        model_at(api.url).reply(ask_of(turn), never)
    assert caught.value.kind is BAD_REQUEST
    assert api.requests == []


# Secrets


def test_key_never_reaches_log(caplog):
    caplog.set_level(logging.DEBUG)
    for fault in (status(401, "authentication_error"), reset_midway(), cut()):
        error_of(fault)
    assert caplog.records
    assert KEY not in caplog.text


# Waiting as the server says


# Malformed messages

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["text", "tool_use", "thinking", "end_turn", "max_tokens"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "input", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.lists(JSON, max_size=3) | JSON,
            "stop_reason": JSON,
            "usage": JSON,
            "model": JSON,
        },
    ),
    st.dictionaries(st.integers(0, 2), st.text(max_size=8), max_size=2),
)
def test_arbitrary_message_raises_only_model_error(message, inputs):
    with contextlib.suppress(ModelError):
        got = reply_of((message, inputs), "m")
        json.dumps(list(got.turn.blocks), ensure_ascii=False, allow_nan=False).encode()
        assert all(use.id and use.name for use in got.turn.tool_uses)


@pytest.mark.parametrize(
    ("block", "given_input"),
    [
        (text("half a character: \ud83d"), ""),
        (call("grep", {}, "t"), '{"pattern": "\\ud800"}'),
        (call("grep", {}, "t"), '{"limit": NaN}'),
        (call("grep", {}, "t"), '{"limit": 1e999}'),
    ],
)
def test_unserializable_answer_is_refused(block, given_input):
    with pytest.raises(ModelError, match="cannot be sent back") as caught:
        reply_of(({"content": [block], "stop_reason": "end_turn"}, {0: given_input}), "m")
    assert caught.value.kind is TRANSIENT


def test_block_loses_null_keys_but_input_keeps_them():
    block = {**call("grep", {"path": None}, "t"), "caller": None, "toolset_name": None}
    got = reply_of(({"content": [block], "stop_reason": "tool_use"}, {}), "m")
    assert got.turn.blocks == (call("grep", {"path": None}, "t"),)


# Opening a model


def apart(code, folder):
    """Run code in a process that imports what is in the folder first."""
    source = Path(placet.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{folder}:{source}"},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_opening_model_does_not_import_sdk(tmp_path):
    code = (
        "import sys, placet.models as models\n"
        "from placet.host.config import ModelTable\n"
        "heavy = {'anthropic', 'httpx2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "models.open_model(ModelTable(provider='anthropic'), {'ANTHROPIC_API_KEY': 'k'})\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = apart(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_garbage_collector_skips_sdk_objects(tmp_path):
    """It would hold the interpreter for 40 to 160 ms, at any moment of the daemon's life."""
    code = (
        "import gc, placet.models.anthropic as provider\n"
        "provider.prepare().join()\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 100_000, len(gc.get_objects()) < 10_000)\n"
    )
    done = apart(code, tmp_path)
    assert (done.stdout, done.stderr) == ("True True True\n", "")


def test_cancel_works_during_sdk_import(tmp_path):
    """The SDK is a stand-in here, which takes longer to import than any machine does for the real
    one.
    """
    (tmp_path / "anthropic.py").write_text(
        "import time\ntime.sleep(60)\nclass AsyncAnthropic: pass\n"
    )
    code = (
        "import sys, time, placet.models as models\n"
        "from placet.host.config import ModelTable\n"
        "from placet.chat.messages import Ask, ModelError, Purpose\n"
        "model = models.open_model(ModelTable(provider='anthropic'), {'ANTHROPIC_API_KEY': 'k'})\n"
        "began, asked = time.monotonic(), []\n"
        "try:\n"
        "    model.reply(Ask(Purpose.PLAN, 'r', 't', (), (), ()),\n"
        "                lambda: asked.append(1) or len(asked) > 2)\n"
        "except ModelError as error:\n"
        "    loaded = hasattr(sys.modules.get('anthropic'), 'AsyncAnthropic')\n"
        "    print(error.kind, time.monotonic() - began, loaded)\n"
    )
    done = apart(code, tmp_path)
    kind, took_s, loaded = done.stdout.split()
    assert (kind, loaded, done.stderr, done.returncode) == ("cancelled", "False", "", 0)
    assert float(took_s) < 50


def test_unknown_provider_error_lists_known_providers():
    with pytest.raises(UserError) as caught:
        open_model(table("openai"), {})
    assert caught.value.exit_code == 2
    assert "'openai'" in caught.value.what
    assert all(known in caught.value.hint for known in PROVIDERS)


# The scripted model

SCRIPT = """
[[conversation]]
purpose = "plan"
request = "fix-*"
[[conversation.reply]]
text = "Only for fixes."

[[conversation]]
purpose = "plan"
[[conversation.reply]]
text = "I look."
usage = { input_tokens = 1200, output_tokens = 80, cache_read_tokens = 5, cache_write_tokens = 6 }
[[conversation.reply.call]]
name = "read_file"
[conversation.reply.call.input]
path = "a.py"
[[conversation.reply.call]]
name = "glob"
input = { pattern = "**/*.py" }
[[conversation.reply]]
error = { kind = "transient", message = "overloaded", status = 529, retry_after_s = 1.5, times = 2 }
text = "Done."
stop_reason = "max_tokens"

[[conversation]]
purpose = "execute"
delay_s = 30
[[conversation.reply]]
delay_s = 0
error = { kind = "permanent", message = "no credit" }
[[conversation.reply]]
text = "Late."
"""


def scripted(tmp_path: Path, script: str = SCRIPT):
    path = tmp_path / "replies.toml"
    path.write_text(script, encoding="utf-8")
    return open_model(table("scripted", "scripted", script=str(path)), {})


def test_scripted_reply_depends_only_on_conversation(tmp_path):
    first = ask_of(purpose=Purpose.PLAN)
    got = scripted(tmp_path).reply(first, never)
    assert got.turn.text == "I look."
    assert [(use.id, use.name, use.input) for use in got.turn.tool_uses] == [
        ("scripted_1_1", "read_file", {"path": "a.py"}),
        ("scripted_1_2", "glob", {"pattern": "**/*.py"}),
    ]
    assert (got.stop_reason, got.usage, got.model) == (
        StopReason.TOOL_USE,
        Usage(1200, 80, 5, 6),
        "scripted",
    )
    assert scripted(tmp_path).reply(first, never) == got, (
        "a daemon that begins anew is told the same"
    )
    fix = ask_of(purpose=Purpose.PLAN, request_id="fix-typo")
    answer = scripted(tmp_path).reply(fix, never)
    assert (answer.turn.text, answer.stop_reason, answer.usage) == (
        "Only for fixes.",
        StopReason.END_TURN,
        Usage(),
    )


def test_scripted_error_repeats_configured_times(tmp_path):
    model = scripted(tmp_path)
    begun = (
        user_turn([text_block("Begin.")]),
        Turn("assistant", ()),
        user_turn([text_block("Go on.")]),
    )
    for trace_id in ("t-1", "t-2"):
        ask = ask_of(*begun, purpose=Purpose.PLAN, trace_id=trace_id)
        for _ in range(2):
            with pytest.raises(ModelError, match="overloaded") as caught:
                model.reply(ask, never)
            error = caught.value
            assert (error.kind, error.status, error.retry_after_s) == (TRANSIENT, 529, 1.5)
        answer = model.reply(ask, never)
        assert (answer.turn.text, answer.stop_reason) == ("Done.", StopReason.MAX_TOKENS)
    for _ in range(3):
        with pytest.raises(ModelError, match="no credit") as caught:
            model.reply(ask_of(), never)
        assert caught.value.kind is PERMANENT


def test_end_of_script_error_names_position(tmp_path):
    model = scripted(tmp_path)
    said = [Turn("assistant", ())] * 2
    over = ask_of(user_turn([text_block("x")]), *said, purpose=Purpose.PLAN)
    with pytest.raises(ModelError) as caught:
        model.reply(over, never)
    assert caught.value.kind is ModelErrorKind.BAD_REQUEST
    for words in ("replies.toml", "conversation 2", "after 2 replies", "reply 3"):
        assert words in str(caught.value)
    with pytest.raises(ModelError, match=r"replies\.toml: .* 'revise' .*'add-login'") as caught:
        model.reply(ask_of(purpose=Purpose.REVISE), never)
    assert caught.value.kind is ModelErrorKind.BAD_REQUEST


def test_scripted_delay_can_be_cancelled(tmp_path):
    model = scripted(tmp_path)
    late = ask_of(user_turn([text_block("x")]), Turn("assistant", ()))
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    began = time.monotonic()
    timer.start()
    with pytest.raises(ModelError) as caught:
        model.reply(late, stop.is_set)
    assert caught.value.kind is CANCELLED
    assert 0.2 <= time.monotonic() - began < 20
    timer.join()


def test_invalid_script_error_lists_all_problems(tmp_path):
    wrong = """
    version = 1
    [[conversation]]
    purpose = "guess"
    [[conversation.reply]]
    txt = "typo"
    usage = { input_tokens = -1 }
    [[conversation.reply]]
    text = "never said"
    error = { kind = "transient", message = "x" }
    [[conversation.reply.call]]
    input = { when = 2026-11-21 }
    [[conversation]]
    purpose = "plan"
    [[conversation.reply]]
    error = { kind = "transient", message = "x" }
    text = "never said"
    """
    with pytest.raises(UserError) as caught:
        scripted(tmp_path, wrong)
    assert caught.value.exit_code == 2
    assert "replies.toml" in caught.value.what
    for place in (
        "version: ",
        "conversation.0.purpose: ",
        "conversation.0.reply.0.txt: ",
        "reply.0.usage.input_tokens: ",
        "reply.1.call.0.name: ",
        "reply.1.call.0.input: ",
        "conversation.1.reply.0: ",
    ):
        assert place in caught.value.what


@pytest.mark.parametrize("wrong", ["", "[[conversation]\n", "[[conversation]]\npurpose = 'plan'\n"])
def test_malformed_script_file_is_refused(tmp_path, wrong):
    with pytest.raises(UserError, match=r"replies\.toml"):
        scripted(tmp_path, wrong)


def test_missing_or_unreadable_script_is_refused(tmp_path):
    with pytest.raises(UserError, match="needs a file"):
        open_model(table("scripted"), {})
    with pytest.raises(UserError, match=r"absent\.toml.*cannot be read"):
        open_model(table("scripted", script=str(tmp_path / "absent.toml")), {})
    tmp_path.joinpath("latin.toml").write_bytes(b"x = '\xe4'")
    with pytest.raises(UserError, match=r"latin\.toml: not TOML"):
        open_model(table("scripted", script=str(tmp_path / "latin.toml")), {})


def test_check_skips_provider_without_server() -> None:
    assert check(table("scripted"), {}) is None
