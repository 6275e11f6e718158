"""Batches, committed in groups on the writer's connection: trouble of the machine is waited out."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from placet.core.wording import rfc3339
from placet.journal.database import Store
from placet.journal.errors import plainly, rollback
from placet.journal.transaction import Leases, Prepared, Transaction
from placet.journal.writes import JournalPaused

Outcome = tuple[list[tuple[Any, ...]], list[Any]]
"""The rows of a group's events, and an answer for each of its batches."""

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0


@dataclass(slots=True)
class Batch:
    """One batch on its way."""

    writes: Sequence[Prepared]
    durable: bool
    future: Future[Any]


class Batches:
    """Commits groups of batches. The callables are those of `Journal`; one thread uses it."""

    def __init__(
        self,
        store: Store,
        leases: Leases,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        on_trouble: Callable[[str], None],
        on_wait: Callable[[str], None],
        give_up: threading.Event,
    ) -> None:
        self._store = store
        self._leases = leases
        self._now = now
        self._boottime_s = boottime_s
        self._on_trouble = on_trouble
        self._on_wait = on_wait
        self._give_up = give_up

    def commit(self, group: Sequence[Batch]) -> Outcome:
        """Commit a group; return the events' rows, and an answer for each batch.

        Trouble that passes is told once and waited out. Raises JournalPaused once it is time to
        `give_up`, JournalDamaged, and errors that do not pass. After any of them nothing is open.
        """
        delay_s, trouble, since_s = _FIRST_DELAY_S, "", self._boottime_s()
        sent: list[Outcome] = []  # of the transaction whose COMMIT was tried last
        while True:
            try:
                self._store.ready()
                if not (sent and self._store.was_kept()):
                    sent.clear()
                    self._attempt(group, sent)
                break
            except (sqlite3.Error, OSError) as error:
                rollback(self._store.connection)
                self._store.must_pass(error)
                if not trouble:
                    trouble = f"the journal {self._store.name} cannot be written: {plainly(error)}"
                    self._on_trouble(
                        f"{trouble}; everything waits, nothing is lost, "
                        "and it goes on by itself when this is fixed"
                    )
            except Exception:
                rollback(self._store.connection)
                raise
            self._on_wait(trouble)
            self._store.checkpoint()  # on a full disk the WAL itself may be what takes the space
            if self._give_up.wait(delay_s):
                raise JournalPaused(f"{trouble}; closed before it could be written")
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if trouble:
            self._on_trouble(
                f"the journal is written again, after {self._boottime_s() - since_s:.1f} s"
            )
        return sent[0]

    def _attempt(self, group: Sequence[Batch], sent: list[Outcome]) -> None:
        """Commit the group; its outcome is added to `sent` right before the COMMIT."""
        transaction = Transaction(
            self._store,
            self._leases,
            now=rfc3339(self._now()),
            durable=any(job.durable for job in group),
        )
        alone = len(group) == 1
        answers = [transaction.answer(job.writes, alone=alone) for job in group]
        sent.append((transaction.write(), answers))
        if self._store.connection.in_transaction:
            self._store.connection.execute("COMMIT")
