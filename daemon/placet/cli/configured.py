"""The few settings that `status` needs, read without pydantic, whose import takes as long as the rest of the command."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from placet.core.text.names import CONFIG_PATH
from placet.host.state import StateFolder, vault_state

PROVIDER, MODEL, QUIET_S = "anthropic", "claude-opus-5-5", 30
"""What holds where the file does not say."""


@dataclass(frozen=True, slots=True)
class Configured:
    """Some settings, as `config.load` has them; a test holds the two together."""

    provider: str
    model: str
    paused: bool
    day_usd: Decimal
    day_tokens: int
    quiet_s: float
    # settings that do not hold, because nobody accepted them on this machine
    unaccepted: tuple[str, ...]


def configured(vault: Path, env: Mapping[str, str]) -> Configured:
    """Return these settings of a vault.

    Raises UserError as `accepted.in_force` does for a file in which one cannot be used.
    """
    try:
        tables = tomllib.loads(
            (vault / CONFIG_PATH).read_bytes().decode("utf-8-sig"), parse_float=Decimal
        )
        model, daemon, limits, asked = (
            tables.get(name, {}) for name in ("model", "daemon", "limits", "vault")
        )
        found = Configured(
            _of(model, "provider", str, PROVIDER),
            _of(model, "name", str, MODEL),
            _of(daemon, "paused", bool, default=False),
            Decimal(_of(limits, "day_usd", (int, Decimal), Decimal(0))),
            _of(limits, "day_tokens", int, 0),
            float(_of(asked, "quiet_s", (int, Decimal), QUIET_S)),
            (),
        )
        if _as_accepted(tables, vault_state(vault, env)):
            return found
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        pass
    # it says what is wrong, all at once, or reads what is odd and still can be used
    from placet.host.accepted import in_force

    held = in_force(vault, env)
    whole = held.config
    return Configured(
        whole.model.provider,
        whole.model.name,
        whole.daemon.paused,
        whole.limits.day_usd,
        whole.limits.day_tokens,
        whole.vault.quiet_s,
        tuple(held.names),
    )


def unknown() -> Configured:
    """Return what is shown where the file cannot be used: no model is named, and else what holds without a file."""
    return Configured(
        "",
        "",
        paused=False,
        day_usd=Decimal(0),
        day_tokens=0,
        quiet_s=float(QUIET_S),
        unaccepted=(),
    )


def _as_accepted(tables: dict[str, Any], state: StateFolder) -> bool:
    """Say whether the settings that have to be accepted are literally those that were.

    What is only written otherwise is not.
    """
    try:
        accepted = json.loads(state.accepted.read_bytes())
    except FileNotFoundError:
        return True
    written = {
        name: tables[name]
        for name in ("notify", "commands", "portals", "mcp", "team")
        if tables.get(name)
    }
    if "base_url" in tables.get("model", {}):
        written["model"] = {"base_url": tables["model"]["base_url"]}
    return bool(written == accepted)


def _of(table: dict[str, Any], name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = table.get(name, default)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(name)
    return value
