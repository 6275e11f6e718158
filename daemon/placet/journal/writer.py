"""The one writer: a thread, a queue of batches, one transaction for all that are queued."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from placet.core.activity import CommittedRow
from placet.core.wording import rfc3339
from placet.journal.blobs import remove_temporaries
from placet.journal.errors import is_damage, is_full, may_pass, plainly, rollback
from placet.journal.files import (
    drop_ballast,
    identity_of,
    no_room,
    remove_partials,
    same_file,
    suspect,
    take_ballast,
)
from placet.journal.maintenance import ARCHIVING, archive
from placet.journal.opening import open_journal
from placet.journal.reader import Reader, connect, open_reader, plain_errors
from placet.journal.transaction import Leases, Prepared, Transaction, prepare
from placet.journal.writes import Committed, JournalDamaged, JournalPaused, Write

_GROUP_JOBS = 1_000  # bounds how long the first of a long queue waits for its answer
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0
_BALLAST_S = 60.0  # how long a disk that was full must have had room


@dataclass(slots=True)
class _Batch:
    """One batch on its way, or one piece of work that needs the writer's connection to itself."""

    writes: Sequence[Prepared]
    durable: bool
    future: Future[Any]
    work: Callable[[sqlite3.Connection], Any] | None = None


class Journal(contextlib.AbstractContextManager["Journal"]):
    """The one writer of a vault's journal. A context manager; `close` when done.

    Opening creates, migrates and checks the database, and sets a damaged one aside: `set_aside`
    then names it, and the caller rebuilds the cases. It raises UserError for a newer schema, a
    read-only or full place, and a lock that another program holds for over 30 s.

    `now` is for times that people read; `boottime_s` and `boot_id` are the clock of leases.
    `on_trouble` gets a sentence when writing stops and when it goes on, `on_wait` the same sentence
    at each retry, at least every second, and `on_rows` each transaction's new events once they are
    answered. They run in the writer's thread and must be quick and not raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        boot_id: str,
        on_trouble: Callable[[str], None],
        on_rows: Callable[[Sequence[CommittedRow]], None] | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path.absolute()
        self._now = now
        self._boottime_s = boottime_s
        self._leases = Leases(boot_id)
        self._on_trouble = on_trouble
        self._on_rows = on_rows
        self._on_wait = on_wait
        self._blobs = self._path.parent / "blobs"
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._claims = threading.Lock()
        self._give_up = threading.Event()
        self._closed = False
        self._failure: BaseException | None = None
        self._full_sync = False
        self._asking: sqlite3.Connection | None = None
        # when to look for room for another ballast, once one was given up
        self._ballast_after_s = 0.0
        self._connection, self.set_aside = open_journal(self._path, now, on_trouble)
        try:
            remove_temporaries(self._blobs)
            remove_partials(self._path, f".{self._path.stem}{ARCHIVING}")
            self._identity = identity_of(self._path)
            take_ballast(self._path)
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The database."""
        return self._path

    def submit(self, writes: Sequence[Write], *, durable: bool = False) -> Future[Committed]:
        """Queue a batch; the future is done after its commit.

        The future fails with Conflict, LeaseLost or LeaseHeld. `durable` makes the commit survive a
        power cut (`synchronous=FULL`); ask for it before an outside effect. Raises ValueError or
        TypeError for metadata that is no JSON, and JournalPaused if the journal is closed.
        """
        return self._enqueue(_Batch([prepare(write) for write in writes], durable, Future()))

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:
        """Commit a batch and return its answer; see `submit`. Waits while it cannot be written."""
        return self.submit(writes, durable=durable).result()

    def read(self) -> contextlib.AbstractContextManager[Reader]:
        """Return a reader of one snapshot. Close it soon: it delays checkpoints."""
        return open_reader(self._path)

    @contextlib.contextmanager
    def ask(self) -> Iterator[Reader]:
        """Yield a reader for single queries, each of which sees all that is committed.

        Its connection stays open, for the loop's thread, which asks often. Once the journal is
        closed this is as `read`.
        """
        if self._closed:
            with self.read() as reader:
                yield reader
            return
        with plain_errors(self._path):
            if self._asking is None:
                self._asking = connect(self._path, one_thread=False)
            yield Reader(self._asking, self._blobs)

    def archive(
        self, before: str, *, keep: Collection[str] = (), most: int = 1_000_000
    ) -> Path | None:
        """Move up to `most` of the oldest events to a database next to the journal; None for none.

        They end before the first event that is not older than `before` (a row's timestamp), or that
        belongs to a trace in `keep` (open cases). Records and done commands of traces without other
        events go with them. Return the archive: while its name ends in `ARCHIVING` there is more to
        move, in this life or another. Then it is a journal for readers, `verify` and queries, and
        shares `blobs/`. A crash leaves both copies, never none.
        """
        kept = frozenset(keep)
        job = _Batch(
            (),
            durable=True,
            future=Future(),
            work=lambda connection: archive(connection, self._path, before, kept, most),
        )
        path: Path | None = self._enqueue(job).result()
        return path

    def stop_waiting(self) -> None:
        """From now on refuse what cannot be written at once, with JournalPaused.

        Safe in a signal handler. Waiting for a full disk would keep a daemon from ending.
        """
        self._give_up.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Commit what is queued, checkpoint, close.

        Batches that cannot be written in `timeout_s` raise JournalPaused at their callers.
        """
        with self._claims:
            first = not self._closed
            self._closed = True
            if first:
                self._queue.put(None)
        if first and self._asking is not None:
            self._asking.close()  # first, or it keeps the WAL from being taken away
        self._thread.join(timeout_s)
        self._give_up.set()
        self._thread.join()

    # what callers' threads do

    def _enqueue(self, job: _Batch) -> Future[Any]:
        with self._claims:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise JournalPaused("the journal is closed")
            self._queue.put(job)
        return job.future

    # what the writer's thread does

    def _run(self) -> None:
        group: list[_Batch] = []
        try:
            last = False
            while not last:
                group, last = self._next_group()
                self._write(group)
                group = []
            self._checkpoint()
        except BaseException as error:  # a dead writer must fail its callers, or they hang
            self._fail(error, group)
        finally:
            self._connection.close()

    def _checkpoint(self) -> None:
        """Move the WAL into the database and empty it, if the disk and the readers allow it."""
        # the rest is as safe in the WAL
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _next_group(self) -> tuple[list[_Batch], bool]:
        """Wait for a job, then take all queued ones; return them, and whether they are the last."""
        group: list[_Batch] = []
        job = self._queue.get()
        while job is not None:
            group.append(job)
            if len(group) == _GROUP_JOBS:
                return group, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write(self, group: list[_Batch]) -> None:
        """Finish all jobs, in order; one with work of its own gets the connection alone."""
        start = 0
        for i, job in enumerate(group):
            if job.work is not None:
                self._until_done(group[start:i])
                self._until_done([job])
                start = i + 1
        self._until_done(group[start:])

    def _until_done(self, group: list[_Batch]) -> None:
        """Try until the group is committed; passing trouble is told once and waited out."""
        group = [job for job in group if _wanted(job.future)]
        if not group:
            return
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
            self._checkpoint()  # on a full disk the WAL itself may be what takes the space
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
        self._answer(group, *outcome)

    def _answer(self, group: list[_Batch], rows: list[tuple[Any, ...]], answers: list[Any]) -> None:
        for job, answer in zip(group, answers, strict=True):
            if isinstance(answer, BaseException):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
        if rows and self._on_rows is not None:
            self._on_rows([CommittedRow(*row) for row in rows])

    def _has_freed_space(self, error: sqlite3.Error | OSError) -> bool:
        """Return whether the ballast made room; raises for an error that does not pass."""
        if is_damage(error):
            suspect(self._path)
            raise JournalDamaged(
                f"the journal {self._path} is damaged: {error}",
                "restart the daemon: it sets the file aside and begins a new one",
            ) from error
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

    def _transact(self, group: list[_Batch]) -> tuple[list[tuple[Any, ...]], list[Any]]:
        """Run a group as one transaction; return the events' rows, and an answer for each batch."""
        if group[0].work is not None:
            return [], [group[0].work(self._connection)]
        full_sync = any(job.durable for job in group)
        if full_sync is not self._full_sync:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
            self._full_sync = full_sync
        transaction = Transaction(
            self._connection,
            self._blobs,
            self._leases,
            now=rfc3339(self._now()),
            now_s=self._boottime_s(),
        )
        answers = [transaction.answer(job.writes) for job in group]
        return transaction.commit(), answers

    def _fail(self, error: BaseException, group: list[_Batch]) -> None:
        """Refuse everything queued, and everything to come."""
        with self._claims:
            self._failure = error
            self._closed = True
        while True:
            for job in group:
                if not job.future.done() and _wanted(job.future):
                    job.future.set_exception(error)
            try:
                job_or_end = self._queue.get_nowait()
            except queue.Empty:
                break
            group = [job_or_end] if job_or_end is not None else []
        self._on_trouble(f"the journal has stopped: {error}")


def _wanted(future: Future[Any]) -> bool:
    """Claim a future, so that it cannot be cancelled; return False if it was."""
    return future.running() or future.set_running_or_notify_cancel()
