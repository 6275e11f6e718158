"""Ends that only the world outside brings a mission to, through the whole daemon.

What its report tells of it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gitkit import git
from looping import Fake, Running, Time, bare_vault, looping, results, says, turns_taken
from placet.case.lease import Owner
from placet.chat.messages import Ask, ModelError, ModelErrorKind, Purpose, Reply, Usage
from placet.chat.retry import RetryPolicy
from placet.journal.writes import AcquireLease
from placet.tools.base import Outcome, Toolbox
from vaultkit import PLAN, TestVault

WRITE = ("write_file", {"path": "hello.txt", "content": "hello\n"})
STRANGER = Owner("elsewhere", "its boot", 7, "7")


def ended(vault: TestVault) -> dict[str, Any]:
    rows = vault.rows("execution.failed") + vault.rows("execution.completed")
    assert len(rows) == 1, vault.actions()
    return rows[0]["metadata"]


class Model:
    """Plans, writes a file, and then does what the test says."""

    def __init__(self, plan: dict[str, Any] = PLAN) -> None:
        self.fake = Fake(self.answer)
        self.plan = plan
        self.error: ModelError | None = None

    def answer(self, ask: Ask) -> Reply:
        if ask.purpose is Purpose.PLAN:
            return says(("submit_plan", self.plan))
        if turns_taken(ask) == 0:
            return says(WRITE, usage=Usage(1_000, 100))
        return self.second(ask)

    def second(self, ask: Ask) -> Reply:
        if self.error is not None:
            raise self.error
        return says(
            ("complete_step", {"step": 1, "summary": "Done"}),
            ("finish", {"summary": "Done."}),
            usage=Usage(1_000, 100),
        )


def approved(running: Running) -> None:
    running.vault.drop("Say hello.\n")
    running.settle()
    running.vault.approve()


def test_a_literal_step_that_fails_is_a_tool_error(tmp_path: Path) -> None:
    actions = [{"tool": "edit_file", "params": {"path": "none.txt", "old": "a", "new": "b"}}]
    model = Model(
        {
            **PLAN,
            "steps": [{"title": "Mend it", "actions": actions}],
            "scope": {"write": ["none.txt"]},
        }
    )
    with looping(bare_vault(tmp_path), model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    assert (ended(running.vault)["reason"], ended(running.vault)["iterations"]) == ("tool_error", 0)
    assert (
        "Execution failed during tool operation: edit_file"
        in running.vault.reports()[0].read_text()
    )


@pytest.mark.parametrize(("done", "reason"), [(2, "finished"), (1, "talk")])
def test_who_says_so_after_the_last_step_has_finished(
    tmp_path: Path, done: int, reason: str
) -> None:
    """Not every model calls `finish`."""
    secret = "sk-ant-api03-" + "a" * 40
    model = Model(
        {**PLAN, "steps": [*PLAN["steps"], {"title": "Look at it", "description": "Read it."}]}
    )
    steps = [
        says(("complete_step", {"step": n, "summary": f"Step {n}"})) for n in range(1, done + 1)
    ]
    model.second = lambda ask: (  # type: ignore[method-assign]
        steps[turns_taken(ask) - 1]
        if turns_taken(ask) <= done
        else says(text=f"All is done. {secret}")
    )
    with looping(bare_vault(tmp_path), model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    report = running.vault.reports()[0].read_text()
    assert secret not in report
    if reason == "talk":
        assert ended(running.vault)["reason"] == "talk"
    else:
        assert running.vault.rows("execution.completed")[0]["metadata"]["iterations"] == 4
        assert "All is done. " in report


def test_dollars_end_it_before_they_are_passed(tmp_path: Path) -> None:
    model = Model({**PLAN, "complexity": "complex"})
    model.fake.provider, model.fake.name = "anthropic", "test"
    model.second = lambda ask: says(  # type: ignore[method-assign]
        ("write_file", {"path": "hello.txt", "content": f"{turns_taken(ask)}\n"}),
        usage=Usage(1_000, 100),
    )
    vault = bare_vault(tmp_path)
    vault.configure(
        '[model]\nprovider = "anthropic"\nname = "test"\nmax_tokens = 1000\n'
        '[[model.price]]\nmodel = "test"\nsince = 2026-01-01\ninput = 10.0\noutput = 50.0\n'
        "cache_read = 1.0\ncache_write = 12.5\n"
    )
    with looping(vault, model=lambda: model.fake) as running:
        vault.drop("---\nbudget_usd: 0.2\n---\nSay hello.\n")
        running.settle()
        vault.approve()
        running.settle()
    assert ended(vault)["reason"] == "budget"
    assert 0.1 < ended(vault)["cost_usd"] <= 0.2


@pytest.mark.parametrize("reason", ["stopped_by_person", "timeout"])
def test_a_mission_that_ends_while_it_waits_tells_what_it_had_done(
    tmp_path: Path, reason: str
) -> None:
    vault, time, model = (
        bare_vault(tmp_path, "[limits]\nmission_wall_time_s = 600\n"),
        Time(),
        Model(),
    )
    model.error = ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
    with looping(
        vault, time=time, model=lambda: model.fake, retry=RetryPolicy(first_wait_s=20)
    ) as running:
        approved(running)
        running.settle()
        if reason == "timeout":
            time.pass_time(1_000)
        else:
            vault.active("say-hello").rename(vault.plan("say-hello"))
        running.settle()
    end = ended(vault)
    assert (end["reason"], end["iterations"], end["input_tokens"]) == (reason, 1, 1_000)
    assert git(vault.root, "show", f"{end['kept']}:hello.txt") == "hello"
    assert "write_file (1)" in vault.reports()[0].read_text()


def test_a_repository_that_is_gone_ends_it_and_the_report_says_where_the_work_is(
    tmp_path: Path,
) -> None:
    vault, model = bare_vault(tmp_path), Model()

    def second(_ask: Ask) -> Reply:
        (vault.root / ".git").rename(tmp_path / "taken")
        return says(("complete_step", {"step": 1, "summary": "Hello"}), usage=Usage(1_000, 100))

    model.second = second  # type: ignore[method-assign]
    with looping(vault, model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    end, report = ended(vault), vault.reports()[0].read_text()
    assert (end["reason"], end["iterations"], end["input_tokens"]) == ("repository", 2, 2_000)
    assert "restart the daemon" in report
    assert "had changed nothing" not in report


@pytest.mark.parametrize(
    "how", ["renamed", "deleted", "switched", "worktree removed", "worktree deleted"]
)
@pytest.mark.thinned(3)
def test_a_branch_that_a_person_takes_away_ends_it_and_the_work_is_kept(
    tmp_path: Path, how: str
) -> None:
    vault, model = bare_vault(tmp_path), Model()

    def second(_ask: Ask) -> Reply:
        tree = next(path for path in vault.state.glob("*/worktrees/*") if path.is_dir())
        branch = git(vault.root, "for-each-ref", "--format=%(refname:short)", "refs/heads/feat")
        match how:
            case "renamed":
                git(vault.root, "branch", "-m", branch, "mine")
            case "deleted":
                git(vault.root, "update-ref", "-d", f"refs/heads/{branch}")
            case "switched":
                git(tree, "switch", "-q", "-c", "mine")
            case "worktree removed":
                git(vault.root, "worktree", "remove", "--force", str(tree))
            case _:
                shutil.rmtree(tree)
                git(vault.root, "worktree", "prune")
        return says(("complete_step", {"step": 1, "summary": "Hello"}), usage=Usage(1_000, 100))

    model.second = second  # type: ignore[method-assign]
    with looping(vault, model=lambda: model.fake) as running:
        approved(running)
        running.settle()
    end, report = ended(vault), vault.reports()[0].read_text()
    assert (end["reason"], end["error_type"]) == ("repository", "repository")
    assert "Tools executed before failure: write_file (1)" in report
    assert git(vault.root, "show", f"{end['kept']}:hello.txt") == "hello"
    refs = git(vault.root, "for-each-ref", "--format=%(refname)").splitlines()
    assert sorted(refs) == [
        "refs/heads/main",
        *(["refs/heads/mine"] if how in ("renamed", "switched") else []),
        end["kept"],
    ]
    assert [path for path in vault.state.glob("*/worktrees/*") if path.is_dir()] == []


def test_a_mistake_of_placets_own_ends_it_and_says_what_it_cost(tmp_path: Path) -> None:
    model = Model()
    with (
        looping(bare_vault(tmp_path), model=lambda: model.fake) as running,
        patch("placet.agent.commits.writing", side_effect=ZeroDivisionError("a mistake")),
    ):
        approved(running)
        running.settle()
    end, report = ended(running.vault), running.vault.reports()[0].read_text()
    assert (end["reason"], end["iterations"], end["output_tokens"]) == ("internal_error", 2, 200)
    assert re.search(
        r"placet made a mistake: ZeroDivisionError: a mistake \(commits\.py:\d+, commit\)", report
    ), "where, too"
    assert "had changed nothing" not in report


def test_who_lost_the_lease_writes_nothing_more_and_goes_on_when_it_is_free(tmp_path: Path) -> None:
    vault, time, model, taken = bare_vault(tmp_path), Time(), Model(), []

    def second(_ask: Ask) -> Reply:
        if not taken:
            journal, case = running.loop.ports.journal, next(iter(running.loop.cases.values()))
            with journal.read() as reader:
                held = reader.lease(case.trace_id)
            assert held is not None
            journal.commit([AcquireLease(case.trace_id, STRANGER, 30, held.token)])
            taken.append(held.token)
        return says(
            ("complete_step", {"step": 1, "summary": "Hello"}), ("finish", {"summary": "Done."})
        )

    model.second = second  # type: ignore[method-assign]
    with looping(vault, time=time, model=lambda: model.fake) as running:
        approved(running)
        tick = running.settle()
        assert any("what was done here counts for nothing" in said for said in running.said)
        assert (
            vault.rows("execution.failed") == vault.rows("step.completed") == vault.reports() == []
        )
        assert "waiting for another daemon" in tick.waiting[0]
        time.pass_time(31)
        while not vault.rows("execution.completed"):
            time.pass_time(running.settle().again_in_s)
    assert len(git(vault.root, "branch", "--list", "feat/*").splitlines()) == 1
    assert len(vault.rows("git.committed")) == 1


def test_reads_that_a_failing_disk_ends_are_not_told_to_the_model(tmp_path: Path) -> None:
    """Also not where several are made at once."""
    vault, time, fails = bare_vault(tmp_path), Time(), [True]
    model = Model({**PLAN, "steps": [{"title": "Say hello", "tools": ["read_file", "write_file"]}]})
    reads = [("read_file", {"path": "a.md"}), ("read_file", {"path": "b.md"})]
    model.second = lambda ask: says(  # type: ignore[method-assign]
        *(
            reads
            if turns_taken(ask) == 1
            else [
                ("complete_step", {"step": 1, "summary": "Done"}),
                ("finish", {"summary": "Done."}),
            ]
        )
    )
    for name in ("a.md", "b.md"):
        (vault.root / name).write_text("A note.\n")

    def dispatch(box: Toolbox, name: str, given: dict[str, Any]) -> Outcome:
        if name == "read_file" and fails[0]:
            return Outcome(
                '{"error": "Input/output error", "error_type": "io_error"}',
                ok=False,
                error_type="io_error",
            )
        return real(box, name, given)

    real = Toolbox.dispatch
    with (
        looping(vault, time=time, model=lambda: model.fake) as running,
        patch.object(Toolbox, "dispatch", dispatch),
    ):
        approved(running)
        tick = running.settle()
        assert "waiting for the machine: Input/output error" in tick.waiting[0]
        fails[0] = False
        time.pass_time(5)
        running.settle()
    assert len(vault.rows("execution.completed")) == 1
    assert [text for ask in model.fake.asks for text in results(ask) if "io_error" in text] == []


def test_a_planning_that_goes_on_after_a_wait_is_based_on_what_it_had_read(tmp_path: Path) -> None:
    vault, time = bare_vault(tmp_path), Time()
    (vault.root / "a.txt").write_text("old\n")
    asked: list[str] = []

    def answer(ask: Ask) -> Reply:
        if turns_taken(ask) == 0:
            return says(("read_file", {"path": "a.txt"}))
        if not asked:
            asked.append("once")
            raise ModelError(ModelErrorKind.TRANSIENT, "cannot connect")
        return says(("submit_plan", PLAN))

    fake = Fake(answer)
    with looping(
        vault, time=time, model=lambda: fake, retry=RetryPolicy(first_wait_s=20)
    ) as running:
        vault.drop("Say hello.\n")
        running.settle()
        base = git(vault.root, "rev-parse", "HEAD")
        (vault.root / "a.txt").write_text("new\n")
        git(vault.root, "commit", "-q", "-a", "-m", "Meanwhile")
        time.pass_time(1_000)
        running.settle()
        assert f"base_commit: {base}" in vault.plan().read_text()
        vault.approve()
        running.settle()
    assert "a.txt" in vault.plan().read_text(), "it awaits review again, and says what changed"
    assert "execution.completed" not in vault.actions()
