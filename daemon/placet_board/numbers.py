"""The numbers of the board: charts of what the journal has of the last days, each with its SQL."""

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

from placet.core.errors import UserError
from placet.core.text.names import show as visible
from placet.core.wording import rfc3339
from placet.host.clock import wall
from placet.journal.browse import first_since
from placet.journal.connection import snapshot
from placet.journal.place import is_begun
from placet.journal.query import query
from placet_board.chart_kinds import KINDS, ChartKind
from placet_board.charts import Column, Drawing, lying, upright
from placet_board.questions import CHOICES, GROUPS, QUESTIONS, Slice, sql_of

DAYS = (7, 30, 90)
SHARED_S = 20.0
"""Seconds for which browsers share what was counted."""
COUNT_S = 4.0
"""Seconds that all questions of a page may take; a chart whose question got no more says so."""
LEAST_S = 0.2
"""Seconds that a question may take however long the others took."""
WAIT_S = 6.0
"""Seconds that a browser waits while it is counted for another."""
MAX_KEPT = 24
VAULT_ITSELF = "(the vault)"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with all that a page says of it.

    `told` is its sentence, `legend` names its series, `problem` says why it could not be made.
    """

    key: str
    title: str
    told: str
    legend: tuple[str, ...]
    drawing: Drawing | None
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The charts, and the agents and portals that can be chosen."""

    charts: tuple[Chart, ...]
    agents: tuple[str, ...]
    portals: tuple[str, ...]
    is_empty: bool


@dataclass(slots=True)
class Counted:
    """Counts what browsers ask of a journal, and keeps it a while; several threads may ask."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kept: dict[Slice | None, tuple[float, Any]] = field(default_factory=dict)

    def numbers(self, path: Path, asked: Slice) -> Numbers:
        """Return the numbers of a part of the journal, at most SHARED_S old.

        A name that is no agent's and no portal's means all of them. Raises UserError where too much
        is counted already.
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
            raise UserError("Others have more counted than can be done at once.", "Reload later.")
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
    """Return what an address asks for; what it may not is left out."""
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
    """Return the names of agents and portals; the vault itself is an empty one."""
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
    """Return the beginnings of the last days, in local time, today's last."""
    today = wall().astimezone().date()
    dates = [today - timedelta(days=back) for back in reversed(range(number))]
    return [datetime.combine(date, midnight()).astimezone() for date in dates]


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """The rows that a question brought; `problem` says why it brought none."""

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
    if columns and part.by == "day" and kind.question != "failures":
        found = dict(columns)
        nothing = [None] * len(kind.series)
        days = [f"{day:%Y-%m-%d}" for day in _days(part.days)]
        drawing = upright([(day, found.get(day, nothing)) for day in days], kind.tell, kind.full)
    elif columns:
        drawing = lying(columns, kind.tell, kind.full)
    shown = [answer.head[0], *kind.series, *kind.besides] if named else []
    legend = kind.series if len(kind.series) > 1 else ()
    return Chart(
        kind.key,
        kind.title,
        kind.told(named) if named else "",
        tuple(name.replace("_", " ") for name in legend),
        drawing,
        tuple(name.replace("_", " ") for name in shown),
        tuple(tuple(row[name] for name in shown) for row in named),
        answer.sql,
        answer.problem,
    )
