"""Run one command in a box: start it at its level, read it in bounded memory, and leave no process behind."""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from placet.core.errors import ToolError, UserError
from placet.disk import delete_tree
from placet.sandbox import bwrap, seatbelt, seccomp, visible_paths
from placet.sandbox.gitfile import kept_git_file
from placet.sandbox.pipes import Kept
from placet.sandbox.usage import CommandUsage
from placet.sandbox.values import Box, Level, Ran

_POLL_S = 0.1  # how often `cancelled` is asked
_DRAIN_S = 0.5  # how long output is read after the command ended
_DEATH_S = 5.0  # how long a killed box may take to be gone
_LAUNCHER_DEATH_S = 60.0  # the same where the launcher looks for what is to be killed one by one
_PIECE = 64 * 1024
_LAUNCHER = Path(__file__).with_name("launcher.py")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_PROC = ("cpuinfo", "meminfo", "stat", "loadavg", "version", "filesystems", "sys")


def never() -> bool:
    """The `cancelled` of a command that nobody cancels."""
    return False


@dataclass(frozen=True, slots=True)
class _Start:
    """How to start the process that the daemon talks to.

    `passed` are the child's ends. From `status` comes what bwrap or the launcher says; its end of
    file is their end. Closing `lifeline` tells the launcher to take everything down. Where there is
    a `word` the command says when it could begin and waits for the answer; the other end is its
    standard input.
    """

    command: list[str]
    environment: dict[str, str]
    passed: tuple[IO[bytes], ...]
    status: IO[bytes]
    lifeline: IO[bytes] | None = None
    word: socket.socket | None = None
    stdin: socket.socket | None = None

    def spawn(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start it and let go of the child's ends."""
        fds = tuple(end.fileno() for end in self.passed)
        if self.stdin is not None:
            options["stdin"] = self.stdin
        process = subprocess.Popen(
            self.command, env=self.environment, cwd="/", pass_fds=fds, **options
        )
        for end in self.passed:
            end.close()
        if self.stdin is not None:
            self.stdin.close()
        return process


def run(
    argv: Sequence[str],
    box: Box,
    level: Level,
    *,
    cancelled: Callable[[], bool] = never,
    cwd: str = ".",
) -> Ran:
    """Run `argv` (no shell) in `box` at `level` and return how it ended.

    When it returns, no process of the command is left, whatever it did: at the command's own end,
    at the time limit, when `cancelled` (asked every 0.1 s) says so, and when it has printed,
    written or started too much (see `Limits`). Background processes do not outlive the command that
    started them. Standard input is empty. `cwd` is relative to the worktree. Safe to call from any
    thread.

    Raises ToolError for a program or folder that is not there or not allowed, or a full disk, and
    UserError where the wall cannot be built or breaks: no weaker level is tried.
    """
    began = time.monotonic()
    # Below level 3 the temporary folder is one of the machine's, and has no size of its own.
    temporary = () if level is Level.BUBBLEWRAP else (Path(tempfile.gettempdir()),)
    usage = CommandUsage((box.worktree, *temporary), box.limits, began)
    with _starting(argv, box, level, cwd, terminal=False) as start:
        pipe = subprocess.PIPE
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": pipe,
            "stderr": pipe,
            "bufsize": 0,
            "start_new_session": True,
        }
        process = start.spawn(**options)
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout, process.stderr:
            watch = _Watch(process, start, box, usage)
            try:
                watch.follow(began + box.limits.timeout_s, cancelled)
            finally:
                watch.close()
    if sys.platform == "linux":
        visible_paths.drop_odd(box.worktree)
    code = None if watch.verdict else _exit_code(watch.said(), watch.stderr.text(), level)
    limits = box.limits
    used_up = {
        "output": f"more than {limits.kill_output_bytes} bytes of output",
        "disk": f"the disk lost more than {limits.disk_bytes} bytes or {limits.files} files while it ran, or has less than "
        f"{limits.free_bytes} bytes left",
        "memory": f"more than {limits.memory_bytes} bytes of shared memory",
        "processes": f"more than {limits.processes} processes",
    }
    note = f"\n[killed: {used_up[watch.verdict]}]" if watch.verdict in used_up else ""
    return Ran(
        exit_code=code,
        stdout=watch.stdout.text(),
        stderr=watch.stderr.text() + note,
        timed_out=watch.verdict == "time",
        cancelled=watch.verdict == "cancelled",
        truncated=bool(watch.stdout.left_out or watch.stderr.left_out or watch.verdict == "output"),
        duration_s=time.monotonic() - began,
        filled_disk=watch.verdict == "disk",
    )


def exec_in_box(argv: Sequence[str], box: Box, level: Level, *, cwd: str = ".") -> int:
    """Run `argv` in the same box with the caller's own terminal or pipes; return the exit code.

    For a person at a terminal, from the main thread: no time limit, and Ctrl-C goes to the command.
    A command that died by a signal gives 128 + its number. Raises as `run`.
    """
    with _starting(argv, box, level, cwd, terminal=True) as start:
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            start.spawn().wait()
        finally:
            signal.signal(signal.SIGINT, before)
        return _exit_code(_said(start.status.read()), "", level)


class _Watch:
    """The reading end of a running command."""

    def __init__(
        self, process: subprocess.Popen[bytes], start: _Start, box: Box, usage: CommandUsage
    ) -> None:
        self._process = process
        self._usage = usage
        self._start = start
        self._limit = box.limits.kill_output_bytes
        self._status = bytearray()
        self._ended = False
        self._inner: int | None = None
        self._inner_pid = 0
        self._waits = False  # the command said that it could begin, and was not told to
        self.stdout = Kept(box.limits.output_bytes)
        self.stderr = Kept(box.limits.output_bytes)
        self.verdict: str | None = None

    def follow(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        """Read until the command has ended, or end it; sets `verdict` to why it was killed."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        ended: float | None = None  # when reading must stop
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ, self.stdout.feed)
            ready.register(self._process.stderr, selectors.EVENT_READ, self.stderr.feed)
            ready.register(self._start.status, selectors.EVENT_READ, self._take_status)
            if self._start.word is not None:
                ready.register(self._start.word, selectors.EVENT_READ, self._take_word)
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
                        data = b""  # the command was killed before it read the word
                    key.data(data)
                    if not data:
                        ready.unregister(key.fileobj)
                        if key.fileobj is self._start.status and ended is None:
                            self._ended = True
                            ended = time.monotonic() + _DRAIN_S

    def _why_kill(self, now: float, deadline: float, cancelled: Callable[[], bool]) -> str | None:
        if self.stdout.fed + self.stderr.fed > self._limit:
            return "output"
        if now >= deadline:
            return "time"
        if cancelled():
            return "cancelled"
        return self._usage.exceeded(self._process.pid, now) or None

    def _take_status(self, data: bytes) -> None:
        self._status += data
        if self._inner is None and b"child-pid" in self._status and sys.platform == "linux":
            pid = self.said().get("child-pid")
            if pid is not None:
                with suppress(ProcessLookupError):  # already gone
                    self._inner, self._inner_pid = os.pidfd_open(int(pid)), int(pid)
                    if self._ended:
                        self._kill()
                    elif self._waits:
                        self._let_go()

    def said(self) -> dict[str, int | str]:
        """What bwrap or the launcher has said so far."""
        return _said(bytes(self._status))

    def _take_word(self, data: bytes) -> None:
        self._waits = bool(data)
        if self._waits and self._inner is not None and not self._ended:
            self._let_go()

    def _let_go(self) -> None:
        """Let the command begin: it said that it could, and can be killed with all that it starts."""
        # The namespace's first process dies with bwrap from the moment on in which it waits for its
        # child: it sleeps then.
        until = time.monotonic() + _DEATH_S
        while _state(self._inner_pid) not in ("S", "") and time.monotonic() < until:
            time.sleep(0.0005)
        assert self._start.word is not None
        with suppress(OSError):  # its own end came first
            self._start.word.send(b"\n")
        self._waits = False

    def _kill(self) -> None:
        """Begin the end: the namespace dies with its first process, the launcher takes down what it has adopted."""
        self._ended = True
        if self._start.lifeline is not None:
            self._start.lifeline.close()
        elif self._inner is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
        # Else bwrap is starting. Killed now it might leave its child; and what waits for a word
        # does nothing.

    def close(self) -> None:
        """See to it that everything is dead.

        Raises UserError where the kernel does not let go of one.
        """
        if not self._ended:
            self._kill()
        if self._start.lifeline is None:
            self._learn_inner()
        try:
            # The launcher is never killed: it is who ends the others.
            self._process.wait(_DEATH_S if self._start.lifeline is None else _LAUNCHER_DEATH_S)
        except subprocess.TimeoutExpired:
            if self._start.lifeline is None:
                self._process.kill()
                self._process.wait()
            raise UserError(
                "a command was killed, but the kernel does not let go of its processes"
            ) from None
        finally:
            if self._inner is not None:
                with suppress(ProcessLookupError):  # bwrap may have been killed by another
                    signal.pidfd_send_signal(self._inner, signal.SIGKILL)
                # The namespace's first process ends only after all the others have.
                end = select.poll()
                end.register(self._inner, select.POLLIN)
                gone = end.poll(_DEATH_S * 1000)
                os.close(self._inner)
                if not gone:
                    raise UserError(
                        "a command was killed, but the kernel does not let go of its processes"
                    )

    def _learn_inner(self) -> None:
        """Wait until bwrap, told to end while it started, has said which process is the namespace's first, or ends."""
        until = time.monotonic() + _DEATH_S
        said = select.poll()
        said.register(self._start.status, select.POLLIN)
        while (
            self._inner is None
            and (left_s := until - time.monotonic()) > 0
            and said.poll(left_s * 1000)
        ):
            data = os.read(self._start.status.fileno(), _PIECE)
            if not data:
                return
            self._take_status(data)


def _state(pid: int) -> str:
    """Return the letter of a process' state, as proc(5) has them; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _said(status: bytes) -> dict[str, int | str]:
    """The JSON lines so far as one object; the last may still be incomplete."""
    lines = [json.loads(line) for line in status.splitlines() if line.rstrip().endswith(b"}")]
    return {key: value for line in lines for key, value in line.items()}


def _exit_code(said: Mapping[str, int | str], stderr: str, level: Level) -> int:
    """Return the command's exit code.

    Raises UserError where the wall failed, at the start or later.
    """
    if "exit-code" in said and "error" not in said:
        return int(said["exit-code"])
    reason = said.get("error") or stderr.strip()[-500:] or "it ended without a word"
    raise UserError(
        f"the sandbox ({level.title}) failed: {reason}",
        "`placet doctor` says which level holds on this machine",
    )


@contextmanager
def _starting(
    argv: Sequence[str], box: Box, level: Level, cwd: str, *, terminal: bool
) -> Iterator[_Start]:
    """Prepare everything the level needs, and clear it away afterwards."""
    if not argv:
        raise ToolError("empty_command", "there is no command to run")
    if any("\0" in word for word in (*argv, cwd)):
        raise ToolError("invalid_argument", "an argument contains a NUL byte")
    seen = visible_paths.see(box)
    folder = visible_paths.working_folder(box, cwd)
    command = [visible_paths.program(argv[0], box, seen, folder), *argv[1:]]
    environment = {
        "PATH": os.pathsep.join(seen.path),
        "HOME": bwrap.HOME,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    with ExitStack() as stack:
        status, status_end = map(stack.enter_context, _pipe())
        passed = [status_end]
        if level is Level.BUBBLEWRAP:
            passed.append(stack.enter_context(_filter(box, shared_ipc=False)))
            fds = [end.fileno() for end in passed]
            limited = bwrap.limited(box.limits, command)
            command = [
                *bwrap.FIRST_TO_GO,
                _bubblewrap(),
                *bwrap.options(
                    box, seen, folder, status_fd=fds[0], filter_fd=fds[1], terminal=terminal
                ),
                *(limited if terminal else bwrap.at_a_word(limited)),
            ]
            word, stdin = (
                (None, None) if terminal else map(stack.enter_context, socket.socketpair())
            )
            yield _Start(command, environment, tuple(passed), status, None, word, stdin)
            return
        stack.enter_context(kept_git_file(box.worktree, strict=level is Level.LANDLOCK))
        scratch = tempfile.mkdtemp(prefix="placet-box-")
        stack.callback(delete_tree, Path(scratch))
        lifeline_end, lifeline = map(stack.enter_context, _pipe())
        passed.append(lifeline_end)
        items = [
            f"status={status_end.fileno()}",
            f"lifeline={lifeline_end.fileno()}",
            f"folder={folder}",
            f"worktree={box.worktree}",
        ]
        items += _limits(box, terminal=terminal)
        if level is Level.LANDLOCK:
            passed.append(stack.enter_context(_filter(box, shared_ipc=True)))
            items += [f"filter={passed[-1].fileno()}", *_landlock(box, seen, scratch)]
            # /etc/gitconfig is there but closed: git gives up
            environment["GIT_CONFIG_NOSYSTEM"] = "1"
        elif level is Level.SEATBELT:
            command = seatbelt.command(box, seen, Path(scratch), command)
        launch = [sys.executable, "-I", "-S", str(_LAUNCHER), *items, "--", *command]
        environment |= {"HOME": scratch, "TMPDIR": scratch}
        yield _Start(launch, environment, tuple(passed), status, lifeline)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0)


def _bubblewrap() -> str:
    """The path of bwrap. Raises UserError where it is not installed."""
    for folder in (
        "/usr/bin",
        "/usr/local/bin",
        "/bin",
        *os.environ.get("PATH", "").split(os.pathsep),
    ):
        if folder.startswith("/") and os.access(f"{folder}/bwrap", os.X_OK):
            return f"{folder}/bwrap"
    raise UserError(
        "bubblewrap (bwrap) is not installed", "install the package bubblewrap, 0.8 or newer"
    )


def _filter(box: Box, *, shared_ipc: bool) -> IO[bytes]:
    """A file from which the seccomp program can be read once."""
    if sys.platform != "linux" or os.uname().machine not in seccomp.MACHINES:
        raise UserError(
            f"there is no system call filter for {sys.platform} on {os.uname().machine}"
        )
    file = os.fdopen(os.memfd_create("placet-seccomp"), "w+b", buffering=0)
    file.write(seccomp.program(os.uname().machine, network=box.network, shared_ipc=shared_ipc))
    file.seek(0)
    return file


def _limits(box: Box, *, terminal: bool) -> list[str]:
    limits = box.limits
    return [
        *([] if terminal else ["session=1"]),
        f"limit=DATA:{limits.memory_bytes}",
        f"limit=FSIZE:{limits.file_bytes}",
        "limit=CORE:0",
        f"processes={limits.processes}",
    ]


def _landlock(box: Box, seen: visible_paths.VisiblePaths, scratch: str) -> list[str]:
    etc = [Path("/etc", name) for name in visible_paths.ETC if box.network or name != "resolv.conf"]
    proc = [Path("/proc", name) for name in _PROC]
    read = [
        p for p in (*visible_paths.SYSTEM, *etc, *proc, *seen.tools, *box.read_only) if p.exists()
    ]
    return [
        "landlock=1",
        *(["network=1"] if box.network else []),
        *(f"read={p}" for p in read),
        *(f"device=/dev/{name}" for name in _DEVICES),
        f"write={box.worktree}",
        f"write={scratch}",
    ]
