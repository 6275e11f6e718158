"""Write and read the tables through which a daemon and its workers talk.

`team_work` has the pieces of work that workers may take, `team_members` the workers, `team_refs`
where missions' references are, `team_bodies` what a worker needs of the vault. A row that another
process waits for is announced to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from placet import __version__
from placet.agent.record import BRANCH
from placet.journal.database import VAULT, Connection
from placet.journal.reader import Reader
from placet.journal.writes import Change

HOST = "placet_host"
"""The channel of NOTIFY for work that a worker took or returned."""
WORK = "placet_work"
"""The channel of NOTIFY for workers: with a name, what that worker has changed; else new work."""

TABLES = (
    """CREATE TABLE IF NOT EXISTS team_work (
     trace_id text COLLATE "C" PRIMARY KEY, generation bigint NOT NULL, planning boolean NOT NULL,
     queue text NOT NULL, put_at text NOT NULL, worker text, owner text, token bigint,
     turn bigint NOT NULL DEFAULT 0, level bigint NOT NULL DEFAULT 0, item text NOT NULL DEFAULT '',
     stop text NOT NULL DEFAULT '', kind text NOT NULL DEFAULT '',
     result text NOT NULL DEFAULT '', priority bigint NOT NULL DEFAULT 0,
     most_tokens bigint, most_usd numeric)""",
    # Before the first release Procrastinate had the queue, and workers wrote to its tables.
    """DO $$ DECLARE old text; BEGIN
     FOR old IN SELECT format('TABLE IF EXISTS %I', relname) FROM pg_class
         WHERE relnamespace = 'placet'::regnamespace AND relkind = 'r'
           AND starts_with(relname, 'procrastinate_')
       UNION ALL SELECT format('FUNCTION IF EXISTS %s', oid::regprocedure) FROM pg_proc
         WHERE pronamespace = 'placet'::regnamespace AND (starts_with(proname, 'procrastinate_')
           OR oid = to_regprocedure('placet.worker_claim(text, bigint, text, bigint)')
           OR oid = to_regprocedure('placet.worker_hold(text, bigint, text, bigint)'))
       UNION ALL SELECT format('TYPE IF EXISTS %I', typname) FROM pg_type
         WHERE typnamespace = 'placet'::regnamespace AND starts_with(typname, 'procrastinate_')
           AND (typtype = 'e' OR typrelid IN (SELECT oid FROM pg_class WHERE relkind = 'c'))
       ORDER BY 1
     LOOP EXECUTE format('DROP %s CASCADE', old); END LOOP;
     IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'team_work'::regclass
         AND attname = 'priority') THEN
       ALTER TABLE team_work ADD COLUMN priority bigint NOT NULL DEFAULT 0,
         ADD COLUMN most_tokens bigint, ADD COLUMN most_usd numeric;
       ALTER TABLE IF EXISTS team_day DROP COLUMN IF EXISTS version;
     END IF; END $$""",
    """CREATE INDEX IF NOT EXISTS team_work_waiting ON team_work (priority DESC, put_at)
     WHERE worker IS NULL""",
    """CREATE INDEX IF NOT EXISTS team_work_taken ON team_work (worker)
     WHERE worker IS NOT NULL""",
    """CREATE TABLE IF NOT EXISTS team_members (
     name text COLLATE "C" PRIMARY KEY, labels text NOT NULL, level bigint NOT NULL,
     version text NOT NULL, slots bigint NOT NULL, owner text NOT NULL,
     draining boolean NOT NULL DEFAULT FALSE, beat_s double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS team_refs (
     trace_id text COLLATE "C", generation bigint, refs text NOT NULL,
     PRIMARY KEY (trace_id, generation))""",
    """CREATE TABLE IF NOT EXISTS team_bodies (
     name text COLLATE "C" PRIMARY KEY, body bytea NOT NULL, at_s double precision NOT NULL)""",
    # its row orders reservations
    "CREATE TABLE IF NOT EXISTS team_day (one bigint PRIMARY KEY CHECK (one = 1))",
    "INSERT INTO team_day VALUES (1) ON CONFLICT DO NOTHING",
    """CREATE TABLE IF NOT EXISTS team_held (
     key text COLLATE "C" PRIMARY KEY, tokens bigint NOT NULL, usd text)""",
    # what workers brought of a case's generation, under all its leases
    """CREATE TABLE IF NOT EXISTS team_used (
     trace_id text COLLATE "C", generation bigint, bytes bigint NOT NULL, tokens numeric NOT NULL,
     usd numeric NOT NULL, PRIMARY KEY (trace_id, generation))""",
)

METRICS = """CREATE OR REPLACE VIEW team_metrics AS SELECT
  (SELECT count(*) FROM team_work WHERE worker IS NULL) AS waiting,
  (SELECT count(*) FROM team_work WHERE worker IS NOT NULL AND kind = '') AS running,
  (SELECT coalesce(extract(epoch FROM now() - min(put_at)::timestamptz), 0)::bigint
    FROM team_work WHERE worker IS NULL) AS oldest_s,
  (SELECT count(*) FROM team_members, (SELECT coalesce(max(expires_s - heartbeat_s), 30) AS good_s
    FROM leases WHERE trace_id = 'vault') AS l
    WHERE beat_s > extract(epoch FROM now()) - good_s) AS workers,
  (SELECT count(*) FROM activity WHERE action_type = 'execution.completed'
    AND timestamp > to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS')
  ) AS completed_day,
  (SELECT count(*) FROM activity WHERE action_type = 'execution.failed'
    AND timestamp > to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYY-MM-DD"T"HH24:MI:SS')
  ) AS failed_day"""
"""What a person who runs a team watches, in one row."""

_OF_WORK = "WHERE trace_id = :trace_id AND generation = :generation"
_TELL = "RETURNING CASE WHEN worker IS NOT NULL THEN pg_notify('placet_work', worker) END"


@dataclass(frozen=True, slots=True)
class PutWork(Change):
    """Queue a piece of work in `queue`; workers take the highest `priority` first."""

    trace_id: str
    generation: int
    planning: bool
    queue: str
    priority: int
    SQL = (
        """INSERT INTO team_work (trace_id, generation, planning, queue, priority, put_at)
        VALUES (:trace_id, :generation, :planning, :queue, :priority, :now)
        ON CONFLICT (trace_id) DO UPDATE SET generation = excluded.generation,
          planning = excluded.planning, queue = excluded.queue, priority = excluded.priority,
          put_at = excluded.put_at, worker = NULL, owner = NULL, token = NULL, item = '',
          stop = '', kind = '', result = ''
        RETURNING pg_notify('placet_work', '')""",
        "DELETE FROM team_used WHERE trace_id = :trace_id AND generation < :generation",
    )


@dataclass(frozen=True, slots=True)
class HandWork(Change):
    """Send a worker the work that it took, with its lease's token; Conflict if it lost it.

    `most_tokens` and `most_usd` are what the model's calls may use; None for no limit.
    """

    trace_id: str
    generation: int
    worker: str
    token: int
    item: str
    most_tokens: int | None
    most_usd: str | None
    SQL = (
        "UPDATE team_work SET token = :token, turn = 0, item = :item, "  # noqa: S608 - our own
        f"most_tokens = :most_tokens, most_usd = CAST(:most_usd AS numeric) {_OF_WORK} "
        f"AND worker = :worker AND token IS NULL {_TELL}",
    )
    ELSE = "{worker} no longer has {trace_id}"


@dataclass(frozen=True, slots=True)
class TellWorker(Change):
    """Tell the worker that has a piece of work to end it (`stop` is the reason)."""

    trace_id: str
    token: int
    stop: str
    SQL = (
        f"UPDATE team_work SET stop = :stop WHERE trace_id = :trace_id AND token = :token {_TELL}",  # noqa: S608 - our own
    )


@dataclass(frozen=True, slots=True)
class PutResult(Change):
    """Return a piece of work with its result; only `worker_append` writes it."""

    kind: str
    result: str


@dataclass(frozen=True, slots=True)
class DropWork(Change):
    """Delete a piece of work, and its reservations in the budget."""

    trace_id: str
    generation: int
    SQL = (
        f"DELETE FROM team_work {_OF_WORK} {_TELL}",  # noqa: S608 - our own
        "DELETE FROM team_held WHERE split_part(key, ':', 1) = :trace_id",
    )


@dataclass(frozen=True, slots=True)
class Drain(Change):
    """Tell a worker to take no more work; Conflict without one of this name."""

    name: str
    draining: bool
    SQL = (
        "UPDATE team_members SET draining = :draining WHERE name = :name "
        "RETURNING pg_notify('placet_work', name)",
    )
    ELSE = "there is no worker named {name}"


@dataclass(frozen=True, slots=True)
class PutRefs(Change):
    """Say where a mission's references are now (JSON); only `worker_append` writes it."""

    refs: str


@dataclass(frozen=True, slots=True)
class DropRefs(Change):
    """Forget the references of a mission, and of earlier ones of its case."""

    trace_id: str
    generation: int
    SQL = ("DELETE FROM team_refs WHERE trace_id = :trace_id AND generation <= :generation",)


@dataclass(frozen=True, slots=True)
class PutBody(Change):
    """Keep a file of the vault for workers, by the digest of its text."""

    name: str
    body: bytes
    SQL = (
        "INSERT INTO team_bodies VALUES (:name, :body, :now_s) "
        "ON CONFLICT (name) DO UPDATE SET at_s = excluded.at_s",
    )


@dataclass(frozen=True, slots=True)
class TouchBodies(Change):
    """Mark the needed bodies, and delete those that were not needed for a week."""

    names: list[str]
    SQL = (
        "UPDATE team_bodies SET at_s = :now_s WHERE name = ANY(:names) AND at_s < :now_s - 86400",
        "DELETE FROM team_bodies WHERE at_s < :now_s - 604800",
    )


ANY = "any"
"""The label of work that any worker may take."""
WORKER = "placet_worker"
"""The role that each worker's own role is a member of."""
LEASE_S = 30.0
"""Seconds for which a sign of life is good where no daemon has said another number."""


@dataclass(frozen=True, slots=True)
class WorkRow:
    """A row of team_work."""

    trace_id: str
    generation: int
    planning: bool
    queue: str
    put_at: str
    worker: str
    """Who took it; empty before."""
    owner: str
    level: int
    token: int
    """The worker's lease, or 0 before the grant."""
    stop: str
    kind: str
    """Kind of its result; empty while it runs."""
    expired: bool
    """Whether its lease ran out."""
    since: str
    """When its lease began, or empty."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A worker's process; `quiet_s` is the time since its last sign of life."""

    name: str
    labels: str
    level: int
    version: str
    slots: int
    owner: str
    draining: bool
    quiet_s: float

    def lives(self, lease_s: float) -> bool:
        """Return whether its last sign of life is still good."""
        return self.quiet_s < lease_s

    def has_version(self, version: str) -> bool:
        """Return whether it is of this version (`major`), so that it may take its work."""
        return self.version.startswith(f"{version}.")


def major() -> str:
    """Return the part of the version that daemon and workers must share."""
    return ".".join(__version__.split(".")[: 1 if __version__[0] != "0" else 2])


def queue_of(label: str, level: int) -> str:
    """Return the queue of work with a label that needs at least this sandbox."""
    return f"{major()}/{label or ANY}/{level}"


def needs(queue: str) -> tuple[str, str, int]:
    """Return the version, the label and the sandbox that a queue's work needs."""
    version, _, rest = queue.partition("/")
    label, _, level = rest.rpartition("/")
    return version, label, int(level)


_WORK = """SELECT w.trace_id, w.generation, planning, queue, put_at,
  coalesce(worker, '') AS worker, coalesce(owner, '') AS owner, level,
  coalesce(w.token, 0) AS token, stop, kind,
  w.token IS NOT NULL AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.trace_id = w.trace_id
    AND l.token = w.token AND held
    AND l.expires_s > extract(epoch FROM clock_timestamp())) AS expired,
  coalesce((SELECT acquired_at FROM leases l WHERE l.trace_id = w.trace_id
    AND l.token = w.token), '') AS since
  FROM team_work w"""
_MEMBERS = """SELECT name, labels, level, version, slots, owner, draining,
  extract(epoch FROM clock_timestamp())::float8 - beat_s AS quiet_s FROM team_members"""
_TEAM = f"""SELECT
  (SELECT coalesce(json_agg(w), '[]') FROM ({_WORK} ORDER BY put_at, w.trace_id) AS w),
  (SELECT coalesce(json_agg(m), '[]') FROM ({_MEMBERS} ORDER BY name) AS m)"""  # noqa: S608 - our own


def team_rows(connection: Connection) -> tuple[list[WorkRow], list[MemberRow]]:
    """Return all queued and running work, the oldest first, and the processes by their names."""
    work, members = connection.execute(_TEAM).fetchone()
    return [WorkRow(**row) for row in work], [MemberRow(**row) for row in members]


def work_rows(connection: Connection) -> list[WorkRow]:
    """Return all queued and running work, the oldest first."""
    found = connection.execute(f"{_WORK} ORDER BY put_at, w.trace_id")
    return [WorkRow(*row) for row in found]


def work_row(connection: Connection, trace_id: str) -> WorkRow | None:
    """Return a case's piece of work, None for none."""
    row = connection.execute(f"{_WORK} WHERE w.trace_id = ?", (trace_id,)).fetchone()
    return None if row is None else WorkRow(*row)


def own_work(connection: Connection, owner: str) -> dict[str, tuple[int, str]]:
    """Return the work of a worker's process: token (0 for none yet) and `stop`, by trace_id."""
    found = connection.execute(
        "SELECT trace_id, coalesce(token, 0), stop FROM team_work WHERE owner = ?", (owner,)
    )
    return {str(trace_id): (int(token), str(stop)) for trace_id, token, stop in found}


def has_team_tables(connection: Connection) -> bool:
    """Return whether the tables are there; they are away where the journal was moved."""
    (found,) = connection.execute(
        "SELECT to_regclass('placet.team_workers') IS NOT NULL"
    ).fetchone()
    return bool(found)


def server_now_s(connection: Connection) -> float:
    """Return the database's time in seconds. Leases and signs of life use it."""
    (now_s,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    return float(now_s)


def quiet_limit_s(reader: Reader) -> float:
    """Return the daemon's `lease_s`: a worker without a sign of life for so long is gone."""
    lease = reader.lease(VAULT)
    return LEASE_S if lease is None else lease.ttl_s


def text_of(connection: Connection, name: str, trace_id: str, token: int) -> str | None:
    """Return the `item` that a worker was handed, or its `result`; None if it is another's now."""
    row = connection.execute(
        f"SELECT {name} FROM team_work WHERE trace_id = ? AND token = ?",  # noqa: S608 - our own
        (trace_id, token),
    ).fetchone()
    return None if row is None else str(row[0])


def labels_of(connection: Connection, name: str) -> tuple[str, ...]:
    """Return the labels of the work that a worker may take, by `team init`; () for none."""
    found = connection.execute("SELECT labels FROM team_workers WHERE name = ?", (name,)).fetchone()
    return () if found is None else tuple(str(found[0]).split(","))


def member_rows(connection: Connection, name: str = "") -> list[MemberRow]:
    """Return the team's processes, in the order of their names, or the one of this name."""
    sql = f"{_MEMBERS} WHERE :name IN ('', name) ORDER BY name"
    return [MemberRow(*row) for row in connection.execute(sql, {"name": name})]


def refs_of(connection: Connection, trace_id: str, generation: int) -> Mapping[str, str] | None:
    """Return where workers left a mission's references; None if no worker began it."""
    row = connection.execute(
        "SELECT refs FROM team_refs WHERE trace_id = ? AND generation = ?", (trace_id, generation)
    ).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def began_here(connection: Connection, trace_id: str, generation: int) -> bool:
    """Return whether the daemon began a mission itself, so that no worker has its commits."""
    begun = connection.execute(
        "SELECT 1 FROM records WHERE trace_id = ? AND attempt = ? AND key = ? AND kind = 'outcome'",
        (trace_id, generation, BRANCH.key),
    ).fetchone()
    return begun is not None and refs_of(connection, trace_id, generation) is None


def known_bodies(connection: Connection, names: list[str]) -> set[str]:
    """Return the digests whose texts are in the database."""
    rows = connection.execute("SELECT name FROM team_bodies WHERE name = ANY(?)", (names,))
    return {str(name) for (name,) in rows}


def bodies_of(connection: Connection, names: list[str]) -> dict[str, bytes]:
    """Return the texts with these digests that are in the database."""
    rows = connection.execute("SELECT name, body FROM team_bodies WHERE name = ANY(?)", (names,))
    return {str(name): bytes(body) for name, body in rows}
