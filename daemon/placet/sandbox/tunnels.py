"""Connect a command to the hosts that its plan names, and to nothing else.

A client asks by CONNECT. The list is asked before the resolver, so a refused name goes nowhere. The
connection goes to the address that was checked, so no second answer of a resolver counts. Inside
the tunnel only TLS passes, and only for the name that was asked for. Standard library only: the
proxy runs this, outside of the box and behind Landlock, on what hostile programs send.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from placet.plan.hosts import Host, is_public
from placet.sandbox.client_hello import OneName

HEAD_S = 10.0
"""How long a client may take for its request, and again for its ClientHello."""
CONNECT_S = 10.0
AT_ONCE = 64
"""Most connections at one moment."""
MAX_BYTES = 4 * 1024 * 1024 * 1024
"""Most bytes of one command, sent and received."""
ALLOWED = "allowed"

_MAX_HEAD = 16 * 1024
_MAX_ROWS = 100
_PIECE = 64 * 1024
_NAME = rb"([!-9;-Z^-~]{1,255})"
_CONNECT = re.compile(
    rb"CONNECT " + _NAME + rb":(\d{1,5}) HTTP/1\.[01]\r\n(?:[!-9;-~]+:[\t -~\x80-\xff]*\r\n)*\r\n"
)
_PLAIN = re.compile(rb"[A-Z]{1,20} http://" + _NAME.replace(b"!-9", b"!-.0-9") + rb"[:/ ]")
_UNREACHED = "cannot be reached ({}). placet connects directly, never by a company's own proxy"

Row = tuple[str, int, str, int, int, int]
"""Host, port, verdict, connections, bytes sent, bytes received."""


class _Refused(Exception):  # noqa: N818 - named for what happened
    """A connection that does not come about: what for, why, and the status for the client."""

    def __init__(self, host: str, port: int, verdict: str, status: int = 403) -> None:
        super().__init__(verdict)
        self.host, self.port, self.verdict, self.status = host, port, verdict, status


class Tunnels:
    """All connections of one command."""

    def __init__(self, hosts: Sequence[Host], private: Sequence[Host]) -> None:
        self._hosts, self._private = hosts, private
        self._rows: dict[tuple[str, int, str], list[int]] = {}
        self._lock = threading.Lock()
        self._open = threading.Semaphore(AT_ONCE)
        self._bytes = 0

    def serve(self, listener: socket.socket, lifeline: int) -> None:
        """Accept clients until the lifeline is closed; what is open then stays open."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(lifeline, select.POLLIN)  # and POLLHUP, which is always reported
        while lifeline not in {fd for fd, _ in poll.poll()}:
            with suppress(OSError):  # the client is gone already
                client = listener.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def rows(self) -> list[Row]:
        """Return what was connected and refused so far, open connections included."""
        with self._lock:
            return [(*key, *counts) for key, counts in self._rows.items()]  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        may = self._open.acquire(blocking=False)
        try:
            with client:
                if may:
                    self._answer(client)
                else:
                    why = f"has more than {AT_ONCE} connections at once"
                    self._refuse(client, _Refused("", 0, why, 503))
        except OSError:
            pass  # either side is gone, or took too long
        finally:
            if may:
                self._open.release()

    def _answer(self, client: socket.socket) -> None:
        try:
            name, port, rest = _asked(client)
            self._check(name, port)
            with self._connected(name, port) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                try:
                    self._join(client, server, (name, port), rest)
                except ValueError as problem:  # counted before the client can know, and end
                    self._count(name, port, str(problem))[0] += 1
                finally:
                    _end(client, server)
        except _Refused as refused:
            self._refuse(client, refused)

    def _refuse(self, client: socket.socket, refused: _Refused) -> None:
        self._count(refused.host, refused.port, refused.verdict)[0] += 1
        what = f"{refused.host}:{refused.port}" if refused.host else "The command"
        said = f"{what} {refused.verdict}"
        head = f"HTTP/1.1 {refused.status} {said}\r\nContent-Type: text/plain\r\n"
        end = f"Content-Length: {len(said) + 1}\r\nConnection: close\r\n\r\n{said}\n"
        client.sendall((head + end).encode("ascii", "replace"))

    def _check(self, name: str, port: int) -> None:
        if not any(host.covers(name, port) for host in self._hosts):
            raise _Refused(name, port, "is not in the plan's network")

    def _connected(self, name: str, port: int) -> socket.socket:
        """Connect to a public address of this host, or to any of one that may be private."""
        try:
            found = socket.getaddrinfo(name.encode(), port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _Refused(name, port, _UNREACHED.format(error.strerror), 502) from error
        if not any(host.covers(name, port) for host in self._private):
            found = [one for one in found if is_public(str(one[4][0]))]
        why = ""
        for family, kind, protocol, _, address in found:
            server = socket.socket(family, kind, protocol)
            server.settimeout(CONNECT_S)
            try:
                server.connect(address)
            except OSError as error:
                server.close()
                why = str(error.strerror or error)
            else:
                server.settimeout(None)
                return server
        if why:
            raise _Refused(name, port, _UNREACHED.format(why), 502)
        raise _Refused(name, port, "is in a private network")

    def _join(
        self, client: socket.socket, server: socket.socket, to: tuple[str, int], rest: bytes
    ) -> None:
        """Pass bytes in both directions until both sides have ended.

        Raises ValueError for TLS that names another host, and over the limit of bytes.
        """
        names, until = OneName(to[0]), time.monotonic() + HEAD_S
        passed = names.passed(rest)
        while not passed:
            try:
                data = _received(client, until)
            except TimeoutError:
                raise ValueError(f"got no TLS in {HEAD_S:.0f} s") from None
            if not data:
                return
            passed = names.passed(data)
        client.settimeout(None)
        counts = self._count(*to, ALLOWED)
        counts[0] += 1
        back = threading.Thread(target=self._back, args=(server, client, counts), daemon=True)
        back.start()
        while True:
            self._add(counts, 1, len(passed))
            server.sendall(passed)
            if not (data := client.recv(_PIECE)):
                break
            passed = names.passed(data)
        server.shutdown(socket.SHUT_WR)
        back.join()

    def _back(self, server: socket.socket, client: socket.socket, counts: list[int]) -> None:
        try:
            while data := server.recv(_PIECE):
                self._add(counts, 2, len(data))
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            _end(client, server)

    def _count(self, host: str, port: int, verdict: str) -> list[int]:
        """Return connections, bytes sent and bytes received of a row, to be added to."""
        with self._lock:
            key = (host, port, verdict)
            if key not in self._rows and len(self._rows) >= _MAX_ROWS:
                key = ("others", 0, "")
            return self._rows.setdefault(key, [0, 0, 0])

    def _add(self, counts: list[int], column: int, size: int) -> None:
        """Count bytes; ValueError once the command has passed too many."""
        with self._lock:
            counts[column] += size
            self._bytes += size
        if self._bytes > MAX_BYTES:
            raise ValueError(f"was cut: the command passed more than {MAX_BYTES:,} bytes")


def _asked(client: socket.socket) -> tuple[str, int, bytes]:
    """Return the host and port that a client asks for, and what it sent after that."""
    until, head = time.monotonic() + HEAD_S, b""
    while b"\r\n\r\n" not in head:
        piece = _received(client, until)
        if not piece:
            raise OSError
        head += piece
        if len(head) > _MAX_HEAD:
            raise _Refused("", 0, "sent a request that is too long", 400)
    cut = head.index(b"\r\n\r\n") + 4
    if asked := _CONNECT.fullmatch(head[:cut]):
        return asked[1].decode().lower().removesuffix("."), int(asked[2]), head[cut:]
    if plain := _PLAIN.match(head):
        raise _Refused(plain[1].decode(), 80, "was asked by http; only https passes")
    raise _Refused("", 0, "sent something other than CONNECT", 400)


def _received(client: socket.socket, until: float) -> bytes:
    """Return the next bytes; OSError if there are none before a moment of the monotonic clock."""
    client.settimeout(max(0.001, until - time.monotonic()))
    return client.recv(_PIECE)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
