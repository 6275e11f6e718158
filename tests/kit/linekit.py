"""Make a network line that a test can cut without either side being told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Line:
    """Passes bytes on from `port` to a server's port on loopback."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._open = threading.Event()
        self._open.set()
        self._left = -1
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing pass any more, with all connections left open."""
        self._open.clear()

    def cut_after(self, pieces: int) -> None:
        """Let so many pieces pass to the server, as they were sent, then none."""
        self._left = pieces
        if not pieces:
            self.cut()

    def mend(self) -> None:
        """Let new connections pass; those of before are reset."""
        for pair in list(self._pairs):
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._left = -1
        self._open.set()

    def close(self) -> None:
        self.mend()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._open.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            near.close()
            return
        with near, far:
            self._pairs.append((near, far))
            back = threading.Thread(
                target=self._pass_on, args=(far, near), kwargs={"back": True}, daemon=True
            )
            back.start()
            self._pass_on(near, far)
            back.join()
            self._pairs.remove((near, far))

    def _pass_on(self, one: socket.socket, other: socket.socket, *, back: bool = False) -> None:
        with suppress(OSError):
            while piece := one.recv(65_536):
                self._open.wait()
                other.sendall(piece)
                if back:
                    continue
                self._left -= 1
                if self._left == 0:
                    self.cut()
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def line(to: int) -> Iterator[Line]:
    found = Line(to)
    try:
        yield found
    finally:
        found.close()
