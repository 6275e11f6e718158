"""Test which git processes start, and what the journal says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchkit import planned_mission
from branchkit import FILES, as_finished, finished_once
from gitkit import git, make_repo, settle_home
from placet.git.repository import open_repo
from vaultkit import PLAN, TestVault


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "home"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path / "repo", FILES)


@pytest.fixture(scope="module")
def once_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return finished_once(tmp_path_factory.mktemp("done"))


@pytest.fixture
def done(once_done: tuple[Path, str]) -> tuple[TestVault, Path, str]:
    return as_finished(*once_done)


def test_git_processes_are_journalled_but_hidden_by_default(
    done: tuple[TestVault, Path, str],
) -> None:
    vault, _, _ = done
    rows = [row for row in vault.rows("git.ran") if row["trace_id"]]
    told = [row["metadata"] for row in rows]
    assert {
        "open the repository",
        "make the worktree",
        "commit",
        "look at the branch",
        "tidy up",
    } == {data["operation"] for data in told}
    assert all(
        data.keys() == {"operation", "processes", "duration_ms"} and data["duration_ms"] > 0
        for data in told
    )
    assert all(data["processes"] >= 1 for data in told)
    assert len(rows) <= 8
    assert {row["trace_id"] for row in rows} == {vault.rows("plan.created")[0]["trace_id"]}
    said = vault.click("journal")
    assert "git.ran" not in said.stdout
    left_out = len(vault.rows("git.ran"))
    assert f"{left_out} git processes left out; with them: --json" in said.stderr


@pytest.mark.parametrize(("turns", "writing"), [(5, 1), (60, 20)])
def test_read_only_turns_start_no_git_process(tmp_path: Path, turns: int, writing: int) -> None:
    """A turn that writes takes seven processes, all else of a mission forty.

    One of these asks whose commits the branch has.
    """
    vault = planned_mission(tmp_path, turns)
    planning = len(vault.rows("git.ran"))
    vault.once()
    assert len(vault.rows("execution.completed")) == 1
    told = [row["metadata"] for row in vault.rows("git.ran")[planning:] if row["trace_id"]]
    print(told)
    assert sum(data["processes"] for data in told) <= 40 + 7 * writing
    assert len(told) <= 5


def test_git_is_started_by_no_other_program(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    real = subprocess.Popen

    def popen(argv: list[str], *args: object, **more: object) -> object:
        started.append(Path(argv[0]).name)
        assert "ANTHROPIC_API_KEY" not in more["env"]
        return real(argv, *args, **more)

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    open_repo(repo)
    monkeypatch.setattr("placet.git.run.subprocess.Popen", popen)
    open_repo(repo)
    assert started == ["git"]


def test_failed_git_command_is_journalled_with_stderr(vault: TestVault, repo: Path) -> None:
    blob = git(repo, "rev-parse", "HEAD:a.txt")
    (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    vault.plays(PLAN)
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    (failed,) = [row["metadata"] for row in vault.rows("git.ran") if "stderr" in row["metadata"]]
    assert failed["command"][:2] == ["git", "read-tree"]
    assert blob in failed["stderr"]
    assert failed["exit"] == 128
    assert "git.ran" in vault.click("journal").stdout
