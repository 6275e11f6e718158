"""Bring a worker's commits into the person's repository, and continue a mission there.

You may change `[team] workers` while missions run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from placet.activity import Action
from placet.agent.mission import run_mission
from placet.agent.mission_end import failed_result
from placet.agent.ports import Ports
from placet.agent.record import AUTHOR, ENDED, PLACE, MissionGit, Postponed, Record
from placet.agent.repository import repository
from placet.agent.work import Mission, path_of, refs
from placet.agent.workplace import denied_in
from placet.case.case import Case
from placet.case.life_cycle import OPEN
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.cancel import Cancel
from placet.errors import End, PlacetError, UserError, passing
from placet.git.checkpoint import checkpoint_ref, restore
from placet.git.commit_message import commit_message
from placet.git.history import is_ancestor
from placet.git.repository import head, identity
from placet.git.run import GitError, Repo, RepositoryChanged
from placet.git.worktree import add_worktree
from placet.journal.writes import BodyDamaged, Guard
from placet.loop.work import MAX_ROWS
from placet.plan.statement import FULL_COMMIT
from placet_team.branch_checks import Allowed, BranchRefused, check_branch
from placet_team.git_fetching import (
    REMOTE_RETRY_S,
    fetch_commits,
    leavable_by,
    redact_line,
    work_remote,
)
from placet_team.git_refs import forget_worktree, move_refs, refs_at
from placet_team.remote_refs import refs_of_remote
from placet_team.result_checks import WorkerBug, checked_end
from placet_team.tables import DropRefs, DropWork, refs_of, work_row

AWAY_RETRY_S = 15.0
"""Retry interval while the person's repository or the work remote is not there."""


def run_mission_here(ports: Ports, mission: Mission, cancel: Cancel) -> MissionResult:
    """Run a mission in this process, after fetching what workers did of it.

    Raises as `agent.mission.run_mission` does.
    """
    case = mission.case
    drop = [DropWork(case.trace_id, case.generation), DropRefs(case.trace_id, case.generation)]
    guard = Guard(case.trace_id, mission.token)
    with ports.journal.read() as reader:
        to = refs_of(reader.connection, case.trace_id, case.generation)
        away = work_row(reader.connection, case.trace_id)
    if to is not None:
        record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
        try:
            with leavable_by(cancel, ports.leaving):
                _fetch(ports, mission, record, to)
        except (BranchRefused, RepositoryChanged) as error:
            stopped = not_taken(ports, mission, record, error, to)
            stopped = replace(stopped, worker=_last_worker(ports, case))
            record.settle(ENDED, stopped)
            ports.journal.commit([guard, *drop])
            clear_remote(ports, case, to.values())
            return stopped
        except BodyDamaged:
            raise
        except (UserError, GitError, OSError) as error:
            why = passing(error) or str(error)
            raise Postponed(why, AWAY_RETRY_S, WaitReason.MACHINE) from error
        finally:
            record.close()
    if to is not None or away:
        ports.journal.commit([guard, *drop])
    record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
    ended = run_mission(ports, mission, cancel)
    clear_remote(ports, case, () if to is None else to.values())
    if not record.has(ENDED):
        return ended
    # its end may be a worker's
    repo, place = repository(ports, case.request.portal, record), record.get(PLACE)
    names = [] if place is None else [f"refs/heads/{place.branch}", *refs(case, place.name)]
    ended = checked_here(ports, mission, record, repo, refs_at(repo, names), ended)
    return replace(ended, worker=_last_worker(ports, case))


def _last_worker(ports: Ports, case: Case) -> str:
    """Return the last worker that had a case's work, empty if the journal names none."""
    with ports.journal.ask() as reader:
        rows = reader.activity(case.trace_id, limit=MAX_ROWS, newest=True)
    held = (row.details for row in reversed(rows) if row.action_type == Action.LEASE_ACQUIRED)
    return next((str(facts["worker"]) for facts in held if "worker" in facts), "")


def _fetch(ports: Ports, mission: Mission, record: Record, to: Mapping[str, str]) -> None:
    """Restore references and worktree as the last worker had them. Safe to repeat."""
    case, place = mission.case, record.get(PLACE)
    repo = repository(ports, case.request.portal, record)
    path = path_of(ports, case, record)
    forget_worktree(repo, path)
    fetch_mission(ports, mission, record, repo, to)
    if place is None or f"refs/heads/{place.branch}" not in to:
        return
    by_name = mission.plan.scope.by_name()
    tree = add_worktree(repo, path, place.branch, place.base, by_name=by_name)
    if kept := to.get(refs(case, place.name)[0]):
        restore(tree, kept)


def needed_remote(ports: Ports, portal: str) -> str:
    """Return the git remote for a portal's commits; raises Postponed without one."""
    if url := work_remote(ports.vault, ports.config, portal):
        return url
    what = f"the portal {portal}" if portal else "the vault"
    raise Postponed(
        f"no git remote is set from which workers can fetch the commits of {what}. Set one: "
        "placet config set team.work_remote ADDRESS",
        AWAY_RETRY_S,
        WaitReason.MACHINE,
    )


def clear_remote(ports: Ports, case: Case, commits: Collection[str]) -> None:
    """Delete soon what finished cases left on the remote of a case.

    `commits` are some of the case; without any, do nothing.
    """

    def ended(trace_ids: Collection[str]) -> Collection[str]:
        with ports.journal.read() as reader:
            known = {row.trace_id for row in reader.cases_of(trace_ids)}
            return known - {row.trace_id for row in reader.cases(*OPEN)}

    url = work_remote(ports.vault, ports.config, case.request.portal)
    if url and commits:
        remote, is_sha256 = refs_of_remote(ports.vault, url), len(next(iter(commits))) > 40
        remote.clear_later(ended, ports.leaving.is_set, is_sha256=is_sha256)


def kept_ref(case: Case) -> str:
    """Return the reference that keeps a mission's commits if its branch cannot."""
    return f"refs/placet/failed/{case.request_id}-{case.trace8}-{case.generation}"


def check_refs(case: Case, place: MissionGit | None, to: Mapping[str, str]) -> None:
    """Raise WorkerBug unless `to` names the mission's own references, and commits.

    Workers record it. `place` is what the daemon recorded, None for a mission that has not begun.
    """
    allowed = {kept_ref(case)}
    if place is not None:
        allowed |= {f"refs/heads/{place.branch}", *refs(case, place.name)}
    for name, commit in to.items():
        if name not in allowed or not FULL_COMMIT.fullmatch(commit):
            raise WorkerBug(
                f"a worker recorded a reference that is not its mission's: {name!r:.200}"
            )


def fetch_mission(
    ports: Ports, mission: Mission, record: Record, repo: Repo, to: Mapping[str, str]
) -> None:
    """Fetch a mission's commits, check its branch, and set its references. Safe to repeat.

    Raises Postponed if the remote does not send them, BranchRefused if the plan does not allow the
    branch, and RepositoryChanged if another program moved a reference. In the last two cases
    `kept_ref` keeps the commits.
    """
    case, place = mission.case, record.get(PLACE)
    check_refs(case, place, to)
    if not to or place is None:
        return
    url = needed_remote(ports, case.request.portal)
    try:
        fetch_commits(repo, url, [*dict.fromkeys(to.values())], [place.base, head(repo)])
    except GitError as error:
        reason = (
            passing(error) or f"cannot fetch from {redact_line(url)}: {redact_line(error.stderr)}"
        )
        raise Postponed(reason, REMOTE_RETRY_S, WaitReason.MACHINE) from error
    allowed = _allowed(ports, mission, record, repo, place)
    known = refs_at(repo, [*to])
    moved = ""
    for name, commit in to.items():
        if name.startswith("refs/heads/"):
            try:
                check_branch(repo, commit, allowed)
            except BranchRefused:
                move_refs(repo, {kept_ref(case): commit})
                raise
        before = known.get(name, commit)
        if before != commit and not name.startswith(checkpoint_ref("")):
            moved = moved or ("" if _is_ours(repo, place.base, before, commit) else name)
    if moved:
        move_refs(repo, {kept_ref(case): to[moved]})
        raise RepositoryChanged(f"somebody else moved {moved}; the work is at {kept_ref(case)}")
    move_refs(repo, to, known)


def _allowed(
    ports: Ports, mission: Mission, record: Record, repo: Repo, place: MissionGit
) -> Allowed:
    case = mission.case
    approval = case.approval
    message = commit_message("Work", "", case.trace_id, approval.digest, approval.by)
    return Allowed(
        place.base,
        mission.plan.scope,
        denied_in(repo, ports.vault),
        record.get(AUTHOR) or identity(repo),
        ports.secrets,
        frozenset(message.splitlines()[1:]),
    )


def checked_here(
    ports: Ports,
    mission: Mission,
    record: Record,
    repo: Repo,
    to: Mapping[str, str],
    given: MissionResult,
) -> MissionResult:
    """Return a worker's end as the repository shows it: `checked_end`, and whether it is refused.

    A failed mission's commits are kept, whatever they are. Nothing may build on some.
    """
    ended, place = checked_end(mission, repo, record, to, given), record.get(PLACE)
    if ended.ok or not ended.kept_commit or place is None:
        return ended
    try:
        check_branch(repo, ended.kept_commit, _allowed(ports, mission, record, repo, place))
    except (BranchRefused, GitError):
        return replace(ended, refused=True)
    return ended


def _is_ours(repo: Repo, base: str, before: str, now: str) -> bool:
    """Return whether `before` is a mission's own commit, which `now` builds on."""
    return before != base and is_ancestor(repo, base, before) and is_ancestor(repo, before, now)


def not_taken(
    ports: Ports,
    mission: Mission,
    record: Record,
    error: PlacetError,
    to: Mapping[str, str],
) -> MissionResult:
    """Return the end of a mission whose branch was refused, or moved by another program."""
    end = End.SCOPE if isinstance(error, BranchRefused) else End.REPOSITORY
    ended = failed_result(ports, mission, error, end, record)
    commit = next((at for name, at in to.items() if name.startswith("refs/heads/")), "")
    if not commit:
        return ended
    refused = end is End.SCOPE
    return replace(ended, kept=kept_ref(mission.case), kept_commit=commit, refused=refused)


def without_checkpoints(to: Mapping[str, str], instead: str) -> Mapping[str, str]:
    """Return references without the checkpoint; `instead`, if not empty, then names its commit."""
    found = dict(to)
    for name in [one for one in to if one.startswith(checkpoint_ref(""))]:
        commit = found.pop(name)
        if instead:
            found[instead] = commit
    return found
