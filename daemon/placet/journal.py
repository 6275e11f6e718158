r"""The journal: every event, every case, every mission's record, in one SQLite database.

One thread owns the one connection that writes. Callers hand it batches of write values; it applies what has
queued up in one transaction, commits, and only then answers: an answer means that the batch will survive the
process. A batch is all or nothing; one that fails (Conflict, LeaseLost, LeaseHeld) fails alone.

Rows of `activity` form a hash chain. A row's hash is the hex SHA-256 of the UTF-8 of
`{hash of the row before}\n{id}\n{lengths}\n{texts}`: the lengths, in characters and joined by blanks, of
timestamp, trace_id, actor, agent, action_type, entity_type, entity_id and metadata, then these eight one
after the other. The first row follows 64 zeros. Table `chain` names both ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, assert_never

from placet.core.activity import Activity
from placet.core.errors import PlacetError, UserError
from placet.core.lease import Lease, Owner, may_take

INLINE_BYTES = 16 * 1024
"""Bodies up to this size stand in their row; longer ones are files, and the database stays quick to check."""

_GROUP_JOBS = 1_000  # bounds how long the first of a long queue waits for its answer
_BUSY_MS = 1_000  # a lock held longer than this is trouble, and said
_OPEN_PATIENCE_S = 30.0  # how long opening waits for a lock before a person is asked
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0
_CHECKPOINT_PAGES = 250  # 1 MB: a WAL that fills the disk by itself could never be checkpointed again
_WAL_LIMIT_BYTES = 4 * 1024 * 1024  # a WAL that grew (a long reader) is cut back to this


class Conflict(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A write believed something that is not so; nothing of its batch was written."""


class LeaseLost(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The token does not hold the lease any more; nothing of the batch was written."""


class LeaseHeld(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """Another holds the lease, which has not run out; nothing of the batch was written. `lease` says who."""

    def __init__(self, lease: Lease, left_s: float | None) -> None:
        left = "until it stops renewing it" if left_s is None else f"for {max(left_s, 0):.0f} s more"
        super().__init__(f"{lease.owner} holds the lease of {lease.trace_id}, token {lease.token}, {left}")
        self.lease = lease


class JournalPaused(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The journal could not write in the time given; nothing of the batch was written."""


class JournalDamaged(UserError):  # noqa: N818 - named for what happened, as Stop is
    """The database or one of its files is not what was written."""


# --- writes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddActivity:
    """Append one event."""

    activity: Activity


@dataclass(frozen=True, slots=True)
class PutCase:
    """Store a case; its new version is `expect_version + 1`.

    `expect_version` is the version that it must have now, 0 for a case that must not exist: else Conflict.
    `body` is JSON.
    """

    trace_id: str
    request_id: str
    state: str
    body: str
    expect_version: int

    def __post_init__(self) -> None:
        if self.expect_version < 0:
            raise ValueError(f"expect_version is negative: {self.expect_version}")


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Put a command (JSON) into the outbox: what has to be performed."""

    trace_id: str
    command: str


@dataclass(frozen=True, slots=True)
class MarkDone:
    """Take a command out of the outbox; Conflict if it is not in it."""

    outbox_id: int


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """Count a failed attempt at a command; Conflict if it is not in the outbox.

    `not_before` is when to try again (UTC, RFC 3339, `Z`; "" for at once); the reader of the outbox heeds it.
    """

    outbox_id: int
    error: str
    not_before: str = ""


@dataclass(frozen=True, slots=True)
class AddRecord:
    """Append to a mission's record; Conflict if (trace_id, attempt, seq) is taken."""

    trace_id: str
    attempt: int
    seq: int
    kind: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PutText:
    """Keep a text under the caller's digest (a plan's leaves out stamped keys); the first one stays."""

    digest: str
    body: bytes

    def __post_init__(self) -> None:
        if not self.digest:
            raise ValueError("a text needs a digest")


@dataclass(frozen=True, slots=True)
class PutSeen:
    """What was acknowledged about a note that is no case (invalid, a conflict copy)."""

    path: str
    digest: str
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class DropSeen:
    """Forget what was acknowledged about a note; nothing to forget is fine."""

    path: str


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Take a mission's lease, or fail with LeaseHeld; the token is in the answer.

    `gone_token` is the token whose holder the caller has proved to be gone: that lease is taken over at once.
    """

    trace_id: str
    owner: Owner
    ttl_s: float
    gone_token: int | None = None

    def __post_init__(self) -> None:
        if not self.ttl_s > 0:
            raise ValueError(f"ttl_s is not positive: {self.ttl_s}")


@dataclass(frozen=True, slots=True)
class RenewLease:
    """Heartbeat: the lease now runs for `ttl_s` from now; LeaseLost if another took it over."""

    trace_id: str
    token: int
    ttl_s: float

    def __post_init__(self) -> None:
        if not self.ttl_s > 0:
            raise ValueError(f"ttl_s is not positive: {self.ttl_s}")


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Give the lease back; LeaseLost if another took it over."""

    trace_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Let the batch pass only while this token holds the lease: else LeaseLost."""

    trace_id: str
    token: int


@dataclass(frozen=True, slots=True)
class SetMeta:
    """Store one value under a name."""

    key: str
    value: str


Write = (
    AddActivity | PutCase | Enqueue | MarkDone | MarkFailed | AddRecord | PutText | PutSeen | DropSeen
    | AcquireLease | RenewLease | ReleaseLease | Guard | SetMeta
)


# --- rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedActivity:
    """One row of `activity` as it stands. `metadata` is the JSON text."""

    id: int
    timestamp: str
    trace_id: str
    actor: str
    agent: str
    action_type: str
    entity_type: str
    entity_id: str
    metadata: str
    hash: str

    @property
    def details(self) -> Mapping[str, Any]:
        """The metadata, parsed; raises ValueError where a hand-made row holds no JSON object."""
        value = json.loads(self.metadata)
        if not isinstance(value, dict):
            raise ValueError(f"row {self.id} is no object")  # noqa: TRY004 - the text is wrong, not a type
        return value


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case. `body` is JSON, `updated_at` for display."""

    trace_id: str
    request_id: str
    state: str
    body: str
    version: int
    updated_at: str


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """One command that has to be performed."""

    id: int
    trace_id: str
    command: str
    attempts: int
    error: str
    not_before: str


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a mission's record."""

    seq: int
    kind: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class SeenRow:
    """What was acknowledged about a note that is no case."""

    path: str
    digest: str
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class Acquired:
    """A lease that was taken; `taken_from` is the holder that had not released it, None if none had to go."""

    trace_id: str
    token: int
    taken_from: Owner | None


@dataclass(frozen=True, slots=True)
class Committed:
    """What a batch came to: ids of its activity and outbox rows and the leases it took, each in order."""

    activity: tuple[int, ...] = ()
    outbox: tuple[int, ...] = ()
    acquired: tuple[Acquired, ...] = ()

    @property
    def token(self) -> int:
        """The token of the one lease that the batch took."""
        (lease,) = self.acquired
        return lease.token


@dataclass(frozen=True, slots=True)
class BadRow:
    """The first row of `activity` that does not fit the chain, and why."""

    id: int
    reason: str


# --- schema -------------------------------------------------------------------------------------------------

Step = tuple[str, tuple[str, ...]]
"""One migration: its name and its statements."""

SCHEMA: tuple[Step, ...] = (
    ("0001_journal", (
        """CREATE TABLE activity (
             id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, trace_id TEXT NOT NULL, actor TEXT NOT NULL,
             agent TEXT NOT NULL, action_type TEXT NOT NULL, entity_type TEXT NOT NULL,
             entity_id TEXT NOT NULL, metadata TEXT NOT NULL, hash TEXT NOT NULL)""",
        "CREATE INDEX activity_trace ON activity (trace_id)",
        "CREATE INDEX activity_action ON activity (action_type, entity_id)",
        """CREATE TABLE chain (
             one INTEGER PRIMARY KEY CHECK (one = 1), start_id INTEGER NOT NULL, start_hash TEXT NOT NULL,
             last_id INTEGER NOT NULL, last_hash TEXT NOT NULL)""",
        "INSERT INTO chain VALUES (1, 0, printf('%064d', 0), 0, printf('%064d', 0))",  # 64 zeros
        """CREATE TABLE cases (
             trace_id TEXT PRIMARY KEY, request_id TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL,
             version INTEGER NOT NULL, updated_at TEXT NOT NULL)""",
        """CREATE TABLE outbox (
             id INTEGER PRIMARY KEY AUTOINCREMENT, trace_id TEXT NOT NULL, command TEXT NOT NULL,
             attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
             not_before TEXT NOT NULL DEFAULT '', created_at TEXT NOT NULL, done_at TEXT)""",
        "CREATE INDEX outbox_pending ON outbox (id) WHERE done_at IS NULL",
        """CREATE TABLE leases (
             trace_id TEXT PRIMARY KEY, token INTEGER NOT NULL, host TEXT NOT NULL, boot_id TEXT NOT NULL,
             pid INTEGER NOT NULL, pid_start TEXT NOT NULL, held INTEGER NOT NULL, acquired_at TEXT NOT NULL,
             heartbeat_s REAL NOT NULL, expires_s REAL NOT NULL)""",
        """CREATE TABLE records (
             trace_id TEXT NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,
             key TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, body BLOB,
             UNIQUE (trace_id, attempt, seq))""",
        """CREATE TABLE seen (
             path PRIMARY KEY, digest TEXT NOT NULL, verdict TEXT NOT NULL, detail TEXT NOT NULL)""",
        """CREATE TABLE texts (
             digest TEXT PRIMARY KEY, sha256 TEXT NOT NULL, size INTEGER NOT NULL, body BLOB)""",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    )),
)
"""The migrations, oldest first; append, never edit a released one. `PRAGMA user_version` counts them."""

_ACTIVITY = "id, timestamp, trace_id, actor, agent, action_type, entity_type, entity_id, metadata, hash"


def migrate(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    """Bring the database to `steps`, in one transaction that holds the write lock; two at once are safe.

    sqlite-utils keeps the account of what was applied. It is imported here alone: it takes a quarter of a
    second, and is needed once in a database's life.
    """
    import sqlite_utils

    migrations = sqlite_utils.Migrations("placet")
    for name, statements in steps:
        def run(db: sqlite_utils.Database, statements: tuple[str, ...] = statements) -> None:
            for statement in statements:
                db.conn.execute(statement)

        migrations(name=name)(run)
    database = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
    connection.execute("BEGIN IMMEDIATE")  # sqlite-utils alone would begin deferred, and two would clash
    try:
        if connection.execute("PRAGMA user_version").fetchone()[0] < len(steps):  # else another was faster
            migrations.apply(database)
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        _rollback(connection)
        raise


def _migrate_aside(path: Path) -> None:
    """Bring the schema up to date in a process of its own, so that the daemon never carries sqlite-utils' 7 MB.

    Raises sqlite3.OperationalError with SQLite's own code.
    """
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONHOME") if name in os.environ}
    done = subprocess.run([sys.executable, "-m", "placet.journal", str(path)], env=env, input=json.dumps(SCHEMA),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        code, _, why = done.stdout.partition(" ")
        error = sqlite3.OperationalError(why.strip() or done.stderr.strip()[-500:])
        error.sqlite_errorcode = int(code) if code.isdigit() else sqlite3.SQLITE_ERROR
        raise error


def _migrate_here(path: str) -> int:
    """Migrate to the steps on standard input, as `_migrate_aside` asks; say SQLite's code and words if it fails."""
    steps = [(name, tuple(statements)) for name, statements in json.load(sys.stdin)]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        try:
            migrate(connection, steps)
        except sqlite3.Error as error:
            sys.stdout.write(f"{_code(error)} {error}")
            return 1
    return 0


# --- the journal --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Job:
    """One batch on its way, or one piece of work that needs the writer's connection to itself."""

    writes: Sequence[_Prepared]
    durable: bool
    future: Future[Any]
    work: Callable[[sqlite3.Connection], Any] | None = None
    taken: bool = False
    abandoned: bool = False


class _Row(NamedTuple):
    """An activity made ready by its caller: its eight columns, and the same as the chain hashes them."""

    columns: tuple[str, ...]
    chained: bytes


_Prepared = _Row | Write


class Journal:
    """The one writer of a vault's journal. A context manager; `close` when done.

    Opening makes the database, brings its schema up to date, checks it, and sets a damaged one aside
    (`set_aside` then names it; its cases are the caller's to rebuild). It raises UserError for a newer
    schema, a read-only or full place, and a lock that another program holds for over 30 s.

    `now` is for stamps that people read; `boottime_s` and `boot_id` are the leases' clock. `on_trouble` is
    told a sentence when writing stops and when it goes on; `on_rows` gets each group's new events after they
    are committed and answered. Both are called on the writer's thread, and must be quick and not raise.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime], boottime_s: Callable[[], float],
                 boot_id: str, on_trouble: Callable[[str], None],
                 on_rows: Callable[[Sequence[CommittedActivity]], None] | None = None) -> None:
        self._path = path.absolute()
        self._now = now
        self._boottime_s = boottime_s
        self._boot_id = boot_id
        self._on_trouble = on_trouble
        self._on_rows = on_rows
        self._blobs = self._path.parent / "blobs"
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._claims = threading.Lock()
        self._give_up = threading.Event()
        self._closed = False
        self._failure: BaseException | None = None
        self._trouble = ""
        self._still: dict[str, tuple[int, float, float]] = {}
        self._full_sync = False
        self.set_aside: Path | None = None
        self._connection = self._open()
        try:
            _remove_temporaries(self._blobs)
            self._identity = _identity(self._path)
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The database."""
        return self._path

    @property
    def paused(self) -> bool:
        """Whether writing is held up; nothing that gates on a commit can go on until it is not."""
        return bool(self._trouble)

    @property
    def trouble(self) -> str:
        """Why writing is held up; "" while it is not."""
        return self._trouble

    def submit(self, writes: Sequence[Write], *, durable: bool = False) -> Future[Committed]:
        """Queue a batch; the future is done after its commit. It fails with Conflict, LeaseLost or LeaseHeld.

        `durable` makes the commit survive a power cut too (`synchronous=FULL`); ask for it where an outside
        effect follows. Raises ValueError or TypeError for what cannot be stored (metadata that is no JSON),
        and JournalPaused when the journal is closed.
        """
        return self._enqueue(_Job([_prepare(write) for write in writes], durable, Future())).future

    def commit(self, writes: Sequence[Write], *, durable: bool = False,
               timeout_s: float | None = None) -> Committed:
        """Commit a batch and return what it came to; see `submit`.

        Waits as long as the journal is paused, at most `timeout_s`: then JournalPaused is raised, and the
        batch was not written and never will be.
        """
        job = self._enqueue(_Job([_prepare(write) for write in writes], durable, Future()))
        committed: Committed = self._await(job, timeout_s)
        return committed

    def flush(self, timeout_s: float | None = None) -> None:
        """Return when everything that was queued before is committed; JournalPaused after `timeout_s`."""
        self.commit((), timeout_s=timeout_s)

    def read(self) -> contextlib.AbstractContextManager[Reader]:
        """A reader: one snapshot, a connection of its own. Keep it short, it holds up checkpoints."""
        return open_reader(self._path)

    def archive(self, before: str, *, keep: Collection[str] = ()) -> Path | None:
        """Move the oldest events into a database of their own beside the journal; return it, None if none go.

        `before` is a timestamp as rows carry it. What goes is a run from the first row on: it ends before the
        first row that is not older, or that belongs to a trace in `keep` (open cases). With it go the records
        and the done commands of traces that have no row left. The archive is a journal: readers, `verify` and
        queries work on it, and it shares `blobs/`. A crash leaves both copies, never none.
        """
        kept = frozenset(keep)
        job = _Job((), durable=True, future=Future(),
                   work=lambda connection: self._archive(connection, before, kept))
        path: Path | None = self._await(self._enqueue(job), None)
        return path

    def stop_waiting(self) -> None:
        """From now on refuse what cannot be written at once, with JournalPaused; safe in a signal handler.

        What waits for a full disk would keep a daemon from ending.
        """
        self._give_up.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Commit what is queued, checkpoint, close; what cannot be written in `timeout_s` is refused.

        Refused batches raise JournalPaused at their callers; they were never acknowledged.
        """
        with self._claims:
            first = not self._closed
            self._closed = True
            if first:
                self._queue.put(None)
        self._thread.join(timeout_s)
        self._give_up.set()
        self._thread.join()

    # what callers' threads do

    def _enqueue(self, job: _Job) -> _Job:
        with self._claims:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise JournalPaused("the journal is closed")
            self._queue.put(job)
        return job

    def _await(self, job: _Job, timeout_s: float | None) -> Any:
        while True:
            try:
                return job.future.result(timeout_s)
            except TimeoutError:
                if job.future.done():
                    continue
                with self._claims:
                    if not job.taken:
                        job.abandoned = True
                        raise JournalPaused(self._trouble or f"not written within {timeout_s} s") from None
                timeout_s = _FIRST_DELAY_S  # it is in a transaction right now, which ends soon either way

    # what the writer's thread does

    def _run(self) -> None:
        group: list[_Job] = []
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
        with contextlib.suppress(sqlite3.OperationalError):  # what stays in the WAL is as safe there
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _next_group(self) -> tuple[list[_Job], bool]:
        """Wait for a job, then take what else has queued up; True with the last ones before closing."""
        group: list[_Job] = []
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

    def _write(self, group: list[_Job]) -> None:
        """Bring each job to its end, in order; a job with work of its own gets the connection alone."""
        start = 0
        for i, job in enumerate(group):
            if job.work is not None:
                self._until_done(group[start:i])
                self._until_done([job])
                start = i + 1
        self._until_done(group[start:])

    def _until_done(self, group: list[_Job]) -> None:
        """Try until it is committed; trouble that may pass is said once and waited out."""
        delay_s = _FIRST_DELAY_S
        since_s = self._boottime_s()
        while True:
            with self._claims:
                group = [job for job in group if not job.abandoned and _wanted(job.future)]
                for job in group:
                    job.taken = True
            if not group and not self._trouble:
                return
            try:
                if not _same_file(self._path, self._identity):
                    raise OSError(f"{self._path.name} was moved, deleted or replaced")  # noqa: TRY301
                outcome = self._transact(group)
                break
            except (sqlite3.Error, OSError) as error:
                _rollback(self._connection)
                if _is_damage(error):
                    raise JournalDamaged(f"the journal {self._path} is damaged: {error}",
                                         "restart the daemon: it sets the file aside and begins a new one",
                                         ) from error
                if not _may_pass(error):
                    raise
                if not self._trouble:
                    self._trouble = f"the journal {self._path} cannot be written: {_plainly(error)}"
                    self._on_trouble(f"{self._trouble}; everything waits, nothing is lost, "
                                     "and it goes on by itself when this is mended")
            self._checkpoint()  # on a full disk the WAL itself may be what takes the space
            with self._claims:
                for job in group:
                    job.taken = False
            if self._give_up.wait(delay_s):
                raise JournalPaused(f"{self._trouble}; closed before it could be written")
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
        if self._trouble:
            self._trouble = ""
            self._on_trouble(f"the journal is written again, after {self._boottime_s() - since_s:.1f} s")
        rows, answers = outcome
        for job, answer in zip(group, answers, strict=True):
            if isinstance(answer, BaseException):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
        if rows and self._on_rows is not None:
            self._on_rows([CommittedActivity(*row) for row in rows])

    def _transact(self, group: list[_Job]) -> tuple[list[tuple[Any, ...]], list[Any]]:
        """One transaction; return the new activity rows, and for each job what it came to or its error."""
        execute = self._connection.execute
        if not group:  # everyone gave up waiting: write something, to find out when writing works again
            execute("BEGIN IMMEDIATE")
            execute("UPDATE chain SET last_id = last_id")
            execute("COMMIT")
            return [], []
        if group[0].work is not None:
            return [], [group[0].work(self._connection)]
        if not any(job.writes for job in group):
            return [], [Committed()] * len(group)
        full_sync = any(job.durable for job in group)
        if full_sync is not self._full_sync:
            execute(f"PRAGMA synchronous = {'FULL' if full_sync else 'NORMAL'}")
            self._full_sync = full_sync
        execute("BEGIN IMMEDIATE")
        chain = _Chain(self._connection)
        answers: list[Any] = []
        for job in group:
            mark = chain.mark()
            simple = all(isinstance(write, _Row) for write in job.writes)
            if not simple:
                execute("SAVEPOINT job")
            try:
                answers.append(self._apply(job.writes, chain))
            except (sqlite3.OperationalError, OSError):
                raise
            except Exception as error:  # it is this job's answer; the others go on
                if _is_damage(error):
                    raise
                chain.back_to(mark)
                execute("ROLLBACK TO job")
                answers.append(error)
            if not simple:
                execute("RELEASE job")
        chain.write()
        execute("COMMIT")
        return chain.rows, answers

    def _apply(self, writes: Sequence[_Prepared], chain: _Chain) -> Committed:
        activity: list[int] = []
        outbox: list[int] = []
        acquired: list[Acquired] = []
        execute = self._connection.execute
        for write in writes:
            match write:
                case _Row():
                    activity.append(chain.append(write))
                case PutCase(trace_id, request_id, state, body, version):
                    values = (request_id, state, body, version + 1, self._stamp(), trace_id)
                    if version:
                        done = execute("UPDATE cases SET request_id = ?, state = ?, body = ?, version = ?, "
                                       "updated_at = ? WHERE trace_id = ? AND version = ?",
                                       (*values, version))
                    else:
                        done = execute("INSERT INTO cases (request_id, state, body, version, updated_at, "
                                       "trace_id) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)
                    _must_change(done, f"case {trace_id} is not at version {version}")
                case Enqueue(trace_id, command):
                    done = execute("INSERT INTO outbox (trace_id, command, created_at) VALUES (?, ?, ?)",
                                   (trace_id, command, self._stamp()))
                    assert done.lastrowid is not None
                    outbox.append(done.lastrowid)
                case MarkDone(outbox_id):
                    done = execute("UPDATE outbox SET done_at = ?, error = '' "
                                   "WHERE id = ? AND done_at IS NULL", (self._stamp(), outbox_id))
                    _must_change(done, f"command {outbox_id} is not pending")
                case MarkFailed(outbox_id, error, not_before):
                    done = execute("UPDATE outbox SET attempts = attempts + 1, error = ?, not_before = ? "
                                   "WHERE id = ? AND done_at IS NULL", (error, not_before, outbox_id))
                    _must_change(done, f"command {outbox_id} is not pending")
                case AddRecord(trace_id, attempt, seq, kind, key, content):
                    done = execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                                   "ON CONFLICT DO NOTHING",
                                   (trace_id, attempt, seq, kind, key, *_keep_body(self._blobs, content)))
                    _must_change(done, f"record {trace_id} attempt {attempt} seq {seq} is taken")
                case PutText(digest, content):
                    execute("INSERT INTO texts VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                            (digest, *_keep_body(self._blobs, content)))
                case PutSeen(path, digest, verdict, detail):
                    execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)",
                            (_path_key(path), digest, verdict, detail))
                case DropSeen(path):
                    execute("DELETE FROM seen WHERE path = ?", (_path_key(path),))
                case AcquireLease():
                    acquired.append(self._acquire(write))
                case RenewLease(trace_id, token, ttl_s):
                    now_s = self._boottime_s()
                    done = execute("UPDATE leases SET heartbeat_s = ?, expires_s = ? "
                                   "WHERE trace_id = ? AND token = ? AND held",
                                   (now_s, now_s + ttl_s, trace_id, token))
                    _must_hold(done.rowcount, trace_id, token)
                case ReleaseLease(trace_id, token):
                    done = execute("UPDATE leases SET held = 0 WHERE trace_id = ? AND token = ? AND held",
                                   (trace_id, token))
                    _must_hold(done.rowcount, trace_id, token)
                case Guard(trace_id, token):
                    (count,) = execute("SELECT count(*) FROM leases "
                                       "WHERE trace_id = ? AND token = ? AND held",
                                       (trace_id, token)).fetchone()
                    _must_hold(count, trace_id, token)
                case SetMeta(key, value):
                    execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
                case AddActivity():
                    raise AssertionError("submit prepares activities")
                case _:
                    assert_never(write)
        return Committed(tuple(activity), tuple(outbox), tuple(acquired))

    def _acquire(self, want: AcquireLease) -> Acquired:
        now_s = self._boottime_s()
        lease = _lease(self._connection, want.trace_id)
        if lease is not None:
            token, heartbeat_s, seen_s = self._still.get(lease.trace_id, (0, 0.0, now_s))
            if (token, heartbeat_s) != (lease.token, lease.heartbeat_s):
                seen_s = now_s
            self._still[lease.trace_id] = (lease.token, lease.heartbeat_s, seen_s)
            if not may_take(lease, want.owner, now_s=now_s, still_for_s=now_s - seen_s,
                            gone_token=want.gone_token):
                same_clock = lease.owner.boot_id == self._boot_id
                raise LeaseHeld(lease, lease.expires_s - now_s if same_clock else None)
        token = lease.token + 1 if lease is not None else 1
        owner = want.owner
        self._connection.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
            (want.trace_id, token, owner.host, owner.boot_id, owner.pid, owner.pid_start, self._stamp(),
             now_s, now_s + want.ttl_s))
        return Acquired(want.trace_id, token, lease.owner if lease is not None and lease.held else None)

    def _archive(self, connection: sqlite3.Connection, before: str, keep: frozenset[str]) -> Path | None:
        start_id, start_hash, _, _ = _ends(connection)
        end_id, end_hash = start_id, start_hash
        for row_id, timestamp, trace_id, row_hash in connection.execute(
            "SELECT id, timestamp, trace_id, hash FROM activity ORDER BY id"
        ):
            if timestamp >= before or trace_id in keep:
                break
            end_id, end_hash = row_id, row_hash
        if end_id == start_id:
            return None
        target = self._path.with_name(f"journal.{start_id + 1}-{end_id}.db")
        gone = ("trace_id IN (SELECT trace_id FROM activity WHERE id <= :end) "
                "AND trace_id NOT IN (SELECT trace_id FROM activity WHERE id > :end)")
        which = {"activity": "id <= :end", "records": gone, "outbox": f"done_at IS NOT NULL AND {gone}"}
        with _new_database(target) as copy:
            migrate(copy, SCHEMA)
            copy.execute("BEGIN IMMEDIATE")
            for table, condition in which.items():
                sql = f"SELECT * FROM {table} WHERE {condition}"  # noqa: S608 - names of this function
                rows = connection.execute(sql, {"end": end_id})
                marks = ", ".join("?" * len(rows.description))
                copy.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - as above
            copy.execute("UPDATE chain SET start_id = ?, start_hash = ?, last_id = ?, last_hash = ?",
                         (start_id, start_hash, end_id, end_hash))
            copy.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        for table in ("outbox", "records", "activity"):  # activity last: the other two ask it
            sql = f"DELETE FROM {table} WHERE {which[table]}"  # noqa: S608 - as above
            connection.execute(sql, {"end": end_id})
        connection.execute("UPDATE chain SET start_id = ?, start_hash = ?", (end_id, end_hash))
        connection.execute("COMMIT")
        return target

    def _stamp(self) -> str:
        return _stamp(self._now())

    def _fail(self, error: BaseException, group: list[_Job]) -> None:
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
        """The checked, migrated connection of the writer; waits for a lock, leaves the rest to a person."""
        waited_s = 0.0
        while True:
            try:
                return self._open_once()
            except (sqlite3.Error, OSError) as error:
                busy = isinstance(error, sqlite3.Error) and _code(error) in _LOCKED
                if not busy or waited_s >= _OPEN_PATIENCE_S:
                    raise UserError(f"cannot open the journal {self._path}: {_plainly(error)}",
                                    "check its permissions, the space on its disk, and who has it open",
                                    ) from error
            if not waited_s:
                self._on_trouble(f"the journal {self._path} is locked by another program; waiting for it")
            time.sleep(_LONGEST_DELAY_S)
            waited_s += _LONGEST_DELAY_S + _BUSY_MS / 1000

    def _open_once(self) -> sqlite3.Connection:
        _make_private_file(self._path)
        _finish_rollback(self._path)
        damage, version = _check(self._path)
        if damage:
            self.set_aside = _set_aside(self._path, self._now())
            self._on_trouble(f"the journal was damaged ({damage}); it is kept as {self.set_aside}, "
                             "and a new one was begun")
            _make_private_file(self._path)
        if 0 < version < len(SCHEMA):
            backup(self._path, self._path.with_name(f"journal.before-schema-{len(SCHEMA)}.db"))
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute("PRAGMA cell_size_check = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            _use_wal(connection, self._path)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            # macOS: a plain fsync does not reach the disk; elsewhere these two do nothing
            connection.execute("PRAGMA fullfsync = 1")
            connection.execute("PRAGMA checkpoint_fullfsync = 1")
            if version < len(SCHEMA):
                _migrate_aside(self._path)
                _version(connection, self._path)  # a newer placet may have been faster
            # SQLite opens a file that it may not write for reading, and says so at the first write only
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE chain SET last_id = last_id")
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection


class _Chain:
    """The hash chain's end while a transaction appends to it; rows are written together by `write`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # max(id) too: a row that someone inserted by hand must not stop the daemon; verify names it
        self._id: int
        self._hash: str
        self._id, self._hash = connection.execute(
            "SELECT max(last_id, (SELECT ifnull(max(id), 0) FROM activity)), last_hash FROM chain").fetchone()
        self.rows: list[tuple[Any, ...]] = []

    def append(self, row: _Row) -> int:
        self._id += 1
        self._hash = _link(self._hash, self._id, row.chained)
        self.rows.append((self._id, *row.columns, self._hash))
        return self._id

    def mark(self) -> tuple[int, str, int]:
        return self._id, self._hash, len(self.rows)

    def back_to(self, mark: tuple[int, str, int]) -> None:
        self._id, self._hash, count = mark
        del self.rows[count:]

    def write(self) -> None:
        if self.rows:
            self._connection.executemany(
                "INSERT INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self.rows)
            self._connection.execute("UPDATE chain SET last_id = ?, last_hash = ?", (self._id, self._hash))


# --- reading ------------------------------------------------------------------------------------------------


_NO_ROUTINE = "AND NOT (action_type = 'git.ran' AND metadata->>'stderr' IS NULL)"


class Reader:
    """One snapshot of the journal, read-only. Made by `open_reader` and `Journal.read`."""

    def __init__(self, connection: sqlite3.Connection, blobs: Path) -> None:
        self._connection = connection
        self._blobs = blobs

    def last(self) -> tuple[int, str]:
        """The last event's id and hash; 0 and 64 zeros for a journal that never had one."""
        return _ends(self._connection)[2:]

    def knows(self, row_id: int, row_hash: str) -> bool:
        """Whether the event with this id and hash is in this journal, or was in it and is archived."""
        start_id, start_hash, last_id, last_hash = _ends(self._connection)
        if row_id <= start_id or row_id >= last_id:
            return row_id < start_id or (row_id, row_hash) in ((start_id, start_hash), (last_id, last_hash))
        found = self._connection.execute("SELECT hash FROM activity WHERE id = ?", (row_id,)).fetchone()
        return found is not None and bool(found[0] == row_hash)  # None: a person deleted the row

    def cases(self) -> tuple[CaseRow, ...]:
        """All cases, by trace_id."""
        rows = self._connection.execute(
            "SELECT trace_id, request_id, state, body, version, updated_at FROM cases ORDER BY trace_id")
        return tuple(CaseRow(*row) for row in rows)

    def case(self, trace_id: str) -> CaseRow | None:
        """One case, None if there is none."""
        row = self._connection.execute(
            "SELECT trace_id, request_id, state, body, version, updated_at FROM cases WHERE trace_id = ?",
            (trace_id,)).fetchone()
        return CaseRow(*row) if row else None

    def pending_commands(self) -> tuple[PendingCommand, ...]:
        """Everything in the outbox that is not done, oldest first, due or not."""
        rows = self._connection.execute(
            "SELECT id, trace_id, command, attempts, error, not_before FROM outbox WHERE done_at IS NULL "
            "ORDER BY id")
        return tuple(PendingCommand(*row) for row in rows)

    def records(self, trace_id: str, attempt: int) -> tuple[Record, ...]:
        """A mission's record, by seq. Raises JournalDamaged where a body is not what was written."""
        rows = self._connection.execute(
            "SELECT seq, kind, key, sha256, body FROM records WHERE trace_id = ? AND attempt = ? "
            "ORDER BY seq", (trace_id, attempt))
        return tuple(Record(seq, kind, key, _body(self._blobs, sha256, body))
                     for seq, kind, key, sha256, body in rows)

    def text(self, digest: str) -> bytes | None:
        """The text kept under a digest, None if there is none. Raises JournalDamaged."""
        row = self._connection.execute(
            "SELECT sha256, body FROM texts WHERE digest = ?", (digest,)).fetchone()
        return _body(self._blobs, *row) if row else None

    def seen(self) -> tuple[SeenRow, ...]:
        """What was acknowledged about notes that are no case, by path."""
        rows = self._connection.execute("SELECT path, digest, verdict, detail FROM seen ORDER BY path")
        return tuple(SeenRow(_path_of(path), *rest) for path, *rest in rows)

    def lease(self, trace_id: str) -> Lease | None:
        """The mission's lease, held or released; None if it never had one."""
        return _lease(self._connection, trace_id)

    def leases(self) -> tuple[Lease, ...]:
        """Every lease that is held."""
        ids = self._connection.execute("SELECT trace_id FROM leases WHERE held ORDER BY trace_id").fetchall()
        found = (_lease(self._connection, trace_id) for (trace_id,) in ids)
        return tuple(lease for lease in found if lease is not None)

    def activity(self, trace_id: str | None = None, *, after_id: int = 0, limit: int = 1_000,
                 newest: bool = False, routine: bool = True) -> tuple[CommittedActivity, ...]:
        """Events with ids above `after_id`, of one trace or all, in order: the first `limit` (-1: all), or the last.

        Without `routine` the git processes that went well are left out.
        """
        rows = self._connection.execute(
            f"SELECT {_ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals of this module
            f"WHERE id > ? AND {'trace_id = ?' if trace_id is not None else '? IS NULL'} "
            f"{'' if routine else _NO_ROUTINE} "
            f"ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?", (after_id, trace_id, limit)).fetchall()
        return tuple(CommittedActivity(*row) for row in (reversed(rows) if newest else rows))

    def costs(self, complexity: str, limit: int = 20) -> tuple[float, ...]:
        """What the last missions of this complexity cost, in dollars, where it is known; the newest first."""
        rows = self._connection.execute(
            "SELECT metadata->>'cost_usd' FROM activity WHERE action_type = 'execution.completed' "
            "AND metadata->>'complexity' = ? AND metadata->>'cost_usd' > 0 ORDER BY id DESC LIMIT ?",
            (complexity, limit)).fetchall()
        return tuple(float(cost) for (cost,) in rows)

    def first_id_since(self, timestamp: str) -> int:
        """The id of the first event that is not before a moment (as rows write it), or the one that the next event gets."""
        row = self._connection.execute("SELECT min(id) FROM activity WHERE timestamp >= ?", (timestamp,)).fetchone()
        if row[0] is None:
            row = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM activity").fetchone()
        return int(row[0])

    def used(self, first_id: int, planning_of: str | None = None) -> tuple[int, Decimal | None]:
        """Tokens and dollars of all model calls from an event on, those without an answer at their worst.

        With `planning_of` only those that planned that case, revisions too. Dollars are None where one of them is unknown.
        """
        tokens, usd, unknown = self._connection.execute(
            "SELECT coalesce(sum(tokens), 0), coalesce(sum(usd), 0.0), count(*) FILTER (WHERE usd IS NULL AND tokens > 0) FROM ("
            "SELECT coalesce(metadata->>'tokens', 0) + coalesce(metadata->>'input_tokens', 0)"
            " + coalesce(metadata->>'output_tokens', 0) + coalesce(metadata->>'cache_read_tokens', 0)"
            " + coalesce(metadata->>'cache_write_tokens', 0) AS tokens, metadata->>'cost_usd' AS usd "
            "FROM activity WHERE id >= ?1 AND action_type IN ('model.called', 'model.failed') "
            "AND (?2 IS NULL OR (trace_id = ?2 AND metadata->>'purpose' <> 'execute')))", (first_id, planning_of)).fetchone()
        return int(tokens), None if unknown else Decimal(str(round(usd, 9)))

    def last_of(self, *actions: str, trace_id: str) -> CommittedActivity | None:
        """The newest event of these kinds of one trace, None if there is none."""
        marks = ", ".join("?" * len(actions))
        row = self._connection.execute(
            f"SELECT {_ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals and question marks
            f"WHERE action_type IN ({marks}) AND trace_id = ? ORDER BY id DESC LIMIT 1", (*actions, trace_id)).fetchone()
        return CommittedActivity(*row) if row else None

    def answered_since(self, event_id: int) -> bool:
        """Whether a model answered after an event."""
        return self._connection.execute(  # the plus keeps SQLite from walking the whole index of that action
            "SELECT 1 FROM activity WHERE id > ? AND +action_type = 'model.called' LIMIT 1", (event_id,)).fetchone() is not None

    def last_id(self) -> int:
        """The newest event's id, 0 before the first."""
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM activity").fetchone()[0])

    def meta(self, key: str) -> str | None:
        """One stored value, None if there is none."""
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else None


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[Reader]:
    """Read the journal, whether a daemon writes it or not. Everything read is one snapshot.

    Raises UserError where there is no journal yet, where its schema is newer or older than this version's,
    and JournalDamaged where it cannot be read.
    """
    with _reading(path) as connection:
        version = _version(connection, path)
        if version < len(SCHEMA):
            raise UserError(f"the journal {path} was written by an older placet (schema {version})",
                            "start the daemon with `placet run`: it brings it up to date")
        yield Reader(connection, path.parent / "blobs")


def query(path: Path, sql: str, *, timeout_s: float = 30.0) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Run one SELECT of a person's; return column names and rows.

    Reading is all it can do: the connection is read-only and an authorizer allows nothing else, so no
    attaching of other files and no pragma that writes. Raises UserError for SQL that fails or runs over
    `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    with _reading(path) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            cursor = connection.execute(sql)
            rows = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:  # Warning: two statements, before Python 3.12
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                raise
            late = isinstance(error, sqlite3.OperationalError) and _code(error) == sqlite3.SQLITE_INTERRUPT
            raise UserError(
                f"the query took over {timeout_s:.0f} s" if late else f"the query failed: {error}",
                "it must be one SELECT; `SELECT sql FROM sqlite_master` lists the tables", exit_code=2,
            ) from error
    return tuple(column[0] for column in cursor.description or ()), rows


def verify(path: Path) -> BadRow | None:
    """Walk the hash chain and return the first row that does not fit, None where all do.

    Finds a row that was changed, deleted, inserted or moved, and rows cut off the end. Someone who can
    rewrite the whole file can also recompute every hash: keep a last hash elsewhere to be safe from that.
    """
    with _reading(path) as connection:
        row_id, row_hash, last_id, last_hash = _ends(connection)
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # for hand-made rows
        rows = connection.execute(f"SELECT {_ACTIVITY} FROM activity ORDER BY id")  # noqa: S608 - a literal
        for found, *columns, stored in rows:
            row_id += 1
            if found < row_id:
                return BadRow(found, "stands before the first row")
            if found > row_id:
                return BadRow(row_id, "is missing")
            try:
                row_hash = _link(row_hash, row_id, _chained(columns))
            except (TypeError, UnicodeEncodeError):
                return BadRow(row_id, "holds what is no text")
            if stored != row_hash:
                return BadRow(row_id, "does not fit its hash: it was changed, or inserted")
    if row_id < last_id:
        return BadRow(row_id + 1, "is missing")
    if (row_id, row_hash) != (last_id, last_hash):
        return BadRow(row_id, "is not the row that was written last")
    return None


def backup(path: Path, target: Path) -> None:
    """Copy the journal, while it is written too, to the file `target` (replaced whole); its blobs beside it.

    Raises UserError as `open_reader`, and OSError or sqlite3.Error for a target that cannot be written.
    """
    with _reading(path) as connection:
        with _new_database(target) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, and readable from a read-only place
        there = target.parent / "blobs"
        for (sha256,) in connection.execute("SELECT sha256 FROM records WHERE body IS NULL "
                                            "UNION SELECT sha256 FROM texts WHERE body IS NULL"):
            if not _blob(there, sha256).exists():
                _write_blob(there, sha256, _body(path.parent / "blobs", sha256, None))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    path = path.absolute()
    if not path.exists():
        raise UserError(f"there is no journal yet: {path}", "start the daemon with `placet run`")
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # only the writer checkpoints
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            if not _version(connection, path):
                raise UserError(f"the journal is empty: {path}", "start the daemon with `placet run`")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            raise JournalDamaged(f"the journal {path} is damaged: {error}",
                                 "restart the daemon: it sets the file aside and begins a new one") from error
        if _may_pass(error):
            raise UserError(f"cannot read the journal {path}: {_plainly(error)}",
                            "check its permissions and who has it open") from error
        raise


def _authorize(action: int, name: str | None, _b: str | None, _c: str | None, _d: str | None) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE,
                  sqlite3.SQLITE_FUNCTION):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and name in ("table_info", "table_list", "index_list", "index_info"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _wanted(future: Future[Any]) -> bool:
    """Claim a future, so that it cannot be cancelled any more; False if it was."""
    return future.running() or future.set_running_or_notify_cancel()


# --- making writes ready ------------------------------------------------------------------------------------


def _prepare(write: Write) -> _Prepared:
    """Do in the caller's thread what needs no connection, and raise there for what cannot be stored."""
    match write:
        case AddActivity(activity):
            return _row(activity)
        case PutCase(trace_id, request_id, state, body, version):
            return PutCase(_utf8(trace_id), _utf8(request_id), _utf8(state), _utf8(body), version)
        case Enqueue(trace_id, command):
            return Enqueue(_utf8(trace_id), _utf8(command))
        case MarkFailed(outbox_id, error, not_before):
            return MarkFailed(outbox_id, _utf8(error), not_before)
        case PutSeen(path, digest, verdict, detail):
            return PutSeen(path, digest, verdict, _utf8(detail))
        case AddRecord(trace_id, attempt, seq, kind, key, content):
            return AddRecord(_utf8(trace_id), attempt, seq, kind, _utf8(key), content)
        case _:
            return write


def _row(activity: Activity) -> _Row:
    columns: tuple[str, ...] = (
        activity.timestamp, activity.trace_id, activity.actor.value, activity.agent, activity.action.value,
        activity.entity_type.value, activity.entity_id, _COMPACT(dict(activity.metadata)))
    try:
        return _Row(columns, _chained(columns))
    except UnicodeEncodeError:
        # A file name that is not UTF-8 carries lone surrogates. They become the text \udc80, in metadata too:
        # as the JSON escape \udc80 they would make `metadata->>'path'` return what no reader can decode.
        shown = _LONE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", columns[-1])
        columns = (*(_utf8(column) for column in columns[:-1]), shown)
        return _Row(columns, _chained(columns))


_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
_LONE = re.compile("[\ud800-\udfff]")


def _utf8(text: str) -> str:
    r"""The text with lone surrogates written out (`\udc80`); JSON still parses to the same value."""
    return text.encode("utf-8", "backslashreplace").decode()


def _path_key(path: str) -> str | bytes:
    """What a path is stored as: text, or its bytes where they are no UTF-8; `_path_of` is the inverse."""
    raw = path.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _path_of(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")


def _chained(columns: Sequence[str]) -> bytes:
    """The part of a row's chained text that does not depend on where the row stands."""
    return f"{' '.join([str(len(column)) for column in columns])}\n{''.join(columns)}".encode()


def _link(before: str, row_id: int, chained: bytes) -> str:
    return hashlib.sha256(b"%b\n%d\n%b" % (before.encode(), row_id, chained)).hexdigest()


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _must_change(done: sqlite3.Cursor, otherwise: str) -> None:
    if done.rowcount != 1:
        raise Conflict(otherwise)


def _must_hold(count: int, trace_id: str, token: int) -> None:
    if count != 1:
        raise LeaseLost(f"token {token} does not hold the lease of {trace_id}")


def _lease(connection: sqlite3.Connection, trace_id: str) -> Lease | None:
    row = connection.execute(
        "SELECT token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s FROM leases "
        "WHERE trace_id = ?", (trace_id,)).fetchone()
    if row is None:
        return None
    token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s = row
    owner = Owner(host, boot_id, pid, pid_start)
    return Lease(trace_id, token, owner, bool(held), acquired_at, heartbeat_s, expires_s)


def _ends(connection: sqlite3.Connection) -> tuple[int, str, int, str]:
    start_id, start_hash, last_id, last_hash = connection.execute(
        "SELECT start_id, start_hash, last_id, last_hash FROM chain").fetchone()
    return start_id, start_hash, last_id, last_hash


# --- files --------------------------------------------------------------------------------------------------


def _make_private_file(path: Path) -> None:
    """Make the database's file, mode 0600, which SQLite then gives to its -wal and -shm. Raises UserError."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"the journal {path} is no regular file", "move it away")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's number, 0 for an empty file. Raises UserError for one that this version does not know."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(SCHEMA):
        raise UserError(
            f"the journal {path} was written by a newer placet (schema {version}, known {len(SCHEMA)})",
            "install that version again, or put back a backup from before it")
    return version


def _finish_rollback(path: Path) -> None:
    """Let SQLite undo what a kill cut off before the database had its write-ahead log; a reader alone may not."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
                return  # whatever it is, the check says so
        except sqlite3.DatabaseError:
            return
        else:
            return
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version").fetchone()


def _check(path: Path) -> tuple[str, int]:
    """What is wrong with the database ("" for nothing), and its schema's number (0 if damaged).

    Read-only: a newer placet's file is not touched, and a damaged one is kept as it was found.
    """
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        connection.execute("PRAGMA cell_size_check = 1")
        try:
            version = _version(connection, path)
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.DatabaseError as error:
            # quick_check raises for the worst damage instead of returning it; SQLITE_ERROR can only come from
            # the file here ("unsupported file format"), for the statements are fixed
            if _is_damage(error) or _code(error) == sqlite3.SQLITE_ERROR:
                return str(error), 0
            raise
    return ("", version) if found == "ok" else (found, 0)


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UserError(f"the journal {path} cannot use a write-ahead log (its mode stays {mode})",
                        "set PLACET_STATE_HOME to a folder on a local disk")


def _set_aside(path: Path, moment: datetime) -> Path:
    """Rename the database and its companions so that they still belong together; return the new name."""
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    kept = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    for tail in ("-wal", "-shm", "-journal", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{tail}").rename(f"{kept}{tail}")
    return kept


@contextlib.contextmanager
def _new_database(target: Path) -> Iterator[sqlite3.Connection]:
    """A database that appears under its name when it is complete and on the disk, and not before."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    partial.unlink(missing_ok=True)
    _make_private_file(partial)
    try:
        with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = 1")
            yield connection
        _sync(partial)
        partial.replace(target)
        _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def _keep_body(blobs: Path, body: bytes) -> tuple[str, int, bytes | None]:
    """The columns sha256, size, body; a long body is on the disk as a file before this returns."""
    sha256 = hashlib.sha256(body).hexdigest()
    if len(body) <= INLINE_BYTES:
        return sha256, len(body), body
    _write_blob(blobs, sha256, body)
    return sha256, len(body), None


def _blob(blobs: Path, sha256: str) -> Path:
    return blobs / sha256[:2] / sha256


def _write_blob(blobs: Path, sha256: str, body: bytes) -> None:
    """Write a content-addressed file if it is not there: content first, name last, both on the disk."""
    target = _blob(blobs, sha256)
    with contextlib.suppress(FileNotFoundError):
        if target.stat().st_size == len(body):
            return
    temporary = blobs / "tmp" / f"{sha256}.{os.getpid()}"
    for folder in (blobs, temporary.parent, target.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:  # noqa: PTH123 - it is a descriptor
        file.write(body)
        file.flush()
        os.fsync(fd)
    temporary.replace(target)
    for folder in (target.parent, blobs, blobs.parent):
        _sync(folder)


def _body(blobs: Path, sha256: str, inline: bytes | None) -> bytes:
    try:
        body = _blob(blobs, sha256).read_bytes() if inline is None else inline
    except FileNotFoundError as error:
        raise JournalDamaged(f"{error.filename} is missing", "put it back from a backup") from error
    if hashlib.sha256(body).hexdigest() != sha256:
        where = _blob(blobs, sha256) if inline is None else f"a row of the journal (sha256 {sha256})"
        raise JournalDamaged(f"{where} is not what was written", "put it back from a backup")
    return body


def _remove_temporaries(blobs: Path) -> None:
    """Remove what a crash left half written; only the one daemon of this vault writes there."""
    with contextlib.suppress(FileNotFoundError):
        for left in list((blobs / "tmp").iterdir()):
            left.unlink()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _same_file(path: Path, identity: tuple[int, int]) -> bool:
    """Whether the path still names the file that is open; SQLite would go on writing into a deleted one."""
    try:
        return _identity(path) == identity
    except FileNotFoundError:
        return False


# --- errors -------------------------------------------------------------------------------------------------


def _code(error: sqlite3.Error) -> int:
    """The primary result code (sqlite.org/rescode.html); 0 for an error of Python's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and _code(error) in _DAMAGED


_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_PASSING = _LOCKED | {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS,
}


def _may_pass(error: BaseException) -> bool:
    """Whether the same write can succeed later, without a change to it: the outside is at fault."""
    return isinstance(error, OSError) or (isinstance(error, sqlite3.Error) and _code(error) in _PASSING)


def _plainly(error: BaseException) -> str:
    """The error as a person knows it."""
    match _code(error) if isinstance(error, sqlite3.Error) else 0:
        case sqlite3.SQLITE_FULL:
            return "the disk is full"
        case sqlite3.SQLITE_READONLY:
            return "it is read-only"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return "another program holds a lock on it"
        case _:
            return str(error)


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


if __name__ == "__main__":
    sys.exit(_migrate_here(sys.argv[1]))
