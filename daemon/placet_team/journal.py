"""The journal in PostgreSQL, as `placet.journal.database.Database` describes a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

from placet.journal.database import DatabaseAway
from placet.journal.reader import snapshot as snapshot_of
from placet_team.moving import copy_tables, new_journal
from placet_team.moving import to_database as move_in
from placet_team.moving import to_file as move_out
from placet_team.postgres import ROWS, PostgresStore, announcements
from placet_team.postgres_reader import PatientConnection
from placet_team.postgres_reader import postgres_snapshot as snapshot
from placet_team.postgres_reader import query_postgres as query
from placet_team.postgres_schema import make_ready
from placet_team.vault_lock import held_vault as lock

__all__ = [
    "backup",
    "changes",
    "lock",
    "make_ready",
    "move_in",
    "move_out",
    "patient",
    "query",
    "snapshot",
    "store",
]


def store(address: str) -> PostgresStore:
    """Open a journal for its one writer."""
    return PostgresStore(address)


def patient(
    address: str, wait: Callable[[DatabaseAway], None]
) -> AbstractContextManager[PatientConnection]:
    """Give a reader that waits while the server is away."""
    return closing(PatientConnection(address, wait))


def changes(address: str, every_s: float) -> Iterator[None]:
    """Yield at once, after each change of the journal, and at least every `every_s`."""
    return announcements(address, ROWS, every_s, threading.Event())


def backup(path: Path, target: Path) -> None:
    """Copy a journal to the file `target`."""
    with snapshot_of(path) as there, new_journal(target) as copy:
        copy_tables(there, copy)
