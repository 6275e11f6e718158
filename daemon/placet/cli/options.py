"""Define the options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from placet.cli.terminal import say
from placet.client.site import NEAR_AMONG, Site

Command = Callable[..., Any]


def site_option(command: Command) -> Command:
    """Give a command `--vault`, also before its name, and its Site as the first argument."""
    option = click.option(
        "--vault",
        metavar="DIR",
        expose_value=False,
        callback=_take,
        type=click.Path(readable=False),
        help="The vault; else $PLACET_VAULT, else the folder you are in.",
    )
    return option(click.make_pass_decorator(Site)(command))


def _take(context: click.Context, _: click.Parameter, given: str | None) -> None:
    if given or context.obj is None:
        context.obj = Site(given, say=say)


def complete_ids(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the IDs of the latest requests that begin so; none if the journal is not readable."""
    from placet.journal.reader import open_reader

    with suppress(Exception), open_reader((context.obj or Site(None)).state.journal) as reader:
        return [name for name in reader.request_ids(NEAR_AMONG) if name.startswith(begun)]
    return []


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


ident_argument = click.argument("ident", metavar="ID", shell_complete=complete_ids)
idents_argument = click.argument(
    "idents", metavar="ID...", nargs=-1, required=True, shell_complete=complete_ids
)
