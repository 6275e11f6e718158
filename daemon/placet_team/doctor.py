"""Check a team for `placet doctor`: its database, clock, tables, queue, rights and workers."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from shlex import quote
from typing import TYPE_CHECKING

from placet.client.findings import Finding, Verdict, finding
from placet.client.site import Site
from placet.errors import UserError
from placet.host.clock import Clock, wall
from placet.host.config import Config
from placet.host.plugins import COMMANDS, plugin
from placet.journal.database import DatabaseAway, address_of
from placet.journal.schema import latest
from placet.wording import age, counted
from placet_team.git_fetching import redact_line, trouble_with, work_remote
from placet_team.tables import major, member_rows, server_now_s, work_rows

if TYPE_CHECKING:
    from placet_team.postgres import PostgresConnection

TRIPS = 5
FAR_MS = 20.0
"""Milliseconds of a round trip above which the database is far away: each commit takes several."""
_PATIENCE = " -c lock_timeout=2s -c statement_timeout=5s"
SKEW_S = 5.0
"""Seconds by which clocks may differ; more is seen in the journal's times."""


def team_lines(site: Site, config: Config) -> Iterator[Finding]:
    """Give findings on a team's database, and on its workers if there are any."""
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

    from placet_team.postgres import PostgresConnection, error_line, shown

    try:
        with closing(PostgresConnection(address, _PATIENCE)) as connection:
            yield from _server(connection, shown(address))
            yield from _blockers(connection)
            ready = yield from _schema(connection)
            if ready and config.team.workers:
                yield from _queue(connection)
                yield from _workers(connection, config.team.lease_s)
                yield from _rights(connection)
    except psycopg.Error as error:
        helps = "Its user lacks a right: see “Roles” in the guide's page about PostgreSQL."
        found = f"{shown(address)} cannot be used: {error_line(error)}"
        yield finding("database", "bad", found, helps)
    except DatabaseAway as error:
        helps = "Check that it runs, and that pg_hba.conf and firewalls let this machine in."
        if "timeout" in str(error):
            helps = "A session keeps a table locked. To see whose: placet team status"
        yield finding("database", "bad", f"{shown(address)} cannot be reached: {error}", helps)


def _remotes(site: Site, config: Config) -> Iterator[Finding]:
    answers = dict[str, str]()
    for name in ("", *config.portals):
        line, url = f"work remote of {name or 'the vault'}", work_remote(site.vault, config, name)
        if not url:
            key = f"portals.{name}.work_remote" if name else "team.work_remote"
            helps = f"placet config set {quote(key)} ADDRESS"
            yield finding(line, "bad", "none is set, so its work waits", helps)
            continue
        if url not in answers:
            answers[url] = trouble_with(url)
        if why := answers[url]:
            found = f"{redact_line(url)} cannot be reached: {why}"
            yield finding(line, "bad", found, f"Try: git ls-remote {quote(redact_line(url))}")
            continue
        has_own = name and config.portals[name].work_remote
        how = f"[remotes] {json.dumps(name)} = " if has_own else "--remote "
        yield finding(line, "good", f"it answers; each worker needs {how}{json.dumps(url)}")


def _server(connection: PostgresConnection, name: str) -> Iterator[Finding]:
    trips = []
    for _ in range(TRIPS):
        before, began_s = wall().timestamp(), Clock().monotonic()
        server_s = server_now_s(connection)
        took_s = Clock().monotonic() - began_s
        trips.append((took_s, server_s - (before + took_s / 2)))
    took_s, behind_s = min(trips)  # the quickest one says most about the clocks
    (version,) = connection.execute("SHOW server_version").fetchone()
    found = f"{name}: PostgreSQL {version.split()[0]}, a round trip takes {took_s * 1000:.1f} ms"
    state: Verdict = "warn" if took_s * 1000 > FAR_MS else "good"
    helps = "Each commit takes several round trips. Move database, daemon and workers closer."
    yield finding("database", state, found, helps)
    state = "warn" if abs(behind_s) > SKEW_S else "good"
    differs = f"{abs(behind_s):.1f} s {'behind' if behind_s > 0 else 'ahead of'} the database's"
    helps = "Times in the journal are wrong. Synchronise the clock: timedatectl set-ntp true"
    yield finding("clock", state, f"this machine's is {differs}", helps)


def _schema(connection: PostgresConnection) -> Generator[Finding, None, bool]:
    """Give the finding on the tables; return whether they are there."""
    from placet_team.postgres_schema import number_of

    number = number_of(connection)
    if number > latest():
        found = f"schema {number} is of a newer placet; this one knows {latest()}"
        yield finding("tables", "bad", found, "Update placet on this machine.")
    else:
        state: Verdict = "good" if number == latest() else "warn"
        found = f"schema {number} of {latest()}" if number else "none yet"
        yield finding("tables", state, found, "The daemon makes them when it starts: placet run")
    return number >= latest()


def _blockers(connection: PostgresConnection) -> Iterator[Finding]:
    from placet_team.blockers import blockers

    for one in blockers(connection):
        helps = f"As an administrator: SELECT pg_terminate_backend({one.pid})"
        if one.is_worker:
            helps = (
                f"The daemon ends it after a lease. To keep it out: placet team remove {one.user}"
            )
        yield finding("locks", "bad", str(one), helps)


def _queue(connection: PostgresConnection) -> Iterator[Finding]:
    waiting = sum(not row.worker for row in work_rows(connection))
    yield finding("queue", "good", f"{counted(waiting, 'piece')} of work in it")


_RIGHTS = """SELECT w.name, (SELECT min(relname) FROM pg_class WHERE relkind = 'r'
    AND relnamespace = 'placet'::regnamespace
    AND has_table_privilege(r.oid, oid, 'INSERT, UPDATE, DELETE, TRUNCATE')),
  has_database_privilege(r.oid, current_database(), 'TEMPORARY'),
  has_function_privilege(r.oid, 'lo_create(oid)', 'EXECUTE'),
  NOT pg_has_role(current_user, r.oid, 'USAGE')
  FROM team_workers w JOIN pg_roles r ON rolname = w.name COLLATE "C" ORDER BY 1"""


def _rights(connection: PostgresConnection) -> Iterator[Finding]:
    wrong = False
    for name, table, makes_temporary, makes_objects, is_foreign in connection.execute(_RIGHTS):
        again = (
            f"As an administrator of the server, run the SQL of: placet team init --worker {name}"
        )
        found: list[tuple[object, Verdict, str, str]] = [
            (
                table,
                "bad",
                f"the worker {name} may write the table {table}, so do not trust its work",
                f'As the owner: REVOKE ALL ON ALL TABLES IN SCHEMA placet FROM "{name}". The role '
                "must own nothing and must not be a superuser.",
            ),
            (
                makes_temporary,
                "warn",
                f"the worker {name} may make temporary tables, and fill the database's disk",
                "As the database's owner: REVOKE TEMPORARY ON DATABASE … FROM PUBLIC",
            ),
            (
                makes_objects,
                "warn",
                f"the worker {name} may make large objects, and fill the database's disk",
                again,
            ),
            (
                is_foreign,
                "warn",
                f"placet cannot end sessions of the worker {name} that block the journal",
                f'As an administrator of the server: GRANT "{name}" TO the owner of the tables',
            ),
        ]
        for is_so, verdict, what, helps in found:
            if is_so:
                wrong = True
                yield finding("rights", verdict, what, helps)
    if not wrong:
        yield finding("rights", "good", "workers can write only through placet's functions")


def _workers(connection: PostgresConnection, lease_s: float) -> Iterator[Finding]:
    found = member_rows(connection)
    living = [one for one in found if one.lives(lease_s)]
    others = [one for one in living if not one.has_version(major())]
    able = len(living) - len(others)
    last = f"; the last was heard {age(min(one.quiet_s for one in found))} ago" if found else ""
    helps = "Work waits. Let one in: placet team init --worker NAME"
    running = f"{counted(able, 'worker')} running{'' if living else last}"
    yield finding("workers", "good" if able else "warn", running, helps)
    if others:
        names = ", ".join(f"{one.name} ({one.version})" for one in others)
        helps = f"The daemon has version {major()}. Update placet there."
        yield finding("workers", "warn", f"of another version: {names}", helps)
