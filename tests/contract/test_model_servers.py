"""Test what placet makes of real servers' faults, from small recordings of them.

They are of llama-server 0.5.0-dev, vLLM 0.32, LiteLLM 1.108.7, ant2oai 0.1.6 and
claude-code-router 2.0.0. placet sorts a fault by who can mend it: you (all work waits), nobody but
the server (this work waits as in an outage), or nobody (this case fails, in words).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from looping import Fake, Running, Time, bare_vault, greeter, looping
from messages_api import (
    Answer,
    MessagesApi,
    call,
    cut,
    hang,
    hang_midway,
    pouring,
    raw,
    reply,
    reset,
    reset_midway,
    sse_error,
    text,
)
from placet.agent.model_call import ask_model
from placet.agent.record import Record
from placet.case.mission_result import Spent
from placet.case.waiting import WaitReason
from placet.chat.budget import Amount, Room
from placet.chat.cancel import Cancel
from placet.chat.messages import Ask, Purpose, Turn, text_block, user_turn
from placet.chat.retry import RetryPolicy
from placet.chat.text_calls import call_text
from placet.models.anthropic import AnthropicModel, prepare
from vaultkit import PLAN


class End(Enum):
    """How a planning ends."""

    HOLDS_ALL = 1
    FAILS_CASE = 2
    CONTINUES = 3
    WAITS = 4


HOLDS_ALL, FAILS_CASE, CONTINUES, WAITS = End

TINY = reply(call("answer", {"number": 2}))
PLANS = reply(call("submit_plan", PLAN))
READS = reply(
    call("read_file", {"path": "a.md"}), usage={"input_tokens": 9_000, "output_tokens": 20}
)


def said(code: int, body: dict[str, Any] | str) -> Answer:
    """Return an error answer of these words."""
    words = body if isinstance(body, str) else json.dumps(body)
    return raw(words.encode(), code, "text/html" if isinstance(body, str) else "application/json")


def of_llama(code: int, kind: str, message: str) -> Answer:
    return said(code, {"error": {"code": code, "message": message, "type": kind}})


def of_litellm(code: int, kind: str, message: str) -> Answer:
    return said(code, {"type": "error", "error": {"type": kind, "message": message}})


def of_vllm(code: int, kind: str, message: str) -> Answer:
    return said(code, {"error": {"message": message, "type": kind, "param": None, "code": code}})


def pings(then: Iterable[bytes] = ()) -> Answer:
    """Return an answer of comments, as llama-server sends them while it reads a prompt."""

    def pieces() -> Iterable[bytes]:
        for _ in range(8 if then else 1_000):
            yield b": \n\n"
            sleep(0.02)
        yield from then

    return pouring(pieces)


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


AFTER_PINGS = (
    event("message_start", message={"content": [], "usage": {"input_tokens": 9_000}}),
    event("content_block_start", index=0, content_block=call("submit_plan", {}, "t1")),
    event(
        "content_block_delta",
        index=0,
        delta={"type": "input_json_delta", "partial_json": json.dumps(PLAN)},
    ),
    event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 300}),
)
HALF = call("submit_plan", json.dumps(PLAN)[:99])
WRONG_KEY = said(
    400, {"error": {"message": "No connected db.", "type": "no_db_connection", "code": "400"}}
)
FULL = "request (9279 tokens) exceeds the available context size (8192 tokens), try increasing it"
SHELL = "Cannot connect to host 127.0.0.1:9 [Connect call failed ('127.0.0.1', 9)]"
LOADING = of_llama(503, "unavailable_error", "Loading model")
IN_CCR = {
    "error": {
        "message": "Error from provider(local,qwen: 500): TypeError: fetch failed\n    at node:15",
        "type": "api_error",
        "code": "provider_response_error",
    }
}

# what is asked for each time, the last answer for ever; what a tiny request gets; how it ends, and
# the words for it
FAULTS: dict[str, tuple[list[Answer], Answer, End, str]] = {
    "LiteLLM: wrong key": ([WRONG_KEY], WRONG_KEY, HOLDS_ALL, "No connected db"),
    "LiteLLM: wrong name": (
        [of_litellm(400, "invalid_request_error", "Invalid model name passed in model=qwen.")],
        of_litellm(400, "invalid_request_error", "Invalid model name passed in model=qwen."),
        HOLDS_ALL,
        "Check the server and [model]",
    ),
    "vLLM: wrong name": (
        [of_vllm(404, "NotFoundError", "The model `qwen` does not exist.")],
        of_vllm(404, "NotFoundError", "The model `qwen` does not exist."),
        HOLDS_ALL,
        "Check name and base_url",
    ),
    "ccr: wrong key": (
        [said(401, "Invalid API key")],
        said(401, "Invalid API key"),
        HOLDS_ALL,
        "Check ANTHROPIC_API_KEY",
    ),
    "FastAPI: no such path": (
        [said(404, {"detail": "Not Found"})],
        said(404, {"detail": "Not Found"}),
        HOLDS_ALL,
        "without /v1",
    ),
    "llama-server: context full at once": (
        [of_llama(400, "exceed_context_size_error", FULL)],
        TINY,
        FAILS_CASE,
        "Give the model a larger context",
    ),
    "vLLM: longest answer above its context": (
        [
            of_vllm(
                400,
                "BadRequestError",
                "'max_tokens' is too large: 16000. This model's maximum context length is 16384"
                " tokens and your request has 2272 input tokens (16000 > 16384 - 2272).",
            )
        ],
        TINY,
        FAILS_CASE,
        "Give the model a larger context",
    ),
    "llama-server: its template refuses the prompt": (
        [of_llama(500, "server_error", "Jinja Exception: roles must alternate")],
        TINY,
        FAILS_CASE,
        "only this one fails",
    ),
    "firewall: refuses the prompt's words": (
        [said(403, "<html>Blocked</html>")],
        TINY,
        FAILS_CASE,
        "only this one fails",
    ),
    "LiteLLM openai/: every call is cut": (
        [reply(HALF, stop_reason="end_turn")],
        TINY,
        FAILS_CASE,
        "the input of a call is not JSON",
    ),
    "llama-server: template without tools": (
        [reply(text("I would write it."), usage={"input_tokens": 482, "output_tokens": 35})],
        reply(text("2")),
        FAILS_CASE,
        "placet doctor --model",
    ),
    "llama-server: template that does not fit": (
        [reply(text(call_text("submit_plan", PLAN)))],
        reply(text("2")),
        CONTINUES,
        "",
    ),
    "LiteLLM openai/: one call is cut": (
        [reply(HALF, stop_reason="end_turn"), PLANS],
        TINY,
        CONTINUES,
        "",
    ),
    "ccr: no usage": (
        [replace(PLANS, usage={"input_tokens": 0, "output_tokens": 0})],
        TINY,
        CONTINUES,
        "reports no usage",
    ),
    "a2o: cached tokens count twice": (
        [replace(PLANS, usage={"input_tokens": 34, "cache_read_input_tokens": 33})],
        TINY,
        CONTINUES,
        "",
    ),
    "llama-server: pings, then an answer": ([pings(AFTER_PINGS)], TINY, CONTINUES, ""),
    "llama-server: loads the model": ([LOADING, LOADING, PLANS], LOADING, CONTINUES, ""),
    "llama-server: killed in mid-answer": (
        [reset_midway(text("So"), HALF), reset(), PLANS],
        TINY,
        CONTINUES,
        "",
    ),
    "proxy: the stream ends early": ([cut(HALF), PLANS], TINY, CONTINUES, ""),
    "ccr: its upstream is back for the tiny request": (
        [said(500, IN_CCR)] * 3 + [PLANS],
        TINY,
        CONTINUES,
        "",
    ),
    "llama-server: context full later": (
        [READS, of_llama(400, "exceed_context_size_error", FULL), PLANS],
        TINY,
        CONTINUES,
        "",
    ),
    "LiteLLM: context full later": (
        [READS, of_litellm(500, "api_error", f"Hosted_vllmException - {FULL}"), PLANS],
        TINY,
        CONTINUES,
        "",
    ),
    "llama-server: context full in an answer": (
        [
            READS,
            reply(
                text("So"),
                stop_reason="max_tokens",
                usage={"input_tokens": 9_100, "output_tokens": 9},
            ),
            PLANS,
        ],
        TINY,
        CONTINUES,
        "",
    ),
    "a2o: its upstream is down": (
        [of_litellm(502, "api_error", "upstream: connection refused")],
        of_litellm(502, "api_error", "upstream: connection refused"),
        WAITS,
        "connection refused",
    ),
    "ccr: its upstream is down": (
        [said(500, IN_CCR)],
        said(500, IN_CCR),
        WAITS,
        "fetch failed",
    ),
    "LiteLLM: its upstream is down": (
        [of_litellm(500, "api_error", f"litellm.InternalServerError: {SHELL}")],
        of_litellm(500, "api_error", f"litellm.InternalServerError: {SHELL}"),
        WAITS,
        "Cannot connect to host",
    ),
    "nginx: its upstream is down": (
        [said(502, "<html>502 Bad Gateway</html>")],
        said(502, "<html>502 Bad Gateway</html>"),
        WAITS,
        "status 502",
    ),
    "llama-server: down": ([reset()], reset(), WAITS, "connection broke"),
    "llama-server: loads for ever": ([LOADING], LOADING, WAITS, "Loading model"),
    "llama-server: pings only": ([pings()], pings(), WAITS, "no whole answer"),
    "vLLM: silent while it reads": ([hang()], hang(), WAITS, "no answer in time"),
    "vLLM: silent in mid-answer": ([hang_midway()], hang_midway(), WAITS, "silent for"),
    "any: overloaded in mid-answer": (
        [sse_error("overloaded_error", "busy", text("So"))],
        TINY,
        WAITS,
        "overloaded_error: busy",
    ),
}
SLOW = {hang().fault, hang_midway().fault}
ANSWERED = {
    "llama-server: pings only",
    "vLLM: silent in mid-answer",
    "any: overloaded in mid-answer",
}


def is_tiny(body: dict[str, Any]) -> bool:
    return [tool["name"] for tool in body.get("tools", [])] == ["answer"]


def planned(folder: Path, answers: list[Answer], tiny: Answer) -> Running:
    """Plan a request at a server that gives these answers; return what there is then."""
    left = [*answers]

    def answer(body: dict[str, Any]) -> Answer:
        return tiny if is_tiny(body) else left.pop(0) if left[1:] else left[0]

    is_slow = answers[0].pieces is not None or answers[0].fault in SLOW
    prepare().join()
    vault = bare_vault(folder)
    (vault.root / "a.md").write_text("word " * 800)
    vault.configure('[model]\nname = "qwen"\n')
    vault.drop("Say hello.\n")
    with (
        MessagesApi(answer) as api,
        looping(
            vault,
            time=Time(),
            model=lambda: AnthropicModel("qwen", api.url, "key", 0.2 if is_slow else 10),
            # the server's time is real, and each wait a new one
            retry=RetryPolicy(longest_wait_s=1) if is_slow else None,
        ) as running,
    ):
        running.settle(16)
        return running


def end_of(running: Running) -> End:
    """Return how a planning ended."""
    vault, waits = running.vault, running.loop.state.waits
    if vault.rows("plan.failed"):
        return End.FAILS_CASE
    if vault.plan().exists():
        return End.CONTINUES
    if any(row["metadata"]["why"] == "blocked" for row in vault.rows("model.waiting")):
        return End.HOLDS_ALL
    assert [why.why for _, why in waits.postponed.values()] == [WaitReason.UNREACHABLE]
    return End.WAITS


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_sorted_by_who_can_mend_it(tmp_path: Path, fault: str) -> None:
    answers, tiny, end, words = FAULTS[fault]
    running = planned(tmp_path, answers, tiny)
    assert end_of(running) is end
    told = [row["metadata"] for row in running.vault.rows()]
    waits = [str(why) for _, why in running.loop.state.waits.postponed.values()]
    assert words in json.dumps([told, waits], ensure_ascii=False)
    if end is WAITS:
        tokens = [row["metadata"]["tokens"] for row in running.vault.rows("model.failed")]
        assert any(tokens) == (fault in ANSWERED), "only what has begun to answer may cost"


def test_reply_without_usage_counts_its_reservation(tmp_path: Path) -> None:
    vault = planned(tmp_path, *FAULTS["ccr: no usage"][:2]).vault
    (called,) = vault.rows("model.called")
    assert called["metadata"]["tokens"] > 8_000


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
NO_MMPROJ = "image input is not supported - hint: you may need to provide the mmproj"


@pytest.mark.parametrize(
    "refusal",
    [
        of_llama(500, "server_error", NO_MMPROJ),
        of_litellm(500, "api_error", f"Hosted_vllmException - {NO_MMPROJ}"),
        of_vllm(400, "BadRequestError", "qwen is not a multimodal model"),
        of_vllm(404, "", "No endpoints found that support image input"),
    ],
    ids=["llama-server", "LiteLLM", "vLLM", "router"],
)
def test_refused_image_is_sent_as_text(tmp_path: Path, refusal: Answer) -> None:
    sent: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> Answer:
        if is_tiny(body):
            return TINY
        sent.append(body)
        return refusal if '"image"' in json.dumps(body["messages"]) else reply(text("Seen."))

    vault = bare_vault(tmp_path)
    vault.drop("Say hello.\n")
    with (
        MessagesApi(answer) as api,
        looping(vault, model=lambda: Fake(greeter), time=Time()) as running,
    ):
        running.settle()
        ports, case = running.loop.ports, next(iter(running.loop.cases.values()))
        model = AnthropicModel("qwen", api.url, "key", 10)
        shot = call("take_screenshot", {}, "t1")
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [IMAGE]}
        turns = (
            user_turn([text_block("Look.")]),
            Turn("assistant", (shot,)),
            user_turn([result]),
        )
        record = Record.load(ports.journal, case, 99, ports.clock)
        said = ask_model(
            replace(ports, open_model=lambda: model),
            Ask(Purpose.EXECUTE, case.request_id, case.trace_id, (), (), turns),
            1,
            record,
            Spent(),
            Cancel(),
            lambda _ask: nullcontext(Room(1_000, Amount(9_000))),
        )
        record.close()
    assert said.turn.text == "Seen."
    assert "Your server takes no images" in json.dumps(sent[-1])
    (told,) = vault.rows("failure.detected")
    assert "refused an image" in told["metadata"]["description"]
