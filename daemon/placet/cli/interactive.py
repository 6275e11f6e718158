"""`placet review`: one thing after the other that waits for a person, with a letter and Enter.

What is shown is what is decided on: a note that was changed meanwhile is shown again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import click

from placet.cli import decisions
from placet.cli.asked import asking_text
from placet.cli.letters import ACTS, Act, Read, Then, answer_with, kind_of, options_of, typed
from placet.cli.look import plans
from placet.cli.notes import text_of
from placet.cli.proposal import plan_text
from placet.cli.shown import NoteView, amendment_view, plan_view, question_view
from placet.cli.site import Site, site_option
from placet.cli.terminal import colour, echo, harmless, hint_of, paged, say
from placet.core.errors import UserError
from placet.core.life.case import Case, State
from placet.core.life.why import stands
from placet.core.wording import counted
from placet.files.vault import Vault


@click.command("review")
@site_option
def review_command(site: Site) -> None:
    """Decide on one thing after the other that waits for you: plans, wider scopes, questions.

    It shows each, asks for a letter, and does what you would by hand. `?` explains the letters.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "placet review asks on a terminal, and this is none.",
            "Without one: placet plans, then placet approve, reject, revise or answer.",
            exit_code=2,
        )
    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited as they are typed
    try:
        _every(site)
    except EOFError:
        echo("")
    except KeyboardInterrupt:
        echo("")
        say("stopped; what you decided before stands, and nothing else was changed")
        sys.exit(130)


def _every(site: Site) -> None:
    """Show one thing after the other until none is left that was not shown; new ones too."""
    passed: set[tuple[Any, ...]] = set()
    while waiting := [line for line in plans(site) if _name(line) not in passed]:
        passed.add(_name(waiting[0]))
        if not _attend(site, waiting[0]["trace_id"], more=len(waiting) - 1):
            break
    left = len(plans(site))
    say(f"{counted(left, 'thing')} still wait for you" if left > 1 else _LEFT[left])


_PAGED = "The space bar reads on; q ends the reading, and the question comes."
_LEFT = ("nothing waits for you", "one thing still waits for you")


def _name(line: Mapping[str, Any]) -> tuple[Any, ...]:
    asking = line["asking"] or {"kind": "", "number": 0}
    return line["trace_id"], line["revision"], line["plan"], asking["kind"], asking["number"]


def _attend(site: Site, trace_id: str, *, more: int) -> bool:
    """Show one case until it is decided on or passed over; return whether to go on."""
    while True:
        try:
            read = _look(site, trace_id)
        except UserError as error:  # the note was moved away just now
            _tell(error)
            return True
        if read is None:
            return True
        after = f" ({counted(more, 'thing')} after this)" if more else ""
        head = f"{colour(f'── {read.case.request_id}', 'white', bold=True)}{after}"
        view = _VIEWS[kind_of(read.case)](site, read.case, read.raw)
        if paged(f"{head}\n{_PAGED}\n\n{view.whole}"):
            echo(f"\n{head}\n{view.brief}")
        else:
            echo(f"\n{head}\n{view.whole}")
        then = _asked(read)
        if then is not Then.AGAIN:
            return then is Then.NEXT


def _look(site: Site, trace_id: str) -> Read | None:
    """Return what a case waits with, as it is now; None, and say so, where it does not wait."""
    case = site.case(trace_id)
    if case.state not in (State.REVIEW, State.FAILED, State.ASKING):
        say(f"{stands(case)} by now.")
    elif case.asking is not None:
        return Read(site, case, case.asking.path, asking_text(site, case))
    else:
        return Read(site, case, case.plan.path, plan_text(site, case))
    return None


def _asked(read: Read) -> Then:
    """Ask for a letter until it leads on."""
    acts = ACTS[kind_of(read.case)]
    numbers = [str(number) for number in range(1, len(options_of(read)) + 1)]
    letters = ",".join([*numbers, *acts, "?"])
    while True:
        said = typed(f"{read.case.request_id} [{letters}]? ")
        try:
            if said in acts:
                then = acts[said][1](read)
            elif kind_of(read.case) == "question" and said not in ("", "?"):
                then = answer_with(read, said)
            else:
                echo(_help(read, acts))
                continue
        except decisions.NotAsRead as error:
            say(f"{error.what} Here it is again; nothing was decided.")
            return Then.AGAIN
        except UserError as error:
            _tell(error)
            with Vault(read.site.vault) as folder:
                then = Then.ASK if text_of(folder, read.path) == read.raw else Then.AGAIN
        if then is not Then.ASK:
            return then


def _help(read: Read, acts: Mapping[str, tuple[str, Act]]) -> str:
    lines = [f"{letter}  {what}" for letter, (what, _) in acts.items()]
    if kind_of(read.case) == "question":
        lines.insert(0, "a number, or words of your own, answer it")
    return "\n".join(lines)


def _tell(error: UserError) -> None:
    say(error.what)
    if hint := hint_of(error):
        echo(f"  {harmless(hint)}")


_VIEWS: Mapping[str, Callable[[Site, Case, bytes], NoteView]] = {
    "plan": plan_view,
    "failed": plan_view,
    "amendment": amendment_view,
    "question": question_view,
}
