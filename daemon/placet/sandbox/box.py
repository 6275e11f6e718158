"""Define a command's box: the level of its wall, what it sees, its limits, its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path, PurePosixPath

from placet.plan.hosts import Host

MIB = 1024 * 1024
GIB = 1024 * MIB


class Level(IntEnum):
    """The strength of the wall around a command; a higher number is stronger."""

    NONE = 0
    SEATBELT = 1
    LANDLOCK = 2
    BUBBLEWRAP = 3

    @property
    def title(self) -> str:
        """The level's name in messages."""
        return ("none", "sandbox-exec", "Landlock + seccomp", "bubblewrap + seccomp")[self]


LANDLOCK_LACKS = (
    "Here commands run in Landlock only: tests that open sockets fail, and so does what names the "
    "checkout by its path, such as an editable install. Commands can change modes and times of all "
    "your files. With bubblewrap none of this holds."
)
"""What level 2 lacks, for people."""
NO_SANDBOX = (
    "This machine has no sandbox that you accepted. Install bubblewrap. Or accept Landlock, where "
    "commands can change modes and times of all your files: "
    "placet config set commands.sandbox landlock"
)
"""Why commands do not run, for people."""


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """A command's limits."""

    timeout_s: float = 120.0
    memory_bytes: int = 4 * GIB
    """Private writable memory of each process (RLIMIT_DATA), not address space.

    Node, wasm, Java and Go reserve tens of gigabytes of addresses that they never use, so
    RLIMIT_AS would kill them at start. A command is also killed if the machine's shared memory
    grows by that much.
    """
    processes: int = 512
    """Processes in the box at level 3.

    At lower levels it limits how many processes the user may have beyond those at the start. If
    the kernel does not enforce that (root), placet kills the command.
    """
    file_bytes: int = GIB
    """Size of one file."""
    shm_bytes: int = 512 * MIB
    """Size of /dev/shm, in memory (level 3)."""
    output_bytes: int = 64 * 1024
    """How much of each stream is kept, half from its head and half from its tail."""
    kill_output_bytes: int = 256 * MIB
    """After this much output of both streams the command is killed."""
    disk_bytes: int = 4 * GIB
    """The command is killed if the worktree's disk has lost this much while it ran."""
    files: int = 500_000
    """The command is killed if that disk has lost room for this many files."""
    free_bytes: int = 256 * MIB
    """The command is killed if less is free on that disk. With less no command starts."""


@dataclass(frozen=True, slots=True)
class Box:
    """A command's view of the machine.

    `worktree` is writable, except for its `.git`. `read_only` are further paths shown read-only,
    such as the main repository's `.git`, which contains the worktree's git folder. Landlock
    enforces this only outside the worktree. `readable` are extra tool chains, read-only too. A tool
    chain that contains the worktree or a `hidden` path is never shown whole. `network` shares the
    machine's network and allows internet sockets; unix sockets stay forbidden. Without it, `hosts`
    are what it reaches, at level 3 only; those of them in `private_hosts` may have addresses that
    are not public.

    `checkout` is the repository as its owner prepared it. Its paths `shared`, which git ignores,
    are shown read-only at the same place in the worktree. With `git`, the repository's git folder
    and the worktree's own in it, level 3 shows the worktree where the checkout is: then installed
    scripts and links find the worktree's code.

    Raises ValueError for a path that is not absolute and plain, and for a worktree inside a
    read-only path.
    """

    worktree: Path
    read_only: tuple[Path, ...] = ()
    network: bool = False
    limits: BoxLimits = field(default_factory=BoxLimits)
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    checkout: Path | None = None
    shared: tuple[PurePosixPath, ...] = ()
    git: tuple[Path, Path] | None = None
    hosts: tuple[Host, ...] = ()
    private_hosts: tuple[Host, ...] = ()

    @property
    def folder(self) -> Path:
        """The worktree's path for commands at level 3."""
        return self.checkout if self.checkout and self.git else self.worktree

    @property
    def brought(self) -> dict[PurePosixPath, Path]:
        """The shared paths, each with what it shows."""
        return {path: self.checkout / path for path in self.shared if self.checkout}

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
class Reached:
    """Connections of a command that asked for the same host and port and had the same result.

    `host` is empty if the command asked for nothing that can be read. It is `others`, with port 0,
    for the rest of a long list. `verdict` is `allowed`, or what follows the host's name in a
    sentence that says why it was refused.
    """

    host: str
    port: int
    verdict: str
    connections: int
    sent_bytes: int
    received_bytes: int

    @property
    def refusal(self) -> str:
        """What was refused and why, without a full stop; empty for what was allowed."""
        what = f"{self.host}:{self.port}" if self.port else self.host or "the command"
        return "" if self.verdict == "allowed" else f"{what} {self.verdict}"


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command.

    `exit_code` is None if the command was killed. Then `killed` says why: `time`, `cancelled`, or
    the limit that it exceeded (`output`, `disk`, `memory`, `processes`). The last line of `stderr`
    names such a limit. A command that died by a signal has 128 + its number. `reached` is what a
    command with hosts connected to or was refused.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    killed: str = ""
    reached: tuple[Reached, ...] = ()
