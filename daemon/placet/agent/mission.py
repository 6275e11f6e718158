"""Execute an approved plan in a worktree, and return the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from placet.activity import Action, Actor, Entity
from placet.agent.checkpoints import keep, keep_call, keep_turn, rebuild, restore_worktree
from placet.agent.commits import clean_up, delete_old_leftovers, drop_temporaries, named
from placet.agent.conversation import TEXT, begin, rounds
from placet.agent.drift import changed_under
from placet.agent.limits import MissionLimits
from placet.agent.mission_end import conclude, failed_result, stopped_result, trouble_result
from placet.agent.ports import Ports
from placet.agent.prompts import file_texts, marked
from placet.agent.record import BRANCH, CHECKPOINT, ENDED, PLACE, MissionGit, Postponed, Record
from placet.agent.repository import keep_vault, missing_folder, repository
from placet.agent.steps import StepsUnderway
from placet.agent.tool_calls import MACHINE_RETRY_S, NEW_FILE, AsksPerson, answered_before
from placet.agent.work import (
    Mission,
    RunningMission,
    lost_marker,
    name_of,
    path_of,
    refs,
    repository_stop,
)
from placet.agent.workplace import workplace
from placet.case.drift import IfChanged
from placet.case.mission_result import MissionResult
from placet.case.waiting import WaitReason
from placet.chat.budget import Limits
from placet.chat.cancel import Cancel
from placet.chat.guards import GuardSettings, iteration_cap
from placet.chat.messages import Purpose, StopReason
from placet.errors import End, Interrupted, PlacetError, Stop, UserError, describe_bug, passing
from placet.git.pins import pins
from placet.git.receipt import RECEIPTS
from placet.git.repository import all_refs, head, identity, is_kept, resolve
from placet.git.run import GitError, Repo, RepositoryChanged, leavable
from placet.git.worktree import add_worktree, clear_stale_locks
from placet.journal.writes import BodyDamaged, JournalPaused, LeaseLost
from placet.plan.comments import placed
from placet.plan.left_out import text_to_do
from placet.plan.plan import agent_steps
from placet.secrets import redact
from placet.tools.arguments import Args
from placet.tools.control import Finish, GiveUp
from placet.tools.registry import executing


def place_of_mission(
    ports: Ports, mission: Mission, repo: Repo, record: Record
) -> tuple[MissionGit, str]:
    """Return the mission's place, which is chosen once and recorded.

    Second is the commit of the branch that was planned from, empty if unknown.
    """
    if (known := record.get(PLACE)) is not None:
        return known, ""
    keep_vault(ports, repo, record)
    case, found, base = mission.case, all_refs(repo), mission.base_commit or None
    if base and base not in found.at.values():
        base = resolve(repo, base)
    tip = found.at.get(f"refs/heads/{case.plan.base_branch}", "")
    if (
        base
        and is_kept(repo)
        and mission.if_changed is IfChanged.ASK
        and changed_under(mission, repo, base, record, tip) is None
    ):
        # today's notes: those that the plan is based on, or may write, have not changed
        base = tip or head(repo)
    now = ports.clock.wall()
    name = name_of(case, record)
    ours = {*refs(case, name), f"refs/placet/left/{name}", f"{RECEIPTS}{name}"}
    if (ports.worktrees / name).exists() or not found.ours.isdisjoint(ours):
        # left by a mission that is not in the journal: do not touch its work
        name += f"-{now:%Y%m%d%H%M%S}"
    branch = found.free_branch(case.request_id, case.trace8, now)
    place = MissionGit(base or head(repo), branch, name)
    record.settle(PLACE, place)
    return place, tip


REMARKS = (
    "The person approved the plan with these remarks. They are guidance: follow them where the "
    "plan leaves you room. They do not widen the scope, and add or drop no step; say in your "
    "summary what of them could not be done."
)
SILENCE = "Nobody reads that. Call a tool: continue with the plan, or `finish`, or `give_up`."
"""The reply to a turn that called no tool."""
EXAMPLES: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("write_file", NEW_FILE),
    ("complete_step", {"step": 1, "summary": "<what was done>"}),
)
"""Calls that a model is shown that called no tool: the first one of a tool that it has."""


def run_mission(ports: Ports, mission: Mission, cancel: Cancel) -> MissionResult:
    """Carry a mission out to its end, success or failure.

    With a reason, `cancel` ends the mission at the next safe point; without one, the work is left
    for later. Raises Interrupted and Postponed; calling it again resumes from the record. Anything
    else, such as a repository that is gone, is returned as a result. Raises BodyDamaged for a
    record that cannot be read.
    """
    case = mission.case
    record = Record.load(ports.journal, case, case.generation, ports.clock, mission.token)
    try:
        return _run_mission(ports, mission, record, cancel)
    except Interrupted:
        if cancel.reason and not record.has(BRANCH):
            return stopped_result(ports, mission, record, cancel.stop())
        record.end_run()
        raise
    except (Postponed, AsksPerson):
        record.end_run()
        raise
    except BodyDamaged:
        raise
    except (UserError, GitError, RepositoryChanged, OSError) as error:
        worktree = path_of(ports, case, record)
        if isinstance(error, PermissionError) and Path(str(error.filename)).is_relative_to(
            worktree
        ):
            # the mission caused it, so waiting does not help
            return trouble_result(ports, mission, UserError(str(error)), End.REPOSITORY, record)
        if cause := passing(error):
            record.end_run()
            raise Postponed(cause, MACHINE_RETRY_S, WaitReason.MACHINE) from error
        if not isinstance(error, PlacetError) and not record.has(ENDED):
            raise
        # git names placet's worktree, not the folder that is missing
        why = missing_folder(ports, case.request.portal) or UserError(str(error))
        return trouble_result(ports, mission, why, End.REPOSITORY, record)
    except Exception as error:  # placet was tidying up after the mission
        if isinstance(error, Stop | LeaseLost | JournalPaused) or not record.has(ENDED):
            raise
        bug = UserError(str(error) if isinstance(error, PlacetError) else describe_bug(error))
        return trouble_result(ports, mission, bug, End.INTERNAL_ERROR, record)
    finally:
        record.close()


def _run_mission(ports: Ports, mission: Mission, record: Record, cancel: Cancel) -> MissionResult:
    repo = repository(ports, mission.case.request.portal, record)
    at = record.get(PLACE)
    if ports.clone is not None and ports.clone.carry is not None and at is not None:
        names = [f"refs/heads/{at.branch}", *refs(mission.case, at.name)]
        record.carrier = ports.clone.carry(repo, names)  # to other machines, with the record
    ended = record.get(ENDED)
    if ended is not None:
        return clean_up(ports, mission, record, repo, ended) if ended.branch else ended
    record.check_crash_loop()
    # report earlier work from the record; do nothing more
    if record.halt is None and cancel.reason:
        record.halt = cancel.stop()
    with leavable(cancel.is_set):
        place, tip = place_of_mission(ports, mission, repo, record)
    if (
        not record.has(BRANCH)
        and (drift := changed_under(mission, repo, place.base, record, tip)) is not None
    ):
        ended = failed_result(ports, mission, UserError(drift.why), End.DRIFT, record)
        ended = replace(ended, base=place.base, drift=drift)
        record.settle(ENDED, ended)
        return ended
    # Your stop interrupts git's work for the plan, but not the work to end the mission. A stop of
    # the daemon interrupts both.
    with leavable(cancel.must_leave):
        ended = _in_worktree(ports, mission, record, repo, place, cancel)
        # The end is recorded before git is cleaned up, so that a crash in between cannot decide it
        # again.
        ended = clean_up(ports, mission, record, repo, ended)
    delete_old_leftovers(ports, repo, record)
    return ended


def _in_worktree(
    ports: Ports,
    mission: Mission,
    record: Record,
    repo: Repo,
    at: MissionGit,
    cancel: Cancel,
) -> MissionResult:
    case, path = mission.case, path_of(ports, mission.case, record)
    known = record.has(BRANCH)
    # until a lost worktree is rebuilt, now or after the next start
    mark = lost_marker(path)
    lost = known and (not path.exists() or mark.exists())
    if lost:
        mark.touch()
    scope = mission.plan.scope
    with leavable(cancel.is_set) if not known else nullcontext():
        tree = add_worktree(repo, path, at.branch, at.base, by_name=scope.by_name(), resumed=known)
    clear_stale_locks(tree, refs(case, path.name)[:1])
    if known:
        drop_temporaries(tree)
    else:
        facts = {"branch": at.branch, "base": at.base}
        row = record.row(Action.GIT_BRANCH_CREATED, Actor.SYSTEM, Entity.REPOSITORY, **facts)
        record.settle(BRANCH, str(tree.git_dir), row)
    author, pinned = identity(repo), pins(tree)
    limits = _limits(ports, mission, record, cancel)

    def steer(args: Args) -> Any:
        return steps.steer(args)

    portal = case.request.portal
    with workplace(
        ports, repo, tree, scope, steer, cancel.is_set, portal=portal, writable=True
    ) as place:
        work = RunningMission(ports, mission, record, repo, tree, author, pinned, limits, place)
        steps = StepsUnderway(work)
        record.secrets = place.secrets
        stop, summary = _work_through(steps, mark if lost else None)
        return conclude(steps, stop, summary)


def _limits(ports: Ports, mission: Mission, record: Record, cancel: Cancel) -> MissionLimits:
    limits, scope = ports.config.limits, mission.plan.scope
    cap = iteration_cap(
        mission.complexity,
        scope.max_iterations,
        agent_steps(mission.plan.steps),
        limits.iterations_ceiling,
    )
    return MissionLimits(
        "the mission",
        ports,
        record,
        Limits(
            limits.mission_tokens,
            scope.budget_usd,
            limits.mission_time_s,
            limits.mission_wall_time_s or None,
            limits.tool_calls,
        ),
        GuardSettings(cap, **ports.config.guards.model_dump(), writes=bool(scope.write)),
        cancel,
        trends=True,
    )


def _work_through(steps: StepsUnderway, lost: Path | None) -> tuple[Stop | None, str]:
    """Do the plan's steps; return the reason for a failure, if any, and the agent's summary.

    A lost worktree is rebuilt first: `lost` is its mark, None if nothing was lost.
    """
    work, cancel = steps.work, steps.work.limits.cancel
    try:
        if lost is not None:
            rebuild(work)
            lost.unlink()
        with leavable(cancel.is_set):
            done = steps.leading_literals()
            if done:
                keep(work, CHECKPOINT.at(0))
            if steps.open_step() is None:
                return None, "Every step of the plan was literal and ran as written."
            return None, _converse(steps, done)
    except Stop as stop:
        return stop, ""
    except RepositoryChanged as error:
        return repository_stop(work.repo, error), ""
    except Interrupted:
        if cancel.reason:
            return cancel.stop(), ""
        raise


def _opening(
    work: RunningMission, literals: Sequence[Mapping[str, Any]], agents_md: str
) -> list[str]:
    """Return the first message.

    A model that writes its calls is given the files that the planner read, too: it works on the
    first of them alone.
    """
    mission, model = work.mission, work.ports.config.model
    plan = marked("plan", text_to_do(mission.text, mission.plan))
    blocks = [f"The approved plan:\n\n{plan}"]
    if mission.remarks:
        listed = "\n".join(f"- {placed(one)}" for one in mission.remarks)
        blocks.append(f"{REMARKS}\n\n{marked('remarks', listed)}")
    blocks += answered_before(work.ports, mission.case)
    if model.tools == TEXT:
        paths = [path for path, _ in mission.case.plan.based_on]
        blocks += file_texts(work.place, paths, model.sizes.result_chars).values()
    if agents_md:
        blocks.append(agents_md)
    if literals:
        numbers = ", ".join(str(one["step"]) for one in literals)
        blocks.append(f"Already done, as written: step {numbers}.")
    return blocks


def _converse(steps: StepsUnderway, literals: Sequence[Mapping[str, Any]]) -> str:
    """Let the model do its steps; return its summary. Raises Stop if it gives up, or at a limit."""
    work, place = steps.work, steps.work.place
    plan = work.mission.plan
    texts = partial(_opening, work, literals)
    tools = executing(named(plan), plan.scope, place.level)
    example = next(one for one in EXAMPLES if one[0] in tools)
    talk = begin(work.limits, place, Purpose.EXECUTE, tools, texts, SILENCE, example)
    restore = partial(restore_worktree, work)
    for turn in rounds(talk, place, work.limits, restore, partial(keep_call, work)):
        try:
            for use, outcome in turn.calls:
                match outcome.ends:
                    case Finish(summary=summary):
                        return summary
                    case GiveUp(reason=reason):
                        raise Stop(End.GAVE_UP, reason)
                steps.record_call(use, outcome)
        except AsksPerson as asks:
            # that may take days
            keep_turn(work, CHECKPOINT.at(asks.asked.call), turn.reply.uses)
            raise
        if work.record.carrier is None:
            keep_turn(work, CHECKPOINT.at(turn.iteration), turn.reply.uses)
        # Small models often do not call `finish`. A model that completed all steps and then says so
        # has finished.
        if (
            not turn.reply.uses
            and steps.open_step() is None
            and turn.reply.stop_reason in (StopReason.END_TURN, StopReason.STOP_SEQUENCE)
        ):
            return redact(turn.reply.turn.text, place.secrets)[0]
    raise AssertionError("rounds go on until somebody stops taking them")
