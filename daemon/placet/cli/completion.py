"""`placet completion`: the script by which a shell completes placet's words."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote

import click

from placet.cli.terminal import say
from placet.core.errors import UserError, cannot_write
from placet.core.text.names import show as visible
from placet.host.state import write_private

VARIABLE = "_PLACET_COMPLETE"
"""Its value tells placet to print a script, or words; click reads it."""

SHELLS = ("bash", "zsh", "fish")
_LOADERS = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
    "/usr/local/etc/profile.d/bash_completion.sh",
)
"""Where bash-completion is, which loads a command's script when its words are first completed."""


@click.group("completion")
def completion_command() -> None:
    """Complete commands, options, IDs, portals and agents in bash, zsh and fish."""


def _printing(shell: str) -> Callable[[], None]:
    def show_script() -> None:
        click.echo(script(shell), nl=False)

    return show_script


for _shell in SHELLS:
    completion_command.command(
        _shell, help=f"Print the script for {_shell}, as `placet completion install` writes it."
    )(_printing(_shell))


@completion_command.command("install")
@click.argument("shell", required=False, type=click.Choice(SHELLS), metavar="[SHELL]")
def completion_install_command(shell: str | None) -> None:
    """Write the script where SHELL looks for it: bash, zsh or fish; else your own.

    It says which file that is. Your own start-up files are not touched; where one needs a line, it
    is shown.
    """
    shell = shell or _own_shell(os.environ)
    path = place(shell, os.environ)
    text = script(shell)
    try:
        old = path.read_text(encoding="utf-8") if os.path.lexists(path) else None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", "Move that file away.") from error
    if old is not None and VARIABLE not in old:
        raise UserError(
            f"{path} is there already, and is not placet's.",
            f"Move it away, or see the script: placet completion {shell}",
        )
    if old != text:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_private(path.resolve(), text.encode())
        except OSError as error:
            raise cannot_write(path, error) from error
    click.echo(path)
    done = "written" if old is None else "renewed"
    if old == text:
        done = "it was there already and is as it should be"
    more = needed(shell, path)
    say(f"{done}." if more else f"{done}; it holds in every shell that is started from now on.")
    for line in more:
        say(line)


def script(shell: str) -> str:
    """Return the completion script of a shell, as click makes it."""
    from click.shell_completion import get_completion_class

    from placet.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    made = kind(main, {}, "placet", VARIABLE)
    # not `source()`, which asks bash for its version
    return made.source_template % made.source_vars()


def place(shell: str, env: Mapping[str, str]) -> Path:
    """Return the file in which a shell looks for placet's script.

    Relative folders in the environment are ignored, as the XDG Base Directory Specification asks.
    """
    home = Path(env.get("HOME") or "~").expanduser()
    data = _folder(env, "XDG_DATA_HOME", home / ".local/share")
    if shell == "bash":
        own = _folder(env, "BASH_COMPLETION_USER_DIR", data / "bash-completion")
        return own / "completions" / "placet"
    if shell == "zsh":
        return data / "zsh" / "site-functions" / "_placet"
    return _folder(env, "XDG_CONFIG_HOME", home / ".config") / "fish/completions/placet.fish"


def needed(shell: str, path: Path) -> list[str]:
    """Return what a person's own start-up file has to say for the script to be found."""
    if shell == "bash" and not any(map(os.path.exists, _LOADERS)):
        return [
            "bash loads it by itself once the package bash-completion is installed. Without that "
            f"package, add this line to ~/.bashrc: source {quote(str(path))}"
        ]
    if shell == "zsh":
        return [
            "zsh looks there if ~/.zshrc has this line, or its first part above a compinit that is "
            f"there: fpath=({quote(str(path.parent))} $fpath); autoload -U compinit; compinit"
        ]
    return []


def _folder(env: Mapping[str, str], name: str, default: Path) -> Path:
    given = env.get(name, "")
    return Path(given) if given and Path(given).is_absolute() else default


def _login_shell() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # a user whom the system does not list, as in a container
        return ""


def _own_shell(env: Mapping[str, str]) -> str:
    shell = env.get("SHELL") or _login_shell()
    name = Path(shell).name
    if name not in SHELLS:
        raise UserError(
            f"Your shell is {visible(shell) or 'not known ($SHELL is not set)'}: placet completes "
            f"words in {', '.join(SHELLS)}.",
            "Name one: placet completion install bash",
            exit_code=2,
        )
    return name
