"""Show what the journal says: `placet status`, `plans` and `show`. Reads only."""

from __future__ import annotations

import shutil
import signal
import sys

import click

from placet.case.transitions import diagram
from placet.cli.drawing import drawn, is_dumb, on_terminal, styled
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.screen import plans_screen, show_screen, status_screen
from placet.cli.terminal import echo
from placet.client.cases import Status, plans, show, status, unchanging
from placet.client.rows import patiently
from placet.client.site import Site
from placet.client.texts import json_text
from placet.errors import UserError


def watch_status(site: Site, *, as_json: bool) -> None:
    """Show `placet status` again whenever it changes, until Ctrl-C.

    On a terminal it is one screen that stays in place, and is left behind at the end; into a pipe
    it is the text, or a line of JSON, each time that something is different.
    """
    last = ""
    try:
        if as_json or not on_terminal() or is_dumb():
            _print_changes(site, as_json=as_json)
        from rich.live import Live
        from rich.text import Text

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        hint = drawn(styled("Ctrl-C ends this.", "dim"))
        with Live(screen=True, auto_refresh=False) as live:
            for _ in site.changes():
                last = _shown(site)
                live.update(Text.from_ansi(f"{last}\n\n{hint}"), refresh=True)
    except KeyboardInterrupt:
        if last:
            click.echo(last)


def _print_changes(site: Site, *, as_json: bool) -> None:
    before: Status | None = None
    changes = site.changes()
    for _ in changes:
        found = patiently(lambda: status(Site(site.given, site.env)), changes)
        if (now := unchanging(found)) != before:
            before = now
            click.echo(json_text(found) if as_json else f"{status_screen(found)}\n")


def _shown(site: Site) -> str:
    """Return the current screen. If the vault cannot be read, the screen says so."""
    now = Site(site.given, site.env)  # settings and daemon may be others by now
    try:
        text = status_screen(status(now), shutil.get_terminal_size().lines - 3)
        now.raise_problem()
    except UserError as error:
        shown = drawn(styled(error.what, "red"), styled(error.hint, "dim"))
        return f"{text}\n\n{shown}" if now.problem is error else shown
    return text


@click.command("status")
@click.option("--watch", is_flag=True, help="Keep it on the screen, live, until Ctrl-C.")
@site_option
@json_option
def status_command(site: Site, watch: bool, as_json: bool) -> None:
    """Show what waits for you, what runs, and what ended."""
    if watch:
        watch_status(site, as_json=as_json)
        return
    found = status(site)
    height = shutil.get_terminal_size().lines - 1 if on_terminal() else 0  # one is the prompt's
    click.echo(json_text(found, indent=2) if as_json else status_screen(found, height))
    site.raise_problem()


@click.command("plans")
@site_option
@json_option
def plans_command(site: Site, as_json: bool) -> None:
    """List what waits for you: questions, plans, wider scopes, branches to merge."""
    found = plans(site)
    click.echo(json_text(found, indent=2) if as_json else plans_screen(found, site.vault))
    site.raise_problem()


@click.command("show")
@ident_argument
@site_option
@click.option("--plan", "alone", is_flag=True, help="Print the plan's text alone, for a file.")
@json_option
def show_command(site: Site, ident: str, alone: bool, as_json: bool) -> None:
    """Show a request with its plan, its mission and its report.

    ID is a request_id or the beginning of a trace_id. If a plan was emptied or deleted, it shows
    placet's last text of it.
    """
    found = show(site, ident)
    if alone:
        if found.plan_text is None:
            raise UserError(
                f"There is no plan of {found.request_id}.",
                f"See why: placet why {found.request_id}",
                exit_code=3,
            )
        click.echo(found.plan_text, nl=False)
        return
    if as_json:
        click.echo(json_text(found, indent=2))
    else:
        for text, fits in show_screen(found, site.vault):
            (click.echo if fits else echo)(text)
    site.raise_problem()


@click.command("states")
def states_command() -> None:
    """Draw the life cycle of a request as a Mermaid diagram."""
    click.echo(diagram(), nl=False)
