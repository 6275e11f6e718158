"""Define what may be written to the journal, the rows read from it, and their errors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from placet.activity import Activity
from placet.case.lease import Lease, Owner
from placet.errors import PlacetError, UserError
from placet.journal.database import upsert


class Conflict(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A write's expectation was wrong; nothing of its batch was written."""


class LeaseLost(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The token no longer holds the lease; nothing of the batch was written."""


class LeaseHeld(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """Another owner holds `lease`, which has not run out; nothing of the batch was written."""

    def __init__(self, lease: Lease, left_s: float | None) -> None:
        left = (
            "until it stops renewing it" if left_s is None else f"for {max(left_s, 0):.0f} s more"
        )
        super().__init__(
            f"{lease.owner} holds the lease of {lease.trace_id}, token {lease.token}, {left}"
        )
        self.lease = lease


class JournalPaused(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The journal is closed, or told to wait no longer; nothing of the batch was written."""


class JournalDamaged(UserError):  # noqa: N818 - named for what happened, as Stop is
    """The database or one of its files is damaged."""


class BodyDamaged(JournalDamaged):
    """A text or a record's entry is missing or changed; this stops the case that needs it alone."""


def hashed_body(body: bytes) -> tuple[str, int, bytes]:
    """Return the columns sha256, size and body of a row."""
    return hashlib.sha256(body).hexdigest(), len(body), body


def checked_body(sha256: str, body: bytes | str) -> bytes:
    """Return a row's body; raises BodyDamaged if its hash is another.

    A row written by hand may hold text.
    """
    if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != sha256:
        raise BodyDamaged(
            f"a row of the journal (sha256 {sha256}) is not what was written",
            "put it back from a backup",
        )
    return body


REPLY = "reply:"
"""Begins the record's keys of the model's answers."""

ATTEMPT = "attempt:"
"""Begins the record's keys of model calls: the intent has the most that a call may use, the outcome
the use of one without a reply."""


@dataclass(frozen=True, slots=True)
class AddActivity:
    """Append one event."""

    activity: Activity


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """Take a mission's lease for `ttl_s` seconds; the token is in the answer. Raises LeaseHeld.

    `gone_token` is the token whose holder the caller has proved to be gone: that lease is taken
    over at once. `told` returns the last events of the batch, from the token and from the holder
    that had not released the lease.
    """

    trace_id: str
    owner: Owner
    ttl_s: float
    gone_token: int | None = None
    told: Callable[[int, Owner | None], Sequence[AddActivity]] | None = None


class Change:
    """A write that is its SQL: the dataclass's fields are the parameters of each statement.

    Statements may also use `:now` (the time, for people) and `:now_s` (the clock of leases). A
    field `body` of bytes is given as `:sha256`, `:size` and `:body`. If the first statement changes
    or finds no row and `ELSE` says something, the batch fails with that as `ERROR`.
    """

    SQL: ClassVar[tuple[str, ...]]
    ELSE: ClassVar[str] = ""
    ERROR: ClassVar[type[Conflict | LeaseLost]] = Conflict


@dataclass(frozen=True, slots=True)
class PutCase(Change):
    """Store a case (`body` is JSON); its new version is `expect_version + 1`.

    `expect_version` is its version now, 0 for a new case: else Conflict. A case is found by
    `request_path` and `plan_path`; `watched` says that it has branches to watch.
    """

    trace_id: str
    request_id: str
    state: str
    body: str
    expect_version: int
    request_path: str = ""
    plan_path: str = ""
    watched: bool = False
    SQL = (
        """INSERT INTO cases (trace_id, request_id, state, body, version, updated_at, request_path,
          plan_path, watched)
        SELECT :trace_id, :request_id, :state, :body, :expect_version + 1, :now, :request_path,
          :plan_path, :watched
        WHERE :expect_version = 0 OR EXISTS (SELECT 1 FROM cases WHERE trace_id = :trace_id)
        ON CONFLICT (trace_id) DO UPDATE SET request_id = excluded.request_id,
          state = excluded.state, body = excluded.body, version = excluded.version,
          updated_at = excluded.updated_at, request_path = excluded.request_path,
          plan_path = excluded.plan_path, watched = excluded.watched
        WHERE cases.version = :expect_version""",
    )
    ELSE = "case {trace_id} is not at version {expect_version}"


@dataclass(frozen=True, slots=True)
class Enqueue(Change):
    """Put a command (JSON) that has to be performed into the outbox."""

    trace_id: str
    command: str
    SQL = (
        "INSERT INTO outbox (trace_id, command, created_at) VALUES (:trace_id, :command, :now) "
        "RETURNING id",
    )


@dataclass(frozen=True, slots=True)
class MarkDone(Change):
    """Take a command out of the outbox; Conflict if it is not in it."""

    outbox_id: int
    SQL = (
        "UPDATE outbox SET done_at = :now, error = '' WHERE id = :outbox_id AND done_at IS NULL",
    )
    ELSE = "command {outbox_id} is not pending"


@dataclass(frozen=True, slots=True)
class MarkFailed(MarkDone):
    """Count a failed attempt at a command; Conflict if it is not in the outbox."""

    error: str
    SQL = (
        "UPDATE outbox SET attempts = attempts + 1, error = :error "
        "WHERE id = :outbox_id AND done_at IS NULL",
    )


@dataclass(frozen=True, slots=True)
class AddRecord(Change):
    """Append to a mission's record; Conflict if (trace_id, attempt, seq) is taken.

    With the intent of an ATTEMPT the conversation is one of those `asked`, until its outcome, or
    the REPLY, is there: a conversation makes one call at a time.
    """

    trace_id: str
    attempt: int
    seq: int
    kind: str
    key: str
    body: bytes
    SQL = (
        "INSERT INTO records VALUES (:trace_id, :attempt, :seq, :kind, :key, :sha256, :size, :body)"
        " ON CONFLICT DO NOTHING",
        "INSERT INTO asked SELECT :trace_id, :attempt "
        "WHERE :kind = 'intent' AND substr(:key, 1, 8) = 'attempt:' ON CONFLICT DO NOTHING",
        "DELETE FROM asked WHERE trace_id = :trace_id AND attempt = :attempt "
        "AND :kind = 'outcome' AND (substr(:key, 1, 8) = 'attempt:' "
        "OR substr(:key, 1, 6) = 'reply:')",
    )
    ELSE = "record {trace_id} attempt {attempt} seq {seq} is taken"


@dataclass(frozen=True, slots=True)
class PutText(Change):
    """Keep a text under the caller's digest; one that was damaged is whole again."""

    digest: str
    body: bytes
    SQL = (upsert("texts", "digest", "sha256", "size", "body"),)


@dataclass(frozen=True, slots=True)
class PutSeen(Change):
    """Acknowledge a note that belongs to no case (invalid, a conflict copy)."""

    path: str
    digest: str
    verdict: str
    detail: str
    SQL = (upsert("seen", "path", "digest", "verdict", "detail"),)


@dataclass(frozen=True, slots=True)
class DropSeen(Change):
    """Forget what was acknowledged about a note, if anything was."""

    path: str
    SQL = ("DELETE FROM seen WHERE path = :path",)


@dataclass(frozen=True, slots=True)
class AnswerIntent(Change):
    """Record the result of an intent once; Conflict if it is recorded already.

    `refused` says why it was not performed, or is empty.
    """

    id: str
    refused: str = ""
    SQL = ("INSERT INTO intents VALUES (:id, :refused) ON CONFLICT DO NOTHING",)
    ELSE = "intent {id} was performed already"


@dataclass(frozen=True, slots=True)
class Guard(Change):
    """Let the batch pass only while this token holds the lease: else LeaseLost."""

    trace_id: str
    token: int
    SQL = ("SELECT 1 FROM leases WHERE trace_id = :trace_id AND token = :token AND held",)
    ELSE = "token {token} does not hold the lease of {trace_id}"
    ERROR = LeaseLost


@dataclass(frozen=True, slots=True)
class RenewLease(Guard):
    """Heartbeat: the lease now runs for `ttl_s` from now; LeaseLost if another took it over."""

    ttl_s: float
    SQL = (
        "UPDATE leases SET heartbeat_s = :now_s, expires_s = :now_s + :ttl_s "
        "WHERE trace_id = :trace_id AND token = :token AND held",
    )


@dataclass(frozen=True, slots=True)
class ReleaseLease(Guard):
    """Give the lease back; LeaseLost if another took it over."""

    SQL = ("UPDATE leases SET held = FALSE WHERE trace_id = :trace_id AND token = :token AND held",)


Write = AddActivity | AcquireLease | Change


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case. `body` is JSON."""

    trace_id: str
    body: str
    version: int


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """One command that has to be performed."""

    id: int
    trace_id: str
    command: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One entry of a mission's record."""

    seq: int
    kind: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class SeenRow:
    """An acknowledged note that belongs to no case; `path` is escaped for people."""

    path: str
    digest: str
    verdict: str
    detail: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to a batch: its new outbox ids, in order, and the lease that it took.

    `token` is 0 for no lease; `taken_from` is the holder that had not released it, if any.
    """

    outbox: tuple[int, ...] = ()
    token: int = 0
    taken_from: Owner | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """The first row of `activity` that does not fit the chain, and why."""

    id: int
    reason: str
