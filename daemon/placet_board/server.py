"""The server of the board: uvicorn, with limits for clients that are slow or many on purpose.

A client has HEAD_S for each request's head, the guard gives a form FORM_S, and what is answered has
to be taken within READ_S, piece by piece. Of more connections than there is room for, the one goes
that has kept the board waiting longest: who asks and reads is answered, whoever else is connected.
"""

from __future__ import annotations

import asyncio
import resource
from typing import cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from placet_board.auth import HEADERS

HEAD_S = 10.0
"""Seconds in which a request's head has to arrive."""
READ_S = 30.0
"""Seconds in which a client has to take the next piece of what it is sent: 1 MB by a slow phone."""
LOOK_S = 1.0
"""Seconds between two looks at a connection."""
MAX_CONNECTIONS = 300
OWN_FILES = 100
"""Open files that the board itself needs: journals, notes, pipes of git."""


class PromptProtocol(H11Protocol):
    """HTTP whose clients have a time for each thing that the board waits for.

    uvicorn's own limit for silence ends with the first byte that a client sends.
    """

    _head_since: float | None = None
    _unread_since: float | None = None
    _quiet_since = 0.0
    _is_dropped = False
    _next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Begin with a deadline: a client may connect and say nothing."""
        super().connection_made(transport)
        self._head_since = self._quiet_since = self.loop.time()
        self._make_room()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Keep the deadline until a whole head has arrived."""
        if self._head_since is None and not self._is_answering():
            self._head_since = self.loop.time()
        super().data_received(data)
        if self._is_answering():
            self._head_since = None

    def resume_writing(self) -> None:
        """Begin the time anew of a client that takes what it is sent, however long that is."""
        self._unread_since = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Count from here how long the client has kept the board waiting."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines of a client that has gone."""
        if self._next is not None:
            self._next.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP with the headers that every answer has."""
        kept = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        for event in (
            h11.Response(status_code=400, headers=kept + own, reason=b"Bad Request"),
            h11.Data(data=msg.encode()),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _is_answering(self) -> bool:
        # None until the first request, whatever uvicorn's annotation says
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _keeps_waiting(self) -> bool:
        """Return whether the board waits for this client, and not this client for the board."""
        return (
            not self._is_answering()
            or self.cycle.more_body
            or self.transport.get_write_buffer_size() > 0
        )

    def _look(self) -> None:
        """Cut the connection off if one of its times is over."""
        now = self.loop.time()
        if not self.transport.get_write_buffer_size():
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        if _is_over(self._head_since, HEAD_S, now) or _is_over(self._unread_since, READ_S, now):
            self._drop()
        else:
            self._next = self.loop.call_later(LOOK_S, self._look)

    def _drop(self) -> None:
        self._is_dropped = True
        self.transport.abort()

    def _make_room(self) -> None:
        """Drop who has kept the board waiting longest, if there are too many connections."""
        most = most_connections()
        if len(self.connections) <= most:
            return
        there = [
            one
            for one in self.connections
            if isinstance(one, PromptProtocol) and not one._is_dropped
        ]
        if len(there) > most:
            waiting = [one for one in there if one is not self and one._keeps_waiting()]
            min(waiting, key=lambda one: one._quiet_since, default=self)._drop()


def _is_over(since: float | None, most_s: float, now: float) -> bool:
    return since is not None and now - since > most_s


def most_connections() -> int:
    """Return the number of connections for which this process may open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft < 0 else max(20, min(MAX_CONNECTIONS, soft - OWN_FILES))


def server(app: ASGIApp) -> uvicorn.Server:
    """Return a server of the board. It logs its own faults, and no request."""
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
