"""The house keeps its rooms: few, with arrows that point down, short functions, and one meaning to
a class name.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "daemon" / "placet"
# Each number may only go down.
MAX_ROOMS = 13
MAX_ARROWS = 40
MAX_METHODS = 20
MAX_FUNCTION_LINES = 60
MAX_DOUBLE_NAMES = 0
MODULE_LINES = 300
MAX_LONG_MODULES = 6
RELATIVE = re.compile(r"(What|Why|Which|Where|Who|Whose|How)\b")
MAX_RELATIVE = 0


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Give each module's name below `placet`, and its tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = (
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            .removesuffix("__init__")
            .removesuffix(".")
        )
        yield name, ast.parse(path.read_text())


def rooms() -> set[str]:
    return {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix in ("", ".py") and not path.name.startswith("__")
    }


def test_there_are_few_rooms() -> None:
    assert len(rooms()) <= MAX_ROOMS, sorted(rooms())


def test_few_arrows_lead_from_room_to_room() -> None:
    arrows: dict[tuple[str, str], str] = {}
    for name, tree in trees():
        room = name.split(".")[0]
        for node in ast.walk(tree):
            asked = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            asked += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in asked:
                parts = module.split(".")
                if parts[0] == "placet" and len(parts) > 1 and room in rooms() and parts[1] != room:
                    arrows.setdefault((room, parts[1]), name)
    assert len(arrows) <= MAX_ARROWS, sorted(arrows)


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.removeprefix("_")].append(name)
    double = {name: where for name, where in places.items() if len(where) > 1}
    assert len(double) <= MAX_DOUBLE_NAMES, double


def test_no_class_and_no_function_is_too_long_to_be_read_at_once() -> None:
    methods: Counter[str] = Counter()
    long = {}
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods[f"{name}.{node.name}"] = sum(
                    isinstance(n, ast.FunctionDef) for n in node.body
                )
            if (
                isinstance(node, ast.FunctionDef)
                and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
            ):
                long[f"{name}.{node.name}"] = lines
    assert not long
    assert methods.most_common(1)[0][1] <= MAX_METHODS, methods.most_common(5)


def test_few_modules_are_too_long_to_be_read_at_once() -> None:
    lines = {path: path.read_text().count("\n") for path in PACKAGE.rglob("*.py")}
    long = {path.name: count for path, count in lines.items() if count > MODULE_LINES}
    assert len(long) <= MAX_LONG_MODULES, long


def test_docstrings_begin_with_their_subject() -> None:
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
                and (doc := ast.get_docstring(node))
                and RELATIVE.match(doc)
            ):
                found.append(f"{name}.{getattr(node, 'name', '')}: {doc.splitlines()[0]}")
    assert len(found) <= MAX_RELATIVE, found


def test_every_module_is_named_in_the_map_of_its_room() -> None:
    """Else a newcomer, who opens the map, does not find it."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    rooms, room = defaultdict[str, str](str), ""
    for line in text.split("```\ncli/", 1)[1].split("```", 1)[0].splitlines():
        opens = re.match(r"( {0,2})([a-z]+/?) {2,}", line)
        if not rooms:
            room = "cli/"
        elif opens is not None:
            room = f"core/{opens[2]}" if opens[1] else opens[2]
        rooms[room] += f" {line}"
    modules = {
        room: set((PACKAGE / room).glob("**/*.py" if room in ("cli/", "loop/") else "*.py"))
        for room in rooms
    }
    assert set(PACKAGE.glob("*/**/*.py")) == set().union(*modules.values())
    assert {path.stem for path in PACKAGE.glob("[!_]*.py")} <= set(rooms)
    assert [
        f"{path.relative_to(PACKAGE)}"
        for room, words in rooms.items()
        for path in modules[room]
        if path.stem != "__init__"
        and not re.search(rf"\b{path.stem}\b", words)
        and "\nTOOL = " not in path.read_text()  # a tool is its file
    ] == []
