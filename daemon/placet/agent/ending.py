"""The end of a mission: the last commit, the result as a value, and git tidied up behind it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from placet.agent.commits import commit_once, ignored, out_of_scope
from placet.agent.model_call import last_words, spent_in
from placet.agent.record import BRANCH, ENDED, LAST_COMMIT, PLACE, ROLLED_BACK, Record
from placet.agent.steps import StepsUnderway, uncommitted
from placet.agent.underway import (
    Mission,
    astray,
    changed_files,
    path_of,
    refs,
    whole,
)
from placet.agent.workplace import Ports, repository
from placet.core.activity import Action, Actor, Entity
from placet.core.errors import End, PlacetError, Stop, ToolError, UserError, mistake
from placet.core.life.case import WORKING, Case
from placet.core.secrets import redact, redacted
from placet.core.text.names import Folder
from placet.core.turn.mission import ChangedFile, Drifted, Ended
from placet.files.confine import Root
from placet.files.vault import Vault
from placet.repo.afterwards import look_after
from placet.repo.checkout import keep_aside
from placet.repo.checkpoints import checkpoint, delete_ref
from placet.repo.commit import branch_gone, commit_message
from placet.repo.history import changes, is_ancestor
from placet.repo.removal import WorkNotKept, abandon, remove_worktree, roll_back, take_hold, tidy
from placet.repo.repository import resolve
from placet.repo.rules import status
from placet.repo.runner import Repo, RepositoryChanged
from placet.repo.worktree import Worktree, open_worktree
from placet.tools.commits import blank_secrets

_SAID_IN_FULL = (End.GAVE_UP, End.STOPPED_BY_PERSON, End.DRIFT, End.LEASE_LOST)
"""Ends to which the model's last words add nothing."""


def conclude(steps: StepsUnderway, stop: Stop | None, summary: str, began_s: float) -> Ended:
    """Commit what is left of a success, and return the mission's result; it is on the record then.

    `stop` is the reason for a failure, None for none; `summary` the agent's.
    """
    work, record, secrets = steps.work, steps.work.record, steps.work.record.secrets
    repo, tree = work.repo, work.tree
    if stop is not None and stop.end is not End.LEASE_LOST:
        steps.tell_of_cut_off_calls()
    left_out: tuple[str, ...] = ()
    if stop is None and steps.trouble is not None:
        tool, error = steps.trouble
        stop = Stop(
            End.UNRESOLVED_ERROR,
            f"the mission finished right after a failed {tool}: {error['error']}",
        )
    if stop is None:
        stop, left_out = _commit_rest(steps)
    last = resolve(repo, tree.ref)
    if last is None and stop is None:
        stop = astray(repo, branch_gone(tree))
    last = last or tree.base
    files = _changed(repo, tree.base, last)
    if stop is None and work.mission.plan.scope.write and not files:
        stop = Stop(End.NOTHING_CHANGED, "the plan was to change files, and none was changed")
    spent = work.limits.spent
    commit = last if last != tree.base and stop is None else ""
    case = work.mission.case
    ended = Ended(
        ok=stop is None,
        end=End.FINISHED if stop is None else stop.end,
        detail="" if stop is None else redact(stop.detail, secrets)[0],
        error_type="" if stop is None else stop.error_type,
        error=None if steps.trouble is None else redacted(steps.trouble[1], secrets),
        summary=summary,
        branch=tree.branch,
        base=tree.base,
        commit=commit,
        kept="",
        steps=tuple(steps.done[number] for number in sorted(steps.done)),
        files=files,
        left_out=tuple(redact(path, secrets)[0] for path in left_out),
        ignored=tuple(redact(path, secrets)[0] for path in ignored(work)) if stop is None else (),
        commands=tuple(steps.commands),
        calls=dict(steps.calls),
        failed_tool=steps.trouble[0] if steps.trouble is not None else "",
        last_success=steps.last_success,
        iterations=spent.replies,
        spent=spent,
        duration_s=work.ports.clock.monotonic() - began_s,
        repository=str(repo.path),
        drift=work.drift,
        last_words=""
        if stop is None or stop.end in _SAID_IN_FULL
        else last_words(record, work.place.secrets),
        pictures=_publish(work.ports, case, steps.pictures),
        after=look_after(repo, tree.branch, case.base_branch) if commit else None,
    )
    record.settle(ENDED, ended)
    return ended


def _commit_rest(steps: StepsUnderway) -> tuple[Stop | None, tuple[str, ...]]:
    """Commit what is left after the last step.

    Return the end if that fails, and the files that were left out.
    """
    work, record = steps.work, steps.work.record
    stop: Stop | None = None
    left_out: tuple[str, ...] | None = None
    try:
        if not record.has(LAST_COMMIT):
            title = work.mission.plan.title
            made = commit_once(
                work,
                LAST_COMMIT,
                f"Finish: {title}",
                "What was left after the last completed step.",
            )
            left_out = made.left_out
            if made.sha is not None:
                facts = {
                    "commit": made.sha,
                    "branch": work.tree.branch,
                    "files": len(made.paths),
                }
                row = record.row(Action.GIT_COMMITTED, Actor.AGENT, Entity.REPOSITORY, **facts)
                record.settle(LAST_COMMIT, made.sha, row)
    except ToolError as error:
        stop = uncommitted(error)
        steps.trouble = ("commit", error.as_result())
    except Stop as changed:
        stop = changed
    except RepositoryChanged as error:
        stop, left_out = astray(work.repo, error), ()
    if left_out is None:
        left_out = out_of_scope(work, changed_files(work.tree))
    return stop, left_out


def clean_up(ports: Ports, mission: Mission, record: Record, repo: Repo, ended: Ended) -> Ended:
    """Tidy git up behind a mission: a success keeps its branch, a failure's work goes to a ref.

    Safe to repeat after a crash at any point of it.
    """
    path = path_of(ports, mission.case, record)
    try:
        tree = open_worktree(repo, path, ended.branch, ended.base)
    except RepositoryChanged:  # gone already: a crash came while this was done the first time
        git_dir = record.get(BRANCH)
        tree = Worktree(repo, path, Path(git_dir or ""), ended.branch, ended.base)
    if ended.ok:
        return _keep_success(ports, mission.case, tree, ended)
    take_hold(tree)
    return _keep_failure(ports, mission.case, record, tree, ended)


def _keep_success(ports: Ports, case: Case, tree: Worktree, ended: Ended) -> Ended:
    """Remove a success' worktree; what its commands changed outside the scope is kept at a ref."""
    ckpt, _, left_out = refs(case, tree.path.name)
    try:
        remove_worktree(tree, ref=ckpt)
    except WorkNotKept:
        rest = drop_temporaries(tree)
        blank_secrets(tree.repo, tree, rest, ports.secrets)
        why, when = "Changed by commands, outside the approved scope", ports.clock.wall()
        remove_worktree(tree, checkpoint(tree, left_out, why, when) if rest else None, ref=ckpt)
    return replace(ended, kept=left_out if ended.left_out else "")


def _keep_failure(ports: Ports, case: Case, record: Record, tree: Worktree, ended: Ended) -> Ended:
    """Roll a failed mission's branch back, and keep its work at a ref."""
    repo = tree.repo
    ckpt, failed, _ = refs(case, tree.path.name)
    if tree.path.exists() and (tree.git_dir / "index").exists():
        blank_secrets(repo, tree, drop_temporaries(tree), ports.secrets)
    message = commit_message(
        "Work of a failed mission",
        f"What was uncommitted when it ended: {ended.end.value}.",
        case.trace_id,
        case.approved_digest,
        case.approved_by,
    )
    last = resolve(repo, ckpt)
    if (
        last is not None
        and not tree.path.exists()
        and not is_ancestor(repo, last, resolve(repo, tree.ref) or tree.base)
    ):
        # somebody deleted the worktree, and this is all that is left of what no commit has
        keep_aside(repo, last, failed)
    roll_back(tree, failed, message, ports.clock.wall())
    delete_ref(repo, ckpt)
    kept_commit = resolve(repo, failed) or ""
    kept = failed if kept_commit else ""
    if not record.has(ROLLED_BACK):
        facts = {"branch": ended.branch, "kept": kept}
        row = record.row(Action.GIT_ROLLED_BACK, Actor.SYSTEM, Entity.REPOSITORY, **facts)
        record.settle(ROLLED_BACK, kept, row)
    drift = ended.drift
    if drift is not None and kept:
        why = f"{drift.why}\nWhat the mission had done by then is kept at `{kept}`."
        drift = replace(drift, why=why)
    files = _changed(repo, ended.base, failed) if kept else ()
    return replace(ended, kept=kept, kept_commit=kept_commit, files=files, drift=drift)


def tidy_up(ports: Ports, repo: Repo, record: Record) -> None:
    """Delete what long ended missions left in the repository, and journal what it was."""
    with ports.journal.read() as reader:
        live = {row.trace_id[:8] for row in reader.cases(*WORKING)}
    now = ports.clock.wall()
    gone = tidy(
        repo, ports.worktrees, live, now - timedelta(days=ports.config.daemon.tidy_after_days), now
    )
    if gone:
        facts = {"path": str(repo.path), "gone": gone}
        record.note(record.row(Action.GIT_TIDIED, Actor.SYSTEM, Entity.REPOSITORY, **facts))


def drop_temporaries(tree: Worktree) -> list[str]:
    """Delete the temporary files of killed writes; return the other changed files."""
    changed = [change.path for change in status(tree)]
    kept = whole(changed)
    if len(kept) < len(changed):
        with Root(tree.path, writable=True) as files:
            for path in set(changed) - set(kept):
                files.delete(path)
    return kept


def _publish(ports: Ports, case: Case, pictures: Sequence[str]) -> tuple[str, ...]:
    """Write a mission's pictures into the reports' folder; return their names.

    Safe to repeat after a crash.
    """
    prefix = f"{case.trace8}_{case.request_id}-{case.generation}"
    names = tuple(f"{prefix}-{number}.png" for number in range(1, len(pictures) + 1))
    if names:
        with Vault(ports.vault) as vault:
            for name, picture in zip(names, pictures, strict=True):
                vault.publish(f"{Folder.REPORTS}/{name}", base64.b64decode(picture))
    return names


def _changed(repo: Repo, base: str, last: str) -> tuple[ChangedFile, ...]:
    return tuple(
        ChangedFile(f.path, f.status, f.added, f.deleted, f.link) for f in changes(repo, base, last)
    )


# --- ends without a worktree to look into
# ------------------------------------------------------------------------------------------------


def drifted(
    ports: Ports, mission: Mission, record: Record, drift: Drifted, base: str, began_s: float
) -> Ended:
    """Return the end of a mission under whose plan files changed before it began."""
    ended = unable(ports, mission, UserError(drift.why), began_s, End.DRIFT, record)
    ended = replace(ended, base=base, drift=drift)
    record.settle(ENDED, ended)
    return ended


def not_begun(ports: Ports, mission: Mission, record: Record, stop: Stop, began_s: float) -> Ended:
    """Return the end of a mission that a person stopped before it had a worktree.

    Parts of one are removed.
    """
    if (place := record.get(PLACE)) is not None:
        repo = repository(ports, mission.case.portal, record)
        abandon(repo, path_of(ports, mission.case, record), place.branch, place.base)
    ended = unable(ports, mission, UserError(stop.detail), began_s, stop.end, record)
    record.settle(ENDED, ended)
    return ended


def broken(ports: Ports, mission: Mission, error: Exception) -> Ended:
    """Return the end of a mission in which placet itself made a mistake.

    Its branch and worktree stay as they are.
    """
    record = Record.load(ports.journal, mission.case, mission.case.generation, ports.clock)
    now = ports.clock.monotonic()
    return unable(ports, mission, UserError(mistake(error)), now, End.INTERNAL_ERROR, record)


def unable(
    ports: Ports, mission: Mission, error: PlacetError, began_s: float, end: End, record: Record
) -> Ended:
    """Return the end of a mission of which only the record is known; `error` says why."""
    spent, path = spent_in(record), path_of(ports, mission.case, record)
    return Ended(
        ok=False,
        end=end,
        detail=str(error),
        error_type=end.value,
        error=None,
        summary="",
        branch="",
        base="",
        commit="",
        kept="",
        steps=(),
        files=(),
        left_out=(),
        commands=(),
        calls={},
        failed_tool="",
        last_success="",
        iterations=spent.replies,
        spent=spent,
        duration_s=ports.clock.monotonic() - began_s,
        repository=mission.case.portal,
        last_words=last_words(record) if end in (End.INTERNAL_ERROR, End.CRASH_LOOP) else "",
        left_at=str(path) if path.exists() else "",
    )
