"""Load commands by name when they are called, and turn errors into messages in one place."""

from __future__ import annotations

import gc
import importlib.util
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from placet.cli.options import site_option
from placet.cli.terminal import boundary
from placet.host.plugins import COMMANDS as PLUGINS
from placet.host.plugins import plugin

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
        "placet approve say-hello fix-the-median",
        "placet approve say-hello --remark 'Keep the old name too'",
    ),
    "answer": ("placet answer say-hello 2", "placet answer say-hello 'In French, please'"),
    "retry": ("placet retry say-hello --comment 'Use the parser that is there'",),
    "reject": ("placet reject say-hello --reason 'Not worth a dependency'",),
    "revise": ("placet revise say-hello --comment 'Write a test first'",),
    "stop": ("placet stop say-hello",),
    "signer": ("placet signer add anna ~/.ssh/id_ed25519.pub", "placet signer list"),
    "signer add": ("placet signer add anna ~/.ssh/id_ed25519.pub",),
    "signer list": ("placet signer list",),
    "signer remove": ("placet signer remove anna",),
    "signer accept": ("placet signer accept",),
    "pause": ("placet pause",),
    "resume": ("placet resume",),
    "sandbox": ("placet sandbox -- python -m pytest -q", "placet sandbox --network -- npm ci"),
    "doctor": ("placet doctor",),
    "states": ("placet states > states.mmd",),
    "diff": ("placet diff say-hello", "placet diff say-hello | git apply"),
    "merge": ("placet merge say-hello",),
    "pr": ("placet pr say-hello", "placet pr say-hello --receipt"),
    "verify": (
        "placet verify say-hello --signers signers",
        "placet verify refs/placet/receipts/550e8400-2 --signers signers --at 1a2b3c4",
    ),
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
    "team remove": ("placet team remove build-1",),
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
            below.short_help = _first_sentence(below.help)
            with_examples(f"{words} {name}", below)
    return command


COMMANDS: Mapping[str, str] = {
    "init": "placet.cli.init",
    "run": "placet.cli.run",
    "submit": "placet.cli.submit",
    "status": "placet.cli.status",
    "watch": "placet.cli.watch",
    "logs": "placet.cli.watch",
    "plans": "placet.cli.status",
    "show": "placet.cli.status",
    "why": "placet.cli.why",
    "review": "placet.cli.walk_through",
    "approve": "placet.cli.decide",
    "answer": "placet.cli.decide",
    "retry": "placet.cli.decide",
    "reject": "placet.cli.decide",
    "revise": "placet.cli.decide",
    "stop": "placet.cli.decide",
    "signer": "placet.cli.signer",
    "pause": "placet.cli.settings",
    "resume": "placet.cli.settings",
    "sandbox": "placet.cli.sandbox",
    "doctor": "placet.cli.doctor",
    "states": "placet.cli.status",
    "diff": "placet.cli.branches",
    "merge": "placet.cli.branches",
    "pr": "placet.cli.branches",
    "verify": "placet.cli.verify",
    "undo": "placet.cli.branches",
    "drop": "placet.cli.branches",
    "config": "placet.cli.settings",
    "board": "placet_board.command",
    "portal": "placet.cli.portals",
    "replay": "placet.cli.replay",
    "notify": "placet.cli.settings",
    "cost": "placet.cli.cost",
    "journal": "placet.cli.journal",
    "team": "placet_team.command",
    "worker": "placet_team.worker_command",
    "events": "placet.cli.events",
    "service": "placet.cli.service",
    "completion": "placet.cli.completion",
    "demo": "placet.cli.demo",
}
"""Each command's module, which defines `NAME_command`; one outside of placet is a plug-in's."""

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
        ("diff", "merge", "pr", "verify", "undo", "drop", "replay", "portal"),
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
            "signer",
            "notify",
            "sandbox",
            "completion",
        ),
    ),
}
"""The parts of `placet --help`: an example of each, and its commands."""


def sentence_of(name: str) -> str:
    """Return the first sentence of a command's help, without loading the command."""
    # not by `ast`, which takes 40 ms for all of them
    found = re.search(
        rf'^def {name}_command\(.*?:\n    """(.*?)"""', _source(COMMANDS[name]), _BLOCK
    )
    return _first_sentence(found and found[1])


_BLOCK = re.DOTALL | re.MULTILINE


@cache
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, "all packages of placet are installed together"
    return Path(str(spec.origin)).read_text(encoding="utf-8")


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of the commands."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click calls it
        """Load a command; to list them all, names and sentences are enough."""
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        # else pydantic looks for plugins among all installed packages
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        gc.disable()  # it would go over what is imported again and again: an eighth of the time
        try:
            if module.startswith("placet."):
                command = getattr(importlib.import_module(module), f"{cmd_name}_command")
            else:
                command = plugin(PLUGINS, cmd_name)
        finally:
            gc.enable()
            if not gc.get_freeze_count():  # a test's process calls many commands
                gc.freeze()
        return with_examples(cmd_name, command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; the error for another word names the nearest."""
        near = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and near and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0]!r}. Did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so."""
        names = (name for name in COMMANDS if name.startswith(incomplete))
        found = [CompletionItem(name, help=sentence_of(name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click calls it
        """Write the commands in groups, with whole sentences, and an example for each group."""
        grouped = {name for _, names in GROUPS.values() for name in names}
        rest = tuple(name for name in COMMANDS if name not in grouped)
        for title, (example, names) in {**GROUPS, "More": ("", rest)}.items():
            if names:
                with formatter.section(title):
                    width = max(map(len, COMMANDS))
                    formatter.write_dl([(n.ljust(width), sentence_of(n)) for n in names])
                    if example:
                        formatter.write_text(f"$ {example}")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what a person can act on becomes a sentence and an exit code."""
        with boundary():
            return super().invoke(ctx)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from placet.client.version import of_this_program  # no other command starts git to say it

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
    """Turn notes into plans, wait for your approval, and run them on a git branch."""
