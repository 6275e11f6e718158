"""Level 3: the arguments for bubblewrap (0.8 or newer) with everything of its own.

bwrap dies with its parent only from some moment of its start on, and so does its child with it: if
one is killed earlier the other goes on. So the command says that all is set up and waits for the
daemon's word, which the dead do not give.

Inside, `prlimit` sets the limits: RLIMIT_NPROC counts per user namespace since Linux 5.14, so it
must be set within. Outside, `choom` offers the box to the out-of-memory killer before the daemon;
it needs a writable /proc, which the box must not have: where the daemon is root's, so are the files
in /proc/sys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from placet.sandbox.values import Box, BoxLimits
from placet.sandbox.visible_paths import ETC, SYSTEM, VisiblePaths

HOME = "/tmp"  # noqa: S108  the box's own
"""HOME in the box: the private temporary folder."""


FIRST_TO_GO = ("/usr/bin/choom", "-n", "1000", "--")
"""What bwrap's path and options are put behind."""


def options(
    box: Box, view: VisiblePaths, folder: Path, *, filter_fd: int, status_fd: int, terminal: bool
) -> list[str]:
    """Return bwrap's options; the command follows them.

    `filter_fd` holds the seccomp program, `status_fd` receives bwrap's JSON status. `terminal`
    keeps the session, for a person at a terminal; else the command gets a new one.
    """
    size = ("--size", str(box.limits.tmp_bytes))
    return [
        "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL",
        *([] if terminal else ["--new-session"]),
        *(["--share-net"] if box.network else []),
        "--proc", "/proc", "--remount-ro", "/proc",
        "--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev",  # noqa: S108  the box's own
        *size, "--tmpfs", HOME, "--symlink", "../tmp", "/var/tmp",  # noqa: S108  both are the box's own
        *_mounts(box, view),
        "--remount-ro", "/",
        "--seccomp", str(filter_fd), "--json-status-fd", str(status_fd), "--chdir", str(folder), "--",
    ]  # fmt: skip


def at_a_word(command: Sequence[str]) -> list[str]:
    """Return the command so that it says a line to the socket that is its standard input, and begins when one comes back."""
    return ["/bin/sh", "-c", 'echo >&0 && read -r _ && exec "$@" </dev/null', "sh", *command]


def limited(limits: BoxLimits, command: Sequence[str]) -> list[str]:
    """Return the command behind the program that limits it from within the box."""
    return [
        "/usr/bin/prlimit", f"--data={limits.memory_bytes}", f"--nproc={limits.processes}",
        f"--fsize={limits.file_bytes}", "--core=0", "--", *command,
    ]  # fmt: skip


def _mounts(box: Box, view: VisiblePaths) -> Iterator[str]:
    for root in SYSTEM:
        if root.is_symlink():
            yield from ("--symlink", str(root.readlink()), str(root))
        elif root.is_dir():
            yield from _bind("--ro-bind", root)
    for name in ETC:
        path = Path("/etc", name)
        if path.exists() and (box.network or name != "resolv.conf"):
            yield from _bind("--ro-bind", path)
    for path in view.tools:
        yield from _bind("--ro-bind", path)
    yield from _bind("--bind", box.worktree)
    git = box.worktree / ".git"
    if git.exists():
        yield from _bind("--ro-bind", git)
    for path in box.read_only:
        yield from _bind("--ro-bind", path)


def _bind(how: str, path: Path) -> tuple[str, str, str]:
    return how, str(path), str(path)
