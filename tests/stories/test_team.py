"""Run a team: the daemon decides, and workers on other machines execute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import pgkit
from gitkit import git, make_repo
from placet.case.waiting import WaitReason
from placet.cli.main import main
from placet.host.config import Config
from placet_team.work_item import Wait, packed_config, packed_result, result_of
from placet_team.worker_setup import WorkerSettings, with_own
from teamkit import TestTeam, running_team
from vaultkit import DONE, PLAN, TestVault, make_vault, until

pytestmark = pytest.mark.skipif(not pgkit.SERVER, reason=pgkit.WHY_NOT)


@pytest.fixture
def hello(tmp_path: Path, server: pgkit.Server) -> Iterator[TestTeam]:
    vault = make_vault(tmp_path)
    vault.plays(PLAN, *DONE)
    with running_team(tmp_path, server, vault=vault) as found:
        yield found


def test_worker_plans_and_runs_assigned_work(hello: TestTeam) -> None:
    vault = hello.vault
    hello.host()
    until(lambda: "done by workers" in hello.log("host"))
    hello.worker("ann")
    vault.drop("# Say hello\n")
    hello.until("plan.created", patience_s=20)
    until(vault.plan().exists)
    vault.approve()
    hello.until("report.written", patience_s=25)
    branch = git(vault.root, "branch", "--list", "feat/*").strip()
    assert git(vault.root, "show", f"{branch}:hello.txt") == "hello"
    assert hello.sql("SELECT count(*) FROM team_work") == [(0,)]
    assert vault.click("journal", "verify").stdout
    print(hello.logs())


AHEAD = """
from datetime import timedelta
from placet.host import clock
wall, given = clock.wall, clock.Clock.__init__
given.__defaults__ = (lambda: wall() + timedelta(days=1), *given.__defaults__[1:])
from placet.cli.main import main
main()
"""


def test_worker_uses_database_clock(hello: TestTeam) -> None:
    hello.host()
    hello.worker("ann", program=("-c", AHEAD))
    hello.vault.drop("# Say hello\n")
    until(hello.vault.plan().exists, "a plan", 60)
    hello.vault.approve()
    hello.until("report.written")
    assert hello.sql("SELECT 1 FROM activity WHERE timestamp::timestamptz > now() + '1 hour'") == []
    assert hello.sql("SELECT 1 FROM activity WHERE action_type = 'model.called'") != []


def portal_of(vault: TestVault, folder: Path) -> Path:
    code = make_repo(folder / "code", {"a.txt": "one\n"})
    vault.click("portal", "add", "code", str(code))
    return code


@pytest.mark.sweep
def test_returned_repository_receives_workers_branch(tmp_path: Path, server: pgkit.Server) -> None:
    vault = make_vault(tmp_path)
    code = portal_of(vault, tmp_path)
    slow = [{"calls": DONE[0]["calls"][:2]}, {"delay_s": 2.0, "calls": DONE[0]["calls"][2:]}]
    vault.plays(PLAN, *slow)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann")
        vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(vault.plan().exists)
        vault.approve()
        found.until("step.completed")
        code.rename(tmp_path / "away")
        until(lambda: "is not a folder" in found.log("host"), found.logs(), 60)
        (tmp_path / "away").rename(code)
        found.until("report.written")
        assert found.rows("execution.completed")
        branch = git(code, "branch", "--list", "feat/*").strip()
        assert git(code, "show", f"{branch}:hello.txt") == "hello"
        assert found.sql("SELECT count(*) FROM team_refs") == [(0,)]
        work = ("for-each-ref", "refs/placet/work")
        until(lambda: git(found.remote, *work) == "", "a remote without work", 30)


@pytest.mark.sweep
def test_plan_runs_on_commit_of_deleted_branch(tmp_path: Path, server: pgkit.Server) -> None:
    vault = make_vault(tmp_path)
    code = portal_of(vault, tmp_path)
    git(code, "checkout", "-q", "-b", "topic")
    vault.plays(PLAN, *DONE)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann")
        for name in ("one", "two"):
            vault.drop("---\nportal: code\n---\n# Say hello\n", f"{name}.md")
        for name in ("one", "two"):
            until(vault.plan(name).exists)
        vault.approve("one")
        found.until("report.written")
        git(code, "checkout", "-q", "main")
        git(code, "branch", "-q", "-D", "topic")
        vault.approve("two")
        found.until("report.written", 2)
        assert len(found.rows("execution.completed")) == 2, found.logs()


def test_work_waits_for_worker_with_plans_model(hello: TestTeam) -> None:
    hello.host()
    stranger = hello.start("worker", hello.role("bob"), log="bob")
    hello.vault.drop("# Say hello\n")
    said = "the worker bob has the model anthropic: claude-opus-5-5, and this work is for scripted:"
    until(lambda: said in hello.log("host"), hello.logs(), 60)
    stranger.terminate()
    stranger.wait(30)
    hello.worker("ann")
    until(hello.vault.plan().exists, "a plan", 60)


def test_server_and_sandbox_are_the_workers_own() -> None:
    forged = {"model": {"base_url": "https://evil.example", "max_tokens": 300}}
    sent = Config.model_validate({**forged, "commands": {"sandbox": "none"}})
    own = WorkerSettings(Config.model_validate({"model": {"base_url": "https://own.example"}}))
    config = with_own(sent, own, "ann")
    assert config.model.base_url == "https://own.example"
    assert config.commands.sandbox == "auto"
    assert config.model.max_tokens == 300, "a limit of the vault's"
    assert with_own(sent, WorkerSettings(), "ann").model.base_url == ""
    sent_text = packed_config(sent)
    assert "evil" not in sent_text
    assert "commands" not in sent_text


@pytest.mark.parametrize("after_s", [1e9, -1.0])
def test_worker_wait_is_capped_at_one_hour(after_s: float) -> None:
    kind, text = packed_result(Wait("no room", after_s, WaitReason.MACHINE))
    found = result_of(kind, text)
    assert isinstance(found, Wait)
    assert found.error().after_s == 3600.0


@pytest.mark.parametrize("after_s", [float("nan"), float("inf"), 1e300])
def test_non_finite_worker_wait_is_refused(after_s: float) -> None:
    kind, text = packed_result(Wait("no room", after_s, WaitReason.MACHINE))
    with pytest.raises(ValueError, match="is not what was expected"):
        result_of(kind, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nday_usd = 1\n", "limits.day_usd"),
        ("[model]\nmax_tokens = 300\n", "model.max_tokens"),
        ("[remotes]\ncode = 7\n", "remotes"),
        ('model = "x"\n', "model"),
        ("[model\n", "cannot be read as TOML"),
        ("[model]\nname = 7\n", "model.name"),
    ],
)
def test_worker_refuses_unknown_settings(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "worker.toml").write_text(text)
    words = ["postgresql://ann@x/y", "--config", str(tmp_path / "worker.toml")]
    done = CliRunner().invoke(main, ["worker", *words])
    assert done.exit_code == 2
    assert said in done.stderr


MISTAKEN = """
import sys
import placet.agent.mission as mission
def conclude(*_): raise RuntimeError("a mistake of placet's")
mission.conclude = conclude
from placet.cli.main import main
main()
"""


def test_worker_bug_loses_no_commit_or_checkpoint(tmp_path: Path, server: pgkit.Server) -> None:
    vault = make_vault(tmp_path)
    code = portal_of(vault, tmp_path)
    said = [
        {"calls": DONE[0]["calls"][:2]},
        {"calls": [("write_file", {"path": "hello.txt", "content": "more\n"})]},
        {"calls": [("give_up", {"reason": "No."})]},
    ]
    vault.plays(PLAN, *said)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann", program=("-c", MISTAKEN))
        vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(vault.plan().exists)
        vault.approve()
        found.until("report.written")
        refs = git(code, "for-each-ref", "--format=%(refname)").split()
        (branch,) = [ref for ref in refs if ref.startswith("refs/heads/feat/")]
        (kept,) = [ref for ref in refs if ref.startswith("refs/placet/failed/")]
        assert git(code, "show", f"{branch}:hello.txt") == "hello"
        assert git(code, "show", f"{kept}:hello.txt") == "more"


def test_worker_works_from_commit_off_any_checkout(tmp_path: Path, server: pgkit.Server) -> None:
    vault = make_vault(tmp_path)
    code = portal_of(vault, tmp_path)
    tip = git(code, "rev-parse", "HEAD")
    git(code, "commit", "-q", "--allow-empty", "-m", "More")
    git(code, "checkout", "-q", "--detach", tip)
    vault.plays(PLAN, *DONE)
    with running_team(tmp_path, server, 10, vault) as found:
        found.host()
        found.worker("ann")
        vault.drop("---\nportal: code\n---\n# Say hello\n")
        until(vault.plan().exists)
        vault.approve()
        found.until("report.written")
        assert found.rows("execution.completed"), found.logs()
        (clone,) = tmp_path.glob("state-ann/workers/ann/clones/*.git")
        assert (clone / "HEAD").read_text().strip() == tip
        assert git(code, "rev-parse", "main") != tip
