"""Queue work with Procrastinate, in the journal's database.

It orders work by priority and age, gives each piece to one worker, and wakes workers up. It does
not decide who may write: leases do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import procrastinate
from procrastinate.schema import SchemaManager
from psycopg import OperationalError
from psycopg.errors import InsufficientPrivilege

from placet.journal.database import DatabaseAway
from placet_team.postgres import OPTIONS, PostgresConnection, password_of
from placet_team.postgres_reader import READER
from placet_team.tables import TASK, WORKER, has_queue

_AGAIN_S = 1.0
_SPARE_THREADS = 4
"""Threads besides those of the slots, in which the event loop looks up addresses."""
_POLL_S = 10.0
"""How often a worker looks for work where a notification was lost."""


_RIGHTS = f"""DO $$ DECLARE part text; BEGIN
 FOR part IN SELECT tablename FROM pg_tables WHERE schemaname = 'placet'
   AND starts_with(tablename, 'procrastinate_') LOOP
   IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{READER}') THEN
     EXECUTE format('GRANT SELECT ON %I TO {READER}', part);
   END IF;
   IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{WORKER}') THEN
     EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO {WORKER}', part);
   END IF;
 END LOOP;
 FOR part IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'placet'
   AND starts_with(sequencename, 'procrastinate_') LOOP
   IF EXISTS (SELECT FROM pg_roles WHERE rolname = '{WORKER}') THEN
     EXECUTE format('GRANT USAGE ON SEQUENCE %I TO {WORKER}', part);
   END IF;
 END LOOP; END $$"""  # noqa: S608 - names of roles of our own
"""Jobs are hints: who changes one delays work, and starts none."""


def make_queue(address: str) -> None:
    """Make the queue's tables next to the journal's, if they are missing."""
    with closing(PostgresConnection(address)) as connection:
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE schema_number IN EXCLUSIVE MODE")
        if not has_queue(connection):
            connection.at_once(SchemaManager.get_schema())
        connection.at_once(_RIGHTS)
        connection.execute("COMMIT")


def work(
    address: str,
    queues: Sequence[str],
    slots: int,
    take: Callable[[str, int], None],
    ending: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Take work from the queues, up to `slots` pieces at once, until `ending`. Then finish.

    `take` is called in a separate thread with a case's trace_id and generation. While the
    database is away this says so, and waits. Raises psycopg.Error for trouble that does not pass.
    """
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # `say` tells it once
    asyncio.run(_work(address, queues, slots, take, ending, say))


async def _work(
    address: str,
    queues: Sequence[str],
    slots: int,
    take: Callable[[str, int], None],
    ending: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    reported = [False]
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unless_away)
    # Procrastinate runs work in the loop's own threads: by default 4 and one for each core.
    loop.set_default_executor(ThreadPoolExecutor(slots + _SPARE_THREADS))

    async def slot() -> None:
        while not ending():
            connector = procrastinate.PsycopgConnector(
                conninfo=address,
                kwargs={"options": OPTIONS, **password_of(address)},
                min_size=1,
                max_size=1,
                timeout=5.0,
            )
            app = procrastinate.App(connector=connector)
            app.task(name=TASK)(take)
            try:
                async with app.open_async():
                    if reported[0]:
                        reported[0] = False
                        say("The journal can be reached again. This worker takes work.")
                    await _until(ending, app, queues)
            except (
                procrastinate.exceptions.ConnectorException,
                OperationalError,
                DatabaseAway,
            ) as error:
                if isinstance(error.__cause__, InsufficientPrivilege):
                    raise error.__cause__ from error
                if not reported[0]:
                    reported[0] = True
                    say("The journal cannot be reached. This worker takes work when it can.")
            if not ending():
                await asyncio.sleep(_AGAIN_S)

    await asyncio.gather(*(slot() for _ in range(slots)))


def _unless_away(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report errors of background tasks, except that a job could not be marked as done."""
    if not isinstance(context.get("exception"), procrastinate.exceptions.ConnectorException):
        loop.default_exception_handler(context)


async def _until(ending: Callable[[], bool], app: procrastinate.App, queues: Sequence[str]) -> None:
    """Let one slot work until `ending`, or until it fails."""
    running = asyncio.create_task(
        app.run_worker_async(
            queues=queues,
            concurrency=1,
            fetch_job_polling_interval=_POLL_S,
            delete_jobs="always",
            install_signal_handlers=False,
        )
    )
    while not running.done() and not ending():
        await asyncio.wait([running], timeout=0.1)
    if not running.done():
        running.cancel()
    with suppress(asyncio.CancelledError):
        await running
