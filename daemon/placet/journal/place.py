"""The place of a journal: a file of SQLite's, or PostgreSQL."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from placet.core.errors import UserError

VAULT = "vault"
"""The name of the lease on the vault, and the digest under which its id is kept."""


@cache
def must_have_driver() -> None:
    """Raise UserError (exit code 2) where psycopg is not installed."""
    if find_spec("psycopg") is None:
        raise UserError(
            "What reaches PostgreSQL is not installed here.",
            "Install it: pip install 'placet[team]'",
            exit_code=2,
        )


def address_file(path: Path) -> Path:
    """Return the file with the database's address, beside where SQLite's file would be."""
    return path.with_suffix(".pg")


def address_of(path: Path) -> str:
    """Return the address of a journal in PostgreSQL; empty for one in the file `path`.

    Raises UserError where nothing is installed to reach it.
    """
    try:
        found = address_file(path).read_text("utf-8").strip()
    except FileNotFoundError:
        return ""
    must_have_driver()
    return found


def is_begun(path: Path) -> bool:
    """Return whether there is a journal."""
    return path.exists() or address_file(path).exists()


def must_be_of(vault_id: str, kept: bytes | None) -> None:
    """Raise UserError unless a journal is this vault's; `kept` is what it has as VAULT."""
    if kept not in (None, vault_id.encode()):
        raise UserError(
            "That database holds the journal of another vault, and was left as it is.",
            "Each vault has a database of its own: placet team init ADDRESS",
            exit_code=2,
        )
