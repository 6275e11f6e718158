"""Test which sentences a report says first about checks that failed, and tests that changed."""

from __future__ import annotations

import pytest

from placet.case.checks import changed_tests, check_of, doubts, doubts_about, named_in
from placet.case.mission_result import ChangedFile, CommandRun
from placet.plan.plan import Plan, Step
from placet.plan.scope import Scope

SUITE = "python -m pytest -q"


def plan(*run: str, done_when: str = "", shell: bool = False) -> Plan:
    scope = Scope(run=tuple(tuple(entry.split()) for entry in run), shell=shell)
    return Plan("Fix it", "", (Step("Do it", done_when=(done_when,)),), scope)


def ran(code: int | None, *, check: str = SUITE, early: bool = False) -> CommandRun:
    return CommandRun(check, code, check, early)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([ran(0)], ""),
        ([ran(1), ran(0)], ""),
        ([ran(0), ran(1)], f"The last run of `{SUITE}` failed (exit code 1)."),
        ([ran(None)], f"The last run of `{SUITE}` failed."),
        (
            [ran(2, early=True), ran(1)],
            f"The last run of `{SUITE}` failed (exit code 1); it failed before the first change, "
            "too.",
        ),
        ([ran(0, early=True), ran(1)], f"The last run of `{SUITE}` failed (exit code 1)."),
        (
            [ran(1, early=True)],
            f"The last run of `{SUITE}` failed (exit code 1), before the first change.",
        ),
        (
            [ran(127)],
            f"The last run of `{SUITE}` did not start (exit code 127, no such program).",
        ),
        ([], f"`{SUITE}` never ran."),
        ([CommandRun("grep x", 1)], f"`{SUITE}` never ran."),
    ],
)
def test_last_run_of_check_decides(runs: list[CommandRun], said: str) -> None:
    assert doubts(plan(SUITE), runs) == ((said,) if said else ())


def test_entry_of_longer_commands_is_no_check() -> None:
    runs = [CommandRun("grep -rn x src", 1), CommandRun("git log --oneline", 0)]
    assert doubts(plan("grep", "git log"), runs) == ()


@pytest.mark.parametrize(
    ("argv", "check"),
    [
        ("python -m pytest", "python -m pytest"),
        ("python -m pytest -q --tb=short", "python -m pytest"),
        ("python -m pytest -q tests/test_a.py", ""),
        ("python -m pytest --version", ""),
        ("python -m pytest -k median", ""),
        ("ruff check .", "ruff check ."),
        ("grep -r x", ""),
    ],
)
def test_narrower_run_is_another_command(argv: str, check: str) -> None:
    assert check_of(plan("python -m pytest", "ruff check .", "grep"), argv.split()) == check


@pytest.mark.parametrize(
    ("done_when", "named"),
    [
        ("`python -m pytest tests/test_a.py` passes", ("python -m pytest tests/test_a.py",)),
        ("python -m pytest passes", ("python -m pytest",)),
        ("``ruff check .`` is clean, and `mean([])` is 0", ("ruff check .",)),
        ("make sure that it works", ()),
        ("the function `median` is there", ()),
        ("`python -m pytest && ruff check .` pass", ()),
    ],
)
def test_done_when_names_allowed_commands(done_when: str, named: tuple[str, ...]) -> None:
    given = plan("python -m pytest", "ruff", "make", done_when=done_when)
    assert named_in(given.steps[0], given.scope) == named


def test_longer_word_does_not_begin_with_entry() -> None:
    given, runs = plan("go test"), [CommandRun("go test-all", 0)]
    assert doubts(given, runs) == ("`go test` never ran.",)
    assert doubts(given, [CommandRun("go test ./a", 0)]) == ()


def test_named_check_must_run_as_named() -> None:
    given = plan("python -m pytest", done_when="`python -m pytest tests/test_a.py` passes")
    narrow = "python -m pytest tests/test_a.py"
    assert check_of(given, narrow.split()) == narrow
    runs = [CommandRun("python -m pytest tests/test_b.py", 0)]
    assert doubts_about(given.steps[0], given, runs) == (f"`{narrow}` never ran.",)
    assert doubts(given, runs) == (f"`{narrow}` never ran.",)
    assert doubts(given, [ran(0, check=narrow)]) == ()


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_calc.py",
        "test_calc.py",
        "src/calc_test.go",
        "web/cart.test.ts",
        "web/__tests__/cart.tsx",
        "spec/cart_spec.rb",
        "src/test/java/CartTest.java",
        "tests/conftest.py",
        "app/tests.py",
        "src/tests.rs",
        "web/test.js",
    ],
)
def test_changed_and_deleted_tests_are_named(path: str) -> None:
    changed = [
        ChangedFile(path, "M", 3, 3),
        ChangedFile("tests/new_test.py", "A", 9, 0),
        ChangedFile("src/latest.py", "M", 1, 1),
        ChangedFile("src/contest/a.py", "M", 1, 1),
        ChangedFile("src/protests.py", "M", 1, 1),
    ]
    assert changed_tests(changed) == f"changes tests: `{path}` +3 −3"  # noqa: RUF001 - a minus sign
    assert changed_tests([ChangedFile(path, "D", 0, 7)]) == f"changes tests: `{path}` deleted"
