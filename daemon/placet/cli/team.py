"""`placet team`: the journal in PostgreSQL, which the machines of a team reach."""

from __future__ import annotations

import click

from placet.cli.site import Site, site_option
from placet.cli.terminal import say
from placet.core.errors import UserError, cannot_write
from placet.core.text.names import CONFIG_PATH
from placet.host.accepted import change
from placet.host.config import with_setting
from placet.journal.place import address_of, is_begun, must_have_driver


@click.group("team")
def team_command() -> None:
    """A journal in PostgreSQL, which the machines of a team reach."""


@team_command.command("init")
@click.argument("address", metavar="ADDRESS")
@site_option
def team_init_command(site: Site, address: str) -> None:
    """Make the journal's tables in the database at ADDRESS, and name it in System/placet.toml.

    ADDRESS is like postgresql://user@host/database, without a password: that comes from PGPASSWORD,
    ~/.pgpass or the systemd credential database-password.
    """
    must_have_driver()
    from placet.journal.postgres_schema import make_ready

    if (there := address_of(site.state.journal)) and there != address:
        raise UserError(
            f"The journal is in {there} already.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    make_ready(address)
    text = with_setting(site.vault, ("team", "database"), address)
    try:
        change(site.vault, site.env, text, [("team", "database")])
    except OSError as error:
        raise cannot_write(site.vault / CONFIG_PATH, error) from error
    click.echo(address)
    if is_begun(site.state.journal) and not there:
        say("the journal is in a file still; stop the daemon, then: placet journal move")
    else:
        say("the daemon begins the journal there: placet run")
