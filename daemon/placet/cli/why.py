"""`placet why`: the reason for a case's state, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Any

import click

from placet.cli.glance import glance, held_back
from placet.cli.look import disk_trouble, waits_for_model
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import colour, local_times, out, visible_lines
from placet.core.activity import Action, CommittedRow
from placet.core.errors import UserError
from placet.core.life.case import WORKING, Case, State
from placet.core.life.ends import ENDS
from placet.core.life.timeline import timeline
from placet.core.life.waiting import Why
from placet.core.life.why import standing
from placet.core.life.why_failed import (
    against_estimate,
    of_last_mission,
    proof,
    ready_request,
    remains,
    row_line,
    tried,
)
from placet.core.text.names import Folder, request_id
from placet.core.text.names import show as visible
from placet.core.text.note import read_note
from placet.core.text.plan_reader import parse_plan
from placet.files.vault import Vault
from placet.journal.reader import Reader


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
    if not only_request:
        out(why_text(found), found, as_json=as_json)
    elif found["mission"] is None:
        raise UserError(
            f"{ident} is {found['state']}: the journal has no mission of it that broke.",
            f"See: placet why {ident}",
        )
    else:
        click.echo(found["mission"]["request"], nl=False)
    site.raise_problem()


def why(site: Site, ident: str) -> dict[str, Any]:
    """Return why a case is where it is and what to do next.

    Of a failed mission it has all that its report shows. A note that is no case because it cannot
    be used is found by the id it would have. Raises UserError as `find` does.
    """
    if not site.state.journal.exists() and (new := _not_taken_up(site, ident)):
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
                    "Fix the note; it is taken up as soon as it can be used.",
                )
            if new := _not_taken_up(site, ident):
                return new
            raise
        its = (visible(case.request_path), visible(case.plan_path))
        notices = [sentence for path, sentence in explained.items() if path in its]
        notices += disk_trouble(site.state.journal)
        notices += [
            f"Waits to be done: {command.error}"
            for command in reader.pending_commands()
            if command.error and command.trace_id == case.trace_id
        ]
        said, following, mission = _reasons(site, reader, case, notices)
    return {
        "request_id": case.request_id,
        "trace_id": case.trace_id,
        "state": case.state.value,
        "report": case.report_path,
        "why": said,
        "next": list(following),
        "mission": mission,
    }


Reasons = tuple[list[str], Sequence[str], dict[str, Any] | None]
"""Sentences that say why, the next steps, and a failed mission as its report shows it."""


def _reasons(site: Site, reader: Reader, case: Case, notices: list[str]) -> Reasons:
    rows = reader.activity(case.trace_id, limit=10_000, newest=True)
    config = site.configured()
    with Vault(site.vault) as folder:
        seen = glance(site, folder, reader, [case])
        case = seen.cases[case.trace_id]
        waits_for_quiet = held_back(folder, reader, case, config.quiet_s)
    runs = site.daemon is not None
    if (undecided := seen.undecided.get(case.trace_id)) is not None:
        still = f"{undecided.sentence}. The journal still has it as: {case.state}."
        follows = (
            f"The daemon runs and looks within seconds; then {undecided.follows}."
            if runs
            else f"No daemon runs. When one starts, {undecided.follows}. Start it: placet run"
        )
        return [still, *notices], [follows], None
    if case.state is State.FAILED and case.report_path:
        mission = _failed_mission(reader, case, of_last_mission(rows))
        if mission is not None:
            return [mission["meaning"], case.failure, *notices], mission.pop("next"), mission
        lost = "Its mission failed. What the journal had on that was lost, or is archived."
        return (
            [lost, *notices],
            [
                f"Read the report: {case.report_path}",
                f"Set `status: pending` in {case.request_path or 'the request'} for a new plan.",
            ],
            None,
        )
    reason, helps = standing(case, rows, daemon_runs=runs, paused=config.paused)
    if runs and not config.paused:
        if notices and case.state in (State.PLANNING, State.REVISING, State.APPROVED):
            reason = f"Since {case.since} it is {case.state}. What is in its way, or was noticed:"
            helps = (
                "Do what is said there; it goes on by itself. Follow it: placet journal --follow",
            )
        if waits_for_quiet:
            reason = f"{case.request_path}: {waits_for_quiet}."
    said = [reason]
    if case.state in WORKING and (waits := waits_for_model(reader)) is not None:
        held = f"Since {waits['since']} all work waits for the model: {waits['notice']}"
        said = [held] if runs and case.state is not State.RUNNING else [reason, held]
        if not runs and waits["why"] == Why.BLOCKED:
            helps = ("Fix that first.", *helps)
    # the side note may say the same
    said += [notice for notice in notices if reason.rstrip(".") not in notice]
    return said, helps, None


def _not_taken_up(site: Site, ident: str) -> dict[str, Any] | None:
    """Return why a request in the vault is no case yet; None where none would get such an ID."""
    with Vault(site.vault) as folder:
        paths = _named(sorted(folder.scan([Folder.REQUESTS]).found), ident)
    if not ident or not paths:
        return None
    return _not_yet(
        "new",
        paths,
        ident,
        [f"{visible(path)} was not taken up yet." for path in paths],
        "The daemon runs and looks within seconds."
        if site.daemon
        else "No daemon runs. When one starts, a plan is written. Start it: placet run",
    )


def _named(paths: Iterable[str], ident: str) -> list[str]:
    """Return the notes whose requests would get an ID that begins so."""
    return [path for path in paths if _id_of(path).startswith(ident)]


def _id_of(path: str) -> str:
    return request_id(PurePosixPath(path).name, ())


def _not_yet(
    state: str, paths: Sequence[str], ident: str, said: list[str], follows: str
) -> dict[str, Any]:
    return {
        "request_id": _id_of(paths[0]) if len(paths) == 1 else ident,
        "state": state,
        "why": said,
        "next": [follows],
        "mission": None,
    }


def _failed_mission(
    reader: Reader, case: Case, rows: Sequence[CommittedRow]
) -> dict[str, Any] | None:
    """Return a mission as its Failure Report shows it, made of the same rows; None without them."""
    facts = next(
        (row.details for row in reversed(rows) if row.action_type == Action.EXECUTION_FAILED), None
    )
    if facts is None:
        return None
    left = remains(facts, case.failure_detail, rows)
    text = reader.text(facts["digest"])
    assert text is not None, "what is carried out was stored when it was approved"
    plan = parse_plan(read_note(text).body, None)
    found = ENDS[left.end]
    limit = plan.scope.budget_usd
    return {
        "class": found.kind.value,
        "end": left.end.value,
        "iterations": facts["iterations"],
        "meaning": found.meaning,
        "cost": against_estimate(
            facts["cost_usd"],
            facts.get("typical_cost_usd"),
            None if limit is None else float(limit),
        ),
        "proof": [row_line(row) for row in proof(left.end, rows)],
        "timeline": [asdict(bar) for bar in timeline(rows)],
        "tried": list(tried(rows)),
        "kept": left.kept,
        "kept_commit": left.kept_commit,
        "files": list(left.files),
        "request": ready_request(case, plan, left),
        "next": [
            found.advice,
            f"Read the report: {case.report_path}",
            f"For a new plan: placet retry {case.request_id}, or set `status: pending` in "
            f"{case.request_path or 'the request'}; in {case.plan_path or 'the plan'} that "
            "asks for "
            "a revision of it. Whoever writes it reads the report.",
            f"A request that starts from where it broke: placet why {case.request_id} --request",
        ],
    }


def why_text(found: Mapping[str, Any]) -> str:
    """Return `placet why` for people."""
    lines = [
        f"{colour(visible(found['request_id']), 'white', bold=True)}  {found['state']}",
        *(local_times(visible_lines("\n".join(found["why"])))),
    ]
    if mission := found["mission"]:
        lines += [
            f"{mission['class']} ({mission['end']}, after {mission['iterations']} iterations)",
            f"cost   {mission['cost']}",
            f"kept   {mission['kept'] or 'nothing: it had changed nothing'}",
            "",
            colour("── the journal's rows that show it ", "white", bold=True),
            *local_times(mission["proof"]),
            "",
            colour("── what happened when ", "white", bold=True),
            *_timeline(mission["timeline"]),
            "",
            colour("── what was tried ", "white", bold=True),
            *mission["tried"],
        ]
    following = local_times(visible_lines("\n".join(found["next"])))
    if found["next"]:
        lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in following)]
    return "\n".join(lines)


def _timeline(bars: Sequence[Mapping[str, Any]]) -> list[str]:
    if not bars:
        return ["nothing took time"]
    began = bars[0]["began_ms"]
    return [
        f"{(bar['began_ms'] - began) / 1000:>8.1f} s  "
        f"+{(bar['ended_ms'] - bar['began_ms']) / 1000:.1f} s  "
        f"{'turn ' + str(bar['turn']) if bar['turn'] else 'before'}  "
        + (visible(bar["what"]) if bar["ok"] else colour(visible(bar["what"]), "red"))
        for bar in bars
    ]
