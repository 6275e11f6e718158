"""Check a worker's result. The daemon trusts only what it cannot read from its record and git.

A compromised worker can therefore plan and work badly. It cannot approve a plan, or report commits
that do not exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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
from placet.case.checks import words_of
from placet.case.events import Asked, Drafted, PlanningFailed
from placet.case.mission_result import CommandRun, MissionResult
from placet.chat.budget import Complexity
from placet.errors import End, PlacetError
from placet.git.history import digests_at, log
from placet.git.repository import dirty_paths, facts_in, rows_at
from placet.git.run import Repo
from placet.note.frontmatter import Frontmatter, read_note
from placet.note.paths import show
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan
from placet.tools.base import MAX_TARGET
from placet.wording import at_most, one_line
from placet_team.work_item import Result, Wait

_LINE, _TEXT = 500, 20_000
"""Characters of a line, and of a text of several lines, that a worker returns."""
_MOST = 1_000
"""Entries of a list that a worker returns."""
_HIGHEST = 10**6
"""Largest number that a worker returns."""
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class WorkerBug(PlacetError):  # noqa: N818 - named for what it is, as Stop is
    """A worker met a bug in placet, or returned what placet never returns; the text says what."""


def line_of(text: str) -> str:
    """Return a worker's text as a short line without control characters."""
    return one_line(_UNSAFE.sub("", text), _LINE)


def _text_of(text: str) -> str:
    return at_most(_UNSAFE.sub("", text), _TEXT)


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(line_of, texts[:_MOST]))


def bounded(given: Result) -> Result:
    """Return a worker's result with texts and lists no longer than a person reads."""
    match given:
        case Wait():
            return replace(given, reason=line_of(given.reason))
        case PlanningFailed():
            why, kind = line_of(given.reason), line_of(given.error_type)
            turns = min(given.iterations, _HIGHEST)
            return replace(given, reason=why, error_type=kind, iterations=turns)
        case Asked():
            question, why = _text_of(given.question), _text_of(given.why)
            return replace(given, question=question, why=why, options=_lines(given.options))
        case Drafted():
            return replace(given, model=line_of(given.model), based_on=given.based_on[:_MOST])
        case MissionResult():
            return _bounded_end(given)
    return given


def _bounded_end(given: MissionResult) -> MissionResult:
    error = given.error
    return replace(
        given,
        steps=tuple(replace(one, summary=line_of(one.summary)) for one in given.steps[:_MOST]),
        commands=tuple(
            replace(
                one,
                command=line_of(one.command),
                check=line_of(one.check),
                exit_code=one.exit_code if abs(one.exit_code or 0) < _HIGHEST else None,
            )
            for one in given.commands[:_MOST]
        ),
        calls={line_of(name): min(n, _HIGHEST) for name, n in [*given.calls.items()][:_MOST]},
        left_out=_lines(given.left_out),
        not_kept=_lines(given.not_kept),
        ignored=_lines(given.ignored),
        leftovers=_lines(given.leftovers),
        summary=_text_of(given.summary),
        detail=_text_of(given.detail),
        error_type=line_of(given.error_type),
        error=error if error is None or len(json.dumps(error)) <= _TEXT else None,
        failed_tool=line_of(given.failed_tool),
        last_success=line_of(given.last_success),
        last_words=line_of(given.last_words),
        left_at=line_of(given.left_at),
        receipt="",
        not_allowed=(),
        refused=False,
    )


def with_allowed_commands(plan: Plan, given: MissionResult) -> MissionResult:
    """Return a result without commands that the plan does not allow; `not_allowed` names them."""
    kept, others, scope = list[CommandRun](), list[str](), plan.scope
    for run in given.commands:
        if scope.shell or any(_begins(run.command, entry) for entry in scope.run):
            is_check = _begins(run.command, words_of(run.check))
            kept.append(run if is_check else replace(run, check=""))
        else:
            others.append(run.command)
    return replace(given, commands=tuple(kept), not_allowed=tuple(dict.fromkeys(others)))


def _begins(command: str, words: Sequence[str]) -> bool:
    """Return whether a command, whose words a report separates by blanks, begins with words."""
    return f"{command} ".startswith(f"{line_of(show(' '.join(words))[:MAX_TARGET])} ")


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
            plan.title,
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
    given = with_allowed_commands(mission.plan, _bounded_end(given))
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
