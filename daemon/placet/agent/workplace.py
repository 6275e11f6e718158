"""Give planning or a mission a place to work in, and its ports to the outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.day_budget import DayBudget
from placet.agent.dependencies import Brought, bring_into, brought, overlaps, why_elsewhere
from placet.agent.record import Carrier, Postponed, Record
from placet.case.waiting import ALLOW_HISTORY, CONTINUES, WaitReason
from placet.chat.budget import Price
from placet.chat.cancel import Cancel
from placet.chat.messages import Model
from placet.chat.retry import RetryPolicy
from placet.disk.confine import Root
from placet.disk.path_text import ALWAYS, VAULT, Denied
from placet.errors import UserError
from placet.git.checkpoint import undo_since
from placet.git.commit import attributes
from placet.git.repository import (
    common_dir_at,
    facts_in,
    is_repository,
    modules_in,
    open_repo,
    portal_problem,
    repository_above,
    rows_at,
)
from placet.git.run import GitCall, OnCall, Repo, RepositoryChanged
from placet.git.vault_history import (
    ATTACHMENT_PATTERNS,
    Allowance,
    Size,
    TooMuch,
    init_repo,
    keep_notes,
    not_added,
)
from placet.git.worktree import Worktree
from placet.host.clock import Clock
from placet.host.config import Config, VaultTable, portal_path
from placet.journal.writer import JournalAccess
from placet.note.escape import codes
from placet.note.paths import Folder, show
from placet.plan.scope import Scope
from placet.sandbox.box import LANDLOCK_LACKS, NO_SANDBOX, Box, BoxLimits, Level, Ran
from placet.sandbox.run import run
from placet.secrets import git_config_secrets, redact
from placet.tools.base import Steer, Workplace
from placet.tools.commit_secrets import refuse_uncommittable
from placet.tools.output import Results
from placet.tools.text import known_secrets
from placet.wording import counted, megabytes


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
    """Everything outside that a worker reaches; `loop/app` makes it.

    `open_model` may be called from any thread and raises ModelError. Worktrees are made below
    `worktrees`. `say` writes to the daemon's log; `left_out` are the notes that it reported as not
    addable to git. `leaving` is set when the daemon stops: a worker finishes the running round and
    starts no other. `clone` is set on a worker of another machine.
    """

    worktrees: Path
    journal: JournalAccess
    clock: Clock
    open_model: Callable[[], Model]
    prices: Sequence[Price]
    retry: RetryPolicy
    say: Callable[[str], None] = lambda _: None
    making: threading.Lock = field(default_factory=threading.Lock)
    left_out: set[str] = field(default_factory=set)
    leaving: Cancel = field(default_factory=Cancel)
    day_budget: DayBudget = field(default_factory=DayBudget)
    clone: WorkerClone | None = None


def journalled(record: Record) -> OnCall:
    """Return a function that journals git processes, failed ones in rows of their own."""

    def on_call(call: GitCall) -> None:
        if call.stderr:
            facts = failure_of(call)
            row = record.row(Action.GIT_RAN, Actor.SYSTEM, Entity.REPOSITORY, **facts)
            record.log(row, hold=True)
        else:
            record.ran.append(call.duration_ms)

    return on_call


def failure_of(call: GitCall) -> dict[str, Any]:
    """Return the journal's facts about a git process that failed, with its output."""
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

    They include the vault's own folders if the vault is in it, or in a worktree of it.
    """
    vault = vault.resolve()
    # Every repository above the vault: it may be a repository within another one, and a merge there
    # changes it.
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


def checkpoint_ref(name: str) -> str:
    """Return the ref of the checkpoints of the mission whose worktree has this name."""
    return f"refs/placet/ckpt/{name}"


def brought_by(bounds: Bounds, repo: Repo, portal: str) -> Brought:
    """Return what commands see of a portal's checkout besides the commit."""
    settings = bounds.config.portals.get(portal)
    is_clone = isinstance(bounds, Ports) and bounds.clone is not None
    if settings is None or is_clone or overlaps(repo, bounds.vault):
        return Brought()
    return brought(repo, settings.see, settings.copy)


def command_notes(bounds: Bounds, repo: Repo, portal: str) -> tuple[str, ...]:
    """Return sentences for a plan's box: what commands see of the checkout, and cannot do here."""
    seen = brought_by(bounds, repo, portal).named
    notes = [f"Commands also see {codes(seen)} of your checkout."] if seen else []
    if bounds.sandbox is Level.LANDLOCK:
        notes.append(LANDLOCK_LACKS)
    if bounds.sandbox is Level.NONE and bounds.config.commands.sandbox == "auto":
        notes.append(f"Commands cannot run here. {NO_SANDBOX}")
    return tuple(notes)


class _Commands:
    """Run commands; bring what they need into the worktree before the first one."""

    def __init__(self, bring: Callable[[], None]) -> None:
        self._bring = bring
        self._is_brought = False

    def __call__(self, *args: Any, **options: Any) -> Ran:
        if not self._is_brought:
            self._bring()
            self._is_brought = True
        return run(*args, **options)


def _box(
    bounds: Bounds, repo: Repo, tree: Worktree, scope: Scope, portal: str, what: Brought
) -> Box:
    limits = bounds.config.limits
    box = Box(
        tree.path,
        read_only=(tree.git_dir, repo.common_dir),
        network=scope.network,
        hidden=(bounds.vault,),
        readable=what.readable,
        checkout=repo.path,
        shared=what.shared,
        limits=BoxLimits(
            timeout_s=limits.command_timeout_s,
            output_bytes=limits.output_bytes,
            disk_bytes=limits.command_disk_bytes,
            free_bytes=limits.free_disk_bytes,
        ),
    )
    if (
        bounds.sandbox is Level.BUBBLEWRAP
        and portal in bounds.config.portals
        and not why_elsewhere(repo, bounds.vault, tree.path.parent, what.readable)
    ):
        return replace(box, read_only=(), git=(repo.common_dir, tree.git_dir))
    return box


@contextmanager
def workplace(
    bounds: Bounds,
    repo: Repo,
    tree: Worktree,
    scope: Scope,
    steer: Steer,
    cancelled: Callable[[], bool],
    *,
    portal: str,
    writable: bool,
) -> Iterator[Workplace]:
    """Give a place to work in: the worktree behind its wall, the vault's Knowledge, the box.

    Commands may read but not change git's files in and around the worktree. They see it in place of
    the portal's checkout, with what that has besides the commit.
    """
    what = brought_by(bounds, repo, portal).for_worktree(tree, scope.by_name())
    box, size = _box(bounds, repo, tree, scope, portal, what), bounds.config.model.sizes
    with ExitStack() as stack:
        clone = bounds.clone if isinstance(bounds, Ports) else None
        denied = denied_in(repo, bounds.vault) if clone is None else clone.denied
        root: Root = stack.enter_context(
            Root(tree.path, writable=writable, denied=denied, shown_at=box.folder)
        )
        notes = bounds.vault / "Knowledge"
        knowledge = (
            stack.enter_context(Root(notes, writable=False))
            if notes.is_dir() and not notes.is_symlink()
            else None
        )
        config = (repo.common_dir / "config").read_text(errors="replace")  # commands can read it
        # reports hold no secret files, and there is one more for each request
        reports = str(PurePosixPath(denied.root, Folder.REPORTS)) if denied.at_root else ""
        secrets = (
            *bounds.secrets,
            *git_config_secrets(config),
            *known_secrets(root, (reports,)),
            *(known_secrets(knowledge, (_REPORTS,)) if knowledge is not None else ()),
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
            run=_Commands(partial(bring_into, tree, what, secrets)),
            refuse=partial(refuse_uncommittable, tree),
            attributes=partial(attributes, tree),
            undo=partial(undo_since, tree, checkpoint_ref(tree.path.name)),
            **_lacks(repo, tree.base),
            results=Results(size.result_words, size.result_chars),
        )


def _lacks(repo: Repo, commit: str) -> dict[str, Any]:
    """Return what a worktree at this commit lacks, as `Workplace` has it."""
    rows = rows_at(repo, commit)
    return {"facts": tuple(facts_in(repo, rows)), "modules": frozenset(modules_in(rows))}


_REPORTS = Path(Folder.REPORTS).name
VAULT_EXCLUDES = ("Inbox/", "System/", ".obsidian/", ".trash/", *ATTACHMENT_PATTERNS)
"""Paths outside a vault's history (`.git/info/exclude`): placet's folders, and attachments."""
FEW_FILES = 50
"""Maximum of notes in a new vault, which gets a history without a question."""
HISTORY_RETRY_S = 60.0


def repository(ports: Ports, portal: str, record: Record) -> Repo:
    """Return the repository that a portal names.

    A folder without a repository gets one, with an initial commit. A worker of another machine gets
    its clone. Raises UserError for a portal that is not configured, or a folder that cannot be a
    repository; Postponed for a vault that may have no history.
    """
    ran = journalled(record)
    if ports.clone is not None:
        return replace(open_repo(ports.clone.path, on_call=ran), clone_of=ports.clone.original)
    if portal and portal not in ports.config.portals:
        raise UserError(
            f"There is no portal `{portal}` in System/placet.toml.",
            f"Add [portals.{portal}] with its path, or change `portal:`.",
        )
    path = portal_path(ports.vault, ports.config, portal)
    if not path.is_dir():
        raise UserError(
            f"The repository {path} is not a folder.",
            "Restore it, or correct its path in System/placet.toml.",
        )
    if portal and (problem := portal_problem(ports.vault, path)) is not None:
        raise problem
    above = None if portal or is_repository(path) else repository_above(path)
    if above is not None:  # its commits would go into the new one
        raise UserError(
            f"The vault is inside the repository {above}, and placet makes no repository in "
            "another one.",
            f"Have requests work there: placet portal add NAME '{above}'. "
            f"Or make the vault one yourself: git -C '{path}' init",
        )
    with ports.making:  # two workers must not make the same repository at once
        if is_repository(path):
            return open_repo(path, on_call=ran)
        allowed, table = None, ports.config.vault
        if path.samefile(ports.vault):
            if table.history is False:  # you have to allow it first
                raise Postponed(NO_HISTORY, HISTORY_RETRY_S, WaitReason.HISTORY)
            most_files = FEW_FILES if table.history == "ask" else None
            allowed = Allowance(int(table.history_max_mb * 1e6), most_files, ports.say)
        try:
            repo, commit = init_repo(
                path,
                excludes=VAULT_EXCLUDES if allowed else (),
                when=ports.clock.wall(),
                on_call=ran,
                allowance=allowed,
                message="Initial commit\n\nWhat was there when placet made this folder a "
                "repository.\n",
            )
        except TooMuch as found:
            raise Postponed(
                _too_much(found.size, table), HISTORY_RETRY_S, WaitReason.HISTORY
            ) from found
    record.log(
        record.row(
            Action.GIT_INITIALIZED, Actor.SYSTEM, Entity.REPOSITORY, path=str(path), commit=commit
        )
    )
    return repo


NO_HISTORY = f"""This request has no `portal:`, so it would change this vault. \
The vault is not a git repository, so you could not review or undo the change.
To let placet make it one: `{ALLOW_HISTORY}`, or `placet init --history`.
To work in a repository instead: write `portal: NAME` into this request's properties \
(`placet portal list` names them, \
`placet portal add NAME PATH` adds one).
{CONTINUES}"""


def _too_much(size: Size, table: VaultTable) -> str:
    if table.history == "ask" and size.bytes <= table.history_max_mb * 1e6:
        held = f"{counted(size.files, 'file')}, {megabytes(size.bytes)}"
        return f"{NO_HISTORY}\nIt would hold {held}; {size.left_out:,} are left out."
    kinds = ", ".join(
        f"{show(kind)} {megabytes(some)}" for kind, some in list(size.kinds.items())[:3]
    )
    return (
        f"The history (git) of the vault would hold {counted(size.files, 'file')}, "
        f"{megabytes(size.bytes)}: "
        f"more than the {table.history_max_mb:g} MB of `history_max_mb`. Nothing was started. "
        f"The most is in: {kinds}.\n"
        "Raise `history_max_mb` under `[vault]` in System/placet.toml, or leave files out: "
        "a line for each kind or folder in a file named `.gitignore` in the vault.\n"
        "Or write `portal: NAME` into this request's properties, to work in a repository instead.\n"
        + CONTINUES
    )


def keep_vault(ports: Ports, repo: Repo, record: Record) -> None:
    """Commit your changes in the vault, if placet keeps its history, so that work sees them."""
    if ports.config.vault.history is False or repo.path != ports.vault.resolve():
        return
    try:
        commit, files, left_out = keep_notes(
            repo, kept_index(ports.worktrees.parent), ports.clock.wall()
        )
    except RepositoryChanged:  # somebody else committed at this moment
        return
    if not ports.left_out.issuperset(left_out):
        ports.left_out.update(left_out)
        ports.say(not_added(left_out))
    if commit:
        record.log(
            record.row(
                Action.GIT_SNAPSHOTTED,
                Actor.SYSTEM,
                Entity.REPOSITORY,
                commit=commit,
                files=files,
                **({"left_out": left_out} if left_out else {}),
            )
        )


def kept_index(state: Path) -> Path:
    """Return the path of placet's git index for the vault, below the vault's state folder."""
    return state / "vault.index"
