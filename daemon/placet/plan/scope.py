"""Define and check a plan's permission: which files it may write, which commands it may run.

Unknown means refuse. A glob or a command that is not plainly allowed is not allowed.

A leading `!` of a glob takes away, and the last pattern that matches decides (as in .gitignore); it
takes away in any case and Unicode form, which are one file on many systems. One rule serves
creating, changing, renaming (both names are asked for) and deleting.

Commands are argument lists; there is no shell. An entry of `run` allows every command that begins
with its words. What follows the entry was not seen by the person who approved it;
`Scope.forbidden_run` therefore refuses the known ways of turning an allowed beginning into
something else (`python` into `python -c …`, `git` into `git push`), unless the entry itself spells
them out, in which case `dangers` showed them to the reviewer. It is a net under the reviewer's
judgement, not the wall: the wall is the sandbox.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from types import UnionType
from typing import Any

from placet.plan.dangerous_commands import uses
from placet.plan.globs import glob_pattern, glob_problem, matches_folded
from placet.plan.hosts import Host, host_from
from placet.wording import at_most

TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


MAX_BUDGET_USD = Decimal(1_000_000)
_PATH_MAX, _NAME_MAX = 4_096, 255  # Linux, limits.h
# The smallest exponent of a budget: a millionth of a dollar, below the price of a token.
_CENTS = -6


class ScopeProblems(ValueError):  # noqa: N818 - it carries problems, plural
    """A scope that is not valid: all `problems` as (key, what is wrong and how to write it)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{key}: {message}" for key, message in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Scope:
    """The permissions of an approved plan.

    Raises ScopeProblems, with every problem, for one that is not valid.
    """

    write: tuple[str, ...] = ()
    """Globs in the repository."""
    run: tuple[tuple[str, ...], ...] = ()
    """Argument lists, each the beginning of the commands that it allows."""
    network: bool = False
    """Whether commands reach everything."""
    shell: bool = False
    budget_usd: Decimal | None = None
    """None if the plan leaves it to the configuration."""
    max_iterations: int | None = None
    """None if the plan leaves it to the configuration."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that the agent may use; None in an older plan, whose steps name them."""
    hosts: tuple[Host, ...] = ()
    """What commands reach without `network`."""

    def __post_init__(self) -> None:
        problems = [
            ("tools", f"{name[:80]!r} is not the name of a tool; write `read_file`")
            for name in self.tools or ()
            if not TOOL_NAME.fullmatch(name)
        ]
        problems += [("write", why) for pattern in self.write if (why := glob_problem(pattern))]
        problems += [("run", why) for argv in self.run if (why := _argv_problem(argv))]
        if self.budget_usd is not None and (why := budget_problem(self.budget_usd)):
            problems.append(("budget_usd", why))
        if self.max_iterations is not None and not 1 <= self.max_iterations <= 1_000_000:
            problems.append(
                ("max_iterations", "must be a whole number from 1 to 1000000, such as 10")
            )
        if problems:
            raise ScopeProblems(problems)

    def allows_write(self, path: str) -> bool:
        """Return whether `path`, relative to the repository's root, may be written."""
        segments = path.split("/")
        if any(s in ("", ".", "..") for s in segments) or any(
            c < " " or c in "\\\x7f" for c in path
        ):
            return False
        if len(path) > _PATH_MAX or any(len(s) > _NAME_MAX for s in segments):
            return False  # no such file can be; it would only make the matching slow
        allowed = False
        for pattern in self.write:
            taken = pattern.startswith("!")
            if allowed is taken and (
                glob_pattern(pattern.removeprefix("!")).fullmatch(path)
                or (taken and matches_folded(pattern[1:], path))
            ):
                allowed = not taken
        return allowed

    @property
    def commands(self) -> tuple[str, ...]:
        """`run` as a shell's command lines."""
        return tuple(shlex.join(argv) for argv in self.run)

    def by_name(self) -> tuple[str, ...]:
        """Return the files that `write` allows by their whole names, without a wildcard."""
        return tuple(
            dict.fromkeys(
                pattern
                for pattern in self.write
                if not re.search(r"[*?\[]|/$|^!", pattern) and self.allows_write(pattern)
            )
        )

    def allows_run(self, argv: Sequence[str]) -> bool:
        """Return whether an entry of `run` is the beginning of `argv`.

        Ask `forbidden_run` as well.
        """
        return self._seen(argv) > 0

    def forbidden_run(self, argv: Sequence[str]) -> str | None:
        """Return why `argv` may not run although an entry begins it, or None.

        A dangerous use is forbidden unless all the words that make it dangerous stand in one entry
        that begins `argv`: those words the reviewer read. With `shell = true` nothing is forbidden
        here: the plan may run any text in the sandbox anyway, and the reviewer was told so.
        """
        if self.shell:
            return None
        seen = self._seen(argv)
        for use in uses(argv):
            if use.word >= seen and not use.network_only:
                words = _shown(argv[: use.word + 1])
                return (
                    f"`{words}` {use.why}; no entry of the plan's `run` spells that out. "
                    "Do it another way, or ask for it in the plan"
                )
        return None

    def _seen(self, argv: Sequence[str]) -> int:
        """Return the length of the longest entry that begins `argv`, in words; 0 without one."""
        return max((len(e) for e in self.run if tuple(argv[: len(e)]) == e), default=0)

    def refusal_write(self, path: str) -> dict[str, Any]:
        """Return the structured error for a refused path; it lists the allowed ones."""
        if self.write:
            why = f"{path[:200]!r} is outside what the approved plan may write"
        else:
            why = f"{path[:200]!r} cannot be written: the approved plan writes no files"
        return {"error": why, "error_type": "outside_scope", "allowed": list(self.write)}

    def refusal_run(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the structured error for a refused command; it lists the allowed ones."""
        if self.allows_run(argv) and (forbidden := self.forbidden_run(argv)):
            why = forbidden
        elif len(argv) == 1 and len(words := argv[0].split()) > 1 and self.allows_run(words):
            why = f"`{_shown(argv)}` is not a program: give `{words[0]}`, and the rest as `args`"
        elif self.run:
            why = f"`{_shown(argv)}` begins with no command that the approved plan may run"
        else:
            why = f"`{_shown(argv)}` cannot run: the approved plan runs no commands"
        return {
            "error": why,
            "error_type": "outside_scope",
            "allowed": [shlex.join(e) for e in self.run],
        }


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_budget(value: object) -> bool:
    # Python prints no integer of more than 4,300 digits
    printable = not isinstance(value, int) or value.bit_length() <= 64
    return value is None or (_is_number(value, int | float | Decimal) and printable)


# What a key's value has to be, and how to write it.
_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "tools": (_is_texts, 'must be a list of texts: tools = ["read_file", "edit_file"]'),
    "write": (_is_texts, 'must be a list of texts: write = ["src/**", "tests/test_login.py"]'),
    "run": (_is_texts, 'must be a list of texts: run = ["python -m pytest -q"]'),
    "network": (
        lambda value: isinstance(value, bool) or _is_texts(value),
        'must be true or false, without quotes, or a list of hosts: network = ["packages.example"]',
    ),
    "shell": (
        lambda value: isinstance(value, bool),
        "must be true or false, without quotes: shell = false",
    ),
    "budget_usd": (
        _is_budget,
        "must be a number of dollars, without quotes: budget_usd = 0.50",
    ),
    "max_iterations": (
        lambda value: value is None or _is_number(value, int),
        "must be a whole number, without quotes: max_iterations = 10",
    ),
}


def scope_from(table: Mapping[str, object]) -> Scope:
    """Return the Scope of a parsed `toml` or JSON object.

    `write` and `run` are lists of strings (commands are split as a POSIX shell splits words);
    `network` is a bool or a list of hosts, of which an empty one means none.
    Raises ScopeProblems with all that is wrong: unknown keys and values of another type, too.
    """
    problems = [
        (str(key), f"is not a key of the scope; the keys are {', '.join(_KEYS)}")
        for key in table
        if key not in _KEYS
    ]
    problems += [
        (key, _KEYS[key][1]) for key in table if key in _KEYS and not _KEYS[key][0](table[key])
    ]
    wrong = {key for key, _ in problems}
    given: dict[str, Any] = {key: value for key, value in table.items() if key not in wrong}
    given["write"] = tuple(given.get("write", ()))
    if "tools" in given:
        given["tools"] = tuple(dict.fromkeys(given["tools"]))
    run = [_argv(command) for command in given.get("run", ())]
    problems += [("run", argv) for argv in run if isinstance(argv, str)]
    given["run"] = tuple(argv for argv in run if not isinstance(argv, str))
    if not isinstance(given.get("network", False), bool):
        hosts = [_host(text) for text in given["network"]]
        problems += [("network", host) for host in hosts if isinstance(host, str)]
        named = [host for host in hosts if isinstance(host, Host)]
        given |= {"network": False, "hosts": tuple(dict.fromkeys(named))}
    if given.get("budget_usd") is not None:
        given["budget_usd"] = Decimal(str(given["budget_usd"]))
    try:
        scope = Scope(**given)
    except ScopeProblems as error:
        raise ScopeProblems([*problems, *error.problems]) from None
    if problems:
        raise ScopeProblems(problems)
    return scope


def widened(scope: Scope, more: Scope) -> Scope:
    """Return the scope with the files, commands and hosts of another one as well."""
    network = scope.network or more.network
    return replace(
        scope,
        write=tuple(dict.fromkeys([*scope.write, *more.write])),
        run=tuple(dict.fromkeys([*scope.run, *more.run])),
        network=network,
        hosts=() if network else tuple(dict.fromkeys([*scope.hosts, *more.hosts])),
    )


def _host(text: str) -> Host | str:
    try:
        return host_from(text)
    except ValueError as problem:
        return str(problem)


def _argv(command: str) -> tuple[str, ...] | str:
    if "\n" in command or "\r" in command:
        return f"{command[:200]!r} has a line break; write one entry for each command"
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return f"{command[:200]!r} has a quotation mark that is not closed"


# Characters of one entry of `run`; a longer one is nothing that a person reviews.
MAX_COMMAND = 4_096
SHELL_WORDS = frozenset({"&&", "||", "|", ">", ">>", "<", "<<", "2>&1", "2>", "&>"})
"""Words of a shell that connect commands, or lead their input and output elsewhere."""


def _argv_problem(argv: tuple[str, ...]) -> str | None:
    shown = repr(_shown(argv))
    if not argv or not argv[0]:
        return 'an entry is empty; write a command, such as "python -m pytest -q"'
    if sum(map(len, argv)) + len(argv) > MAX_COMMAND:
        return f"{shown} is longer than {MAX_COMMAND:,} characters"
    if any(re.search(r"[\0-\x1f\x7f]", word) for word in argv):
        return f"{shown} has a control character or a line break; write the command on one line"
    if any("~~" in word for word in argv):
        return f"{shown} has `~~`, which a scope may not have"
    if any("<%" in word for word in argv):
        return f"{shown} has `<` before `%`, which a scope may not have"
    if words := SHELL_WORDS.intersection(argv):
        found = repr(min(words))
        return f"{shown} has {found}, but there is no shell; write one entry for each command"
    if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", argv[0]):
        hint = f'write "env {argv[0][:40]} …"'
        return f"{shown} begins with a variable, but there is no shell; {hint}"
    return None


def budget_problem(budget: Decimal) -> str | None:
    """Return why an amount cannot be a budget in dollars, or None.

    It has to be a number, not too large, and not finer than any price.
    """
    exponent = budget.as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= budget <= MAX_BUDGET_USD or exponent < _CENTS:
        return "must be a number of dollars from 0 to 1000000, such as 0.50"
    return None


def _shown(argv: Sequence[str]) -> str:
    return at_most(shlex.join(argv), 300)
