"""Manage the repositories that requests name: `placet portal`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from placet.cli.options import json_option, site_option
from placet.cli.terminal import agreed, colour, out, say
from placet.client.portals import (
    CheckedPortal,
    Portal,
    add_portal,
    check_portals,
    missing_settings,
    portals,
    remove_portal,
    set_portal,
    what_commands_see,
)
from placet.client.site import Site
from placet.note.paths import show as visible


@click.group("portal")
def portal_command() -> None:
    """Repositories that requests may name in `portal:`."""


@portal_command.command("add")
@click.argument("name", metavar="NAME")
@click.argument("given", metavar="PATH", type=click.Path(readable=False))
@site_option
def portal_add_command(site: Site, name: str, given: str) -> None:
    """Name a repository in System/placet.toml."""
    click.echo(add_portal(site, name, given))
    say(f"requests name it with `portal: {name}`")
    for line in what_commands_see(site, name):
        say(line)
    propose(site, name)


def propose(site: Site, name: str) -> None:
    """Ask whether to add the settings that fit a portal's checkout; Enter accepts."""
    wanted = missing_settings(site, name)
    if not wanted:
        return
    say(f"Commands need these lines in [portals.{name}] of System/placet.toml:")
    for key, values in wanted.items():
        click.echo(f"  {key} = {json.dumps(values)}", err=True)
    if sys.stdin.isatty() and agreed("placet: Add them?", default=True):
        set_portal(site, name, wanted)


@portal_command.command("list")
@site_option
@json_option
def portal_list_command(site: Site, as_json: bool) -> None:
    """List the portals."""
    found = portals(site)
    out(portals_text(found), found, as_json=as_json)


@portal_command.command("check")
@click.argument("name", required=False, metavar="[NAME]")
@site_option
@json_option
def portal_check_command(site: Site, name: str | None, as_json: bool) -> None:
    """Check the portals with git, and show what missions see there."""
    found = check_portals(site, name)
    out(portals_text(found), found, as_json=as_json)
    if any(portal.problem for portal in found):
        sys.exit(1)
    if not as_json:
        for portal in found:
            propose(site, portal.name)


@portal_command.command("remove")
@click.argument("name", metavar="NAME")
@site_option
def portal_remove_command(site: Site, name: str) -> None:
    """Take a portal out of System/placet.toml; its repository stays."""
    for line in remove_portal(site, name):
        say(line)
    say("removed; the repository stays as it is")


def portals_text(found: Sequence[Portal]) -> str:
    """Return `placet portal list` and `placet portal check` for people."""
    if not found:
        return "There are no portals. Name a repository: placet portal add NAME PATH"
    lines = []
    for portal in found:
        notes: tuple[str, ...] = ()
        if isinstance(portal, CheckedPortal):
            bad, notes = portal.problem, portal.notes
        elif not portal.accepted:
            bad = "not accepted on this machine: placet config accept"
        else:
            bad = "" if portal.there else "that folder is not there"
        suffix = f"  {colour('BAD', 'red')}: {visible(bad)}" if bad else ""
        lines.append(f"{visible(portal.name):<16} {visible(portal.folder)}{suffix}")
        lines += [f"{'':<16} {visible(note)}" for note in notes]
    return "\n".join(lines)
