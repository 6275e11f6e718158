"""A command's output, kept in bounded memory."""

from __future__ import annotations

import codecs


class Kept:
    """Head and tail of a stream, `limit // 2` bytes each; memory stays below twice the limit."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.fed = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.fed += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """The number of bytes dropped in the middle."""
        return max(0, self.fed - 2 * self._half)

    def text(self) -> str:
        """Return what is kept as text.

        A gap is named in a line of its own and never splits a character.
        """
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = self._tail[-self._half :]
        # At most three bytes of a character can continue it; a later one is broken output, shown as
        # such.
        start = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        return (
            f"{head}\n[{self.left_out} bytes left out]\n{tail[start:].decode('utf-8', 'replace')}"
        )
