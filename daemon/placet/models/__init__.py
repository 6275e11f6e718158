"""Open the model of a provider that the configuration names.

A provider is a module with `open_model(settings, env) -> Model`, perhaps `prepare()`,
`check(settings, env)` and `offered(settings, env)`, and a line in `PROVIDERS`. Importing this
package imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from placet.chat.messages import Model
from placet.errors import UserError
from placet.host.config import ModelTable
from placet.models.server import Offered

PROVIDERS: dict[str, str] = {
    "anthropic": "placet.models.anthropic",
    "scripted": "placet.models.scripted",
}


def check(settings: ModelTable, env: Mapping[str, str]) -> bool | None:
    """Ask the provider's server about the key and the model; return False if it does not say.

    Return None for a provider without a `check`, which has no server. Raises UserError and
    ModelError as `open_model` and `Model.reply` do.
    """
    ask = getattr(importlib.import_module(PROVIDERS[settings.provider]), "check", None)
    return None if ask is None else bool(ask(settings, env))


def offered(settings: ModelTable, env: Mapping[str, str]) -> tuple[Offered, ...]:
    """Return the models that the provider's server offers; none if it does not say.

    Raises as `check` does.
    """
    ask = getattr(importlib.import_module(PROVIDERS[settings.provider]), "offered", None)
    return () if ask is None else tuple(ask(settings, env))


def prepare(provider: str) -> None:
    """Start to load, in a thread, what the first call of a provider's model needs."""
    begin = (
        getattr(importlib.import_module(PROVIDERS[provider]), "prepare", None)
        if provider in PROVIDERS
        else None
    )
    if begin is not None:
        begin()


def open_model(settings: ModelTable, env: Mapping[str, str]) -> Model:
    """Return the model that `settings` name, with the key of the environment `env`.

    It opens no connection. Raises UserError (exit code 2) for wrong settings, ModelError
    (permanent) for a missing or unusable key.
    """
    where = PROVIDERS.get(settings.provider)
    if where is None:
        raise UserError(
            f"[model] provider: there is no provider {settings.provider!r}",
            f"Set it to one of: {', '.join(sorted(PROVIDERS))}.",
            exit_code=2,
        )
    opener = cast(
        "Callable[[ModelTable, Mapping[str, str]], Model]",
        importlib.import_module(where).open_model,
    )
    return opener(settings, env)
