"""What the workers share: their ports to the outside, and a place to work in for one planning or mission."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from placet.asking import Line
from placet.clock import Clock
from placet.config import Config, portal_path
from placet.confine import ALWAYS, VAULT, Denied, Root
from placet.core.activity import Action, Actor, Entity
from placet.core.errors import UserError
from placet.core.names import show
from placet.core.portal import unfit
from placet.core.price import Price
from placet.core.retry import RetryPolicy
from placet.core.scope import Scope
from placet.core.secrets import git_config_secrets, redact
from placet.core.talk import Model
from placet.daybook import Daybook
from placet.journal import Journal
from placet.record import Record
from placet.repo import (
    GitCall,
    OnCall,
    Repo,
    Worktree,
    common_dir_at,
    files_about,
    init_repo,
    is_repository,
    is_sparse,
    open_repo,
)
from placet.sandbox import Box, Level, Limits
from placet.tools.base import Control, Files, Workplace
from placet.tools.commits import refuse_not_kept
from placet.tools.ondemand import OnDemand
from placet.tools.texts import known_secrets

VAULT_EXCLUDES = ("Inbox/", "System/", ".obsidian/", ".trash/")
"""What a vault's initial commit leaves out, and `.git/info/exclude` keeps out."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside that a worker reaches, handed to it by `app`.

    `open_model` may be called from any worker's thread and raises ModelError. `worktrees` is the folder below
    which worktrees are made. `daybook` keeps the day's budget. `secrets` are the daemon's own, which no model is ever
    shown. `leaving` is set when the daemon stops: a worker ends the round in flight and begins no other.
    """

    vault: Path
    worktrees: Path
    config: Config
    journal: Journal
    clock: Clock
    open_model: Callable[[], Model]
    prices: Sequence[Price]
    retry: RetryPolicy
    sandbox: Level
    secrets: tuple[str, ...] = ()
    making: threading.Lock = field(default_factory=threading.Lock)
    leaving: threading.Event = field(default_factory=threading.Event)
    daybook: Daybook = field(default_factory=Daybook)

    @property
    def line(self) -> Line:
        """How the model is reached now."""
        return Line(self.open_model, self.prices, self.retry)


def folders_for(ports: Ports, repo: Repo, scope: Scope, paths: Collection[str]) -> tuple[str, ...] | None:
    """Return the folders that a worktree begins with, those of `paths`; None for all, in a small repository, or for commands.

    A command may need any file; tools are brought what they ask for.
    """
    least = ports.config.daemon.sparse_from_files
    if not least or scope.run or scope.shell or files_about(repo) < least:
        return None
    return tuple(sorted({path.rpartition("/")[0] for path in paths}))


class Bounds(Protocol):
    """What of the ports a place to work in takes its bounds from."""

    @property
    def vault(self) -> Path: ...  # noqa: D102 - as in Ports
    @property
    def config(self) -> Config: ...  # noqa: D102 - as in Ports
    @property
    def sandbox(self) -> Level: ...  # noqa: D102 - as in Ports
    @property
    def secrets(self) -> tuple[str, ...]: ...  # noqa: D102 - as in Ports


def repository(ports: Ports, portal: str, record: Record) -> Repo:
    """Return the repository that a portal names; one that is none yet is made one, with an initial commit.

    Raises UserError for a portal that is not configured, or a folder that cannot be one.
    """
    if portal and portal not in ports.config.portals:
        raise UserError(f"There is no portal `{portal}` in System/placet.toml.",
                        f"Add [portals.{portal}] with its path, or change `portal:`.")
    path = portal_path(ports.vault, ports.config, portal)
    if not path.is_dir():
        raise UserError(f"The repository {path} is not a folder.", "Put it back, or mend its path in System/placet.toml.")
    if why := unfit(ports.vault.resolve(), path.resolve(), is_repository=is_repository(path)):
        raise UserError(why, "Name another folder in System/placet.toml, or another portal.")
    ran = journalled(record)
    with ports.making:  # two workers must not make the same repository at once
        if is_repository(path):
            return open_repo(path, on_call=ran)
        is_vault = path.samefile(ports.vault)
        repo, commit = init_repo(path, excludes=VAULT_EXCLUDES if is_vault else (), when=ports.clock.wall(), on_call=ran,
                                 message="Initial commit\n\nWhat was there when placet made this folder a repository.\n")
    record.note(record.row(Action.GIT_INITIALIZED, Actor.SYSTEM, Entity.REPOSITORY, path=str(path), commit=commit))
    return repo


def journalled(record: Record) -> OnCall:
    """Return what writes each git process into the journal, with the record's next write."""
    return lambda call: record.aside(record.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **facts_of(call)))


def facts_of(call: GitCall) -> dict[str, Any]:
    """Return what the journal says of a git process: the command's name and time; all of it, and its words, where it failed."""
    failed = {"command": ["git", *map(show, call.argv)], "stderr": redact(show(call.stderr))[0]} if call.stderr else {}
    return {"operation": call.argv[0], "exit": call.returncode, "duration_ms": round(call.duration_ms, 1), **failed}


def denied_in(repo: Repo, vault: Path) -> Denied:
    """Return what no mission may write in a repository: where the vault lies in it, or in a worktree of it, its own folders too."""
    vault = vault.resolve()
    top = next((folder for folder in (vault, *vault.parents) if is_repository(folder)), None)
    if top is None or common_dir_at(top) != repo.common_dir:
        return ALWAYS
    return replace(VAULT, root="" if top == vault else str(vault.relative_to(top)))


@contextmanager
def workplace(ports: Bounds, repo: Repo, tree: Worktree, scope: Scope, control: Control, cancelled: Callable[[], bool],
              *, writable: bool) -> Iterator[Workplace]:
    """Give a place to work in: the worktree behind its wall, the vault's Knowledge for reading, the box for commands.

    Commands may read but not change what belongs to git in and around the worktree.
    """
    limits = ports.config.limits
    box = Box(tree.path, read_only=(tree.git_dir, repo.common_dir), network=scope.network,
              limits=Limits(timeout_s=limits.command_timeout_s, output_bytes=limits.output_bytes,
                            disk_bytes=limits.command_disk_bytes, free_bytes=limits.free_disk_bytes))
    with ExitStack() as stack:
        root: Files = stack.enter_context(Root(tree.path, writable=writable, denied=denied_in(repo, ports.vault)))
        there = root
        if is_sparse(tree):
            root = on_demand = OnDemand(there, tree)
            on_demand.bring_secrets()
        notes = ports.vault / "Knowledge"
        knowledge = stack.enter_context(Root(notes, writable=False)) if notes.is_dir() and not notes.is_symlink() else None
        config = (repo.common_dir / "config").read_text(errors="replace")  # commands can read it
        secrets = (*ports.secrets, *git_config_secrets(config), *known_secrets(there),
                   *(known_secrets(knowledge) if knowledge is not None else ()))
        yield Workplace(root, knowledge, scope, box, ports.sandbox, control, cancelled,
                        ports.config.commands.sandbox == "none", secrets, refuse=partial(refuse_not_kept, tree))
