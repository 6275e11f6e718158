"""Test the queries of the numbers page."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from placet.errors import UserError
from placet.journal.reader import query
from placet_board.numbers import GROUPS, QUESTIONS, Counted, Slice, sql_of
from vaultkit import PLAN, TestVault, make_vault


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> TestVault:
    vault = make_vault(tmp_path_factory.mktemp("board"))
    vault.plays(PLAN)
    vault.drop("Say hello.\n")
    vault.once()
    vault.approve()
    vault.once()
    return vault


def test_quotes_in_names_are_escaped_in_sql(vault: TestVault) -> None:
    part = Slice(7, "portal", "o'brien", "it's")
    for name in QUESTIONS:
        head, rows = query(vault.db, sql_of(name, part, 1))
        assert head
        assert not rows


@pytest.mark.parametrize("name", list(QUESTIONS))
@pytest.mark.parametrize("by", list(GROUPS))
def test_numbers_queries_never_scan_whole_journal(vault: TestVault, name: str, by: str) -> None:
    with closing(sqlite3.connect(vault.db)) as db:
        sql = sql_of(name, Slice(30, by, "default", ""), 1)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert any("SEARCH a USING INDEX activity_action" in step for step in plan), plan
    assert not [step for step in plan if re.match(r"SCAN (a|made|activity)\b", step)], plan


def test_numbers_wait_for_lock_times_out(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    monkeypatch.setattr("placet_board.numbers.WAIT_S", 0.01)
    with counted._lock, pytest.raises(UserError):
        counted.numbers(vault.db, Slice(7, "day"))
    assert not counted.numbers(vault.db, Slice(7, "day")).is_empty
