"""Run uvicorn with limits for slow and hostile clients.

A client has HEAD_S for each request's head, FORM_S for a form (in the guard), and READ_S for each
piece of an answer. If there are too many connections, the one that has kept the board waiting
longest is dropped: a client that asks and reads is served, whoever else is connected.
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
"""Time limit for a request's head, in seconds."""
READ_S = 30.0
"""Time limit for a client to read the next piece of an answer, in seconds: 1 MB on a slow phone."""
LOOK_S = 1.0
"""How often the limits of a connection are checked, in seconds."""
MAX_CONNECTIONS = 300
OWN_FILES = 100
"""File handles that the board itself needs: journals, notes, pipes of git."""


class PromptProtocol(H11Protocol):
    """HTTP with a time limit for each thing that the board waits for.

    uvicorn's own idle limit ends with the first byte that a client sends.
    """

    _head_since: float | None = None
    _unread_since: float | None = None
    _quiet_since = 0.0
    _is_dropped = False
    _next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Set a deadline: a client may connect and send nothing."""
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
        """Restart the deadline of a client that reads, however long it takes in total."""
        self._unread_since = None
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Count from here how long the client keeps the board waiting."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines of a client that left."""
        if self._next is not None:
            self._next.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, with the headers that every answer has."""
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
        """Return whether the board waits for this client, not the client for the board."""
        return (
            not self._is_answering()
            or self.cycle.more_body
            or self.transport.get_write_buffer_size() > 0
        )

    def _look(self) -> None:
        """Close the connection if one of its deadlines has passed."""
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
        """Drop the client that has kept the board waiting longest, if there are too many."""
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
    """Return a server of the board. It logs its own errors, and no requests."""
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
