"""The command line: commands by name, loaded when they are called, and one error boundary."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from placet import __version__
from placet.cli.site import site_option
from placet.cli.terminal import boundary

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Make DIR a vault: folders, templates, agents, configuration."),
    "run": ("run", "Run the daemon in the foreground."),
    "submit": ("submit", "Drop a request into the vault."),
    "status": ("look", "Show what is planned, what waits for you, and what runs."),
    "plans": ("look", "List the plans that await a decision."),
    "show": ("look", "Show a request with its plan, its mission and its report."),
    "why": ("why", "Say why a request is where it is, and what to do next."),
    "approve": ("review", "Approve a plan: move it to System/Active, as you would by hand."),
    "retry": ("review", "Ask for a new plan of a request that failed or was rejected."),
    "reject": ("review", "Reject a plan: move it to Inbox/Rejected, with the reason."),
    "revise": (
        "review",
        "Ask for changes in a plan: write comments into it and set it to needs_revision.",
    ),
    "stop": ("review", "Stop a mission at the next safe point: move its plan back to Inbox/Plans."),
    "pause": ("settings", "Take up no new work; missions under way come to their end."),
    "resume": ("settings", "Take work up again after `placet pause`."),
    "sandbox": ("run", "Run a command in exactly the box that the agent's commands get."),
    "doctor": (
        "doctor",
        "Look at everything that placet needs, and say what is missing and what helps.",
    ),
    "states": ("journal", "Draw the life cycle of a request as a Mermaid diagram."),
    "diff": (
        "branches",
        "Show what a mission changed, as a patch; for a pipe or a file one that `git apply` takes.",
    ),
    "merge": (
        "branches",
        "Merge a mission's branch into the branch you have checked out, if that checkout is clean.",
    ),
    "undo": (
        "undo",
        "Drop a mission's branch; or, where it was merged, take that back by a new commit.",
    ),
    "drop": ("undo", "Delete a mission's branch; its commits stay reachable at a ref."),
    "config": (
        "settings",
        "Show the settings that hold, and those that were not accepted on this machine.",
    ),
    "portal": ("portals", "Repositories that requests may name in `portal:`."),
    "replay": (
        "run",
        "Carry a mission out again from its record, and compare the result with its branch.",
    ),
    "notify": ("settings", "Notices: that a plan waits, a mission ended, something needs you."),
    "journal": ("journal", "Read the journal: what happened, to what, by whom."),
    "events": (
        "events",
        "Print what the daemon does as it happens, a line of JSON each, until it stops.",
    ),
    "demo": ("demo", "See the whole of it in a minute: request, plan, approval, mission, report."),
}
"""Each command's module, which defines `NAME_command`, and the first sentence of its help."""


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command that is called; to list them, their names and sentences are enough."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            module = importlib.import_module(f"placet.cli.{COMMANDS[name][0]}")
            command = getattr(module, f"{name}_command")
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a person can act on becomes a sentence and an exit code."""
        with boundary():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="placet")
@site_option
def main(_: object) -> None:
    """Turn notes into plans, wait for your approval, and carry them out on a git branch."""


for _name, (_, _sentence) in COMMANDS.items():
    main.add_command(click.Command(_name, help=_sentence))
