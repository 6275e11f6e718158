"""Test the queries of the numbers page."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from placet.errors import UserError
from placet.journal.reader import query
from placet_board.charts import COUNTS, DOLLARS, LEFT, MINUTES, bar_chart
from placet_board.numbers import KINDS, QUESTIONS, Counted, Slice, sql_of
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
    part = Slice(7, "o'brien", "it's")
    for name in QUESTIONS:
        head, rows = query(vault.db, sql_of(name, part, 1))
        assert head
        assert not rows


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_numbers_queries_never_scan_whole_journal(vault: TestVault, name: str) -> None:
    with closing(sqlite3.connect(vault.db)) as db:
        sql = sql_of(name, Slice(30, "default", ""), 1)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert any("SEARCH a USING INDEX activity_action" in step for step in plan), plan
    assert not [step for step in plan if re.match(r"SCAN (a|made|activity)\b", step)], plan


def test_numbers_wait_for_lock_times_out(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    monkeypatch.setattr("placet_board.numbers.WAIT_S", 0.01)
    with counted._lock, pytest.raises(UserError):
        counted.numbers(vault.db, Slice(7))
    assert not counted.numbers(vault.db, Slice(7)).is_empty


def test_charts_have_the_same_days(vault: TestVault) -> None:
    charts = Counted().numbers(vault.db, Slice(30)).charts
    assert [chart.key for chart in charts] == list(KINDS)
    axes = {
        tuple(label.text for label in chart.drawing.labels if label.text.startswith("20"))
        for chart in charts
        if chart.drawing is not None
    }
    assert len(axes) == 1, axes


def test_bars_are_proportional_and_right_of_their_labels() -> None:
    found = {"a": [3, 1], "b": [None, 2]}
    drawn = bar_chart(("x", "y"), ["a", "b", "c"], found, str, COUNTS)
    assert [(one.series, one.text) for one in drawn.blocks] == [
        ("x", "a: 3"), ("y", "a: 1"), ("y", "b: 2")
    ]  # fmt: skip
    whole, part, half = (one.height for one in drawn.blocks)
    assert whole == pytest.approx(3 * part, abs=0.2)
    assert half == pytest.approx(2 * part, abs=0.2)
    assert min(one.x for one in drawn.blocks) >= LEFT
    assert [one.text for one in drawn.labels[:3]] == ["4.0", "2.0", "0"]
    assert not bar_chart((), [], {}, str, COUNTS).blocks


@pytest.mark.parametrize(
    ("highest", "kind", "ticks"),
    [
        (1, "missions", ["2", "1", "0"]),
        (11, "missions", ["20", "10", "0"]),
        (5.85, "cost", ["$10.00", "$5.00", "$0.00"]),
        (0.0, "cost", ["$0.02", "$0.01", "$0.00"]),
        (0.011, "cost", ["$0.02", "$0.01", "$0.00"]),
        (47, "waits", ["1 h", "30 min", "0 s"]),
        (0.4, "waits", ["40 s", "20 s", "0 s"]),
    ],
)
def test_rules_of_charts_are_at_round_values(highest: float, kind: str, ticks: list[str]) -> None:
    shown = KINDS[kind]
    drawn = bar_chart(("x",), ["a"], {"a": [highest]}, shown.tell, shown.steps)
    assert [one.text for one in drawn.labels[:3]] == ticks


def test_limit_is_a_line_unless_far_away() -> None:
    near = bar_chart(("x",), ["a"], {"a": [4.0]}, str, DOLLARS, 5.0)
    bar = near.blocks[0]
    assert near.limit is not None
    assert 0 < near.limit < bar.y
    assert bar_chart(("x",), ["a"], {"a": [1.0]}, str, DOLLARS, 50.0).limit is None
    assert tuple(sorted(MINUTES)) == MINUTES


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0, "$0.00"), (0.00004, "less than $0.0001"), (0.0120, "$0.012"), (1234.5, "$1,234.50")],
)
def test_dollars_are_readable(usd: float, shown: str) -> None:
    assert KINDS["cost"].tell(usd) == shown


def test_cost_names_limit_and_price_of_a_mission(vault: TestVault) -> None:
    charts = Counted().numbers(vault.db, Slice(30), 5.0).charts
    (cost,) = (chart for chart in charts if chart.key == "cost")
    assert cost.text.endswith(" a mission; the limit is $5.00 a day")
