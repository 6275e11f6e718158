"""`System/placet.toml` as a checked value: the tables here are the settings, types and defaults.

An unknown key is an error, so that a misspelt setting is noticed.
"""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from placet.core.errors import UserError
from placet.core.text.names import CONFIG_PATH, TEMP_PREFIX
from placet.disk import put


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _is_what_it_says(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what pydantic would convert: `true` to 1, "5" to 5; and nan and inf."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if kind is bool and not isinstance(value, bool):
            raise ValueError("must be true or false, without quotes")
        if kind in (int, float, Decimal) and isinstance(value, (bool, str)):
            raise ValueError("must be a number, without quotes")
        if isinstance(value, (float, Decimal)) and not math.isfinite(value):
            raise ValueError("must be a finite number")
        return value


Money = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
"""Dollars: at most a plan's largest budget, as fine as prices of a million tokens are."""


class VaultTable(_Table):
    """Frontmatter, defaults and history (git) of the vault.

    `history` is "ask" until somebody was asked: then only a new vault may get one.
    """

    history: bool | Literal["ask"] = "ask"
    history_max_mb: float = Field(default=50, gt=0, le=100_000)
    host: str = ""
    frontmatter: Literal["yaml", "toml"] = "yaml"
    default_agent: str = "default"
    quiet_s: float = Field(default=30.0, ge=0, le=3600, allow_inf_nan=False)
    own_keys: tuple[str, ...] = ()


class DaemonTable(_Table):
    """Settings of the daemon itself."""

    paused: bool = False
    watch: Literal["auto", "events", "polling"] = "auto"
    scan_interval_s: float = Field(default=2.0, ge=0.1, le=3600)
    plans_at_once: int = Field(default=2, ge=1, le=32)
    missions_at_once: int = Field(default=2, ge=1, le=32)
    stop_grace_s: float = Field(default=5.0, ge=0, le=120)
    tidy_after_days: int = Field(default=30, ge=0, le=3650)


class JournalTable(_Table):
    """Retention of events in journal.db: older ones move once a day to a database next to it.

    0: never.
    """

    archive_after_days: int = Field(default=0, ge=0, le=36_500)


class PriceRow(_Table):
    """The price of a model in dollars per million tokens, from a day on."""

    model: str
    since: date
    input: Money
    output: Money
    cache_read: Money
    cache_write: Money


class ModelTable(_Table):
    """The model that plans and works, and its server."""

    provider: str = "anthropic"
    name: str = "claude-opus-5-5"
    base_url: str = ""
    script: str = ""
    max_tokens: int = Field(default=16_000, ge=256, le=128_000)
    context_tokens: int = Field(default=200_000, ge=8_192, le=100_000_000)
    timeout_s: float = Field(default=120, gt=0, le=3600)
    price: tuple[PriceRow, ...] = ()


class LimitsTable(_Table):
    """Limits of a planning, a mission and a day.

    0 means no limit for `day_…`, `planning_usd` and `mission_wall_time_s`.
    """

    day_usd: Money = Decimal(0)
    day_tokens: int = Field(default=0, ge=0)
    planning_iterations: int = Field(default=30, ge=1, le=500)
    planning_tokens: int = Field(default=2_000_000, ge=1)
    planning_usd: Money = Decimal(0)
    planning_time_s: float = Field(default=1800, gt=0, allow_inf_nan=False)
    iterations_ceiling: int = Field(default=100, ge=1, le=1000)
    mission_tokens: int = Field(default=5_000_000, ge=1)
    mission_time_s: float = Field(default=3600, gt=0, allow_inf_nan=False)
    mission_wall_time_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    tool_calls: int = Field(default=200, ge=1, le=10_000)
    command_timeout_s: float = Field(default=120, gt=0, le=3600)
    output_bytes: int = Field(default=65_536, ge=1024, le=10_000_000)
    command_disk_bytes: int = Field(default=4_294_967_296, ge=1_048_576)
    free_disk_bytes: int = Field(default=268_435_456, ge=1_048_576)


class GuardsTable(_Table):
    """Thresholds at which a planning or mission that goes in circles is told so, and ended."""

    repeats: int = Field(default=3, ge=2, le=100)
    window: int = Field(default=10, ge=2, le=1000)
    identical_rounds: int = Field(default=3, ge=3, le=100)
    stall_turns: int = Field(default=5, ge=1, le=1000)
    same_call_failing: int = Field(default=3, ge=1, le=100)
    alternating_calls: int = Field(default=6, ge=4, le=100)
    talk_turns: int = Field(default=3, ge=1, le=100)

    @model_validator(mode="after")
    def _can_be_seen(self) -> GuardsTable:
        if self.repeats > self.window:
            raise ValueError(f"repeats ({self.repeats}) must fit into window ({self.window})")
        return self


class SandboxTable(_Table):
    """The box in which commands run.

    `none` runs them outside one, and has to be written in so many words.
    """

    sandbox: Literal["auto", "none"] = "auto"


class NotifyTable(_Table):
    """Destinations of notices: a plan waits, a mission ended, something needs a person."""

    desktop: bool = False
    command: tuple[str, ...] = ()
    webhook: str = ""

    @field_validator("command")
    @classmethod
    def _can_run(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and (not value[0] or any("\0" in word for word in value)):
            raise ValueError("must begin with a program, and no word of it may hold a NUL")
        return value

    @field_validator("webhook")
    @classmethod
    def _is_web_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            good = (
                parts.scheme in ("http", "https")
                and bool(parts.hostname)
                and "@" not in parts.netloc
                and parts.port != 0
                and re.fullmatch(r"[!-~]+", value) is not None
            )
        except ValueError:  # a port that is no number, a bracket that is not closed
            good = False
        if value and not good:
            raise ValueError(
                "must be an http:// or https:// address without spaces, user name and password"
            )
        return value

    @property
    def is_on(self) -> bool:
        """Return whether a notice goes anywhere at all."""
        return bool(self.desktop or self.command or self.webhook)


class PortalTable(_Table):
    """A repository that requests may name."""

    path: str


class Config(_Table):
    """The whole configuration of a vault."""

    vault: VaultTable = VaultTable()
    daemon: DaemonTable = DaemonTable()
    journal: JournalTable = JournalTable()
    model: ModelTable = ModelTable()
    limits: LimitsTable = LimitsTable()
    guards: GuardsTable = GuardsTable()
    commands: SandboxTable = SandboxTable()
    notify: NotifyTable = NotifyTable()
    portals: dict[str, PortalTable] = Field(default_factory=dict)


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
            f"  {'.'.join(str(p) for p in e['loc'])}: {_said(e['type'], e['msg'])}"
            for e in error.errors()
        ]
        raise UserError(
            f"{where} has settings that cannot be used:\n" + "\n".join(lines),
            "Fix or remove these lines. The System/placet.toml of a new vault explains every "
            "setting: placet init DIR",
            exit_code=2,
        ) from error


def write_setting(vault: Path, key: Sequence[str], value: Any) -> None:
    """Write one setting that needs no acceptance. Raises UserError as `with_setting` does."""
    text = with_setting(vault, key, value)
    try:
        put_in_place(vault / CONFIG_PATH, text)
    except OSError as error:
        raise UserError(
            f"{vault / CONFIG_PATH} cannot be changed: {error.strerror}", "Make it writable."
        ) from error


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
        document = tomlkit.parse(plain if plain.endswith("\n") or not plain else f"{plain}\n")
        _set(document, key, value)
        wanted = tomllib.loads(plain)
        _set(wanted, key, value)
        text = tomlkit.dumps(document)
        if tomllib.loads(text) != wanted:
            raise UserError(f"{path} cannot be changed safely as it is written.", by_hand)
    except (OSError, ValueError, TOMLKitError, TypeError) as error:
        raise UserError(f"{path} cannot be changed: {error}", by_hand) from error
    if raw.startswith(BOM_UTF8):
        text = f"\ufeff{text}"
    parse(text, f"{path}, changed so,")
    return text


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


def from_home(given: str) -> Path:
    """Return a path with `~` as the person's home, or as a plain name if there is none."""
    return Path(os.path.expanduser(given))  # noqa: PTH111 - Path.expanduser raises for who is not known
