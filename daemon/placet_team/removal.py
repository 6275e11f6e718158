"""Remove a worker: its rights, sessions, work and rows. List what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors as pg

from placet.journal.database import Connection
from placet.journal.writes import Change


@dataclass(frozen=True, slots=True)
class RemoveWorker(Change):
    """Let a worker in no more, and offer its work again; Conflict without one of this name."""

    name: str
    SQL = (
        "DELETE FROM team_workers WHERE name = :name",
        "UPDATE leases SET held = FALSE FROM team_work w WHERE w.worker = :name "
        "AND w.trace_id = leases.trace_id AND w.token = leases.token",
        "DELETE FROM team_held USING team_work w WHERE w.worker = :name "
        "AND split_part(key, ':', 1) = w.trace_id",
        "DELETE FROM team_work WHERE worker = :name RETURNING pg_notify('placet_host', '')",
        "DELETE FROM team_members WHERE name = :name",
    )
    ELSE = "there is no worker named {name}"


@dataclass(frozen=True, slots=True)
class Written:
    """What a worker wrote about a request while it had one lease."""

    request_id: str
    since: str
    until: str
    rows: int
    commits: int
    usd: float


_WRITTEN = """WITH held AS (
    SELECT id, trace_id, entity_id, timestamp, metadata->>'worker' AS worker,
    lead(id) OVER (PARTITION BY trace_id ORDER BY id) AS next
    FROM activity WHERE action_type = 'lease.acquired')
  SELECT h.entity_id, h.timestamp, max(a.timestamp), count(*),
    count(*) FILTER (WHERE a.action_type = 'git.committed'),
    coalesce(sum(CAST(a.metadata->>'cost_usd' AS double precision)), 0)
  FROM held h JOIN activity a ON a.trace_id = h.trace_id AND a.id > h.id
    AND (h.next IS NULL OR a.id < h.next)
  WHERE h.worker = ? AND (a.action_type IN ('conversation.compacted', 'failure.detected',
    'plan.drifted', 'step.completed') OR a.action_type ~ '^(git|model|tool)[.]')
  GROUP BY h.id, h.entity_id, h.timestamp ORDER BY h.id"""
"""The journal does not name a worker in each row: the lease says whose the next ones are."""


def written_by(connection: Connection, name: str) -> list[Written]:
    """Return what a worker wrote, in the order of its leases."""
    return [Written(*row) for row in connection.execute(_WRITTEN, (name,))]


def known_workers(connection: Connection) -> list[str]:
    """Return the names of all workers that were let in."""
    return [str(name) for (name,) in connection.execute("SELECT name FROM team_workers")]


def shut_out(connection: Connection, name: str) -> tuple[str, ...]:
    """Turn off the login of a worker's role, and end its sessions.

    They end first, as one may have changed its own role and keep others waiting for that. Return
    the SQL that only an administrator may run.
    """
    no_login = f'ALTER ROLE "{name}" NOLOGIN'
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'"  # noqa: S608 - a checked name
    left = set[str]()
    for sql in (end, no_login, end):
        try:
            connection.execute(sql)
        except pg.InsufficientPrivilege:
            left.add(sql)
        except pg.UndefinedObject:
            continue  # the role was never created
    return tuple(f"{sql};" for sql in (no_login, end) if sql in left)
