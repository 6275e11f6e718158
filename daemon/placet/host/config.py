"""`System/placet.toml` as a checked value: read, and changed without a rewrite."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from placet.disk.files import put
from placet.errors import UserError, cannot_write
from placet.host.state import from_home
from placet.host.tables import Config, table_at
from placet.note.paths import CONFIG_PATH, TEMP_PREFIX


def load(vault: Path) -> Config:
    """Return a vault's configuration, as written.

    Raises UserError (exit code 2) that names the file and every wrong setting at once.
    """
    path = vault / CONFIG_PATH
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError as error:
        raise UserError(
            f"{vault} is no vault: it has no {CONFIG_PATH}.",
            f"Make it one: placet init {vault}",
            exit_code=2,
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} cannot be read: {error}",
            "Fix the file, or delete it and write a new one: placet init",
            exit_code=2,
        ) from error
    return parse(text, str(path))


def parse(text: str, where: str) -> Config:
    """Return the configuration that a text states; `where` names it.

    Raises UserError (exit code 2) as `load` does.
    """
    try:
        # some editors begin every file with a mark
        tables = tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise UserError(
            f"{where} is nested too deeply.",
            "Fix it; no setting is a list in a list.",
            exit_code=2,
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"{where} is not valid TOML: {error}",
            "Fix that line; strings need quotes in TOML.",
            exit_code=2,
        ) from error
    return made_of(tables, where)


def made_of(tables: Mapping[str, Any], where: str) -> Config:
    """Return the configuration of tables that were read from `where`.

    Raises UserError (exit code 2) with every wrong setting.
    """
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(str(p) for p in e['loc'])}: {_said(e['type'], e['msg'])}{_near(e['loc'])}"
            for e in error.errors()
        ]
        raise UserError(
            f"{where} has settings that cannot be used:\n" + "\n".join(lines),
            "Fix or remove these lines. The System/placet.toml of a new vault explains every "
            "setting: placet init DIR",
            exit_code=2,
        ) from error


def refused(key: Sequence[str], value: Any) -> str:
    """Return why a setting, looked at alone, cannot have this value; empty where it can."""
    for name in reversed(key):
        value = {name: value}
    try:
        Config.model_validate(value)
    except ValidationError as error:
        found = error.errors()[0]
        return _said(found["type"], found["msg"])
    return ""


def write_setting(vault: Path, key: Sequence[str], value: Any) -> None:
    """Write one setting that needs no acceptance. Raises UserError as `with_setting` does."""
    text = with_setting(vault, key, value)
    try:
        put_in_place(vault / CONFIG_PATH, text)
    except OSError as error:
        raise cannot_write(vault / CONFIG_PATH, error) from error


def with_setting(vault: Path, key: Sequence[str], value: Any) -> str:
    """Return the text of a vault's configuration with one setting changed, all else as it is.

    `key` goes from table to table; `value` may be a table, None removes the setting. Raises
    UserError if the file cannot be read, or if the result would say anything else, or be invalid.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = vault / CONFIG_PATH
    by_hand = f"Change `{key[-1]}` under [{'.'.join(key[:-1])}] by hand."
    try:
        raw = path.read_bytes()
        plain = raw.decode("utf-8-sig")
        plain = plain if plain.endswith("\n") or not plain else f"{plain}\n"
        document = tomlkit.parse(plain)
        _set(document, key, value)
        wanted = tomllib.loads(plain)
        _set(wanted, key, value)
        text = _beside_its_comment(plain, key, value)
        if not _says(text, wanted):
            text = tomlkit.dumps(document)
        if not _says(text, wanted):
            raise UserError(f"{path} cannot be changed safely as it is written.", by_hand)
    except (OSError, ValueError, TOMLKitError, TypeError) as error:
        raise UserError(f"{path} cannot be changed: {error}", by_hand) from error
    if raw.startswith(BOM_UTF8):
        text = f"\ufeff{text}"
    parse(text, f"{path}, changed so,")
    return text


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _beside_its_comment(text: str, key: Sequence[str], value: Any) -> str:
    """Return a configuration with a new line for a setting, below the comment that shows it.

    tomlkit puts it below the last comment of its table: that may be a table that is commented out,
    whose setting it becomes once a person takes the `# ` away. Without a comment it comes below the
    last setting. What this makes of a text may be wrong, and has to be checked.
    """
    import tomlkit

    lines = text.splitlines(keepends=True)
    heads = [i for i, line in enumerate(lines) if _TABLE.match(line)]
    head = f"[{'.'.join(key[:-1])}]"
    start = next((i for i in heads if lines[i].partition("#")[0].strip() == head), None)
    if start is None or value is None:
        return ""
    end = next((i for i in heads if i > start), len(lines))
    shown = re.compile(rf"\s*#\s*{re.escape(key[-1])}\s*=")
    set_here = [i for i in range(start, end) if lines[i].partition("#")[0].strip()]
    after = next((i for i in range(start, end) if shown.match(lines[i])), set_here[-1])
    newline = "\r\n" if lines[start].endswith("\r\n") else "\n"
    lines.insert(after + 1, f"{key[-1]} = {tomlkit.item(value).as_string()}{newline}")
    return "".join(lines)


_TABLE = re.compile(r"\s*(?:#\s*)?\[")


def _set(tables: Any, key: Sequence[str], value: Any) -> None:
    """Set a value in tables, of tomlkit or plain; None removes it, and its table if empty."""
    import tomlkit
    from tomlkit.items import InlineTable

    name, *more = key
    if more:
        if name not in tables:
            empty = tomlkit.table(is_super_table=isinstance(value, dict))
            tables[name] = {} if type(tables) is dict else empty
        _set(tables[name], more, value)
        if value is None and not tables[name]:
            del tables[name]
    elif value is None:
        del tables[name]
    elif isinstance(value, dict) and type(tables) is not dict:
        tables[name] = (
            tomlkit.inline_table() if isinstance(tables, InlineTable) else tomlkit.table()
        )
        tables[name].update(value)
    else:
        tables[name] = value


def put_in_place(path: Path, text: str) -> None:
    """Write a configuration whole. Raises OSError.

    A link stays one: the file that it names is written. The mode is kept.
    """
    try:
        real = path.resolve()
        mode = stat.S_IMODE(real.stat().st_mode)
        put(real, text.encode(), mode=mode, aside=real.with_name(f"{TEMP_PREFIX}{os.getpid()}"))
    except OSError as error:  # it names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _said(kind: str, message: str) -> str:
    message = message.removeprefix("Value error, ")
    return (
        "there is no such setting"
        if kind == "extra_forbidden"
        else message[:1].lower() + message[1:]
    )


def _near(where: Sequence[str | int]) -> str:
    """Return a question after what was meant, for the place of an unknown key; else empty."""
    table = table_at(where[:-1])
    if table is None or not where or where[-1] in table.model_fields:
        return ""
    near = get_close_matches(str(where[-1]), table.model_fields, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def portal_path(vault: Path, config: Config, portal: str) -> Path:
    """Return the repository of a portal; the vault itself for the empty name.

    Relative paths begin at the vault, `~` is as in `from_home`. Raises KeyError for an unknown
    portal.
    """
    if not portal:
        return vault
    path = from_home(config.portals[portal].path)
    return path if path.is_absolute() else (vault / path)


def repositories(vault: Path, config: Config) -> list[Path]:
    """Return the paths of the vault and of all portals, each once; they need not exist."""
    return list(
        dict.fromkeys([vault, *(portal_path(vault, config, name) for name in config.portals)])
    )
