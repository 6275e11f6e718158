"""`placet init`: the files that a new vault starts with."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from placet.agent.repositories import VAULT_EXCLUDES
from placet.case.notes import ASKS, look_at
from placet.cli.choices import (
    DEMO_SCRIPT,
    KEY,
    ModelChoice,
    ask_for_model,
    ask_for_portal,
    given_portals,
    named_model,
    vendor_model,
)
from placet.cli.portals import add_portal
from placet.cli.site import Site
from placet.cli.terminal import say
from placet.core.turn.price import DEFAULT_PRICES
from placet.core.wording import counted, megabytes
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.files.errors import AlreadyThere, Unreadable
from placet.git.repository import is_repository
from placet.host.accepted import accept, change
from placet.host.config import load, with_setting, write_setting
from placet.host.state import from_home
from placet.host.vault_state import known_id, vault_state
from placet.note.paths import CONFIG_PATH, Folder
from placet.note.paths import show as visible
from placet.repo.init import survey
from placet.repo.sizes import Size

DAY_USD = 10
"""Dollars a day that a new vault allows, where the price of its model is known."""
MAX_NAMED = 5


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
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path(readable=False))
@click.option(
    "--history/--no-history",
    "history",
    default=None,
    help="Whether placet may keep a history (git) of the vault; else it asks.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="The model, as its server calls it; demo is a scripted one. Else it asks.",
)
@click.option(
    "--base-url",
    metavar="URL",
    help="The model's server, if it is not Anthropic: any that speaks the Messages API.",
)
@click.option(
    "--portal",
    "portals",
    metavar="NAME=PATH",
    multiple=True,
    help="A git repository that requests may name; repeatable. Else it asks.",
)
@click.option(
    "--no-input",
    "--yes",
    "silent",
    is_flag=True,
    help="Ask nothing: take Anthropic's model, no repository, and a history only for a vault "
    "without notes.",
)
@click.pass_obj
def init_command(
    site: Site,
    folder: str | None,
    history: bool | None,
    model: str | None,
    base_url: str | None,
    portals: tuple[str, ...],
    silent: bool,
) -> None:
    """Make DIR a vault: folders, templates, agents, configuration.

    On a terminal it asks for model, repository and history, where no option says so. Nothing of
    yours is overwritten.
    """
    folder = folder or site.given or "."
    place = from_home(folder).absolute()
    asks = not silent and sys.stdin.isatty() and sys.stderr.isatty()
    is_new = not (place / CONFIG_PATH).exists()
    say(f"The vault: {visible(str(place))}")
    if is_new and not silent:
        _confirm_home(place, asks=asks)
    chosen: ModelChoice | None = None
    named = given_portals(portals)
    if model is not None or base_url is not None:
        chosen = named_model(model, base_url)
    elif is_new:
        chosen = ask_for_model(site.env) if asks else vendor_model(site.env)
    if is_new and asks and not portals:
        named = ask_for_portal(place)
    if history is None:
        history = _ask_for_history(place, folder, asks=asks)
    made, kept = init(place, site.env, history=history)
    if chosen is not None and chosen.is_demo:
        (made if _made_replies(place) else kept).append(DEMO_SCRIPT)
    for path in made:
        click.echo(path)
    as_before = f" Already there and unchanged: {len(kept)}." if kept else ""
    say(f"Created {counted(len(made), 'file')}.{as_before}")
    there = Site(str(place), site.env)
    if chosen is not None:
        _take_model(there, chosen)
        if is_new:
            _limit_day(there)
    for name, path in named.items():
        add_portal(there, name, path)
        say(f"The repository {path} is the portal {name}: requests name it with `portal: {name}`.")
    if is_new:
        _say_waiting(place)
    _say_next(folder, there, wants_key=chosen.needs_key if chosen else _wants_key(there))


def _confirm_home(place: Path, *, asks: bool) -> None:
    """Ask before the home folder becomes a vault. Raises UserError (exit code 2) without a yes."""
    if place.resolve() != Path.home().resolve():
        return
    if not (asks and click.confirm("placet: That is your home folder. Go on?", err=True)):
        raise UserError(
            f"{visible(str(place))} is your home folder. Nothing was made.",
            "Name a folder for the vault: placet init ~/vault. If you mean your home folder: "
            "placet init --yes ~",
            exit_code=2,
        )


def _limit_day(site: Site) -> None:
    """Give a new vault a limit for each day, where the price of its model is known."""
    model = load(site.vault).model
    known = model.provider == "scripted" or any(row.model == model.name for row in DEFAULT_PRICES)
    if model.base_url or not known:
        return
    text = with_setting(site.vault, ("limits", "day_usd"), DAY_USD)
    change(site.vault, site.env, text, [("limits", "day_usd")])
    say(
        f"Limit: all work together may cost ${DAY_USD} a day. "
        "To change it: placet config set limits.day_usd 20"
    )


def _say_waiting(place: Path) -> None:
    """Name the notes in Inbox/Requests that the first start will plan."""
    found = []
    with Vault(place) as vault:
        for path in sorted(vault.scan([Folder.REQUESTS]).found):
            with suppress(Unreadable):
                if look_at(path, vault.read(path)[0], "").status in ASKS:
                    found.append(path)
    if not found:
        return
    shown = [visible(path) for path in found[:MAX_NAMED]]
    more = [f"and {len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
    say(
        f"`placet run` will plan {counted(len(found), 'note')} that you have already: "
        f"{', '.join([*shown, *more])}. To keep one out, move it or give it `status: draft`."
    )


def _made_replies(place: Path) -> bool:
    """Write what the demo model says, if it is not there; return whether it was not."""
    replies = Path(__file__).with_name("demo_files") / "vault_replies.toml"
    with Vault(place) as folder, suppress(AlreadyThere):
        return folder.publish(DEMO_SCRIPT, replies.read_bytes())
    return False


def _take_model(site: Site, chosen: ModelChoice) -> None:
    """Write the settings of a model, which accepts them."""
    for key, value in chosen.settings.items():
        change(site.vault, site.env, with_setting(site.vault, key, value), [key])
    say(f"Model: {chosen.words}.")
    if ("model", "base_url") in chosen.settings:
        where = shlex.quote(str(site.vault))
        say(f"Whether that server speaks the Messages API: placet doctor --vault {where}")


def _wants_key(site: Site) -> bool:
    """Return whether the model that the vault has needs a key."""
    model = load(site.vault).model
    return model.provider == "anthropic" and not model.base_url


def _say_next(folder: str, site: Site, *, wants_key: bool) -> None:
    where = "" if folder == "." else f" --vault {shlex.quote(str(site.vault))}"
    key = [
        "# the key; or provider and base_url in System/placet.toml",
        f"export {KEY}=…",
    ]
    say("Next:")
    for line in (
        *(key if wants_key and not site.env.get(KEY) else ()),
        f"placet run{where} # the daemon",
        "# in another terminal; or drop a note into Inbox/Requests",
        f"placet submit{where} 'Add a changelog'",
    ):
        click.echo(f"  {line}", err=True)


def _ask_for_history(place: Path, named: str, *, asks: bool) -> bool | None:
    """Return whether placet may keep a history of a vault; None if nobody has to be asked.

    `named` is the folder as it was given.
    """
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
    if asks:
        return click.confirm(
            "placet: May placet keep a history of this vault?", default=default, err=True
        )
    where = "" if named == "." else f" {shlex.quote(named)}"
    say(
        f"It may keep one. To forbid it: placet init{where} --no-history"
        if default
        else "It may not keep one, as the vault has notes already. To allow it: "
        f"placet init{where} --history"
    )
    return default
