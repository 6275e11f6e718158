"""Settings that are code or reach out hold as accepted on this machine, whatever `System/placet.toml` says meanwhile.

The file lies in the vault, and vaults are synced and shared: whoever can write it could send the model's key elsewhere, or have a
program started. So the values last accepted are kept in the state folder. The first start in a vault accepts what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from placet.core.errors import UserError, cannot_write
from placet.core.text.names import CONFIG_PATH, show
from placet.host.config import Config, load, made_of, parse, put_in_place
from placet.host.state import StateFolder, vault_state, write_private

_ALL: tuple[str, ...] = ()
GUARDED: Mapping[str, tuple[str, ...]] = {
    "model": ("base_url",),
    "notify": _ALL,
    "commands": _ALL,
    "portals": _ALL,
    "mcp": _ALL,
    "team": _ALL,
}
"""The tables that are guarded, and which of their keys."""

Key = tuple[str, ...]
"""Where a setting stands, table by table."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The configuration as it holds, and how it differs from what is written.

    `refused` are the settings that differ because nobody accepted them on this machine; `settled`
    says whether anything was accepted here yet. `written` and `accepted` are the guarded settings
    that are not at their default.
    """

    config: Config
    refused: tuple[Key, ...]
    settled: bool
    written: Mapping[Key, Any]
    accepted: Mapping[Key, Any]

    @property
    def names(self) -> list[str]:
        """The settings that do not hold, as a person writes them."""
        return [".".join(key) for key in self.refused]

    @property
    def problem(self) -> str:
        """What to say of them; empty where there are none."""
        if not self.refused:
            return ""
        return (
            f"{CONFIG_PATH} was changed, and this is not taken up: {', '.join(map(show, self.names))}. Such settings are code "
            "or reach out, so they hold as accepted on this machine. See the difference, and accept it: placet config accept"
        )

    @property
    def digest(self) -> str:
        """The same for the same difference. Values are in it, and cannot be read out of it."""
        found = [(key, self.written.get(key), self.accepted.get(key)) for key in self.refused]
        return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def in_force(vault: Path, env: Mapping[str, str]) -> InForce:
    """Return the configuration that holds: as written, but for what was never accepted here.

    Before the first start in a vault it is what is written. Raises UserError as `load` does, and
    for an accepted value that this placet cannot use.
    """
    return holding(load(vault), vault_state(vault, env))


def holding(config: Config, state: StateFolder) -> InForce:
    """Return what holds of a configuration that was read.

    Raises UserError where what was accepted cannot be read or used.
    """
    written = guarded(config)
    accepted = _read(state)
    if accepted is None:
        return InForce(config, (), settled=False, written=written, accepted=written)
    refused = differing(written, accepted)
    if not refused:
        return InForce(config, (), settled=True, written=written, accepted=accepted)
    tables = config.model_dump(mode="python", exclude_defaults=True)
    for key in written:
        _take_out(tables, key)
    for key, value in accepted.items():
        _put(tables, key, value)
    return InForce(
        made_of(tables, f"{state.accepted}, which holds for it"),
        refused,
        settled=True,
        written=written,
        accepted=accepted,
    )


def accept(
    state: StateFolder, config: Config, keys: Iterable[Key] | None = None
) -> tuple[Key, ...]:
    """Let what a configuration says hold on this machine: of `keys`, or of all settings.

    Return those that changed by it.

    Raises UserError where that cannot be written down.
    """
    written = guarded(config)
    before = _read(state) or {}
    chosen = differing(written, before) if keys is None else tuple(keys)
    after = dict(before)
    for key in chosen:
        after.pop(key, None)
        if key in written:
            after[key] = written[key]
    tables: dict[str, Any] = {}
    for key, value in after.items():
        _put(tables, key, value)
    try:
        write_private(state.accepted, json.dumps(tables, indent=2).encode())
    except OSError as error:
        raise cannot_write(state.accepted, error) from error
    return differing(after, before)


def change(vault: Path, env: Mapping[str, str], text: str, keys: Iterable[Key]) -> None:
    """Write the text of a vault's configuration, and accept what it says of `keys`, and of nothing else.

    Before the first start there is nothing to add to: that accepts what is there. Raises OSError, and UserError for a text that
    is no configuration, or where what is accepted cannot be written down.
    """
    path = vault / CONFIG_PATH
    config = parse(text, f"{path}, changed so,")
    put_in_place(path, text)
    state = vault_state(vault, env)
    if _read(state) is not None and (chosen := [key for key in keys if is_guarded(key)]):
        accept(state, config, chosen)


def guarded(config: Config) -> dict[Key, Any]:
    """Return the settings that need to be accepted, those that are not at their default."""
    tables = config.model_dump(mode="json", exclude_defaults=True)
    found: dict[Key, Any] = {}
    for table, keys in GUARDED.items():
        for key, value in _leaves(tables.get(table, {}), (table,)):
            if not keys or key[1] in keys:
                found[key] = value
    return found


def is_guarded(key: Key) -> bool:
    """Say whether a setting has to be accepted to hold."""
    return key[0] in GUARDED and (not GUARDED[key[0]] or not key[1:] or key[1] in GUARDED[key[0]])


def differing(one: Mapping[Key, Any], other: Mapping[Key, Any]) -> tuple[Key, ...]:
    """Return where two sets of settings differ."""
    return tuple(sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)))


def _read(state: StateFolder) -> dict[Key, Any] | None:
    """Return what was accepted, None where nothing was yet."""
    try:
        tables = json.loads(state.accepted.read_bytes())
        return {key: value for key, value in _leaves(tables, ()) if is_guarded(key)}
    except FileNotFoundError:
        return None
    except (
        OSError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:  # the last but one: it is no table
        raise UserError(
            f"{state.accepted} cannot be read: {error}",
            "It holds the settings that were accepted on this machine. Move it away: the next start accepts what "
            "System/placet.toml says then, so look at that first.",
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


def _put(tables: dict[str, Any], key: Key, value: Any) -> None:
    for name in key[:-1]:
        tables = tables.setdefault(name, {})
    tables[key[-1]] = value


def _take_out(tables: dict[str, Any], key: Key) -> None:
    """Take a setting out, and the tables that are empty then: a portal without its path is none."""
    *above, name = key
    below = [tables]
    for one in above:
        if one not in below[-1]:
            return
        below.append(below[-1][one])
    below[-1].pop(name, None)
    for table, one in zip(reversed(below[:-1]), reversed(above), strict=True):
        if not table[one]:
            del table[one]
