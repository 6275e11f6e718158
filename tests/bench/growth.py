"""Measure a daemon on a large journal: `python -m tests.bench growth latency held`."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from messages_api import MessagesApi, call, reply
from placet.agent.day_budget import used_today
from placet.case.case import CASE_JSON, Branch, Case, KnownPlan, LastOutcome, Request
from placet.case.life_cycle import State
from placet.host.clock import Clock
from placet.journal.chain import chained, link
from placet.journal.reader import open_reader
from vaultkit import PLAN, TestVault, make_vault, running, until

ROWS, RECORDS = 98, 143
TICK = os.sysconf("SC_CLK_TCK")
KINDS = (
    ["git.ran"] * 26
    + ["tool.called"] * 30
    + ["model.called"] * 12
    + ["step.completed"] * 10
    + ["lease.acquired"] * 18
)
USED = {
    "input_tokens": 1000,
    "output_tokens": 300,
    "cache_read_tokens": 5000,
    "cache_write_tokens": 20,
    "cost_usd": 0.0123,
    "model": "claude-opus-5-5",
    "provider": "anthropic",
    "stop_reason": "tool_use",
    "duration_ms": 1234.5,
    "iteration": 3,
}


def grow(journal: Path, missions: int) -> None:
    """Put so many finished missions into a journal on which no daemon works: rows that fit the
    chain, records, texts, cases.
    """
    moment = datetime.now(UTC) - timedelta(days=700)
    ended = {
        "complexity": "standard",
        "cost_usd": 0.15,
        "branch": "feat/x",
        "commit": "1" * 40,
        "iterations": 5,
    }
    metas = {
        "model.called": json.dumps({"purpose": "execute", **USED}),
        "execution.completed": json.dumps(ended),
    }
    body = random.randbytes(150).hex()
    with closing(sqlite3.connect(journal, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -400000")
        (_, row_id, last) = db.execute("SELECT * FROM chain").fetchone()

        def rows(numbers: range) -> Iterator[tuple[object, ...]]:
            nonlocal row_id, last
            for number in numbers:
                trace = f"{number:08x}-0000-4000-8000-000000000000"
                at = (
                    (moment + timedelta(days=690 * number / missions))
                    .isoformat(timespec="milliseconds")
                    .replace("+00:00", "Z")
                )
                for kind in ("request.detected", *KINDS, "execution.completed"):
                    row_id += 1
                    meta = metas.get(kind, '{"operation":"status","exit":0,"duration_ms":3.1}')
                    columns = (
                        at,
                        "" if kind == "git.ran" and row_id % 2 else trace,
                        "agent",
                        "default",
                        kind,
                        "mission",
                        f"request-{number}",
                        meta,
                    )
                    last = link(last, row_id, chained(columns))
                    yield (row_id, *columns, last)

        def records(numbers: range) -> Iterator[tuple[object, ...]]:
            for number in numbers:
                for seq in range(RECORDS):
                    yield (
                        f"{number:08x}-0000-4000-8000-000000000000",
                        1,
                        seq,
                        "outcome",
                        f"c:{seq}",
                        f"{seq:064}",
                        300,
                        body,
                    )

        def cases(numbers: range) -> Iterator[tuple[object, ...]]:
            for number in numbers:
                trace = f"{number:08x}-0000-4000-8000-000000000000"
                case = Case(
                    trace,
                    f"request-{number}",
                    State.COMPLETED,
                    request_digest="0" * 64,
                    plan=KnownPlan(
                        digest="1" * 64, path=f"Inbox/Archive/request-{number}_plan.md", revision=1
                    ),
                    request=Request(title="Done", agent="a"),
                    outcome=LastOutcome(
                        branch=f"feat/r{number}", report_path=f"Knowledge/Reports/{number}.md"
                    ),
                    branches=(
                        Branch(trace, f"feat/r{number}", "0" * 40, "1" * 40, became="merged"),
                    ),
                    since="2026-01-01T00:00:00.000Z",
                )
                yield (
                    trace,
                    case.request_id,
                    "completed",
                    CASE_JSON.dump_json(case).decode(),
                    9,
                    "2026-01-01T00:00:00.000Z",
                    "",
                    case.plan.path,
                    0,
                )

        for start in range(0, missions, 1000):
            numbers = range(start, min(start + 1000, missions))
            db.execute("BEGIN")
            db.executemany(
                "INSERT INTO activity VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows(numbers)
            )
            db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", records(numbers))
            db.executemany("INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", cases(numbers))
            db.executemany(
                "INSERT INTO outbox (trace_id, command, created_at, done_at) VALUES (?, '{}', '', '')",
                [(f"{number:08x}",) for number in numbers for _ in range(9)],
            )
            db.executemany(
                "INSERT INTO texts VALUES (?, ?, ?, ?)",
                [
                    (f"f{number:059}{n:04}", f"f{number:059}{n:04}", 1500, random.randbytes(1500))
                    for number in numbers
                    for n in range(4)
                ],
            )
            db.execute("UPDATE chain SET last_id = ?, last_hash = ?", (row_id, last))
            db.execute("COMMIT")
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'spent'").fetchone():
            db.execute(
                "INSERT OR REPLACE INTO spent SELECT substr(timestamp, 1, 14) || '00', 12 * 6320, 0.15, 0 FROM activity "
                "WHERE action_type = 'execution.completed'"
            )
            db.execute(
                "INSERT OR REPLACE INTO paid SELECT 'standard', id, 0.15 FROM activity "
                "WHERE action_type = 'execution.completed'"
            )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def own_cpu_s(pid: int) -> float:
    """Return the processor time of a process itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


FILES = [{"path": "hello.txt", "content": f"hello {n}\n"} for n in range(4)]


def five_turns(body: Mapping[str, Any]) -> Any:
    """Plan PLAN, and carry it out in five turns, whatever the mission."""
    if "submit_plan" in {tool["name"] for tool in body["tools"]}:
        return reply(call("submit_plan", PLAN))
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    if turn < 4:
        return reply(call("write_file", FILES[turn]))
    return reply(
        call("complete_step", {"step": 1, "summary": "Hello"}), call("finish", {"summary": "done"})
    )


def settled(pid: int) -> None:
    """Wait until a process has nothing to do any more."""
    before = own_cpu_s(pid)
    while True:
        time.sleep(1.0)
        now = own_cpu_s(pid)
        if now - before < 0.03:
            return
        before = now


def mission(vault: TestVault, name: str) -> None:
    with closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as db:
        (before,) = db.execute("SELECT max(id) FROM activity").fetchone()

        def is_completed() -> bool:
            return (
                db.execute(
                    "SELECT 1 FROM activity WHERE id > ? AND +action_type = 'execution.completed'",
                    (before,),
                ).fetchone()
                is not None
            )

        vault.drop("Say hello.\n", f"{name}.md")
        until(lambda: vault.plan(name).exists(), name)
        vault.approve(name)
        until(lambda: is_completed() and not vault.active(name).exists(), name)


def vault_actions(vault: TestVault, action: str) -> list[str]:
    """The ids of a kind of events that are new: those of the missions that lie behind are not
    counted.
    """
    with closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as db:
        return [
            row
            for (row,) in db.execute(
                "SELECT trace_id FROM activity WHERE id > (SELECT max(id) FROM activity) - 2000 "
                "AND +action_type = ? AND timestamp > ?",
                (action, BEGAN),
            )
        ]


BEGAN = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def median_of(work: Callable[[], float], times: int) -> float:
    return statistics.median(work() for _ in range(times))


@contextmanager
def grown(folder: Path, missions: int, api: MessagesApi) -> Iterator[TestVault]:
    vault = make_vault(
        folder, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
    )
    vault.configure('[commands]\nsandbox = "none"\n')
    vault.cli("run", "--once")
    grow(vault.db, missions)
    yield vault


def up_ms(vault: TestVault) -> float:
    """Return how long a start takes until the daemon is ready (daemon.started is written)."""
    before = last_id(vault)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "placet", "run"],
        cwd=vault.root,
        env=vault.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while last_id(vault) == before:
        time.sleep(0.005)
    took = (time.perf_counter() - began) * 1000
    process.terminate()
    process.wait()
    return took


def last_id(vault: TestVault) -> int:
    with closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT last_id FROM chain").fetchone()[0])


def command_cpu_s(vault: TestVault, *argv: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    vault.cli(*argv)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def questions_ms(vault: TestVault) -> dict[str, float]:
    found = {}
    with open_reader(vault.db) as reader:
        ways: dict[str, Callable[[], object]] = {
            "the day's use": lambda: used_today(reader, Clock().wall()),
            "a planning's use": lambda: reader.calls.used_planning(
                "00000007-0000-4000-8000-000000000000"
            ),
            "costs of a size": lambda: reader.calls.mission_costs("standard"),
        }
        for name, way in ways.items():
            began = time.perf_counter()
            for _ in range(20):
                way()
            found[f"{name}, ms"] = (time.perf_counter() - began) * 1000 / 20
    return found


def figures(folder: Path, missions: int, idle_s: float) -> dict[str, float]:
    """Return what a daemon and the commands cost on a journal of so many finished missions."""
    found: dict[str, float] = {}
    with MessagesApi(five_turns) as api, grown(folder, missions, api) as vault:
        up_ms(vault)
        found["start, ms"] = median_of(lambda: up_ms(vault), 3)
        with running(vault) as process:
            settled(process.pid)
            before, began = own_cpu_s(process.pid), time.monotonic()
            time.sleep(idle_s)
            found["idle processor, %"] = (
                (own_cpu_s(process.pid) - before) / (time.monotonic() - began) * 100
            )
            found["idle memory, MB"] = rss_mb(process.pid)
            mission(vault, "first")
            costs = []
            for name in ("second", "third", "fourth"):
                settled(process.pid)
                before = own_cpu_s(process.pid)
                mission(vault, name)
                settled(process.pid)
                costs.append(own_cpu_s(process.pid) - before)
            found["own processor of a mission, s"] = statistics.median(costs)
        for argv in (
            ("status",),
            ("plans",),
            ("cost",),
            ("why", "request-7"),
            ("show", "request-7"),
        ):
            found[f"{argv[0]}, s of processor"] = median_of(partial(command_cpu_s, vault, *argv), 3)
        found |= questions_ms(vault)
    return found


def mission_cpu_s(folder: Path, turns: int, times: int) -> tuple[float, float]:
    """Return the processor time that a mission takes, the daemon's own and its children's: medians.

    A call a turn; every third writes a file, the others read one.
    """

    def answer(body: Mapping[str, Any]) -> Any:
        if "submit_plan" in {tool["name"] for tool in body["tools"]}:
            return reply(call("submit_plan", MUCH))
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn == turns - 1:
            done = {"step": 1, "summary": "Hello"}
            return reply(call("complete_step", done), call("finish", {"summary": "done"}))
        if turn % 3 == 1:
            text = f"{turn} {time.time()}\n"
            return reply(call("write_file", {"path": f"w{turn % 7}.txt", "content": text}))
        return reply(call("read_file", {"path": f"f{turn}.txt"}))

    def used(pid: int) -> tuple[float, float]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        return own / TICK, children / TICK

    found: list[tuple[float, float]] = []
    with MessagesApi(answer) as api:
        vault = make_vault(
            folder, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure(
            '[commands]\nsandbox = "none"\n[limits]\niterations_ceiling = 100\n'
            "[guards]\nstall_turns = 100\n"
        )
        for turn in range(turns):
            (vault.root / f"f{turn}.txt").write_text("def f():\n    return 1\n" * 40)
        with running(vault) as process:
            for number in range(times + 1):  # the first one also loads the SDK
                settled(process.pid)
                before = used(process.pid)
                mission(vault, f"m{number}")
                settled(process.pid)
                after = used(process.pid)
                found.append((after[0] - before[0], after[1] - before[1]))
    own, children = zip(*found[1:], strict=True)
    return statistics.median(own), statistics.median(children)


MUCH = {
    **PLAN,
    "scope": {"write": ["**"]},
    "complexity": "complex",
    "steps": [{**PLAN["steps"][0], "tools": ["read_file", "write_file"]}],
}


def busy_turns(body: Mapping[str, Any]) -> Any:
    """Plan PLAN, and carry it out in turns that do not end: each writes, reads and lists a little."""
    if "submit_plan" in {tool["name"] for tool in body["tools"]}:
        return reply(call("submit_plan", BUSY))
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    path = f"hello{turn}.txt"
    return reply(
        call("write_file", {"path": path, "content": f"hello {turn}\n" * 200}),
        call("read_file", {"path": path}),
    )


BUSY = {
    **PLAN,
    "scope": {"write": ["hello*.txt"]},
    "steps": [{**PLAN["steps"][0], "tools": ["write_file", "read_file"]}],
}


def latencies(folder: Path, missions: int, times: int) -> dict[str, float]:
    """Return how long after a drop, and after an approval, the journal has it, with so many
    missions at work; medians, in s.
    """
    found: dict[str, list[float]] = {"a drop is seen, s": [], "an approval is taken up, s": []}
    with MessagesApi(busy_turns) as api:
        vault = make_vault(
            folder, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure(
            f'[commands]\nsandbox = "none"\n[daemon]\nmissions_at_once = {max(missions, 1)}\nplans_at_once = 4\n'
            "[limits]\ntool_calls = 10000\niterations_ceiling = 1000\n[guards]\nstall_turns = 1000\n"
        )
        with running(vault):
            for number in range(missions):
                vault.drop(f"Say hello {number}.\n", f"m{number}.md")
            for number in range(missions):
                until(vault.plan(f"m{number}").exists, "plans")
                plan = vault.plan(f"m{number}")
                plan.write_text(
                    plan.read_text().replace("\nwrite = ", "\nmax_iterations = 900\nwrite = ", 1)
                )
            for number in range(missions):
                plan = vault.plan(f"m{number}")
                until(
                    lambda plan=plan: "900 iterations" in plan.read_text(), "a summary of the edit"
                )
                vault.approve(f"m{number}")
            until(lambda: len(vault_actions(vault, "execution.started")) >= missions, "missions")
            time.sleep(3)
            for number in range(times):
                drop = partial(vault.drop, f"More {number}.\n", f"n{number}.md")
                found["a drop is seen, s"].append(_after(vault, "request.detected", drop))
                until(vault.plan(f"n{number}").exists, "a plan")
                time.sleep(0.5)
                found["an approval is taken up, s"].append(
                    _after(vault, "plan.approved", partial(vault.approve, f"n{number}"))
                )
    return {name: statistics.median(took) for name, took in found.items()}


def _after(vault: TestVault, action: str, gesture: Callable[[], object]) -> float:
    with closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as db:

        def count() -> int:
            return int(
                db.execute(
                    "SELECT count(*) FROM activity WHERE action_type = ?", (action,)
                ).fetchone()[0]
            )

        before, began = count(), time.perf_counter()
        gesture()
        while count() == before:
            time.sleep(0.005)
        return time.perf_counter() - began


def memory(folder: Path, missions: int) -> dict[str, float]:
    """Return what a daemon holds when it is up, after its first call of the model, and after so
    many missions; in MB.
    """
    found: dict[str, float] = {}
    with MessagesApi(five_turns) as api:
        vault = make_vault(
            folder, ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="sk-ant-test-0123456789"
        )
        vault.configure('[commands]\nsandbox = "none"\n')
        with running(vault) as process:
            settled(process.pid)
            found["up, MB"] = rss_mb(process.pid)
            mission(vault, "m0")
            found["after the first mission, MB"] = rss_mb(process.pid)
            before = own_cpu_s(process.pid)
            for number in range(1, missions):
                mission(vault, f"m{number}")
            found["own processor of a mission, s"] = (own_cpu_s(process.pid) - before) / max(
                missions - 1, 1
            )
            found[f"after {missions} missions, MB"] = rss_mb(process.pid)
    return found
