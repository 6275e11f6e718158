"""Call the Messages API, at Anthropic or at any server that speaks it.

Only this module imports the SDK, and only when needed (`prepare`): it takes 1 to 4 s and 41 MB. The
SDK's retries are off: it retries neither a broken stream nor an error event, and it obeys a
`retry-after` of any length. One call here is one attempt; `chat.retry` decides on the next.
"""

from __future__ import annotations

import gc
import importlib
import json
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import quote, urlsplit

from placet.chat.messages import Ask, Model, ModelError, ModelErrorKind, Reply
from placet.errors import BUGS
from placet.host.config import ModelTable
from placet.models.messages import (
    MAX_ERROR_BYTES,
    MAX_REPLY_BYTES,
    EventReader,
    JoinedEvents,
    OverLimit,
    reply_of,
    request_of,
)
from placet.models.server import DEFAULT_BASE_URL, ModelServer, Offered, offered_in, server_of
from placet.wording import megabytes

if TYPE_CHECKING:
    import ssl

    import anthropic
    import httpx2

_POLL_S = 0.25  # `Model.reply` promises to poll `cancelled` every 0.5 s
_CONNECT_S = 10.0
_WHOLE_ANSWER = 10  # a whole answer may take so many times the longest silence
_HAS_NO_SUCH_PATH = (404, 405, 501)
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"


def open_model(settings: ModelTable, env: Mapping[str, str]) -> Model:
    """Return the model that `settings` name. Raises UserError and ModelError as `server_of`."""
    return _opened(settings, env)


def check(settings: ModelTable, env: Mapping[str, str]) -> bool:
    """Ask the server about the key and the model, without tokens; return False if it does not say.

    Raises UserError and ModelError as `open_model` does, and ModelError as `Model.reply` does.
    """
    return _opened(settings, env).look(f"/v1/models/{quote(settings.name, safe='')}") is not None


def offered(settings: ModelTable, env: Mapping[str, str]) -> tuple[Offered, ...]:
    """Return the models that the server offers; none if it does not say. Raises as `check` does."""
    listing = settings.model_copy(update={"name": "the list of models"})  # as errors name it
    return offered_in(_opened(listing, env).look("/v1/models"))


def _opened(settings: ModelTable, env: Mapping[str, str]) -> AnthropicModel:
    return AnthropicModel(
        settings.name, *server_of(settings.base_url, env), timeout_s=settings.timeout_s
    )


class AnthropicModel:
    """One model at one server. Thread-safe.

    Its client and connections live in a thread of their own, which ends with the model.
    """

    provider = "anthropic"

    def __init__(self, name: str, base_url: str, key: str, timeout_s: float) -> None:
        self.name = name
        self._server = ModelServer(name, base_url, key)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._wire: _Wire | None = None

    def reply(
        self,
        ask: Ask,
        cancelled: Callable[[], bool],
        received: Callable[[int], None] = lambda _pieces: None,
    ) -> Reply:
        """Answer `ask` in one attempt, or raise ModelError.

        `cancelled` is polled four times a second, and `received` told as often.
        """
        if cancelled():
            raise _cancelled()
        request = {**request_of(ask, self.name), "stream": True}
        try:
            text = json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            text.encode()
        except (TypeError, ValueError) as error:
            # a lone surrogate from a file's name, a date, NaN: the SDK would fail later
            raise ModelError(
                ModelErrorKind.BAD_REQUEST,
                f"the conversation cannot be written as JSON ({type(error).__name__})",
            ) from None
        _load_sdk(cancelled)
        joined = JoinedEvents()
        attempt = self._open_wire().run(lambda client: self._attempt(client, text, joined))
        try:
            while not wait({attempt}, timeout=_POLL_S)[0]:
                if cancelled():
                    raise _cancelled(served=True)
                received(joined.pieces)
            return attempt.result()
        except ModelError as error:
            error.used = joined.used if error.served else None
            raise
        finally:
            # cancelling the task closes its connection, so the server stops writing
            attempt.cancel()

    def look(self, path: str) -> object | None:
        """Return the JSON at a path of the server; None if it has no such path.

        Raises ModelError as `reply` does.
        """
        _load_sdk(lambda: False)
        return self._open_wire().run(lambda client: self._look(client, path)).result()

    async def _look(self, client: anthropic.AsyncAnthropic, path: str) -> object | None:
        import anthropic
        import httpx2

        try:
            # not every server says that it is JSON
            options: Any = {"timeout": _CONNECT_S}
            found = await client.get(path, cast_to=httpx2.Response, options=options)
            return _json_of(found.text)
        except anthropic.APIStatusError as error:
            if error.status_code in _HAS_NO_SUCH_PATH and self._server.url != DEFAULT_BASE_URL:
                return None
            raise self._refused(error, "") from None
        except anthropic.APITimeoutError:
            raise self._server.transient("no answer in time") from None
        except anthropic.APIConnectionError as error:
            self._unreachable(error.__cause__)
        except BUGS as error:
            raise self._malformed(error) from None

    def _open_wire(self) -> _Wire:
        import httpx2

        with self._lock:
            if self._wire is None:
                try:
                    self._wire = _Wire(self._server, self._timeout_s)
                except (OSError, httpx2.InvalidURL, *BUGS) as error:
                    raise self._server.permanent(
                        f"the connection cannot be set up ({type(error).__name__}: {error})."
                        " Check SSL_CERT_FILE, SSL_CERT_DIR and HTTPS_PROXY in the daemon's"
                        " environment, then start it again."
                    ) from None
                weakref.finalize(self, self._wire.close)
            return self._wire

    async def _attempt(
        self,
        client: anthropic.AsyncAnthropic,
        text: str,
        joined: JoinedEvents,
    ) -> Reply:
        import asyncio

        import anthropic
        import httpx2

        whole_s = _WHOLE_ANSWER * self._timeout_s
        try:
            # `messages.create` would need 2 MB for its types and encode the JSON again
            async with (
                asyncio.timeout(whole_s),
                await client.post(
                    "/v1/messages",
                    content=text.encode(),
                    cast_to=object,
                    stream=True,
                    stream_cls=anthropic.AsyncStream[Any],
                ) as stream,
            ):
                return await self._receive(stream.response, joined, text)
        except TimeoutError:
            raise self._server.transient(f"no whole answer within {whole_s:g} s") from None
        except OverLimit as error:
            raise self._server.transient(str(error)) from None
        except anthropic.APIStatusError as error:
            raise self._refused(error, text) from None
        except anthropic.APITimeoutError:  # like all of `_unreachable`, before a status line
            raise self._server.transient("no answer in time", served=False) from None
        except anthropic.APIConnectionError as error:
            self._unreachable(error.__cause__)
        except httpx2.TimeoutException:
            raise self._server.transient(
                f"silent for {self._timeout_s:g} s in the middle of an answer"
            ) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise self._server.transient(
                f"the connection broke in mid-stream ({type(error).__name__})"
            ) from None
        except BUGS as error:  # raised by the SDK about what the server sent
            raise self._malformed(error) from None

    async def _receive(self, response: httpx2.Response, joined: JoinedEvents, text: str) -> Reply:
        reader = EventReader()
        try:
            async for piece in response.aiter_bytes():
                for name, data in reader.read(piece):
                    if name == "error":
                        raise self._server.refused(200, _json_of(data), response.headers, text)
                    if data and name != "ping":
                        joined.add(json.loads(data))
            if joined.message is not None:
                return reply_of(joined.received(), self.name)
        except OverLimit:
            raise
        except BUGS as error:
            raise self._malformed(error) from None
        kind = response.headers.get("content-type", "no content type")
        raise self._server.transient(
            f"the answer is not an event stream but {kind[:60]}; does this server speak the"
            " Messages API?"
        )

    def _malformed(self, error: Exception) -> ModelError:
        """Return the error for an unreadable answer; the exception's text may quote it."""
        return self._server.transient(f"the answer is malformed ({type(error).__name__})")

    def _refused(self, error: anthropic.APIStatusError, request: str) -> ModelError:
        headers = error.response.headers
        return self._server.refused(error.status_code, error.body, headers, request)

    def _unreachable(self, cause: BaseException | None) -> NoReturn:
        import httpx2

        if isinstance(cause, OverLimit):
            raise self._server.transient(str(cause)) from None
        # Only a connection error is quoted: others (an invalid header) would quote the key.
        through = self._server.proxy
        if isinstance(cause, httpx2.ConnectError) and _NOT_TRUSTED in str(cause):
            raise self._server.permanent(
                f"its certificate is not trusted here{through}. Stop the daemon, type: export"
                " SSL_CERT_FILE=/path/to/ca.pem, and start it in that terminal."
            ) from None
        if isinstance(cause, (httpx2.ConnectError, httpx2.ProxyError)):
            raise self._server.transient(
                f"cannot connect{through} ({cause})", served=False
            ) from None
        if isinstance(
            cause,
            (
                httpx2.UnsupportedProtocol,
                httpx2.LocalProtocolError,
                httpx2.InvalidURL,
                httpx2.TooManyRedirects,
            ),
        ):
            raise self._server.permanent(
                f"the request cannot be sent there ({type(cause).__name__}). Check base_url in"
                " [model]."
            ) from None
        raise self._server.transient(
            f"the connection broke{through} ({type(cause).__name__})", served=False
        ) from None


def _json_of(data: str) -> object:
    """Return what an error event says, as text if it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


def _cancelled(*, served: bool = False) -> ModelError:
    return ModelError(ModelErrorKind.CANCELLED, "the call was cancelled", served=served)


T = TypeVar("T")


class _Wire:
    """A client of the SDK and its event loop, in a separate thread. Needs the SDK."""

    def __init__(self, server: ModelServer, timeout_s: float) -> None:
        import asyncio  # with ssl it costs 2.4 MB, which an idle daemon saves

        import anthropic
        import httpx2

        timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
        # Redirects are off: the other server would get the key.
        http_client = anthropic.DefaultAsyncHttpxClient(
            verify=_tls(urlsplit(server.url).scheme),
            # in place of the environment's proxies, which the SDK would use for loopback, too
            mounts={} if server.proxy else dict.fromkeys(("http://", "https://", "all://")),
            timeout=timeout,
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [_bound]},
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=server.key,
            base_url=server.url,
            max_retries=0,
            timeout=timeout,
            http_client=http_client,
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
        """Start a coroutine on the loop."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop)

    def close(self) -> None:
        """Stop the loop and close the client."""
        self._loop.call_soon_threadsafe(self._loop.stop)


async def _bound(response: httpx2.Response) -> None:
    """Limit the bytes of an answer. A compressed one could still grow, so it is refused."""
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise OverLimit("the answer is compressed, which placet did not ask for")
    response.encoding = "utf-8"
    assert isinstance(response.stream, httpx2.AsyncByteStream), "the client is asynchronous"
    stream: httpx2.AsyncByteStream = response.stream
    most = MAX_REPLY_BYTES if response.is_success else MAX_ERROR_BYTES

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most
            async for piece in stream:
                left -= len(piece)
                if left < 0:
                    raise OverLimit(f"the answer is longer than {megabytes(most)}")
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


@cache
def _tls(scheme: str) -> ssl.SSLContext:
    """Read the machine's certificates once a process: 70 ms and 3 MB. HTTP needs none."""
    import ssl

    import httpx2

    return (
        httpx2.create_ssl_context()
        if scheme == "https"
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


def _import_sdk() -> None:
    """Import the SDK and freeze its 3,000 modules: collecting them blocks threads for 160 ms."""
    gc.disable()
    try:
        importlib.import_module("anthropic")
    finally:
        gc.freeze()
        gc.enable()


@cache
def prepare() -> threading.Thread:
    """Import the SDK in a thread, which takes seconds; return the thread. Can be repeated."""
    loading = threading.Thread(target=_import_sdk, name="sdk", daemon=True)
    loading.start()
    return loading


def _load_sdk(cancelled: Callable[[], bool]) -> None:
    loading = prepare()
    while loading.is_alive():
        if cancelled():
            raise _cancelled()
        loading.join(_POLL_S)
