"""The Messages API, at its vendor's or at any server that speaks it.

The only module that imports the SDK, and only when there is something to ask (`prepare`): it takes
1 to 4 s and 41 MB. The SDK's own retries are off: it retries neither a cut stream, nor a reset in
mid-stream, nor an error event, and it obeys a `retry-after` of any length. One call here is one
attempt; `core.turn.retry` decides about the next one.
"""

from __future__ import annotations

import gc
import importlib
import ipaddress
import json
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from placet.core.errors import UserError
from placet.core.turn.talk import Ask, Model, ModelError, ModelErrorKind, Reply
from placet.models import ModelSettings
from placet.models.messages import (
    JoinedEvents,
    kind_of,
    quoted,
    reply_of,
    request_of,
    retry_after_s,
)

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
_HAS_NO_SUCH_PATH = (404, 405, 501)


def open_model(settings: ModelSettings, env: Mapping[str, str]) -> Model:
    """Return the model that `settings` name, with the key of `env`.

    The key is `ANTHROPIC_API_KEY`, else the systemd credential `anthropic_api_key`; a server on
    loopback, by `base_url` or `ANTHROPIC_BASE_URL`, needs none. Raises UserError for an invalid
    `base_url`, ModelError (permanent) for a missing or unusable key.
    """
    base_url = settings.base_url or env.get("ANTHROPIC_BASE_URL", "") or DEFAULT_BASE_URL
    host = _host_of(base_url)
    key = _key_from(env)
    if not key:
        if not _is_loopback(host):
            raise ModelError(
                ModelErrorKind.PERMANENT,
                f"there is no key for {host}. Export {KEY_VARIABLE}=…, or in the systemd unit set"
                f" LoadCredential={CREDENTIAL}:/path/to/key. A server on this machine needs none:"
                " set"
                ' base_url in [model]. Without any model, provider = "scripted" replays a file.',
            )
        key = _NO_KEY
    return AnthropicModel(
        settings.name or DEFAULT_NAME, base_url.rstrip("/"), key, settings.timeout_s
    )


def check(settings: ModelSettings, env: Mapping[str, str]) -> bool:
    """Ask the server about the key and the model, for no tokens; return False if it does not say.

    Raises UserError and ModelError as `open_model` does, and ModelError as `Model.reply` does.
    """
    model = open_model(settings, env)
    assert isinstance(model, AnthropicModel), "this module opens no other"
    return model.is_known()


class AnthropicModel:
    """One model at one server. Several threads may use it at once.

    Its one client and the connections live in a thread of their own, which ends with the model.
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
            # a lone surrogate from a file's name, a date, NaN; the SDK would raise the same later
            raise ModelError(
                ModelErrorKind.BAD_REQUEST,
                f"the conversation cannot be written as JSON ({type(error).__name__})",
            ) from None
        _load_sdk(cancelled)
        joined = JoinedEvents()
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
        """Ask for the model's description; return False if the server has none, as many do."""
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
        joined: JoinedEvents,
    ) -> Reply:
        import anthropic
        import httpx2

        try:
            # `messages.create` without its types, which take 2 MB and would become JSON again
            async with await client.post(
                "/v1/messages",
                body={**request, "stream": True},
                cast_to=object,
                stream=True,
                stream_cls=anthropic.AsyncStream[Any],
            ) as stream:
                return await self._receive(stream, joined)
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

    async def _receive(self, stream: anthropic.AsyncStream[Any], joined: JoinedEvents) -> Reply:
        try:
            async for event in stream:
                joined.add(event)
            if joined.message is not None:
                return reply_of(joined.received(), self.name)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
            # A malformed stream: the SDK's parser, or ours. The error's text may quote the stream.
            raise self._transient(f"the stream is malformed ({type(error).__name__})") from None
        kind = stream.response.headers.get("content-type", "no content type")
        raise self._transient(
            f"the answer is no event stream but {kind[:60]}; does this server speak the"
            " Messages API?"
        )

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
            + quoted(
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

        # only a connection's own error is quoted: others (an invalid header) would quote the key
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


def _cancelled(*, served: bool = False) -> ModelError:
    return ModelError(ModelErrorKind.CANCELLED, "the call was cancelled", served=served)


def _advice(status: int) -> str:
    match status:
        case _ if 300 <= status < 400:
            return (
                "Redirects are not followed, because the other server would get the key: write the"
                " server's own address as base_url in [model]"
            )
        case 401 | 403:
            return f"Check {KEY_VARIABLE}"
        case 402:
            return "Check the account's credit"
        case 404:
            return "Check name and base_url in [model]; base_url goes without /v1"
        case _:
            return "Check the account, and name and base_url in [model]"


T = TypeVar("T")


class _Wire:
    """A client of the SDK and its event loop, in a thread of its own. Needs the SDK."""

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
        """Start work on the loop."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop)

    def close(self) -> None:
        """End the loop and close the client."""
        self._loop.call_soon_threadsafe(self._loop.stop)


@cache
def _tls(scheme: str) -> ssl.SSLContext:
    """Read the machine's certificates, once a process: 70 ms and 3 MB. HTTP needs none."""
    import ssl

    import httpx2

    return (
        httpx2.create_ssl_context()
        if scheme == "https"
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


def _import_sdk() -> None:
    """Import the SDK, and freeze its 3,000 modules: collecting them stops threads for 160 ms."""
    gc.disable()
    try:
        importlib.import_module("anthropic")
    finally:
        gc.freeze()
        gc.enable()


@cache
def prepare() -> threading.Thread:
    """Start to import the SDK, which takes seconds; return the thread. Safe to repeat."""
    loading = threading.Thread(target=_import_sdk, name="sdk", daemon=True)
    loading.start()
    return loading


def _load_sdk(cancelled: Callable[[], bool]) -> None:
    """Wait until the SDK is imported, or raise ModelError once `cancelled`."""
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
