"""Attack the sandbox at every level, and run each attack without a sandbox for comparison.

Tests that need bubblewrap or Landlock are skipped on machines without them.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import selectors
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placet.errors import ToolError, UserError
from placet.host.signers import DAEMON_KEY, daemon_key
from placet.sandbox import levels, seccomp, visible_paths
from placet.sandbox.box import Box, BoxLimits, Level
from placet.sandbox.cleanup import end_left_behind, scratch_prefix, temporary
from placet.sandbox.probe import GAPS, NAMES, Probe, probe
from placet.sandbox.run import Kept, exec_in_box, run
from placet.sandbox.seccomp import Sockets

DAEMON = Path(__file__).parents[2] / "daemon"
LINUX = sys.platform == "linux"
SCRUBBED = {"inherit_environment", "allocate", "write_large_file", "keep_privileges"}
"""What is prevented at level 0 too."""


@cache
def probed(level: Level) -> Probe:
    return probe(level)


def needs(level: Level) -> None:
    if not LINUX:
        pytest.skip("the Linux levels")
    start = [f for f in probed(level).attempts if f.level is level and f.attack == "start"]
    if start:
        pytest.skip(f"{level.title} does not start on this machine: {start[0].detail}")


@pytest.fixture(params=[Level.BUBBLEWRAP, Level.LANDLOCK, Level.NONE], ids=lambda level: level.name)
def level(request: pytest.FixtureRequest) -> Level:
    chosen: Level = request.param
    needs(chosen)
    return chosen


@pytest.fixture(params=[Level.BUBBLEWRAP, Level.LANDLOCK], ids=lambda level: level.name)
def wall(request: pytest.FixtureRequest) -> Level:
    chosen: Level = request.param
    needs(chosen)
    return chosen


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A folder, with nothing beside it."""
    (tmp_path / "tree").mkdir()
    return Box(tmp_path / "tree")


@pytest.fixture
def git_box(tmp_path: Path) -> Box:
    """A git worktree beside its repository."""
    main, tree = tmp_path / "main", tmp_path / "tree"
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(main)]
    main.mkdir()
    for command in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
        ["worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(
            [*git, *command], check=True, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        )
    return Box(tree, read_only=(main / ".git",))


def limited(box: Box, **limits: float) -> Box:
    return Box(box.worktree, box.read_only, box.network, BoxLimits(**limits))  # type: ignore[arg-type]  by name


# ---- the attacks


@pytest.mark.parametrize("attack", NAMES)
def test_bubblewrap_blocks_attack_that_works_without_sandbox(attack: str) -> None:
    needs(Level.BUBBLEWRAP)
    control = {f.attack: f.blocked for f in probed(Level.NONE).attempts}
    walled = {
        f.attack: f.blocked
        for f in probed(Level.BUBBLEWRAP).attempts
        if f.level is Level.BUBBLEWRAP
    }
    if attack in SCRUBBED | {"fork_many"} | (set() if os.geteuid() == 0 else {"change_kernel"}):
        assert control[attack]
    elif attack == "io_uring" and control[attack]:
        pytest.skip("this kernel has no io_uring to attack")
    else:
        assert not control[attack]
    assert walled[attack]


def test_at_least_18_attacks_work_without_sandbox() -> None:
    found = probed(Level.NONE)
    assert found.level is Level.NONE
    assert sum(not f.blocked for f in found.attempts) >= 18


def test_landlock_leaves_exactly_the_gaps_it_documents() -> None:
    needs(Level.LANDLOCK)
    found = probed(Level.LANDLOCK)
    assert found.level is Level.LANDLOCK
    gaps = {f.attack for f in found.attempts if not f.blocked}
    assert gaps == GAPS[Level.LANDLOCK]


def test_level_is_3_where_bubblewrap_works() -> None:
    needs(Level.BUBBLEWRAP)
    assert probe().level is Level.BUBBLEWRAP


def test_probe_falls_back_to_writable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    level = probe().level
    monkeypatch.setenv("HOME", str(tmp_path))

    def folder(**options: object) -> tempfile.TemporaryDirectory[str]:
        asked.append(options.get("dir"))
        if options.get("dir") == Path("/var/tmp"):
            raise OSError(errno.EROFS, "Read-only file system", "/var/tmp/x")
        return tempfile.TemporaryDirectory(prefix="placet-probe-", dir=options.get("dir"))

    monkeypatch.setattr("placet.sandbox.probe._folder", folder)
    assert probe().level is level
    assert asked[:2] == [Path("/var/tmp"), tmp_path]
    assert list(tmp_path.iterdir()) == []


def python_as_anybody(source: str, home: Path, wrap: tuple[str, ...] = ()) -> str:
    """Run Python source as an ordinary user, or as ourselves if that is what we are.

    Return its output.
    """
    python, user = sys.executable, None
    if os.geteuid() == 0:
        python, user = "/usr/bin/python3", 1000
        version = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info >= (3, 11))"],
            capture_output=True,
            text=True,
        )
        if version.stdout.strip() != "True":
            pytest.skip("the system's Python is too old to be run as another user")
        # a run that was killed leaves its own behind
        home = Path(tempfile.mkdtemp(prefix="placet-test-", dir="/var/tmp"))
        home.chmod(0o755)
        os.chown(home, 1000, 1000)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(DAEMON),
        "HOME": str(home),
        "KEY": "canary-key",
    }
    try:
        (home / "notes.md").write_text("private")
        done = subprocess.run(
            [*wrap, python, "-B", "-c", source],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        if user is not None:
            shutil.rmtree(home)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROBE = """
from placet.sandbox.probe import probe
found = probe()
print(int(found.level))
for f in found.attempts:
    if not f.blocked:
        print(f.level, f.attack, f.detail)
"""


def test_ordinary_user_reaches_level_3_without_gaps(tmp_path: Path) -> None:
    needs(Level.BUBBLEWRAP)
    assert python_as_anybody(PROBE, tmp_path).split() == ["3"]


def test_probe_finds_level_2_without_user_namespaces(tmp_path: Path) -> None:
    needs(Level.BUBBLEWRAP)
    needs(Level.LANDLOCK)
    # Bubblewrap is there and starts, but the kernel refuses it a namespace.
    wrap = ("bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/", "--")
    said = python_as_anybody(PROBE, tmp_path, wrap).splitlines()
    assert said[0] == "2"
    assert said[1].startswith("3 start the sandbox (bubblewrap + seccomp) failed: bwrap: ")


def test_command_cannot_read_or_write_intents(wall: Level, tmp_path: Path) -> None:
    """They lie beside the mission's worktree; whoever writes one approves a plan."""
    tree, intents = tmp_path / "worktrees" / "x", tmp_path / "intents"
    tree.mkdir(parents=True)
    intents.mkdir(0o700)
    (intents / "one.json").write_text("{}")
    source = f"ls {intents}; cat {intents}/one.json; echo x > {intents}/two.json; ls {tmp_path}"
    ran = run(["sh", "-c", source], Box(tree), wall)
    assert "one.json" not in ran.stdout
    assert "{}" not in ran.stdout
    assert [path.name for path in intents.iterdir()] == ["one.json"]


def test_command_cannot_read_daemons_key(wall: Level, tmp_path: Path) -> None:
    tree = tmp_path / "worktrees" / "x"
    tree.mkdir(parents=True)
    key = daemon_key(tmp_path)
    source = f"ls {tmp_path}; cat {key} || cat ../../{DAEMON_KEY}; echo x > {key}"
    ran = run(["sh", "-c", source], Box(tree), wall)
    assert "PRIVATE KEY" not in ran.stdout
    assert DAEMON_KEY not in ran.stdout
    assert daemon_key(tmp_path).read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


# ---- nothing survives

FAMILY = """
import os, signal, sys, time
def leaf():
    print("up", flush=True)
    open(f"up-{os.getpid()}", "w").close()
    time.sleep(60)
    os._exit(0)
def child(*before):
    if os.fork() == 0:
        for deed in before:
            deed()
        leaf()
def daemonise():
    os.setsid()
    if os.fork():
        os._exit(0)
def deaf():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
child(); child(os.setsid); child(daemonise); child(deaf); child(daemonise, deaf)
if "end" in sys.argv:
    time.sleep(0.3); sys.exit(3)
leaf()
"""
MEMBERS = 6


def alive(marker: str) -> int:
    """How many processes carry this marker on their command line and are more than zombies."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            # The walls carry the command line too; the family itself begins with python.
            count += (
                marker.encode() in arguments and arguments[1:2] == [b"-c"] and state not in "ZX"
            )
    return count


def wait_for(truth: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not truth():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def family(marker: str, *more: str) -> list[str]:
    return ["python3", "-c", FAMILY, marker, *more]


def test_no_process_survives_the_time_limit(
    level: Level, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time runs out as soon as all of them have said so, which a busy machine takes longer for."""
    marker = f"family-{os.getpid()}-{level}"
    now, skipped_s = time.monotonic, 0.0

    def look() -> bool:
        nonlocal skipped_s
        skipped_s = 600.0 if len(list(box.worktree.glob("up-*"))) == MEMBERS else 0.0
        return False

    monkeypatch.setattr(
        "placet.sandbox.run.time",
        SimpleNamespace(monotonic=lambda: now() + skipped_s, sleep=time.sleep),
    )
    began = now()
    ran = run(family(marker), limited(box, timeout_s=600), level, cancelled=look)
    assert alive(marker) == 0
    assert (ran.exit_code, ran.killed) == (None, "time")
    assert ran.stdout == "up\n" * MEMBERS
    assert 600 <= now() + skipped_s - began < 655  # they would sleep for 60 s


def at_work_in(folder: Path) -> list[int]:
    """The processes whose command line names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += (
                    [int(entry.name)]
                    if os.fsencode(folder) in (entry / "cmdline").read_bytes() and state not in "ZX"
                    else []
                )
            except OSError:
                continue
    return found


def test_timeout_during_box_start_leaves_no_process(level: Level, box: Box) -> None:
    for number in range(40):
        ran = run(["sleep", "60"], limited(box, timeout_s=0.001 * (number + 1)), level)
        assert (ran.killed, ran.exit_code) == ("time", None)
    assert at_work_in(box.worktree) == []


def test_command_starts_for_either_launcher_message_order(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which process is the namespace's first, and that the command could begin: a daemon that was
    kept waiting finds both.
    """
    needs(Level.BUBBLEWRAP)

    class Turned(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            time.sleep(0.1)
            return super().select(timeout)[::-1]

    monkeypatch.setattr(selectors, "DefaultSelector", Turned)
    for selector in (
        Turned,
        type("Straight", (Turned,), {"select": lambda self, _=None: Turned.select(self)[::-1]}),
    ):
        monkeypatch.setattr(selectors, "DefaultSelector", selector)
        ran = run(["echo", "hello"], limited(box, timeout_s=20), Level.BUBBLEWRAP)
        assert (ran.exit_code, ran.stdout, ran.killed) == (0, "hello\n", "")


RUNS = """
import sys; from pathlib import Path, PurePosixPath
from placet.sandbox.box import Box, Level; from placet.sandbox.run import run
boxes = [Box(Path(folder)) for folder in sys.argv[2:]]
print("ready", flush=True)
sys.stdin.readline()
from threading import Thread
for box in boxes:
    Thread(target=run, args=(["sh", "-c", "touch began; sleep 1; touch done; sleep 60"], box, Level(int(sys.argv[1])))).start()
"""


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.sweep)])
@pytest.mark.thinned(2)
def test_daemon_kill_during_box_start_stops_command(
    level: Level, tmp_path: Path, rounds: int
) -> None:
    """bwrap's own `--die-with-parent` holds only from some moment of its start on."""
    began = 0
    for number in range(rounds):
        folders = [tmp_path / f"{number}" / f"{each}" for each in range(8)]
        for folder in folders:
            folder.mkdir(parents=True)
        with subprocess.Popen(
            [sys.executable, "-c", RUNS, str(int(level)), *map(str, folders)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as daemon:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            daemon.stdout.readline()
            daemon.stdin.write("go\n")
            daemon.stdin.flush()
            time.sleep((number + 0.5) / rounds * 0.08)
            daemon.kill()
        began += sum((folder / "began").exists() for folder in folders)
    time.sleep(1.5)
    assert list(tmp_path.rglob("done")) == []
    left = end_left_behind(tmp_path)
    print(
        f"{rounds * 8} commands, {began} of them had begun when their daemon was killed; {left} boxes were left that never begin"
    )
    assert wait_for(lambda: at_work_in(tmp_path) == [], 30)


def test_cleanup_ends_boxes_only_below_its_folder(level: Level, tmp_path: Path) -> None:
    ours, other = tmp_path / "worktrees/ours", tmp_path / "worktrees of another/other"
    for folder in (ours, other):
        folder.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", RUNS, str(int(level)), str(ours), str(other)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        daemon.stdin.write("go\n")
        daemon.stdin.flush()
        assert wait_for(lambda: (ours / "done").exists() and (other / "done").exists(), 30)
        daemon.send_signal(signal.SIGSTOP)
        try:
            assert list(temporary().glob(f"{scratch_prefix(ours)}*"))
            assert end_left_behind(tmp_path / "worktrees") > 0
            assert not list(temporary().glob(f"{scratch_prefix(ours)}*"))
            assert wait_for(
                lambda: [pid for pid in at_work_in(ours) if pid != daemon.pid] == [], 30
            )
            assert [pid for pid in at_work_in(other) if pid != daemon.pid], (
                "what runs elsewhere is not touched"
            )
        finally:
            daemon.kill()
    assert wait_for(lambda: at_work_in(tmp_path) == [], 30)


def test_no_process_survives_cancellation(level: Level, box: Box) -> None:
    marker = f"cancelled-{os.getpid()}-{level}"
    ran = run(family(marker), box, level, cancelled=lambda: alive(marker) == MEMBERS)
    assert alive(marker) == 0
    assert (ran.exit_code, ran.killed) == (None, "cancelled")


def test_no_process_survives_the_end_of_its_command(level: Level, box: Box) -> None:
    marker = f"ended-{os.getpid()}-{level}"
    ran = run(family(marker, "end"), box, level)
    assert alive(marker) == 0
    assert ran.exit_code == 3


def test_no_process_survives_a_cancellation_that_raises(wall: Level, box: Box) -> None:
    marker = f"raised-{os.getpid()}-{wall}"

    def cancelled() -> bool:
        if alive(marker) == MEMBERS:
            raise RuntimeError("broken")
        return False

    with pytest.raises(RuntimeError, match="broken"):
        run(family(marker), box, wall, cancelled=cancelled)
    assert alive(marker) == 0


def test_no_process_survives_daemon_kill(level: Level, box: Box) -> None:
    marker = f"orphan-{os.getpid()}-{level}"
    source = (
        "import sys; from pathlib import Path; from placet.sandbox.box import *\n"
        "from placet.sandbox.probe import *; from placet.sandbox.run import *\n"
        "run(sys.argv[3:], Box(Path(sys.argv[1])), Level(int(sys.argv[2])))"
    )
    daemon = subprocess.Popen(
        [sys.executable, "-B", "-c", source, str(box.worktree), str(int(level)), *family(marker)],
        env=os.environ | {"PYTHONPATH": str(DAEMON)},
    )
    try:
        assert wait_for(lambda: alive(marker) == MEMBERS or daemon.poll() is not None, 60)
        assert daemon.poll() is None
    finally:
        daemon.kill()
        daemon.wait()
    assert wait_for(lambda: alive(marker) == 0, 30)  # they would sleep for 60 s


def test_background_child_does_not_delay_command(level: Level, box: Box) -> None:
    began = time.monotonic()
    ran = run(["sh", "-c", "sleep 60 & echo hi"], box, level)
    assert (ran.exit_code, ran.stdout) == (0, "hi\n")
    assert time.monotonic() - began < 30


# ---- output


def test_gigabyte_of_output_takes_at_most_20_mb(box: Box) -> None:
    source = """
import re, sys
from pathlib import Path, PurePosixPath
from placet.sandbox.box import *
from placet.sandbox.probe import *
from placet.sandbox.run import *
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
box = Box(Path(sys.argv[1]), limits=BoxLimits(timeout_s=50, kill_output_bytes=2 << 30))
run(["true"], box, Level(int(sys.argv[2])))
before = peak()
ran = run(["sh", "-c", "echo first; head -c 1000000000 /dev/zero; echo last"], box, Level(int(sys.argv[2])))
assert ran.exit_code == 0 and "bytes left out]" in ran.stdout, ran
assert ran.stdout.startswith("first\\n") and ran.stdout.endswith("last\\n"), ran.stdout[-50:]
assert len(ran.stdout) < 70_000
print(peak() - before)
"""
    if not LINUX:
        pytest.skip("reads the peak memory from /proc")
    best = probed(Level.BUBBLEWRAP).level
    done = subprocess.run(
        [sys.executable, "-B", "-c", source, str(box.worktree), str(int(best))],
        env=os.environ | {"PYTHONPATH": str(DAEMON)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 20 * 1024


FILL = """
import os, sys, time
how, count = sys.argv[1], int(sys.argv[2])
if how == "temporary":
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
held = open("held", "wb", buffering=0)
if how == "deleted":
    os.unlink("held")
for number in range(count):
    if how == "deleted":
        held.write(bytes(1 << 20))
    else:
        with open(f"file-{number}", "wb", buffering=0) as file:
            file.write(bytes(0 if how == "empty" else 1 << 20))
    if how != "empty" or number % 20 == 0:
        time.sleep(0.003)
time.sleep(float(sys.argv[3]))
print("done")
"""


@pytest.mark.parametrize("how", ["many", "deleted", "empty", "temporary"])
@pytest.mark.thinned(3)
def test_command_filling_disk_is_killed(level: Level, box: Box, how: str) -> None:
    """No file is larger than its limit, but there are many, or one that no folder shows.

    Each loop ends by itself.

    What it has written it keeps for a while: on a busy machine nobody may have looked before it is
    done.
    """
    count = 20_000 if how == "empty" else 600
    try:
        ran = run(
            ["python3", "-c", FILL, how, str(count), "40"],
            limited(box, disk_bytes=32 << 20, files=1000),
            level,
        )
        assert ran.exit_code is None, ran
        assert ran.stderr.endswith("bytes left]")
        assert (ran.stdout, ran.killed) == ("", "disk")
        assert run(["python3", "-c", FILL, how, "8", "0"], box, level).stdout == "done\n"
    finally:
        for file in box.worktree.glob("*"):
            file.unlink()


MEMORY_FILES = """
import os, sys, time
piece, held = bytes(1 << 20), []
for _ in range(8):
    held.append(os.memfd_create("held"))
    for _ in range(40):
        os.write(held[-1], piece)
        time.sleep(0.004)
time.sleep(float(sys.argv[1]))
print("done")
"""


def test_memfd_memory_counts_against_limit(wall: Level, box: Box) -> None:
    """Each is smaller than a file may be, and RLIMIT_DATA counts none of them."""
    ran = run(
        ["python3", "-c", MEMORY_FILES, "40"],
        limited(box, memory_bytes=128 << 20, shm_bytes=1 << 20),
        wall,
    )
    assert (ran.exit_code, ran.stdout) == (None, "")
    assert ran.killed != "time"
    assert ran.stderr.endswith("bytes of shared memory]")
    assert run(["python3", "-c", MEMORY_FILES, "0"], box, wall).stdout == "done\n"


def test_full_disk_prevents_command_start(wall: Level, box: Box) -> None:
    with pytest.raises(ToolError, match=r"limits\.free_disk_bytes") as caught:
        run(["touch", "made"], limited(box, free_bytes=2**60), wall)
    assert caught.value.error_type == "disk_full"
    assert not (box.worktree / "made").exists()


CROWD = """
import os, signal, sys, time
marker, count = sys.argv[1], 0
for _ in range(1500):
    try:
        child = os.fork()
    except BlockingIOError:
        print("no more", flush=True)
        os.killpg(0, signal.SIGKILL)
    if child == 0:
        os.setsid()
        signal.pause()
    count += 1
time.sleep(20)
print("all", flush=True)
"""


def test_process_limit_applies_to_root_too(wall: Level, box: Box) -> None:
    """A bounded one; they leave their session at once."""
    marker = f"crowd-{os.getpid()}-{wall}"
    began = time.monotonic()
    ran = run(["python3", "-c", CROWD, marker], limited(box, processes=64), wall)
    assert wait_for(lambda: alive(marker) == 0, 15)  # they would be killed after 20 s
    assert "all" not in ran.stdout
    assert time.monotonic() - began < 60
    if os.geteuid() == 0:  # the kernel lets root go on
        assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (
            None,
            "[killed: more than 64 processes]",
        )
    else:
        assert ran.stdout == "no more\n"


def test_excessive_output_kills_command(level: Level, box: Box) -> None:
    began = time.monotonic()
    ran = run(["yes"], limited(box, kill_output_bytes=1_000_000, output_bytes=1000), level)
    assert ran.exit_code is None
    assert ran.killed == "output"
    assert ran.stderr.endswith("[killed: more than 1000000 bytes of output]")
    assert time.monotonic() - began < 30


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(2, 60))
@settings(max_examples=200)
def test_output_buffer_keeps_head_and_tail(pieces: list[bytes], limit: int) -> None:
    kept = Kept(limit)
    for piece in pieces:
        kept.feed(piece)
    whole, half = b"".join(pieces), limit // 2
    assert kept.fed == len(whole)
    assert kept.left_out == max(0, len(whole) - 2 * half)
    if not kept.left_out:
        assert kept.text() == whole.decode("utf-8", "replace")


@given(st.text(min_size=30), st.integers(8, 30))
@settings(max_examples=200)
def test_output_gap_splits_no_character(text: str, limit: int) -> None:
    text = text.replace("\ufffd", "?").replace("[", "(")
    text = text.encode("utf-8", "ignore").decode()
    kept = Kept(limit)
    kept.feed(text.encode())
    if kept.left_out:
        head, gap, tail = kept.text().rpartition("\n[")
        assert gap
        assert text.startswith(head)
        assert text.endswith(tail.partition("]\n")[2])
        assert "\ufffd" not in kept.text()


# ---- what the command gets


def test_command_gets_bare_environment(
    level: Level, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key")
    monkeypatch.setenv("LD_PRELOAD", "")
    ran = run(["env"], box, level)
    names = {line.partition("=")[0] for line in ran.stdout.splitlines()}
    extra = {Level.BUBBLEWRAP: {"PWD"}, Level.NONE: {"TMPDIR"}}
    extra[Level.LANDLOCK] = {"TMPDIR", "GIT_CONFIG_NOSYSTEM"}
    assert names == {"PATH", "HOME", "LANG", "TERM"} | extra[level]
    assert "canary-key" not in ran.stdout


def test_command_reports_exit_code_streams_and_folder(level: Level, box: Box) -> None:
    ran = run(["sh", "-c", "pwd; cat; echo bad >&2; exit 7"], box, level)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (7, f"{box.worktree}\n", "bad\n")
    assert run(["sh", "-c", "kill -9 $$"], box, level).exit_code == 137
    assert run(["cat"], box, level).stdout == ""
    assert run(["sh", "-c", "kill -TERM 0; sleep 9"], box, level).exit_code == 143


NODE = """
new WebAssembly.Memory({initial: 1, maximum: 65536});
console.log(String(require('child_process').execSync('echo noded')));
"""


def test_tool_chains_work_in_sandbox(wall: Level, git_box: Box) -> None:
    tree = git_box.worktree
    (tree / "test_a.py").write_text("def test_a(tmp_path):\n    (tmp_path / 'a').write_text('x')\n")
    (tree / "source").write_text('#include <stdio.h>\nint main(){puts("built");return 0;}')
    (tree / "Makefile").write_text("all:\n\t@echo made\n")
    commands = {
        ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"): "1 passed",
        ("python3", "-c", "import ssl, sqlite3; print('ready')"): "ready",
        ("git", "status", "--short"): "?? Makefile",
        ("git", "log", "--format=%s"): "first",
        ("make",): "made",
        ("node", "-e", NODE): "noded",
        ("cargo", "--version"): "cargo",
        ("cc", "-xc", "-o", "built", "source"): "",
    }
    here = {words: said for words, said in commands.items() if shutil.which(words[0])}
    assert here
    if shutil.which("cc"):
        here[("./built",)] = "built"
    for words, said in here.items():
        ran = run(words, git_box, wall)
        assert ran.exit_code == 0, (words, ran)
        assert said in ran.stdout, (words, ran)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has no capabilities")
def test_command_run_by_root_has_no_capabilities(wall: Level, box: Box) -> None:
    ran = run(
        [
            "python3",
            "-c",
            "import os\nprint(open('/proc/self/status').read())\nos.setgroups([]); os.setuid(1)",
        ],
        box,
        wall,
    )
    assert re.findall(r"Cap(?:Prm|Eff|Bnd|Amb):\s+(\w+)", ran.stdout) == ["0" * 16] * 4
    assert ran.exit_code == 1


def test_git_is_read_only(wall: Level, git_box: Box) -> None:
    box = git_box
    pointer = (box.worktree / ".git").read_bytes()
    hook = box.read_only[0] / "hooks" / "post-commit"
    (box.worktree / "new").write_text("x")
    assert run(["git", "add", "new"], box, wall).exit_code == 128
    run(
        ["sh", "-c", f"echo x > {hook}; rm -rf .git; mkdir .git; echo evil > .git/config"],
        box,
        wall,
    )
    assert not hook.exists()
    assert (box.worktree / ".git").read_bytes() == pointer
    assert (box.worktree / "new").exists()


def test_landlock_refuses_unprotectable_git_folder(tmp_path: Path) -> None:
    needs(Level.LANDLOCK)
    (tmp_path / ".git").mkdir()
    with pytest.raises(UserError, match="cannot protect it"):
        run(["true"], Box(tmp_path), Level.LANDLOCK)


def test_bare_program_name_never_resolves_into_worktree(
    level: Level, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = box.worktree / "bin" / "planted"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\necho planted $0\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}:relative:{os.environ['PATH']}")
    with pytest.raises(ToolError) as refused:
        run(["planted"], box, level)
    assert refused.value.error_type == "command_not_found"
    assert run(["bin/planted"], box, level).stdout == f"planted {planted}\n"
    assert run(["./bin/planted"], box, level).exit_code == 0
    assert str(box.worktree) not in run(["sh", "-c", "echo $PATH"], box, level).stdout


def test_unreadable_path_entries_are_ignored(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # to look at a name of that length is an error for root too
    closed, unseen = tmp_path / "closed", f"/{'x' * 300}"
    (closed / "bin").mkdir(parents=True)
    closed.chmod(0)
    monkeypatch.setenv("PATH", f"{closed}/bin:{unseen}:{os.environ['PATH']}")
    monkeypatch.setenv("RUSTUP_HOME", unseen)
    seen = visible_paths.see(box).path
    closed.chmod(0o700)
    assert unseen not in seen
    assert (str(closed / "bin") in seen) == (os.geteuid() == 0)
    assert "/usr/bin" in seen


@pytest.mark.parametrize(
    ("argv", "kind", "refused"),
    [
        (["no-such-program"], "command_not_found", False),
        (["./missing"], "command_not_found", False),
        (["./plain"], "not_executable", False),
        (["../main/x"], "outside_worktree", True),
        (["true", "a\0b"], "invalid_argument", False),
        ([], "empty_command", False),
    ],
)
def test_unrunnable_command_error_says_why(
    box: Box, argv: list[str], kind: str, refused: bool
) -> None:
    (box.worktree / "plain").write_text("x")
    with pytest.raises(ToolError) as error:
        run(argv, box, Level.NONE)
    assert (error.value.error_type, error.value.refused) == (kind, refused)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with programs and secrets in the usual places; PATH leads into it."""
    home = tmp_path / "home"
    programs = (
        "bin/mine",
        ".local/bin/tool",
        ".cargo/bin/crate",
        ".pyenv/shims/shim",
        "venv/bin/venv-tool",
    )
    for name in programs:
        program = home / name
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {program.name}\n")
        program.chmod(0o755)
    for name in (".ssh/id", ".cargo/credentials.toml", ".local/share/keyrings/key", ".local/lib/module",
                 ".pyenv/libexec/pyenv", "lib/letter", "venv/pyvenv.cfg", "venv/lib/module"):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("content")
    path = ["bin", ".local/bin", ".cargo/bin", ".pyenv/shims", "venv/bin", ""]
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(
        "PATH", ":".join([*(str(home / entry) for entry in path), os.environ["PATH"]])
    )
    return home


def test_sandbox_shows_only_tool_chains_of_home(wall: Level, box: Box, home: Path) -> None:
    for program in ("mine", "tool", "crate", "shim", "venv-tool"):
        assert run([program], box, wall).stdout == f"{program}\n"
    for name in (".local/lib/module", ".pyenv/libexec/pyenv", "venv/lib/module"):
        assert run(["cat", str(home / name)], box, wall).stdout == "content"
    for name in (".ssh/id", ".cargo/credentials.toml", ".local/share/keyrings/key", "lib/letter"):
        assert run(["cat", str(home / name)], box, wall).exit_code == 1
    assert str(home) not in visible_paths.see(box).path


def test_added_readable_folder_is_not_writable(wall: Level, box: Box, tmp_path: Path) -> None:
    added = tmp_path / "data"
    added.mkdir()
    (added / "a").write_text("added")
    more = Box(box.worktree, box.read_only, readable=(added,))
    assert run(["cat", str(added / "a")], box, wall).exit_code == 1
    assert run(["cat", str(added / "a")], more, wall).stdout == "added"
    assert run(["touch", str(added / "b")], more, wall).exit_code == 1


# ---- what the checkout has besides the commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with an environment and dependencies that git ignores."""
    checkout = tmp_path / "src" / "app"
    for name, text in (
        ("code.py", "checkout"),
        (".venv/pyvenv.cfg", f"home = {Path(sys.base_prefix, 'bin')}"),
        (".venv/lib/module", "installed"),
        (".venv/bin/tool", f"#!{checkout}/.venv/bin/sh\ncat {checkout}/code.py\n"),
        ("web/node_modules/x/index.js", "x"),
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    (checkout / ".venv/bin/sh").symlink_to("/bin/sh")
    (checkout / ".venv/bin/tool").chmod(0o755)
    return checkout


@pytest.fixture
def mission(checkout: Path, tmp_path: Path) -> Box:
    """A worktree of that repository with its own code, shown in its place."""
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(checkout)]
    tree = tmp_path / "state" / "mission"
    (checkout / ".gitignore").write_text(".venv/\nnode_modules/\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"],
                    ["worktree", "add", "-q", str(tree)]):  # fmt: skip
        subprocess.run([*git, *command], check=True)
    (tree / "code.py").write_text("mission")
    return Box(
        tree,
        checkout=checkout,
        shared=(PurePosixPath(".venv"), PurePosixPath("web/node_modules")),
        git=(checkout / ".git", checkout / ".git/worktrees/mission"),
    )


def test_commands_see_mission_in_place_of_checkout(mission: Box, checkout: Path) -> None:
    needs(Level.BUBBLEWRAP)
    assert run(["pwd"], mission, Level.BUBBLEWRAP).stdout == f"{checkout}\n"
    for program in ("tool", ".venv/bin/tool", f"{checkout}/.venv/bin/tool"):
        assert run([program], mission, Level.BUBBLEWRAP).stdout == "mission", program


def test_project_comes_first_on_path_and_placet_last(
    mission: Box, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placet = str(Path(sys.executable).parent)
    (checkout / "bin").mkdir()
    monkeypatch.setattr(sys, "prefix", str(Path(placet).parent))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setenv("PATH", f"{placet}:{checkout}/bin:{mission.worktree}:/usr/bin:/bin")
    path = visible_paths.see(mission).path
    assert path[0] == f"{checkout}/.venv/bin"
    assert path[-1] == placet
    assert path.count(placet) == 1
    assert not {f"{checkout}/bin", str(mission.worktree)} & {*path}


def test_git_reads_in_place_of_checkout(mission: Box) -> None:
    needs(Level.BUBBLEWRAP)
    seen = run(["git", "status", "--porcelain"], mission, Level.BUBBLEWRAP)
    assert (seen.stdout, seen.exit_code) == (" M code.py\n", 0), seen
    for command in (["git", "commit", "-aqm", "x"], ["git", "config", "a.b", "c"]):
        assert run(command, mission, Level.BUBBLEWRAP).exit_code != 0


def test_dependencies_are_shown_read_only(wall: Level, mission: Box, checkout: Path) -> None:
    for path in (".venv/lib/module", "web/node_modules/x/index.js"):
        assert run(["cat", path], mission, wall).stdout == (checkout / path).read_text()
        assert run(["sh", "-c", f"echo changed > {path}"], mission, wall).exit_code != 0
    assert sorted(p.name for p in mission.worktree.iterdir()) == [".git", ".gitignore", "code.py"]


def test_sockets_in_shown_folders_are_masked(
    mission: Box, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(Level.BUBBLEWRAP)
    (tmp_path / "tool/bin").mkdir(parents=True)
    (tmp_path / "tool/lib").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/tool/bin:{os.environ['PATH']}")
    source = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    places = {
        ".git/s": "/run/placet/git/s",
        ".venv/s": f"{checkout}/.venv/s",
        "web/node_modules/x/s": "web/node_modules/x/s",
        "../../tool/lib/s": f"{tmp_path}/tool/lib/s",
    }
    for real, shown in places.items():
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str((checkout / real).resolve()))
            server.listen()
            assert (
                run(
                    ["python3", "-c", source, str((checkout / real).resolve())], mission, Level.NONE
                ).exit_code
                == 0
            )
            ran = run(["python3", "-c", source, shown], mission, Level.BUBBLEWRAP)
            assert "ConnectionRefusedError" in ran.stderr, (real, ran)


def test_login_of_pip_is_masked(mission: Box, checkout: Path) -> None:
    needs(Level.BUBBLEWRAP)
    (checkout / ".venv/pip.conf").write_text("index-url = https://ann:word@pip.example.org")
    ran = run(["cat", ".venv/pip.conf"], mission, Level.BUBBLEWRAP)
    assert (ran.stdout, ran.exit_code) == ("", 0)


def test_used_or_linked_place_is_left_alone(wall: Level, mission: Box) -> None:
    (mission.worktree / ".venv").mkdir()
    (mission.worktree / ".venv/mine").write_text("mine")
    (mission.worktree / "web").symlink_to("/")
    assert run(["cat", ".venv/mine"], mission, wall).stdout == "mine"
    assert run(["ls", "web/node_modules"], mission, wall).exit_code != 0
    assert (mission.worktree / ".venv/mine").read_text() == "mine"


def test_program_of_checkout_alone_is_named(wall: Level, mission: Box, checkout: Path) -> None:
    (checkout / "build").mkdir()
    (checkout / "build/app").write_text("")
    with pytest.raises(ToolError, match="is in your checkout, but git ignores it"):
        run(["build/app"], mission, wall)


def test_home_has_its_place_and_only_caches(wall: Level, box: Box, home: Path) -> None:
    for name in ("registry/a", "credentials.toml", "config.toml"):
        (home / ".cargo" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / ".cargo" / name).write_text("[net]\noffline = true\n")
    (home / ".m2/repository").mkdir(parents=True)
    (home / ".m2/settings.xml").write_text("login")
    visible_paths._see.cache_clear()
    listed = run(["sh", "-c", "cd ~/.cargo; ls; ls ~/.m2; touch ~/mine"], box, wall)
    assert listed.stdout.split()[-3:] == ["config.toml", "registry", "repository"], listed
    assert not (home / "mine").exists()
    if wall is Level.BUBBLEWRAP:
        assert run(["sh", "-c", "echo ~"], box, wall).stdout == f"{home}\n"
    (home / ".cargo/config.toml").write_text("[registry]\ntoken = 'cioAbc123def456ghi789'\n")
    visible_paths._see.cache_clear()
    assert "config" not in run(["sh", "-c", "ls ~/.cargo"], box, wall).stdout


def test_rename_between_folders_works(wall: Level, box: Box) -> None:
    moved = "mkdir a b && touch a/x && mv -T a/x b/x && ln b/x a/y && ls a b"
    ran = run(["sh", "-c", moved], box, wall)
    assert ran.stdout.split() == ["a:", "y", "b:", "x"], ran


def test_own_network_serves_and_connects(box: Box) -> None:
    needs(Level.BUBBLEWRAP)
    source = """
import socket
for family, place in (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "s"), (socket.AF_UNIX, "\\0s"):
    with socket.create_server(place, family=family) if family == socket.AF_INET else socket.socket(family) as server:
        if family == socket.AF_UNIX:
            server.bind(place)
            server.listen()
        with socket.socket(family) as client:
            client.connect(server.getsockname())
            print("open")
"""
    assert run(["python3", "-c", source], box, Level.BUBBLEWRAP).stdout.split() == ["open"] * 3


# ---- network

CONNECT = """
import socket, sys
places = {socket.AF_INET: ("127.0.0.1", int(sys.argv[1])), socket.AF_UNIX: "\\0" + sys.argv[2]}
for family, where in places.items():
    try:
        with socket.socket(family) as s:
            s.settimeout(2); s.connect(where); print("open")
    except OSError as error:
        print("closed")
socket.socketpair()
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); print("open")
except OSError:
    print("closed")
"""


@pytest.mark.parametrize("network", [True, False])
def test_network_permission_opens_only_tcp_to_machine(wall: Level, box: Box, network: bool) -> None:
    name = f"placet-{os.getpid()}-{threading.get_ident()}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind("\0" + name)
        unix.listen()
        command = ["python3", "-c", CONNECT, str(tcp.getsockname()[1]), name]
        ran = run(command, Box(box.worktree, network=network), wall)
        has_own_network = wall is Level.BUBBLEWRAP and not network
        pair = "open" if has_own_network else "closed"
        assert ran.stdout.split() == ["open" if network else "closed", "closed", pair], ran


# ---- the filter, decided here for both machines

CALLS = {
    "x86_64": {"read": 0, "socket": 41, "socketpair": 53, "clone": 56, "clone3": 435, "ioctl": 16,
               "ptrace": 101, "fallocate": 285, "open_tree_attr": 467, "prlimit64": 302,
               "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65,
               "semctl": 66, "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70,
               "msgctl": 71, "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242,
               "mq_timedreceive": 243, "mq_notify": 244, "mq_getsetattr": 245},
    "aarch64": {"read": 63, "socket": 198, "socketpair": 199, "clone": 220, "clone3": 435, "ioctl": 29,
                "ptrace": 117, "fallocate": 47, "open_tree_attr": 467, "prlimit64": 261,
                "shmget": 194, "shmat": 196, "shmctl": 195, "shmdt": 197, "semget": 190, "semop": 193,
                "semctl": 191, "semtimedop": 192, "msgget": 186, "msgsnd": 189, "msgrcv": 188,
                "msgctl": 187, "mq_open": 180, "mq_unlink": 181, "mq_timedsend": 182,
                "mq_timedreceive": 183, "mq_notify": 184, "mq_getsetattr": 185},
}  # fmt: skip
SHARED_IPC = [name for name in CALLS["x86_64"] if name.startswith(("shm", "sem", "msg", "mq_"))]
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Interpret the filter: 0 for allowed, else the errno."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    code, at, value = list(struct.iter_unpack("=HBBI", program)), 0, 0
    while True:
        operation, yes, no, constant = code[at]
        at += 1
        match operation:
            case 0x20:
                value = struct.unpack_from("=I", data, constant)[0]
            case 0x54:
                value &= constant
            case 0x15 | 0x35 | 0x45:
                truth = {0x15: value == constant, 0x35: value >= constant, 0x45: value & constant}[
                    operation
                ]
                at += yes if truth else no
            case 0x06:
                return 0 if constant == 0x7FFF0000 else constant & 0xFFFF
            case _:
                raise AssertionError(operation)


@pytest.mark.parametrize("machine", sorted(seccomp.MACHINES))
def test_seccomp_filter_decides_alike_on_both_architectures(machine: str) -> None:
    arch, call = ARCH[machine], CALLS[machine]
    own = seccomp.program(machine, Sockets.OWN, shared=False)
    machines = seccomp.program(machine, Sockets.SHARED, shared=True)
    closed = seccomp.program(machine, Sockets.CLOSED, shared=True)
    thread = 0x3D0F00  # what glibc passes for a thread
    no, absent, unsupported = errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP
    # the results with its own network, with the machine's, and with none of its own
    for name, arguments, *wanted in (
        ("read", (0,), 0, 0, 0),
        ("socket", (socket.AF_INET, 1), 0, 0, no),
        ("socket", (socket.AF_UNIX, 1), 0, no, no),
        ("socket", (socket.AF_INET6, 2, 17), 0, 0, no),
        ("socket", (16, 3, 0), 0, 0, no),  # NETLINK_ROUTE
        ("socket", (16, 3, 4), no, no, no),  # NETLINK_SOCK_DIAG: the machine's unix sockets
        ("socket", (16, 3, 16), no, no, no),
        ("socket", (17, 3), no, no, no),  # AF_PACKET
        ("socket", (38, 5), no, no, no),  # AF_ALG
        ("socket", (40, 1), no, no, no),  # AF_VSOCK
        ("socketpair", (1, 1 | 0o2000000), 0, 0, 0),
        ("socketpair", (1, 2), 0, no, no),
        ("clone", (thread,), 0, 0, 0),
        ("clone", (0x10000000 | 17,), no, no, no),
        ("clone3", (), absent, absent, absent),
        ("ioctl", (0, 0x5413), 0, 0, 0),
        ("ioctl", (0, 0x5412), no, no, no),
        ("ioctl", (0, 0x5412 | 1 << 32), no, no, no),
        ("ioctl", (3, 0x40305828), unsupported, unsupported, unsupported),
        ("ioctl", (3, 0x4030582A), unsupported, unsupported, unsupported),
        ("ioctl", (3, 0x40305839), unsupported, unsupported, unsupported),
        ("fallocate", (3,), unsupported, unsupported, unsupported),
        ("open_tree_attr", (3,), no, no, no),
        ("ptrace", (16,), no, no, no),
        *((call, (), 0, no, no) for call in SHARED_IPC),
        ("prlimit64", (0, 7), 0, 0, 0),
        ("prlimit64", (1234, 7), 0, no, no),
    ):
        found = [decide(one, arch, call[name], *arguments) for one in (own, machines, closed)]
        assert found == wanted, (name, arguments)
    other = next(value for value in ARCH.values() if value != arch)
    assert decide(closed, other, call["read"]) == errno.EPERM
    if machine == "x86_64":
        assert decide(closed, arch, call["read"] | 0x40000000) == errno.ENOSYS
    assert len(closed) // 8 < 4096


HYDRA = """
import os, sys, time
end = time.monotonic() + 20
if os.fork():
    os._exit(0)
for _ in range(40):  # each a chain of processes that begin the next one and end
    if os.fork() == 0:
        os.setsid()
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
        os._exit(0)
"""


def test_fast_forking_process_does_not_outlive_command(tmp_path: Path) -> None:
    """Who looks for processes one by one, and kills them, may always be late here."""
    for level in (Level.LANDLOCK, Level.BUBBLEWRAP):
        needs(level)
        (tmp_path / "hydra-of-this-test.py").write_text(HYDRA)
        for _ in range(2):
            ran = run(["python3", "-I", "-S", "hydra-of-this-test.py"], Box(tmp_path), level)
            assert ran.exit_code == 0, ran.stderr
            left = [
                path
                for path in Path("/proc").glob("[0-9]*/cmdline")
                if b"hydra-of-this-test" in read_or_nothing(path)
            ]
            assert left == []


def read_or_nothing(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.parametrize(
    "script",
    ["kill -9 -1", "kill -9 $PPID", "kill -9 0; sleep 60", "sleep 60 & kill -9 -1; sleep 60"],
)
def test_command_can_kill_only_own_processes(tmp_path: Path, script: str) -> None:
    needs(Level.LANDLOCK)
    with subprocess.Popen(["sleep", "60"]) as other:
        ran = run(
            ["sh", "-c", f"({script}); exit 7"],
            Box(tmp_path, limits=BoxLimits(timeout_s=5)),
            Level.LANDLOCK,
        )
        assert ran.exit_code in (7, 137)
        assert other.poll() is None
        other.kill()


GIT_FOLDER = """
rm .git; mkdir -p .git/objects .git/refs; echo 'ref: refs/heads/main' > .git/HEAD
printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = "touch %s; false"\\n' "$1" > .git/config
find .git -type d -exec chmod a-w {} +; chmod a-w .
"""
DEEP = "import os\nos.chdir(os.environ['TMPDIR'])\nfor _ in range(2000):\n os.mkdir('d'); os.chdir('d')\n"
SHUT = "import os\nt = os.environ['TMPDIR']\nos.makedirs(t + '/a/b')\nos.chmod(t + '/a', 0)\nos.chmod(t, 0)\n"


@pytest.mark.parametrize(
    "command",
    [["sh", "-c", GIT_FOLDER, "sh", "pwned"], ["python3", "-c", DEEP], ["python3", "-c", SHUT]],
    ids=["git-folder", "deep", "shut"],
)
def test_cleanup_removes_deep_or_unwritable_leftovers(
    tmp_path: Path,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs(Level.LANDLOCK)
    scratch, worktree = tmp_path / "tmp", tmp_path / "worktree"
    scratch.mkdir()
    worktree.mkdir()
    (worktree / ".git").write_text("gitdir: /nowhere\n")
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    ran = run(command, Box(worktree), Level.LANDLOCK)
    assert ran.exit_code == 0, ran.stderr
    assert list(scratch.iterdir()) == []
    assert [entry.name for entry in worktree.iterdir()] == [".git"]
    assert (worktree / ".git").read_text() == "gitdir: /nowhere\n"


# ---- the rest


def test_undumpable_daemon_still_starts_commands(tmp_path: Path) -> None:
    needs(Level.BUBBLEWRAP)
    source = """
import subprocess, sys, tempfile
from pathlib import Path, PurePosixPath
from placet.sandbox.box import *
from placet.sandbox.probe import *
from placet.sandbox.run import *
import os
peek = [sys.executable, "-c", f"print('canary-key' in open('/proc/{os.getpid()}/environ').read())"]
before = subprocess.run(peek, capture_output=True, text=True)
make_undumpable()
after = subprocess.run(peek, capture_output=True, text=True)
with tempfile.TemporaryDirectory() as folder:
    ran = run(["echo", "well"], Box(Path(folder)), Level.BUBBLEWRAP)
    low = run(["echo", "well"], Box(Path(folder)), Level.LANDLOCK)
print(before.stdout.strip(), after.returncode, "PermissionError" in after.stderr, ran.stdout, low.stdout)
"""
    assert python_as_anybody(source, tmp_path).split() == ["True", "1", "True", "well", "well"]


def test_failed_sandbox_setup_runs_nothing(wall: Level, box: Box) -> None:
    missing = Box(box.worktree, box.read_only, readable=(box.worktree.parent / "missing",))
    if wall is Level.BUBBLEWRAP:
        with pytest.raises(UserError, match=r"failed: bwrap: Can't find source path"):
            run(["touch", "ran"], missing, wall)
    else:
        # Landlock takes 16 layers and no more.
        done = subprocess.run([sys.executable, "-B", "-c", LAYERS, str(box.worktree)], capture_output=True,
                              text=True, env=os.environ | {"PYTHONPATH": str(DAEMON)})  # fmt: skip
        assert "failed: [Errno 7] landlock_restrict_self" in done.stderr
    assert not (box.worktree / "ran").exists()


LAYERS = """
import ctypes, struct, sys
from pathlib import Path, PurePosixPath
from placet.sandbox.box import *
from placet.sandbox.probe import *
from placet.sandbox.run import *
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
for _ in range(16):
    ruleset = libc.syscall(444, struct.pack("=Q", 1 << 6), ctypes.c_size_t(8), 0)
    assert libc.syscall(446, ruleset, 0) == 0
run(["touch", "ran"], Box(Path(sys.argv[1])), Level.LANDLOCK)
"""


def test_unstartable_program_exits_with_127(level: Level, box: Box) -> None:
    (box.worktree / "broken").write_text("#!/no/such/interpreter\n")
    (box.worktree / "broken").chmod(0o755)
    ran = run(["./broken"], box, level)
    assert ran.exit_code == 127
    assert "No such file" in ran.stderr


def test_concurrent_runs_leak_no_descriptor(level: Level, box: Box) -> None:
    run(["true"], box, level)
    gc.collect()  # what an earlier test left open is closed now, and not while we count
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    said: list[str] = []

    def work(number: int) -> None:
        said.append(run(["sh", "-c", f"sleep 0.1; echo {number}"], box, level).stdout.strip())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["0", "1", "2", "3"]
    # a thread of an earlier test may have closed some
    assert len(list(descriptors.iterdir())) <= before


def test_a_command_inherits_no_descriptor(level: Level, box: Box) -> None:
    if level is Level.LANDLOCK:
        pytest.skip(
            "a child cannot list its own descriptors at this level; the same launcher serves level 0"
        )
    ran = run(["ls", "/proc/self/fd"], box, level)
    assert ran.stdout.split() == ["0", "1", "2", "3"]  # 3 is the listing


def test_run_leaves_temporary_folder_clean(
    level: Level, box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    mess = "mkdir -p $HOME/a/b && touch $HOME/a/b/c && chmod 0 $HOME/a/b && ln -s / $HOME/root"
    assert run(["sh", "-c", mess], box, level).exit_code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_exec_in_box_uses_callers_streams(
    level: Level, box: Box, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert exec_in_box(["sh", "-c", "echo out; echo err >&2; exit 5"], box, level) == (5, ())
    assert capfd.readouterr() == ("out\n", "err\n")
    assert signal.getsignal(signal.SIGINT) is before, (
        "which may be to ignore it: CI may start the suite in the background"
    )


def test_macos_profile_denies_git_after_allowing_worktree(tmp_path: Path) -> None:
    box = Box(tmp_path / 'odd "name"')
    text = levels.profile(box, visible_paths.VisiblePaths((), (), {}), tmp_path / "scratch")
    allowed = text.index(f'(allow file-read* file-write* (subpath "{tmp_path}/odd \\"name\\"")')
    denied = text.index(f'(deny file-write* (subpath "{tmp_path}/odd \\"name\\"/.git")')
    assert text.startswith("(version 1)\n(deny default)\n")
    assert allowed < denied
    assert "network" not in text


@pytest.mark.sweep
def test_box_adds_at_most_25_ms_per_command(box: Box) -> None:
    needs(Level.BUBBLEWRAP)

    def median_ms(deed: Callable[[], object]) -> float:
        times = []
        for _ in range(40):
            began = time.perf_counter()
            deed()
            times.append((time.perf_counter() - began) * 1000)
        return statistics.median(times)

    plain = median_ms(lambda: subprocess.run(["/bin/true"], capture_output=True))
    costs = {level.name: median_ms(lambda level=level: run(["/bin/true"], box, level)) - plain
             for level in (Level.BUBBLEWRAP, Level.LANDLOCK, Level.NONE)}  # fmt: skip
    print(json.dumps({"plain": plain} | costs))
    assert costs["BUBBLEWRAP"] <= 25


def test_box_refuses_worktree_in_read_only_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lies in a read-only path"):
        Box(tmp_path / "a", read_only=(tmp_path,))
