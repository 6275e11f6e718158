"""The board's TLS: a certificate with its key, and who speaks TLS, who not, and who says nothing.

uvicorn's own TLS counts a client from the end of its handshake on, for which it has a minute: who
connects and says nothing has neither a deadline nor a place among the connections until then.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from placet.cli.board.server import HEAD_S, PromptProtocol
from placet.core.errors import UserError

_HANDSHAKE = b"\x16"
"""The first byte of a client that speaks TLS (RFC 8446, 5.1)."""
_PLAIN = "This board speaks https: open the same address with https:// in front.\n"


def context_of(cert: Path, key: Path) -> ssl.SSLContext:
    """Return what a certificate and its key serve with.

    Raises UserError if they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    for path in (cert, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror}.",
                "Name a file in PEM format.",
                exit_code=2,
            ) from error
    try:
        # No passphrase is asked for: a daemon has nobody who would type one.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UserError(
                f"{key} is not the key of the certificate {cert}.",
                "Give the two that belong together: --tls-cert and --tls-key.",
                exit_code=2,
            ) from error
        raise UserError(
            f"{cert} and {key} are no certificate and its private key in PEM format.",
            f"A key with a passphrase cannot be used. Look at them: openssl x509 -in {cert} -noout "
            f"-subject; openssl pkey -in {key} -noout",
            exit_code=2,
        ) from error
    return context


class SecuredProtocol(PromptProtocol):
    """HTTP over TLS, with the deadlines of a head for the handshake too."""

    def __init__(self, context: ssl.SSLContext, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._context = context
        self._early: list[bytes] | None = []
        self._is_plain = False
        self._is_gone = False
        self._beginning: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Wait for what the client says first."""
        super().connection_made(transport)
        transport.pause_reading()
        self._beginning = self.loop.create_task(self._begin(transport))

    def data_received(self, data: bytes) -> None:
        """Take what came over TLS; who speaks plainly is told what is spoken here."""
        if self._is_plain:
            self.send_400_response(_PLAIN)
        elif self._early is not None:  # before the task below goes on
            self._early.append(data)
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a client that has gone, in the middle of its handshake too."""
        self._is_gone = True
        if self._beginning is not None:
            self._beginning.cancel()
        super().connection_lost(exc)

    async def _begin(self, transport: asyncio.Transport) -> None:
        secured: asyncio.Transport | None = None
        try:
            if await _first_byte(self.loop, transport) not in (b"", _HANDSHAKE):
                self._is_plain = True
                transport.resume_reading()
                return
            secured = await self.loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HEAD_S
            )
        except OSError:  # no handshake, or none that fits
            transport.abort()
        if secured is None:
            self.connection_lost(None)
        elif not self._is_gone:
            H11Protocol.connection_made(self, secured)
            early, self._early = self._early or [], None
            for data in early:
                self.data_received(data)


async def _first_byte(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> bytes:
    """Return the first byte that a client sends, which stays to be read; empty for none."""
    with transport.get_extra_info("socket").dup() as sock:
        there = asyncio.Event()
        loop.add_reader(sock, there.set)
        try:
            await there.wait()
        finally:
            loop.remove_reader(sock)
        found: bytes = sock.recv(1, socket.MSG_PEEK)
        return found
