"""Reading the journal, with or without a daemon that writes it: one snapshot, read-only."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from placet.activity import CommittedRow
from placet.case.lease import Lease, Owner
from placet.errors import UserError
from placet.journal import schema
from placet.journal.chain import last_event, utf8
from placet.journal.connection import snapshot
from placet.journal.costs import ModelCalls
from placet.journal.database import Connection
from placet.journal.schema import ACTIVITY, must_be_released, schema_of
from placet.journal.writes import (
    BodyDamaged,
    CaseRow,
    PendingCommand,
    RecordEntry,
    SeenRow,
    checked_body,
)

_NO_ROUTINE = "AND NOT (action_type = 'git.ran' AND metadata->>'stderr' IS NULL)"


SHA256_HEX = 64
"""Length of a SHA-256 in hex."""


class Reader:
    """One snapshot of the journal, read-only. Made by `open_reader` and `Journal.read`.

    `calls` answers questions about model calls and costs.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.calls = ModelCalls(connection)

    def last(self) -> tuple[int, str]:
        """Return the last event's id and hash; 0 and 64 zeros for an empty journal."""
        return last_event(self.connection)

    def knows(self, row_id: int, row_hash: str) -> bool:
        """Return whether the event with this id and hash is in this journal."""
        if (row_id, row_hash) == self.last():  # which an empty journal has, too
            return True
        found = self.connection.execute(
            "SELECT hash FROM activity WHERE id = ?", (row_id,)
        ).fetchone()
        return found is not None and bool(found[0] == row_hash)  # None: a person deleted the row

    def cases(self, *states: str) -> tuple[CaseRow, ...]:
        """Return the cases in these states, by trace_id; all cases, maybe many, without states."""
        return _cases(
            self.connection,
            f"state IN ({', '.join('?' * len(states))})" if states else "TRUE",
            states,
        )

    def latest_cases(self, state: str, limit: int) -> tuple[CaseRow, ...]:
        """Return the last decided cases in a state, by trace_id."""
        return _cases(
            self.connection,
            "trace_id IN "
            "(SELECT trace_id FROM cases WHERE state = ? ORDER BY updated_at DESC LIMIT ?)",
            (state, limit),
        )

    def count_cases(self) -> int:
        """Return the number of cases."""
        return int(self.connection.execute("SELECT count(*) FROM cases").fetchone()[0])

    def watched_cases(self) -> tuple[CaseRow, ...]:
        """Return the cases with open branches, which people may still merge or drop."""
        return _cases(self.connection, "watched")

    def cases_of(
        self, trace_ids: Collection[str] = (), paths: Collection[str] = ()
    ) -> tuple[CaseRow, ...]:
        """Return the cases with one of these trace ids, or a note at one of these paths."""
        found = (
            {
                row.trace_id: row
                for row in _cases(
                    self.connection,
                    "trace_id IN (SELECT value FROM json_each(?))",
                    (_json(trace_ids),),
                )
            }
            if trace_ids
            else {}
        )
        if paths:
            found |= {
                row.trace_id: row
                for row in _cases(
                    self.connection,
                    "(request_path <> '' AND request_path IN (SELECT value FROM json_each(?))) "
                    "OR (plan_path <> '' AND plan_path IN (SELECT value FROM json_each(?)))",
                    (_json(paths),) * 2,
                )
            }
        return tuple(found.values())

    def cases_named(self, ident: str) -> tuple[CaseRow, ...]:
        """Return the case with this request_id, else ten whose request_id or trace_id begins so."""
        exact = _cases(self.connection, "request_id = ?", (ident,))
        return exact or (
            _cases(
                self.connection,
                "(trace_id >= ? AND trace_id < ?) OR (request_id >= ? AND request_id < ?) "
                "ORDER BY trace_id LIMIT 10",
                (ident.lower(), f"{ident.lower()}~") * 2,
            )
            if ident
            else ()
        )

    def request_ids(self, limit: int) -> tuple[str, ...]:
        """Return the request ids of the last decided cases."""
        rows = self.connection.execute(
            "SELECT request_id FROM cases ORDER BY updated_at DESC LIMIT ?", (limit,)
        )
        return tuple(name for (name,) in rows)

    def is_taken(self, request_id: str) -> bool:
        """Return whether a case has this request_id."""
        return (
            self.connection.execute(
                "SELECT 1 FROM cases WHERE request_id = ? LIMIT 1", (request_id,)
            ).fetchone()
            is not None
        )

    def pending_commands(self) -> tuple[PendingCommand, ...]:
        """Return the commands in the outbox that are not done, oldest first."""
        rows = self.connection.execute(
            "SELECT id, trace_id, command, attempts, error FROM outbox "
            "WHERE done_at IS NULL ORDER BY id"
        )
        return tuple(PendingCommand(*row) for row in rows)

    def answers(self, ids: Collection[str]) -> dict[str, str]:
        """Return by id why intents were refused, empty for those performed; others are left out."""
        return dict(
            self.connection.execute(
                "SELECT id, refused FROM intents WHERE id IN (SELECT value FROM json_each(?))",
                (_json(ids),),
            )
        )

    def records(self, trace_id: str, attempt: int) -> tuple[RecordEntry, ...]:
        """Return a mission's record, by seq. Raises BodyDamaged for a damaged entry."""
        rows = self.connection.execute(
            "SELECT seq, kind, key, sha256, body FROM records WHERE trace_id = ? AND attempt = ? "
            "ORDER BY seq",
            (trace_id, attempt),
        )
        return tuple(
            RecordEntry(seq, kind, key, checked_body(sha256, body))
            for seq, kind, key, sha256, body in rows
        )

    def last_record(self, trace_id: str, attempt: int) -> RecordEntry | None:
        """Return the newest entry of a mission's record. Raises BodyDamaged for a damaged one."""
        row = self.connection.execute(
            "SELECT seq, kind, key, sha256, body FROM records WHERE trace_id = ? AND attempt = ? "
            "ORDER BY seq DESC LIMIT 1",
            (trace_id, attempt),
        ).fetchone()
        if row is None:
            return None
        seq, kind, key, sha256, body = row
        return RecordEntry(seq, kind, key, checked_body(sha256, body))

    def asked(self) -> tuple[tuple[str, int], ...]:
        """Return the conversations (trace_id, attempt) with an unanswered model call."""
        return tuple(
            self.connection.execute(
                "SELECT trace_id, attempt FROM asked ORDER BY trace_id, attempt"
            )
        )

    def text(self, digest: str) -> bytes | None:
        """Return the text kept under a digest, or None. Raises BodyDamaged.

        A text under a SHA-256 must have that hash: what was approved is what runs, whoever wrote
        into the database.
        """
        row = self.connection.execute(
            "SELECT sha256, body FROM texts WHERE digest = ?", (digest,)
        ).fetchone()
        if row is not None and len(digest) == SHA256_HEX and row[0] != digest:
            raise BodyDamaged(
                f"the text {digest} in the journal is another one: it was changed",
                "put it back from a backup",
            )
        return checked_body(*row) if row else None

    def has_record(self, trace_id: str, attempt: int, beginning: str) -> bool:
        """Return whether a mission's record has an entry whose key begins so."""
        return (
            self.connection.execute(
                "SELECT 1 FROM records "
                "WHERE trace_id = ? AND attempt = ? AND substr(key, 1, ?) = ? LIMIT 1",
                (trace_id, attempt, len(beginning), beginning),
            ).fetchone()
            is not None
        )

    def seen(self) -> tuple[SeenRow, ...]:
        """Return the acknowledged notes that belong to no case, by path."""
        rows = self.connection.execute(
            "SELECT path, digest, verdict, detail FROM seen ORDER BY path"
        )
        return tuple(SeenRow(*row) for row in rows)

    def lease(self, trace_id: str) -> Lease | None:
        """Return the mission's lease, held or released; None if it never had one."""
        return lease_of(self.connection, trace_id)

    def activity(
        self,
        trace_id: str | None = None,
        *,
        after_id: int = 0,
        limit: int = 1_000,
        newest: bool = False,
        routine: bool = True,
    ) -> tuple[CommittedRow, ...]:
        """Return events above `after_id`, of one trace or all: the first `limit`, or the `newest`.

        A `limit` of -1 means all. Without `routine`, successful git processes are left out.
        """
        rows = self.connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals of this module
            f"WHERE id > ? {'' if trace_id is None else 'AND trace_id = ?'} "
            f"{'' if routine else _NO_ROUTINE} "
            f"ORDER BY id {'DESC' if newest else 'ASC'} {'' if limit < 0 else 'LIMIT ?'}",
            (
                after_id,
                *(() if trace_id is None else (trace_id,)),
                *(() if limit < 0 else (limit,)),
            ),
        ).fetchall()
        return tuple(CommittedRow(*row) for row in (reversed(rows) if newest else rows))

    def last_of(self, *actions: str, trace_id: str) -> CommittedRow | None:
        """Return the newest event of these kinds of one trace ("": about no request), or None."""
        marks = ", ".join("?" * len(actions))
        # the plus keeps SQLite from walking that column's index
        other = ("+", "") if trace_id else ("", "+")
        row = self.connection.execute(
            f"SELECT {ACTIVITY} FROM activity "  # noqa: S608 - the pieces are literals and question marks
            f"WHERE {other[0]}action_type IN ({marks}) AND {other[1]}trace_id = ? "
            "ORDER BY id DESC LIMIT 1",
            (*actions, trace_id),
        ).fetchone()
        return CommittedRow(*row) if row else None


def _cases(
    connection: Connection, where: str, values: Sequence[object] = ()
) -> tuple[CaseRow, ...]:
    order = "" if "ORDER BY" in where else "ORDER BY trace_id"
    sql = f"SELECT trace_id, state, body, version FROM cases WHERE {where} {order}"  # noqa: S608 - the pieces are literals
    return tuple(CaseRow(*row) for row in connection.execute(sql, values))


def _json(texts: Collection[str]) -> str:
    return json.dumps([utf8(text) for text in texts])


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[Reader]:
    """Yield a reader of one snapshot of the journal.

    Raises UserError if there is no journal yet or its schema is of another version, and
    JournalDamaged.
    """
    with snapshot(path) as connection:
        version = schema_of(connection, path)
        must_be_released(version, path)
        if version < schema.latest():
            raise UserError(
                f"the journal {path} was written by an older placet (schema {version})",
                "start the daemon with `placet run`: it brings it up to date",
            )
        yield Reader(connection)


def lease_of(connection: Connection, trace_id: str) -> Lease | None:
    """Return a mission's lease, held or released; None if it never had one."""
    row = connection.execute(
        "SELECT token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s "
        "FROM leases WHERE trace_id = ?",
        (trace_id,),
    ).fetchone()
    if row is None:
        return None
    token, host, boot_id, pid, pid_start, held, acquired_at, heartbeat_s, expires_s = row
    owner = Owner(host, boot_id, pid, pid_start)
    return Lease(trace_id, token, owner, bool(held), acquired_at, heartbeat_s, expires_s)
