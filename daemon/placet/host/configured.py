"""The few settings that `placet status` needs, without pydantic's import: a quarter of a second.

Who reads the configuration whole keeps them in the state folder, with a digest of all that was
read. While the digest holds, they are what reading the configuration again would give.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from placet.core.text.names import CONFIG_PATH
from placet.host.state import StateFolder, write_private
from placet.host.vault_state import vault_state

if TYPE_CHECKING:
    from placet.host.accepted import InForce

DEFAULTS = Path(__file__).with_name("tables.py")
"""The module that has the settings' defaults."""


@dataclass(frozen=True, slots=True)
class Configured:
    """Some settings that hold; `unaccepted` names those that do not hold on this machine.

    `workers` says that those of a team do the work.
    """

    provider: str
    model: str
    paused: bool
    day_usd: Decimal
    day_tokens: int
    workers: bool
    unaccepted: tuple[str, ...]


def configured(vault: Path, env: Mapping[str, str]) -> Configured:
    """Return these settings of a vault. Raises UserError as `accepted.in_force` does."""
    state = vault_state(vault, env)
    try:
        kept = json.loads(state.settings.read_bytes())
        if kept.pop("of") == _digest(state):
            return Configured(
                **kept
                | {"day_usd": Decimal(kept["day_usd"]), "unaccepted": tuple(kept["unaccepted"])}
            )
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass
    return _some(read_settings(state))


def read_settings(state: StateFolder) -> InForce:
    """Return the configuration that holds, and keep what `configured` needs.

    Raises UserError as `accepted.in_force` does.
    """
    from placet.host.accepted import holding
    from placet.host.config import load

    before = _digest(state)
    held = holding(load(state.vault), state)
    if before == _digest(state):  # else it was written while it was read
        text = json.dumps({"of": before, **asdict(_some(held))}, default=str).encode()
        with suppress(OSError):
            if not state.settings.exists() or state.settings.read_bytes() != text:
                write_private(state.settings, text)
    return held


def unknown() -> Configured:
    """Return what is shown if the file cannot be used: no model, and else the defaults."""
    return Configured("", "", False, Decimal(0), 0, False, ())  # noqa: FBT003


def _some(held: InForce) -> Configured:
    config = held.config
    return Configured(
        config.model.provider,
        config.model.name,
        config.daemon.paused,
        config.limits.day_usd,
        config.limits.day_tokens,
        config.team.workers,
        tuple(held.names),
    )


def _digest(state: StateFolder) -> str:
    """Return a digest of the files that settings come from: the vault's, ours, and the defaults."""
    defaults = DEFAULTS.stat()
    digest = sha256(f"{defaults.st_mtime_ns} {defaults.st_size}".encode())
    for path in (state.vault / CONFIG_PATH, state.accepted):
        with suppress(OSError):
            digest.update(sha256(path.read_bytes()).digest())
        digest.update(b"\n")
    return digest.hexdigest()
