"""The daemon as a service of this machine's manager: what is written, and which commands run."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from placet.core.errors import UserError

Argv = tuple[str, ...]

CREDENTIAL = "anthropic_api_key"
KEPT = ("PLACET_STATE_HOME", "XDG_STATE_HOME")
"""Variables that say where the vault's state is: the service must find the same."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its file with its text, and what to call for it.

    `probe` fails where no manager of the user runs. `again` goes before `start` while it runs.
    `key` is the file that the model's key is read from, `helps` what to do when `start` fails.
    `several` says whether other vaults' services share the file.
    """

    name: str
    path: Path
    text: str
    key: Path
    probe: Argv
    reload: tuple[Argv, ...]
    again: tuple[Argv, ...]
    start: tuple[Argv, ...]
    stop: tuple[Argv, ...]
    is_running: Argv
    logs: Argv
    follow: Argv
    helps: str
    several: bool


def program(env: Mapping[str, str]) -> Path:
    """Return the program that the service starts: the one that runs now, as an absolute path.

    Raises UserError where it is not installed as a program.
    """
    for found in (Path(sys.argv[0]), Path(sys.executable).with_name("placet")):
        if found.name == "placet" and found.is_absolute() and os.access(found, os.X_OK):
            return found
    if on_path := shutil.which("placet", path=env.get("PATH")):
        return Path(on_path).absolute()
    raise UserError(
        "placet is not installed as a program that a service could start.",
        "Install it: pipx install .",
    )


def systemd_service(vault: Path, template: str, placet: Path, env: Mapping[str, str]) -> Service:
    """Return the service as systemd's user manager has it.

    `template` is the text of the unit that placet comes with; it starts `placet`, with the folders
    of state that this environment names. Raises UserError for a path that systemd does not take.
    """
    config, home = _config_home(env), Path(env.get("HOME") or "~").expanduser()
    unit = f"placet@{escaped(vault)}.service"
    every = ("systemctl", "--user")
    text = template
    if placet != home / ".local/bin/placet":
        folders = f"{_specified(str(placet.parent))}:%h/.local/bin:/usr/local/bin:/usr/bin:/bin"
        if not str(placet).isprintable() or set("\"'\\") & set(str(placet)):
            raise UserError(
                f"systemd starts no program whose path has quotes or backslashes: {placet!r}",
                "Install it elsewhere: pipx install .",
            )
        started = _in_quotes(_specified(str(placet)))
        text = _WRITTEN + template[template.index("[Unit]\n") :]
        text = _line(text, "ExecStart=", f"ExecStart={started} run --vault %f")
        text = _line(text, "Environment=PATH=", f"Environment={_in_quotes(f'PATH={folders}')}")
    kept = [f"{name}={_specified(env[name])}" for name in KEPT if env.get(name)]
    for setting in kept:
        text = text.replace("[Service]\n", f"[Service]\nEnvironment={_in_quotes(setting)}\n", 1)
    return Service(
        name=unit,
        path=config / "systemd" / "user" / "placet@.service",
        text=text,
        key=key_files(env)[0],
        probe=(*every, "show-environment"),
        reload=((*every, "daemon-reload"),),
        again=(),
        start=((*every, "enable", unit), (*every, "restart", unit)),
        stop=((*every, "disable", "--now", unit),),
        is_running=(*every, "is-active", "--quiet", unit),
        logs=("journalctl", "--user", "--no-pager", "-u", unit),
        follow=("--follow",),
        helps=f"journalctl --user -u {quote(unit)} -n 20, or see it start: {_by_hand(vault)}",
        several=True,
    )


def escaped(path: Path) -> str:
    """Return a path as the name of a unit's instance, as systemd-escape(1) has it with `--path`."""
    plain = os.fsencode(os.path.normpath(path)).strip(b"/")
    if not plain:
        return "-"
    return "".join(
        "-"
        if byte == 0x2F
        else chr(byte)
        if chr(byte) in _PLAIN and not (at == 0 and byte == 0x2E)
        else f"\\x{byte:02x}"
        for at, byte in enumerate(plain)
    )


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")
_WRITTEN = """\
# The daemon of one vault, as a user service. `placet service install` wrote this file.
# It ends when you log out, and starts when you log in. To have it always: loginctl enable-linger

"""
"""The head of a unit that was fitted to where placet is; what is done by hand is not in it."""


def _line(text: str, begins: str, line: str) -> str:
    return re.sub(rf"(?m)^{re.escape(begins)}.*$", lambda _: line, text, count=1)


def _specified(value: str) -> str:
    """Return a value in which systemd sees no specifier (systemd.unit(5))."""
    return value.replace("%", "%%")


def _in_quotes(value: str) -> str:
    escapes = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escapes}"'


def _by_hand(vault: Path) -> str:
    return f"placet run --vault {quote(str(vault))}"


def launchd_service(
    vault: Path, slug: str, log: Path, placet: Path, env: Mapping[str, str]
) -> Service:
    """Return the service as macOS's launchd has it.

    `slug` tells the vault from others, `log` is the file that what it says goes to.
    """
    label, domain = f"placet.{slug}", f"gui/{os.getuid()}"
    home = Path(env.get("HOME") or "~").expanduser()
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    key = key_files(env)[1]
    folders = f"{placet.parent}:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin"
    text = plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": [str(placet), "run", "--vault", str(vault)],
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 20,
            "Umask": 0o077,
            "StandardErrorPath": str(log),
            "StandardOutPath": str(log),
            "EnvironmentVariables": {
                "PATH": folders,
                # read as systemd's credentials are: the key is in a file there, and not here
                "CREDENTIALS_DIRECTORY": str(key.parent),
                **{name: env[name] for name in KEPT if env.get(name)},
            },
        }
    ).decode()
    return Service(
        name=label,
        path=path,
        text=text,
        key=key,
        probe=("launchctl", "print", domain),
        reload=(),
        again=(("launchctl", "bootout", f"{domain}/{label}"),),
        start=(("launchctl", "bootstrap", domain, str(path)),),
        stop=(("launchctl", "bootout", f"{domain}/{label}"),),
        is_running=("launchctl", "print", f"{domain}/{label}"),
        logs=("tail", str(log)),
        follow=("-F",),
        helps=f"tail {quote(str(log))}, or see it start: {_by_hand(vault)}",
        several=False,
    )


def key_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that services read the model's key from; they need not be there."""
    folder = _config_home(env) / "placet"
    return folder / CREDENTIAL, folder / "credentials" / CREDENTIAL


def _config_home(env: Mapping[str, str]) -> Path:
    given = env.get("XDG_CONFIG_HOME", "")
    if given and Path(given).is_absolute():
        return Path(given)
    return Path(env.get("HOME") or "~").expanduser() / ".config"
