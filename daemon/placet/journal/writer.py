"""Write the journal in one thread: a queue of batches, one transaction for all queued ones."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self

from placet.activity import CommittedRow
from placet.case.lease import Owner, may_take
from placet.disk.files import identity_of
from placet.errors import BUGS, PlacetError, UserError
from placet.journal import schema
from placet.journal.chain import Chain, EncodedRow, encode_row, utf8
from placet.journal.database import Connection, Store, address_of, database_of, upsert
from placet.journal.errors import (
    BUSY_MS,
    CACHE_KB,
    LOCKED,
    is_damage,
    may_pass,
    plainly,
    primary_code,
    rollback,
)
from placet.journal.file import (
    check,
    damaged,
    finish_rollback,
    make_private_file,
    set_aside,
)
from placet.journal.maintenance import backup
from placet.journal.reader import (
    PatientFile,
    Reader,
    lease_of,
    plain_errors,
)
from placet.journal.schema import must_be_released, schema_of
from placet.journal.writes import (
    AcquireLease,
    AddActivity,
    Change,
    Committed,
    Enqueue,
    JournalPaused,
    LeaseHeld,
    Write,
    hashed_body,
)
from placet.wording import rfc3339

Prepared = EncodedRow | AcquireLease | Change


def prepare(write: Write) -> Prepared:
    """Return a write as `apply` takes it; ValueError or TypeError for what cannot be stored."""
    return encode_row(write.activity) if isinstance(write, AddActivity) else write


class Leases:
    """Grants leases, by the clock that they run on.

    `now_s` are seconds since the boot `boot_id`, or, with `one_clock`, on a database's clock.
    """

    def __init__(self, boot_id: str, *, one_clock: bool) -> None:
        self._boot_id = boot_id
        self._one_clock = one_clock
        # by trace_id: token and heartbeat of a lease that was refused, and since when they are so
        self._still: dict[str, tuple[int, float, float]] = {}

    def acquire(
        self, connection: Connection, want: AcquireLease, now: str, now_s: float
    ) -> tuple[int, Owner | None]:
        """Take a lease; return its token and the holder that had not released it.

        Raises LeaseHeld.
        """
        lease = lease_of(connection, want.trace_id)
        if lease is not None:
            token, heartbeat_s, seen_s = self._still.get(lease.trace_id, (0, 0.0, now_s))
            if (token, heartbeat_s) != (lease.token, lease.heartbeat_s):
                seen_s = now_s
            self._still[lease.trace_id] = (lease.token, lease.heartbeat_s, seen_s)
            if not may_take(
                lease,
                want.owner,
                now_s=now_s,
                still_for_s=now_s - seen_s,
                gone_token=want.gone_token,
                one_clock=self._one_clock,
            ):
                same_clock = self._one_clock or lease.owner.boot_id == self._boot_id
                raise LeaseHeld(lease, lease.expires_s - now_s if same_clock else None)
        token = lease.token + 1 if lease is not None else 1
        if self._one_clock:  # a database that is restored from a backup gives no token once more
            token = max(token, int(now_s * 1000))
        by = want.owner
        taken = {
            "trace_id": want.trace_id,
            "token": token,
            "host": by.host,
            "boot_id": by.boot_id,
            "pid": by.pid,
            "pid_start": by.pid_start,
            "held": True,
            "acquired_at": now,
            "heartbeat_s": now_s,
            "expires_s": now_s + want.ttl_s,
        }
        connection.execute(upsert("leases", *taken), taken)
        return token, lease.owner if lease is not None and lease.held else None


class Transaction:
    """One transaction. No other writer runs until its COMMIT, which the caller makes."""

    def __init__(self, store: Store, leases: Leases, *, now: str, durable: bool) -> None:
        self._leases = leases
        self._times: dict[str, Any] = {"now": now, "now_s": store.begin(durable=durable)}
        self._connection = store.connection
        self._chain = Chain(self._connection)

    def answer(self, batch: Sequence[Prepared], *, alone: bool = False) -> Committed | Exception:
        """Apply a batch as a whole, or none of it; return its answer or its error.

        The error of one that is `alone` in its transaction ends that. Raises OSError,
        sqlite3.OperationalError and damage: they belong to no batch.
        """
        execute = self._connection.execute
        mark = self._chain.mark()
        simple = all(isinstance(write, EncodedRow) for write in batch)
        apart = not (simple or alone)
        if apart:
            execute("SAVEPOINT batch")
        answer: Committed | Exception
        try:
            answer = self._apply(batch)
        except (sqlite3.OperationalError, OSError):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            self._chain.back_to(mark)
            execute("ROLLBACK" if alone else "ROLLBACK TO batch")
            answer = error
        if apart:
            execute("RELEASE batch")
        return answer

    def write(self) -> list[tuple[Any, ...]]:
        """Write the events, before the COMMIT; return their rows."""
        self._chain.write()
        return self._chain.rows

    def _apply(self, batch: Sequence[Prepared]) -> Committed:
        outbox: list[int] = []
        token, taken_from = 0, None
        told: Sequence[AddActivity] = ()
        for write in batch:
            if isinstance(write, EncodedRow):
                self._chain.append(write)
            elif isinstance(write, AcquireLease):
                token, taken_from = self._leases.acquire(self._connection, write, **self._times)
                if write.told is not None:
                    told = write.told(token, taken_from)
            else:
                found = self._change(write)
                if isinstance(write, Enqueue) and found is not None:
                    outbox.append(found[0])
        for row in told:
            self._chain.append(encode_row(row.activity))
        return Committed(tuple(outbox), token, taken_from)

    def _change(self, write: Change) -> tuple[Any, ...] | None:
        """Run a change's statements; return the row that the first one returns, if any."""
        values = dict(self._times)
        for field in fields(write):  # type: ignore[arg-type] # every Change is a dataclass
            value = getattr(write, field.name)
            if isinstance(value, bytes):
                values["sha256"], values["size"], value = hashed_body(value)
            values[field.name] = utf8(value) if isinstance(value, str) else value
        first, *more = write.SQL
        done = self._connection.execute(first, values)
        found: tuple[Any, ...] | None = done.fetchone()
        if write.ELSE and done.rowcount != 1 and found is None:
            raise write.ERROR(write.ELSE.format_map(values))
        for sql in more:
            self._connection.execute(sql, values)
        return found


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


_PATIENCE_S = 30.0  # how long a lock is waited for
_RETRY_S = 1.0
# 1 MB: a WAL that fills the disk by itself could never be checkpointed again
_CHECKPOINT_PAGES = 250
_WAL_LIMIT_BYTES = 4 * 1024 * 1024  # a WAL that grew (a long reader) is cut back to this
_SETTINGS = (
    f"busy_timeout = {BUSY_MS}",
    f"cache_size = -{CACHE_KB}",
    "cell_size_check = 1",
    "trusted_schema = 0",
    "synchronous = NORMAL",
    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
    f"journal_size_limit = {_WAL_LIMIT_BYTES}",
    # macOS: a plain fsync does not reach the disk; elsewhere these two do nothing
    "fullfsync = 1",
    "checkpoint_fullfsync = 1",
)


def open_journal(
    path: Path, now: Callable[[], datetime], say: Callable[[str], None]
) -> tuple[sqlite3.Connection, Path | None]:
    """Return the checked, migrated connection of the writer, and the name of a file set aside.

    Raises UserError for a newer schema, a read-only or full place, and a lock that another program
    holds for over 30 s; `say` is told that it waits.
    """
    waited_s, aside = 0.0, None
    while True:
        try:
            aside = _sound_file(path, now, say) or aside
            return _connect(path), aside
        except (sqlite3.Error, OSError) as error:
            if is_damage(error):  # in a page that the check of a large file does not read
                raise damaged(path, error) from error
            busy = isinstance(error, sqlite3.Error) and primary_code(error) in LOCKED
            if not busy or waited_s >= _PATIENCE_S:
                raise UserError(
                    f"cannot open the journal {path}: {plainly(error)}",
                    "check its permissions, the space on its disk, and who has it open",
                ) from error
        if not waited_s:
            say(f"the journal {path} is locked by another program; waiting for it")
        time.sleep(_RETRY_S)
        waited_s += _RETRY_S + BUSY_MS / 1000


def _sound_file(path: Path, now: Callable[[], datetime], say: Callable[[str], None]) -> Path | None:
    """Check the file, and copy one of an older schema; return the name of one set aside."""
    make_private_file(path)
    finish_rollback(path)
    damage, version = check(path)
    aside = None
    if damage:
        aside = set_aside(path, now())
        say(f"the journal was damaged ({damage}); it is kept as {aside}, and a new one was begun")
    must_be_released(version, path)
    if 0 < version < schema.latest():
        backup(path, path.with_name(f"journal.before-schema-{schema.latest()}.db"))
    return aside


def _connect(path: Path) -> sqlite3.Connection:
    make_private_file(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise UserError(  # noqa: TRY301 - closed below, as after any other error
                f"the journal {path} cannot use a write-ahead log (its mode stays {mode})",
                "set PLACET_STATE_HOME to a folder on a local disk",
            )
        if schema_of(connection, path) < schema.latest():
            schema.migrate(connection, schema.SCHEMA)
            schema_of(connection, path)  # a newer placet may have been faster
        # SQLite opens a read-only file without complaint, and fails at the first write only
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE chain SET last_id = last_id")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteStore:
    """A journal in a file of SQLite's."""

    is_shared = False
    bad_values: tuple[type[Exception], ...] = (
        OverflowError,
        TypeError,
        ValueError,
        sqlite3.DataError,
        sqlite3.IntegrityError,
        sqlite3.InterfaceError,
        sqlite3.ProgrammingError,
    )

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self.name = str(path)
        self._path = path
        self._boottime_s = boottime_s
        self.connection, self.set_aside = open_journal(path, now, say)
        try:
            for left in path.parent.glob(f".*{path.stem}*.tmp*"):  # unfinished copies
                left.unlink(missing_ok=True)
            self._identity = identity_of(path)
        except BaseException:
            self.connection.close()
            raise
        self._full_sync = False

    def ensure_writable(self) -> None:
        """Raise OSError if the path names another file or is gone: SQLite would write on."""
        if identity_of(self._path) != self._identity:
            raise OSError(
                f"{self._path.name} was moved, deleted or replaced; put it back, or restart the"
                " daemon: it begins a new one"
            )

    def begin(self, *, durable: bool) -> float:
        """Take the write lock; a `durable` commit is flushed."""
        if durable is not self._full_sync:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._full_sync = durable
        self.connection.execute("BEGIN IMMEDIATE")
        return self._boottime_s()

    def commit(self) -> None:
        """End the transaction that was begun last."""
        self.connection.execute("COMMIT")

    def was_kept(self) -> bool:
        """Return False: a COMMIT that failed was rolled back."""
        return False

    def must_pass(self, error: BaseException) -> None:
        """Raise JournalDamaged for damage, and an error that no wait helps against."""
        if is_damage(error):
            raise damaged(self._path, error) from error
        if not may_pass(error):
            raise error

    def checkpoint(self) -> None:
        """Move the WAL into the database and empty it, if the disk and the readers allow it."""
        # the rest is as safe in the WAL
        with contextlib.suppress(sqlite3.OperationalError):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class JournalAccess(Protocol):
    """What work needs of a journal: `Journal`, or what a team's worker has."""

    @property
    def path(self) -> Path:
        """The file of the journal, or one next to it: for checks of its disk."""

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:
        """Commit a batch; see `Journal.commit`."""

    def read(self) -> AbstractContextManager[Reader]:
        """Give a reader of one snapshot."""

    def ask(self) -> AbstractContextManager[Reader]:
        """Give a reader for single queries. Each query sees all that is committed."""


_WAIT_S = 0.5
_SAY_AGAIN_S = 60.0
"""Seconds without a wait after which trouble with reading is told anew."""
_GROUP_JOBS = 1_000  # bounds how long the first of a long queue waits for its answer


class Journal:
    """The one writer of a vault's journal. A context manager; `close` when done.

    Opening creates, migrates and checks the database, and sets a damaged one aside: `set_aside`
    then names it, and the new one is empty. It raises UserError for a newer schema, a
    read-only or full place, and a lock that another program holds for over 30 s.

    `now` is for times that people read; `boottime_s` and `boot_id` are the clock of leases.
    `on_trouble` gets a sentence when writing stops and when it resumes, `on_wait` the same sentence
    at each retry, at least every second. `on_rows` gets each transaction's new events after its
    answers. They run in the writer's thread, so they must be quick and not raise.
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
        self._asking: PatientFile | None = None
        self._asks = threading.Lock()
        self._waited_s = float("-inf")  # when a reader waited last
        if address := address_of(self._path):
            with plain_errors(self._path):
                self._store: Store = database_of(address).store(address)
        else:
            self._store = SqliteStore(self._path, now=now, boottime_s=boottime_s, say=on_trouble)
        self.set_aside = self._store.set_aside
        self._leases = Leases(boot_id, one_clock=self._store.is_shared)
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
        TypeError for metadata that is not JSON, and JournalPaused if the journal is closed.
        """
        guarded = writes if self.guard is None else [self.guard, *writes]
        return self._enqueue(Batch([prepare(write) for write in guarded], durable, Future()))

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:
        """Commit a batch and return its answer; see `submit`. Waits while it cannot be written."""
        return self.submit(writes, durable=durable).result()

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        """Yield a reader of one snapshot. Leave it soon: it delays checkpoints.

        While the journal cannot be read this waits, as `commit` does.
        """
        if not (address := address_of(self._path)):
            with (
                plain_errors(self._path),
                contextlib.closing(PatientFile(self._path, self._wait, one_moment=True)) as file,
            ):
                yield Reader(file)
            return
        with database_of(address).patient(address, self._wait, one_moment=True) as connection:
            yield Reader(connection)

    @contextlib.contextmanager
    def ask(self) -> Iterator[Reader]:
        """Yield a reader for single queries. Each query sees all that is committed.

        One connection to a file stays open, for one thread at a time. While another thread has it,
        and once the journal is closed, this is as `read`.
        """
        if address := address_of(self._path):
            with database_of(address).patient(address, self._wait, one_moment=False) as connection:
                yield Reader(connection)
            return
        if self._closed or not self._asks.acquire(blocking=False):
            with self.read() as reader:
                yield reader
            return
        try:
            with plain_errors(self._path):
                if self._asking is None:
                    self._asking = PatientFile(self._path, self._wait, one_moment=False)
                yield Reader(self._asking)
        finally:
            self._end_asking()

    def _end_asking(self) -> None:
        """Let another thread ask, or close the connection if the journal is closed."""
        if self._closed and self._asking is not None:
            self._asking.close()
            self._asking = None  # a thread that saw the journal open may still come
        self._asks.release()

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
        # first, or it keeps the WAL from being taken away; a thread that asks now does it then
        if first and self._asks.acquire(blocking=False):
            self._end_asking()
        self._thread.join(timeout_s)
        self._give_up.set()
        self._thread.join()

    # what callers' threads do

    def _wait(self, error: Exception) -> None:
        """Wait before the next attempt to read; raises JournalPaused after the last."""
        why = f"the journal {self._store.name} cannot be read: {plainly(error)}"
        before_s, self._waited_s = self._waited_s, self._boottime_s()
        if self._waited_s - before_s > _SAY_AGAIN_S:
            self._on_trouble(f"{why}; everything waits, and resumes when this is fixed")
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
            rows, answers = self._commit(group)
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

    def _commit(self, group: Sequence[Batch]) -> Outcome:
        """Commit a group; return the events' rows, and an answer for each batch.

        Trouble that passes is told once and waited out. Raises JournalPaused once it is time to
        `give_up`, JournalDamaged, and errors that do not pass. After any of them nothing is open.
        """
        delay_s, trouble, since_s = _FIRST_DELAY_S, "", self._boottime_s()
        sent: list[Outcome] = []  # of the transaction whose COMMIT was tried last
        while True:
            try:
                self._store.ensure_writable()
                if not (sent and self._store.was_kept()):
                    sent.clear()
                    self._attempt(group, sent)
                break
            except (sqlite3.Error, OSError) as error:
                rollback(self._store.connection)
                self._store.must_pass(error)
                if not trouble:
                    trouble = f"the journal {self._store.name} cannot be written: {plainly(error)}"
                    self._on_trouble(f"{trouble}; everything waits, and resumes when this is fixed")
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
            self._store.commit()

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
    """Return a database error about one value as an error that stops only its case."""
    known = (PlacetError, *BUGS)
    return error if isinstance(error, known) else ValueError(f"cannot be stored: {error}")


def _wanted(future: Future[Any]) -> bool:
    """Claim a future, so that it cannot be cancelled; return False if it was."""
    return future.running() or future.set_running_or_notify_cancel()
