"""Programs by what they can do besides their work: the tables that `commands` reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
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

    `code`: the letters of options whose value is code; `values`: letters whose value may be the
    next word; `glued`: letters whose value is the rest of the word; `module`: the letter that runs
    a module; the long names likewise.
    """

    code: str
    values: str = ""
    glued: str = ""
    long_code: Collection[str] = ()
    long_values: Collection[str] = ()
    module: str = ""

    def option(self, word: str) -> tuple[OptionKind, str]:
        """Return the kind of an option, and the rest of the word behind its letter."""
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

# Options that make an otherwise plain program start another one or delete files.
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
