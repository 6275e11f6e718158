"""The end of a mission: the last commit, and the result as a value."""

from __future__ import annotations

from dataclasses import replace

from placet.activity import Action, Actor, Entity
from placet.agent.commits import commit_once, ignored, out_of_scope
from placet.agent.entries import ENDED, LAST_COMMIT, PLACE
from placet.agent.model_call import last_words, spent_in
from placet.agent.record import Record
from placet.agent.repositories import repository
from placet.agent.steps import StepsUnderway, uncommitted
from placet.agent.tidying import files_between
from placet.agent.work import Mission, astray, changed_files, path_of
from placet.agent.workplace import Ports
from placet.chat.result import Drifted, Ended, Finished, Stopped, WorkDone
from placet.errors import End, PlacetError, Stop, ToolError, UserError, mistake
from placet.git.commit import branch_gone
from placet.git.removal import (
    abandon,
)
from placet.git.repository import resolve
from placet.repo.afterwards import look_after
from placet.repo.values import RepositoryChanged
from placet.secrets import redact, redacted

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
    files = files_between(repo, tree.base, last)
    if stop is None and work.mission.plan.scope.write and not files:
        stop = Stop(End.NOTHING_CHANGED, "the plan was to change files, and none was changed")
    did = WorkDone(
        branch=tree.branch,
        base=tree.base,
        steps=tuple(steps.done[number] for number in sorted(steps.done)),
        files=files,
        left_out=tuple(redact(path, secrets)[0] for path in left_out),
        commands=tuple(steps.commands),
        calls=dict(steps.calls),
        iterations=work.limits.spent.replies,
        spent=work.limits.spent,
        duration_s=work.ports.clock.monotonic() - began_s,
        repository=str(repo.path),
    )
    ended = _finished(steps, did, summary, last) if stop is None else _stopped(steps, did, stop)
    record.settle(ENDED, ended)
    return ended


def _finished(steps: StepsUnderway, did: WorkDone, summary: str, last: str) -> Finished:
    work, secrets = steps.work, steps.work.record.secrets
    commit = last if last != did.base else ""
    into = work.mission.case.plan.base_branch
    return Finished(
        work=did,
        summary=summary,
        commit=commit,
        ignored=tuple(redact(path, secrets)[0] for path in ignored(work)),
        after=look_after(work.repo, did.branch, into) if commit else None,
    )


def _stopped(steps: StepsUnderway, did: WorkDone, stop: Stop) -> Stopped:
    work, secrets = steps.work, steps.work.record.secrets
    tool, error = steps.trouble or ("", None)
    silent = stop.end in _SAID_IN_FULL
    return Stopped(
        work=did,
        end=stop.end,
        detail=redact(stop.detail, secrets)[0],
        error_type=stop.error_type,
        error=None if error is None else redacted(error, secrets),
        failed_tool=tool,
        last_success=steps.last_success,
        drift=work.drift,
        last_words="" if silent else last_words(work.record, work.place.secrets),
    )


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


# --- ends without a worktree to look into
# ------------------------------------------------------------------------------------------------


def drifted(
    ports: Ports, mission: Mission, record: Record, drift: Drifted, base: str, began_s: float
) -> Stopped:
    """Return the end of a mission under whose plan files changed before it began."""
    ended = unable(ports, mission, UserError(drift.why), began_s, End.DRIFT, record)
    ended = replace(ended, work=replace(ended.work, base=base), drift=drift)
    record.settle(ENDED, ended)
    return ended


def not_begun(
    ports: Ports, mission: Mission, record: Record, stop: Stop, began_s: float
) -> Stopped:
    """Return the end of a mission that a person stopped before it had a worktree.

    Parts of one are removed.
    """
    if (place := record.get(PLACE)) is not None:
        repo = repository(ports, mission.case.request.portal, record)
        abandon(repo, path_of(ports, mission.case, record), place.branch, place.base)
    ended = unable(ports, mission, UserError(stop.detail), began_s, stop.end, record)
    record.settle(ENDED, ended)
    return ended


def broken(ports: Ports, mission: Mission, error: Exception) -> Stopped:
    """Return the end of a mission in which placet itself made a mistake.

    Its branch and worktree stay as they are.
    """
    record = Record.load(ports.journal, mission.case, mission.case.generation, ports.clock)
    now = ports.clock.monotonic()
    return unable(ports, mission, UserError(mistake(error)), now, End.INTERNAL_ERROR, record)


def unable(
    ports: Ports, mission: Mission, error: PlacetError, began_s: float, end: End, record: Record
) -> Stopped:
    """Return the end of a mission of which only the record is known; `error` says why."""
    spent, path = spent_in(record), path_of(ports, mission.case, record)
    did = WorkDone(
        iterations=spent.replies,
        spent=spent,
        duration_s=ports.clock.monotonic() - began_s,
        repository=mission.case.request.portal,
    )
    return Stopped(
        work=did,
        end=end,
        detail=str(error),
        error_type=end.value,
        last_words=last_words(record) if end in (End.INTERNAL_ERROR, End.CRASH_LOOP) else "",
        left_at=str(path) if path.exists() else "",
    )
