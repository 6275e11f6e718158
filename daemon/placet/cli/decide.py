"""A person's decisions by command: approve, reject, answer, revise, retry, stop."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import click

from placet.case.case import State
from placet.case.explain import stands
from placet.cli.again import to_retry
from placet.cli.asked import asks_for_more, wider_scope
from placet.cli.decisions import (
    Done,
    answer,
    approve,
    refuse_wider,
    reject,
    retry,
    revise,
    stop,
    widen,
)
from placet.cli.eligible import awaiting, must_be
from placet.cli.gestures import must_say_something, saved
from placet.cli.proposal import plan_text, proposal, proposal_text
from placet.cli.site import Site, ident_argument, json_option, site_option
from placet.cli.terminal import echo, out, say
from placet.errors import UserError


@click.command("approve")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--remark",
    "remarks",
    multiple=True,
    metavar="R",
    help="Guidance for the agent that widens nothing; it is written into the plan. Repeatable.",
)
@click.option(
    "--digest",
    "bound",
    metavar="D",
    default="",
    help="Only if the plan is what has this digest (`placet show` has it), or the "
    "beginning of one.",
)
@site_option
@json_option
def approve_command(
    site: Site, ident: str, yes: bool, remarks: Sequence[str], bound: str, as_json: bool
) -> None:
    """Approve a plan: the daemon moves it to System/Active and runs it.

    On a terminal it shows what that allows, and asks. Elsewhere it needs --yes.
    """
    must_say_something("remark", remarks, "Say what to mind", "keep it short")
    if bound and not re.fullmatch("[0-9a-f]{8,64}", bound):
        raise UserError(
            f"{bound!r} is no digest.",
            f"Give at least eight of its digits; they are in: placet show {ident}",
            exit_code=2,
        )
    case = awaiting(site, ident, "approved")
    asks = not yes
    if asks and not sys.stdin.isatty():
        raise UserError(
            "`placet approve` asks, and this is not a terminal.",
            f"To approve without being asked: placet approve {case.request_id} --yes",
            exit_code=2,
        )
    if asks_for_more(case):
        if remarks:
            raise UserError(
                "A wider scope is approved as it is, without a remark.",
                f"Or say what would do: placet reject {case.request_id} --reason R",
                exit_code=2,
            )
        # what was shown is what is approved
        seen = _confirmed(ident, *wider_scope(site, case)) if asks else None
        done = widen(site, case, bound=bound, seen=seen)
        _done(site, done, "approved; the mission goes on with the wider scope", as_json=as_json)
        return
    seen = None
    if asks:
        seen = plan_text(site, case)
        _confirmed(ident, proposal_text(proposal(site, case, seen)), seen)
    done = approve(site, case, remarks, bound=bound, seen=seen)
    _done(site, done, "approved; the daemon carries it out", as_json=as_json)


def _confirmed(ident: str, shown: str, seen: bytes) -> bytes:
    """Show what would be approved and ask; return the text that was seen."""
    echo(shown, err=True)
    if not click.confirm("Approve it?", err=True):
        raise UserError(
            "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
        )
    return seen


@click.command("retry")
@ident_argument
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@site_option
@json_option
def retry_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for a new plan of a request that ended, in whatever way.

    Who writes it is told what went wrong, and your comments.
    """
    must_say_something("comment", comments, "Say what to do differently", "leave the tests alone")
    case, source = to_retry(site, ident)
    done = retry(site, case, source, comments)
    _done(site, done, "asked for a new plan; you will approve it", as_json=as_json)


@click.command("reject")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@site_option
@json_option
def reject_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Reject a plan: the daemon moves it to Inbox/Rejected, with the reason."""
    must_say_something("reason", [reason], "Say why", "it is too broad")
    case = awaiting(site, ident, "rejected")
    if asks_for_more(case):
        done = refuse_wider(site, case, reason)
        _done(site, done, "rejected; the mission goes on, and is told why", as_json=as_json)
        return
    _done(site, reject(site, case, reason, seen=None), "rejected", as_json=as_json)


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
            f"{stands(case)}, so nothing is asked.", f"See why: placet why {case.request_id}"
        )
    if case.asking.amended:
        raise UserError(
            f"{case.request_id} asks for a wider scope, which is approved or rejected: "
            f"{case.asking.path}",
            f"Read it, then: placet approve {case.request_id}, or: "
            f"placet reject {case.request_id} --reason R",
        )
    done = answer(site, case, text)
    _done(site, done, "answered; the work goes on with that", as_json=as_json)


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
    must_be(case, (State.REVIEW, State.REVISING), "no plan to comment on")
    done = revise(site, case, comments, seen=None)
    _done(site, done, "the agent answers with a new revision", as_json=as_json)


@click.command("stop")
@ident_argument
@site_option
@json_option
def stop_command(site: Site, ident: str, as_json: bool) -> None:
    """Stop a mission at the next safe point: its plan goes back to Inbox/Plans."""
    case = site.case(ident)
    must_be(case, (State.APPROVED, State.RUNNING), "nothing to stop")
    _done(
        site,
        stop(site, case),
        "taken back; a mission that has begun stops at the next safe point, with a report",
        as_json=as_json,
    )


def _done(site: Site, done: Done, sentence: str, *, as_json: bool) -> None:
    """Print what came of a decision."""
    out(done.path, {"path": done.path, "state": done.state}, as_json=as_json)
    say(saved(site) if done.is_pending else sentence)
