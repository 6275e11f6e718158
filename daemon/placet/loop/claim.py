"""Make sure that a vault has one daemon and that its journal is the one from last time."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from placet.case.lease import Owner
from placet.disk.errors import (
    AlreadyThere,
    Gone,
    NotAFile,
    Stale,
    TooLarge,
    Unreadable,
    VaultTrouble,
)
from placet.disk.files import is_missing, put
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.host.clock import Clock
from placet.host.config import Config, write_setting
from placet.host.lock import MarkerLock, VaultLock
from placet.host.state import MARK, StateFolder, is_replaced, known_id, original_of, vault_state
from placet.journal.database import DatabaseAway, address_file, address_of, database_of
from placet.journal.writer import JournalAccess
from placet.journal.writes import PutText
from placet.note.paths import MARKER, TWIN


def lock_vault(
    folder: Vault,
    env: Mapping[str, str],
    owner: Owner,
    clock: Clock,
    say: Callable[[str], None],
    stack: ExitStack,
    *,
    take_over: bool = False,
) -> tuple[StateFolder, MarkerLock]:
    """Lock the vault for this process; return its state folder, and the lock on its marker.

    Both the vault and the state folder are locked: several paths, users and state folders can lead
    to one vault. Raises UserError if another daemon holds a lock, and for another vault at the
    place of a known one, unless it is to be taken over: its settings would be accepted unseen.
    """
    vault, marker = folder.root, folder.root / MARKER
    if folder.marker() is None:
        folder.create_marker(known_id(vault, env) or os.urandom(16).hex())
    if original_of(vault, env) is not None:
        with MarkerLock(marker, say):  # no other daemon uses it under its old id
            original = original_of(vault, env)
        if original is not None:
            folder.renew_marker(os.urandom(16).hex())
            say(
                f"This vault is a copy of {original}, which still exists. placet gives it a new id "
                "and a new journal."
            )
    state = vault_state(vault, env)
    if not take_over and is_replaced(vault, env):
        raise UserError(
            f"{marker} names another vault than the one that was here. Its settings would be "
            "accepted unseen.",
            "Put the old id back: delete that file, then type placet init. Or, if this is another "
            "vault: placet run --take-over",
            exit_code=2,
        )
    state.ensure()
    stack.enter_context(VaultLock(state.lock, owner, clock.now()))
    lock = stack.enter_context(MarkerLock(marker, say))
    with suppress(OSError):
        state.sweep()
    return state, lock


def claim(
    vault: Path, config: Config, host: str, say: Callable[[str], None], *, take_over: bool
) -> None:
    """Make sure that the vault is this machine's.

    Raises ClaimedElsewhere if another machine's daemon has claimed it. With `take_over` it is
    claimed for this one.
    """
    if take_over and config.vault.host not in ("", host):
        write_setting(vault, ("vault", "host"), host)
        say(f"Taken over from {config.vault.host}.")
    else:
        refuse_claimed(config, host)


class ClaimedElsewhere(UserError):  # noqa: N818 - named for what is the case
    """Another machine's daemon has claimed the vault."""


def refuse_claimed(config: Config, host: str) -> None:
    """Raise ClaimedElsewhere if another machine's daemon has claimed the vault."""
    if config.vault.host not in ("", host):
        raise ClaimedElsewhere(
            f"The daemon of {config.vault.host} works on this vault ([vault] host in "
            f"System/placet.toml). This machine is {host}.",
            "Two daemons on one synced vault would do everything twice. Stop the other, then: "
            "placet run --take-over",
            exit_code=2,  # so that systemd does not start it again
        )


def knows_its_marks(journal: JournalAccess, mark: Path, folder: Vault) -> bool:
    """Return whether the journal is the one that the last daemon left, neither older nor new.

    Two marks, next to the journal and in the vault, name its last event.
    """
    marks: list[bytes] = []
    with suppress(Unreadable):
        marks.append(folder.read(TWIN)[0])
    try:
        marks.append(mark.read_bytes())
    except FileNotFoundError:
        pass
    except OSError:
        return False
    with journal.read() as reader:
        named = (one.decode("ascii", "replace").strip().partition(" ") for one in marks)
        return all(row.isdecimal() and reader.knows(int(row), end) for row, _, end in named)


def mark_end(journal: JournalAccess, mark: Path, folder: Vault) -> None:
    """Mark the journal's last event. If that fails, an older mark is good enough."""
    with journal.ask() as reader:
        row_id, row_hash = reader.last()
    text = f"{row_id} {row_hash}\n".encode()
    # Synced first: if a power cut lost an event that a mark names, the journal would look older.
    journal.commit([PutText(MARK, text)], durable=True)
    with suppress(OSError):
        put(mark, text)
    with suppress(VaultTrouble, Stale, NotAFile, TooLarge, AlreadyThere):
        if not folder.is_present():
            return
        try:
            folder.edit(TWIN, lambda _: text)
        except Gone:
            folder.publish(TWIN, text)


AWAY_RETRY_S = 1.0
"""Retry interval of a daemon that starts while its database is away."""


def must_be_there(
    config: Config,
    state: StateFolder,
    on_wait: Callable[[str], None],
    ending: threading.Event,
) -> None:
    """Check that the journal is where the settings say, before it is opened.

    Create a missing journal. While the database is away, wait, and call `on_wait` with the reason
    at each retry. Raises UserError if the journal has to be moved first, if the database cannot be
    used, or if it is away when `ending` is set.
    """
    found, wanted = address_of(state.journal), config.team.database
    if found == wanted:
        if wanted:
            _create_tables(wanted, on_wait, ending)
        return
    if not found and is_missing(state.journal):
        _create_tables(wanted, on_wait, ending)
        put(address_file(state.journal), f"{wanted}\n".encode())
        return
    vault = shlex.quote(str(state.vault))
    raise UserError(
        "The journal is "
        + (f"in the database {found}" if found else f"in the file {state.journal}")
        + ", and [team] database names "
        + (f"{wanted}." if wanted else "none."),
        f"Move it: placet journal move --vault {vault}",
    )


def _create_tables(address: str, on_wait: Callable[[str], None], ending: threading.Event) -> None:
    while True:
        try:
            database_of(address).create_tables(address)
        except UserError as error:
            if not isinstance(error.__cause__, DatabaseAway):
                raise
            on_wait(f"{error.what} placet keeps trying. To stop: Ctrl-C.")
            if ending.wait(AWAY_RETRY_S):
                raise
        else:
            return
