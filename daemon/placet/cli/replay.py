"""Run a mission again from its record: `placet replay`."""

from __future__ import annotations

import sys

import click

from placet.agent.replay import Replayed
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import out
from placet.client.replay import replay_mission
from placet.client.site import Site
from placet.note.paths import show as visible
from placet.wording import counted


@click.command("replay")
@ident_argument
@site_option
@json_option
def replay_command(site: Site, ident: str, as_json: bool) -> None:
    """Repeat a mission from its record, and compare the result with its branch.

    It needs no model and no network.
    """
    found = replay_mission(site, site.case(ident))
    out(replay_text(found), found, as_json=as_json)
    if not found.equal:
        sys.exit(1)


def replay_text(found: Replayed) -> str:
    """Return `placet replay` for people."""
    done = f"{counted(found.calls, 'call')} run again, {counted(found.steps, 'step')} compared"
    if found.difference is None:
        return f"equal: {done}; tree {found.tree} of commit {found.commit[:12]}"
    where = found.difference
    step = f"step {where.step}" if where.step else "what was committed after the last step"
    return "\n".join(
        [
            f"different from {step} on (commit {where.commit[:12]}): {done}",
            *(f"  {visible(path)}" for path in where.paths),
        ]
    )
