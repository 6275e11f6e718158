"""Dangerous uses of commands: how an allowed beginning can be turned into something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placet.core.text.programs import (
    GIT_COMMANDS,
    GIT_ELSEWHERE,
    GIT_LOSES,
    GIT_OPTIONS,
    GIT_REF_OPTIONS,
    GIT_SHARED,
    GIT_STARTS,
    GIT_TAKES_NEXT,
    INSTALLS,
    INTERPRETERS,
    OPTIONS,
    PATTERNS,
    PROGRAMS,
    PUBLISHES,
    REMOTE,
    REMOTE_PROGRAMS,
    RUNNING_MODULES,
    RUNS_CODE,
    STARTERS,
    STARTS,
    WRITES,
    Interpreter,
    OptionKind,
)


@dataclass(frozen=True, slots=True)
class Use:
    """A dangerous use of a command; `word` is the index of the last word that shows it."""

    word: int
    why: str
    network_only: bool = False  # harmless without network, which is the sandbox's to withhold


_MAX_STARTER_WORDS = 256

# Characters of the shortest beginning of a long option that is looked at. `--` and one letter are
# mostly not clear.
_CLEAR = 4


def program_of(word: str) -> str:
    """Return the program that a first word means, in lower case.

    Its folder, version and `.exe` are left out.
    """
    name = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name)


def uses(argv: Sequence[str]) -> Iterator[Use]:
    """Yield the dangerous uses that `argv` makes of its program, and of those that it starts."""
    if not argv:
        return
    yield from uses_at(argv, 0)
    if program_of(argv[0]) not in STARTERS:
        return
    if len(argv) > _MAX_STARTER_WORDS:
        why = "is too long to be looked through for the command that it starts"
        yield Use(len(argv) - 1, why)
        return
    for start in range(1, len(argv)):
        # tests/git is a folder, not git
        if "/" not in argv[start] or argv[start].startswith("/"):
            yield from uses_at(argv, start)


def uses_at(argv: Sequence[str], start: int) -> Iterator[Use]:
    """Yield the dangerous uses of the one program whose name is `argv[start]`."""
    name = program_of(argv[start])
    if name in PROGRAMS:
        yield Use(start, PROGRAMS[name])
    if name in REMOTE_PROGRAMS:
        yield Use(start, REMOTE, network_only=True)
    if name in INTERPRETERS:
        yield from _interpreted(argv, start, INTERPRETERS[name])
    if name == "git":
        yield from _git(argv, start)
    if name in ("rm", "rmdir", "unlink"):
        yield from _rm(argv, start)
    for at in range(start + 1, len(argv)):
        word = argv[at]
        bundle = f"-{word.removeprefix('-')}" if name == "tar" and at == start + 1 else word
        begins = (why for pattern, why in PATTERNS.get(name, ()) if pattern.match(bundle))
        if why := _abbreviated(word, OPTIONS.get(name, {})) or next(begins, None):
            yield Use(at, why)
        if word in PUBLISHES.get(name, ()):
            yield Use(at, "publishes a package")
        if word in INSTALLS.get(name, ()):
            yield Use(at, "fetches packages, whose install scripts run", network_only=True)


def _abbreviated(word: str, options: Mapping[str, str]) -> str | None:
    """Return what a word does as one of these options.

    GNU's programs and git take any beginning of a long one that is clear.
    """
    name = word.split("=", 1)[0]
    if name in options or not name.startswith("--") or len(name) < _CLEAR:
        return options.get(name)
    return next((why for option, why in options.items() if option.startswith(name)), None)


def _interpreted(argv: Sequence[str], start: int, how: Interpreter) -> Iterator[Use]:
    """Yield the options by which an interpreter takes code; follow `python -m` into the module."""
    at = start + 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
        kind, rest = how.option(argv[at])
        if kind is OptionKind.CODE:
            yield Use(at, RUNS_CODE)
            return
        if kind is OptionKind.MODULE:
            yield from _module(argv, at, rest)
            return
        at += 2 if kind is OptionKind.TAKES_NEXT else 1
    if at < len(argv) and program_of(argv[at]) in OPTIONS:  # python setup.py upload
        yield from uses_at(argv, at)


def _module(argv: Sequence[str], at: int, rest: str) -> Iterator[Use]:
    """Yield the dangerous uses of `python -m` at `at`; `rest` is what stands right behind the m."""
    if rest:  # python -mtwine
        argv = [*argv[:at], rest, *argv[at + 1 :]]
    else:
        at += 1
    if at < len(argv):
        if program_of(argv[at]).split(".")[0] in RUNNING_MODULES:
            yield Use(at, RUNS_CODE)
        yield from uses_at(argv, at)


def _git(argv: Sequence[str], start: int) -> Iterator[Use]:
    at = start + 1
    while at < len(argv) and argv[at].startswith("-"):
        option = argv[at].split("=", 1)[0]
        if option in GIT_OPTIONS:
            yield Use(at, GIT_ELSEWHERE)
        at += 2 if argv[at] in GIT_TAKES_NEXT else 1
    if at >= len(argv):
        return
    command = argv[at]
    if why := GIT_COMMANDS.get(command):
        yield Use(at, why)
    for place in range(at + 1, len(argv)):
        word = argv[place]
        if word == "--":
            return
        if command == "push" and GIT_LOSES.match(word):
            yield Use(place, "overwrites or deletes what is on the other machine")
        elif command in ("branch", "tag") and GIT_REF_OPTIONS.match(word):
            yield Use(place, GIT_SHARED)
        elif (
            _abbreviated(word, GIT_STARTS)
            or (command == "bisect" and word == "run")
            or (command in ("rebase", "difftool") and word.startswith("-x"))
            or (command == "grep" and re.match(r"-[a-zA-Z]*O", word))
        ):
            yield Use(place, STARTS)
        elif _abbreviated(word, {"--output": WRITES}):
            yield Use(place, WRITES)


def _rm(argv: Sequence[str], start: int) -> Iterator[Use]:
    recursive = -1
    for at in range(start + 1, len(argv)):
        word = argv[at]
        if word == "--":
            break
        # GNU rm takes any beginning of a long option: --r is --recursive.
        if re.match(r"-[a-zA-Z]*[rR]", word) or (len(word) > 2 and "--recursive".startswith(word)):
            recursive = at
            yield Use(at, "deletes whole folders whatever `write` says")
            break
    for at in range(start + 1, len(argv)):
        word = argv[at]
        segments = [s for s in word.split("/") if s not in ("", ".")]
        if word.startswith("--no-pres"):
            yield Use(at, "deletes the root folder")
        elif word.startswith("-"):
            continue
        elif (
            word.startswith(("/", "~")) or ".." in segments or segments[:1] in ([], [".git"], ["*"])
        ):
            yield Use(max(at, recursive), "deletes outside the repository's files, or all of them")
