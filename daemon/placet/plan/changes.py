"""Callouts above a revised plan that say what changed.

They are derived from the old text, the new plan and the answers, without a model. Foreign
words stand in them defused, on short lines: they are read on a phone before all else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from placet.core.text.characters import shortened
from placet.core.text.plan_changes import PlanChange, Said, changes_between
from placet.core.wording import counted
from placet.note.escape import code, literal
from placet.note.markdown import lines_of
from placet.plan.comments import (
    Comment,
)
from placet.plan.differences import COMPARED_LINES, SHOWN_CHARS, alike
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, render_plan

TITLE = "What changed since revision"
SHOWN_LINES = 120
"""Maximum of new lines that the folded callout has: they are below in full."""
_TOLD = 100  # changes, and comments
_SHOWN = 160  # characters of a comment or an answer


def delta(old: str, new: Plan, said: Sequence[Said], revision: int) -> str:
    """Return the callouts that say what changed since `revision`, ending in a newline.

    `old` is that plan's text as the person left it, `said` are the comments that were answered.
    """
    try:
        changes = [*changes_between(parse_plan(old, None), new)]
    except PlanProblems:
        sentence = "**The plan** was none that could be read; all of it is new"
        changes = [PlanChange(sentence, lines_of(old), lines_of(render_plan(new)))]
    lines = [f"[!abstract] {TITLE} {revision}"]
    told: set[int] = set()
    for change in changes[:_TOLD]:
        lines += [f"- {change.told}", *(f"  - {part}" for part in change.parts)]
        for number, one in enumerate(said[:_TOLD]):
            if change.asked_by(one):
                lines += [f"  {line}" for line in _talk(one, again=number in told)]
                told.add(number)
    if len(changes) > _TOLD:
        lines.append(f"- and {counted(len(changes) - _TOLD, 'change')} more, all of them below")
    if not changes:
        lines.append("- **Nothing** in the plan changed")
    for number, one in enumerate(said[:_TOLD]):
        if number not in told:
            lines += _talk(one)
    if len(said) > _TOLD:
        lines.append(f"- and {counted(len(said) - _TOLD, 'comment')} more, all of them below")
    out = [_quoted(lines)]
    if details := [*_details(changes)]:
        out.append(_quoted(["[!note]- Line by line", *details]))
    return "\n".join(out)


def _quoted(lines: Sequence[str]) -> str:
    return "".join(f"> {line}".rstrip() + "\n" for line in lines)


def where(comment: Comment) -> str:
    """Return where a comment stands, in words for a sentence; empty for the plan as a whole."""
    if comment.step:
        return f"at step {comment.step}"
    return f"at {literal(shortened(comment.place, 60))}" if comment.place else ""


def _talk(one: Said, *, again: bool = False) -> list[str]:
    place = where(one.comment)
    head = f"- Comment {place}: " if place else "- Comment: "
    lines = [head + f"“{literal(shortened(one.comment.text, 40 if again else _SHOWN))}”"]
    if not again:
        answer = literal(shortened(one.answer, _SHOWN)) if one.answer.strip() else "**none**"
        lines.append(f"- Answer: {answer}")
    return lines


def _details(changes: Sequence[PlanChange]) -> Iterator[str]:
    """Return the changed lines: of old ones every word, as long as they are no book."""
    left, chars = SHOWN_LINES, SHOWN_CHARS
    for number, change in enumerate(changes):
        if chars < 0:
            yield from ("", f"and {counted(len(changes) - number, 'change')} more")
            return
        lines = [*_differences(change.old, change.new)]
        if not lines:
            continue
        heading = change.told.partition(":")[0]
        chars -= len(heading)
        yield from ("", heading, "")
        dropped = 0
        for line in lines:
            is_old = line.startswith("- gone")
            chars -= len(line)
            if chars < 0 or (left <= 0 and not is_old):
                dropped += 1
            else:
                yield line
            left -= not is_old
        if dropped:
            yield f"- and {counted(f'{dropped:,}', 'line')} more"


def _differences(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    head, tail = alike(old, new)
    before, now = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(before), len(now)) > COMPARED_LINES:
        yield f"- {counted(len(before), 'line')} became {len(now):,}"
        return
    for tag, one, other, first, last in SequenceMatcher(None, before, now).get_opcodes():
        if tag == "equal":
            continue
        for line in before[one:other]:
            if line.strip():
                yield from (f"- gone: {code(part)}" for part in _cut(line))
        for line in now[first:last]:
            if line.strip():
                yield f"- new: {code(shortened(line, 300))}"


def _cut(line: str) -> Sequence[str]:
    """Return a line in parts that are shown whole, cut between words where there are any."""
    return [found[0] for found in re.finditer(r".{1,1000}(?=\s|\Z)|.{1,1000}", line, re.DOTALL)]
