"""Run a mission again from its record: `placet replay`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from placet.activity import Action
from placet.agent.ports import Bounds
from placet.agent.prompts import plan_of
from placet.agent.record import PLACE, Recorded
from placet.agent.replay import replay
from placet.case.case import Case
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import out, say
from placet.client.site import Site
from placet.errors import UserError
from placet.host.accepted import in_force
from placet.host.state import vault_state
from placet.journal.reader import open_reader
from placet.loop.build import own_secrets, sandbox_level
from placet.note.paths import show as visible
from placet.wording import counted


@click.command("replay")
@ident_argument
@site_option
@json_option
def replay_command(site: Site, ident: str, as_json: bool) -> None:
    """Carry a mission out again from its record, and compare the result with its branch.

    That takes neither a model nor the network.
    """
    found = replay_mission(site.vault, site.env, site.case(ident), say)
    out(replay_text(found), found, as_json=as_json)
    if not found["equal"]:
        sys.exit(1)


def replay_mission(
    vault: Path, env: Mapping[str, str], case: Case, say: Callable[[str], None]
) -> dict[str, Any]:
    """Carry a mission out again from its record and compare; return the result as plain data.

    Raises UserError if the case has no mission, or it cannot be replayed.
    """
    state = vault_state(vault, env)
    config = in_force(vault, env).config
    with open_reader(state.journal) as reader:
        # The case no longer has the approved text: a mission uses its approval up. The journal has
        # it.
        ran = [
            row.details["digest"]
            for row in reader.activity(case.trace_id, limit=10_000)
            if row.action_type in (Action.EXECUTION_STARTED, Action.PLAN_AMENDED)
        ]
        text = reader.text(ran[-1]) if ran else None
        for attempt in range(case.generation, -1, -1):
            record = Recorded()
            record.take(reader.records(case.trace_id, attempt))
            if record.has(PLACE):
                break
    if text is None:
        raise UserError(
            f"{case.request_id} never ran, so there is nothing to replay.",
            "See: placet status",
        )
    plan = plan_of(text)
    bounds = Bounds(vault, config, sandbox_level(config, say), own_secrets(env))
    return asdict(replay(bounds, state.worktrees, case, plan, record))


def replay_text(found: Mapping[str, Any]) -> str:
    """Return `placet replay` for people."""
    done = f"{counted(found['calls'], 'call')} run again, "
    done += f"{counted(found['steps'], 'step')} compared"
    if found["equal"]:
        return f"equal: {done}; tree {found['tree']} of commit {found['commit'][:12]}"
    where = found["difference"]
    step = f"step {where['step']}" if where["step"] else "what was committed after the last step"
    return "\n".join(
        [
            f"different from {step} on (commit {where['commit'][:12]}): {done}",
            *(f"  {visible(path)}" for path in where["paths"]),
        ]
    )
