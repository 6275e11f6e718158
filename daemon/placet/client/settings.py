"""Read, check and accept settings of a vault."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from placet.client.site import Site
from placet.errors import UserError
from placet.host.accepted import InForce, accept, holding
from placet.host.config import Config, Key, load, refused, table_at
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible


@dataclass(frozen=True, slots=True)
class Unaccepted:
    """A setting that was not accepted on this machine; None stands for the default."""

    key: str
    written: Any
    holds: Any


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that hold, as JSON has them, and those that were not accepted."""

    settings: dict[str, Any]
    unaccepted: tuple[Unaccepted, ...]


def settings(site: Site) -> Settings:
    """Return the settings of a vault; amounts of money are numbers."""
    held = site.in_force()
    plain = json.dumps(held.config.model_dump(mode="python"), default=_plain)
    return Settings(json.loads(plain), _unaccepted(held))


def _plain(value: object) -> float | str:
    return float(value) if isinstance(value, Decimal) else str(value)


def _unaccepted(held: InForce) -> tuple[Unaccepted, ...]:
    return tuple(
        Unaccepted(name, held.written.get(key), held.accepted.get(key))
        for key, name in zip(held.refused, held.names, strict=True)
    )


def setting(site: Site, key: str) -> Any:
    """Return the value of a setting or a table as it holds.

    Raises UserError (exit code 2), with the nearest names, if there is none.
    """
    found: Any = settings(site).settings
    known = [*found, *(".".join(path) for path, _ in flat(found))]
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            raise unknown(key, known)
        found = found[part]
    return found


def flat(
    tables: Mapping[str, Any], above: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any]]:
    """Return the values of nested tables, each by its key."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in tables.items():
        if isinstance(value, Mapping) and value:
            found += flat(value, (*above, name))
        else:
            found.append(((*above, name), value))
    return found


def to_accept(site: Site) -> tuple[Unaccepted, ...]:
    """Return the settings that were not accepted on this machine.

    Raises UserError before the first start, which accepts what is there.
    """
    held = site.in_force()
    if not held.settled:
        raise UserError(
            "The daemon has not run on this vault yet: its first start accepts what is there.",
            "placet run",
        )
    return _unaccepted(held)


def accept_settings(site: Site, shown: Sequence[Unaccepted]) -> None:
    """Accept the settings that were shown; raises UserError if they were changed meanwhile."""
    config = load(site.vault)
    held = holding(config, site.state)
    if _unaccepted(held) != shown:
        raise UserError(f"{CONFIG_PATH} was changed meanwhile.", "Look again: placet config accept")
    accept(site.state, config, held.refused)


def send_test_notice(site: Site) -> None:
    """Send a notice every way that is on; raises UserError if none is on, or one fails."""
    from placet.host.notify import Event, Notice, send  # loads HTTP and TLS

    held = site.in_force()
    if any(key[0] == "notify" for key in held.refused):
        raise UserError(held.problem)
    ways = held.config.notify
    if not ways.is_on:
        raise UserError(
            "No way of notifying is on.",
            "Set desktop, command or webhook under [notify] in System/placet.toml.",
            exit_code=2,
        )
    problems = send(Notice(Event.TEST, "", "", site.vault.name, "Home.md"), ways)
    if problems:
        raise UserError(
            "\n  ".join(problems), "Fix [notify] in System/placet.toml, then try again."
        )


def names() -> list[str]:
    """Return every setting by its key, portals left out."""
    return [
        f"{table}.{name}"
        for table in Config.model_fields
        if (fields := table_at((table,))) is not None
        for name in fields.model_fields
    ]


def must_be_known(key: Key) -> None:
    """Raise UserError (exit code 2), with the nearest names, for a key that is not a setting."""
    if len(key) >= 2 and _field(key) is not None:
        return
    raise unknown(".".join(key), names())


def unknown(key: str, known: Sequence[str]) -> UserError:
    """Return the error for a key that is not a setting, with the nearest of these names."""
    # the table is missing or wrong
    last = key.rpartition(".")[2]
    near = [name for name in known if name.rpartition(".")[2] == last][:3]
    near = near or get_close_matches(key, known, n=3, cutoff=0.7)
    return UserError(
        f"There is no setting {visible(key)}.",
        f"Did you mean {' or '.join(map(visible, near))}?"
        if near
        else "See them all: placet config",
        exit_code=2,
    )


def value_of(key: Key, text: str) -> Any:
    """Return the value that a text on the command line means: TOML, or else the text itself."""
    given: Any = text
    with suppress(tomllib.TOMLDecodeError):
        given = tomllib.loads(f"value = {text}")["value"]
    field = _field(key)
    is_text = field is not None and field.annotation is str
    return text if is_text and not isinstance(given, str) else given


def must_be_allowed(key: Key, value: Any) -> None:
    """Raise UserError (exit code 2) that says what a setting may be, for a value that it may not.

    Looks at this setting alone.
    """
    if why := refused(key, value):
        # what pydantic says of a type is said in words of ours below
        because = "" if why.startswith("input should") else f": {why}"
        raise UserError(
            f"{visible('.'.join(key))} cannot be {visible(str(value))}{because}.",
            f"It may be {allowed(key)}. Nothing was written.",
            exit_code=2,
        )


def allowed(key: Key) -> str:
    """Return what a setting may be, in words."""
    field = _field(key)
    assert field is not None, "it is a setting"
    return _words(field.annotation, field)


def _field(key: Key) -> FieldInfo | None:
    table = table_at(key[:-1])
    if table is None:
        # users choose these names
        return Config.model_fields["portals"] if key[:-1] == ("portals",) else None
    return table.model_fields.get(key[-1])


def _words(kind: Any, field: FieldInfo) -> str:
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return _either([f'"{value}"' for value in get_args(kind)])
    if get_origin(kind) in (Union, UnionType):
        return ", or ".join(_words(one, field) for one in get_args(kind))
    if kind in (int, float, Decimal):
        return f"a {'whole ' if kind is int else ''}number{_range(field.metadata)}"
    if kind is str:
        return "a text"
    if get_args(kind)[:1] == (str,) and get_origin(kind) is tuple:
        return 'a list of texts, as in ["a", "b"]'
    return f"a list of tables or a table, as {CONFIG_PATH} of a new vault shows"


def _range(metadata: Sequence[Any]) -> str:
    bounds = {
        name: getattr(one, name)
        for one in metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(one, name, None) is not None
    }
    low = f" from {bounds['ge']}" if "ge" in bounds else ""
    low = low or (f" above {bounds['gt']}" if "gt" in bounds else "")
    return low + (f" to {bounds['le']}" if "le" in bounds else "")


def _either(values: Sequence[str]) -> str:
    return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)
