"""The plan as a note: frontmatter, the daemon's callout on top, and the plan itself.

The callout is the state's: what the plan may do and where, what stands out in it, and what a person
can do with it now. It is derived from the case and from the text below it, so that it can be
written again for every text, and compared.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from placet.core.life.case import Case, State
from placet.core.life.commands import Show
from placet.core.text.blocks import Frontmatter
from placet.core.text.characters import shortened
from placet.core.text.comment_blocks import OURS, REMARKS
from placet.core.text.comments import open_comments, uncommented
from placet.core.text.dangers import dangers
from placet.core.text.delta import where
from placet.core.text.markdown import code, codes, link, literal, sentence, warning_callout
from placet.core.text.note import PLAN_STAMPS, digest, new_note, read_note
from placet.core.text.partial import contradictions, left_out
from placet.core.text.plan_reader import MAX_PLAN_CHARACTERS, PlanProblems, parse_plan
from placet.core.text.plan_text import HEADING
from placet.core.text.scope import Scope
from placet.core.text.unseen import find_unseen
from placet.core.turn.budget import Complexity
from placet.core.wording import counted

HOW_TO_REVIEW = (
    "**Approve**: set `decision: approve`, or move this note to `System/Active`.",
    "**Reject**: set `decision: reject`, or move it to `Inbox/Rejected`; a reason under a heading "
    "“Rejection” is kept.",
    "**Ask for changes**: write them under “Review Comments”, or at a step as `> @placet …`, and "
    "set `decision: revise`. In a plan that you approve they guide the agent, and widen nothing.",
)
_APPROVE_AGAIN = (
    "**Approve again**: set `decision: approve`, or move this note to `System/Active`; it is "
    "carried out as it stands here."
)
_NEW_PLAN = (
    "**Have a new plan**: set `status: pending` in the request; whoever writes it reads the report."
)
_REVIEW_AGAIN = (
    "To review it again move it to `Inbox/Plans`; for a new plan set `status: pending` in the "
    "request."
)


@dataclass(frozen=True, slots=True)
class PlanHead:
    """A plan's frontmatter. `created_at` is RFC 3339 in UTC, `base_commit` a full commit id."""

    trace_id: str
    request_id: str
    agent: str
    portal: str
    complexity: Complexity
    revision: int
    base_commit: str
    created_at: str


def compose(
    head: PlanHead,
    body: str,
    *,
    remarks: Sequence[str],
    kind: Frontmatter,
    above: str = "",
    tail: str = "",
) -> bytes:
    """Return a whole plan note without the callout that `headed` puts on top.

    `body` is the plan's text. `remarks` are sentences about how it came about (estimates, the
    sandbox), `above` are callouts for the top (what changed), `tail` is text below the plan:
    comments with their answers.
    """
    if tail:
        body = body.rstrip("\n") + "\n\n" + tail
    about = "".join(f"> {remark}\n" for remark in ("[!info] About this plan", *remarks))
    blocks = [block for block in (above, about, body) if block]
    return new_note(_keys(head), "\n".join(blocks), kind)


def _keys(head: PlanHead) -> dict[str, str | int]:
    return {
        "trace_id": head.trace_id,
        "request_id": head.request_id,
        "status": "review",
        "agent": head.agent,
        "portal": head.portal,
        "complexity": head.complexity.value,
        "revision": head.revision,
        "base_commit": head.base_commit,
        "created_at": head.created_at,
        "decision": "",
    }


def plan_digest(raw: bytes) -> str:
    """Return the digest of a plan's note without the keys that change during its life."""
    return digest(raw, PLAN_STAMPS)


# --- the callout on top

_NOTICE = (
    "(?:Not approved|Asked again|Files changed under this plan|Moved back here|Changed after "
    "approval|Taken back)"
)
_OLDER = re.compile(
    r"> \[!\w+\] (?:A plan for \[\[.*\]\] awaits you|Look twice at the scope|This note has text "
    r"that reading view|"
    rf"{_NOTICE} \()"
)
_DERIVED = re.compile(
    r"> (?:\[!|> |\*\*(?:Where|Left out|Report)\*\*: |It may write |Commands run code of the "
    r"repository|"
    rf"- \*\*No answer yet\*\*|This text is no plan |\*\*{_NOTICE}\*\* \()"
)
_FIXED = frozenset(
    f"> - {line}" for line in (*HOW_TO_REVIEW, _APPROVE_AGAIN, _NEW_PLAN, _REVIEW_AGAIN)
)
# Of a case's state: the callout's sort, its title around the request's link, what one can do.
_CALLOUTS: Mapping[State, tuple[str, str, tuple[str, ...]]] = {
    State.FAILED: (
        "failure",
        "This plan for {} could not be revised; it is as it was",
        HOW_TO_REVIEW,
    ),
    State.COMPLETED: ("success", "This plan for {} was carried out", ()),
    State.REJECTED: ("quote", "This plan for {} was rejected", (_REVIEW_AGAIN,)),
    State.WITHDRAWN: ("quote", "This plan for {} was withdrawn", ()),
    State.PLANNING: ("quote", "This plan for {} made room for a new one", ()),
}
_AFTER_FAILURE = (_APPROVE_AGAIN, *HOW_TO_REVIEW[1:], _NEW_PLAN)
_NAMED = 10  # comments that the callout names
_MOVING = re.compile(rb"(?m)(?<=> - line )\d+|^> - \*\*No answer yet\*\*[^\n]*\n(?:>\r?\n)?")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def show(case: Case, path: str = "") -> Show:
    """Return the callout on top of a case's plan, at `path`, for the case's state."""
    request = link(PurePosixPath(case.request_path).stem if case.request_path else case.request_id)
    report = f"**Report**: {link(PurePosixPath(case.outcome.report_path).stem)}"
    above = tuple(sentence(line) for line in case.notice.splitlines())
    sort, title, below = _CALLOUTS.get(
        case.state, ("question", "A plan for {} awaits you", HOW_TO_REVIEW)
    )
    if case.state is State.FAILED and case.outcome.report_path:
        title, below = "This plan for {} was carried out and failed", _AFTER_FAILURE
    if case.state is State.COMPLETED or (case.state is State.FAILED and case.outcome.report_path):
        above = (*above, report)
    branch = new_branch(case)
    return Show(path or case.plan.path, sort, title.format(request), branch, above, below)


def new_branch(case: Case) -> str:
    """Return the name of the branch that a case's mission works on, or worked on.

    It ends in … where an earlier mission may have taken it: then the time follows.
    """
    name = f"feat/{case.request_id}-{case.trace8}"
    if case.state is State.COMPLETED:
        return case.outcome.branch or name
    had_one = case.earlier or case.outcome.tip or case.outcome.branch not in ("", name)
    return f"{name}…" if had_one else name


def headed(raw: bytes, what: Show) -> bytes:
    """Return the plan note with the daemon's callout on top, made for the text below it.

    That text keeps every byte. An older callout of the daemon's above the title goes; what a person
    wrote into it stays, in one that is not the daemon's. A note that cannot be read stays as it is.
    """
    note = read_note(raw)
    if note.problem:
        return raw
    head, rest = _apart(note.body)
    end = "\r\n" if "\r\n" in note.body else "\n"
    before = raw[: len(raw) - len(note.body.encode())]
    lines = [_first(what), *_facts(note.meta, rest, what)]
    can_do = [f"> - {line}" for line in what.below]
    if remarks := _remarks(head, {*lines, *can_do, *(f"> {line}" for line in what.before)}):
        rest = end.join([REMARKS, *remarks, "", ""]) + rest
    lines += [*_unanswered(rest, what), *can_do]
    unseen = find_unseen(rest[:MAX_PLAN_CHARACTERS])
    if unseen:
        nested = warning_callout(unseen).split("\n")
        shift = before.count(b"\n") + len(lines) + 1 + len(nested) + 1
        lines += [">", *(f"> {line}" for line in warning_callout(unseen, shift=shift).split("\n"))]
    return before + end.join([*lines, "", ""]).encode() + rest.encode()


def says(raw: bytes, what: Show) -> bool:
    """Return whether the note's callout has today's permissions, place and state.

    Only a plan that was shown is approved.
    """
    note = read_note(raw)
    head, rest = _apart(note.body)
    facts = _facts(note.meta, rest, what)
    first = f"> [!{what.sort}|placet] "
    return note.body.startswith(first) and head[1 : 1 + len(facts)] == facts


def is_stale(raw: bytes, what: Show) -> bool:
    """Return whether the callout has to be written again.

    Of a plan that cannot be approved as it stands that is told by its first lines.
    """
    if what.sort not in ("question", "failure"):
        told = [_first(what), *(f"> {line}" for line in what.above)]
        return _apart(read_note(raw).body)[0][: len(told)] != told
    return _stale_in_review(raw, what)


@lru_cache(maxsize=256)
def _stale_in_review(raw: bytes, what: Show) -> bool:
    # The lines that it names move with each stamp; comments are written under a reader's eyes.
    one, other = (_MOVING.sub(b"", text) for text in (raw, headed(raw, what)))
    return one != other


def below(body: str) -> tuple[int, str]:
    """Return a plan's body without the daemon's callout, and the callout's number of lines.

    The number includes the lines that part it from the body.
    """
    rest = _apart(body)[1]
    return body[: len(body) - len(rest)].count("\n"), rest


def own_text(raw: bytes) -> tuple[bytes, str]:
    """Return a plan's note without the daemon's callout and people's comments.

    Two texts of which the same is left were edited by nobody.
    """
    body = read_note(raw).body
    return raw[: len(raw) - len(body.encode())], uncommented(below(body)[1])


def _first(what: Show) -> str:
    return f"> [!{what.sort}|placet] {what.title}"


def _apart(body: str) -> tuple[list[str], str]:
    """Return the lines of the daemon's callouts above the title, and the body without them."""
    head: list[str] = []
    kept: list[str] = []
    ours = gap = False
    at = 0
    for found in _LINE.finditer(body):
        line = found[0].rstrip("\r\n")
        if HEADING.match(line) or line.lstrip().startswith(("```", "~~~")):
            break
        at = found.end()
        if not line.strip() and (ours or not kept):
            gap = True
            continue
        ours = bool(OURS.match(line) or _OLDER.match(line)) or (
            ours and not gap and line.startswith(">")
        )
        gap = False
        if ours:
            head.append(line)
        else:
            kept.append(found[0])
    return head, "".join(kept) + body[at:]


def _remarks(head: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the lines of a callout of ours that a person wrote."""
    # in an older placet's they are not told apart
    if any(_OLDER.match(line) for line in head):
        return []
    return [
        line
        for line in head
        if line.strip("> ")
        and line not in known
        and line not in _FIXED
        and not _DERIVED.match(line)
    ]


def _facts(meta: Mapping[str, Any], rest: str, what: Show) -> list[str]:
    """Return the lines of the callout that an approval rests on."""
    portal = str(meta.get("portal") or "")
    place = f"the repository of the portal {code(portal)}" if portal else "this vault itself"
    base = str(meta.get("base_commit") or "")[:12]
    made = f", made from commit {code(base)}" if base else ""
    lines = [*what.above, f"**Where**: {place}, on the new branch {code(what.branch)}{made}."]
    try:
        plan = parse_plan(rest)
        lines += [f"**Left out**: {gone}."] if (gone := left_out(plan)) else []
        lines += permissions(plan.scope)
        problem = next(iter(contradictions(plan)), "")
    except PlanProblems as found:
        problem = found.problems[0].message
    if problem:
        lines.append(f"This text is no plan that can be carried out: {sentence(problem)}")
    return [f"> {line}".rstrip() for line in [*lines, ""]]


def _unanswered(rest: str, what: Show) -> list[str]:
    """Return the lines that name the comments without an answer, of a plan that can be approved."""
    if what.sort not in ("question", "failure"):
        return []
    waiting = open_comments(rest)
    lines = [
        f"> - **No answer yet**{', ' + where(one) if where(one) else ''}: "
        f"“{literal(shortened(one.text, 120))}”"
        for one in waiting[:_NAMED]
    ]
    if len(waiting) > _NAMED:
        lines.append(f"> - **No answer yet**: {counted(len(waiting) - _NAMED, 'more comment')}")
    return [*lines, ">"] if lines else []


def permissions(scope: Scope) -> list[str]:
    """Return what a scope permits as lines of a callout, with what is dangerous in it."""
    cost = "no limit of its own" if scope.budget_usd is None else f"at most ${scope.budget_usd}"
    lines = [
        f"It may write {codes(scope.write)}; run "
        f"{codes([shlex.join(argv) for argv in scope.run])}; network: {_yes(scope.network)}; "
        f"shell: {_yes(scope.shell)}; cost: {cost}."
    ]
    if scope.write and (scope.run or scope.shell):
        lines.append(
            "Commands run code of the repository, which this plan may change: count on any code "
            "being run in the sandbox. They can change files outside `write` too; those are not "
            "committed."
        )
    if risky := dangers(scope):
        lines += ["", "> [!danger] Look twice at the scope", *(f"> - {one}" for one in risky)]
    return lines


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
