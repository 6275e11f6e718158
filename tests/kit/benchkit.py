"""Make dispatchers for tests: a sandboxed worktree, or files in memory."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gitkit import make_repo, write
from placet.agent.record import CALL, Record
from placet.agent.tool_calls import call_on_record
from placet.chat.messages import ToolUse
from placet.disk.confine import Root
from placet.disk.path_text import ALWAYS, Denied
from placet.host.clock import Clock, boottime_s
from placet.host.lock import boot_id
from placet.journal.writer import Journal
from placet.plan.scope import Scope
from placet.sandbox.box import Box, BoxLimits, Level, Ran
from placet.sandbox.run import run
from placet.testing import InMemoryToolDispatcher
from placet.tools.base import Outcome, Toolbox, Workplace
from placet.tools.control import SubmitPlan
from placet.tools.registry import TOOLS
from placet.tools.text import known_secrets
from vaultkit import PLAN, TestVault, make_vault

EVERYTHING = Scope(write=("**",))


def taken_down(args: Any) -> dict[str, Any]:
    """The other side of the control tools."""
    return (
        {"accepted": True} if isinstance(args, SubmitPlan) else {"step": getattr(args, "step", 0)}
    )


@contextmanager
def real(
    worktree: Path,
    *,
    scope: Scope = EVERYTHING,
    denied: Denied = ALWAYS,
    level: Level = Level.NONE,
    unboxed: bool = False,
    knowledge: Path | None = None,
    secrets: Sequence[str] = (),
    run_with: Callable[..., Ran] = run,
    read_only: Sequence[Path] = (),
    limits: BoxLimits | None = None,
    **more: Any,
) -> Iterator[Toolbox]:
    """Every tool on a folder, through the real walls; `more` is of the box."""
    with ExitStack() as stack:
        notes = None if knowledge is None else stack.enter_context(Root(knowledge, writable=False))
        box = Box(
            worktree,
            read_only=tuple(read_only),
            network=scope.network,
            hosts=scope.hosts,
            limits=limits or BoxLimits(timeout_s=30),
            **more,
        )
        root = stack.enter_context(
            Root(worktree, writable=True, denied=denied, shown_at=box.folder)
        )
        found = (
            *secrets,
            *known_secrets(root),
            *(known_secrets(notes) if notes is not None else ()),
        )
        place = Workplace(
            root, notes, scope, box, level, taken_down, lambda: False, unboxed, found, run_with
        )
        yield Toolbox({tool.name: tool for tool in TOOLS}, place)


@dataclass(frozen=True)
class Bench:
    """A dispatcher of either kind, with what is needed to look behind it."""

    tools: Toolbox | InMemoryToolDispatcher
    files: Callable[[], dict[str, bytes]]

    def call(self, name: str, **given: Any) -> Any:
        """Return a call's result: the JSON of what is JSON, else the text.

        It must have gone well.
        """
        outcome = self.tools.dispatch(name, given)
        assert outcome.ok, outcome
        return parsed(outcome)

    def fails(self, name: str, **given: Any) -> dict[str, Any]:
        """Return the structured error of a call that must fail."""
        outcome = self.tools.dispatch(name, given)
        assert not outcome.ok, outcome
        error = json.loads(outcome.content)
        assert isinstance(error["error"], str)
        assert error["error_type"] == outcome.error_type
        return error


def parsed(outcome: Outcome) -> Any:
    try:
        return json.loads(outcome.content)
    except json.JSONDecodeError:
        return outcome.content


@contextmanager
def bench(
    kind: str,
    where: Path,
    files: Mapping[str, str | bytes],
    *,
    scope: Scope = EVERYTHING,
    knowledge: Mapping[str, str | bytes] | None = None,
    secrets: Sequence[str] = (),
    commands: Mapping[str, tuple[int, str, str]] | None = None,
) -> Iterator[Bench]:
    """Make a bench of one kind with these files.

    `commands` are answered as given, in the real one too.
    """
    answers = InMemoryToolDispatcher(commands=commands or {})
    if kind == "memory":
        made = InMemoryToolDispatcher(
            files, scope=scope, knowledge=knowledge, commands=commands, secrets=secrets
        )
        yield Bench(made, lambda: made.files)
        return
    worktree = where / "up" / "worktree"
    worktree.mkdir(parents=True)
    write(worktree, files)
    notes = None
    if knowledge is not None:
        notes = where / "up" / "Knowledge"
        notes.mkdir()
        write(notes, knowledge)
    with real(
        worktree,
        scope=scope,
        knowledge=notes,
        secrets=secrets,
        level=Level.BUBBLEWRAP,
        run_with=answers._box.place.run,
    ) as made:

        def everything() -> dict[str, bytes]:
            return {
                name: p.read_bytes()
                for p in sorted(worktree.rglob("*"))
                if p.is_file() and (name := str(p.relative_to(worktree))) != ".git"
            }

        yield Bench(made, everything)


MARKER = re.compile(
    r'read on with read_file, path "(?P<path>(?:[^"\\]|\\.)*)", offset (?P<offset>\d+)'
)


def all_of(tools: Toolbox | InMemoryToolDispatcher, text: str) -> str:
    """Return what a cut text was cut from: all lines of what its marker names, read in parts that
    are not cut.
    """
    found = MARKER.search(text)
    assert found is not None, text[:200]
    path = json.loads(f'"{found["path"]}"')
    pieces: list[str] = []
    offset, limit = 1, 256
    while True:
        part = tools.dispatch("read_file", {"path": path, "offset": offset, "limit": limit})
        if part.error_type == "bad_offset":
            return "".join(pieces)
        assert part.ok, part
        if MARKER.search(part.content):
            limit //= 2
            assert limit, "a single line is cut"
            continue
        pieces.append(part.content)
        offset += limit


TRACE = "550e8400-e29b-41d4-a716-446655440000"


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[Record, Journal]]:
    """A record on a journal of its own."""
    (folder / "state").mkdir()
    clock = Clock()
    request = SimpleNamespace(agent="default")
    case: Any = SimpleNamespace(trace_id=TRACE, request_id="figures", request=request)
    with Journal(
        folder / "state" / "journal.db",
        now=clock.wall,
        boottime_s=boottime_s,
        boot_id=boot_id(),
        on_trouble=print,
    ) as journal:
        yield Record(journal, case, 1, clock), journal


def reading_us(folder: Path) -> dict[str, float]:
    """Return median microseconds of reading 1 KiB of code, bare and through everything, taken in
    turns.

    Two hundred files, so that nothing remembered about a path flatters. `with its row` is until the
    caller has the result and its journal row is made; `turn of 8, on disk` is one of eight reads
    and the commit at the end of their turn.
    """
    source = (Path(__file__).read_bytes() * 2)[:1024].decode()
    names = [f"tree/src/module_{n}.py" for n in range(200)]
    write(folder, dict.fromkeys(names, source))
    files, numbers = itertools.cycle(names), itertools.count()
    with recorded(folder) as (record, _), real(folder) as tools:

        def read() -> None:
            use = ToolUse("1", "read_file", {"path": next(files)})
            call_on_record(
                CALL.at(next(numbers)),
                use,
                tools.tools,
                tools.place,
                record,
                again=lambda: True,
                hold=True,
            )

        def bare() -> str:
            return (folder / next(files)).read_text()

        def turn() -> None:
            for _ in range(8):
                read()
            record.flush()

        ways: dict[str, Callable[[], object]] = {
            "Path.read_text": bare,
            "registry": lambda: tools.dispatch("read_file", {"path": next(files)}),
            "with its row": read,
            "refused traversal": lambda: tools.dispatch("read_file", {"path": "../../etc/passwd"}),
        }
        found: dict[str, list[float]] = {name: [] for name in (*ways, "turn of 8, on disk")}
        for number in range(400):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                found[name].append((time.perf_counter() - began) * 1e6)
            if number % 8 == 7:
                record.flush()
                began = time.perf_counter()
                turn()
                found["turn of 8, on disk"].append((time.perf_counter() - began) * 1e6 / 8)
    return {name: round(statistics.median(took), 1) for name, took in found.items()}


def planned_mission(folder: Path, turns: int) -> TestVault:
    """Return a vault with an approved plan whose mission takes so many turns, every third of which
    writes a file; no command.
    """
    repo = make_repo(folder / "repo", {f"f{n}.txt": f"{n}\n" for n in range(20)})
    vault = make_vault(folder)
    vault.configure(f'[portals.code]\npath = "{repo}"\n')
    plan = {
        **PLAN,
        "scope": {"write": ["**"]},
        "steps": [{**PLAN["steps"][0], "tools": ["read_file", "write_file"]}],
    }
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": f"w{n % 7}.txt", "content": f"{n}\n"})
        if n % 3 == 1
        else ("read_file", {"path": f"f{n % 20}.txt", "offset": 1, "limit": n + 1})
        for n in range(turns - 1)
    ]
    last = {
        "calls": [
            ("complete_step", {"step": 1, "summary": "Written"}),
            ("finish", {"summary": "Done"}),
        ]
    }
    vault.plays(plan, *({"calls": [call]} for call in calls), last)
    vault.drop("---\nportal: code\n---\nSay hello")
    vault.once()
    text = vault.plan().read_text()
    vault.plan().write_text(text.replace("write = [", "max_iterations = 100\nwrite = [", 1))
    vault.once()  # the box says the new limit: only what was shown can be approved
    vault.approve()
    return vault
