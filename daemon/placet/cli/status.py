"""Show what the journal says: `placet status`, `plans` and `show`. Reads only."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from collections.abc import Collection
from typing import Any

import click

from placet.activity import Action, CommittedRow
from placet.agent.day_budget import used_today
from placet.case.case import CASE_JSON, Case
from placet.case.intents import Intent
from placet.case.life_cycle import OPEN, OVER, State
from placet.case.notes import body_of, inspect_note
from placet.chat.budget import Amount
from placet.cli.events import patiently
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import echo, json_text
from placet.cli.view import (
    as_float,
    case_line,
    count_changed,
    disk_trouble,
    drawn,
    is_dumb,
    kept,
    last_moment,
    on_terminal,
    plans_screen,
    show_screen,
    status_screen,
    styled,
    text_if_readable,
    waits_for_model,
    waits_for_you,
)
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.host.clock import Clock
from placet.host.intents import waiting_in
from placet.journal.database import is_begun
from placet.journal.reader import Reader, open_reader
from placet.note.frontmatter import stamp
from placet.note.paths import QUEUES


def watch_status(site: Site, *, as_json: bool) -> None:
    """Show `placet status` again whenever it changes, until Ctrl-C.

    On a terminal it is one screen that stays in place, and is left behind at the end; into a pipe
    it is the text, or a line of JSON, each time that something is different.
    """
    last = ""
    try:
        if as_json or not on_terminal() or is_dumb():
            _print_changes(site, as_json=as_json)
        from rich.live import Live
        from rich.text import Text

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        hint = drawn(styled("Ctrl-C ends this.", "dim"))
        with Live(screen=True, auto_refresh=False) as live:
            for _ in site.changes():
                last = _shown(site)
                live.update(Text.from_ansi(f"{last}\n\n{hint}"), refresh=True)
    except KeyboardInterrupt:
        if last:
            click.echo(last)


def _print_changes(site: Site, *, as_json: bool) -> None:
    before, changes = "", site.changes()
    for _ in changes:
        found = patiently(lambda: status(Site(site.given, site.env)), changes)
        if (now := _unchanging(found)) != before:
            before = now
            click.echo(json_text(found) if as_json else f"{status_screen(found)}\n")


def _shown(site: Site) -> str:
    """Return the screen of now; a vault that cannot be read is said, and looked at again."""
    now = Site(site.given, site.env)  # settings and daemon may be others by now
    try:
        text = status_screen(status(now), shutil.get_terminal_size().lines - 3)
        now.raise_problem()
    except UserError as error:
        shown = drawn(styled(error.what, "red"), styled(error.hint, "dim"))
        return f"{text}\n\n{shown}" if now.problem is error else shown
    return text


def _unchanging(found: dict[str, Any]) -> str:
    """Return a status without what changes by itself: ages."""
    cases = [{key: v for key, v in case.items() if key != "age_s"} for case in found["cases"]]
    return json.dumps({**found, "cases": cases}, default=str)


LATEST = 20
"""Maximum of cases that are over, the last ones of each state."""


@click.command("status")
@click.option("--watch", is_flag=True, help="Keep it on the screen, live, until Ctrl-C.")
@site_option
@json_option
def status_command(site: Site, watch: bool, as_json: bool) -> None:
    """Show what waits for you, what runs, and what ended."""
    if watch:
        watch_status(site, as_json=as_json)
        return
    found = status(site)
    height = shutil.get_terminal_size().lines - 1 if on_terminal() else 0  # one is the prompt's
    click.echo(json_text(found, indent=2) if as_json else status_screen(found, height))
    site.raise_problem()


@click.command("plans")
@site_option
@json_option
def plans_command(site: Site, as_json: bool) -> None:
    """List what awaits a decision: plans, wider scopes and questions."""
    found = plans(site)
    click.echo(json_text(found, indent=2) if as_json else plans_screen(found, site.vault))
    site.raise_problem()


@click.command("show")
@ident_argument
@site_option
@click.option("--plan", "alone", is_flag=True, help="Print the plan's text alone, for a file.")
@json_option
def show_command(site: Site, ident: str, alone: bool, as_json: bool) -> None:
    """Show a request with its plan, its mission and its report.

    ID is a request_id or the beginning of a trace_id. Of a plan that was emptied or taken away it
    shows the text that was written last.
    """
    found = show(site, ident)
    if alone:
        if found["plan_text"] is None:
            raise UserError(
                f"There is no plan of {found['request_id']}.",
                f"See why: placet why {found['request_id']}",
                exit_code=3,
            )
        click.echo(found["plan_text"], nl=False)
        return
    if as_json:
        click.echo(json_text(found, indent=2))
    else:
        for text, fits in show_screen(found, site.vault):
            (click.echo if fits else echo)(text)
    site.raise_problem()


def status(site: Site) -> dict[str, Any]:
    """Return the daemon's work: itself, each case that is not over, and those that ended last.

    `earlier` is how many cases are left out: they are over, and have no note in a watched folder.
    `changed` is how many notes changed since the last event, 0 while a daemon runs. Provider and
    model are empty where the configuration cannot be used (`Site.configured`).
    """
    state, config, daemon = site.state, site.configured(), site.daemon
    cases: list[dict[str, Any]] = []
    earlier = 0
    unusable: dict[str, str] = {}
    stuck: list[str] = []
    today, waits = Amount(), None
    last_event = ""
    intents = waiting_in(state.intents)
    asked = {one.trace_id: one for one in intents}
    with Vault(site.vault) as folder:
        notes = folder.scan(QUEUES).found
        if is_begun(state.journal):
            with open_reader(state.journal) as reader:
                shown = _latest(reader, asked, notes)
                earlier = reader.count_cases() - len(shown)
                cases = [case_line(site, folder, reader, case, asked) for case in shown]
                today = used_today(reader, Clock().wall())
                waits = waits_for_model(reader)
                unusable = {row.path: row.detail for row in reader.seen() if row.verdict}
                errors = {command.error for command in reader.pending_commands() if command.error}
                stuck = [*disk_trouble(state.journal), *sorted(errors)]
                last_event = last_moment(reader)
    return {
        "vault": str(site.vault),
        "daemon": daemon,
        "provider": "" if site.problem else config.model.provider,
        "model": "" if site.problem else config.model.name,
        "paused": config.daemon.paused,
        "waits": waits,
        "stuck": stuck,
        "cases": sorted(
            cases, key=lambda c: (not waits_for_you(c), c["asking"] is None, c["since"])
        ),
        "earlier": earlier,
        "unaccepted": site.unaccepted,
        "explained": unusable,
        "changed": 0 if daemon else count_changed(notes.values(), last_event),
        "intents": [_asked(one) for one in intents],
        "today": {
            "tokens": today.tokens,
            "cost_usd": as_float(today.usd),
            "day_tokens": config.limits.day_tokens or None,
            "day_usd": as_float(config.limits.day_usd) or None,
        },
    }


def _asked(intent: Intent) -> dict[str, str]:
    """Return as plain data what a command asked for that the daemon has not answered."""
    names = {"id": intent.id, "what": intent.what, "trace_id": intent.trace_id}
    return {**names, "by": intent.who, "via": intent.via}


def _latest(reader: Reader, traces: Collection[str], paths: Collection[str]) -> list[Case]:
    """Return the cases to show.

    They are open, have a note at one of `paths`, are among the last ended, or one of `traces`.
    """
    rows = {
        *reader.cases(*OPEN),
        *(row for over in OVER for row in reader.latest_cases(over, LATEST)),
        *reader.cases_of(traces, paths),
    }
    return [CASE_JSON.validate_json(row.body) for row in sorted(rows, key=lambda row: row.trace_id)]


def ended_about(site: Site, text: str, known: Collection[str]) -> list[dict[str, Any]]:
    """Return the last cases that are over and have all words of a text in their name.

    Those with a trace_id in `known` are left out.
    """
    slugs = [re.sub("[^a-z0-9]+", "-", word).strip("-") for word in text.lower().split()]
    words = [slug for slug in slugs if slug][:10]
    if not words or not is_begun(site.state.journal):
        return []
    with Vault(site.vault) as folder, open_reader(site.state.journal) as reader:
        rows = reader.cases_about(OVER, words, LATEST)
        found = [CASE_JSON.validate_json(row.body) for row in rows if row.trace_id not in known]
        return [case_line(site, folder, reader, case, {}) for case in found]


def plans(site: Site) -> list[dict[str, Any]]:
    """Return what awaits a decision: what is asked first, then plans; of each the oldest first."""
    return list(filter(waits_for_you, status(site)["cases"]))


def show(site: Site, ident: str) -> dict[str, Any]:
    """Return all there is about one case: its state, request, plan, report and journal rows."""
    asks = {one.trace_id: one for one in waiting_in(site.state.intents)}
    with Vault(site.vault) as folder, site.reader(ident) as reader:

        def text(path: str) -> bytes | None:
            return text_if_readable(folder, path) if path else None

        case = find(reader, ident)
        rows = [as_row(row) for row in reader.activity(case.trace_id, limit=10_000)]
        line = case_line(site, folder, reader, case, asks)
        approved = _plan_kept(reader, case.approval.digest) if case.approval.digest else None
        asked = kept(reader, case.request_digest) if case.request_digest else None
        plan = approved or text(case.plan.path)
        # emptied or taken away: whoever did may want it back
        is_emptied = plan is not None and not body_of(plan).strip()
        if is_emptied or (plan is None and case.state is State.WITHDRAWN):
            plan = _last_written(reader, case) or plan
        report = text(case.outcome.report_path)
        asking = text(case.asking.path) if case.asking is not None else None
        request = text(case.request_path) or asked
    texts = {"asking": asking, "request": request, "plan": plan, "report": report}
    digest = case.approval.digest
    if not digest and plan and case.plan.path.startswith(QUEUES):
        digest = inspect_note(case.plan.path, plan, "").digest
    return {
        **line,
        "daemon": site.daemon is not None,
        "journal": rows,
        "plan_digest": digest,
        **{
            f"{name}_text": None if raw is None else raw.decode(errors="replace")
            for name, raw in texts.items()
        },
    }


def _last_written(reader: Reader, case: Case) -> bytes | None:
    """Return a case's plan as it was published last, None where the journal has lost it."""
    row = reader.last_of(Action.PLAN_CREATED, Action.PLAN_REVISED, trace_id=case.trace_id)
    return None if row is None else _plan_kept(reader, row.details["digest"])


def _plan_kept(reader: Reader, digest: str) -> bytes | None:
    """Return a plan of the journal with the property that it was written with, for a decision."""
    raw = kept(reader, digest)
    return None if raw is None else stamp(raw, {"decision": ""})


def as_row(row: CommittedRow) -> dict[str, Any]:
    """Return a journal row as plain data."""
    return {
        "id": row.id,
        "timestamp": row.timestamp,
        "trace_id": row.trace_id,
        "actor": row.actor,
        "agent": row.agent,
        "action_type": row.action_type,
        "entity_type": row.entity_type,
        "entity_id": row.entity_id,
        "metadata": dict(row.details),
    }
