"""Print the script with which a shell completes placet's commands: `placet completion`."""

from __future__ import annotations

import click

VARIABLE = "_PLACET_COMPLETE"
"""Its value tells placet to print a script, or words; click reads it."""

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and IDs in bash, zsh or fish."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    made = kind(context.find_root().command, {}, "placet", VARIABLE)
    # not `source()`, which asks bash for its version
    click.echo(made.source_template % made.source_vars(), nl=False)
