"""Explain a case's state and the next step: `placet why`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import click

from placet.activity import Action, CommittedRow
from placet.case.case import Case
from placet.case.explain import (
    advice,
    continued_request,
    explain_state,
    of_last_mission,
    what_happened,
)
from placet.case.life_cycle import DRAFTING, State
from placet.case.notes import DRAFT, body_of, inspect_note
from placet.case.sorting import text_back
from placet.case.waiting import Why
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import colour, harmless, local_times, out
from placet.cli.view import (
    AT_WORK,
    asked_line,
    carrier,
    count_changed,
    disk_trouble,
    has_begun,
    last_moment,
    text_of,
    waits_for_model,
)
from placet.disk.errors import Unreadable
from placet.disk.vault import Vault
from placet.errors import ENDS, End, UserError, counted
from placet.host.intents import waiting_in
from placet.host.plugins import WORKERS, plugin
from placet.journal.database import is_begun
from placet.journal.reader import Reader
from placet.note.frontmatter import read_note
from placet.note.paths import QUEUES, Folder, request_id
from placet.note.paths import show as visible
from placet.plan.parse import parse_plan


def _request_after_failure(site: Site, found: Mapping[str, Any]) -> str:
    """Return a request that continues the last mission that broke, also of a case since decided."""
    mission = found["mission"]
    if mission is None and "trace_id" in found:
        with site.reader(found["trace_id"]) as reader:
            case = find(reader, found["trace_id"])
            rows = reader.activity(case.trace_id, limit=10_000, newest=True)
            mission = failed_mission(reader, case, of_last_mission(rows))
    if mission is None:
        ident = found["request_id"]
        raise UserError(f"No mission of {ident} broke.", f"See: placet why {ident}")
    return str(mission["request"])


def failed_mission(
    reader: Reader, case: Case, rows: Sequence[CommittedRow]
) -> dict[str, Any] | None:
    """Return a mission as its Failure Report shows it, made of the same rows; None without them."""
    facts = next(
        (row.details for row in reversed(rows) if row.action_type == Action.EXECUTION_FAILED), None
    )
    if facts is None:
        return None
    end = End(facts["reason"])
    text = reader.text(facts["digest"])
    assert text is not None, "an approved plan is stored"
    plan = parse_plan(read_note(text).body, None)
    found = ENDS[end]
    first, *rest = what_happened(facts, plan, rows)
    return {
        "class": found.kind.value,
        "end": end.value,
        "iterations": facts["iterations"],
        "meaning": found.meaning,
        "cost_usd": facts["cost_usd"],
        "happened": [first, case.outcome.failure, *rest],
        "kept": facts.get("kept", ""),
        "kept_commit": facts.get("kept_commit", ""),
        "files": list(facts.get("files_changed", ())),
        "request": continued_request(case, plan, facts, case.outcome.detail, rows),
        "next": [
            advice(end, rows),
            f"Read the report: {visible(case.outcome.report_path)}",
            f"For a new plan: placet retry {case.request_id}, or set `status: pending` in "
            f"{visible(case.request_path) or 'the request'}. It will take the report into account.",
            f"A request that starts from where it broke: placet why {case.request_id} --request",
        ],
    }


IS_DRAFT = "it says `status: draft`"
READY = "To have it planned, remove that line or write `status: pending`."


@click.command("why")
@ident_argument
@click.option(
    "--request",
    "only_request",
    is_flag=True,
    help="Print only a request that starts from where the mission broke.",
)
@site_option
@json_option
def why_command(site: Site, ident: str, only_request: bool, as_json: bool) -> None:
    """Say why a request is where it is, and what to do next.

    Of a failed mission, what its report shows.
    """
    found = why(site, ident)
    if only_request:
        click.echo(_request_after_failure(site, found), nl=False)
    else:
        out(why_text(found), found, as_json=as_json)
    site.raise_problem()


def why(site: Site, ident: str) -> dict[str, Any]:
    """Return why a case is where it is and what to do next.

    Of a failed mission it has all that its report shows. A note that is no case because it cannot
    be used is found by the id it would have. Raises UserError as `find` does.
    """
    if not is_begun(site.state.journal) and (new := _unread(site, ident)):
        return new
    with site.reader(ident) as reader:
        explained = {row.path: f"{row.path}: {row.detail}" for row in reader.seen() if row.verdict}
        try:
            case = find(reader, ident)
        except UserError:
            if unusable := _named(explained, ident):
                return _not_yet(
                    "unusable",
                    unusable,
                    ident,
                    [explained[path] for path in unusable],
                    "Fix the note. The daemon then reads it again.",
                )
            if new := _unread(site, ident):
                return new
            raise
        its = set(map(visible, case.places))
        notices = [sentence for path, sentence in explained.items() if path in its]
        notices += disk_trouble(site.state.journal)
        notices += [
            f"Waits to be done: {command.error}"
            for command in reader.pending_commands()
            if command.error and command.trace_id == case.trace_id
        ]
        reasons, following, mission = _reasons(site, reader, case, notices)
        intents = waiting_in(site.state.intents)
        if waiting := [one for one in intents if one.trace_id == case.trace_id]:
            reasons = [f"`placet {waiting[-1].what}` waits for the daemon.", *reasons]
            following = ("The daemon does it when it runs: placet run",)
        if site.daemon is None:
            reasons += _changed(site, reader, case)
    return {
        "request_id": case.request_id,
        "trace_id": case.trace_id,
        "state": case.state.value,
        "report": case.outcome.report_path,
        "why": reasons,
        "next": list(following),
        "mission": mission,
    }


Reasons = tuple[list[str], Sequence[str], dict[str, Any] | None]
"""Sentences that say why, the next steps, and a failed mission as its report shows it."""


def _reasons(site: Site, reader: Reader, case: Case, notices: list[str]) -> Reasons:
    rows = reader.activity(case.trace_id, limit=10_000, newest=True)
    config = site.configured()
    runs = site.daemon is not None
    with Vault(site.vault) as folder:
        is_draft = case.acting in DRAFTING and _is_draft(folder, case.request_path)
        asked = asked_line(folder, reader, case)
        plan = text_of(folder, case.plan.path) if case.state is State.REVIEW else None
    if case.state is State.FAILED and case.outcome.report_path:
        mission = failed_mission(reader, case, of_last_mission(rows))
        if mission is not None:
            return [*mission.pop("happened"), *notices], mission.pop("next"), mission
        no_details = "Its mission failed. The journal no longer has the details."
        return (
            [no_details, *notices],
            [
                f"Read the report: {visible(case.outcome.report_path)}",
                f"Set `status: pending` in {visible(case.request_path) or 'the request'} for "
                "a new plan.",
            ],
            None,
        )
    if case.state is State.COMPLETED and case.branch is not None:
        from placet.cli.branches import became_now  # git is asked for nothing else

        case = case.with_branch(case.branch, became=became_now(site, case))
    found = carrier(site, reader, case)
    carried = found is not None and found["state"] == AT_WORK
    reason, helps = explain_state(
        case, rows, daemon_runs=runs or carried, paused=config.daemon.paused and not carried
    )
    is_new = runs and case.acting is State.PLANNING and not config.daemon.paused
    if is_new and not has_begun(reader, case):
        quiet_s = config.vault.quiet_s
        reason = f"placet plans it once the note has stayed unchanged for {quiet_s:g} s."
    working = case.is_working and case.acting is not State.RUNNING
    if not config.daemon.paused and notices and working:
        reason = f"Since {case.since} it is {case.state.title}. What blocks it, or was noticed:"
        follow = "Do what it says; the work then resumes. Follow it: placet journal --follow"
        helps = (follow,) if runs else helps
    if found is not None:
        with_worker = plugin(WORKERS, "status").with_worker
        reason, helps = with_worker(reader, found, case, (reason, helps), runs=runs)
    if is_draft and not config.daemon.paused:
        reason, helps = f"{visible(case.request_path)}: {IS_DRAFT}.", (READY,)
    if plan is not None and not body_of(plan).strip():
        helps = (f"{text_back(case.request_id)}.",)
    reasons = [reason, *_asks(asked)]
    if case.is_working and (waits := waits_for_model(reader)) is not None:
        held = f"Since {waits['since']} all work waits for the model: {waits['notice']}"
        reasons = [held] if runs and case.acting is not State.RUNNING else [reason, held]
        if not runs and waits["why"] == Why.BLOCKED:
            helps = ("Fix that first.", *helps)
    # the side note may say the same
    reasons += [notice for notice in notices if reason.rstrip(".") not in notice]
    return reasons, helps, None


def _changed(site: Site, reader: Reader, case: Case) -> list[str]:
    """Return the sentence about a case's notes that changed while no daemon ran, if any did."""
    with Vault(site.vault) as folder:
        scan = folder.scan(QUEUES)
    places = [path for path in case.places if path.startswith(QUEUES)]
    there = [scan.found[path] for path in places if path in scan.found]
    changed = count_changed(there, last_moment(reader))
    if scan.present and not scan.problems:  # what cannot be listed is not gone
        changed += len(places) - len(there)
    notes = counted(changed, "note of this request", "notes of this request")
    return [f"{notes} changed since the daemon last ran. Start it: placet run"] if changed else []


def _asks(asked: Mapping[str, Any] | None) -> list[str]:
    if asked is None or not asked["question"]:
        return []
    return [f"It asks{'' if asked['kind'] == 'question' else ' for'}: {asked['question']}"]


def _is_draft(folder: Vault, path: str) -> bool:
    with suppress(Unreadable):
        raw = text_of(folder, path) if path else None
        return raw is not None and inspect_note(path, raw, "").status == DRAFT
    return False


def _unread(site: Site, ident: str) -> dict[str, Any] | None:
    """Return why a request in the vault is no case yet; None where none would get such an ID."""
    with Vault(site.vault) as folder:
        paths = _named(sorted(folder.scan([Folder.REQUESTS]).found), ident)
        are_drafts = bool(paths) and all(_is_draft(folder, path) for path in paths)
    if not paths:
        return None
    if are_drafts:
        return _not_yet("draft", paths, ident, [f"{visible(p)}: {IS_DRAFT}." for p in paths], READY)
    lines = [f"{visible(path)}: the daemon has not read it yet." for path in paths]
    return _not_yet("new", paths, ident, lines, *([] if site.daemon else ["Start it: placet run"]))


def _named(paths: Iterable[str], ident: str) -> list[str]:
    """Return the notes whose requests would get an ID that begins so; an empty one names none."""
    return [path for path in paths if ident and _id_of(path).startswith(ident)]


def _id_of(path: str) -> str:
    return request_id(PurePosixPath(path).name, ())


def _not_yet(
    state: str, paths: Sequence[str], ident: str, reasons: list[str], *follows: str
) -> dict[str, Any]:
    return {
        "request_id": _id_of(paths[0]) if len(paths) == 1 else ident,
        "state": state,
        "why": reasons,
        "next": list(follows),
        "mission": None,
    }


def why_text(found: Mapping[str, Any]) -> str:
    """Return `placet why` for people."""
    lines = [
        f"{colour(visible(found['request_id']), 'white', bold=True)}  {found['state']}",
        *(local_times(harmless("\n".join(found["why"])).split("\n"))),
    ]
    following = local_times(harmless("\n".join(found["next"])).split("\n"))
    if found["next"]:
        lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in following)]
    return "\n".join(lines)
