"""Git's values and errors."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from placet.errors import MACHINE, PlacetError


@dataclass(frozen=True, slots=True)
class GitCall:
    """One git process, for the journal: arguments, exit code, duration, and why it failed."""

    argv: tuple[str, ...]
    returncode: int
    duration_ms: float
    stderr: str = ""


OnCall = Callable[[GitCall], None]
Settings = Sequence[tuple[str, str]]
"""git's configuration: scope ("local", "global", …) and `key` or `key\\nvalue`, in git's order."""


class GitError(PlacetError):
    """Git refused.

    `argv` is the sub-command and its arguments; `returncode` is negative if git was killed.
    """

    _NUMBERS = MappingProxyType(
        {os.strerror(number): number for number in MACHINE}
        # git's own words: of a lock that it holds, so that no permission can be what is missing
        | {
            "Out of diskspace": errno.ENOSPC,
            "couldn't write '": errno.EIO,
            "nable to write new index file": errno.EIO,
        }
    )

    def __init__(self, argv: tuple[str, ...], returncode: int, stderr: str) -> None:
        super().__init__(f"git {' '.join(argv)} failed ({returncode}): {stderr}")
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr
        # git tells of the machine's faults by strerror(3)'s words, or by its own, alone
        self.errno = next((n for words, n in self._NUMBERS.items() if words in stderr), None)
        self.was_killed = returncode < 0


class RepositoryChanged(PlacetError):  # noqa: N818 - named for what is the case, as Stop is
    """Somebody else changed what only placet should change: the mission must stop."""


@dataclass(frozen=True, slots=True)
class Author:
    """A name and an address as a commit bears them.

    Raises ValueError where git could not write them.
    """

    name: str
    email: str

    def __post_init__(self) -> None:
        for value in (self.name, self.email):
            if not value.strip(" .,:;\"'") or re.search(r"[<>\x00-\x1f]", value):
                raise ValueError(f"not a name or address that git can write: {value!r}")


BOT = Author("placet", "bot@placet.local")
"""Author of checkpoints and reference log lines, and of commits if the person set no name."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed file.

    `status` is A, M, D or T (type changed); a rename is its D and its A, so that each touched path
    can be held against a plan's scope. Counts are None for a binary file, and where nothing was
    counted. `link` is where a symbolic link points, of changes between two commits.
    """

    path: str
    status: str
    added: int | None = None
    deleted: int | None = None
    link: str = ""
