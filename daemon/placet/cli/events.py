"""Print what the daemon does as JSON: `placet events`."""

from __future__ import annotations

import json

import click

from placet.cli.options import site_option
from placet.cli.terminal import say
from placet.client.rows import live_rows
from placet.client.site import Site
from placet.errors import UserError


@click.group("events", invoke_without_command=True)
@site_option
@click.pass_context
def events_command(context: click.Context, site: Site) -> None:
    """Print what the daemon does as it happens, a line of JSON each, until it stops."""
    if context.invoked_subcommand is not None:
        return
    if site.daemon is None:
        raise UserError("No daemon works on this vault.", "Start it: placet run")
    from placet.host.events import event_of, line_of  # pydantic makes its models in 20 ms

    for row in live_rows(site):
        click.echo(line_of(event_of(row)))
    say("the daemon has stopped")


@events_command.command("schema")
def events_schema_command() -> None:
    """Print the JSON Schema of a line."""
    from placet.host.events import EVENT

    click.echo(json.dumps(EVENT.json_schema(), indent=2))
