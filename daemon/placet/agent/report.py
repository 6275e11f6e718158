"""Write the report of a mission: a note with its result, and links that resolve."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from itertools import count
from pathlib import PurePosixPath
from string import Template
from textwrap import shorten
from typing import Any

from placet.activity import Action, CommittedRow
from placet.agent.record import CALL, Begun, Key, Recorded
from placet.case.case import Case
from placet.case.checks import changed_tests, doubts, doubts_about, lines_of
from placet.case.continued_request import continued_request
from placet.case.events import MissionCompleted, MissionEnded, MissionFailed
from placet.case.explain import Events, advice, hosts_table, refused_calls, what_happened
from placet.case.mission_result import MOST_FILES, After, ChangedFile, MissionResult
from placet.case.story import answer_kind, more_scope
from placet.chat.budget import Complexity
from placet.codec import sha256
from placet.errors import ENDS, End, FailureClass, helps_first, with_last_words
from placet.journal.reader import Reader
from placet.journal.writes import BodyDamaged
from placet.note.escape import (
    bounded,
    cell,
    clean,
    code,
    document,
    fenced,
    link,
    literal,
    paragraphs,
    sentence,
    with_code,
)
from placet.note.frontmatter import Frontmatter, new_note
from placet.note.hidden_text import shortened, visible
from placet.note.paths import Folder, numbered, report_name, show, show_path
from placet.plan.comments import Comment, where
from placet.plan.left_out import left_out
from placet.plan.plan import Plan
from placet.tools.base import Outcome
from placet.wording import counted, local, some_of


@dataclass(frozen=True, slots=True)
class ReportData:
    """The facts for a report besides the mission's result.

    `rows` are the mission's in the journal. `typical_usd` is what missions of its size cost, None
    if too few are known. `is_there` returns whether the vault has a path. `pictures` are PNGs.
    """

    case: Case
    plan: Plan
    complexity: Complexity
    model: str
    provider: str
    sandbox: str
    now: datetime
    stamp: str
    kind: Frontmatter
    rows: Events = ()
    typical_usd: float | None = None
    is_there: Callable[[str], bool] = lambda _path: False
    pictures: Sequence[bytes] = ()
    remarks: Sequence[Comment] = ()
    asked: str = ""  # the section on questions and wider scopes

    @property
    def named_pictures(self) -> tuple[tuple[str, bytes], ...]:
        """The pictures, with their places next to the report."""
        name = f"{self.case.trace8}_{self.case.request_id}-{self.case.generation}"
        return tuple(
            (f"{Folder.REPORTS}/{name}-{number}.png", picture)
            for number, picture in enumerate(self.pictures, 1)
        )


def cost_key(work: MissionResult) -> dict[str, float]:
    """Return the cost as a property that tables in the vault can add up; empty if it is unknown."""
    return {} if work.spent.cost_usd is None else {"cost_usd": float(work.spent.cost_usd)}


def common(at: ReportData) -> dict[str, str]:
    """Return the fields that both templates have."""
    case = at.case
    # Wikilinks by bare name: Obsidian finds a note wherever it is moved.
    request_name = case.request_path and PurePosixPath(case.request_path).stem
    return {
        "title": literal(at.plan.title),
        "agent": literal(case.request.agent),
        "sandbox": at.sandbox,
        "approved_by": literal(case.approval.by),
        "approved_at": local(case.approval.at) if case.approval.at else "an unknown time",
        "digest8": case.approval.digest[:8],
        "model": code(at.model)
        + (" (scripted: replies were replayed from a file)" if at.provider == "scripted" else ""),
        "remarks": _remarks(at),
        "asked": at.asked,
        "request": link(request_name) if request_name else "removed",
        "plan": link(f"{case.request_id}_plan"),
        "left_out": f" (you left out: {gone})" if (gone := left_out(at.plan)) else "",
    }


def _remarks(at: ReportData) -> str:
    """Return the section with the remarks on the approval, "" without one."""
    if not at.remarks:
        return ""
    lines = ["## Remarks on the Approval"]
    for remark in at.remarks:
        first, *rest = paragraphs(remark.text).split("\n")
        place = f"{where(remark)}: " if where(remark) else ""
        lines.append("\n".join([f"- {place}{first}", *(f"  {line}".rstrip() for line in rest)]))
    if all(step.actions for _, step in at.plan.kept):
        lines.append("\nEvery step was literal, so no agent read them.")
    return "\n".join(lines) + "\n\n"


_CHANGES = {"A": "new", "M": "changed", "D": "deleted", "T": "of another kind"}


def files_table(work: MissionResult) -> str:
    """Return the changed files as a table, and below it those that no commit has."""
    lines = (
        ["None."]
        if not work.files
        else [
            "| file | change | lines |",
            "|---|---|---|",
            *(
                f"| {cell(show_path(f.path))}{_target(f)} | {_CHANGES.get(f.status, f.status)} "
                f"| {lines_of(f)} |"
                for f in work.files[:MOST_FILES]
            ),
        ]
    )
    if len(work.files) > MOST_FILES:
        lines += ["", f"And {counted(len(work.files) - MOST_FILES, 'more file')}."]
    if work.left_out:
        lines += [
            "",
            "Changed by commands but outside the approved scope, so in no commit: "
            + listed(work.left_out)
            + "."
            + (f" They are kept at `{work.kept}`." if work.ok and work.kept else ""),
        ]
    if work.leftovers:
        lines += [
            "",
            f"Left behind by commands, so in no commit: {listed(work.leftovers)}. placet does "
            "not commit caches. It commits a new binary file only if `write` names it in full."
            + (f" The files are kept at `{work.kept}`." if work.kept else ""),
        ]
    if work.not_kept:
        lines += ["", not_kept(work)]
    if work.ok and work.ignored:
        lines += [
            "",
            "In the scope, but ignored by git (see `.gitignore`), so in no commit, "
            f"and gone with the worktree: {listed(work.ignored)}.",
        ]
    return "\n".join(lines)


def not_kept(work: MissionResult) -> str:
    """Return the sentence on files that were not kept."""
    return (
        "Not kept, as placet could not search them for secrets (a file with a "
        f"second hard link, over 16 MiB, or too deep in folders): {listed(work.not_kept)}."
    )


def listed(paths: Sequence[str], most: int = 20) -> str:
    """Return paths for a sentence, at most so many by name."""
    return some_of([code(show_path(path)) for path in paths], most)


def _target(file: ChangedFile) -> str:
    return f", a link to {cell(show(file.link))}" if file.link else ""


def cost_line(work: MissionResult, at: ReportData) -> str:
    """Return iterations, tokens, dollars and seconds of a mission."""
    spent = work.spent
    cost = spent.cost("cost unknown (no price for this model)")
    limit = at.plan.scope.budget_usd
    return (
        f"{counted(spent.replies, 'iteration')}; {spent.input_tokens:,} tokens in, "
        f"{spent.cache_read_tokens:,} from the cache, {spent.output_tokens:,} out; {cost}"
        + (f" of at most ${limit}" if limit is not None else "")
        + f"; {spent.working_s:.1f} s"
    )


def receipt_line(work: MissionResult, case: Case) -> str:
    """Return the line that names the receipt and how to check it; empty without one."""
    if not work.receipt:
        return ""
    check = code(f"placet verify {case.request_id} --signers FILE")
    return f"\n- Receipt of the signed approval: `{work.receipt}`. Check it: {check}"


def claim_line(work: MissionResult) -> str:
    """Return the paragraph that says which worker reports this; empty for the daemon itself."""
    if not work.worker:
        return ""
    return (
        f"Reported by worker {code(work.worker)}. placet checked the files, the commits and the "
        "scope. Steps, commands and words are what the worker says.\n\n"
    )


def template(name: str) -> Template:
    """Return a text of `agent/texts` with its fields still open."""
    return Template(resources.files("placet.agent").joinpath("texts", name).read_text())


def fenced_text(text: str, language: str) -> str:
    """Return the text in a code block that its content cannot close.

    What would begin a comment is escaped.
    """
    return fenced(visible(clean(text).replace("%%", "% %")), language)


def failure_note(ended: MissionResult, at: ReportData, facts: Mapping[str, Any]) -> bytes:
    """Return the Failure Report as a note; `facts` are those of its row in the journal."""
    case = at.case
    first, *rest = what_happened(facts, at.plan, at.rows)
    summary = [first, with_code(error_of(ended)), *rest]
    if cause := _cause(ended):
        summary.insert(0, cause)
    helpful = advice(ended.end, at.rows, ended.error_type)
    summary.insert(0 if helps_first(ended.end) else len(summary), helpful)
    error = ended.error or {"error": ended.detail, "error_type": ended.error_type}
    tools = (
        ", ".join(
            f"{literal(name)} ({count})"
            for name, count in sorted(ended.calls.items(), key=lambda c: -c[1])
        )
        or "none"
    )
    # No link to the plan's note: once it is rejected or revised it has another name or text.
    plan = f"revision {case.plan.revision}" + (
        f" for {link(PurePosixPath(case.request_path).stem)}" if case.request_path else ""
    )
    text = template("failure_report.md").substitute(
        {**common(at), "plan": plan},
        error_summary="\n".join(f"- {line}" for line in summary),
        error_details=fenced_text(json.dumps(dict(error), indent=2, ensure_ascii=False), "json"),
        branch=f"`{ended.branch}` (removed; see Work So Far)" if ended.branch else "none",
        tools=tools,
        receipt=receipt_line(ended, case),
        claim=claim_line(ended),
        last_success=code(ended.last_success) if ended.last_success else "none",
        numbers=cost_line(ended, at),
        end=ended.end.value,
        work="\n\n".join(filter(None, [_work(ended), hosts_table(at.rows)])),
        next_steps=_next_steps(ended, at)
        + "\n\n"
        + _continued_request_callout(at, facts, ended.detail),
    )
    return new_note(
        {
            "trace_id": case.trace_id,
            "request_id": case.request_id,
            "status": "failed",
            "title": bounded(at.plan.title),
            "failed_at": at.stamp,
            "error_type": ended.error_type or ended.end.value,
            "agent": case.request.agent,
            **cost_key(ended),
        },
        text,
        at.kind,
    )


def _cause(ended: MissionResult) -> str:
    """Return what the agent could not get past, in words; "" if the end itself says it."""
    what = str((ended.error or {}).get("error", ""))
    return "" if not what or what in ended.detail else f"Not done: {with_code(what)}"


def error_of(ended: MissionResult) -> str:
    """Return the error that ended a mission, with the model's last words."""
    failed = ended.failed_tool and ended.end in (End.TOOL_ERROR, End.UNRESOLVED_ERROR)
    what = (
        f"Execution failed during tool operation: {ended.failed_tool}" if failed else ended.detail
    )
    return with_last_words(what, ended.last_words)


def _reason(ended: MissionResult) -> str:
    """Return why a mission failed, for people: a limit by its meaning, the report has the sums."""
    verdict = ENDS[ended.end]
    if verdict.kind is FailureClass.LIMIT:
        return verdict.meaning.removesuffix(".")
    return error_of(ended)


def _work(ended: MissionResult) -> str:
    if ended.left_at:
        return (
            f"The unfinished work is still in {code(show(ended.left_at))}. "
            "Fix the cause, then restart the daemon. It saves the work at a ref and removes that "
            "folder."
        )
    if not ended.kept:
        return not_kept(ended) if ended.not_kept else "Nothing was changed."
    repo, ref = shlex.quote(ended.repository), shlex.quote(ended.kept)
    return "\n".join(
        [
            "The unfinished work is on no branch. placet keeps it at a ref:"
            if not ended.refused
            else "The approved plan does not allow this work. Do not build on it. placet keeps it "
            "at a ref:",
            "",
            "```sh",
            f"git -C {repo} log -p {ended.base[:12]}..{ref}    # look at it",
            *(
                []
                if ended.refused
                else [f"git -C {repo} branch rescue {ref}    # put it on a branch"]
            ),
            f"git -C {repo} update-ref -d {ref}    # delete it",
            "```",
            "",
            files_table(ended),
        ]
    )


def _continued_request_callout(at: ReportData, facts: Mapping[str, Any], detail: str) -> str:
    """Return a request that starts from where the mission broke, as a folded callout."""
    request = continued_request(at.case, at.plan, facts, detail, at.rows)
    text = fenced_text(request.rstrip("\n"), "markdown")
    lines = [
        "[!example]- A request that continues from here",
        f"Copy it into `{Folder.REQUESTS}`, or: "
        f"`placet why {at.case.request_id} --request | placet submit --file -`",
        "",
        *text.splitlines(),
    ]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _next_steps(ended: MissionResult, at: ReportData) -> str:
    case = at.case
    name = case.request_path or "the request"
    moved = ended.end in (End.STOPPED_BY_PERSON, End.DRIFT)
    place = "where you or placet moved it" if moved else "in `Inbox/Plans`"
    return "\n".join(
        [
            f"1. For a new plan: {code(f'placet retry {case.request_id}')}, "
            f"or set `status: pending` in {code(show(name))}. "
            "The new plan will take this report into account. "
            "For a revision of this plan, set `decision: revise` in it. "
            f"To repeat the plan unchanged, approve it again. The plan is {place}.",
            "2. Or leave it. Nothing more happens until you decide.",
        ]
    )


MAX_DETAIL = 200
"""Characters of the reason of a failure in its journal row. The report has all of them."""
MAX_COMMAND = 100
"""Characters of a command that a report shows; the journal has all of them."""

MAX_NAMED = 10
"""Maximum of files that one sentence of a report names."""


def outcome_of(ended: MissionResult, at: ReportData) -> MissionEnded:
    """Return a mission's outcome for the loop: report, path, facts for the journal."""
    case, failed = at.case, not ended.ok
    name = report_name(at.now.date(), case.trace8, case.request_id, failed=failed)
    path = _path(case, name, at.is_there)
    if ended.ok:
        return MissionCompleted(
            case.generation,
            _mission(ended, at),
            path,
            _facts(ended, path, at),
            ended.branch,
            at.named_pictures,
            doubts=doubts(at.plan, ended.commands),
            changed_tests=changed_tests(ended.files),
        )
    facts = {
        **_facts(ended, path, at),
        "error_type": ended.error_type,
        "detail": shorten(ended.detail, MAX_DETAIL, placeholder=" …"),
        "kept": ended.kept,
        "kept_commit": ended.kept_commit,
        **({"refused": True} if ended.refused else {}),
    }
    return MissionFailed(
        case.generation,
        failure_note(ended, at, facts),
        path,
        facts,
        ended.branch,
        at.named_pictures,
        f"{_reason(ended)} (see {path})",
        ended.detail,
        ended.drift,
    )


def _facts(work: MissionResult, report: str, at: ReportData) -> dict[str, Any]:
    spent = work.spent
    return {
        "reason": work.end.value,
        "branch": work.branch,
        "base": work.base,
        "commit": work.commit,
        "iterations": spent.replies,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.cost_usd is None else float(spent.cost_usd),
        "duration_s": round(spent.working_s, 3),
        "report": report,
        "digest": at.case.approval.digest,
        **({"left_at": work.left_at} if work.left_at else {}),
        **({"receipt": work.receipt} if work.receipt else {}),
        "complexity": at.complexity.value,
        **({"doubts": list(said)} if (said := doubts(at.plan, work.commands)) else {}),
        **({"changed_tests": tests} if (tests := changed_tests(work.files)) else {}),
        "typical_cost_usd": at.typical_usd,
        "files_changed": [show(f.path) for f in work.files[:MOST_FILES]],
        **({"files_more": more} if (more := len(work.files) - MOST_FILES) > 0 else {}),
    }


def _path(case: Case, name: str, is_there: Callable[[str], bool]) -> str:
    """Return the report's path: a free one that no earlier report of the case had."""
    known = {case.outcome.report_path, *(branch.report_path for branch in case.branches)}
    paths = (numbered(f"{Folder.REPORTS}/{name}", number) for number in count(1))
    return next(path for path in paths if path not in known and not is_there(path))


def _mission(ended: MissionResult, at: ReportData) -> bytes:
    case = at.case
    pictures = (f"![[{PurePosixPath(path).name}]]" for path, _ in at.named_pictures)
    text = template("mission_report.md").substitute(
        common(at),
        doubts=_doubts(ended, at.plan),
        claim=claim_line(ended),
        summary=document(ended.summary or "Done."),
        receipt=receipt_line(ended, case),
        steps=_steps(ended, at.plan),
        files=files_table(ended),
        commands="\n\n".join(
            filter(
                None,
                [commands_table(ended), hosts_table(at.rows), refused_calls(at.rows), *pictures],
            )
        ),
        cost=cost_line(ended, at),
        where=_where(ended, at),
        end=End.FINISHED.value,
        iterations=counted(ended.spent.replies, "iteration"),
    )
    return new_note(
        {
            **({"decision": ""} if ended.commit and not case.request.portal else {}),
            "trace_id": case.trace_id,
            "request_id": case.request_id,
            "status": "completed",
            "title": bounded(at.plan.title),
            "completed_at": at.stamp,
            "agent": case.request.agent,
            "branch": ended.branch if ended.commit else "",
            "commit": ended.commit,
            **cost_key(ended),
        },
        text,
        at.kind,
    )


def _doubts(ended: MissionResult, plan: Plan) -> str:
    """Return what a person must know before the summary, as a callout; empty for nothing."""
    said = doubts(plan, ended.commands)
    tests = changed_tests(ended.files)
    if not said and not tests:
        return ""
    first, *rest = [*said, *([f"The branch {tests}."] if tests else [])]
    lines = [f"> [!{'warning' if said else 'info'}] {first}", *(f"> - {line}" for line in rest)]
    return "\n".join(lines) + "\n\n"


def _steps(work: MissionResult, plan: Plan) -> str:
    done = {step.number: step for step in work.steps}
    lines = []
    for number, step in enumerate(plan.steps, 1):
        if step.left_out:
            lines.append(
                f"- {number}. ~~{literal(step.title)}~~ — you left it out; the scope stayed"
            )
        elif (one := done.get(number)) is None:
            lines.append(f"- [ ] {number}. {literal(step.title)} — not reported as complete")
        else:
            at = f" (`{one.commit[:12]}`)" if one.commit else " (nothing to commit)"
            summary = f" — {literal(one.summary)}" if one.summary != step.title else ""
            open_checks = doubts_about(step, plan, work.commands)
            tick = " " if open_checks else "x"
            said = "".join(f" — {doubt}" for doubt in open_checks)
            lines.append(f"- [{tick}] {number}. {literal(step.title)}{at}{summary}{said}")
    return "\n".join(lines)


def commands_table(work: MissionResult) -> str:
    """Return the commands that ran as a table; long ones are shortened."""
    lines = ["None."]
    if work.commands:
        lines = [
            "| command | exit code |",
            "|---|---|",
            *(
                f"| {cell(shortened(run.command, MAX_COMMAND))} | "
                f"{'killed' if run.exit_code is None else run.exit_code} |"
                for run in work.commands
            ),
        ]
    if work.not_allowed:
        names = some_of([code(shortened(one, MAX_COMMAND)) for one in work.not_allowed], MAX_NAMED)
        lines += ["", f"Reported, but not allowed by the plan, so they do not count: {names}."]
    return "\n".join(lines)


def _where(ended: MissionResult, at: ReportData) -> str:
    if not ended.commit:
        return "Nothing was changed, so there is no branch to keep."
    repo, branch = shlex.quote(ended.repository), shlex.quote(ended.branch)
    ident = at.case.request_id
    after = ended.after
    place = f"git -C {repo}"
    taken = "merge it" if at.case.request.portal else "merge it into your notes"
    merge = f"placet merge {ident}    # {taken}\n# or: {place} merge --no-ff {branch}"
    ask = (
        f"placet pr {ident}    # a draft pull request\n# or: {place} push {after.remote} {branch}"
        if after is not None and after.remote
        else ""
    )
    back = f". To undo a merge: `placet undo {ident}`"
    if after is not None and after.bare:
        back = ""
        merge = (
            f"git clone {repo} {ident} && git -C {ident} merge --no-ff origin/{branch} && "
            f"git -C {ident} push    # merge it in a clone: this is a bare repository"
        )
    return "\n".join(
        [
            f"Branch {code(ended.branch)} of {code(ended.repository)}, "
            f"from `{ended.base[:12]}` to `{ended.commit[:12]}`.",
            *(_untidied(ended) if ended.left_at else ()),
            *(
                _branch_relation(after, notes=not at.case.request.portal)
                if after is not None
                else ()
            ),
            "",
            _taken_over(at.case.request.portal),
            "",
            "```sh",
            f"placet diff {ident}    # look at it",
            f"# or: {place} diff {ended.base[:12]}..{branch}",
            merge,
            *([ask] if ask else []),
            f"placet drop {ident} --reason 'why'    # drop it",
            f"# or: {place} branch -D {branch}",
            "```",
            "",
            f"The property `became` above will say how it ended{back}.",
            *(_peculiar(after) if after is not None else ()),
        ]
    )


def _taken_over(portal: str) -> str:
    """Return how a person takes the work over, above the commands for it."""
    if portal:
        return "This work is not in the vault, so commands take it over, and `decision` does not:"
    return (
        "To take the work over, set `decision: merge` in the properties of this note, or "
        "`decision: drop` (a reason goes into `dropped_reason`). Or type:"
    )


def _untidied(ended: MissionResult) -> list[str]:
    """Return what is left of a finished mission, and why."""
    return [
        "",
        f"placet could not remove the worktree {code(show(ended.left_at))}. The daemon tries again "
        f"when it starts. The error was: {literal(ended.detail)}",
    ]


def _branch_relation(after: After, *, notes: bool) -> list[str]:
    """Return how a branch relates to the one it goes into; `notes`: that is the vault's own."""
    if not after.into:
        return []
    into = code(show(after.into))
    behind = f" and {counted(after.behind, 'commit')} behind" if after.behind else ""
    ahead = counted(after.ahead, "commit")
    lines = ["", f"When this was written it was {ahead} ahead of {into}{behind}."]
    if after.conflicts:
        names = listed(after.conflicts, MAX_NAMED)
        if notes:
            return [*lines, f"You changed the same lines in the meantime, in: {names}."]
        return [*lines, f"Merged into {into} then, it would have conflicted in: {names}."]
    if notes:
        lines.append("Your notes had not changed.")
    return [*lines, f"It could be merged into {into} without conflicts."]


def _peculiar(after: After) -> list[str]:
    lines = [f"- {sentence(note)}" for note in after.notes]
    if after.unseen:
        lines.append(
            "- The mission did not see uncommitted files in your checkout: "
            f"{listed(after.unseen, len(after.unseen))}."
        )
    return ["", *lines] if lines else []


_HEADING = "## Questions and Wider Scopes"
_ENDS = frozenset({Action.EXECUTION_COMPLETED, Action.EXECUTION_FAILED})
_OVER = {
    Action.QUESTION_ANSWERED: Action.QUESTION_ASKED,
    Action.PLAN_AMENDED: Action.PLAN_AMENDMENT_REQUESTED,
    Action.PLAN_AMENDMENT_REJECTED: Action.PLAN_AMENDMENT_REQUESTED,
}


def asked_section(case: Case, rows: Events, record: Recorded, reader: Reader) -> str:
    """Return the section on questions and wider scopes, with two line ends after it, or "".

    `rows` are the case's, `record` is the mission's, `reader` has the records of its planning.
    """
    own = rows[_begin(rows) :]
    ends = {
        (_OVER[Action(row.action_type)], row.details["number"]): row
        for row in own
        if row.action_type in _OVER
    }
    pairs = _answered_questions(record)
    planned = _planned_questions(reader, case)
    lines: list[str] = []
    is_mission = False
    for row in own:
        is_mission = is_mission or row.action_type == Action.EXECUTION_STARTED
        if row.action_type == Action.QUESTION_ASKED:
            end = ends.get(_name(row))
            pair = next(pairs, ("", "")) if is_mission else _take_answered(planned, end)
            lines.append(_question(case, row, end, pair))
        elif row.action_type == Action.PLAN_AMENDMENT_REQUESTED:
            lines.append(_wider(case, row, ends.get(_name(row))))
    return "\n".join([_HEADING, *lines]) + "\n\n" if lines else ""


def _begin(rows: Events) -> int:
    """Return where the rows of the last mission begin, those of its planning included."""
    starts = [n for n, row in enumerate(rows) if row.action_type == Action.EXECUTION_STARTED]
    last = starts[-1] if starts else len(rows)
    return next((n + 1 for n in range(last - 1, -1, -1) if rows[n].action_type in _ENDS), 0)


def _name(row: CommittedRow) -> tuple[Action, int]:
    return Action(row.action_type), row.details["number"]


def _answered_questions(record: Recorded) -> Iterator[tuple[str, str]]:
    """Give the questions that people were asked, each with its answer."""
    keys = [key for key in record.intents if key.startswith(f"{CALL.key}:")]
    for key in sorted(keys, key=lambda key: [int(part) for part in key.split(":")[1:]]):
        begun, outcome = record.begun(Key(key, Begun)), record.get(Key(key, Outcome))
        if begun is None or begun.tool != "ask_person":
            continue
        content: Mapping[str, str] = {} if outcome is None else json.loads(outcome.content)
        if content.get("error_type") != "too_many_questions":
            yield str(begun.input.get("question", "")), str(content.get("answer", ""))


def _planned_questions(reader: Reader, case: Case) -> list[tuple[str, str]]:
    """Return the questions, with answers, from before the case's mission."""
    found: list[tuple[str, str]] = []
    for attempt in range(case.generation if case.asked else 0):
        record = Recorded()
        with suppress(BodyDamaged):
            record.take(reader.records(case.trace_id, attempt))
            found += _answered_questions(record)
    return found


def _take_answered(pairs: list[tuple[str, str]], answered: CommittedRow | None) -> tuple[str, str]:
    """Remove and return the first question with the answer of a row; "" if none has it."""
    digest = None if answered is None else answered.details["digest"]
    found = next((one for one in pairs if sha256(one[1].encode()) == digest), None)
    if found is None:
        return "", ""
    pairs.remove(found)
    return found


def _question(
    case: Case, asked: CommittedRow, answered: CommittedRow | None, pair: tuple[str, str]
) -> str:
    question, answer = map(literal, pair)
    note = link(f"{case.request_id}_question{asked.details['number']}")
    what = f"**{question}** " if question else ""
    if answered is None:
        return f"- {what}({note}): not answered"
    kind = f" {answer}" if answer else f" {answer_kind(answered.details)}"
    return f"- {what}({note}):{kind} — {_who(answered)}"


def _wider(case: Case, asked: CommittedRow, decided: CommittedRow | None) -> str:
    note = link(f"{case.request_id}_amendment{asked.details['number']}")
    what = f"- A wider scope, {code(more_scope(asked.details))} ({note})"
    if decided is None:
        return f"{what}: not decided"
    if decided.action_type == Action.PLAN_AMENDED:
        return f"{what}: approved — {_who(decided)}, digest `{decided.details['digest'][:8]}`"
    why = decided.details.get("reason")
    return f"{what}: rejected{f', {literal(why)}' if why else ''} — {_who(decided)}"


def _who(row: CommittedRow) -> str:
    return f"{literal(row.details['reviewed_by'])}, {local(row.timestamp)}"
