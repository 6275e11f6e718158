"""Find dangerous uses of commands: ways to turn an allowed beginning into something else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class OptionKind(Enum):
    """The kinds of an interpreter's options."""

    CODE = auto()
    MODULE = auto()
    TAKES_NEXT = auto()
    PLAIN = auto()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The options by which a program takes code from its arguments.

    `code`: letters of options whose value is code. `values`: letters whose value may be the next
    word. `glued`: letters whose value is the rest of the word. `module`: the letter that runs a
    module. The long names likewise.
    """

    code: str
    values: str = ""
    glued: str = ""
    long_code: Collection[str] = ()
    long_values: Collection[str] = ()
    module: str = ""

    def option(self, word: str) -> tuple[OptionKind, str]:
        """Return the kind of an option, and the rest of the word after its letter."""
        if word == "-" or word.split("=", 1)[0] in self.long_code:
            return OptionKind.CODE, ""
        if word.startswith("--"):
            return OptionKind.TAKES_NEXT if word in self.long_values else OptionKind.PLAIN, ""
        for place, letter in enumerate(word[1:], 2):
            rest = word[place:]
            if letter in self.code:
                return OptionKind.CODE, rest
            if letter == self.module:
                return OptionKind.MODULE, rest
            if letter in self.values:
                return OptionKind.PLAIN if rest else OptionKind.TAKES_NEXT, ""
            if letter in self.glued:
                break
        return OptionKind.PLAIN, ""


def _each(words: str, why: str) -> Mapping[str, str]:
    return dict.fromkeys(words.split(), why)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SHELL = Interpreter("cs", "oO", long_code=("--command",), long_values=("--rcfile", "--init-file"))
_PYTHON = Interpreter("c", "WXQ", long_values=("--check-hash-based-pycs",), module="m")
_NODE = Interpreter(
    "ep",
    "rC",
    long_code=("--eval", "--print"),
    long_values=_set("--require --import --loader --experimental-loader --conditions --env-file"),
)
INTERPRETERS: Mapping[str, Interpreter] = {
    **dict.fromkeys(
        ("sh", "bash", "rbash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh"), _SHELL
    ),
    **dict.fromkeys(("python", "pythonw", "pypy", "ipython"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx", "ts-node"), _NODE),
    "perl": Interpreter("eE", "I", "MmiFxDVd"),
    "ruby": Interpreter("e", "ICEr", "iFKTWx"),
    "php": Interpreter(
        "rBRE", "dcfStz", long_code=("--run", "--process-begin", "--process-code", "--process-end")
    ),
    "lua": Interpreter("e", "l"),
    "luajit": Interpreter("e", "lj"),
    "rscript": Interpreter("e"),
    "julia": Interpreter("eE", "LJpC", long_code=("--eval", "--print")),
    "elixir": Interpreter("e", "rS", long_code=("--eval",)),
    "osascript": Interpreter("e", "l"),
    "pwsh": Interpreter("cCeE"),
    "powershell": Interpreter("cCeE"),
}

RUNS_CODE = "runs code that is given as an argument"
REMOTE = "can send files to, and run commands on, other machines"
STARTS = "starts any program"
WRITES = "writes files whatever `write` says"

PROGRAMS: Mapping[str, str] = {
    **_each(
        "sudo sudoedit doas su pkexec runuser run0 gosu su-exec setpriv chroot nsenter unshare "
        "systemd-run machinectl mount umount",
        "acts with another user's rights",
    ),
    **_each(
        "docker docker-compose podman nerdctl buildah kubectl helm vagrant lxc",
        "can reach the machine outside the sandbox",
    ),
    **_each(
        "dd mkfs fdisk parted wipefs shred shutdown reboot halt poweroff systemctl crontab "
        "launchctl useradd usermod userdel passwd visudo iptables sysctl",
        "changes the machine itself",
    ),
    **_each(
        "gh glab aws gcloud az terraform tofu pulumi ansible ansible-playbook flyctl heroku "
        "vercel netlify firebase wrangler",
        "acts with your account on a service",
    ),
    **_each("awk gawk mawk expect tclsh gdb vi vim nvim emacs", RUNS_CODE),
}
REMOTE_PROGRAMS = _set("curl wget ssh scp sftp rsync nc ncat netcat socat telnet ftp rclone")

# Programs that start the program named in their arguments. Their own options are not parsed: every
# later word is looked at as if a command began there: that may refuse a harmless command, it will
# not pass a hidden one.
STARTERS = _set(
    "env nice ionice chrt taskset timeout time nohup setsid stdbuf unbuffer flock xargs parallel "
    "watch strace ltrace command exec busybox toybox script entr find fd fdfind uv uvx poetry "
    "pipenv pipx hatch pdm rye pixi conda mamba tox nox npx bunx pnpx npm pnpm yarn bundle direnv "
    "dotenv nix nix-shell firejail bwrap corepack mise asdf"
)

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

# Options that make an otherwise plain program start another program or delete files.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "find": {
        **_each("-exec -execdir -ok -okdir", STARTS),
        "-delete": "deletes files whatever `write` says",
        **_each("-fprint -fprint0 -fprintf -fls", WRITES),
    },
    "fd": _each("-x -X --exec --exec-batch", STARTS),
    "fdfind": _each("-x -X --exec --exec-batch", STARTS),
    "tar": _each(
        "--to-command --checkpoint-action --use-compress-program --info-script --new-volume-script "
        "--rsh-command --rmt-command",
        STARTS,
    ),
    "make": _each("--eval -E", RUNS_CODE),
    "sort": {"--compress-program": STARTS, "--output": WRITES},
    "rg": {"--pre": STARTS, "--hostname-bin": STARTS},
    "split": {"--filter": STARTS},
    "deno": {"eval": RUNS_CODE},
    "setup.py": {"upload": "publishes a package"},
}

# Words that do the same, by how they begin; tar takes its first word for an option without a dash.
PATTERNS: Mapping[str, Sequence[tuple[re.Pattern[str], str]]] = {
    "tar": [(re.compile(r"-[a-zA-Z]*[IF]"), STARTS)],
    "sort": [(re.compile(r"-[a-zA-Z]*o"), WRITES)],
    "make": [(re.compile(r"(?:SHELL|MAKESHELL|\.SHELLFLAGS)[:+?!]*="), STARTS)],
    "env": [
        (re.compile(r"-[a-zA-Z]*S|--split-string"), STARTS),
        (
            re.compile(r"(?:GIT_\w*|LD_\w*|DYLD_\w*|PATH|PYTHONSTARTUP|BASH_ENV|ENV)="),
            "sets a variable that changes which programs or repositories are used",
        ),
    ],
}

# Modules of Python that run what they are given.
RUNNING_MODULES = _set("pdb timeit code trace cprofile profile runpy doctest idlelib")

PUBLISHES: Mapping[str, frozenset[str]] = {
    "twine": _set("upload register"),
    **dict.fromkeys(_set("npm pnpm yarn bun lerna changeset"), _set("publish unpublish")),
    **dict.fromkeys(
        _set("cargo poetry uv flit hatch pdm rye jsr deno dart vsce ovsx"), _set("yank publish")
    ),
    "gem": _set("push yank"),
    **dict.fromkeys(_set("conda anaconda"), _set("upload")),
    **dict.fromkeys(_set("dotnet nuget"), _set("push")),
    **dict.fromkeys(_set("mvn mvnw"), _set("deploy release:perform")),
    **dict.fromkeys(_set("gradle gradlew"), _set("publish publishPlugins uploadArchives")),
    "goreleaser": _set("release"),
    "semantic-release": _set("publish"),
}

INSTALLS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_set("pip uv gem cargo go apt apt-get brew dnf"), _set("install")),
    **dict.fromkeys(_set("npm pnpm yarn bun"), _set("install add i ci")),
    "poetry": _set("install add"),
    "composer": _set("install require update"),
}

GIT_ELSEWHERE = "makes git work in another place or with other settings than the mission's worktree"
GIT_SHARED = "changes what the worktree shares with your own checkout"
GIT_OPTIONS = _set(
    "-C -c --git-dir --work-tree --exec-path --config-env --namespace --super-prefix "
    "--attr-source --bare"
)
GIT_TAKES_NEXT = GIT_OPTIONS - {"--exec-path", "--bare"}
GIT_COMMANDS: Mapping[str, str] = {
    **_each(
        "push send-email send-pack http-push svn p4 lfs request-pull",
        "sends commits to another machine",
    ),
    **_each(
        "config worktree update-ref symbolic-ref filter-branch filter-repo reflog gc prune repack "
        "replace submodule maintenance hook remote update-index",
        GIT_SHARED,
    ),
    **_each(
        "daemon instaweb credential credential-store credential-cache shell upload-pack",
        "opens the repository or its credentials to others",
    ),
}
GIT_REF_OPTIONS = re.compile(
    r"--(?:delete|force|move|copy|edit-description)$|-[a-zA-Z]*[dDfmMcC][a-zA-Z]*$"
)
GIT_STARTS = _each(
    "--upload-pack --receive-pack --exec --extcmd --open-files-in-pager --ext-diff", STARTS
)
GIT_LOSES = re.compile(r"--(?:force.*|mirror|delete|prune)$|-[a-zA-Z]*[fd][a-zA-Z]*$|[+:].")


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
