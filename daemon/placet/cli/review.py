"""A person's decisions on a plan: approve, reject, revise, retry, stop."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import PurePosixPath
from shlex import join
from typing import Any, Literal

import click

from placet.cli.gestures import change_note, not_there_any_more, say_if_down, user
from placet.cli.glance import glance
from placet.cli.look import as_float, text_of
from placet.cli.site import Site, find, ident_argument, json_option, site_option
from placet.cli.terminal import colour, echo, out, say
from placet.core.errors import UserError
from placet.core.life.case import Case, NoteSeen, State
from placet.core.life.notice import lost_keys
from placet.core.life.observe import look_at, refusal
from placet.core.life.plan_note import plan_digest
from placet.core.text.comments import with_comment
from placet.core.text.dangers import dangers
from placet.core.text.names import Folder, active_name, plan_name, rejected_name
from placet.core.text.names import show as visible
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
    if not yes and sys.stdin.isatty():
        found = proposal(site, ident)
        echo(proposal_text(found), err=True)
        if not click.confirm("Approve it?", err=True):
            raise UserError(
                "Not approved; nothing was changed.", f"Read all of it: placet show {ident}"
            )
        bound = bound or found["digest"]  # what was shown is what is approved
    case = _awaiting(site, ident, "approved")
    if bound and not re.fullmatch("[0-9a-f]{8,64}", bound):
        raise UserError(
            f"{bound!r} is no digest.",
            f"Give at least eight of its digits; they are in: placet show {case.request_id}",
            exit_code=2,
        )

    def approved(raw: bytes) -> bytes:
        note = _approvable(case, raw)
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


def _approvable(case: Case, raw: bytes) -> NoteSeen:
    """Return a plan as it was read; raises UserError where the daemon would refuse it, and why."""
    from placet.agent.prompts import plannable

    note = look_at(case.plan_path, raw, "")
    if why := note.problem or lost_keys(case, note) or refusal(case, note, plannable()):
        raise UserError(
            f"{case.plan_path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


def proposal(site: Site, ident: str) -> dict[str, Any]:
    """Return what `approve` would approve.

    That is the plan's title, where it works, what it may do, what stands out, and its digest.
    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.agent.prompts import plan_of
    from placet.host.config import portal_path

    case = _awaiting(site, ident, "approved")
    with Vault(site.vault) as folder:
        raw = text_of(folder, case.plan_path)
    if raw is None:
        raise not_there_any_more(case)
    note = _approvable(case, raw)
    plan, config = plan_of(raw), site.in_force().config
    portal = str(note.meta.get("portal") or "")
    is_known = not portal or portal in config.portals
    scope = plan.scope
    return {
        "request_id": case.request_id,
        "title": plan.title,
        "digest": note.digest,
        "edited": note.digest != case.plan_digest,
        "portal": portal,
        "repository": str(portal_path(site.vault, config, portal)) if is_known else "",
        "branch": f"feat/{case.request_id}-{case.trace8}",
        "base": case.base_branch or str(note.meta.get("base_commit") or "")[:12],
        "steps": [step.title for step in plan.steps],
        "write": list(scope.write),
        "run": [join(argv) for argv in scope.run],
        "network": scope.network,
        "shell": scope.shell,
        "budget_usd": as_float(scope.budget_usd),
        "dangers": dangers(scope),
        "risks": list(plan.risks),
    }


def proposal_text(found: Mapping[str, Any]) -> str:
    """Return a proposal for the person who is asked to approve it."""

    def listed(name: str, items: Sequence[str]) -> list[str]:
        return [
            f"{name if not number else '':<10}{visible(item)}"
            for number, item in enumerate(items or ["nothing"])
        ]

    budget = (
        "no limit of its own"
        if found["budget_usd"] is None
        else f"at most ${found['budget_usd']:.2f}"
    )
    where = (
        visible(found["repository"]) or f"a portal that there is not: {visible(found['portal'])}"
    )
    base = f", from {visible(found['base'])}" if found["base"] else ""
    lines = [
        colour(visible(found["title"]), "white", bold=True) + f"  ({visible(found['request_id'])})",
        f"where     {where}",
        f"branch    {visible(found['branch'])}{base}",
        *(
            f"{'step' if n == 1 else '':<10}{n}. {visible(title)}"
            for n, title in enumerate(found["steps"], 1)
        ),
        *listed("write", found["write"]),
        *listed("run", found["run"]),
        f"network   {'yes' if found['network'] else 'no'}",
        f"shell     {'yes' if found['shell'] else 'no'}",
        f"cost      {budget}",
        *([f"edited    {colour('since placet wrote it', 'yellow')}"] if found["edited"] else []),
        *(
            f"{colour('danger', 'red', bold=True)}    {visible(sentence)}"
            for sentence in found["dangers"]
        ),
        f"digest    {found['digest'][:16]}",
    ]
    return "\n".join(lines)
