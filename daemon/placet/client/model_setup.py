"""Choose a vault's model and the settings that fit its server; find limits that cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from time import monotonic
from typing import Any

from placet.chat.budget import unkept
from placet.chat.messages import ModelError, ModelErrorKind, Usage
from placet.chat.prices import cost_usd, is_free
from placet.chat.tiny_call import TINY, calls_tool
from placet.client.new_vault import DEMO_SCRIPT
from placet.client.site import Site
from placet.errors import UserError
from placet.host.config import Config, Key, ModelTable, PriceRow, http_host, load, refused
from placet.models import offered, open_model
from placet.models.server import KEY_VARIABLE, Offered, is_here
from placet.note.paths import show as visible

LEAST_CONTEXT = 8_192
TRY_S = 120.0
"""How long a model may take for one tiny call. A slow machine loads it first."""
_NO_COST = ("input", "output", "cache_read", "cache_write")


DEMO_NAME = "demo"
"""What the scripted model of the demo is called."""


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
    has_key = bool(env.get(KEY_VARIABLE, "").strip())
    where = f"the key is in {KEY_VARIABLE}" if has_key else f"set its key: export {KEY_VARIABLE}=…"
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
    say: Callable[[str], None],
) -> ModelChoice:
    """Return the model that `--model` and `--base-url` name; at least one is given.

    A server on this machine is asked for its models; `choose`, `say` and the errors are those of
    `fit`. Raises UserError (exit code 2) for a wrong address.
    """
    if base_url is not None:
        base_url = server_address(base_url)
    if model == DEMO_NAME:
        return DEMO
    if base_url is None:
        return _named({("model", "name"): model}, visible(model or ""), needs_key=True)
    settings: dict[Key, Any] = {("model", "base_url"): base_url}
    if is_here(base_url):
        found = fit(base_url, model or "", env, choose, say)
        title = f"{visible(found.settings[('model', 'name')])}, of {base_url}"
        return _named({**settings, **found.settings}, title, found.remarks)
    if model is None:
        return _named(settings, f"that of {base_url}", needs_key=True)
    settings[("model", "name")] = model
    return _named(settings, f"{visible(model)}, of {base_url}", needs_key=True)


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


def server_address(given: str) -> str:
    """Return a server's address as settings have it.

    Raises UserError (exit code 2) for a text that is no address.
    """
    base_url = given.rstrip("/")
    if not http_host(base_url):
        raise UserError(
            f"{visible(given)} is not a server's address.",
            "Write it as https://host or http://127.0.0.1:11434, without a user or a key in it.",
            exit_code=2,
        )
    return base_url.removesuffix("/v1")


def wants_key(site: Site) -> bool:
    """Return whether the model that the vault has needs a key."""
    model = load(site.vault).model
    return model.provider == "anthropic" and not model.base_url


def fitted(site: Site, path: Key, given: Any) -> Fit:
    """Return the settings that follow from a new server on this machine, or a new name there."""
    if path not in (("model", "base_url"), ("model", "name")) or refused(path, given):
        return Fit({})
    model = load(site.vault).model
    is_address = path[-1] == "base_url"
    base_url, name = (given.rstrip("/"), "") if is_address else (model.base_url, given)
    if model.provider != "anthropic" or not is_here(base_url):
        return Fit({})
    return fit(
        base_url,
        name,
        site.env,
        lambda names, _: model.name if model.name in names else "",
        site.say,
        model.price,
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """The settings for a model of a server, and remarks for you."""

    settings: Mapping[Key, Any]
    remarks: tuple[str, ...] = ()


def fit(
    base_url: str,
    name: str,
    env: Mapping[str, str],
    choose: Callable[[Sequence[str], str], str],
    say: Callable[[str], None],
    rows: Sequence[PriceRow] = (),
) -> Fit:
    """Ask a server on this machine for its models, and try one; return the settings for it.

    `name` is the model, "" to take the server's only one. `choose` gets the names of several, or
    none and why, and returns one, or "" to name none. `say` is told what may take long. `rows` are
    the prices so far. Raises UserError if the model's context is too small.
    """
    say(f"Asking {base_url} for its models.")
    is_there, helps = True, "Set it yourself: placet config set model.context_tokens 32768"
    try:
        models = offered(ModelTable(base_url=base_url), env)
        why = "" if models else f"{base_url} does not say which models it has"
    except ModelError as error:
        models, is_there = (), False
        why = f"{base_url} cannot be asked for its models ({error})"
        if error.kind is not ModelErrorKind.TRANSIENT:
            again = f"placet config set model.base_url {base_url}"
            helps = f"If it needs a key: export ANTHROPIC_API_KEY=… and type {again}"
    names = [one.name for one in models]
    name = name or (names[0] if len(names) == 1 else choose(names, why))
    if not name:
        listed = f"It has these models: {', '.join(map(visible, names))}." if names else f"{why}."
        return Fit({}, (f"{listed} Name one: placet config set model.name NAME",))
    settings: dict[Key, Any] = {("model", "name"): name}
    remarks = []
    if context := _context_of(name, models):
        if context < LEAST_CONTEXT:
            raise UserError(
                f"{visible(name)} has a context of {context:,} tokens at {base_url}. "
                f"placet needs at least {LEAST_CONTEXT:,}.",
                "Start the server with a larger one, as with: llama-server -c 32768",
                exit_code=2,
            )
        most = ModelTable().max_tokens
        settings[("model", "context_tokens")] = context
        settings[("model", "max_tokens")] = min(most, context // 4)
    else:
        why = why or f"{base_url} does not say how much the model can read"
        remarks.append(f"{why}. {helps}")
    if not any(row.model == name for row in rows):
        free = {"model": name, "since": date.today(), **dict.fromkeys(_NO_COST, 0)}  # noqa: DTZ011 - a local day
        settings[("model", "price")] = [*map(_as_written, rows), free]
        remarks.append(
            f"{visible(name)} counts as free. If its server forwards to a paid service, set a "
            "price: [[model.price]] in System/placet.toml"
        )
    if is_there:
        say(f"Trying {visible(name)} with one tiny call. That can take a minute.")
        tools, tried = _tried(ModelTable(base_url=base_url, name=name), env)
        settings |= tools
        remarks.append(tried)
    return Fit(settings, tuple(remarks))


def _tried(model: ModelTable, env: Mapping[str, str]) -> tuple[dict[Key, Any], str]:
    """Make one tiny call; return how the model calls tools, and a remark for you."""
    until_s = monotonic() + TRY_S
    try:
        reply = open_model(model, env).reply(TINY, lambda: monotonic() > until_s)
    except ModelError as error:
        return {}, f"{error}. To try it again: placet doctor --model"
    if calls_tool(reply):
        return {}, f"{visible(model.name)} was tried with one tiny call: it calls tools."
    return {("model", "tools"): "text"}, (
        f"{visible(model.name)} was tried with one tiny call. Its server handed on no tool call, "
        "so placet reads calls in the model's text (model.tools = text)."
    )


def _context_of(name: str, models: Sequence[Offered]) -> int | None:
    """Return a model's context in tokens; of a server's only model, whatever it is called.

    llama-server has one model and takes any name for it.
    """
    found = [one for one in models if one.name == name] or (models if len(models) == 1 else [])
    return found[0].context_tokens if found else None


def _as_written(row: PriceRow) -> dict[str, Any]:
    return {**row.model_dump(), **{kind: float(getattr(row, kind)) for kind in _NO_COST}}


def unkept_limit(config: Config) -> tuple[str, str] | None:
    """Return why the limit of dollars a day cannot hold, and a command that helps, or None."""
    model, limit = config.model, config.limits.day_usd
    known = cost_usd(Usage(), model.name, model.prices, free=is_free(model.provider)) is not None
    if known or not limit or config.team.workers:
        return None
    return unkept(visible(model.name), limit)
