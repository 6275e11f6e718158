"""Load what other packages add to placet: journals, workers, commands and doctor's checks.

A plug-in is an entry point of an installed distribution. It names the extra that it needs, so that
placet can say which command installs what is missing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from placet.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

JOURNALS = "placet.journals"
"""Databases for the journal, by address scheme."""
WORKERS = "placet.workers"
"""Work on other machines: `team` for the daemon, `status` for commands that show a case."""
COMMANDS = "placet.commands"
"""Commands of the command line, by name."""
CHECKS = "placet.checks"
"""Checks of `placet doctor`."""


@cache  # a lookup reads what all installed packages say, 7 ms; each look at the journal needs one
def plugin(group: str, name: str) -> Any:
    """Load a plug-in. Raises UserError (exit code 2) if it, or a package it needs, is missing."""
    from importlib.metadata import entry_points  # loads email, which `placet status` never needs

    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        raise UserError(
            f"No installed package has {name!r} for {group}.",
            "Install placet again: pip install 'placet[board,team]'",
            exit_code=2,
        )
    return loaded(found)


def loaded(found: EntryPoint) -> Any:
    """Load an entry point. Raises UserError (exit code 2) if a package it needs is missing."""
    try:
        return found.load()
    except ModuleNotFoundError as error:
        raise UserError(
            f"The package {error.name} is not installed.",
            f"Install it: pip install 'placet[{','.join(found.extras)}]'",
            exit_code=2,
        ) from error
