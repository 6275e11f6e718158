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

HEAD_S, CONNECT_S = 10.0, 10.0
"""How long a client may take for its request, and for its ClientHello; and a server to answer."""
AT_ONCE = 64
"""Most connections at one moment."""
MAX_BYTES = 4 * 1024 * 1024 * 1024
"""Most bytes of one command, sent and received."""
ALLOWED = "allowed"

_MAX_HEAD, _PIECE = 16 * 1024, 64 * 1024
_MAX_ROWS = 9  # of what was allowed, and of what was refused; the others share a row of each kind
_CONNECT = re.compile(
    rb"CONNECT ([!-9;-Z^-~]{1,255}):(\d{1,5}) HTTP/1\.[01]\r\n"
    rb"(?:[!-9;-~]+:[\t -~\x80-\xff]*\r\n)*\r\n"
)
_PLAIN = re.compile(rb"[A-Z]{1,20} http://([!-.0-9;-Z^-~]{1,255})[:/ ]")
_UNREACHED = "cannot be reached ({}). placet connects directly, never by a company's own proxy"

Row = tuple[str, int, str, int, int, int]
"""Host, port, verdict, connections, bytes sent, bytes received."""
_Counts = list[int]  # the last three of a row


class _Refused(Exception):  # noqa: N818 - named for what happened
    """A connection that does not come about: host, port, why, and the status for the client."""


class Tunnels:
    """All connections of one command."""

    def __init__(self, hosts: Sequence[Host], private: Sequence[Host]) -> None:
        self._hosts, self._private = hosts, private
        self._rows: dict[tuple[str, int, str], _Counts] = {}
        self._lock, self._free = threading.Lock(), threading.Semaphore(AT_ONCE)
        self._bytes = 0

    def serve(self, listener: socket.socket, lifeline: int) -> None:
        """Accept clients until the lifeline is closed; what is open then stays open."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(lifeline, select.POLLIN)  # and POLLHUP, which is always reported
        while lifeline not in {fd for fd, _ in poll.poll()}:
            with suppress(OSError):  # the client is gone already
                client = listener.accept()[0]
                if self._free.acquire(blocking=False):
                    self._begin(client)
                else:
                    self._counted("", 0, f"has more than {AT_ONCE} connections at once")
                    client.close()

    def _begin(self, client: socket.socket) -> None:
        try:
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()
        except RuntimeError:  # the machine has none left
            self._free.release()
            self._counted("", 0, "got no thread for a connection")
            client.close()

    def rows(self) -> list[Row]:
        """Return what was connected and refused so far, open connections included."""
        said = f"passed more than {MAX_BYTES:,} bytes and was cut"
        cut: list[Row] = [("", 0, said, 1, 0, 0)] if self._bytes > MAX_BYTES else []
        with self._lock:
            known = [(*key, n, out, back) for key, (n, out, back) in self._rows.items()]
        return cut + [row for row in known if any(row[3:])]

    def _serve(self, client: socket.socket) -> None:
        try:
            with suppress(OSError), client:  # either side is gone, or took too long
                self._answer(client)
        finally:
            self._free.release()

    def _answer(self, client: socket.socket) -> None:
        try:
            name, port, rest = self._asked(client)
            server = self._connected(name, port)
        except _Refused as refused:
            host, port, verdict, status = refused.args
            self._counted(host, port, verdict)
            said = f"{f'{host}:{port}' if host else 'The command'} {verdict}"
            head = f"HTTP/1.1 {status} {said}\r\nContent-Type: text/plain\r\n"
            end = f"Content-Length: {len(said) + 1}\r\nConnection: close\r\n\r\n{said}\n"
            client.sendall((head + end).encode("ascii", "replace"))
            return
        with server:
            counts = self._counted(name, port, ALLOWED)  # the server knows of it already
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                self._join(client, server, OneName(name), rest, counts)
            except (ValueError, TimeoutError) as problem:
                # before the client can know, and end
                self._counted(name, port, str(problem), instead_of=counts)
            finally:
                _end(client, server)

    def _asked(self, client: socket.socket) -> tuple[str, int, bytes]:
        """Return the listed host and port that a client asks for, and what it sent after that."""
        until, head = time.monotonic() + HEAD_S, b""
        while b"\r\n\r\n" not in head:
            head += _received(client, until)
            if len(head) > _MAX_HEAD:
                raise _Refused("", 0, "sent a request that is too long", 400)
        cut = head.index(b"\r\n\r\n") + 4
        if plain := _PLAIN.match(head):
            raise _Refused(plain[1].decode(), 80, "was asked by http; only https passes", 403)
        asked = _CONNECT.fullmatch(head[:cut])
        if asked is None:
            raise _Refused("", 0, "sent something other than CONNECT", 400)
        name, port = asked[1].decode().lower().removesuffix("."), int(asked[2])
        if not any(host.covers(name, port) for host in self._hosts):
            raise _Refused(name, port, "is not in the plan's network", 403)
        return name, port, head[cut:]

    def _connected(self, name: str, port: int) -> socket.socket:
        """Connect to a public address of this host, or to any of one that may be private."""
        try:
            found = socket.getaddrinfo(name.encode(), port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _Refused(name, port, _UNREACHED.format(error.strerror), 502) from error
        addresses = [str(one[4][0]) for one in found]
        if not any(host.covers(name, port) for host in self._private):
            addresses = [address for address in addresses if is_public(address)]
        why = "is in a private network", 403
        for address in addresses:
            try:
                server = socket.create_connection((address, port), CONNECT_S)
            except OSError as error:
                why = _UNREACHED.format(error.strerror or error), 502
            else:
                server.settimeout(None)
                return server
        raise _Refused(name, port, *why)

    def _join(
        self,
        client: socket.socket,
        server: socket.socket,
        names: OneName,
        rest: bytes,
        counts: _Counts,
    ) -> None:
        """Pass bytes in both directions until both sides have ended.

        Raises ValueError for TLS that names another host.
        """
        until = time.monotonic() + HEAD_S
        passed = names.passed(rest)
        while not passed:
            passed = names.passed(_received(client, until))
        client.settimeout(None)
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

    def _back(self, server: socket.socket, client: socket.socket, counts: _Counts) -> None:
        try:
            while data := server.recv(_PIECE):
                self._add(counts, 2, len(data))
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            _end(client, server)

    def _counted(
        self, host: str, port: int, verdict: str, *, instead_of: _Counts | None = None
    ) -> _Counts:
        """Count a connection and return its row, `instead_of` the one that counted it before."""
        key = (host, port, verdict)
        is_allowed = verdict == ALLOWED
        with self._lock:
            if instead_of is not None:
                instead_of[0] -= 1
            # apart, so that refusals cannot crowd out what was allowed
            rows = sum((known == ALLOWED) == is_allowed for *_, known in self._rows)
            if key not in self._rows and rows >= _MAX_ROWS:
                key = ("others", 0, ALLOWED if is_allowed else "were refused too")
            counts = self._rows.setdefault(key, [0, 0, 0])
            counts[0] += 1
        return counts

    def _add(self, counts: _Counts, column: int, size: int) -> None:
        """Count bytes; ConnectionError once the command has passed too many."""
        with self._lock:
            counts[column] += size
            self._bytes += size
        if self._bytes > MAX_BYTES:
            raise ConnectionError


def _received(client: socket.socket, until: float) -> bytes:
    """Return the next bytes; OSError if none come before a moment of the monotonic clock."""
    client.settimeout(max(0.001, until - time.monotonic()))
    if not (data := client.recv(_PIECE)):
        raise ConnectionError
    return data


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
