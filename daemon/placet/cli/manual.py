"""`placet help`: a command's help, or a page about an idea."""

from __future__ import annotations

import shutil
import sys
from difflib import get_close_matches
from pathlib import Path

import click

from placet.cli.rendered import rendered
from placet.cli.terminal import echo, fitted
from placet.core.errors import UserError

PAGES = Path(__file__).with_name("help")
"""A page of markdown for each idea; its first line is its title."""


def topics() -> dict[str, str]:
    """Return the ideas that have a page, each with the title of it."""
    return {
        path.stem: path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        for path in sorted(PAGES.glob("*.md"))
    }


def _words(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    names = [*topics(), *getattr(context.find_root().command, "commands", ())]
    return sorted({name for name in names if name.startswith(begun)})


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND|TOPIC]", shell_complete=_words)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a command, or an idea: gestures, review, scope, agents, portals, cost, security."""
    top = context.find_root()
    if not words:
        echo(f"{top.command.get_help(top)}\n\n{_listed()}")
        return
    if len(words) == 1 and words[0] in topics():
        page = (PAGES / f"{words[0]}.md").read_text("utf-8")
        if sys.stdout.isatty():
            page = fitted(rendered(page), shutil.get_terminal_size().columns, hang=0)
        echo(page.rstrip("\n"))
        return
    echo(_help_of(words, top))


def _listed() -> str:
    return "\n".join(
        ["Ideas (placet help TOPIC):", *(f"  {name:<10} {of}" for name, of in topics().items())]
    )


def _help_of(words: tuple[str, ...], context: click.Context) -> str:
    """Return the help of a command, which `words` name from group to group."""
    command = context.command
    for number, word in enumerate(words):
        names = list(command.commands) if isinstance(command, click.Group) else []
        if word not in names or not isinstance(command, click.Group):
            known = names if number else [*names, *topics()]
            near = get_close_matches(word, known, n=3)
            before = " ".join(("placet", *words[:number]))
            raise UserError(
                f"{before} has no command {word!r}."
                if number
                else f"There is no command and no page {word!r}.",
                f"Did you mean {' or '.join(near)}?" if near else "See them all: placet help",
                exit_code=2,
            )
        found = command.resolve_command(context, [word])[1]
        assert found is not None, "it is one of its names"
        command, context = found, click.Context(found, info_name=word, parent=context)
    return command.get_help(context)
