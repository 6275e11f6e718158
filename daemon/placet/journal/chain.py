r"""Hash the events into a chain.

A row's hash is the hex SHA-256 of the UTF-8 of `{hash of the row
before}\n{id}\n{lengths}\n{texts}`: the lengths, in characters and joined by blanks, of timestamp,
trace_id, actor, agent, action_type, entity_type, entity_id and metadata, then these eight one after
the other. The first row follows 64 zeros. Table `chain` names the last one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from placet.activity import Activity
from placet.journal.costs import CallUse, Paid, add, sum_of
from placet.journal.database import Connection


class EncodedRow(NamedTuple):
    """An activity as it is written: its columns, the same as hashed, and its part in the sums."""

    columns: tuple[str, ...]
    chained: bytes
    adds: CallUse | Paid | None


NO_HASH = "0" * 64
"""The hash that the first row follows."""

_COMPACT = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_LONE = re.compile("[\ud800-\udfff]")
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def encode_row(activity: Activity) -> EncodedRow:
    """Return an event as a row; raises ValueError or TypeError for what cannot be stored."""
    metadata = _COMPACT(dict(activity.metadata))
    if r"\u0000" in metadata:  # PostgreSQL cannot return it
        metadata = _NUL.sub(r"\1\\\\u0000", metadata)
    columns: tuple[str, ...] = (
        activity.timestamp,
        activity.trace_id,
        activity.actor.value,
        activity.agent.replace("\0", r"\u0000"),
        activity.action.value,
        activity.entity_type.value,
        activity.entity_id.replace("\0", r"\u0000"),
        metadata,
    )
    try:
        return EncodedRow(columns, chained(columns), sum_of(activity))
    except UnicodeEncodeError:
        # A file name that is not UTF-8 carries lone surrogates. They become the text \udc80, in
        # metadata too: as the JSON escape \udc80 they would make `metadata->>'path'` return what no
        # reader can decode.
        shown = _LONE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", columns[-1])
        columns = (*(utf8(column) for column in columns[:-1]), shown)
        return EncodedRow(columns, chained(columns), sum_of(activity))


def utf8(text: str) -> str:
    r"""Return a text with lone surrogates written as `\udc80`; JSON parses to the same value.

    U+0000, which PostgreSQL does not store, becomes `\u0000`.
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\u0000")


def chained(columns: Sequence[str]) -> bytes:
    """Return the part of a row's hashed text that does not depend on its position."""
    return f"{' '.join([str(len(column)) for column in columns])}\n{''.join(columns)}".encode()


def link(before: str, row_id: int, chained: bytes) -> str:
    """Return the hash of a row that follows a row with the hash `before`."""
    return hashlib.sha256(b"%b\n%d\n%b" % (before.encode(), row_id, chained)).hexdigest()


def last_event(connection: Connection) -> tuple[int, str]:
    """Return the last event's id and hash; 0 and NO_HASH for an empty journal."""
    last_id, last_hash = connection.execute("SELECT last_id, last_hash FROM chain").fetchone()
    return last_id, last_hash


class Chain:
    """The end of the hash chain within a transaction; `write` writes the new rows together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._end: tuple[int, str] | None = None  # read for the first event: many batches have none
        self.rows: list[tuple[Any, ...]] = []
        self._sums: list[tuple[int, CallUse | Paid]] = []

    def _last(self) -> tuple[int, str]:
        # max(id) too: a row that someone inserted by hand must not stop the daemon; verify names it
        last_id, last_hash = self._connection.execute(
            "SELECT coalesce((SELECT max(id) FROM activity WHERE id > last_id), last_id), "
            "last_hash FROM chain"
        ).fetchone()
        return last_id, last_hash

    def append(self, row: EncodedRow) -> None:
        """Add an event."""
        before, last_hash = self._end or self._last()
        self._end = new, chained = before + 1, link(last_hash, before + 1, row.chained)
        self.rows.append((new, *row.columns, chained))
        if row.adds is not None:
            self._sums.append((new, row.adds))

    def mark(self) -> tuple[tuple[int, str] | None, int, int]:
        """Return the current end, for `back_to`."""
        return self._end, len(self.rows), len(self._sums)

    def back_to(self, mark: tuple[tuple[int, str] | None, int, int]) -> None:
        """Undo what was added since the mark."""
        self._end, rows, sums = mark
        del self.rows[rows:], self._sums[sums:]

    def write(self) -> None:
        """Write the new rows, their sums and the chain's end."""
        if self.rows and self._end:
            self._connection.executemany(
                "INSERT INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self.rows
            )
            self._connection.execute("UPDATE chain SET last_id = ?, last_hash = ?", self._end)
            add(self._connection, self._sums)
