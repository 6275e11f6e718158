"""Read `System/placet.toml` as a checked value, and edit it in place."""

from __future__ import annotations

import math
import os
import re
import tomllib
import warnings
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from unicodedata import normalize
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from placet.chat.prices import DEFAULT_PRICES, Price, Pricer, pricer
from placet.chat.sizes import Sizes, sizes
from placet.disk.errors import Changed, NotSettled, OpenForWriting, Unreadable, VaultTrouble
from placet.disk.files import FileLock
from placet.disk.real_path import real_path
from placet.disk.vault import Vault
from placet.errors import UserError, cannot_write
from placet.host.state import expand_home
from placet.note.frontmatter import UnresolvedMergeError, read_toml
from placet.note.paths import CONFIG_PATH
from placet.plan.hosts import host_from

Key = tuple[str, ...]
"""The path of a setting, table by table."""

FOR_NEXT_START: tuple[Key, ...] = (
    ("commands",),
    ("daemon", "watch"),
    ("notify",),
    ("team", "database"),
    ("team", "workers"),
    ("team", "lease_s"),
)
"""The settings, or tables of them, that a running daemon keeps until it starts again."""


def is_for_next_start(key: Key) -> bool:
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


def _git_address(value: str) -> str:
    """Return the address of a git repository; raise if it is invalid or holds a password."""
    scheme, with_scheme, rest = value.partition("://")
    user, has_user, _ = rest.partition("/")[0].rpartition("@")
    if not re.fullmatch(r"[^-\s][^\0\r\n]*|", value) or (
        with_scheme and scheme not in ("file", "http", "https", "ssh")
    ):
        raise ValueError(
            "must be the path of a git repository, or like https://host/path or host:path"
        )
    if has_user and (scheme.startswith("http") or ":" in user):
        raise ValueError("must hold neither token nor password: leave them to git's own helper")
    return value


GitAddress = Annotated[str, AfterValidator(_git_address)]
"""A path or URL of a git repository, or empty."""

Money = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
"""Dollars: at most a plan's largest budget, as fine as prices of a million tokens are."""


_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+(?:%[a-z0-9._-]+)?")
"""A name or an IPv4 address; or an IPv6 address, maybe with its zone."""


def http_host(address: str) -> str:
    """Return the host of an http:// or https:// address.

    Empty for any other address, and for one with a user, a blank, or a host or port that cannot be.
    The host is shown in notes, so only letters, digits and `. : % _ -` are accepted.
    """
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # a port that is not a number, a bracket that is not closed
        return ""
    host = parts.hostname or ""
    return host if good and _HOST.fullmatch(host) and re.fullmatch(r"[!-~]+", address) else ""


class VaultTable(_Table):
    """Frontmatter, defaults and history (git) of the vault.

    `history` is "ask" until you were asked. Until then only a new vault gets a history.
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


class ApprovalTable(_Table):
    """Signatures of approvals.

    With `signed` an approval counts only with one. `sign` signs those of this machine's terminal
    although they need none. `key` is the file of a key; without one it is git's.
    """

    signed: bool = False
    sign: bool = False
    key: str = ""

    @property
    def is_on(self) -> bool:
        """Whether placet states what an approval approves."""
        return self.signed or self.sign


class TeamTable(_Table):
    """A journal in PostgreSQL, which more than one machine reaches.

    `database` is its address, without a password. With `workers` the work is done by those
    (`placet worker`), and not by the daemon. A daemon holds the vault, and a worker its work, for
    `lease_s` from each sign of life on. Commits travel by the git repository `work_remote`, except
    where a portal has its own.
    """

    database: str = ""
    workers: bool = False
    lease_s: float = Field(default=30.0, ge=1, le=3600)
    work_remote: GitAddress = ""


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
    tools: Literal["auto", "native", "text"] = "auto"
    max_tokens: int = Field(default=16_000, ge=256, le=128_000)
    context_tokens: int = Field(default=200_000, ge=8_192, le=100_000_000)
    timeout_s: float = Field(default=120, gt=0, le=3600)
    price: tuple[PriceRow, ...] = ()

    @property
    def who(self) -> str:
        """Provider, name and how tools are called: a plan is approved for these."""
        tools = "" if self.tools == "auto" else f", with tools = {self.tools}"
        return f"{self.provider}: {self.name}{tools}"

    @property
    def server(self) -> str:
        """Who answers, for people: the host and port of `base_url`, else the provider.

        A scripted model asks no server.
        """
        if self.provider == "scripted":
            return self.provider
        return urlsplit(self.base_url).netloc or self.provider

    @property
    def sizes(self) -> Sizes:
        """What an answer, a prompt and a result may take of the context."""
        return sizes(self.context_tokens, self.max_tokens)

    @property
    def prices(self) -> tuple[Price, ...]:
        """The price list: these rows, then the built-in ones."""
        own = tuple(Price(**row.model_dump()) for row in self.price)
        named = {row.model for row in own}
        return (*own, *(row for row in DEFAULT_PRICES if row.model not in named))

    @property
    def pricer(self) -> Pricer:
        """What prices calls that had no price when they were made."""
        return pricer(self.prices, self.name)

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and not http_host(value):
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
    """The sandbox in which commands run.

    `landlock` accepts Landlock where there is nothing stronger; `none` runs them without a sandbox.
    Of the hosts that plans name, `private_hosts` may be in a private network.
    """

    sandbox: Literal["auto", "landlock", "none"] = "auto"
    private_hosts: tuple[str, ...] = ()

    @field_validator("private_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(host_from(text)) for text in value)


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
        if value and not http_host(value):
            raise ValueError(
                "must be an http:// or https:// address without spaces, user name and password"
            )
        return value

    @property
    def is_on(self) -> bool:
        """Return whether a notice goes anywhere at all."""
        return bool(self.desktop or self.command or self.webhook)


# A setting may be called as an old method of pydantic's that nothing here uses.
warnings.filterwarnings("ignore", 'Field name "copy" in "PortalTable"', UserWarning)


class PortalTable(_Table):
    """A repository that requests may name.

    Commands see what `see` names of what git ignores there, and environments elsewhere; of `copy` a
    mission has its own. In a team, only workers with this `label` take its work.
    `missions_at_once` 0 means no limit; `work_remote` is the git repository by which its commits
    travel, if it has its own.
    """

    path: str
    see: tuple[str, ...] = ()
    copy: tuple[str, ...] = ()  # type: ignore[assignment]  # as above
    label: str = Field(default="any", pattern=r"^[A-Za-z0-9_-]{1,30}$")
    missions_at_once: int = Field(default=0, ge=0, le=1000)
    work_remote: GitAddress = ""


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
    approval: ApprovalTable = ApprovalTable()
    team: TeamTable = TeamTable()
    portals: dict[str, PortalTable] = Field(default_factory=dict)

    @field_validator("portals")
    @classmethod
    def _composed(cls, portals: dict[str, PortalTable]) -> dict[str, PortalTable]:
        """Return the portals by names as notes spell them (NFC)."""
        return {normalize("NFC", name): portal for name, portal in portals.items()}


def table_at(path: Sequence[str | int]) -> type[BaseModel] | None:
    """Return the table at a path of keys, or None."""
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


MAX_CONFIG_BYTES = 1024 * 1024
_BOMS_UTF16 = (BOM_UTF16_LE, BOM_UTF16_BE)


def load(vault: Path) -> Config:
    """Return a vault's configuration, as written.

    Raises UserError (exit code 2) that names the file and every wrong setting at once.
    """
    path = vault / CONFIG_PATH
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise UserError(
                f"{path} is larger than {MAX_CONFIG_BYTES // 1024} KiB.",
                "Shorten it, or delete it and write a new one: placet init",
                exit_code=2,
            )
        text = raw.decode()
    except FileNotFoundError as error:
        raise UserError(
            f"{vault} is not a vault: it has no {CONFIG_PATH}.",
            f"Make it one: placet init {vault}",
            exit_code=2,
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is {'UTF-16' if raw[:2] in _BOMS_UTF16 else 'not UTF-8'} text.",
            "Save it as UTF-8 in your editor.",
            exit_code=2,
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}",
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
        tables = read_toml(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise UserError(
            f"{where} is nested too deeply.",
            "Fix it; no setting is a list in a list.",
            exit_code=2,
        ) from error
    except ValueError as error:
        raise UserError(
            f"{where} is not valid TOML: {error}",
            "Keep one of the two versions."
            if isinstance(error, UnresolvedMergeError)
            else "Fix that line; strings need quotes in TOML.",
            exit_code=2,
        ) from error
    return config_from(tables, where)


def config_from(tables: Mapping[str, Any], where: str) -> Config:
    """Return the configuration of tables that were read from `where`.

    Raises UserError (exit code 2) with every wrong setting.
    """
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, e['loc']))}: {_message(e['type'], e['msg'])}{_near(e['loc'])}"
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
        return _message(found["type"], found["msg"])
    return ""


_LOCK_WAIT_S = 10.0
_AGAIN = "Close the program that changes it, then try again."


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Hold a lock on the folder of a file, which is replaced, while a command changes it.

    Without locks on that file system, what a command compares is all that protects the file.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(path.parent, _LOCK_WAIT_S, make=False))
        except BlockingIOError as error:
            raise UserError(f"Another command is changing {path}.", _AGAIN) from error
        except OSError:
            pass
        yield


def write_settings(vault: Path, settings: Mapping[Key, Any]) -> Config:
    """Change settings in a vault's configuration, all else as it is; return what it says then.

    Each key goes from table to table; a value may be a table, None removes the setting. A link
    stays one: the file that it names is changed. What somebody else writes meanwhile is kept.
    Raises UserError, with nothing changed, if the file cannot be read or written, if it keeps
    changing, or if the result would say anything else, or be invalid.
    """
    path = vault / CONFIG_PATH
    with one_writer(path):
        real = real_path(path)
        try:
            with Vault(real.parent) as folder:
                _, new = folder.edit(real.name, lambda raw: _with_settings(path, raw, settings))
        except OpenForWriting as error:
            raise UserError(f"{path} is open in another program.", _AGAIN) from error
        except (Changed, NotSettled) as error:
            raise UserError(f"{path} keeps changing.", _AGAIN) from error
        except VaultTrouble as error:
            raise cannot_write(path, OSError(error.errno, os.strerror(error.errno))) from error
        except Unreadable as error:
            raise UserError(f"{path} cannot be changed: {error}.", "Put a file there.") from error
    return parse(new.decode("utf-8-sig"), str(path))


def must_fit(config: Config, then: str = "") -> None:
    """Raise UserError (exit code 2) if a model's answer leaves its context no room for a prompt.

    `then` is added to the command that helps.
    """
    model, most = config.model, config.model.context_tokens // 2
    if "max_tokens" in model.model_fields_set and model.max_tokens > most:
        raise UserError(
            f"An answer of {model.max_tokens:,} tokens (model.max_tokens) does not fit a context "
            f"of {model.context_tokens:,} (model.context_tokens): at most half of it. Nothing was "
            "written.",
            f"placet config set model.max_tokens {most}{then}",
            exit_code=2,
        )


def write_setting(vault: Path, key: Key, value: Any) -> None:
    """Write one setting that needs no acceptance. Raises UserError as `write_settings` does."""
    write_settings(vault, {key: value})


def _with_settings(path: Path, raw: bytes, settings: Mapping[Key, Any]) -> bytes:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be changed: {error}", "Save it as UTF-8.") from error
    for key, value in settings.items():
        text = _with_setting(path, text, key, value)
    changed = parse(text, f"{path}, changed so,")
    if any(key[:1] == ("model",) for key in settings):
        again = ", then this command again" if ("model", "context_tokens") in settings else ""
        must_fit(changed, again)
    return (BOM_UTF8 if raw.startswith(BOM_UTF8) else b"") + text.encode()


def _with_setting(path: Path, plain: str, key: Key, value: Any) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    by_hand = f"Change `{key[-1]}` under [{'.'.join(key[:-1])}] by hand."
    plain = plain if plain.endswith("\n") or not plain else f"{plain}\n"
    try:
        document = tomlkit.parse(plain)
        _set(document, key, value)
        wanted = tomllib.loads(plain)
        _set(wanted, key, value)
        text = _below_its_comment(plain, key, value)
        if not _says(text, wanted):
            text = tomlkit.dumps(document)
    except (ValueError, TOMLKitError, TypeError) as error:
        raise UserError(f"{path} cannot be changed: {error}", by_hand) from error
    if not _says(text, wanted):
        raise UserError(f"{path} cannot be changed safely as it is written.", by_hand)
    return text


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _below_its_comment(text: str, key: Sequence[str], value: Any) -> str:
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


def _message(kind: str, message: str) -> str:
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

    Relative paths begin at the vault, `~` is as in `expand_home`. Raises KeyError for an unknown
    portal.
    """
    if not portal:
        return vault
    path = expand_home(config.portals[portal].path)
    return path if path.is_absolute() else (vault / path)


def repositories(vault: Path, config: Config) -> list[Path]:
    """Return the paths of the vault and of all portals, each once; they need not exist."""
    return list(
        dict.fromkeys([vault, *(portal_path(vault, config, name) for name in config.portals)])
    )
