"""The journal as a whole: verify it, copy it, archive its oldest events."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

from placet.disk import sync
from placet.journal.blobs import body_of
from placet.journal.chain import chained, ends, link
from placet.journal.connection import file_snapshot, rows_of, snapshot
from placet.journal.files import new_database
from placet.journal.place import address_of, blobs_of
from placet.journal.reader import Reader
from placet.journal.schema import ACTIVITY
from placet.journal.sql import Connection
from placet.journal.writes import BadRow, BodyDamaged
from placet_team.moving import copy_tables, new_journal


def verify(path: Path) -> BadRow | None:
    """Return the first row that does not fit the hash chain; None if all do.

    It finds rows that were changed, deleted, inserted or moved, and rows cut off at the end.
    Whoever can rewrite the whole file can compute new hashes: keep a last hash elsewhere.
    """
    with snapshot(path, "surrogateescape") as connection:  # for hand-made rows
        row_id, row_hash, last_id, last_hash = ends(connection)
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
        last_id, last_hash = ends(connection)[2:]
        if bad is not None:
            return last_id, last_hash, f"row {bad.id} {bad.reason}"
        reader = Reader(connection, blobs_of(path))
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
        for (digest,) in connection.execute("SELECT digest FROM texts").fetchall():
            try:
                reader.text(digest)
            except BodyDamaged as error:
                return last_id, last_hash, error.what
        for trace_id, sha256, body in rows_of(
            connection, "SELECT trace_id, sha256, body FROM records"
        ):
            try:
                body_of(blobs_of(path), sha256, body)
            except BodyDamaged as error:
                return last_id, last_hash, f"{error.what} (in the record of {trace_id})"
    return last_id, last_hash, ""


def backup(path: Path, target: Path, *, whole: bool = True) -> tuple[str, ...]:
    """Copy the journal, even while it is written, to `target`; return what could not be copied.

    With `whole`, long bodies are in the copy's rows, and it needs no files next to it. Raises
    UserError as `open_reader`, and OSError or sqlite3.Error for an unwritable target.
    """
    if address_of(path):
        with snapshot(path) as there, new_journal(target) as copy:
            copy_tables(there, copy, None)
        return ()
    lost: list[str] = []
    with file_snapshot(path) as connection, new_database(target) as copy:
        connection.backup(copy)
        # one file, and readable from a read-only place
        copy.execute("PRAGMA journal_mode = DELETE")
        for table in ("records", "texts") if whole else ():
            copy.execute("BEGIN")
            for row_id, sha256 in connection.execute(
                f"SELECT rowid, sha256 FROM {table} WHERE body IS NULL"  # noqa: S608 - a literal
            ):
                try:
                    body = body_of(path.parent / "blobs", sha256, None)
                except BodyDamaged as error:
                    lost.append(error.what)
                    continue
                copy.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (body, row_id))  # noqa: S608 - as above
            copy.execute("COMMIT")
    return tuple(lost)


def archive(
    connection: Connection, path: Path, before: str, keep: frozenset[str], most: int
) -> Path | None:
    """Move up to `most` of the oldest events to a database of their own (see `Journal.archive`).

    Each piece is a transaction there, then one here: after a crash in between, it is moved again.
    `connection` is the writer's, outside of a transaction.
    """
    partial = path.with_name(f".{path.stem}{ARCHIVING}")
    start_id, start_hash, _, _ = ends(connection)
    end_id, end_hash, last = _end_of_piece(connection, before, keep, most)
    if end_id == start_id and not partial.exists():
        return None
    over = (
        "SELECT DISTINCT trace_id FROM activity AS old WHERE id <= :end "
        "AND NOT EXISTS (SELECT 1 FROM activity AS kept "
        "WHERE kept.trace_id = old.trace_id AND kept.id > :end)"
    )
    gone = json.dumps([trace_id for (trace_id,) in connection.execute(over, {"end": end_id})])
    of_gone = "trace_id IN (SELECT value FROM json_each(:gone))"
    which = {
        "activity": "id <= :end",
        "records": of_gone,
        "outbox": f"done_at IS NOT NULL AND {of_gone}",
    }
    values = {"end": end_id, "gone": gone}
    if not partial.exists():
        with new_journal(partial) as copy:
            copy.execute("UPDATE chain SET start_id = ?, start_hash = ?", (start_id, start_hash))
    with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = FULL")
        copy.execute("PRAGMA fullfsync = 1")
        copy.execute("BEGIN IMMEDIATE")
        for table, condition in which.items():
            rows = connection.execute(f"SELECT * FROM {table} WHERE {condition}", values)  # noqa: S608 - names of this function
            marks = ", ".join("?" * len(rows.description))
            copy.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)  # noqa: S608 - as above
        copy.execute("UPDATE chain SET last_id = ?, last_hash = ?", (end_id, end_hash))
        copy.execute("COMMIT")
        first_id = ends(copy)[0] + 1
    connection.execute("BEGIN IMMEDIATE")
    for table, condition in which.items():
        connection.execute(f"DELETE FROM {table} WHERE {condition}", values)  # noqa: S608 - as above
    connection.execute("UPDATE chain SET start_id = ?, start_hash = ?", (end_id, end_hash))
    connection.execute("COMMIT")
    if not last:
        return partial
    target = path.with_name(f"{path.stem}.{first_id}-{end_id}.db")
    partial.replace(target)
    sync(target.parent)
    return target


def _end_of_piece(
    connection: Connection, before: str, keep: frozenset[str], most: int
) -> tuple[int, str, bool]:
    """Return the last event to move now (id and hash), and whether no more are due after it."""
    start_id, end_hash, _, _ = ends(connection)
    end_id = start_id
    for row_id, timestamp, trace_id, row_hash in connection.execute(
        "SELECT id, timestamp, trace_id, hash FROM activity ORDER BY id LIMIT ?", (most + 1,)
    ):
        if timestamp >= before or trace_id in keep:
            break
        if row_id - start_id > most:
            return end_id, end_hash, False
        end_id, end_hash = row_id, row_hash
    return end_id, end_hash, True


ARCHIVING = ".archive.tmp"
"""Suffix of an unfinished archive."""
