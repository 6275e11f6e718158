"""Price model calls: the vendor's price list, and what a reply costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from placet.chat.messages import Usage

_MILLION = Decimal(1_000_000)
_SNAPSHOT = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Price:
    """One row of the price list: US dollars for a million tokens, known to hold since `since`.

    `above_prompt_tokens` is the size of the prompt (input, cache reads and cache writes together)
    above which this row holds instead of the model's others, for every token of that reply; 0 for a
    model that has one price.
    """

    model: str
    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    since: date
    above_prompt_tokens: int = 0


# The vendor's list, read in November 2026; cache writes at the rate for five minutes, which is what
# is asked for. Sonnet's cache reads and Haiku's two bands took effect on 7 October 2026.
DEFAULT_PRICES: tuple[Price, ...] = (
    Price(
        "claude-opus-5-5", Decimal(4), Decimal(20), Decimal("0.20"), Decimal(5), date(2026, 10, 7)
    ),
    Price(
        "claude-sonnet-5-5",
        Decimal(2),
        Decimal(10),
        Decimal("0.10"),
        Decimal("2.50"),
        date(2026, 10, 7),
    ),
    Price(
        "claude-haiku-5-5",
        Decimal("0.10"),
        Decimal("0.50"),
        Decimal("0.01"),
        Decimal("0.125"),
        date(2026, 10, 7),
    ),
    Price(
        "claude-haiku-5-5",
        Decimal("0.50"),
        Decimal("2.50"),
        Decimal("0.05"),
        Decimal("0.625"),
        date(2026, 10, 7),
        above_prompt_tokens=100_000,
    ),
)


def is_free(provider: str) -> bool:
    """Return whether a provider takes no money: whatever the model, a lost call costs nothing."""
    return provider == "scripted"


def cost_usd(
    usage: Usage, model: str, prices: Iterable[Price], *, free: bool = False
) -> Decimal | None:
    """Return what one reply of `model` costs in US dollars, exactly.

    None where no row names the model. `usage` must be one reply's: prices may depend on the size of
    its prompt. A dated snapshot (`claude-opus-5-5-20261001`) costs what its model costs unless it
    has its own row. If several rows match, the one for the largest prompt that this one exceeds
    holds, then the newest. 0 if `free` (see `is_free`).
    """
    if free:
        return Decimal(0)
    rows = tuple(prices)
    for name in (model, _SNAPSHOT.sub("", model)):
        fitting = [
            r
            for r in rows
            if r.model == name and r.above_prompt_tokens < max(usage.prompt_tokens, 1)
        ]
        if fitting:
            row = max(fitting, key=lambda r: (r.above_prompt_tokens, r.since))
            return (
                usage.input_tokens * row.input
                + usage.output_tokens * row.output
                + usage.cache_read_tokens * row.cache_read
                + usage.cache_write_tokens * row.cache_write
            ) / _MILLION
    return None


Pricer = Callable[[Sequence[str], Usage, int], Decimal | None]
"""The cost of a call by its model's names, its usage, and the tokens of a call without an answer.

It prices calls that had no price when they were made. None if they have none now.
"""


def pricer(prices: Iterable[Price], configured: str) -> Pricer:
    """Return what prices calls; one without an answer at most, as one of the `configured` model."""
    rows = tuple(prices)

    def price(names: Sequence[str], usage: Usage, lost_tokens: int) -> Decimal | None:
        if not any(names):
            names, usage = [configured], Usage(output_tokens=lost_tokens)
        known = (cost_usd(usage, name, rows) for name in names)
        return next((usd for usd in known if usd is not None), None)

    return price


def unpriced(_names: Sequence[str], _usage: Usage, _lost_tokens: int) -> None:
    """Price nothing: what was not known stays unknown."""
