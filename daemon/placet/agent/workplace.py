"""The workers' ports to the outside, and a place to work in for one planning or mission."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.day_budget import Daybook
from placet.agent.record import Carrier, Record
from placet.chat.cancel import Cancel
from placet.chat.messages import Model
from placet.chat.retry import RetryPolicy
from placet.core.secret_files import git_config_secrets
from placet.core.turn.price import Price
from placet.disk.confine import Root
from placet.files.denied import ALWAYS, VAULT, Denied
from placet.git.checkpoint import undo_since
from placet.git.repository import common_dir_at, is_repository
from placet.git.worktree import Worktree
from placet.host.clock import Clock
from placet.host.tables import Config
from placet.journal.writer import Journal
from placet.note.paths import Folder, show
from placet.plan.scope import Scope
from placet.repo.places import Repo
from placet.repo.values import GitCall, OnCall
from placet.sandbox.box import Box, BoxLimits, Level
from placet.secrets import redact
from placet.tools.base import Steer, Workplace
from placet.tools.commits import refuse_lost
from placet.tools.text import known_secrets


@dataclass(frozen=True, slots=True)
class Bounds:
    """The vault, and the limits of a place to work in.

    `secrets` are the daemon's own, which no model is ever shown.
    """

    vault: Path
    config: Config
    sandbox: Level
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lent:
    """A portal as a worker of another machine has it.

    `clone` is its own bare repository of `original`, which the person has; `denied` are the paths
    that no mission may write there; `carry` returns, with a mission's references, what takes their
    commits along with its record.
    """

    clone: Path
    original: Path
    denied: Denied
    carry: Callable[[Repo, Sequence[str]], Carrier]


@dataclass(frozen=True, slots=True)
class Ports(Bounds):
    """Everything outside that a worker reaches, handed to it by `loop/app`.

    `open_model` may be called from any worker's thread and raises ModelError. `worktrees` is the
    folder below which worktrees are made. `daybook` keeps the day's budget. `say` is for the
    daemon's own log; `left_out` are the notes of which it has said that git cannot add them.
    `leaving` is set when the daemon stops: a worker ends the round in flight and begins no other.
    `lent` is there on a worker that is not the daemon's own.
    """

    worktrees: Path
    journal: Journal
    clock: Clock
    open_model: Callable[[], Model]
    prices: Sequence[Price]
    retry: RetryPolicy
    say: Callable[[str], None] = lambda _: None
    making: threading.Lock = field(default_factory=threading.Lock)
    left_out: set[str] = field(default_factory=set)
    leaving: Cancel = field(default_factory=Cancel)
    daybook: Daybook = field(default_factory=Daybook)
    lent: Lent | None = None


def journalled(record: Record) -> OnCall:
    """Return a function that journals git's processes, those that failed in rows of their own."""

    def on_call(call: GitCall) -> None:
        if call.stderr:
            record.aside(
                record.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **failure_of(call))
            )
        else:
            record.ran.append(call.duration_ms)

    return on_call


def failure_of(call: GitCall) -> dict[str, Any]:
    """Return the journal's facts about a git process that failed: all of it, and its words."""
    return {
        "operation": call.argv[0],
        "exit": call.returncode,
        "processes": 1,
        "duration_ms": round(call.duration_ms, 1),
        "command": ["git", *map(show, call.argv)],
        "stderr": redact(show(call.stderr))[0],
    }


def denied_in(repo: Repo, vault: Path) -> Denied:
    """Return the paths that no mission may write in a repository.

    Where the vault is in it, or in a worktree of it, its own folders are among them.
    """
    vault = vault.resolve()
    # Every one above it: a vault may be a repository of its own in another one, and what is merged
    # there lands in it.
    above = (
        folder
        for folder in (vault, *vault.parents)
        if is_repository(folder) and common_dir_at(folder) == repo.common_dir
    )
    top = next(above, None)
    return (
        ALWAYS
        if top is None
        else replace(VAULT, root="" if top == vault else str(vault.relative_to(top)))
    )


def _denied(bounds: Bounds, repo: Repo) -> Denied:
    lent = bounds.lent if isinstance(bounds, Ports) else None
    return denied_in(repo, bounds.vault) if lent is None else lent.denied


def checkpoint_ref(name: str) -> str:
    """Return the reference of the checkpoints of the mission whose worktree has this name."""
    return f"refs/placet/ckpt/{name}"


@contextmanager
def workplace(
    bounds: Bounds,
    repo: Repo,
    tree: Worktree,
    scope: Scope,
    steer: Steer,
    cancelled: Callable[[], bool],
    *,
    writable: bool,
) -> Iterator[Workplace]:
    """Give a place to work in: the worktree behind its wall, the vault's Knowledge, the box.

    Commands may read but not change what belongs to git in and around the worktree.
    """
    limits = bounds.config.limits
    box = Box(
        tree.path,
        read_only=(tree.git_dir, repo.common_dir),
        network=scope.network,
        hidden=(bounds.vault,),
        limits=BoxLimits(
            timeout_s=limits.command_timeout_s,
            output_bytes=limits.output_bytes,
            disk_bytes=limits.command_disk_bytes,
            free_bytes=limits.free_disk_bytes,
        ),
    )
    with ExitStack() as stack:
        denied = _denied(bounds, repo)
        root: Root = stack.enter_context(Root(tree.path, writable=writable, denied=denied))
        notes = bounds.vault / "Knowledge"
        knowledge = (
            stack.enter_context(Root(notes, writable=False))
            if notes.is_dir() and not notes.is_symlink()
            else None
        )
        config = (repo.common_dir / "config").read_text(errors="replace")  # commands can read it
        # placet's own reports hold no secret files, and there is one more for each request
        reports = str(PurePosixPath(denied.root, Folder.REPORTS)) if denied.at_root else ""
        mine = Path(Folder.REPORTS).name
        secrets = (
            *bounds.secrets,
            *git_config_secrets(config),
            *known_secrets(root, (reports,)),
            *(known_secrets(knowledge, (mine,)) if knowledge is not None else ()),
        )
        yield Workplace(
            root,
            knowledge,
            scope,
            box,
            bounds.sandbox,
            steer,
            cancelled,
            bounds.config.commands.sandbox == "none",
            secrets,
            refuse=partial(refuse_lost, tree),
            undo=partial(undo_since, tree, checkpoint_ref(tree.path.name)),
        )
