"""Test what follows a failed model call, and what a reply costs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.chat.messages import ModelError, ModelErrorKind, Usage
from placet.chat.prices import DEFAULT_PRICES, Price, cost_usd
from placet.chat.retry import Blocked, NoRetry, Retry, RetryPolicy, Sleep, next_attempt

POLICY = RetryPolicy(
    first_wait_s=1, factor=2, longest_wait_s=30, longest_backoff_s=120, longest_rest_s=900
)


def transient(retry_after_s: float | None = None) -> ModelError:
    return ModelError(
        ModelErrorKind.TRANSIENT, "overloaded", status=529, retry_after_s=retry_after_s
    )


@pytest.mark.parametrize(
    ("attempt", "jitter", "expected"),
    [
        (1, 0.0, Retry(1)),
        (1, 1.0, Retry(0.5)),
        (2, 0.0, Retry(2)),
        (3, 0.5, Retry(3)),
        (5, 0.0, Retry(16)),
        (6, 0.0, Sleep(32)),
        (6, 1.0, Retry(16)),
        (7, 0.0, Sleep(64)),
        (8, 0.0, Sleep(120)),
        (8, 1.0, Sleep(60)),
        (100_000, 0.0, Sleep(120)),
    ],
)
def test_backoff_doubles_then_becomes_sleep(attempt, jitter, expected):
    assert next_attempt(transient(), attempt, POLICY, jitter) == expected


@pytest.mark.parametrize(
    ("wish_s", "expected"),
    [
        (None, Retry(2)),
        (0, Retry(2)),
        (1.9, Retry(2)),
        (2.1, Retry(2.1)),
        (30, Retry(30)),
        (30.1, Sleep(30.1, asked=True)),
        (900, Sleep(900, asked=True)),
        (86_400, Sleep(900, asked=True)),
        (float("inf"), Sleep(900, asked=True)),
        (float("nan"), Retry(2)),
        (-5, Retry(2)),
    ],
)
def test_retry_after_is_respected_and_capped(wish_s, expected):
    assert next_attempt(transient(wish_s), 2, POLICY, 0.0) == expected


def test_error_kind_decides_retry():
    permanent = ModelError(ModelErrorKind.PERMANENT, "no credit", retry_after_s=1)
    assert next_attempt(permanent, 1, POLICY, 0) == Blocked("no credit")
    bad = ModelError(ModelErrorKind.BAD_REQUEST, "prompt is too long")
    assert next_attempt(bad, 1, POLICY, 0) == NoRetry("prompt is too long")
    with pytest.raises(ValueError, match="cancelled"):
        next_attempt(ModelError(ModelErrorKind.CANCELLED, ""), 1, POLICY, 0)


@given(st.integers(1, 10_000), st.floats(0, 1), st.none() | st.floats())
def test_every_wait_is_positive_and_bounded(attempt, jitter, wish_s):
    match next_attempt(transient(wish_s), attempt, POLICY, jitter):
        case Retry(after_s):
            assert 0 < after_s <= POLICY.longest_wait_s
        case Sleep(after_s, asked):
            assert POLICY.longest_wait_s < after_s <= POLICY.longest_rest_s
            assert asked == (wish_s is not None and wish_s >= after_s)
        case other:
            pytest.fail(f"unexpected: {other}")


def test_outage_costs_bounded_retries_and_no_error():
    waited_s, attempt = 0.0, 0
    while waited_s < 12 * 3600:
        attempt += 1
        step = next_attempt(transient(), attempt, RetryPolicy(), 0.5)
        assert isinstance(step, Retry | Sleep)
        waited_s += step.after_s
        assert step.after_s <= 120, "a server that is back is noticed soon"
    assert attempt < 600


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        ("claude-opus-5-5", Usage(MILLION, 0, 0, 0), "4"),
        ("claude-opus-5-5", Usage(0, MILLION, 0, 0), "20"),
        ("claude-opus-5-5", Usage(0, 0, MILLION, 0), "0.2"),
        ("claude-opus-5-5", Usage(0, 0, 0, MILLION), "5"),
        ("claude-sonnet-5-5", Usage(1_000, 500, 20_000, 100), "0.00925"),
        ("claude-opus-5-5-20261001", Usage(MILLION, 0, 0, 0), "4"),
        ("claude-haiku-5-5", Usage(), "0"),
        ("claude-haiku-5-5", Usage(1, 0, 0, 0), "0.0000001"),
        ("claude-haiku-5-5", Usage(40_000, 0, 50_000, 10_000), "0.00575"),
        ("claude-haiku-5-5", Usage(40_001, 0, 50_000, 10_000), "0.0287505"),
        ("claude-haiku-5-5", Usage(100_001, MILLION, 0, 0), "2.5500005"),
    ],
)
def test_reply_cost_is_exact(model, usage, usd):
    assert cost_usd(usage, model, DEFAULT_PRICES) == Decimal(usd)


def test_unknown_model_cost_is_unknown_free_is_zero():
    assert cost_usd(Usage(1, 1), "claude-opus-6", DEFAULT_PRICES) is None
    assert cost_usd(Usage(), "claude-opus", DEFAULT_PRICES) is None
    assert cost_usd(Usage(1, 1), "qwen3-coder", ()) is None
    assert cost_usd(Usage(1, 1), "scripted", DEFAULT_PRICES, free=True) == Decimal(0)


def test_newest_price_row_and_snapshot_price_apply():
    def row(model: str, usd: int, since: date) -> Price:
        return Price(model, Decimal(usd), Decimal(0), Decimal(0), Decimal(0), since)

    old, new = date(2026, 1, 1), date(2027, 1, 1)
    rows = [row("m", 3, new), row("m", 1, old), row("m-20260101", 9, old)]
    assert cost_usd(Usage(MILLION), "m", rows) == 3
    assert cost_usd(Usage(MILLION), "m", reversed(rows)) == 3
    assert cost_usd(Usage(MILLION), "m-20260101", rows) == 9
    assert cost_usd(Usage(MILLION), "m-20260202", rows) == 3
