"""Test each write's expectation, and that a changed body is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from journalkit import World
from placet.journal.writes import (
    AddRecord,
    AnswerIntent,
    BodyDamaged,
    Change,
    Conflict,
    Enqueue,
    MarkDone,
    MarkFailed,
    PutCase,
    PutText,
    checked_body,
    hashed_body,
)

CASE = PutCase("t", "say-hello", "review", "{}", 0)


def test_changed_or_typed_body_is_damaged() -> None:
    digest, size, body = hashed_body(b"text")
    assert (size, checked_body(digest, body)) == (4, b"text")
    for other in (b"text ", "text"):
        with pytest.raises(BodyDamaged, match=digest):
            checked_body(digest, other)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CASE, CASE),
        (CASE, replace(CASE, expect_version=2)),
        (AddRecord("t", 1, 1, "intent", "k", b"a"), AddRecord("t", 1, 1, "outcome", "k", b"b")),
        (AnswerIntent("i"), AnswerIntent("i", "too late")),
        (PutText("d", b""), MarkDone(1)),
        (PutText("d", b""), MarkFailed(1, "why")),
    ],
)
def test_wrong_expectation_is_conflict(tmp_path: Path, first: Change, second: Change) -> None:
    with World(tmp_path / "journal.db").open() as journal:
        journal.commit([first])
        with pytest.raises(Conflict):
            journal.commit([second])


def test_case_is_replaced_at_its_version(tmp_path: Path) -> None:
    with World(tmp_path / "journal.db").open() as journal:
        journal.commit([CASE])
        journal.commit([replace(CASE, state="running", body='{"a": 1}', expect_version=1)])
        with journal.read() as reader:
            (row,) = reader.cases_of(["t"], [])
    assert (row.body, row.version) == ('{"a": 1}', 2)


def test_failed_command_stays_until_it_is_done(tmp_path: Path) -> None:
    with World(tmp_path / "journal.db").open() as journal:
        (number,) = journal.commit([Enqueue("t", '{"x": 1}')]).outbox
        journal.commit([MarkFailed(number, "disk full")])
        with journal.read() as reader:
            (pending,) = reader.pending_commands()
        assert (pending.attempts, pending.error) == (1, "disk full")
        journal.commit([MarkDone(number)])
        with journal.read() as reader:
            assert not reader.pending_commands()
        with pytest.raises(Conflict):
            journal.commit([MarkDone(number)])
