"""Do to files what editors and sync tools do, with file events and with polling alone."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages_api import closed_port
from placet.case.settle import WRITTEN_S
from vaultkit import TestVault, make_vault, running, until

READ = ("request.detected", "request.edited")
CONFIG = """\
[commands]
sandbox = "none"
[daemon]
watch = "{watch}"
scan_interval_s = {interval}
[model]
base_url = "{url}"
"""
"""Nothing is planned: the model cannot be reached.

What counts is which requests are seen, and with which bytes.
"""


def vault_watched(folder: Path, watch: str, interval_s: float) -> TestVault:
    vault = make_vault(folder, ANTHROPIC_API_KEY="sk-ant-test")
    vault.configure(CONFIG.format(watch=watch, interval=interval_s, url=closed_port()))
    return vault


class Desk:
    """A vault under a running daemon, and what of it was seen: path to the sizes that were taken
    for a request's text.
    """

    def __init__(self, vault: TestVault) -> None:
        self.vault = vault
        self.requests = vault.root / "Inbox/Requests"
        self.outside = vault.root / "Notes"
        self.outside.mkdir()

    def seen(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        names: dict[str, str] = {}
        for row in self.vault.rows():
            if row["action_type"] == "request.detected":
                names[row["trace_id"]] = row["metadata"]["path"].removeprefix("Inbox/Requests/")
            if row["action_type"] in READ:
                out.setdefault(names[row["trace_id"]], []).append(row["metadata"]["size"])
        return out

    def await_seen(self, name: str, *sizes: int) -> None:
        """Wait until this request was taken up with a text of this many bytes, then edited to the
        next, and so on.
        """
        until(
            lambda: self.seen().get(name) == list(sizes),
            f"{name} with {sizes}, not {self.seen().get(name)}",
        )

    def await_told(self, side: str, word: str) -> None:
        path = self.vault.root / side
        until(lambda: path.exists() and word in path.read_text(), f"{side} with {word!r}")

    def stamped(self, name: str) -> Path:
        """Wait until the daemon has written its keys into a request, so that a gesture meets no
        write of the daemon's.
        """
        path = self.requests / name
        until(lambda: "trace_id" in path.read_text(errors="replace"), f"{name} is stamped")
        return path


@contextlib.contextmanager
def stopped(process: object) -> Iterator[None]:
    pid = process.pid  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def written_slowly(path: Path) -> bool:
    """Write a file as a slow network does: no piece of it is the request.

    False where the machine was so busy that it rested between two pieces for as long as one that is
    whole.
    """
    longest, last = 0.0, time.monotonic()
    with path.open("w") as out:
        for number in range(8):
            out.write(f"piece {number}\n")
            out.flush()
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            time.sleep(0.12)
    return max(longest, time.monotonic() - last) < WRITTEN_S


@pytest.mark.parametrize(
    ("watch", "interval_s"),
    [("events", 2.0), pytest.param("polling", 0.2, marks=pytest.mark.sweep)],
)
def test_every_editor_gesture_is_seen_once(tmp_path: Path, watch: str, interval_s: float) -> None:
    vault = vault_watched(tmp_path, watch, interval_s)
    desk = Desk(vault)
    requests, outside = desk.requests, desk.outside
    (requests / "at start.md").write_text("It was there.\n")
    behind = vault.root.parent / "elsewhere"
    behind.mkdir()
    (requests / "linked").symlink_to(behind)
    with running(vault):
        desk.await_seen("at start.md", 14)

        (requests / "plain.md").write_text("A plain save.\n")
        (requests / ".saving.md.tmp").write_text("An atomic save.\n")
        (requests / ".saving.md.tmp").rename(requests / "atomic.md")
        (outside / "dragged.md").write_text("Dragged in.\n")
        (outside / "dragged.md").rename(requests / "dragged.md")
        (outside / "folder").mkdir()
        (outside / "folder" / "one.md").write_text("One.\n")
        (outside / "folder" / "two.md").write_text("And two.\n")
        (outside / "folder").rename(requests / "folder")
        odd = os.fsencode(requests) + b"/odd \xff\xfe name.md"
        with open(odd, "wb") as out:  # noqa: PTH123 - a name that is not UTF-8
            out.write(b"Odd.\n")
        (outside / "target.md").write_text("Behind a link.\n")
        (requests / "link.md").symlink_to(outside / "target.md")
        (outside / "hard.md").write_text("A hard link.\n")
        os.link(outside / "hard.md", requests / "hard.md")
        old = outside / "old.md"
        old.write_text("From a backup.\n")
        os.utime(old, (1_000_000_000, 1_000_000_000))
        shutil.copy2(old, requests / "kept time.md")  # cp -p
        (behind / "far.md").write_text("Behind a folder that is a link.\n")
        interrupted: list[str] = []
        while not written_slowly(requests / f"slow {len(interrupted)}.md"):
            interrupted.append(f"slow {len(interrupted)}.md")

        desk.await_seen("plain.md", 14)
        desk.await_seen("atomic.md", 16)
        desk.await_seen("dragged.md", 12)
        desk.await_seen("folder/one.md", 5)
        desk.await_seen("folder/two.md", 9)
        desk.await_seen("hard.md", 13)
        desk.await_seen("kept time.md", 15)
        slow = f"slow {len(interrupted)}.md"  # seen at once, and read again once it is whole
        until(lambda: desk.seen().get(slow, [0])[-1] == 64, "the slow request")
        desk.await_told("Inbox/Requests/link.placet.md", "symbolic link")
        desk.await_told("Inbox/Requests/linked.placet.md", "link")
        desk.await_told("Inbox/Requests/odd \udcff\udcfe name.placet.md", "not UTF-8")
        Path(os.fsdecode(odd)).rename(requests / "odd name.md")
        desk.await_seen("odd name.md", 5)

        # Edits: each changes what is wanted, so each is seen, with the person's bytes and the
        # daemon's keys.
        plain = desk.stamped("plain.md")
        plain.write_text(plain.read_text() + "More.\n")
        atomic = desk.stamped("atomic.md")
        new = outside / "new.md"
        new.write_text(atomic.read_text() + "Yes.\n")
        os.utime(new, (1_000_000_000, 1_000_000_000))
        new.replace(atomic)  # a sync tool: the new text with an old time
        kept = desk.stamped("kept time.md")
        times = kept.stat()
        text = kept.read_text()
        kept.write_text(text.replace("backup", "BACKUP"))
        os.utime(kept, ns=(times.st_atime_ns, times.st_mtime_ns))  # the same size and time
        # the same request under a new name
        desk.stamped("dragged.md").rename(requests / "renamed.md")
        desk.stamped("folder/one.md").rename(requests / "one up.md")
        until(lambda: len(desk.seen()["plain.md"]) == 2, "the plain edit")
        until(lambda: len(desk.seen()["atomic.md"]) == 2, "the atomic edit")
        until(lambda: len(desk.seen()["kept time.md"]) == 2, "the edit that hides")

        # From one watched folder to another: the request itself has no business in Active.
        desk.stamped("hard.md").rename(vault.root / "System/Active/hard.md")
        desk.await_told("System/Active/hard.placet.md", "This is a request, not a plan")
        (vault.root / "System/Active/hard.md").rename(requests / "hard.md")
        until(
            lambda: not (vault.root / "System/Active/hard.placet.md").exists(),
            "the explanation goes",
        )
        (requests / "folder/two.md").unlink()
        vault.await_action("request.withdrawn")
        (requests / "last.md").write_text("The last.\n")
        desk.await_seen("last.md", 10)

    seen = {name: sizes for name, sizes in desk.seen().items() if name not in interrupted}
    twice = {name for name, sizes in seen.items() if len(sizes) != 1} - {slow}
    assert twice == {"plain.md", "atomic.md", "kept time.md"}
    assert len(seen[slow]) <= 2
    assert len(seen) == 11, f"each once, and nothing else: {sorted(seen)}"
    assert len(vault.rows("request.withdrawn")) == 1
    assert "trace_id" not in (outside / "target.md").read_text()
    assert (behind / "far.md").read_text() == "Behind a folder that is a link.\n"
    assert vault.rows("daemon.started")[0]["metadata"]["watch"] == watch
    assert "plan.created" not in vault.actions()


def detected(vault: TestVault) -> int:
    """How many requests the journal has."""
    with contextlib.closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as connection:
        return int(
            connection.execute(
                "SELECT count(*) FROM activity WHERE action_type = 'request.detected'"
            ).fetchone()[0]
        )


def pending(vault: TestVault) -> int:
    """How many commands the daemon has recorded and not performed."""
    with contextlib.closing(sqlite3.connect(f"file:{vault.db}?mode=ro", uri=True)) as connection:
        return int(
            connection.execute("SELECT count(*) FROM outbox WHERE done_at IS NULL").fetchone()[0]
        )


def burst(tmp_path: Path, count: int, patience_s: float, watch: str = "events") -> None:
    vault = vault_watched(tmp_path, watch, 2.0)
    requests = vault.root / "Inbox/Requests"
    with running(vault) as process:
        with stopped(process):
            for number in range(count):
                (requests / f"{number}.md").write_text(f"Wish {number}.\n")
        began = time.monotonic()
        until(lambda: detected(vault) >= count // 4, f"a quarter of {count} requests", patience_s)
        asked = time.monotonic()
        process.terminate()
        process.wait(timeout=120)
        took_s = time.monotonic() - asked
        assert process.returncode == 0
    with running(vault) as process:
        until(lambda: detected(vault) >= count, f"{count} requests", patience_s)
        until(lambda: not pending(vault), "every request is stamped", patience_s)
        print(
            f"{count} files while the daemon was stopped, {watch}: all seen and stamped {time.monotonic() - began:.1f} s after "
            f"it went on, a SIGTERM in the middle heeded after {took_s:.1f} s"
        )
    paths = [row["metadata"]["path"] for row in vault.rows("request.detected")]
    assert sorted(paths) == sorted(f"Inbox/Requests/{number}.md" for number in range(count)), (
        "each once"
    )
    assert len({row["trace_id"] for row in vault.rows("request.detected")}) == count


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("count", "watch"), [(50_000, "events"), (10_000, "polling")])
def test_overflowing_burst_loses_nothing(tmp_path: Path, count: int, watch: str) -> None:
    burst(tmp_path, count, 1500, watch)


def test_four_thousand_handles_in_use_are_no_hindrance(tmp_path: Path) -> None:
    """Their numbers are beyond what select(2) can name."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_200:
        pytest.skip("this user may not have so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_200), hard))
    vault = vault_watched(tmp_path, "events", 2.0)
    desk = Desk(vault)
    with contextlib.ExitStack() as held:
        handles = [held.enter_context(Path(os.devnull).open()).fileno() for _ in range(4_000)]
        process = held.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "placet", "run"],
                cwd=vault.root,
                env=vault.env,
                pass_fds=handles,
                stderr=subprocess.DEVNULL,
            )
        )
        try:
            vault.await_action("daemon.started")
            (desk.requests / "plain.md").write_text("A plain save.\n")
            desk.await_seen("plain.md", 14)
        finally:
            process.terminate()
            process.wait(timeout=120)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
