"""Callouts above a revised plan that say what changed.

They are derived from the old text, the new plan and the answers, without a model. Foreign
words stand in them defused, on short lines: they are read on a phone before all else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from placet.errors import counted
from placet.note.escape import code, codes, literal
from placet.note.hidden_text import shortened
from placet.note.markdown import lines_of
from placet.note.outline import named
from placet.plan.comments import Comment, matched
from placet.plan.differences import COMPARED_LINES, SHOWN_CHARS, alike
from placet.plan.parse import PlanProblems, parse_plan
from placet.plan.plan import Plan, Step
from placet.plan.render import render_plan
from placet.plan.scope import Scope


@dataclass(frozen=True, slots=True)
class Said:
    """A comment that was put to the agent, and its answer, empty without one."""

    comment: Comment
    answer: str


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One change: its sentence, with several its `parts`, and the old and the new lines.

    `was` and `now` are a step's numbers before and after, 0 for none; `names` is what a comment
    calls anything else.
    """

    told: str
    old: Sequence[str] = ()
    new: Sequence[str] = ()
    was: int = 0
    now: int = 0
    names: re.Pattern[str] | None = None
    parts: Sequence[str] = ()

    def asked_by(self, said: Said) -> bool:
        """Return whether a comment asked for this change, as far as its place and words tell."""
        text, answer = said.comment.text, said.answer
        if self.names is not None:
            return bool(
                self.names.search(text)
                or self.names.search(answer)
                or (not said.comment.step and self.names.fullmatch(said.comment.place))
            )
        meant = {said.comment.step} if said.comment.step else set(_steps_named(text))
        return (self.was in meant and self.was > 0) or (
            self.now > 0 and self.now in _steps_named(answer)
        )


def _steps_named(text: str) -> Iterator[int]:
    for found in re.finditer(
        r"\bsteps?[ \t]+([0-9]{1,4}(?:(?:,|[ \t]and|[ \t]*&)?[ \t]+[0-9]{1,4})*)", text, re.I
    ):
        yield from (int(number) for number in re.findall("[0-9]+", found[1]))


def changes_between(old: Plan, new: Plan) -> Iterator[PlanChange]:
    """Give the changes of the steps in the new order, then those that went, then all others."""
    pairs = matched([s.title for s in old.steps], [s.title for s in new.steps])
    came = {now: was for was, now in pairs.items()}
    moved_ones = _moved(pairs)
    for number, step in enumerate(new.steps, 1):
        title = literal(shortened(step.title, 80))
        lines = _step_lines(step)
        if number not in came:
            yield PlanChange(f"**Step {number} is new**: {title}", (), lines, now=number)
            continue
        was = came[number]
        before = old.steps[was - 1]
        if what := ", ".join(_differing(before, step)):
            moved = "" if was == number else f", was step {was}"
            told = f"**Step {number} changed** ({what}{moved}): {title}"
            yield PlanChange(told, _step_lines(before), lines, was, number)
        elif was in moved_ones:
            yield PlanChange(
                f"**Step {number} moved**, was step {was}: {title}", was=was, now=number
            )
    for number, step in enumerate(old.steps, 1):
        if number not in pairs:
            title = literal(shortened(step.title, 80))
            told = f"**Old step {number} was removed**: {title}"
            yield PlanChange(told, _step_lines(step), (), number)
    if found := [*_scope_changes(old.scope, new.scope)]:
        words = [r"\bscope\b", r"\bpermissions?\b"]
        words += [re.escape(word) for _, named_ones in found for word in named_ones]
        names = re.compile("|".join(words), re.IGNORECASE)
        yield PlanChange("**Scope** changed", names=names, parts=[told for told, _ in found])
    yield from _other_changes(old, new)


def _moved(pairs: Mapping[int, int]) -> set[int]:
    """Return the old numbers of steps that have another place among those that were kept."""
    return {
        was
        for was, now in zip(sorted(pairs), sorted(pairs.values()), strict=True)
        if pairs[was] != now
    }


def _differing(before: Step, now: Step) -> Iterator[str]:
    if before.left_out is not now.left_out:
        yield "left out" if now.left_out else "ticked again"
    if before.title != now.title:
        yield "title"
    if before.description != now.description:
        yield "text"
    if before.done_when != now.done_when:
        yield "done when"
    if before.actions != now.actions:
        yield "actions"


def _scope_changes(old: Scope, new: Scope) -> Iterator[tuple[str, Sequence[str]]]:
    one, other = ([shlex.join(argv) for argv in scope.run] for scope in (old, new))
    for key, before, now in (
        ("use", [*(old.tools or ())], [*(new.tools or ())]),
        ("write", [*old.write], [*new.write]),
        ("run", one, other),
    ):
        if more := [entry for entry in now if entry not in before]:
            yield f"it may also {key} {codes(more)}", [key, *more]
        if less := [entry for entry in before if entry not in now]:
            yield f"it may no longer {key} {codes(less)}", [key, *less]
    limits = ["budget", "cost"]
    for name, was, is_now, words in (
        ("network", yes_or_no(old.network), yes_or_no(new.network), ["network"]),
        ("shell", yes_or_no(old.shell), yes_or_no(new.shell), ["shell"]),
        ("cost in $", _limit(old.budget_usd), _limit(new.budget_usd), limits),
        ("iterations", _limit(old.max_iterations), _limit(new.max_iterations), ["iteration"]),
    ):
        if was != is_now:
            yield f"{name}: {is_now}, was {was}", words


def yes_or_no(flag: bool) -> str:
    """Return a flag of a scope as a person reads it."""
    return "yes" if flag else "no"


def _limit(most: object) -> str:
    return "no limit" if most is None else f"at most {most}"


def _other_changes(old: Plan, new: Plan) -> Iterator[PlanChange]:
    for name, before, now in (
        ("Title", [old.title], [new.title]),
        ("Summary", old.summary.split("\n"), new.summary.split("\n")),
        ("Risks", old.risks, new.risks),
    ):
        if list(before) != list(now):
            names = re.compile(rf"\b{name}\b", re.IGNORECASE)
            yield PlanChange(f"**{name}** changed", before, now, names=names)
    kept = {named(section.title) for section in new.others}
    for section in old.others:
        if named(section.title) not in kept:
            told = f"**Section left out**: {literal(shortened(section.title, 80))}"
            names = re.compile(re.escape(section.title), re.IGNORECASE)
            yield PlanChange(told, section.text.split("\n"), (), names=names)


def _step_lines(step: Step) -> Sequence[str]:
    from placet.plan.toml_text import actions_toml  # here: only writing needs tomlkit

    actions = actions_toml([(a.tool, a.params) for a in step.actions]) if step.actions else ""
    return [
        step.title,
        *(line for line in step.description.split("\n") if line.strip()),
        *(f"Done when: {line}" for line in step.done_when),
        *actions.splitlines(),
    ]


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
