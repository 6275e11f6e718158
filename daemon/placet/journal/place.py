"""The place of a journal: a file of SQLite's, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from placet.errors import UserError
from placet.journal.database import Database
from placet.plugins import JOURNALS, plugin

VAULT = "vault"
"""The name of the lease on the vault, and the digest under which its id is kept."""


def address_file(path: Path) -> Path:
    """Return the file with the database's address, beside where SQLite's file would be."""
    return path.with_suffix(".pg")


def address_of(path: Path) -> str:
    """Return the address of a journal on a server; empty for one in the file `path`."""
    try:
        return address_file(path).read_text("utf-8").strip()
    except FileNotFoundError:
        return ""


def database_of(address: str) -> Database:
    """Return the plug-in for a server's address. Raises UserError where it is not installed."""
    found: Database = plugin(JOURNALS, address.partition(":")[0])
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
