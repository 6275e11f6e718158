"""`placet status`, `plans` and `show`: the journal with the folders laid over it. Reads only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from placet.agent.day_budget import used_today
from placet.cli.glance import Glance, glance, held_back, is_in
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import out
from placet.cli.text import case_text, plans_text, status_text
from placet.core.activity import Action, CommittedRow
from placet.core.life.case import CASE_JSON, OPEN, WORKING, Case, State
from placet.core.life.plan_note import below
from placet.core.life.sight import look_at
from placet.core.life.waiting import Hold, Why
from placet.core.text.names import QUEUES, Folder
from placet.core.text.names import show as visible
from placet.core.text.note import read_note
from placet.core.text.plan_reader import parse_plan
from placet.core.turn.budget import Amount
from placet.core.turn.talk import ModelErrorKind
from placet.files.errors import Gone
from placet.files.vault import Vault
from placet.host.clock import Clock
from placet.journal.reader import Reader, open_reader
from placet.journal.writes import BodyDamaged

OVER = (State.COMPLETED, State.FAILED, State.REJECTED, State.WITHDRAWN)
NO_ROOM = 64 * 1024
"""Free bytes below which a disk is full: a small event does not fit into the journal's log."""
LATEST = 20
"""Maximum of cases that are over, the last ones of each state."""


@click.command("status")
@site_option
@json_option
def status_command(site: Site, as_json: bool) -> None:
    """Show what is planned, what waits for you, and what runs."""
    found = status(site)
    out(status_text(found), found, as_json=as_json)
    site.raise_problem()


@click.command("plans")
@site_option
@json_option
def plans_command(site: Site, as_json: bool) -> None:
    """List the plans that await a decision."""
    found = plans(site)
    out(plans_text(found), found, as_json=as_json)
    site.raise_problem()


@click.command("show")
@ident_argument
@site_option
@json_option
def show_command(site: Site, ident: str, as_json: bool) -> None:
    """Show a request with its plan, its mission and its report.

    ID is a request_id or the beginning of a trace_id.
    """
    found = show(site, ident)
    out(case_text(found), found, as_json=as_json)
    site.raise_problem()


def status(site: Site) -> dict[str, Any]:
    """Return the daemon's work: itself, each case that is not over, and those that ended last.

    `earlier` is how many cases are left out: they are over, and have no note in a watched folder.
    Provider and model are empty where the configuration cannot be used (`Site.configured`).
    """
    state, config = site.state, site.configured()
    cases: list[dict[str, Any]] = []
    earlier = 0
    unusable: dict[str, str] = {}
    stuck: list[str] = []
    today, waits = Amount(), None
    with Vault(site.vault) as folder:
        if not state.journal.exists():
            listed = frozenset(folder.scan([Folder.REQUESTS]).found)
        else:
            with open_reader(state.journal) as reader:
                shown = _latest(reader, folder)
                earlier = reader.count_cases() - len(shown)
                seen = glance(site, folder, reader, shown)
                cases = [_line(folder, reader, seen, trace, config.quiet_s) for trace in seen.cases]
                listed = seen.listed
                today = used_today(reader, Clock().wall())
                waits = waits_for_model(reader)
                unusable = {row.path: row.detail for row in reader.seen() if row.verdict}
                errors = {command.error for command in reader.pending_commands() if command.error}
                stuck = [*disk_trouble(state.journal), *sorted(errors)]
    known = {visible(path) for c in cases for path in (c["request"], c["plan"])} | unusable.keys()
    new = {visible(path) for path in listed if is_in([Folder.REQUESTS], path)}
    return {
        "vault": str(site.vault),
        "daemon": site.daemon,
        "provider": config.provider,
        "model": config.model,
        "paused": config.paused,
        "waits": waits,
        "stuck": stuck,
        "cases": sorted(cases, key=lambda c: c["since"]),
        "earlier": earlier,
        "unaccepted": list(config.unaccepted),
        "explained": unusable,
        "not_taken_up": sorted(new - known),
        "today": {
            "tokens": today.tokens,
            "cost_usd": as_float(today.usd),
            "day_tokens": config.day_tokens or None,
            "day_usd": as_float(config.day_usd) or None,
        },
    }


def _latest(reader: Reader, folder: Vault) -> list[Case]:
    """Return the cases to show: open, with a note in a watched folder, or among the last ended."""
    rows = {
        *reader.cases(*OPEN),
        *(row for over in OVER for row in reader.latest_cases(over, LATEST)),
        *reader.cases_of(paths=folder.scan(QUEUES).found.keys()),
    }
    return [CASE_JSON.validate_json(row.body) for row in sorted(rows, key=lambda row: row.trace_id)]


def disk_trouble(journal: Path) -> list[str]:
    """Return why the disk does not let the daemon write its journal: at most one sentence."""
    disk = os.statvfs(journal.parent)
    if disk.f_flag & os.ST_RDONLY:
        why = "is mounted read-only"
    elif disk.f_bavail * disk.f_frsize < NO_ROOM:
        why = "is full"
    else:
        return []
    return [
        f"The disk of {journal.parent}, where the journal is, {why}. What cannot be written down "
        "waits, nothing is lost, and it goes on by itself when that is fixed."
    ]


def waits_for_model(reader: Reader) -> dict[str, str] | None:
    """Return why all work waits for the model, and since when; None where it does not."""
    row = reader.last_of(Action.MODEL_WAITING, Action.MODEL_RESUMED, trace_id="")
    if row is None or row.action_type != Action.MODEL_WAITING:
        return None
    why, reason = Why(row.details["why"]), row.details["reason"]
    # a key that was given may be a wrong one, and then the network may be down
    if why is Why.BLOCKED:
        reason = reader.calls.failed_since(row.id) or reason
    return {
        "why": why.value,
        "reason": reason,
        "since": row.timestamp,
        "notice": Hold(why, reason, 0.0).notice,
    }


def as_float(usd: Decimal | None) -> float | None:
    """Return dollars as JSON has them."""
    return None if usd is None else float(usd)


def plans(site: Site) -> list[dict[str, Any]]:
    """Return the plans that await a decision, oldest first.

    One that failed, or could not be revised, awaits it as it was.
    """
    return [
        c
        for c in status(site)["cases"]
        if c["undecided"] is None
        and (
            c["state"] == State.REVIEW
            or (c["state"] == State.FAILED and c["plan"].startswith(f"{Folder.PLANS}/"))
        )
    ]


def show(site: Site, ident: str) -> dict[str, Any]:
    """Return all there is about one case: its state, request, plan, report and journal rows."""
    with Vault(site.vault) as folder, site.reader(ident) as reader:
        case = find(reader, ident)
        rows = [as_row(row) for row in reader.activity(case.trace_id, limit=10_000)]
        seen = glance(site, folder, reader, [case])
        case = seen.cases[case.trace_id]
        line = _line(folder, reader, seen, case.trace_id, site.configured().quiet_s)
        approved = _kept(reader, case.approved_digest) if case.approved_digest else None
        asked = _kept(reader, case.request_digest) if case.request_digest else None
        plan = approved or (text_of(folder, case.plan_path) if case.plan_path else None)
        # emptied: whoever did may want it back
        if plan is not None and not below(read_note(plan).body)[1].strip():
            plan = _last_written(reader, case) or plan
        report = text_of(folder, case.report_path) if case.report_path else None
        request = (text_of(folder, case.request_path) if case.request_path else None) or asked
    texts = {"request": request, "plan": plan, "report": report}
    digest = case.approved_digest or (
        look_at(case.plan_path, plan, "").digest if plan and is_in(QUEUES, case.plan_path) else ""
    )
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
    return None if row is None else _kept(reader, row.details["digest"])


def _kept(reader: Reader, digest: str) -> bytes | None:
    """Return a text of the journal; None for a damaged one, which `placet journal verify` names."""
    try:
        return reader.text(digest)
    except BodyDamaged:
        return None


def _line(
    folder: Vault, reader: Reader, seen: Glance, trace: str, quiet_s: float
) -> dict[str, Any]:
    """Return a case of a glance as plain data, with what the journal has of its work."""
    case, undecided = seen.cases[trace], seen.undecided.get(trace)
    line: dict[str, Any] = {
        "request_id": case.request_id,
        "trace_id": case.trace_id,
        "state": case.state.value,
        "title": case.title,
        "agent": case.agent,
        "portal": case.portal,
        "priority": case.priority,
        "revision": case.revision,
        "since": case.since,
        "request": case.request_path,
        "plan": case.plan_path,
        "branch": case.branch,
        "became": case.became,
        "report": case.report_path,
        "failure": case.failure,
        "approved_by": case.approved_by,
        "undecided": None if undecided is None else asdict(undecided),
        "held_back": held_back(folder, reader, case, quiet_s),
    }
    if case.state in WORKING:
        last = reader.last_of(Action.MODEL_FAILED, Action.MODEL_CALLED, trace_id=case.trace_id)
        line["model_trouble"] = (
            None
            if last is None
            or last.action_type == Action.MODEL_CALLED
            or last.details.get("kind") == ModelErrorKind.CANCELLED
            else last.details["reason"]
        )
    if case.state is State.RUNNING:
        text = _kept(reader, case.approved_digest)
        budget = None if text is None else parse_plan(read_note(text).body, None).scope.budget_usd
        rows = reader.activity(case.trace_id, limit=10_000)
        line["progress"] = {
            **progress((row.action_type, row.details) for row in rows),
            "budget_usd": as_float(budget),
        }
    return line


def progress(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a mission's progress from the actions and details of its journal rows.

    That is steps, model turns, and dollars: None where a price is unknown.
    """
    step = of = turns = 0
    cost: float | None = 0.0
    for action, data in rows:
        if action == Action.EXECUTION_STARTED:
            step = turns = 0
            of, cost = data["steps"], 0.0
        elif action == Action.STEP_COMPLETED:
            step = data["step"]
        elif data.get("purpose") == "execute" and (
            action == Action.MODEL_CALLED or (action == Action.MODEL_FAILED and data.get("tokens"))
        ):
            turns += action == Action.MODEL_CALLED
            cost = None if cost is None or data["cost_usd"] is None else cost + data["cost_usd"]
    return {"step": step, "of": of, "iterations": turns, "cost_usd": cost}


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


def text_of(folder: Vault, path: str) -> bytes | None:
    """Return a note's text, None where it is gone."""
    try:
        return folder.read(path)[0]
    except Gone:
        return None
