"""`placet why`: the reason for a case's state, and the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import click

from placet.cli.asked import asked_line
from placet.cli.carriers import carrier, is_carried, with_worker
from placet.cli.failed_mission import failed_mission, request_after_failure
from placet.cli.glance import Glance, drafts, glance, too_many
from placet.cli.held import IS_DRAFT, NEEDS_HISTORY, held_back
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import colour, local_times, out, visible_lines
from placet.cli.trouble import disk_trouble, waits_for_model
from placet.cli.written import not_written_yet
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.life.waiting import ALLOW_HISTORY, Why
from placet.core.life.why import standing
from placet.core.life.why_failed import of_last_mission
from placet.core.text.names import Folder, request_id
from placet.core.text.names import show as visible
from placet.files.vault import Vault
from placet.journal.place import is_begun
from placet.journal.reader import Reader, open_reader


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
        click.echo(request_after_failure(site, found), nl=False)
    else:
        out(why_text(found), found, as_json=as_json)
    site.raise_problem()


def why(site: Site, ident: str) -> dict[str, Any]:
    """Return why a case is where it is and what to do next.

    Of a failed mission it has all that its report shows. A note that is no case because it cannot
    be used is found by the id it would have. Raises UserError as `find` does.
    """
    if not is_begun(site.state.journal) and (new := _not_taken_up(site, ident)):
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
        its = (visible(case.request_path), visible(case.plan.path))
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
        "report": case.outcome.report_path,
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
        if case.trace_id in seen.ahead:
            with open_reader(site.state.journal) as later:  # it has the rows of that as well
                return _reasons(site, later, find(later, case.trace_id), notices)
        held = held_back(site, folder, reader, seen, case.trace_id)
        asked = asked_line(folder, reader, case)
    runs = site.daemon is not None
    if (rivals := seen.rivals.get(case.trace_id)) is not None:
        several, one_left = too_many(site, case, rivals)
        places = tuple(map(visible, rivals))
        # the side notes say the same
        return [several, *(n for n in notices if not n.startswith(places))], [one_left], None
    if (between := _between(site, seen, case)) is not None:
        return [between[0], *notices], [between[1]], None
    if case.state is State.FAILED and case.outcome.report_path:
        mission = failed_mission(reader, case, of_last_mission(rows))
        if mission is not None:
            return [*mission.pop("happened"), *notices], mission.pop("next"), mission
        lost = "Its mission failed. What the journal had on that was lost, or is archived."
        return (
            [lost, *notices],
            [
                f"Read the report: {case.outcome.report_path}",
                f"Set `status: pending` in {case.request_path or 'the request'} for a new plan.",
            ],
            None,
        )
    if case.state is State.COMPLETED and case.outcome.tip:
        from placet.cli.branches import became_now  # git is asked for nothing else

        case = replace(case, outcome=replace(case.outcome, became=became_now(site, case)))
    found = carrier(site, reader, case)
    carried = is_carried(found)
    reason, helps = standing(
        case, rows, daemon_runs=runs or carried, paused=config.paused and not carried
    )
    working = case.is_working and case.acting is not State.RUNNING
    if runs and not config.paused and notices and working:
        reason = f"Since {case.since} it is {case.state}. What is in its way, or was noticed:"
        helps = ("Do what is said there; it goes on by itself. Follow it: placet journal --follow",)
    reason, helps = with_worker(reader, found, case, (reason, helps), runs=runs)
    if held and not config.paused:
        reason = f"{visible(case.request_path)}: {held}."
        helps = _held_helps(held, runs=runs) or helps
    said = [reason, *_asks(asked)]
    if case.is_working and (waits := waits_for_model(reader)) is not None:
        held = f"Since {waits['since']} all work waits for the model: {waits['notice']}"
        said = [held] if runs and case.acting is not State.RUNNING else [reason, held]
        if not runs and waits["why"] == Why.BLOCKED:
            helps = ("Fix that first.", *helps)
    # the side note may say the same
    said += [notice for notice in notices if reason.rstrip(".") not in notice]
    return said, helps, None


def _between(site: Site, seen: Glance, case: Case) -> tuple[str, str] | None:
    """Return what the daemon is still to take up, or to write, and what follows; or None."""
    if case.trace_id in seen.unwritten:
        error = not_written_yet(site, case)
        return error.what, error.hint
    if (undecided := seen.undecided.get(case.trace_id)) is None:
        return None
    still = f"{undecided.sentence}. The journal still has it as: {case.state}."
    if site.daemon is not None:
        return still, f"The daemon runs and looks within seconds; then {undecided.follows}."
    return (
        still,
        f"No daemon runs. When one starts, {undecided.follows}. Start it: placet run",
    )


def _asks(asked: Mapping[str, Any] | None) -> list[str]:
    if asked is None or not asked["question"]:
        return []
    return [f"It asks{'' if asked['kind'] == 'question' else ' for'}: {asked['question']}"]


def _held_helps(held: str, *, runs: bool) -> tuple[str, ...]:
    start = () if runs else ("Then start the daemon: placet run",)
    if held == NEEDS_HISTORY:
        return f"Allow it: {ALLOW_HISTORY}", *start
    if held == IS_DRAFT:
        return "When it is ready, remove that line or write `status: pending`.", *start
    return ()


def _not_taken_up(site: Site, ident: str) -> dict[str, Any] | None:
    """Return why a request in the vault is no case yet; None where none would get such an ID."""
    with Vault(site.vault) as folder:
        paths = _named(sorted(folder.scan([Folder.REQUESTS]).found), ident)
        are_drafts = paths and paths == drafts(folder, paths)
    if not paths:
        return None
    if are_drafts:
        said = [f"{visible(path)}: {IS_DRAFT}." for path in paths]
        return _not_yet("draft", paths, ident, said, *_held_helps(IS_DRAFT, runs=bool(site.daemon)))
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
    """Return the notes whose requests would get an ID that begins so; an empty one names none."""
    return [path for path in paths if ident and _id_of(path).startswith(ident)]


def _id_of(path: str) -> str:
    return request_id(PurePosixPath(path).name, ())


def _not_yet(
    state: str, paths: Sequence[str], ident: str, said: list[str], *follows: str
) -> dict[str, Any]:
    return {
        "request_id": _id_of(paths[0]) if len(paths) == 1 else ident,
        "state": state,
        "why": said,
        "next": list(follows),
        "mission": None,
    }


def why_text(found: Mapping[str, Any]) -> str:
    """Return `placet why` for people."""
    lines = [
        f"{colour(visible(found['request_id']), 'white', bold=True)}  {found['state']}",
        *(local_times(visible_lines("\n".join(found["why"])))),
    ]
    following = local_times(visible_lines("\n".join(found["next"])))
    if found["next"]:
        lines += ["", colour("── next ", "white", bold=True), *(f"- {line}" for line in following)]
    return "\n".join(lines)
