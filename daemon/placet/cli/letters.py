"""The letters of `placet review`, and what each does to the note that was read."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from placet.cli import decisions
from placet.cli.asked import asks_for_more
from placet.cli.gestures import saved
from placet.cli.opening import open_in_editor, open_in_obsidian
from placet.cli.site import Site
from placet.cli.terminal import echo, harmless, say
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.text.comment_blocks import places_of, step_parts
from placet.core.text.comments import open_comments
from placet.core.text.note import read_note
from placet.core.text.partial import ticks
from placet.core.text.plan_text import outline_of
from placet.core.wording import counted


class Then(Enum):
    """The next thing after a person's letter: another note, this one again, another letter."""

    NEXT = 1
    AGAIN = 2
    ASK = 3
    QUIT = 4


@dataclass(frozen=True, slots=True)
class Read:
    """A note as the person read it."""

    site: Site
    case: Case
    path: str
    raw: bytes


Act = Callable[[Read], Then]


def kind_of(case: Case) -> str:
    """Return the kind of thing with which a case waits, as `ACTS` names it."""
    if case.asking is None:
        return "failed" if case.state is State.FAILED else "plan"
    return "amendment" if asks_for_more(case) else "question"


def options_of(read: Read) -> tuple[str, ...]:
    """Return the options of the question that was read; empty for anything else."""
    return () if read.case.asking is None else read.case.asking.options


def typed(prompt: str) -> str:
    """Return a typed line without blank edges; raises EOFError for the end of the input."""
    while True:
        try:
            text = input(prompt).strip()
            text.encode()
        except UnicodeError:
            say("That is not UTF-8, so it was not taken.")
        else:
            return text


@contextmanager
def unbroken() -> Iterator[None]:
    """Hold Ctrl-C back while notes are changed: a change is made, or it is not."""
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        raise KeyboardInterrupt


def _tell(read: Read, done: decisions.Done, sentence: str) -> None:
    say(saved(read.site) if done.is_pending else sentence)


def _approve(read: Read, remarks: tuple[str, ...] = ()) -> Then:
    with unbroken():
        done = decisions.approve(read.site, read.case, remarks, seen=read.raw)
    _tell(read, done, f"approved: {done.path}")
    return Then.NEXT


def _approve_with_remark(read: Read) -> Then:
    if not (remark := typed("What the agent should mind (Enter: nothing): ")):
        return Then.ASK
    return _approve(read, (remark,))


def _reject(read: Read) -> Then:
    if not (reason := typed("Why (Enter: do not reject): ")):
        return Then.ASK
    with unbroken():
        if asks_for_more(read.case):
            done = decisions.refuse_wider(read.site, read.case, reason, seen=read.raw)
        else:
            done = decisions.reject(read.site, read.case, reason, seen=read.raw)
    _tell(read, done, f"rejected: {done.path}")
    return Then.NEXT


def _revise(read: Read) -> Then:
    there = len(open_comments(read_note(read.raw).body))
    none = f"only the {counted(there, 'comment')} in it" if there else "do not ask"
    comment = typed(f"What to change (Enter: {none}): ")
    if not (comment or there):
        return Then.ASK
    comments = [comment] if comment else []
    with unbroken():
        done = decisions.revise(read.site, read.case, comments, seen=read.raw)
    _tell(read, done, f"asked for changes: {done.path}")
    return Then.NEXT


def _list_steps(read: Read) -> None:
    for step in ticks(read_note(read.raw).body):
        echo(f"  [{'x' if step.done else ' '}] {step.number}. {harmless(step.title)}")


def _comment(read: Read) -> Then:
    _list_steps(read)
    number = typed("At which step (Enter: the whole plan): ")
    if not (text := typed("Comment (Enter: none): ")):
        return Then.ASK
    if number:
        steps = step_parts(outline_of(read_note(read.raw).body))
        if not number.isdecimal() or int(number) not in places_of(steps):
            raise UserError(f"{number!r} is no step.", "Give its number.")
    said = f"{int(number)}. {text}" if number else text
    with unbroken():
        done = decisions.comment(read.site, read.case, said, seen=read.raw)
    what = "written into the plan; it goes to the agent when you approve (a) or ask for changes (v)"
    _tell(read, done, what)
    return Then.AGAIN


def _tick(read: Read) -> Then:
    _list_steps(read)
    numbers = typed("Tick or untick which steps (Enter: none): ").replace(",", " ").split()

    if not numbers:
        return Then.ASK
    with unbroken():
        done = decisions.tick(read.site, read.case, numbers, seen=read.raw)
    if done.is_pending:
        say(saved(read.site))
    return Then.AGAIN


def _widen(read: Read) -> Then:
    with unbroken():
        done = decisions.widen(read.site, read.case, seen=read.raw)
    _tell(read, done, f"approved: {done.path}")
    return Then.NEXT


def answer_with(read: Read, said: str) -> Then:
    """Answer the question that was read: by an option's number or text, or in these words."""
    options = options_of(read)
    number = int(said) if said.isdecimal() and 1 <= int(said) <= len(options) else 0
    if number and said in options and options[number - 1] != said:
        # a number that is an option itself, and the place of another one
        if typed(f"Is it option {options.index(said) + 1}, “{said}” [y,n]? ").casefold() != "y":
            return Then.ASK
    elif number:
        said = options[number - 1]
    elif said not in options:
        echo(f"This answers it in your words: {harmless(said)}")
        if typed("Answer so [y,n]? ").casefold() != "y":
            return Then.ASK
    with unbroken():
        done = decisions.answer(read.site, read.case, said, seen=read.raw)
    _tell(read, done, f"answered: {said}")
    return Then.NEXT


def _edit(read: Read) -> Then:
    open_in_editor(read.site, read.path)
    return Then.AGAIN


def _open(read: Read) -> Then:
    echo(open_in_obsidian(read.site, read.path))
    return Then.ASK


_ALWAYS: Mapping[str, tuple[str, Act]] = {
    "e": ("open it in $EDITOR", _edit),
    "o": ("open it in Obsidian", _open),
    "p": ("show all of it again", lambda _: Then.AGAIN),
    "s": ("skip it; it goes on waiting", lambda _: Then.NEXT),
    "q": ("quit", lambda _: Then.QUIT),
}
_REJECT = ("reject it, with a reason", _reject)
_BEFORE: Mapping[str, tuple[str, Act]] = {
    "a": ("approve it, with the comments in it as guidance", _approve),
    "m": ("approve it with a remark: guidance that widens nothing", _approve_with_remark),
    "r": _REJECT,
}
_AFTER: Mapping[str, tuple[str, Act]] = {
    "c": ("write a comment at a step", _comment),
    "t": ("tick or untick steps: what is unticked is not done", _tick),
    **_ALWAYS,
}
ACTS: Mapping[str, Mapping[str, tuple[str, Act]]] = {
    "plan": {
        **_BEFORE,
        "v": ("ask for changes; your comments are answered", _revise),
        **_AFTER,
    },
    "failed": {**_BEFORE, **_AFTER},
    "amendment": {"a": ("approve the wider scope", _widen), "r": _REJECT, **_ALWAYS},
    "question": _ALWAYS,
}
