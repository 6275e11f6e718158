"""Test that what happens around a finished mission does not make it a failed one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from benchkit import recorded
from gitkit import git, make_repo
from looping import Fake, Time, bare_vault, greeter, looping, turns_taken
from placet.agent import commits, mission_end
from placet.case.mission_result import MissionResult, Spent, StepDone
from placet.chat.messages import Ask, Purpose, Reply
from placet.errors import ToolError, UserError
from placet.git import run
from placet.git.removal import WorkNotKept
from placet.git.repository import open_repo
from placet.git.run import GitDir, GitError
from placet.git.worktree import Worktree
from placet.journal.writes import JournalPaused, LeaseLost
from vaultkit import DONE, PLAN, TestVault, make_vault, meddling

UNCONTENDED = {"config.lock", "index.lock", "HEAD.lock"}
"""Locks that no git call of a mission takes."""


WRITE, *REST = DONE[0]["calls"]  # the round between them is saved at a checkpoint


@pytest.fixture
def vault(tmp_path: Path) -> TestVault:
    """A vault with a planned request for the repository `repo` beside it."""
    made = make_vault(tmp_path)
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    made.configure(f'[portals.code]\npath = "{repo}"\n')
    made.plays(PLAN, [WRITE], REST)
    made.drop("---\nportal: code\n---\nSay hello.\n")
    made.here()
    made.approve()
    return made


def ended(vault: TestVault, most: int) -> int:
    """Let daemons run until the mission has ended; return how many it took: each wait ends one."""
    for number in range(1, most + 1):
        vault.here()
        if vault.rows("execution.completed") or vault.rows("execution.failed"):
            return number
    raise AssertionError(vault.rows()[-1])


@pytest.mark.parametrize(
    "lock",
    ["packed-refs.lock", "config.lock", "index.lock", "HEAD.lock", "refs/placet/ckpt/{}.lock"],
)
def test_lock_at_any_git_call_is_wait(
    vault: TestVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Each git call of the mission finds the lock once; the next try of the call does not."""
    real, tried = run.start_git, set[str]()
    trace8 = vault.rows("plan.created")[0]["trace_id"][:8]
    file = tmp_path / "repo/.git" / lock.format(f"{trace8}-2")

    def start_locked(
        place: GitDir, args: Sequence[str], source: BinaryIO | None, config: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        call = re.sub("[0-9a-f]{40}", "", " ".join(args))
        if call in tried:
            file.unlink(missing_ok=True)
        else:
            tried.add(call)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return real(place, args, source, config)

    monkeypatch.setattr(run, "start_git", start_locked)
    with meddling():  # the locks
        took = ended(vault, 60)
    assert took > 1 or lock in UNCONTENDED
    assert [row["metadata"]["files_changed"] for row in vault.rows("execution.completed")] == [
        ["hello.txt"]
    ], [row["metadata"] for row in vault.rows("execution.failed")]


@pytest.mark.parametrize(
    "error",
    [
        GitError(("update-ref",), 1, "no answer within 60 s"),
        PermissionError(13, "Permission denied"),
        FileNotFoundError(2, "No such file or directory"),
        WorkNotKept(Path("/w"), ["a"]),
        ToolError("not_found", "There is no such file."),
        RuntimeError("a bug"),
    ],
)
def test_error_of_tidying_fails_no_mission(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(wt: Worktree, *_: Any, **__: Any) -> None:
        if isinstance(error, PermissionError):
            error.filename = str(wt.path / "out")
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(commits, "remove_worktree", refused)
        vault.here()
    report = vault.reports()[0].read_text()
    assert "status: completed" in report
    assert "placet could not remove the worktree" in report
    assert "The daemon tries again when it starts. The error was: " in report
    assert str(error.args[-1] if isinstance(error, RuntimeError) else "") in report
    (left,) = (one for one in vault.state.glob("*/worktrees/*") if one.is_dir())
    vault.here()
    assert not left.exists()


@pytest.mark.parametrize(
    "error", [GitError(("for-each-ref",), 1, "no answer"), UserError("a"), OSError("b")]
)
def test_leftovers_of_others_change_no_result(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(commits, "delete_leftovers", refused)
    vault.plays(PLAN, [WRITE], [("give_up", {"reason": "I cannot."})])
    vault.here()
    (failed,) = (row["metadata"] for row in vault.rows("execution.failed"))
    assert failed["reason"] == "gave_up"
    assert f"`{failed['kept']}`" in vault.reports()[0].read_text()


@pytest.mark.parametrize("error", [LeaseLost("token 1"), JournalPaused("closed")])
def test_lost_lease_while_tidying_is_no_end(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise error

    raised: list[BaseException] = []
    monkeypatch.setattr(commits, "remove_worktree", refused)
    with looping(vault) as running:
        run_mission = running.loop.dispatch.run_mission

        def watched(*given: Any) -> Any:
            try:
                return run_mission(*given)
            except Exception as found:
                raised.append(found)
                raise

        running.loop.dispatch.run_mission = watched
        running.settle()
    assert raised[0] is error


def test_slow_disk_after_last_commit_is_wait(
    vault: TestVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [GitError(("diff",), 1, "no answer within 60 s")] * 2
    real = mission_end.files_between

    def between(*args: Any) -> Any:
        if late:
            raise late.pop()
        return real(*args)

    monkeypatch.setattr(mission_end, "files_between", between)
    assert ended(vault, 5) == 3
    assert len(vault.rows("execution.completed")) == 1
    assert not vault.rows("execution.failed")


def test_commit_of_another_person_is_named(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    vault = bare_vault(tmp_path, f'[portals.code]\npath = "{repo}"\n')
    commits_made: list[str] = []

    def model(ask: Ask) -> Reply:
        if ask.purpose is Purpose.EXECUTE and turns_taken(ask) == 1:
            branch = git(repo, "branch", "--list", "feat/*", "--format=%(refname)")
            theirs = git(repo, "commit-tree", "-p", branch, "-m", "Mine", f"{branch}^{{tree}}")
            git(repo, "update-ref", branch, theirs)
            commits_made.append(theirs)
        return greeter(ask)

    with looping(vault, model=lambda: Fake(model), time=Time()) as run:
        vault.drop("---\nportal: code\n---\nSay hello.\n")
        run.settle()
        vault.approve()
        with meddling():
            run.settle()
    said = f"- The branch has commits that are not the mission's: {commits_made[0][:12]} by "
    assert said in vault.reports()[0].read_text()


def test_commit_of_another_person_is_named_after_merge(tmp_path: Path) -> None:
    """As many commits are ahead of `main` as the mission made, but one is another person's."""
    folder = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    base = git(folder, "rev-parse", "main")
    shas = [base]
    for _ in range(2):
        shas.append(git(folder, "commit-tree", "-p", shas[-1], "-m", "x", "main^{tree}"))
    _, own, theirs = shas
    git(folder, "update-ref", "refs/heads/feat/x", theirs)
    git(folder, "update-ref", "refs/heads/main", own)
    done = MissionResult(
        spent=Spent(),
        repository="r",
        branch="feat/x",
        base=base,
        commit=theirs,
        steps=(StepDone(1, "", own),),
    )
    with recorded(tmp_path) as (record, _):
        after = mission_end.facts_after(open_repo(folder), record, done, "main")
    assert after.ahead == 1
    assert theirs[:12] in after.notes[0]
    assert own[:12] not in after.notes[0]
