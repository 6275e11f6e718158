"""Checks of `placet doctor` on a team: its database, the clocks, the queue, the workers."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING

from placet.cli.doctor import Line, finding
from placet.cli.site import Site
from placet.errors import UserError, age, counted
from placet.host.clock import Clock, wall
from placet.host.config import Config, work_remote
from placet.journal.database import DatabaseAway, address_of
from placet.journal.schema import latest
from placet.plugins import COMMANDS, plugin
from placet_team.git_fetching import said_of, trouble_with
from placet_team.team_rows import has_queue, member_rows, server_now_s, work_rows

if TYPE_CHECKING:
    from placet_team.postgres import PostgresConnection

TRIPS = 9
FAR_MS = 20.0
"""Milliseconds of a round trip above which the database is far away: each commit takes several."""
SKEW_S = 5.0
"""Seconds by which clocks may differ; more is seen in the journal's times."""


def team_lines(site: Site, config: Config) -> Iterator[Line]:
    """Give findings on a team's database, and on its workers where these do the work."""
    if config.team.workers:
        yield from _remotes(site, config)
    try:
        address = config.team.database or address_of(site.state.journal)
        if not address:
            return
        plugin(COMMANDS, "team")  # which needs the extra
    except UserError as error:
        yield finding("database", "bad", error.what, error.hint)
        return
    import psycopg

    from placet_team.postgres import PostgresConnection, shown

    try:
        with closing(PostgresConnection(address)) as connection:
            yield from _server(connection, shown(address))
            ready = yield from _schema(connection)
            if ready and config.team.workers:
                yield from _queue(connection)
                yield from _workers(connection, config.team.lease_s)
                yield from _rights(connection)
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        helps = "See what its user may do: the guide, team.md, has the roles that are needed."
        yield finding("database", "bad", f"{shown(address)} cannot be used: {said}", helps)
    except DatabaseAway as error:
        yield finding(
            "database",
            "bad",
            f"{shown(address)} cannot be reached: {error}",
            "Look whether it runs, and whether this machine may reach it (pg_hba.conf, a "
            "firewall). While it is away all work waits.",
        )


def _remotes(site: Site, config: Config) -> Iterator[Line]:
    answers = dict[str, str]()
    for name in ("", *config.portals):
        line, url = f"work remote of {name or 'the vault'}", work_remote(site.vault, config, name)
        key = f"portals.{name}.work_remote" if name in config.portals else "team.work_remote"
        helps = f"placet config set {quote(key)} ADDRESS"
        if not url:
            yield finding(line, "bad", "none is set, so its work waits for one", helps)
            continue
        if url not in answers:
            answers[url] = trouble_with(url)
        if why := answers[url]:
            found = f"{said_of(url)} cannot be reached: {why}"
            yield finding(line, "bad", found, f"Try: git ls-remote {quote(said_of(url))}")
            continue
        own = "" if name not in config.portals or not config.portals[name].work_remote else name
        how = f"[remotes] {json.dumps(own)} = " if own else "--remote "
        yield finding(line, "good", f"it answers; each worker needs {how}{json.dumps(url)}")


def _server(connection: PostgresConnection, name: str) -> Iterator[Line]:
    monotonic, trips, ahead = Clock().monotonic, list[float](), list[float]()
    for _ in range(TRIPS):
        before, began_s = wall().timestamp(), monotonic()
        server_s = server_now_s(connection)
        took_s = monotonic() - began_s
        trips.append(took_s * 1000)
        ahead.append(server_s - (before + took_s / 2))
    (version,) = connection.execute("SHOW server_version").fetchone()
    took_ms, differ_s = median(trips), median(ahead)
    found = f"{name}: PostgreSQL {version.split()[0]}, a round trip takes {took_ms:.1f} ms"
    state = "warn" if took_ms > FAR_MS else "good"
    helps = "It is far away: a commit takes several round trips. Bring database, daemon and "
    yield finding("database", state, found, f"{helps}workers into one network.")
    said = f"{abs(differ_s):.1f} s {'behind' if differ_s > 0 else 'ahead of'} the database's"
    found = f"this machine's is {said}" if abs(differ_s) >= 0.05 else "the same as the database's"
    state = "warn" if abs(differ_s) > SKEW_S else "good"
    helps = "Leases do not mind, but times in the journal are wrong. Set it by NTP: timedatectl"
    yield finding("clock", state, found, helps)


def _schema(connection: PostgresConnection) -> Generator[Line, None, bool]:
    """Give the finding on the tables; return whether they are there."""
    from placet_team.postgres_schema import number_of

    number = number_of(connection)
    if number == latest():
        yield finding("tables", "good", f"schema {number}")
    elif number > latest():
        found = f"schema {number}, of a newer placet; this one knows {latest()}"
        yield finding("tables", "bad", found, "Update placet on this machine.")
    else:
        found = f"schema {number}, this placet's is {latest()}" if number else "there are none yet"
        yield finding("tables", "warn", found, "The daemon makes them: placet run")
    return number >= latest()


def _queue(connection: PostgresConnection) -> Iterator[Line]:
    if not has_queue(connection):
        found = "there is none, though [team] workers is set"
        yield finding("queue", "warn", found, "The daemon makes it when it starts: placet run")
        return
    waiting = sum(not row.worker for row in work_rows(connection))
    yield finding("queue", "good", f"{counted(waiting, 'piece')} of work in it")


_MAY_WRITE = """SELECT w.name, c.relname FROM team_workers w
  JOIN pg_roles ON rolname = w.name COLLATE "C" JOIN pg_class c ON relkind = 'r'
  AND relnamespace = 'placet'::regnamespace AND NOT starts_with(relname, 'procrastinate_')
  WHERE has_table_privilege(w.name, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') ORDER BY 1, 2"""


def _rights(connection: PostgresConnection) -> Iterator[Line]:
    wrong = connection.execute(_MAY_WRITE).fetchall()
    if not wrong:
        yield finding("rights", "good", "each worker writes what it was handed, and nothing else")
    for name, table in wrong[:1]:
        found = f"the worker {name} may write the table {table}, so its work cannot be trusted"
        helps = (
            f'As the owner: REVOKE ALL ON ALL TABLES IN SCHEMA placet FROM "{name}". A worker\'s '
            "role owns nothing, and is no superuser."
        )
        yield finding("rights", "bad", found, helps)


def _workers(connection: PostgresConnection, lease_s: float) -> Iterator[Line]:
    from placet_team.engine import major

    found = member_rows(connection)
    living = [one for one in found if one.quiet_s < lease_s]
    able = [one for one in living if one.version.startswith(f"{major()}.")]
    others = [f"{one.name} ({one.version})" for one in living if one not in able]
    if not able:
        last = f"; the last was heard {age(min(one.quiet_s for one in found))} ago" if found else ""
        helps = "Work waits. Let one in: placet team init --worker NAME"
        yield finding("workers", "warn", f"none is there{'' if living else last}", helps)
    else:
        yield finding("workers", "good", f"{counted(len(able), 'worker')} there")
    if others:
        helps = f"They take nothing from a daemon of {major()}: update placet there."
        yield finding("workers", "warn", f"of another version: {', '.join(others)}", helps)
