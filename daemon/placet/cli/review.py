"""A person's decisions on a plan: approve, reject, revise, retry, stop."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

import click

from placet.cli.gestures import change_note, say_if_down, user
from placet.cli.glance import glance
from placet.cli.proposal import approvable, proposal, proposal_text
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import echo, out, say
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.life.plan_note import plan_digest
from placet.core.text.comments import with_comment
from placet.core.text.names import Folder, active_name, plan_name, rejected_name
from placet.core.text.note import REQUEST_STAMPS, digest, read_note, stamp
from placet.core.wording import local
from placet.files.vault import Vault
from placet.host.acts import Word, leave_word
from placet.host.clock import Clock


@click.command("approve")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
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
def approve_command(site: Site, ident: str, yes: bool, bound: str, as_json: bool) -> None:
    """Approve a plan: move it to System/Active, as you would by hand.

    On a terminal it shows what that allows, and asks.
    """
    case = _awaiting(site, ident, "approved")
    if not yes and sys.stdin.isatty():
        found = proposal(site, case)
        echo(proposal_text(found), err=True)
        if not click.confirm("Approve it?", err=True):
            raise UserError(
                "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
            )
        bound = bound or found["digest"]  # what was shown is what is approved
    if bound and not re.fullmatch("[0-9a-f]{8,64}", bound):
        raise UserError(
            f"{bound!r} is no digest.",
            f"Give at least eight of its digits; they are in: placet show {case.request_id}",
            exit_code=2,
        )

    def approved(raw: bytes) -> bytes:
        note = approvable(case, raw)
        if not note.digest.startswith(bound):
            raise UserError(
                f"{case.plan_path} is not what you read: its digest is {note.digest[:12]}, "
                f"not {bound[:12]}.",
                f"Somebody changed it. Read it as it is now: placet show {case.request_id}",
            )
        return raw

    target = f"{Folder.ACTIVE}/{active_name(case.request_id)}"
    path = change_note(site, case, approved, target, word=_word(site, case, "approve", plan_digest))
    _done(site, path, "approved; the daemon carries it out", as_json=as_json)


@click.command("retry")
@ident_argument
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@site_option
@json_option
def retry_command(site: Site, ident: str, comments: Sequence[str], as_json: bool) -> None:
    """Ask for a new plan of a request that failed or was rejected.

    Who writes it is told what went wrong, and your comments.
    """
    _must_say_something("comment", comments, "Say what to do differently", "leave the tests alone")
    case = _retriable(site, ident)
    target = case.request_path
    if not target.startswith(f"{Folder.REQUESTS}/"):
        target = f"{Folder.REQUESTS}/{PurePosixPath(target).name}"
    # The comments are written into the request, where the next planning reads them with it.
    path = change_note(
        site,
        case,
        lambda raw: _commented(raw, comments, "pending"),
        target,
        of=case.request_path,
        word=_word(site, case, "retry", lambda raw: digest(raw, REQUEST_STAMPS)),
    )
    _done(site, path, "asked for; a new plan is written, and waits for you then", as_json=as_json)


@click.command("reject")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@site_option
@json_option
def reject_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Reject a plan: move it to Inbox/Rejected, with the reason."""
    _must_say_something("reason", [reason], "Say why", "it is too broad")
    case = _awaiting(site, ident, "rejected")
    path = change_note(
        site,
        case,
        lambda raw: stamp(raw, {"rejection_reason": reason}),
        f"{Folder.REJECTED}/{rejected_name(case.request_id)}",
        word=_word(site, case, "reject", plan_digest),
    )
    _done(site, path, as_json=as_json)


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
    """Ask for changes in a plan: write comments into it and set it to needs_revision."""
    _must_say_something("comment", comments, "Say what to change", "leave the tests alone")
    case = site.case(ident)
    _must_be(case, (State.REVIEW, State.REVISING), "no plan to comment on")
    path = change_note(
        site,
        case,
        lambda raw: _commented(raw, comments, "needs_revision"),
        case.plan_path,
        word=_word(site, case, "revise", plan_digest),
    )
    _done(site, path, "the agent answers with a new revision", as_json=as_json)


@click.command("stop")
@ident_argument
@site_option
@json_option
def stop_command(site: Site, ident: str, as_json: bool) -> None:
    """Stop a mission at the next safe point: move its plan back to Inbox/Plans."""
    case = site.case(ident)
    _must_be(case, (State.APPROVED, State.RUNNING), "nothing to stop")
    target = f"{Folder.PLANS}/{plan_name(case.request_id)}"
    path = change_note(site, case, lambda raw: raw, target)
    _done(
        site,
        path,
        "taken back; a mission that has begun stops at the next safe point, with a report",
        as_json=as_json,
    )


def _done(site: Site, path: str, sentence: str = "", *, as_json: bool) -> None:
    out(path, {"path": path}, as_json=as_json)
    if sentence:
        say(sentence)
    say_if_down(site)


def _must_say_something(what: str, said: Sequence[str], helps: str, example: str) -> None:
    if not all(one.strip() for one in said):
        raise UserError(f"The {what} is empty.", f"{helps}: --{what} '{example}'", exit_code=2)


def _must_be(case: Case, states: Sequence[State], why_not: str) -> None:
    if case.state not in states:
        raise UserError(
            f"{case.request_id} is {case.state}, so there is {why_not}.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )


def _awaiting(site: Site, ident: str, done: str) -> Case:
    """Return a case whose plan can be `done`; raises UserError (exit code 3) for any other."""
    case = site.case(ident)
    if case.state in (State.REVIEW, State.REVISING) or (
        case.state is State.FAILED and case.plan_path
    ):
        return case
    can_be_stopped = case.state in (State.APPROVED, State.RUNNING) and done == "rejected"
    raise UserError(
        f"{case.request_id} is {case.state}, so there is no plan that could be {done}.",
        f"Take it back first: placet stop {case.request_id}"
        if can_be_stopped
        else f"See why: placet why {case.request_id}",
        exit_code=3,
    )


def _retriable(site: Site, ident: str) -> Case:
    """Return a failed or rejected case whose request is there; raises UserError for any other."""
    with Vault(site.vault) as folder, site.reader(ident) as reader:
        seen = glance(site, folder, reader, [found := find(reader, ident)])
    case = seen.cases[found.trace_id]
    undecided = seen.undecided.get(case.trace_id)
    is_over = case.state in (State.FAILED, State.REJECTED)
    if is_over and case.request_path:
        return case
    what = f"{case.request_id} is {case.state}, so there is nothing to try again."
    helps = f"See why it is where it is: placet why {case.request_id}"
    if is_over:
        what = f"The request of {case.request_id} was taken away."
        helps = (
            f"Drop it again, or go on from where it broke: placet why {case.request_id} --request"
        )
    elif undecided is not None:
        what = f"{replace(undecided, at='').sentence}."
        helps = (
            "The daemon runs and looks within seconds; ask again then."
            if site.daemon
            else "Start the daemon, and ask again then: placet run"
        )
    elif case.state is State.REVIEW:
        helps = f"Ask for changes: placet revise {case.request_id} --comment C"
    elif case.state in (State.COMPLETED, State.WITHDRAWN):
        helps = "Drop a new request: placet submit"
    raise UserError(what, helps, exit_code=3)


def _commented(raw: bytes, comments: Sequence[str], status: str) -> bytes:
    body = text = read_note(raw).body
    at = local(Clock().now())
    for comment in comments:
        text = with_comment(text, comment, user(), at)
    head = raw[: len(raw) - len(body.encode())]
    return stamp(head + text.encode(), {"status": status})


def _word(
    site: Site,
    case: Case,
    what: Literal["approve", "reject", "revise", "retry"],
    digest_of: Callable[[bytes], str],
) -> Callable[[bytes], AbstractContextManager[None]]:
    """Return a function that tells the daemon who decided `what` of the text that a note gets."""
    return lambda raw: leave_word(
        site.state.acts, case.trace_id, Word(what, digest_of(raw), user(), "cli")
    )
