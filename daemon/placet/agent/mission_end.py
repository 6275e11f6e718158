"""Return a mission's result: after its last turn, or from its record alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from placet.activity import Action, Actor, Entity
from placet.agent.commits import ScopedCommit, commit_once, files_between, ignored, out_of_scope
from placet.agent.model_call import last_words, spent_in
from placet.agent.ports import Ports
from placet.agent.record import ENDED, LAST_COMMIT, PLACE, Postponed, Record
from placet.agent.repository import repository
from placet.agent.steps import StepsUnderway, uncommitted
from placet.agent.tool_calls import MACHINE_RETRY_S
from placet.agent.work import Mission, path_of, repository_stop, without_temporary
from placet.case.mission_result import After, MissionResult
from placet.case.waiting import WaitReason
from placet.errors import End, PlacetError, Stop, ToolError, UserError, describe_bug
from placet.git.branch_facts import branch_facts
from placet.git.changes import branch_gone, status
from placet.git.history import log
from placet.git.removal import abandon_worktree
from placet.git.repository import resolve
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.note.paths import show
from placet.secrets import redact, redacted

MOST_NAMED = 10
"""Maximum of commits that a sentence names."""
_SAID_IN_FULL = (End.GAVE_UP, End.STOPPED_BY_PERSON, End.DRIFT, End.LEASE_LOST)
"""Ends to which the model's last words add nothing."""


def conclude(steps: StepsUnderway, stop: Stop | None, summary: str) -> MissionResult:
    """Commit what is left of a success, and return the mission's result, which is then recorded.

    `stop` is the reason for a failure, None for a success; `summary` is the agent's.
    """
    work, record, secrets = steps.work, steps.work.record, steps.work.record.secrets
    repo, tree = work.repo, work.tree
    if stop is not None and stop.end is not End.LEASE_LOST:
        steps.tell_of_cut_off_calls()
    if stop is None and steps.trouble is not None:
        tool, error = steps.trouble
        stop = Stop(
            End.UNRESOLVED_ERROR,
            f"the mission finished right after a failed {tool}: {error['error']}",
        )
    rest = ScopedCommit(None, [], None)
    if stop is None:
        stop, rest = _commit_rest(steps)
    with waits_if(committed=stop is None):
        last = resolve(repo, tree.ref)
        if last is None and stop is None:
            stop = repository_stop(repo, branch_gone(tree))
        last = last or tree.base
        files = files_between(repo, tree.base, last)
    if stop is None and work.mission.plan.scope.write and not files:
        stop = Stop(End.NOTHING_CHANGED, "the plan was to change files, and none was changed")
    result = MissionResult(
        branch=tree.branch,
        base=tree.base,
        steps=tuple(steps.done[number] for number in sorted(steps.done)),
        files=files,
        left_out=tuple(redact(path, secrets)[0] for path in rest.left_out or ()),
        commands=tuple(steps.commands),
        calls=dict(steps.calls),
        spent=work.limits.spent,
        repository=str(repo.path),
    )
    result = (
        _failed(steps, result, stop)
        if stop is not None
        else replace(
            result,
            summary=summary,
            commit=last if last != tree.base else "",
            ignored=tuple(redact(path, secrets)[0] for path in ignored(work)),
            leftovers=tuple(redact(path, secrets)[0] for path in rest.leftovers),
        )
    )
    if result.commit:
        base_branch = work.mission.case.plan.base_branch
        result = replace(result, after=facts_after(repo, record, result, base_branch))
    record.settle(ENDED, result)
    return result


def facts_after(repo: Repo, record: Record, ended: MissionResult, base_branch: str) -> After:
    """Return git's facts on a success's branch, with its commits that are not the mission's."""
    after = branch_facts(repo, ended.branch, base_branch, ended.added)
    own = {record.get(LAST_COMMIT), *(step.commit for step in ended.steps)}
    with waits_if(committed=True):
        made = log(repo, f"refs/heads/{ended.branch}", f"^{ended.base}")
    others = [f"{one.sha[:12]} by {show(one.author)}" for one in made if one.sha not in own]
    if not others:
        return after
    said = f"The branch has commits that are not the mission's: {', '.join(others[:MOST_NAMED])}."
    return replace(after, notes=(said, *after.notes))


def _failed(steps: StepsUnderway, result: MissionResult, stop: Stop) -> MissionResult:
    work, secrets = steps.work, steps.work.record.secrets
    tool, error = steps.trouble or ("", None)
    silent = stop.end in _SAID_IN_FULL
    return replace(
        result,
        end=stop.end,
        detail=redact(stop.detail, secrets)[0],
        error_type=stop.error_type,
        error=None if error is None else redacted(error, secrets),
        failed_tool=tool,
        last_success=steps.last_success,
        drift=work.drift,
        last_words="" if silent else last_words(work.record, work.place.secrets),
    )


def _commit_rest(steps: StepsUnderway) -> tuple[Stop | None, ScopedCommit]:
    """Commit what is left after the last step.

    Return the end if that fails, and the files that were left out.
    """
    work, record = steps.work, steps.work.record
    stop: Stop | None = None
    made = ScopedCommit(None, [], None)
    try:
        if not record.has(LAST_COMMIT):
            title = work.mission.plan.title
            made = commit_once(
                work,
                LAST_COMMIT,
                f"Finish: {title}",
                "What was left after the last completed step.",
            )
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
        return repository_stop(work.repo, error), made
    if made.left_out is None:
        with waits_if(committed=stop is None):
            rest = without_temporary([change.path for change in status(work.tree)])
            left_out = out_of_scope(work, rest)
        leftovers = tuple(sorted(set(rest).difference(left_out))) if stop is None else ()
        made = replace(made, left_out=left_out, leftovers=leftovers)
    return stop, made


@contextmanager
def waits_if(*, committed: bool) -> Iterator[None]:
    """Raise Postponed for an error of git if the mission's work is committed: it has not failed."""
    try:
        yield
    except GitError as error:
        if not committed:
            raise
        raise Postponed(str(error), MACHINE_RETRY_S, WaitReason.MACHINE) from error


def stopped_result(ports: Ports, mission: Mission, record: Record, stop: Stop) -> MissionResult:
    """Return the end of a mission that you stopped before it had a worktree.

    A partly made worktree is removed.
    """
    if (place := record.get(PLACE)) is not None:
        repo = repository(ports, mission.case.request.portal, record)
        abandon_worktree(repo, path_of(ports, mission.case, record), place.branch, place.base)
    ended = failed_result(ports, mission, UserError(stop.detail), stop.end, record)
    record.settle(ENDED, ended)
    return ended


def bug_result(ports: Ports, mission: Mission, error: Exception) -> MissionResult:
    """Return the end of a mission that hit a bug in placet.

    Its branch and worktree stay as they are.
    """
    record = Record.load(ports.journal, mission.case, mission.case.generation, ports.clock)
    return failed_result(ports, mission, UserError(describe_bug(error)), End.INTERNAL_ERROR, record)


def trouble_result(
    ports: Ports, mission: Mission, error: PlacetError, end: End, record: Record
) -> MissionResult:
    """Return the end of a mission that ran here and met an error.

    A mission that had finished stays so: the error came while placet tidied up after it.
    """
    if (ended := record.get(ENDED)) is not None and ended.ok:
        path = path_of(ports, mission.case, record)
        return replace(ended, detail=str(error), left_at=str(path) if path.exists() else "")
    return failed_result(ports, mission, error, end, record)


def failed_result(
    ports: Ports, mission: Mission, error: PlacetError, end: End, record: Record
) -> MissionResult:
    """Return the end of a mission from its record alone; `error` says why."""
    path = path_of(ports, mission.case, record)
    return MissionResult(
        spent=spent_in(record),
        repository=mission.case.request.portal,
        end=end,
        detail=str(error),
        error_type=end.value,
        last_words=last_words(record) if end in (End.INTERNAL_ERROR, End.CRASH_LOOP) else "",
        left_at=str(path) if path.exists() else "",
    )
