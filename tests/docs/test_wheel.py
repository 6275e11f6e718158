"""Test the installed wheel without the checkout: the demo and a first merged request.

Each environment has only the packages that the wheel's metadata requires. They are linked from the
test environment, so that no registry is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from unittest.mock import patch

import pytest
from packaging.requirements import Requirement

from placet import __version__
from placet.client import version

ROOT = Path(__file__).parents[2]
MAX_WHEEL_BYTES = 1_100_000
EXTRAS = ("screenshot", "board", "team")
OF_THE_BOARD = "uvicorn"
OF_THE_TEAM = "psycopg"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and from it the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def needed(lines: Iterable[str], extras: Iterable[str]) -> Iterator[str]:
    """Yield the packages that these requirements ask for, and what those ask for."""
    for requirement in map(Requirement, lines):
        markers = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, markers)):
            yield requirement.name
            yield from needed(distribution(requirement.name).requires or (), requirement.extras)


class Installed:
    """A fresh environment with the wheel, and a home folder to call its programs in."""

    def __init__(self, folder: Path, dist: Path, extras: tuple[str, ...]) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.programs = folder / "venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
        )
        (wheel,) = dist.glob("*.whl")
        self.ends_well(
            sys.executable, "-m", "pip", "--python", str(self.programs / "python"),
            "install", "-q", "--no-deps", "--no-index", str(wheel),
        )  # fmt: skip
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (metadata,) = site.glob("placet-*.dist-info/METADATA")
        asked = [
            line.removeprefix("Requires-Dist: ")
            for line in metadata.read_text().partition("\n\n")[0].splitlines()
            if line.startswith("Requires-Dist: ")
        ]
        for name in set(needed(asked, extras)):
            files = distribution(name).files or ()
            for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.home), "PATH": f"{self.programs}:{os.environ['PATH']}"}
        return subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True)

    def ends_well(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def see_demo(placet: Installed, extras: tuple[str, ...]) -> None:
    """Run the demo, where just these extras are installed."""
    assert "Ran 3 tests" in placet.ends_well("placet", "demo")
    for module, extra in ((OF_THE_BOARD, "board"), (OF_THE_TEAM, "team")):
        loads = placet.run("python", "-c", f"import {module}").returncode == 0
        assert loads is (extra in extras)


def test_wheel_runs_demo_and_first_request(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "ROOT", ROOT)
    (wheel,) = built.glob("*.whl")
    (_sdist,) = built.glob("*.tar.gz")
    assert wheel.name == f"placet-{version.of_checkout()}-py3-none-any.whl"
    assert wheel.stat().st_size < MAX_WHEEL_BYTES
    placet = Installed(tmp_path, built, ())
    see_demo(placet, ())
    assert placet.ends_well("placet", "--version") == f"placet, version {version.of_checkout()}\n"
    placet.ends_well("placet", "init", "vault", "--no-input", "--model", "demo", "--history")
    for command in (
        ("submit", "Say hello"),
        ("run", "--once"),
        ("approve", "say-hello", "--yes"),
        ("run", "--once"),
        ("merge", "say-hello"),
        ("run", "--once"),
        ("journal", "verify"),
    ):
        placet.ends_well("placet", command[0], "--vault", "vault", *command[1:])
    said = placet.ends_well("placet", "show", "--vault", "vault", "say-hello", "--json")
    assert '"became": "merged"' in said


@pytest.mark.sweep
@pytest.mark.parametrize("extras", [*((extra,) for extra in EXTRAS), EXTRAS], ids=",".join)
def test_demo_runs_with_each_extra(built: Path, tmp_path: Path, extras: tuple[str, ...]) -> None:
    see_demo(Installed(tmp_path, built, extras), extras)


def test_version_names_the_commit_of_no_release(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    with patch.object(version, "ROOT", tmp_path):
        assert version.of_checkout() == __version__
        git("init", "-q")
        (tmp_path / "a").write_text("a\n")
        git("add", "a")
        git("commit", "-qm", "a")
        commit = git("rev-parse", "--short=8", "HEAD")
        assert version.of_this_program() == f"{__version__}+g{commit}"
        git("tag", f"v{__version__}")
        assert version.of_this_program() == __version__
        (tmp_path / "a").write_text("b\n")
        assert version.of_checkout() == f"{__version__}+g{commit}.changed"


def test_changelog_begins_with_this_version() -> None:
    """A release replaces `unreleased` by its date, as every version below has it."""
    first, *others = [
        line.removeprefix("## ")
        for line in (ROOT / "daemon" / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    name, _, date = first.partition(": ")
    assert name == __version__
    assert date == "unreleased" or date.count("-") == 2
    assert [line for line in others if line.partition(": ")[2].count("-") != 2] == []
