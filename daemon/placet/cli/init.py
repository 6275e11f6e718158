"""Write the files that a new vault starts with: `placet init`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from placet.cli.portals import propose
from placet.cli.terminal import agreed, echo, say
from placet.client.model_setup import (
    DEMO,
    DEMO_NAME,
    ModelChoice,
    named_model,
    server_address,
    vendor_model,
    wants_key,
)
from placet.client.new_vault import (
    DAY_USD,
    DEMO_SCRIPT,
    history_of,
    init,
    limit_day,
    made_replies,
    portal_name,
    repository_here,
    waiting_notes,
)
from placet.client.portals import add_portal
from placet.client.site import Site, here
from placet.disk.real_path import real_path
from placet.errors import UserError
from placet.git.repository import is_repository
from placet.host.accepted import change
from placet.host.config import load
from placet.host.state import expand_home, synced
from placet.models.server import KEY_VARIABLE
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible
from placet.sandbox.box import NO_SANDBOX, Level
from placet.sandbox.probe import starts
from placet.wording import counted, megabytes, one_line

VENDOR = "anthropic"
NONE = "-"


def must_name(names: Sequence[str], why: str) -> str:
    """Raise UserError (exit code 2): a server's model has to be named."""
    listed = f"That server has these models: {', '.join(map(visible, names))}"
    raise UserError(
        f"{listed if names else why}.",
        "Name one: --model NAME"
        if names
        else "Check the address, and start the server. To go on without it: --model NAME",
        exit_code=2,
    )


def _ask_for_name(names: Sequence[str], why: str) -> str:
    say(f"It has these models: {', '.join(map(visible, names))}." if names else f"{why}.")
    default = names[0] if names else None
    return str(click.prompt("placet: Name of the model there", default=default, err=True)).strip()


def ask_for_model(env: Mapping[str, str]) -> ModelChoice:
    """Ask a person at the terminal for the model; return it."""
    vendor = vendor_model(env)
    say("Which model plans and works?")
    for word, model in (
        (VENDOR, vendor.title),
        (DEMO_NAME, DEMO.title),
        ("an address", "a server that speaks the Messages API, as http://127.0.0.1:11434"),
    ):
        echo(f"  {word:<10}  {model}", err=True)
    while True:
        answer = click.prompt("placet: Model", default=VENDOR, err=True).strip()
        if answer == VENDOR:
            return vendor
        if answer == DEMO_NAME:
            return DEMO
        try:
            address = server_address(answer)
        except UserError as error:
            say(one_line(str(error)))
            continue
        return named_model(None, address, env, _ask_for_name, say)


def given_portals(given: Sequence[str]) -> dict[str, str]:
    """Return the portals of `--portal NAME=PATH`.

    Raises UserError (exit code 2) for other words, and for a path that is not a folder.
    """
    found = dict[str, str]()
    for one in given:
        name, sign, path = one.partition("=")
        if not (name and sign and path):
            raise UserError(
                f"--portal {visible(one)} is not a portal.",
                "Write it as --portal code=~/src/code",
                exit_code=2,
            )
        if not expand_home(path).is_dir():  # before anything is made
            raise UserError(
                f"--portal {name}: {visible(path)} is not a folder.",
                "Give the folder of a repository.",
                exit_code=2,
            )
        found[name] = path
    return found


def ask_for_portal(vault: Path) -> dict[str, str]:
    """Ask a person at the terminal for a repository; return it as a portal, or nothing.

    The default is the repository that we are in, if it is not the vault's own.
    """
    offered = repository_here(vault)
    say("Which git repository may requests work in? (more later: placet portal)")
    while True:
        given = click.prompt(
            f"placet: Path, or {NONE} for none", default=str(offered or NONE), err=True
        ).strip()
        if given == NONE:
            return {}
        place = expand_home(given)
        place = place if place.is_absolute() else here() / place
        if is_repository(place):
            return {portal_name(place): str(place)}
        say(f"{visible(str(place))} is not a git repository.")


MAX_NAMED = 5


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
    place = expand_home(folder).absolute()
    asks = not silent and sys.stdin.isatty() and sys.stderr.isatty()
    is_new = not (place / CONFIG_PATH).exists()
    say(f"The vault: {visible(str(place))}")
    if is_new and not silent:
        _confirm_home(place, asks=asks)
    chosen: ModelChoice | None = None
    named = given_portals(portals)
    if model is not None or base_url is not None:
        choose = _ask_for_name if asks else must_name
        chosen = named_model(model, base_url, site.env, choose, say)
    elif is_new:
        chosen = ask_for_model(site.env) if asks else vendor_model(site.env)
    if is_new and asks and not portals:
        named = ask_for_portal(place)
    if history is None:
        history = _ask_for_history(place, folder, asks=asks)
    made, kept = init(place, site.env, history=history)
    if chosen is not None and chosen.is_demo:
        (made if made_replies(place) else kept).append(DEMO_SCRIPT)
    # a person at a terminal can look into a new vault
    for path in () if is_new and sys.stdout.isatty() else made:
        click.echo(path)
    as_before = f" Already there and unchanged: {len(kept)}." if kept else ""
    say(f"Created {counted(len(made), 'file')}.{as_before}")
    new_site = Site(str(place), site.env, say=say)
    if chosen is not None:
        _take_model(new_site, chosen)
        if is_new:
            _limit_day(new_site)
    for name, path in named.items():
        add_portal(new_site, name, path)
        say(f"The repository {path} is the portal {name}: requests name it with `portal: {name}`.")
        propose(new_site, name)
    if is_new:
        _say_waiting(place)
        _say_sandbox()
    _say_next(
        folder,
        new_site,
        wants_key=chosen.needs_key if chosen else wants_key(new_site),
        has_portal=bool(load(new_site.vault).portals),
    )


def _confirm_home(place: Path, *, asks: bool) -> None:
    """Ask before the home folder becomes a vault. Raises UserError (exit code 2) without a yes."""
    if real_path(place) != real_path(Path.home()):
        return
    if not (asks and agreed("placet: That is your home folder. Continue?")):
        raise UserError(
            f"{visible(str(place))} is your home folder. Nothing was made.",
            "Name a folder for the vault: placet init ~/vault. If you mean your home folder: "
            "placet init --yes ~",
            exit_code=2,
        )


def _limit_day(site: Site) -> None:
    if limit_day(site):
        say(
            f"Limit: all work together may cost ${DAY_USD} a day. "
            "To change it: placet config set limits.day_usd 20"
        )


def _say_waiting(place: Path) -> None:
    found = waiting_notes(place)
    if not found:
        return
    shown = [visible(path) for path in found[:MAX_NAMED]]
    more = [f"and {len(found) - MAX_NAMED} more"] if len(found) > MAX_NAMED else []
    say(
        f"`placet run` will plan {counted(len(found), 'note')} that you have already: "
        f"{', '.join([*shown, *more])}. To keep one out, move it or give it `status: draft`."
    )


def _say_sandbox() -> None:
    if sys.platform == "linux" and not starts(Level.BUBBLEWRAP):
        say(f"Commands will not run. {NO_SANDBOX}")


def _take_model(site: Site, chosen: ModelChoice) -> None:
    """Write the settings of a model, which accepts them."""
    change(site.vault, site.env, chosen.settings)
    say(f"Model: {chosen.title}.")
    for remark in chosen.remarks:
        say(remark)
    if chosen.needs_key and ("model", "base_url") in chosen.settings:
        where = shlex.quote(str(site.vault))
        say(f"To try it with a tiny call: placet doctor --model --vault {where}")


def _say_next(folder: str, site: Site, *, wants_key: bool, has_portal: bool) -> None:
    where = "" if folder == "." else f" --vault {shlex.quote(str(site.vault))}"
    key = [
        "# the key; or provider and base_url in System/placet.toml",
        f"export {KEY_VARIABLE}=…",
    ]
    portal = [
        "# a repository for requests with `portal: NAME`; notes of the vault need none",
        f"placet portal add{where} NAME PATH",
    ]
    if warning := synced(site.state.folder):
        say(one_line(str(warning)))
    say("Next:")
    for line in (
        *(key if wants_key and not site.env.get(KEY_VARIABLE) else ()),
        *(() if has_portal else portal),
        f"placet run{where} # the daemon",
        "# in another terminal; or drop a note into Inbox/Requests",
        f"placet submit{where} 'Add a changelog'",
    ):
        click.echo(f"  {line}", err=True)


def _ask_for_history(place: Path, named: str, *, asks: bool) -> bool | None:
    """Return whether placet may keep a history of a vault, or None if the question is needless.

    `named` is the folder as you typed it.
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
        "To change notes of the vault itself, placet needs a history of it (git). You then see "
        "each change before it is made, and can undo it. Work in other repositories "
        "(`portal: NAME`) needs none."
    )
    if asks:
        return agreed("placet: May placet keep a history of this vault?", default=default)
    where = "" if named == "." else f" {shlex.quote(named)}"
    say(
        f"It may keep one. To forbid it: placet init{where} --no-history"
        if default
        else "It may not keep one, as the vault has notes already. To allow it: "
        f"placet init{where} --history"
    )
    return default
