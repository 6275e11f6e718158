"""`python -m tests.bench`: the figures, each beside a named baseline that is run in the same minute.

Machines are shared and noisy: look at the ratios. Nothing here passes or fails.
"""

from __future__ import annotations

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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchkit import reading_us
from gitkit import git, make_repo, settle_home
from placet.core.names import QUEUES
from placet.repo import add_worktree, commit, free_branch, head, identity, open_repo, remove_worktree
from placet.sandbox import Box, probe, run
from placet.vault import Vault
from test_spending import cached_share, spoken, twenty_turns
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
    told("placet --help", f"{shown:.0f} ms", f"python -c 'import click': {bare:.0f} ms, ratio {shown / bare:.2f}")


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
    told("drop to request.detected", f"p50 {found[30]:.0f} ms", f"p99 {found[-1]:.0f} ms (the longest of 60)")


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
            told(f"a scan, {count} requests" + (", 100,000 notes elsewhere" if count == 2_000 else ""), f"{took:.2f} ms", beside)


def start_up() -> None:
    with scratch() as folder:
        vault = make_vault(folder, ANTHROPIC_API_KEY="x")
        with running(vault):
            until(lambda: vault.rows("daemon.started"))
        began = time.perf_counter()
        with running(vault):
            took = (time.perf_counter() - began) * 1000
        bare = process_ms(sys.executable, "-c", "import placet.app")
        told("start to daemon.started (sandbox probe included)", f"{took:.0f} ms", f"importing it alone: {bare:.0f} ms")


def reading() -> None:
    with scratch() as folder:
        found = reading_us(folder)
    bare = found.pop("Path.read_text")
    told("Path.read_text of 1 KiB of code", f"{bare:.0f} µs")
    for name, us in found.items():
        what = name if name.startswith("refused") else f"read_file of the same, {name}"
        told(what, f"{us:.0f} µs", f"ratio {us / bare:.2f}")


def the_box() -> None:
    level = probe().level
    true = shutil.which("true") or "/bin/true"
    with scratch() as folder:
        boxed = median_ms(lambda: run([true], Box(folder), level), 40)
        bare = median_ms(lambda: subprocess.run([true], check=True), 40)
    told(f"one command in the box (level {level.value})", f"{boxed:.1f} ms", f"subprocess.run: {bare:.1f} ms")


def conversation() -> None:
    with scratch() as folder:
        bodies = twenty_turns(folder)
        sent = sum(len(piece) for body in bodies for piece in spoken(body))
        told(f"a mission of {len(bodies)} turns, in the cached prefix", f"{cached_share(bodies) * 100:.1f} %",
             f"of {sent:,} bytes sent; without a cache 0 %")


def git_work() -> None:
    """Branch, worktree, a commit of one file, removal: with placet, and with the git commands that do the same."""
    for count, times in ((10, 21), (10_000, 5)):
        with scratch() as folder:
            os.environ.update(settle_home(folder / "home"))
            path = make_repo(folder / "repo", {f"{n % 100}/{n}.txt": f"{n}\n" for n in range(count)})
            time.sleep(0.2)  # git's configuration is believed once it is older than a file system's clock tick
            ours, bare, calls = [], [], []
            for n in range(times):
                calls.clear()
                began = time.perf_counter()
                repo = open_repo(path, on_call=calls.append)
                now = datetime.now(UTC)
                tree = add_worktree(repo, folder / "ours" / f"{n:08}", free_branch(repo, "say-hello", f"{n:08}", now), head(repo))
                (tree.path / "new.txt").write_text("new\n")
                commit(tree, "Say hello\n", identity(repo), now, paths=["new.txt"])
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
        mine, beside = statistics.median(ours) * 1000, statistics.median(bare) * 1000
        told(f"branch, worktree, commit, removal on {count:,} files", f"{mine:.0f} ms",
             f"git: {beside:.0f} ms, ratio {mine / beside:.2f}; {len(calls)} git processes, 5 of them for the commit")


def main() -> None:
    for bench in (command_line, reading, git_work, the_box, idle, drop_to_detected, scan_cost, start_up, conversation):
        bench()


if __name__ == "__main__":
    main()
