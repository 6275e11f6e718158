"""Describe the service that runs the daemon: systemd, launchd."""

from __future__ import annotations

import os
import plistlib
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from placet.client.site import Site
from placet.disk.real_path import real_path
from placet.models.server import CREDENTIAL

PLATFORM = sys.platform


KEPT = ("PLACET_STATE_HOME", "XDG_STATE_HOME")
"""Variables that say where the vault's state is: the service must find the same."""


class Service(NamedTuple):
    """A service: its file, the file's text, and the shell commands of the service manager."""

    path: Path
    text: str
    start: tuple[str, ...]
    stop: str
    status: str


def service_of(site: Site) -> Service:
    """Return the service of a vault."""
    given = Path(sys.argv[0])
    program = given if given.name == "placet" else Path(sys.executable).with_name("placet")
    kept = {name: site.env[name] for name in KEPT if site.env.get(name)}
    make = _launchd if PLATFORM == "darwin" else _systemd
    return make(site, str(program.absolute()), kept)


def _systemd(site: Site, program: str, kept: Mapping[str, str]) -> Service:
    inside = Path(__file__).parents[1] / "systemd"
    folder = inside if inside.is_dir() else Path(__file__).parents[3] / "systemd"
    text = (folder / "placet@.service").read_text(encoding="utf-8")
    text = text.replace('"%h/.local/bin/placet"', _quoted(program))
    for name, value in kept.items():
        text = text.replace("[Service]\n", f"[Service]\nEnvironment={_quoted(f'{name}={value}')}\n")
    vault = quote(str(real_path(site.vault)))
    unit = f'"$(systemd-escape --path --template=placet@.service {vault})"'
    user = "systemctl --user"
    return Service(
        path=_config_home(site.env) / "systemd" / "user" / "placet@.service",
        text=text,
        start=(f"{user} daemon-reload", f"{user} enable {unit}", f"{user} restart {unit}"),
        stop=f"{user} disable --now {unit}",
        status=f"{user} --no-pager status {unit}",
    )


def _quoted(value: str) -> str:
    """Return a value as systemd reads it in quotes, without specifiers (systemd.unit(5))."""
    escapes = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escapes}"'


def _launchd(site: Site, program: str, kept: Mapping[str, str]) -> Service:
    label, domain = f"placet.{site.state.folder.name}", f"gui/{os.getuid()}"
    home, log = _home(site.env), str(site.state.folder / "service.log")
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    plist = {
        "Label": label,
        "ProgramArguments": [program, "run", "--vault", str(site.vault)],
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 20,
        "Umask": 0o077,
        "StandardErrorPath": log,
        "StandardOutPath": log,
        "EnvironmentVariables": {
            "PATH": f"{home}/.local/bin:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin",
            # read as systemd's credentials are: the key is in a file there, and not here
            "CREDENTIALS_DIRECTORY": str(key_file(site.env).parent),
            **kept,
        },
    }
    bootout = f"launchctl bootout {domain}/{label}"
    return Service(
        path=path,
        text=plistlib.dumps(plist).decode(),
        start=(
            f"{bootout} 2>/dev/null || true",
            f"launchctl bootstrap {domain} {quote(str(path))}",
        ),
        stop=f"{bootout} || true",
        status=f"launchctl print {domain}/{label}",
    )


def key_file(env: Mapping[str, str]) -> Path:
    """Return the file that the service reads the model's key from; it need not be there."""
    return _config_home(env) / "placet" / CREDENTIAL


def _config_home(env: Mapping[str, str]) -> Path:
    given = Path(env.get("XDG_CONFIG_HOME", ""))
    return given if given.is_absolute() else _home(env) / ".config"


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or "~").expanduser()
