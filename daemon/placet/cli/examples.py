"""An example or two for each command, at the end of its `--help`."""

from __future__ import annotations

from collections.abc import Mapping

import click

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
    "worker": ("placet worker postgresql://placet@db.example.org/placet --labels gpu,any",),
    "team init": ("placet team init postgresql://placet@db.example.org/placet",),
    "journal backup": ("placet journal backup ~/placet-journal.db",),
    "events": ("placet events", "placet events | jq --unbuffered .type"),
    "events path": ('socat -u UNIX-CONNECT:"$(placet events path)" -',),
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
