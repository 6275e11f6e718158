"""The command line: commands by name, loaded when they are called, and one error boundary."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import click

from placet.cli.site import site_option
from placet.cli.terminal import boundary

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "init": ("placet init ~/vault", "placet init ~/vault --no-input --model demo"),
    "run": ("placet run --vault ~/vault", "placet run --once"),
    "demo": ("placet demo", "placet demo --keep /tmp/demo"),
    "submit": (
        "placet submit 'Say in the README how to run the tests'",
        "placet submit --file request.md --portal code",
    ),
    "status": ("placet status", "placet status --json"),
    "plans": ("placet plans", "placet plans --json"),
    "show": ("placet show say-hello",),
    "why": (
        "placet why say-hello",
        "placet why say-hello --request | placet submit --file -",
    ),
    "watch": ("placet watch say-hello", "placet watch say-hello --json"),
    "logs": ("placet logs -f", "placet logs -n 20 say-hello"),
    "cost": ("placet cost --since 7d", "placet cost --json"),
    "board": ("placet board", "placet board --listen 127.0.0.1:0"),
    "board login": ("placet board login --name Anna",),
    "review": ("placet review",),
    "approve": (
        "placet approve say-hello",
        "placet approve say-hello --remark 'Keep the old name too'",
    ),
    "answer": ("placet answer say-hello 2", "placet answer say-hello 'In French, please'"),
    "retry": ("placet retry say-hello --comment 'Use the parser that is there'",),
    "reject": ("placet reject say-hello --reason 'Not worth a dependency'",),
    "revise": ("placet revise say-hello --comment 'Write a test first'",),
    "stop": ("placet stop say-hello",),
    "pause": ("placet pause",),
    "resume": ("placet resume",),
    "sandbox": ("placet sandbox -- python -m pytest -q", "placet sandbox --network -- npm ci"),
    "doctor": ("placet doctor",),
    "states": ("placet states > states.mmd",),
    "diff": ("placet diff say-hello", "placet diff say-hello | git apply"),
    "merge": ("placet merge say-hello",),
    "undo": ("placet undo say-hello",),
    "drop": ("placet drop say-hello --reason 'Done by hand'",),
    "replay": ("placet replay say-hello",),
    "config": ("placet config", "placet config --json"),
    "config get": ("placet config get model.name", "placet config get portals"),
    "config set": (
        "placet config set limits.day_usd 5",
        "placet config set notify.desktop true",
    ),
    "config accept": ("placet config accept",),
    "portal": ("placet portal add code ~/src/code", "placet portal list"),
    "portal add": ("placet portal add code ~/src/code",),
    "portal list": ("placet portal list",),
    "portal check": ("placet portal check", "placet portal check code"),
    "portal remove": ("placet portal remove code",),
    "notify": ("placet notify test",),
    "notify test": ("placet notify test",),
    "journal": (
        "placet journal --trace say-hello",
        "placet journal --sql 'SELECT actor, action_type FROM activity'",
    ),
    "journal path": ("sqlite3 \"$(placet journal path)\" '.schema activity'",),
    "journal verify": ("placet journal verify",),
    "journal move": ("placet journal move",),
    "team": (
        "placet team init postgresql://placet@db.example.org/placet",
        "placet team status",
    ),
    "team status": ("placet team status", "placet team status --json"),
    "team workers": ("placet team workers", "placet team workers --json"),
    "team drain": ("placet team drain build-1", "placet team drain build-1 --undo"),
    "worker": ("placet worker postgresql://build-1@db.example.org/placet --slots 2",),
    "team init": ("placet team init postgresql://placet@db.example.org/placet",),
    "journal backup": ("placet journal backup ~/placet-journal.db",),
    "events": ("placet events", "placet events | jq --unbuffered .type"),
    "events schema": ("placet events schema > event.schema.json",),
    "service": ("placet service install", "placet service status"),
    "service install": ("placet service install --vault ~/vault",),
    "service uninstall": ("placet service uninstall",),
    "service status": ("placet service status",),
    "service print": ("placet service print",),
    "completion": ('eval "$(placet completion bash)"', "placet completion fish | source"),
}
"""By a command's words without `placet`."""


def with_examples(words: str, command: click.Command) -> click.Command:
    """Return a command whose help ends with its examples; of a group, its commands' too.

    The list of a group's commands has whole sentences.
    """
    if command.epilog is None and (found := EXAMPLES.get(words)):
        command.epilog = "\b\n" + "\n".join(
            [f"Example{'s' if len(found) > 1 else ''}:", *(f"  {line}" for line in found)]
        )
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            # click cuts a sentence that it takes out of the help itself
            below.short_help = " ".join((below.help or "").split("\n\n")[0].split())
            with_examples(f"{words} {name}", below)
    return command


COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("init", "Make DIR a vault: folders, templates, agents, configuration."),
    "run": ("run", "Run the daemon in the foreground."),
    "submit": ("submit", "Drop a request into the vault."),
    "status": ("status", "Show what waits for you, what runs, and what ended."),
    "watch": ("journal", "Follow one request to its end, a line an event; exit with its result."),
    "logs": (
        "journal",
        "Print what the daemon has said, the newest line last; of one request or of all.",
    ),
    "plans": ("status", "List what awaits a decision: plans, wider scopes and questions."),
    "show": ("status", "Show a request with its plan, its mission and its report."),
    "why": ("why", "Say why a request is where it is, and what to do next."),
    "review": (
        "walk_through",
        "Decide on one thing after the other that waits for you: plans, wider scopes, questions.",
    ),
    "approve": (
        "decide",
        "Approve a plan: the daemon moves it to System/Active and runs it.",
    ),
    "answer": (
        "decide",
        "Answer what a request asks you: an option by its number or text, or your own words.",
    ),
    "retry": ("decide", "Ask for a new plan of a request that ended, in whatever way."),
    "reject": ("decide", "Reject a plan: the daemon moves it to Inbox/Rejected, with the reason."),
    "revise": (
        "decide",
        "Ask for changes in a plan: the agent answers your comments with a new revision.",
    ),
    "stop": ("decide", "Stop a mission at the next safe point: its plan goes back to Inbox/Plans."),
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
        "branches",
        "Drop a mission's branch; or, where it was merged, take that back by a new commit.",
    ),
    "drop": ("branches", "Delete a mission's branch; its commits stay reachable at a ref."),
    "config": (
        "settings",
        "Show the settings that hold, and those that were not accepted on this machine.",
    ),
    "board": (
        "",
        "Show placet on one live page, in a browser or on a phone.",
    ),
    "portal": ("portals", "Repositories that requests may name in `portal:`."),
    "replay": (
        "run",
        "Carry a mission out again from its record, and compare the result with its branch.",
    ),
    "notify": ("settings", "Notices: that a plan waits, a mission ended, something needs you."),
    "cost": ("cost", "Say what the model's calls cost each day."),
    "journal": ("journal", "Read the journal: what happened, to what, by whom."),
    "team": ("", "A journal in PostgreSQL, and workers on other machines."),
    "worker": ("", "Do the work of a team's daemon, until you stop it."),
    "events": (
        "events",
        "Print what the daemon does as it happens, a line of JSON each, until it stops.",
    ),
    "service": (
        "service",
        "Run the daemon as a service: systemd of your user on Linux, launchd on macOS.",
    ),
    "completion": (
        "completion",
        "Print the script that completes commands and IDs in bash, zsh or fish.",
    ),
    "demo": ("demo", "See the whole of it in a minute: request, plan, approval, mission, report."),
}
"""Each command's module, which defines `NAME_command`, and the first sentence of its help.

One without a module is a plug-in's.
"""

GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Start": (
        "placet submit 'Say in the README how to run the tests'",
        ("demo", "init", "run", "submit"),
    ),
    "Look": (
        "placet why say-hello",
        (
            "status",
            "board",
            "plans",
            "show",
            "why",
            "watch",
            "logs",
            "cost",
            "journal",
            "events",
            "states",
        ),
    ),
    "Decide": (
        "placet approve say-hello --remark 'Keep the old name too'",
        ("review", "approve", "reject", "revise", "answer", "retry", "stop"),
    ),
    "Branches": (
        "placet diff say-hello | less",
        ("diff", "merge", "undo", "drop", "replay", "portal"),
    ),
    "This machine": (
        "placet config set limits.day_usd 5",
        (
            "config",
            "team",
            "worker",
            "pause",
            "resume",
            "service",
            "doctor",
            "notify",
            "sandbox",
            "completion",
        ),
    ),
}
"""The parts of `placet --help`: an example of each, and its commands."""


def _loaded(name: str) -> ModuleType:
    """Import a command's module, in less time than a plain import takes.

    All that it defines stays, so garbage is not looked for among it, now or later. pydantic would
    look for plugins among all installed packages, and placet has no use for any.
    """
    path = f"placet.cli.{name}"
    if path in sys.modules:
        return sys.modules[path]
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()
    try:
        return importlib.import_module(path)
    finally:
        gc.freeze()
        gc.enable()


def _plugin(name: str) -> click.Command:
    from placet.plugins import COMMANDS as PLUGINS
    from placet.plugins import plugin

    command: click.Command = plugin(PLUGINS, name)
    return command


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Load the command that is called; to list them, their names and sentences are enough."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            if module := COMMANDS[name][0]:
                command = getattr(_loaded(module), f"{name}_command")
            else:
                command = _plugin(name)
            command = with_examples(name, command)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """Write the commands in groups, with whole sentences, and an example for each group."""
        grouped = {name for _, names in GROUPS.values() for name in names}
        rest = tuple(name for name in COMMANDS if name not in grouped)
        for title, (example, names) in {**GROUPS, "More": ("", rest)}.items():
            if names:
                with formatter.section(title):
                    width = max(map(len, COMMANDS))
                    formatter.write_dl([(n.ljust(width), COMMANDS[n][1]) for n in names])
                    if example:
                        formatter.write_text(f"$ {example}")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a person can act on becomes a sentence and an exit code."""
        with boundary():
            return super().invoke(ctx)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from placet.cli.version import of_this_program  # no other command starts git to say it

    click.echo(f"placet, version {of_this_program()}")
    ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A command's options: placet COMMAND --help.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@site_option
def main(_: object) -> None:
    """Turn notes into plans, wait for your approval, and carry them out on a git branch."""


for _name, (_, _sentence) in COMMANDS.items():
    main.add_command(click.Command(_name, help=_sentence))
