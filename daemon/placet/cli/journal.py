"""Show what happened, to people and programs: `placet journal`."""

from __future__ import annotations

import os

import click

from placet.cli.options import complete_ids, json_option, site_option
from placet.cli.screen import row_text, table_text
from placet.cli.terminal import echo, out, say
from placet.client.journal import journal_rows, move_journal, older_copy
from placet.client.site import Site
from placet.client.texts import json_text
from placet.errors import UserError
from placet.host.state import expand_home
from placet.journal.database import address_of
from placet.journal.maintenance import backup, examine
from placet.journal.reader import query


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
    where, kept = move_journal(site)
    click.echo(where)
    say(f"moved; the old one is kept as {kept}")


@journal_command.command("path")
@site_option
def journal_path_command(site: Site) -> None:
    """Print where the journal's database is."""
    click.echo(address_of(site.state.journal) or site.state.journal)
