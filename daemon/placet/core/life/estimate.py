"""A mission's likely cost: what missions of its size cost before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placet.core.turn.budget import Complexity
from placet.core.wording import dollars

ENOUGH = 3
"""Fewest missions of a size from which another one's cost is estimated."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Costs of the last missions of one complexity, in US dollars."""

    complexity: str
    missions: int
    median_usd: float
    most_usd: float

    @property
    def sentence(self) -> str:
        """The estimate as a plan's callout has it."""
        return (
            f"The last {self.missions} `{self.complexity}` missions cost "
            f"${self.median_usd:.2f} in the median, ${self.most_usd:.2f} at most."
        )


def estimate(costs: Sequence[float], complexity: Complexity) -> Estimate | None:
    """Return the estimate from earlier missions' costs, None where too few are known."""
    typical = median(costs)
    return None if typical is None else Estimate(complexity, len(costs), typical, max(costs))


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
        "no estimate (fewer than three missions of this size are known)"
        if typical_usd is None
        else f"missions of this size cost {dollars(typical_usd)} in the median"
    )
    return f"{cost}; {typical}; " + (
        "no limit of its own" if limit_usd is None else f"limit {dollars(limit_usd)}"
    )
