"""Login links, for a terminal: the address, and a QR code where a phone could reach it."""

from __future__ import annotations

import io
import shutil
import sys
from urllib.parse import quote

import click
import segno

from placet.cli.terminal import say
from placet_board.address import Address
from placet_board.tokens import Tokens, name_of

LINES_BELOW = 2
"""Lines of a terminal below the code: what is said when the board is served, and the cursor's."""


def tell_link(tokens: Tokens, at: Address, who: str) -> None:
    """Print a login link of a person. Raises UserError for a name that is none."""
    link = f"{at.url}/login?t={quote(tokens.login(name_of(who)))}"
    click.echo(link)
    say("this link logs one browser in, once, within ten minutes")
    if not at.is_loopback and sys.stdout.isatty():
        _show_code(link)  # last, so that all of it is in sight


def _show_code(link: str) -> None:
    """Print a link as a QR code, two rows of it on a line, if the terminal is high enough."""
    drawn = io.StringIO()
    segno.make(link, error="l", boost_error=False, micro=False).terminal(
        drawn, border=1, compact=True
    )
    height = drawn.getvalue().count("\n") + LINES_BELOW
    if height <= shutil.get_terminal_size().lines:
        click.echo(drawn.getvalue(), nl=False)
    else:
        say(
            f"its QR code needs a terminal of {height} lines: make this one higher, then: "
            "placet board login"
        )
