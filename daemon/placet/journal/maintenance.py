"""Verify the journal, and copy it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from placet.journal.chain import NO_HASH, chained, last_event, link
from placet.journal.database import address_of, database_of
from placet.journal.file import new_database
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
                return BadRow(row_id, "holds what is no text")
            if stored != row_hash:
                return BadRow(row_id, "does not fit its hash: it was changed, or inserted")
    if row_id < last_id:
        return BadRow(row_id + 1, "is missing")
    if (row_id, row_hash) != (last_id, last_hash):
        return BadRow(row_id, "is not the row that was written last")
    return None


def examine(path: Path, mark: Path) -> tuple[int, str, str]:
    """Return the last event's id and hash, and the first damage found ("" for none).

    It checks the events (`verify`), their end against the daemon's mark, and each text and entry of
    a record against its hash.
    """
    bad = verify(path)
    with snapshot(path) as connection:
        last_id, last_hash = last_event(connection)
        if bad is not None:
            return last_id, last_hash, f"row {bad.id} {bad.reason}"
        reader = Reader(connection)
        with contextlib.suppress(FileNotFoundError):
            row_id, _, row_hash = mark.read_text("ascii", errors="replace").strip().partition(" ")
            if not row_id.isdecimal() or not reader.knows(int(row_id), row_hash):
                return (
                    last_id,
                    last_hash,
                    (
                        f"row {row_id}, which {mark.name} names, is not in it as the daemon left"
                        " it: rows were cut off at the end, or it was put back from a backup"
                    ),
                )
        for (digest,) in connection.execute(
            "SELECT digest FROM texts WHERE body IS NOT NULL"  # an older journal has files
        ).fetchall():
            try:
                reader.text(digest)
            except BodyDamaged as error:
                return last_id, last_hash, error.what
        for trace_id, sha256, body in rows_of(
            connection, "SELECT trace_id, sha256, body FROM records WHERE body IS NOT NULL"
        ):
            try:
                checked_body(sha256, body)
            except BodyDamaged as error:
                return last_id, last_hash, f"{error.what} (in the record of {trace_id})"
    return last_id, last_hash, ""


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
