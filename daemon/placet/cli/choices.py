"""The questions of `placet init` on model and repository, their defaults and their flags."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from placet.cli.local_models import is_here
from placet.cli.site import here
from placet.cli.terminal import echo, say
from placet.errors import UserError
from placet.git.repository import is_repository
from placet.host.accepted import Key
from placet.host.state import from_home
from placet.host.tables import ModelTable
from placet.note.paths import request_id
from placet.note.paths import show as visible

KEY = "ANTHROPIC_API_KEY"
DEMO_SCRIPT = "System/demo-replies.toml"
"""The replies of the demo model, in a vault that has it."""

DEMO_NAME = "demo"
"""What the scripted model of the demo is called."""

VENDOR = "anthropic"
NONE = "-"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that a vault may begin with: words for people, and the settings that it takes."""

    words: str
    settings: Mapping[Key, Any]
    needs_key: bool = False

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
    """Return the name that a model needs once its provider is `provider`; empty to keep it.

    Raises UserError (exit code 2) where nobody but you knows the name.
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


def named_model(model: str | None, base_url: str | None) -> ModelChoice:
    """Return the model that `--model` and `--base-url` name; at least one is given.

    Raises UserError (exit code 2) for a wrong address, or a server on this machine without a model.
    """
    if base_url is not None:
        base_url = _address(base_url)
    if model == DEMO_NAME:
        return DEMO
    if base_url is None:
        return _named({("model", "name"): model}, visible(model or ""), needs_key=True)
    if model is None and is_here(base_url):
        raise UserError(
            f"{base_url} is on this machine, and placet does not know its models.",
            f"Name one: --base-url {base_url} --model NAME",
            exit_code=2,
        )
    settings: dict[Key, Any] = {("model", "base_url"): base_url}
    if model is None:
        return _named(settings, f"that of {base_url}", needs_key=True)
    settings[("model", "name")] = model
    return _named(settings, f"{visible(model)}, of {base_url}", needs_key=not is_here(base_url))


def _named(settings: Mapping[Key, Any], words: str, *, needs_key: bool) -> ModelChoice:
    # the vault may have had the demo model before
    return ModelChoice(words, {("model", "provider"): "anthropic", **settings}, needs_key)


def _address(given: str) -> str:
    base_url = given.rstrip("/")
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in base_url
        _ = parts.port
    except ValueError:
        good = False
    if not good or not base_url.isprintable():
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
        (VENDOR, vendor.words),
        (DEMO_NAME, DEMO.words),
        ("an address", "a server that speaks the Messages API, as http://127.0.0.1:11434"),
    ):
        echo(f"  {word:<10}  {model}", err=True)
    while True:
        said = click.prompt("placet: Model", default=VENDOR, err=True).strip()
        if said == VENDOR:
            return vendor
        if said == DEMO_NAME:
            return DEMO
        try:
            address = _address(said)
        except UserError as error:
            say(f"{error.what} {error.hint}")
            continue
        name = click.prompt("placet: Name of the model there", err=True).strip()
        return named_model(name, address)


def given_portals(given: Sequence[str]) -> dict[str, str]:
    """Return the portals of `--portal NAME=PATH`.

    Raises UserError (exit code 2) for other words, and for a path that is no folder.
    """
    found = dict[str, str]()
    for one in given:
        name, sign, path = one.partition("=")
        if not (name and sign and path):
            raise UserError(
                f"--portal {visible(one)} is no portal.",
                "Write it as --portal code=~/src/code",
                exit_code=2,
            )
        if not from_home(path).is_dir():  # before anything is made
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
    say("Which git repository may requests name, besides the vault? (more later: placet portal)")
    while True:
        given = click.prompt(
            f"placet: Path, or {NONE} for none", default=str(offered or NONE), err=True
        ).strip()
        if given == NONE:
            return {}
        place = from_home(given)
        place = place if place.is_absolute() else here() / place
        if is_repository(place):
            return {portal_name(place): str(place)}
        say(f"{visible(str(place))} is no git repository.")


def repository_here(vault: Path) -> Path | None:
    """Return the repository that we are in, unless it is the vault's or the vault is in it."""
    for folder in (here(), *here().parents):
        if os.path.lexists(folder / ".git"):
            root = folder.resolve()
            theirs = (vault.resolve(), Path(__file__).resolve())  # placet's own checkout is none
            inside = any(path.is_relative_to(root) for path in theirs)
            return None if inside or not is_repository(folder) else folder
    return None


def portal_name(place: Path) -> str:
    """Return a portal's name for a repository: the slug of its folder."""
    return request_id(f"{place.resolve().name}.md", ())
