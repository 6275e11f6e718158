"""Changes between two plans: of steps, of the scope, of all else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from placet.core.text.characters import shortened
from placet.note.escape import codes, literal
from placet.note.outline import named
from placet.plan.comments import (
    Comment,
)
from placet.plan.plan import Plan, Step
from placet.plan.scope import Scope

_COMPARED = 60  # steps that are compared with each other; of more only titles and numbers count
_LIKE = 0.6  # how alike two titles of one step are, from 0 to 1


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


def matched(old: Sequence[str], new: Sequence[str]) -> Mapping[int, int]:
    """Return the number in `new` of each step of `old` that is still there, both counted from 1.

    The same title comes first, then one that is much alike, then the same number.
    """
    pairs: dict[int, int] = {}
    free: dict[str, list[int]] = {}
    for number, title in enumerate(new, 1):
        free.setdefault(named(title), []).append(number)
    for number, title in enumerate(old, 1):
        if same := free.get(named(title)):
            pairs[number] = same.pop(0)
    gone = [n for n in range(1, len(old) + 1) if n not in pairs]
    come = {n for numbers in free.values() for n in numbers}
    if len(gone) <= _COMPARED and len(come) <= _COMPARED:
        alike_ones = sorted(
            (
                (_likeness(old[was - 1], new[now - 1]), -abs(was - now), was, now)
                for was in gone
                for now in come
            ),
            reverse=True,
        )
        for likeness, _, was, now in alike_ones:
            if likeness >= _LIKE and was not in pairs and now in come:
                pairs[was] = now
                come.remove(now)
    pairs |= {was: was for was in gone if was not in pairs and was in come}
    return pairs


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, named(one)[:200], named(other)[:200]).ratio()


def _differing(before: Step, now: Step) -> Iterator[str]:
    if before.left_out is not now.left_out:
        yield "left out" if now.left_out else "ticked again"
    if before.title != now.title:
        yield "title"
    if before.description != now.description:
        yield "text"
    if before.tools != now.tools:
        yield "tools"
    if before.done_when != now.done_when:
        yield "done when"
    if before.actions != now.actions:
        yield "actions"


def _scope_changes(old: Scope, new: Scope) -> Iterator[tuple[str, Sequence[str]]]:
    one, other = ([shlex.join(argv) for argv in scope.run] for scope in (old, new))
    for key, before, now in (("write", [*old.write], [*new.write]), ("run", one, other)):
        if more := [entry for entry in now if entry not in before]:
            yield f"it may also {key} {codes(more)}", [key, *more]
        if less := [entry for entry in before if entry not in now]:
            yield f"it may no longer {key} {codes(less)}", [key, *less]
    limits = ["budget", "cost"]
    for name, was, is_now, words in (
        ("network", _yes(old.network), _yes(new.network), ["network"]),
        ("shell", _yes(old.shell), _yes(new.shell), ["shell"]),
        ("cost in $", _limit(old.budget_usd), _limit(new.budget_usd), limits),
        ("iterations", _limit(old.max_iterations), _limit(new.max_iterations), ["iteration"]),
    ):
        if was != is_now:
            yield f"{name}: {is_now}, was {was}", words


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _limit(most: object) -> str:
    return "no limit of its own" if most is None else f"at most {most}"


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
    from placet.plan.render import actions_toml  # here: only writing needs tomlkit

    actions = actions_toml([(a.tool, a.params) for a in step.actions]) if step.actions else ""
    return [
        step.title,
        *(line for line in step.description.split("\n") if line.strip()),
        *([f"Tools: {', '.join(step.tools)}"] if step.tools else []),
        *(f"Done when: {line}" for line in step.done_when),
        *actions.splitlines(),
    ]
