"""Sums over the events, kept as they are written: what is asked before each call of the model must not cost ever more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from placet.core.activity import Action, Activity

_TOKENS = ("tokens", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class CallUse(NamedTuple):
    """What one call of the model used; `usd` is None where that is not known."""

    quarter: str
    tokens: int
    usd: float | None


class Paid(NamedTuple):
    """What one mission that was completed cost."""

    complexity: str
    usd: float


def quarter(timestamp: str) -> str:
    """Return the quarter of an hour in which a row's moment lies: in every time zone a local day begins at one."""
    return (
        f"{timestamp[:14]}{int(timestamp[14:16]) // 15 * 15:02}"
        if timestamp[14:16].isdecimal()
        else timestamp
    )


def sum_of(activity: Activity) -> CallUse | Paid | None:
    """Return what an event adds to the sums, None for most."""
    data = activity.metadata
    if activity.action in (Action.MODEL_CALLED, Action.MODEL_FAILED):
        cost = data.get("cost_usd")
        tokens = sum(int(data.get(name) or 0) for name in _TOKENS)
        return CallUse(quarter(activity.timestamp), tokens, None if cost is None else float(cost))
    if activity.action is Action.EXECUTION_COMPLETED and (cost := data.get("cost_usd")):
        return Paid(str(data.get("complexity") or ""), float(cost))
    return None


def add(connection: sqlite3.Connection, sums: Iterable[tuple[int, CallUse | Paid]]) -> None:
    """Add what events, given by their ids, come to; in the transaction that writes them."""
    for row_id, one in sums:
        if isinstance(one, Paid):
            connection.execute(
                "INSERT INTO paid VALUES (?, ?, ?)", (one.complexity, row_id, one.usd)
            )
        else:
            connection.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (quarter) DO UPDATE SET "
                "tokens = tokens + excluded.tokens, usd = usd + excluded.usd, unknown = unknown + excluded.unknown",
                (one.quarter, one.tokens, one.usd or 0.0, one.usd is None and one.tokens > 0),
            )
