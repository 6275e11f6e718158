"""Decide by command: approve, reject, answer, revise, retry, stop."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import click

from placet.case.case import Case
from placet.case.explain import state_sentence
from placet.cli.options import ident_argument, idents_argument, json_option, site_option
from placet.cli.screen import wider_scope
from placet.cli.terminal import agreed, colour, echo, out, say
from placet.client.decisions import (
    Done,
    Proposal,
    awaiting,
    decide,
    must_allow,
    must_say_something,
    proposal,
    saved,
    to_retry,
)
from placet.client.notes import asks_for_more, note_of_plan
from placet.client.site import Site
from placet.errors import UserError
from placet.note.paths import show as visible


def proposal_text(found: Proposal) -> str:
    """Return a proposal for the person who is asked to approve it."""

    def listed(name: str, items: Sequence[str]) -> list[str]:
        return [
            f"{name if not number else '':<10}{visible(item)}"
            for number, item in enumerate(items or ["nothing"])
        ]

    day = f"${found.day_usd:.2f} a day for all work" if found.day_usd else "no limit"
    budget = day if found.budget_usd is None else f"at most ${found.budget_usd:.2f}"
    where = visible(found.repository) or f"a portal that does not exist: {visible(found.portal)}"
    base = f", from {visible(found.base)}" if found.base else ""
    lines = [
        colour(visible(found.title), "white", bold=True) + f"  ({visible(found.request_id)})",
        f"where     {where}",
        f"branch    {visible(found.branch)}{base}",
        *(
            f"{'step' if n == 1 else '':<10}{n}. {visible(title)}"
            f"{' (left out)' if n in found.steps_left_out else ''}"
            for n, title in enumerate(found.steps, 1)
        ),
        *([f"left out  {visible(found.left_out)}"] if found.left_out else []),
        *listed("write", found.write),
        *listed("run", found.run),
        *listed("network", found.hosts or ["yes" if found.network else "no"]),
        f"shell     {'yes' if found.shell else 'no'}",
        f"cost      {budget}",
        *(listed("remarks", found.comments) if found.comments else []),
        *([f"edited    {colour('since placet wrote it', 'yellow')}"] if found.edited else []),
        *([f"waits     {colour(visible(found.waits), 'yellow')}"] if found.waits else []),
        *(
            f"{colour('danger', 'red', bold=True)}    {visible(sentence)}"
            for sentence in found.dangers
        ),
        f"digest    {found.digest[:16]}",
    ]
    return "\n".join(lines)


@click.command("approve")
@idents_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--remark",
    "remarks",
    multiple=True,
    metavar="R",
    help="A remark for the agent, written into the plan. It does not extend what the agent may do. "
    "Repeatable.",
)
@click.option(
    "--digest",
    "bound",
    metavar="D",
    default="",
    help="Approve only the plan with this digest. `placet show` prints it; eight digits are "
    "enough.",
)
@site_option
@json_option
def approve_command(
    site: Site,
    idents: Sequence[str],
    yes: bool,
    remarks: Sequence[str],
    bound: str,
    as_json: bool,
) -> None:
    """Approve plans: the daemon moves them to System/Active and runs them.

    On a terminal it shows what each allows, and asks. Elsewhere it needs --yes.
    """
    must_say_something("remark", remarks, "Say what to mind", "keep it short")
    if bound and (len(idents) > 1 or not re.fullmatch("[0-9a-f]{8,64}", bound)):
        raise UserError(
            f"{bound!r} is not a digest." if len(idents) == 1 else "One digest is for one plan.",
            f"Give at least eight of its digits; they are in: placet show {idents[0]}",
            exit_code=2,
        )
    cases = [awaiting(site, ident, "approve") for ident in dict.fromkeys(idents)]
    named = " ".join(case.request_id for case in cases)
    if not yes and not sys.stdin.isatty():
        raise UserError(
            "`placet approve` asks, and this is not a terminal.",
            f"To approve without being asked: placet approve {named} --yes",
            exit_code=2,
        )
    for case in cases:
        if asks_for_more(case) and remarks:
            raise UserError(
                "A wider scope is approved as it is, without a remark.",
                f"Or say what would do: placet reject {case.request_id} --reason R",
                exit_code=2,
            )
    for case in cases:
        _approve(site, case, remarks, bound, asks=not yes, as_json=as_json)


def _approve(
    site: Site, case: Case, remarks: Sequence[str], bound: str, *, asks: bool, as_json: bool
) -> None:
    """Approve what a case asks for, and say whether the mission starts or what it waits for."""
    if asks_for_more(case):
        shown, raw = wider_scope(site, case)
        waits, then = "", "the mission continues with the wider scope"
    else:
        raw = note_of_plan(site, case)
        found = proposal(site, case, raw)
        shown, waits = proposal_text(found), found.waits
        then = "it waits" if waits else "the mission starts"
    if asks:
        _confirm(case.request_id, shown)
    # what was shown is what is approved
    done = decide(site, case, "approve", remarks, bound=bound, seen=raw if asks else None)
    if not (waits or done.is_pending or asks_for_more(case)):
        then = "the daemon checks it and starts the mission"  # files may have changed under it
    _done(site, done, "approved", then, as_json=as_json)
    if waits:
        say(waits)


def _confirm(ident: str, shown: str) -> None:
    """Show what would be approved and ask. Raises UserError without a yes."""
    echo(shown, err=True)
    if not agreed("Approve it?"):
        raise UserError(
            "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
        )


@click.command("retry")
@ident_argument
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@site_option
@json_option
def retry_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for a new plan of a request that ended, in whatever way.

    The agent gets the failure and your comments.
    """
    must_say_something("comment", comments, "Say what to do differently", "leave the tests alone")
    case, source = to_retry(site, ident)
    done = decide(site, case, "retry", comments, source=source)
    _done(site, done, "asked for a new plan", "placet writes it for your review", as_json=as_json)


@click.command("reject")
@idents_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@site_option
@json_option
def reject_command(site: Site, idents: Sequence[str], reason: str, as_json: bool) -> None:
    """Reject plans: the daemon moves them to Inbox/Rejected, with the reason."""
    must_say_something("reason", [reason], "Say why", "it is too broad")
    for case in [awaiting(site, ident, "reject") for ident in dict.fromkeys(idents)]:
        is_wider = asks_for_more(case)
        then = (
            "the mission continues without it" if is_wider else "the plan moves to Inbox/Rejected"
        )
        done = decide(site, case, "reject", [reason])
        _done(site, done, "rejected", then, as_json=as_json)


@click.command("answer")
@ident_argument
@click.argument("text", metavar="TEXT")
@site_option
@json_option
def answer_command(site: Site, ident: str, text: str, as_json: bool) -> None:
    """Answer what a request asks you: an option by its number or text, or your own words."""
    if not text.strip():
        raise UserError(
            "The answer is empty.", f"Read the question: placet show {ident}", exit_code=2
        )
    case = site.case(ident)
    if case.asking is None:
        raise UserError(
            f"{state_sentence(case)}, so nothing is asked.",
            f"See why: placet why {case.request_id}",
        )
    if case.asking.amended:
        raise UserError(
            f"{case.request_id} asks for a wider scope, which is approved or rejected: "
            f"{case.asking.path}",
            f"Read it, then: placet approve {case.request_id}, or: "
            f"placet reject {case.request_id} --reason R",
        )
    done = decide(site, case, "answer", [text.strip()])
    _done(site, done, "answered", "the work continues with that", as_json=as_json)


@click.command("revise")
@ident_argument
@click.option(
    "--comment",
    "comments",
    multiple=True,
    required=True,
    metavar="C",
    help="What to change; repeatable.",
)
@site_option
@json_option
def revise_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for changes in a plan: the agent answers your comments with a new revision."""
    must_say_something("comment", comments, "Say what to change", "leave the tests alone")
    case = site.case(ident)
    if asks_for_more(case):
        raise UserError(
            f"{case.request_id} asks for a wider scope, which is approved or rejected as it is.",
            "Reject it and say what would do; the mission can ask for less: "
            f"placet reject {case.request_id} --reason R",
        )
    must_allow(case, "revise")
    done = decide(site, case, "revise", comments)
    _done(site, done, "commented", "placet writes a new revision", as_json=as_json)


@click.command("stop")
@ident_argument
@site_option
@json_option
def stop_command(site: Site, ident: str, as_json: bool) -> None:
    """Stop a mission at the next safe point: its plan goes back to Inbox/Plans."""
    case = site.case(ident)
    must_allow(case, "stop")
    then = "at the next safe point its plan goes back to Inbox/Plans"
    _done(site, decide(site, case, "stop"), "stopping", then, as_json=as_json)


def _done(site: Site, done: Done, what: str, then: str, *, as_json: bool) -> None:
    """Print a decision, `what`, and what follows from it."""
    out(done.path, {"path": done.path, "state": done.state}, as_json=as_json)
    say(saved(site, what, then) if done.is_pending else f"{what}; {then}")
