"""Check a worker's result. The daemon trusts only what it cannot read from its record and git.

A compromised worker can therefore plan and work badly. It cannot approve a plan, or report commits
that do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placet.agent.commits import files_between, with_kept_ref
from placet.agent.drift import changed_under
from placet.agent.mission_end import facts_after
from placet.agent.model_call import spent_in
from placet.agent.planner import facts_of
from placet.agent.ports import Ports
from placet.agent.record import BASE, PLACE, Record
from placet.agent.repository import repository
from placet.agent.work import Mission
from placet.agent.workplace import command_notes
from placet.case.callout import PlanHead, headed
from placet.case.case import Case
from placet.case.events import Drafted
from placet.case.mission_result import MissionResult
from placet.chat.budget import Complexity
from placet.errors import End, PlacetError
from placet.git.history import digests_at, log
from placet.git.repository import dirty_paths, facts_in, rows_at
from placet.git.run import Repo
from placet.note.frontmatter import Frontmatter, read_note
from placet.plan.parse import PlanProblems, parse_plan


class WorkerBug(PlacetError):  # noqa: N818 - named for what it is, as Stop is
    """A worker met a bug in placet, or returned what placet never returns; the text says what."""


def checked_plan(ports: Ports, case: Case, branch: str, given: Drafted) -> Drafted:
    """Return the plan that a worker wrote, with the daemon's properties.

    `branch` is the one that the planning began from. Raises WorkerBug for a text that is not a
    plan.
    """
    record = Record.load(ports.journal, case, case.generation, ports.clock)
    repo, base = repository(ports, case.request.portal, record), record.get(BASE) or ""
    note, revision = read_note(given.text), case.plan.revision + 1
    try:
        plan = parse_plan(note.body)
        complexity = case.request.complexity or Complexity(str(note.meta.get("complexity")))
        head = PlanHead(
            case.trace_id,
            case.request_id,
            case.request.agent,
            case.request.portal,
            complexity,
            revision,
            base,
            ports.clock.now(),
        )
        text = headed(head, note.body, Frontmatter(ports.config.vault.frontmatter))
    except (PlanProblems, ValueError) as error:
        raise WorkerBug(f"a worker gave back a plan that cannot be read: {error}") from error
    read = sorted(path for path, _ in given.based_on)
    return Drafted(
        case.generation,
        text,
        revision,
        facts=facts_of(plan, spent_in(record)),
        base_branch=branch,
        based_on=tuple(sorted(digests_at(repo, base, read).items())),
        base_commit=base,
        uncommitted=len(dirty_paths(repo)),
        about_worktree=tuple(facts_in(repo, rows_at(repo, base))),
        day_usd=ports.config.limits.day_usd,
        command_notes=command_notes(ports, repo, case.request.portal),
        model=given.model,
        names_tools=plan.scope.tools is not None,
    )


def checked_end(
    mission: Mission, repo: Repo, record: Record, refs: Mapping[str, str], given: MissionResult
) -> MissionResult:
    """Return the end of a mission as the repository shows it, with its references at `refs`.

    Raises WorkerBug for an end that is impossible.
    """
    place, spent = record.get(PLACE), spent_in(record)
    branch, base = (place.branch, place.base) if place is not None and given.branch else ("", "")
    if given.ok:
        if not branch:
            raise WorkerBug("a worker finished a mission that has no branch")
        tip = refs.get(f"refs/heads/{branch}", "")
        last = "" if tip == base else tip
    else:
        base = base or (place.base if place is not None else "")
        last = refs.get(given.kept, "")
    between = (repo, base, last) if base and last else None
    made = {commit.sha for commit in log(repo, last, f"^{base}")} if between else set()
    given = replace(
        given,
        branch=branch,
        base=base,
        kept=given.kept if given.kept in refs else "",
        files=files_between(*between) if between else (),
        steps=tuple(
            replace(step, commit=step.commit if step.commit in made else "")
            for step in given.steps
            if 0 < step.number <= len(mission.plan.steps)
        ),
        spent=spent,
        repository=str(repo.path),
    )
    if given.ok:
        base_branch = mission.case.plan.base_branch
        after = facts_after(repo, record, given, base_branch) if last else None
        return replace(given, commit=last, after=after)
    drift, end = given.drift, given.end
    if drift is not None:
        drift = with_kept_ref(changed_under(mission, repo, base, record), given.kept)
        end = end if drift is not None else End.REPOSITORY  # a person undid it meanwhile
    return replace(given, end=end, commit="", kept_commit=last, drift=drift)
