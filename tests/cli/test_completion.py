"""Test completion by click's protocol and in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from placet.cli.completion import SHELLS
from placet.cli.main import COMMANDS
from vaultkit import PLAN, TestVault

PLACET = Path(sys.executable).with_name("placet")

pytestmark = pytest.mark.skipif(not PLACET.exists(), reason="placet is not installed as a program")


@pytest.fixture
def planned(vault: TestVault) -> TestVault:
    vault.plays(PLAN)
    vault.drop("Say hello.\n", "Say hello.md")
    vault.drop("Say goodbye.\n", "Say goodbye.md")
    vault.once()
    return vault


def completed(vault: TestVault, *words: str, shell: str = "bash") -> list[str]:
    """Return what a shell is told that the last of these words may be."""
    done = subprocess.run(
        [str(PLACET)],
        cwd=vault.root,
        env={
            **vault.env,
            "_PLACET_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": " ".join(["placet", *words]),
            "COMP_CWORD": str(len(words)) if shell != "fish" else words[-1],
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    lines = [line.partition(",")[2] for line in done.stdout.splitlines() if line]
    return [line.partition("\t")[0] for line in lines]


def test_commands_and_options_are_completed(vault: TestVault) -> None:
    assert sorted(completed(vault, "")) == sorted(COMMANDS)
    assert completed(vault, "po") == ["portal"]
    assert completed(vault, "portal", "a") == ["add"]
    assert "--remark" in completed(vault, "approve", "--")
    assert completed(vault, "completion", "f") == ["fish"]


@pytest.mark.parametrize("command", ["show", "why", "approve", "diff", "stop", "replay"])
@pytest.mark.thinned(2)
def test_ids_are_completed(planned: TestVault, command: str) -> None:
    assert sorted(completed(planned, command, "")) == ["say-goodbye", "say-hello"]
    assert completed(planned, command, "say-h") == ["say-hello"]
    assert completed(planned, command, "x") == []


def test_ids_are_completed_for_named_vault_and_shell(planned: TestVault, tmp_path: Path) -> None:
    root, planned.root = str(planned.root), tmp_path
    assert completed(planned, "show", "") == []
    for shell in SHELLS:
        assert completed(planned, "show", "--vault", root, "say-h", shell=shell) == ["say-hello"]
    assert completed(planned, "--vault", root, "journal", "--trace", "say-h") == ["say-hello"]


def test_completion_is_silent_and_read_only_on_errors(planned: TestVault) -> None:
    def files() -> set[Path]:
        return {path for top in (planned.root, planned.state) for path in top.rglob("*")}

    completed(planned, "show", "")  # SQLite's own files beside the journal
    before = files()
    assert completed(planned, "show", "") != []
    assert files() == before
    (planned.root / "System/placet.toml").write_text("[broken")
    assert completed(planned, "show", "") != []
    planned.db.write_bytes(b"no database")
    assert completed(planned, "show", "") == []
    shutil.rmtree(planned.state)
    assert completed(planned, "show", "") == []
    assert not planned.state.exists()


def shell_of(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run_shell(vault: TestVault, argv: list[str]) -> str:
    path = f"{PLACET.parent}:{os.environ['PATH']}"
    return subprocess.run(
        argv,
        cwd=vault.root,
        env={**vault.env, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_script_completes_ids_in_its_shell(planned: TestVault, shell: str, tmp_path: Path) -> None:
    program = shell_of(shell)
    script = tmp_path / "_placet"
    script.write_text(planned.cli("completion", shell).stdout)
    argv, wanted = {
        "bash": (
            [
                "--norc",
                "-c",
                f"source {script}; COMP_WORDS=(placet show say-h); COMP_CWORD=2; "
                '_placet_completion placet; echo "${COMPREPLY[@]}"',
            ],
            "say-hello",
        ),
        "zsh": (
            [
                "-f",
                "-c",
                f"autoload -U compinit; compinit -D -u; source {script}; echo $_comps[placet]",
            ],
            "_placet_completion",
        ),
        "fish": (["-c", f"source {script}; complete -C 'placet show say-h'"], "say-hello"),
    }[shell]
    assert wanted in run_shell(planned, [program, *argv])


def test_unknown_shell_is_refused_by_name(vault: TestVault) -> None:
    done = vault.click("completion", "tcsh", check=False)
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
