"""Check the receipt of a mission: `placet verify`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click

from placet.case.case import Case
from placet.case.receipt import as_json as as_json_text
from placet.cli.options import complete_ids, json_option, site_option
from placet.cli.terminal import out
from placet.client.branches import repo_of
from placet.client.site import Site, here
from placet.client.texts import harmless
from placet.client.verify import NotHeld, Verified, verify_receipt
from placet.errors import UserError
from placet.git.repository import is_repository, open_repo
from placet.git.run import Repo
from placet.host.state import expand_home
from placet.plan.allowed_signers import MAX_BYTES
from placet.wording import counted

_REF = re.compile(r".*/.*|FETCH_HEAD|[0-9a-f]{40,64}")


@click.command("verify")
@click.argument("receipt", metavar="ID|REF", shell_complete=complete_ids)
@click.option(
    "--signers",
    required=True,
    metavar="FILE",
    type=click.Path(readable=False, path_type=Path),
    help="Whose signatures you trust, in the format of OpenSSH's allowed_signers.",
)
@click.option(
    "--at",
    "merged",
    metavar="COMMIT",
    help="Check this squashed or rebased merge, too.",
)
@click.option(
    "--repository", metavar="DIR", default="", help="Where REF is; else the folder you are in."
)
@site_option
@json_option
def verify_command(
    site: Site, receipt: str, signers: Path, merged: str | None, repository: str, as_json: bool
) -> None:
    """Check who approved a mission, and that its commits are inside what was approved.

    REF is a receipt, as refs/placet/receipts/… in any clone. Exit code 1: the message says what
    does not hold.
    """
    path = expand_home(str(signers))
    try:
        with path.open("rb") as file:
            listed = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}",
            "Name a file with the signers whom you trust.",
            exit_code=2,
        ) from error
    repo, rev, case = _place(site, receipt, repository)
    trace_id, branch = (case.trace_id, case.outcome.branch) if case is not None else ("", "")
    try:
        found = verify_receipt(repo, rev, listed, merged, trace_id=trace_id, branch=branch)
    except NotHeld as why:
        out(f"Does not hold: {why}", {"holds": False, "why": str(why)}, as_json=as_json)
        sys.exit(1)
    stated = json.loads(as_json_text(found.receipt))
    data = {"holds": True, "signers": found.signers, "receipt": stated}
    out(_text(found), data, as_json=as_json)


def _place(site: Site, receipt: str, repository: str) -> tuple[Repo, str, Case | None]:
    """Return the repository and the receipt that an argument names, and the case of an ID."""
    if repository or _REF.fullmatch(receipt):
        start = expand_home(repository).absolute() if repository else here()
        above = (start, *(() if repository else start.parents))
        top = next(filter(is_repository, above), None)
        if top is None:
            raise UserError(
                f"{start} is not a git repository.",
                "Go to a clone, or name one: --repository DIR",
                exit_code=2,
            )
        return open_repo(top), receipt, None
    case = site.case(receipt)
    if not case.outcome.receipt:
        raise UserError(
            f"{case.request_id} has no receipt: its last mission had no signed approval.",
            f"Look at it: placet show {case.request_id}",
        )
    return repo_of(site, case, case.request.portal), case.outcome.receipt, case


def _text(found: Verified) -> str:
    one = found.receipt
    lines = [
        f"Holds: {one.request_id}, trace {one.trace_id}, ended: {one.ended}",
        *(f"approved by {signer}" for signer in found.signers),
        f"from {one.base[:12]} to {one.tip[:12]}: {counted(len(one.commits), 'commit')}, "
        f"{counted(len(one.files), 'file')}, all inside the approved scope",
        *([f"the same change as in the commit {found.merged[:12]}"] if found.merged else []),
    ]
    return harmless("\n".join(lines))
