"""The database that the settings name, and the one that the journal is in."""

from __future__ import annotations

import shlex

from placet.core.errors import UserError
from placet.host.state import StateFolder, write_private
from placet.host.tables import Config
from placet.journal.place import address_file, address_of, must_have_driver


def must_be_there(config: Config, state: StateFolder) -> None:
    """Make sure that the journal is where the settings say, before it is opened.

    Where there is none yet it begins there. Raises UserError where it has to be moved first, and
    for a database that cannot be used.
    """
    there, wanted = address_of(state.journal), config.team.database
    if there == wanted:
        if wanted:
            _make_ready(wanted)
        return
    if not there and not state.journal.exists():
        _make_ready(wanted)
        write_private(address_file(state.journal), f"{wanted}\n".encode())
        return
    vault = shlex.quote(str(state.vault))
    raise UserError(
        "The journal is "
        + (f"in the database {there}" if there else f"in the file {state.journal}")
        + ", and [team] database names "
        + (f"{wanted}." if wanted else "none."),
        f"Move it: placet journal move --vault {vault}",
    )


def _make_ready(address: str) -> None:
    must_have_driver()
    from placet_team.postgres_schema import make_ready

    make_ready(address)
