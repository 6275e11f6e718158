"""Write the files that a new vault starts with: `placet init`."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from placet.agent.workplace import VAULT_EXCLUDES
from placet.case.notes import ASKS, inspect_note
from placet.chat.budget import DEFAULT_PRICES
from placet.cli.portals import add_portal, propose
from placet.cli.terminal import agreed, echo, say
from placet.client.model_setup import fit
from placet.client.site import Site, here
from placet.disk.errors import AlreadyThere, Unreadable
from placet.disk.vault import Vault
from placet.errors import UserError
from placet.git.repository import is_repository
from placet.git.vault_history import Size, survey
from placet.host.accepted import accept, change
from placet.host.config import Key, ModelTable, http_host, load, write_setting
from placet.host.state import expand_home, known_id, synced, vault_state
from placet.note.paths import CONFIG_PATH, Folder, request_id
from placet.note.paths import show as visible
from placet.sandbox.box import NO_SANDBOX, Level
from placet.sandbox.probe import starts
from placet.wording import counted, megabytes, one_line

PATIENCE_S = 0.5
_NO_SUCH_PATH = frozenset({404, 405, 501})


def is_here(base_url: str) -> bool:
    """Return whether an address is plain HTTP on this machine."""
    here = http_host(base_url) in ("127.0.0.1", "::1", "localhost")
    return here and not base_url.startswith("https:")


def speaks_messages(base_url: str) -> bool:
    """Return whether a server on this machine has the path of the Messages API.

    An empty request costs no token: a server that speaks the API refuses it. True where the server
    cannot be reached, which says nothing against it.
    """
    try:
        parts = urlsplit(base_url)
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PATIENCE_S)
    except ValueError:
        return True
    try:
        connection.request(
            "POST",
            parts.path.rstrip("/") + "/v1/messages",
            b"{}",
            {"content-type": "application/json", "anthropic-version": "2023-06-01"},
        )
        return connection.getresponse().status not in _NO_SUCH_PATH
    except (OSError, HTTPException, ValueError):
        return True
    finally:
        connection.close()


KEY = "ANTHROPIC_API_KEY"
DEMO_SCRIPT = "System/demo-replies.toml"
"""The replies of the demo model, in a vault that has it."""

DEMO_NAME = "demo"
"""What the scripted model of the demo is called."""

VENDOR = "anthropic"
NONE = "-"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that a vault may begin with: its title, and the settings that it takes."""

    title: str
    settings: Mapping[Key, Any]
    needs_key: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def is_demo(self) -> bool:
        """Return whether the demo's replies have to be in the vault."""
        return self.settings.get(("model", "provider")) == "scripted"


DEMO = ModelChoice(
    "the scripted demo model: no model is asked, every request gets the same plan",
    {
        ("model", "provider"): "scripted",
        ("model", "name"): DEMO_NAME,
        ("model", "script"): DEMO_SCRIPT,
    },
)


def vendor_model(env: Mapping[str, str]) -> ModelChoice:
    """Return Anthropic's model, the default; its key may be missing yet."""
    has_key = bool(env.get(KEY, "").strip())
    where = f"the key is in {KEY}" if has_key else f"set its key: export {KEY}=…"
    return ModelChoice(f"Anthropic ({where})", {}, needs_key=not has_key)


def fitting_name(model: ModelTable, provider: object) -> str:
    """Return the model name that `provider` needs; empty to keep the present one.

    Raises UserError (exit code 2) if only you know the name.
    """
    if provider != ModelTable().provider or model.name != DEMO_NAME:
        return ""
    if model.base_url:
        raise UserError(
            f"model.name is {DEMO_NAME}, which {visible(model.base_url)} does not have.",
            "Name one of its models first: placet config set model.name NAME",
            exit_code=2,
        )
    return ModelTable().name


def named_model(
    model: str | None,
    base_url: str | None,
    env: Mapping[str, str],
    choose: Callable[[Sequence[str], str], str],
) -> ModelChoice:
    """Return the model that `--model` and `--base-url` name; at least one is given.

    A server on this machine is asked for its models; `choose` and the errors are those of `fit`.
    Raises UserError (exit code 2) for a wrong address.
    """
    if base_url is not None:
        base_url = _address(base_url)
    if model == DEMO_NAME:
        return DEMO
    if base_url is None:
        return _named({("model", "name"): model}, visible(model or ""), needs_key=True)
    settings: dict[Key, Any] = {("model", "base_url"): base_url}
    if is_here(base_url):
        found = fit(base_url, model or "", env, choose)
        title = f"{visible(found.settings[('model', 'name')])}, of {base_url}"
        return _named({**settings, **found.settings}, title, found.remarks)
    if model is None:
        return _named(settings, f"that of {base_url}", needs_key=True)
    settings[("model", "name")] = model
    return _named(settings, f"{visible(model)}, of {base_url}", needs_key=True)


def must_name(names: Sequence[str], why: str) -> str:
    """Raise UserError (exit code 2): a server's model has to be named."""
    listed = f"That server has these models: {', '.join(map(visible, names))}"
    raise UserError(
        f"{listed if names else why}.",
        "Name one: --model NAME" if names else "Start the server, or name its model: --model NAME",
        exit_code=2,
    )


def _ask_for_name(names: Sequence[str], why: str) -> str:
    say(f"It has these models: {', '.join(map(visible, names))}." if names else f"{why}.")
    default = names[0] if names else None
    return str(click.prompt("placet: Name of the model there", default=default, err=True)).strip()


def _named(
    settings: Mapping[Key, Any],
    title: str,
    remarks: tuple[str, ...] = (),
    *,
    needs_key: bool = False,
) -> ModelChoice:
    # the vault may have had the demo model before
    settings = {("model", "provider"): "anthropic", **settings}
    return ModelChoice(title, settings, needs_key, remarks)


def _address(given: str) -> str:
    base_url = given.rstrip("/")
    if not http_host(base_url):
        raise UserError(
            f"{visible(given)} is not a server's address.",
            "Write it as https://host or http://127.0.0.1:11434, without a user or a key in it.",
            exit_code=2,
        )
    return base_url.removesuffix("/v1")


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
            address = _address(answer)
        except UserError as error:
            say(one_line(str(error)))
            continue
        return named_model(None, address, env, _ask_for_name)


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


def repository_here(vault: Path) -> Path | None:
    """Return the repository that we are in, unless it is placet's, a vault, or has the vault."""
    for folder in (here(), *here().parents):
        if os.path.lexists(folder / ".git"):
            root = folder.resolve()
            is_own = vault.resolve().is_relative_to(root) or (root / "daemon" / "placet").is_dir()
            is_vault = (root / CONFIG_PATH).exists()
            return None if is_own or is_vault or not is_repository(folder) else folder
    return None


def portal_name(place: Path) -> str:
    """Return a portal's name for a repository: the slug of its folder."""
    return request_id(f"{place.resolve().name}.md")


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
    """Make a folder a vault; return the created files, and those that existed and stay.

    A vault that a daemon used before gets its old id again, and its new configuration is accepted.
    `history` says whether placet may keep a history (git) of it, or None if you were not asked.
    Raises UserError if another file occupies a path.
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
    # may remain from an interrupted call.
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
        chosen = named_model(model, base_url, site.env, choose)
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
    new_site = Site(str(place), site.env)
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
    _say_next(folder, new_site, wants_key=chosen.needs_key if chosen else _wants_key(new_site))


def _confirm_home(place: Path, *, asks: bool) -> None:
    """Ask before the home folder becomes a vault. Raises UserError (exit code 2) without a yes."""
    if place.resolve() != Path.home().resolve():
        return
    if not (asks and agreed("placet: That is your home folder. Continue?")):
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
    change(site.vault, site.env, {("limits", "day_usd"): DAY_USD})
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
                if inspect_note(path, vault.read(path)[0]).status in ASKS:
                    found.append(path)
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


def _made_replies(place: Path) -> bool:
    """Write what the demo model says, if it is not there; return whether it was not."""
    replies = Path(__file__).with_name("demo_files") / "vault_replies.toml"
    with Vault(place) as folder, suppress(AlreadyThere):
        return folder.publish(DEMO_SCRIPT, replies.read_bytes())
    return False


def _take_model(site: Site, chosen: ModelChoice) -> None:
    """Write the settings of a model, which accepts them."""
    change(site.vault, site.env, chosen.settings)
    say(f"Model: {chosen.title}.")
    for remark in chosen.remarks:
        say(remark)
    if chosen.needs_key and ("model", "base_url") in chosen.settings:
        where = shlex.quote(str(site.vault))
        say(f"To try it with a tiny call: placet doctor --model --vault {where}")


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
    if warning := synced(site.state.folder):
        say(one_line(str(warning)))
    say("Next:")
    for line in (
        *(key if wants_key and not site.env.get(KEY) else ()),
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
