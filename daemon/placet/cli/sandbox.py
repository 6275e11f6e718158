"""Run a command as a mission would: `placet sandbox`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from placet.cli.options import site_option
from placet.cli.terminal import say
from placet.client.sandbox import sandbox_of
from placet.client.site import Site
from placet.errors import ToolError, UserError
from placet.sandbox.run import exec_in_box


@click.command("sandbox", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
@click.option(
    "--network", is_flag=True, help="With the network, as a scope with `network = true` has it."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="With this host, as a scope that lists it in `network` has it. Repeatable.",
)
@site_option
def sandbox_command(
    site: Site, command: tuple[str, ...], network: bool, hosts: tuple[str, ...]
) -> None:
    """Run a command in the sandbox that a mission's commands get.

    The folder you are in is its worktree.
    """
    box, level = sandbox_of(site, Path.cwd(), os.environ, network=network, hosts=hosts)
    say(f"{level.title} (level {int(level)} of 3)")
    try:
        code, reached = exec_in_box(command, box, level)
    except ToolError as error:
        if error.refused:
            raise UserError(str(error)) from error
        raise UserError(f"{error}", "Name a program that is on your PATH.", exit_code=2) from error
    for refusal in filter(None, (row.refusal for row in reached)):
        say(f"refused: {refusal}")
    sys.exit(code)
