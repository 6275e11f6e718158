"""Run a command in a box with bounded memory, and leave no process behind."""

from __future__ import annotations

import codecs
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from placet.errors import ToolError, UserError
from placet.sandbox.box import Box, BoxLimits, Level, Ran, Reached
from placet.sandbox.cleanup import delete_special_files, temporary
from placet.sandbox.levels import Start, starting


class Kept:
    """Head and tail of a stream, `limit // 2` bytes each, in less than twice as much memory."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.fed = 0

    def feed(self, data: bytes) -> None:
        """Add the next piece of the stream."""
        self.fed += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def left_out(self) -> int:
        """The number of bytes dropped in the middle."""
        return max(0, self.fed - 2 * self._half)

    def text(self) -> str:
        """Return what was kept, as text.

        A line names the number of bytes left out. No character is split.
        """
        if not self.left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = self._tail[-self._half :]
        # A split character leaves at most three continuation bytes. More are broken output, shown
        # as such.
        start = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        return (
            f"{head}\n[{self.left_out} bytes left out]\n{tail[start:].decode('utf-8', 'replace')}"
        )


# Limit the resources of a running command that no kernel limit covers. RLIMIT_FSIZE limits one
# file, but a command may create many. They may be on disk or in memory (memfd_create(2), which
# RLIMIT_DATA does not count). RLIMIT_NPROC does not bind root. So placet polls the disk's free
# space, the machine's shared memory and the number of tasks. Free space cannot be faked: it
# includes deleted files that are open and folders too deep to walk. Polling costs the same for any
# tree.

_PERIOD_S = 0.05  # a disk writes about 100 MB in that time
# how often tasks are counted one by one, even if the machine's total has not grown
_COUNT_PERIOD_S = 1.0


class CommandUsage:
    """The resource usage of one command. Create it before the command starts.

    Other processes that write to the same disk count too. It is better to kill one command too
    many.
    """

    def __init__(self, folders: Sequence[Path], limits: BoxLimits, now_s: float) -> None:
        """Measure the start. Raises ToolError `disk_full` if a disk has too little space."""
        self._limits = limits
        self._least: list[tuple[Path, int, int]] = []
        for folder in folders:
            room, files = _left(folder)
            if room < limits.free_bytes:
                raise ToolError(
                    "disk_full",
                    f"The disk has {room:,} bytes left, and a command needs "
                    f"{limits.free_bytes:,} to start. A person can free space, or lower "
                    "limits.free_disk_bytes.",
                )
            self._least.append(
                (folder, max(limits.free_bytes, room - limits.disk_bytes), files - limits.files)
            )
        self._tasks = _all_tasks() + limits.processes
        # The private /dev/shm is shared memory too, with a limit of its own.
        self._shared = _shared_memory() + limits.memory_bytes + limits.shm_bytes
        self._next_s = now_s + _PERIOD_S
        self._next_count_s = now_s + _COUNT_PERIOD_S

    def exceeded(self, launcher: int, now_s: float) -> str:
        """Return the limit that the command exceeds: `disk`, `memory`, `processes`, or "".

        `launcher` is the id of the process that the daemon started.
        """
        if now_s < self._next_s:
            return ""
        self._next_s = now_s + _PERIOD_S
        for folder, least_room, least_files in self._least:
            room, files = _left(folder)
            if room < least_room or files < least_files:
                return "disk"
        if _shared_memory() > self._shared:
            return "memory"
        # Finding out whose the tasks are is slow. The machine's total is one number, so look closer
        # only if it grew.
        if _binds_not() and (now_s >= self._next_count_s or _all_tasks() > self._tasks):
            self._next_count_s = now_s + _COUNT_PERIOD_S
            if tasks_below(launcher) > self._limits.processes:
                return "processes"
        return ""


def _left(folder: Path) -> tuple[int, int]:
    """Return the free bytes and the free inodes of the folder's disk."""
    found = os.statvfs(folder)
    # btrfs has no inode count
    return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else sys.maxsize


def _shared_memory() -> int:
    """Return the bytes of shared memory on this machine; 0 (no limit) except on Linux."""
    if sys.platform != "linux":
        return 0
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - asked twenty times a second
        return int(file.read().partition(b"Shmem:")[2].split(maxsplit=1)[0]) * 1024


def _binds_not() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


def _all_tasks() -> int:
    if not _binds_not():
        return 0
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def tasks_below(ancestor: int) -> int:
    """Return the number of threads of a process' descendants, as RLIMIT_NPROC counts (Linux)."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - half the cost, and there may be thousands
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123 - as above
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended in between
        parents[int(name)], threads[int(name)] = int(fields[1]), int(fields[17])
    below: set[int] = set()
    new = {pid for pid, parent in parents.items() if parent == ancestor}
    while new:
        below |= new
        new = {pid for pid, parent in parents.items() if parent in new} - below
    return sum(threads[pid] for pid in below)


_POLL_S = 0.1  # how often `cancelled` is polled
_DRAIN_S = 0.5  # how long to read output after the command ended
_DEATH_S = 5.0  # how long a killed box may take to end
_LAUNCHER_DEATH_S = 60.0  # the same for the launcher, which kills processes one by one
_PIECE = 64 * 1024


def run(
    argv: Sequence[str],
    box: Box,
    level: Level,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Ran:
    """Run `argv` (no shell) in `box` at `level` and return its result.

    No process of the command is left when this returns. The command is killed at the time limit,
    when `cancelled` (polled every 0.1 s) returns true, and when it exceeds a limit (see
    `BoxLimits`). Background processes do not outlive it. Standard input is empty. Thread-safe.

    Raises ToolError for a program that is missing or not allowed, or a full disk. Raises UserError
    if the wall cannot be built or breaks; it tries no weaker level.
    """
    began = time.monotonic()
    usage = CommandUsage((box.worktree, temporary()), box.limits, began)
    with starting(argv, box, level, terminal=False) as start:
        process = start.spawn(
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            watch = _Watch(process, start, box, usage)
            try:
                watch.follow(began + box.limits.timeout_s, cancelled)
            finally:
                watch.close()
        reached = start.proxy.report() if start.proxy is not None else ()
    if sys.platform == "linux":
        delete_special_files(box.worktree)
    stdout, stderr = watch.stdout.text(), watch.stderr.text()
    if not watch.verdict:
        code = _exit_code(watch.messages(), stderr, level)
        return Ran(code, stdout, stderr, reached=reached)
    stderr += _exceeded(watch.verdict, box.limits)
    return Ran(None, stdout, stderr, watch.verdict, reached)


def _exceeded(verdict: str, limits: BoxLimits) -> str:
    """Return the sentence about an exceeded limit, "" for other verdicts."""
    used_up = {
        "output": f"more than {limits.kill_output_bytes} bytes of output",
        "disk": f"the disk lost more than {limits.disk_bytes} bytes or {limits.files} files while "
        f"it ran, or has less than {limits.free_bytes} bytes left",
        "memory": f"more than {limits.memory_bytes} bytes of shared memory",
        "processes": f"more than {limits.processes} processes",
    }
    return f"\n[killed: {used_up[verdict]}]" if verdict in used_up else ""


def exec_in_box(argv: Sequence[str], box: Box, level: Level) -> tuple[int, tuple[Reached, ...]]:
    """Run `argv` in the same box with the caller's terminal or pipes.

    Return the exit code, and what it reached of the box's hosts.

    Call it from the main thread: Ctrl-C goes to the command. There is no time limit. A command that
    died by a signal gives 128 + its number. Raises as `run`.
    """
    with starting(argv, box, level, terminal=True) as start:
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            start.spawn().wait()
        finally:
            signal.signal(signal.SIGINT, before)
        reached = start.proxy.report() if start.proxy is not None else ()
        return _exit_code(_messages(start.status.read()), "", level), reached


class _Watch:
    def __init__(
        self, process: subprocess.Popen[bytes], start: Start, box: Box, usage: CommandUsage
    ) -> None:
        self._process = process
        self._usage = usage
        self._start = start
        self._limit = box.limits.kill_output_bytes
        self._status = bytearray()
        self._ended = False
        self._inner: int | None = None
        self._inner_pid = 0
        self._waits = False  # the command was ready, and was not told to start
        self.stdout = Kept(box.limits.output_bytes)
        self.stderr = Kept(box.limits.output_bytes)
        self.verdict = ""

    def follow(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        """Read until the command has ended, or kill it and set `verdict` to the reason."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        ended: float | None = None  # when reading must stop
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ, self.stdout.feed)
            ready.register(self._process.stderr, selectors.EVENT_READ, self.stderr.feed)
            ready.register(self._start.status, selectors.EVENT_READ, self._take_status)
            if self._start.handshake is not None:
                ready.register(self._start.handshake, selectors.EVENT_READ, self._take_ready)
            while ready.get_map():
                now = time.monotonic()
                if ended is None and (verdict := self._why_kill(now, deadline, cancelled)):
                    self.verdict = verdict
                    self._kill()
                    ended = now + _DRAIN_S
                if ended is not None and now >= ended:
                    break
                for key, _ in ready.select(min(_POLL_S, max(0.0, (ended or deadline) - now))):
                    try:
                        data = os.read(key.fd, _PIECE)
                    except ConnectionResetError:
                        data = b""  # the command was killed before it read the answer
                    key.data(data)
                    if not data:
                        ready.unregister(key.fileobj)
                        if key.fileobj is self._start.status and ended is None:
                            self._ended = True
                            ended = time.monotonic() + _DRAIN_S

    def _why_kill(self, now: float, deadline: float, cancelled: Callable[[], bool]) -> str:
        if self.stdout.fed + self.stderr.fed > self._limit:
            return "output"
        if now >= deadline:
            return "time"
        if cancelled():
            return "cancelled"
        return self._usage.exceeded(self._process.pid, now)

    def _take_status(self, data: bytes) -> None:
        self._status += data
        if self._inner is None and b"child-pid" in self._status and sys.platform == "linux":
            pid = self.messages().get("child-pid")
            if pid is not None:
                with suppress(ProcessLookupError):  # already gone
                    self._inner, self._inner_pid = os.pidfd_open(int(pid)), int(pid)
                    if self._ended:
                        self._kill()
                    elif self._waits:
                        self._let_go()

    def messages(self) -> dict[str, int | str]:
        """Return the messages of bwrap or the launcher so far."""
        return _messages(bytes(self._status))

    def _take_ready(self, data: bytes) -> None:
        self._waits = bool(data)
        if self._waits and self._inner is not None and not self._ended:
            self._let_go()

    def _let_go(self) -> None:
        """Let the command start. From now on it can be killed with all that it starts."""
        # The namespace's first process dies with bwrap once it sleeps and waits for its child.
        until = time.monotonic() + _DEATH_S
        while _state(self._inner_pid) not in ("S", "") and time.monotonic() < until:
            time.sleep(0.0005)
        assert self._start.handshake is not None
        with suppress(OSError):  # it ended first
            self._start.handshake.send(b"\n")
        self._waits = False

    def _kill(self) -> None:
        """Start to kill the namespace's first process, or all that the launcher adopted."""
        self._ended = True
        if self._start.lifeline is not None:
            self._start.lifeline.close()
        elif self._inner is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
        # Else bwrap is starting. If it were killed now, it might leave its child, which waits for
        # the answer and does nothing.

    def close(self) -> None:
        """Wait until everything is dead; raises UserError if a process cannot be killed."""
        if not self._ended:
            self._kill()
        if self._start.lifeline is None:
            self._learn_inner()
        try:
            # The launcher is not killed: it kills the others.
            self._process.wait(_DEATH_S if self._start.lifeline is None else _LAUNCHER_DEATH_S)
        except subprocess.TimeoutExpired:
            if self._start.lifeline is None:
                self._process.kill()
                self._process.wait()
            raise UserError("a command was killed, but some of its processes do not end") from None
        finally:
            if self._inner is not None:
                with suppress(ProcessLookupError):  # somebody else may have killed bwrap
                    signal.pidfd_send_signal(self._inner, signal.SIGKILL)
                # The namespace's first process ends after all the others.
                end = select.poll()
                end.register(self._inner, select.POLLIN)
                ended = end.poll(_DEATH_S * 1000)
                os.close(self._inner)
                if not ended:
                    raise UserError("a command was killed, but some of its processes do not end")

    def _learn_inner(self) -> None:
        """Wait until bwrap, killed while it started, names the namespace's first process."""
        until = time.monotonic() + _DEATH_S
        ready = select.poll()
        ready.register(self._start.status, select.POLLIN)
        while (
            self._inner is None
            and (left_s := until - time.monotonic()) > 0
            and ready.poll(left_s * 1000)
        ):
            data = os.read(self._start.status.fileno(), _PIECE)
            if not data:
                return
            self._take_status(data)


def _state(pid: int) -> str:
    """Return the letter of a process' state, as in proc(5); "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _messages(status: bytes) -> dict[str, int | str]:
    """Return the JSON lines so far as one object; the last may still be incomplete."""
    lines = [json.loads(line) for line in status.splitlines() if line.rstrip().endswith(b"}")]
    return {key: value for line in lines for key, value in line.items()}


def _exit_code(messages: Mapping[str, int | str], stderr: str, level: Level) -> int:
    """Return the command's exit code.

    Raises UserError if the wall failed, at the start or later.
    """
    if "exit-code" in messages and "error" not in messages:
        return int(messages["exit-code"])
    reason = messages.get("error") or stderr.strip()[-500:] or "it ended without a message"
    raise UserError(
        f"the sandbox ({level.title}) failed: {reason}",
        "`placet doctor` says which level holds on this machine",
    )
