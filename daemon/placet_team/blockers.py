"""Find the sessions that block the journal; end a worker's whose transaction is too old."""

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
    """A session of `user` whose transaction is `open_s` old, and for which `waiting` others wait.

    `open_s` is None where the database does not say it: the session's role is none of ours.
    """

    pid: int
    user: str
    is_worker: bool
    open_s: float | None
    waiting: int

    @property
    def session(self) -> tuple[int, str]:
        """What tells it from others: its number may be another user's session by now."""
        return self.pid, self.user

    def __str__(self) -> str:
        whose = f"worker {self.user}" if self.is_worker else f"database user {self.user}"
        how_long = "an unknown time" if self.open_s is None else age(self.open_s)
        said = f"the session {self.pid} of the {whose} has kept a transaction open for {how_long}"
        if not self.waiting:
            return said
        waits = "waits" if self.waiting == 1 else "wait"
        return f"{said}, and {counted(self.waiting, 'other')} {waits} for it"


_IS_WORKER = f"""coalesce(s.usename <> current_user, FALSE) AND EXISTS (
      SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
      WHERE g.rolname = '{WORKER}' AND m.member = s.usesysid)"""
_BLOCKERS = f"""WITH waits AS (
    SELECT pid AS waiting, unnest(pg_blocking_pids(pid)) AS pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
    UNION SELECT NULL, pid FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
      AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('placet')))
  SELECT s.pid, coalesce(s.usename, ''), {_IS_WORKER},
    extract(epoch FROM clock_timestamp() - coalesce(s.xact_start, s.backend_start))::float8,
    count(DISTINCT waiting)
  FROM waits JOIN pg_stat_activity s USING (pid) WHERE s.wait_event_type IS DISTINCT FROM 'Lock'
  GROUP BY s.pid, s.usename, s.usesysid, s.xact_start, s.backend_start ORDER BY 4 DESC"""  # noqa: S608 - our own
"""It reads no table: one may be locked."""
_OLD = f"""SELECT s.pid, s.usename, TRUE,
    extract(epoch FROM clock_timestamp() - s.xact_start)::float8,
    (SELECT count(*) FROM pg_stat_activity other WHERE other.wait_event_type = 'Lock'
      AND s.pid = ANY (pg_blocking_pids(other.pid)))
  FROM pg_stat_activity s WHERE {_IS_WORKER}
    AND s.xact_start < clock_timestamp() - make_interval(secs => ?) ORDER BY 4 DESC"""  # noqa: S608 - our own
"""In other databases, too: there, they can keep the server from deleting what was announced."""


def blockers(connection: Connection) -> list[Blocker]:
    """Return the sessions for which others have to wait, the oldest transaction first."""
    found = [Blocker(*row) for row in connection.execute(_BLOCKERS)]
    return [one for one in found if one.open_s is None or one.open_s >= SHORT_S]


def old_sessions(connection: Connection, lease_s: float) -> list[Blocker]:
    """Return workers' sessions with a transaction older than `lease_s`, whether or not others wait.

    Two sessions could otherwise hide each other: one waits for the other, which begins anew.
    """
    return [Blocker(*row) for row in connection.execute(_OLD, (lease_s,))]


@contextmanager
def watched(address: str, lease_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Name sessions that block the journal, in a separate thread.

    A worker's whose transaction is older than a lease is ended: all its statements are short.
    """
    over = threading.Event()

    def watch() -> None:
        told = set[tuple[int, str]]()
        while not over.wait(lease_s / _LOOKS):
            with (
                suppress(DatabaseAway, psycopg.Error),
                idle_connection(address) as connection,
            ):
                for one in old_sessions(connection, lease_s):
                    is_ended, said = _ended(connection, one)
                    if said and (is_ended or one.session not in told):
                        say(said)
                    told.add(one.session)
                for one in blockers(connection):
                    if one.session not in told:
                        say(f"The journal is blocked: {one}.")
                    told.add(one.session)

    thread = threading.Thread(target=watch, name="blockers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _ended(connection: Connection, one: Blocker) -> tuple[bool, str]:
    """End a session; return whether that was allowed, and what to say: "" if it was over."""
    try:
        if connection.execute(_END, one.session).fetchone() is None:
            return True, ""
    except psycopg.errors.InsufficientPrivilege:
        return False, (
            f"A worker's transaction is too old: {one}. placet may not end that session. As an "
            f"administrator: SELECT pg_terminate_backend({one.pid});"
        )
    what = "a session that blocked the journal" if one.waiting else "a session"
    return True, f"Ended {what}: {one}. See: placet team remove {one.user}"


_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ? AND usename = ?"
