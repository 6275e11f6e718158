"""Let settings that are code, reach out or limit work hold only as accepted on this machine.

`System/placet.toml` is in the vault, and vaults are synced and shared: whoever can write it could
send the model's key elsewhere, answer in the model's place, or start a program. So placet keeps the
values last accepted in the state folder, and they hold whatever the file says. The first start in a
vault accepts what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.disk.files import put
from placet.errors import UserError, cannot_write
from placet.host.config import (
    Config,
    Key,
    LimitsTable,
    config_from,
    load,
    one_writer,
    write_settings,
)
from placet.host.state import StateFolder, vault_state
from placet.note.paths import CONFIG_PATH, show

GUARDED = frozenset(
    {"approval", "board", "commands", "limits", "model", "notify", "portals", "team"}
)
"""The tables whose settings have to be accepted to hold."""
_FLOORS = ("free_disk_bytes",)  # stricter if higher
_ENDLESS = ("day_usd", "day_tokens", "planning_usd", "mission_wall_time_s")  # 0: no limit


@dataclass(frozen=True, slots=True)
class InForce:
    """The effective configuration, and its differences from the file.

    `refused` are the settings that were not accepted on this machine. `settled` says whether any
    were accepted here. `written` and `accepted` are the guarded settings without the defaults.
    """

    config: Config
    refused: tuple[Key, ...]
    settled: bool
    written: Mapping[Key, Any]
    accepted: Mapping[Key, Any]

    @property
    def names(self) -> list[str]:
        """Return the refused settings as a person writes them."""
        return [".".join(key) for key in self.refused]

    @property
    def problem(self) -> str:
        """Return the sentence for people about refused settings; empty for none."""
        if not self.refused:
            return ""
        return (
            f"placet ignores these changes of {CONFIG_PATH}: {', '.join(map(show, self.names))}. "
            "You have not accepted them on this machine. To see and accept them: "
            "placet config accept"
        )

    @property
    def digest(self) -> str:
        """Return a hash of the difference; it does not reveal the values."""
        found = [(key, self.written.get(key), self.accepted.get(key)) for key in self.refused]
        return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def in_force(vault: Path, env: Mapping[str, str]) -> InForce:
    """Return the configuration that holds; before the first start in a vault, what is written.

    Raises UserError as `load` does, and for an accepted value that this version cannot use.
    """
    return holding(load(vault), vault_state(vault, env))


def holding(config: Config, state: StateFolder) -> InForce:
    """Return what holds of a configuration, as `in_force`.

    Raises UserError if the accepted settings cannot be read or used.
    """
    written = guarded(config)
    kept = _read(state)
    accepted = written if kept is None else kept
    differ = differing(written, accepted)
    refused = tuple(k for k in differ if not _tightens(k, written.get(k), accepted.get(k)))
    if refused:
        free = dict(_leaves(config.model_dump(mode="python", exclude_defaults=True), ()))
        held = {k: v for k, v in accepted.items() if k not in differ or k in refused}
        tables = _nested({k: v for k, v in free.items() if k not in refused} | held)
        config = config_from(tables, f"{state.accepted}, which holds for it")
    return InForce(config, refused, kept is not None, written, accepted)


def accept(
    state: StateFolder, config: Config, keys: Iterable[Key] | None = None
) -> tuple[Key, ...]:
    """Accept what a configuration says of `keys`, or of all settings; return those that changed.

    Raises UserError if that cannot be written.
    """
    written = guarded(config)
    with one_writer(state.accepted):
        before = _read(state) or {}
        chosen = differing(written, before) if keys is None else tuple(keys)
        after = dict(before)
        for key in chosen:
            after.pop(key, None)
            if key in written:
                after[key] = written[key]
        try:
            put(state.accepted, json.dumps(_nested(after), indent=2).encode())
        except OSError as error:
            raise cannot_write(state.accepted, error) from error
    return differing(after, before)


def change(vault: Path, env: Mapping[str, str], settings: Mapping[Key, Any]) -> None:
    """Change settings of a vault, as `write_settings` does, and accept them alone.

    Before the first start nothing is accepted: that start accepts all. Raises UserError, also if
    `accept` cannot write.
    """
    config = write_settings(vault, settings)
    state = vault_state(vault, env)
    if (accepted := _read(state)) is not None:
        keys = {*accepted, *guarded(config)}
        accept(state, config, [k for k in keys if any(k[: len(one)] == one for one in settings)])


def guarded(config: Config) -> dict[Key, Any]:
    """Return the guarded settings that differ from their defaults."""
    dumped = config.model_dump(mode="python", exclude_defaults=True)
    tables = json.loads(json.dumps(dumped, default=plain))
    return {key: value for key, value in _leaves(tables, ()) if is_guarded(key)}


def plain(value: Decimal | date) -> float | str:
    """Return what JSON has for a value: money as a number, as the settings want it."""
    return float(value) if isinstance(value, Decimal) else value.isoformat()


def is_guarded(key: Key) -> bool:
    """Return whether a setting has to be accepted to hold."""
    return key[0] in GUARDED


def _tightens(key: Key, new: Any, old: Any) -> bool:
    """Return whether a limit's new value allows no more than its old one; None is the default.

    Anybody may lower a limit: work then stops sooner.
    """
    if key[0] != "limits":
        return False
    fields = LimitsTable.model_fields
    new, old = (fields[key[1]].default if v is None else v for v in (new, old))
    new, old = (
        Decimal("inf") if key[1] in _ENDLESS and not Decimal(str(v)) else Decimal(str(v))
        for v in (new, old)
    )
    return bool(new >= old if key[1] in _FLOORS else new <= old)


def differing(one: Mapping[Key, Any], other: Mapping[Key, Any]) -> tuple[Key, ...]:
    """Return the keys by which two sets of settings differ, sorted."""
    return tuple(sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)))


def _read(state: StateFolder) -> dict[Key, Any] | None:
    try:
        tables = json.loads(state.accepted.read_bytes())
        return {key: value for key, value in _leaves(tables, ()) if is_guarded(key)}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:  # the last: it is not a table
        raise UserError(
            f"{state.accepted} cannot be read: {error}",
            "It holds the settings that were accepted on this machine. Look at System/placet.toml, "
            "then move this file away: the next start accepts what System/placet.toml says.",
            exit_code=2,
        ) from error


def _leaves(tables: Mapping[str, Any], above: Key) -> list[tuple[Key, Any]]:
    found: list[tuple[Key, Any]] = []
    for name, value in tables.items():
        if isinstance(value, dict):
            found += _leaves(value, (*above, name))
        else:
            found.append(((*above, name), value))
    return found


def _nested(settings: Mapping[Key, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (*above, name), value in settings.items():
        table = found
        for part in above:
            table = table.setdefault(part, {})
        table[name] = value
    return found
