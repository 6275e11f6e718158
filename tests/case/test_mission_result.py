"""Test the sums of what a mission used."""

from __future__ import annotations

from decimal import Decimal

from placet.case.mission_result import Spent
from placet.chat.budget import Amount
from placet.chat.messages import Usage

USAGE = Usage(input_tokens=100, output_tokens=7, cache_read_tokens=40, cache_write_tokens=3)


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    spent = Spent()
    for cost in (Decimal("0.25"), None, Decimal("0.5")):
        spent.add(USAGE, cost, 1.5)
    assert (spent.replies, spent.cost_usd, spent.working_s) == (3, None, 4.5)
    assert spent.cost("not known") == "not known"


def test_lost_calls_count_at_their_most() -> None:
    spent = Spent()
    spent.add(USAGE, Decimal("0.25"))
    spent.lose(Amount(1000, Decimal("0.5")))
    assert (spent.tokens, spent.lost_tokens) == (103 + 7 + 40 + 1000, 1000)
    assert spent.cost("") == "$0.7500 (at most $0.5000 of it for interrupted calls)"
