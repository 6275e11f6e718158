"""`placet init`: the files that a new vault starts with."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from placet.agent.workplace import VAULT_EXCLUDES
from placet.cli.site import Site
from placet.cli.terminal import say
from placet.core.errors import UserError
from placet.core.text.names import CONFIG_PATH
from placet.core.wording import megabytes
from placet.files.errors import AlreadyThere
from placet.files.vault import Vault
from placet.host.accepted import accept
from placet.host.config import load, write_setting
from placet.host.state import known_id, vault_state
from placet.repo.init import Size, survey
from placet.repo.repository import is_repository


def template() -> Path:
    """Return the folder that new vaults are copied from: of the package, or of its checkout."""
    inside = Path(__file__).parents[1] / "vault_template"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "vault_template"


def history_of(folder: Path) -> Size | None:
    """Return what a history (git) of this folder would hold, as far as a person has to be asked.

    None for a repository, and for a vault whose configuration has the answer.
    """
    if is_repository(folder) or (
        (folder / CONFIG_PATH).is_file() and load(folder).vault.history != "ask"
    ):
        return None
    return survey(folder, VAULT_EXCLUDES) if folder.is_dir() else Size(0, 0)


def init(
    folder: Path, env: Mapping[str, str] = os.environ, *, history: bool | None = None
) -> tuple[list[str], list[str]]:
    """Make a folder a vault; return the files made, and those that were there and stay.

    A vault on which a daemon worked before gets its old id back, and its new configuration is
    accepted. `history` says whether placet may keep a history (git) of it; None if nobody was
    asked. Raises UserError where something is in the way.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}.", "Name another folder.", exit_code=2
        ) from error
    made: list[str] = []
    kept: list[str] = []
    source = template()
    # Property types hold for the whole vault: one that people work in already keeps its own. Ours
    # may be there from a call that did not come to its end.
    ours = {path.name for path in (source / ".obsidian").iterdir()}
    settled = (folder / ".obsidian").is_dir() and any(
        path.name not in ours for path in (folder / ".obsidian").iterdir()
    )
    with Vault(folder) as vault:
        vault.ensure_folders()
        vault.sweep_temporaries()
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            name = path.relative_to(source).as_posix()
            if settled and name.startswith(".obsidian/"):
                continue
            try:
                (made if vault.publish(name, path.read_bytes()) else kept).append(name)
            except AlreadyThere:
                kept.append(name)
        if CONFIG_PATH in made:
            # The vault is this machine's; a daemon elsewhere that shares it by sync refuses until
            # it is told to take over.
            write_setting(folder, ("vault", "host"), socket.gethostname())
        if history is not None:
            write_setting(folder, ("vault", "history"), history)
        known = _known_id(folder, env)
        if vault.marker() is None:
            vault.create_marker(known or os.urandom(16).hex())
    if CONFIG_PATH in made and known and (state := vault_state(folder, env)).accepted.exists():
        accept(state, load(folder))
    return made, kept


def _known_id(folder: Path, env: Mapping[str, str]) -> str | None:
    """Return the id that a daemon knew the vault by; None without one, or a place for state."""
    try:
        return known_id(folder, env)
    except UserError:
        return None


@click.command("init")
@click.argument("folder", required=False, metavar="[DIR]")
@click.option(
    "--history/--no-history",
    "history",
    default=None,
    help="Whether placet may keep a history (git) of the vault; else it asks.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Ask nothing: a new vault gets a history, one that has notes does not.",
)
@click.pass_obj
def init_command(site: Site, folder: str | None, history: bool | None, yes: bool) -> None:
    """Make DIR a vault: folders, templates, agents, configuration.

    Nothing of yours is overwritten.
    """
    folder = folder or site.given or "."
    place = Path(folder).expanduser().absolute()
    if history is None:
        history = _ask_for_history(place, yes=yes)
    made, kept = init(place, os.environ, history=history)
    for path in made:
        click.echo(path)
    where = "" if folder == "." else f" --vault {shlex.quote(folder)}"
    say(f"{len(made)} files made, {len(kept)} were there already and stay as they are.")
    say("Next:")
    for line in (
        "# the key; or provider and base_url in System/placet.toml",
        "export ANTHROPIC_API_KEY=…",
        f"placet run{where} # the daemon",
        "# in another terminal; or drop a note into Inbox/Requests",
        f"placet submit{where} 'Add a changelog'",
    ):
        click.echo(f"  {line}", err=True)


def _ask_for_history(place: Path, *, yes: bool) -> bool | None:
    """Return whether placet may keep a history of a vault; None if nobody has to be asked."""
    size = history_of(place)
    if size is None:
        return None
    default = not size.files
    if size.files or size.left_out:
        say(
            f"A history (git) of this vault would hold {size.files:,} text files, "
            f"{megabytes(size.bytes)}. It leaves out "
            f"{size.left_out:,} attachments or large files, {megabytes(size.left_out_bytes)}, "
            "and Inbox, System, .obsidian "
            "and .trash."
        )
    say(
        "To change notes of the vault itself, placet needs a history of it (git): each change "
        "is then made aside, shown, and can "
        "be taken back. Work in other repositories (`portal: NAME`) needs none."
    )
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm(
            "placet: May placet keep a history of this vault?", default=default, err=True
        )
    say(
        "It may keep one. To forbid it: placet init --no-history"
        if default
        else "It may not keep one, as the vault has notes already. To allow it: placet init "
        "--history"
    )
    return default
