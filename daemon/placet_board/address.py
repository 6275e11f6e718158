"""Parse the board's address, listen there, and find a running board."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from placet.client.site import Site
from placet.disk.files import FileLock, put
from placet.errors import UserError, cannot_write
from placet.host.config import DEFAULT_BOARD
from placet.host.lock import announced_at

AT = "board.at"
"""The file in the state folder with the board's address."""


class Address(NamedTuple):
    """The address that the board listens at, and the host names of its URLs."""

    host: str
    port: int
    names: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        return self.host == "localhost" or _is_loopback(self.host)

    @property
    def url(self) -> str:
        """The address for a browser.

        A host name for a board on loopback is a proxy's, which speaks https.
        """
        if self.names and self.is_loopback:
            return f"https://{self.names[0]}"
        host = self.names[0] if self.names else self.host
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            host = own_address() or socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}"


class Running(NamedTuple):
    """A running board, and the run that its login links are for."""

    at: Address
    run: str


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def own_address() -> str:
    """Return this machine's address in its network, "" without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: an address for documentation
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def address_of(listen: str) -> Address:
    """Return an address from `HOST:PORT`. Raises UserError."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise UserError(
            f"{listen!r} is not an address.", f"Give host and port: {DEFAULT_BOARD}", exit_code=2
        )
    return Address(host, int(port))


def running_at(site: Site) -> Running:
    """Return the board that runs on a vault. Raises UserError if none runs."""
    if (found := board_at(site)) is not None:
        return found
    raise UserError("No board of this vault runs.", "Start it: placet board")


def board_at(site: Site) -> Running | None:
    """Return the board that runs on a vault, or None."""
    try:
        if found := announced_at(site.state.folder / AT):
            at = Address(str(found["host"]), int(found["port"]), tuple(found["names"]))
            return Running(at, str(found["run"]))
    except (ValueError, KeyError, TypeError):
        pass  # of another version
    return None


@contextmanager
def listening(address: Address) -> Iterator[tuple[socket.socket, Address]]:
    """Listen at an address; give the socket, and the address with its real port."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, _, _, place = found[0]
        sock = socket.socket(family, kind)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(place)
            sock.listen(128)  # a browser that follows the link at once waits and is not refused
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise UserError(
            f"The board cannot listen at {address.host}:{address.port}: {error.strerror}.",
            "Another board may run there. Give another port: --listen 127.0.0.1:0",
        ) from error
    with sock:
        yield sock, address._replace(port=sock.getsockname()[1])


@contextmanager
def announced(path: Path, address: Mapping[str, object]) -> Iterator[None]:
    """Write a server's address to a file, as long as the block lasts.

    The file is locked meanwhile: who listens at that address after a server was killed may be
    anybody. Raises UserError if the file cannot be written.
    """
    with ExitStack() as stack:
        try:
            put(path, json.dumps(address).encode())
            server = stack.enter_context(FileLock(path, 0.5))
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            yield
        finally:
            with suppress(OSError):
                if os.path.samestat(path.stat(), os.fstat(server.handle)):  # else another came
                    path.unlink()
