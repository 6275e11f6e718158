"""Upgrade a journal of schema 6 to schema 9; delete this module once nobody has such a journal.

Events keep every byte, so the hash chain stays valid. Records of conversations have the same form,
so killed missions resume and questions stay open. Cases get today's groups. Long bodies move from
files into their rows. Plans that wait get today's box. Commands that only wrote an old box, or
replaced a plan, are dropped: the next look writes the box.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from placet.case.callout import box_lines, box_of, with_marks
from placet.case.case import CASE_JSON, Approval, Case, LastOutcome, Rejection, Request, Reviewed
from placet.case.commands import COMMAND_JSON
from placet.case.life_cycle import STATUSES, State
from placet.codec import sha256
from placet.journal.errors import BUSY_MS
from placet.journal.maintenance import backup, verify
from placet.journal.schema import ACTIVITY
from placet.journal.writes import hashed_body
from placet.note.frontmatter import plan_text, read_note

_STATEMENTS = (
    "CREATE TABLE intents (id TEXT PRIMARY KEY, refused TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX activity_human ON activity (actor) WHERE actor = 'human'",
    "DROP INDEX outbox_trace",
    "ALTER TABLE chain DROP COLUMN start_id",
    "ALTER TABLE chain DROP COLUMN start_hash",
    "DELETE FROM outbox WHERE done_at IS NULL AND command->>'do' IN ('show', 'rewrite')",
    "PRAGMA user_version = 9",
)


def upgrade(path: Path, copy: Path) -> str:
    """Copy the journal to `copy`, upgrade it in one transaction, and verify it; return the news."""
    backup(path, copy)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")  # closing it rolls back what is not complete
        _take_archives_in(connection, path)
        _take_files_in(connection, path.parent / "blobs")
        for statement in _STATEMENTS:
            connection.execute(statement)
        _regroup_cases(connection)
        connection.execute("COMMIT")
    path.with_suffix(".ballast").unlink(missing_ok=True)
    bad = verify(path)
    found = f"Its row {bad.id} {bad.reason}" if bad else "Its hash chain is valid"
    return f"placet upgraded the journal. {found}. A copy of the old one is {copy}."


def _take_archives_in(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the events and records that schema 6 moved to archives back into the journal."""
    for archive in path.parent.glob(f"{path.stem}.[0-9]*-[0-9]*.db"):
        with contextlib.closing(sqlite3.connect(f"{archive.as_uri()}?mode=ro", uri=True)) as old:
            rows = old.execute(f"SELECT {ACTIVITY} FROM activity")  # noqa: S608 - a literal
            connection.executemany(
                "INSERT OR IGNORE INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            rows = old.execute(
                "SELECT trace_id, attempt, seq, kind, key, sha256, size, body FROM records"
            )
            connection.executemany(
                "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )


def _take_files_in(connection: sqlite3.Connection, blobs: Path) -> None:
    """Copy long bodies from their files; one that is missing becomes a damaged body."""
    for table in ("records", "texts"):
        missing = f"SELECT rowid, sha256 FROM {table} WHERE body IS NULL"  # noqa: S608 - a name from here
        for row, name in connection.execute(missing).fetchall():
            body = b""
            if re.fullmatch("[0-9a-f]{64}", name):  # else it could be a path
                with contextlib.suppress(FileNotFoundError):
                    body = (blobs / name[:2] / name).read_bytes()
            connection.execute(f"UPDATE {table} SET body = ? WHERE rowid = ?", (body, row))  # noqa: S608 - as above


_CALLOUT = re.compile(r"> \[!\w+\|placet\] .*\r?\n(?:>.*\r?\n)*(?:\r?\n)?")
_ENDS = {
    "plan.failed": State.FAILED,
    "execution.failed": State.FAILED,
    "plan.rejected": State.REJECTED,
    "request.withdrawn": State.WITHDRAWN,
    "plan.withdrawn": State.WITHDRAWN,
    "execution.completed": State.COMPLETED,
}
"""The states whose `status` schema 6 wrote into requests, by the event that led there."""
_PLAN = {"keys": "planned", "path": "plan_path", "digest": "plan_digest"} | {
    name: name for name in ("revision", "base_branch", "based_on", "basis_digest")
}
_GROUPS: Mapping[str, Mapping[str, str]] = {
    "request": {field.name: field.name for field in fields(Request)},
    "plan": _PLAN,
    "approval": {field.name: f"approved_{field.name}" for field in fields(Approval)},
    "reviewed": {field.name: f"reviewed_{field.name}" for field in fields(Reviewed)},
    "rejection": {field.name: f"rejection_{field.name}" for field in fields(Rejection)},
    "outcome": {field.name: field.name for field in fields(LastOutcome)}
    | {"detail": "failure_detail"},
}
"""For each group of a case, the names that its fields had without groups."""


def _regroup_cases(connection: sqlite3.Connection) -> None:
    for trace_id, body in connection.execute("SELECT trace_id, body FROM cases").fetchall():
        old = json.loads(body)
        groups = {
            group: {new: old[name] for new, name in names.items() if name in old}
            for group, names in _GROUPS.items()
        }
        branches = [*old.pop("earlier", []), *_last_branch(old)]
        whole = json.dumps(old | groups | {"branches": branches})
        case = _with_facts(connection, CASE_JSON.validate_json(whole))
        if case.state in (State.REVIEW, State.FAILED, State.REJECTED):
            case = _with_box(connection, case)
        connection.execute(
            "UPDATE cases SET body = ? WHERE trace_id = ?",
            (CASE_JSON.dump_json(case).decode(), trace_id),
        )


def _last_branch(old: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the branch of a completed mission, which schema 6 did not keep with the others."""
    if old.get("state") != State.COMPLETED or not old.get("tip"):
        return []
    same = ("trace_id", "base", "tip", "base_branch", "report_path", "became", "dropped_reason")
    renamed = {"name": "branch", "digest": "carried_out", "portal": "portal"}
    names = {name: name for name in same} | renamed
    return [{new: old[name] for new, name in names.items() if name in old}]


def _with_facts(connection: sqlite3.Connection, case: Case) -> Case:
    """Return a case with what schema 6 kept elsewhere: its question, its merge, its statuses."""
    select, trace = connection.execute, case.trace_id
    if case.asking is not None:
        (begun,) = select(
            "SELECT body FROM records WHERE trace_id = ? AND key = ? AND kind = 'intent' "
            "ORDER BY attempt DESC LIMIT 1",
            (trace, case.asking.call),
        ).fetchone() or (b"{}",)
        with contextlib.suppress(ValueError):  # a damaged body
            question = str(json.loads(begun).get("input", {}).get("question", ""))
            case = replace(case, asking=replace(case.asking, question=question))
    for branch in case.branches:
        (merged,) = select(
            "SELECT metadata->>'commit_sha' FROM activity WHERE trace_id = ? "
            "AND action_type = 'pr.merged' AND metadata->>'branch' = ? ORDER BY id DESC LIMIT 1",
            (trace, branch.name),
        ).fetchone() or ("",)
        if branch.became in ("merged", "reverted"):
            case = case.with_branch(branch, merged_as=merged or "")
    events = "SELECT DISTINCT action_type FROM activity WHERE trace_id = ?"
    found = [_ENDS[action] for (action,) in select(events, (trace,)) if action in _ENDS]
    statuses = {STATUSES[state].request: None for state in (*found, case.acting)}
    return replace(case, stamped=tuple(statuses))


def _with_box(connection: sqlite3.Connection, case: Case) -> Case:
    """Return a case whose plan gets a box between marks, in place of the old callout in its text.

    The daemon writes the box only if the note still has the text that the journal knows.
    """
    select = "SELECT CAST(body AS BLOB) FROM texts WHERE digest = ?"
    (raw,) = connection.execute(select, (case.plan.digest,)).fetchone() or (b"",)
    body = read_note(raw).body
    callout = _CALLOUT.match(body)
    if callout is None or sha256(raw) != case.plan.digest:  # a damaged text is no plan
        return case
    bare = plan_text(raw[: len(raw) - len(body.encode())] + body[callout.end() :].encode())
    digest = sha256(bare)
    connection.execute(
        "INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", (digest, *hashed_body(bare))
    )
    box = replace(box_of(case), digest=case.plan.digest, text=digest)
    connection.execute(
        "INSERT INTO outbox (trace_id, command, created_at) VALUES (?, ?, ?)",
        (case.trace_id, COMMAND_JSON.dump_json(box).decode(), case.since),
    )
    marks = with_marks("", box_lines(bare, box))
    return replace(case, plan=replace(case.plan, digest=digest, box=marks))
