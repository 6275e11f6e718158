"""Test what `placet service` writes and runs, and how it reports the service manager's answers.

The service managers are scripts on the PATH that record their calls.
"""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from placet.client import service as service_module
from placet.client.service import service_of
from vaultkit import TestVault, make_vault

SECRET = "sk-ant-very-secret-key-000"

SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> "$FAKE/calls"
[ ! -e "$FAKE/fails" ] || { echo 'Failed to connect to bus: No medium found' >&2; exit 4; }
case "$2" in
  enable) mkdir -p "$UNITS/default.target.wants"; ln -sf x "$UNITS/default.target.wants/$3" ;;
  disable) rm -f "$UNITS/default.target.wants/$4" ;;
esac
"""
OTHERS = """#!/bin/sh
echo "$(basename "$0") $*" >> "$FAKE/calls"
echo placet@the-vault.service
"""


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestVault:
    monkeypatch.setattr(service_module, "PLATFORM", "linux")
    fake, home = tmp_path / "fake", tmp_path / "home"
    fake.mkdir()
    home.mkdir()
    for name, text in (
        ("systemctl", SYSTEMCTL),
        ("systemd-escape", OTHERS),
        ("launchctl", OTHERS),
    ):
        (fake / name).write_text(text)
        (fake / name).chmod(0o755)
    made = make_vault(tmp_path)
    made.extra |= {
        "FAKE": str(fake),
        "HOME": str(home),
        "UNITS": str(home / ".config/systemd/user"),
        "PATH": f"{fake}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": "",
        "ANTHROPIC_API_KEY": SECRET,
    }
    return made


def home(vault: TestVault) -> Path:
    return Path(vault.extra["HOME"])


def calls(vault: TestVault) -> list[str]:
    path = Path(vault.extra["FAKE"]) / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [call for call in found if not call.startswith("systemd-escape")]


def test_install_writes_and_starts_the_unit(vault: TestVault) -> None:
    path = home(vault) / ".config/systemd/user/placet@.service"
    done = vault.click("service", "install")
    assert done.stdout == f"{path}\n"
    ran = ("daemon-reload", "enable placet@the-vault.service", "restart placet@the-vault.service")
    assert calls(vault) == [f"systemctl --user {words}" for words in ran]
    assert "$ systemctl --user restart" in done.stderr
    text = path.read_text()
    assert text == vault.click("service", "print").stdout
    assert f'Environment="PLACET_STATE_HOME={vault.state}"' in text
    assert f'ExecStart="{Path(sys.executable).with_name("placet")}" run --vault %f' in text
    assert "LoadCredential=anthropic_api_key:%E/placet/anthropic_api_key" in text
    key = home(vault) / ".config/placet/anthropic_api_key"
    assert f"cat > {key})" in done.stderr
    assert SECRET not in text + done.stderr
    key.parent.mkdir()
    key.write_text("x\n")
    assert "key" not in vault.click("service", "install").stderr


def test_service_manager_says_what_fails(vault: TestVault) -> None:
    if sys.platform != "linux":
        pytest.skip("systemctl is of Linux")
    (Path(vault.extra["FAKE"]) / "fails").touch()
    for command in ("install", "uninstall", "status"):
        done = vault.cli("service", command, check=False)
        assert done.returncode == 1
        assert "Failed to connect to bus: No medium found" in done.stderr
        assert "The service manager answers with exit code 4." in done.stderr
        assert f"placet run --vault {vault.root}" in done.stderr


def test_print_writes_and_runs_nothing(vault: TestVault) -> None:
    assert "[Service]" in vault.click("service", "print").stdout
    assert (list(home(vault).iterdir()), calls(vault)) == ([], [])


def test_uninstall_keeps_what_another_vault_needs(vault: TestVault) -> None:
    vault.click("service", "install")
    key = home(vault) / ".config/placet/anthropic_api_key"
    key.parent.mkdir()
    key.write_text("x\n")
    path = home(vault) / ".config/systemd/user/placet@.service"
    other = path.parent / "default.target.wants/placet@other.service"
    other.symlink_to("x")
    assert f"{path} stays" in vault.click("service", "uninstall").stderr
    other.unlink()
    calls(vault)
    assert f"deleted {path}" in vault.click("service", "uninstall").stderr
    assert calls(vault) == ["systemctl --user disable --now placet@the-vault.service"]
    assert not path.exists()
    assert key.exists()


def test_macos_has_an_agent_of_launchd(vault: TestVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "PLATFORM", "darwin")
    done = vault.click("service", "install")
    path = Path(done.stdout.strip())
    assert path.parent == home(vault) / "Library/LaunchAgents"
    found = plistlib.loads(path.read_bytes())
    assert found["Label"] == path.stem
    assert found["ProgramArguments"][1:] == ["run", "--vault", str(vault.root)]
    secrets = found["EnvironmentVariables"]["CREDENTIALS_DIRECTORY"]
    assert secrets == str(home(vault) / ".config/placet")
    assert SECRET not in path.read_text() + done.stderr
    domain = f"gui/{os.getuid()}"
    assert calls(vault) == [
        f"launchctl bootout {domain}/{path.stem}",
        f"launchctl bootstrap {domain} {path}",
    ]
    vault.click("service", "status")
    assert calls(vault) == [f"launchctl print {domain}/{path.stem}"]
    vault.click("service", "uninstall")
    assert not path.exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("folder", ["bin", "My $HOME 100%u bin", "ä, (b) {c}"])
def test_systemd_takes_the_unit_of_odd_folders(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    placet = tmp_path / folder / "placet"
    placet.parent.mkdir()
    placet.write_text("#!/bin/sh\n")
    placet.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(placet)])
    site = type(vault.site)(str(vault.root), {**vault.env, "XDG_STATE_HOME": f'{placet}/st"\\ate'})
    unit = tmp_path / "placet@.service"
    unit.write_text(service_of(site).text)
    assert 'st\\"\\\\ate' in unit.read_text()
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert "placet@" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
