"""Serve the Messages API over HTTP and SSE on loopback, with scripted answers and faults.

    from messages_api import MessagesApi, call, reply, status, text

    with MessagesApi([
        status(529, "overloaded_error"),
        reply(text("I look first."), call("read_file", {"path": "a.py"})),
        reply(text("Done.")),
    ]) as api:
        ...                      # point ANTHROPIC_BASE_URL at api.url
        assert api.requests[1].body["messages"][0]["role"] == "user"

An entry of the script is an answer, or a function from the request's JSON to an answer; the script
as a whole may be such a function too. One entry is used for each request, in the order of arrival.
A request that the real API would refuse with a 400 is refused here as well (and uses no entry):
unpaired tool calls, empty text, unknown fields, …
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from types import TracebackType
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What one request gets. Build it with the functions below."""

    blocks: tuple[Json, ...] = ()
    stop_reason: str | None = None
    usage: Json = field(default_factory=dict)
    model: str | None = None
    fault: str = ""
    code: int = 200
    error: Json | None = None
    headers: Json = field(default_factory=dict)
    every_s: float = 0.0
    raw: bytes | None = None
    pieces: Callable[[], Iterable[bytes]] | None = None


Step = Answer | Callable[[Json], Answer]
Script = Sequence[Step] | Callable[[Json], Answer]


def text(words: str) -> Json:
    """A text block."""
    return {"type": "text", "text": words}


def thinking(words: str, signature: str = "sig-äöü+/=") -> Json:
    """A thinking block."""
    return {"type": "thinking", "thinking": words, "signature": signature}


def call(name: str, arguments: Any = None, call_id: str | None = None) -> Json:
    """A tool_use block; without `call_id` the server numbers it."""
    return {
        "type": "tool_use",
        "id": call_id,
        "name": name,
        "input": {} if arguments is None else arguments,
    }


def reply(
    *blocks: Json,
    stop_reason: str | None = None,
    usage: Json | None = None,
    model: str | None = None,
) -> Answer:
    """A complete reply.

    `stop_reason` defaults to what fits the blocks, `usage` holds the API's own names.
    """
    if stop_reason is None:
        stop_reason = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
    return Answer(blocks, stop_reason, usage or {}, model)


def status(
    code: int,
    error_type: str = "api_error",
    message: str = "scripted",
    *,
    error_code: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """An HTTP error: 429 with `headers={"retry-after": "7"}`, 529, 500, 401, 400, …"""
    error: Json = {"type": error_type, "message": message}
    if error_code:
        error["details"] = {"error_code": error_code}
    return Answer(code=code, error=error, headers=headers or {})


def raw(body: bytes, code: int = 200, content_type: str = "text/event-stream") -> Answer:
    """These bytes, and nothing else."""
    return Answer(code=code, raw=body, headers={"content-type": content_type})


def pouring(pieces: Callable[[], Iterable[bytes]], code: int = 200, **headers: str) -> Answer:
    """These pieces, each a chunk of its own, until they end or the client hangs up."""
    return Answer(code=code, pieces=pieces, headers=headers)


def sse_error(
    error_type: str = "overloaded_error", message: str = "scripted", *before: Json
) -> Answer:
    """A stream that begins well (`before` are whole blocks) and ends in an `error` event."""
    return Answer(before, fault="sse_error", error={"type": error_type, "message": message})


def reset() -> Answer:
    """The connection is reset before a byte of an answer."""
    return Answer(fault="reset")


def reset_midway(*blocks: Json) -> Answer:
    """The connection is reset in the middle of the last block."""
    return Answer(blocks or (text("half of this is never sent"),), fault="reset_midway")


def cut(*blocks: Json) -> Answer:
    """The stream ends cleanly in the middle of the last block."""
    return Answer(blocks or (text("half of this is never sent"),), fault="cut")


def hang() -> Answer:
    """Not a byte of an answer until `api.release()`, then a reset."""
    return Answer(fault="hang")


def hang_midway(*blocks: Json) -> Answer:
    """As `hang`, in the middle of the last block."""
    return Answer(blocks or (text("half of this is never sent"),), fault="hang_midway")


def drip(answer: Answer, every_s: float) -> Answer:
    """The answer, with a pause before each event (a ping or a piece of a block)."""
    return Answer(answer.blocks, answer.stop_reason, answer.usage, answer.model, every_s=every_s)


_closed: list[socket.socket] = []


def closed_port() -> str:
    """The URL of a loopback port that refuses connections.

    It is taken until this process ends, by a socket that does not listen: a port that was let go is
    soon given to another test's server, or to the very connection that is to be refused.
    """
    _closed.append(socket.socket())
    _closed[-1].bind(("127.0.0.1", 0))
    return f"http://127.0.0.1:{_closed[-1].getsockname()[1]}"


@dataclass(frozen=True)
class Request:
    """One request as it came. Header names are lower-case."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        return json.loads(self.raw)


class MessagesApi:
    """The server. `url` is what `base_url` wants; `requests` is what came, in order.

    `refused` are the reasons of its own 400s, `hung_up` is set once a client has left in
    mid-answer. `models` are the models that it describes, by name, each with the status of that
    answer.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._used = 0
        self._calls = 0
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.hung_up = threading.Event()
        self.models: dict[str, Answer] = {}
        self.listed: list[str] = []
        api = self

        class Answering(_Answering):
            server_api = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def used(self) -> int:
        """How many entries of the script have been asked for."""
        return self._used

    def release(self) -> None:
        """End every hang, now and in future."""
        self._released.set()

    def __enter__(self) -> MessagesApi:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_answer(self, request: Request) -> Answer:
        """Record the request and choose its answer."""
        with self._lock:
            self.requests.append(request)
            if request.path != "/v1/messages":
                return status(404, "not_found_error", f"no such path: {request.path}")
            if "authorization" not in request.headers:
                return status(401, "authentication_error", "no key")
            problem = problem_of(request.body)
            if problem:
                self.refused.append(problem)
                return status(400, "invalid_request_error", problem)
            turn = self._used
            self._used += 1
            if callable(self._script):
                step: Step = self._script
            elif turn < len(self._script):
                step = self._script[turn]
            else:
                return status(
                    400, "invalid_request_error", f"the script ended after {turn} entries"
                )
        return step(request.body) if callable(step) else step

    def next_call_id(self) -> str:
        """A tool call's id that no other call of this server has."""
        with self._lock:
            self._calls += 1
            return f"toolu_{self._calls:06d}"

    def wait_for_release(self, connection: socket.socket) -> None:
        """Block until `release`, or until the client hangs up."""
        while not self._released.wait(0.02):
            if select.select([connection], [], [], 0)[0] and not connection.recv(
                1, socket.MSG_PEEK
            ):
                raise ConnectionResetError("the client hung up")

    def pause(self, seconds: float) -> None:
        """Wait, unless released."""
        self._released.wait(seconds)


class _Answering(BaseHTTPRequestHandler):
    server_api: MessagesApi
    protocol_version = "HTTP/1.1"
    # else each event waits some 45 ms for the client's acknowledgement
    disable_nagle_algorithm = True
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class names it so
        """Say nothing."""

    def do_GET(self) -> None:
        """Describe a model, as `models` of the server has it by name, or list `listed`."""
        if self.path == "/v1/models" and self.server_api.listed:
            data = [{"id": name, "max_model_len": 32_768} for name in self.server_api.listed]
            found = raw(json.dumps({"data": data}).encode(), content_type="application/json")
            self._send_whole(found.raw or b"", found)
            return
        found = self.server_api.models.get(
            self.path.removeprefix("/v1/models/"), status(404, "not_found_error", self.path)
        )
        if found.code == 200:
            found = raw(
                json.dumps(
                    {
                        "type": "model",
                        "id": self.path[11:],
                        "display_name": "A model",
                        "created_at": "2026-01-01T00:00:00Z",
                    }
                ).encode(),
                content_type="application/json",
            )
            self._send_whole(found.raw or b"", found)
        else:
            self._send_whole(json.dumps({"type": "error", "error": found.error}).encode(), found)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        answer = self.server_api.next_answer(request)
        try:
            self._send(answer, request)
        except ConnectionError:
            self.close_connection = True
            self.server_api.hung_up.set()

    def _send(self, answer: Answer, request: Request) -> None:
        if answer.fault == "reset":
            self._reset()
        elif answer.fault == "hang":
            self.server_api.wait_for_release(self.connection)
            self._reset()
        elif answer.raw is not None:
            self._send_whole(answer.raw, answer)
        elif answer.pieces is not None:
            self._pour(answer, answer.pieces())
        elif answer.code != 200:
            self._send_whole(json.dumps({"type": "error", "error": answer.error}).encode(), answer)
        else:
            self._send_stream(answer, request.body)

    def _send_whole(self, body: bytes, answer: Answer) -> None:
        self.send_response(answer.code)
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **answer.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _pour(self, answer: Answer, pieces: Iterable[bytes]) -> None:
        self.send_response(answer.code)
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        for name, value in {**headers, **answer.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _send_stream(self, answer: Answer, asked: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", f"req_{len(self.server_api.requests)}")
        self.end_headers()
        self._sizes = cycle((3, 41, 7, 1021, 1, 4093))
        last = len(answer.blocks) - 1
        self._event("message_start", message=_start(answer, asked))
        self._event("ping")
        for index, block in enumerate(answer.blocks):
            start, deltas = _pieces(block, self.server_api)
            self._event("content_block_start", index=index, content_block=start)
            half = len(deltas) // 2 if index == last and answer.fault in _MIDWAY else len(deltas)
            for delta in deltas[:half]:
                self.server_api.pause(answer.every_s)
                self._event("content_block_delta", index=index, delta=delta)
            if half < len(deltas):
                self._break_off(answer.fault)
                return
            self._event("content_block_stop", index=index)
        if answer.fault == "sse_error":
            self._event("error", error=answer.error)
        else:
            self._event(
                "message_delta",
                delta={"stop_reason": answer.stop_reason, "stop_sequence": None},
                usage=_usage(answer),
            )
            self._event("message_stop")
        self.wfile.write(b"0\r\n\r\n")

    def _break_off(self, fault: str) -> None:
        if fault == "cut":
            self.wfile.write(b"0\r\n\r\n")
            return
        if fault == "hang_midway":
            self.server_api.wait_for_release(self.connection)
        self._reset()

    def _event(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
        octets = f"event: {kind}\ndata: {data}\n\n".encode()
        # Odd chunk sizes: a character of several bytes is split between two reads of the client.
        at = 0
        while at < len(octets):
            size = next(self._sizes)
            piece = octets[at : at + size]
            at += size
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def _reset(self) -> None:
        # SO_LINGER with a time of nought: close() sends RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


_MIDWAY = frozenset({"cut", "reset_midway", "hang_midway"})


def _start(answer: Answer, asked: Json) -> Json:
    usage = {**_usage(answer), "output_tokens": 1}
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": answer.model or asked["model"],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(answer: Answer) -> Json:
    return {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0,
        **answer.usage,
    }


def _pieces(block: Json, api: MessagesApi) -> tuple[Json, list[Json]]:
    """Split a block as the API streams it: its empty start, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return (
                {"type": "text", "text": "", "citations": None},
                [{"type": "text_delta", "text": piece} for piece in _odd(block["text"])],
            )
        case "thinking":
            return (
                {"type": "thinking", "thinking": "", "signature": ""},
                [{"type": "thinking_delta", "thinking": piece} for piece in _odd(block["thinking"])]
                + [{"type": "signature_delta", "signature": block["signature"]}],
            )
        case "tool_use":
            arguments = block["input"]
            whole = (
                arguments
                if isinstance(arguments, str)
                else json.dumps(arguments, ensure_ascii=False)
            )
            start = {
                **block,
                "id": block["id"] or api.next_call_id(),
                "input": {},
                "caller": {"type": "direct"},
            }
            # The API opens with an empty piece, and sends nothing more for a call without
            # arguments.
            pieces = ["", *_odd(whole)] if whole != "{}" else [""]
            return start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            return block, []


def _odd(whole: str) -> Iterator[str]:
    sizes = cycle((1, 3, 5, 17, 61))
    at = 0
    while at < len(whole):
        size = next(sizes)
        yield whole[at : at + size]
        at += size


_TOP = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "cache_control",
    "stream",
    "thinking",
    "tool_choice",
    "metadata",
    "stop_sequences",
    "output_config",
}
_FIELDS = {
    "text": {"type", "text", "cache_control", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "image": {"type", "source", "cache_control"},
}


def problem_of(body: Json) -> str:
    """Say why the real API would answer 400, or nothing."""
    unknown = set(body) - _TOP
    if unknown:
        return f"{', '.join(sorted(unknown))}: extra inputs are not permitted"
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        return "messages: the first message must be of role user"
    marked = sum(
        "cache_control" in b for b in [*body.get("tools", ()), *body.get("system", ()), body]
    )
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        content = message["content"]
        blocks = [text(content)] if isinstance(content, str) else content
        if not blocks:
            return f"messages.{at}: content must not be empty"
        if message["role"] == "assistant" and blocks[-1]["type"] in (
            "thinking",
            "redacted_thinking",
        ):
            return f"messages.{at}: The final block in an assistant message cannot be `thinking`."
        for block in blocks:
            unknown = set(block) - _FIELDS.get(block["type"], set())
            if unknown:
                return f"messages.{at}: {block['type']} with {', '.join(sorted(unknown))}"
            if block["type"] == "text" and not block["text"].strip():
                return f"messages.{at}: text content blocks must contain non-whitespace text"
            if block["type"] == "tool_use" and not isinstance(block["input"], dict):
                return f"messages.{at}: tool_use.input must be an object"
            if block["type"] == "tool_use" and block.get("caller", {}) is None:
                return f"messages.{at}: tool_use.caller must not be null"
            marked += "cache_control" in block
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if message["role"] == "user" and sorted(results) != sorted(open_calls):
            return f"messages.{at}: tool_use {open_calls} must be answered by tool_result, got {results}"
        open_calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
    if open_calls:
        return f"messages: tool_use ids {open_calls} are left without an answer"
    if any(not part["text"].strip() for part in body.get("system", ())):
        return "system: text content blocks must be non-empty"
    if marked > 4:
        return f"a maximum of 4 blocks with cache_control may be provided, found {marked}"
    return ""
