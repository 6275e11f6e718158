"""Run a command as a mission would: `placet sandbox`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from placet.cli.options import site_option
from placet.cli.terminal import say
from placet.client.site import Site
from placet.errors import ToolError, UserError
from placet.host.state import known_vaults, state_home
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible
from placet.plan.hosts import host_from
from placet.sandbox.box import Box, Level
from placet.sandbox.probe import probe
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
    """Run a command in exactly the box that the agent's commands get.

    The folder you are in is its worktree.
    """
    try:
        named = tuple(map(host_from, hosts))
    except ValueError as error:
        raise UserError(f"{error}.", "Such as: --host packages.example", exit_code=2) from error
    options: dict[str, Any] = {"network": network, "hosts": named}
    with suppress(UserError):  # no vault is needed
        private = site.in_force().config.commands.private_hosts if named else ()
        options["private_hosts"] = tuple(map(host_from, private))
    sys.exit(in_sandbox(Path.cwd(), os.environ, command, **options))


def in_sandbox(folder: Path, env: Mapping[str, str], argv: Sequence[str], **options: Any) -> int:
    """Run a command in a box with these options and `folder` as the worktree; return its exit code.

    Raises UserError (exit code 2) for a folder in which the command could approve something, or
    change what is not a worktree's.
    """
    if what := _no_worktree(folder.resolve(), env):
        raise UserError(
            f"{visible(str(folder))} {what}, and the command could change all of this folder.",
            "Go to the repository, or an empty folder, that it may write in, then try again.",
            exit_code=2,
        )
    level = probe().level
    if level is Level.NONE:
        raise UserError(
            "This machine has no sandbox.",
            "Install bubblewrap; `placet doctor` says what is missing.",
        )
    say(f"{level.title} (level {int(level)} of 3)")
    try:
        code, reached = exec_in_box(argv, Box(folder.resolve(), **options), level)
    except ToolError as error:
        if error.refused:
            raise UserError(str(error)) from error
        raise UserError(f"{error}", "Name a program that is on your PATH.", exit_code=2) from error
    for refusal in filter(None, (row.refusal for row in reached)):
        say(f"refused: {refusal}")
    return code


def _no_worktree(folder: Path, env: Mapping[str, str]) -> str:
    """Return why a folder must not be writable in the box; empty if it may be."""
    for vault in (place for place in (folder, *folder.parents) if (place / CONFIG_PATH).is_file()):
        if folder == vault:
            return "is a vault, where a file that is moved is an approval"
        if folder.relative_to(vault).parts[0] in ("Inbox", "System", ".obsidian", ".git"):
            return (
                f"belongs to the vault {visible(str(vault))}, where a file that is moved is "
                "an approval"
            )
    for what, places in (
        ("your home folder", [Path(env.get("HOME") or "/")]),
        ("a vault", known_vaults(env)),
        ("placet's state", [state_home(env)]),
    ):
        if any(place.resolve().is_relative_to(folder) for place in places):
            return (
                f"has {what} in it"
                if folder not in (place.resolve() for place in places)
                else f"is {what}"
            )
    return "is placet's state" if folder.is_relative_to(state_home(env).resolve()) else ""
