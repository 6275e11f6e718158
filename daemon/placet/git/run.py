"""Start git for missions. Only `push` starts it otherwise, for a person who pushes a branch.

Each mission has one worktree and one branch. Missions only read the person's checkout.

A repository is data that a stranger may have written. Plain git runs programs that its
configuration, attributes and hooks name. So `run_git` fixes the configuration that can start a
program and switches off every driver that the repository configures (`neutral`). It starts from an
empty environment. It names the git directory and the work tree explicitly, so a `.git` file that a
mission replaced is never trusted.

A commit or a checkpoint costs one flush to disk. git writes its objects without a flush
(`UNFLUSHED`). The reference comes last, and its flush also flushes the objects.
`core.fsyncMethod=batch` does the same within one process.

Paths inside a repository are `str` with surrogateescape (git's `-z` output), so any file name
survives. Each worktree has one writer: functions that write hold a lock file next to it
(`worktree.holding`). Git processes inherit the lock. If one outlives a killed daemon, the next
daemon waits for it instead of removing its locks.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, cast

from placet.errors import MACHINE, Interrupted, PlacetError, UserError


@dataclass(frozen=True, slots=True)
class GitCall:
    """One git process, for the journal: arguments, exit code, duration, and why it failed."""

    argv: tuple[str, ...]
    returncode: int
    duration_ms: float
    stderr: str = ""


OnCall = Callable[[GitCall], None]
Settings = Sequence[tuple[str, str]]
"""git's configuration: scope ("local", "global", …) and `key` or `key\\nvalue`, in git's order."""


class GitError(PlacetError):
    """A git command failed.

    `argv` is the sub-command and its arguments. `returncode` is negative if git was killed.
    """

    _NUMBERS = MappingProxyType(
        {os.strerror(number): number for number in MACHINE}
        # git's own words about a lock that it holds, so permissions cannot be the cause
        | {
            "Out of diskspace": errno.ENOSPC,
            "couldn't write '": errno.EIO,
            "nable to write new index file": errno.EIO,
        }
    )

    def __init__(self, argv: tuple[str, ...], returncode: int, stderr: str) -> None:
        super().__init__(f"git {' '.join(argv)} failed ({returncode}): {stderr}")
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr
        # git reports machine faults with strerror(3)'s words, or only with its own
        self.errno = next((n for words, n in self._NUMBERS.items() if words in stderr), None)
        self.was_killed = returncode < 0
        # not one regular expression: it takes the square of a long line's time
        tried = (line.rpartition(": File exists")[0] for line in stderr.split("\n"))
        self.was_locked = any(re.search(r"\block\b", one) for one in tried)


class RepositoryChanged(PlacetError):  # noqa: N818 - names a state, not an error
    """Another program changed what only placet should change. The mission must stop."""


@dataclass(frozen=True, slots=True)
class Author:
    """A commit's name and email address.

    Raises ValueError if git could not write them.
    """

    name: str
    email: str

    def __post_init__(self) -> None:
        for value in (self.name, self.email):
            if not value.strip(" .,:;\"'") or re.search(r"[<>\x00-\x1f]", value):
                raise ValueError(f"not a name or address that git can write: {value!r}")


BOT = Author("placet", "bot@placet.local")
"""Author of checkpoints and reference log lines, and of commits if the person set no name."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed file.

    `status` is A, M, D or T (type changed). A rename is a D and an A, so that each path can be
    checked against a plan's scope. Counts are None for a binary file, and if nothing was counted.
    `link` is the target of a symbolic link, only in changes between two commits.
    """

    path: str
    status: str
    added: int | None = None
    deleted: int | None = None
    link: str = ""


MINIMUM_GIT = (2, 38)
"""git 2.38 introduced `merge-tree --write-tree` and `safe.bareRepository`."""

CALL_TIMEOUT_S = 60.0


@lru_cache(maxsize=1)
def program_on(path: str) -> str:
    """Return the full path of `git` on this PATH.

    Raises UserError if git is missing or too old. Raises GitError if it fails, because the machine
    may be at fault.
    """
    git = shutil.which("git", path=path)
    if git is None:
        raise UserError(
            "git is not installed, or not on PATH", "Install git, then try again.", exit_code=2
        )
    try:
        ended = subprocess.run(
            [git, "version"],
            env=environment(path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=CALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as late:
        raise GitError(("version",), 1, f"no answer within {CALL_TIMEOUT_S:g} s") from late
    if ended.returncode != 0:
        raise GitError(("version",), ended.returncode, why_ended(ended.returncode, ended.stderr))
    version = ended.stdout.strip()
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        raise UserError(f"{git} does not say its version", f"Try it: {git} version", exit_code=2)
    if (int(found[1]), int(found[2])) < MINIMUM_GIT:
        wanted = ".".join(map(str, MINIMUM_GIT))
        raise UserError(
            f"{git} is too old: {version}", f"Install git {wanted} or newer.", exit_code=2
        )
    return git


def why_ended(code: int, stderr: str) -> str:
    """Return why a git process failed, from its exit `code` and its stderr, `said`."""
    # killed by the system, for example without memory; not by placet
    return f"it was killed by signal {-code}" if code < 0 else stderr.strip() or "it said nothing"


def git_found() -> tuple[str, str, bool]:
    """Return which git a person's shell finds, its version, and whether that is new enough.

    Only for a person's command, never for work: GitPython passes on the caller's whole environment.
    Raises UserError if git is missing or does not answer.
    """
    program = shutil.which("git")
    if program is None:
        raise UserError("git is not installed, or not on PATH", "Install git.", exit_code=2)
    version: tuple[int, ...] = ()
    with suppress(Exception):  # many kinds; even the import fails if git does not run
        import git  # costs 150 ms and 3 MB, which the daemon should not pay

        git.refresh(program)
        version = git.Git().version_info
    if not version:
        raise UserError(
            f"{program} does not say its version", f"Try it: {program} version", exit_code=2
        )
    return program, ".".join(map(str, version)), version[:2] >= MINIMUM_GIT


def setting_of_person(key: str) -> str:
    """Return a setting of the person's git, empty without one. Only for a person's command."""
    with suppress(Exception):  # git fails without that setting, and GitPython without git
        import git  # costs 150 ms and 3 MB, which the daemon should not pay

        return str(git.Git().config("--get", key))
    return ""


def environment(path: str) -> dict[str, str]:
    """Return a git process's whole environment. It has few of the daemon's own variables."""
    person = {name: os.environ[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in os.environ}
    return person | {
        "PATH": path,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        # Unlike protocol.allow, this also overrides `protocol.ext.allow = always` in the
        # repository.
        "GIT_ALLOW_PROTOCOL": "none",
        # The first core.gitProxy wins, so `-c` would be too late.
        "GIT_PROXY_COMMAND": "",
        "GIT_AUTHOR_NAME": BOT.name,
        "GIT_AUTHOR_EMAIL": BOT.email,
        "GIT_COMMITTER_NAME": BOT.name,
        "GIT_COMMITTER_EMAIL": BOT.email,
    }


BULK_TIMEOUT_S = 600.0
"""For commands that touch every file of a worktree. 10,000 files take about a second."""

_MAX_OUTPUT_BYTES = 64 * 1024 * 1024

# Configuration that can start a program or (below) reach the network, with harmless values. The
# command line overrides every file. fsmonitor is empty, because before 2.37 `false` was a path.
_OVERRIDES = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=",
    "core.pager=cat",
    "core.editor=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "submodule.recurse=false",
    "safe.bareRepository=explicit",
    "gc.auto=0",
    "maintenance.auto=false",
    # By default git does not flush loose objects. A power cut would leave a branch that points at
    # nothing. `batch` flushes many at once. placet's own commits use `UNFLUSHED`.
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "core.quotePath=true",
    "core.ignoreStat=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
)

_UNREACHING = ("core.sshCommand=false", "credential.helper=", "protocol.allow=never")

UNFLUSHED = "core.fsyncMethod=writeout-only"
"""The setting for creating objects. `update_ref` flushes them before anything refers to them."""


@dataclass(frozen=True, slots=True)
class GitDir:
    """The location of a git process: --git-dir, --work-tree and extra environment.

    git may start ssh or ask a helper for a password only if `reaches` is true.
    """

    git_dir: Path | None
    work_tree: Path | None
    cwd: Path
    on_call: OnCall | None
    env: Mapping[str, str] = field(default_factory=dict)
    held: int | None = None  # descriptor of the worktree's lock; the process inherits it
    settings: Settings = ()  # as read by `neutral`
    reaches: bool = False


_POLL_S = 0.1  # how often to check `must_stop` while git prints nothing
_must_stop: ContextVar[Callable[[], bool]] = ContextVar("must_stop", default=lambda: False)


@contextmanager
def leavable(must_stop: Callable[[], bool]) -> Iterator[None]:
    """Kill each git process that this thread waits for once `must_stop` returns true.

    `run_git` then raises Interrupted. A killed git leaves the same state as a killed daemon,
    including locks. The next call or start resumes from there.
    """
    before = _must_stop.set(must_stop)
    try:
        yield
    finally:
        _must_stop.reset(before)


def _read_all(
    process: subprocess.Popen[bytes],
    timeout_s: float,
    max_bytes: int,
) -> tuple[bytes, bytes, bool, bool]:
    """Read both outputs to their end; return them, and whether time ran out or output was cut.

    Raises Interrupted if `leavable` says to stop. `communicate` would hold whatever a hostile
    repository makes git print, so this stops at `max_bytes`.
    """
    deadline = time.monotonic() + timeout_s
    must_stop = _must_stop.get()
    assert process.stdout is not None
    assert process.stderr is not None
    taken: dict[int, bytearray] = {
        process.stdout.fileno(): bytearray(),
        process.stderr.fileno(): bytearray(),
    }
    late = cut = False
    with selectors.DefaultSelector() as selector:
        for descriptor in taken:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and not (late or cut):
            ready = selector.select(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            if not ready and must_stop():
                raise Interrupted("git was ended: the work is to be left")
            late = not ready and time.monotonic() >= deadline
            for key, _ in ready:
                piece = os.read(key.fd, 65_536)
                taken[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                cut = cut or len(taken[key.fd]) > max_bytes
    if late or cut:
        end(process)
    # git closes its outputs only by exiting, so this does not block. `wait(timeout=…)` would poll,
    # 1 ms per call.
    process.wait()
    out, err = taken.values()
    return bytes(out[:max_bytes]), bytes(err[:max_bytes]), late, cut


def start_git(
    place: GitDir,
    args: Sequence[str],
    source: BinaryIO | None,
    config: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start one git command that reads `source`, with pipes for both of its outputs.

    The caller reads them and waits.

    GitPython is not used, because it always adds the daemon's environment to the given one. The
    daemon's keys and every `GIT_…` variable would reach git. Each call would need a second program
    (`env -i`) to prevent that. git gets its own session, so that `end` also kills whatever git
    started.
    """
    path = os.environ.get("PATH", os.defpath)
    argv = [program_on(path), "-C", str(place.cwd)]
    for override in (*_OVERRIDES, *(() if place.reaches else _UNREACHING), *config):
        argv += ["-c", override]
    if place.git_dir is not None:
        argv.append(f"--git-dir={place.git_dir}")
    if place.work_tree is not None:
        argv.append(f"--work-tree={place.work_tree}")
    held = () if place.held is None else (place.held,)
    return subprocess.Popen(
        [*argv, *args],
        env={**environment(path), **place.env},
        stdin=subprocess.DEVNULL if source is None else source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=held,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a git process and everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _source(stdin: bytes | BinaryIO) -> Iterator[BinaryIO | None]:
    """Yield the file that git reads, or None for no input."""
    if not isinstance(stdin, bytes):
        yield stdin
        return
    if not stdin:
        yield None
        return
    with tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        yield cast("BinaryIO", source)


def run_git(
    place: GitDir,
    *args: str,
    stdin: bytes | BinaryIO = b"",
    ok: Sequence[int] = (0,),
    config: Sequence[str] = (),
    timeout_s: float = CALL_TIMEOUT_S,
    max_bytes: int | None = None,
) -> tuple[int, bytes]:
    """Run one git command and return its exit code and output; `stdin` may be a real file.

    Raises GitError unless the code is in `ok`, and Interrupted as `leavable` says. Output beyond
    the limit is an error, unless the caller gave `max_bytes`. Then the output is cut there.
    """
    began = time.monotonic()
    # Input comes from a file. With a pipe, git and placet could wait for each other.
    with _source(stdin) as source:
        process = start_git(place, args, source, config)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            out, err, late, cut = _read_all(process, timeout_s, max_bytes or _MAX_OUTPUT_BYTES)
        except BaseException:  # nobody else would kill it or wait for it
            end(process)
            raise
    code = process.returncode
    wrong = ""
    if late:
        wrong = f"no answer within {timeout_s:g} s"
    elif cut and max_bytes is None:
        wrong = f"more than {_MAX_OUTPUT_BYTES} bytes of output"
    elif not cut and (code < 0 or code not in ok):
        wrong = why_ended(code, err.decode("utf-8", "backslashreplace"))[:2000]
    if place.on_call is not None:
        place.on_call(GitCall(args, code, (time.monotonic() - began) * 1000, wrong))
    if wrong:
        error = GitError(args, code, wrong)
        error.was_killed = code < 0 and not late  # not killed by placet
        raise error
    return code, out


def text_of(raw: bytes) -> str:
    """Return output that is a single value, without its last newline."""
    return os.fsdecode(raw.removesuffix(b"\n"))


def items_of(raw: bytes) -> list[str]:
    """Return the values of `-z` output."""
    return [os.fsdecode(item) for item in raw.split(b"\0")[:-1]]


# each costs up to four environment variables, and the kernel allows some thousands
_MAX_DRIVERS = 500

# A repository may name programs for filters, merges and hooks under names of its own. Each of those
# gets these values. `required=false` lets an emptied filter pass the file through. A merge driver
# cannot be unset, and an empty one would report a clean merge. So it is made to fail, and the
# preview reports a conflict. Configured hooks (`hook.NAME`) exist in newer versions of git, and
# core.hooksPath does not disable them.
_NEUTRAL: Mapping[str, Sequence[tuple[str, str]]] = {
    "filter": (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")),
    "merge": (("driver", "false"),),
    "hook": (("enabled", "false"), ("command", "false")),
}


@dataclass(frozen=True)
class Repo:
    """A repository of the person's, as `open_repo` found it. Holds no resource.

    `path` is the top of the work tree, or the bare directory itself if `is_bare`. `git_dir` belongs
    to this checkout. `common_dir` is shared by all worktrees. For a worker's clone, `clone_of` is
    the path of the person's repository.
    """

    path: Path
    git_dir: Path
    common_dir: Path
    is_bare: bool
    is_shallow: bool
    on_call: OnCall | None = field(default=None, compare=False, repr=False)
    clone_of: Path | None = None

    @property
    def command_line(self) -> str:
        """The git command line for a person, quoted for a shell."""
        return f"git -C {shlex.quote(str(self.clone_of or self.path))}"

    @cached_property
    def settings(self) -> Settings:
        """Git's configuration at the first access; `settings_of` reads it again."""
        return settings_of(place_of(self))

    def setting(self, key: str) -> str | None:
        """Return the effective value of a key, which is in lower case.

        None if the key is missing or has no value.
        """
        pairs = (item.partition("\n") for _, item in reversed(self.settings))
        return next((value if given else None for name, given, value in pairs if name == key), None)


def ask(repo: Repo, *args: str, stdin: bytes = b"", timeout_s: float = CALL_TIMEOUT_S) -> bytes:
    """Return the output of a git command that only reads a repository; raises as `run_git`."""
    return run_git(place_of(repo), *args, stdin=stdin, timeout_s=timeout_s)[1]


def rows_of(place: GitDir, fields: Sequence[str], *patterns: str) -> Iterator[tuple[str, ...]]:
    """Return these fields (of git-for-each-ref) of each reference that `patterns` match."""
    form = "".join(f"%({field})%00" for field in fields)
    _, out = run_git(place, "for-each-ref", f"--format={form}", *patterns)
    items = [item.removeprefix("\n") for item in items_of(out)]
    return zip(*(items[n :: len(fields)] for n in range(len(fields))), strict=True)


def place_of(repo: Repo) -> GitDir:
    """Return the place for work on the repository without a work tree."""
    return GitDir(repo.git_dir, None, repo.git_dir, repo.on_call)


def settings_of(place: GitDir) -> Settings:
    """Return git's current configuration at `place`."""
    _, out = run_git(place, "config", "-z", "--list", "--show-scope")
    items = items_of(out)
    return list(zip(items[0::2], items[1::2], strict=True))


def neutral(place: GitDir) -> GitDir:
    """Return `place` with every driver that its configuration names switched off.

    Reading configuration runs nothing. Raises UserError for more than `_MAX_DRIVERS` drivers.
    """
    settings = settings_of(place)
    names = (item.partition("\n")[0] for _, item in settings)
    sections = {
        name.rpartition(".")[0]
        for name in names
        if name.startswith(tuple(f"{kind}." for kind in _NEUTRAL))
    }
    drivers = [section.split(".", 1) for section in sorted(sections) if "." in section]
    if len(drivers) > _MAX_DRIVERS:
        raise UserError(
            f"{place.git_dir} configures {len(drivers)} filter, merge and hook drivers; "
            f"at most {_MAX_DRIVERS} are accepted",
            f"Look at: git --git-dir={place.git_dir} config --list",
        )
    return configured(
        replace(place, settings=settings),
        [
            (f"{kind}.{name}.{key}", value)
            for kind, name in drivers
            for key, value in _NEUTRAL[kind]
        ],
    )


def configured(place: GitDir, settings: Sequence[tuple[str, str]]) -> GitDir:
    """Return `place` with these settings, which override every file and earlier ones.

    They go through the environment, because `-c` splits at the first `=`. A driver or branch named
    `a=b` would slip through.
    """
    known = int(place.env.get("GIT_CONFIG_COUNT", "0"))
    env = {"GIT_CONFIG_COUNT": str(known + len(settings))}
    for n, (key, value) in enumerate(settings, known):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return with_env(place, env)


def with_env(place: GitDir, env: Mapping[str, str]) -> GitDir:
    """Return `place` with these variables added to its environment."""
    return replace(place, env={**place.env, **env})
