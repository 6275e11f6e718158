"""The Messages API, at its vendor's or at any server that speaks it.

The only module that imports the SDK, and only when there is something to ask (`prepare`): it takes
1 to 4 s and 41 MB. The SDK's own retries are off: it retries neither a cut stream, nor a reset in
mid-stream, nor an error event, and it obeys a `retry-after` of any length. One call here is one
attempt; `core.retry` decides about the next one.

Tools are offered without `strict`: the API compiles all strict schemas of a request into one
grammar and refuses the whole request where that grows too large, at a size that is not documented;
placet checks every input itself anyway.
"""

from __future__ import annotations

import gc
import importlib
import ipaddress
import json
import math
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from placet.core.errors import UserError
from placet.core.turn.talk import (
    Ask,
    Block,
    Model,
    ModelError,
    ModelErrorKind,
    Reply,
    StopReason,
    Turn,
    Usage,
)
from placet.models import ModelSettings

if TYPE_CHECKING:
    import ssl

    import anthropic

DEFAULT_NAME = "claude-opus-5-5"
DEFAULT_BASE_URL = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
CREDENTIAL = "anthropic_api_key"

_POLL_S = 0.25  # `Model.reply` promises to look at `cancelled` every 0.5 s
_CONNECT_S = 10.0
_NO_KEY = "placet-has-no-key"  # what a local server that asks for no key is sent
_CACHED = {"type": "ephemeral"}
_QUOTED_CHARACTERS = 300
_ECHO_CHARACTERS = 20
_KEY_CHARACTERS = 8
_HAS_NO_SUCH_PATH = (404, 405, 501)


def open_model(settings: ModelSettings, env: Mapping[str, str]) -> Model:
    """Return the model that `settings` name, with the key of `env`.

    The key is `ANTHROPIC_API_KEY`, else the systemd credential `anthropic_api_key`; a server on
    loopback that is named by `base_url` or `ANTHROPIC_BASE_URL` may go without. Raises UserError
    for a `base_url` that cannot be one, ModelError (permanent) for a missing or unusable key.
    """
    base_url = settings.base_url or env.get("ANTHROPIC_BASE_URL", "") or DEFAULT_BASE_URL
    host = _host_of(base_url)
    key = _key_from(env)
    if not key:
        if not _is_loopback(host):
            raise ModelError(
                ModelErrorKind.PERMANENT,
                f"there is no key for {host}. Export {KEY_VARIABLE}=…, or in the systemd unit set"
                f" LoadCredential={CREDENTIAL}:/path/to/key. A server on this machine needs none: set"
                ' base_url in [model]. Without any model, provider = "scripted" replays a file.',
            )
        key = _NO_KEY
    return AnthropicModel(
        settings.name or DEFAULT_NAME, base_url.rstrip("/"), key, settings.timeout_s
    )


def check(settings: ModelSettings, env: Mapping[str, str]) -> bool:
    """Ask the server whether it takes the key and knows the model, which costs no tokens.

    Return False where it does not say.

    Raises UserError and ModelError as `open_model` does, and ModelError as `Model.reply` does.
    """
    model = open_model(settings, env)
    assert isinstance(model, AnthropicModel), "this module opens no other"
    return model.is_known()


class AnthropicModel:
    """One model at one server, through one client for as long as the model lives.

    Several threads may use it at once.

    The client and its connections live in a thread of their own, which ends with the model.
    """

    provider = "anthropic"

    def __init__(self, name: str, base_url: str, key: str, timeout_s: float) -> None:
        self.name = name
        self._base_url = base_url
        self._key = key
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._wire: _Wire | None = None

    def reply(self, ask: Ask, cancelled: Callable[[], bool]) -> Reply:
        """Answer `ask` in one attempt, or raise ModelError.

        `cancelled` is polled four times a second.
        """
        if cancelled():
            raise _cancelled()
        request = request_of(ask, self.name)
        try:
            text = json.dumps(request, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (TypeError, ValueError) as error:
            # A lone surrogate out of a file's name, a date, NaN: the SDK would raise the same bare
            # error later.
            raise ModelError(
                ModelErrorKind.BAD_REQUEST,
                f"the conversation cannot be written as JSON ({type(error).__name__})",
            ) from None
        _load_sdk(cancelled)
        joined = _Joined()
        attempt = self._open_wire().run(lambda client: self._attempt(client, request, text, joined))
        try:
            while not wait({attempt}, timeout=_POLL_S)[0]:
                if cancelled():
                    raise _cancelled(served=True)
            return attempt.result()
        except ModelError as error:
            error.used = joined.used if error.served else None
            raise
        finally:
            # a task that is cancelled closes its connection at once, so the server stops writing
            attempt.cancel()

    def is_known(self) -> bool:
        """Ask for the model's description.

        False where the server has none, as many have that speak the Messages API.
        """
        _load_sdk(lambda: False)
        return self._open_wire().run(self._is_known).result()

    async def _is_known(self, client: anthropic.AsyncAnthropic) -> bool:
        import anthropic

        try:
            await client.models.retrieve(self.name, timeout=_CONNECT_S)
        except anthropic.APIStatusError as error:
            if error.status_code in _HAS_NO_SUCH_PATH and self._base_url != DEFAULT_BASE_URL:
                return False
            raise self._refused(error, "") from None
        except anthropic.APITimeoutError:
            raise self._transient("no answer in time") from None
        except anthropic.APIConnectionError as error:
            self._unreachable(error.__cause__)
        return True

    def _open_wire(self) -> _Wire:
        with self._lock:
            if self._wire is None:
                self._wire = _Wire(self._base_url, self._key, self._timeout_s)
                weakref.finalize(self, self._wire.close)
            return self._wire

    async def _attempt(
        self,
        client: anthropic.AsyncAnthropic,
        request: Mapping[str, Any],
        text: str,
        joined: _Joined,
    ) -> Reply:
        import anthropic
        import httpx2

        try:
            # As plain JSON, `messages.create` but for its types: those take 2 MB, and what they
            # read is turned back into JSON here.
            async with await client.post(
                "/v1/messages",
                body={**request, "stream": True},
                cast_to=object,
                stream=True,
                stream_cls=anthropic.AsyncStream[Any],
            ) as stream:
                return reply_of(await self._receive(stream, joined), self.name)
        except anthropic.APIStatusError as error:
            raise self._refused(error, text) from None
        except anthropic.APITimeoutError:
            raise self._transient("no answer in time") from None
        except anthropic.APIConnectionError as error:
            self._unreachable(error.__cause__)
        except httpx2.TimeoutException:
            raise self._transient(
                f"silent for {self._timeout_s:g} s in the middle of an answer"
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise self._transient(
                f"the connection broke in mid-stream ({type(error).__name__})"
            ) from None

    async def _receive(self, stream: anthropic.AsyncStream[Any], joined: _Joined) -> _Received:
        try:
            async for event in stream:
                joined.add(event)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            # What a malformed stream trips up: the SDK's parser, or `add`. Its words may quote the
            # stream.
            raise self._transient(f"the stream is malformed ({type(error).__name__})") from None
        if joined.message is None:
            kind = stream.response.headers.get("content-type", "no content type")
            raise self._transient(
                f"the answer is no event stream but {kind[:60]}; does this server speak the"
                " Messages API?"
            )
        return joined.received()

    def _refused(self, error: anthropic.APIStatusError, request: str) -> ModelError:
        said = error.body if isinstance(error.body, Mapping) else {}
        inner = said.get("error", said)
        inner = inner if isinstance(inner, Mapping) else {"message": inner}
        error_type, words = inner.get("type"), inner.get("message")
        error_type = error_type if isinstance(error_type, str) and error_type.isidentifier() else ""
        kind = kind_of(error.status_code, error_type, error.error_code or "")
        what = (
            "an error in mid-stream" if error.status_code == 200 else f"status {error.status_code}"
        )
        return ModelError(
            kind,
            f"{self._who()}: {what}"
            + (f", {error_type}" if error_type else "")
            + _quoted(
                words if isinstance(words, str) else "",
                key=self._key,
                request=request,
                name=self.name,
            )
            + (f". {_advice(error.status_code)}" if kind is ModelErrorKind.PERMANENT else ""),
            status=error.status_code,
            served=error.status_code == 200,
            retry_after_s=retry_after_s(error.response.headers, time.time()),
        )

    def _unreachable(self, cause: BaseException | None) -> NoReturn:
        import httpx2

        # Only a connection's own error is quoted: others (a header that may not be sent) would
        # quote the key.
        if isinstance(cause, httpx2.ConnectError):
            raise self._transient(f"cannot connect ({cause})", served=False) from None
        if isinstance(
            cause,
            (
                httpx2.UnsupportedProtocol,
                httpx2.LocalProtocolError,
                httpx2.InvalidURL,
                httpx2.TooManyRedirects,
            ),
        ):
            raise ModelError(
                ModelErrorKind.PERMANENT,
                f"{self._who()}: the request cannot be sent there"
                f" ({type(cause).__name__}). Check base_url in [model].",
            ) from None
        raise self._transient(f"the connection broke ({type(cause).__name__})") from None

    def _transient(self, what: str, *, served: bool = True) -> ModelError:
        return ModelError(ModelErrorKind.TRANSIENT, f"{self._who()}: {what}", served=served)

    def _who(self) -> str:
        return f"{self.name} at {urlsplit(self._base_url).netloc}"


T = TypeVar("T")


class _Wire:
    """A client of the SDK's and the event loop that it lives on, in a thread of its own.

    Needs the SDK.
    """

    def __init__(self, base_url: str, key: str, timeout_s: float) -> None:
        import asyncio  # with ssl it costs 2.4 MB, which a daemon that only watches must not

        import anthropic
        import httpx2

        timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
        # A redirect is not followed: whoever is asked elsewhere would get the key.
        http_client = anthropic.DefaultAsyncHttpxClient(
            verify=_tls(urlsplit(base_url).scheme), timeout=timeout, follow_redirects=False
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=key, base_url=base_url, max_retries=0, timeout=timeout, http_client=http_client
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="model", daemon=True).start()

    def _serve(self) -> None:
        self._loop.run_forever()
        try:
            self._loop.run_until_complete(self._client.close())
        finally:
            self._loop.close()

    def run(self, work: Callable[[anthropic.AsyncAnthropic], Coroutine[Any, Any, T]]) -> Future[T]:
        """Set work going on the loop."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop)

    def close(self) -> None:
        """Let the loop end, and the client with it."""
        self._loop.call_soon_threadsafe(self._loop.stop)


_Received = tuple[Mapping[str, Any], Mapping[int, str]]
"""A message as it was put together, and the JSON text of each tool call's input by the block's index."""


class _Joined:
    """The events of one answer, put together.

    Not by the SDK's own helper: that parses a call's input anew with each piece of it, which takes
    the square of its length.
    """

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self._blocks: list[dict[str, Any]] = []
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def add(self, event: Any) -> None:
        """Take in the next event.

        What does not fit raises ValueError, TypeError, LookupError or AttributeError.
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
        """What the server has told of tokens so far; None before it has."""
        told = _usage(self.message.get("usage")) if self.message is not None else Usage()
        return told if told != Usage() else None

    def received(self) -> _Received:
        """Return the message."""
        inputs: dict[int, str] = {}
        for (index, key), pieces in self._pieces.items():
            if key == "input":
                inputs[index] = "".join(pieces)
            else:
                self._blocks[index][key] = "".join([self._blocks[index].get(key) or "", *pieces])
        return {**(self.message or {}), "content": self._blocks}, inputs


def request_of(ask: Ask, name: str) -> dict[str, Any]:
    """Return the request's arguments for `ask`.

    What goes before the last turn is the same, byte for byte, in every request of a conversation.
    Three cache marks: the tools, the system prompt (both outlive the conversation, and hold where a
    turn of more than 20 blocks takes the third out of reach), and, at the top, the last block. A
    turn without blocks, which a model may give and the API does not take back, is left out;
    `_content` says what else is.
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
    """Return a turn's blocks as they are sent: without the thinking that an answer broke off in, which the API refuses at its end.

    An answer that was nothing but thinking says so, in words of ours.
    """
    blocks = [dict(block) for block in turn.blocks]
    while turn.role == "assistant" and blocks and blocks[-1].get("type") in _THOUGHTS:
        blocks.pop()
    return blocks or ([dict(_UNSAID)] if turn.blocks else [])


_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_UNSAID = {"type": "text", "text": "[This answer ended before anything was said.]"}


def _marked(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*parts[:-1], {**parts[-1], "cache_control": _CACHED}]


def reply_of(received: _Received, name: str) -> Reply:
    """Return the reply in a received message, or raise ModelError (transient) for one that cannot be used.

    Blocks stay as they came, except for what the API would refuse to take back: keys that are null, and
    text blocks without text. The input of a call that `max_tokens` cut off is `{}`, never the part that
    arrived.
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


# Where the model is stopped in the middle of a block.
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
    # Asked again, a model seldom makes the same mistake: transient.
    return ModelError(ModelErrorKind.TRANSIENT, what, served=True)


def _cancelled(*, served: bool = False) -> ModelError:
    return ModelError(ModelErrorKind.CANCELLED, "the call was cancelled", served=served)


# The API's own names, https://platform.claude.com/docs/en/api/errors; `invalid_request_error` is
# not among them, as other servers say it for everything that is wrong.
_BY_TYPE = {
    "overloaded_error": ModelErrorKind.TRANSIENT,
    "rate_limit_error": ModelErrorKind.TRANSIENT,
    "api_error": ModelErrorKind.TRANSIENT,
    "timeout_error": ModelErrorKind.TRANSIENT,
    "conflict_error": ModelErrorKind.TRANSIENT,
    "authentication_error": ModelErrorKind.PERMANENT,
    "permission_error": ModelErrorKind.PERMANENT,
    "billing_error": ModelErrorKind.PERMANENT,
    "not_found_error": ModelErrorKind.PERMANENT,
    "request_too_large": ModelErrorKind.BAD_REQUEST,
}
# Codes that name a cause which no waiting mends, whatever status they come with (SDK,
# `_error_classes.py`).
_FOR_A_PERSON = frozenset(
    {
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "organization_on_hold",
        "organization_type_not_supported",
        "parent_organization_required",
        "cmek_key_disabled",
        "cmek_key_network_blocked",
    }
)
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 499})
_PERMANENT_STATUS = frozenset({401, 402, 403, 404, 405, 407, 410})


def kind_of(status: int, error_type: str, error_code: str) -> ModelErrorKind:
    """Return what can be done about an error answer, by its names and its status, never by its words.

    Status 200 is an error event in a stream that had begun well.
    """
    if error_code in _FOR_A_PERSON or 300 <= status < 400:
        return ModelErrorKind.PERMANENT
    if error_type in _BY_TYPE:
        return _BY_TYPE[error_type]
    if status == 200:
        refused = error_type == "invalid_request_error"
        return ModelErrorKind.BAD_REQUEST if refused else ModelErrorKind.TRANSIENT
    if status in _TRANSIENT_STATUS or status >= 500:
        return ModelErrorKind.TRANSIENT
    if status in _PERMANENT_STATUS or status < 400:
        return ModelErrorKind.PERMANENT
    return ModelErrorKind.BAD_REQUEST


def _advice(status: int) -> str:
    match status:
        case _ if 300 <= status < 400:
            return "Redirects are not followed, as who is asked gets the key: write the server's own address as base_url in [model]"
        case 401 | 403:
            return f"Check {KEY_VARIABLE}"
        case 402:
            return "Check the account's credit"
        case 404:
            return "Check name and base_url in [model]; base_url goes without /v1"
        case _:
            return "Check the account, and name and base_url in [model]"


def _quoted(words: str, *, key: str, request: str, name: str) -> str:
    """Return the server's words as the end of a sentence, or a note where they repeat what it was sent.

    Some servers quote what they were sent; a message of ours goes into journal, notes and logs.
    """
    line = " ".join(words.split())[:_QUOTED_CHARACTERS]
    nameless = line.replace(name, "")  # the model's name may be said, however long it is
    echoes = any(
        nameless[at : at + _ECHO_CHARACTERS] in request
        for at in range(len(nameless) - _ECHO_CHARACTERS + 1)
    )
    secret = any(
        key[at : at + _KEY_CHARACTERS] in line
        for at in range(max(1, len(key) - _KEY_CHARACTERS + 1))
    )
    if echoes or secret:
        return " (its words are left out: they repeat what it was sent)"
    return f": {line}" if line else ""


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return how long the server asks to wait, None where it does not say so in a way that can be read.

    `retry-after` holds seconds or an HTTP date (RFC 9110, 10.2.3), `retry-after-ms` milliseconds; `now_s`
    is Unix time. A date that has passed is 0.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(wait_s) and wait_s >= 0:
            return wait_s
    date = parsedate_tz(headers.get("retry-after", ""))
    if date is None:
        return None
    try:
        return max(0.0, mktime_tz(date) - now_s)
    except (ValueError, OverflowError):
        return None


@cache
def _tls(scheme: str) -> ssl.SSLContext:
    """Read the machine's certificates, once a process: 70 ms and 3 MB.

    A server that is spoken to in the clear needs none.
    """
    import ssl

    import httpx2

    return (
        httpx2.create_ssl_context()
        if scheme == "https"
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


def _import_sdk() -> None:
    """Import the SDK.

    Its 3,000 modules stay, so garbage is not looked for in them: that holds all threads for 40 to
    160 ms.
    """
    gc.disable()
    try:
        importlib.import_module("anthropic")
    finally:
        gc.freeze()
        gc.enable()


@cache
def prepare() -> threading.Thread:
    """Begin to import the SDK, which takes seconds the first time, in a thread, which is returned.

    Safe to repeat.
    """
    loading = threading.Thread(target=_import_sdk, name="sdk", daemon=True)
    loading.start()
    return loading


def _load_sdk(cancelled: Callable[[], bool]) -> None:
    """Wait until the SDK is imported, without going deaf to `cancelled`."""
    loading = prepare()
    while loading.is_alive():
        if cancelled():
            raise _cancelled()
        loading.join(_POLL_S)


def _key_from(env: Mapping[str, str]) -> str:
    where, key = KEY_VARIABLE, env.get(KEY_VARIABLE, "")
    if not key.strip() and env.get("CREDENTIALS_DIRECTORY"):
        path = Path(env["CREDENTIALS_DIRECTORY"], CREDENTIAL)
        try:
            where, key = str(path), path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(
                ModelErrorKind.PERMANENT,
                f"the credential {path} cannot be read ({type(error).__name__})",
            ) from None
    key = key.strip()
    if not all("!" <= character <= "~" for character in key):
        raise ModelError(
            ModelErrorKind.PERMANENT,
            f"{where} holds spaces, line ends or characters that no key has; set the key alone",
        )
    return key


def _host_of(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in {"http", "https"} or parts.username is not None:
        raise UserError(
            "[model] base_url (or ANTHROPIC_BASE_URL) is not a server's address",
            "Write it as https://host or http://127.0.0.1:11434, without a user or a key in it.",
            exit_code=2,
        )
    if parts.path.rstrip("/").endswith("/v1"):
        raise UserError(
            "[model] base_url (or ANTHROPIC_BASE_URL) ends in /v1",
            "Leave /v1 out; it is added.",
            exit_code=2,
        )
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
