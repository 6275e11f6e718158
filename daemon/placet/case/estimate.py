"""Estimate a mission's cost from earlier missions of its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from placet.chat.budget import Complexity
from placet.wording import dollars

ENOUGH = 3
"""Fewest past missions of a size from which placet estimates a cost."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs of the last missions of one complexity, and the plan's own budget, in US dollars."""

    complexity: str
    missions: int
    median_usd: float
    most_usd: float
    budget_usd: float | None = None

    @property
    def sentence(self) -> str:
        """What similar missions cost, with a warning where the plan's budget is below that."""
        sentence = (
            f"Similar missions: about ${self.median_usd:.2f}, up to ${self.most_usd:.2f} so far."
        )
        if self.budget_usd is not None and self.budget_usd < self.median_usd:
            sentence += (
                f" This plan's budget is ${self.budget_usd:.2f}: "
                "the mission may stop before it is done."
            )
        return sentence


def estimate(
    costs: Sequence[float], complexity: Complexity, budget_usd: Decimal | None
) -> Estimate | None:
    """Return the estimate from earlier missions' costs, None where too few are known.

    `budget_usd` is the plan's own limit, if it has one.
    """
    typical = median(costs)
    if typical is None:
        return None
    budget = None if budget_usd is None else float(budget_usd)
    return Estimate(complexity, len(costs), typical, max(costs), budget)


def median(costs: Sequence[float]) -> float | None:
    """Return the median of earlier missions' costs, None for fewer than three."""
    return sorted(costs)[len(costs) // 2] if len(costs) >= ENOUGH else None


def against_estimate(
    cost_usd: float | None, typical_usd: float | None, limit_usd: float | None
) -> str:
    """Compare a mission's cost with its limit and with missions of its size.

    All are dollars, None if unknown.
    """
    cost = dollars(cost_usd, "unknown (there is no price for its model)")
    typical = (
        "no estimate (fewer than three similar missions are known)"
        if typical_usd is None
        else f"similar missions cost about {dollars(typical_usd)}"
    )
    return f"{cost}; {typical}; " + (
        "no limit in the plan" if limit_usd is None else f"limit {dollars(limit_usd)}"
    )
