"""Batches, committed in groups on the writer's connection: trouble of the machine is waited out."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from placet.core.wording import rfc3339
from placet.journal.errors import is_damage, is_full, may_pass, plainly, rollback
from placet.journal.files import (
    damaged,
    drop_ballast,
    identity_of,
    no_room,
    same_file,
    take_ballast,
)
from placet.journal.transaction import Leases, Prepared, Transaction
from placet.journal.writes import JournalPaused

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0
_BALLAST_S = 60.0  # how long a disk that was full must have had room


@dataclass(slots=True)
class Batch:
    """One batch on its way, or one piece of work that needs the writer's connection to itself."""

    writes: Sequence[Prepared]
    durable: bool
    future: Future[Any]
    work: Callable[[sqlite3.Connection], Any] | None = None


class Batches:
    """Commits groups of batches. The callables are those of `Journal`; one thread uses it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        leases: Leases,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        on_trouble: Callable[[str], None],
        on_wait: Callable[[str], None],
        give_up: threading.Event,
    ) -> None:
        self._connection = connection
        self._path = path
        self._leases = leases
        self._now = now
        self._boottime_s = boottime_s
        self._on_trouble = on_trouble
        self._on_wait = on_wait
        self._give_up = give_up
        self._identity = identity_of(path)
        self._full_sync = False
        # when to look for room for another ballast, once one was given up
        self._ballast_after_s = 0.0
        take_ballast(path)

    def commit(self, group: Sequence[Batch]) -> tuple[list[tuple[Any, ...]], list[Any]]:
        """Commit a group; return the events' rows, and an answer for each batch.

        Trouble that passes is told once and waited out. Raises JournalPaused once it is time to
        `give_up`, JournalDamaged, and errors that do not pass.
        """
        delay_s, trouble = _FIRST_DELAY_S, ""
        since_s = self._boottime_s()
        while True:
            try:
                if not same_file(self._path, self._identity):
                    raise OSError(  # noqa: TRY301 - retried below, as any error of the system
                        f"{self._path.name} was moved, deleted or replaced; put it back, or restart"
                        " the daemon: it takes up what reports and branches tell, and begins a new"
                        " one"
                    )
                outcome = self._transact(group)
                break
            except (sqlite3.Error, OSError) as error:
                rollback(self._connection)
                if self._has_freed_space(error):
                    continue
                if not trouble:
                    trouble = f"the journal {self._path} cannot be written: {plainly(error)}"
                    self._on_trouble(
                        f"{trouble}; everything waits, nothing is lost, "
                        "and it goes on by itself when this is fixed"
                    )
            self._on_wait(trouble)
            self.checkpoint()  # on a full disk the WAL itself may be what takes the space
            if self._give_up.wait(delay_s):
                raise JournalPaused(f"{trouble}; closed before it could be written")
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if trouble:
            self._on_trouble(
                f"the journal is written again, after {self._boottime_s() - since_s:.1f} s"
            )
        if self._ballast_after_s and self._boottime_s() >= self._ballast_after_s:
            take_ballast(self._path)
            self._ballast_after_s = self._boottime_s() + _BALLAST_S
        return outcome

    def checkpoint(self) -> None:
        """Move the WAL into the database and empty it, if the disk and the readers allow it."""
        # the rest is as safe in the WAL
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _has_freed_space(self, error: sqlite3.Error | OSError) -> bool:
        """Return whether the ballast made room; raises for an error that does not pass."""
        if is_damage(error):
            raise damaged(self._path, error) from error
        if not may_pass(error):
            raise error
        if not ((is_full(error) or no_room(self._path)) and drop_ballast(self._path)):
            return False
        self._on_trouble(
            f"the disk of the journal {self._path} is full; it goes on in the space"
            " kept for that. Make room now"
        )
        self._ballast_after_s = self._boottime_s() + _BALLAST_S
        return True

    def _transact(self, group: Sequence[Batch]) -> tuple[list[tuple[Any, ...]], list[Any]]:
        if group[0].work is not None:
            return [], [group[0].work(self._connection)]
        full_sync = any(job.durable for job in group)
        if full_sync is not self._full_sync:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
            self._full_sync = full_sync
        transaction = Transaction(
            self._connection,
            self._path.parent / "blobs",
            self._leases,
            now=rfc3339(self._now()),
            now_s=self._boottime_s(),
        )
        answers = [transaction.answer(job.writes) for job in group]
        return transaction.commit(), answers
