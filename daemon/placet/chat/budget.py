"""Budget a mission, a planning or a day: reserve before use, settle after.

A call is made only if its worst case still fits, so that no limit on tokens or money is ever
passed: the prompt is counted by an upper bound and the answer by its `max_tokens`, which is lowered
where that makes the call fit. Time cannot be reserved. A time limit ends the work at the next
check. The rest of it can be used as a timeout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from placet.chat.messages import Ask, Block, Usage
from placet.chat.prices import Price, cost_usd
from placet.errors import End, Stop
from placet.wording import counted, dollars, duration


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
    """Amounts that may be used, or are left; None means no limit.

    `tokens` are all of a prompt's, read from a cache or not, and all of an answer's. Working time
    is spent in model and tool calls, wall time also in rests and while the daemon was down.
    `tool_calls` leaves out the calls that only steer the mission (`finish`, `complete_step`).
    """

    tokens: int | None = None
    usd: Decimal | None = None
    working_time_s: float | None = None
    wall_time_s: float | None = None
    tool_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount used. `usd` is None if a price is unknown, and then also in every sum."""

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
    that several workers use is a value behind a lock; each call has its own key in it.
    """

    name: str
    limits: Limits
    used: Amount = Amount()
    wall_time_s: float = 0.0
    held: Mapping[str, Amount] = field(default_factory=dict)

    def hold(self, key: str, worst: Amount) -> Ledger:
        """Reserve the maximum that the call `key` may use. Raises ValueError if it is reserved."""
        if key in self.held:
            raise ValueError(f"{key} is held already")
        return replace(self, held={**self.held, key: worst})

    def exceeded_at(self, limit: Limit, detail: str) -> Exceeded:
        """Return that a limit of this budget is reached; `detail` follows the budget's name."""
        return Exceeded(self.name, limit, f"{self.name}: {detail}")

    def remaining(self) -> Limits:
        """Return the amounts neither used nor held, never below zero.

        Money is 0 while the cost is unknown.
        """
        spent = sum(self.held.values(), self.used)
        limits = self.limits
        usd = limits.usd if spent.usd is None else _minus(limits.usd, spent.usd)
        return Limits(
            _minus(limits.tokens, spent.tokens),
            Decimal(0) if spent.usd is None and usd is not None else usd,
            _minus(limits.working_time_s, spent.working_time_s),
            _minus(limits.wall_time_s, self.wall_time_s),
            _minus(limits.tool_calls, spent.tool_calls),
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
"""The model hears about a limit when this share of it is left."""


def tell(ledger: Ledger, turns_left: int, turns: int) -> str:
    """Return what the model hears about limits that are almost used; empty if none is.

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
        return ledger.exceeded_at(Limit.WALL_TIME, f"{passed} have passed since the work began")
    if left.working_time_s == 0:
        worked = duration(limits.working_time_s or 0)
        return ledger.exceeded_at(Limit.WORKING_TIME, f"{worked} of working time are used up")
    if left.tokens == 0:
        return ledger.exceeded_at(Limit.TOKENS, f"all {limits.tokens:,} tokens are used up")
    if limits.usd is not None and (ledger.used.usd is None or ledger.used.usd > limits.usd):
        cost = dollars(ledger.used.usd, "an unknown sum")
        return ledger.exceeded_at(Limit.USD, f"{cost} of {dollars(limits.usd)} is used up")
    return None


def no_tool_call_left(ledger: Ledger) -> Exceeded | None:
    """Return the limit that the next tool call would pass, None if it may be made."""
    if ledger.remaining().tool_calls != 0:
        return None
    return ledger.exceeded_at(
        Limit.TOOL_CALLS, f"all {ledger.limits.tool_calls:,} tool calls are made"
    )


def money_problem(limits: Limits, model: str, *, price_known: bool) -> str | None:
    """Return why a plan cannot be approved with this money limit, or None."""
    if limits.usd is None or price_known:
        return None
    return (
        f"{model} has no price, so the plan's budget of ${limits.usd} cannot hold. Delete"
        " `budget_usd` in the plan, or add a price as [[model.price]] to System/placet.toml"
    )


def unkept(model: str, day_usd: Decimal) -> tuple[str, str]:
    """Return that a limit of a day cannot hold for a model without a price, and what helps."""
    return (
        f"{model} has no price, so the limit of ${day_usd} a day cannot hold.",
        "If it is free: placet config set limits.day_usd 0",
    )


# An answer that may be no longer than this is not worth its prompt. Also the least `max_tokens` of
# the configuration.
LEAST_OUTPUT_TOKENS = 256

# Maximum tokens of an image of any size: vendors scale it down first. Judgement,
# rounded up.
IMAGE_TOKENS = 5_000

# What a vendor may put around a prompt with tools, at most: some hundred tokens by its own
# documentation, doubled.
PREAMBLE_TOKENS = 1_000

_PROBE_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call at its worst. The prices are None where they are unknown."""

    prompt_tokens: int
    max_tokens: int
    prompt_usd: Decimal | None
    output_token_usd: Decimal | None

    def worst(self, max_tokens: int) -> Amount:
        """Return its maximum with an answer of `max_tokens`."""
        usd = None
        if self.prompt_usd is not None and self.output_token_usd is not None:
            usd = self.prompt_usd + max_tokens * self.output_token_usd
        return Amount(self.prompt_tokens + max_tokens, usd)


def prompt_at_most(ask: Ask, last: Usage | None) -> int:
    """Return the maximum number of tokens that the prompt of `ask` can have.

    No token is shorter than a byte, so the number of bytes sent is a bound. `last` is the usage of
    the conversation's last reply. With it only the newest turn is bounded by its bytes, because the
    server counted the rest. (The usual four characters a token is a mean, not a bound: digits, hex
    and CJK text have more.) A server that reports no usage does not help.
    """
    if last is not None and last.prompt_tokens:
        return last.prompt_tokens + last.output_tokens + _bytes(ask.turns[-1].blocks)
    tools: list[Block] = [
        {"name": t.name, "description": t.description, "input_schema": t.input_schema}
        for t in ask.tools
    ]
    return (
        PREAMBLE_TOKENS
        + sum(len(part.encode()) for part in ask.system)
        + _bytes(tools)
        + sum(_bytes(turn.blocks) for turn in ask.turns)
    )


def prompt_likely(ask: Ask, last: Usage | None) -> int:
    """Return how many tokens the prompt of `ask` probably has.

    Two bytes a token where the number is not known: high for prose, right for digits.
    """
    known = (
        last.prompt_tokens + last.output_tokens if last is not None and last.prompt_tokens else 0
    )
    return known + (prompt_at_most(ask, last) - known) // 2


def worst_case(
    prompt_tokens: int, max_tokens: int, model: str, prices: Iterable[Price], *, free: bool = False
) -> ModelCall:
    """Return a model call at its worst.

    All of the prompt is written to the cache, or not cached, whichever costs more.

    Relies on a larger prompt never being the cheaper one. `free` as in `cost_usd`.
    """
    rows = tuple(prices)

    def cost(usage: Usage) -> Decimal | None:
        return cost_usd(usage, model, rows, free=free)

    plain, written = (
        cost(Usage(input_tokens=prompt_tokens)),
        cost(Usage(cache_write_tokens=prompt_tokens)),
    )
    answered = cost(Usage(input_tokens=prompt_tokens, output_tokens=_PROBE_TOKENS))
    if plain is None or written is None or answered is None:
        return ModelCall(prompt_tokens, max_tokens, None, None)
    return ModelCall(
        prompt_tokens, max_tokens, max(plain, written), (answered - plain) / _PROBE_TOKENS
    )


@dataclass(frozen=True, slots=True)
class Room:
    """The reservation for one call: the longest answer, the worst cost, and the time for it."""

    max_tokens: int
    worst: Amount
    time_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Reserved:
    """Room for a call: the ledgers that hold it, in the order given, and the longest answer."""

    ledgers: tuple[Ledger, ...]
    max_tokens: int


def reserve(ledgers: Sequence[Ledger], key: str, call: ModelCall) -> Reserved | Exceeded:
    """Hold a call in every ledger that has to pay for it, or in none, and say why not.

    `max_tokens` is lowered until the worst case fits, though not below LEAST_OUTPUT_TOKENS. Each
    attempt of a retried call is reserved and settled for itself.
    """
    allowed = call.max_tokens
    costs_nothing = call.prompt_usd == call.output_token_usd == 0
    for held in ledgers:
        limits = replace(held.limits, usd=None) if costs_nothing else held.limits
        ledger = replace(held, limits=limits)
        if (excess := exceeded(ledger)) is not None:
            return excess
        left = ledger.remaining()
        if left.tokens is not None:
            allowed = min(allowed, left.tokens - call.prompt_tokens)
            if _too_short(allowed, call):
                return ledger.exceeded_at(
                    Limit.TOKENS,
                    _used_up(
                        f"{(ledger.limits.tokens or 0) - left.tokens:,}",
                        f"{ledger.limits.tokens:,} tokens",
                        f"{call.prompt_tokens + _least(call):,}",
                    ),
                )
        if left.usd is not None:
            if call.prompt_usd is None or call.output_token_usd is None:
                why = f"${limits.usd} cannot hold, as the model has no price"
                return ledger.exceeded_at(Limit.USD, why)
            over = left.usd - call.prompt_usd
            if over < 0:
                allowed = -1
            elif call.output_token_usd > 0:
                allowed = min(allowed, int(over // call.output_token_usd))
            if _too_short(allowed, call):
                return ledger.exceeded_at(
                    Limit.USD,
                    _used_up(
                        dollars((ledger.limits.usd or 0) - left.usd),
                        dollars(ledger.limits.usd),
                        dollars(call.prompt_usd + _least(call) * call.output_token_usd),
                    ),
                )
    worst = call.worst(allowed)
    return Reserved(tuple(ledger.hold(key, worst) for ledger in ledgers), allowed)


def _used_up(used: str, limit: str, next_call: str) -> str:
    return f"{used} of {limit} used; the next call may take {next_call} more"


def _too_short(allowed: int, call: ModelCall) -> bool:
    return allowed < _least(call)


def _least(call: ModelCall) -> int:
    """Return the output tokens without which a call is not made."""
    return min(LEAST_OUTPUT_TOKENS, call.max_tokens)


def _bytes(blocks: Sequence[Block]) -> int:
    return sum(_of_block(block) for block in blocks)


def _of_block(block: Block) -> int:
    content = block.get("content")
    if block.get("type") == "image":
        return IMAGE_TOKENS
    if isinstance(content, list):
        return _bytes(content) + _bytes([{**block, "content": ""}])
    return len(json.dumps(block, ensure_ascii=False).encode("utf-8", "surrogatepass"))
