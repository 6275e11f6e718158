"""The journal: every event, every case, every mission's record, in one SQLite database.

One thread owns the one connection that writes (`writer`). Callers hand it batches of write values (`values`); it applies
what has queued up in one transaction, commits, and only then answers: an answer means that the batch will survive the
process. A batch is all or nothing; one that fails (Conflict, LeaseLost, LeaseHeld) fails alone. Everyone else reads, each
on a connection of its own (`reading`). The events form a hash chain (`chain`).
"""

from placet.journal.blobs import INLINE_BYTES
from placet.journal.keeping import ARCHIVING, backup, examine, verify
from placet.journal.reading import Reader, open_reader, query
from placet.journal.schema import SCHEMA, Step, migrate
from placet.journal.values import (
    ATTEMPT,
    REPLY,
    Acquired,
    AcquireLease,
    AddActivity,
    AddRecord,
    BadRow,
    BodyDamaged,
    CaseRow,
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
    PendingCommand,
    PutCase,
    PutSeen,
    PutText,
    Record,
    ReleaseLease,
    RenewLease,
    SeenRow,
    Write,
)
from placet.journal.writer import Journal

__all__ = [
    "ARCHIVING",
    "ATTEMPT", "INLINE_BYTES", "REPLY", "SCHEMA", "AcquireLease", "Acquired", "AddActivity", "AddRecord", "BadRow",
    "BodyDamaged", "CaseRow", "Committed", "CommittedActivity", "Conflict", "DropSeen", "Enqueue", "Guard", "Journal",
    "JournalDamaged", "JournalPaused", "LeaseHeld", "LeaseLost", "MarkDone", "MarkFailed", "PendingCommand", "PutCase",
    "PutSeen", "PutText", "Reader", "Record", "ReleaseLease", "RenewLease", "SeenRow", "Step", "Write", "backup", "examine",
    "migrate", "open_reader", "query", "verify",
]
