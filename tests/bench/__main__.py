"""Measure placet next to named baselines in the same minute: `python -m tests.bench`.

Machines are shared and noisy: look at the ratios. Nothing here passes or fails.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchkit import planned_mission, reading_us, real
from gitkit import commit_changes, git, make_repo, settle_home
from looping import bare_vault, looping
from placet.activity import Action, Activity, Actor, Entity
from placet.case.approval import valid_plan
from placet.case.callout import box_of, with_box
from placet.case.case import CASE_JSON, Branch, Case, KnownPlan, LastOutcome, Request
from placet.case.life_cycle import State
from placet.case.notes import inspect_note
from placet.disk.vault import Vault
from placet.git.checkpoint import save
from placet.git.removal import remove_worktree
from placet.git.repository import all_refs, head, identity, open_repo
from placet.git.run import Repo
from placet.git.worktree import add_worktree
from placet.journal.writer import Journal
from placet.journal.writes import AddActivity, PutCase
from placet.note.paths import QUEUES
from placet.plan.comments import comments
from placet.plan.limits import (
    MAX_COMMENTS,
    MAX_NOTE_CHARACTERS,
    MAX_SCOPE_ENTRIES,
    MAX_STEPS,
)
from placet.sandbox.box import Box
from placet.sandbox.probe import probe
from placet.sandbox.run import run
from tests.agent.test_model_call import cached_share, spoken, twenty_turns
from tests.bench.board import crowd, event_to_screen, first_page
from tests.bench.growth import figures, latencies, memory, mission_cpu_s
from tests.bench.hosts import command_cost
from tests.bench.streaming import streamed
from tests.bench.team import embedded, measured, over_ssh
from vaultkit import make_vault, running, until

ROWS: list[tuple[str, str, str]] = []


def told(what: str, figure: str, beside: str = "") -> None:
    print(f"{what:<58} {figure:>18}   {beside}", flush=True)


def median_ms(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)


def process_ms(*argv: str) -> float:
    return median_ms(lambda: subprocess.run(argv, check=True, capture_output=True), 9)


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="placet-bench-") as name:
        yield Path(name)


def command_line() -> None:
    bare = process_ms(sys.executable, "-c", "import click")
    shown = process_ms(sys.executable, "-m", "placet", "--help")
    told(
        "placet --help",
        f"{shown:.0f} ms",
        f"python -c 'import click': {bare:.0f} ms, ratio {shown / bare:.2f}",
    )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle() -> None:
    with scratch() as folder:
        vault = make_vault(folder, ANTHROPIC_API_KEY="x")
        with running(vault) as process:
            time.sleep(2)
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
            before = _cpu_s(process.pid)
            time.sleep(20)
            used = _cpu_s(process.pid) - before
        told("idle daemon, memory", f"{resident:.1f} MB")
        told("idle daemon, CPU over 20 s", f"{used / 20 * 100:.2f} %")


def drop_to_detected() -> None:
    with scratch() as folder:
        vault = make_vault(folder, ANTHROPIC_API_KEY="x", ANTHROPIC_BASE_URL="http://127.0.0.1:9")
        with running(vault):
            time.sleep(1)
            found = []
            connection = sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)
            for n in range(60):
                began = time.perf_counter()
                vault.drop("Say hello.\n", f"Note {n}.md")
                sql = "SELECT count(*) FROM activity WHERE action_type = 'request.detected'"
                while connection.execute(sql).fetchone()[0] <= n:
                    time.sleep(0.0005)
                found.append((time.perf_counter() - began) * 1000)
                time.sleep(0.05)
            connection.close()
    found.sort()
    told(
        "drop to request.detected",
        f"p50 {found[30]:.0f} ms",
        f"p99 {found[-1]:.0f} ms (the longest of 60)",
    )


def scan_cost() -> None:
    with scratch() as folder:
        for count in (10, 2_000):
            vault = make_vault(folder / str(count))
            requests = vault.root / "Inbox" / "Requests"
            for n in range(count):
                (requests / f"{n}.md").write_text("x")
            if count == 2_000:
                for n in range(2_000):
                    place = vault.root / "Notes" / str(n)
                    place.mkdir(parents=True)
                    for k in range(50):
                        (place / f"{k}.md").touch()
            with Vault(vault.root) as opened:
                took = median_ms(lambda opened=opened: opened.scan(QUEUES), 21)
            bare = median_ms(lambda requests=requests: [e.stat() for e in os.scandir(requests)], 21)
            beside = f"scandir + lstat of the requests: {bare:.2f} ms, ratio {took / bare:.1f}"
            told(
                f"a scan, {count} requests"
                + (", 100,000 notes elsewhere" if count == 2_000 else ""),
                f"{took:.2f} ms",
                beside,
            )


def start_up() -> None:
    with scratch() as folder:
        vault = make_vault(folder, ANTHROPIC_API_KEY="x")
        with running(vault):
            until(lambda: vault.rows("daemon.started"))
        began = time.perf_counter()
        with running(vault):
            took = (time.perf_counter() - began) * 1000
        bare = process_ms(sys.executable, "-c", "import placet.loop.app")
        told(
            "start to daemon.started (sandbox probe included)",
            f"{took:.0f} ms",
            f"importing it alone: {bare:.0f} ms",
        )


def reading() -> None:
    with scratch() as folder:
        found = reading_us(folder)
    bare = found.pop("Path.read_text")
    told("Path.read_text of 1 KiB of code", f"{bare:.0f} µs")
    for name, us in found.items():
        what = name if name.startswith("refused") else f"read_file of the same, {name}"
        told(what, f"{us:.0f} µs", f"ratio {us / bare:.2f}")


def searching() -> None:
    """Search 5,000 files of 1 KiB; one in ten has the word."""
    with scratch() as folder:
        text = "def f(x: int) -> int:\n    return x + 1\n" * 26
        for n in range(5_000):
            path = folder / f"src/{n % 50}/{n}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "needle = 1\n" * (n % 10 == 0))
        with real(folder) as tools:
            ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
                "glob src/**/*.py": (
                    lambda: tools.dispatch("glob", {"pattern": "src/**/*.py"}),
                    lambda: [str(one.relative_to(folder)) for one in folder.glob("src/**/*.py")],
                ),
                "grep": (
                    lambda: tools.dispatch("grep", {"pattern": "^needle"}),
                    lambda: subprocess.run(
                        ["grep", "-rn", "^needle", "."], cwd=folder, check=True, capture_output=True
                    ),
                ),
            }
            for name, (ours, bare) in ways.items():
                pairs = [(cpu_ms(ours), cpu_ms(bare)) for _ in range(9)]
                took = statistics.median(one for one, _ in pairs)
                ratio = statistics.median(one / other for one, other in pairs)
                told(f"{name} on 5,000 files, processor", f"{took:.0f} ms", f"ratio {ratio:.2f}")


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the processor time of some work and of the programs that it waits for."""
    before = os.times()
    work()
    return sum(now - was for now, was in zip(os.times()[:4], before[:4], strict=True)) * 1000


def the_box() -> None:
    level = probe().level
    true = shutil.which("true") or "/bin/true"
    with scratch() as folder:
        boxed = median_ms(lambda: run([true], Box(folder), level), 40)
        bare = median_ms(lambda: subprocess.run([true], check=True), 40)
    told(
        f"one command in the box (level {level.value})",
        f"{boxed:.1f} ms",
        f"subprocess.run: {bare:.1f} ms",
    )


def hosts() -> None:
    with scratch() as folder:
        command_cost(folder, told)


def conversation() -> None:
    with scratch() as folder:
        bodies = twenty_turns(folder)
        sent = sum(len(piece) for body in bodies for piece in spoken(body))
        fresh = sum(len(piece) for piece in spoken(bodies[-1]))
        told(
            f"a mission of {len(bodies)} turns, in the cached prefix",
            f"{cached_share(bodies) * 100:.1f} %",
            f"of {sent:,} bytes sent; without a cache 0 %; fresh: {fresh:,} bytes",
        )


def mission() -> None:
    """The processor time of a mission, planning included: the daemon's own and its children's."""
    with scratch() as folder:
        os.environ.update(settle_home(folder / "home"))
        own, children = mission_cpu_s(folder, 20, 7)
    told(
        "a mission of 20 turns, own and children",
        f"{own + children:.2f} s",
        f"own {own:.2f} s, children {children:.2f} s",
    )


def git_work() -> None:
    """Branch, worktree, a commit of one file, removal.

    Then commits and checkpoints: beside the git commands that do the same.

    How many processes that takes is for `test_a_mission_takes_few_git_processes` to say.
    """
    for count, times in ((10, 21), (10_000, 5)):
        with scratch() as folder:
            os.environ.update(settle_home(folder / "home"))
            path = make_repo(
                folder / "repo", {f"{n % 100}/{n}.txt": f"{n}\n" for n in range(count)}
            )
            ours, bare = [], []
            for n in range(times):
                began = time.perf_counter()
                repo = open_repo(path)
                now, at = datetime.now(UTC), folder / "ours" / f"{n:08}"
                tree = add_worktree(
                    repo, at, all_refs(repo).free_branch("say-hello", at.name, now), head(repo)
                )
                (tree.path / "new.txt").write_text("new\n")
                commit_changes(tree, "Say hello\n", identity(repo), now)
                remove_worktree(tree)
                ours.append(time.perf_counter() - began)
                began = time.perf_counter()
                place = folder / "bare" / f"{n:08}"
                git(path, "worktree", "add", "-q", "-b", f"bare-{n}", str(place))
                (place / "new.txt").write_text("new\n")
                git(place, "add", "new.txt")
                git(place, "commit", "-q", "-m", "Say hello")
                git(path, "worktree", "remove", str(place))
                bare.append(time.perf_counter() - began)
            took = _commits(open_repo(path), folder)
        mine, beside = statistics.median(ours) * 1000, statistics.median(bare) * 1000
        told(
            f"branch, worktree, commit, removal on {count:,} files",
            f"{mine:.0f} ms",
            f"git: {beside:.0f} ms, ratio {mine / beside:.2f}",
        )
        for what, ms in list(took.items())[:-1]:
            told(
                f"a {what} on {count:,} files",
                f"{ms:.1f} ms",
                f"git add -A && git commit: {took['bare commit']:.1f} ms, ratio {ms / took['bare commit']:.2f}",
            )


def _commits(repo: Repo, folder: Path) -> dict[str, float]:
    """Return the median ms of a checkpoint, of a
    commit, and of git's own commit.
    """
    now, tree = (
        datetime.now(UTC),
        add_worktree(repo, folder / "ours/commits", "feat/commits", head(repo)),
    )
    bare = folder / "bare/commits"
    git(repo.path, "worktree", "add", "-q", "-b", "bare-commits", str(bare))
    time.sleep(1.1)  # files that are as young as the index are read by git again
    took: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        took.setdefault(what, []).append(median_ms(work, 1))

    def plain() -> None:
        git(bare, "add", "-A")
        git(bare, "commit", "-q", "-m", "Say hello")

    for n in range(15):
        for place in (tree.path, bare):
            (place / "new.txt").write_text(f"{n}\n")
        timed("checkpoint", lambda: save(tree, "refs/placet/ckpt/x", "Kept\n", now))
        timed("commit", lambda: commit_changes(tree, "Say hello\n", identity(repo), now))
        timed("bare commit", plain)
    return {what: statistics.median(ms) for what, ms in took.items()}


def journal_rows() -> None:
    """Bulk: batches of 500 events; one durable event at a time.

    Beside plain sqlite3 with the same batches and durability.
    """
    rows = [
        Activity(
            "2026-11-21T12:00:00.000Z",
            "t" * 36,
            Actor.AGENT,
            Action.TOOL_CALLED,
            Entity.MISSION,
            "say-hello",
            "default",
            {
                "tool": "read_file",
                "target": f"src/{n}.py",
                "ok": True,
                "duration_ms": 1.5,
                "size": 1024,
            },
        )
        for n in range(20_000)
    ]
    batches = [range(n, n + 500) for n in range(0, len(rows), 500)]
    bulk, durable = [], []
    for _ in range(5):
        with scratch() as folder:
            connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(
                "CREATE TABLE activity (id INTEGER PRIMARY KEY, a, b, c, d, e, f, g, h)"
            )
            connection.execute("CREATE INDEX one ON activity (b)")
            connection.execute("CREATE INDEX two ON activity (e, g)")

            def bare(batch: range, connection: sqlite3.Connection = connection) -> None:
                connection.execute("BEGIN IMMEDIATE")
                plain = [
                    (
                        r.timestamp,
                        r.trace_id,
                        r.actor.value,
                        r.agent,
                        r.action.value,
                        r.entity_type.value,
                        r.entity_id,
                        json.dumps(dict(r.metadata)),
                    )
                    for r in rows[batch.start : batch.stop]
                ]
                connection.executemany(
                    "INSERT INTO activity (a, b, c, d, e, f, g, h) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    plain,
                )
                connection.execute("COMMIT")

            journal = Journal(
                folder / "journal.db",
                now=lambda: datetime.now(UTC),
                boottime_s=time.monotonic,
                boot_id="b",
                on_trouble=print,
            )
            began = time.perf_counter()
            for batch in batches:
                bare(batch)
            middle = time.perf_counter()
            for batch in batches:
                last = journal.submit([AddActivity(rows[n]) for n in batch])
            last.result()
            ended = time.perf_counter()
            bulk.append((len(rows) / (ended - middle), (middle - began) / (ended - middle)))
            connection.execute("PRAGMA synchronous = FULL")
            pairs = [
                (
                    median_ms(lambda bare=bare: bare(range(1)), 1),
                    median_ms(
                        lambda journal=journal: journal.commit(
                            [AddActivity(rows[0])], durable=True
                        ),
                        1,
                    ),
                )
                for _ in range(101)
            ]
            one, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
            durable.append((ours, ours / one))
            journal.close()
            connection.close()
    rate, ratio = sorted(bulk)[2]
    told(
        "journal, events a second in batches of 500",
        f"{rate:,.0f}",
        f"of json.dumps + executemany, same batches: {ratio:.2f}",
    )
    took, times = sorted(durable)[2]
    told("journal, one durable event", f"{took:.2f} ms", f"times a bare commit: {times:.2f}")


def waiting() -> None:
    """Look at a vault in which 2,000 requests wait while all work is paused, and drop one more."""
    with scratch() as folder:
        vault = bare_vault(folder, "[daemon]\npaused = true\n[vault]\nhistory = false\n")
        for n in range(2_000):
            vault.drop(f"Say hello {n}.\n", f"{n}.md")
        with looping(vault) as run:
            run.settle()

            def look_ms() -> float:
                began = time.process_time()
                run.loop.tick()
                return (time.process_time() - began) * 1000

            looks = statistics.median(look_ms() for _ in range(9))
            told("2,000 requests wait: a look, processor", f"{looks:.1f} ms")
            drops = []
            for n in range(9):
                vault.drop("Say one more.\n", f"more {n}.md")
                drops.append(look_ms())
                run.settle()
            told("the look that sees one more", f"{statistics.median(drops):.1f} ms")


def start_full() -> None:
    """Start on a vault with 100,000 notes in 20,000 folders, and 10,000 finished missions in the
    journal.
    """
    with scratch() as folder:
        vault = make_vault(folder, ANTHROPIC_API_KEY="x")
        vault.configure('[commands]\nsandbox = "none"\n')
        with running(vault):
            until(lambda: vault.rows("daemon.started"))
        for n in range(20_000):
            place = vault.root / "Notes" / str(n // 200) / str(n)
            place.mkdir(parents=True)
            for k in range(5):
                (place / f"{k}.md").touch()
        with Journal(
            vault.db,
            now=lambda: datetime.now(UTC),
            boottime_s=time.monotonic,
            boot_id="b",
            on_trouble=print,
        ) as journal:
            for n in range(10_000):
                trace = f"{n:08x}-0000-4000-8000-000000000000"
                case = Case(
                    trace,
                    f"r{n}",
                    State.COMPLETED,
                    request_digest="0" * 64,
                    plan=KnownPlan(digest="1" * 64, revision=1),
                    request=Request(title="Done"),
                    outcome=LastOutcome(
                        branch=f"feat/r{n}", report_path=f"Knowledge/Reports/r{n}.md"
                    ),
                    branches=(Branch(trace, f"feat/r{n}", "0" * 40, "1" * 40, became="merged"),),
                )
                journal.submit(
                    [
                        PutCase(
                            trace,
                            case.request_id,
                            case.state.value,
                            CASE_JSON.dump_json(case).decode(),
                            0,
                        )
                    ]
                )

        times = []
        for _ in range(5):
            began = time.perf_counter()
            with running(vault):
                times.append((time.perf_counter() - began) * 1000)
        took = statistics.median(times)
        bare = process_ms(sys.executable, "-c", "import placet.loop.app")
        told(
            "start, 100,000 notes and 10,000 missions, no probe",
            f"{took:.0f} ms",
            f"importing it alone: {bare:.0f} ms",
        )


def growth() -> None:
    """What finished missions in the journal cost: `PLACET_BENCH_MISSIONS=100,10000` of them, each
    beside the first number.
    """
    sizes = [int(size) for size in os.environ.get("PLACET_BENCH_MISSIONS", "100,10000").split(",")]
    found = []
    for size in sizes:
        with scratch() as folder:
            found.append(figures(folder, size, idle_s=20))
        for name, figure in found[-1].items():
            told(
                f"{size:,} missions: {name}",
                f"{figure:.3f}",
                f"ratio {figure / max(found[0][name], 0.001):.2f}",
            )


def longest_look() -> None:
    """How long the loop's thread reads one plan that is at every limit."""
    write = ", ".join(f'"src/f{n}.py"' for n in range(MAX_SCOPE_ENTRIES))
    parts = [
        "# T\n\nx\n\n## Steps\n\n{}## Scope\n\n```toml\n",
        f"write = [{write}]\n```\n\n## Risks\n\nNone.\n\n## Review Comments\n\n",
        "- A comment.\n" * MAX_COMMENTS,
    ]
    head = "### Do it\n\n- [x] Do this step\n\n"
    room = (MAX_NOTE_CHARACTERS - sum(map(len, parts))) // MAX_STEPS - len(head) - 2
    prose = ("Some prose about `file.py` here. " * room)[:room]
    text = "".join(parts).format(f"{head}{prose}\n\n" * MAX_STEPS)
    raw = f"---\nrequest_id: r\nrevision: 1\n---\n{text}".encode()
    case = Case("1" * 8, "r", State.REVIEW, plan=KnownPlan(path="Inbox/Plans/r_plan.md"))
    looks: dict[str, Callable[[], object]] = {
        "read": lambda: inspect_note("Inbox/Plans/r_plan.md", raw, ""),
        "box": lambda: with_box(raw, box_of(case)),
        "approval": lambda: valid_plan(inspect_note("System/Active/r.md", raw, ""), ()),
        "comments": lambda: comments(text),
    }
    for name, look in looks.items():
        began = time.process_time()  # once: a second look at the same text is cached
        look()
        took = (time.process_time() - began) * 1000
        told(f"a plan at every limit: {name}", f"{took:.0f} ms", f"{len(text):,} characters")
    hostile = {
        "60,000 headings": b"# a\n" * 60_000,
        "125,000 lines": b"x\n" * 125_000,
        "80,000 code spans": b"`a`" * 80_000,
    }
    for what, many in hostile.items():
        began = time.process_time()
        with_box(b"---\nrequest_id: r\nrevision: 1\n---\n" + many, box_of(case))
        took = (time.process_time() - began) * 1000
        told(f"a plan of {what}: box", f"{took:.0f} ms")


def streaming() -> None:
    streamed(told)


def processes() -> None:
    """Programs that a daemon starts for one mission, and its flushes to the disk, as strace counts
    them; without strace nothing.
    """
    if shutil.which("strace") is None:
        told("processes of a mission", "no strace")
        return
    for turns in (5, 60):
        with scratch() as folder:
            vault = planned_mission(folder, turns)
            log = folder / "strace"
            subprocess.run(
                [
                    "strace",
                    "-f",
                    "-v",
                    "-s",
                    "200",
                    "-o",
                    str(log),
                    "-e",
                    "trace=execve,fsync,fdatasync",
                    "-e",
                    "status=successful,unfinished",
                    sys.executable,
                    "-m",
                    "placet",
                    "run",
                    "--once",
                    "--vault",
                    str(vault.root),
                ],
                env=vault.env,
                check=True,
                capture_output=True,
            )
            lines = log.read_text(errors="replace").splitlines()
            ran = [line for line in lines if "execve(" in line]
            git_ran = [line for line in ran if '/git", ["' in line]
            flushes = [line for line in lines if "fsync(" in line or "fdatasync(" in line]
            told(
                f"{turns} turns: programs, of them git; flushes",
                f"{len(ran)}, {len(git_ran)}; {len(flushes)}",
                f"start and end of the daemon included; {sum(r['metadata'].get('processes', 0) for r in vault.rows('git.ran'))} "
                "git processes journalled",
            )


def latency() -> None:
    """How soon a daemon that is at work sees what a person does, beside one that is not."""
    with scratch() as folder:
        idle_ = latencies(folder, 0, 5)
    for missions in (8, 16):
        with scratch() as folder:
            found = latencies(folder, missions, 9)
        for name, took in found.items():
            told(
                f"{missions} missions at work: {name}",
                f"{took:.3f}",
                f"none: {idle_[name]:.3f}, ratio {took / idle_[name]:.1f}",
            )


def held() -> None:
    """What a daemon holds in memory, and what one more mission costs it:
    `PLACET_BENCH_MISSIONS=100` of them.
    """
    with scratch() as folder:
        for name, figure in memory(
            folder, int(os.environ.get("PLACET_BENCH_MISSIONS", "100").split(",")[-1])
        ).items():
            told(name, f"{figure:.2f}")


def board() -> None:
    """The board: its pages, what it holds, a crowd of browsers, and how live it is."""
    for bench in (crowd, event_to_screen):
        with scratch() as folder:
            os.environ.update(settle_home(folder / "home"))
            bench(folder, told)
    sizes = os.environ.get("PLACET_BENCH_MISSIONS", "100,10000").split(",")
    for size in sizes:
        with scratch() as folder:
            os.environ.update(settle_home(folder / "home"))
            first_page(folder, int(size), told)


def team(counts: tuple[int, ...] = (1, 2, 4, 8), each: int = 4, *, simulated: bool = False) -> None:
    """Missions of 10 rounds, of 200 ms each at the model; each worker has one slot."""
    alone = 0.0
    for workers in counts:
        took_s, ideal_s, database_s = measured(workers, each, simulated)
        a_minute = workers * each / took_s * 60
        alone = alone or a_minute
        told(
            f"{workers} {'simulated ' if simulated else ''}workers, {workers * each} missions",
            f"{a_minute:.0f} a minute",
            f"{a_minute / alone / workers * counts[0]:.2f} x linear, {ideal_s / took_s:.2f} of what "
            f"the model allows; database {database_s * 1000:.0f} ms of processor a mission",
        )


def simulated() -> None:
    team((4, 16, 64), each=3, simulated=True)


def beside() -> None:
    """A team over ssh, one and four workers of two slots, beside a daemon that works itself."""
    for workers, model_s, missions in ((1, 0.2, 12), (4, 5.0, 24)):
        with scratch() as folder:
            os.environ.update(settle_home(folder / "home"))
            alone, alone_s = embedded(2 * workers, missions, model_s)
            a_minute, used_s, logins, lines = over_ssh(workers, 2, missions, model_s)
        told(
            f"{workers} x 2 over ssh, {model_s:g} s at the model",
            f"{a_minute:.0f} a minute",
            f"{a_minute / alone:.2f} of the daemon alone; {used_s:.2f} s of processor a request "
            f"({alone_s:.2f} s); {logins:.1f} logins a request; {lines} connections",
        )


def main() -> None:
    """Run all of them, or those that are named: `python -m tests.bench idle start_up`."""
    benches = (
        command_line,
        reading,
        searching,
        git_work,
        the_box,
        hosts,
        journal_rows,
        idle,
        drop_to_detected,
        scan_cost,
        start_up,
        start_full,
        waiting,
        conversation,
        mission,
        streaming,
        growth,
        longest_look,
        processes,
        latency,
        held,
        board,
        team,
        beside,
        simulated,
    )
    for bench in benches:
        if not sys.argv[1:] or bench.__name__ in sys.argv[1:]:
            bench()


if __name__ == "__main__":
    main()
