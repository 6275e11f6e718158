"""What the wall is asked for and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

MIB = 1024 * 1024
GIB = 1024 * MIB


class Level(IntEnum):
    """How strong the wall around a command is; a higher number is stronger."""

    NONE = 0
    SEATBELT = 1
    LANDLOCK = 2
    BUBBLEWRAP = 3

    @property
    def title(self) -> str:
        """The level's name for people."""
        return _TITLES[self]


_TITLES = {
    Level.NONE: "none",
    Level.SEATBELT: "sandbox-exec",
    Level.LANDLOCK: "Landlock + seccomp",
    Level.BUBBLEWRAP: "bubblewrap + seccomp",
}


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What a command may use up. Raises ValueError for anything that is not positive.

    `memory_bytes` is per process and counts private writable memory (RLIMIT_DATA), not address
    space: node, wasm, Java and Go reserve tens of gigabytes of addresses that they never touch, and
    RLIMIT_AS kills them at start. A command that makes the machine's shared memory grow by that
    much is killed. `processes` holds at level 3 for the box and below for the person's processes of
    that moment plus so many. `file_bytes` is for any one file; `tmp_bytes` for the private
    temporary folder and, separately, /dev/shm, both of which are memory (level 3). `output_bytes`
    is how much of each stream is kept, half from its head and half from its tail; after
    `kill_output_bytes` of both streams the command is killed. So it is when the disk of the
    worktree has lost `disk_bytes` or `files` while it ran, or has less than `free_bytes` left; with
    less than that none is started. Where the kernel does not hold root to `processes`, one that has
    more is killed.
    """

    timeout_s: float = 120.0
    memory_bytes: int = 4 * GIB
    processes: int = 512
    file_bytes: int = GIB
    tmp_bytes: int = 512 * MIB
    output_bytes: int = 64 * 1024
    kill_output_bytes: int = 256 * MIB
    disk_bytes: int = 4 * GIB
    files: int = 500_000
    free_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")


@dataclass(frozen=True, slots=True)
class Box:
    """What a command sees.

    `worktree` is writable, except for its `.git`; `read_only` are further paths shown read-only
    (the main repository's `.git`, with the worktree's own folder in it; Landlock keeps them so only
    outside the worktree); `readable` are extra tool chains, read-only too; no tool chain is shown
    whole in which something `hidden` or the worktree lies. `network` shares the machine's network
    and allows internet sockets; unix sockets stay forbidden. Raises ValueError for a path that is
    not absolute and plain, and for a worktree inside a read-only path.
    """

    worktree: Path
    read_only: tuple[Path, ...] = ()
    network: bool = False
    limits: BoxLimits = field(default_factory=BoxLimits)
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for path in (self.worktree, *self.read_only, *self.readable):
            if (
                not path.is_absolute()
                or ".." in path.parts
                or "\0" in str(path)
                or path == Path("/")
            ):
                raise ValueError(f"a box is made of absolute, plain paths: {path}")
        for path in self.read_only:
            if self.worktree.is_relative_to(path):
                raise ValueError(f"the worktree lies in a read-only path: {path}")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended.

    `exit_code` is None where the command was killed: by the time limit (`timed_out`), by
    `cancelled`, or, when neither is set, for what it used up, which the last line of `stderr` names
    (`filled_disk`: that was the disk). A command that died by a signal has 128 + its number.
    `truncated`: the middle of a stream was left out. `duration_s` includes the wall.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    cancelled: bool
    truncated: bool
    duration_s: float
    filled_disk: bool = False
