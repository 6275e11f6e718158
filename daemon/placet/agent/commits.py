"""Commit the files that a mission changed and its scope allows; keep the others at a ref."""

from __future__ import annotations

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.drift import changed_under
from placet.agent.ports import Ports
from placet.agent.record import NOT_KEPT, PLACE, ROLLED_BACK, STEP, Key, Record
from placet.agent.tool_calls import effect_of
from placet.agent.work import (
    Mission,
    RunningMission,
    lost_marker,
    path_of,
    private_dir,
    refs,
    repository_stop,
    without_temporary,
)
from placet.case.case import Case
from placet.case.life_cycle import OPEN
from placet.case.mission_result import ChangedFile, Drifted, MissionResult
from placet.chat.guards import Effect
from placet.disk.confine import Root
from placet.errors import End, Stop, ToolError, UserError
from placet.git.attributes import found_in_modules
from placet.git.changes import ignored_files, status
from placet.git.checkpoint import delete_ref, leave_out, save, save_commit
from placet.git.commit import Writing, writing
from placet.git.commit_message import commit_message
from placet.git.history import changes, is_ancestor
from placet.git.index import Staged
from placet.git.leftovers import Leftover, delete_leftovers, remove_leftovers
from placet.git.removal import (
    WorkNotKept,
    abandon_worktree,
    lock_worktree,
    remove_worktree,
    roll_back,
)
from placet.git.repository import is_repository, open_repo, resolve
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.git.worktree import Worktree, open_worktree
from placet.host.config import repositories
from placet.journal.reader import Reader
from placet.note.paths import show
from placet.plan.plan import Plan
from placet.secrets import redact
from placet.tools.commit_secrets import blank_secrets, refuse_not_kept, refuse_secrets
from placet.tools.registry import BY_NAME
from placet.tools.text_file import is_binary

MAX_IGNORED = 1_000
"""Maximum of ignored files that an end names."""


@dataclass(frozen=True, slots=True)
class ScopedCommit:
    """A commit, None if nothing had changed, with its files.

    `left_out` are the changed files that the plan does not allow, None if that was not checked.
    `leftovers` are caches, and files in the scope that commands only left behind.
    """

    sha: str | None
    paths: Sequence[str]
    left_out: tuple[str, ...] | None
    leftovers: tuple[str, ...] = ()


def commit_once(work: RunningMission, entry: Key[str], subject: str, body: str) -> ScopedCommit:
    """Commit after recording the intent; the caller records the outcome.

    The daemon may have been killed after it made the commit: then the commit is found and reused.
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
    return commit(work, subject, body)


def commit(work: RunningMission, subject: str, body: str) -> ScopedCommit:
    """Commit every changed file that the scope allows, without what commands only left behind.

    Raises ToolError, with file and line, for a secret that the commit would add, and for a file
    that git would not store; Stop if something changed under the plan.
    """
    case, tree = work.mission.case, work.tree
    with writing(tree) as worktree:
        if inside := found_in_modules(tree):  # git does not list those as changes
            refuse_not_kept(tree, inside)
        changed = without_temporary(worktree.changes())
        left_out = out_of_scope(work, changed)
        paths = sorted(set(changed) - set(left_out))
        if not paths:
            return ScopedCommit(None, [], left_out, tuple(worktree.caches))
        refuse_not_kept(tree, [path for path in paths if (tree.path / path).exists()])
        _must_be_unchanged(work, worktree)
        left: list[str] = []

        def allow(staged: Staged) -> list[str]:
            searched = _without_leftovers(staged, work.mission.plan.scope.by_name(), left)
            left.extend(refuse_secrets(tree, searched, work.place.secrets))
            return left

        message = commit_message(
            redact(subject, work.place.secrets)[0],
            redact(body, work.place.secrets)[0],
            case.trace_id,
            case.approval.digest,
            case.approval.by,
            f"{case.request.agent} ({work.ports.config.model.name})",
        )
        sha = worktree.commit(paths, message, work.author, work.ports.clock.wall(), allow)
        kept = sorted(set(paths).difference(left))
        return ScopedCommit(sha, kept, left_out, (*worktree.caches, *left))


def _without_leftovers(staged: Staged, by_name: Sequence[str], left: list[str]) -> Staged:
    """Yield what is work; put into `left` new files that are not text, unless named in full."""
    for change, data in staged:
        is_text = data is None or not is_binary(data)
        if is_text or change.status != "A" or change.path in by_name:
            yield change, data
        else:
            left.append(change.path)


def _must_be_unchanged(work: RunningMission, worktree: Writing) -> None:
    """Raise Stop if the repository's settings changed, or what the plan was based on."""
    try:
        worktree.check_pins(work.pinned)
    except RepositoryChanged as error:
        raise repository_stop(work.repo, error) from error
    work.drift = changed_under(work.mission, work.repo, work.tree.base, work.record)
    if work.drift is not None:
        raise Stop(End.DRIFT, work.drift.why)


def out_of_scope(work: RunningMission, changed: Sequence[str]) -> tuple[str, ...]:
    """Return the changed files that the plan does not allow, or whose commit would delete one."""
    refused = {
        path for path in changed if not work.place.may_commit(path) or _leads_out(work, path)
    }
    return tuple(sorted(refused | _files_that_replace(refused, changed, work.tree.path)))


def ignored(work: RunningMission) -> Sequence[str]:
    """Return the files that commands made, the plan allows and git ignores: no commit has them."""
    if not executes(work.mission.plan):  # tools refuse to write one
        return ()
    with suppress(GitError, OSError):  # only for the report
        return [
            path
            for path in ignored_files(work.tree)
            if work.place.may_commit(f"{path}x" if path.endswith("/") else path)
        ][:MAX_IGNORED]
    return ()


def _leads_out(work: RunningMission, path: str) -> bool:
    """Return whether a path is a link out of the repository, to its root, or to a protected one."""
    top, link = os.path.realpath(work.tree.path), work.tree.path / path
    if not link.is_symlink():
        return False
    folder = os.path.join(top, os.path.dirname(path))  # noqa: PTH118, PTH120 - as it is written
    target = os.path.normpath(os.path.join(folder, link.readlink()))  # noqa: PTH118 - likewise
    ends = [os.path.relpath(end, top) for end in (target, os.path.realpath(link))]
    return link.readlink().is_absolute() or any(
        end == "." or end.split("/")[0] == ".." or work.place.root.denied.protects(end)
        for end in ends
    )


def _files_that_replace(refused: AbstractSet[str], changed: Sequence[str], top: Path) -> set[str]:
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
    """Return whether a plan may start programs; they run in the sandbox that its reviewer saw."""
    return (
        bool(plan.scope.run)
        or plan.scope.shell
        or any(effect_of(tool) is Effect.EXECUTE for tool in named(plan))
    )


def named(plan: Plan) -> frozenset[str]:
    """Return the tools that a plan names, else those that its scope has a use for."""
    if plan.tools or plan.scope.tools is not None:
        return plan.tools
    return frozenset(
        t.name
        for t in BY_NAME.values()
        if t.effect is Effect.READ
        or (t.effect is Effect.WRITE and plan.scope.write)
        or (t.name == "run_command" and plan.scope.run)
    )


def clean_up(
    ports: Ports, mission: Mission, record: Record, repo: Repo, ended: MissionResult
) -> MissionResult:
    """Clean git up after a mission: a success keeps its branch, a failure's work goes to a ref.

    Can be repeated after a crash.
    """
    path, place = path_of(ports, mission.case, record), record.get(PLACE)
    assert place is not None, "a mission with a branch has its place on the record"
    # not from the mission's result, which a worker may have written
    ended = replace(ended, branch=place.branch, base=place.base, left_at="")
    try:
        tree = open_worktree(repo, path, place.branch, place.base)
    except RepositoryChanged:  # already removed, before a crash
        tree = Worktree(repo, path, private_dir(repo, path, record), place.branch, place.base)
    if ended.ok:
        return _keep_success(ports, mission.case, record, tree, ended)
    lock_worktree(tree)
    return _keep_failure(ports, mission.case, record, tree, ended)


def _keep_success(
    ports: Ports, case: Case, record: Record, tree: Worktree, ended: MissionResult
) -> MissionResult:
    """Remove the worktree of a success; keep what commands changed outside the scope at a ref."""
    ckpt, _, left_out = refs(case, tree.path.name)
    try:
        remove_worktree(tree, ref=ckpt)
    except WorkNotKept:
        _take_secrets_out(ports, record, tree)
        rest = status(tree)
        why, when = "Changed by commands, and in no commit", ports.clock.wall()
        remove_worktree(tree, save(tree, left_out, why, when) if rest else None, ref=ckpt)
    if not ended.commit:
        abandon_worktree(tree.repo, tree.path, ended.branch, ended.base)
    not_kept = _not_kept(record)
    others = tuple(path for path in ended.left_out if path not in not_kept)
    leftovers = tuple(path for path in ended.leftovers if path not in not_kept)
    kept = left_out if others or any(not path.endswith("/") for path in leftovers) else ""
    return replace(ended, kept=kept, left_out=others, leftovers=leftovers, not_kept=not_kept)


def _take_secrets_out(ports: Ports, record: Record, tree: Worktree) -> None:
    """Redact secrets in the uncommitted files, and remove files that cannot be searched.

    The removed names are recorded first, so that a crash does not lose them.
    """
    unsearched = blank_secrets(tree, drop_temporaries(tree), ports.secrets)
    if unsearched and not record.has(NOT_KEPT):
        names = (redact(path, ports.secrets)[0] for path in unsearched)
        record.settle(NOT_KEPT, "".join(f"{name}\0" for name in names))
    leave_out(tree, unsearched)


def _not_kept(record: Record) -> tuple[str, ...]:
    return tuple((record.get(NOT_KEPT) or "").split("\0")[:-1])


def _keep_failure(
    ports: Ports, case: Case, record: Record, tree: Worktree, ended: MissionResult
) -> MissionResult:
    repo = tree.repo
    ckpt, failed, _ = refs(case, tree.path.name)
    if tree.path.exists() and (tree.git_dir / "index").exists():
        _take_secrets_out(ports, record, tree)
    message = commit_message(
        "Work of a failed mission",
        f"What was uncommitted when it ended: {ended.end.value}.",
        case.trace_id,
        case.approval.digest,
        case.approval.by,
    )
    lost = lost_marker(tree.path)
    if not tree.path.exists() and resolve(repo, failed) is None:
        lost.touch()
    roll_back(tree, failed, message, ports.clock.wall())
    last = resolve(repo, ckpt)
    if last is not None and lost.exists() and not is_ancestor(repo, last, ended.base):
        # somebody deleted the worktree: only the checkpoint has the uncommitted work
        save_commit(repo, last, failed, ports.clock.wall())
    delete_ref(repo, ckpt)
    lost.unlink(missing_ok=True)
    kept_commit = resolve(repo, failed) or ""
    kept, not_kept = failed if kept_commit else "", _not_kept(record)
    if not record.has(ROLLED_BACK):
        facts: dict[str, Any] = {"branch": ended.branch, "kept": kept}
        facts |= {"not_kept": [show(path) for path in not_kept]} if not_kept else {}
        row = record.row(Action.GIT_ROLLED_BACK, Actor.SYSTEM, Entity.REPOSITORY, **facts)
        record.settle(ROLLED_BACK, kept, row)
    drift = with_kept_ref(ended.drift, kept)
    files = files_between(repo, ended.base, failed) if kept else ()
    return replace(
        ended, kept=kept, files=files, not_kept=not_kept, kept_commit=kept_commit, drift=drift
    )


def with_kept_ref(drift: Drifted | None, kept: str) -> Drifted | None:
    """Return a sentence on what changed under a plan, with the ref that keeps the work."""
    if drift is None or not kept:
        return drift
    why = f"{drift.why}\nWhat the mission had done by then is kept at `{kept}`."
    return replace(drift, why=why)


def delete_old_leftovers(ports: Ports, repo: Repo, record: Record) -> None:
    """Delete refs and worktrees that long finished missions left, and journal it.

    If git or the disk refuses, the next mission does it: this one's result does not depend on it.
    """
    with ports.journal.ask() as reader:
        live = {row.trace_id[:8] for row in reader.cases(*OPEN)}
    now = ports.clock.wall()
    before = now - timedelta(days=ports.config.daemon.tidy_after_days)
    redact_in = partial(blank_secrets, own=ports.secrets)
    gone: list[str] = []
    with suppress(GitError, RepositoryChanged, UserError, ToolError, OSError):
        gone = delete_leftovers(repo, ports.worktrees, live, before, now, redact_in)
    if gone:
        facts = {"path": str(repo.path), "gone": gone}
        record.log(record.row(Action.GIT_TIDIED, Actor.SYSTEM, Entity.REPOSITORY, **facts))


def leftover_worktrees(worktrees: Path, reader: Reader) -> list[str]:
    """Return the names of worktrees that belong to no open case and no replay."""
    live = _in_use(reader)
    trees = worktrees.iterdir() if worktrees.is_dir() else ()
    return sorted(p.name for p in trees if p.is_dir() and not any(one in p.name for one in live))


def remove_leftover_worktrees(ports: Ports) -> list[Leftover]:
    """Remove the worktrees that a crash left, after saving their work at refs.

    Raises PlacetError or OSError if git or the disk refuses.
    """
    with ports.journal.read() as reader:
        live = _in_use(reader)
        if not leftover_worktrees(ports.worktrees, reader):
            return []
    repos = []
    for place in repositories(ports.vault, ports.config):
        if is_repository(place):
            try:
                repos.append(open_repo(place))
            except UserError as error:
                ports.say(f"placet cannot check for old worktrees of {place}: {error.what}")
    now = ports.clock.wall()
    redact_in = partial(blank_secrets, own=ports.secrets)
    return remove_leftovers(repos, ports.worktrees, live, now, now, redact_in)


def _in_use(reader: Reader) -> set[str]:
    """Return the trace ids in the names of worktrees that are in use.

    A mission that asks a person keeps its worktree. A replay may run next to the daemon.
    """
    return {"replay-", *(row.trace_id[:8] for row in reader.cases(*OPEN))}


def drop_temporaries(tree: Worktree) -> list[str]:
    """Delete the temporary files of interrupted writes; return the other changed files."""
    changed = [change.path for change in status(tree)]
    kept = without_temporary(changed)
    if len(kept) < len(changed):
        with Root(tree.path, writable=True) as files:
            for path in set(changed) - set(kept):
                files.delete(path)
    return kept


def files_between(repo: Repo, base: str, last: str) -> tuple[ChangedFile, ...]:
    """Return the files that differ between two commits."""
    return tuple(
        ChangedFile(f.path, f.status, f.added, f.deleted, f.link) for f in changes(repo, base, last)
    )
