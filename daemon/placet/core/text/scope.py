"""The permission that a plan asks for: which files may be written, which commands may run.

Unknown means refuse. A glob or a command that is not plainly allowed is not allowed.

Globs are anchored at the root of the repository and case-sensitive. `*` and `?` stay within one
path segment and match dotfiles too (as in .gitignore); `**` stands alone between slashes for any
number of segments, at the end for at least one; `[a-z]`, `[!a-z]` are classes; a trailing slash
means everything below; a leading `!` takes away, and the last pattern that matches decides (as in
.gitignore); it takes away in any case and Unicode form, which are one file on many systems. There
is no brace expansion. A segment also matches itself literally, so that `app/[slug]/page.tsx` allows
the file of that name. One rule serves creating, changing, renaming (both names are asked for) and
deleting.

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
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from placet.core.text.markdown import code

_T = TypeVar("_T")

MAX_PATTERN = 1_024
"""Characters of one glob; a longer one is nothing that a person reviews."""
MAX_BUDGET_USD = Decimal(1_000_000)
_PATH_MAX, _NAME_MAX = 4_096, 255  # Linux, limits.h
_CENTS = -6
"""The smallest exponent of a budget: a millionth of a dollar, below the price of a token."""


class ScopeProblems(ValueError):  # noqa: N818 - it carries problems, plural
    """A scope that cannot be: `problems` are all of them, as (key, what is wrong and how to write it)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{key}: {message}" for key, message in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Scope:
    """What an approved plan may do.

    Raises ScopeProblems, with every problem, for one that is not valid.

    `write`: globs in the repository. `run`: argument lists, each the beginning of the commands that
    it allows. `budget_usd` and `max_iterations`: None where the plan leaves them to the
    configuration.
    """

    write: tuple[str, ...] = ()
    run: tuple[tuple[str, ...], ...] = ()
    network: bool = False
    shell: bool = False
    budget_usd: Decimal | None = None
    max_iterations: int | None = None

    def __post_init__(self) -> None:
        problems = [("write", why) for pattern in self.write if (why := _glob_problem(pattern))]
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
        """Tell whether `path` (relative to the repository's root, `/` between segments) may be written."""
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
                _matches(_compiled(pattern.removeprefix("!")), segments)
                or (taken and _matches_folded(pattern[1:], path))
            ):
                allowed = not taken
        return allowed

    def by_name(self) -> tuple[str, ...]:
        """Return the files that `write` allows by their whole names, without a wildcard: who approved them meant just these."""
        return tuple(
            dict.fromkeys(
                pattern
                for pattern in self.write
                if not re.search(r"[*?\[]|/$|^!", pattern) and self.allows_write(pattern)
            )
        )

    def allows_run(self, argv: Sequence[str]) -> bool:
        """Tell whether an entry of `run` is the beginning of `argv`.

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
        for use in _uses(argv):
            if use.word >= seen and not use.network_only:
                words = _shown(argv[: use.word + 1])
                return (
                    f"`{words}` {use.why}; no entry of the plan's `run` spells that out. "
                    "Do it another way, or ask for it in the plan"
                )
        return None

    def _seen(self, argv: Sequence[str]) -> int:
        """How many leading words of `argv` stand in the longest entry that begins it.

        0: none does.
        """
        return max((len(e) for e in self.run if tuple(argv[: len(e)]) == e), default=0)

    def refusal_write(self, path: str) -> dict[str, Any]:
        """Return the structured error for a path that `allows_write` refuses: it lists what is allowed."""
        if self.write:
            why = f"{path[:200]!r} is outside what the approved plan may write"
        else:
            why = f"{path[:200]!r} cannot be written: the approved plan writes no files"
        return {"error": why, "error_type": "outside_scope", "allowed": list(self.write)}

    def refusal_run(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return the structured error for a command that may not run: it lists what is allowed."""
        if self.allows_run(argv) and (forbidden := self.forbidden_run(argv)):
            why = forbidden
        elif self.run:
            why = f"`{_shown(argv)}` begins with no command that the approved plan may run"
        else:
            why = f"`{_shown(argv)}` cannot run: the approved plan runs no commands"
        return {
            "error": why,
            "error_type": "outside_scope",
            "allowed": [shlex.join(e) for e in self.run],
        }


def scope_from(table: Mapping[str, object]) -> Scope:
    """Return the Scope of a parsed `toml` or JSON object.

    ScopeProblems lists all that is wrong with it.

    `write` and `run` are lists of strings (commands are split as a POSIX shell splits words);
    unknown keys are a problem, and so is every value of another type.
    """
    known = [f.name for f in fields(Scope)]
    problems = [
        (str(key), f"is not a key of the scope; the keys are {', '.join(known)}")
        for key in table
        if key not in known
    ]

    def text_list(key: str, example: str) -> list[str]:
        value = table.get(key, [])
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return list(value)
        problems.append((key, f"must be a list of texts: {key} = [{example}]"))
        return []

    def flag(key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            problems.append((key, f"must be true or false, without quotes: {key} = false"))
        return value is True

    write = text_list("write", '"src/**", "tests/test_login.py"')
    problems += [("write", why) for pattern in write if (why := _glob_problem(pattern))]
    run: list[tuple[str, ...]] = []
    for command in text_list("run", '"python -m pytest -q"'):
        if "\n" in command or "\r" in command:
            problems.append(
                ("run", f"{command[:200]!r} has a line break; write one entry for each command")
            )
            continue
        try:
            argv = tuple(shlex.split(command))
        except ValueError:
            problems.append(("run", f"{command[:200]!r} has a quotation mark that is not closed"))
            continue
        run.append(argv)
        if why := _argv_problem(argv):
            problems.append(("run", why))
    network, shell = flag("network"), flag("shell")
    budget = table.get("budget_usd")
    if isinstance(budget, int | float | Decimal) and not isinstance(budget, bool):
        budget = Decimal(str(budget))
        if why := budget_problem(budget):
            problems.append(("budget_usd", why))
    elif budget is not None:
        problems.append(
            ("budget_usd", "must be a number of dollars, without quotes: budget_usd = 0.50")
        )
    iterations = table.get("max_iterations")
    if iterations is not None and (not isinstance(iterations, int) or isinstance(iterations, bool)):
        problems.append(
            ("max_iterations", "must be a whole number, without quotes: max_iterations = 10")
        )
    elif iterations is not None and not 1 <= iterations <= 1_000_000:
        problems.append(("max_iterations", "must be a whole number from 1 to 1000000, such as 10"))
    if problems:
        raise ScopeProblems(problems)
    assert budget is None or isinstance(budget, Decimal)
    assert iterations is None or isinstance(iterations, int)
    return Scope(tuple(write), tuple(run), network, shell, budget, iterations)


# --- validation
# ------------------------------------------------------------------------------------------


def _glob_problem(pattern: str) -> str | None:
    """Return what is wrong with a glob and how to write it, or None."""
    shown = repr(pattern[:200])
    body = pattern.removeprefix("!").removesuffix("/")
    segments = body.split("/")
    if not body:
        return f'{shown} is empty; name a file or folder, such as "src/**"'
    if len(pattern) > MAX_PATTERN:
        return f"{shown}… is longer than {MAX_PATTERN} characters"
    if any(c < " " or c == "\x7f" for c in pattern):
        return f"{shown} has a control character"
    if "\\" in pattern:
        return f"{shown} has a backslash; write / between folders"
    if body.startswith("/") or re.match(r"[A-Za-z]:", body):
        return f'{shown} is absolute; write it relative to the repository, such as "src/**"'
    if "~" in segments[0][:1]:
        return f'{shown} points to a home folder; write it relative to the repository, such as "src/**"'
    if ".." in segments:
        return f"{shown} leaves the repository (`..`); only files inside it can be written"
    if "." in segments or "" in segments:
        return f'{shown} has an empty segment or `.`; write "src/main.py", not "./src//main.py"'
    if re.search(r"\{[^{}]*,", body):
        return f"{shown} has braces, which are not expanded; write one glob for each alternative"
    if any("**" in s and s != "**" for s in segments):
        return f'{shown} has `**` beside other characters; write "src/**/*.py"'
    for segment in segments:
        if (why := _class_problem(segment)) is not None:
            return f"{shown} has a character class that {why}; write [abc], [a-z] or [!abc]"
    return None


def _class_problem(segment: str) -> str | None:
    try:
        _segment(segment)
    except ValueError as error:
        return str(error)
    return None


MAX_COMMAND = 4_096
"""Characters of one entry of `run`; a longer one is nothing that a person reviews."""
_SHELL_WORDS = frozenset({"&&", "||", "|", ">", ">>", "<", "<<", "2>&1", "2>", "&>"})


def _argv_problem(argv: tuple[str, ...]) -> str | None:
    """Return what is wrong with an entry of `run` and how to write it, or None."""
    shown = repr(_shown(argv))
    if not argv or not argv[0]:
        return 'an entry is empty; write a command, such as "python -m pytest -q"'
    if sum(map(len, argv)) + len(argv) > MAX_COMMAND:
        return f"{shown} is longer than {MAX_COMMAND:,} characters"
    if any(c < " " or c == "\x7f" for word in argv for c in word):
        return f"{shown} has a control character or a line break; write the command on one line"
    if words := _SHELL_WORDS.intersection(argv):
        return (
            f"{shown} has {min(words)!r}, but there is no shell; write one entry for each command"
        )
    if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", argv[0]):
        return (
            f'{shown} begins with a variable, but there is no shell; write "env {argv[0][:40]} …"'
        )
    return None


def budget_problem(budget: Decimal) -> str | None:
    """Say why an amount can be no budget in dollars, None if it can: it is no number, too large, or finer than any price."""
    exponent = budget.as_tuple().exponent
    if not isinstance(exponent, int) or not 0 <= budget <= MAX_BUDGET_USD or exponent < _CENTS:
        return "must be a number of dollars from 0 to 1000000, such as 0.50"
    return None


def _shown(argv: Sequence[str]) -> str:
    text = shlex.join(argv)
    return text if len(text) <= 300 else text[:299] + "…"


# --- globs
# -----------------------------------------------------------------------------------------------

_Item = Callable[[_T], bool]
"""Tells whether one item (a character, a path segment) is matched.

In a pattern None is any run of items.
"""


def _run_matches(pattern: Sequence[_Item[_T] | None], items: Sequence[_T]) -> bool:
    """Match items against a pattern in which None stands for any run of them, the empty one too.

    The greedy algorithm with one point of return: it goes back only to the latest None, because
    everything before it is matched as early as it can be. At most len(pattern) * len(items) steps.
    """
    at = token = 0
    star, resume = -1, 0
    while at < len(items):
        item = pattern[token] if token < len(pattern) else _never
        if item is None:
            star, resume = token, at
            token += 1
        elif item(items[at]):
            at += 1
            token += 1
        elif star >= 0:
            resume += 1
            at, token = resume, star + 1
        else:
            return False
    return all(item is None for item in pattern[token:])


def _never(_: object) -> bool:
    return False


def _any(_: object) -> bool:
    return True


def _is(char: str) -> _Item[str]:
    return lambda other: other == char


def _in(ranges: tuple[tuple[str, str], ...], wanted: bool) -> _Item[str]:
    return lambda char: any(low <= char <= high for low, high in ranges) is wanted


def _segment(text: str) -> tuple[_Item[str] | None, ...]:
    """Translate one segment of a glob.

    Raises ValueError: what the class that cannot be read does.
    """
    out: list[_Item[str] | None] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            out.append(None)
        elif char == "?":
            out.append(_any)
        elif char == "[":
            wanted = text[at : at + 1] not in ("!", "^")
            at += not wanted
            end = text.find("]", at + 1)
            if end < 0:
                raise ValueError("is not closed")
            out.append(_in(_ranges(text[at:end]), wanted))
            at = end + 1
        else:
            out.append(_is(char))
    return tuple(out)


def _ranges(inside: str) -> tuple[tuple[str, str], ...]:
    if "[:" in inside or "[." in inside or "[=" in inside:
        raise ValueError("is of the POSIX kind")
    out: list[tuple[str, str]] = []
    at = 0
    while at < len(inside):
        low = high = inside[at]
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            high = inside[at + 2]
            at += 2
            if high < low:
                raise ValueError("has a range that runs backwards")
        out.append((low, high))
        at += 1
    return tuple(out)


def _segment_matcher(text: str) -> _Item[str]:
    items = _segment(text)
    return lambda name: name == text or _run_matches(items, name)


def _folded(text: str) -> str:
    """Return a path or glob as a file system takes it that knows neither case nor Unicode forms."""
    return (
        text.lower()
        if text.isascii()
        else unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    )


def _matches_folded(pattern: str, path: str) -> bool:
    try:
        return _matches(_compiled(_folded(pattern)), _folded(path).split("/"))
    except ValueError:  # of a class such as [Z-a] no other spelling makes sense
        return False


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> tuple[_Item[str] | None, ...]:
    """Translate a valid glob without its `!`: one item a segment, None for `**`."""
    segments = (pattern + "**" if pattern.endswith("/") else pattern).split("/")
    out = [None if segment == "**" else _segment_matcher(segment) for segment in segments]
    if out[-1] is None:
        out.append(_any)  # `src/**` is what is below src, not src itself
    return tuple(out)


def _matches(pattern: Sequence[_Item[str] | None], segments: Sequence[str]) -> bool:
    return _run_matches(pattern, segments)


def fixed_part(pattern: str) -> str:
    """Return the folders that a glob names outright, before its first wildcard: "src/app/" of `src/app/**/*.py`."""
    found = re.match(r"(?:[^*?\[/]+/)*", pattern)
    return found[0] if found else ""


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path (relative, `/` between segments) is matched by one glob, without `!`.

    The globs of `Scope.write`, in time that does not explode. Raises ValueError: what is wrong with the glob.
    """
    if (why := _glob_problem(pattern)) or (
        why := f"{pattern[:200]!r} begins with `!`" if pattern.startswith("!") else ""
    ):
        raise ValueError(why)
    compiled = _compiled(pattern)
    return lambda path: _matches(compiled, path.split("/"))


# --- what a command can be turned into
# -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """A dangerous use of a command: `word` is the place of the last word that is needed to see it."""

    word: int
    why: str
    network_only: bool = False  # harmless without network, which is the sandbox's to withhold


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """How a program takes code from its arguments.

    `code`: the letters of options whose value is code; `values`: letters whose value may be the
    next word; `glued`: letters whose value is the rest of the word; the long names likewise.
    """

    code: str
    values: str = ""
    glued: str = ""
    long_code: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()


_SHELL = _Interpreter("cs", "oO", long_code=("--command",), long_values=("--rcfile", "--init-file"))
_PYTHON = _Interpreter("c", "WXQ", long_values=("--check-hash-based-pycs",))
_NODE = _Interpreter(
    "ep",
    "rC",
    long_code=("--eval", "--print"),
    long_values=(
        "--require",
        "--import",
        "--loader",
        "--experimental-loader",
        "--conditions",
        "--env-file",
    ),
)
_INTERPRETERS: Mapping[str, _Interpreter] = {
    **dict.fromkeys(
        ("sh", "bash", "rbash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh"), _SHELL
    ),
    **dict.fromkeys(("python", "pythonw", "pypy", "ipython"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), _NODE),
    "perl": _Interpreter("eE", "I", "MmiFxDVd"),
    "ruby": _Interpreter("e", "ICEr", "iFKTWx"),
    "php": _Interpreter(
        "rBRE", "dcfStz", long_code=("--run", "--process-begin", "--process-code", "--process-end")
    ),
    "lua": _Interpreter("e", "l"),
    "luajit": _Interpreter("e", "lj"),
    "rscript": _Interpreter("e"),
    "julia": _Interpreter("eE", "LJpC", long_code=("--eval", "--print")),
    "elixir": _Interpreter("e", "rS", long_code=("--eval",)),
    "osascript": _Interpreter("e", "l"),
    "pwsh": _Interpreter("cCeE"),
    "powershell": _Interpreter("cCeE"),
}

_BECOMES_ROOT = "acts with another user's rights"
_CONTAINER = "can reach the machine outside the sandbox"
_MACHINE = "changes the machine itself"
_REMOTE = "can send files to, and run commands on, other machines"
_ACCOUNT = "acts with your account on a service"
_PROGRAMS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "sudo",
            "sudoedit",
            "doas",
            "su",
            "pkexec",
            "runuser",
            "run0",
            "gosu",
            "su-exec",
            "setpriv",
            "chroot",
            "nsenter",
            "unshare",
            "systemd-run",
            "machinectl",
            "mount",
            "umount",
        ),
        _BECOMES_ROOT,
    ),
    **dict.fromkeys(
        (
            "docker",
            "docker-compose",
            "podman",
            "nerdctl",
            "buildah",
            "kubectl",
            "helm",
            "vagrant",
            "lxc",
        ),
        _CONTAINER,
    ),
    **dict.fromkeys(
        (
            "dd",
            "mkfs",
            "fdisk",
            "parted",
            "wipefs",
            "shred",
            "shutdown",
            "reboot",
            "halt",
            "poweroff",
            "systemctl",
            "crontab",
            "launchctl",
            "useradd",
            "usermod",
            "userdel",
            "passwd",
            "visudo",
            "iptables",
            "sysctl",
        ),
        _MACHINE,
    ),
    **dict.fromkeys(
        (
            "gh",
            "glab",
            "aws",
            "gcloud",
            "az",
            "terraform",
            "tofu",
            "pulumi",
            "ansible",
            "ansible-playbook",
            "flyctl",
            "heroku",
            "vercel",
            "netlify",
            "firebase",
            "wrangler",
        ),
        _ACCOUNT,
    ),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "expect", "tclsh", "gdb", "vi", "vim", "nvim", "emacs"),
        "runs code that is given as an argument",
    ),
}
_REMOTE_PROGRAMS = frozenset({
    "curl", "wget", "ssh", "scp", "sftp", "rsync", "nc", "ncat", "netcat", "socat", "telnet",
    "ftp", "rclone",
})  # fmt: skip

# Programs that start the program named in their arguments. Their own options are not parsed: every
# later word is looked at as if a command began there: that may refuse a harmless command, it will
# not pass a hidden one.
_STARTERS = frozenset({
    "env", "nice", "ionice", "chrt", "taskset", "timeout", "time", "nohup", "setsid", "stdbuf",
    "unbuffer", "flock", "xargs", "parallel", "watch", "strace", "ltrace", "command", "exec",
    "busybox", "toybox", "script", "entr", "find", "fd", "fdfind", "uv", "uvx", "poetry", "pipenv",
    "pipx", "hatch", "pdm", "rye", "pixi", "conda", "mamba", "tox", "nox", "npx", "bunx", "pnpx",
    "npm", "pnpm", "yarn", "bundle", "direnv", "dotenv", "nix", "nix-shell", "firejail", "bwrap",
    "corepack", "mise", "asdf",
})  # fmt: skip
# Beginnings after which any command may be named.
_OPEN = frozenset({
    ("env",), ("nice",), ("ionice",), ("timeout",), ("time",), ("nohup",), ("setsid",),
    ("stdbuf",), ("xargs",), ("parallel",), ("watch",), ("command",), ("exec",), ("busybox",),
    ("script",), ("flock",), ("strace",), ("uv",), ("uv", "run"), ("uvx",), ("poetry",),
    ("poetry", "run"), ("pipenv",), ("pipenv", "run"), ("pipx",), ("pipx", "run"),
    ("hatch", "run"), ("pdm", "run"), ("rye", "run"), ("pixi", "run"), ("conda", "run"), ("npx",),
    ("bunx",), ("pnpx",), ("npm",), ("npm", "exec"), ("npm", "run"), ("pnpm",), ("pnpm", "exec"),
    ("pnpm", "dlx"), ("yarn",), ("yarn", "exec"), ("yarn", "dlx"), ("bundle", "exec"), ("make",),
    ("just",), ("task",), ("rake",), ("git",), ("cargo",), ("go",), ("pip",), ("rm",), ("find",),
    ("fd",), ("tox", "exec"), ("direnv", "exec"),
})  # fmt: skip
_MAX_STARTER_WORDS = 256

# Options that make an otherwise plain program start another one or delete files.
_STARTS = "starts any program"
_WRITES = "writes files whatever `write` says"
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "find": {
        **dict.fromkeys(("-exec", "-execdir", "-ok", "-okdir"), _STARTS),
        "-delete": "deletes files whatever `write` says",
        **dict.fromkeys(("-fprint", "-fprint0", "-fprintf", "-fls"), _WRITES),
    },
    "fd": dict.fromkeys(("-x", "-X", "--exec", "--exec-batch"), _STARTS),
    "fdfind": dict.fromkeys(("-x", "-X", "--exec", "--exec-batch"), _STARTS),
    "tar": dict.fromkeys(
        (
            "--to-command",
            "--checkpoint-action",
            "--use-compress-program",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
        ),
        _STARTS,
    ),
    "make": {
        "--eval": "runs code that is given as an argument",
        "-E": "runs code that is given as an argument",
    },
    "sort": {"--compress-program": _STARTS, "--output": _WRITES},
    "rg": {"--pre": _STARTS, "--hostname-bin": _STARTS},
    "split": {"--filter": _STARTS},
    "deno": {"eval": "runs code that is given as an argument"},
    "setup.py": {"upload": "publishes a package"},
}

# Short options of the same kind, also in a bundle of them; tar takes its first word for one without
# a dash.
_SHORT: Mapping[str, tuple[re.Pattern[str], str]] = {
    "tar": (re.compile(r"-[a-zA-Z]*[IF]"), _STARTS),
    "sort": (re.compile(r"-[a-zA-Z]*o"), _WRITES),
    "make": (re.compile(r"(?:SHELL|MAKESHELL|\.SHELLFLAGS)[:+?!]*="), _STARTS),
}
# Modules of Python that run what they are given.
_RUNNING_MODULES = frozenset(
    {"pdb", "timeit", "code", "trace", "cprofile", "profile", "runpy", "doctest", "idlelib"}
)

_PUBLISHES: Mapping[str, frozenset[str]] = {
    "twine": frozenset({"upload", "register"}),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun", "lerna", "changeset"), frozenset({"publish", "unpublish"})
    ),
    **dict.fromkeys(
        (
            "cargo",
            "poetry",
            "uv",
            "flit",
            "hatch",
            "pdm",
            "rye",
            "jsr",
            "deno",
            "dart",
            "vsce",
            "ovsx",
        ),
        frozenset({"publish", "yank"}),
    ),
    "gem": frozenset({"push", "yank"}),
    "conda": frozenset({"upload"}),
    "anaconda": frozenset({"upload"}),
    "dotnet": frozenset({"push"}),
    "nuget": frozenset({"push"}),
    **dict.fromkeys(("mvn", "mvnw"), frozenset({"deploy", "release:perform"})),
    **dict.fromkeys(
        ("gradle", "gradlew"), frozenset({"publish", "publishPlugins", "uploadArchives"})
    ),
    "goreleaser": frozenset({"release"}),
    "semantic-release": frozenset({"publish"}),
}
_INSTALLS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("pip", "uv", "gem", "cargo", "go", "apt", "apt-get", "brew", "dnf"), frozenset({"install"})
    ),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"install", "i", "ci", "add"})),
    "poetry": frozenset({"install", "add"}),
    "composer": frozenset({"install", "require", "update"}),
}

_GIT_ELSEWHERE = (
    "makes git work in another place or with other settings than the mission's worktree"
)
_GIT_OPTIONS = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--exec-path",
    "--config-env",
    "--namespace",
    "--super-prefix",
    "--attr-source",
    "--bare",
)
_GIT_TAKES_NEXT = frozenset(_GIT_OPTIONS) - {"--exec-path", "--bare"}
_GIT_SHARED = "changes what the worktree shares with your own checkout"
_GIT_COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(
        ("push", "send-email", "send-pack", "http-push", "svn", "p4", "lfs", "request-pull"),
        "sends commits to another machine",
    ),
    **dict.fromkeys(
        (
            "config",
            "worktree",
            "update-ref",
            "symbolic-ref",
            "filter-branch",
            "filter-repo",
            "reflog",
            "gc",
            "prune",
            "repack",
            "replace",
            "submodule",
            "maintenance",
            "hook",
            "remote",
            "update-index",
        ),
        _GIT_SHARED,
    ),
    **dict.fromkeys(
        (
            "daemon",
            "instaweb",
            "credential",
            "credential-store",
            "credential-cache",
            "shell",
            "upload-pack",
        ),
        "opens the repository or its credentials to others",
    ),
}
_GIT_REF_OPTIONS = re.compile(
    r"--(?:delete|force|move|copy|edit-description)$|-[a-zA-Z]*[dDfmMcC][a-zA-Z]*$"
)
_GIT_STARTS = dict.fromkeys(
    (
        "--upload-pack",
        "--receive-pack",
        "--exec",
        "--extcmd",
        "--open-files-in-pager",
        "--ext-diff",
    ),
    _STARTS,
)
_GIT_LOSES = re.compile(r"--(?:force.*|mirror|delete|prune)$|-[a-zA-Z]*[fd][a-zA-Z]*$|[+:].")


def _name(word: str) -> str:
    """Return the program that a first word means: without folder, version and `.exe`, in lower case."""
    name = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name)


def _uses(argv: Sequence[str]) -> Iterator[_Use]:
    """Yield the dangerous uses that `argv` makes of its program, and of the programs that it starts."""
    if not argv:
        return
    yield from _uses_at(argv, 0)
    if _name(argv[0]) in _STARTERS:
        if len(argv) > _MAX_STARTER_WORDS:
            yield _Use(
                len(argv) - 1, "is too long to be looked through for the command that it starts"
            )
            return
        for start in range(1, len(argv)):
            # tests/git is a folder, not git
            if "/" not in argv[start] or argv[start].startswith("/"):
                yield from _uses_at(argv, start)


def _uses_at(argv: Sequence[str], start: int) -> Iterator[_Use]:
    """Yield the dangerous uses of the one program whose name is `argv[start]`."""
    name = _name(argv[start])
    after = range(start + 1, len(argv))
    if name in _PROGRAMS:
        yield _Use(start, _PROGRAMS[name])
    if name in _REMOTE_PROGRAMS:
        yield _Use(start, _REMOTE, network_only=True)
    if name in _INTERPRETERS:
        yield from _interpreted(argv, start, _INTERPRETERS[name])
    if name == "git":
        yield from _git(argv, start)
    if name in ("rm", "rmdir", "unlink"):
        yield from _rm(argv, start)
    if name == "env":
        for at in after:
            if re.match(r"-[a-zA-Z]*S|--split-string", argv[at]):
                yield _Use(at, _STARTS)
            elif re.match(
                r"GIT_\w*=|LD_\w*=|DYLD_\w*=|PATH=|PYTHONSTARTUP=|BASH_ENV=|ENV=", argv[at]
            ):
                yield _Use(
                    at, "sets a variable that changes which programs or repositories are used"
                )
    options = _OPTIONS.get(name, {})
    short, why_short = _SHORT.get(name, (None, ""))
    for at in after:
        if why := _abbreviated(argv[at], options):
            yield _Use(at, why)
        elif short and short.match(
            argv[at] if name != "tar" or at > start + 1 else f"-{argv[at].removeprefix('-')}"
        ):
            yield _Use(at, why_short)
        if argv[at] in _PUBLISHES.get(name, ()):
            yield _Use(at, "publishes a package")
        if argv[at] in _INSTALLS.get(name, ()):
            yield _Use(at, "fetches packages, whose install scripts run", network_only=True)


def _abbreviated(word: str, options: Mapping[str, str]) -> str | None:
    """Return what is said of an option.

    GNU's programs and git take any beginning of a long one that is clear.
    """
    name = word.split("=", 1)[0]
    if name in options or not name.startswith("--") or len(name) < _CLEAR:
        return options.get(name)
    return next((why for option, why in options.items() if option.startswith(name)), None)


_CLEAR = 4
"""Characters of the shortest beginning of a long option that is looked at.

`--` and one letter are mostly not clear.
"""


def _interpreted(argv: Sequence[str], start: int, how: _Interpreter) -> Iterator[_Use]:
    """Yield the options by which an interpreter takes code; follow `python -m` into the module."""
    at = start + 1
    while at < len(argv) and argv[at].startswith("-"):
        word = argv[at]
        at += 1
        if word == "--":
            return
        if word == "-":
            yield _Use(at - 1, "runs code that is given as an argument")
            return
        if word.startswith("--"):
            if word.split("=", 1)[0] in how.long_code:
                yield _Use(at - 1, "runs code that is given as an argument")
                return
            at += word in how.long_values
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in how.code:
                yield _Use(at - 1, "runs code that is given as an argument")
                return
            if letter == "m" and how is _PYTHON:
                module = _name(
                    word[place:] if place < len(word) else argv[at] if at < len(argv) else ""
                ).split(".")[0]
                if module in _RUNNING_MODULES:
                    yield _Use(at - (place < len(word)), "runs code that is given as an argument")
                if place < len(word):  # python -mtwine
                    yield from _uses_at([*argv[: at - 1], word[place:], *argv[at:]], at - 1)
                elif at < len(argv):
                    yield from _uses_at(argv, at)
                return
            if letter in how.values:
                at += place == len(word)
                break
            if letter in how.glued:
                break
    if at < len(argv) and _name(argv[at]) in _OPTIONS:  # python setup.py upload
        yield from _uses_at(argv, at)


def _git(argv: Sequence[str], start: int) -> Iterator[_Use]:
    at = start + 1
    while at < len(argv) and argv[at].startswith("-"):
        option = argv[at].split("=", 1)[0]
        if option in _GIT_OPTIONS:
            yield _Use(at, _GIT_ELSEWHERE)
        at += 2 if argv[at] in _GIT_TAKES_NEXT else 1
    if at >= len(argv):
        return
    command = argv[at]
    if why := _GIT_COMMANDS.get(command):
        yield _Use(at, why)
    for place in range(at + 1, len(argv)):
        word = argv[place]
        if word == "--":
            return
        if command == "push" and _GIT_LOSES.match(word):
            yield _Use(place, "overwrites or deletes what is on the other machine")
        elif command in ("branch", "tag") and _GIT_REF_OPTIONS.match(word):
            yield _Use(place, _GIT_SHARED)
        elif (
            _abbreviated(word, _GIT_STARTS)
            or (command == "bisect" and word == "run")
            or (command in ("rebase", "difftool") and word.startswith("-x"))
            or (command == "grep" and re.match(r"-[a-zA-Z]*O", word))
        ):
            yield _Use(place, _STARTS)
        elif _abbreviated(word, {"--output": _WRITES}):
            yield _Use(place, _WRITES)


def _rm(argv: Sequence[str], start: int) -> Iterator[_Use]:
    recursive = -1
    for at in range(start + 1, len(argv)):
        word = argv[at]
        if word == "--":
            break
        # GNU rm takes any beginning of a long option: --r is --recursive.
        if re.match(r"-[a-zA-Z]*[rR]", word) or (len(word) > 2 and "--recursive".startswith(word)):
            recursive = at
            yield _Use(at, "deletes whole folders whatever `write` says")
            break
    for at in range(start + 1, len(argv)):
        word = argv[at]
        segments = [s for s in word.split("/") if s not in ("", ".")]
        if word.startswith("--no-pres"):
            yield _Use(at, "deletes the root folder")
        elif word.startswith("-"):
            continue
        elif (
            word.startswith(("/", "~")) or ".." in segments or segments[:1] in ([], [".git"], ["*"])
        ):
            yield _Use(max(at, recursive), "deletes outside the repository's files, or all of them")


# --- what the reviewer is told
# ---------------------------------------------------------------------------

_HOOKS = (
    ".github",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    ".buildkite",
    ".woodpecker",
    ".drone.yml",
)
_RUNS_ON_YOURS = (
    ".husky", ".pre-commit-config.yaml", ".envrc", ".vscode", ".idea", ".devcontainer", ".direnv",
    ".obsidian", ".mise.toml", ".claude", ".cursor", ".npmrc", ".yarnrc.yml",
)  # fmt: skip
_SECRETS = (".env", ".netrc", ".pypirc", ".ssh", ".aws")


_ORDINARY = (
    "src",
    "lib",
    "app",
    "docs",
    "tests",
    "packages",
    "web",
    "internal",
    "main.py",
    "README.md",
)
"""Names that most repositories have: what matches half of them is meant for none of the names above in particular."""
_GIT = (".git", ".gitattributes", ".gitmodules", ".gitignore")
_SAMPLES = {
    _HOOKS: [f"{name}/workflows/ci.yml" for name in _HOOKS]
    + [f"{name}/config.yml" for name in _HOOKS],
    _GIT: [".gitattributes", ".gitmodules", ".gitignore"],
    _RUNS_ON_YOURS: [f"{name}/settings.json" for name in _RUNS_ON_YOURS],
    _SECRETS: [".env.local", ".ssh/config", ".ssh/id_ed25519", ".aws/credentials"],
}
_MEANS = {
    _HOOKS: "change what the build server runs, with that server's secrets",
    _GIT: "change how git treats the repository (hooks, attributes, submodules)",
    _RUNS_ON_YOURS: "change what your editor or shell runs when you open the repository",
    _SECRETS: "change files that usually hold secrets",
}


def _write_dangers(pattern: str) -> Iterator[str]:
    """Yield what a glob reaches that matters: by the names that its parts match, and by paths that the whole of it does."""
    segments = pattern.rstrip("/").split("/")
    matchers = [None if segment == "**" else _segment_matcher(segment) for segment in segments]
    general = [
        reaches is None or sum(map(reaches, _ORDINARY)) * 2 >= len(_ORDINARY)
        for reaches in matchers
    ]
    if general[0]:
        yield f"{code(pattern)} lets it write almost anywhere in the repository."
        return
    compiled = _compiled(pattern)
    for names, samples in _SAMPLES.items():
        named = any(
            reaches is not None and not wide and any(map(reaches, names))
            for reaches, wide in zip(matchers, general, strict=True)
        )
        if named or any(_matches(compiled, sample.split("/")) for sample in (*names, *samples)):
            yield f"{code(pattern)} lets it {_MEANS[names]}."


def _run_dangers(argv: tuple[str, ...], *, network: bool) -> Iterator[str]:
    entry = code(shlex.join(argv))
    for why in dict.fromkeys(use.why for use in _uses(argv) if network or not use.network_only):
        yield f"{entry} {why}."
    starts = range(len(argv)) if _name(argv[0]) in _STARTERS else range(1)
    for start in starts:
        name, rest = _name(argv[start]), argv[start + 1 :]
        unnamed = name in _INTERPRETERS and all(w.startswith("-") for w in rest)
        if unnamed and not any(True for _ in _uses_at(argv, start)):
            yield f"{entry} lets it run any {name} program: the entry does not say which."
    # Options, settings and durations do not say which command it is.
    words = tuple(w for w in argv[1:] if not re.match(r"-|\w+=|[\d.]+[smhd]?$", w))
    if (_name(argv[0]), *words) in _OPEN:
        yield f"{entry} allows whatever may follow it: the entry does not say what."


def dangers(scope: Scope) -> list[str]:
    """Return one sentence for each thing in `scope` that a reviewer should look at twice."""
    out: list[str] = []
    for pattern in scope.write:
        if not pattern.startswith("!"):
            out += _write_dangers(pattern)
    for argv in scope.run:
        out += _run_dangers(argv, network=scope.network)
    if scope.network:
        out.append(
            "`network = true` lets its commands send anything that they can read to other machines: the repository, and "
            "what its tools read of `Knowledge/`. They reach services on this machine and in the local network, too."
        )
    if scope.shell:
        out.append(
            "`shell = true` lets it run any command text in the sandbox, whatever `run` says."
        )
    return list(dict.fromkeys(out))
