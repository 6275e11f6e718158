"""Model calls at their worst, and the room for them in the budgets that pay for them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from placet.chat.budget import Amount, Exceeded, Ledger, Limit, exceeded
from placet.chat.messages import Ask, Block, Usage
from placet.core.turn.price import Price, cost_usd
from placet.core.wording import dollars

# An answer that may be no longer than this is not worth its prompt. Also the least `max_tokens` of
# the configuration.
LEAST_OUTPUT_TOKENS = 256

# What an image can come to at most, whatever its bytes: vendors scale it down first. Judgement,
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
        """Return what it comes to with an answer of `max_tokens`."""
        usd = None
        if self.prompt_usd is not None and self.output_token_usd is not None:
            usd = self.prompt_usd + max_tokens * self.output_token_usd
        return Amount(self.prompt_tokens + max_tokens, usd)


def prompt_at_most(ask: Ask, last: Usage | None) -> int:
    """Return how many tokens the prompt of `ask` can have at most.

    No token is shorter than a byte, so the bytes of what is sent bound it. `last` is what the
    conversation's last reply used: then what came before is known to the token, and only the newest
    turn is bounded by its bytes. (The usual four characters a token is a mean, not a bound: digits,
    hex and CJK text have more.) A server that counts nothing says nothing.
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
    for ledger in ledgers:
        if (gone := exceeded(ledger)) is not None:
            return gone
        left = ledger.remaining()
        if left.tokens is not None:
            allowed = min(allowed, left.tokens - call.prompt_tokens)
            if _too_short(allowed, call):
                return ledger.over(
                    Limit.TOKENS,
                    _used_up(
                        f"{(ledger.limits.tokens or 0) - left.tokens:,}",
                        f"{ledger.limits.tokens:,} tokens",
                        f"{call.prompt_tokens + _least(call):,}",
                    ),
                )
        if left.usd is not None:
            if call.prompt_usd is None or call.output_token_usd is None:
                why = f"${ledger.limits.usd} cannot be kept to, the model's price is unknown"
                return ledger.over(Limit.USD, why)
            over = left.usd - call.prompt_usd
            if over < 0:
                allowed = -1
            elif call.output_token_usd > 0:
                allowed = min(allowed, int(over // call.output_token_usd))
            if _too_short(allowed, call):
                return ledger.over(
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
