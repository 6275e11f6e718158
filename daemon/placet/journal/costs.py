"""Sum the costs of model calls as events are written, and query them.

A budget is checked before each call, so its query must not grow with the journal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from placet.activity import Action, Activity
from placet.chat.messages import Usage
from placet.chat.prices import Pricer, unpriced
from placet.journal.database import Connection

_QUARTER = (
    "substr(timestamp, 1, 14) || CASE WHEN substr(timestamp, 15, 2) < '15' THEN '00'"
    " WHEN substr(timestamp, 15, 2) < '30' THEN '15'"
    " WHEN substr(timestamp, 15, 2) < '45' THEN '30' ELSE '45' END || ':00Z'"
)
"""When a row's quarter of an hour began; days begin at one in every time zone."""
TOKENS = ("tokens", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class CallUse(NamedTuple):
    """The usage of one model call; `usd` is None if unknown."""

    quarter: str
    tokens: int
    usd: float | None


class Paid(NamedTuple):
    """The cost of one completed mission."""

    complexity: str
    usd: float


class CallSums(NamedTuple):
    """Sums over the model calls of a quarter of an hour.

    `tokens` are all that calls without an answer may have used. `usd` is of the calls whose cost is
    known.
    """

    timestamp: str
    calls: int
    unanswered: int
    unknown: int
    usd: float
    tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class EndedMission(NamedTuple):
    """One mission's cost, and what missions of its size had cost; both in dollars, known."""

    timestamp: str
    estimate_usd: float
    usd: float


def quarter(timestamp: str) -> str:
    """Return the quarter of an hour of a row's timestamp; days begin at one in every time zone."""
    return (
        f"{timestamp[:14]}{int(timestamp[14:16]) // 15 * 15:02}"
        if timestamp[14:16].isdecimal()
        else timestamp
    )


def sum_of(activity: Activity) -> CallUse | Paid | None:
    """Return an event's contribution to the sums; None for most."""
    data = activity.metadata
    if activity.action in (Action.MODEL_CALLED, Action.MODEL_FAILED):
        cost = data.get("cost_usd")
        tokens = sum(int(data.get(name) or 0) for name in TOKENS)
        return CallUse(quarter(activity.timestamp), tokens, None if cost is None else float(cost))
    if activity.action is Action.EXECUTION_COMPLETED and (cost := data.get("cost_usd")):
        return Paid(str(data.get("complexity") or ""), float(cost))
    return None


def add(connection: Connection, sums: Iterable[tuple[int, CallUse | Paid]]) -> None:
    """Add the contributions of events, by id, in the transaction that writes the events."""
    for row_id, one in sums:
        if isinstance(one, Paid):
            connection.execute(
                "INSERT INTO paid VALUES (?, ?, ?)", (one.complexity, row_id, one.usd)
            )
        else:
            connection.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?) ON CONFLICT (quarter) DO UPDATE SET "
                "tokens = spent.tokens + excluded.tokens, usd = spent.usd + excluded.usd, "
                "unknown = spent.unknown + excluded.unknown",
                (
                    one.quarter,
                    one.tokens,
                    one.usd or 0.0,
                    int(one.usd is None and one.tokens > 0),
                ),
            )


class ModelCalls:
    """Queries about model calls and costs, of one `Reader`'s snapshot."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def mission_costs(self, complexity: str) -> tuple[float, ...]:
        """Return the known costs in dollars of the last 20 missions of this complexity."""
        return tuple(
            usd
            for (usd,) in self._connection.execute(
                "SELECT usd FROM paid WHERE complexity = ? ORDER BY activity_id DESC LIMIT 20",
                (complexity,),
            )
        )

    def used_since(self, timestamp: str, price: Pricer = unpriced) -> tuple[int, Decimal | None]:
        """Return tokens and dollars of all calls since the quarter of an hour of a timestamp.

        Calls without an answer count at their worst. `price` prices what had no price yet. Dollars
        are None if one call's are still unknown.
        """
        found = self._connection.execute(
            "SELECT sum(tokens), sum(usd), sum(unknown) FROM spent WHERE quarter >= ?",
            (quarter(timestamp),),
        )
        return self._amount(found, price)

    def _amount(self, found: Any, price: Pricer, trace_id: str = "") -> tuple[int, Decimal | None]:
        tokens, usd, unknown = found.fetchone()
        late = [price(*one[1:]) for one in self._unpriced(int(unknown or 0), trace_id)]
        costs = [cost for cost in late if cost is not None]
        known = sum(costs, Decimal(str(round(usd or 0.0, 9))))
        return int(tokens or 0), known if len(costs) == len(late) else None

    def _unpriced(
        self, latest: int, trace_id: str = ""
    ) -> list[tuple[str, Sequence[str], Usage, int]]:
        """Return the latest calls of unknown cost: their quarter, and what a Pricer takes."""
        if not latest:
            return []
        counts = ", ".join(map(_number, TOKENS))
        # the plus keeps SQLite from walking all calls of the model; it goes back from the newest
        rows = self._connection.execute(
            f"SELECT {_QUARTER}, coalesce(metadata->>'model', ''),"  # noqa: S608 - literals
            f" coalesce(metadata->>'asked', ''), {counts} FROM activity"
            " WHERE (trace_id = ? OR ? = '') AND +action_type IN ('model.called', 'model.failed')"
            f" AND {_dollars('cost_usd')} IS NULL AND {' + '.join(map(_number, TOKENS))} > 0"
            " ORDER BY id DESC LIMIT ?",
            (trace_id, trace_id, latest),
        )
        return [
            (when, (model, asked), Usage(*map(int, counted)), int(lost))
            for when, model, asked, lost, *counted in rows
        ]

    def sums_since(self, timestamp: str, price: Pricer = unpriced) -> tuple[CallSums, ...]:
        """Return the sums of all model calls since a moment, also of failed ones with a cost.

        `price` as in `used_since`.
        """
        sums = ", ".join(f"sum({_number(name)})" for name in TOKENS)
        usd = _dollars("cost_usd")
        rows = self._connection.execute(
            f"SELECT {_QUARTER} AS quarter, count(*),"  # noqa: S608 - literals
            " count(*) - count(nullif(metadata->>'model', '')),"
            f" count(*) - count({usd}), coalesce(sum({usd}), 0), {sums}"
            " FROM activity WHERE action_type IN ('model.called', 'model.failed')"
            " AND timestamp >= ? AND (action_type = 'model.called'"
            f" OR {_number('tokens')} > 0 OR coalesce({usd}, 0) > 0)"
            " GROUP BY 1 ORDER BY 1",
            (timestamp,),
        )
        sums_of = [CallSums._make((*row[:4], float(row[4]), *map(int, row[5:]))) for row in rows]
        late = Counter[str]()
        paid = defaultdict[str, Decimal](Decimal)
        for when, names, usage, lost in self._unpriced(sum(one.unknown for one in sums_of)):
            if (cost := price(names, usage, lost)) is not None:
                late[when] += 1
                paid[when] += cost
        return tuple(
            one._replace(
                unknown=one.unknown - late[one.timestamp],
                usd=one.usd + float(paid[one.timestamp]),
            )
            for one in sums_of
        )

    def ended_since(self, timestamp: str) -> tuple[EndedMission, ...]:
        """Return the missions since a moment whose estimate and whose cost are known, by id."""
        rows = self._connection.execute(
            f"SELECT timestamp, {_dollars('typical_cost_usd')}, {_dollars('cost_usd')}"  # noqa: S608 - literals
            " FROM activity"
            " WHERE action_type IN ('execution.completed', 'execution.failed') AND timestamp >= ?"
            " AND metadata->>'typical_cost_usd' IS NOT NULL AND metadata->>'cost_usd' IS NOT NULL"
            " ORDER BY id",
            (timestamp,),
        )
        return tuple(EndedMission(*row) for row in rows)

    def used_planning(self, trace_id: str, price: Pricer = unpriced) -> tuple[int, Decimal | None]:
        """Return the same of the calls that planned a case since its last mission began.

        Revisions are included. Asking for a new plan begins again at 0.
        """
        # the plus keeps SQLite from walking all calls of the model
        found = self._connection.execute(
            "SELECT sum(tokens), sum(usd), "  # noqa: S608 - the pieces are literals of this module
            "count(*) FILTER (WHERE usd IS NULL AND tokens > 0) FROM ("
            f"SELECT {' + '.join(map(_number, TOKENS))} AS tokens,"
            f" {_dollars('cost_usd')} AS usd FROM activity WHERE trace_id = ?"
            " AND +action_type IN ('model.called', 'model.failed')"
            " AND metadata->>'purpose' <> 'execute' AND id > (SELECT coalesce(max(id), 0)"
            " FROM activity WHERE trace_id = ? AND"
            " +action_type IN ('request.detected', 'execution.started'))) AS calls",
            (trace_id, trace_id),
        )
        return self._amount(found, price, trace_id)

    def failed_since(self, event_id: int) -> str:
        """Return the reason of the last failed call after an event; "" for none.

        Cancelled calls do not count.
        """
        # the plus keeps SQLite from walking the whole index of that action
        row = self._connection.execute(
            "SELECT metadata->>'reason' FROM activity "
            "WHERE id > ? AND +action_type = 'model.failed' "
            "AND metadata->>'kind' IN ('permanent', 'transient') ORDER BY id DESC LIMIT 1",
            (event_id,),
        ).fetchone()
        return str(row[0] or "") if row else ""

    def answered_since(self, event_id: int) -> bool:
        """Return whether a model answered after an event."""
        found = self._connection.execute(
            "SELECT 1 FROM activity WHERE id > ? AND +action_type = 'model.called' LIMIT 1",
            (event_id,),
        )
        return found.fetchone() is not None


def _number(name: str) -> str:
    """Return the SQL of a whole number in a row's metadata, 0 if missing."""
    return f"coalesce(CAST(metadata->>'{name}' AS BIGINT), 0)"


def _dollars(name: str) -> str:
    return f"CAST(metadata->>'{name}' AS DOUBLE PRECISION)"
