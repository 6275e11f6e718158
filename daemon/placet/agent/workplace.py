"""Give planning or a mission a place to work in: a worktree, the vault's notes, the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from placet.agent.copies import bring_into
from placet.agent.dependencies import Brought, brought, overlaps, why_elsewhere
from placet.agent.ports import Bounds, Ports
from placet.disk.confine import Root
from placet.disk.path_text import ALWAYS, VAULT, Denied
from placet.disk.real_path import real_path
from placet.git.attributes import attributes
from placet.git.checkpoint import checkpoint_ref
from placet.git.full_disk import undo_since
from placet.git.repository import common_dir_at, facts_in, is_repository, modules_in, rows_at
from placet.git.run import Repo
from placet.git.worktree import Worktree
from placet.note.escape import codes
from placet.note.paths import Folder
from placet.plan.hosts import NEEDS_LEVEL_3, host_from
from placet.plan.scope import Scope
from placet.sandbox.box import LANDLOCK_LACKS, NO_SANDBOX, Box, BoxLimits, Level, Ran
from placet.sandbox.run import run
from placet.secret_files import git_config_secrets
from placet.tools.base import Steer, Workplace
from placet.tools.commit_secrets import refuse_uncommittable
from placet.tools.text import known_secrets

REPORTS = Path(Folder.REPORTS).name
"""The folder of the reports, in the vault's Knowledge."""


def denied_in(repo: Repo, vault: Path) -> Denied:
    """Return the paths that no mission may write in a repository.

    They include the vault's own folders if the vault is in it, or in a worktree of it.
    """
    vault = real_path(vault)
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
    if bounds.sandbox is not Level.BUBBLEWRAP:
        notes.append(NEEDS_LEVEL_3)
    return tuple(notes)


def _run_with(bring: Callable[[], None], *args: Any, **options: Any) -> Ran:
    """Run a command, after bringing what it needs into the worktree."""
    bring()
    return run(*args, **options)


def _box(
    bounds: Bounds, repo: Repo, tree: Worktree, scope: Scope, portal: str, what: Brought
) -> Box:
    limits = bounds.config.limits
    box = Box(
        tree.path,
        read_only=(tree.git_dir, repo.common_dir),
        network=scope.network,
        hosts=scope.hosts,
        private_hosts=tuple(map(host_from, bounds.config.commands.private_hosts)),
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
    box = _box(bounds, repo, tree, scope, portal, what)
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
            *(known_secrets(knowledge, (REPORTS,)) if knowledge is not None else ()),
        )
        rows = rows_at(repo, tree.base)
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
            # cached: the first command brings it, the next one again if that failed
            run=partial(_run_with, cache(partial(bring_into, tree, what, secrets))),
            refuse=partial(refuse_uncommittable, tree),
            attributes=partial(attributes, tree),
            undo=partial(undo_since, tree, checkpoint_ref(tree.path.name)),
            facts=tuple(facts_in(repo, rows)),
            modules=frozenset(modules_in(rows)),
        )
