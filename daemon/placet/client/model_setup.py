"""Choose the settings that fit a model's server, and find limits that cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from time import monotonic
from typing import Any

from placet.chat.budget import unkept
from placet.chat.messages import ModelError, Usage
from placet.chat.prices import cost_usd, is_free
from placet.chat.tiny_call import TINY, calls_tool
from placet.errors import UserError
from placet.host.config import Config, Key, ModelTable, PriceRow
from placet.loop.build import prices
from placet.models import offered, open_model
from placet.models.server import Offered
from placet.note.paths import show as visible

LEAST_CONTEXT = 8_192
TRY_S = 120.0
"""How long a model may take for one tiny call. A slow machine loads it first."""
_NO_COST = ("input", "output", "cache_read", "cache_write")


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
    rows: Sequence[PriceRow] = (),
) -> Fit:
    """Ask a server on this machine for its models, and try one; return the settings for it.

    `name` is the model, "" to take the server's only one. `choose` gets the names of several, or
    none and why, and returns one, or "" to name none. `rows` are the prices so far. Raises
    UserError if the model's context is too small.
    """
    is_there = True
    try:
        models = offered(ModelTable(base_url=base_url), env)
        why = "" if models else f"{base_url} does not say which models it has"
    except ModelError as error:
        models, is_there = (), False
        why = f"{base_url} cannot be asked for its models ({error})"
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
        remarks.append(f"{why}. Set it yourself: placet config set model.context_tokens 32768")
    if not any(row.model == name for row in rows):
        free = {"model": name, "since": date.today(), **dict.fromkeys(_NO_COST, 0)}  # noqa: DTZ011 - a local day
        settings[("model", "price")] = [*map(_as_written, rows), free]
        remarks.append(
            f"{visible(name)} counts as free. If its server forwards to a paid service, set a "
            "price: [[model.price]] in System/placet.toml"
        )
    if is_there:
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
    known = cost_usd(Usage(), model.name, prices(config), free=is_free(model.provider)) is not None
    if known or not limit or config.team.workers:
        return None
    return unkept(visible(model.name), limit)
