"""Model providers: names in the configuration, and their modules.

A provider is one module with `open_model(settings, env) -> Model`, perhaps a `prepare()` and a
`check(settings, env)`, and one line in `PROVIDERS`. Importing this package imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from placet.chat.messages import Model
from placet.errors import UserError

PROVIDERS: dict[str, str] = {
    "anthropic": "placet.models.anthropic",
    "scripted": "placet.models.scripted",
}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of a model.

    `name` is the model's name at the provider. `base_url` is the server, "" for the provider's own
    (or `ANTHROPIC_BASE_URL`). `script` is the file of the scripted provider. `timeout_s` is the
    longest silence of a server in the middle of an answer. Raises ValueError if it is not positive.
    """

    provider: str
    name: str = ""
    base_url: str = ""
    script: str = ""
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError("timeout_s must be greater than 0")


def check(settings: ModelSettings, env: Mapping[str, str]) -> bool | None:
    """Ask the provider's server about the key and the model; return False if it does not say.

    Return None for a provider without a `check`, which has no server to ask. Raises UserError and
    ModelError as `open_model` and `Model.reply` do.
    """
    ask = getattr(importlib.import_module(PROVIDERS[settings.provider]), "check", None)
    return None if ask is None else bool(ask(settings, env))


def prepare(provider: str) -> None:
    """Start, in the background, whatever the first call of a provider's model would wait for."""
    begin = (
        getattr(importlib.import_module(PROVIDERS[provider]), "prepare", None)
        if provider in PROVIDERS
        else None
    )
    if begin is not None:
        begin()


def open_model(settings: ModelSettings, env: Mapping[str, str]) -> Model:
    """Return the model that `settings` name, with the key of the environment `env`.

    It makes no connection. Raises UserError (exit code 2) for wrong settings, ModelError
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
        "Callable[[ModelSettings, Mapping[str, str]], Model]",
        importlib.import_module(where).open_model,
    )
    return opener(settings, env)
