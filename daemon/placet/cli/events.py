"""`placet events`: what the daemon does as it happens, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from placet.cli.site import Site, site_option
from placet.cli.terminal import say
from placet.host.events import EVENT
from placet.host.sockets import listen, places


@click.group("events", invoke_without_command=True)
@site_option
@click.pass_context
def events_command(context: click.Context, site: Site) -> None:
    """Print what the daemon does as it happens, a line of JSON each, until it stops."""
    if context.invoked_subcommand is not None:
        return
    for line in live_events(site):
        click.echo(line)
    say("the daemon has stopped")


@events_command.command("path")
@site_option
def events_path_command(site: Site) -> None:
    """Print where the socket is that sends these lines to any client of yours."""
    click.echo(events_path(site))


@events_command.command("schema")
def events_schema_command() -> None:
    """Print the JSON Schema of a line."""
    click.echo(json.dumps(EVENT.json_schema(), indent=2))


def live_events(site: Site) -> Iterator[str]:
    """Give what the daemon's socket sends, a line of JSON each, until the daemon stops."""
    for line in listen(places(site.state.folder, site.env)):
        yield line.decode().rstrip("\n")


def events_path(site: Site) -> Path:
    """Return the path of the daemon's socket; without a daemon, the path that it will have."""
    found = places(site.state.folder, site.env)
    return next((path for path in found if path.exists()), found[0])
