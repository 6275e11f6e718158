"""The questions behind the numbers of the board, as SQL for both databases.

`placet journal --sql` runs it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GROUPS: Mapping[str, str] = {
    "day": "date(a.timestamp, 'localtime')",
    "agent": "coalesce(nullif(a.agent, ''), '(none)')",
    "portal": "coalesce(nullif(p.portal, ''), '(the vault)')",
}
"""What numbers are told by, and the SQL of it."""

_PORTALS = "portals AS MATERIALIZED (SELECT trace_id, body->>'portal' AS portal FROM cases)"
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
CHOICES = "SELECT DISTINCT body->>'agent' AS agent, body->>'portal' AS portal FROM cases"
"""The agents and portals there are."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of the journal that numbers are about, and what they are told by.

    `by` is a key of GROUPS; an empty agent or portal, which are known ones, means all. A portal of
    None means all, an empty one the vault itself.
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
    """Return a text as SQL has it."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
