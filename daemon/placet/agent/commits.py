"""Commits of a mission: every changed file that its scope allows, and no other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from placet.agent.drift import changed_under
from placet.agent.entries import STEP, Key
from placet.agent.tool_calls import effect_of
from placet.agent.work import Underway, astray, whole
from placet.errors import End, Stop
from placet.git.commit import Writing, commit_message, writing
from placet.git.history import changes
from placet.git.repository import resolve
from placet.git.worktree import must_be_on_branch
from placet.plan.plan import Plan
from placet.repo.rules import found_in_modules, ignored_files
from placet.repo.values import GitError, RepositoryChanged
from placet.tools.base import Effect
from placet.tools.commits import refuse_not_kept, refuse_secrets
from placet.tools.registry import BY_NAME

MAX_IGNORED = 1_000
"""Maximum of ignored files that an end names."""


@dataclass(frozen=True, slots=True)
class ScopedCommit:
    """A commit, None where nothing had changed, with its files.

    `left_out` are the files that it left in the worktree as the plan does not allow them, None
    where nobody looked.
    """

    sha: str | None
    paths: Sequence[str]
    left_out: tuple[str, ...] | None


def commit_once(work: Underway, entry: Key[str], subject: str, body: str) -> ScopedCommit:
    """Commit between an intent and the outcome that the caller records.

    An earlier life may have made the commit and been killed before its outcome: then it is found,
    not missed.
    """
    record, tree = work.record, work.tree
    if record.cut_off(entry):
        tip = resolve(work.repo, tree.ref) or tree.base
        steps = range(1, len(work.mission.plan.steps) + 1)
        if tip not in (tree.base, *(record.get(STEP.at(number)) for number in steps)):
            return ScopedCommit(
                tip, [file.path for file in changes(work.repo, f"{tip}^", tip)], None
            )
    record.intend(entry)
    if not work.touched:
        must_be_on_branch(tree)
        return ScopedCommit(None, [], ())
    done = commit(work, subject, body)
    if not done.left_out:
        work.clean()
    return done


def commit(work: Underway, subject: str, body: str) -> ScopedCommit:
    """Commit every changed file that the scope allows.

    Raises ToolError, with file and line, for a secret that the commit would add, and for a file
    that it would not hold; Stop where something changed under the plan.
    """
    case, tree = work.mission.case, work.tree
    if inside := found_in_modules(tree):  # which git does not count among the changes
        refuse_not_kept(tree, inside)
    with writing(tree) as worktree:
        changed = whole(worktree.changes())
        left_out = out_of_scope(work, changed)
        paths = sorted(set(changed) - set(left_out))
        if not paths:
            return ScopedCommit(None, [], left_out)
        refuse_not_kept(tree, [path for path in paths if (tree.path / path).exists()])
        refuse_secrets(work.repo, tree, paths, work.place.secrets)
        _must_be_unchanged(work, worktree)
        message = commit_message(
            subject,
            body,
            case.trace_id,
            case.approval.digest,
            case.approval.by,
            f"{case.request.agent} ({work.ports.config.model.name})",
        )
        sha = worktree.commit(paths, message, work.author, work.ports.clock.wall())
        return ScopedCommit(sha, paths, left_out)


def _must_be_unchanged(work: Underway, worktree: Writing) -> None:
    """Raise Stop where the repository's settings, or what the plan was based on, changed."""
    try:
        worktree.check_pins(work.pinned)
    except RepositoryChanged as error:
        raise astray(work.repo, error) from error
    work.drift = changed_under(work.mission, work.repo, work.tree.base, work.record)
    if work.drift is not None:
        raise Stop(End.DRIFT, work.drift.why)


def out_of_scope(work: Underway, changed: Sequence[str]) -> tuple[str, ...]:
    """Return the changed files that the plan does not allow, or whose commit would delete one."""
    refused = {
        path for path in changed if not work.place.may_commit(path) or _leads_out(work, path)
    }
    return tuple(sorted(refused | _in_the_place_of(refused, changed, work.tree.path)))


def ignored(work: Underway) -> Sequence[str]:
    """Return the files that commands made, the plan allows and git ignores, so in no commit."""
    if not executes(work.mission.plan):  # tools refuse to write one
        return ()
    with suppress(GitError, OSError):  # it is only told
        return [
            path
            for path in ignored_files(work.tree)
            if work.place.may_commit(f"{path}x" if path.endswith("/") else path)
        ][:MAX_IGNORED]
    return ()


def _leads_out(work: Underway, path: str) -> bool:
    """Return whether a path is a link out of the repository, to its root, or to a protected one."""
    top, link = os.path.realpath(work.tree.path), work.tree.path / path
    if not link.is_symlink():
        return False
    folder = os.path.join(top, os.path.dirname(path))  # noqa: PTH118, PTH120 - as it is written
    said = os.path.normpath(os.path.join(folder, link.readlink()))  # noqa: PTH118 - likewise
    ends = [os.path.relpath(end, top) for end in (said, os.path.realpath(link))]
    return link.readlink().is_absolute() or any(
        end == "." or end.split("/")[0] == ".." or work.place.root.denied.protects(end)
        for end in ends
    )


def _in_the_place_of(refused: AbstractSet[str], changed: Sequence[str], top: Path) -> set[str]:
    """Return the changed files whose commit would delete a refused one (a file for a folder)."""
    folders = {above for path in refused for above in _above(path)}
    return {
        path
        for path in changed
        if (path in folders or not set(_above(path)).isdisjoint(refused))
        and os.path.lexists(top / path)
    }


def _above(path: str) -> list[str]:
    """Return the folders above a path, within its repository."""
    return [str(folder) for folder in PurePosixPath(path).parents][:-1]


def executes(plan: Plan) -> bool:
    """Return whether a plan may start programs: they run in the sandbox that its reviewer saw."""
    return (
        bool(plan.scope.run)
        or plan.scope.shell
        or any(effect_of(tool) is Effect.EXECUTE for tool in named(plan))
    )


def named(plan: Plan) -> frozenset[str]:
    """Return the tools that a plan names; if it names none, those that its scope has a use for."""
    if plan.tools:
        return plan.tools
    return frozenset(
        t.name
        for t in BY_NAME.values()
        if t.effect is Effect.READ
        or (t.effect is Effect.WRITE and plan.scope.write)
        or (t.name == "run_command" and plan.scope.run)
    )
