"""Describe the result of a mission: steps, files, commands, cost, reason for its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from placet.chat.budget import Amount
from placet.chat.messages import Usage
from placet.errors import End
from placet.wording import dollars


@dataclass(slots=True)
class Spent:
    """What a conversation has used."""

    replies: int = 0
    input_tokens: int = 0
    """Tokens of prompts, with cache writes, without cache reads."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)
    """None if the price of any reply is unknown. It includes `lost_usd`."""
    last_usage: Usage | None = None
    lost_tokens: int = 0
    """The most that calls without an answer may have used."""
    lost_usd: Decimal | None = Decimal(0)
    """The most that those calls may have cost."""
    working_s: float = 0.0
    """Time in model and tool calls."""

    @property
    def tokens(self) -> int:
        """All tokens: of prompts, cached or not, of answers, and of calls without an answer."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.lost_tokens

    def cost(self, unknown: str) -> str:
        """Return the cost as text, and how much of it interrupted calls may have caused."""
        cost = dollars(self.cost_usd, unknown)
        if self.lost_tokens and self.lost_usd:
            cost += f" (at most {dollars(self.lost_usd)} of it for interrupted calls)"
        return cost

    def add(self, usage: Usage, cost: Decimal | None, took_s: float = 0.0) -> None:
        """Count a reply."""
        self.replies += 1
        self.working_s += took_s
        self.last_usage = usage
        self.input_tokens += usage.input_tokens + usage.cache_write_tokens
        self.output_tokens += usage.output_tokens
        self.cache_read_tokens += usage.cache_read_tokens
        self.cost_usd = None if cost is None or self.cost_usd is None else self.cost_usd + cost

    def lose(self, amount: Amount) -> None:
        """Count a call without an answer."""
        self.lost_tokens += amount.tokens
        self.lost_usd = (
            None if amount.usd is None or self.lost_usd is None else self.lost_usd + amount.usd
        )
        self.cost_usd = (
            None if amount.usd is None or self.cost_usd is None else self.cost_usd + amount.usd
        )
        self.working_s += amount.working_time_s


@dataclass(frozen=True, slots=True)
class StepDone:
    """A completed step: number, the agent's summary, commit (empty if nothing had changed)."""

    number: int
    summary: str
    commit: str


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that ran, or did not start."""

    command: str
    exit_code: int | None
    """None if it was killed, 127 if there is no such program."""
    check: str = ""
    """The planned command that this was a run of; empty for any other command."""
    before_change: bool = False
    """Whether nothing that ran before it may have changed a file."""


MOST_FILES = 200
"""Maximum changed files in a row or a report, which says how many more there are."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a mission changed: `status` is A, M, D or T.

    Lines are None for a binary file; a symbolic link has a target.
    """

    path: str
    status: str
    added: int | None
    deleted: int | None
    link: str = ""


@dataclass(frozen=True, slots=True)
class After:
    """The state of a successful branch at the end."""

    into: str
    """The branch that the others are relative to; empty for none."""
    ahead: int
    behind: int
    conflicts: tuple[str, ...]
    """Files that would conflict if it were merged now."""
    notes: tuple[str, ...]
    """Warnings about the repository."""
    unseen: tuple[str, ...]
    """Files with uncommitted changes in the checkout, which the mission did not see."""
    remote: str = ""
    """Where the branch would be pushed to; empty if unknown."""
    bare: bool = False
    """Whether there is no checkout to merge in."""


@dataclass(frozen=True, slots=True)
class Drifted:
    """Changes under a plan while it waited or ran: sentences about them, and the new basis.

    `tip` is the commit of its branch now, `based_on` the digests there of the files that the
    planning read.
    """

    why: str
    paths: tuple[str, ...]
    tip: str
    based_on: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MissionResult:
    """The work of a mission, and how it ended. Files and lines come from git, not from the model.

    The first group is set after every end, the second after a success, the third after a failure.
    """

    end: End = End.FINISHED
    spent: Spent
    repository: str
    branch: str = ""
    base: str = ""
    kept: str = ""
    """Ref of a failed attempt's work, or of files outside the scope; empty without any."""
    steps: tuple[StepDone, ...] = ()
    files: tuple[ChangedFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Changed files outside the scope, which no commit has."""
    not_kept: tuple[str, ...] = ()
    """Files that were lost because they could not be searched for secrets."""
    commands: tuple[CommandRun, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)

    summary: str = ""
    """The agent's words."""
    commit: str = ""
    """The last commit; empty without changes."""
    after: After | None = None
    """None without changes."""
    ignored: tuple[str, ...] = ()
    """Files in the scope that commands made and git ignores; no commit has them."""
    leftovers: tuple[str, ...] = ()
    """Caches, and other files in the scope that commands left behind; no commit has them."""

    detail: str = ""
    error_type: str = ""
    error: Mapping[str, Any] | None = None
    """The structured error, if any."""
    failed_tool: str = ""
    last_success: str = ""
    kept_commit: str = ""
    """The commit of the ref `kept`."""
    drift: Drifted | None = None
    """Set if files changed since the plan."""
    left_at: str = ""
    """The worktree, if it could not be removed."""
    last_words: str = ""
    """The model's last text, shortened and without secrets."""
    receipt: str = ""
    """The ref of its receipt; empty without signed approvals."""
    worker: str = ""
    """The worker of a team that reports this; empty for the daemon itself."""
    not_allowed: tuple[str, ...] = ()
    """Commands that the worker reports, and that the plan does not allow. They do not count."""
    refused: bool = False
    """Whether `kept` has commits of a worker that the plan does not allow: nothing builds on it."""

    @property
    def added(self) -> tuple[str, ...]:
        """The new files."""
        return tuple(file.path for file in self.files if file.status == "A")

    @property
    def ok(self) -> bool:
        """Whether the mission succeeded."""
        return self.end is End.FINISHED
