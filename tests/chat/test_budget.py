"""Test budgets: reserved before a call, settled after it, never exceeded."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.chat.budget import (
    LEAST_OUTPUT_TOKENS,
    PREAMBLE_TOKENS,
    Amount,
    Exceeded,
    Ledger,
    Limit,
    Limits,
    ModelCall,
    Reserved,
    exceeded,
    money_problem,
    no_tool_call_left,
    prompt_at_most,
    reserve,
    tell,
    worst_case,
)
from placet.chat.messages import Ask, Purpose, ToolSpec, Turn, Usage, text_block, user_turn
from placet.chat.prices import DEFAULT_PRICES, Price, cost_usd
from placet.errors import End

FREE = ModelCall(100, 1000, Decimal(0), Decimal(0))
UNPRICED = ModelCall(100, 1000, None, None)
PRICED = ModelCall(100, 1000, Decimal("0.10"), Decimal("0.001"))


def mission(used=None, **limits):
    return Ledger("the mission", Limits(**limits), used or Amount())


def allowed(verdict):
    return verdict.max_tokens if isinstance(verdict, Reserved) else None


# --- the border of each limit


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1101, 1000),
        (1100, 1000),
        (1099, 999),
        (100 + 257, 257),
        (100 + 256, 256),
        (100 + 255, None),
        (100, None),
        (1, None),
    ],
)
def test_answer_is_shortened_or_refused_by_tokens(tokens, expected):
    verdict = reserve([mission(tokens=tokens)], "reply:1", PRICED)
    assert allowed(verdict) == expected
    if isinstance(verdict, Exceeded):
        assert verdict.limit is Limit.TOKENS
        assert (verdict.stop().end, verdict.stop().error_type) == (End.BUDGET, "budget")
        assert "the mission" in verdict.stop().detail


@pytest.mark.parametrize(
    ("usd", "expected"),
    [
        ("1.101", 1000),
        ("1.10", 1000),
        ("1.0999", 999),
        ("0.357", 257),
        ("0.356", 256),
        ("0.3559", None),
        ("0.10", None),
        ("0.09", None),
        ("0", None),
    ],
)
def test_answer_is_shortened_or_refused_by_money(usd, expected):
    verdict = reserve([mission(usd=Decimal(usd))], "reply:1", PRICED)
    assert allowed(verdict) == expected
    if isinstance(verdict, Exceeded):
        assert verdict.limit is Limit.USD
        assert verdict.stop().end is End.BUDGET


@pytest.mark.parametrize(("usd", "expected"), [("0.09", None), ("0.10", 1000)])
def test_prompt_is_charged_even_with_free_output(usd, expected):
    assert (
        allowed(
            reserve([mission(usd=Decimal(usd))], "k", replace(PRICED, output_token_usd=Decimal(0)))
        )
        == expected
    )


def test_short_answer_needs_only_its_own_room():
    assert allowed(reserve([mission(tokens=110)], "k", replace(PRICED, max_tokens=10))) == 10
    assert allowed(reserve([mission(tokens=109)], "k", replace(PRICED, max_tokens=10))) is None


@pytest.mark.parametrize(
    ("ledger", "limit"),
    [
        (mission(Amount(tokens=9), tokens=10), None),
        (mission(Amount(tokens=10), tokens=10), Limit.TOKENS),
        (mission(Amount(tokens=11), tokens=10), Limit.TOKENS),
        (mission(Amount(usd=Decimal(1)), usd=Decimal(1)), None),
        (mission(Amount(usd=Decimal("1.0001")), usd=Decimal(1)), Limit.USD),
        (mission(Amount(usd=None), usd=Decimal(1)), Limit.USD),
        (mission(Amount(usd=None)), None),
        (mission(Amount(working_time_s=59.9), working_time_s=60), None),
        (mission(Amount(working_time_s=60), working_time_s=60), Limit.WORKING_TIME),
        (replace(mission(wall_time_s=60), wall_time_s=59.9), None),
        (replace(mission(wall_time_s=60), wall_time_s=60), Limit.WALL_TIME),
        (replace(mission(wall_time_s=60), wall_time_s=61), Limit.WALL_TIME),
        (mission(Amount(tool_calls=5), tool_calls=5), None),
    ],
)
def test_exhausted_limit_refuses_calls(ledger, limit):
    found = exceeded(ledger)
    assert (found.limit if found else None) is limit
    if found is not None:
        assert reserve([ledger], "k", UNPRICED) == found
        assert found.stop().end is (End.TIMEOUT if "time" in limit else End.BUDGET)


@pytest.mark.parametrize(("made", "left"), [(4, True), (5, False), (6, False)])
def test_tool_calls_stop_at_their_limit(made, left):
    found = no_tool_call_left(mission(Amount(tool_calls=made), tool_calls=5))
    assert (found is None) == left
    if found is not None:
        assert found.stop().end is End.TOOL_CALL_CAP
    assert no_tool_call_left(mission(Amount(tool_calls=made))) is None


# --- unknown prices


def test_unpriced_model_needs_no_money_limit():
    assert allowed(reserve([mission(tokens=5000)], "k", UNPRICED)) == 1000
    verdict = reserve([mission(usd=Decimal(1000))], "k", UNPRICED)
    assert isinstance(verdict, Exceeded)
    assert "has no price" in verdict.detail


@pytest.mark.parametrize("used", [Amount(usd=None), Amount(usd=Decimal(9))])
def test_free_call_passes_a_spent_money_limit(used):
    assert allowed(reserve([mission(used, usd=Decimal(1))], "k", FREE)) == 1000


def test_a_free_model_needs_no_money():
    assert allowed(reserve([mission(usd=Decimal(0))], "k", FREE)) == 1000


@pytest.mark.parametrize(
    ("usd", "known", "refused"),
    [
        (None, False, False),
        (None, True, False),
        (Decimal(1), True, False),
        (Decimal(1), False, True),
        (Decimal(0), False, True),
    ],
)
def test_money_limit_without_price_is_refused(usd, known, refused):
    problem = money_problem(Limits(usd=usd), "some-model", price_known=known)
    assert (problem is not None) == refused
    if problem is not None:
        assert "some-model" in problem
        assert "[[model.price]]" in problem


def test_one_unknown_cost_makes_sum_unknown():
    assert (Amount(usd=Decimal(1)) + Amount(usd=None) + Amount(usd=Decimal(1))).usd is None
    assert mission(Amount(usd=None), usd=Decimal(5)).remaining().usd == 0


# --- holding and settling


def over(ledger: Ledger, key: str, actual: Amount) -> Ledger:
    """The ledger after a call: what it came to is used, and nothing is held for it."""
    return replace(
        ledger, used=ledger.used + actual, held={k: v for k, v in ledger.held.items() if k != key}
    )


def test_reserved_amount_is_unavailable_until_settled():
    ledger = mission(tokens=2500, usd=Decimal(5))
    first = reserve([ledger], "a", PRICED)
    assert isinstance(first, Reserved)
    held = first.ledgers[0]
    assert (held.remaining().tokens, held.remaining().usd) == (1400, Decimal("3.90"))
    second = reserve([held], "b", PRICED)
    assert isinstance(second, Reserved)
    assert allowed(reserve(second.ledgers, "c", PRICED)) is None
    settled = over(over(second.ledgers[0], "a", Amount(110, Decimal("0.2"))), "b", Amount())
    assert (settled.remaining().tokens, settled.remaining().usd, settled.held) == (
        2390,
        Decimal("4.8"),
        {},
    )


def test_key_cannot_be_reserved_twice():
    ledger = mission().hold("a", Amount(1))
    with pytest.raises(ValueError, match="held already"):
        ledger.hold("a", Amount(1))


def test_tightest_ledger_limits_reservation():
    own, today = mission(tokens=10_000), Ledger("today", Limits(tokens=600))
    verdict = reserve([own, today], "k", PRICED)
    assert isinstance(verdict, Reserved)
    assert verdict.max_tokens == 500
    assert [ledger.name for ledger in verdict.ledgers] == ["the mission", "today"]
    assert {ledger.held["k"].tokens for ledger in verdict.ledgers} == {600}
    none = reserve([own, Ledger("today", Limits(tokens=300))], "k", PRICED)
    assert isinstance(none, Exceeded)
    assert none.ledger == "today"
    assert own.held == {}


def test_budget_refusal_shows_consistent_numbers():
    call = ModelCall(100, 1000, Decimal("0.0500"), Decimal("0.00002"))
    gone = reserve([mission(Amount(usd=Decimal("4.446")), usd=Decimal("4.5"))], "k", call)
    assert isinstance(gone, Exceeded)
    used, limit, following = map(Decimal, re.findall(r"\$([0-9.]+)", gone.detail))
    assert (used, limit) == (Decimal("4.446"), Decimal("4.5"))
    assert used + following > limit
    gone = reserve([mission(Amount(700), tokens=1000)], "k", call)
    assert isinstance(gone, Exceeded)
    assert gone.detail == "the mission: 700 of 1,000 tokens used; the next call may take 356 more"


# --- bounds


def ask(*turns, system=("s" * 100,), tools=()):
    return Ask(Purpose.EXECUTE, "r", "t", system, tools, turns)


@pytest.mark.parametrize(
    "text", ["plain words of text", "数字と漢字", "\U0001f600" * 5, '\n\t\0"', "\udcff"]
)
def test_first_prompt_estimate_covers_its_bytes(text):
    tool = ToolSpec("read_file", "reads", {"type": "object"})
    bound = prompt_at_most(ask(user_turn([text_block(text)]), tools=(tool,)), None)
    assert bound >= PREAMBLE_TOKENS + 100 + len("read_filereads") + len(
        text.encode("utf-8", "surrogatepass")
    )


def test_prompt_estimate_adds_bytes_to_last_usage():
    turns = (
        user_turn([text_block("x" * 50_000)]),
        Turn("assistant", (text_block("y" * 900),)),
        user_turn([text_block("z" * 70)]),
    )
    bound = prompt_at_most(
        ask(*turns),
        Usage(input_tokens=10, output_tokens=200, cache_read_tokens=9_000, cache_write_tokens=500),
    )
    assert 9_710 + 70 <= bound < 9_710 + 150


def test_worst_case_uses_dearest_applicable_price():
    opus = worst_case(1_000_000, 100, "claude-opus-5-5", DEFAULT_PRICES)
    assert (opus.prompt_usd, opus.output_token_usd) == (Decimal(5), Decimal("0.00002"))
    small, large = (
        worst_case(n, 1, "claude-haiku-5-5", DEFAULT_PRICES) for n in (100_000, 100_001)
    )
    assert small.output_token_usd == Decimal("0.0000005")
    assert large.output_token_usd == Decimal("0.0000025")
    assert worst_case(10, 1, "nobody-knows", DEFAULT_PRICES) == ModelCall(10, 1, None, None)
    assert worst_case(10, 1, "scripted", (), free=True) == ModelCall(10, 1, Decimal(0), Decimal(0))
    plain = Price("m", Decimal(9), Decimal(1), Decimal(0), Decimal(0), date(2026, 1, 1))
    assert worst_case(1_000_000, 1, "m", [plain]).prompt_usd == 9


_limit_tokens = st.none() | st.integers(0, 40_000)
_limit_usd = st.none() | st.decimals(0, 1, places=3)


@settings(max_examples=120)
@given(_limit_tokens, _limit_usd, _limit_tokens, st.data())
def test_endless_model_never_exceeds_any_ledger(tokens, usd, today_tokens, data):
    """Every reply may use anything up to its worst case, retries fail unseen.

    No ledger is ever passed.
    """
    ledgers = (mission(tokens=tokens, usd=usd), Ledger("today", Limits(tokens=today_tokens)))
    prompt = 500
    for number in range(12):
        call = worst_case(prompt, 4_000, "claude-opus-5-5", DEFAULT_PRICES)
        verdict = reserve(ledgers, f"reply:{number}", call)
        if isinstance(verdict, Exceeded):
            left = [ledger.remaining() for ledger in ledgers]
            least = call.worst(LEAST_OUTPUT_TOKENS)
            assert any(
                (r.tokens is not None and r.tokens < least.tokens)
                or (r.usd is not None and r.usd < least.usd)
                for r in left
            ), "a call that would have fitted was refused"
            break
        kind = data.draw(st.sampled_from(["full", "some", "unknown", "never served"]))
        written = data.draw(st.integers(0, prompt)) if kind == "some" else prompt
        output = (
            data.draw(st.integers(0, verdict.max_tokens)) if kind == "some" else verdict.max_tokens
        )
        usage = Usage(0, output, prompt - written, written)
        used = Amount(prompt + output, cost_usd(usage, "claude-opus-5-5", DEFAULT_PRICES))
        key = f"reply:{number}"
        actual = {"unknown": verdict.ledgers[0].held[key], "never served": Amount()}.get(kind, used)
        ledgers = tuple(over(ledger, key, actual) for ledger in verdict.ledgers)
        for ledger in ledgers:
            assert ledger.limits.tokens is None or ledger.used.tokens <= ledger.limits.tokens
            assert ledger.limits.usd is None or ledger.used.usd <= ledger.limits.usd
        prompt += output


# --- told


ENOUGH = {
    "tokens": 50_000,
    "usd": Decimal("0.50"),
    "working_time_s": 3600,
    "wall_time_s": 100,
    "tool_calls": 200,
}


@pytest.mark.parametrize(
    ("used", "turns_left", "told"),
    [
        (Amount(), 10, ""),
        (Amount(39_999, Decimal("0.39"), 2879, 159), 3, ""),
        (Amount(), 2, "2 turns"),
        (Amount(), 1, "1 turn"),
        (Amount(40_000), 9, "10,000 of 50,000 tokens"),
        (Amount(usd=Decimal("0.40")), 9, "$0.1000 of $0.50"),
        (Amount(tool_calls=160), 9, "40 of 200 tool calls"),
        (Amount(working_time_s=2880), 9, "12 min of working time"),
        (Amount(60_000, tool_calls=200), 2, "2 turns, 0 of 50,000 tokens, 0 of 200 tool calls"),
    ],
)
def test_model_hears_only_of_short_budgets(used, turns_left, told):
    said = tell(mission(used, **ENOUGH), turns_left, 10)
    assert said == (f"You have left: {told}." if told else "")
