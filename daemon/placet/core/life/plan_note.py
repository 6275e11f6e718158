"""The plan as a note: frontmatter, the daemon's callout on top, and the plan itself.

The callout is the state's: what the plan may do and where, what stands out in it, and what a person
can do with it now. It is derived from the case and from the text below it, so that it can be
written anew for every text, and compared.
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
from placet.core.text.dangers import dangers
from placet.core.text.markdown import code, codes, link, sentence, warning_callout
from placet.core.text.note import PLAN_STAMPS, digest, new_note, read_note
from placet.core.text.plan import Plan, render_plan
from placet.core.text.plan_reader import MAX_PLAN_CHARACTERS, PlanProblems, parse_plan
from placet.core.text.plan_text import HEADING
from placet.core.text.scope import Scope
from placet.core.text.unseen import find_unseen
from placet.core.turn.budget import Complexity

HOW_TO_REVIEW = (
    "**Approve**: move this note to `System/Active`.",
    "**Reject**: move it to `Inbox/Rejected`; a reason under a heading “Rejection” is kept.",
    "**Ask for changes**: write them under “Review Comments” and set `status: needs_revision`.",
)
_APPROVE_AGAIN = (
    "**Approve again**: move this note to `System/Active`; it is carried out as it stands here."
)
_NEW_PLAN = (
    "**Have a new plan**: set `status: pending` in the request; whoever writes it reads the report."
)
REMARKS = "> [!note] Somebody wrote this into placet's callout"
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
    head: PlanHead, plan: Plan, *, remarks: Sequence[str], kind: Frontmatter, tail: str = ""
) -> bytes:
    """Return a whole plan note without the callout that `headed` puts on top.

    `remarks` are sentences about how it came about (estimates, the sandbox), `tail` is text below
    the plan: comments with their answers, what changed.
    """
    body = render_plan(plan)
    if tail:
        body = body.rstrip("\n") + "\n\n" + tail
    about = "".join(f"> {remark}\n" for remark in ("[!info] About this plan", *remarks))
    return new_note(_keys(head), f"{about}\n{body}", kind)


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
    }


def plan_digest(raw: bytes) -> str:
    """Return the digest of a plan's text.

    The text is the whole note without the keys that change during its life.
    """
    return digest(raw, PLAN_STAMPS)


# --- the callout on top
# -----------------------------------------------------------------------------------

_OURS = re.compile(r"> \[!\w+\|placet\] ")
_NOTICE = (
    "(?:Not approved|Asked again|Files changed under this plan|Moved back here|Changed after "
    "approval)"
)
_OLDER = re.compile(
    r"> \[!\w+\] (?:A plan for \[\[.*\]\] awaits you|Look twice at the scope|This note has text "
    r"that reading view|"
    rf"{_NOTICE} \()"
)
_DERIVED = re.compile(
    r"> (?:\[!|> |\*\*Where\*\*: |\*\*Report\*\*: |It may write |Commands run code of the "
    r"repository|"
    rf"This text is no plan |\*\*{_NOTICE}\*\* \()"
)
_FIXED = frozenset(
    f"> - {line}" for line in (*HOW_TO_REVIEW, _APPROVE_AGAIN, _NEW_PLAN, _REVIEW_AGAIN)
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def show(case: Case, path: str = "") -> Show:
    """Return the callout on top of a case's plan, at `path`, for the case's state."""
    request = link(PurePosixPath(case.request_path).stem if case.request_path else case.request_id)
    report = f"**Report**: {link(PurePosixPath(case.report_path).stem)}"
    above = tuple(sentence(line) for line in case.notice.splitlines())
    below: tuple[str, ...] = ()
    match case.state:
        case State.FAILED if case.report_path:
            sort, title, above = (
                "failure",
                f"This plan for {request} was carried out and failed",
                (*above, report),
            )
            below = (_APPROVE_AGAIN, HOW_TO_REVIEW[1], HOW_TO_REVIEW[2], _NEW_PLAN)
        case State.FAILED:
            sort, title, below = (
                "failure",
                f"This plan for {request} could not be revised; it is as it was",
                HOW_TO_REVIEW,
            )
        case State.COMPLETED:
            sort, title, above = (
                "success",
                f"This plan for {request} was carried out",
                (*above, report),
            )
        case State.REJECTED:
            sort, title, below = "quote", f"This plan for {request} was rejected", (_REVIEW_AGAIN,)
        case State.WITHDRAWN:
            sort, title = "quote", f"This plan for {request} was withdrawn"
        case State.PLANNING:
            sort, title = "quote", f"This plan for {request} made room for a new one"
        case _:
            sort, title, below = "question", f"A plan for {request} awaits you", HOW_TO_REVIEW
    return Show(
        path or case.plan_path, sort, title, f"feat/{case.request_id}-{case.trace8}", above, below
    )


def headed(raw: bytes, what: Show) -> bytes:
    """Return the plan note with the daemon's callout on top, made for the text below it.

    That text keeps every byte.

    An older callout of the daemon's above the title goes; what a person wrote into it stays, in one
    that is not the daemon's. A note that cannot be read stays as it is.
    """
    note = read_note(raw)
    if note.problem:
        return raw
    head, rest = _apart(note.body)
    end = "\r\n" if "\r\n" in note.body else "\n"
    before = raw[: len(raw) - len(note.body.encode())]
    lines = [_first(what), *_facts(note.meta, rest, what), *(f"> - {line}" for line in what.below)]
    if remarks := _remarks(head, {*lines, *(f"> {line}" for line in what.before)}):
        rest = end.join([REMARKS, *remarks, "", ""]) + rest
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

    Outside of review its first lines decide.
    """
    if what.sort != "question":
        told = [_first(what), *(f"> {line}" for line in what.above)]
        return _apart(read_note(raw).body)[0][: len(told)] != told
    return _stale_in_review(raw, what)


@lru_cache(maxsize=256)
def _stale_in_review(raw: bytes, what: Show) -> bool:
    # The lines that it names move with each stamp.
    one, other = (re.sub(rb"> - line \d+,", b"> - line", text) for text in (raw, headed(raw, what)))
    return one != other


def below(body: str) -> tuple[int, str]:
    """Return a plan's body without the daemon's callout, and the callout's number of lines.

    The number includes the lines that part it from the body.
    """
    rest = _apart(body)[1]
    return body[: len(body) - len(rest)].count("\n"), rest


def bare(raw: bytes) -> bytes:
    """Return a plan's note without the daemon's callout.

    Two texts of which the same is left were edited by nobody.
    """
    body = read_note(raw).body
    return raw[: len(raw) - len(body.encode())] + below(body)[1].encode()


def _first(what: Show) -> str:
    return f"> [!{what.sort}|placet] {what.title}"


def _apart(body: str) -> tuple[list[str], str]:
    """Return the lines of the daemon's callout, and the body without it.

    Of what is above the title, callouts of ours go.
    """
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
        ours = bool(_OURS.match(line) or _OLDER.match(line)) or (
            ours and not gap and line.startswith(">")
        )
        gap = False
        if ours:
            head.append(line)
        else:
            kept.append(found[0])
    return head, "".join(kept) + body[at:]


def _remarks(head: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the lines of a callout of ours that are none of the daemon's.

    In an older placet's they are not told apart.
    """
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
        lines += _may(parse_plan(rest).scope)
    except PlanProblems as found:
        lines.append(
            f"This text is no plan that can be carried out: {sentence(found.problems[0].message)}"
        )
    return [f"> {line}".rstrip() for line in [*lines, ""]]


def _may(scope: Scope) -> list[str]:
    """Return what a scope permits, in the words that a reviewer reads."""
    lines = [
        f"It may write {codes(scope.write)}; run "
        f"{codes([shlex.join(argv) for argv in scope.run])}; network: {_yes(scope.network)}; "
        f"shell: {_yes(scope.shell)}; cost: {_cost(scope)}."
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


def _cost(scope: Scope) -> str:
    return f"at most ${scope.budget_usd}" if scope.budget_usd is not None else "no limit of its own"
