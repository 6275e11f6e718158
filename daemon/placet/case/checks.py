"""Say which commands of a plan did not succeed when they ran last, and which tests changed.

A plan's checks are the entries of its `run`, and the commands that a "Done when" names. A longer
command, such as a test run of one file, says nothing about a check.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from placet.case.mission_result import ChangedFile, CommandRun
from placet.note.escape import code
from placet.note.paths import show
from placet.plan.plan import Plan, Step
from placet.plan.scope import SHELL_WORDS, Scope
from placet.wording import some_of

NOT_FOUND = 127
"""The exit code of a shell for a program that is not there."""

_QUOTED = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# how much a test runner prints, and whether it stops at the first failure
_OPTION = re.compile(r"-[qvx]+|--quiet|--verbose|--tb=\w+|--colou?r=\w+|--no-header")


def words_of(command: str) -> tuple[str, ...]:
    """Return a command line as an argument list, empty if it is not one command."""
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        return ()
    return () if SHELL_WORDS.intersection(words) else words


def named_in(step: Step, scope: Scope) -> tuple[str, ...]:
    """Return the commands that a step's "Done when" names and the scope allows, as shell text."""
    lines = step.done_when
    quoted = (words_of(text) for line in lines for _, text in _QUOTED.findall(line))
    bare = (entry for entry in scope.run if len(entry) > 1 and _is_in(entry, lines))
    allowed = (argv for argv in quoted if scope.allows_run(argv))
    return tuple(dict.fromkeys(shlex.join(argv) for argv in (*allowed, *bare)))


def _is_in(entry: Sequence[str], lines: Sequence[str]) -> bool:
    """Return whether a line has these words, and no longer command that begins with them."""
    text = re.escape(" ".join(entry))
    return any(re.search(rf"(?<![\w/`-]){text}(?![\w/`-])(?! -)", line) for line in lines)


def check_of(plan: Plan, argv: Sequence[str]) -> str:
    """Return the check that `argv` runs, as shell text; empty for any other command."""
    fitting = [
        one
        for one in _checks(plan)
        if tuple(argv[: len(words_of(one))]) == words_of(one)
        and all(map(_OPTION.fullmatch, argv[len(words_of(one)) :]))
    ]
    return max(fitting, key=len, default="")


def _checks(plan: Plan) -> list[str]:
    named = (one for _, step in plan.kept for one in named_in(step, plan.scope))
    return list(dict.fromkeys((*plan.scope.commands, *named)))


IN_DOUBT = "but not every check passed"


def doubts(plan: Plan, runs: Sequence[CommandRun]) -> tuple[str, ...]:
    """Return a sentence for each check that failed in its last run, or never ran.

    An entry of `run` that only began longer commands was not meant as a check.
    """
    named = {one for _, step in plan.kept for one in named_in(step, plan.scope)}
    started = [run.command for run in runs]
    said = (
        _doubt(one, runs)
        for one in _checks(plan)
        if one in named
        or any(run.check == one for run in runs)
        or not any(f"{text} ".startswith(f"{' '.join(words_of(one))} ") for text in started)
    )
    return tuple(filter(None, said))


def doubts_about(step: Step, plan: Plan, runs: Sequence[CommandRun]) -> tuple[str, ...]:
    """Return the sentences on the checks that the "Done when" of one step names."""
    return tuple(filter(None, (_doubt(one, runs) for one in named_in(step, plan.scope))))


def _doubt(check: str, runs: Sequence[CommandRun]) -> str:
    own = [run for run in runs if run.check == check]
    if not own:
        return f"{code(check)} never ran."
    if (last := own[-1]).exit_code == 0:
        return ""
    how = "failed" if last.exit_code is None else f"failed (exit code {last.exit_code})"
    if last.exit_code == NOT_FOUND:
        how = f"did not start (exit code {NOT_FOUND}, no such program)"
    was = f"The last run of {code(check)} {how}"
    if last.before_change:
        return f"{was}, before the first change."
    early = [run.exit_code for run in own if run.before_change]
    return f"{was}; it failed before the first change, too." if any(early[-1:]) else f"{was}."


_TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__)/|(^|/)(test_|tests?\.|conftest\.)[^/]*$"
    r"|[._-](test|tests|spec)\.\w+$|(Test|Tests|Spec)\.\w+$"
)
MAX_TESTS = 10
"""Maximum of changed tests that a sentence names."""


def changed_tests(files: Sequence[ChangedFile]) -> str:
    """Return which tests a mission changed or deleted, with lines; empty without any."""
    tests = [file for file in files if file.status != "A" and _TEST.search(file.path)]
    named = some_of([f"{code(show(file.path))} {_how(file)}" for file in tests], MAX_TESTS)
    return f"changes tests: {named}" if tests else ""


def _how(file: ChangedFile) -> str:
    return "deleted" if file.status == "D" else lines_of(file)


def lines_of(file: ChangedFile) -> str:
    """Return how many lines of a file were added and deleted."""
    if file.added is None or file.deleted is None:
        return "binary"
    return f"+{file.added} −{file.deleted}"  # noqa: RUF001 - a minus sign
