"""`placet team`: put the journal into PostgreSQL, let workers in, and show them."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import closing
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

import click

from placet.cli.options import json_option, site_option
from placet.cli.terminal import say
from placet.client.site import Site
from placet.client.texts import json_text
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.repository import is_repository
from placet.git.run import place_of, run_git
from placet.host.accepted import change
from placet.host.clock import Clock, boottime_s
from placet.host.config import Key
from placet.host.lock import boot_id
from placet.host.state import expand_home
from placet.journal.database import VAULT, address_of, is_begun
from placet.journal.reader import Reader, open_reader
from placet.journal.writer import Journal
from placet.journal.writes import Change, Conflict
from placet.wording import age, counted
from placet_team.git_fetching import is_git_path
from placet_team.git_refs import bare_repo_at
from placet_team.postgres import PostgresConnection, user_of
from placet_team.postgres_plugin import require_vault
from placet_team.postgres_schema import create_tables
from placet_team.removal import RemoveWorker, known_workers, shut_out, written_by
from placet_team.status_text import status_text, workers_text, written_text
from placet_team.tables import ANY, WORKER, Drain
from placet_team.worker_status import must_have_team, team

SLOTS = 2
"""Pieces of work that a worker does at once where `team init` is not told."""


@click.group("team")
def team_command() -> None:
    """A journal in PostgreSQL, and workers on other machines."""


@team_command.command("init")
@click.argument("address", metavar="[ADDRESS]", default="")
@click.option(
    "--remote", metavar="PATH", default="", help="Make a git repository for workers there."
)
@click.option("--worker", metavar="NAME", default="", help="Let in a worker of this name.")
@click.option(
    "--labels",
    default="",
    metavar="A,B",
    help="Labels of the portals whose work it takes: `any`, that of portals without one, for a "
    "new worker.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    help=f"Pieces of work that it does at once: {SLOTS} for a new worker. It may have 2 "
    "connections for each, and 4.",
)
@site_option
def team_init_command(
    site: Site, address: str, remote: str, worker: str, labels: str, slots: int | None
) -> None:
    """Create the journal's tables in the database at ADDRESS, and set it in System/placet.toml.

    ADDRESS is like postgresql://user@host/database, without a password: that comes from PGPASSWORD,
    ~/.pgpass or the systemd credential database-password. Later you can omit ADDRESS.

    --remote creates a bare git repository at PATH, if missing, and sets [team] work_remote. The
    daemon and workers exchange commits through it. --worker prints the SQL with which an
    administrator creates the worker's role.
    """
    current = address_of(site.state.journal)
    if address and current and current != address:
        raise UserError(
            f"The journal is in {current} already.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    given, address = address, address or current or site.in_force().config.team.database
    if not address:
        raise UserError(
            "This vault's journal is in a file.",
            "Name a database for it: placet team init ADDRESS",
            exit_code=2,
        )
    if missing := _create_team_tables(site, address):
        user = user_of(address)
        roles = "\n".join(f'CREATE ROLE {role} NOLOGIN ROLE "{user}";' for role in missing)
        say(
            "This database user cannot create roles. As an administrator of the server, run:\n"
            f"{roles}\nThen run placet team init again."
        )
    if worker:
        found = let_in(address, checked_name(worker), checked_labels(labels), slots)
        what = (
            f"{worker} takes the work of {found.labels}, {counted(found.slots, 'piece')} at once."
        )
        say(f"{what} A running worker uses this from its next start.")
        click.echo(found.sql)
    settings: dict[Key, Any] = {("team", "database"): address} if given else {}
    if remote:
        settings["team", "work_remote"] = str(_made_remote(remote))
    change(site.vault, site.env, settings)
    if not given:
        return
    click.echo(address)
    if is_begun(site.state.journal) and not current:
        say("The journal is still in a file. Stop the daemon, then: placet journal move")
    else:
        say("The daemon will keep the journal there: placet run")


def _create_team_tables(site: Site, address: str) -> tuple[str, ...]:
    """Make the tables; return the roles that are missing. Raises UserError for another vault's."""
    missing = create_tables(address)
    with Vault(site.vault) as folder, closing(PostgresConnection(address)) as connection:
        require_vault(str(folder.marker()), Reader(connection).text(VAULT))
    return missing


_LET_IN = """INSERT INTO team_workers AS w (name, labels, slots) VALUES (?, ?, ?)
  ON CONFLICT (name) DO UPDATE
    SET labels = coalesce(nullif(?, ''), w.labels), slots = coalesce(?, w.slots)
  RETURNING labels, slots"""
_MAY_ALL = """SELECT 1 FROM pg_roles, pg_namespace WHERE rolname = ? AND nspname = 'placet'
  AND (rolsuper OR pg_has_role(rolname, nspowner, 'MEMBER'))"""


@dataclass(frozen=True, slots=True)
class LetIn:
    """A worker that was let in, and the SQL for its role."""

    labels: str
    slots: int
    sql: str


def let_in(address: str, name: str, labels: str = "", slots: int | None = None) -> LetIn:
    """Let a worker in, or change its labels and slots.

    Without `labels` or `slots` it keeps those that it has.

    The owner of the tables is a member of the role, so that it can end its sessions.
    """
    with closing(PostgresConnection(address)) as connection:
        if connection.execute(_MAY_ALL, (name,)).fetchone():
            raise UserError(
                f"The role {name} owns the tables or is a superuser, so no worker may use it.",
                "Choose another name: placet team init --worker NAME",
                exit_code=2,
            )
        labels, slots = connection.execute(
            _LET_IN, (name, labels or ANY, slots or SLOTS, labels, slots)
        ).fetchone()
        owner, exists = connection.execute(
            "SELECT current_user, EXISTS (SELECT FROM pg_roles WHERE rolname = ?)", (name,)
        ).fetchone()
    can = f'ROLE "{name}" LOGIN CONNECTION LIMIT {2 * slots + 4}'
    role = (
        f'ALTER {can};\nGRANT "{name}" TO "{owner}";' if exists else f'CREATE {can} ROLE "{owner}";'
    )
    sql = (
        f"{role}\n"
        f'GRANT {WORKER} TO "{name}";\n'
        f"ALTER ROLE \"{name}\" SET temp_file_limit = '64MB';\n"
        "REVOKE EXECUTE ON FUNCTION lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea)"
        " FROM PUBLIC;"
    )
    return LetIn(labels, slots, sql)


def checked_name(name: str) -> str:
    """Return a worker's name; raises UserError (exit code 2) for a bad one."""
    if not re.fullmatch("[a-z0-9][a-z0-9-]{0,62}", name):
        raise UserError(
            f"A worker cannot have the name {name!r}.",
            "Use small letters, digits and `-`, as in postgresql://build-1@host/database",
            exit_code=2,
        )
    return name


def checked_labels(labels: str) -> str:
    """Return labels as the database stores them, "" for none.

    Raises UserError (exit code 2) for bad ones.
    """
    if not labels:
        return ""
    found = list(dict.fromkeys(one.strip() for one in labels.split(",") if one.strip()))
    bad = [one for one in found if not re.fullmatch("[A-Za-z0-9_-]{1,30}", one)]
    if bad or not found:
        raise UserError(
            f"This cannot be a label: {(bad or [labels])[0]!r}.",
            "Use at most 30 letters, digits, `-` and `_`.",
            exit_code=2,
        )
    return ",".join(found)


_UPDATE = """#!/bin/sh
# The daemon and workers of placet push here: references that are named for their commit, and never
# move. Reference, old and new commit are the arguments; zeros are none. A worker, whose line in
# authorized_keys sets PLACET_WORKER, only adds work; the daemon adds and deletes.
case "$PLACET_WORKER $1 $3" in
" "* | *" refs/placet/work/"*\\ *[!0]*) ;;
*) echo "$PLACET_WORKER can only add to refs/placet/work/ here" >&2; exit 1 ;;
esac
case "$2" in *[!0]*) case "$3" in *[!0]*) echo "$1 is there already" >&2; exit 1 ;; esac ;; esac
case "$1 $3" in
refs/placet/*\\ *[!0]*) ;;
refs/placet/*) exit 0 ;; # deleted
esac
case "$1" in
refs/placet/base/*/"$3" | refs/placet/work/*/*/"$3") exit 0 ;;
esac
echo "only refs/placet/base/*/COMMIT and refs/placet/work/*/*/COMMIT can be pushed here" >&2
exit 1
"""


def _made_remote(given: str) -> Path:
    """Make the work remote, unless it is there already; return its path."""
    if not is_git_path(given):
        raise UserError(
            f"{given} is not a path on this machine, so placet cannot create a repository there.",
            f"Create it on its server, then: placet config set team.work_remote {quote(given)}",
        )
    path = expand_home(given).absolute()
    if is_repository(path):
        return path
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path} is not empty and not a git repository.", "Name another folder.")
    repo = bare_repo_at(path, sha256=False)
    run_git(place_of(repo), "config", "receive.fsckObjects", "true")
    hook = path / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_UPDATE)
    hook.chmod(0o755)
    return path


@team_command.command("status")
@site_option
@json_option
def team_status_command(site: Site, as_json: bool) -> None:
    """Show the workers, what each one works on, and what waits."""
    found = team(site)
    click.echo(json_text(found, indent=2) if as_json else status_text(found))


@team_command.command("workers")
@site_option
@json_option
def team_workers_command(site: Site, as_json: bool) -> None:
    """List the workers: labels, slots, sandbox, version, last sign of life."""
    found = team(site)
    if as_json:
        click.echo(json_text(found["workers"], indent=2))
    elif found["workers"]:
        click.echo(workers_text(found))
    else:
        say("No worker is running. Let one in: placet team init --worker NAME")


@team_command.command("drain")
@click.argument("name", metavar="NAME")
@click.option("--undo", is_flag=True, help="Let it take work again, if it is still running.")
@site_option
def team_drain_command(site: Site, name: str, undo: bool) -> None:
    """Stop a worker gently: it takes no more work, finishes what it has, and ends.

    When you start it again, it takes work as before.
    """
    found = {one["name"]: one for one in team(site)["workers"]}
    if (worker := found.get(name)) is None:
        raise _no_worker(name, found)
    _commit(site, name, Drain(name, not undo))
    if worker["gone"]:
        say(f"{name} gave no sign of life for {age(worker['quiet_s'])}. It will be told if it does")
    elif undo:
        say(f"{name} takes work")
    else:
        left = f", finishes {counted(worker['used'], 'piece')} of work" if worker["used"] else ""
        say(f"{name} takes no more work{left}, and then ends. See it: placet team workers")


@team_command.command("remove")
@click.argument("name", metavar="NAME")
@site_option
@json_option
def team_remove_command(site: Site, name: str, as_json: bool) -> None:
    """Remove a worker that is lost or compromised, and list what it wrote.

    It can write nothing more. Its login is turned off, its sessions end, and other workers do its
    work. What it wrote stays in the journal: check it.
    """
    must_have_team(site)
    with open_reader(site.state.journal) as reader:
        if name not in (known := known_workers(reader.connection)):
            raise _no_worker(name, known)
    with closing(PostgresConnection(address_of(site.state.journal))) as connection:
        shut_out(connection, name)  # one of its sessions may keep all writers waiting
        _commit(site, name, RemoveWorker(name))
        left = shut_out(connection, name)
        wrote = [asdict(one) for one in written_by(connection, name)]
    if as_json:
        click.echo(json_text({"name": name, "left": left, "wrote": wrote}, indent=2))
        return
    say(f"{name} can write nothing more. Other workers do its work.")
    if left:
        sql = "\n".join(left)
        say(f"Its role can still log in. As an administrator of the server, run:\n{sql}")
    if wrote:
        click.echo(written_text(wrote))
    say("Remove its git key, and replace its model key. To read all of a request: placet journal")


def _no_worker(name: str, known: Collection[str]) -> UserError:
    near = get_close_matches(name, known, n=3)
    return UserError(
        f"There is no worker named {name!r}.",
        f"Did you mean {' or '.join(near)}?" if near else "See them: placet team workers",
        exit_code=3,
    )


def _commit(site: Site, name: str, change: Change) -> None:
    path, clock = site.state.journal, Clock().wall
    with Journal(path, now=clock, boottime_s=boottime_s, boot_id=boot_id(), on_trouble=say) as made:
        try:
            made.commit([change])
        except Conflict as error:
            raise UserError(
                f"There is no worker {name} any more.", "See them: placet team workers"
            ) from error
