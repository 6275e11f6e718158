"""Live events as values: the schema of a line, for clients on this machine such as a status bar."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import socketserver
import stat
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from placet.activity import Action, Actor, CommittedRow, Entity
from placet.errors import UserError

if TYPE_CHECKING:
    JournalType = str
else:
    JournalType = Literal[
        tuple(action.value for action in Action if action is not Action.FAILURE_DETECTED)
    ]


class _Row(BaseModel):
    """The fields of every journal event; both ids are empty for rows about no request."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: int = Field(description="The row's number in the journal; numbers go up.")
    timestamp: str = Field(description="UTC, RFC 3339, ending in Z.")
    trace_id: str
    request_id: str
    actor: Actor = Field(description="Who did it.")
    agent: str
    metadata: Mapping[str, Any] = Field(
        description="The row's details: digests and sizes, never contents."
    )


class Happened(_Row):
    """A row of the journal; `type` is its `action_type`."""

    type: JournalType


class FailureDetected(_Row):
    """A failure pattern was seen in running work; you may want to look."""

    type: Literal["failure.detected"] = "failure.detected"
    pattern: str = Field(
        description=(
            "repeated-tool-error, tool-rejection-loop, no-progress, max-steps-approaching,"
            " crash_loop, or the name of the guard that spoke."
        )
    )
    description: str
    suggested_action: str
    affected_tool: str = Field(description="Empty if it is about no single tool.")


class Skipped(BaseModel):
    """You did not read fast enough: this many events were left out. The journal has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    type: Literal["events.skipped"] = "events.skipped"
    skipped: int


Event = Annotated[Happened | FailureDetected | Skipped, Field(discriminator="type")]
EVENT: TypeAdapter[Happened | FailureDetected | Skipped] = TypeAdapter(Event)
"""The schema of a line: validates one, and writes itself as JSON Schema."""


def event_of(row: CommittedRow) -> Happened | FailureDetected:
    """Return a committed row as an event."""
    data = row.details
    own = "" if row.entity_type == Entity.DAEMON else row.entity_id
    about: dict[str, Any] = {
        "id": row.id,
        "timestamp": row.timestamp,
        "trace_id": row.trace_id,
        "request_id": own,
        "actor": Actor(row.actor),
        "agent": row.agent,
        "metadata": data,
    }
    if row.action_type == Action.FAILURE_DETECTED:
        return FailureDetected(
            **about,
            pattern=data["pattern"],
            description=data["description"],
            suggested_action=data["suggested_action"],
            affected_tool=data["affected_tool"],
        )
    return Happened(**about, type=row.action_type)


def line_of(event: Happened | FailureDetected | Skipped) -> bytes:
    """Return an event as a line of ASCII: a name that is not UTF-8 must not spoil the stream."""
    return json.dumps(event.model_dump()).encode() + b"\n"


# The socket of live events: its path, and how a client reads it.
#
# A client connects and reads newline-delimited JSON, one `events.Event` a line; it sends nothing.
# Only the user who runs the daemon may connect.

SOCKET = "events.sock"
MAX_ADDRESS_BYTES = 100
"""sun_path holds 108 bytes on Linux and 104 on macOS (unix(7), unix(4)), one of them a NUL."""


def places(state: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the possible paths of a vault's socket: in the runtime folder, in the state folder.

    As the XDG Base Directory Specification asks, the runtime folder counts only if it is absolute,
    ours, and closed to others.
    """
    found = [state / "run" / SOCKET]
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_absolute() and is_private(Path(runtime)):
        found.insert(0, Path(runtime) / "placet" / state.name / SOCKET)
    return tuple(found)


def listen(where: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of the first socket at which a daemon listens, until it stops.

    Raises UserError if none does.
    """
    for path in where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                with address_of(path) as address:
                    sock.connect(address)
            except OSError:
                continue
            with sock.makefile("rb") as stream:
                yield from stream
            return
    raise UserError("No daemon of this vault sends events.", "Start it: placet run")


def is_private(folder: Path) -> bool:
    """Return whether a folder is ours and closed to others."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and not stat.S_IMODE(info.st_mode) & 0o077
    )


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield a path that is short enough for a socket: on Linux, by an open handle of its folder."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES or sys.platform != "linux":
        yield str(path)
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)


# The daemon's end of the live events: sends each committed row to all connected clients.
#
# Each client has a thread, so a slow reader delays nobody. Up to MAX_WAITING rows wait for it, the
# rest is skipped, and it is told how many once it reads again.

MAX_CLIENTS = 16
"""More are turned away at once: each has a thread."""
MAX_WAITING = 1_000
"""Rows that wait for one client; the kernel's buffer holds some 200 more."""
LAST_WORDS_S = 0.5
"""Seconds that clients get to read the rest when the daemon stops."""
POLL_S = 3600.0 if sys.platform == "linux" else 0.5
"""Interval at which `serve_forever` checks for its end; on Linux, `shutdown` wakes it anyway."""


class _Client:
    """A connection, the rows that wait for it, and the bell that wakes its thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting: deque[CommittedRow] = deque()
        self.gone = threading.Event()
        self._skipped = 0
        self._leaving = False
        self._lock = threading.Lock()
        self._bell, self._rope = socket.socketpair()
        self._bell.settimeout(0)
        self._rope.settimeout(0)

    def offer(self, rows: Sequence[CommittedRow]) -> None:
        """Add rows, or count them as skipped until the client has caught up. Never blocks."""
        with self._lock:
            for row in rows:
                if self._skipped or len(self.waiting) >= MAX_WAITING:
                    self._skipped += 1
                else:
                    self.waiting.append(row)
        self._ring()

    def leave(self) -> None:
        """Let the thread end once it has sent what waits."""
        self._leaving = True
        self._ring()

    def attend(self) -> None:
        """Send rows until the client hangs up or `leave` was called.

        Raises OSError if it hung up in the middle of a line. Its own words are ignored; a client
        that only closed its sending end still listens.
        """
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        while True:
            leaving = self._leaving  # looked at first: nothing is published after it is set
            while (line := self._next()) is not None:
                self.sock.sendall(line)
            if leaving:
                return
            for handle, mask in poll.poll():
                if handle == self._bell.fileno():
                    self._bell.recv(4096)
                elif mask & ~select.POLLIN:
                    return
                elif not self.sock.recv(4096):
                    # that it closes both ends is told all the same, by poll(2)
                    poll.modify(self.sock, 0)

    def close(self) -> None:
        """Close the bell."""
        with self._lock:
            self._rope.close()
        self._bell.close()
        self.gone.set()

    def _next(self) -> bytes | None:
        with self._lock:
            row = self.waiting.popleft() if self.waiting else None
            skipped = 0
            if row is None:
                skipped, self._skipped = self._skipped, 0
        if row is not None:
            return line_of(event_of(row))
        return line_of(Skipped(skipped=skipped)) if skipped else None

    def _ring(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # rung often enough, or the client has gone
            self._rope.send(b"!")


class _Server(socketserver.ThreadingUnixStreamServer):
    """Listens at `path` and gives each client a thread. Raises OSError if it cannot listen."""

    daemon_threads = True
    request_queue_size = MAX_CLIENTS

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.clients: dict[socket.socket, _Client] = {}
        self._say = say
        with address_of(path) as address:
            super().__init__(address, socketserver.BaseRequestHandler, bind_and_activate=False)
            try:
                self.server_bind()
                path.chmod(0o600)
                self.server_activate()
            except BaseException:
                self.server_close()
                raise

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a client."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                # it would be accepted again and again at once; only clients wait for this thread
                time.sleep(LAST_WORDS_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - socketserver's
        """Return whether a client may stay: it is the same user's, and there is room."""
        if len(self.clients) >= MAX_CLIENTS or not _is_ours(request):
            return False
        self.clients[request] = _Client(request)
        return True

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's
        """Serve a client, in its thread."""
        with contextlib.suppress(OSError):  # it hung up
            self.clients[request].attend()

    def shutdown_request(self, request: Any) -> None:
        """Hang up on a client, whether it was let in or not."""
        super().shutdown_request(request)
        if (client := self.clients.pop(request, None)) is not None:
            client.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's
        """Tell that an error of ours ended a connection."""
        self._say(f"A client of the live events was hung up on: {type(sys.exception()).__name__}.")

    def stop(self) -> None:
        """Accept no more clients, send what waits, and hang up after LAST_WORDS_S."""
        with contextlib.suppress(OSError):
            # wakes `serve_forever`; not on every system, see POLL_S
            self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        clients = list(self.clients.values())
        for client in clients:
            client.leave()
        for client in _await_end(clients):
            with contextlib.suppress(OSError):
                client.sock.shutdown(socket.SHUT_RDWR)  # ends a `sendall` that waits
        _await_end(clients)
        self.server_close()


def _await_end(clients: Sequence[_Client]) -> list[_Client]:
    """Wait up to LAST_WORDS_S for these clients' threads; return those that still run."""
    until = time.monotonic() + LAST_WORDS_S
    return [
        client for client in clients if not client.gone.wait(max(0.0, until - time.monotonic()))
    ]


class Broadcast:
    """Sends committed rows to all clients. A context manager for the socket and its threads.

    `say` is told once if there can be no socket; the daemon then works without one.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._clients: Mapping[socket.socket, _Client] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Broadcast:
        try:
            server = self._open.enter_context(_serving(self._path, self._say))
        except OSError as error:
            self._say(
                f"There are no live events: {self._path}: {error.strerror or error}. "
                "`placet journal --follow` works."
            )
            return self
        self._clients = server.clients
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def publish(self, rows: Sequence[CommittedRow]) -> None:
        """Send committed rows; from any thread, never blocks."""
        for client in tuple(self._clients.values()):
            client.offer(rows)


@contextlib.contextmanager
def _serving(path: Path, say: Callable[[str], None]) -> Iterator[_Server]:
    """Serve at `path`, for its owner only, in a thread; remove the socket at the end.

    Raises OSError.
    """
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(
            errno.EPERM, "its folder is another user's, a link, or open to others"
        )
    _clear(path)
    server = _Server(path, say)
    ours = path.lstat()
    threading.Thread(
        target=server.serve_forever, args=(POLL_S,), name="events", daemon=True
    ).start()
    try:
        yield server
    finally:
        server.stop()
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.lstat(), ours):  # never a successor's
                path.unlink()


def _clear(path: Path) -> None:
    """Remove the socket of a killed daemon.

    Raises OSError for a socket in use.
    """
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, address_of(path) as address:
        probe.settimeout(0)
        answer = probe.connect_ex(address)
    if answer != errno.ECONNREFUSED:
        raise OSError(errno.EADDRINUSE, "another daemon listens there")
    path.unlink()


def _is_ours(sock: socket.socket) -> bool:
    """Return whether the client is the same user's; on macOS, file modes alone keep others out."""
    if sys.platform != "linux":
        return True
    _pid, uid, _gid = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return bool(uid == os.geteuid())
