"""Read, check and move the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placet.activity import CommittedRow
from placet.client.rows import Row, as_row, new_rows
from placet.client.site import Site, find
from placet.errors import UserError
from placet.journal.database import address_of, database_of, is_begun
from placet.journal.maintenance import Examined
from placet.journal.reader import open_reader
from placet.wording import counted

LAST = 50
"""Rows of the journal that are shown unless another number is asked for."""


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
        site.say(f"{counted(left_out, 'git process', 'git processes')} left out; with them: --json")
    if follow:
        for rows in new_rows(site, last, trace, routine=as_json):
            yield from map(as_row, rows)


def older_copy(found: Examined) -> tuple[str, str]:
    """Return what to say of an undamaged journal that lacks its newest rows, and what helps."""
    return (
        f"The journal is an older copy, as after a restore. Its rows are whole up to row "
        f"{found.last_id}; the daemon left it at row {found.lost_row}.",
        "If you restored it, start the daemon: placet run. If not, somebody cut rows off: restore "
        "a backup.",
    )


def move_journal(site: Site) -> tuple[str, str]:
    """Move the journal to where [team] database says; return where it is, and what is kept.

    All of it is copied and compared. Raises UserError if it is there already, or a daemon runs.
    """
    # those who only look need not wait for these
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
    return str(wanted or state.journal), kept
