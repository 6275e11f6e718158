"""`placet board`: serve the board, and make login links for it."""

from __future__ import annotations

import asyncio
import io
import secrets
import shutil
import signal
import socket
import sys
from urllib.parse import quote

import click
import segno

from placet.cli.options import site_option
from placet.cli.terminal import say
from placet.client.site import Site
from placet.errors import UserError
from placet.host.config import DEFAULT_BOARD
from placet_board.address import (
    AT,
    Address,
    address_of,
    announced,
    board_at,
    listening,
    own_address,
    running_at,
)
from placet_board.auth import KEY, Door, Tokens, key_at, name_of
from placet_board.live import Live
from placet_board.pages import Board, application
from placet_board.server import server


async def serve(site: Site, sock: socket.socket, at: Address, *, who: str) -> None:
    """Print a login link for `who`, and serve the board on a bound socket."""
    site.state.ensure()
    folder = site.state.folder
    tokens = Tokens(key_at(folder / KEY), secrets.token_hex(8), folder / KEY)
    tell_link(tokens, at, who)
    say("The board runs until Ctrl-C. For another link: placet board login")
    proxied = frozenset(host for name in at.names for host in (name, f"{name}:{at.port}"))
    door = Door(hosts_of(at) | proxied, tokens, at.port, proxied)
    live = Live(Site(str(site.vault), site.env, via="board"))
    board = Board(site.vault, site.env, door, live)
    with announced(folder / AT, {**at._asdict(), "run": tokens.run}):
        running = server(application(board))
        # uvicorn stops, then sends itself the signal again: remove the address file first
        signal.signal(signal.SIGTERM, lambda *_: None)
        await running.serve([sock])


def hosts_of(at: Address) -> frozenset[str]:
    """Return the values of the Host header that the board accepts.

    A name is accepted only if it is configured: a foreign page can point its own name here.
    """
    names = {"127.0.0.1", "localhost", "[::1]"}
    everywhere = at.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    host = (own_address() if everywhere else at.host).lower()
    names.add(f"[{host}]" if ":" in host else host)
    if not at.is_loopback:
        names.add(socket.gethostname().lower())
    found = {f"{name}:{at.port}" for name in names if name}
    return frozenset(found | (names if at.port == 80 else set()))


@click.group("board", invoke_without_command=True)
@click.option("--listen", metavar="HOST:PORT", help=f"Else [board] listen; else {DEFAULT_BOARD}.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers may ask for it, such as notes.example.home. Repeatable.",
)
@click.option("--name", metavar="N", help="Who logs in with the link; else your user name.")
@site_option
@click.pass_context
def board_command(
    context: click.Context,
    site: Site,
    listen: str | None,
    hosts: tuple[str, ...],
    name: str | None,
) -> None:
    """Show placet on one live page, in a browser or on a phone.

    It prints a link that logs one browser in, once, within ten minutes.
    """
    if context.invoked_subcommand is not None:
        return
    holding = site.in_force()
    table = holding.config.board
    names = tuple(map(str.lower, hosts or table.hosts))
    address = address_of(listen or table.listen)._replace(names=names)
    if not listen and not holding.settled and not address.is_loopback:
        raise UserError(
            f"The vault's configuration sets the board's address to {table.listen}, which the "
            "network can reach. Nobody accepted that on this machine.",
            f"To allow it: placet board --listen {table.listen}",
        )
    if (running := board_at(site)) is not None:
        raise UserError(
            f"The board of this vault is already running: {running.at.url}",
            "A link to it: placet board login",
        )
    with listening(address) as (sock, bound):
        # a browser has no passkeys at an IP address
        named = holding.config.approval.is_on and bound.host in ("127.0.0.1", "::1")
        at = bound._replace(host="localhost") if named else bound
        if not at.is_loopback:
            say(
                f"{at.host} can be reached from the network, and the board speaks plain HTTP. "
                "Whoever listens there can read everything and decide. The guide shows a proxy and "
                "a tunnel: “On the phone”."
            )
        asyncio.run(serve(site, sock, at, who=name or site.who))


@board_command.command("login")
@click.option("--name", metavar="N", help="Who logs in with the link; else your user name.")
@site_option
def board_login_command(site: Site, name: str | None) -> None:
    """Print a login link for the running board: for one browser, for ten minutes."""
    running = running_at(site)
    tokens = Tokens(key_at(site.state.folder / KEY), running.run)
    tell_link(tokens, running.at, name or site.who)


LINES_BELOW = 2
"""Terminal lines needed below the code: messages and the cursor."""


def tell_link(tokens: Tokens, at: Address, who: str) -> None:
    """Print a login link. Raises UserError for an invalid name."""
    link = f"{at.url}/login?t={quote(tokens.login(name_of(who)))}"
    click.echo(link)
    say("this link logs one browser in, once, within ten minutes")
    if (at.names or not at.is_loopback) and sys.stdout.isatty():
        _show_code(link)  # last, so that all of it is visible


def _show_code(link: str) -> None:
    """Print a link as a QR code, two rows on a line, if the terminal is high enough."""
    drawn = io.StringIO()
    segno.make(link, error="l", boost_error=False, micro=False).terminal(
        drawn, border=1, compact=True
    )
    height = drawn.getvalue().count("\n") + LINES_BELOW
    if height <= shutil.get_terminal_size().lines:
        click.echo(drawn.getvalue(), nl=False)
    else:
        say(
            f"The QR code needs a terminal with {height} lines. Enlarge it, then: "
            "placet board login"
        )
