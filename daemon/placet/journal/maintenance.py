"""Verify the journal, and copy it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from placet.journal.chain import NO_HASH, chained, last_event, link
from placet.journal.database import Connection, address_of, database_of
from placet.journal.file import check, damaged, new_database
from placet.journal.reader import Reader, file_snapshot, rows_of, snapshot
from placet.journal.schema import ACTIVITY
from placet.journal.writes import BadRow, BodyDamaged, checked_body


def verify(path: Path) -> BadRow | None:
    """Return the first row that does not fit the hash chain; None if all do.

    It finds rows that were changed, deleted, inserted or moved, and rows cut off at the end.
    Whoever can rewrite the whole file can compute new hashes: keep a last hash elsewhere.
    """
    with snapshot(path, "surrogateescape") as connection:  # for hand-made rows
        row_id, row_hash = 0, NO_HASH
        last_id, last_hash = last_event(connection)
        rows = rows_of(connection, f"SELECT {ACTIVITY} FROM activity ORDER BY id")  # noqa: S608 - a literal
        for found, *columns, stored in rows:
            row_id += 1
            if found < row_id:
                return BadRow(found, "stands before the first row")
            if found > row_id:
                return BadRow(row_id, "is missing")
            try:
                row_hash = link(row_hash, row_id, chained(columns))
            except (TypeError, UnicodeEncodeError):
                return BadRow(row_id, "holds something that is not text")
            if stored != row_hash:
                return BadRow(row_id, "does not fit its hash: it was changed, or inserted")
    if row_id < last_id:
        return BadRow(row_id + 1, "is missing")
    if (row_id, row_hash) != (last_id, last_hash):
        return BadRow(row_id, "is not the row that was written last")
    return None


class Examined(NamedTuple):
    """What `examine` found: the last event, the first damage ("" for none).

    `lost_row` is the row that the daemon's mark names and an otherwise undamaged journal lacks, as
    after a restore; 0 if it lacks none.
    """

    last_id: int
    last_hash: str
    damage: str
    lost_row: int = 0


def examine(path: Path, mark: Path) -> Examined:
    """Check the events (`verify`), each text and entry of a record against its hash, and the end.

    The end is compared with the daemon's mark. Raises JournalDamaged for pages that SQLite cannot
    read.
    """
    if not address_of(path) and path.exists() and (damage := check(path, whole=True)[0]):
        raise damaged(path, damage)
    bad = verify(path)
    with snapshot(path) as connection:
        last_id, last_hash = last_event(connection)
        if bad is not None:
            return Examined(last_id, last_hash, f"row {bad.id} {bad.reason}")
        if damage := _damaged_body(connection):
            return Examined(last_id, last_hash, damage)
        with contextlib.suppress(FileNotFoundError):
            row_id, _, row_hash = mark.read_text("ascii", errors="replace").strip().partition(" ")
            if not row_id.isdecimal():
                return Examined(last_id, last_hash, f"{mark.name} beside it names no row")
            if not Reader(connection).knows(int(row_id), row_hash):
                if int(row_id) > last_id:
                    return Examined(last_id, last_hash, "", int(row_id))
                return Examined(
                    last_id,
                    last_hash,
                    f"row {row_id} is not the one that {mark.name} names: the journal was replaced",
                )
    return Examined(last_id, last_hash, "")


def _damaged_body(connection: Connection) -> str:
    """Return which text or record does not fit its hash, or an empty string."""
    reader = Reader(connection)
    for (digest,) in connection.execute(
        "SELECT digest FROM texts WHERE body IS NOT NULL"  # an older journal has files
    ).fetchall():
        try:
            reader.text(digest)
        except BodyDamaged as error:
            return error.what
    for trace_id, sha256, body in rows_of(
        connection, "SELECT trace_id, sha256, body FROM records WHERE body IS NOT NULL"
    ):
        try:
            checked_body(sha256, body)
        except BodyDamaged as error:
            return f"{error.what} (in the record of {trace_id})"
    return ""


def backup(path: Path, target: Path) -> None:
    """Copy the journal, even while it is written, to the file `target`.

    Raises UserError as `open_reader`, and OSError or sqlite3.Error for an unwritable target.
    """
    if address := address_of(path):
        database_of(address).backup(path, target)
        return
    with file_snapshot(path) as connection, new_database(target) as copy:
        connection.backup(copy)
        # one file, and readable from a read-only place
        copy.execute("PRAGMA journal_mode = DELETE")
