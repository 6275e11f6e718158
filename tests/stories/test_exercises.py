"""Run small exercises as missions, from the request to green tests on a branch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.stories.exercises import EXERCISES, Exercise

from gitkit import git, make_repo, write
from placet.sandbox.box import Level
from placet.sandbox.probe import probe
from vaultkit import PLAN, TestVault, make_vault

pytestmark = pytest.mark.usefixtures("home")


def solve(tmp_path: Path, exercises: Sequence[Exercise], at_once: int) -> tuple[TestVault, Path]:
    """Have all these exercises requested, planned, approved and carried out on one repository."""
    vault = make_vault(tmp_path)
    repo = make_repo(
        tmp_path / "repo",
        {".gitignore": "__pycache__/\n"}
        | {name: text for exercise in exercises for name, text in exercise.files.items()},
    )
    sandbox = '[commands]\nsandbox = "none"\n' if probe().level is Level.NONE else ""
    vault.configure(
        '[model]\nprovider = "scripted"\nname = "test"\nscript = "System/replies.toml"\n'
        + sandbox
        + f'[daemon]\nplans_at_once = {at_once}\nmissions_at_once = {at_once}\n[portals.code]\npath = "{repo}"\n'
    )
    for exercise in exercises:
        vault.script(
            *conversation(exercise), request=ident(exercise), more=exercise is not exercises[0]
        )
    for exercise in exercises:
        vault.drop(f"---\nportal: code\n---\nMend {exercise.name}.\n", f"{ident(exercise)}.md")
    vault.here()
    for exercise in exercises:
        vault.approve(ident(exercise))
    vault.here()
    return vault, repo


def ident(exercise: Exercise) -> str:
    return f"mend-{exercise.name.replace('_', '-')}"


def conversation(exercise: Exercise) -> list[tuple[str, list[dict[str, object]]]]:
    path = f"{exercise.name}/work.py"
    tools = ["read_file", "edit_file", "run_command"]
    # Without -B a mended file of the same size, in the same second, would be taken for the one that
    # was compiled.
    command = {
        "command": "python3",
        "args": ["-B", "-m", "unittest", "discover", "-q", "-s", exercise.name],
    }
    plan = {
        **PLAN,
        "title": f"Mend {exercise.name}",
        "steps": [{"title": "Mend it", "tools": tools, "done_when": ["tests pass"]}],
        "scope": {"write": [path], "run": ["python3 -B -m unittest"]},
    }
    edits = [("edit_file", {"path": path, "old": old, "new": new}) for old, new in exercise.edits]
    return [
        ("plan", [{"calls": [("read_file", {"path": path})]}, {"calls": [("submit_plan", plan)]}]),
        (
            "execute",
            [
                {"calls": [("run_command", command), ("read_file", {"path": path})]},
                {"calls": edits},
                {"calls": [("run_command", command)]},
                {
                    "calls": [
                        ("complete_step", {"step": 1, "summary": f"Mend {exercise.name}"}),
                        ("finish", {"summary": "Done."}),
                    ]
                },
            ],
        ),
    ]


def check(vault: TestVault, repo: Path, exercises: Sequence[Exercise], folder: Path) -> None:
    """Each mission's branch has only its own change.

    Its tests fail without it and pass with it, in the box and outside.
    """
    done = {row["entity_id"]: row["metadata"] for row in vault.rows("execution.completed")}
    assert done.keys() == {ident(exercise) for exercise in exercises}, [
        row["metadata"] for row in vault.rows("execution.failed")
    ]
    runs = [row for row in vault.rows("tool.called") if row["metadata"]["tool"] == "run_command"]
    for exercise in exercises:
        mine = done[ident(exercise)]
        assert mine["files_changed"] == [f"{exercise.name}/work.py"]
        assert (
            git(repo, "diff", "--name-only", "main", mine["branch"]).splitlines()
            == mine["files_changed"]
        )
        codes = [
            row["metadata"]["exit_code"] for row in runs if row["entity_id"] == ident(exercise)
        ]
        assert (codes[0], codes[-1]) == (1, 0), exercise.name
        place = folder / exercise.name
        write(
            place,
            {
                name.partition("/")[2]: git(repo, "show", f"{mine['branch']}:{name}") + "\n"
                for name in exercise.files
            },
        )
        ran = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"], cwd=place, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert git(repo, "for-each-ref", "refs/placet") == ""


def test_eight_concurrent_missions_fix_eight_functions(tmp_path: Path) -> None:
    chosen = EXERCISES[:: len(EXERCISES) // 8][:8]
    vault, repo = solve(tmp_path, chosen, 8)
    began = [row["id"] for row in vault.rows("execution.started")]
    assert max(began) < min(row["id"] for row in vault.rows("execution.completed"))
    check(vault, repo, chosen, tmp_path / "out")


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_every_exercise_is_fixed(tmp_path: Path) -> None:
    vault, repo = solve(tmp_path, EXERCISES, 4)
    check(vault, repo, EXERCISES, tmp_path / "out")
    print(
        f"\n{len(EXERCISES)} exercises, from request to green tests on {len(vault.rows('git.branch_created'))} branches"
    )
