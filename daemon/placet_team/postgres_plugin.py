"""Keep the journal in PostgreSQL: the plug-in that `placet.journal.database.Database` describes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from placet.case.lease import Owner
from placet.errors import UserError
from placet.host.lock import is_alive
from placet.journal.database import VAULT, DatabaseAway
from placet.journal.reader import snapshot as snapshot_of
from placet.journal.writer import Journal
from placet.journal.writes import (
    AcquireLease,
    JournalPaused,
    LeaseHeld,
    LeaseLost,
    PutText,
    ReleaseLease,
    RenewLease,
)
from placet_team.journal_copy import copy_tables, move_in, move_out, new_journal
from placet_team.postgres import ROWS, PostgresStore, announcements
from placet_team.postgres_reader import PatientConnection, query, snapshot
from placet_team.postgres_schema import create_tables

__all__ = [
    "backup",
    "changes",
    "create_tables",
    "lock",
    "move_in",
    "move_out",
    "patient",
    "query",
    "snapshot",
    "store",
]

store = PostgresStore


def patient(
    address: str, wait: Callable[[DatabaseAway], None], *, one_moment: bool
) -> AbstractContextManager[PatientConnection]:
    """Give a reader that waits while the server is away."""
    return closing(PatientConnection(address, wait, one_moment=one_moment))


def changes(address: str, every_s: float) -> Iterator[None]:
    """Yield at once, after each change of the journal, and at least every `every_s`."""
    for _ in announcements(address, [ROWS], every_s, threading.Event()):
        yield


def backup(path: Path, target: Path) -> None:
    """Copy a journal to the file `target`."""
    with snapshot_of(path) as source, new_journal(target) as copy:
        copy_tables(source, copy)


LOOK_S = 1.0
"""Seconds after which a daemon that waits for the vault looks again."""


@dataclass(frozen=True, slots=True)
class KeepVault(RenewLease):
    """Renew the lease on the vault, or raise LeaseLost with a sentence for its daemon."""

    ELSE = (
        "another daemon took over this vault, because this one gave no sign of life; "
        "this one writes nothing more"
    )


@contextmanager
def lock(
    journal: Journal,
    vault_id: str,
    owner: Owner,
    ttl_s: float,
    say: Callable[[str], None],
    ending: threading.Event,
) -> Iterator[None]:
    """Hold the vault's lease, so that no other daemon writes into its journal.

    While another daemon holds it, wait. Take over `ttl_s` after its last sign of life. Each batch
    renews the lease, or fails with LeaseLost. Raises UserError if `ending` is set meanwhile, or if
    the journal belongs to another vault.
    """
    with journal.read() as reader:
        require_vault(vault_id, reader.text(VAULT))
    token = _taken(journal, AcquireLease(VAULT, owner, ttl_s), say, ending)
    journal.guard = KeepVault(VAULT, token, ttl_s)
    journal.commit([PutText(VAULT, vault_id.encode())])
    stop = threading.Event()

    def renew() -> None:
        with suppress(Exception):  # the loop meets it, too
            while not stop.wait(ttl_s / 3):
                journal.commit([])

    keeper = threading.Thread(target=renew, name="hold", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        journal.guard = None
        with suppress(JournalPaused, LeaseLost):
            journal.commit([ReleaseLease(VAULT, token)])


def _taken(
    journal: Journal, want: AcquireLease, say: Callable[[str], None], ending: threading.Event
) -> int:
    reported, dead_token = False, None
    while True:
        try:
            return journal.commit(
                [AcquireLease(want.trace_id, want.owner, want.ttl_s, dead_token)], durable=True
            ).token
        except LeaseHeld as held:
            other = held.lease
        same_host = other.owner.host == want.owner.host
        if same_host and dead_token != other.token and not is_alive(other.owner):
            dead_token = other.token
            continue
        if not reported:
            say(
                f"The daemon with {other.owner} works on this vault. This one waits, and takes "
                f"over when that one has given no sign of life for {other.ttl_s:g} s."
            )
            reported = True
        if ending.wait(LOOK_S):
            raise UserError(
                f"Stopped. The daemon with {other.owner} still works on this vault.",
                "You need do nothing.",
            )


def require_vault(vault_id: str, kept: bytes | None) -> None:
    """Raise UserError unless a journal is this vault's; `kept` is what it has as VAULT."""
    if kept not in (None, vault_id.encode()):
        raise UserError(
            "That database holds the journal of another vault, and was left as it is.",
            "Each vault has its own database: placet team init ADDRESS",
            exit_code=2,
        )
