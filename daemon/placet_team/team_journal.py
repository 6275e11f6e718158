"""The tables by which a team's machines tell each other what to do, and the writes to them.

`team_work` has the pieces of work that workers may take, `team_members` the workers, `team_refs`
where missions' references are, `team_bodies` what a worker needs of the vault. A row that another
process waits for is announced to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from placet.journal.writes import Change

HOST = "placet_host"
"""The channel of NOTIFY for work that was taken or given back."""
TASK = "placet.work"
"""The name of the queue's one task."""

TABLES = (
    """CREATE TABLE IF NOT EXISTS team_work (
     trace_id text COLLATE "C" PRIMARY KEY, generation bigint NOT NULL, planning boolean NOT NULL,
     queue text NOT NULL, put_at text NOT NULL, worker text, owner text, token bigint,
     turn bigint NOT NULL DEFAULT 0, level bigint NOT NULL DEFAULT 0, item text NOT NULL DEFAULT '',
     told text NOT NULL DEFAULT '', kind text NOT NULL DEFAULT '',
     result text NOT NULL DEFAULT '')""",
    """CREATE TABLE IF NOT EXISTS team_members (
     name text COLLATE "C" PRIMARY KEY, labels text NOT NULL, level bigint NOT NULL,
     version text NOT NULL, slots bigint NOT NULL, owner text NOT NULL,
     draining boolean NOT NULL DEFAULT FALSE, beat_s double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS team_refs (
     trace_id text COLLATE "C", generation bigint, refs text NOT NULL,
     PRIMARY KEY (trace_id, generation))""",
    """CREATE TABLE IF NOT EXISTS team_bodies (
     name text COLLATE "C" PRIMARY KEY, body bytea NOT NULL, at_s double precision NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS team_day (
     one bigint PRIMARY KEY CHECK (one = 1), version bigint NOT NULL)""",
    "INSERT INTO team_day VALUES (1, 0) ON CONFLICT DO NOTHING",
    """CREATE TABLE IF NOT EXISTS team_held (
     key text COLLATE "C" PRIMARY KEY, tokens bigint NOT NULL, usd text)""",
)

_OF_WORK = "WHERE trace_id = :trace_id AND generation = :generation"


@dataclass(frozen=True, slots=True)
class PutWork(Change):
    """Offer a piece of work in the queue `queue`; the highest `priority` is taken first."""

    trace_id: str
    generation: int
    planning: bool
    queue: str
    priority: int
    SQL = (
        """INSERT INTO team_work (trace_id, generation, planning, queue, put_at)
        VALUES (:trace_id, :generation, :planning, :queue, :now)
        ON CONFLICT (trace_id) DO UPDATE SET generation = excluded.generation,
          planning = excluded.planning, queue = excluded.queue, put_at = excluded.put_at,
          worker = NULL, owner = NULL, token = NULL, item = '', told = '', kind = '',
          result = ''""",
        f"""SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(:queue, '{TASK}', :priority, NULL, NULL,
          jsonb_build_object('trace_id', CAST(:trace_id AS text), 'generation', :generation), NULL)
          ::procrastinate_job_to_defer_v1])""",
    )


@dataclass(frozen=True, slots=True)
class HandWork(Change):
    """Give a worker what it took, with the token of its lease; Conflict if it is gone."""

    trace_id: str
    generation: int
    worker: str
    token: int
    item: str
    SQL = (
        f"UPDATE team_work SET token = :token, turn = 0, item = :item {_OF_WORK} "  # noqa: S608 - our own
        "AND worker = :worker AND token IS NULL",
    )
    ELSE = "{trace_id} is not with {worker} any more"


@dataclass(frozen=True, slots=True)
class TellWorker(Change):
    """Tell the worker that has a piece of work to end it (`told` is a Stop as JSON)."""

    trace_id: str
    token: int
    told: str
    SQL = ("UPDATE team_work SET told = :told WHERE trace_id = :trace_id AND token = :token",)


@dataclass(frozen=True, slots=True)
class PutResult(Change):
    """Give a piece of work back with what came of it; only `worker_append` writes it."""

    kind: str
    result: str


@dataclass(frozen=True, slots=True)
class DropWork(Change):
    """Take a piece of work out of table, queue and day, and what workers had that are gone."""

    trace_id: str
    generation: int
    SQL = (
        f"DELETE FROM team_work {_OF_WORK}",  # noqa: S608 - our own
        "DELETE FROM team_held WHERE split_part(key, ':', 1) = :trace_id",
        f"""DELETE FROM procrastinate_jobs WHERE status = 'todo' AND task_name = '{TASK}'
          AND args = jsonb_build_object('trace_id', CAST(:trace_id AS text),
          'generation', :generation)""",  # noqa: S608 - our own
        """DELETE FROM procrastinate_jobs j WHERE status = 'doing' AND NOT EXISTS
          (SELECT 1 FROM procrastinate_workers w WHERE w.id = j.worker_id
          AND w.last_heartbeat > now() - interval '5 minutes')""",
    )


@dataclass(frozen=True, slots=True)
class Drain(Change):
    """Tell a member to take no more work; Conflict where there is none of this name."""

    name: str
    draining: bool
    SQL = ("UPDATE team_members SET draining = :draining WHERE name = :name",)
    ELSE = "there is no worker named {name}"


@dataclass(frozen=True, slots=True)
class PutRefs(Change):
    """Say where a mission's references are now (JSON); only `worker_append` writes it."""

    refs: str


@dataclass(frozen=True, slots=True)
class DropRefs(Change):
    """Forget where the references of a mission, and of earlier ones of its case, are."""

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
    """Say which bodies are needed; those that nobody needed for a week go."""

    names: list[str]
    SQL = (
        "UPDATE team_bodies SET at_s = :now_s WHERE name = ANY(:names) AND at_s < :now_s - 86400",
        "DELETE FROM team_bodies WHERE at_s < :now_s - 604800",
    )
