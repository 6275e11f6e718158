"""`placet events`: what the daemon does as it happens, for programs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from placet.cli.site import Site, site_option
from placet.cli.terminal import say
from placet.errors import UserError
from placet.host.events import EVENT, listen, places


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


# News of the daemon as it happens: its event socket rings, and the journal is looked at.
#
# The socket only says that something happened. Without a daemon, or without its socket, the journal
# is looked at every LOOK_S; so nothing is missed while a daemon starts, stops or is killed.

T = TypeVar("T")

LOOK_S = 2.0
"""Seconds after which is looked anyway: folders are changed by people, too."""
PATIENCE_S = 10.0
TOGETHER_S = 0.05
"""Seconds in which events count as one."""


def patiently(look: Callable[[], T], wait: Callable[[], None]) -> T:
    """Return what `look` returns; what it cannot read just now, it reads again after a wait.

    A daemon that starts makes the journal, or mends it after a kill. Raises the UserError that is
    still there after PATIENCE_S.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return look()
        except UserError:
            if time.monotonic() > until:
                raise
        wait()


@contextmanager
def bell(site: Site) -> Iterator[Callable[[], None]]:
    """Give a function that waits for the daemon's next event, or LOOK_S.

    Raises UserError where there is no vault.
    """
    rung, over = threading.Event(), threading.Event()
    _ = site.state  # looked up by this thread, which can say that there is none
    threading.Thread(target=_listen, args=(site, rung, over), name="bell", daemon=True).start()

    def wait() -> None:
        if rung.wait(LOOK_S):
            over.wait(TOGETHER_S)
            rung.clear()

    try:
        yield wait
    finally:
        over.set()


def _listen(site: Site, rung: threading.Event, over: threading.Event) -> None:
    while not over.is_set():
        try:
            for _ in live_events(site):
                rung.set()
                if over.is_set():
                    return
        except (UserError, OSError):
            pass  # no daemon, or it was killed
        else:
            rung.set()  # it has stopped
        over.wait(LOOK_S)
