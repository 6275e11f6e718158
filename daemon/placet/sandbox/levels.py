"""Make the command line that starts a box, at each level.

Level 3 is bubblewrap (0.8 or newer). `--die-with-parent` takes effect some time after bwrap starts,
and for its child even later. If the daemon is killed before that, one of the two survives. So the
command reports that it is ready and waits for an answer, which a dead daemon never sends. Inside
the box, `prlimit` sets the limits: since Linux 5.14 RLIMIT_NPROC counts per user namespace, so it
must be set within. Outside, `choom` makes the out-of-memory killer choose the box before the
daemon. It needs a writable /proc, which the box must not have, because root could write /proc/sys.
Unix sockets work in its own network namespace. But one in a shown folder leads to its server,
whatever the namespace: such sockets are masked.

Level 2 is Landlock, level 1 (macOS) a profile for `sandbox-exec`, level 0 nothing. All three run
below `launcher`. Apple does not document the profile language, so the profile follows what other
tools use. It is not tested on this project's machines. The attacks that `probe` runs at start
decide.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from placet.disk.files import delete_tree
from placet.errors import ToolError, UserError
from placet.plan.hosts import NEEDS_LEVEL_3
from placet.sandbox import seccomp
from placet.sandbox.box import Box, Level
from placet.sandbox.brought import linked, mount_points, to_mask
from placet.sandbox.cleanup import kept_git_file, scratch_prefix, temporary
from placet.sandbox.reach import Proxy, environment_of_proxy
from placet.sandbox.seatbelt import profile
from placet.sandbox.seccomp import Sockets
from placet.sandbox.visible_paths import ETC, SYSTEM, VisiblePaths, program, see

_LAUNCHER = Path(__file__).with_name("launcher.py")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_PROC = ("cpuinfo", "meminfo", "stat", "loadavg", "version", "filesystems", "sys")
_GIT = Path("/run/placet/git")
"""Where level 3 shows the repository's git folder to a worktree in the checkout's place."""


@dataclass(frozen=True, slots=True)
class Start:
    """How to start the process that the daemon talks to."""

    command: list[str]
    environment: dict[str, str]
    passed: tuple[IO[bytes], ...]
    """The child's ends of pipes."""
    status: IO[bytes]
    """bwrap or the launcher writes to it. Its end of file means that the process ended."""
    lifeline: IO[bytes] | None = None
    """Closing it tells the launcher to kill everything."""
    handshake: socket.socket | None = None
    """If set, the command writes to it when it is ready and waits for an answer."""
    stdin: socket.socket | None = None
    """The command's standard input, the other end of `handshake`."""
    proxy: Proxy | None = None
    """What connects a command to the hosts of its box."""

    def spawn(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start it, and close the child's ends."""
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


@contextmanager
def starting(argv: Sequence[str], box: Box, level: Level, *, terminal: bool) -> Iterator[Start]:
    """Prepare everything that the level needs, and remove it afterwards.

    `terminal`: somebody uses the command at a terminal. Raises ToolError for a program that cannot
    be started, UserError if the level cannot be built.
    """
    if not argv:
        raise ToolError("empty_command", "there is no command to run")
    if any("\0" in word for word in argv):
        raise ToolError("invalid_argument", "an argument contains a NUL byte")
    by_list = bool(box.hosts) and not box.network
    if level is not Level.BUBBLEWRAP:
        box = replace(box, git=None)
        if by_list:
            raise ToolError("needs_bubblewrap", NEEDS_LEVEL_3, refused=True)
    seen = see(box)
    command = [program(argv[0], box, seen), *argv[1:]]
    environment = {"PATH": os.pathsep.join(seen.path), "LANG": "C.UTF-8", "TERM": "dumb"}
    with ExitStack() as stack:
        scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(box.worktree), dir=temporary()))
        stack.callback(delete_tree, scratch)
        args = (stack, command, environment, box, seen, scratch)
        if level is Level.BUBBLEWRAP:
            proxy = stack.enter_context(closing(Proxy(box))) if by_list else None
            yield _bubblewrapped(*args, proxy, terminal=terminal)
        else:
            yield _launched(*args, level, terminal=terminal)


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0)


def _once(content: bytes) -> IO[bytes]:
    """Return a file from which this can be read once."""
    file = os.fdopen(os.memfd_create("placet"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


def _filter(sockets: Sockets, *, shared: bool) -> IO[bytes]:
    """Return a file from which the seccomp program can be read once."""
    if sys.platform != "linux" or os.uname().machine not in seccomp.MACHINES:
        raise UserError(
            f"there is no system call filter for {sys.platform} on {os.uname().machine}"
        )
    return _once(seccomp.program(os.uname().machine, sockets, shared=shared))


# --- level 3: bubblewrap


def _bubblewrapped(
    stack: ExitStack,
    command: Sequence[str],
    environment: dict[str, str],
    box: Box,
    seen: VisiblePaths,
    scratch: Path,
    proxy: Proxy | None,
    *,
    terminal: bool,
) -> Start:
    limits = box.limits
    limited = [
        "/usr/bin/prlimit", f"--data={limits.memory_bytes}", f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}", "--core=0", "--", *command,
    ]  # fmt: skip
    status, status_end = map(stack.enter_context, _pipe())
    sockets = Sockets.SHARED if box.network else Sockets.OWN
    rules = stack.enter_context(_filter(sockets, shared=False))
    passed = [status_end, rules]
    handshake = stdin = None
    if not terminal:
        handshake, stdin = map(stack.enter_context, socket.socketpair())
        # It writes a line to its standard input, and starts when it receives one.
        wait = 'echo >&0 && read -r _ && exec "$@" </dev/null'
        limited = ["/bin/sh", "-c", wait, "sh", *limited]
    if proxy is not None:
        passed.append(proxy.passed)
        limited = proxy.before(limited)
        environment |= environment_of_proxy()
    mounts = _mounts(box, seen, scratch, stack.enter_context(mount_points(box)))
    if box.git is not None:
        common, own = box.git
        passed.append(
            stack.enter_context(_once(f"gitdir: {_GIT / own.relative_to(common)}\n".encode()))
        )
        pointer = str(box.folder / ".git")
        mounts[Path(pointer)] = ("--ro-bind-data", str(passed[-1].fileno()), pointer)
    launch = [
        "/usr/bin/choom", "-n", "1000", "--", _bubblewrap(),  # the first to go
        "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--cap-drop", "ALL",
        *([] if terminal else ["--new-session"]),
        *(["--share-net"] if box.network else []),
        "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev",
        "--size", str(limits.shm_bytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",  # noqa: S108  the box's own
        *(word for place in sorted(mounts, key=_depth) for word in mounts[place]),
        "--remount-ro", "/",
        "--seccomp", str(rules.fileno()), "--json-status-fd", str(status_end.fileno()),
        "--chdir", str(box.folder), "--", *limited,
    ]  # fmt: skip
    environment |= {"HOME": str(_home())}
    return Start(launch, environment, tuple(passed), status, None, handshake, stdin, proxy)


def _home() -> Path:
    """Return the home of a command at level 3: the real place, empty but for caches."""
    home = Path.home()
    is_usable = home.is_absolute() and not any(r.is_relative_to(home) for r in SYSTEM)
    return home if is_usable else Path("/tmp")  # noqa: S108  the box's own


def _depth(path: Path) -> int:
    return len(path.parts)


def _bubblewrap() -> str:
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


def _mounts(
    box: Box, view: VisiblePaths, scratch: Path, brought: Mapping[Path, Path]
) -> dict[Path, tuple[str, ...]]:
    """Return bwrap's options for each place of the box, in no order.

    `brought` are the places in the worktree, each with what it shows.
    """
    for name in ("home", "tmp"):
        (scratch / name).mkdir()
    (scratch / "empty").touch()
    home, tmp = _home(), ("--bind", str(scratch / "tmp"))
    found: dict[Path, tuple[str, ...]] = {}
    found[home] = ("--bind", str(scratch / "home"), str(home))
    for common in ("/tmp", "/var/tmp"):  # noqa: S108  the box's own
        found[Path(common)] = (*tmp, common)
    for root in SYSTEM:
        if root.is_symlink():
            found[root] = ("--symlink", str(root.readlink()), str(root))
    etc = (Path("/etc", name) for name in ETC if box.network or name != "resolv.conf")
    system = [p for p in (*SYSTEM, *etc) if p.exists() and p not in found]
    found |= {p: _shown(p, p) for p in system}
    found[box.folder] = ("--bind", str(box.worktree), str(box.folder))
    in_worktree = box.brought.values() if box.git is not None else ()
    read_only = {p: p for p in (*view.tools, *box.read_only) if p not in in_worktree}
    read_only |= {home / name: path for name, path in view.caches.items()}
    if box.git is not None:
        read_only[_GIT] = box.git[0]
    elif (git := box.worktree / ".git").exists():
        read_only[git] = git
    read_only |= brought
    found |= {place: _shown(path, place) for place, path in read_only.items()}
    return found | {p: _shown(scratch / "empty", p) for p in to_mask(read_only, box)}


def _shown(path: Path, place: Path) -> tuple[str, ...]:
    return "--ro-bind", str(path), str(place)


# --- levels 2 to 0: the launcher


def _launched(
    stack: ExitStack,
    command: Sequence[str],
    environment: dict[str, str],
    box: Box,
    seen: VisiblePaths,
    scratch: Path,
    level: Level,
    *,
    terminal: bool,
) -> Start:
    stack.enter_context(kept_git_file(box.worktree, strict=level is Level.LANDLOCK))
    stack.enter_context(linked(box))
    for name, path in seen.caches.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).symlink_to(path)
    status, status_end = map(stack.enter_context, _pipe())
    lifeline_end, lifeline = map(stack.enter_context, _pipe())
    passed = [status_end, lifeline_end]
    environment |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
    items = [
        f"status={status_end.fileno()}",
        f"lifeline={lifeline_end.fileno()}",
        f"folder={box.worktree}",
        f"worktree={box.worktree}",
        *([] if terminal else ["session=1"]),
        f"limit=DATA:{box.limits.memory_bytes}",
        f"limit=FSIZE:{box.limits.file_bytes}",
        "limit=CORE:0",
        f"processes={box.limits.processes}",
    ]
    if level is Level.LANDLOCK:
        sockets = Sockets.SHARED if box.network else Sockets.CLOSED
        passed.append(stack.enter_context(_filter(sockets, shared=True)))
        items += [f"filter={passed[-1].fileno()}", *_landlock(box, seen, scratch)]
        environment["GIT_CONFIG_NOSYSTEM"] = "1"  # git gives up on an unreadable /etc/gitconfig
    elif level is Level.SEATBELT:
        command = ["/usr/bin/sandbox-exec", "-p", profile(box, seen, scratch), *command]
    launch = [sys.executable, "-I", "-S", str(_LAUNCHER), *items, "--", *command]
    return Start(launch, environment, tuple(passed), status, lifeline)


def _landlock(box: Box, seen: VisiblePaths, scratch: Path) -> list[str]:
    etc = [Path("/etc", name) for name in ETC if box.network or name != "resolv.conf"]
    proc = [Path("/proc", name) for name in _PROC]
    shown = (*SYSTEM, *etc, *proc, *seen.tools, *seen.caches.values(), *box.read_only)
    read = [p for p in shown if p.exists()]
    return [
        "landlock=1",
        *(["network=1"] if box.network else []),
        *(f"read={p}" for p in read),
        *(f"device=/dev/{name}" for name in _DEVICES),
        f"write={box.worktree}",
        f"write={scratch}",
    ]
