"""Count what the journal has of the last days, for charts, each with its SQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from datetime import time as midnight
from pathlib import Path
from typing import Any

from placet.errors import UserError
from placet.host.clock import wall
from placet.journal.database import is_begun
from placet.journal.reader import query, snapshot
from placet.note.paths import show as visible
from placet.wording import rfc3339
from placet_board.charts import KINDS, ChartKind, Column, Drawing, bar_chart, row_chart
from placet_board.rows import first_since

# The SQL of the charts, for both databases. `placet journal --sql` runs it too.

GROUPS: Mapping[str, str] = {
    "day": "date(a.timestamp, 'localtime')",
    "agent": "coalesce(nullif(a.agent, ''), '(none)')",
    "portal": "coalesce(nullif(p.portal, ''), '(the vault)')",
}
"""What numbers can be grouped by, with its SQL."""

_PORTALS = (
    "portals AS MATERIALIZED (SELECT trace_id, body->>'$.request.portal' AS portal FROM cases)"
)
_JOIN = " LEFT JOIN portals AS p ON p.trace_id = a.trace_id"

_MISSIONS = """\
SELECT {group} AS {by},
  count(*) FILTER (WHERE a.action_type = 'execution.completed') AS completed,
  count(*) FILTER (WHERE a.action_type = 'execution.failed') AS failed
FROM activity AS a{join}
WHERE a.action_type IN ('execution.completed', 'execution.failed')
  AND {among}
GROUP BY 1 ORDER BY 1"""

_CALLS = """\
SELECT {group} AS {by},
  round(sum(a.metadata->>'cost_usd'), 4) AS dollars,
  CAST(coalesce(sum(a.metadata->>'input_tokens'), 0)
    + coalesce(sum(a.metadata->>'cache_write_tokens'), 0) AS BIGINT) AS input_tokens,
  CAST(coalesce(sum(a.metadata->>'cache_read_tokens'), 0) AS BIGINT) AS cached_tokens,
  CAST(coalesce(sum(a.metadata->>'output_tokens'), 0) AS BIGINT) AS output_tokens,
  CAST(coalesce(sum(a.metadata->>'tokens'), 0) AS BIGINT) AS lost_tokens,
  round(100.0 * sum(a.metadata->>'cache_read_tokens')
    / nullif(coalesce(sum(a.metadata->>'input_tokens'), 0)
      + coalesce(sum(a.metadata->>'cache_write_tokens'), 0)
      + coalesce(sum(a.metadata->>'cache_read_tokens'), 0), 0), 1) AS cache_percent,
  count(*) FILTER (WHERE a.metadata->>'cost_usd' IS NULL) AS calls_without_price
FROM activity AS a{join}
WHERE a.action_type IN ('model.called', 'model.failed')
  AND {among}
GROUP BY 1 ORDER BY 1"""

_WAITS = """\
, waits AS (
  SELECT {group} AS {by},
    1440 * (julianday(a.timestamp) - julianday((
      SELECT made.timestamp FROM activity AS made
      WHERE made.trace_id = a.trace_id AND made.id < a.id
        AND coalesce(made.action_type, '') IN ('plan.created', 'plan.revised')
      ORDER BY made.id DESC LIMIT 1))) AS minutes
  FROM activity AS a{join}
  WHERE a.action_type = 'plan.approved'
    AND {among}
), ranked AS (
  SELECT {by}, minutes,
    row_number() OVER (PARTITION BY {by} ORDER BY minutes) AS place,
    count(*) OVER (PARTITION BY {by}) AS plans
  FROM waits WHERE minutes IS NOT NULL
)
SELECT {by}, max(plans) AS plans,
  round(avg(minutes) FILTER (WHERE place IN ((plans + 1) / 2, (plans + 2) / 2)), 1)
    AS median_minutes,
  round(max(minutes), 1) AS longest_minutes
FROM ranked GROUP BY 1 ORDER BY 1"""

_DECISIONS = """\
SELECT {group} AS {by},
  count(*) FILTER (WHERE a.action_type = 'plan.approved') AS approved,
  count(*) FILTER (WHERE a.action_type = 'plan.rejected') AS rejected,
  round(100.0 * count(*) FILTER (WHERE a.action_type = 'plan.rejected') / count(*), 1)
    AS rejected_percent
FROM activity AS a{join}
WHERE a.action_type IN ('plan.approved', 'plan.rejected')
  AND {among}
GROUP BY 1 ORDER BY 1"""

_FAILURES = """\
SELECT coalesce(a.metadata->>'reason', '?') AS reason, count(*) AS failures
FROM activity AS a{join}
WHERE a.action_type = 'execution.failed'
  AND {among}
GROUP BY 1 ORDER BY 2 DESC, 1"""

QUESTIONS: Mapping[str, str] = {
    "missions": _MISSIONS,
    "calls": _CALLS,
    "waits": _WAITS,
    "decisions": _DECISIONS,
    "failures": _FAILURES,
}
CHOICES = """\
SELECT DISTINCT body->>'$.request.agent' AS agent, body->>'$.request.portal' AS portal FROM cases"""
"""All agents and portals."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of the journal to count, and what to group by.

    `by` is a key of GROUPS. An empty agent means all. A portal of None means all, an empty one the
    vault itself.
    """

    days: int
    by: str
    agent: str = ""
    portal: str | None = None


def sql_of(name: str, part: Slice, first: int) -> str:
    """Return the SQL of a question about the rows from the id `first` on."""
    among = [f"a.id >= {first}"]
    if part.agent:
        among.append(f"a.agent = {_literal(part.agent)}")
    if part.portal is not None:
        among.append(f"coalesce(p.portal, '') = {_literal(part.portal)}")
    needs_portals = part.portal is not None or (part.by == "portal" and name != "failures")
    body = QUESTIONS[name].format(
        group=GROUPS[part.by],
        by=part.by,
        join=_JOIN if needs_portals else "",
        among=" AND ".join(among),
    )
    tables = [*([_PORTALS] if needs_portals else [])]
    if body.startswith(", "):
        tables.append(body.removeprefix(", "))
        body = ""
    head = f"-- the last {part.days} days begin at row {first}\n"
    return head + (f"WITH {', '.join(tables)}\n{body}".rstrip() if tables else body)


def _literal(text: str) -> str:
    """Return a text as an SQL literal."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


DAYS = (7, 30, 90)
SHARED_S = 20.0
"""How long browsers share a result, in seconds."""
COUNT_S = 4.0
"""Time limit for all queries of a page, in seconds; a chart without time left says so."""
LEAST_S = 0.2
"""Seconds that each query gets in any case."""
WAIT_S = 6.0
"""Seconds that a browser waits while numbers for another browser are counted."""
MAX_KEPT = 24
VAULT_ITSELF = "(the vault)"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with everything that a page says about it.

    `text` is its sentence, `legend` names its series, `problem` says why it could not be made.
    """

    key: str
    title: str
    text: str
    legend: tuple[str, ...]
    drawing: Drawing | None
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The charts, and the agents and portals to choose from."""

    charts: tuple[Chart, ...]
    agents: tuple[str, ...]
    portals: tuple[str, ...]
    is_empty: bool


@dataclass(slots=True)
class Counted:
    """Counts a journal for browsers, and caches the results. Thread-safe."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[Slice | None, tuple[float, Any]] = field(default_factory=dict)

    def numbers(self, path: Path, asked: Slice) -> Numbers:
        """Return the numbers of a part of the journal, at most SHARED_S old.

        An unknown name of an agent or a portal means all. Raises UserError while too much is being
        counted.
        """
        if not is_begun(path):
            return Numbers((), (), (), is_empty=True)
        with self._turn():
            agents, portals = self._lately(None, lambda: _choices(path))
            part = Slice(
                asked.days,
                asked.by,
                asked.agent if asked.agent in agents else "",
                asked.portal if asked.portal in portals else None,
            )
            charts = self._lately(part, lambda: _count(path, part))
        return Numbers(
            charts,
            agents,
            tuple(portal or VAULT_ITSELF for portal in portals),
            is_empty=not any(chart.rows or chart.problem for chart in charts),
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=WAIT_S):
            raise UserError("The board is counting for other browsers.", "Reload later.")
        try:
            yield
        finally:
            self._lock.release()

    def _lately(self, key: Slice | None, count: Callable[[], Any]) -> Any:
        kept = self._kept.pop(key, None)
        if kept is None or time.monotonic() - kept[0] > SHARED_S:
            made = count()
            kept = (time.monotonic(), made)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = kept
        return kept[1]


def slice_of(params: Mapping[str, str]) -> Slice:
    """Return the part of the journal that an address asks for; invalid values are ignored."""
    days = params.get("days", "")
    by = params.get("by", "")
    portal = params.get("portal", "")
    return Slice(
        int(days) if days in map(str, DAYS) else 30,
        by if by in GROUPS else "day",
        params.get("agent", ""),
        "" if portal == VAULT_ITSELF else portal or None,
    )


def _choices(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of agents and portals; "" is the vault itself."""
    _, found = query(path, CHOICES, timeout_s=COUNT_S)
    agents = tuple(sorted({agent for agent, _ in found if agent}))
    return agents, tuple(sorted({portal or "" for _, portal in found}))


def _count(path: Path, part: Slice) -> tuple[Chart, ...]:
    with snapshot(path) as connection:
        first = first_since(connection, rfc3339(_days(part.days)[0]))
    answers: dict[str, SqlAnswer] = {}
    until = time.monotonic() + COUNT_S
    for name in QUESTIONS:
        sql = sql_of(name, part, first)
        try:
            answers[name] = SqlAnswer(sql, *query(path, sql, timeout_s=_left(until)))
        except UserError as error:
            answers[name] = SqlAnswer(sql, (), (), error.what)
    return tuple(_chart(kind, answers[kind.question], part) for kind in KINDS)


def _left(until: float) -> float:
    return max(until - time.monotonic(), LEAST_S)


def _days(number: int) -> list[datetime]:
    """Return the beginnings of the last days, in local time; today's is the last."""
    today = wall().astimezone().date()
    dates = [today - timedelta(days=back) for back in reversed(range(number))]
    return [datetime.combine(date, midnight()).astimezone() for date in dates]


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The rows of a query; `problem` says why there are none."""

    sql: str
    head: Sequence[str]
    rows: Sequence[tuple[Any, ...]]
    problem: str = ""


def _chart(kind: ChartKind, answer: SqlAnswer, part: Slice) -> Chart:
    named = [dict(zip(answer.head, row, strict=True)) for row in answer.rows]
    columns: list[Column] = [
        (visible(str(row[answer.head[0]])), [row[name] for name in kind.series]) for row in named
    ]
    drawing = None
    is_failures = kind.question == "failures"
    if is_failures:
        columns = [(name.replace("_", " "), values) for name, values in columns]
    if len(columns) > 1 and part.by == "day" and not is_failures:
        found = dict(columns)
        nothing = [None] * len(kind.series)
        # from a day before the first one with numbers
        days = [f"{day:%Y-%m-%d}" for day in _days(part.days)]
        days = days[max(0, days.index(columns[0][0]) - 1) :] if columns[0][0] in days else days
        drawing = bar_chart([(day, found.get(day, nothing)) for day in days], kind.tell, kind.full)
    elif columns:
        drawing = row_chart(columns, kind.tell, kind.full)
    shown = [answer.head[0], *kind.series, *kind.besides] if named else []
    legend = kind.series if len(kind.series) > 1 else ()
    return Chart(
        kind.key,
        kind.title,
        kind.text(named) if named else "",
        tuple(name.replace("_", " ") for name in legend),
        drawing,
        tuple(name.replace("_", " ") for name in shown),
        tuple(tuple(row[name] for name in shown) for row in named),
        answer.sql,
        answer.problem,
    )
