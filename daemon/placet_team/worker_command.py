"""`placet worker`: carries out, on any machine, what a team's daemon hands it."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from dataclasses import replace
from pathlib import Path

import click

from placet.cli.terminal import say
from placet.errors import UserError
from placet.host.config import SandboxTable, made_of
from placet.host.state import state_home
from placet.loop.run import signal_handlers
from placet_team.outfit import OF_MODEL, Own
from placet_team.worker import Badge
from placet_team.working import run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# As a portal's; it is part of the name of a channel, and PostgreSQL's have 63 bytes at most.
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,30}")


_TABLES = {"model": OF_MODEL, "commands": tuple(SandboxTable.model_fields)}


def own_settings(file: Path) -> Own:
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
            f"It takes {', '.join(OF_MODEL)} under [model], sandbox under [commands], and "
            'PORTAL = "URL" under [remotes]. All others are the vault\'s.',
            exit_code=2,
        )
    return Own(made_of(tables, where), remotes)


@click.command("worker")
@click.argument("address", metavar="ADDRESS", envvar="PLACET_DATABASE")
@click.option("--name", default="", help="Name of this worker; the machine's without it.")
@click.option(
    "--labels",
    default="any",
    show_default=True,
    metavar="A,B",
    help="Labels of the portals whose work it takes; `any` is that of portals without one.",
)
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
    help="Git repository by which commits travel: what `[team] work_remote` names, from here.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="This worker's own settings: [model], [commands] and [remotes].",
)
def worker_command(
    address: str, name: str, labels: str, slots: int, remote: str, config: Path | None
) -> None:
    """Carry out what the daemon of a team hands over, until it is stopped.

    ADDRESS is that of the team's database, as `[team] database` has it, or in PLACET_DATABASE; its
    password comes from PGPASSWORD, ~/.pgpass or the systemd credential database-password. The
    model, its server and its key are this machine's own: --config, ANTHROPIC_API_KEY,
    ANTHROPIC_BASE_URL. Work for another model waits.
    """
    name = name or socket.gethostname().split(".")[0]
    wanted = tuple(dict.fromkeys(one.strip() for one in labels.split(",") if one.strip()))
    bad = [one for one in wanted if not _LABEL.fullmatch(one)]
    if bad or not wanted or not _NAME.fullmatch(name):
        what = f"the label {bad[0]!r}" if bad else "a name or label"
        raise UserError(
            f"This cannot be {what}: letters, digits, `-` and `_` make one, a label of 30 at most.",
            "For example: placet worker ADDRESS --name build-1 --labels gpu,any",
            exit_code=2,
        )

    own = replace(own_settings(config) if config else Own(), remote=remote)
    folder = state_home(os.environ) / "workers" / name
    with signal_handlers() as ending:
        run(address, Badge(name, wanted, slots), own, folder, os.environ, say, ending)
