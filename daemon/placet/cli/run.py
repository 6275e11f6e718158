"""Run the daemon in this process: `placet run`."""

from __future__ import annotations

import click

from placet.case.story import Verbosity
from placet.cli.options import site_option
from placet.cli.stderr_writer import StderrWriter, times_of_its_own
from placet.client.site import Site
from placet.errors import UserError
from placet.loop.app import daemon
from placet.loop.run import signal_handlers


@click.command("run")
@site_option
@click.option("--once", is_flag=True, help="Work until everything left waits for you, then exit.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Work on a vault that another machine's daemon has claimed, or on another vault at the "
    "place of one.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also say each call of a tool and of the model, with what it cost.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")
def run_command(site: Site, once: bool, take_over: bool, verbose: bool, quiet: bool) -> None:
    """Run the daemon in the foreground. It says what happens, a line an event."""
    loud = Verbosity.TROUBLE if quiet else Verbosity.DETAIL if verbose else Verbosity.EVENT
    with (
        signal_handlers() as ending,
        StderrWriter(loud, times=not times_of_its_own(site.env), log=site.state.log) as writer,
        daemon(
            site.vault,
            site.env,
            writer.say,
            take_over=take_over,
            follow=writer.rows,
            ending=ending,
        ) as running,
    ):
        if not once:
            writer.say(
                f"watching {running.vault} ({running.watcher.mode.value}). To stop: Ctrl-C",
                Verbosity.EVENT,
            )
            running.run()
            return
        tick = running.run_once()
    if tick.waiting:
        raise UserError(
            "not everything could be done:\n  " + "\n  ".join(tick.waiting),
            "It is kept and tried again by the next `placet run`.",
        )
