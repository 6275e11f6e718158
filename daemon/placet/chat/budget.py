"""Budgets of a mission, a planning or a day: held before they are used, settled after.

A call is made only if its worst case still fits, so that no limit on tokens or money is ever
passed: the prompt is counted by an upper bound and the answer by its `max_tokens`, which is lowered
where that makes the call fit. Time cannot be held; a time limit ends the work at the next check,
and what is left of it may serve as a time-out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from placet.core.wording import counted, dollars, duration
from placet.errors import End, Stop


class Complexity(StrEnum):
    """The size of a request; it sets the iteration limit."""

    TRIVIAL = "trivial"
    STANDARD = "standard"
    COMPLEX = "complex"


class Limit(StrEnum):
    """The kinds of limits."""

    TOKENS = "tokens"
    USD = "usd"
    WORKING_TIME = "working_time"
    WALL_TIME = "wall_time"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Limits:
    """Amounts that may be used, or are left; None is no limit.

    `tokens` are all of a prompt's, read from a cache or not, and all of an answer's. Working time
    is spent in model and tool calls, wall time also in rests and while the daemon was down.
    `tool_calls` leaves out the calls that only steer the mission (`finish`, `complete_step`).
    Raises ValueError for a limit that is negative or no number.
    """

    tokens: int | None = None
    usd: Decimal | None = None
    working_time_s: float | None = None
    wall_time_s: float | None = None
    tool_calls: int | None = None

    def __post_init__(self) -> None:
        for what in fields(self):
            value = getattr(self, what.name)
            # nan differs from itself
            if value is not None and (value != value or not 0 <= value < math.inf):
                raise ValueError(f"{what.name}: {value} is no limit")


@dataclass(frozen=True, slots=True)
class Amount:
    """Something used. `usd` is None where the price is unknown, and stays so in every sum."""

    tokens: int = 0
    usd: Decimal | None = Decimal(0)
    working_time_s: float = 0.0
    tool_calls: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.tokens + other.tokens,
            None if self.usd is None or other.usd is None else self.usd + other.usd,
            self.working_time_s + other.working_time_s,
            self.tool_calls + other.tool_calls,
        )


_ENDS = {
    Limit.TOKENS: End.BUDGET,
    Limit.USD: End.BUDGET,
    Limit.WORKING_TIME: End.TIMEOUT,
    Limit.WALL_TIME: End.TIMEOUT,
    Limit.TOOL_CALLS: End.TOOL_CALL_CAP,
}


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit that is reached, or that the next call could pass.

    `ledger` is the name of the ledger that says so.
    """

    ledger: str
    limit: Limit
    detail: str

    def stop(self) -> Stop:
        """Return the end of a mission that this is the reason for."""
        return Stop(_ENDS[self.limit], self.detail)


@dataclass(frozen=True, slots=True)
class Ledger:
    """One budget: its limits, the amount used, and the amounts held for calls under way.

    `name` stands in what people read: "the mission", "planning", "today's budget". One
    that several workers use is a value behind a lock; each call has a key of its own in it.
    """

    name: str
    limits: Limits
    used: Amount = Amount()
    wall_time_s: float = 0.0
    held: Mapping[str, Amount] = field(default_factory=dict)

    def hold(self, key: str, worst: Amount) -> Ledger:
        """Set aside what the call `key` may come to. Raises ValueError if it is held already."""
        if key in self.held:
            raise ValueError(f"{key} is held already")
        return replace(self, held={**self.held, key: worst})

    def over(self, limit: Limit, detail: str) -> Exceeded:
        """Return that a limit of this budget is reached; `detail` follows the budget's name."""
        return Exceeded(self.name, limit, f"{self.name}: {detail}")

    def remaining(self) -> Limits:
        """Return the amounts neither used nor held, never below zero.

        Money is 0 if the cost so far is unknown.
        """
        gone = sum(self.held.values(), self.used)
        limits = self.limits
        usd = limits.usd if gone.usd is None else _minus(limits.usd, gone.usd)
        return Limits(
            _minus(limits.tokens, gone.tokens),
            Decimal(0) if gone.usd is None and usd is not None else usd,
            _minus(limits.working_time_s, gone.working_time_s),
            _minus(limits.wall_time_s, self.wall_time_s),
            _minus(limits.tool_calls, gone.tool_calls),
        )

    def time_left_s(self) -> float:
        """Return the seconds until the first limit of time is reached."""
        left = self.remaining()
        times = (left.working_time_s, left.wall_time_s)
        return min((time_s for time_s in times if time_s is not None), default=math.inf)


_N = TypeVar("_N", int, float, Decimal)


def _minus(limit: _N | None, gone: _N) -> _N | None:
    return None if limit is None else max(limit - gone, type(limit)(0))


SHORT = 0.2
"""The share of a limit that is left when the model is told of it."""


def tell(ledger: Ledger, turns_left: int, turns: int) -> str:
    """Return what the model is told of limits that get short; empty while there is enough of all.

    `turns_left` of all `turns` counts the answer that it is about to give.
    """
    left, limits = ledger.remaining(), ledger.limits
    parts = []
    if _is_short(turns_left, turns):
        parts.append(counted(turns_left, "turn"))
    if left.usd is not None and _is_short(left.usd, limits.usd):
        parts.append(f"{dollars(left.usd)} of ${limits.usd}")
    if left.tokens is not None and _is_short(left.tokens, limits.tokens):
        parts.append(f"{left.tokens:,} of {limits.tokens:,} tokens")
    if left.tool_calls is not None and _is_short(left.tool_calls, limits.tool_calls):
        parts.append(f"{left.tool_calls:,} of {limits.tool_calls:,} tool calls")
    if left.working_time_s is not None and _is_short(left.working_time_s, limits.working_time_s):
        parts.append(f"{duration(left.working_time_s)} of working time")
    return f"You have left: {', '.join(parts)}." if parts else ""


def _is_short(left: float | Decimal, limit: float | Decimal | None) -> bool:
    return limit is not None and float(left) <= SHORT * float(limit)


def exceeded(ledger: Ledger) -> Exceeded | None:
    """Return the limit that leaves no room for any model call, None if there is room.

    Tool calls do not count here: with none left a mission can still be finished.
    """
    left, limits = ledger.remaining(), ledger.limits
    if left.wall_time_s == 0:
        passed = duration(limits.wall_time_s or 0)
        return ledger.over(Limit.WALL_TIME, f"{passed} have passed since the work began")
    if left.working_time_s == 0:
        worked = duration(limits.working_time_s or 0)
        return ledger.over(Limit.WORKING_TIME, f"{worked} of working time are used up")
    if left.tokens == 0:
        return ledger.over(Limit.TOKENS, f"all {limits.tokens:,} tokens are used up")
    if limits.usd is not None and (ledger.used.usd is None or ledger.used.usd > limits.usd):
        cost = dollars(ledger.used.usd, "an unknown sum")
        return ledger.over(Limit.USD, f"{cost} of {dollars(limits.usd)} is used up")
    return None


def no_tool_call_left(ledger: Ledger) -> Exceeded | None:
    """Return the limit that the next tool call would pass, None if it may be made."""
    if ledger.remaining().tool_calls != 0:
        return None
    return ledger.over(Limit.TOOL_CALLS, f"all {ledger.limits.tool_calls:,} tool calls are made")


def money_problem(limits: Limits, model: str, *, price_known: bool) -> str | None:
    """Return why a plan cannot be approved with this money limit, or None."""
    if limits.usd is None or price_known:
        return None
    return (
        f"the budget is ${limits.usd}, but the price of {model} is unknown, so nothing could keep"
        " to it. Add it as [[model.price]] to System/placet.toml, or remove budget_usd"
    )
