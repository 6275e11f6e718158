"""Test that the steps of an approved plan run in order, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gitkit import make_repo
from looping import Fake, bare_vault, looping, says, turns_taken
from placet.chat.messages import Ask, Purpose, Reply
from vaultkit import PLAN, TestVault, make_vault

WRITE = ("write_file", {"path": "hello.txt", "content": "hello\n"})
WRITE_A = {"tool": "write_file", "params": {"path": "a.txt", "content": "a\n"}}
FINISH = ("finish", {"summary": "Done."})
LICENCE = {
    "title": "Licence",
    "tools": ["write_file"],
    "actions": [{"tool": "write_file", "params": {"path": "LICENCE", "content": "MIT\n"}}],
}
COPYING = {
    "title": "Copying",
    "tools": ["write_file"],
    "actions": [{"tool": "write_file", "params": {"path": "COPYING", "content": "See LICENCE.\n"}}],
}


def own(title: str) -> dict[str, Any]:
    return {"title": title, "tools": ["write_file", "read_file", "list_directory"]}


def done(step: int) -> tuple[str, dict[str, Any]]:
    return "complete_step", {"step": step, "summary": f"Step {step}"}


def carried_out(
    folder: Path, steps: list[dict[str, Any]], rounds: list[list[tuple[str, dict[str, Any]]]]
) -> TestVault:
    vault = make_vault(folder)
    plan = {**PLAN, "steps": steps, "scope": {"write": ["*.txt", "LICENCE", "COPYING"]}}
    vault.plays(plan, *[{"calls": calls} for calls in rounds])
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    return vault


def test_literal_step_deletes_file(tmp_path: Path) -> None:
    action = {"tool": "delete_file", "params": {"path": "a.txt"}}
    steps = [{"title": "Away", "tools": ["delete_file"], "actions": [action]}]
    made = {"title": "a", "tools": ["write_file"], "actions": [WRITE_A]}
    vault = carried_out(tmp_path, [made, *steps], [])
    assert completed(vault) == [1, 2]
    boxes = "".join(note.read_text() for note in vault.root.rglob("*.md"))
    assert "It may write and delete `*.txt`" in boxes


def test_unwritten_last_step_is_sent_back_once(tmp_path: Path) -> None:
    vault = carried_out(tmp_path, [own("Write")], [[done(1)], [WRITE, done(1), FINISH]])
    assert completed(vault) == [1]
    (refused,) = [
        row["metadata"]
        for row in vault.rows("tool.called")
        if row["metadata"]["tool"] == "complete_step" and not row["metadata"]["ok"]
    ]
    assert refused["error_type"] == "step_open"
    assert "execution.completed" in vault.actions()


def test_completed_step_names_the_next(tmp_path: Path) -> None:
    last = ("complete_step", {"summary": "Without a number"})
    rounds = [[done(3)], [WRITE], [done(1)], [last], [FINISH]]
    steps = [own("Write"), LICENCE, own("Look")]
    told: list[str] = []

    def model(ask: Ask) -> Reply:
        told.append(str(ask.turns[-1].blocks))
        made = turns_taken(ask)
        plan = {**PLAN, "steps": steps, "scope": {"write": ["hello.txt", "LICENCE"]}}
        is_plan = ask.purpose is Purpose.PLAN
        return says(("submit_plan", plan)) if is_plan else says(*rounds[made])

    vault = bare_vault(tmp_path)
    vault.drop("Say hello.\n")
    with looping(vault, model=lambda: Fake(model)) as running:
        running.settle()
        vault.approve()
        running.settle()
    assert completed(vault) == [1, 2, 3]
    first = 'call `complete_step` with {\\"step\\": 1, \\"summary\\": \\"<what was done>\\"}.'
    assert first in told[2].replace("\\\\", "\\"), told[2]
    assert '"next": "step 3: Look"' in told[4]
    assert '"next": "call `finish`"' in told[5]


def test_scope_after_failed_read_is_sent_back_once(tmp_path: Path) -> None:
    asks = ("request_scope", {"why": "To read it.", "write": ["a.md"]})
    rounds = [[("read_file", {"path": "a.md"})], [asks], [WRITE, done(1), FINISH]]
    vault = carried_out(tmp_path, [own("Write")], rounds)
    assert errors(vault) == ["not_found", "already_allowed"]
    assert "execution.completed" in vault.actions()
    again = carried_out(tmp_path / "again", [own("Write")], [*rounds[:2], [asks]])
    assert "plan.amendment_requested" in again.actions(), again.actions()


def completed(vault: TestVault) -> list[int]:
    return [row["metadata"]["step"] for row in vault.rows("step.completed")]


def errors(vault: TestVault) -> list[str]:
    return [
        row["metadata"]["error_type"]
        for row in vault.rows("tool.called")
        if not row["metadata"]["ok"]
    ]


@pytest.mark.parametrize(
    ("steps", "rounds", "order", "refused"),
    [
        # `finish` before a step: nothing is passed over, the literal step runs when its turn has
        # come
        (
            [own("Write it"), LICENCE],
            [[WRITE], [FINISH], [done(1)], [FINISH]],
            [1, 2],
            ["step_open"],
        ),
        (
            [own("Write it"), own("Look at it")],
            [[WRITE, done(1)], [FINISH], [done(2)], [FINISH]],
            [1, 2],
            ["step_open"],
        ),
        ([own("Write it")], [[WRITE, FINISH], [done(1), FINISH]], [1], ["step_open"]),
        # `complete_step` before its turn
        (
            [own("Write it"), own("Look"), LICENCE, own("Last")],
            [[WRITE, done(2)], [done(1)], [done(4)], [done(2)], [done(4), FINISH]],
            [1, 2, 3, 4],
            ["step_open", "step_open"],
        ),
        # literal steps at both ends and beside each other
        (
            [LICENCE, own("Write it"), COPYING, own("Look")],
            [[FINISH, WRITE, done(4)], [done(2), done(4), FINISH]],
            [1, 2, 3, 4],
            ["step_open", "step_open"],
        ),
    ],
)
@pytest.mark.thinned(3)
def test_steps_run_in_order_without_gaps(
    tmp_path: Path,
    steps: list[dict[str, Any]],
    rounds: list[Any],
    order: list[int],
    refused: list[str],
) -> None:
    vault = carried_out(tmp_path, steps, rounds)
    assert len(vault.rows("execution.completed")) == 1, vault.actions()
    assert completed(vault) == order
    assert errors(vault) == refused
    literals = [step["actions"][0]["params"]["path"] for step in steps if "actions" in step]
    assert set(literals) <= set(vault.rows("execution.completed")[0]["metadata"]["files_changed"])
    assert vault.click("replay", "say-hello").returncode == 0


def test_silent_turn_does_not_end_open_mission(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    plan = {**PLAN, "steps": [own("Write it"), LICENCE], "scope": {"write": ["*.txt", "LICENCE"]}}
    vault.plays(plan, [WRITE], {"text": "All done."}, [done(1)], {"text": "All done."})
    vault.drop("Say hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    assert completed(vault) == [1, 2]
    assert vault.rows("execution.completed")[0]["metadata"]["files_changed"] == [
        "LICENCE",
        "hello.txt",
    ]


# --- what policy or a guard said no to, and what that does to work that is done

READ, LIST = ("read_file", {"path": "hello.txt"}), ("list_directory", {"path": "."})


@pytest.mark.parametrize(
    ("rounds", "end"),
    [
        # the last one was `repeated_call`
        ([[WRITE, done(1)], [READ], [LIST], [READ], [LIST, READ], [FINISH]], "finished"),
        (
            [[WRITE, done(1)], [("write_file", {"path": "other.md", "content": "x"})], [FINISH]],
            "finished",
        ),
        ([[WRITE, done(1)], [("read_file", {"path": "../../etc/passwd"})], [FINISH]], "finished"),
        # not read by then
        (
            [[WRITE, ("write_file", {"path": "other.md", "content": "x"}), done(1)], [FINISH]],
            "unresolved_error",
        ),
        # failed, not refused
        ([[WRITE, done(1)], [("read_file", {"path": "none.txt"})], [FINISH]], "unresolved_error"),
    ],
)
@pytest.mark.thinned(3)
def test_refusal_after_last_step_keeps_work(tmp_path: Path, rounds: list[Any], end: str) -> None:
    vault = carried_out(tmp_path, [own("Write it")], rounds)
    ended = [
        row["metadata"]["reason"]
        for row in vault.rows()
        if row["action_type"] in ("execution.completed", "execution.failed")
    ]
    assert ended == [end]


@pytest.mark.parametrize(
    ("rounds", "patterns", "end"),
    [
        ([[LIST]] * 5, ["loop", "repetition", "loop"], "repetition"),
        (
            [[WRITE], [READ], [LIST], [READ], [LIST, READ], [READ]],
            ["repetition", "repetition"],
            "repetition",
        ),
        (
            [[WRITE]] + [[("read_file", {"path": f"{n}.md"})] for n in range(4)],
            ["repeated-tool-error"],
            "",
        ),
    ],
)
@pytest.mark.thinned(2)
def test_failure_is_detected_before_guard_acts(
    tmp_path: Path, rounds: list[Any], patterns: list[str], end: str
) -> None:
    vault = carried_out(tmp_path, [own("Write it")], rounds)
    found = vault.rows("failure.detected")
    assert [row["metadata"]["pattern"] for row in found] == patterns
    ended = vault.rows("execution.failed")[0]
    assert found[-1]["id"] < ended["id"]
    assert not end or ended["metadata"]["reason"] == end


def test_planning_limit_is_detected(tmp_path: Path) -> None:
    vault = make_vault(tmp_path)
    vault.script(("plan", [{"calls": [("read_file", {"path": f"{n}.md"})]} for n in range(9)]))
    vault.configure(
        (vault.root / "System/placet.toml").read_text() + "[limits]\nplanning_iterations = 2\n"
    )
    vault.drop("Say hello.\n")
    vault.here()
    assert [row["metadata"]["pattern"] for row in vault.rows("failure.detected")] == [
        "iteration_cap"
    ]


# --- what a person would call completed

CHECK = ("run_command", {"command": "python3", "args": ["check.py"]})
OTHER = ("run_command", {"command": "python3", "args": ["check.py", "further"]})
FIX = ("write_file", {"path": "tests/test_calc.py", "content": "pass\n"})
BREAK = ("write_file", {"path": "fine", "content": ""})
FAILED = "The last run of `python3 check.py` failed (exit code 1)"


def checked(folder: Path, *calls: tuple[str, dict[str, Any]], check: str = "") -> TestVault:
    """Return a vault with the ended mission of a plan whose "Done when" names a command."""
    vault = make_vault(folder)
    files = {
        "check.py": "import os, sys\nsys.exit(not os.path.exists('fine'))\n",
        "tests/test_calc.py": "assert 1\n",
    }
    repo = make_repo(folder / "repo", files)
    vault.configure(f'[commands]\nsandbox = "none"\n[portals.code]\npath = "{repo}"\n')
    step = {**own("Fix it"), "done_when": ["`python3 check.py` passes"]}
    step["tools"] = [*step["tools"], "run_command"]
    scope = {"write": ["fine", "tests/**"], "run": [check or "python3 check.py"]}
    vault.plays({**PLAN, "steps": [step], "scope": scope}, *([call] for call in calls))
    vault.drop("---\nportal: code\n---\nSay hello.\n")
    vault.here()
    vault.approve()
    vault.here()
    assert len(vault.rows("execution.completed")) == 1, vault.actions()
    return vault


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        ([FIX, CHECK, done(1), FINISH], f"{FAILED}."),
        (
            [CHECK, FIX, CHECK, done(1), FINISH],
            f"{FAILED}; it failed before the first change, too.",
        ),
        ([CHECK, FIX, done(1), FINISH], f"{FAILED}, before the first change."),
        # another command may have changed files
        ([OTHER, CHECK, FIX, CHECK, done(1), FINISH], f"{FAILED}."),
        ([FIX, done(1), FINISH], "`python3 check.py` never ran."),
    ],
)
def test_report_begins_with_failed_check(tmp_path: Path, calls: list[Any], first: str) -> None:
    vault = checked(tmp_path, *calls)
    report = vault.reports()[0].read_text()
    tests = "The branch changes tests: `tests/test_calc.py` +1 −1."  # noqa: RUF001 - a minus sign
    head = report.split("# Mission Report: ")[1].split("\n", 2)[2]
    assert head.startswith(f"> [!warning] {first}\n> - {tests}\n\nDone.")
    assert "- [ ] 1. Fix it" in report
    said = f"done, but not every check passed: {first.removesuffix('.')}: feat/"
    assert said in vault.click("status").stdout
    assert first in vault.click("plans").stdout
    assert (
        f"not every check passed.\n{first}\nThe report: " in vault.click("why", "say-hello").stdout
    )
    assert first in json.loads(vault.click("show", "say-hello", "--json").stdout)["doubts"]
    plan = (vault.root / "Inbox/Archive/say-hello_plan.md").read_text()
    assert "> [!warning|placet] This plan" in plan
    assert f"> {first}" in plan
    for words in (("watch", "say-hello"), ("merge", "say-hello")):
        refused = vault.click(*words, check=False)
        assert refused.returncode == 1
        assert first in refused.stderr
    assert "placet merge say-hello --yes" in refused.stderr
    assert vault.click("merge", "say-hello", "--yes").returncode == 0


def test_passed_check_leaves_no_doubt(tmp_path: Path) -> None:
    vault = checked(tmp_path, CHECK, BREAK, CHECK, done(1), FINISH)
    report = vault.reports()[0].read_text()
    assert "[!" not in report
    assert "- [x] 1. Fix it" in report
    assert vault.click("watch", "say-hello").returncode == 0
    assert vault.click("merge", "say-hello").returncode == 0


def test_agent_is_told_of_unproven_step(tmp_path: Path) -> None:
    vault = checked(tmp_path, FIX, CHECK, done(1), BREAK, CHECK, FINISH)
    (row,) = [
        row for row in vault.rows("tool.called") if row["metadata"]["tool"] == "complete_step"
    ]
    assert row["metadata"]["ok"]
    assert "[!warning]" not in vault.reports()[0].read_text()


def test_missing_program_is_told(tmp_path: Path) -> None:
    gone = ("run_command", {"command": ".venv/bin/python", "args": ["check.py"]})
    vault = checked(tmp_path, FIX, gone, done(1), FINISH, check=".venv/bin/python check.py")
    report = vault.reports()[0].read_text()
    assert "[!warning] The last run of `.venv/bin/python check.py` did not start" in report
    assert "| `.venv/bin/python check.py` | 127 |" in report
