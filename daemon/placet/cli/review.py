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
from placet.cli.look import as_float, seen_now, since, text_of
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
    metavar="D",
    default="",
    help="Only if the plan is what has this digest (`placet show` has it), or the "
    "beginning of one.",
)
@site_option
@json_option
def approve_command(site: Site, ident: str, yes: bool, digest: str, as_json: bool) -> None:
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
        digest = digest or found["digest"]  # what was shown is what is approved
    path = approve(site, ident, digest)
    out(path, {"path": path}, as_json=as_json)
    say("approved; the daemon carries it out")
    say_if_down(site)


@click.command("retry")
@ident_argument
@click.option(
    "--comment", "comments", multiple=True, metavar="C", help="What to do differently; repeatable."
)
@site_option
@json_option
def retry_command(site: Site, ident: str, comments: tuple[str, ...], as_json: bool) -> None:
    """Ask for a new plan of a request that failed or was rejected.

    Who writes it is told what went wrong, and your comments.
    """
    path = retry(site, ident, comments)
    out(path, {"path": path}, as_json=as_json)
    say("asked for; a new plan is written, and waits for you then")
    say_if_down(site)


@click.command("reject")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the note and the journal."
)
@site_option
@json_option
def reject_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Reject a plan: move it to Inbox/Rejected, with the reason."""
    path = reject(site, ident, reason)
    out(path, {"path": path}, as_json=as_json)
    say_if_down(site)


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
def revise_command(site: Site, ident: str, comments: tuple[str, ...], as_json: bool) -> None:
    """Ask for changes in a plan: write comments into it and set it to needs_revision."""
    path = revise(site, ident, comments)
    out(path, {"path": path}, as_json=as_json)
    say("the agent answers with a new revision")
    say_if_down(site)


@click.command("stop")
@ident_argument
@site_option
@json_option
def stop_command(site: Site, ident: str, as_json: bool) -> None:
    """Stop a mission at the next safe point: move its plan back to Inbox/Plans."""
    path = stop(site, ident)
    out(path, {"path": path}, as_json=as_json)
    say("taken back; a mission that has begun stops at the next safe point, with a report")
    say_if_down(site)


def proposal(site: Site, ident: str) -> dict[str, Any]:
    """Return what `approve` would approve: the plan's title, where it works, what it may do, what stands out, and its digest.

    Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    from placet.agent.prompts import plan_of
    from placet.host.config import portal_path

    with site.reader(ident) as reader:
        case = find(reader, ident)
    _must_await(case, "approved")
    with Vault(site.vault) as folder:
        raw = text_of(folder, case.plan_path)
    if raw is None:
        raise not_there_any_more(case)
    note = _approvable(case, raw)
    config = site.in_force().config
    plan = plan_of(raw)
    portal = str(note.meta.get("portal") or "")
    place = (
        str(portal_path(site.vault, config, portal))
        if not portal or portal in config.portals
        else ""
    )
    scope = plan.scope
    return {
        "request_id": case.request_id,
        "title": plan.title,
        "digest": note.digest,
        "edited": note.digest != case.plan_digest,
        "portal": portal,
        "repository": place,
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


def approve(site: Site, ident: str, bound: str = "") -> str:
    """Move a plan to System/Active, naming who approves; return where it is now.

    `bound` is the digest of what was read, or its beginning: a plan that says something else by now
    is not approved. Raises UserError for a plan that the daemon would refuse, with the same words.
    """
    with site.reader(ident) as reader:
        case = find(reader, ident)
    _must_await(case, "approved")
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
                f"{case.plan_path} is not what you read: its digest is {note.digest[:12]}, not {bound[:12]}.",
                f"Somebody changed it. Read it as it is now: placet show {case.request_id}",
            )
        return raw

    return change_note(
        site,
        case,
        approved,
        f"{Folder.ACTIVE}/{active_name(case.request_id)}",
        word=_says(site, case, "approve"),
    )


def _approvable(case: Case, raw: bytes) -> NoteSeen:
    from placet.agent.prompts import plannable

    note = look_at(case.plan_path, raw, "")
    if why := note.problem or lost_keys(case, note) or refusal(case, note, plannable()):
        raise UserError(
            f"{case.plan_path} cannot be approved: {why}", f"Read it: placet show {case.request_id}"
        )
    return note


def retry(site: Site, ident: str, remarks: Sequence[str]) -> str:
    """Ask for a new plan of a request that failed or was rejected; return the request's path.

    The remarks are written into the request, where the next planning reads them with it.
    """
    if not all(remark.strip() for remark in remarks):
        raise UserError(
            "The comment is empty.",
            "Say what to do differently: --comment 'leave the tests alone'",
            exit_code=2,
        )
    with Vault(site.vault) as folder, site.reader(ident) as reader:
        seen = seen_now(site, folder, reader, [found := find(reader, ident)])
        case = seen.cases[found.trace_id]
    if case.state not in (State.FAILED, State.REJECTED):
        if (undecided := seen.undecided.get(case.trace_id)) is not None:
            raise UserError(
                f"{since(replace(undecided, at=''))}.",
                "The daemon runs and looks within seconds; ask again then."
                if site.daemon
                else "Start the daemon, and ask again then: placet run",
                exit_code=3,
            )
        helps = (
            f"Ask for changes: placet revise {case.request_id} --comment C"
            if case.state is State.REVIEW
            else "Drop a new request: placet submit"
            if case.state in (State.COMPLETED, State.WITHDRAWN)
            else f"See why it is where it is: placet why {case.request_id}"
        )
        raise UserError(
            f"{case.request_id} is {case.state}, so there is nothing to try again.",
            helps,
            exit_code=3,
        )
    if not case.request_path:
        raise UserError(
            f"The request of {case.request_id} was taken away.",
            f"Drop it again, or go on from where it broke: placet why {case.request_id} --request",
            exit_code=3,
        )
    who, at = user(), local(Clock().now())

    def asking(raw: bytes) -> bytes:
        body = text = read_note(raw).body
        for remark in remarks:
            text = with_comment(text, remark, who, at)
        return stamp(raw[: len(raw) - len(body.encode())] + text.encode(), {"status": "pending"})

    target = case.request_path
    if not target.startswith(f"{Folder.REQUESTS}/"):
        target = f"{Folder.REQUESTS}/{PurePosixPath(target).name}"
    return change_note(
        site,
        case,
        asking,
        target,
        of=case.request_path,
        word=lambda raw: leave_word(
            site.state.acts,
            case.trace_id,
            Word("retry", digest(raw, REQUEST_STAMPS), user(), "cli"),
        ),
    )


def reject(site: Site, ident: str, reason: str) -> str:
    """Move a plan to Inbox/Rejected with the reason; return where it is now."""
    if not reason.strip():
        raise UserError("The reason is empty.", "Say why: --reason 'it is too broad'", exit_code=2)
    with site.reader(ident) as reader:
        case = find(reader, ident)
    _must_await(case, "rejected")
    return change_note(
        site,
        case,
        lambda raw: stamp(raw, {"rejection_reason": reason}),
        f"{Folder.REJECTED}/{rejected_name(case.request_id)}",
        word=_says(site, case, "reject"),
    )


def revise(site: Site, ident: str, remarks: Sequence[str]) -> str:
    """Write review comments into a plan and ask for a revision; return the plan's path."""
    if not all(remark.strip() for remark in remarks):
        raise UserError(
            "The comment is empty.",
            "Say what to change: --comment 'leave the tests alone'",
            exit_code=2,
        )
    with site.reader(ident) as reader:
        case = find(reader, ident)
    if case.state not in (State.REVIEW, State.REVISING):
        raise UserError(
            f"{case.request_id} is {case.state}, so there is no plan to comment on.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    who = user()
    at = local(Clock().now())

    def commented(raw: bytes) -> bytes:
        body = text = read_note(raw).body
        for remark in remarks:
            text = with_comment(text, remark, who, at)
        head = raw[: len(raw) - len(body.encode())]
        return stamp(head + text.encode(), {"status": "needs_revision"})

    return change_note(site, case, commented, case.plan_path, word=_says(site, case, "revise"))


def stop(site: Site, ident: str) -> str:
    """Take an approved or running plan back to Inbox/Plans, which stops its mission.

    Return where it is now.
    """
    with site.reader(ident) as reader:
        case = find(reader, ident)
    if case.state not in (State.APPROVED, State.RUNNING):
        raise UserError(
            f"{case.request_id} is {case.state}, so there is nothing to stop.",
            f"Look at it: placet show {case.request_id}",
            exit_code=3,
        )
    return change_note(site, case, lambda raw: raw, f"{Folder.PLANS}/{plan_name(case.request_id)}")


def _must_await(case: Case, done: str) -> None:
    if case.state in (State.REVIEW, State.REVISING) or (
        case.state is State.FAILED and case.plan_path
    ):
        return
    can_be_stopped = case.state in (State.APPROVED, State.RUNNING) and done == "rejected"
    helps = (
        f"Take it back first: placet stop {case.request_id}"
        if can_be_stopped
        else f"See why: placet why {case.request_id}"
    )
    raise UserError(
        f"{case.request_id} is {case.state}, so there is no plan that could be {done}.",
        helps,
        exit_code=3,
    )


def _says(
    site: Site, case: Case, what: Literal["approve", "reject", "revise"]
) -> Callable[[bytes], AbstractContextManager[None]]:
    """Return what leaves word for the daemon that this user decides so of the text that a plan gets."""
    return lambda raw: leave_word(
        site.state.acts, case.trace_id, Word(what, plan_digest(raw), user(), "cli")
    )


def proposal_text(found: Mapping[str, Any]) -> str:
    """Return what an approval would allow, for who is asked."""

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
    base = f", from {visible(found['base'])}" if found["base"] else ""
    lines = [
        colour(visible(found["title"]), "white", bold=True) + f"  ({visible(found['request_id'])})",
        f"where     {visible(found['repository']) or 'a portal that there is not: ' + visible(found['portal'])}",
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
