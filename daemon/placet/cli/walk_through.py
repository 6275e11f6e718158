"""Show each thing that waits for you, and ask for a decision: `placet review`.

Your decision applies to the text you read. If a note changed meanwhile, it is shown again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import click

from placet.case.approval import refusal
from placet.case.case import Case
from placet.case.explain import state_sentence
from placet.case.intents import What
from placet.case.life_cycle import State
from placet.case.notes import body_of
from placet.case.question_note import option_meant
from placet.cli.decide import proposal_text
from placet.cli.options import site_option
from placet.cli.screen import rendered, wider_scope
from placet.cli.terminal import agreed, colour, echo, say, say_error
from placet.client.cases import CaseLine, plans
from placet.client.decisions import Done, decide, proposal, saved
from placet.client.notes import asking_text, asks_for_more, note_of_plan
from placet.client.site import Site
from placet.client.texts import harmless, shown_time
from placet.errors import UserError
from placet.note.box import unmarked
from placet.note.frontmatter import read_note
from placet.note.paths import show as visible
from placet.wording import counted

LETTERS: Mapping[str, str] = {
    "a": "approve it",
    "r": "reject it, with a reason",
    "c": "comment on it: the agent answers with a new revision",
    "s": "skip it; it keeps waiting",
    "q": "quit",
}
_ASKS = {"r": "Why (Enter: do not reject): ", "c": "What to change (Enter: nothing): "}
_MEANS: Mapping[str, What] = {"a": "approve", "r": "reject", "c": "revise"}
_SAYS = {"a": "approved", "r": "rejected", "c": "asked for changes"}


class Read(NamedTuple):
    """A note as you read it: its case, its text, and that text for the terminal."""

    case: Case
    raw: bytes
    shown: str


@click.command("review")
@site_option
def review_command(site: Site) -> None:
    """Decide on one thing after the other that waits for you: plans, wider scopes, questions.

    It shows each, asks for a letter, and does what you would by hand. `?` explains the letters.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "`placet review` needs a terminal.",
            "Without one: placet plans, then placet approve, reject, revise or answer.",
            exit_code=2,
        )
    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited as they are typed
    try:
        _review(site)
    except EOFError:
        echo("")
    except UnicodeDecodeError as error:
        raise UserError("That is not UTF-8.", "Type it in UTF-8.", exit_code=2) from error
    except (KeyboardInterrupt, click.Abort):
        echo("")
        say("Stopped. What you decided stands.")
        sys.exit(130)


def _review(site: Site) -> None:
    """Show what waits, new things too, until everything was shown."""
    passed: set[tuple[Any, ...]] = set()
    while waiting := [line for line in _decisions(site) if _name(line) not in passed]:
        passed.add(_name(waiting[0]))
        if not _attend(site, waiting[0].trace_id, more=len(waiting) - 1):
            break
    left = len(_decisions(site))
    say(f"{counted(left, 'decision')} still wait for you" if left > 1 else _LEFT[left])


def _decisions(site: Site) -> list[CaseLine]:
    """Return what waits with a note to decide on."""
    return [one for one in plans(site) if one.is_for_review]


_LEFT = (
    "no decision waits for you. To see what else does: placet plans",
    "one decision still waits for you",
)


def _name(line: CaseLine) -> tuple[Any, ...]:
    asked = ("", 0) if line.asking is None else (line.asking.kind, line.asking.number)
    return line.trace_id, line.revision, line.plan, *asked


def _attend(site: Site, trace_id: str, *, more: int) -> bool:
    """Show a case until you decide or skip it; return whether to continue."""
    after = f" ({more} more)" if more else ""
    problem: UserError | None = None
    while True:
        try:
            read = _read(site, trace_id)
        except UserError as error:  # the note was moved just now
            say_error(error)
            return True
        if read is None:
            return True
        echo(f"\n{colour(f'── {read.case.request_id}', 'white', bold=True)}{after}\n{read.shown}\n")
        if problem is not None:
            say_error(problem)
        try:
            return _decided(site, read)
        except UserError as error:  # said below the note as it is now
            problem = error


def _read(site: Site, trace_id: str) -> Read | None:
    """Return what a case waits with, as it is now; None, and say so, if it does not wait."""
    case = site.case(trace_id)
    if case.state not in (State.REVIEW, State.FAILED, State.ASKING):
        say(f"{state_sentence(case)} by now.")
    elif asks_for_more(case):
        shown, raw = wider_scope(site, case)
        return Read(case, raw, f"{_asking(case, 'a wider scope')}\n{shown}")
    elif case.asking is not None:
        raw = asking_text(site, case)
        return Read(case, raw, _question(case, raw))
    else:
        raw = note_of_plan(site, case)
        return Read(case, raw, _plan(site, case, raw))
    return None


def _plan(site: Site, case: Case, raw: bytes) -> str:
    """Return a plan for the terminal: its text, then what it may do, right above the question."""
    try:
        allows = proposal_text(proposal(site, case, raw))
    except UserError as error:
        allows = colour(visible(error.what), "yellow")
    head = f"plan, revision {case.plan.revision}, since {shown_time(case.since)}"
    lines = [f"{head}: {visible(case.plan.path)}", "", rendered(body_of(raw)), ""]
    if case.state is State.FAILED and case.outcome.report_path:
        lines.append(f"its last mission failed: {visible(case.outcome.report_path)}")
    return "\n".join([*lines, allows])


def _question(case: Case, raw: bytes) -> str:
    """Return a question for the terminal, its options with numbers."""
    assert case.asking is not None, "only what is asked is shown"
    asked = unmarked(read_note(raw).body).partition("\n## ")[0]
    options = [f"{number}. {visible(text)}" for number, text in enumerate(case.asking.options, 1)]
    return "\n".join([_asking(case, "a question"), rendered(asked), "", *options])


def _asking(case: Case, what: str) -> str:
    assert case.asking is not None, "only what is asked is shown"
    return f"{what}, since {shown_time(case.asking.asked_at)}: {visible(case.asking.path)}\n"


def _letters(case: Case) -> str:
    """Return the letters that a case takes."""
    letters = "ar" if asks_for_more(case) else "arc" if case.asking is None else ""
    return "".join(one for one in letters if refusal(case, None, _MEANS[one]) is None) + "sq"


def _decided(site: Site, read: Read) -> bool:
    """Ask until you decide or skip; return whether to continue with the next case."""
    letters = [*_letters(read.case)]
    is_question = "a" not in letters
    prompt = ",".join(["answer"] * is_question + [*letters, "?"])
    while True:
        answer = input(f"{read.case.request_id} [{prompt}]? ").strip()
        if answer in ("s", "q"):
            return answer == "s"
        done = None
        if answer in letters:
            done = _act(site, read, answer)
        elif is_question and answer not in ("", "?"):
            done = _answer(site, read, answer)
        else:
            echo("\n".join(f"{letter}  {LETTERS[letter]}" for letter in letters))
            if is_question:
                echo("A number, or words of your own, answer it.")
        if done is not None:
            what = _SAYS[answer] if answer in letters else "answered"
            say(saved(site, what) if done.is_pending else f"{what}: {done.path}")
            return True


def _act(site: Site, read: Read, letter: str) -> Done | None:
    """Approve, reject or ask for changes; None where no words were given for it."""
    what, words = _MEANS[letter], "" if letter == "a" else input(_ASKS[letter]).strip()
    if not words and letter != "a":
        return None
    return decide(site, read.case, what, [words] * bool(words), seen=read.raw)


def _answer(site: Site, read: Read, words: str) -> Done | None:
    """Answer a question by an option's number or text, or in your words; None if you say no."""
    assert read.case.asking is not None, "only what is asked is answered"
    answer, _ = option_meant(words, read.case.asking.options)
    if not agreed(f"Send the answer “{harmless(answer)}”?"):
        return None
    return decide(site, read.case, "answer", [words], seen=read.raw)
