"""Dangerous uses of commands: how an allowed beginning can be turned into something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


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


INTERPRETERS: Mapping[str, _Interpreter] = {
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
STARTERS = frozenset({
    "env", "nice", "ionice", "chrt", "taskset", "timeout", "time", "nohup", "setsid", "stdbuf",
    "unbuffer", "flock", "xargs", "parallel", "watch", "strace", "ltrace", "command", "exec",
    "busybox", "toybox", "script", "entr", "find", "fd", "fdfind", "uv", "uvx", "poetry", "pipenv",
    "pipx", "hatch", "pdm", "rye", "pixi", "conda", "mamba", "tox", "nox", "npx", "bunx", "pnpx",
    "npm", "pnpm", "yarn", "bundle", "direnv", "dotenv", "nix", "nix-shell", "firejail", "bwrap",
    "corepack", "mise", "asdf",
})  # fmt: skip


# Beginnings after which any command may be named.
OPEN_ENDED = frozenset({
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


def program_of(word: str) -> str:
    """Return the program that a first word means: without folder, version and `.exe`, in lower case."""
    name = word.rsplit("/", 1)[-1].lower().removesuffix(".exe")
    return re.sub(r"(?<=[a-z])[\d.]+$", "", name)


def uses(argv: Sequence[str]) -> Iterator[_Use]:
    """Yield the dangerous uses that `argv` makes of its program_of, and of the programs that it starts."""
    if not argv:
        return
    yield from uses_at(argv, 0)
    if program_of(argv[0]) in STARTERS:
        if len(argv) > _MAX_STARTER_WORDS:
            yield _Use(
                len(argv) - 1, "is too long to be looked through for the command that it starts"
            )
            return
        for start in range(1, len(argv)):
            # tests/git is a folder, not git
            if "/" not in argv[start] or argv[start].startswith("/"):
                yield from uses_at(argv, start)


def uses_at(argv: Sequence[str], start: int) -> Iterator[_Use]:
    """Yield the dangerous uses of the one program whose name is `argv[start]`."""
    name = program_of(argv[start])
    after = range(start + 1, len(argv))
    if name in _PROGRAMS:
        yield _Use(start, _PROGRAMS[name])
    if name in _REMOTE_PROGRAMS:
        yield _Use(start, _REMOTE, network_only=True)
    if name in INTERPRETERS:
        yield from _interpreted(argv, start, INTERPRETERS[name])
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
                module = program_of(
                    word[place:] if place < len(word) else argv[at] if at < len(argv) else ""
                ).split(".")[0]
                if module in _RUNNING_MODULES:
                    yield _Use(at - (place < len(word)), "runs code that is given as an argument")
                if place < len(word):  # python -mtwine
                    yield from uses_at([*argv[: at - 1], word[place:], *argv[at:]], at - 1)
                elif at < len(argv):
                    yield from uses_at(argv, at)
                return
            if letter in how.values:
                at += place == len(word)
                break
            if letter in how.glued:
                break
    if at < len(argv) and program_of(argv[at]) in _OPTIONS:  # python setup.py upload
        yield from uses_at(argv, at)


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
