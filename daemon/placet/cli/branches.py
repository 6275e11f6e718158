"""Show the work of a mission and take it over: `placet diff`, `merge`, `undo`, `drop`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import agreed, echo, out, say
from placet.client.branches import await_daemon, diff, drop, merge, mission_of, undo
from placet.client.decisions import must_say_something
from placet.client.site import Site
from placet.client.texts import harmless


@click.command("diff")
@ident_argument
@site_option
def diff_command(site: Site, ident: str) -> None:
    """Show what a mission changed, as a patch; for a pipe or a file one that `git apply` takes."""
    text, patch = diff(site, ident)
    # A program gets every byte, for `git apply`; a person nothing that could hide a line.
    click.echo(harmless(text) if sys.stdout.isatty() else patch, nl=False, color=True)


@click.command("merge")
@ident_argument
@click.option("--here", is_flag=True, help="Into the branch you are on, whichever it is.")
@click.option("--yes", is_flag=True, help="Do not ask, also if a planned command failed last.")
@site_option
@json_option
def merge_command(site: Site, ident: str, here: bool, yes: bool, as_json: bool) -> None:
    """Merge a mission's branch into the branch you have checked out, if that checkout is clean."""

    def ask(doubts: Sequence[str]) -> bool:
        return yes or (sys.stdin.isatty() and _agreed("\n".join(doubts), "Merge it all the same?"))

    before, branch, _ = mission_of(site, ident)
    sha, onto = merge(site, ident, here=here, ask=ask)
    what = (
        f"merged into {onto}: {sha[:12]} (the merge commit is not signed; your hooks did not run)."
        if branch.portal
        else f"your notes have it now: {sha[:12]} on {onto}."
    )
    say(f"{what} To undo it: placet undo {ident}")
    out(sha, {"commit": sha, "branch": onto}, as_json=as_json)
    await_daemon(site, before)


@click.command("pr")
@ident_argument
@click.option(
    "--receipt", is_flag=True, help="Push the receipt, too. Its readers see the plan's whole text."
)
@site_option
@json_option
def pr_command(site: Site, ident: str, receipt: bool, as_json: bool) -> None:
    """Push a mission's branch as you, and open a draft pull request for it.

    It needs `gh`, `glab` or `tea`, logged in at the remote's host; else it prints the address that
    the remote gives. It never forces a push, and merges nothing.
    """
    from placet.client.pull_request import push_for_review

    def progress(line: str) -> None:
        if sys.stderr.isatty():  # in place of the line before it
            click.echo(f"{harmless(line)}\x1b[K\r", err=True, nl=False)

    found = push_for_review(site, ident, say, progress, receipt=receipt)
    say(f"pushed {found.branch}{' and its receipt' if receipt else ''} to {found.remote}.")
    if found.pr:
        say("a draft pull request is open:" if found.opened else "its pull request:")
    elif found.create:
        say("open a pull request here:")
    out(found.pr or found.create, found, as_json=as_json)


@click.command("undo")
@ident_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
@json_option
def undo_command(site: Site, ident: str, yes: bool, as_json: bool) -> None:
    """Drop a mission's branch, or undo its merge with a new commit."""
    before = site.case(ident)
    made, onto = undo(site, ident, lambda what: yes or _agreed(what))
    say(f"undone, by this commit on {onto}:" if onto else _DROPPED)
    out(made, {"commit": made, "branch": onto} if onto else {"kept": made}, as_json=as_json)
    await_daemon(site, before)


_DROPPED = "dropped; its commits are kept at this ref:"


def _agreed(what: str, question: str = "Do that?") -> bool:
    echo(harmless(what), err=True)
    return agreed(question)


@click.command("drop")
@ident_argument
@click.option(
    "--reason", required=True, metavar="R", help="Why; it goes into the report and the journal."
)
@site_option
@json_option
def drop_command(site: Site, ident: str, reason: str, as_json: bool) -> None:
    """Delete a mission's branch; its commits stay reachable at a ref."""
    must_say_something("reason", [reason], "Say why", "no longer needed")
    kept = drop(site, ident, reason)
    say(_DROPPED)
    out(kept, {"kept": kept}, as_json=as_json)
