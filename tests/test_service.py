"""`placet service`: what is written, what is run, and that nothing is left half done.

The managers are programs of ours on the PATH that write down how they were called.
"""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from placet.cli import service as service_module
from placet.cli.supervisors import escaped, launchd_service, systemd_service
from placet.core.errors import UserError
from vaultkit import TestVault, make_vault, running

ROOT = Path(__file__).parents[1]
TEMPLATE = (ROOT / "systemd/placet@.service").read_text()
SECRET = "sk-ant-very-secret-key-000"

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> "$FAKE/calls"
env >> "$FAKE/seen"
shift
case "$1" in
  show-environment) [ ! -e "$FAKE/nobus" ] || { echo 'Failed to connect to bus: No medium found' >&2; exit 1; } ;;
  is-active) [ -e "$FAKE/active" ] ;;
  enable) mkdir -p "$UNITS/default.target.wants"; ln -sf x "$UNITS/default.target.wants/$2" ;;
  restart) [ ! -e "$FAKE/fails" ] || { echo 'Job failed: see the log' >&2; exit 1; }; touch "$FAKE/active" ;;
  disable) rm -f "$FAKE/active" "$UNITS/default.target.wants/$3" ;;
esac
"""
LAUNCHCTL = """#!/bin/sh
echo "launchctl $*" >> "$FAKE/calls"
case "$1 $2" in
  "print "*/*/*) [ -e "$FAKE/active" ] ;;
  "print "*) [ ! -e "$FAKE/nobus" ] || { echo 'Could not find domain' >&2; exit 113; } ;;
  "bootstrap "*) [ ! -e "$FAKE/fails" ] || { echo 'Bootstrap failed: 5' >&2; exit 5; }; touch "$FAKE/active" ;;
  "bootout "*) [ -e "$FAKE/active" ] || { echo 'No such process' >&2; exit 3; }; rm "$FAKE/active" ;;
esac
"""
LOGS = """#!/bin/sh
echo "$(basename "$0") $*" >> "$FAKE/calls"
echo 'the daemon says something'
"""


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestVault:
    monkeypatch.setattr(service_module, "PLATFORM", "linux")
    fake, home = tmp_path / "fake", tmp_path / "home"
    fake.mkdir()
    home.mkdir()
    for name, text in (
        ("systemctl", SYSTEMCTL),
        ("launchctl", LAUNCHCTL),
        ("journalctl", LOGS),
        ("tail", LOGS),
    ):
        (fake / name).write_text(text)
        (fake / name).chmod(0o755)
    made = make_vault(tmp_path)
    made.extra |= {
        "FAKE": str(fake),
        "HOME": str(home),
        "UNITS": str(home / ".config/systemd/user"),
        "PATH": f"{fake}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": "",
        "ANTHROPIC_API_KEY": SECRET,
    }
    made.configure('[model]\nprovider = "anthropic"\n')
    return made


def fake(vault: TestVault) -> Path:
    return Path(vault.extra["FAKE"])


def home(vault: TestVault) -> Path:
    return Path(vault.extra["HOME"])


def calls(vault: TestVault) -> list[str]:
    path = fake(vault) / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def files(vault: TestVault) -> set[str]:
    return {str(p.relative_to(home(vault))) for p in home(vault).rglob("*") if not p.is_dir()}


def unit_of(vault: TestVault) -> str:
    return f"placet@{escaped(vault.root)}.service"


def test_it_writes_the_unit_starts_it_and_says_both(vault: TestVault) -> None:
    unit, path = unit_of(vault), home(vault) / ".config/systemd/user/placet@.service"
    done = vault.click("service", "install")
    assert done.stdout == f"{path}\n"
    asked, *ran = [line for line in calls(vault) if "is-active" not in line]
    assert asked == "systemctl --user show-environment"
    assert ran == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable {unit}",
        f"systemctl --user restart {unit}",
    ]
    for line in ran:
        assert line.replace("\\", "") in done.stderr.replace("\\", "").replace("'", "")
    assert f"wrote {path}" in done.stderr
    text = path.read_text()
    assert f'Environment="PLACET_STATE_HOME={vault.state}"' in text
    assert "LoadCredential=anthropic_api_key:%E/placet/anthropic_api_key" in text
    key = home(vault) / ".config/placet/anthropic_api_key"
    assert f"printenv ANTHROPIC_API_KEY > {key}" in done.stderr
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert "loginctl enable-linger" in done.stderr
    for told in (text, done.stdout, done.stderr, (fake(vault) / "seen").read_text()):
        assert SECRET not in told, "neither the file, nor what is said, nor the child process"


def test_a_second_time_it_starts_again_and_asks_for_no_key_that_is_there(vault: TestVault) -> None:
    vault.click("service", "install")
    (home(vault) / ".config/placet/anthropic_api_key").write_text("x\n")
    calls(vault)
    done = vault.click("service", "install")
    assert f"systemctl --user restart {unit_of(vault)}" in calls(vault)
    assert "no key" not in done.stderr


def test_what_fails_leaves_nothing_half_done_and_says_what_helps(vault: TestVault) -> None:
    (fake(vault) / "fails").touch()
    done = vault.click("service", "install", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Job failed: see the log" in done.stderr
    assert "journalctl --user -u" in done.stderr
    assert f"placet run --vault {vault.root}" in done.stderr
    assert files(vault) == set()
    assert calls(vault)[-2:] == [
        f"systemctl --user disable --now {unit_of(vault)}",
        "systemctl --user daemon-reload",
    ]


def test_what_fails_leaves_an_older_unit_as_it_was(vault: TestVault) -> None:
    path = home(vault) / ".config/systemd/user/placet@.service"
    path.parent.mkdir(parents=True)
    path.write_text("# mine\n")
    (fake(vault) / "fails").touch()
    assert vault.click("service", "install", check=False).returncode == 1
    assert path.read_text() == "# mine\n"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_where_no_manager_runs_nothing_is_changed(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, platform: str, command: str
) -> None:
    monkeypatch.setattr(service_module, "PLATFORM", platform)
    if command == "uninstall":
        vault.click("service", "install")
    before = files(vault)
    (fake(vault) / "nobus").touch()
    done = vault.click("service", command, check=False)
    assert done.returncode == 1
    assert "No service manager of yours runs here, as in a container (" in done.stderr
    assert f"placet run --vault {vault.root}" in done.stderr
    assert files(vault) == before
    for name in ("systemctl", "launchctl"):
        (fake(vault) / name).unlink()
    vault.extra["PATH"] = f"{fake(vault)}:{Path(sys.executable).parent}"
    done = vault.click("service", command, check=False)
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
    assert files(vault) == before


def test_a_dry_run_says_all_of_it_and_does_nothing(vault: TestVault) -> None:
    said = vault.click("service", "install", "--dry-run").stdout
    assert said.startswith(f"# would write {home(vault)}/.config/systemd/user/placet@.service:\n")
    assert "[Service]" in said
    assert "\n# would run:\n$ systemctl --user daemon-reload\n$ systemctl --user enable" in said
    assert "~/.local/bin/placet" not in said, "it starts another one"
    assert SECRET not in said
    assert (files(vault), calls(vault)) == (set(), [])
    vault.click("service", "install")
    before = files(vault)
    calls(vault)
    said = vault.click("service", "uninstall", "--dry-run").stdout
    assert "$ systemctl --user disable --now" in said
    assert (files(vault), calls(vault)) == (before, [])


def test_uninstall_takes_away_what_was_written_unless_another_vault_needs_it(
    vault: TestVault,
) -> None:
    said = vault.click("service", "uninstall").stderr
    assert "there is no service" in said
    vault.click("service", "install")
    key = home(vault) / ".config/placet/anthropic_api_key"
    key.write_text("x\n")
    other = home(vault) / ".config/systemd/user/default.target.wants/placet@other.service"
    other.symlink_to("x")
    assert "stays: placet@other.service needs it" in vault.click("service", "uninstall").stderr
    other.unlink()
    path = home(vault) / ".config/systemd/user/placet@.service"
    assert f"deleted {path}" in vault.click("service", "uninstall").stderr
    assert files(vault) == {".config/placet/anthropic_api_key"}


def test_status_says_what_is_there_by_its_exit_code_too(vault: TestVault) -> None:
    done = vault.click("service", "status", "--json", check=False)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["installed"], found["running"], found["daemon"]) == (False, False, None)
    assert "placet service install" in vault.click("service", "status", check=False).stdout
    vault.click("service", "install")
    assert "runs     yes" in vault.click("service", "status").stdout
    (fake(vault) / "active").unlink()
    assert "placet service logs" in vault.click("service", "status", check=False).stdout
    (fake(vault) / "nobus").touch()
    done = vault.click("service", "status", check=False)
    assert done.returncode == 1
    assert "No service manager of yours runs here" in done.stderr


def test_a_daemon_in_the_foreground_is_in_the_way(vault: TestVault) -> None:
    with running(vault):
        shown = vault.click("service", "status", check=False).stdout
        assert "daemon   pid " in shown
        assert not re.search(r"\dT\d\d:", shown), "times are local ones"
        done = vault.click("service", "install", check=False)
    assert done.returncode == 1
    assert "not as a service" in done.stderr
    assert files(vault) == set()


def test_a_configuration_that_cannot_be_used_is_said_first(vault: TestVault) -> None:
    (vault.root / "System/placet.toml").write_text("[broken")
    assert vault.click("service", "install", check=False).returncode == 2
    assert (files(vault), calls(vault)) == (set(), [])


@pytest.mark.skipif(sys.platform != "linux", reason="journalctl is of Linux")
def test_logs_are_the_managers(vault: TestVault) -> None:
    done = vault.cli("service", "logs", check=False)
    assert (done.returncode, done.stdout, calls(vault)) == (1, "", [])
    assert "not installed" in done.stderr
    assert "Install it: placet service install" in done.stderr
    vault.click("service", "install")
    calls(vault)
    done = vault.cli("service", "logs", "--follow", "--lines", "7")
    assert done.stdout == "the daemon says something\n"
    assert calls(vault) == [
        f"journalctl --user --no-pager -u {unit_of(vault)} -n 7 --follow".replace("\\\\", "\\")
    ]


def test_on_macos_it_is_an_agent_of_launchd(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "PLATFORM", "darwin")
    done = vault.click("service", "install")
    path = Path(done.stdout.strip())
    label = path.stem
    assert path.parent == home(vault) / "Library/LaunchAgents"
    found = plistlib.loads(path.read_bytes())
    assert found["Label"] == label
    assert found["ProgramArguments"][1:] == ["run", "--vault", str(vault.root)]
    secrets = Path(found["EnvironmentVariables"]["CREDENTIALS_DIRECTORY"])
    assert secrets.is_dir()
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert SECRET not in path.read_text() + done.stderr
    domain = f"gui/{os.getuid()}"
    assert calls(vault)[-1] == f"launchctl bootstrap {domain} {path}"
    vault.click("service", "install")
    assert calls(vault)[-2:] == [
        f"launchctl bootout {domain}/{label}",
        f"launchctl bootstrap {domain} {path}",
    ]
    assert "runs     yes" in vault.click("service", "status").stdout
    vault.click("service", "uninstall")
    assert not path.exists()
    (fake(vault) / "fails").touch()
    done = vault.click("service", "install", check=False)
    assert done.returncode == 1
    assert "Bootstrap failed: 5" in done.stderr
    assert not path.exists()


PATHS = ("/home/x/vault", "/", "/.hidden/a.b_c:d", "/My notes/ä-b/100%", "/a//b/", '/x/$HOME/\\t"')


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd is not installed")
def test_a_path_is_escaped_as_systemd_does() -> None:
    for path in PATHS:
        done = subprocess.run(
            ["systemd-escape", "--path", path], capture_output=True, text=True, check=True
        )
        assert escaped(Path(path)) == done.stdout.rstrip("\n"), path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("folder", ["bin", "My $HOME 100%u bin", "ä, (b) {c}"])
def test_systemd_takes_the_unit_wherever_placet_and_the_state_are(
    tmp_path: Path, folder: str
) -> None:
    placet = tmp_path / folder / "placet"
    placet.parent.mkdir()
    placet.write_text("#!/bin/sh\n")
    placet.chmod(0o755)
    env = {"HOME": str(tmp_path), "PLACET_STATE_HOME": str(placet.parent / 'st"\\ate')}
    service = systemd_service(tmp_path / "vault", TEMPLATE, placet, env)
    unit = tmp_path / "placet@.service"
    unit.write_text(service.text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert "placet@" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_unit_is_as_it_comes_where_placet_is_in_its_usual_place(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    placet = tmp_path / ".local/bin/placet"
    assert systemd_service(tmp_path, TEMPLATE, placet, env).text == TEMPLATE


@pytest.mark.parametrize("name", ['q"uo', "o'brien", "back\\slash", "line\nend"])
def test_a_path_that_systemd_does_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="systemd starts no program"):
        systemd_service(tmp_path, TEMPLATE, tmp_path / name / "placet", {"HOME": str(tmp_path)})


def test_two_vaults_have_two_agents_of_launchd(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    one, two = (
        launchd_service(tmp_path, slug, tmp_path / "log", tmp_path / "placet", env)
        for slug in ("a-1", "b-2")
    )
    assert one.path != two.path
    assert not one.several
