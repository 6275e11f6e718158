"""Manage who may sign approvals: `placet signer`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from placet.case.receipt import NAMESPACE as OF_RECEIPTS
from placet.cli.options import json_option, site_option
from placet.cli.terminal import agreed, out, say
from placet.client.signing import (
    accept_signers,
    accepted_signers,
    add_signer,
    daemon_signer,
    remove_signer,
    to_accept,
)
from placet.client.site import Site
from placet.client.texts import harmless
from placet.note.paths import show as visible
from placet.plan.allowed_signers import Signer, as_text


@click.group("signer")
def signer_command() -> None:
    """Who may sign approvals: the keys that were accepted on this machine."""


@signer_command.command("add")
@click.argument("name", metavar="NAME")
@click.argument("file", metavar="KEYFILE", type=click.Path(readable=False, path_type=Path))
@site_option
def signer_add_command(site: Site, name: str, file: Path) -> None:
    """Let the holder of an SSH key approve. KEYFILE is the public key."""
    click.echo(_line(add_signer(site, name, file)))
    if site.in_force().config.approval.signed:
        return
    say(
        "an approval needs no signature yet. To ask for one: placet config set approval.signed true"
    )


@signer_command.command("list")
@click.option("--lines", is_flag=True, help="Print a file for placet verify --signers.")
@site_option
@json_option
def signer_list_command(site: Site, lines: bool, as_json: bool) -> None:
    """List the signers that were accepted on this machine."""
    found = accepted_signers(site)
    own = daemon_signer(site)
    if lines:
        text = as_text(found).decode() + (own.line(OF_RECEIPTS) if own else "")
        click.echo(harmless(text))
        return
    facts = [
        {"name": one.name, "key": one.fingerprint, "origin": one.origin, "comment": one.comment}
        for one in found
    ]
    shown = [*map(_line, found)] or ["No signers."]
    if own is not None:
        shown.append(f"{_line(own)}  the daemon's own key, for receipts")
    out("\n".join(shown), facts, as_json=as_json)
    change = to_accept(site)
    if change.added or change.removed:
        say(
            "System/allowed_signers says something else. To see and accept it: placet signer accept"
        )


@signer_command.command("remove")
@click.argument("name", metavar="NAME")
@site_option
def signer_remove_command(site: Site, name: str) -> None:
    """Take a signer's keys away. A plan that they signed and that has not started comes back."""
    _print("removed", remove_signer(site, name))


@signer_command.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
@site_option
def signer_accept_command(site: Site, yes: bool) -> None:
    """Let the keys of System/allowed_signers approve on this machine. Shows them, and asks."""
    change = to_accept(site)
    if not (change.added or change.removed):
        say("All signers are accepted.")
        return
    _print("add", change.added)
    _print("remove", change.removed)
    if not (yes or agreed("Accept this on this machine?")):
        say("nothing was accepted")
        sys.exit(1)
    accept_signers(site, change)
    say("accepted")


def _print(what: str, signers: Sequence[Signer]) -> None:
    for one in signers:
        click.echo(f"{what:<8}{_line(one)}")


def _line(signer: Signer) -> str:
    page = f"passkey on {signer.origin}" if signer.origin else ""
    until = f"until {signer.before}" if signer.before else ""
    words = [signer.name, signer.fingerprint, page, signer.comment, until]
    return visible("  ".join(filter(None, words)))
