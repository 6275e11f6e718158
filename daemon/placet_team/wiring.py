"""Connect a daemon to its team: choose who does the work, and follow what workers write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from weakref import WeakKeyDictionary

from placet.activity import CommittedRow
from placet.agent.planner import draft
from placet.errors import BUGS, UserError
from placet.host.clock import boottime_s
from placet.host.config import Config
from placet.journal.database import address_of
from placet.journal.writer import Journal
from placet.journal.writes import JournalPaused, LeaseLost
from placet.loop.threads import Workers
from placet.loop.work import Draft, RunMission

PAUSE_S = 0.02
"""Seconds between two looks at least."""
ROWS_S = 0.5
"""Seconds between two looks for rows at least, which are told for people."""
MOST_ROWS = 1_000
_LOOKS: WeakKeyDictionary[Journal, Callable[[], None]] = WeakKeyDictionary()
"""What looks at the team's tables when something is announced, by the daemon's journal."""


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
    from placet_team.blockers import watched
    from placet_team.cache import TeamCache
    from placet_team.handover import Handover
    from placet_team.work_dispatch import Team

    stack.enter_context(watched(address, config.team.lease_s, say))
    cache = TeamCache(journal, ring)
    _LOOKS[journal] = cache.look
    stack.callback(cache.close)
    team = Team(journal, cache, config.team.lease_s, lambda: settings().portals)
    handover = Handover(journal, cache, config.team.lease_s)
    say("The work is done by workers: placet team workers.")
    return handover.draft, handover.run_mission, team


@contextmanager
def all_rows(journal: Journal, on_rows: Callable[[Sequence[CommittedRow]], None]) -> Iterator[None]:
    """Call `on_rows` with the rows that anybody writes from now on, in a separate thread."""
    import psycopg

    from placet_team.cache import LOOK_S
    from placet_team.postgres import ROWS, announcements
    from placet_team.tables import HOST

    with journal.ask() as reader:
        last = reader.last()[0]
    stop = threading.Event()

    def tell() -> None:
        nonlocal last
        with journal.ask() as reader:
            rows = reader.activity(after_id=last, limit=MOST_ROWS)
        for row in rows:
            last = row.id
            with suppress(*BUGS):  # a row of a worker's must not end the thread
                on_rows([row])

    def hear() -> None:
        told_s, is_due = float("-inf"), False
        address = address_of(journal.path)
        with suppress(JournalPaused, psycopg.Error):  # the loop meets what the database refuses
            for channels in announcements(address, [ROWS, HOST], LOOK_S, stop):
                if HOST in channels and not stop.is_set():
                    _LOOKS.get(journal, lambda: None)()
                is_due = is_due or ROWS in channels
                if is_due and boottime_s() - told_s >= ROWS_S:
                    told_s, is_due = boottime_s(), False
                    tell()
                stop.wait(PAUSE_S)
            tell()

    thread = threading.Thread(target=hear, name="hear", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        with suppress(JournalPaused, LeaseLost):
            journal.commit([])  # which is announced, and wakes the thread
        thread.join()
