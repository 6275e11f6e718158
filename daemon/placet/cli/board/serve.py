"""The serving of one vault's board, until a signal ends it."""

from __future__ import annotations

import secrets
import signal
import socket
import ssl
from functools import partial

from placet.cli.board.app import Board, application
from placet.cli.board.child import end_with_daemon
from placet.cli.board.command import AT, Address, own_address
from placet.cli.board.guard import Door
from placet.cli.board.links import tell_link
from placet.cli.board.live import Live
from placet.cli.board.server import PromptProtocol, server
from placet.cli.board.tls import SecuredProtocol
from placet.cli.board.tokens import KEY, Tokens, key_at
from placet.cli.site import Site
from placet.cli.terminal import say
from placet.host.announced import announced


async def serve(
    site: Site,
    sock: socket.socket,
    at: Address,
    tls: ssl.SSLContext | None,
    *,
    who: str | None,
) -> None:
    """Serve the board on a socket that is bound to `at`; `tls` is what it serves https with.

    A login link for `who` is printed; for None it was started by a daemon, and ends with it.
    """
    site.state.ensure()
    folder = site.state.folder
    tokens = Tokens(key_at(folder / KEY), secrets.token_hex(8), folder / KEY)
    if who is not None:
        tell_link(tokens, at, who, tls=tls is not None)
        say("the board is served until Ctrl-C; another link: placet board login")
    door = Door(hosts_of(at), tls is not None, tokens, at.port)
    live = Live(folder, site.env)
    board = Board(site.vault, site.env, door, live)
    told = {**at._asdict(), "tls": tls is not None, "run": tokens.run}
    with announced(folder / AT, told):
        speaks = PromptProtocol if tls is None else partial(SecuredProtocol, tls)
        running = server(application(board), speaks)
        if who is None:
            end_with_daemon(lambda: setattr(running, "should_exit", True))
        # uvicorn ends in order, then sends itself the signal again: the address is taken back first
        signal.signal(signal.SIGTERM, lambda *_: None)
        await running.serve([sock])


def hosts_of(at: Address) -> frozenset[str]:
    """Return the values of a Host header with which this board is asked for.

    A name that merely points here is none of them: a page elsewhere can make its own name do so.
    """
    names = {"127.0.0.1", "localhost", "[::1]", *at.names}
    everywhere = at.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    host = (own_address() if everywhere else at.host).lower()
    names.add(f"[{host}]" if ":" in host else host)
    if not at.is_loopback:
        names.add(socket.gethostname().lower())
    found = {f"{name}:{at.port}" for name in names if name}
    default = {80, 443}
    return frozenset(found | (names if at.port in default else set()))
