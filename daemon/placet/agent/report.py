"""Reports: the result of a mission, as a note for people, with links that resolve."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from itertools import count
from pathlib import PurePosixPath
from string import Template
from textwrap import shorten
from typing import Any

from placet.core.errors import End, with_last_words
from placet.core.life.case import Case, EventKind
from placet.core.life.ends import ENDS
from placet.core.life.events import MissionEnded
from placet.core.life.timeline import chart
from placet.core.life.why_failed import (
    Remains,
    Rows,
    against_estimate,
    proof,
    ready_request,
    remains,
    row_line,
    tried,
)
from placet.core.text.blocks import Frontmatter
from placet.core.text.characters import visible
from placet.core.text.markdown import cell, code, link, literal, paragraphs, sentence
from placet.core.text.names import Folder, numbered, report_name, show
from placet.core.text.note import new_note
from placet.core.text.plan import Plan
from placet.core.text.plan_text import clean, fenced
from placet.core.turn.budget import Complexity
from placet.core.turn.mission import After, ChangedFile, Ended
from placet.core.wording import counted, local

MAX_DETAIL = 200
"""Characters of why a mission failed that its row in the journal has.

The report has all of them.
"""

MAX_NAMED = 10
"""Maximum of files that one sentence of a report names."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The report's facts besides the mission's result.

    `rows` are the mission's in the journal, `typical_usd` what missions of its size cost (None: too
    few are known), `is_there` says whether the vault has something at a path.
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
    rows: Rows = ()
    typical_usd: float | None = None
    is_there: Callable[[str], bool] = lambda _path: False


def outcome_of(ended: Ended, at: Circumstances) -> MissionEnded:
    """Return a mission's outcome for the loop: report, path, facts for the journal."""
    case = at.case
    path = _path(
        case,
        report_name(at.now.date(), case.trace8, case.request_id, failed=not ended.ok),
        at.is_there,
    )
    spent = ended.spent
    facts: dict[str, Any] = {
        "reason": ended.end.value,
        "branch": ended.branch,
        "base": ended.base,
        "commit": ended.commit,
        "iterations": ended.iterations,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.cost_usd is None else float(spent.cost_usd),
        "duration_s": round(ended.duration_s, 3),
        "report": path,
        "digest": case.approved_digest,
        "complexity": at.complexity.value,
        "files_changed": [show(f.path) for f in ended.files],
    }
    if ended.ok:
        return MissionEnded(
            case.generation,
            EventKind.MISSION_COMPLETED,
            _mission(ended, at),
            path,
            facts,
            branch=ended.branch,
        )
    facts |= {
        "error_type": ended.error_type,
        "detail": shorten(ended.detail, MAX_DETAIL, placeholder=" …"),
        "kept": ended.kept,
        "kept_commit": ended.kept_commit,
        "typical_cost_usd": at.typical_usd,
    }
    reason = (
        with_last_words(f"{ended.error_type or ended.end.value}: {ended.detail}", ended.last_words)
        + f" (see {path})"
    )
    return MissionEnded(
        case.generation,
        EventKind.MISSION_FAILED,
        _failure(ended, at, facts),
        path,
        facts,
        reason,
        ended.branch,
        ended.drift,
        ended.detail,
    )


def _path(case: Case, name: str, is_there: Callable[[str], bool]) -> str:
    """Return the report's path: one that is free, and that no earlier report of the case had."""
    known = {case.report_path, *(branch.report_path for branch in case.earlier)}
    paths = (numbered(f"{Folder.REPORTS}/{name}", number) for number in count(1))
    return next(path for path in paths if path not in known and not is_there(path))


def _mission(ended: Ended, at: Circumstances) -> bytes:
    case = at.case
    text = _template("mission_report.md").substitute(
        _common(at),
        summary=paragraphs(ended.summary or "Done."),
        steps=_steps(ended, at.plan),
        files=_files(ended),
        commands=_commands(ended) + _pictures(ended),
        cost=_cost(ended, at),
        where=_where(ended, at),
        end=ended.end.value,
        iterations=str(ended.iterations),
    )
    return new_note(
        {
            "trace_id": case.trace_id,
            "request_id": case.request_id,
            "status": "completed",
            "completed_at": at.stamp,
            "agent": case.agent,
            "branch": ended.branch if ended.commit else "",
            "commit": ended.commit,
            **_cost_key(ended),
        },
        text,
        at.kind,
    )


def _failure(ended: Ended, at: Circumstances, facts: Mapping[str, Any]) -> bytes:
    case = at.case
    error = ended.error or {"error": ended.detail, "error_type": ended.error_type}
    tools = (
        ", ".join(
            f"{literal(name)} ({count})"
            for name, count in sorted(ended.calls.items(), key=lambda c: -c[1])
        )
        or "none"
    )
    # No link to the plan's note: rejected or revised after this, it has another name or another
    # text.
    plan = f"revision {case.revision}" + (
        f" for {link(PurePosixPath(case.request_path).stem)}" if case.request_path else ""
    )
    text = _template("failure_report.md").substitute(
        {**_common(at), "plan": plan},
        error_summary=paragraphs(with_last_words(_summary_line(ended), ended.last_words)),
        error_details=_fenced(json.dumps(dict(error), indent=2, ensure_ascii=False), "json"),
        branch=f"`{ended.branch}` (rolled back)" if ended.branch else "none",
        tools=tools,
        last_success=code(ended.last_success) if ended.last_success else "none",
        numbers=_cost(ended, at),
        end=ended.end.value,
        happened=_happened(ended, at),
        work=_work(ended),
        next_steps=_next_steps(ended, case)
        + "\n\n"
        + _ready(at, remains(facts, ended.detail, at.rows)),
    )
    return new_note(
        {
            "trace_id": case.trace_id,
            "request_id": case.request_id,
            "status": "failed",
            "failed_at": at.stamp,
            "error_type": ended.error_type or ended.end.value,
            "agent": case.agent,
            **_cost_key(ended),
        },
        text,
        at.kind,
    )


def _cost_key(ended: Ended) -> dict[str, float]:
    """Return what it cost as a property that the vault's tables can add up.

    None where it is unknown.
    """
    return {} if ended.spent.cost_usd is None else {"cost_usd": float(ended.spent.cost_usd)}


def _summary_line(ended: Ended) -> str:
    if ended.failed_tool and ended.end in (End.TOOL_ERROR, End.UNRESOLVED_ERROR):
        return f"Execution failed during tool operation: {ended.failed_tool}"
    return ended.detail


def _common(at: Circumstances) -> dict[str, str]:
    case = at.case
    # Wikilinks by bare name: Obsidian finds the note wherever it is moved, and what is archived
    # keeps its name.
    request_name = case.request_path and PurePosixPath(case.request_path).stem
    return {
        "title": literal(at.plan.title),
        "agent": literal(case.agent),
        "sandbox": at.sandbox,
        "approved_by": literal(case.approved_by),
        "approved_at": local(case.approved_at) if case.approved_at else "an unknown time",
        "digest8": case.approved_digest[:8],
        "model": code(at.model)
        + (" (scripted: replies were replayed from a file)" if at.provider == "scripted" else ""),
        "request": link(request_name) if request_name else "taken away meanwhile",
        "plan": link(f"{case.request_id}_plan"),
    }


def _steps(ended: Ended, plan: Plan) -> str:
    done = {step.number: step for step in ended.steps}
    lines = []
    for number, step in enumerate(plan.steps, 1):
        if (one := done.get(number)) is None:
            lines.append(f"- [ ] {number}. {literal(step.title)} — not reported as complete")
        else:
            at = f" (`{one.commit[:12]}`)" if one.commit else " (nothing to commit)"
            summary = f" — {literal(one.summary)}" if one.summary != step.title else ""
            lines.append(f"- [x] {number}. {literal(step.title)}{at}{summary}")
    return "\n".join(lines)


def _files(ended: Ended) -> str:
    lines = (
        ["None."]
        if not ended.files
        else [
            "| file | change | lines |",
            "|---|---|---|",
            *(
                f"| {cell(show(f.path))}{_target(f)} | {f.status} | {_lines(f.added, f.deleted)} |"
                for f in ended.files
            ),
        ]
    )
    if ended.left_out:
        lines += [
            "",
            "Changed by commands but outside the approved scope, so in no commit: "
            + ", ".join(code(show(p)) for p in ended.left_out[:20])
            + (f" and {len(ended.left_out) - 20} more." if len(ended.left_out) > 20 else ".")
            + (f" They are kept at `{ended.kept}`." if ended.ok and ended.kept else ""),
        ]
    if ended.ignored:
        lines += [
            "",
            "In the scope, but ignored by git (see `.gitignore`), so in no commit, "
            "and gone with the worktree: "
            + ", ".join(code(show(p)) for p in ended.ignored[:20])
            + (f" and {len(ended.ignored) - 20} more." if len(ended.ignored) > 20 else "."),
        ]
    return "\n".join(lines)


def _target(file: ChangedFile) -> str:
    return f", a link to {cell(show(file.link))}" if file.link else ""


def _lines(added: int | None, deleted: int | None) -> str:
    if added is None or deleted is None:
        return "binary"
    return f"+{added} −{deleted}"  # noqa: RUF001 - a minus sign


def _commands(ended: Ended) -> str:
    if not ended.commands:
        return "None."
    return "\n".join(
        [
            "| command | exit code |",
            "|---|---|",
            *(
                f"| {cell(run.command)} | "
                f"{'ended by force' if run.exit_code is None else run.exit_code} |"
                for run in ended.commands
            ),
        ]
    )


def _pictures(ended: Ended) -> str:
    return "".join(f"\n\n![[{name}]]" for name in ended.pictures)


def _cost(ended: Ended, at: Circumstances) -> str:
    spent = ended.spent
    cost = spent.cost("cost unknown (no price for this model)")
    limit = at.plan.scope.budget_usd
    return (
        f"{ended.iterations} iterations; {spent.input_tokens:,} tokens in, "
        f"{spent.cache_read_tokens:,} from the cache, {spent.output_tokens:,} out; {cost}"
        + (f" of at most ${limit}" if limit is not None else "")
        + f"; {ended.duration_s:.1f} s"
    )


def _where(ended: Ended, at: Circumstances) -> str:
    if not ended.commit:
        return "Nothing was changed, so there is no branch to keep."
    repo, branch = shlex.quote(ended.repository), shlex.quote(ended.branch)
    ident = at.case.request_id
    after = ended.after
    place = f"git -C {repo}"
    into = after and (after.remote_default or after.into)
    # one that cannot be written is left to gh
    base = f" --base {shlex.quote(into)}" if into and show(into) == into else ""
    merge = f"placet merge {ident}    # merge it, or: {place} merge --no-ff {branch}"
    # nobody publishes a vault to have it reviewed
    ask = (
        ""
        if not at.case.portal and after is not None and not after.remote
        else f"{place} remote add origin URL    # a pull request needs a remote"
        if after is None or not after.remote
        else f"{place} push {after.remote} {branch} && "
        f"(cd {repo} && gh pr create{base} --head {branch} --fill)    # a pull request"
    )
    if after is not None and after.bare:
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
            f"Branch {code(ended.branch)} of {code(ended.repository)}, "
            f"from `{ended.base[:12]}` to `{ended.commit[:12]}`.",
            *(_beside(after) if after is not None else ()),
            "",
            "```sh",
            f"placet diff {ident}    # look at it, or: {place} diff {ended.base[:12]}..{branch}",
            merge,
            *([ask] if ask else []),
            f"placet drop {ident} --reason 'why'    # drop it, or: {place} branch -D {branch}",
            "```",
            *(_peculiar(after) if after is not None else ()),
        ]
    )


def _beside(after: After) -> list[str]:
    """Return the branch's state against the one that work is merged into."""
    if not after.into:
        return []
    into = code(show(after.into))
    behind = f" and {counted(after.behind, 'commit')} behind" if after.behind else ""
    lines = ["", f"It is {counted(after.ahead, 'commit')} ahead of {into}{behind}."]
    if after.conflicts:
        names = ", ".join(code(show(path)) for path in after.conflicts[:MAX_NAMED])
        more = (
            f" and {len(after.conflicts) - MAX_NAMED} more"
            if len(after.conflicts) > MAX_NAMED
            else ""
        )
        return [*lines, f"Merged into {into} now, it would conflict in: {names}{more}."]
    return [*lines, f"It merges into {into} without conflicts."]


def _peculiar(after: After) -> list[str]:
    """Return notes on the repository that the diff cannot show."""
    lines = [f"- {sentence(note)}" for note in after.notes]
    if after.unseen:
        lines.append(
            "- Your checkout had uncommitted files that the mission did not see: "
            + ", ".join(code(show(path)) for path in after.unseen)
            + "."
        )
    return ["", *lines] if lines else []


def _work(ended: Ended) -> str:
    if ended.left_at:
        return (
            f"What the attempt had done was left where it is, in {code(show(ended.left_at))}. "
            "With the cause fixed and the daemon stopped, `placet doctor --fix` keeps it at a ref "
            "and removes that folder."
        )
    if not ended.kept:
        return "The attempt had changed nothing."
    repo, ref = shlex.quote(ended.repository), shlex.quote(ended.kept)
    return "\n".join(
        [
            "What the attempt had done is off the branch, but kept:",
            "",
            "```sh",
            f"git -C {repo} log -p {ended.base[:12]}..{ref}    # look at it",
            f"git -C {repo} branch rescue {ref}    # make a branch of it",
            f"git -C {repo} update-ref -d {ref}    # drop it",
            "```",
            "",
            _files(ended),
        ]
    )


def _happened(ended: Ended, at: Circumstances) -> str:
    """Return a failure's class, the rows that prove it, timeline, calls tried, and cost."""
    found = ENDS[ended.end]
    limit = at.plan.scope.budget_usd
    cost = against_estimate(
        None if ended.spent.cost_usd is None else float(ended.spent.cost_usd),
        at.typical_usd,
        None if limit is None else float(limit),
    )
    parts = [
        f"**{found.kind.capitalize()}** "
        f"(`{ended.end.value}`, after {ended.iterations} iterations): {found.meaning}",
        f"Cost: {cost}.",
    ]
    if rows := proof(ended.end, at.rows):
        parts += [
            "The journal's rows that show it:",
            _fenced("\n".join(row_line(row) for row in rows), "text"),
        ]
    if drawn := chart(at.rows):
        parts += ["### Timeline", _fenced(drawn, "mermaid")]
    if lines := tried(at.rows):
        parts += ["### What Was Tried", "\n".join(f"- {code(line)}" for line in lines)]
    return "\n\n".join(parts)


def _ready(at: Circumstances, left: Remains) -> str:
    """Return a request that starts from where the mission broke, as a callout that is folded."""
    text = _fenced(ready_request(at.case, at.plan, left).rstrip("\n"), "markdown")
    lines = [
        "[!example]- A request that starts from where it broke",
        f"Copy it into `{Folder.REQUESTS}`, or: "
        f"`placet why {at.case.request_id} --request | placet submit --file -`",
        "",
        *text.splitlines(),
    ]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _next_steps(ended: Ended, case: Case) -> str:
    first = ENDS[ended.end].advice
    name = case.request_path or "the request"
    return "\n".join(
        [
            f"1. {first}",
            f"2. For a new plan: {code(f'placet retry {case.request_id}')}, "
            f"or set `status: pending` in {code(name)}. "
            "For a revision of this one set `status: needs_revision` in the plan: "
            "whoever writes it reads this report. Or approve the plan again, to repeat it as "
            "it is: it is in `Inbox/Plans`.",
            "3. Or leave it: nothing more happens by itself.",
        ]
    )


def _template(name: str) -> Template:
    return Template(resources.files("placet.agent").joinpath("texts", name).read_text())


def _fenced(text: str, language: str) -> str:
    """Return a code block that ends where the text does.

    What a comment would begin with is written apart in it.
    """
    return fenced(visible(clean(text).replace("%%", "% %")), language)
