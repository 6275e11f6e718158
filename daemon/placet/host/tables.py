"""The settings: tables, types and defaults. An unknown key is an error: it may be misspelt."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin
from unicodedata import normalize
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

FOR_NEXT_START: tuple[tuple[str, ...], ...] = (
    ("board",),
    ("commands",),
    ("daemon", "watch"),
    ("notify",),
    ("team",),
)
"""The settings, or tables of them, that a running daemon keeps until it starts again."""


def is_for_next_start(key: tuple[str, ...]) -> bool:
    """Return whether a running daemon keeps a setting's old value until it starts again."""
    return any(key[: len(one)] == one for one in FOR_NEXT_START)


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
    plans_at_once: int = Field(default=2, ge=1, le=1000)
    missions_at_once: int = Field(default=2, ge=1, le=1000)
    stop_grace_s: float = Field(default=5.0, ge=0, le=120)
    tidy_after_days: int = Field(default=30, ge=0, le=3650)


DEFAULT_BOARD = "127.0.0.1:8763"
"""The address of the board: this machine alone reaches it."""


class BoardTable(_Table):
    """The board in the browser."""

    listen: str = DEFAULT_BOARD
    hosts: tuple[str, ...] = ()


class TeamTable(_Table):
    """A journal in PostgreSQL, which more than one machine reaches.

    `database` is its address, without a password. With `workers` the work is done by those
    (`placet worker`), and not by the daemon. A daemon holds the vault, and a worker its work, for
    `lease_s` from each sign of life on.
    """

    database: str = ""
    workers: bool = False
    lease_s: float = Field(default=30.0, ge=1, le=3600)


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

    @property
    def who(self) -> str:
        """Provider and name: a plan is approved for these."""
        return f"{self.provider}: {self.name}"

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if not value:
            return value
        try:
            parts = urlsplit(value)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, a bracket that is not closed
            good = False
        if not good or "@" in value or not re.fullmatch(r"[!-~]+", value):
            raise ValueError("must be like https://host or http://127.0.0.1:11434, without a user")
        if value.rstrip("/").endswith("/v1"):
            raise ValueError("must not end in /v1: that is added")
        return value

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.strip() or not value.isprintable():
            raise ValueError("must be a model's name, of characters that can be seen")
        return value


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


class QuestionsTable(_Table):
    """Limits of questions to a person, for each planning and each mission."""

    per_mission: int = Field(default=3, ge=0, le=100)


class SandboxTable(_Table):
    """The box in which commands run.

    `none` runs them outside one; nothing else has that effect.
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
    """A repository that requests may name.

    Of a team those workers take its work that have its `label`. `missions_at_once` 0 is no limit;
    a git `remote`, if any, is where they fetch from.
    """

    path: str
    label: str = Field(default="any", pattern=r"^[A-Za-z0-9_-]{1,30}$")
    missions_at_once: int = Field(default=0, ge=0, le=1000)
    remote: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")


class Config(_Table):
    """The whole configuration of a vault."""

    vault: VaultTable = VaultTable()
    daemon: DaemonTable = DaemonTable()
    model: ModelTable = ModelTable()
    limits: LimitsTable = LimitsTable()
    guards: GuardsTable = GuardsTable()
    questions: QuestionsTable = QuestionsTable()
    commands: SandboxTable = SandboxTable()
    notify: NotifyTable = NotifyTable()
    board: BoardTable = BoardTable()
    team: TeamTable = TeamTable()
    portals: dict[str, PortalTable] = Field(default_factory=dict)

    @field_validator("portals")
    @classmethod
    def _composed(cls, portals: dict[str, PortalTable]) -> dict[str, PortalTable]:
        """Return the portals by names as notes spell them (NFC)."""
        return {normalize("NFC", name): portal for name, portal in portals.items()}


def table_at(path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the table that a path of keys leads to; None where there is none."""
    kind: Any = Config
    for part in path:
        if isinstance(kind, type) and issubclass(kind, _Table):
            field = kind.model_fields.get(str(part))
            kind = None if field is None else field.annotation
        elif get_origin(kind) is dict:  # by names that are anybody's
            kind = get_args(kind)[1]
        else:  # a row of a list
            kind = next(iter(get_args(kind)), None)
    return kind if isinstance(kind, type) and issubclass(kind, _Table) else None
