"""Read the server name that a TLS client asks for, and let pass only what asks for one name.

TLS 1.3 lets a server ask for a second ClientHello, and OpenSSL then goes by the name in that one.
So what a client sends is read until it is encrypted. What hides a name (ECH), or could delay the
second hello behind encrypted data (early data), is refused. Standard library only: the proxy runs
this.
"""

from __future__ import annotations

_HANDSHAKE, _DATA, _CLIENT_HELLO = 22, 23, 1
_MAX_RECORD = 16_384
_MAX_HELLO = 65_536
_MAX_NAME = 255
_SERVER_NAME = 0
_REFUSED = {
    42: "got TLS with early data",
    0xFE0D: "got TLS that hides the name (ECH)",
    0xFFCE: "got TLS that hides the name (ESNI)",
}


class _Fields:
    """Read a structure of TLS from front to back; ValueError for one that is too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > len(self._data):
            raise ValueError("got broken TLS")
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def number(self, size: int) -> int:
        """Return the next number of so many bytes."""
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> _Fields:
        """Return what follows a length of so many bytes."""
        return _Fields(self.take(self.number(size)))

    def rest(self) -> bytes:
        """Return all that is left."""
        return self._data


def _name_in(hello: bytes) -> str:
    fields = _Fields(hello)
    fields.take(2 + 32)  # version and random
    for size in (1, 2, 1):  # session, ciphers, compression
        fields.block(size)
    extensions = fields.block(2)
    found: list[_Fields] = []
    while extensions.rest():
        kind, content = extensions.number(2), extensions.block(2)
        if kind in _REFUSED:
            raise ValueError(_REFUSED[kind])
        if kind == _SERVER_NAME:
            found.append(content)
    if len(found) != 1:
        raise ValueError("got TLS that names no host")
    names = found[0].block(2)
    kind, name = names.number(1), names.block(2).rest()
    text = name.decode("ascii", "replace").lower()
    is_plain = text.isascii() and text.isprintable() and len(text) <= _MAX_NAME
    if kind or names.rest() or found[0].rest() or fields.rest() or not is_plain:
        raise ValueError("got TLS whose server name is not plain")
    return text


def read_hello(data: bytes) -> tuple[str, int] | None:
    """Return the server name of the ClientHello that begins here, and the hello's size in bytes.

    None if more has to come. Raises ValueError, which says what came instead.
    """
    hello, at, size = b"", 0, 4
    while len(hello) < size:
        head = data[at : at + 5]
        if head[:2] != b"\x16\x03"[: len(head)]:
            raise ValueError("got no TLS")
        length = int.from_bytes(head[3:], "big")
        if len(head) == 5 and not 0 < length <= _MAX_RECORD:
            raise ValueError("got broken TLS")
        record = data[at + 5 : at + 5 + length]
        if len(head) < 5 or not record:
            return None
        hello += record
        size = 4 + int.from_bytes(hello[1:4], "big") if len(hello) >= 4 else 4
        if hello[0] != _CLIENT_HELLO or size > _MAX_HELLO or len(hello) > size:
            raise ValueError("got broken TLS")
        if len(record) < length:
            return None
        at += 5 + length
    return _name_in(hello[4:]), at


class OneName:
    """Follow what a client sends, and hold back each hello until it is known to ask for `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held = b""
        self._begun = self._is_encrypted = False

    def passed(self, data: bytes) -> bytes:
        """Return what may go on to the server now; ValueError if another name is asked for."""
        self._held += data
        passed = b""
        while self._held and not self._is_encrypted:
            size = self._next()
            if not size:
                return passed
            passed, self._held = passed + self._held[:size], self._held[size:]
        rest, self._held = self._held, b""
        return passed + rest

    def _next(self) -> int:
        """Return the size of what may pass, a hello or another record; 0 if more has to come."""
        kind, size = self._held[0], 5 + int.from_bytes(self._held[3:5], "big")
        if not self._begun or (kind == _HANDSHAKE and self._held[5:6] == b"\1"):
            hello = read_hello(self._held)
            if hello is None:
                return 0
            if hello[0] != self._name:
                raise ValueError(f"got TLS that names {hello[0]}")
            self._begun = True
            return hello[1]
        if len(self._held) < 6:
            return 0
        if not 20 <= kind <= _DATA or size == 5:
            raise ValueError("got broken TLS")
        # another message of a handshake is the client's answer, after which no hello is possible
        self._is_encrypted = kind in (_HANDSHAKE, _DATA)
        if self._is_encrypted:
            return len(self._held)
        return size if len(self._held) >= size else 0
