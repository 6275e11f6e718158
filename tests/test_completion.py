"""Completion: by click's own protocol, in real shells, and installed where shells look."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from placet.cli.completion import SHELLS, place
from placet.cli.main import COMMANDS
from vaultkit import PLAN, TestVault, make_vault

PLACET = Path(sys.executable).with_name("placet")

pytestmark = pytest.mark.skipif(not PLACET.exists(), reason="placet is not installed as a program")


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    return make_vault(tmp_path)


@pytest.fixture
def planned(vault: TestVault) -> TestVault:
    vault.script(("plan", [{"calls": [("submit_plan", PLAN)]}]))
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
    assert completed(vault, "config", "list", "--o") == ["--origin"]
    assert completed(vault, "help", "sco") == ["scope"]
    assert completed(vault, "completion", "install", "f") == ["fish"]


@pytest.mark.parametrize("command", ["show", "why", "approve", "diff", "stop", "replay"])
@pytest.mark.thinned(2)
def test_ids_are_completed(planned: TestVault, command: str) -> None:
    assert sorted(completed(planned, command, "")) == ["say-goodbye", "say-hello"]
    assert completed(planned, command, "say-h") == ["say-hello"]
    assert completed(planned, command, "x") == []


def test_ids_are_completed_of_the_vault_that_is_named_and_for_every_shell(
    planned: TestVault, tmp_path: Path
) -> None:
    root, planned.root = str(planned.root), tmp_path
    assert completed(planned, "show", "") == []
    for shell in SHELLS:
        assert completed(planned, "show", "--vault", root, "say-h", shell=shell) == ["say-hello"]
    assert completed(planned, "--vault", root, "journal", "--trace", "say-h") == ["say-hello"]


def test_portals_agents_and_settings_are_completed(vault: TestVault) -> None:
    vault.configure('[portals.code]\npath = "/tmp"\n[portals.docs]\npath = "/tmp"\n')
    assert completed(vault, "submit", "x", "--portal", "") == ["code", "docs"]
    assert completed(vault, "portal", "remove", "d") == ["docs"]
    assert "senior-coder" in completed(vault, "submit", "--agent", "s")
    assert completed(vault, "config", "set", "daemon.pa") == ["daemon.paused"]
    assert completed(vault, "config", "get", "portals.") == [
        "portals.code.path",
        "portals.docs.path",
    ]


def test_names_that_a_shell_would_take_for_more_are_left_out(vault: TestVault) -> None:
    agents = vault.root / "System/Agents"
    for name in ("a b", "$(touch x)", "`id`", "*", "a\nplain,b", "\x1b[31m", "-x", "good"):
        (agents / f"{name}.md").write_text("x\n")
    vault.configure('[portals."a b"]\npath = "/tmp"\n[portals."\\u001b[0m"]\npath = "/tmp"\n')
    assert sorted(completed(vault, "submit", "--agent", "")) == sorted(
        ["default", "good", "reviewer", "senior-coder", "writer"]
    )
    assert completed(vault, "submit", "--portal", "") == []


def test_no_trouble_is_said_and_nothing_is_written(planned: TestVault) -> None:
    def files() -> set[Path]:
        return {path for top in (planned.root, planned.state) for path in top.rglob("*")}

    completed(planned, "show", "")  # SQLite's own files beside the journal
    before = files()
    assert completed(planned, "show", "") != []
    assert files() == before
    (planned.root / "System/placet.toml").write_text("[broken")
    assert completed(planned, "submit", "--portal", "") == []
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


def test_bash_completes_with_the_installed_script(planned: TestVault, tmp_path: Path) -> None:
    bash = shell_of("bash")
    planned.extra |= {"HOME": str(tmp_path / "home")}
    path = planned.cli("completion", "install", "bash").stdout.strip()
    said = run_shell(
        planned,
        [
            bash,
            "--norc",
            "-c",
            f"source {path}; complete -p placet; COMP_WORDS=(placet show say-h); COMP_CWORD=2; "
            '_placet_completion placet; echo "${COMPREPLY[@]}"',
        ],
    )
    assert "-F _placet_completion placet" in said
    assert said.splitlines()[-1] == "say-hello"


def test_zsh_completes_with_the_installed_script(planned: TestVault, tmp_path: Path) -> None:
    zsh = shell_of("zsh")
    planned.extra |= {"HOME": str(tmp_path / "home")}
    path = Path(planned.cli("completion", "install", "zsh").stdout.strip())
    said = run_shell(
        planned,
        [
            zsh,
            "-f",
            "-c",
            f"fpath=({path.parent} $fpath); autoload -U compinit; compinit -D -u; "
            "echo $_comps[placet]; autoload +X _placet && echo loaded",
        ],
    )
    assert said.split() == ["_placet", "loaded"]


def test_fish_completes_with_the_installed_script(planned: TestVault, tmp_path: Path) -> None:
    fish = shell_of("fish")
    planned.extra |= {"HOME": str(tmp_path / "home")}
    planned.cli("completion", "install", "fish")
    assert "say-hello" in run_shell(planned, [fish, "-c", "complete -C 'placet show say-h'"])


def test_the_script_goes_where_the_shell_looks_and_a_second_time_changes_nothing(
    vault: TestVault, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    vault.extra |= {"HOME": str(home), "XDG_DATA_HOME": str(tmp_path / "data")}
    for shell, where in (
        ("bash", tmp_path / "data/bash-completion/completions/placet"),
        ("zsh", tmp_path / "data/zsh/site-functions/_placet"),
        ("fish", home / ".config/fish/completions/placet.fish"),
    ):
        first = vault.click("completion", "install", shell)
        assert first.stdout == f"{where}\n"
        assert "written" in first.stderr
        assert where.read_text() == vault.click("completion", shell).stdout
        assert "as it should be" in vault.click("completion", "install", shell).stderr
        where.write_text("# old: _PLACET_COMPLETE\n")
        assert "renewed" in vault.click("completion", "install", shell).stderr
        where.write_text("mine\n")
        refused = vault.click("completion", "install", shell, check=False)
        assert refused.returncode == 1
        assert str(where) in refused.stderr
        assert where.read_text() == "mine\n"
    assert not list(home.glob(".*rc"))


def test_without_a_name_it_is_the_persons_own_shell(vault: TestVault, tmp_path: Path) -> None:
    vault.extra |= {"HOME": str(tmp_path / "home"), "SHELL": "/usr/bin/zsh"}
    done = vault.click("completion", "install")
    assert done.stdout.strip() == str(place("zsh", {"HOME": str(tmp_path / "home")}))
    assert "fpath=(" in done.stderr
    vault.extra["SHELL"] = "/bin/tcsh"
    done = vault.click("completion", "install", check=False)
    assert done.returncode == 2
    assert "placet completion install bash" in done.stderr


def test_where_shell_is_not_set_it_is_the_login_shell(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.extra |= {"HOME": str(tmp_path / "home"), "SHELL": ""}
    shell = "/bin/fish"
    monkeypatch.setattr(
        pwd, "getpwuid", lambda _: pwd.struct_passwd(("ann", "x", 1, 1, "", "/h", shell))
    )
    assert vault.click("completion", "install").stdout.strip().endswith("placet.fish")
    shell = "/usr/sbin/nologin"
    done = vault.click("completion", "install", check=False)
    assert done.returncode == 2
    assert "Your shell is /usr/sbin/nologin" in done.stderr


def test_folders_in_the_environment_count_if_they_are_absolute() -> None:
    env = {"HOME": "/h", "XDG_DATA_HOME": "rel", "XDG_CONFIG_HOME": "/c"}
    assert place("zsh", env) == Path("/h/.local/share/zsh/site-functions/_placet")
    assert place("fish", env) == Path("/c/fish/completions/placet.fish")
    assert place("bash", {**env, "BASH_COMPLETION_USER_DIR": "/b"}) == Path("/b/completions/placet")
