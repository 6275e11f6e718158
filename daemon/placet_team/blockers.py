"""Find the sessions that block the journal; end a worker's that does so for too long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

from placet.journal.database import Connection, DatabaseAway
from placet.wording import age, counted
from placet_team.postgres_reader import idle_connection
from placet_team.tables import WORKER

SHORT_S = 5.0
"""Seconds of a transaction that are nothing to tell of: writers wait for each other."""
_LOOKS = 3
"""Looks of the daemon in the time of a lease."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session of `user` whose transaction is `open_s` old, and for which others wait."""

    pid: int
    user: str
    is_worker: bool
    open_s: float
    waiting: int

    def __str__(self) -> str:
        whose = f"worker {self.user}" if self.is_worker else f"database user {self.user}"
        return (
            f"the session {self.pid} of the {whose} has kept a transaction open for "
            f"{age(self.open_s)}, and {counted(self.waiting, 'other')} "
            f"{'waits' if self.waiting == 1 else 'wait'} for it"
        )


_BLOCKERS = f"""WITH waits AS (
    SELECT pid AS waiting, unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
    UNION SELECT NULL, pid FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
      AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('placet')))
  SELECT s.pid, coalesce(s.usename, ''), s.usename <> current_user AND EXISTS (
      SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
      WHERE g.rolname = '{WORKER}' AND m.member = s.usesysid),
    extract(epoch FROM clock_timestamp() - coalesce(s.xact_start, s.backend_start))::float8,
    count(DISTINCT waiting)
  FROM waits JOIN pg_stat_activity s USING (pid) WHERE s.wait_event_type IS DISTINCT FROM 'Lock'
  GROUP BY s.pid, s.usename, s.usesysid, s.xact_start, s.backend_start ORDER BY 4 DESC"""  # noqa: S608 - our own
"""It reads no table: one may be locked."""


def blockers(connection: Connection) -> list[Blocker]:
    """Return the sessions for which others have to wait, the oldest transaction first."""
    found = [Blocker(*row) for row in connection.execute(_BLOCKERS)]
    return [one for one in found if one.open_s >= SHORT_S]


@contextmanager
def watched(address: str, lease_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Name sessions that block the journal, in a separate thread.

    A worker's that does so for longer than a lease is ended: all its statements are short.
    """
    over = threading.Event()

    def watch() -> None:
        told = set[int]()
        while not over.wait(lease_s / _LOOKS):
            with suppress(DatabaseAway), idle_connection(address) as connection:
                for one in blockers(connection):
                    if one.is_worker and one.open_s > lease_s:
                        say(_ended(connection, one))
                    elif one.pid not in told:
                        say(f"The journal is blocked: {one}.")
                    told.add(one.pid)

    thread = threading.Thread(target=watch, name="blockers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _ended(connection: Connection, one: Blocker) -> str:
    """End a session; return what to say."""
    try:
        connection.execute("SELECT pg_terminate_backend(?)", (one.pid,))
    except psycopg.errors.InsufficientPrivilege:
        return (
            f"The journal is blocked: {one}. placet may not end that session. As an "
            f"administrator: SELECT pg_terminate_backend({one.pid});"
        )
    return f"Ended a session that blocked the journal: {one}. See: placet team remove {one.user}"
