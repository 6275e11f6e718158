"""The one writer: a thread, a queue of batches, one transaction for all that are queued."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from placet.activity import CommittedRow
from placet.errors import MISTAKES, PlacetError
from placet.journal.batches import Batch, Batches
from placet.journal.connection import connect_file, plain_errors
from placet.journal.database import DatabaseAway
from placet.journal.place import address_of, database_of
from placet.journal.reader import Reader, open_reader
from placet.journal.store import store_of
from placet.journal.transaction import Leases, prepare
from placet.journal.writes import Change, Committed, JournalPaused, Write

_WAIT_S = 0.5
_GROUP_JOBS = 1_000  # bounds how long the first of a long queue waits for its answer


class Journal:
    """The one writer of a vault's journal. A context manager; `close` when done.

    Opening creates, migrates and checks the database, and sets a damaged one aside: `set_aside`
    then names it, and the new one is empty. It raises UserError for a newer schema, a
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
        self._on_trouble = on_trouble
        self._on_wait = on_wait
        self._on_rows = on_rows
        self._queue: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._claims = threading.Lock()
        self._give_up = threading.Event()
        self.guard: Change | None = None
        """A write that begins every batch: where it fails, nothing of the batch is written."""
        self._closed = False
        self._failure: BaseException | None = None
        self._asking: sqlite3.Connection | None = None
        self._store = store_of(self._path, now=now, boottime_s=boottime_s, say=on_trouble)
        self.set_aside = self._store.set_aside
        self._batches = Batches(
            self._store,
            Leases(boot_id, one_clock=self._store.is_shared),
            now=now,
            boottime_s=boottime_s,
            on_trouble=on_trouble,
            on_wait=on_wait,
            give_up=self._give_up,
        )
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        guarded = writes if self.guard is None else [self.guard, *writes]
        return self._enqueue(Batch([prepare(write) for write in guarded], durable, Future()))

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:
        """Commit a batch and return its answer; see `submit`. Waits while it cannot be written."""
        return self.submit(writes, durable=durable).result()

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        """Yield a reader of one snapshot. Leave it soon: it delays checkpoints.

        While a database cannot be reached this waits, as `commit` does.
        """
        if not (address := address_of(self._path)):
            with open_reader(self._path) as reader:
                yield reader
            return
        with database_of(address).patient(address, self._wait) as connection:
            yield Reader(connection)

    @contextlib.contextmanager
    def ask(self) -> Iterator[Reader]:
        """Yield a reader for single queries, each of which sees all that is committed.

        Its connection stays open, for the loop's thread, which asks often. Once the journal is
        closed, or where it is no file, this is as `read`.
        """
        if self._closed or self._store.is_shared:
            with self.read() as reader:
                yield reader
            return
        with plain_errors(self._path):
            if self._asking is None:
                self._asking = connect_file(self._path, one_thread=False)
            yield Reader(self._asking)

    def stop_waiting(self) -> None:
        """From now on refuse what cannot be written at once, with JournalPaused.

        Safe in any thread. Waiting for a full disk would keep a daemon from ending.
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

    def _wait(self, error: DatabaseAway) -> None:
        """Wait before the next attempt to read; raises JournalPaused once that is over."""
        why = f"the journal {self._store.name} cannot be read: {error}"
        self._on_wait(why)
        if self._give_up.wait(_WAIT_S):
            raise JournalPaused(f"{why}; closed before it could be read")

    def _enqueue(self, job: Batch) -> Future[Any]:
        with self._claims:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise JournalPaused("the journal is closed")
            self._queue.put(job)
        return job.future

    # what the writer's thread does

    def _run(self) -> None:
        group: list[Batch] = []
        try:
            last = False
            while not last:
                group, last = self._next_group()
                self._finish(group)
                group = []
            self._store.checkpoint()
        except BaseException as error:  # a dead writer must fail its callers, or they hang
            self._fail(error, group)
        finally:
            self._store.connection.close()

    def _next_group(self) -> tuple[list[Batch], bool]:
        """Wait for a job, then take all queued ones; return them, and whether they are the last."""
        group: list[Batch] = []
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

    def _finish(self, group: list[Batch]) -> None:
        """Commit those of the group that are still wanted, and answer them.

        Where a value of theirs cannot be stored, each is committed alone, and that one fails.
        """
        group = [job for job in group if _wanted(job.future)]
        if not group:
            return
        try:
            rows, answers = self._batches.commit(group)
        except self._store.bad_values as error:
            if len(group) == 1:
                group[0].future.set_exception(_refusal(error))
            for job in group if len(group) > 1 else ():
                self._finish([job])
            return
        for job, answer in zip(group, answers, strict=True):
            if isinstance(answer, BaseException):
                job.future.set_exception(_refusal(answer))
            else:
                job.future.set_result(answer)
        if rows and self._on_rows is not None:
            self._on_rows([CommittedRow(*row) for row in rows])

    def _fail(self, error: BaseException, group: list[Batch]) -> None:
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


def _refusal(error: BaseException) -> BaseException:
    """Return an error of the database about one value as one that holds up its case alone."""
    known = (PlacetError, *MISTAKES)
    return error if isinstance(error, known) else ValueError(f"cannot be stored: {error}")


def _wanted(future: Future[Any]) -> bool:
    """Claim a future, so that it cannot be cancelled; return False if it was."""
    return future.running() or future.set_running_or_notify_cancel()
