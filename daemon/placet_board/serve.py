"""The serving of one vault's board, until a signal ends it."""

from __future__ import annotations

import secrets
import signal
import socket

from placet.cli.site import Site
from placet.cli.terminal import say
from placet.host.announced import announced
from placet_board.address import AT, Address, own_address
from placet_board.app import Board, application
from placet_board.auth import Door
from placet_board.links import tell_link
from placet_board.live import Live
from placet_board.server import server
from placet_board.tokens import KEY, Tokens, key_at


async def serve(site: Site, sock: socket.socket, at: Address, *, who: str) -> None:
    """Print a login link for `who`, and serve the board on a socket that is bound to `at`."""
    site.state.ensure()
    folder = site.state.folder
    tokens = Tokens(key_at(folder / KEY), secrets.token_hex(8), folder / KEY)
    tell_link(tokens, at, who)
    say("The board runs until Ctrl-C. For another link: placet board login")
    proxied = frozenset(host for name in at.names for host in (name, f"{name}:{at.port}"))
    door = Door(hosts_of(at) | proxied, tokens, at.port, proxied)
    live = Live(folder, site.env)
    board = Board(site.vault, site.env, door, live)
    with announced(folder / AT, {**at._asdict(), "run": tokens.run}):
        running = server(application(board))
        # uvicorn ends in order, then sends itself the signal again: the address is taken back first
        signal.signal(signal.SIGTERM, lambda *_: None)
        await running.serve([sock])


def hosts_of(at: Address) -> frozenset[str]:
    """Return the values of a Host header with which this board is asked for.

    A name that merely points here is none of them: a page elsewhere can make its own name do so.
    """
    names = {"127.0.0.1", "localhost", "[::1]"}
    everywhere = at.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    host = (own_address() if everywhere else at.host).lower()
    names.add(f"[{host}]" if ":" in host else host)
    if not at.is_loopback:
        names.add(socket.gethostname().lower())
    found = {f"{name}:{at.port}" for name in names if name}
    return frozenset(found | (names if at.port == 80 else set()))
