"""Write a plan's note: its properties, placet's box, and the plan itself.

The box says what the plan may do and where, what stands out in it, and what you can do with it. It
is made from the case and from the text below it, so it can be written again for every text, and
compared. It is not a part of that text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from placet.case.case import Case
from placet.case.commands import WriteBox
from placet.case.life_cycle import State
from placet.case.notes import APPROVE, body_of, decision_in, trace_of
from placet.chat.budget import Complexity
from placet.chat.guards import iteration_cap
from placet.codec import sha256
from placet.note.box import find_box, without_box
from placet.note.box import with_box as boxed
from placet.note.escape import bounded, code, codes, link, sentence, warning_callout
from placet.note.frontmatter import Frontmatter, Note, new_note, read_note
from placet.note.hidden_text import find_unseen
from placet.note.paths import Folder
from placet.plan.comments import REMARKS
from placet.plan.dangers import dangers
from placet.plan.digest import plan_digest
from placet.plan.hosts import NEEDS_LEVEL_3
from placet.plan.left_out import contradictions, left_out
from placet.plan.limits import plan_excess, text_excess
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, agent_steps
from placet.plan.scope import Scope
from placet.wording import counted

HOW_TO_REVIEW = (
    "**Approve**: set `decision: approve`, or move this note to `System/Active`.",
    "**Reject**: set `decision: reject`, or move it to `Inbox/Rejected`. A reason goes under a "
    "heading “Rejection”.",
    "**Ask for changes**: write them under “Review Comments”, or at a step as `> @placet …`. Then "
    "set `decision: revise`.",
)
_APPROVE_AGAIN = "**Approve again**: set `decision: approve`, or move this note to `System/Active`."
_NEW_PLAN = (
    "**Have a new plan**: set `status: pending` in the request. It takes the report into account."
)
_REVIEW_AGAIN = (
    "To review it again move it to `Inbox/Plans`; for a new plan set `status: pending` in the "
    "request."
)


WAITS_FOR_SIGNATURE = (
    "**Waits for a signature.** Approve it on the board, or type: `placet approve {}`"
)


def how_to_approve(case: Case, lines: Sequence[str]) -> tuple[str, ...]:
    """Return what a person can do: where approvals are signed, a move approves nothing."""
    if not case.must_sign:
        return tuple(lines)
    how = (
        f"**Approve**: on the board, or type `placet approve {case.request_id}`. Your key signs it."
    )
    return tuple(how if line.startswith("**Approve") else line for line in lines)


WHERE = "**Where**: "
"""The beginning of the box's line that names the repository, the branch and the commit."""


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
    title: str


def compose(
    head: PlanHead,
    body: str,
    *,
    remarks: Sequence[str],
    kind: Frontmatter,
    above: str = "",
    tail: str = "",
) -> bytes:
    """Return a whole plan note without the box that `with_box` puts on top.

    `body` is the plan's text. `remarks` are sentences about how it came about (estimates, the
    sandbox), `above` are callouts for the top (what changed), `tail` is text below the plan:
    comments with their answers.
    """
    if tail:
        body = body.rstrip("\n") + "\n\n" + tail
    about = "".join(f"> {remark}\n" for remark in ("[!info] About this plan", *remarks))
    return headed(head, "\n".join(block for block in (above, about, body) if block), kind)


def headed(head: PlanHead, text: str, kind: Frontmatter) -> bytes:
    """Return a new plan note with this text, without a decision.

    Raises UnsafeEdit and ValueError as `new_note` does.
    """
    keys: dict[str, str | int] = {
        "decision": "",
        "status": "review",
        "title": bounded(head.title),
        "trace_id": head.trace_id,
        "request_id": head.request_id,
        "agent": head.agent,
        "portal": head.portal,
        "complexity": head.complexity.value,
        "revision": head.revision,
        "base_commit": head.base_commit,
        "created_at": head.created_at,
    }
    return new_note(keys, text, kind)


_STOP = "**Stop**: move this note to `Inbox/Plans`."
_APPROVED = ("info", "This plan for {} is approved", (_STOP,))
# Of a case's state: the box's sort, its title around the request's link, what you can do.
_BOXES: Mapping[State, tuple[str, str, tuple[str, ...]]] = {
    State.FAILED: (
        "failure",
        "This plan for {} could not be revised and is unchanged",
        HOW_TO_REVIEW,
    ),
    State.APPROVED: _APPROVED,
    State.RUNNING: _APPROVED,
    State.COMPLETED: ("success", "This plan for {} is done", ()),
    State.REJECTED: ("quote", "This plan for {} was rejected", (_REVIEW_AGAIN,)),
    State.WITHDRAWN: ("quote", "This plan for {} was withdrawn", ()),
    State.PLANNING: ("quote", "This plan for {} made room for a new one", ()),
}
APPROVED_STATES = frozenset({State.APPROVED, State.RUNNING, State.COMPLETED})
"""The states of a case whose plan is approved, or was."""
_AFTER_FAILURE = (_APPROVE_AGAIN, *HOW_TO_REVIEW[1:], _NEW_PLAN)
_MARK_CHARS = 6  # a typed line has a known mark once in 10^5 notes
_MARKS_KEPT = 12_000
"""Characters of marks: two boxes of 200 scope entries with five dangers each."""


def box_of(case: Case, path: str = "") -> WriteBox:
    """Return the box of a case's plan, at `path`, for the case's state."""
    request = link(PurePosixPath(case.request_path).stem if case.request_path else case.request_id)
    report = f"**Report**: {link(PurePosixPath(case.outcome.report_path).stem)}"
    above = tuple(sentence(line) for line in case.notice.splitlines())
    sort, title, below = _BOXES.get(
        case.acting, ("question", "A plan for {} awaits you", HOW_TO_REVIEW)
    )
    if case.state is State.FAILED and case.outcome.report_path:
        title, below = "This plan for {} failed", _AFTER_FAILURE
    if case.state is State.COMPLETED and case.outcome.doubts:
        sort = "warning"
    above = (*above, *results_in_doubt(case))
    if case.state is State.COMPLETED or (case.state is State.FAILED and case.outcome.report_path):
        above = (*above, report)
    place, branch = path or case.plan.path, new_branch(case)
    if (
        case.must_sign
        and case.acting not in APPROVED_STATES
        and place.startswith(f"{Folder.ACTIVE}/")
    ):
        above = (WAITS_FOR_SIGNATURE.format(case.request_id), *above)
    return WriteBox(
        place,
        sort,
        title.format(request),
        branch,
        above,
        how_to_approve(case, below),
        base_branch=case.plan.base_branch,
        base_commit=case.plan.base_commit,
        uncommitted=case.plan.uncommitted,
        about_worktree=case.plan.about_worktree,
        day_usd=case.plan.day_usd,
        command_notes=case.plan.command_notes,
    )


def results_in_doubt(case: Case) -> tuple[str, ...]:
    """Return what a person must know of a completed mission before taking its work over."""
    if case.state is not State.COMPLETED:
        return ()
    tests = case.outcome.changed_tests
    return (*case.outcome.doubts, *([f"The branch {tests}."] if tests else []))


def new_branch(case: Case) -> str:
    """Return the name of the branch that a case's mission works on, or worked on.

    It ends in … where an earlier mission may have taken it: then the time follows.
    """
    name = f"feat/{case.request_id}-{case.trace8}"
    if case.state is State.COMPLETED:
        return case.outcome.branch or name
    had_one = case.branches or case.outcome.branch not in ("", name)
    return f"{name}…" if had_one else name


def with_box(raw: bytes, what: WriteBox) -> bytes:
    """Return the plan's note with placet's box, made for the text below it.

    The text keeps every byte. An old box is replaced. An unreadable note stays unchanged.
    """
    note = read_note(raw)
    if note.problem:
        return raw
    before = raw[: len(raw) - len(note.body.encode())]
    return before + boxed(without_box(note.body), box_lines(raw, what)).encode()


def box_written(raw: bytes, what: WriteBox, case: Case, text: bytes = b"") -> bytes:
    """Return the note of a case's plan with the box `what`, and with the body of `text` if given.

    A note whose text is not that of `what.digest` stays unchanged. So does a note that is approved
    by its property: the person who approved it has read its present box.
    """
    now = box_edits_to_text(raw, case, what.path)
    other = trace_of(raw) != case.trace_id or (what.digest and plan_digest(now) != what.digest)
    if other or decision_in(read_note(raw).meta) == APPROVE:
        return raw
    if text:
        now = now[: len(now) - len(body_of(now).encode())] + body_of(text).encode()
    return with_box(now, what)


def box_edits_to_text(raw: bytes, case: Case, path: str = "") -> bytes:
    """Return the note of a case's plan. If you wrote lines into its box, return it without the box.

    Those lines become the first lines of the text, and the box has to be written again.
    """
    body = read_note(raw).body
    box = find_box(body)
    if box is None:
        return raw
    added_lines = _not_known(box.lines, case.plan.box)
    if added_lines:  # a command may have written the box, or a formatter broken its lines
        now = box_lines(raw, box_of(case, path))
        if _unformatted(*box.lines).casefold() == _unformatted(*now).casefold():
            return raw
        added_lines = _not_known(added_lines, with_marks("", now))
    if not added_lines:
        return raw
    end = "\r\n" if "\r\n" in body else "\n"
    quoted = (line if line.startswith(">") else f"> {line}" for line in added_lines)
    text = end.join([REMARKS, *quoted, "", body[box.end :]])
    return raw[: len(raw) - len(body.encode())] + text.encode()


def is_own_box(lines: Sequence[str], case: Case) -> bool:
    """Return whether placet wrote all lines of a box, as the case knows."""
    return not _not_known(lines, case.plan.box)


def _not_known(lines: Sequence[str], known: str) -> list[str]:
    """Return the lines without a mark in `known` that say something."""
    marks = {known[at : at + _MARK_CHARS] for at in range(0, len(known), _MARK_CHARS)}
    return [line for line in lines if _unformatted(line) and _mark(line) not in marks]


def with_marks(known: str, lines: Sequence[str]) -> str:
    """Return the marks of the lines that placet wrote into boxes, with these lines."""
    marks = {known[at : at + _MARK_CHARS]: None for at in range(0, len(known), _MARK_CHARS)}
    new = {_mark(line): None for line in lines}
    return "".join([*(mark for mark in marks if mark not in new), *new][-_MARKS_KEPT:])


def _mark(line: str) -> str:
    # mdformat writes [!QUESTION]
    return sha256(_unformatted(line).casefold().encode())[:_MARK_CHARS]


def _unformatted(*lines: str) -> str:
    """Return what formatters leave of lines: no blanks, bullets, marks of quotes and escapes."""
    items = (re.sub(r"^[\s>]*[-*+](?=\s)", "", line) for line in lines)
    return re.sub(r"[\s>\\]+", "", "".join(items))


def box_says(raw: bytes, what: WriteBox) -> bool:
    """Return whether the note's box says what the text allows, where, and what you can do.

    Only a plan that was shown is approved. The request may have been renamed since, and a formatter
    may have changed the box's lines, but not their words.
    """
    box = find_box(read_note(raw).body)
    head, *rest = [*filter(_unformatted, box.lines if box is not None else ())] or [""]
    return _unformatted(head).casefold().startswith(f"[!{what.sort}|placet]") and (
        _unformatted(*rest) == _unformatted(*box_lines(raw, what)[1:])
    )


def box_is_current(raw: bytes, what: WriteBox) -> bool:
    """Return whether the note's box is the one that placet would write now."""
    box = find_box(read_note(raw).body)
    return box is not None and [line.rstrip() for line in box.lines] == [*box_lines(raw, what)]


def box_lines(raw: bytes, what: WriteBox) -> tuple[str, ...]:
    """Return the lines of the box for the text of this note."""
    note = read_note(raw)
    about = _about_note(note, what)
    dangers = ["", *about.dangers, ""] if about.dangers else []
    lacks = sentence(" ".join(what.about_worktree))
    known = [f"**The worktree**: {lacks}"] if lacks else []
    problem = [about.problem] if about.problem else []
    plain = [*about.scope, *about.cautions, *problem, _place(note.meta, what), *known, ""]
    lines = [*head_lines(what), *(f"> {line}".rstrip() for line in [*dangers, *plain])]
    return (*lines, *(f"> - {line}" for line in what.below), *about.unseen)


def cautions(raw: bytes, what: WriteBox) -> list[str]:
    """Return what the box says besides the scope: how far its commands go, what they lack."""
    return [*_about_note(read_note(raw), what).cautions, *what.about_worktree]


def where_it_works(raw: bytes, what: WriteBox) -> str:
    """Return in which repository, on which branch and from which commit a plan's mission works."""
    return _place(read_note(raw).meta, what).removeprefix(WHERE)


def head_lines(what: WriteBox) -> list[str]:
    """Return the first lines of a box, which are the same for any text."""
    return [f"> [!{what.sort}|placet] {what.title}", *(f"> {line}".rstrip() for line in what.above)]


def _place(meta: Mapping[str, Any], what: WriteBox) -> str:
    """Return the line that says where the mission will work."""
    portal = str(meta.get("portal") or "")
    place = f"the repository of the portal {code(portal)}" if portal else "this vault itself"
    base = str(meta.get("base_commit") or "")[:12]
    is_as_planned = meta.get("base_commit") == what.base_commit
    on = f"branch {code(what.base_branch)}, " if is_as_planned and what.base_branch else ""
    made = f", made from {on}commit {code(base)}" if base else ""
    if is_as_planned and what.uncommitted:
        files = counted(what.uncommitted, "uncommitted file")
        made += f" ({files} {'is' if what.uncommitted == 1 else 'are'} not included)"
    return f"{WHERE}{place}, on the new branch {code(what.branch)}{made}."


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What a plan may do, as its box and the board say it first.

    `line` says it in one line, `dangers` what stands out. The numbers count the steps that are
    kept, the globs that may be written, and the commands.
    """

    line: str
    dangers: tuple[str, ...]
    steps: int
    paths: int
    commands: int


@lru_cache(maxsize=256)  # the board and `placet status` ask for the same plans again and again
def plan_summary(raw: bytes) -> PlanSummary | None:
    """Return the summary of a plan's note, None for a text that is not a plan."""
    note = read_note(raw)
    try:
        plan = parse_plan(without_box(note.body))
    except PlanProblems:
        return None
    scope = plan.scope
    cap = iteration_cap(complexity_in(note.meta), scope.max_iterations, agent_steps(plan.steps))
    return PlanSummary(
        scope_in_short(scope, cap),
        tuple(dangers(scope)),
        len(plan.kept),
        _paths(scope),
        len(scope.run),
    )


def complexity_in(meta: Mapping[str, Any]) -> Complexity:
    """Return the size in a plan's properties; standard if it is missing or unknown."""
    given = meta.get("complexity")
    return Complexity(str(given)) if given in list(Complexity) else Complexity.STANDARD


def scope_in_short(scope: Scope, iterations: int | None) -> str:
    """Return what a scope permits in one line: "Writes 4 paths, runs 1 command. …"."""
    acts = [f"writes {counted(paths, 'path')}"] if (paths := _paths(scope)) else []
    acts += [f"runs {counted(len(scope.run), 'command')}"] if scope.run else []
    hosts = [f"reaches {codes([str(host) for host in scope.hosts])}"] if scope.hosts else []
    uses = hosts or [f"{'uses the' if scope.network else 'no'} network"]
    uses.append(f"{'uses a' if scope.shell else 'no'} shell")
    both = "uses the network and a shell"
    parts = [", ".join(acts) or "only reads"]
    parts.append(both if scope.network and scope.shell else ", ".join(uses))
    if iterations is not None:
        parts.append(f"at most {counted(iterations, 'iteration')}")
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in parts)


def _paths(scope: Scope) -> int:
    return sum(not pattern.startswith("!") for pattern in scope.write)


@dataclass(frozen=True, slots=True)
class _About:
    """What a box says of a plan's text, in lines."""

    scope: Sequence[str] = ()
    """What it permits, and what is left out of it."""
    cautions: Sequence[str] = ()
    """How far its commands go, and what they lack."""
    dangers: Sequence[str] = ()
    problem: str = ""
    """Why it cannot run."""
    unseen: Sequence[str] = ()
    """The warning about what reading view hides of it, with its marks of a quote."""


def _about_note(note: Note, what: WriteBox) -> _About:
    text, complexity = without_box(note.body), complexity_in(note.meta)
    return _about(text, complexity, what.day_usd, what.command_notes)


@lru_cache(maxsize=256)  # a look compares the boxes of all plans in the watched folders
def _about(
    text: str, complexity: Complexity, day_usd: Decimal, command_notes: tuple[str, ...]
) -> _About:
    about = _About()
    try:
        plan = parse_plan(text)
        if excess := plan_excess(plan):
            problem = excess[0]
        else:
            cap = iteration_cap(complexity, plan.scope.max_iterations, agent_steps(plan.steps))
            about = _About(
                _permissions(plan, cap, day_usd),
                _cautions(plan, cap, command_notes),
                danger_lines(plan.scope),
            )
            problem = next(iter(contradictions(plan)), "")
    except PlanProblems as found:
        problem = found.problems[0].message
    unseen = [] if text_excess(text) else find_unseen(text)  # nothing of it is read
    warning = warning_callout(unseen).split("\n") if unseen else []
    return replace(
        about,
        problem=f"placet cannot run this plan: {sentence(problem)}" if problem else "",
        unseen=[">", *(f"> {line}" for line in warning)] if warning else [],
    )


def _permissions(plan: Plan, iterations: int, day_usd: Decimal) -> list[str]:
    """Return what a plan permits as lines of a box.

    `day_usd` was the limit of a day's work when the plan was written, 0 for none.
    """
    scope = plan.scope
    cost = f"${day_usd:f} a day for all work (when planned)" if day_usd else "no limit"
    if scope.budget_usd is not None:
        cost = f"at most ${scope.budget_usd}"
    runs = _first_codes([shlex.join(argv) for argv in scope.run])
    if scope.run:  # an entry is a beginning, whatever its last word is
        runs += f" ({'each ' if len(scope.run) > 1 else ''}with any further words)"
    names_tools = plan.tools or scope.tools is not None
    deletes = "delete_file" in plan.tools or not names_tools
    writes = "write and delete" if deletes and scope.write else "write"
    left_out_text = left_out(plan)
    return [
        f"**{scope_in_short(scope, iterations)}**",
        *([f"**Left out**: {left_out_text}."] if left_out_text else []),
        f"It may {writes} {_first_codes(scope.write)}; run {runs}; cost: {cost}.",
    ]


def _cautions(plan: Plan, iterations: int, command_notes: Sequence[str]) -> list[str]:
    scope, lines = plan.scope, list[str]()
    if scope.run or scope.shell:
        lines += [one for one in command_notes if scope.hosts or one != NEEDS_LEVEL_3]
    steps = agent_steps([step for _, step in plan.kept])
    if iterations < steps:
        few = f"At most {counted(iterations, 'iteration')} for {counted(steps, 'step')}"
        lines.append(f"{few}: the mission may stop before it is done.")
    if scope.write and (scope.run or scope.shell):
        lines.append(
            "This plan may change code that its commands run: assume that any code can run in the "
            "sandbox. Commands can also change files outside `write`; placet does not commit those."
        )
    return lines


MAX_LISTED = 6
"""Entries of a list in a box; the scope below has all."""


def _first_codes(texts: Sequence[str]) -> str:
    """Return the first texts as inline code.

    A checksum stands for the others: the box is another one once any of them changes.
    """
    rest = texts[MAX_LISTED:]
    if not rest:
        return codes(texts)
    checksum = sha256("\0".join(rest).encode())[:16]
    return f"{codes(texts[:MAX_LISTED])} and {len(rest)} more, below (checksum `{checksum}`)"


def danger_lines(scope: Scope) -> list[str]:
    """Return what is dangerous in a scope as a callout; nothing without it."""
    risky = dangers(scope)
    if not risky:
        return []
    return ["> [!danger] Look twice at the scope", *(f"> - {one}" for one in risky)]
