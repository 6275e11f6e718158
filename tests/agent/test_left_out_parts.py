"""Leave out random steps and scope lines of generated plans.

The resulting tree must equal the one that git makes from the patches of the kept steps.
"""

from __future__ import annotations

import difflib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gitkit import git, settle_home, write
from placet.agent import steps as executor
from placet.agent.record import Record
from placet.agent.steps import StepsUnderway
from placet.case.case import Case
from placet.case.life_cycle import State
from placet.disk.confine import Root
from placet.host.clock import Clock
from placet.host.config import Config
from placet.note.checkboxes import BOX_WORDS
from placet.plan.left_out import contradictions
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import LiteralCall, Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope
from placet.sandbox.box import Level
from placet.sandbox.run import Box
from placet.tools.base import Workplace
from placet.tools.control import CompleteStep

TICKED = f"- [x] {BOX_WORDS}"
BASE = {
    "shared.txt": "".join(f"line {n}\n" for n in range(100)),
    **{f"old/{n}.txt": f"old {n}\nand more\n" for n in range(8)},
}


@dataclass
class Made:
    """A generated plan, and what its steps do by the generator's own account."""

    steps: list[Step] = field(default_factory=list)
    scope: list[str] = field(default_factory=list)
    writes: list[set[str]] = field(default_factory=list)  # of each step
    needs: list[set[int]] = field(default_factory=list)  # the steps whose new file it edits
    names: list[str] = field(default_factory=list)  # the path that an agent's step names
    patches: list[str] = field(default_factory=list)

    def uses(self, number: int) -> set[str]:
        return self.writes[number - 1] | {self.names[number - 1]}

    def plan(self) -> Plan:
        return Plan("A plan", "", tuple(self.steps), Scope(tuple(self.scope)))


def made(dice: random.Random) -> Made:
    out, files = Made(), dict(BASE)
    new: dict[str, int] = {}  # the step that writes a new file
    wrote: dict[str, int] = {}  # the step that writes a line by an edit
    for n in range(1, dice.randint(1, 6) + 1):
        actions, before, needs, name = [], dict(files), set(), ""
        for _ in range(dice.randint(1, 3)):
            kind = dice.choice(["new", "new", "replace", "region", "follow", "agent"])
            if kind == "agent":
                if not actions and dice.random() < 0.5:
                    name = f"by-hand/{n}.txt"
                    break
            elif kind == "follow" and new:
                path = dice.choice(sorted(new))
                old = dice.choice([line for line in files[path].splitlines() if line])
                line = f"{old}, edited in {n}.{len(actions)}"
                actions.append(edit(path, old, line, files))
                needs |= {new[path], wrote.get(old, n)} - {n}
                wrote[line] = n
            elif kind == "region":
                place = 10 * n + len(actions) * 2
                line = next(t for t in files["shared.txt"].splitlines() if t.endswith(f" {place}"))
                actions.append(edit("shared.txt", f"{line}\n", f"step {n}\nsays {place}\n", files))
            else:
                is_new = kind == "new"
                path = f"made/{n}/{len(actions)}.txt" if is_new else f"old/{n}.txt"
                files[path] = f"step {n}\n\n\n\n\nwrites {path} {dice.random()}\n"
                actions.append(LiteralCall("write_file", {"path": path, "content": files[path]}))
                if is_new:
                    new[path] = n
        step = Step(f"Step {n}", "Text.", (), (), tuple(actions))
        if not actions:
            name = name or f"by-hand/{n}.txt"
            step = Step(f"Step {n}", f"Write `{name}`.", ("write_file",), ("it is there",))
        out.steps.append(step)
        out.names.append(name if not actions else "")
        out.writes.append({a.params["path"] for a in actions})
        out.needs.append(needs)
        out.patches.append(patch(before, files))
    paths = sorted(set().union(*out.writes) | {name for name in out.names if name})
    out.scope = ["old/*.txt", *(p for p in paths if not p.startswith("old/"))]
    dice.shuffle(out.scope)
    return out


def edit(path: str, old: str, new: str, files: dict[str, str]) -> LiteralCall:
    files[path] = files[path].replace(old, new, 1)
    return LiteralCall("edit_file", {"path": path, "old": old, "new": new})


def patch(before: dict[str, str], after: dict[str, str]) -> str:
    """What a step does to the files, as git takes it; `@/` stands for the plan's folder."""
    out = []
    for path, text in after.items():
        if before.get(path) == text:
            continue
        is_new = path not in before
        old = [] if is_new else before[path].splitlines(keepends=True)
        out.append(f"diff --git a/@/{path} b/@/{path}\n")
        out += ["new file mode 100644\n"] if is_new else []
        out += difflib.unified_diff(
            old,
            text.splitlines(keepends=True),
            "/dev/null" if is_new else f"a/@/{path}",
            f"b/@/{path}",
            n=1,
        )
    return "".join(out)


def unticked(text: str, n: int, dice: random.Random) -> str:
    """Leave a step out in one of the ways in which people do it."""
    head = f"### {n}. Step {n}\n"
    unticked = TICKED.replace("x", " ")
    box = dice.choice([unticked, unticked.upper(), f"  {unticked} "])
    return text.replace(f"{head}\n{TICKED}", f"{head}\n{box}", 1)


def without_entry(text: str, entry: str) -> str:
    """Delete an entry of the scope."""
    several = f'    "{entry}",\n'
    line = several if several in text else f'"{entry}"'
    assert text.count(line) == 1
    return text.replace(line, "")


class NoJournal:
    """A journal that keeps nothing."""

    def commit(self, batch: object) -> None:
        pass


class Literal(StepsUnderway):
    """The executor of literal steps; what it would commit stays in the tree."""

    __slots__ = ()

    def _commit(self, number: int, summary: str) -> None:
        return None


def run_mission(plan: Plan, top: Path) -> list[int]:
    """Have a plan's steps done in a folder, the agent's as complete at once; return their order."""
    with Root(top, writable=True) as root:
        place = Workplace(root, None, plan.scope, Box(top), Level.NONE, None, lambda: False)
        case = Case("t", "r", State.RUNNING)
        limits = SimpleNamespace(
            raise_if_stopping=lambda: None,
            record_call=lambda use, outcome: None,
            history=SimpleNamespace(steps=[]),
        )
        work: Any = SimpleNamespace(
            mission=SimpleNamespace(plan=plan),
            record=Record(NoJournal(), case, 1, Clock()),  # type: ignore[arg-type]
            place=place,
            limits=limits,
            ports=SimpleNamespace(config=Config()),
            touch=lambda use: None,
        )
        steps = Literal(work, has_written=True)  # what literal steps write has no commit here
        order = [one["step"] for one in steps.leading_literals()]
        while (number := steps.open_step()) is not None:
            told = steps.steer(CompleteStep(step=number, summary=""))
            steps.done[number] = None  # type: ignore[assignment]
            steps._note_literals(told.get("carried_out", []))
            order += [number, *(one["step"] for one in told.get("carried_out", []))]
    return order


def one(number: int, dice: random.Random, got: Path, counts: Counter[str]) -> str:
    """Generate a plan, leave parts of it out and carry it out; return the patch that it is."""
    given = made(dice)
    text = render_plan(given.plan())
    steps = range(1, len(given.steps) + 1)
    out = {n for n in steps if dice.random() < 0.35}
    for n in out:
        text = unticked(text, n, dice)
    left = list(given.scope)
    unused = [p for p in given.scope if not any(p in given.uses(n) for n in steps if n not in out)]
    chosen = dice.choice([unused, unused, given.scope])
    for entry in dice.sample(chosen, min(len(chosen), dice.choice([0, 0, 1, 2]))):
        text = without_entry(text, entry)
        left.remove(entry)
    kept = [n for n in steps if n not in out]
    rest = Scope(tuple(left))
    refused = not kept or any(not rest.allows_write(p) for n in kept for p in given.writes[n - 1])
    try:
        plan = parse_plan(text)
        problems = contradictions(plan)
    except PlanProblems as found:
        problems = [p.message for p in found.problems]
    assert bool(problems) == refused, (text, problems, kept)
    counts["plans"] += 1
    counts["refused"] += refused
    # an edit of a file that a left-out step makes fails in the mission
    if refused or any(given.needs[n - 1] & out for n in kept):
        return ""
    assert plan.left_out == tuple(sorted(out))
    assert plan.scope.write == tuple(left)
    counts["steps left out"] += len(out)
    counts["lines of scopes left out"] += len(given.scope) - len(left)
    top = got / str(number)
    write(top, BASE)
    assert run_mission(plan, top) == kept
    own = set().union(*(given.writes[n - 1] for n in out), set()) - set().union(
        *(given.writes[n - 1] for n in kept)
    )
    counts["paths of dropped steps"] += len(own)
    counts["of them touched"] += sum(
        (top / path).exists() if path not in BASE else (top / path).read_text() != BASE[path]
        for path in own
    )
    return "".join(given.patches[n - 1] for n in kept).replace("@/", f"{number}/")


def batches(count: int) -> Iterator[range]:
    return (range(n, min(n + 200, count)) for n in range(0, count, 200))


@pytest.mark.parametrize(
    "count", [pytest.param(200), pytest.param(10_000, marks=pytest.mark.sweep)]
)
def test_tree_matches_git_for_kept_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for name, value in settle_home(tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(executor, "keep", lambda work, key: None)  # there is no commit to make
    counts: Counter[str] = Counter()
    for numbers in batches(count):
        folder = tmp_path / str(numbers.start)
        got, want = folder / "got", folder / "want"
        patches = {n: one(n, random.Random(n), got, counts) for n in numbers}
        for top in (got, want):
            top.mkdir(exist_ok=True)
            git(top, "init", "-q")
        for n in (n for n in numbers if (got / str(n)).exists()):
            write(want / str(n), BASE)
        git(want, "apply", "--whitespace=nowarn", "-", stdin="".join(patches.values()).encode())
        for top in (got, want):
            git(top, "add", "-A")
        assert git(got, "write-tree") == git(want, "write-tree")
    print(dict(counts))
    assert counts["of them touched"] == 0
    assert counts["refused"] < counts["plans"] * 0.7
    assert counts["paths of dropped steps"] > counts["plans"] / 5
