"""Hold the measures of the code that ruff and import-linter cannot express."""

from __future__ import annotations

import ast
from pathlib import Path

DAEMON = Path(__file__).parents[2] / "daemon"
TESTS = Path(__file__).parents[1]
PACKAGES = ("placet", "placet_board", "placet_team")
MAX_FUNCTION_LINES = 60


def test_functions_have_at_most_sixty_lines() -> None:
    long = {}
    for path in sorted(p for name in PACKAGES for p in (DAEMON / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
            ):
                long[f"{path.relative_to(DAEMON)}:{node.name}"] = lines
    assert not long


IN_THE_LOOP = ("placet/loop", "placet/host", "placet/git/repository.py", "placet/git/fate.py")
"""What the loop's thread calls. A worker's OSError makes its own case wait."""
RAISES = {"exists", "is_file", "is_dir", "is_symlink", "is_mount", "samefile"}


def test_questions_in_the_loop_never_raise() -> None:
    """Methods of Path raise EACCES, EIO and ENOTCONN in Python 3.11 to 3.13; os.path does not."""
    found = []
    for place in IN_THE_LOOP:
        top = DAEMON / place
        for path in [top] if top.suffix else sorted(top.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    asked, of = node.func.attr, ast.unparse(node.func.value)
                    if asked in RAISES and of != "os.path":
                        found.append(f"{path.relative_to(DAEMON)}:{node.lineno} {asked}")
    assert not found


OF_WORK = {"PLANNING", "REVISING", "RUNNING", "WORKING", "DRAFTING"}
MAY_COMPARE_STATE = {
    "placet/case/case.py": "it defines `acting` and `is_working`",
    "placet_board/pages.py": "says what missions do just now; one that asks does nothing",
}


def _names(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} | {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name)
    }


def _is_state(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "state"
    return isinstance(node, ast.Attribute) and node.attr == "state"


def test_work_is_known_by_acting_state() -> None:
    """A case that asks is not in the state of its work: `Case.acting` and `is_working` count it."""
    direct = set()
    for path in sorted(p for name in PACKAGES for p in (DAEMON / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                if any(map(_is_state, sides)) and any(_names(side) & OF_WORK for side in sides):
                    direct.add((str(path.relative_to(DAEMON)), node.lineno))
    assert {name for name, _ in direct} <= MAY_COMPARE_STATE.keys(), direct


ROOMS = {"placet_board": "board", "placet_team": "team"}
BIG = 150


def test_every_big_module_has_a_test_file() -> None:
    """In its room's folder, under its name; in `tests/property` for a module of no room."""
    without = []
    for package in PACKAGES:
        for path in sorted((DAEMON / package).rglob("*.py")):
            size = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(path.read_text())))
            inside = path.relative_to(DAEMON / package).parts
            room = ROOMS.get(package) or (inside[0] if len(inside) > 1 else "property")
            if size >= BIG and not (TESTS / room / f"test_{path.stem}.py").exists():
                without.append(f"{path.relative_to(DAEMON)}: {size} statements")
    assert not without


def test_property_tests_use_hypothesis() -> None:
    found = sorted((TESTS / "property").glob("test_*.py"))
    assert not [path.name for path in found if "from hypothesis import" not in path.read_text()]
