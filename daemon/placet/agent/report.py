"""Reports: the result of a mission, as a note for people, with links that resolve."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from itertools import count
from pathlib import PurePosixPath
from textwrap import shorten
from typing import Any

from placet.agent.failure_report import error_of, failure_note
from placet.agent.report_parts import (
    Circumstances,
    common,
    cost_key,
    cost_line,
    files_table,
    listed,
    template,
)
from placet.case.case import Case, EventKind
from placet.case.events import MissionEnded
from placet.chat.result import MOST_FILES, After, Ended, Finished, Stopped, WorkDone
from placet.core.text.characters import shortened
from placet.core.wording import counted
from placet.errors import End
from placet.note.escape import cell, code, literal, paragraphs, sentence
from placet.note.frontmatter import new_note
from placet.note.paths import Folder, numbered, report_name, show
from placet.plan.plan import Plan

MAX_DETAIL = 200
MAX_COMMAND = 100
"""Characters of a command that a report shows; the journal has all of them."""
"""Characters of why a mission failed that its row in the journal has.

The report has all of them.
"""

MAX_NAMED = 10
"""Maximum of files that one sentence of a report names."""


def outcome_of(ended: Ended, at: Circumstances) -> MissionEnded:
    """Return a mission's outcome for the loop: report, path, facts for the journal."""
    case, failed = at.case, isinstance(ended, Stopped)
    name = report_name(at.now.date(), case.trace8, case.request_id, failed=failed)
    path = _path(case, name, at.is_there)
    if isinstance(ended, Finished):
        return MissionEnded(
            case.generation,
            EventKind.MISSION_COMPLETED,
            _mission(ended, at),
            path,
            _facts(ended.work, End.FINISHED, ended.commit, path, at),
            branch=ended.work.branch,
            pictures=at.named_pictures,
        )
    facts = {
        **_facts(ended.work, ended.end, "", path, at),
        "error_type": ended.error_type,
        "detail": shorten(ended.detail, MAX_DETAIL, placeholder=" …"),
        "kept": ended.work.kept,
        "kept_commit": ended.kept_commit,
        **({"left_at": ended.left_at} if ended.left_at else {}),
    }
    return MissionEnded(
        case.generation,
        EventKind.MISSION_FAILED,
        failure_note(ended, at, facts),
        path,
        facts,
        f"{error_of(ended)} (see {path})",
        ended.work.branch,
        ended.drift,
        ended.detail,
        at.named_pictures,
    )


def _facts(work: WorkDone, end: End, commit: str, report: str, at: Circumstances) -> dict[str, Any]:
    spent = work.spent
    return {
        "reason": end.value,
        "branch": work.branch,
        "base": work.base,
        "commit": commit,
        "iterations": work.iterations,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.cost_usd is None else float(spent.cost_usd),
        "duration_s": round(work.duration_s, 3),
        "report": report,
        "digest": at.case.approval.digest,
        "complexity": at.complexity.value,
        "typical_cost_usd": at.typical_usd,
        "files_changed": [show(f.path) for f in work.files[:MOST_FILES]],
        **({"files_more": more} if (more := len(work.files) - MOST_FILES) > 0 else {}),
    }


def _path(case: Case, name: str, is_there: Callable[[str], bool]) -> str:
    """Return the report's path: one that is free, and that no earlier report of the case had."""
    known = {case.outcome.report_path, *(branch.report_path for branch in case.earlier)}
    paths = (numbered(f"{Folder.REPORTS}/{name}", number) for number in count(1))
    return next(path for path in paths if path not in known and not is_there(path))


def _mission(ended: Finished, at: Circumstances) -> bytes:
    case = at.case
    text = template("mission_report.md").substitute(
        common(at),
        summary=paragraphs(ended.summary or "Done."),
        steps=_steps(ended.work, at.plan),
        files=files_table(ended),
        commands=commands_table(ended.work) + _pictures(at),
        cost=cost_line(ended.work, at),
        where=_where(ended, at),
        end=End.FINISHED.value,
        iterations=counted(ended.work.iterations, "iteration"),
    )
    return new_note(
        {
            "trace_id": case.trace_id,
            "request_id": case.request_id,
            "status": "completed",
            "completed_at": at.stamp,
            "agent": case.request.agent,
            "branch": ended.work.branch if ended.commit else "",
            "commit": ended.commit,
            **cost_key(ended.work),
        },
        text,
        at.kind,
    )


def _steps(work: WorkDone, plan: Plan) -> str:
    done = {step.number: step for step in work.steps}
    lines = []
    for number, step in enumerate(plan.steps, 1):
        if step.left_out:
            lines.append(
                f"- {number}. ~~{literal(step.title)}~~ — left out by a person; the scope stayed"
            )
        elif (one := done.get(number)) is None:
            lines.append(f"- [ ] {number}. {literal(step.title)} — not reported as complete")
        else:
            at = f" (`{one.commit[:12]}`)" if one.commit else " (nothing to commit)"
            summary = f" — {literal(one.summary)}" if one.summary != step.title else ""
            lines.append(f"- [x] {number}. {literal(step.title)}{at}{summary}")
    return "\n".join(lines)


def commands_table(work: WorkDone) -> str:
    """Return the commands that ran as a table, long ones shortened."""
    if not work.commands:
        return "None."
    return "\n".join(
        [
            "| command | exit code |",
            "|---|---|",
            *(
                f"| {cell(shortened(run.command, MAX_COMMAND))} | "
                f"{'ended by force' if run.exit_code is None else run.exit_code} |"
                for run in work.commands
            ),
        ]
    )


def _pictures(at: Circumstances) -> str:
    paths = (PurePosixPath(path) for path, _ in at.named_pictures)
    return "".join(f"\n\n![[{path.name}]]" for path in paths)


def _where(ended: Finished, at: Circumstances) -> str:
    if not ended.commit:
        return "Nothing was changed, so there is no branch to keep."
    work = ended.work
    repo, branch = shlex.quote(work.repository), shlex.quote(work.branch)
    ident = at.case.request_id
    after = ended.after
    place = f"git -C {repo}"
    into = after and (after.remote_default or after.into)
    # one that cannot be written is left to gh
    base = f" --base {shlex.quote(into)}" if into and show(into) == into else ""
    taken = "merge it" if at.case.request.portal else "take it into your notes"
    merge = f"placet merge {ident}    # {taken}, or: {place} merge --no-ff {branch}"
    # nobody publishes a vault to have it reviewed
    ask = (
        ""
        if not at.case.request.portal and after is not None and not after.remote
        else f"{place} remote add origin URL    # a pull request needs a remote"
        if after is None or not after.remote
        else f"{place} push {after.remote} {branch} && "
        f"(cd {repo} && gh pr create{base} --head {branch} --fill)    # a pull request"
    )
    back = f"; `placet undo {ident}` takes a merge back"
    if after is not None and after.bare:
        back = ""
        merge = (
            f"git clone {repo} {ident} && git -C {ident} merge --no-ff origin/{branch} && "
            f"git -C {ident} push    # merge it in a clone: here is no checkout"
        )
        ask = (
            f"{place} push {after.remote} {branch}    # for a pull request there"
            if after.remote
            else ""
        )
    return "\n".join(
        [
            f"Branch {code(work.branch)} of {code(work.repository)}, "
            f"from `{work.base[:12]}` to `{ended.commit[:12]}`.",
            *(_beside(after, notes=not at.case.request.portal) if after is not None else ()),
            "",
            "Until it is merged or dropped, which the property `became` says:",
            "",
            "```sh",
            f"placet diff {ident}    # look at it, or: {place} diff {work.base[:12]}..{branch}",
            merge,
            *([ask] if ask else []),
            f"placet drop {ident} --reason 'why'    # drop it, or: {place} branch -D {branch}",
            "```",
            "",
            f"After that `placet why {ident}` names what can be done{back}.",
            *(_peculiar(after) if after is not None else ()),
        ]
    )


def _beside(after: After, *, notes: bool) -> list[str]:
    """Return how a branch stood to the one it goes into; `notes` are the vault's own."""
    if not after.into:
        return []
    into = code(show(after.into))
    behind = f" and {counted(after.behind, 'commit')} behind" if after.behind else ""
    ahead = counted(after.ahead, "commit")
    lines = ["", f"When this was written it was {ahead} ahead of {into}{behind}."]
    if after.conflicts:
        names = listed(after.conflicts, MAX_NAMED)
        if notes:
            return [*lines, f"You had changed the same lines since, in: {names}."]
        return [*lines, f"Merged into {into} then, it would have conflicted in: {names}."]
    if notes:
        lines.append("Your notes were untouched, and could take it as it was.")
    return [*lines, f"It could be merged into {into} without conflicts."]


def _peculiar(after: After) -> list[str]:
    lines = [f"- {sentence(note)}" for note in after.notes]
    if after.unseen:
        lines.append(
            "- Your checkout had uncommitted files that the mission did not see: "
            f"{listed(after.unseen, len(after.unseen))}."
        )
    return ["", *lines] if lines else []
