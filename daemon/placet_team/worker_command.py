"""`placet worker`: do the work of a team's daemon on this machine."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import click

from placet.cli.terminal import say
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.host.config import SandboxTable, config_from
from placet.host.signers import read_list
from placet.host.state import state_home
from placet.loop.run import signal_handlers
from placet_team.command import checked_name
from placet_team.postgres import checked, user_of
from placet_team.worker import WorkerId
from placet_team.worker_process import run
from placet_team.worker_setup import OF_MODEL, WorkerSettings

_TABLES = {"model": OF_MODEL, "commands": tuple(SandboxTable.model_fields)}


def own_settings(file: Path) -> WorkerSettings:
    """Return a worker's settings; raises UserError (exit code 2) for a file that has others."""
    where = str(file)
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{where} cannot be read as TOML: {error}", "Correct the file.", exit_code=2
        ) from error
    remotes = tables.pop("remotes", {})
    others = [
        f"{table}.{key}"
        for table, found in tables.items()
        for key in (found if isinstance(found, dict) else [""])
        if key not in _TABLES.get(table, ())
    ]
    if not isinstance(remotes, dict) or not all(isinstance(url, str) for url in remotes.values()):
        others.append("remotes")
    if others:
        raise UserError(
            f"{where} has settings that a worker does not take: {', '.join(others)}.",
            f"It takes {', '.join(OF_MODEL)} under [model], {', '.join(_TABLES['commands'])} under "
            '[commands], and PORTAL = "URL" under [remotes]. All others are the vault\'s.',
            exit_code=2,
        )
    return WorkerSettings(config_from(tables, where), remotes)


@click.command("worker")
@click.argument("address", metavar="ADDRESS", envvar="PLACET_DATABASE")
@click.option(
    "--slots",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Pieces of work that it does at once.",
)
@click.option(
    "--remote",
    default="",
    metavar="URL",
    help="Git repository to fetch from and push to: `[team] work_remote`, as seen from here.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="This worker's own settings: [model], [commands] and [remotes].",
)
@click.option(
    "--signers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run only what a signer in this file approved, in the format of System/allowed_signers.",
)
def worker_command(
    address: str, slots: int, remote: str, config: Path | None, signers: Path | None
) -> None:
    """Do the work of a team's daemon, until you stop it.

    ADDRESS is the team's database (or set PLACET_DATABASE). Its user is the worker's role and name:
    postgresql://build-1@host/database (see placet team init --worker). The password comes from
    PGPASSWORD, ~/.pgpass or the systemd credential database-password. Model, server and key are
    this machine's: --config, ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL. Work for another model waits.
    """
    name = checked_name(user_of(checked(address)))
    own = own_settings(config) if config else WorkerSettings()
    if signers is not None:
        signers = real_path(signers)
        read_list(signers.parent, signers.name)
    own = replace(own, remote=remote, signers=signers)
    folder = state_home(os.environ) / "workers" / name
    with signal_handlers() as ending:
        run(address, WorkerId(name, slots), own, folder, os.environ, say, ending)
