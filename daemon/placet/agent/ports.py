"""Define what planning and missions are given: settings, journal, clock, model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from placet.agent.day_budget import DayBudget
from placet.agent.record import Carrier
from placet.chat.cancel import Cancel
from placet.chat.messages import Model
from placet.chat.prices import Price
from placet.chat.retry import RetryPolicy
from placet.disk.path_text import Denied
from placet.git.run import Repo
from placet.host.clock import Clock
from placet.host.config import Config
from placet.journal.writer import JournalAccess
from placet.sandbox.box import Level


@dataclass(frozen=True, slots=True)
class Bounds:
    """The vault, and the limits of a place to work in.

    `secrets` are the daemon's own, which no model is shown.
    """

    vault: Path
    config: Config
    sandbox: Level
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerClone:
    """A portal as a worker of another machine has it.

    `path` is its bare clone of `original`, the person's repository. `denied` are the paths that no
    mission may write there. `carry` returns, for a mission's refs, the carrier of their commits.
    """

    path: Path
    original: Path
    denied: Denied
    carry: Callable[[Repo, Sequence[str]], Carrier] | None


@dataclass(frozen=True, slots=True)
class Ports(Bounds):
    """Everything outside that planning and missions reach; `loop/app` makes it."""

    worktrees: Path
    """The folder of all worktrees."""
    journal: JournalAccess
    clock: Clock
    open_model: Callable[[], Model]
    """May be called from any thread. Raises ModelError."""
    prices: Sequence[Price]
    retry: RetryPolicy
    say: Callable[[str], None] = lambda _: None
    """Writes to the daemon's log."""
    making: threading.Lock = field(default_factory=threading.Lock)
    """Held while a folder becomes a repository."""
    left_out: set[str] = field(default_factory=set)
    """Notes that the log already named as not addable to git."""
    leaving: Cancel = field(default_factory=Cancel)
    """Set when the daemon stops: a conversation finishes its round and begins no other."""
    day_budget: DayBudget = field(default_factory=DayBudget)
    clone: WorkerClone | None = None
    """Set on a worker of another machine."""
