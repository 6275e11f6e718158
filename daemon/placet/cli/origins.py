"""Find a setting by its key, and say which values it may have."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from placet.errors import UserError
from placet.host.accepted import Key
from placet.host.config import refused
from placet.host.tables import Config, table_at
from placet.note.paths import CONFIG_PATH
from placet.note.paths import show as visible


def names() -> list[str]:
    """Return every setting by its key, portals left out."""
    return [
        f"{table}.{name}"
        for table in Config.model_fields
        if (fields := table_at((table,))) is not None
        for name in fields.model_fields
    ]


def must_be_known(key: Key) -> None:
    """Raise UserError (exit code 2), with the nearest names, for a key that is no setting."""
    if len(key) >= 2 and _field(key) is not None:
        return
    raise unknown(".".join(key), names())


def unknown(key: str, known: Sequence[str]) -> UserError:
    """Return the error for a key that is no setting, with the nearest of these names."""
    # the table was forgotten, or another one was named
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
        # a portal's name is anybody's
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
