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
from placet.wording import counted, rfc3339
from placet_board.charts import COUNTS, DOLLARS, MINUTES, Drawing, Tell, bar_chart
from placet_board.rows import first_since

# The SQL of the charts, for both databases. `placet journal --sql` runs it too.

_PORTALS = (
    "portals AS MATERIALIZED (SELECT trace_id, body->>'$.request.portal' AS portal FROM cases)"
)
_JOIN = " LEFT JOIN portals AS p ON p.trace_id = a.trace_id"
_DAY = "date(a.timestamp, 'localtime') AS day"

_MISSIONS = """\
SELECT {day},
  count(*) FILTER (WHERE a.action_type = 'execution.completed') AS completed,
  count(*) FILTER (WHERE a.metadata->>'reason' = 'stopped_by_person') AS stopped,
  count(*) FILTER (WHERE a.action_type = 'execution.failed'
    AND a.metadata->>'reason' <> 'stopped_by_person') AS failed
FROM activity AS a{join}
WHERE a.action_type IN ('execution.completed', 'execution.failed')
  AND {among}
GROUP BY 1 ORDER BY 1"""

_COST = """\
SELECT {day},
  round(sum(a.metadata->>'cost_usd') FILTER (WHERE a.action_type LIKE 'model.%'), 4) AS dollars,
  round(sum(a.metadata->>'cost_usd') FILTER (WHERE a.action_type LIKE 'execution.%')
    / nullif(count(*) FILTER (WHERE a.action_type LIKE 'execution.%'), 0), 4)
    AS dollars_a_mission,
  count(*) FILTER (WHERE a.action_type LIKE 'execution.%') AS missions,
  count(*) FILTER (WHERE a.action_type LIKE 'model.%' AND a.metadata->>'cost_usd' IS NULL)
    AS calls_without_price
FROM activity AS a{join}
WHERE a.action_type IN ('model.called', 'model.failed', 'execution.completed', 'execution.failed')
  AND {among}
GROUP BY 1 ORDER BY 1"""

_WAITS = """\
, waits AS (
  SELECT {day},
    1440 * (julianday(a.timestamp) - julianday((
      SELECT made.timestamp FROM activity AS made
      WHERE made.trace_id = a.trace_id AND made.id < a.id
        AND coalesce(made.action_type, '') IN ('plan.created', 'plan.revised')
      ORDER BY made.id DESC LIMIT 1))) AS minutes
  FROM activity AS a{join}
  WHERE a.action_type IN ('plan.approved', 'plan.rejected', 'plan.revision_requested')
    AND {among}
), ranked AS (
  SELECT day, minutes,
    row_number() OVER (PARTITION BY day ORDER BY minutes) AS place,
    count(*) OVER (PARTITION BY day) AS decisions
  FROM waits WHERE minutes IS NOT NULL
)
SELECT day,
  round(avg(minutes) FILTER (WHERE place IN ((decisions + 1) / 2, (decisions + 2) / 2)), 1)
    AS median_minutes,
  round(max(minutes), 1) AS longest_minutes, max(decisions) AS decisions
FROM ranked GROUP BY 1 ORDER BY 1"""

QUESTIONS: Mapping[str, str] = {"missions": _MISSIONS, "cost": _COST, "waits": _WAITS}
CHOICES = """\
SELECT DISTINCT body->>'$.request.agent' AS agent, body->>'$.request.portal' AS portal FROM cases"""
"""All agents and portals."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Which part of the journal is counted: the last days, of one agent or portal.

    An empty agent means all. A portal of None means all, an empty one the vault itself.
    """

    days: int
    agent: str = ""
    portal: str | None = None


def sql_of(name: str, part: Slice, first: int) -> str:
    """Return the SQL of a question about the rows from the id `first` on."""
    among = [f"a.id >= {first}"]
    if part.agent:
        among.append(f"a.agent = {_literal(part.agent)}")
    if part.portal is not None:
        among.append(f"coalesce(p.portal, '') = {_literal(part.portal)}")
    has_portal = part.portal is not None
    join = _JOIN if has_portal else ""
    body = QUESTIONS[name].format(day=_DAY, join=join, among=" AND ".join(among))
    tables = [*([_PORTALS] if has_portal else [])]
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


Answer = Mapping[str, Any]
"""A row of a query, by the names of its columns."""


@dataclass(frozen=True, slots=True)
class ChartKind:
    """A chart: its title, its series, how its values and its sentence are written.

    `series` are the columns that are drawn; the table has all.
    """

    title: str
    series: tuple[str, ...]
    tell: Tell
    steps: Sequence[float]
    text: Callable[[Sequence[Answer]], str]


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

    def numbers(self, path: Path, asked: Slice, day_usd: float = 0.0) -> Numbers:
        """Return the numbers of a part of the journal, at most SHARED_S old.

        An unknown name of an agent or a portal means all. `day_usd` is the limit of a day, 0 for
        none. Raises UserError while too much is being counted.
        """
        if not is_begun(path):
            return Numbers((), (), (), is_empty=True)
        with self._turn():
            agents, portals = self._lately(None, lambda: _choices(path))
            part = Slice(
                asked.days,
                asked.agent if asked.agent in agents else "",
                asked.portal if asked.portal in portals else None,
            )
            answers = self._lately(part, lambda: _count(path, part))
        charts = _charts(answers, part, day_usd)
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
    portal = params.get("portal", "")
    return Slice(
        int(days) if days in map(str, DAYS) else 30,
        params.get("agent", ""),
        "" if portal == VAULT_ITSELF else portal or None,
    )


def _choices(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of agents and portals; "" is the vault itself."""
    _, found = query(path, CHOICES, timeout_s=COUNT_S)
    agents = tuple(sorted({agent for agent, _ in found if agent}))
    return agents, tuple(sorted({portal or "" for _, portal in found}))


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The rows of a query; `problem` says why there are none."""

    sql: str
    head: Sequence[str] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    problem: str = ""


def _count(path: Path, part: Slice) -> dict[str, SqlAnswer]:
    with snapshot(path) as connection:
        first = first_since(connection, rfc3339(_days(part.days)[0]))
    answers: dict[str, SqlAnswer] = {}
    until = time.monotonic() + COUNT_S
    for name in QUESTIONS:
        sql = sql_of(name, part, first)
        try:
            left_s = max(until - time.monotonic(), LEAST_S)
            answers[name] = SqlAnswer(sql, *query(path, sql, timeout_s=left_s))
        except UserError as error:
            answers[name] = SqlAnswer(sql, problem=error.what)
    return answers


def _days(number: int) -> list[datetime]:
    """Return the beginnings of the last days, in local time; today's is the last."""
    today = wall().astimezone().date()
    dates = [today - timedelta(days=back) for back in reversed(range(number))]
    return [datetime.combine(date, midnight()).astimezone() for date in dates]


def _charts(answers: Mapping[str, SqlAnswer], part: Slice, day_usd: float) -> tuple[Chart, ...]:
    """Return the charts, all with the same days: from one before the first with numbers."""
    days = [f"{day:%Y-%m-%d}" for day in _days(part.days)]
    with_numbers = [str(row[0]) for answer in answers.values() for row in answer.rows]
    first = min([*with_numbers, days[-1]])
    days = days[max(0, days.index(first) - 1) if first in days else 0 :]
    return tuple(
        _chart(name, kind, answers[name], days, day_usd if name == "cost" else 0.0)
        for name, kind in KINDS.items()
    )


def _chart(
    key: str, kind: ChartKind, answer: SqlAnswer, days: Sequence[str], limit: float
) -> Chart:
    named = [dict(zip(answer.head, row, strict=True)) for row in answer.rows]
    found = {str(row["day"]): [row[name] for name in kind.series] for row in named}
    drawing = bar_chart(kind.series, days, found, kind.tell, kind.steps, limit) if named else None
    text = kind.text(named) if named else ""
    if named and limit:
        text += f"; the limit is {_dollars(limit)} a day"
    return Chart(
        key,
        kind.title,
        text,
        kind.series if len(kind.series) > 1 else (),
        drawing,
        tuple(name.replace("_", " ") for name in answer.head),
        tuple(answer.rows),
        answer.sql,
        answer.problem,
    )


def _total(rows: Sequence[Answer], name: str) -> Any:
    return sum(row[name] or 0 for row in rows)


def _missions(rows: Sequence[Answer]) -> str:
    told = [f"{_total(rows, name):,} {name}" for name in ("completed", "stopped", "failed")]
    return ", ".join(told)


def _cost(rows: Sequence[Answer]) -> str:
    missions, unknown = _total(rows, "missions"), _total(rows, "calls_without_price")
    of_missions = sum((row["dollars_a_mission"] or 0) * row["missions"] for row in rows)
    each = f", {_dollars(of_missions / missions)} a mission" if missions else ""
    besides = f", and {counted(unknown, 'call')} without a known price" if unknown else ""
    return f"{_dollars(_total(rows, 'dollars'))}{each}{besides}"


def _waits(rows: Sequence[Answer]) -> str:
    number = counted(_total(rows, "decisions"), "decision")
    longest = _minutes(max(row["longest_minutes"] for row in rows))
    return f"The median of each day; {number}, the longest took {longest}"


def _minutes(minutes: float) -> str:
    for unit, size in (("d", 1440), ("h", 60), ("min", 1)):
        if minutes >= size:
            return f"{minutes / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{minutes * 60:.0f} s"


def _dollars(usd: float) -> str:
    if 0 < usd < 0.0001:
        return "less than $0.0001"
    return f"${usd:,.2f}" if usd >= 0.1 or not usd else f"${usd:.4f}".rstrip("0")


KINDS: Mapping[str, ChartKind] = {
    "missions": ChartKind(
        "Missions", ("completed", "stopped", "failed"), "{:,.0f}".format, COUNTS, _missions
    ),
    "cost": ChartKind("Cost a day", ("dollars",), _dollars, DOLLARS, _cost),
    "waits": ChartKind(
        "Time from plan to decision", ("median_minutes",), _minutes, MINUTES, _waits
    ),
}
