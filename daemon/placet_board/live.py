"""Live pages: send what the daemon writes into the journal to the browsers.

An event names the requests that something happened to; the page then fetches itself again. Events
of a short while are sent as one, so that a slow browser is never behind by more than one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from placet.activity import Entity
from placet.client.rows import last_row, new_rows
from placet.client.site import Site
from placet.errors import UserError

GATHER_S = 0.05
"""Seconds in which events are gathered into one."""
BEAT_S = 15.0
"""Seconds after which a silent connection gets a comment, so that both ends know of the other."""
MAX_LISTENING = 200


class Live:
    """Tells each browser that listens what the daemon does.

    `start` begins a thread that ends with the process.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self.notified_at = 0.0
        """The moment of the last event, as time.monotonic has it."""
        self._listeners: set[_Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Follow the journal from now on; called in the loop that serves the browsers."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._follow, name="live", daemon=True).start()

    def answer(self, is_logged_in: Callable[[], bool]) -> Response | None:
        """Return the answer to one browser that listens, which is to be sent; None for too many.

        It ends once the browser is logged out.
        """
        if len(self._listeners) >= MAX_LISTENING:
            return None
        listener = _Listener()
        self._listeners.add(
            listener
        )  # before the answer begins, or many at once would all find room
        return _Events(listener, is_logged_in, lambda: self._listeners.discard(listener))

    def _follow(self) -> None:
        was_there = self._site.daemon is not None
        while True:
            with suppress(UserError):  # it stays unreadable, which the page says
                for rows in new_rows(self._site, last_row(self._site)):
                    for row in rows:
                        self._tell("" if row.entity_type == Entity.DAEMON else row.entity_id)
                    if (is_there := self._site.daemon is not None) != was_there:
                        was_there = is_there
                        self._tell("")
            self._tell("")

    def _tell(self, request_id: str) -> None:
        assert self._loop is not None, "started first"
        self.notified_at = time.monotonic()
        self._loop.call_soon_threadsafe(self._notify, request_id)

    def _notify(self, request_id: str) -> None:
        for listener in self._listeners:
            listener.about.add(request_id)
            listener.changed.set()


class _Events(StreamingResponse):
    """One browser's events until it goes, whenever that is."""

    media_type = "text/event-stream"

    def __init__(
        self, listener: _Listener, is_logged_in: Callable[[], bool], gone: Callable[[], None]
    ) -> None:
        super().__init__(_told(listener, is_logged_in))
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the board ends
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._gone()


async def _told(listener: _Listener, is_logged_in: Callable[[], bool]) -> AsyncIterator[str]:
    yield "retry: 1000\n: hello\n\n"
    while True:
        try:
            async with asyncio.timeout(BEAT_S):
                await listener.changed.wait()
        except TimeoutError:
            if not is_logged_in():
                return
            yield ": still here\n\n"
            continue
        await asyncio.sleep(GATHER_S)
        if not is_logged_in():
            return
        about, listener.about = sorted(listener.about), set()
        listener.changed.clear()
        yield f"data: {json.dumps(about)}\n\n"


class _Listener:
    """The events that one browser was not told yet, by request; "" is the daemon itself."""

    def __init__(self) -> None:
        self.about: set[str] = set()
        self.changed = asyncio.Event()
