"""`placet team`: the journal in PostgreSQL, and the workers that reach it."""

from __future__ import annotations

from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

import click

from placet.cli.site import Site, json_option, site_option
from placet.cli.terminal import out, say
from placet.cli.view import on_terminal
from placet.errors import UserError, age, cannot_write, counted
from placet.git.repository import is_repository
from placet.git.run import place_of, run_git
from placet.host.config import change, is_git_path, with_setting
from placet.host.state import from_home
from placet.journal.database import VAULT, address_of, is_begun, must_be_of
from placet.journal.reader import Reader
from placet.note.paths import CONFIG_PATH
from placet_team.git_packs import clone_at
from placet_team.postgres import PostgresConnection
from placet_team.postgres_reader import READER
from placet_team.postgres_schema import make_ready


@click.group("team")
def team_command() -> None:
    """A journal in PostgreSQL, and the workers that it hands work to."""


@team_command.command("init")
@click.argument("address", metavar="ADDRESS")
@click.option("--remote", metavar="PATH", help="Also make the git repository for workers there.")
@site_option
def team_init_command(site: Site, address: str, remote: str | None) -> None:
    """Make the journal's tables in the database at ADDRESS, and name it in System/placet.toml.

    ADDRESS is like postgresql://user@host/database, without a password: that comes from PGPASSWORD,
    ~/.pgpass or the systemd credential database-password.

    With --remote, make a bare git repository at PATH if there is none, by which the commits of
    workers travel, and name it as [team] work_remote.
    """
    from placet.disk.vault import Vault

    if (there := address_of(site.state.journal)) and there != address:
        raise UserError(
            f"The journal is in {there} already.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    has_readers = make_ready(address)
    with Vault(site.vault) as folder, closing(PostgresConnection(address)) as connection:
        must_be_of(str(folder.marker()), Reader(connection).text(VAULT))
    settings = {"database": address}
    if remote is not None:
        settings["work_remote"] = str(_made_remote(remote))
    try:
        for name, value in settings.items():
            key = ("team", name)
            change(site.vault, site.env, with_setting(site.vault, key, value), [key])
    except OSError as error:
        raise cannot_write(site.vault / CONFIG_PATH, error) from error
    click.echo(address)
    if not has_readers:
        say(
            "this user may make no roles, so nobody may only read yet. As an administrator: CREATE "
            f"ROLE {READER} NOLOGIN; then once more: placet team init ADDRESS"
        )
    if is_begun(site.state.journal) and not there:
        say("the journal is in a file still; stop the daemon, then: placet journal move")
    else:
        say("the daemon begins the journal there: placet run")


_UPDATE = """#!/bin/sh
# The daemon and workers of placet push here, below refs/placet alone.
case "$1" in
refs/placet/*) exit 0 ;;
esac
echo "only refs/placet/* can be pushed here, not $1" >&2
exit 1
"""


def _made_remote(given: str) -> Path:
    """Make the git repository by which commits travel, if there is none; return its path."""
    if not is_git_path(given):
        raise UserError(
            f"{given} is no path: a repository elsewhere is made there.",
            f"Make it, then: placet config set team.work_remote {quote(given)}",
        )
    path = from_home(given).absolute()
    if is_repository(path):
        return path
    try:
        if path.exists() and any(path.iterdir()):
            raise UserError(f"{path} is not empty, and no repository.", "Name another folder.")
        repo = clone_at(path, sha256=False)
        run_git(place_of(repo), "config", "receive.fsckObjects", "true")
        hook = path / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_UPDATE)
        hook.chmod(0o755)
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


@team_command.command("status")
@site_option
@json_option
def team_status_command(site: Site, as_json: bool) -> None:
    """Show who is there, what is queued, and who carries what out."""
    from placet_team.team_look import sections_screen, sections_text, status_sections, team

    found = team(site)
    sections = list(status_sections(found))
    if on_terminal() and not as_json:
        click.echo(sections_screen(sections))
    else:
        out(sections_text(sections), found, as_json=as_json)


@team_command.command("workers")
@site_option
@json_option
def team_workers_command(site: Site, as_json: bool) -> None:
    """List the workers: labels, slots, sandbox, version, last sign of life."""
    from placet_team.team_look import sections_screen, sections_text, team, workers_section

    found = team(site)
    if not found["workers"] and not as_json:
        say(f"no worker is there. On any machine: placet worker '{found['database']}'")
        return
    sections = [workers_section(found)]
    if on_terminal() and not as_json:
        click.echo(sections_screen(sections))
    else:
        out(sections_text(sections), found["workers"], as_json=as_json)


@team_command.command("drain")
@click.argument("name", metavar="NAME")
@click.option("--undo", is_flag=True, help="Let it take work again, if it has not ended yet.")
@site_option
def team_drain_command(site: Site, name: str, undo: bool) -> None:
    """Let a worker end: it takes no more work, ends what it has, and then stops.

    Started again it takes work as before.
    """
    from placet_team.team_look import team

    found = {one["name"]: one for one in team(site)["workers"]}
    if (worker := found.get(name)) is None:
        near = get_close_matches(name, found, n=3)
        raise UserError(
            f"There is no worker named {name!r}.",
            f"Did you mean {' or '.join(near)}?" if near else "See them: placet team workers",
            exit_code=3,
        )
    _tell(site, name, draining=not undo)
    if worker["gone"]:
        say(f"nothing was heard of {name} for {age(worker['quiet_s'])}; if it wakes up it is told")
    elif undo:
        say(f"{name} takes work")
    else:
        left = f", ends {counted(worker['used'], 'piece')} that it has" if worker["used"] else ""
        say(f"{name} takes no more work{left}, and then stops; see it: placet team workers")


def _tell(site: Site, name: str, *, draining: bool) -> None:
    from placet.host.clock import Clock
    from placet.host.lock import boot_id, boottime_s
    from placet.journal.writer import Journal
    from placet.journal.writes import Conflict
    from placet_team.team_journal import Drain

    path = site.state.journal
    with Journal(
        path, now=Clock().wall, boottime_s=boottime_s, boot_id=boot_id(), on_trouble=say
    ) as journal:
        try:
            journal.commit([Drain(name, draining)])
        except Conflict as error:
            raise UserError(
                f"The worker {name} has ended meanwhile.", "See who is there: placet team workers"
            ) from error
