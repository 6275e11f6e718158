"""Live events for clients on this machine, a status bar for one: what was committed to the journal, as it happens.

A client connects to `events.sock` and reads newline-delimited JSON, one `Event` a line, `type` says which. It sends nothing.
Only the user who runs the daemon may connect. A client that does not read is waited for by nobody: what does not fit into its
buffer is left out, and it is told how much that was when it reads again. Nothing here decides anything.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import select
import selectors
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from placet.core.activity import Action, Actor, CommittedRow, Entity
from placet.core.errors import UserError

SOCKET = "events.sock"
MAX_CLIENTS = 16
"""More are turned away at once: each may hold BUFFER_BYTES."""
BUFFER_BYTES = 256 * 1024
"""What waits for one client at most, some 500 events; the kernel's own buffer comes on top."""
MAX_WAITING = 1_000
"""Groups of rows on their way from the journal to the clients; further ones are left out, and said to be."""
LAST_WORDS_S = 0.5
"""How long clients get to take what is left when the daemon stops."""
MAX_ADDRESS_BYTES = 100
"""sun_path of sockaddr_un holds 108 bytes on Linux and 104 on macOS (unix(7), unix(4)), one of them a NUL."""

if TYPE_CHECKING:
    JournalType = str
else:
    JournalType = Literal[tuple(action.value for action in Action if action is not Action.FAILURE_DETECTED)]


class _Row(BaseModel):
    """What every event of the journal has. `request_id` and `trace_id` are empty for what is about no request."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: int = Field(description="The row's number in the journal; numbers go up.")
    timestamp: str = Field(description="UTC, RFC 3339, ending in Z.")
    trace_id: str
    request_id: str
    actor: Actor = Field(description="Who did it.")
    agent: str
    metadata: Mapping[str, Any] = Field(description="What else the journal says of it; digests and sizes, never contents.")


class Happened(_Row):
    """A row of the journal; `type` is its `action_type`."""

    type: JournalType


class FailureDetected(_Row):
    """A failure pattern was seen in a mission that goes on: it was told to the model, and you may want to look."""

    type: Literal["failure.detected"] = "failure.detected"
    pattern: str = Field(description="repeated-tool-error, tool-rejection-loop, no-progress or max-steps-approaching.")
    description: str
    suggested_action: str
    affected_tool: str = Field(description="Empty where it is about no single tool.")


class Skipped(BaseModel):
    """You did not read fast enough: so many events were left out here. The journal has them."""

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
        "id": row.id, "timestamp": row.timestamp, "trace_id": row.trace_id, "request_id": own, "actor": Actor(row.actor),
        "agent": row.agent, "metadata": data}
    if row.action_type == Action.FAILURE_DETECTED:
        return FailureDetected(**about, pattern=data["pattern"], description=data["description"],
                               suggested_action=data["suggested_action"], affected_tool=data["affected_tool"])
    return Happened(**about, type=row.action_type)


def line_of(event: Happened | FailureDetected | Skipped) -> bytes:
    """Return an event as a line. It is ASCII: a name that is not UTF-8 must not spoil the stream."""
    return json.dumps(event.model_dump()).encode() + b"\n"


def places(state: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where a vault's socket may be, the best place first: the runtime folder, then the vault's state folder.

    The runtime folder is heeded as the XDG Base Directory Specification has it: absolute, ours, and closed to others.
    """
    found = [state / "run" / SOCKET]
    runtime = env.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_absolute() and _is_private(Path(runtime)):
        found.insert(0, Path(runtime) / "placet" / state.name / SOCKET)
    return tuple(found)


def listen(where: Sequence[Path]) -> Iterator[bytes]:
    """Give the lines of the first of these sockets at which a daemon listens, until it stops.

    Raises UserError where none does.
    """
    for path in where:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                with _address(path) as address:
                    sock.connect(address)
            except OSError:
                continue
            with sock.makefile("rb") as stream:
                yield from stream
            return
    raise UserError("No daemon of this vault sends events.", "Start it: placet run")


# --- the daemon's end ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Client:
    sock: socket.socket
    pending: bytearray = field(default_factory=bytearray)
    skipped: int = 0
    reads: bool = True  # it may still say something; what it says is not read, only that it hung up

    def offer(self, line: bytes) -> None:
        """Add a line to what waits, or count it as left out: once one is, all are until the client has caught up."""
        if self.skipped or len(self.pending) + len(line) > BUFFER_BYTES:
            self.skipped += 1
        else:
            self.pending += line

    def send(self) -> bool:
        """Send what can be sent now; False where the client is gone."""
        try:
            while self.pending or self.skipped:
                if not self.pending:
                    self.pending += line_of(Skipped(skipped=self.skipped))
                    self.skipped = 0
                del self.pending[:self.sock.send(self.pending)]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def hung_up(self) -> bool:
        """Say whether the client is gone. One that only closed its own end of the talk still listens."""
        try:
            while self.sock.recv(4096):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        self.reads = False
        return self.closed()

    def closed(self) -> bool:
        """Say whether the client has closed both ends, which poll(2) tells without being asked for."""
        poll = select.poll()
        poll.register(self.sock, 0)
        return bool(poll.poll(0))


class Broadcast:
    """Sends what the journal commits to whoever is connected; a context manager that holds the socket and a thread.

    `say` is told, once, where there can be no socket; the daemon does without it then.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._inbox: queue.Queue[Sequence[CommittedRow]] = queue.Queue(MAX_WAITING)
        self._lost = 0
        self._clients: dict[socket.socket, _Client] = {}
        self._leaving = False
        self._open = contextlib.ExitStack()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Broadcast:
        try:
            self._listener = self._open.enter_context(_listener(self._path))
        except OSError as error:
            self._open.close()
            self._say(f"There are no live events: {self._path}: {error.strerror or error}. `placet journal --follow` works.")
            return self
        ours, self._bell = (self._open.enter_context(end) for end in socket.socketpair())
        ours.settimeout(0)
        self._bell.settimeout(0)
        self._thread = threading.Thread(target=self._serve, args=(ours,), name="events", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._leaving = True
            self._ring()
            self._thread.join(2 * LAST_WORDS_S)
        self._open.close()

    def publish(self, rows: Sequence[CommittedRow]) -> None:
        """Take committed rows in, from whichever thread; never waits."""
        if not self._clients:
            return
        try:
            self._inbox.put_nowait(rows)
        except queue.Full:
            self._lost += len(rows)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # rung often enough
            self._bell.send(b"!")

    def _serve(self, bell: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(bell, selectors.EVENT_READ)
            until = float("inf")
            while (left := until - time.monotonic()) > 0:
                for key, mask in selector.select(None if left == float("inf") else left):
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif key.fileobj is bell:
                        bell.recv(4096)
                    elif (client := self._clients.get(key.data)) is not None and (
                            (mask & selectors.EVENT_READ and client.hung_up()) or not client.send()):
                        self._drop(selector, client)
                leaving = self._leaving  # looked at first: nothing is published after it is set
                self._deliver()
                for client in list(self._clients.values()):
                    self._drop(selector, client) if not client.send() else _watch(selector, client)
                if leaving:
                    until = min(until, time.monotonic() + LAST_WORDS_S)
                    if not any(client.pending for client in self._clients.values()):
                        break
            for client in list(self._clients.values()):
                self._drop(selector, client)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                time.sleep(LAST_WORDS_S)  # it would be accepted again and again at once; only clients wait for this thread
            return
        if len(self._clients) >= MAX_CLIENTS:
            for client in [c for c in self._clients.values() if c.closed()]:
                self._drop(selector, client)
        if len(self._clients) >= MAX_CLIENTS or not _is_ours(sock):
            sock.close()
            return
        sock.settimeout(0)
        self._clients[sock] = _Client(sock)

    def _deliver(self) -> None:
        """Hand what came from the journal to every client."""
        while True:
            try:
                rows = self._inbox.get_nowait()
            except queue.Empty:
                break
            for row in rows:
                line = line_of(event_of(row))
                for client in self._clients.values():
                    client.offer(line)
        lost, self._lost = self._lost, 0
        for client in self._clients.values():
            client.skipped += lost

    def _drop(self, selector: selectors.BaseSelector, client: _Client) -> None:
        if self._clients.pop(client.sock, None) is not None:
            with contextlib.suppress(KeyError):
                selector.unregister(client.sock)
            client.sock.close()


def _watch(selector: selectors.BaseSelector, client: _Client) -> None:
    """Let the selector wait for what this client is waited for."""
    wanted = (selectors.EVENT_READ if client.reads else 0) | (selectors.EVENT_WRITE if client.pending else 0)
    known = selector.get_map().get(client.sock)
    if known is None:
        if wanted:
            selector.register(client.sock, wanted, client.sock)
    elif not wanted:
        selector.unregister(client.sock)
    elif known.events != wanted:
        selector.modify(client.sock, wanted, client.sock)


@contextlib.contextmanager
def _listener(path: Path) -> Iterator[socket.socket]:
    """Give a listening socket at `path` that only its owner may connect to; take it away afterwards. Raises OSError."""
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(folder):
        raise PermissionError(errno.EPERM, "its folder is another user's, a link, or open to others")
    _clear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        with _address(path) as address:
            sock.bind(address)
        path.chmod(0o600)
        ours = path.lstat()
        sock.listen(MAX_CLIENTS)
        sock.settimeout(0)
        try:
            yield sock
        finally:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), ours):  # never a successor's
                    path.unlink()


def _clear(path: Path) -> None:
    """Take a socket away that a killed daemon left behind. Raises OSError for one at which somebody listens, and for a file."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is no socket is in its place")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, _address(path) as address:
        probe.settimeout(0)
        answer = probe.connect_ex(address)
    if answer != errno.ECONNREFUSED:
        raise OSError(errno.EADDRINUSE, "another daemon listens there")
    path.unlink()


def _is_private(folder: Path) -> bool:
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not stat.S_IMODE(info.st_mode) & 0o077


def _is_ours(sock: socket.socket) -> bool:
    """Say whether the other end is the same user's. Elsewhere than on Linux the folder's and the socket's mode say so alone."""
    if sys.platform != "linux":
        return True
    _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Give the path in a length that sockets take: through an open handle of its folder where it is too long (Linux)."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES or sys.platform != "linux":
        yield str(path)
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)
