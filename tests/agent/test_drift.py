"""Test what happens when files change after a plan was written: a note, or a new question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gitkit import commit_all, fingerprint, git, make_repo, write
from looping import looping
from placet.agent.drift import what_changed
from placet.case.drift import ELSEWHERE, UNDER, changed_files
from placet.git.run import Repo
from vaultkit import PLAN, TestVault, make_vault, meddling, nobody_writes

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("changed", "now", "verdict", "paths"),
    [
        ([], {"read.txt": "1"}, ELSEWHERE, ()),
        (["x.txt"], {"read.txt": "1"}, ELSEWHERE, ("x.txt",)),
        (["x.txt", "read.txt"], {"read.txt": "2"}, UNDER, ("read.txt",)),
        (["read.txt"], {}, UNDER, ("read.txt",)),
        (["src/a.py", "x.txt"], {"read.txt": "1"}, UNDER, ("src/a.py",)),
        (None, {"read.txt": "1"}, ELSEWHERE, ()),
        (None, {"read.txt": "2"}, UNDER, ("read.txt",)),
    ],
)
def test_changed_files_decide_drift_verdict(
    changed: list[str] | None,
    now: dict[str, str],
    verdict: str,
    paths: tuple[str, ...],
) -> None:
    found = changed_files(changed, now, {"read.txt": "1"}, {"src/a.py"})
    assert found == (verdict, paths)


def test_unknown_base_counts_as_changed() -> None:
    assert changed_files(None, {}, {}, ())[0] == UNDER


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(
        tmp_path / "repo", {"read.txt": "read\n", "mine.txt": "old\n", "other.txt": "other\n"}
    )


def step(title: str, *actions: tuple[str, dict[str, object]]) -> dict[str, object]:
    return {
        "title": title,
        "actions": [{"tool": tool, "params": params} for tool, params in actions],
    }


WRITE = step("Write it", ("write_file", {"path": "mine.txt", "content": "new\n"}))


@pytest.fixture
def planned(tmp_path: Path, repo: Path) -> TestVault:
    return plan(tmp_path, repo, [WRITE])


def plan(
    tmp_path: Path,
    repo: Path,
    steps: list[dict[str, object]],
    write: Sequence[str] = ("mine.txt",),
) -> TestVault:
    """A vault with a plan that read read.txt and may write mine.txt, awaiting its person."""
    vault = make_vault(tmp_path)
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    plan = {**PLAN, "scope": {"write": [*write], "run": ["python3 act.py"]}, "steps": steps}
    vault.script(
        (
            "plan",
            [
                {"calls": [("read_file", {"path": "./read.txt"})]},
                {"calls": [("submit_plan", plan)]},
            ],
        )
    )
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    return vault


def change(repo: Path, name: str, text: str = "changed\n") -> None:
    write(repo, {name: text})
    commit_all(repo, f"Change {name}")


def run(vault: TestVault) -> list[dict[str, object]]:
    vault.approve()
    vault.here()
    return [row["metadata"] for row in vault.rows("plan.drifted")]


def test_file_matched_only_by_glob_causes_no_review(tmp_path: Path, repo: Path) -> None:
    vault = plan(tmp_path, repo, [WRITE], write=["**"])
    change(repo, "other.txt")
    (drift,) = run(vault)
    assert (drift["verdict"], drift["files"]) == ("changed elsewhere", ["other.txt"])
    assert len(vault.rows("execution.completed")) == 1


def test_changed_file_of_action_returns_plan_to_review(tmp_path: Path, repo: Path) -> None:
    vault = plan(tmp_path, repo, [WRITE], write=["**"])
    change(repo, "mine.txt")
    (drift,) = run(vault)
    assert (drift["verdict"], drift["files"]) == ("changed under the plan", ["mine.txt"])


@pytest.mark.parametrize("name", ["read.txt", "mine.txt"])
def test_changed_files_return_plan_before_it_runs(
    planned: TestVault, repo: Path, name: str
) -> None:
    change(repo, name)
    before = fingerprint(repo)
    (drift,) = run(planned)
    assert (drift["verdict"], drift["files"]) == ("changed under the plan", [name])
    assert git(repo, "for-each-ref", "refs/heads/feat", "refs/placet") == ""
    assert planned.notes("System/Active") == []
    assert planned.reports() == []
    text = planned.plan().read_text()
    assert "status: review" in text
    assert f"`{name}`" in text
    assert f"base_commit: {git(repo, 'rev-parse', 'HEAD')}" in text
    # a person has read it and approves it as it is: it begins at the new state, and is not asked
    # again
    run(planned)
    done = planned.rows("execution.completed")[0]["metadata"]
    assert git(repo, "rev-parse", f"{done['branch']}^") == git(repo, "rev-parse", "HEAD")
    assert len(planned.rows("plan.drifted")) == 1
    assert fingerprint(repo) == before


def test_line_typed_into_the_box_survives_drift(planned: TestVault, repo: Path) -> None:
    """It is typed while the mission looks at the repository, after the last look at the note."""
    line = "> Mind the umlauts, please."
    change(repo, "read.txt")
    planned.approve()
    with meddling(), nobody_writes(), looping(planned) as running:
        run_mission = running.loop.dispatch.run_mission

        def typing(*given: Any) -> Any:
            text = planned.active().read_text()
            assert "\n%% /placet %%" in text
            planned.active().write_text(
                text.replace("\n%% /placet %%", f"\n{line}\n%% /placet %%", 1)
            )
            return run_mission(*given)

        running.loop.dispatch.run_mission = typing
        running.settle()
    assert planned.rows("plan.drifted")
    assert line in planned.plan().read_text()


def test_plan_can_opt_out_of_drift_check(planned: TestVault, repo: Path) -> None:
    change(repo, "mine.txt")
    path = planned.plan()
    path.write_text(
        path.read_text().replace("status: review\n", "status: review\nif_changed: proceed\n", 1)
    )
    (drift,) = run(planned)
    assert drift["verdict"] == "changed under the plan"
    done = planned.rows("execution.completed")[0]["metadata"]
    assert git(repo, "rev-parse", f"{done['branch']}^") == drift["base"]
    assert "it would have conflicted in: `mine.txt`" in planned.reports()[0].read_text()


def test_other_checked_out_branch_is_no_drift(planned: TestVault, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    change(repo, "mine.txt")
    assert run(planned) == []
    assert len(planned.rows("execution.completed")) == 1


@pytest.mark.parametrize("name", ["other.txt", "read.txt"])
def test_lost_base_commit_falls_back_to_digests(planned: TestVault, repo: Path, name: str) -> None:
    write(repo, {name: "amended\n"})
    git(repo, "commit", "-q", "-a", "--amend", "-m", "Begin anew")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    (drift,) = run(planned)
    if name == "read.txt":
        assert (drift["verdict"], drift["files"]) == ("changed under the plan", ["read.txt"])
        assert "base commit is gone" in planned.plan().read_text()
    else:
        assert drift["verdict"] == "changed elsewhere"
        assert len(planned.rows("execution.completed")) == 1


def test_drift_during_mission_returns_plan_and_keeps_work(tmp_path: Path, repo: Path) -> None:
    """The plan's own command does what a person would: it commits in the person's checkout."""
    write(
        repo,
        {
            "act.py": "import subprocess, pathlib\n"
            f"pathlib.Path({str(repo / 'read.txt')!r}).write_text('meanwhile')\n"
            f"subprocess.run(['git', '-C', {str(repo)!r}, '-c', 'user.name=A', '-c', 'user.email=a@b',"
            " 'commit', '-qam', 'Meanwhile'], check=True)\n"
        },
    )
    commit_all(repo, "Act")
    vault = plan(
        tmp_path,
        repo,
        [
            WRITE,
            step(
                "Act",
                ("run_command", {"command": "python3", "args": ["act.py"]}),
                ("write_file", {"path": "mine.txt", "content": "newer\n"}),
            ),
        ],
    )
    with meddling():
        (drift,) = run(vault)
    assert drift["files"] == ["read.txt"]
    text = vault.plan().read_text()
    kept = next(word.strip("`.") for word in text.split() if "refs/placet/failed/" in word)
    assert git(repo, "show", f"{kept}:mine.txt") == "newer"
    assert git(repo, "show", f"{kept}^:mine.txt") == "new"
    assert git(repo, "branch", "--list", "feat/*") == ""
    assert len(vault.rows("lease.released")) == 1


def test_drift_message_escapes_file_and_folder_names() -> None:
    paths = ("`![x](https://example.com)`",)
    repo = Repo(
        Path("/it's"), Path("/it's/.git"), Path("/it's/.git"), is_bare=False, is_shallow=False
    )
    said = what_changed(paths, repo, "a" * 40, "b" * 40, lost=False)
    assert "`'![x](https://example.com)'`" in said
    assert """git -C '/it'"'"'s' diff""" in said
