"""Show what happened, to people and programs: `placet journal`, `logs` and `watch`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from placet.activity import CommittedRow
from placet.cli.options import complete_ids, json_option, site_option
from placet.cli.screen import row_text, table_text
from placet.cli.terminal import echo, out, say
from placet.client.rows import Row, as_row, new_rows
from placet.client.site import Site, find
from placet.client.texts import json_text
from placet.errors import UserError
from placet.host.state import expand_home
from placet.journal.database import address_of, database_of, is_begun
from placet.journal.maintenance import Examined, backup, examine
from placet.journal.reader import open_reader, query
from placet.wording import counted

LAST = 50
"""Rows of the journal that are shown unless another number is asked for."""


class _Journal(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command. If you typed a request's ID instead, name the option."""
        if self.get_command(ctx, args[0]) is None:
            ctx.fail(
                f"No such command {args[0]!r}. Is it a request? placet journal --trace {args[0]}"
            )
        return super().resolve_command(ctx, args)


@click.group("journal", cls=_Journal, invoke_without_command=True)
@click.option(
    "--trace",
    metavar="ID",
    shell_complete=complete_ids,
    help="Only this request's rows: a request_id or the beginning of a trace_id.",
)
@click.option("--sql", metavar="QUERY", help="Run a read-only query on journal.db.")
@click.option("--follow", is_flag=True, help="Print new rows as they are written.")
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
    for row in journal_rows(site, trace, limit=limit, follow=follow, as_json=as_json):
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
    found = examine(state.journal, state.mark)
    if found.damage:
        raise UserError(
            f"The journal is not as it was written: {found.damage}.",
            "Restore a backup. Keep this one under another name.",
        )
    if found.lost_row:
        raise UserError(*older_copy(found))
    click.echo(f"{found.last_id} {found.last_hash}")
    say(
        f"No row was changed, up to row {found.last_id}. Whoever can write the database could "
        "rewrite all rows with new hashes. To notice that, keep this hash elsewhere and compare it."
    )


def older_copy(found: Examined) -> tuple[str, str]:
    """Return what to say of an undamaged journal that lacks its newest rows, and what helps."""
    return (
        f"The journal is an older copy, as after a restore. Its rows are whole up to row "
        f"{found.last_id}; the daemon left it at row {found.lost_row}.",
        "If you restored it, start the daemon: placet run. If not, somebody cut rows off: restore "
        "a backup.",
    )


@journal_command.command("backup")
@click.argument("target", type=click.Path())
@site_option
def journal_backup_command(site: Site, target: str) -> None:
    """Copy the journal to TARGET, a new file. The daemon may keep running."""
    path = expand_home(target).absolute()
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
    address = address_of(state.journal)
    if address == wanted or not is_begun(state.journal):
        raise UserError(
            "The journal is where [team] database says."
            if address
            else "The journal is in a file.",
            "" if wanted else "To have it in PostgreSQL: placet team init ADDRESS",
        )
    if address and wanted:
        raise UserError(
            f"The journal is in {address}, and [team] database names another database.",
            "First move it into a file: placet config set team.database '' && placet journal move",
        )
    with Vault(site.vault) as folder, VaultLock(state.lock, this_process(), Clock().now()):
        whose = str(folder.marker())
        kept = (
            str(database_of(wanted).move_in(state.journal, wanted, whose))
            if wanted
            else database_of(address).move_out(state.journal)
        )
    click.echo(wanted or state.journal)
    say(f"moved; the old one is kept as {kept}")


@journal_command.command("path")
@site_option
def journal_path_command(site: Site) -> None:
    """Print where the journal's database is."""
    click.echo(address_of(site.state.journal) or site.state.journal)


def journal_rows(
    site: Site,
    ident: str | None,
    *,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> Iterator[Row]:
    """Give the last `limit` rows, in order; with `follow` also those that are written from now on.

    Without a limit it is all rows of one request, or the last LAST of all. Git processes that went
    well are for JSON only; it says how many were left out.
    """
    with open_reader(site.state.journal) if ident is None else site.reader(ident) as reader:
        trace = find(reader, ident).trace_id if ident is not None else None
        most = limit if limit is not None else LAST if trace is None else -1
        rows: Sequence[CommittedRow] = reader.activity(
            trace, limit=most, newest=True, routine=as_json
        )
        last = reader.last()[0]
        first = rows[0].id - 1 if rows and not as_json else last
        left_out = len(reader.activity(trace, after_id=first, limit=-1)) - len(rows)
    yield from map(as_row, rows)
    if not as_json and left_out > 0:
        say(f"{counted(left_out, 'git process', 'git processes')} left out; with them: --json")
    if follow:
        for rows in new_rows(site, last, trace, routine=as_json):
            yield from map(as_row, rows)
