"""Write the Failure Report: what happened, what is kept, and how to go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from placet.agent.report_parts import (
    Circumstances,
    common,
    cost_key,
    cost_line,
    fenced_text,
    files_table,
    not_kept,
    template,
)
from placet.chat.result import Stopped
from placet.core.life.why_failed import (
    Remains,
    advice,
    ready_request,
    remains,
    what_happened,
)
from placet.errors import End, with_last_words
from placet.note.escape import code, link, literal
from placet.note.frontmatter import new_note
from placet.note.paths import Folder, show


def failure_note(ended: Stopped, at: Circumstances, facts: Mapping[str, Any]) -> bytes:
    """Return the Failure Report as a note; `facts` are those of its row in the journal."""
    case = at.case
    error = ended.error or {"error": ended.detail, "error_type": ended.error_type}
    tools = (
        ", ".join(
            f"{literal(name)} ({count})"
            for name, count in sorted(ended.work.calls.items(), key=lambda c: -c[1])
        )
        or "none"
    )
    # No link to the plan's note: rejected or revised after this, it has another name or another
    # text.
    plan = f"revision {case.plan.revision}" + (
        f" for {link(PurePosixPath(case.request_path).stem)}" if case.request_path else ""
    )
    text = template("failure_report.md").substitute(
        {**common(at), "plan": plan},
        error_summary=_summary(ended, at, facts),
        error_details=fenced_text(json.dumps(dict(error), indent=2, ensure_ascii=False), "json"),
        branch=f"`{ended.work.branch}` (taken away; see Work So Far)"
        if ended.work.branch
        else "none",
        tools=tools,
        last_success=code(ended.last_success) if ended.last_success else "none",
        numbers=cost_line(ended.work, at),
        end=ended.end.value,
        work=_work(ended),
        next_steps=_next_steps(ended, at)
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
            "agent": case.request.agent,
            **cost_key(ended.work),
        },
        text,
        at.kind,
    )


def error_of(ended: Stopped) -> str:
    """Return the error that ended a mission, with the model's last words."""
    failed = ended.failed_tool and ended.end in (End.TOOL_ERROR, End.UNRESOLVED_ERROR)
    what = (
        f"Execution failed during tool operation: {ended.failed_tool}" if failed else ended.detail
    )
    return with_last_words(what, ended.last_words)


def _summary(ended: Stopped, at: Circumstances, facts: Mapping[str, Any]) -> str:
    """Say in at most six lines what happened and what to do next."""
    first, *rest = what_happened(facts, at.plan, at.rows)
    lines = [first, literal(error_of(ended)), *rest, advice(ended.end, at.rows)]
    return "\n".join(f"- {line}" for line in lines)


def _work(ended: Stopped) -> str:
    if ended.left_at:
        return (
            f"What the attempt had done was left where it is, in {code(show(ended.left_at))}. "
            "Fix the cause, then restart the daemon: it keeps the work at a ref and removes that "
            "folder."
        )
    if not ended.work.kept:
        return not_kept(ended.work) if ended.work.not_kept else "The attempt had changed nothing."
    repo, ref = shlex.quote(ended.work.repository), shlex.quote(ended.work.kept)
    return "\n".join(
        [
            "What the attempt had done is off the branch, but kept:",
            "",
            "```sh",
            f"git -C {repo} log -p {ended.work.base[:12]}..{ref}    # look at it",
            f"git -C {repo} branch rescue {ref}    # make a branch of it",
            f"git -C {repo} update-ref -d {ref}    # drop it",
            "```",
            "",
            files_table(ended),
        ]
    )


def _ready(at: Circumstances, left: Remains) -> str:
    """Return a request that starts from where the mission broke, as a callout that is folded."""
    text = fenced_text(ready_request(at.case, at.plan, left).rstrip("\n"), "markdown")
    lines = [
        "[!example]- A request that starts from where it broke",
        f"Copy it into `{Folder.REQUESTS}`, or: "
        f"`placet why {at.case.request_id} --request | placet submit --file -`",
        "",
        *text.splitlines(),
    ]
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _next_steps(ended: Stopped, at: Circumstances) -> str:
    case = at.case
    name = case.request_path or "the request"
    moved = ended.end in (End.STOPPED_BY_PERSON, End.DRIFT)
    place = "where it was put when it was stopped" if moved else "in `Inbox/Plans`"
    return "\n".join(
        [
            f"1. For a new plan: {code(f'placet retry {case.request_id}')}, "
            f"or set `status: pending` in {code(name)}. "
            "For a revision of this one set `decision: revise` in the plan: "
            "whoever writes it reads this report. Or approve the plan again, to repeat it as "
            f"it is: it is {place}.",
            "2. Or leave it: nothing more happens by itself.",
        ]
    )
