"""The one writer: a thread, a queue of batches, one transaction for all that has queued up."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, assert_never

from placet.core.errors import UserError
from placet.core.life.lease import may_take
from placet.journal import schema
from placet.journal.blobs import keep_body, remove_temporaries
from placet.journal.chain import Chain, ReadyRow, ready_row, utf8
from placet.journal.errors import (
    BUSY_MS,
    CACHE_KB,
    LOCKED,
    is_damage,
    is_full,
    may_pass,
    plainly,
    primary_code,
    rollback,
)
from placet.journal.files import (
    check,
    drop_ballast,
    finish_rollback,
    identity_of,
    make_private_file,
    no_room,
    remove_partials,
    same_file,
    set_aside,
    suspect,
    take_ballast,
    use_wal,
)
from placet.journal.maintenance import ARCHIVING, archive, backup
from placet.journal.reader import Reader, connect, lease_of, open_reader, path_key, plain_errors
from placet.journal.schema import migrate_aside, must_be_released, schema_of
from placet.journal.writes import (
    ATTEMPT,
    REPLY,
    Acquired,
    AcquireLease,
    AddActivity,
    AddRecord,
    Committed,
    CommittedActivity,
    Conflict,
    DropSeen,
    Enqueue,
    Guard,
    JournalDamaged,
    JournalPaused,
    LeaseHeld,
    LeaseLost,
    MarkDone,
    MarkFailed,
    PutCase,
    PutSeen,
    PutText,
    ReleaseLease,
    RenewLease,
    Write,
)

_GROUP_JOBS = 1_000  # bounds how long the first of a long queue waits for its answer
_OPEN_PATIENCE_S = 30.0  # how long opening waits for a lock before a person is asked
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0
# 1 MB: a WAL that fills the disk by itself could never be checkpointed again
_CHECKPOINT_PAGES = 250
_BALLAST_S = 60.0  # how long a disk that was full must have had room
_WAL_LIMIT_BYTES = 4 * 1024 * 1024  # a WAL that grew (a long reader) is cut back to this


@dataclass(slots=True)
class _Batch:
    """One batch on its way, or one piece of work that needs the writer's connection to itself."""

    writes: Sequence[_Prepared]
    durable: bool
    future: Future[Any]
    work: Callable[[sqlite3.Connection], Any] | None = None


_Prepared = ReadyRow | Write


class Journal:
    """The one writer of a vault's journal. A context manager; `close` when done.

    Opening makes the database, brings its schema up to date, checks it, and sets a damaged one
    aside (`set_aside` then names it; its cases are the caller's to rebuild). It raises UserError
    for a newer schema, a read-only or full place, and a lock that another program holds for over 30
    s.

    `now` is for stamps that people read; `boottime_s` and `boot_id` are the leases' clock.
    `on_trouble` is told a sentence when writing stops and when it goes on; `on_wait` that sentence
    at each new try meanwhile, at least every second; `on_rows` gets each group's new events after
    they are committed and answered. All are called on the writer's thread, and must be quick and
    not raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime],
        boottime_s: Callable[[], float],
        boot_id: str,
        on_trouble: Callable[[str], None],
        on_rows: Callable[[Sequence[CommittedActivity]], None] | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path.absolute()
        self._now = now
        self._boottime_s = boottime_s
        self._boot_id = boot_id
        self._on_trouble = on_trouble
        self._on_rows = on_rows
        self._on_wait = on_wait
        self._blobs = self._path.parent / "blobs"
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._claims = threading.Lock()
        self._give_up = threading.Event()
        self._closed = False
        self._failure: BaseException | None = None
        self._still: dict[str, tuple[int, float, float]] = {}
        self._full_sync = False
        self._asking: sqlite3.Connection | None = None
        # when room for another one is looked for, once one was given up
        self._ballast_after_s = 0.0
        self.set_aside: Path | None = None
        self._connection = self._open()
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

    def __enter__(self) -> Journal:
        return self

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

        It fails with Conflict, LeaseLost or LeaseHeld.

        `durable` makes the commit survive a power cut too (`synchronous=FULL`); ask for it where an
        outside effect follows. Raises ValueError or TypeError for what cannot be stored (metadata
        that is no JSON), and JournalPaused when the journal is closed.
        """
        return self._enqueue(_Batch([_prepare(write) for write in writes], durable, Future()))

    def commit(self, writes: Sequence[Write], *, durable: bool = False) -> Committed:
        """Commit a batch and return what it came to; see `submit`.

        Waits for as long as it cannot be written.
        """
        return self.submit(writes, durable=durable).result()

    def read(self) -> contextlib.AbstractContextManager[Reader]:
        """A reader: one snapshot, a connection of its own.

        Keep it short, it holds up checkpoints.
        """
        return open_reader(self._path)

    @contextlib.contextmanager
    def ask(self) -> Iterator[Reader]:
        """A reader for single questions, on a connection that stays open: no snapshot, each question sees what is committed.

        For one thread, the loop's, which asks often. Once the journal is closed it is as `read`.
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
        """Move the oldest events, at most so many, into a database of their own beside the journal.

        None if none go.

        `before` is a timestamp as rows carry it. What goes is a run from the first row on: it ends
        before the first row that is not older, or that belongs to a trace in `keep` (open cases).
        With it go the records and the done commands of traces that have no row left. Return the
        archive: while its name ends in `ARCHIVING` there is more to move, by the next call, in this
        life or in another. Then it is a journal: readers, `verify` and queries work on it, and it
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

        Safe in a signal handler.

        What waits for a full disk would keep a daemon from ending.
        """
        self._give_up.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Commit what is queued, checkpoint, close.

        What cannot be written in `timeout_s` is refused.

        Refused batches raise JournalPaused at their callers; they were never acknowledged.
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
        """Move the WAL into the database and cut it to nothing, if the disk and the readers allow it."""
        # what stays in the WAL is as safe there
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _next_group(self) -> tuple[list[_Batch], bool]:
        """Wait for a job, then take what else has queued up.

        True with the last ones before closing.
        """
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
        """Bring each job to its end, in order.

        A job with work of its own gets the connection alone.
        """
        start = 0
        for i, job in enumerate(group):
            if job.work is not None:
                self._until_done(group[start:i])
                self._until_done([job])
                start = i + 1
        self._until_done(group[start:])

    def _until_done(self, group: list[_Batch]) -> None:
        """Try until it is committed; trouble that may pass is said once and waited out."""
        group = [job for job in group if _wanted(job.future)]
        if not group:
            return
        delay_s, trouble = _FIRST_DELAY_S, ""
        since_s = self._boottime_s()
        while True:
            try:
                if not same_file(self._path, self._identity):
                    raise OSError(  # noqa: TRY301 - retried below, as any error of the system
                        f"{self._path.name} was moved, deleted or replaced; put it back, or restart the "
                        "daemon: it takes up what reports and branches tell, and begins a new one"
                    )
                outcome = self._transact(group)
                break
            except (sqlite3.Error, OSError) as error:
                rollback(self._connection)
                if is_damage(error):
                    suspect(self._path)
                    raise JournalDamaged(
                        f"the journal {self._path} is damaged: {error}",
                        "restart the daemon: it sets the file aside and begins a new one",
                    ) from error
                if not may_pass(error):
                    raise
                if (is_full(error) or no_room(self._path)) and drop_ballast(self._path):
                    self._on_trouble(
                        f"the disk of the journal {self._path} is full; it goes on in the space kept for that. "
                        "Make room now"
                    )
                    self._ballast_after_s = self._boottime_s() + _BALLAST_S
                    continue
                if not trouble:
                    trouble = f"the journal {self._path} cannot be written: {plainly(error)}"
                    self._on_trouble(
                        f"{trouble}; everything waits, nothing is lost, "
                        "and it goes on by itself when this is mended"
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
        rows, answers = outcome
        for job, answer in zip(group, answers, strict=True):
            if isinstance(answer, BaseException):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
        if rows and self._on_rows is not None:
            self._on_rows([CommittedActivity(*row) for row in rows])

    def _transact(self, group: list[_Batch]) -> tuple[list[tuple[Any, ...]], list[Any]]:
        """One transaction.

        Return the new activity rows, and for each job what it came to or its error.
        """
        execute = self._connection.execute
        if group[0].work is not None:
            return [], [group[0].work(self._connection)]
        full_sync = any(job.durable for job in group)
        if full_sync is not self._full_sync:
            execute(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
            self._full_sync = full_sync
        execute("BEGIN IMMEDIATE")
        chain = Chain(self._connection)
        answers: list[Any] = []
        for job in group:
            mark = chain.mark()
            simple = all(isinstance(write, ReadyRow) for write in job.writes)
            if not simple:
                execute("SAVEPOINT job")
            try:
                answers.append(self._apply(job.writes, chain))
            except (sqlite3.OperationalError, OSError):
                raise
            except Exception as error:  # it is this job's answer; the others go on
                if is_damage(error):
                    raise
                chain.back_to(mark)
                execute("ROLLBACK TO job")
                answers.append(error)
            if not simple:
                execute("RELEASE job")
        chain.write()
        execute("COMMIT")
        return chain.rows, answers

    def _apply(self, writes: Sequence[_Prepared], chain: Chain) -> Committed:
        activity: list[int] = []
        outbox: list[int] = []
        acquired: list[Acquired] = []
        execute = self._connection.execute
        for write in writes:
            match write:
                case ReadyRow():
                    activity.append(chain.append(write))
                case PutCase(
                    trace_id, request_id, state, body, version, request_path, plan_path, watched
                ):
                    values = (
                        request_id,
                        state,
                        body,
                        version + 1,
                        self._stamp(),
                        request_path,
                        plan_path,
                        watched,
                        trace_id,
                    )
                    if version:
                        done = execute(
                            "UPDATE cases SET request_id = ?, state = ?, body = ?, version = ?, updated_at = ?, "
                            "request_path = ?, plan_path = ?, watched = ? WHERE trace_id = ? AND version = ?",
                            (*values, version),
                        )
                    else:
                        done = execute(
                            "INSERT INTO cases (request_id, state, body, version, updated_at, request_path, plan_path, "
                            "watched, trace_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                            values,
                        )
                    _must_change(done, f"case {trace_id} is not at version {version}")
                case Enqueue(trace_id, command):
                    done = execute(
                        "INSERT INTO outbox (trace_id, command, created_at) VALUES (?, ?, ?)",
                        (trace_id, command, self._stamp()),
                    )
                    assert done.lastrowid is not None
                    outbox.append(done.lastrowid)
                case MarkDone(outbox_id):
                    done = execute(
                        "UPDATE outbox SET done_at = ?, error = '' "
                        "WHERE id = ? AND done_at IS NULL",
                        (self._stamp(), outbox_id),
                    )
                    _must_change(done, f"command {outbox_id} is not pending")
                case MarkFailed(outbox_id, error):
                    done = execute(
                        "UPDATE outbox SET attempts = attempts + 1, error = ? "
                        "WHERE id = ? AND done_at IS NULL",
                        (error, outbox_id),
                    )
                    _must_change(done, f"command {outbox_id} is not pending")
                case AddRecord(trace_id, attempt, seq, kind, key, content):
                    done = execute(
                        "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                        "ON CONFLICT DO NOTHING",
                        (trace_id, attempt, seq, kind, key, *keep_body(self._blobs, content)),
                    )
                    _must_change(done, f"record {trace_id} attempt {attempt} seq {seq} is taken")
                    if kind == "intent" and key.startswith(ATTEMPT):
                        execute(
                            "INSERT INTO asked VALUES (?, ?) ON CONFLICT DO NOTHING",
                            (trace_id, attempt),
                        )
                    elif kind == "outcome" and key.startswith(
                        (ATTEMPT, REPLY)
                    ):  # a conversation asks one thing at a time
                        execute(
                            "DELETE FROM asked WHERE trace_id = ? AND attempt = ?",
                            (trace_id, attempt),
                        )
                case PutText(digest, content):
                    # one that was damaged is whole again
                    execute(
                        "INSERT OR REPLACE INTO texts VALUES (?, ?, ?, ?)",
                        (digest, *keep_body(self._blobs, content)),
                    )
                case PutSeen(path, digest, verdict, detail):
                    execute(
                        "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)",
                        (path_key(path), digest, verdict, detail),
                    )
                case DropSeen(path):
                    execute("DELETE FROM seen WHERE path = ?", (path_key(path),))
                case AcquireLease():
                    acquired.append(self._acquire(write))
                case RenewLease(trace_id, token, ttl_s):
                    now_s = self._boottime_s()
                    done = execute(
                        "UPDATE leases SET heartbeat_s = ?, expires_s = ? "
                        "WHERE trace_id = ? AND token = ? AND held",
                        (now_s, now_s + ttl_s, trace_id, token),
                    )
                    _must_hold(done.rowcount, trace_id, token)
                case ReleaseLease(trace_id, token):
                    done = execute(
                        "UPDATE leases SET held = 0 WHERE trace_id = ? AND token = ? AND held",
                        (trace_id, token),
                    )
                    _must_hold(done.rowcount, trace_id, token)
                case Guard(trace_id, token):
                    (count,) = execute(
                        "SELECT count(*) FROM leases WHERE trace_id = ? AND token = ? AND held",
                        (trace_id, token),
                    ).fetchone()
                    _must_hold(count, trace_id, token)
                case AddActivity():
                    raise AssertionError("submit prepares activities")
                case _:
                    assert_never(write)
        return Committed(tuple(activity), tuple(outbox), tuple(acquired))

    def _acquire(self, want: AcquireLease) -> Acquired:
        now_s = self._boottime_s()
        lease = lease_of(self._connection, want.trace_id)
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
            ):
                same_clock = lease.owner.boot_id == self._boot_id
                raise LeaseHeld(lease, lease.expires_s - now_s if same_clock else None)
        token = lease.token + 1 if lease is not None else 1
        owner = want.owner
        self._connection.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
            (
                want.trace_id,
                token,
                owner.host,
                owner.boot_id,
                owner.pid,
                owner.pid_start,
                self._stamp(),
                now_s,
                now_s + want.ttl_s,
            ),
        )
        return Acquired(
            want.trace_id, token, lease.owner if lease is not None and lease.held else None
        )

    def _stamp(self) -> str:
        return _stamp(self._now())

    def _fail(self, error: BaseException, group: list[_Batch]) -> None:
        """Refuse everything that is queued and everything to come."""
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

    def _open(self) -> sqlite3.Connection:
        """The checked, migrated connection of the writer.

        Waits for a lock, leaves the rest to a person.
        """
        waited_s = 0.0
        while True:
            try:
                return self._open_once()
            except (sqlite3.Error, OSError) as error:
                if (is_full(error) or no_room(self._path)) and drop_ballast(self._path):
                    continue
                busy = isinstance(error, sqlite3.Error) and primary_code(error) in LOCKED
                if not busy or waited_s >= _OPEN_PATIENCE_S:
                    raise UserError(
                        f"cannot open the journal {self._path}: {plainly(error)}",
                        "check its permissions, the space on its disk, and who has it open",
                    ) from error
            if not waited_s:
                self._on_trouble(
                    f"the journal {self._path} is locked by another program; waiting for it"
                )
            time.sleep(_LONGEST_DELAY_S)
            waited_s += _LONGEST_DELAY_S + BUSY_MS / 1000

    def _open_once(self) -> sqlite3.Connection:
        make_private_file(self._path)
        finish_rollback(self._path)
        damage, version = check(self._path)
        if damage:
            self.set_aside = set_aside(self._path, self._now())
            self._on_trouble(
                f"the journal was damaged ({damage}); it is kept as {self.set_aside}, "
                "and a new one was begun"
            )
            make_private_file(self._path)
        must_be_released(version, self._path)
        if 0 < version < schema.latest():
            backup(
                self._path,
                self._path.with_name(f"journal.before-schema-{schema.latest()}.db"),
                whole=False,
            )
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            connection.execute("PRAGMA cell_size_check = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            use_wal(connection, self._path)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            # macOS: a plain fsync does not reach the disk; elsewhere these two do nothing
            connection.execute("PRAGMA fullfsync = 1")
            connection.execute("PRAGMA checkpoint_fullfsync = 1")
            if version < schema.latest():
                migrate_aside(self._path)
                schema_of(connection, self._path)  # a newer placet may have been faster
            # SQLite opens a file that it may not write for reading, and says so at the first write
            # only
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE chain SET last_id = last_id")
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection


def _wanted(future: Future[Any]) -> bool:
    """Claim a future, so that it cannot be cancelled any more; False if it was."""
    return future.running() or future.set_running_or_notify_cancel()


def _prepare(write: Write) -> _Prepared:
    """Do in the caller's thread what needs no connection, and raise there for what cannot be stored."""
    match write:
        case AddActivity(activity):
            return ready_row(activity)
        case PutCase(trace_id, request_id, state, body, version, request_path, plan_path, watched):
            return PutCase(
                utf8(trace_id),
                utf8(request_id),
                utf8(state),
                utf8(body),
                version,
                utf8(request_path),
                utf8(plan_path),
                watched,
            )
        case Enqueue(trace_id, command):
            return Enqueue(utf8(trace_id), utf8(command))
        case MarkFailed(outbox_id, error):
            return MarkFailed(outbox_id, utf8(error))
        case PutSeen(path, digest, verdict, detail):
            return PutSeen(path, digest, verdict, utf8(detail))
        case AddRecord(trace_id, attempt, seq, kind, key, content):
            return AddRecord(utf8(trace_id), attempt, seq, kind, utf8(key), content)
        case _:
            return write


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _must_change(done: sqlite3.Cursor, otherwise: str) -> None:
    if done.rowcount != 1:
        raise Conflict(otherwise)


def _must_hold(count: int, trace_id: str, token: int) -> None:
    if count != 1:
        raise LeaseLost(f"token {token} does not hold the lease of {trace_id}")
