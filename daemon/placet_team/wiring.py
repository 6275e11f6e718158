"""Connect a daemon to its team: choose who does the work, and follow what workers write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from placet.activity import CommittedRow
from placet.agent.planner import draft
from placet.errors import UserError
from placet.host.config import Config
from placet.journal.database import address_of
from placet.journal.writer import Journal
from placet.journal.writes import JournalPaused, LeaseLost
from placet.loop.threads import Workers
from placet.loop.work import Draft, RunMission

HEAR_S = 10.0
"""Seconds after which it looks for rows though none were announced."""
PAUSE_S = 0.1
"""Seconds between two looks at least."""
MOST_ROWS = 1_000


def choose_workers(
    settings: Callable[[], Config],
    journal: Journal,
    ring: Callable[[], None],
    say: Callable[[str], None],
    stack: ExitStack,
) -> tuple[Draft, RunMission, Workers | None]:
    """Return who plans and runs missions: this process, or the workers of a team.

    The journal is in a database, or workers are wanted. `settings` returns the current ones,
    `ring` ends the loop's wait. Raises UserError for workers without a database.
    """
    config = settings()
    address = address_of(journal.path)
    if not config.team.workers:
        # Only here, as below: workers may have had work until now.
        from placet_team.bring_home import run_mission_here

        return draft, run_mission_here, None
    if not address:
        raise UserError(
            "[team] workers is set in System/placet.toml, but the journal is in a file, which no "
            "other machine can reach.",
            "Put it into PostgreSQL: placet team init ADDRESS. Or: placet config set team.workers "
            "false",
        )
    # Only here: a daemon that does its work itself needs nothing of it.
    from placet_team.cache import TeamCache
    from placet_team.handover import Handover
    from placet_team.work_dispatch import Team

    cache = TeamCache(journal, address, ring)
    stack.enter_context(cache.listening())
    team = Team(journal, cache, config.team.lease_s, lambda: settings().portals)
    handover = Handover(journal, cache, config.team.lease_s)
    say("The work is done by workers: placet team workers.")
    return handover.draft, handover.run_mission, team


@contextmanager
def all_rows(journal: Journal, on_rows: Callable[[Sequence[CommittedRow]], None]) -> Iterator[None]:
    """Call `on_rows` with the rows that anybody writes from now on, in a separate thread."""
    import psycopg

    from placet_team.postgres import ROWS, announcements

    with journal.read() as reader:
        last = reader.last()[0]
    stop = threading.Event()

    def hear() -> None:
        nonlocal last
        with suppress(JournalPaused, psycopg.Error):  # the loop meets what the database refuses
            for _ in announcements(address_of(journal.path), ROWS, HEAR_S, stop):
                with journal.read() as reader:
                    rows = reader.activity(after_id=last, limit=MOST_ROWS)
                if rows:
                    last = rows[-1].id
                    on_rows(rows)
                stop.wait(PAUSE_S)

    thread = threading.Thread(target=hear, name="hear", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        with suppress(JournalPaused, LeaseLost):
            journal.commit([])  # which is announced, and wakes the thread
        thread.join()
