"""`placet journal`: what happened, for people and programs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from placet.activity import CommittedRow
from placet.case.case import diagram
from placet.cli.site import Site, complete_ids, find, json_option, site_option
from placet.cli.status import as_row
from placet.cli.terminal import echo, json_text, out, say
from placet.cli.text import row_text, table_text
from placet.errors import UserError
from placet.host.state import from_home
from placet.journal.maintenance import backup, examine
from placet.journal.place import address_of, database_of, is_begun
from placet.journal.query import query
from placet.journal.reader import open_reader

FOLLOW_STEP_S = 0.2
LAST = 50
"""Rows of the journal that are shown unless another number is asked for."""


@click.group("journal", invoke_without_command=True)
@click.option(
    "--trace",
    metavar="ID",
    shell_complete=complete_ids,
    help="Only this request's rows: a request_id or the beginning of a trace_id.",
)
@click.option("--sql", metavar="QUERY", help="Run a read-only query on journal.db.")
@click.option("--follow", is_flag=True, help="Go on printing rows as they are written.")
@click.option(
    "--limit",
    type=click.IntRange(0, 2**62),
    metavar="N",
    help="How many of the last rows; else 50, of one request all.",
)
@site_option
@json_option
@click.pass_context
def journal_command(
    context: click.Context,
    site: Site,
    trace: str | None,
    sql: str | None,
    follow: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Read the journal: what happened, to what, by whom."""
    if context.invoked_subcommand is not None:
        return
    if sql is not None:
        columns, rows = query(site.state.journal, sql)
        out(
            table_text(columns, rows),
            [dict(zip(columns, row, strict=True)) for row in rows],
            as_json=as_json,
        )
        return
    for row in journal_rows(site, trace, limit=limit, follow=follow, routine=as_json):
        if as_json:
            click.echo(json_text(row))
        else:
            echo(row_text(row))


@journal_command.command("verify")
@site_option
def journal_verify_command(site: Site) -> None:
    """Check that no row, text or record was changed, taken out or put in.

    Print the last row's id and hash.

    Whoever can write the database can also write all of it again, hashes and all. A hash that is
    kept elsewhere shows that: the row with its id must have it.
    """
    state = site.state
    row_id, row_hash, problem = examine(state.journal, state.mark)
    if problem:
        raise UserError(
            f"the journal is not as it was written: {problem}",
            "Put it back from a backup, or keep it aside as it is.",
        )
    click.echo(f"{row_id} {row_hash}")
    say(
        f"whole up to row {row_id}. Who can write the database can rewrite all of it: keep the "
        "hash elsewhere, and compare later"
    )


@journal_command.command("backup")
@click.argument("target", type=click.Path())
@site_option
def journal_backup_command(site: Site, target: str) -> None:
    """Copy the journal to TARGET, a new file, while the daemon goes on."""
    path = from_home(target).absolute()
    if os.path.lexists(path):
        raise UserError(
            f"{target} is there already, and was left as it is: nothing was copied.",
            "Name a file that is not there yet, or move that one away first.",
            exit_code=2,
        )
    try:
        backup(site.state.journal, path)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}",
            "Name a file, in a folder that is there.",
        ) from error
    click.echo(target)


@journal_command.command("move")
@site_option
def journal_move_command(site: Site) -> None:
    """Move the journal to where [team] database says: into PostgreSQL, or back into a file.

    All of it is copied and compared; what it was before is kept under another name. No daemon may
    run meanwhile.
    """
    # only here: those who only look are not to wait for these
    from placet.disk.vault import Vault
    from placet.host.clock import Clock
    from placet.host.lock import VaultLock, this_process

    state, wanted = site.state, site.in_force().config.team.database
    there = address_of(state.journal)
    if there == wanted or not is_begun(state.journal):
        raise UserError(
            "The journal is where [team] database says." if there else "The journal is in a file.",
            "" if wanted else "To have it in PostgreSQL: placet team init ADDRESS",
        )
    if there and wanted:
        raise UserError(
            f"The journal is in {there}, and [team] database names another database.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    with Vault(site.vault) as folder, VaultLock(state.lock, this_process(), Clock().now()):
        whose = str(folder.marker())
        kept = (
            str(database_of(wanted).move_in(state.journal, wanted, whose))
            if wanted
            else database_of(there).move_out(state.journal)
        )
    click.echo(wanted or state.journal)
    say(f"moved; what it was before is kept as {kept}")


@journal_command.command("path")
@site_option
def journal_path_command(site: Site) -> None:
    """Print where the journal's database is."""
    click.echo(address_of(site.state.journal) or site.state.journal)


@click.command("states")
def states_command() -> None:
    """Draw the life cycle of a request as a Mermaid diagram."""
    click.echo(diagram(), nl=False)


def journal_rows(
    site: Site,
    ident: str | None,
    *,
    limit: int | None,
    follow: bool,
    routine: bool,
) -> Iterator[dict[str, Any]]:
    """Give the last `limit` rows, in order; with `follow` also those that are written from now on.

    Without a limit it is all rows of one request, or the last LAST of all. `routine` is for git
    processes that went well.
    """
    path = site.state.journal
    with open_reader(path) if ident is None else site.reader(ident) as reader:
        trace = find(reader, ident).trace_id if ident is not None else None
        most = limit if limit is not None else LAST if trace is None else -1
        rows: Sequence[CommittedRow] = reader.activity(
            trace, limit=most, newest=True, routine=routine
        )
        newest = reader.activity(limit=1, newest=True)
    last = newest[0].id if newest else 0
    while True:
        for row in rows:
            last = row.id
            yield as_row(row)
        if not follow:
            return
        time.sleep(FOLLOW_STEP_S)
        with open_reader(path) as reader:
            rows = reader.activity(trace, after_id=last, routine=routine)
