"""`placet worker`: carries out, on any machine, what a team's daemon hands it."""

from __future__ import annotations

import os
import re
import socket

import click

from placet.cli.terminal import say
from placet.errors import UserError
from placet.host.state import state_home
from placet.loop.run import signal_handlers
from placet_team.worker import Badge
from placet_team.working import run

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# As a portal's; it is part of the name of a channel, and PostgreSQL's have 63 bytes at most.
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,30}")


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
def worker_command(address: str, name: str, labels: str, slots: int) -> None:
    """Carry out what the daemon of a team hands over, until it is stopped.

    ADDRESS is that of the team's database, as `[team] database` has it, or in PLACET_DATABASE; its
    password comes from PGPASSWORD, ~/.pgpass or the systemd credential database-password. The
    model's key is this machine's own: ANTHROPIC_API_KEY.
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

    folder = state_home(os.environ) / "workers" / name
    with signal_handlers() as ending:
        run(address, Badge(name, wanted, slots), folder, os.environ, say, ending)
