"""Read the server name that a TLS client asks for, and let pass only what asks for one name.

TLS 1.3 lets a server ask for a second ClientHello, and OpenSSL then goes by the name in that one.
So what a client sends is read until it is encrypted. What hides a name (ECH), or could delay the
second hello behind encrypted data (early data), is refused. Standard library only: the proxy runs
this.
"""

from __future__ import annotations

_HANDSHAKE, _DATA, _CLIENT_HELLO, _SERVER_NAME = 22, 23, 1, 0
_MAX_RECORD, _MAX_HELLO, _MAX_NAME = 16_384, 65_536, 255
_MAX_RECORDS = 64  # of a hello, which is parsed again at each piece; clients send one or two
_BROKEN = "got broken TLS"
_REFUSED = {
    42: "got TLS with early data",
    0xFE0D: "got TLS that hides the name (ECH)",
    0xFFCE: "got TLS that hides the name (ESNI)",
}


def _cut(data: bytes, width: int) -> tuple[bytes, bytes]:
    """Return what follows a length of so many bytes, and what comes after that."""
    end = width + int.from_bytes(data[:width], "big")
    if len(data) < max(width, end):
        raise ValueError(_BROKEN)
    return data[width:end], data[end:]


def _name_in(hello: bytes) -> str:
    rest = hello[2 + 32 :]  # version and random
    for width in (1, 2, 1):  # session, ciphers, compression
        rest = _cut(rest, width)[1]
    extensions, rest = _cut(rest, 2)
    found = []
    while extensions:
        kind = int.from_bytes(extensions[:2], "big")
        content, extensions = _cut(extensions[2:], 2)
        if kind in _REFUSED:
            raise ValueError(_REFUSED[kind])
        if kind == _SERVER_NAME:
            found.append(content)
    if len(found) != 1:
        raise ValueError("got TLS that names no host")
    names, after = _cut(found[0], 2)
    name, more = _cut(names[1:], 2)
    text = name.decode("ascii", "replace").lower()
    is_plain = text.isascii() and text.isprintable() and len(text) <= _MAX_NAME
    if names[0] or more or after or rest or not is_plain:
        raise ValueError("got TLS whose server name is not plain")
    return text


def read_hello(data: bytes) -> tuple[str, int] | None:
    """Return the server name of the ClientHello that begins here, and the hello's size in bytes.

    None if more has to come. Raises ValueError, which says what came instead.
    """
    hello, at = b"", 0
    for _ in range(_MAX_RECORDS):
        head, length = data[at : at + 5], int.from_bytes(data[at + 3 : at + 5], "big")
        if head[:2] != b"\x16\x03"[: len(head)]:
            raise ValueError("got no TLS")
        if len(head) == 5 and not 0 < length <= _MAX_RECORD:
            raise ValueError(_BROKEN)
        if len(head) < 5 or len(data) < at + 5 + length:
            return None
        hello += data[at + 5 : at + 5 + length]
        at += 5 + length
        size = 4 + int.from_bytes(hello[1:4], "big")
        if hello[0] != _CLIENT_HELLO or not len(hello) <= size <= _MAX_HELLO:
            raise ValueError(_BROKEN)
        if len(hello) == size:
            return _name_in(hello[4:]), at
    raise ValueError("got TLS whose first message comes in too many records")


class OneName:
    """Follow what a client sends, and hold back each hello until it is known to ask for `name`."""

    def __init__(self, name: str) -> None:
        self._name, self._held = name, b""
        self._is_begun = self._is_encrypted = False

    def passed(self, data: bytes) -> bytes:
        """Return what may go on to the server now; ValueError if another name is asked for."""
        self._held += data
        passed = b""
        while self._held and (size := self._next()):
            passed, self._held = passed + self._held[:size], self._held[size:]
        return passed

    def _next(self) -> int:
        """Return the size of what may pass, a hello or another record; 0 if more has to come."""
        if self._is_encrypted:
            return len(self._held)
        kind, size = self._held[0], 5 + int.from_bytes(self._held[3:5], "big")
        if not self._is_begun or (kind == _HANDSHAKE and self._held[5:6] == b"\1"):
            hello = read_hello(self._held)
            if hello is None:
                return 0
            name, size = hello
            if name != self._name:
                raise ValueError(f"got TLS that names {name}")
            self._is_begun = True
            return size
        if len(self._held) < 6:
            return 0
        if not 20 <= kind <= _DATA or size == 5:
            raise ValueError(_BROKEN)
        # another message of a handshake is the client's answer, after which no hello is possible
        self._is_encrypted = kind in (_HANDSHAKE, _DATA)
        return size if len(self._held) >= size or self._is_encrypted else 0
