"""What is written, what is read, and what goes wrong, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placet.core.activity import Activity
from placet.core.errors import PlacetError, UserError
from placet.core.life.lease import Lease, Owner


class Conflict(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """A write believed something that is not so; nothing of its batch was written."""


class LeaseLost(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The token does not hold the lease any more; nothing of the batch was written."""


class LeaseHeld(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """Another holds the lease, which has not run out; nothing of the batch was written.

    `lease` says who.
    """

    def __init__(self, lease: Lease, left_s: float | None) -> None:
        left = (
            "until it stops renewing it" if left_s is None else f"for {max(left_s, 0):.0f} s more"
        )
        super().__init__(
            f"{lease.owner} holds the lease of {lease.trace_id}, token {lease.token}, {left}"
        )
        self.lease = lease


class JournalPaused(PlacetError):  # noqa: N818 - named for what happened, as Stop is
    """The journal is closed, or could not write when it was told to wait no longer.

    Nothing of the batch was written.
    """


class JournalDamaged(UserError):  # noqa: N818 - named for what happened, as Stop is
    """The database or one of its files is not what was written."""


class BodyDamaged(JournalDamaged):
    """One text, or one entry of a record, is missing or is not what was written: it stops the case that needs it, no other."""


@dataclass(frozen=True, slots=True)
class AddActivity:
    """Append one event."""

    activity: Activity


@dataclass(frozen=True, slots=True)
class PutCase:
    """Store a case; its new version is `expect_version + 1`.

    `expect_version` is the version that it must have now, 0 for a case that must not exist: else
    Conflict. `body` is JSON. By `request_path` and `plan_path` it is found; `watched` says that it
    has branches that are.
    """

    trace_id: str
    request_id: str
    state: str
    body: str
    expect_version: int
    request_path: str = ""
    plan_path: str = ""
    watched: bool = False

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
    """Count a failed attempt at a command; Conflict if it is not in the outbox."""

    outbox_id: int
    error: str


REPLY = "reply:"
"""Keys of the record for what the model answered."""

ATTEMPT = "attempt:"
"""Keys of the record for each call of the model: the intent says what it may come to, the outcome what one without a reply did."""


@dataclass(frozen=True, slots=True)
class AddRecord:
    """Append to a mission's record; Conflict if (trace_id, attempt, seq) is taken.

    With the intent of an ATTEMPT the conversation is one of those `asked`, until the outcome of it,
    or the REPLY, is there.
    """

    trace_id: str
    attempt: int
    seq: int
    kind: str
    key: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PutText:
    """Keep a text under the caller's digest (a plan's leaves out stamped keys).

    The first one stays.
    """

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

    `gone_token` is the token whose holder the caller has proved to be gone: that lease is taken
    over at once.
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


Write = (
    AddActivity
    | PutCase
    | Enqueue
    | MarkDone
    | MarkFailed
    | AddRecord
    | PutText
    | PutSeen
    | DropSeen
    | AcquireLease
    | RenewLease
    | ReleaseLease
    | Guard
)


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


@dataclass(frozen=True, slots=True)
class RecordEntry:
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
    """A lease that was taken.

    `taken_from` is the holder that had not released it, None if none had to go.
    """

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
