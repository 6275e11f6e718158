"""Run work in this process: `placet run`, `replay` and `sandbox`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from placet.activity import Action
from placet.agent.prompts import plan_of
from placet.agent.record import PLACE, Recorded
from placet.agent.replay import replay
from placet.agent.workplace import Bounds
from placet.case.case import Case
from placet.case.story import Verbosity
from placet.cli.journal import StderrWriter, times_of_its_own
from placet.cli.options import ident_argument, json_option, site_option
from placet.cli.terminal import out, say
from placet.client.site import Site
from placet.errors import ToolError, UserError, counted
from placet.host.config import in_force
from placet.host.state import known_vaults, state_home, vault_state
from placet.journal.reader import open_reader
from placet.loop.app import daemon
from placet.loop.ports import own_secrets, sandbox_level
from placet.loop.run import signal_handlers
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible
from placet.sandbox.box import Box, Level
from placet.sandbox.probe import probe
from placet.sandbox.run import exec_in_box


@click.command("run")
@site_option
@click.option("--once", is_flag=True, help="Work until everything left waits for you, then exit.")
@click.option(
    "--take-over", is_flag=True, help="Work on a vault that another machine's daemon has claimed."
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also say each call of a tool and of the model, with what it cost.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")
def run_command(site: Site, once: bool, take_over: bool, verbose: bool, quiet: bool) -> None:
    """Run the daemon in the foreground. It says what happens, a line an event."""
    loud = Verbosity.TROUBLE if quiet else Verbosity.DETAIL if verbose else Verbosity.EVENT
    with (
        signal_handlers() as ending,
        StderrWriter(loud, times=not times_of_its_own(site.env), log=site.state.log) as voice,
        daemon(
            site.vault,
            site.env,
            voice.say,
            take_over=take_over,
            follow=voice.rows,
            ending=ending,
        ) as running,
    ):
        if not once:
            voice.say(
                f"watching {running.vault} ({running.watcher.mode.value}). To stop: Ctrl-C",
                Verbosity.EVENT,
            )
            running.run()
            return
        tick = running.run_once()
    if tick.waiting:
        raise UserError(
            "not everything could be done:\n  " + "\n  ".join(tick.waiting),
            "It is kept and tried again by the next `placet run`.",
        )


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


@click.command("sandbox", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD…")
@click.option(
    "--network", is_flag=True, help="With the network, as a scope with `network = true` has it."
)
def sandbox_command(command: tuple[str, ...], network: bool) -> None:
    """Run a command in exactly the box that the agent's commands get.

    The folder you are in is its worktree.
    """
    sys.exit(in_sandbox(Path.cwd(), os.environ, command, network=network))


def in_sandbox(folder: Path, env: Mapping[str, str], argv: Sequence[str], *, network: bool) -> int:
    """Run a command in the agent's box with `folder` as the worktree; return its exit code.

    Raises UserError (exit code 2) for a folder in which the command could approve something, or
    change what is no worktree's.
    """
    if what := _no_worktree(folder.resolve(), env):
        raise UserError(
            f"{visible(str(folder))} {what}, and the command could change all of this folder.",
            "Go to the repository, or an empty folder, that it may write in, then try again.",
            exit_code=2,
        )
    level = probe().level
    if level is Level.NONE:
        raise UserError(
            "This machine has no sandbox.",
            "Install bubblewrap; `placet doctor` says what is missing.",
        )
    say(f"{level.title} (level {int(level)} of 3)")
    try:
        return exec_in_box(argv, Box(folder.resolve(), network=network), level)
    except ToolError as error:
        raise UserError(f"{error}", "Name a program that is on your PATH.", exit_code=2) from error


def _no_worktree(folder: Path, env: Mapping[str, str]) -> str:
    """Return why a folder must not be writable in the box; empty if it may be."""
    for vault in (place for place in (folder, *folder.parents) if (place / CONFIG_PATH).is_file()):
        if folder == vault:
            return "is a vault, where a file that is moved is an approval"
        if folder.relative_to(vault).parts[0] in ("Inbox", "System", ".obsidian", ".git"):
            return (
                f"belongs to the vault {visible(str(vault))}, where a file that is moved is "
                "an approval"
            )
    for what, places in (
        ("your home folder", [Path(env.get("HOME") or "/")]),
        ("a vault", known_vaults(env)),
        ("placet's state", [state_home(env)]),
    ):
        if any(place.resolve().is_relative_to(folder) for place in places):
            return (
                f"has {what} in it"
                if folder not in (place.resolve() for place in places)
                else f"is {what}"
            )
    return "is placet's state" if folder.is_relative_to(state_home(env).resolve()) else ""
