"""Git: one worktree and one branch for each mission; the person's checkout is only ever read.

Everything goes through one runner, `_git`. A repository is data that a stranger may have written, and plain
git runs programs that its configuration, attributes and hooks name. The runner therefore fixes the
configuration that can start a program, switches off every driver that the repository configures (`_neutral`),
starts from an empty environment, and names the git directory and the work tree outright, so that a `.git`
file which a mission replaced is never believed.

Paths inside a repository are `str` with surrogateescape (git's `-z` output), so any file name survives. One
writer for each worktree: the functions that write hold a lock file beside it (`_writing`), which a git
process that outlives a killed daemon inherits; so the next daemon waits for it instead of removing its locks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from placet.core.errors import PlacetError, UserError

MINIMUM_GIT = (2, 38)
"""`merge-tree --write-tree` and `safe.bareRepository` are of git 2.38."""

CALL_TIMEOUT_S = 60.0
BULK_TIMEOUT_S = 600.0
"""For what touches every file of a worktree; 10,000 files take about a second."""

_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_MAX_DIFFED_BYTES = 16 * 1024 * 1024  # a bigger file counts as binary in a patch: git need not hold it
_MAX_DRIVERS = 500  # each costs up to four environment variables; the kernel's limit is some thousands
_SUBJECT_LENGTH = 72

# Configuration that can start a program or reach the network, each with a value that does neither. Git lets
# the command line win over every file. An empty fsmonitor, not `false`: before 2.37 `false` was a path.
_OVERRIDES = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "safe.bareRepository=explicit",
    "gc.auto=0",
    "maintenance.auto=false",
    # Git's default does not flush loose objects: a power cut would leave a branch that points at nothing.
    # `batch` flushes many at once: a first commit of 3,000 files takes half the time.
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "core.quotePath=true",
    "core.ignoreStat=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
)

# A repository may name programs for filters, merges and hooks under names of its own; all that it names are
# given these values. `required=false` lets an emptied filter pass the file through. A merge driver cannot be
# unset and an empty one would claim a clean merge, so it is made to fail: the preview then says conflict.
# Configured hooks (`hook.NAME`) exist in newer versions of git, and core.hooksPath does not reach them.
_NEUTRAL: Mapping[str, Sequence[tuple[str, str]]] = {
    "filter": (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")),
    "merge": (("driver", "false"),),
    "hook": (("enabled", "false"), ("command", "false")),
}


@dataclass(frozen=True, slots=True)
class GitCall:
    """One git process, for the journal: sub-command and arguments, exit code, how long it took, and what it said if it failed."""

    argv: tuple[str, ...]
    returncode: int
    duration_ms: float
    stderr: str = ""


OnCall = Callable[[GitCall], None]


class GitError(PlacetError):
    """Git refused.

    `argv` is the sub-command and its arguments; `returncode` is negative where it was killed.
    """

    def __init__(self, argv: tuple[str, ...], returncode: int, stderr: str) -> None:
        super().__init__(f"git {' '.join(argv)} failed ({returncode}): {stderr}")
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr


class RepositoryChanged(PlacetError):  # noqa: N818 - named for what is the case, as Stop is
    """Something that only placet should change was changed by somebody else: the mission must stop."""


class WorkNotKept(PlacetError):  # noqa: N818 - named for what is the case, as Stop is
    """A worktree was not removed, since it holds work that no commit has. `paths` are some of the files."""

    def __init__(self, path: Path, paths: Sequence[str]) -> None:
        super().__init__(f"{path} holds uncommitted work: {', '.join(map(ascii, paths[:5]))}")
        self.path = path
        self.paths = tuple(paths)


@dataclass(frozen=True, slots=True)
class Author:
    """A name and an address as a commit bears them. Raises ValueError where git could not write them."""

    name: str
    email: str

    def __post_init__(self) -> None:
        for value in (self.name, self.email):
            if not value.strip(" .,:;\"'") or re.search(r"[<>\x00-\x1f]", value):
                raise ValueError(f"not a name or address that git can write: {value!r}")


BOT = Author("placet", "bot@placet.local")
"""Who commits where the person has set no name, and who made checkpoints and reference log lines."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed file.

    `status` is A, M, D or T (type changed); a rename is its D and its A, so that each touched path can be
    held against a plan's scope. Counts are None for a binary file, and where nothing was counted.
    """

    path: str
    status: str
    added: int | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit in a list: newest first."""

    sha: str
    subject: str
    author: str
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class Repo:
    """A repository of the person's, as `open_repo` found it; no resource is held.

    `path` is the top of the work tree (the bare directory itself where `is_bare`); `git_dir` is this
    checkout's, `common_dir` what all its worktrees share.
    """

    path: Path
    git_dir: Path
    common_dir: Path
    is_bare: bool
    is_shallow: bool
    on_call: OnCall | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Worktree:
    """A mission's own worktree.

    `git_dir` is its private directory under `common_dir/worktrees`, remembered here and never read from the
    `.git` file in the worktree, which a mission could replace. `base` is the commit it began at. Where
    `branch` is empty it is detached at `base`, and only read: that is what a plan is written from.
    """

    repo: Repo
    path: Path
    git_dir: Path
    branch: str
    base: str

    @property
    def ref(self) -> str:
        """The branch as a full reference name; the base commit where there is no branch."""
        return f"refs/heads/{self.branch}" if self.branch else self.base

    @property
    def head(self) -> str:
        """What its HEAD file must say."""
        return f"ref: {self.ref}" if self.branch else self.base


@dataclass(frozen=True, slots=True)
class Pins:
    """Digests of what decides how git behaves in a worktree, by name."""

    digests: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a git process works: its --git-dir and --work-tree, and what is added to its environment."""

    git_dir: Path | None
    work_tree: Path | None
    cwd: Path
    on_call: OnCall | None
    env: Mapping[str, str] = field(default_factory=dict)
    held: int | None = None  # the descriptor of the worktree's lock, inherited by the process


# ------------------------------------------------------------------------------------------------ the runner


@lru_cache(maxsize=1)
def _programs(path: str) -> tuple[str, str]:
    """Return the full paths of `env` and `git` on this PATH.

    Raises UserError where git is missing or too old.
    """
    env, git = shutil.which("env", path=path), shutil.which("git", path=path)
    if env is None or git is None:
        raise UserError("git is not installed, or not on PATH", "Install git, then try again.", exit_code=2)
    version = subprocess.run([git, "version"], capture_output=True, text=True, check=False, timeout=60)
    said = version.stdout.strip()
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < MINIMUM_GIT:
        wanted = ".".join(map(str, MINIMUM_GIT))
        raise UserError(f"{git} is too old: {said}", f"Install git {wanted} or newer.", exit_code=2)
    return env, git


def _environment(path: str) -> dict[str, str]:
    """Return a git process's whole environment: of the daemon's, only where the person's settings are."""
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
        # Unlike protocol.allow this also wins over `protocol.ext.allow = always` in the repository.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_AUTHOR_NAME": BOT.name,
        "GIT_AUTHOR_EMAIL": BOT.email,
        "GIT_COMMITTER_NAME": BOT.name,
        "GIT_COMMITTER_EMAIL": BOT.email,
    }


def _read_all(
    process: subprocess.Popen[bytes], timeout_s: float, max_bytes: int,
) -> tuple[bytes, bytes, bool, bool]:
    """Read both outputs to their end; return them, whether time ran out, and whether the output was cut.

    `communicate` would hold whatever a hostile repository makes git print, so this stops at `max_bytes`.
    """
    deadline = time.monotonic() + timeout_s
    assert process.stdout is not None
    assert process.stderr is not None
    taken: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    late = cut = False
    with selectors.DefaultSelector() as selector:
        for descriptor in taken:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and not (late or cut):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            late = not ready
            for key, _ in ready:
                piece = os.read(key.fd, 65_536)
                taken[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                cut = cut or len(taken[key.fd]) > max_bytes
    if late or cut:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # Git closes its outputs only by exiting, so this does not wait; `wait(timeout=…)` would poll, 1 ms a
    # call.
    process.wait()
    out, err = taken.values()
    return bytes(out[:max_bytes]), bytes(err[:max_bytes]), late, cut


def _git(
    place: _Place, *args: str, stdin: bytes = b"", ok: Sequence[int] = (0,), config: Sequence[str] = (),
    timeout_s: float = CALL_TIMEOUT_S, max_bytes: int | None = None,
) -> tuple[int, bytes]:
    """Run one git command and return its exit code and output. Raises GitError unless the code is in `ok`.

    GitPython starts the process (`Git.execute` with a whole argv); three things are done around it. It always
    adds the daemon's environment to the one given, so the command begins with `env -i`. Its time limit looks
    for children by name and leaves some behind, so the process gets a session of its own, which is killed as
    a group. Its working folder is expanded like a shell would (`~`, `$HOME`), so `-C` names it. Output beyond
    `max_bytes` is an error, except where a limit was asked for: then the output is cut there.
    """
    path = os.environ.get("PATH", os.defpath)
    env_program, git_program = _programs(path)
    from git.cmd import Git  # here, since importing it takes 150 ms and starts a process

    whole_env = {**_environment(path), **place.env}
    argv = [env_program, "-i", *(f"{name}={value}" for name, value in whole_env.items())]
    argv += [git_program, "-C", str(place.cwd)]
    for override in (*_OVERRIDES, *config):
        argv += ["-c", override]
    if place.git_dir is not None:
        argv.append(f"--git-dir={place.git_dir}")
    if place.work_tree is not None:
        argv.append(f"--work-tree={place.work_tree}")
    argv += args
    began = time.monotonic()
    # Input comes from a file, so that git cannot wait for it while it is being waited for.
    with tempfile.TemporaryFile() if stdin else nullcontext() as source:
        if source is not None:
            source.write(stdin)
            source.seek(0)
        handle = Git().execute(
            argv, istream=source, as_process=True, start_new_session=True,
            pass_fds=() if place.held is None else (place.held,),
        )
    process = handle.proc
    assert process is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        out, err, late, cut = _read_all(process, timeout_s, max_bytes or _MAX_OUTPUT_BYTES)
    code = process.returncode
    wrong = ""
    if late:
        wrong = f"no answer within {timeout_s:g} s"
    elif cut and max_bytes is None:
        wrong = f"more than {_MAX_OUTPUT_BYTES} bytes of output"
    elif not cut and code not in ok:
        wrong = err.decode("utf-8", "backslashreplace").strip()[:2000] or "it said nothing"
    if place.on_call is not None:
        place.on_call(GitCall(args, code, (time.monotonic() - began) * 1000, wrong))
    if wrong:
        raise GitError(args, code, wrong)
    return code, out


def _text(raw: bytes) -> str:
    """Return output that is one value, without its last newline."""
    return os.fsdecode(raw.removesuffix(b"\n"))


def _items(raw: bytes) -> list[str]:
    """Return the values of `-z` output."""
    return [os.fsdecode(item) for item in raw.split(b"\0")[:-1]]


def _at(repo: Repo) -> _Place:
    """Work on the repository without a work tree."""
    return _Place(repo.git_dir, None, repo.git_dir, repo.on_call)


_Settings = Sequence[tuple[str, str]]
"""What git is configured to do: scope ("local", "global", "worktree", …) and `key` or `key\\nvalue`, in git's order."""

_known: dict[Path, tuple[object, _Settings]] = {}
RACY_NS = 100_000_000
"""A file that changed as recently may change again without its times telling: clocks of file systems tick each 10 ms or faster."""


def _settings(place: _Place) -> _Settings:
    """Return the configuration that git has at `place`: asked again only where one of its files changed.

    A process each time would be a fifth of what a commit takes. Never kept where a file includes others, which may be anywhere,
    or where a worktree has a configuration of its own.
    """
    common, stamps = _config_files(place)
    known = _known.get(common) if common is not None else None
    if known is not None and known[0] == stamps:
        return known[1]
    _, out = _git(place, "config", "-z", "--list", "--show-scope")
    items = _items(out)
    found = list(zip(items[0::2], items[1::2], strict=True))
    if common is not None and not any(item.startswith(("include.", "includeif.")) for _, item in found):
        if len(_known) > _MAX_DRIVERS:
            _known.clear()
        _known[common] = stamps, found
    return found


def _config_files(place: _Place) -> tuple[Path | None, object]:
    """Return the directory that the configuration at `place` is known by, None where it must not be kept, and its files' times."""
    if place.git_dir is None or (place.git_dir / "config.worktree").exists():
        return None, ()
    common = place.git_dir
    with suppress(FileNotFoundError):
        common = Path(os.path.normpath(place.git_dir / os.fsdecode((place.git_dir / "commondir").read_bytes()).rstrip("\n")))
    home = os.environ.get("HOME", "")
    stamps: list[object] = []
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for path in (common / "config", Path(home, ".gitconfig"), Path(xdg, "git/config")):
        try:
            info = path.stat()
        except OSError:
            stamps.append(str(path))
            continue
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) < RACY_NS:
            return None, ()
        stamps.append((str(path), info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
    return common, stamps


def _neutral(place: _Place) -> _Place:
    """Return `place` with every driver that its configuration names switched off.

    Reading configuration runs nothing.

    Through the environment rather than `-c`, which splits at the first `=`: a driver named `a=b` would slip
    through. Raises UserError past a sane number.
    """
    names = (item.partition("\n")[0] for _, item in _settings(place))
    sections = {name.rpartition(".")[0] for name in names if name.startswith(tuple(f"{kind}." for kind in _NEUTRAL))}
    drivers = [section.split(".", 1) for section in sorted(sections) if "." in section]
    if len(drivers) > _MAX_DRIVERS:
        raise UserError(
            f"{place.git_dir} configures {len(drivers)} filter, merge and hook drivers; "
            f"at most {_MAX_DRIVERS} are accepted", f"Look at: git --git-dir={place.git_dir} config --list",
        )
    settings = [(f"{kind}.{name}.{key}", value) for kind, name in drivers for key, value in _NEUTRAL[kind]]
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for n, (key, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{n}"] = key
        env[f"GIT_CONFIG_VALUE_{n}"] = value
    return _with(place, env)


def _with(place: _Place, env: Mapping[str, str]) -> _Place:
    """Return `place` with more in its environment."""
    return replace(place, env={**place.env, **env})


# -------------------------------------------------------------------------------------------- the repository


def _is_bare_layout(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def is_repository(path: Path) -> bool:
    """Say whether this very folder is the top of a work tree, or a bare repository; starts no process.

    A folder somewhere inside a repository is none of its own: a vault inside a bigger repository gets its
    own.
    """
    return os.path.lexists(path / ".git") or _is_bare_layout(path)


def open_repo(path: Path, *, on_call: OnCall | None = None) -> Repo:
    """Look at the repository whose top is `path` (symbolic links in it are followed once, here).

    `on_call` is told of each git process from now on. Raises UserError where there is none, it lies inside
    another one, it belongs to somebody else, it is broken, or git is missing.
    """
    top = path.resolve()
    if not is_repository(top):
        outer = next((parent for parent in top.parents if os.path.lexists(parent / ".git")), None)
        if outer is not None:
            raise UserError(
                f"{top} is not a repository of its own; it lies inside the one at {outer}",
                f"Name {outer} instead, or make one of its own: git -C '{top}' init", exit_code=2,
            )
        raise UserError(f"{top} is not a git repository", f"Make one: git -C '{top}' init", exit_code=2)
    # Found by looking, not by --git-dir: only so does git check whose it is. The ceiling keeps it to this
    # folder.
    place = _Place(None, None, top, on_call, {"GIT_CEILING_DIRECTORIES": str(top.parent)})
    bare_layout = () if os.path.lexists(top / ".git") else ("safe.bareRepository=all",)
    try:
        # The last question fails in a bare repository, after the others were answered.
        asked = ("--is-bare-repository", "--is-shallow-repository", "--git-dir", "--git-common-dir")
        code, out = _git(place, "rev-parse", "--path-format=absolute", *asked, "--show-toplevel", config=bare_layout, ok=(0, 128))
        if code != 0:
            _, out = _git(place, "rev-parse", "--path-format=absolute", *asked, config=bare_layout)
        bare, shallow, git_dir, common_dir, top_dir = [*_text(out).split("\n"), *([""] if code != 0 else [])]
    except GitError as error:
        raise UserError(
            f"git does not accept {top} as a repository: {error.stderr}", f"Look at: git -C '{top}' status",
            exit_code=2,
        ) from error
    except ValueError as error:
        raise UserError(f"a repository's path must not have a line break in it: {str(top)!r}") from error
    if bare == "false" and Path(top_dir).resolve() != top:
        raise UserError(
            f"the work tree of {top} is elsewhere ({top_dir})",
            f"Look at: git -C '{top}' config core.worktree", exit_code=2,
        )
    found = Path(git_dir).resolve(), Path(common_dir).resolve()
    return Repo(top, *found, bare == "true", shallow == "true", on_call)


def resolve(repo: Repo, rev: str) -> str | None:
    """Return the commit that `rev` names, None where there is none. A name is never taken for an option."""
    code, out = _git(
        _at(repo), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}",
        ok=(0, 1, 128),
    )
    return _text(out) if code == 0 else None


def tree_of(repo: Repo, commit: str) -> str:
    """Return the tree of a commit that is there."""
    return _text(_git(_at(repo), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")[1].splitlines()[-1])


def _loose(repo: Repo, branch: str) -> str | None:
    """Return the commit of a branch that git keeps in a file of its own, as it does after each commit; None for any other."""
    if branch:
        with suppress(OSError):
            line = (repo.common_dir / "refs/heads" / branch).read_text("ascii", "replace").strip()
            if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", line):
                return line
    return None


def head(repo: Repo) -> str:
    """Return the commit that the person's HEAD is at. Raises UserError where the repository has no commit."""
    sha = _loose(repo, current_branch(repo)) or resolve(repo, "HEAD")
    if sha is None:
        raise UserError(
            f"{repo.path} has no commit yet, so there is nothing to branch from",
            f"Make the first one: git -C '{repo.path}' add -A && git -C '{repo.path}' commit -m 'Begin'",
        )
    return sha


def identity(repo: Repo) -> Author:
    """Return the person's `user.name` and `user.email` where both are set and usable, else `BOT`."""
    values = dict(item.split("\n", 1) for _, item in _settings(_at(repo)) if "\n" in item)  # the last one wins, as in git
    try:
        return Author(values.get("user.name", ""), values.get("user.email", ""))
    except ValueError:
        return BOT


def default_branch(repo: Repo) -> str:
    """Return the branch that work ends up in: origin's default, `main`, `master`, the current one, or ""."""
    _, out = _git(
        _at(repo), "for-each-ref", "--format=%(refname)%00%(symref)%00%(HEAD)%00",
        "refs/heads", "refs/remotes/origin/HEAD",
    )
    rows = [item.lstrip("\n") for item in _items(out)]
    refs = list(zip(rows[0::3], rows[1::3], rows[2::3], strict=True))
    local = {name.removeprefix("refs/heads/") for name, _, _ in refs if name.startswith("refs/heads/")}
    remote = [to.removeprefix("refs/remotes/origin/") for _, to, _ in refs if to.startswith("refs/remotes/")]
    current = [name.removeprefix("refs/heads/") for name, _, mark in refs if mark == "*"]
    return next((name for name in (*remote, "main", "master", *current) if name in local), "")


def dirty_paths(repo: Repo, limit: int = 50) -> list[str]:
    """Return up to `limit` paths whose changes a worktree at HEAD will not show: uncommitted or untracked.

    Reads only, the index is not refreshed; submodules are not looked into. Untracked folders are one path.
    """
    if repo.is_bare:
        return []
    place = _neutral(_Place(repo.git_dir, repo.path, repo.path, repo.on_call))
    _, changes, _ = _status(place, untracked="normal")
    return [change.path for change in changes][:limit]


def notes(repo: Repo) -> list[str]:
    """Return a sentence for each peculiarity of the repository that a mission's worktree will feel."""
    said = []
    if repo.is_bare:
        said.append("The repository is bare: nobody has it checked out.")
    elif not (repo.git_dir / "HEAD").read_bytes().startswith(b"ref: "):
        said.append("HEAD is detached: the mission begins at that commit, not at a branch.")
    if repo.git_dir != repo.common_dir:
        said.append(f"The folder is a worktree of {repo.common_dir}: the branch appears there too.")
    if repo.is_shallow:
        said.append("The clone is shallow: older history is missing.")
    busy = {"rebase-merge": "rebase", "rebase-apply": "rebase", "MERGE_HEAD": "merge",
            "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert", "BISECT_LOG": "bisect"}
    said += [f"A {what} is in progress in {repo.path}; it is left as it is." for name, what in busy.items()
             if (repo.git_dir / name).exists()]
    if (repo.common_dir / "objects/info/alternates").exists():
        said.append("Some objects are borrowed from another repository (objects/info/alternates).")
    if resolve(repo, "HEAD") is None:
        return [*said, "There is no commit yet."]
    _, out = _git(_at(repo), "ls-tree", "-r", "-z", "HEAD", timeout_s=BULK_TIMEOUT_S)
    rows = [item.split("\t", 1) for item in _items(out)]
    modules = [path for what, path in rows if what.startswith("160000 ")]
    if modules:
        said.append(f"Submodules are empty folders in a worktree: {', '.join(map(ascii, modules[:5]))}.")
    filters = _filters(repo, rows)
    if filters:
        if "lfs" in filters:
            said.append("Files kept with git LFS appear as small pointer files, and must not be edited.")
        said += [f"The filter {name!a} is not run: its files appear as they are stored."
                 for name in filters if name != "lfs"]
    return said


def _filters(repo: Repo, rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the filters that the `.gitattributes` files among these rows of `ls-tree` name."""
    attributes = [what.split(" ")[2] for what, path in rows if path.split("/")[-1] == ".gitattributes"]
    if not attributes:
        return []
    _, out = _git(_at(repo), "cat-file", "--batch", stdin="\n".join([*attributes, ""]).encode())
    words = {word for line in out.decode("utf-8", "replace").splitlines() if not line.startswith("#")
             for word in line.split()[1:]}
    return sorted(word.removeprefix("filter=") for word in words if word.startswith("filter="))


def free_branch(repo: Repo, request_id: str, trace8: str, now: datetime) -> str:
    """Return a branch name that is free: `feat/{request_id}-{trace8}`, with a time added where that is taken.

    A branch named `feat` leaves no room for `feat/…`; then the name begins with `feat-`.
    """
    _, out = _git(_at(repo), "for-each-ref", "--format=%(refname)%00", "refs/heads")
    # On file systems that fold case, `Feat` is in the way of `feat/…` too.
    taken = {item.lstrip("\n").removeprefix("refs/heads/").casefold() for item in _items(out)}
    folders = {"/".join(name.split("/")[:n]) for name in taken for n in range(1, name.count("/") + 1)}
    prefix = "feat-" if "feat" in taken else "feat/"
    wanted = f"{prefix}{request_id}-{trace8}"
    stamped = f"{wanted}-{now.astimezone(UTC):%Y%m%d%H%M%S}"
    names: Iterator[str] = iter((wanted, stamped, *(f"{stamped}-{n}" for n in range(2, len(taken) + 4))))
    return next(name for name in names if name.casefold() not in taken | folders)


# ------------------------------------------------------------------------------------------------- worktrees


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@contextmanager
def _writing(path: Path, timeout_s: float = CALL_TIMEOUT_S) -> Iterator[int]:
    """Hold the lock beside the worktree at `path` and yield its descriptor, which git processes inherit.

    If the daemon dies, its git process keeps the lock until it ends. Raises UserError where that takes too
    long.
    """
    deadline = time.monotonic() + timeout_s
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with _lock_path(path).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"another git process has been working in {path} for {timeout_s:g} s",
                        f"See which: fuser '{_lock_path(path)}'",
                    ) from None
                time.sleep(0.02)
                continue
            # The holder before may have removed the file with its worktree: then this one locks nothing.
            try:
                current = _lock_path(path).stat().st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield file.fileno()
                return


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    """Turn what the system refuses (a full disk, a missing permission) into words for a person."""
    try:
        yield
    except OSError as error:
        raise UserError(f"a worktree cannot be made at {error.filename or path}: {error.strerror}",
                        "Mend that (free some space, give the permission), then try again.") from error


def _inside(wt: Worktree, held: int | None = None) -> _Place:
    """Work in the mission's worktree, by names that we know, with its drivers switched off."""
    return _neutral(_Place(wt.git_dir, wt.path, wt.path, wt.repo.on_call, held=held))


def _registered(repo: Repo, path: Path) -> Path | None:
    """Return the private git directory of the worktree at `path`, as the repository knows it."""
    for pointer in sorted((repo.common_dir / "worktrees").glob("*/gitdir")):
        if os.fsdecode(pointer.read_bytes()).rstrip("\n") == str(path / ".git"):
            return pointer.parent
    return None


def _place_for(repo: Repo, path: Path) -> Path:
    """Return where a worktree asked for at `path` really lies.

    Raises UserError where that is no safe place.
    """
    place = path.parent.resolve() / path.name
    inside = [place.is_relative_to(repo.git_dir), place.is_relative_to(repo.common_dir)]
    if any(inside) or (not repo.is_bare and place.is_relative_to(repo.path)):
        raise UserError(
            f"a worktree cannot lie inside its own repository: {place}",
            "Set PLACET_STATE_HOME to a folder outside of it.", exit_code=2,
        )
    if place.is_symlink():
        raise UserError(f"{place} is a symbolic link, not a folder", f"Look at it, then: rm '{place}'")
    return place


def _register(repo: Repo, path: Path, head_line: str) -> Path:
    """Make the private git directory and the worktree's `.git` file as `git worktree add` does; return it.

    By hand, after gitrepository-layout(5) and in git's own order: the command would start three more
    processes, which read configuration for a branch (`includeIf`) that could not be looked at beforehand.
    """
    stale = repo.common_dir / "worktrees" / path.name
    if stale.is_dir() and not (stale / "gitdir").exists():  # a making of ours that was killed
        shutil.rmtree(stale)
    for n in range(1, 1_000):
        admin = stale if n == 1 else stale.with_name(f"{path.name}{n}")
        with suppress(FileExistsError):
            admin.mkdir(parents=True)
            break
    else:
        raise UserError(f"there are too many worktrees named {path.name} in {repo.common_dir}")
    (admin / "locked").write_text("initializing")  # so that `git worktree prune` leaves it alone
    (admin / "commondir").write_text("../..\n")
    (admin / "HEAD").write_text(f"{head_line}\n")
    _point(path, admin)
    # Last, and whole: from here on the worktree is known.
    (admin / "gitdir.new").write_bytes(os.fsencode(f"{path / '.git'}\n"))
    (admin / "gitdir.new").replace(admin / "gitdir")
    (admin / "locked").unlink()
    return admin


def _point(path: Path, admin: Path) -> None:
    """Make the worktree's folder and its `.git` file, for who runs git in there; nothing here reads it."""
    path.mkdir(exist_ok=True)
    (path / ".git").write_bytes(os.fsencode(f"gitdir: {admin}\n"))


def add_worktree(repo: Repo, path: Path, branch: str, base: str) -> Worktree:
    """Create `branch` at the commit `base` and check it out at `path`; or finish what a killed call began.

    The caller holds the mission's lease; `path` is in the state folder and its last part is the mission's
    own. A branch that exists must descend from `base`; a worktree that was complete is left as it is, with
    its work. An empty `branch` makes none: the worktree is detached at `base`, to be read and removed.
    Raises UserError where `path` is taken or not safe, RepositoryChanged where it belongs to something else.
    """
    good_branch = not branch or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*", branch)
    if not good_branch or not re.fullmatch(r"[0-9a-f]{40,64}", base):
        raise ValueError(f"not a branch and a commit that placet makes: {branch!r}, {base!r}")
    path = _place_for(repo, path)
    with _saying(path), _writing(path) as held:
        admin = _registered(repo, path)
        if admin is None:
            _check_free(path)
            admin = _register(repo, path, Worktree(repo, path, path, branch, base).head)
        elif not path.exists():  # deleted, or a killed removal: what is not in the branch is gone
            (admin / "index").unlink(missing_ok=True)
            _point(path, admin)
        wt = Worktree(repo, path, admin, branch, base)
        _check_head(wt)
        place = _inside(wt, held)
        if not (admin / "index").exists():  # the index is written last, so nothing has been worked on yet
            _remove_locks(wt)
            if branch:
                _attach(wt, place)
            # --reset writes over what a killed attempt had checked out
            _git(place, "read-tree", "--reset", "-u", wt.ref, timeout_s=BULK_TIMEOUT_S)
    return wt


def _check_free(path: Path) -> None:
    """Raise UserError unless `path` is unused, or holds only a `.git` file (a killed call of ours)."""
    if path.exists() and {entry.name for entry in path.iterdir()} - {".git"}:
        raise UserError(
            f"{path} is in the way of a new worktree, and git knows nothing of it",
            f"Look at what is in it, then: rm -r '{path}'",
        )


def _check_head(wt: Worktree) -> None:
    """Raise RepositoryChanged unless the worktree is on its branch, or at its commit where it has none."""
    with suppress(FileNotFoundError):
        if (wt.git_dir / "HEAD").read_text("utf-8", "replace").strip() == wt.head:
            return
    raise RepositoryChanged(f"{wt.path} is no longer at {wt.branch or wt.base[:12]}")


def _check_branch(wt: Worktree) -> None:
    """Raise ValueError for a worktree without a branch, which is only for reading."""
    if not wt.branch:
        raise ValueError(f"{wt.path} has no branch: it is only for reading")


def _attach(wt: Worktree, place: _Place) -> None:
    """Make the branch at the base, unless it is there and descends from it."""
    try:
        _update_ref(place, wt.ref, wt.base, "0" * len(wt.base))
    except RepositoryChanged as error:
        if _git(place, "merge-base", "--is-ancestor", wt.base, wt.ref, ok=(0, 1))[0] != 0:
            what = f"the branch {wt.branch} exists and does not begin at {wt.base[:12]}"
            raise RepositoryChanged(what) from error


def open_worktree(repo: Repo, path: Path, branch: str, base: str) -> Worktree:
    """Return the worktree that `add_worktree` made.

    Raises RepositoryChanged where it is gone, or elsewhere.
    """
    place = _place_for(repo, path)
    admin = _registered(repo, place)
    if admin is None or not (admin / "index").exists() or not place.is_dir():
        raise RepositoryChanged(f"{place} is no longer a worktree of {repo.path}")
    wt = Worktree(repo, place, admin, branch, base)
    _check_head(wt)
    return wt


def _status(place: _Place, untracked: str = "all") -> tuple[str, list[FileChange], bool]:
    """Return HEAD's commit, what differs from it (by path), and whether anything is staged.

    Submodules are not looked into: git would run git in there. A repository that lies in the worktree is
    listed as its plain files, so that a commit holds its content instead of a link to nowhere.
    """
    _, out = _git(
        place, "status", "--porcelain=v2", "-z", "--branch", "--no-ahead-behind", "--no-renames",
        f"--untracked-files={untracked}", "--ignore-submodules=all", timeout_s=BULK_TIMEOUT_S,
    )
    tip, staged = "", False
    found: dict[str, str] = {}
    for item in _items(out):
        match item[0]:
            case "#":
                tip = item.removeprefix("# branch.oid ") if item.startswith("# branch.oid ") else tip
            case "?":
                for path in _files_of(place, item[2:]) if untracked == "all" else [item[2:]]:
                    found[path] = "M" if path in found else "A"
            case "1":
                _, xy, _, was, _, now, _, _, path = item.split(" ", 8)
                staged = staged or xy[0] != "."
                found[path] = _kind(was, now)
            case _:  # unmerged, in the person's checkout: a merge is in progress
                staged = True
                found[item.split(" ", 10)[-1]] = "M"
    return tip, [FileChange(path, kind) for path, kind in sorted(found.items())], staged


def _kind(was: str, now: str) -> str:
    """Return the status letter for two octal modes; `000000` is no file."""
    if int(now, 8) == 0:
        return "D"
    if int(was, 8) == 0:
        return "A"
    return "M" if was[:2] == now[:2] else "T"


def _files_of(place: _Place, path: str) -> list[str]:
    """Return `path`, or the plain files below it where it is a folder (git lists a repository inside so)."""
    if not path.endswith("/"):
        return [path]
    assert place.work_tree is not None
    found: list[str] = []
    for folder, folders, files in os.walk(place.work_tree / path):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [name for name in folders if name.casefold() != ".git"]
        for name in (*files, *links):
            full = Path(folder) / name
            if name.casefold() != ".git" and (full.is_symlink() or full.is_file()):
                found.append(str(full.relative_to(place.work_tree)))
    return found


def status(wt: Worktree) -> list[FileChange]:
    """Return what differs from the branch's last commit: untracked files too, ignored ones not, no counts."""
    _check_head(wt)
    return _status(_inside(wt))[1]


def _stage(place: _Place, changes: Sequence[FileChange]) -> str:
    """Put these paths, as they are now, into the index and return the tree that it makes."""
    gone = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status == "D")
    here = b"".join(os.fsencode(change.path) + b"\0" for change in changes if change.status != "D")
    if gone:  # first and by force: git refuses to look for a deleted file where its folder became a link
        _git(place, "update-index", "--force-remove", "-z", "--stdin", stdin=gone, timeout_s=BULK_TIMEOUT_S)
    if here:
        options = ("--add", "--replace", "-z", "--stdin")
        _git(place, "update-index", *options, stdin=here, timeout_s=BULK_TIMEOUT_S)
    return _text(_git(place, "write-tree")[1])


def _commit_tree(
    place: _Place, tree: str, parent: str | None, message: str, author: Author, committer: Author,
    when: datetime,
) -> str:
    stamp = f"@{int(when.timestamp())} +0000"
    env = {
        "GIT_AUTHOR_NAME": author.name, "GIT_AUTHOR_EMAIL": author.email, "GIT_AUTHOR_DATE": stamp,
        "GIT_COMMITTER_NAME": committer.name, "GIT_COMMITTER_EMAIL": committer.email,
        "GIT_COMMITTER_DATE": stamp,
    }
    parents = () if parent is None else ("-p", parent)
    text = message.encode("utf-8", "replace")
    return _text(_git(_with(place, env), "commit-tree", tree, *parents, "-F", "-", stdin=text)[1])


def _update_ref(place: _Place, ref: str, new: str, old: str) -> None:
    """Move `ref` from `old` (zeros: must not exist) to `new`; RepositoryChanged where it is elsewhere."""
    try:
        _git(place, "update-ref", "-m", "placet", ref, new, old)
    except GitError as error:
        _, out = _git(place, "for-each-ref", "--format=%(objectname)", ref)
        if (_text(out) or "0" * len(old)) != old:
            raise RepositoryChanged(f"{ref} was moved by somebody else") from error
        raise


def _chosen(path: str, paths: Sequence[str]) -> bool:
    return any(path == wanted or path.startswith(f"{wanted.rstrip('/')}/") for wanted in paths)


def commit(
    wt: Worktree, message: str, author: Author, when: datetime, *, paths: Sequence[str] | None = None,
    committer: Author = BOT,
) -> str | None:
    """Commit the worktree's changes (only those at or under `paths`, where given) and return the new commit.

    None where nothing changed: there are no empty commits, and a commit that was made before a crash is not
    made twice. The branch is moved by compare-and-swap. Raises RepositoryChanged where somebody else moved
    it.
    """
    _check_branch(wt)
    with _writing(wt.path) as held:
        _check_head(wt)
        place = _inside(wt, held)
        tip, changes, staged = _since_tip(wt, place)
        if staged:  # a killed call: begin from the last commit, so that only what is asked for goes in
            _git(place, "read-tree", "--reset", tip)
            tip, changes, _ = _status(place)
        chosen = [change for change in changes if paths is None or _chosen(change.path, paths)]
        if not chosen:
            return None
        tree = _stage(place, chosen)
        new = _commit_tree(place, tree, tip, message, author, committer, when)
        _update_ref(place, wt.ref, new, tip)
    return new


def _since_tip(wt: Worktree, place: _Place) -> tuple[str, list[FileChange], bool]:
    """Return what `_status` does. Raises RepositoryChanged where the branch is gone."""
    found = _status(place)
    if found[0] == "(initial)":
        raise RepositoryChanged(f"the branch {wt.branch} was deleted by somebody else")
    return found


def _snapshot(wt: Worktree, place: _Place) -> tuple[str, str]:
    """Return the branch's commit and the tree of everything in the worktree; its index is left alone."""
    tip, changes, _ = _since_tip(wt, place)
    index = wt.git_dir / "placet-index"
    try:
        # With its time: git distrusts an entry as young as the index; a younger copy would hide a change of
        # the same size made within the second of the check-out.
        shutil.copy2(wt.git_dir / "index", index)
        return tip, _stage(_with(place, {"GIT_INDEX_FILE": str(index)}), changes)
    finally:
        index.unlink(missing_ok=True)


def snapshot(wt: Worktree) -> str:
    """Return the tree of everything in the worktree (untracked files too, ignored not), on no reference."""
    with _writing(wt.path) as held:
        _check_head(wt)
        return _snapshot(wt, _inside(wt, held))[1]


def checkpoint(wt: Worktree, ref: str, message: str, when: datetime) -> str:
    """Keep everything in the worktree (untracked files too, ignored not) as a commit at `ref`; return it.

    The commit is the branch's own where nothing is uncommitted, else a child of it. Branch and index stay as
    they are. `ref` must be `refs/placet/…`, and is moved where it exists.
    """
    with _writing(wt.path) as held:
        _check_head(wt)
        return _checkpoint(wt, _inside(wt, held), ref, message, when)


def _checkpoint(wt: Worktree, place: _Place, ref: str, message: str, when: datetime) -> str:
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    tip, tree = _snapshot(wt, place)
    _, out = _git(place, "for-each-ref", "--format=%(objectname) %(tree) %(parent)", ref)
    old, old_tree, old_parent = (*_text(out).split(" "), "", "", "")[:3]
    if old_tree == tree and tip in (old, old_parent):
        return old
    if _text(_git(place, "rev-parse", f"{tip}^{{tree}}")[1]) == tree:
        new = tip
    else:
        new = _commit_tree(place, tree, tip, message, BOT, BOT, when)
    _update_ref(place, ref, new, old or "0" * len(new))
    return new


def restore(wt: Worktree, kept: str) -> None:
    """Make the worktree's files those of `kept`, a checkpoint; the branch stays where it is.

    Files that the checkpoint lacks are deleted, ignored ones are not: take a checkpoint first.
    """
    with _writing(wt.path) as held:
        _check_head(wt)
        place = _inside(wt, held)
        _git(place, "read-tree", "--reset", "-u", kept, timeout_s=BULK_TIMEOUT_S)
        _git(place, "clean", "-d", "-f", "-f", "-q", timeout_s=BULK_TIMEOUT_S)
        _git(place, "read-tree", "--reset", wt.ref)


def kept_refs(repo: Repo) -> list[tuple[str, str, datetime]]:
    """Return placet's own references in a repository: name, commit, and when that was made."""
    _, out = _git(_at(repo), "for-each-ref", "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00", "refs/placet")
    rows = [item.lstrip("\n") for item in _items(out)]
    return [(name, sha, datetime.fromtimestamp(int(at), UTC))
            for name, sha, at in zip(rows[0::3], rows[1::3], rows[2::3], strict=True) if at]


def let_go(repo: Repo, ref: str, sha: str) -> bool:
    """Delete one of placet's own references, which is at `sha`, if a branch has all that it keeps; say whether it did."""
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    if not contained_in(repo, sha):
        return False
    _git(_at(repo), "update-ref", "-d", ref, sha)
    return True


def delete_ref(repo: Repo, ref: str) -> None:
    """Delete one of placet's own references; nothing where it is gone already."""
    if not ref.startswith("refs/placet/"):
        raise ValueError(f"not a reference of placet's own: {ref!r}")
    (repo.common_dir / f"{ref}.lock").unlink(missing_ok=True)
    _git(_at(repo), "update-ref", "-d", ref)


def _remove_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "placet-index", "placet-index.lock"):
        (wt.git_dir / name).unlink(missing_ok=True)
    for ref in (wt.ref, *refs):
        (wt.repo.common_dir / f"{ref}.lock").unlink(missing_ok=True)


def clear_stale_locks(wt: Worktree, refs: Sequence[str] = ()) -> None:
    """Remove lock files that a killed git left: in the worktree's private directory, and of its branch.

    `refs` are further references that are this mission's alone. The caller holds the lease; a git process
    that is still at work is waited for. No lock of the person's is ever touched.
    """
    if not all(ref.startswith("refs/placet/") for ref in refs):
        raise ValueError(f"not references of placet's own: {refs!r}")
    with _writing(wt.path):
        _remove_locks(wt, refs)


def _delete(wt: Worktree) -> None:
    """Delete the worktree and what git knows of it; finishes what a killed call began.

    It is first renamed, so that a half-deleted worktree is never taken for a mission's work.
    """
    gone = wt.path.with_name(f"{wt.path.name}.removed")
    _delete_tree(gone)
    with suppress(FileNotFoundError):
        wt.path.rename(gone)
    _delete_tree(gone)
    if wt.git_dir.is_dir():
        (wt.git_dir / "locked").unlink(missing_ok=True)
        _delete_tree(wt.git_dir)
        with suppress(OSError):  # other worktrees are in it
            wt.git_dir.parent.rmdir()
    _lock_path(wt.path).unlink(missing_ok=True)


def _delete_tree(path: Path) -> None:
    """Delete a folder, also where its folders are not writable; symbolic links in it are not followed."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(0o700)
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    Path(entry.path).chmod(0o700)
        shutil.rmtree(path)


def remove_worktree(wt: Worktree, kept: str | None = None) -> None:
    """Remove the worktree; the branch stays. Does nothing where it is gone already.

    Raises WorkNotKept where it has uncommitted work, unless the commit `kept` holds exactly what is in it.
    Ignored files are deleted with it.
    """
    with _writing(wt.path) as held:
        if wt.path.exists() and (wt.git_dir / "index").exists():
            place = _inside(wt, held)
            if kept is None:
                _, changes, _ = _status(place)
                if changes:
                    raise WorkNotKept(wt.path, [change.path for change in changes])
            elif _snapshot(wt, place)[1] != _text(_git(place, "rev-parse", f"{kept}^{{tree}}")[1]):
                raise WorkNotKept(wt.path, [change.path for change in _status(place)[1]])
        _delete(wt)


def roll_back(wt: Worktree, keep_ref: str, message: str, when: datetime) -> str | None:
    """Undo a failed attempt: what it did is kept at `keep_ref`, its branch is deleted, its worktree removed.

    Returns the kept commit, None where nothing had been done. `message` is of the commit that holds what was
    uncommitted. Calling it again after a crash finishes the job.
    """
    _check_branch(wt)
    with _writing(wt.path) as held:
        _remove_locks(wt, (keep_ref,))
        kept = resolve(wt.repo, keep_ref)
        if wt.path.exists() and (wt.git_dir / "index").exists():
            place = _inside(wt, held)
            if resolve(wt.repo, wt.ref) is None:  # deleted by somebody else; the files are still here
                _update_ref(place, wt.ref, wt.base, "0" * len(wt.base))
            (wt.git_dir / "HEAD").write_text(f"{wt.head}\n")  # a mission may have switched away
            at, changes, _ = _status(place)
            if at != wt.base or kept is not None or changes:
                kept = _checkpoint(wt, place, keep_ref, message, when)
        tip = resolve(wt.repo, wt.ref)
        if tip is not None and tip != wt.base and kept is None:  # the worktree is lost, the commits are not
            kept = tip
            _update_ref(_at(wt.repo), keep_ref, tip, "0" * len(tip))
        _delete(wt)
        if tip is not None:
            _git(_at(wt.repo), "update-ref", "-d", wt.ref, tip)
    return kept


def is_worktree_of(repo: Repo, path: Path) -> bool:
    """Say whether the repository knows a worktree at `path`."""
    return _registered(repo, path.parent.resolve() / path.name) is not None


def remove_leftover(repo: Repo, path: Path, ref: str, when: datetime) -> str:
    """Remove a worktree of ours that a crash left; return the commit, at `ref`, that keeps what was in it, empty for nothing.

    Commits that only its HEAD has are kept too. Raises WorkNotKept where what is in it is not at `ref` afterwards.
    """
    place = _place_for(repo, path)
    admin = _registered(repo, place)
    if admin is None:
        raise RepositoryChanged(f"{place} is no longer a worktree of {repo.path}")
    line = (admin / "HEAD").read_text("utf-8", "replace").strip()
    tip = resolve(repo, line.removeprefix("ref: "))
    branch = line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""
    wt = Worktree(repo, place, admin, branch, tip or "")
    if tip is None or not (admin / "index").exists() or not place.exists():
        if place.exists() and any(entry.name != ".git" for entry in place.iterdir()):
            raise WorkNotKept(place, sorted(entry.name for entry in place.iterdir()))
        with _writing(place):
            _delete(wt)
        return ""
    with _writing(place) as held:
        _remove_locks(wt)
        inside = _inside(wt, held)
        _, found, _ = _status(inside)
        kept = _checkpoint(wt, inside, ref, "Left over from a crash", when) if found or not contained_in(repo, tip) else ""
    remove_worktree(wt, kept or None)
    return kept


def pins(wt: Worktree) -> Pins:
    """Return digests of what decides how git behaves here: configuration, hooks, attributes and pointers.

    Left out of the configuration is what a person's everyday work changes and placet never uses: `branch.*`,
    `remote.*`, `user.*`.
    """
    place = _Place(wt.git_dir, wt.path, wt.path, wt.repo.on_call)
    local = [item for scope, item in _settings(place) if scope in ("local", "worktree")]
    used = [item for item in local if not item.startswith(("branch.", "remote.", "user."))]
    common = wt.repo.common_dir
    named = {
        "configuration": _digest("\0".join(used).encode("utf-8", "surrogateescape")),
        "hooks": _digest(b"".join(_stamp(hook) for hook in sorted((common / "hooks").glob("*")))),
    }
    for path in (common / "info/attributes", common / "info/grafts", common / "objects/info/alternates",
                 wt.git_dir / "info/attributes", wt.git_dir / "gitdir", wt.git_dir / "commondir",
                 wt.git_dir / "HEAD", wt.path / ".git"):
        named[str(path)] = _digest(_stamp(path))
    return Pins(tuple(named.items()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamp(path: Path) -> bytes:
    """Return name, kind, executable bit and content of a file as bytes to digest; a link is not followed."""
    if path.is_symlink():
        return b"link " + os.fsencode(path) + b"\0" + os.fsencode(path.readlink()) + b"\0"
    if not path.is_file():
        return b"other " + os.fsencode(path) + b"\0"
    mode = b"x" if path.stat().st_mode & 0o111 else b"-"
    return mode + os.fsencode(path) + b"\0" + path.read_bytes() + b"\0"


def check_pins(wt: Worktree, pinned: Pins) -> None:
    """Raise RepositoryChanged, naming what, unless everything is as it was when `pinned` was taken."""
    before, now = dict(pinned.digests), dict(pins(wt).digests)
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if changed:
        raise RepositoryChanged(f"changed while the mission ran: {', '.join(changed)}")


# --------------------------------------------------------------------------------------------------- reading


def changes(repo: Repo, base: str, head: str) -> list[FileChange]:
    """Return what differs between two commits, in git's order, with counted lines.

    A rename is its D and its A.
    """
    _, out = _git(
        _at(repo), "diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff",
        "--no-textconv", "--end-of-options", base, head,
    )
    statuses: dict[str, str] = {}
    found = []
    items = iter(_items(out))
    for item in items:
        if item.startswith(":"):
            statuses[next(items)] = item.split(" ")[4][0]
        else:
            added, deleted, path = item.split("\t", 2)
            binary = added == "-"
            found.append(FileChange(path, statuses[path], None if binary else int(added),
                                    None if binary else int(deleted)))
    return found


def diff_text(
    repo: Repo, base: str, head: str, *, paths: Sequence[str] = (), max_bytes: int = 1_000_000,
) -> str:
    """Return the difference between two commits as a patch; cut after `max_bytes`, and then it says so.

    What is not UTF-8 is replaced: this is for reading.
    """
    _, out = _git(
        _at(repo), "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv",
        "--end-of-options", base, head, "--", *paths,
        config=(f"core.bigFileThreshold={_MAX_DIFFED_BYTES}",), max_bytes=max_bytes + 1,
    )
    text = out[:max_bytes].decode("utf-8", "replace")
    return text if len(out) <= max_bytes else f"{text.rstrip(chr(0xFFFD))}\n… (cut after {max_bytes} bytes)\n"


def content(repo: Repo, commit: str, path: str, *, max_bytes: int) -> bytes:
    """Return a file of a commit as it is stored, empty where there is none; no more than `max_bytes` of it."""
    code, out = _git(_at(repo), "cat-file", "blob", f"{commit}:{path}", ok=(0, 128), max_bytes=max_bytes)
    return out if code in (0, -9) else b""


def paths_at(repo: Repo, rev: str) -> list[str]:
    """Return the paths of all files of a commit."""
    _, out = _git(_at(repo), "ls-tree", "-r", "-z", "--name-only", "--end-of-options", rev, timeout_s=BULK_TIMEOUT_S)
    return _items(out)


def digests_at(repo: Repo, rev: str, paths: Sequence[str]) -> dict[str, str]:
    """Return git's digests of these files in a commit, by path; what is no file there is left out."""
    if not paths:
        return {}
    wanted = frozenset(paths)
    _, out = _git(_at(repo), "ls-tree", "-z", "--full-tree", "--end-of-options", rev, "--", *wanted)
    rows = (item.split("\t", 1) for item in _items(out))
    return {path: what.split(" ")[2] for what, path in rows if path in wanted and what.split(" ")[1] == "blob"}


def tip_now(repo: Repo, branch: str) -> str:
    """Return the commit that a branch of the person's is at; HEAD's where it is gone, or none is named."""
    if sha := _loose(repo, branch):
        return sha
    return (resolve(repo, f"refs/heads/{branch}") if branch else None) or head(repo)


def log(repo: Repo, base: str, head: str) -> list[Commit]:
    """Return the commits of `head` that `base` does not have, newest first."""
    _, out = _git(
        _at(repo), "log", "-z", "--format=%H%x00%s%x00%an%x00%ct", "--no-notes", "--no-mailmap",
        "--end-of-options", head, f"^{base}",
    )
    rows = out.decode("utf-8", "replace").split("\0")
    return [Commit(sha, subject, author, datetime.fromtimestamp(int(at), UTC))
            for sha, subject, author, at in zip(rows[0::4], rows[1::4], rows[2::4], rows[3::4], strict=False)]


def ahead_behind(repo: Repo, branch: str, base_branch: str) -> tuple[int, int]:
    """Return how many commits `branch` has that `base_branch` lacks, and the other way round."""
    both = f"refs/heads/{branch}...refs/heads/{base_branch}"
    _, out = _git(_at(repo), "rev-list", "--left-right", "--count", both, "--")
    ahead, behind = out.split()
    return int(ahead), int(behind)


def merge_preview(repo: Repo, ours: str, theirs: str) -> list[str]:
    """Return the paths that would conflict if `theirs` were merged into `ours`; changes no ref or file.

    Attributes in the tree (`merge=union`) are not consulted, and a file with a merge driver of the repository's
    own counts as conflicting where both sides changed it: it foresees too many conflicts rather than too few.
    """
    code, out = _git(
        _neutral(_at(repo)), "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages",
        "--end-of-options", ours, theirs, ok=(0, 1),
    )
    return [] if code == 0 else sorted({path for path in _items(out)[1:] if path})


def traced_work(repo: Repo, refs: str = "refs/heads/feat*") -> dict[str, tuple[str, str]]:
    """Return the work of each trace below the references `refs` (a glob): the commit it starts from ("" for none), its last.

    Only the trailer block counts, not a line of the text that looks like one.
    """
    _, out = _git(
        _at(repo), "log", "-z", "--format=%H%x00%P%x00%(trailers:key=Placet-Trace,valueonly,separator=%x01)",
        "--no-notes", "--fixed-strings", "--grep=Placet-Trace: ", f"--glob={refs}", timeout_s=BULK_TIMEOUT_S,
    )
    rows = out.decode("utf-8", "replace").split("\0")
    found: dict[str, tuple[str, str]] = {}
    for sha, parents, values in zip(rows[0::3], rows[1::3], rows[2::3], strict=False):
        for trace in filter(None, values.split("\x01")):
            found[trace] = (parents.partition(" ")[0], found[trace][1] if trace in found else sha)
    return found


def references(repo: Repo) -> str:
    """Return every branch, of the person and of remotes, with its commit, as one comparable text."""
    _, out = _git(_at(repo), "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/remotes")
    return hashlib.sha256(out).hexdigest()


def contained_in(repo: Repo, sha: str) -> bool:
    """Say whether any branch, of the person or of a remote, has this commit."""
    if resolve(repo, sha) is None:
        return False
    _, out = _git(_at(repo), "for-each-ref", "--count=1", f"--contains={sha}", "refs/heads", "refs/remotes")
    return bool(out)


def is_ancestor(repo: Repo, sha: str, target: str) -> bool:
    """Say whether `target` has the commit `sha` in its history."""
    return _git(_at(repo), "merge-base", "--is-ancestor", sha, target, ok=(0, 1))[0] == 0


def merge_base(repo: Repo, one: str, other: str) -> str | None:
    """Return the best common ancestor of two commits, None where they have none."""
    code, out = _git(_at(repo), "merge-base", one, other, ok=(0, 1))
    return _text(out) if code == 0 else None


def merged_by(repo: Repo, tip: str, target: str) -> str:
    """Return the commit that brought `tip`, an ancestor of `target`, to target's own line: a merge, or `tip` where it is on it."""
    _, out = _git(_at(repo), "rev-list", "--ancestry-path", "--end-of-options", f"{tip}..{target}", timeout_s=BULK_TIMEOUT_S)
    above = set(out.decode().split())
    _, out = _git(_at(repo), "rev-list", "--first-parent", "--parents", "--end-of-options", target, f"^{tip}",
                  timeout_s=BULK_TIMEOUT_S)
    rows = [row.split() for row in out.decode().splitlines()]
    oldest = [row for row in rows if row[0] in above][-1:]
    return oldest[0][0] if oldest and oldest[0][1] != tip else tip


def same_patches(repo: Repo, since: str, tip: str, target: str) -> str:
    """Return the newest commit of `since..target` that repeats the changes of `since..tip`; empty where none does.

    Either all of its commits one by one (rebase, cherry-pick) or all of them as one (squash); by patch-id, so that where
    a change lies in a file does not matter.
    """
    branch = _patch_ids(repo, "log", f"{since}..{tip}")
    there = _patch_ids(repo, "log", f"{since}..{target}")
    if branch and branch.keys() <= there.keys():
        shas = {there[patch] for patch in branch}
        return next(sha for sha in there.values() if sha in shas)
    whole = _patch_ids(repo, "diff-tree", since, tip)
    return next((there[patch] for patch in whole if patch in there), "")


def _patch_ids(repo: Repo, *command: str) -> dict[str, str]:
    """Return patch-ids with their commits, in the order of the command's patches."""
    name, *rest = command
    shape = ("--format=commit %H", "--no-notes", "--no-show-signature", "--no-merges") if name == "log" else ("-r",)
    _, patches = _git(_at(repo), name, "-p", *shape, "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index",
                      "--end-of-options", *rest, timeout_s=BULK_TIMEOUT_S)
    _, out = _git(_at(repo), "patch-id", "--stable", stdin=patches or b"\n")
    rows = [line.split() for line in out.decode().splitlines()]
    return {row[0]: row[1] for row in rows}


def commits_with_trailer(repo: Repo, key: str, value: str, target: str, since: str) -> list[str]:
    """Return the commits of `target` (without those of `since`, where given) that have the trailer, newest first."""
    _, out = _git(
        _at(repo), "log", "-z", f"--format=%H%x00%(trailers:key={key},valueonly,separator=%x01)", "--no-notes",
        "--fixed-strings", f"--grep={key}: {value}", "--end-of-options", target, *([f"^{since}"] if since else []),
        timeout_s=BULK_TIMEOUT_S,
    )
    rows = out.decode("utf-8", "replace").split("\0")
    return [sha for sha, values in zip(rows[0::2], rows[1::2], strict=False) if value in values.split("\x01")]


def signs_commits(repo: Repo) -> bool:
    """Say whether the person's git is set to sign commits."""
    # With its scope, since the runner's own override would be the answer otherwise.
    _, out = _git(_at(repo), "config", "-z", "--type=bool", "--show-scope", "--get-all", "commit.gpgSign", ok=(0, 1, 128))
    items = _items(out)
    said = [value for scope, value in zip(items[0::2], items[1::2], strict=False) if scope != "command"]
    return said[-1:] == ["true"]


# ------------------------------------------------------------------------------------- the person's checkout
# Only for a person's own command (`placet merge`, `placet undo`); no mission gets here.


class Conflicts(PlacetError):  # noqa: N818 - named for what is the case
    """A merge or a revert conflicts in `paths`; the checkout is as it was."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"conflicts in {', '.join(map(ascii, paths[:5]))}")
        self.paths = tuple(paths)


def current_branch(repo: Repo) -> str:
    """Return the branch that the person has checked out, empty where HEAD is detached."""
    line = (repo.git_dir / "HEAD").read_text("utf-8", "surrogateescape").strip()
    return line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""


def not_ready(repo: Repo, rev: str) -> str:
    """Return why the person's checkout must not be worked in, to bring `rev` in or take it out; empty where it may.

    Untracked files are no reason by themselves; one that would be written over is, ignored or not.
    """
    if repo.is_bare:
        return f"{repo.path} is bare: there is no checkout to merge in."
    if not current_branch(repo):
        return f"HEAD is detached in {repo.path}: there is no branch to merge into."
    if (repo.git_dir / "index.lock").exists():
        return f"git is at work in {repo.path}, or was killed there (index.lock)."
    for name, what in (("rebase-merge", "rebase"), ("rebase-apply", "rebase"), ("MERGE_HEAD", "merge"),
                       ("CHERRY_PICK_HEAD", "cherry-pick"), ("REVERT_HEAD", "revert"), ("BISECT_LOG", "bisect"),
                       ("sequencer", "cherry-pick or revert")):
        if (repo.git_dir / name).exists():
            return f"A {what} is in progress in {repo.path}."
    _, changed, _ = _status(_neutral(_Place(repo.git_dir, repo.path, repo.path, repo.on_call)), untracked="no")
    if changed:
        return f"{repo.path} has uncommitted changes: {', '.join(ascii(c.path) for c in changed[:5])}."
    rows = [item.split("\t", 1) for at in ("HEAD", rev)
            for item in _items(_git(_at(repo), "ls-tree", "-r", "-z", "--end-of-options", at, timeout_s=BULK_TIMEOUT_S)[1])]
    if _filters(repo, rows):
        return f"Files of {repo.path} pass through a filter (git LFS or another), which placet does not run."
    return ""


def _in_checkout(repo: Repo, branch: str, when: datetime) -> _Place:
    """Work in the person's checkout, as the person, with drivers, hooks and options of the branch switched off."""
    place = _neutral(_Place(repo.git_dir, repo.path, repo.path, repo.on_call))
    count = int(place.env["GIT_CONFIG_COUNT"])
    # In the environment, not by -c, which splits at the first `=`: a branch's name may have one.
    settings = ((f"branch.{branch}.mergeOptions", ""), ("rerere.enabled", "false"), ("merge.autoStash", "false"))
    env = {"GIT_CONFIG_COUNT": str(count + len(settings))}
    for n, (key, value) in enumerate(settings, count):
        env |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    who, stamp = identity(repo), f"@{int(when.timestamp())} +0000"
    for role in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{role}_NAME": who.name, f"GIT_{role}_EMAIL": who.email, f"GIT_{role}_DATE": stamp}
    return _with(place, env)


def _must_not_cover(repo: Repo, tree: str) -> None:
    """Raise UserError where files of `tree` that HEAD lacks lie in the checkout already: git writes over ignored ones."""
    for change in changes(repo, "HEAD", tree):
        path = repo.path / change.path
        inside = [repo.path / parent for parent in Path(change.path).parents if parent != Path()]
        if change.status == "A" and (os.path.lexists(path) or any(p.is_symlink() or p.is_file() for p in inside)):
            raise UserError(f"{path} is in the way: it is in no commit, and would be written over.", "Move it away first.")


def merge_into_checkout(repo: Repo, branch: str, tip: str, message: str, when: datetime) -> str:
    """Merge the commit `tip` into the person's `branch`, which is checked out, with a merge commit; return it.

    The caller has seen that the checkout is ready. Raises Conflicts, UserError (a file in the way) or GitError; then the
    checkout is as it was.
    """
    _must_not_cover(repo, tip)
    place = _in_checkout(repo, branch, when)
    code, _ = _git(place, "merge", "--no-ff", "--no-edit", "--commit", "--no-squash", "--no-log", "--no-stat", "--no-signoff",
                   "--no-verify-signatures", "--no-autostash", "-s", "ort", "-q", "-m", message, tip, ok=(0, 1),
                   timeout_s=BULK_TIMEOUT_S)
    if code != 0:
        paths = _unmerged(place)
        if (repo.git_dir / "MERGE_HEAD").exists():
            _git(place, "merge", "--abort", timeout_s=BULK_TIMEOUT_S)
        if not paths:
            raise GitError(("merge", tip), code, "git refused; nothing was changed")
        raise Conflicts(paths)
    return head(repo)


def _unmerged(place: _Place) -> list[str]:
    _, out = _git(place, "diff", "--name-only", "--diff-filter=U", "-z", "--no-ext-diff", "--no-textconv")
    return sorted(set(_items(out)))


def brought_in(repo: Repo, base: str, tip: str, trace_id: str, sha: str) -> list[str]:
    """Return the commits to take back, newest first, where `sha` is the commit by which a mission's branch was merged."""
    _, out = _git(_at(repo), "rev-list", "--parents", "-n", "1", "--end-of-options", sha)
    if len(out.split()) > 2 or resolve(repo, tip) is None:
        return [sha]
    if sha == tip:
        return _text(_git(_at(repo), "rev-list", "--end-of-options", f"{base}..{tip}")[1]).split()
    since = merge_base(repo, tip, sha) or base
    wanted = _patch_ids(repo, "log", f"{base}..{tip}")
    there = _patch_ids(repo, "log", f"{since}..{sha}")
    if wanted.keys() <= there.keys():
        return [commit for patch, commit in there.items() if patch in wanted]
    if any(patch in there for patch in _patch_ids(repo, "diff-tree", base, tip)):
        return [sha]
    return commits_with_trailer(repo, "Placet-Trace", trace_id, sha, since) or [sha]


def revert_in_checkout(repo: Repo, branch: str, commits: Sequence[str], message: str, when: datetime) -> str:
    """Take these commits (newest first) back by one new commit on the person's `branch`, which is checked out; return it.

    Raises Conflicts, UserError (a file in the way) or GitError; then the checkout is as it was.
    """
    for sha in commits:  # what was deleted comes back, and must not be written over something new
        _must_not_cover(repo, f"{sha}^1")
    place = _in_checkout(repo, branch, when)
    before = head(repo)
    try:
        for sha in commits:
            _, out = _git(place, "rev-list", "--parents", "-n", "1", "--end-of-options", sha)
            mainline = ("-m", "1") if len(out.split()) > 2 else ()
            code, _ = _git(place, "revert", "--no-commit", "--no-edit", *mainline, sha, ok=(0, 1), timeout_s=BULK_TIMEOUT_S)
            if code != 0:
                raise Conflicts(_unmerged(place))
        tree = _text(_git(place, "write-tree")[1])
        if tree == _text(_git(place, "rev-parse", f"{before}^{{tree}}")[1]):
            raise GitError(("revert", *commits), 1, "it was taken back already")
        author = identity(repo)
        new = _commit_tree(place, tree, before, message, author, author, when)
        _update_ref(place, f"refs/heads/{branch}", new, before)
    except PlacetError:
        _git(place, "read-tree", "--reset", "-u", before, timeout_s=BULK_TIMEOUT_S)
        _git(place, "revert", "--quit", ok=(0, 128))
        raise
    _git(place, "revert", "--quit", ok=(0, 128))
    return new


def is_checked_out(repo: Repo, branch: str) -> bool:
    """Say whether the person's checkout, or another worktree, is on this branch."""
    _, out = _git(_at(repo), "worktree", "list", "--porcelain", "-z")
    return f"branch refs/heads/{branch}" in _items(out)


def drop_branch(repo: Repo, branch: str, tip: str, keep_ref: str) -> None:
    """Delete a mission's branch that is at `tip`; its commits stay reachable at `keep_ref`.

    Raises RepositoryChanged where it is checked out somewhere, or was moved.
    """
    if is_checked_out(repo, branch):
        raise RepositoryChanged(f"{branch} is checked out")
    old = resolve(repo, keep_ref)
    _update_ref(_at(repo), keep_ref, tip, old or "0" * len(tip))
    _git(_at(repo), "update-ref", "-d", f"refs/heads/{branch}", tip)


# ----------------------------------------------------------------------------------------------- the message


def commit_message(subject: str, body: str, trace_id: str, plan_digest: str, approved_by: str, co_author: str = "") -> str:
    """Return a commit message: subject, body, `[ExoTrace: …]`, trailers, with a blank line between each two.

    `co_author` is a name for a `Co-authored-by` trailer with placet's address; there is none where it is empty.

    The subject is one line of at most 72 characters. Control characters are dropped, and a line that git
    would take for the end of the message (`---`) is moved in by a space, so that `git interpret-trailers`
    finds the trailers.
    """
    line = _one_line(subject).lstrip("-# ") or "Carry out the plan"
    if len(line) > _SUBJECT_LENGTH:
        line = line[: _SUBJECT_LENGTH - 1].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"
    text = "\n".join(_printable(part).rstrip() for part in body.splitlines()).strip("\n")
    text = re.sub(r"^---", " ---", text, flags=re.MULTILINE)
    trailers = (f"Placet-Trace: {_one_line(trace_id)}", f"Placet-Plan: {_one_line(plan_digest)}",
                f"Approved-By: {_one_line(approved_by)}",
                *([f"Co-authored-by: {re.sub('[<>]', '', _one_line(co_author))} <{BOT.email}>"] if co_author else []))
    parts = [line, *([text] if text else []), f"[ExoTrace: {_one_line(trace_id)}]", "\n".join(trailers)]
    return "\n\n".join(parts) + "\n"


def _printable(text: str) -> str:
    """Return one line of text without control characters (a tab is kept) and without lone surrogates."""
    plain = text.encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", plain)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split())).strip()


# -------------------------------------------------------------------------------------------- a first commit

_INIT_FOLDER = ".placet-init"


def init_repo(
    path: Path, *, excludes: Sequence[str], author: Author, message: str, when: datetime,
    on_call: OnCall | None = None,
) -> tuple[Repo, str]:
    """Make `path` a repository with an initial commit of what is there, and return it with that commit.

    `excludes` are gitignore patterns that go into `.git/info/exclude` and stay out of the commit. A
    repository that has commits is returned as it is. A new one is built aside (`.placet-init`) and put in
    place whole by one rename; so a killed call leaves either nothing or all of it, and the next call begins
    again. Raises UserError where there is a repository without a commit but with staged files: that commit is
    the person's to make.
    """
    top = path.resolve()
    if any("\n" in line for line in excludes):
        raise ValueError("a pattern to exclude is one line")
    building = top / _INIT_FOLDER
    if building.is_dir() and not building.is_symlink():
        _delete_tree(building)
    if is_repository(top):
        repo = open_repo(top, on_call=on_call)
        sha = resolve(repo, "HEAD")
        if sha is None:
            if repo.is_bare:
                raise UserError(f"{top} is a bare repository without a commit", "Push a first commit to it.")
            sha = _first_commit(repo, excludes, author, message, when)
        else:
            _put_index(repo)
        return repo, sha
    building.mkdir()
    outside = _Place(None, None, building, on_call)
    _, out = _git(outside, "config", "--get", "init.defaultBranch", ok=(0, 1))
    branch = _text(out) or "main"
    _git(outside, "init", "-q", "--template=", f"--initial-branch={branch}", "--", str(building))
    made = Repo(top, building / ".git", building / ".git", is_bare=False, is_shallow=False, on_call=on_call)
    sha = _first_commit(made, excludes, author, message, when)
    made.git_dir.rename(top / ".git")
    building.rmdir()
    return open_repo(top, on_call=on_call), sha


def _first_commit(repo: Repo, excludes: Sequence[str], author: Author, message: str, when: datetime) -> str:
    """Commit what is there as the repository's first commit, and return it."""
    place = _Place(repo.git_dir, repo.path, repo.path, repo.on_call)
    if _git(place, "ls-files", "-z")[1]:
        raise UserError(
            f"{repo.path} has staged files but no commit yet", f"Finish it: git -C '{repo.path}' commit",
        )
    exclude = repo.common_dir / "info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    present = exclude.read_bytes() if exclude.exists() else b""
    missing = [os.fsencode(line) for line in excludes if os.fsencode(line) not in present.splitlines()]
    if missing:
        new = exclude.with_name("exclude.placet")
        joint = b"" if not present or present.endswith(b"\n") else b"\n"
        new.write_bytes(present + joint + b"\n".join(missing) + b"\n")
        new.replace(exclude)
    index = repo.git_dir / "placet-index"
    for left in (index, index.with_name("placet-index.lock")):
        left.unlink(missing_ok=True)
    place = _with(_neutral(place), {"GIT_INDEX_FILE": str(index)})
    _git(place, "read-tree", "--empty")
    _, found, _ = _status(place)
    tree = _stage(place, [change for change in found if not change.path.startswith(f"{_INIT_FOLDER}/")])
    sha = _commit_tree(place, tree, None, message, author, author, when)
    _update_ref(place, "HEAD", sha, "0" * len(sha))
    _put_index(repo)
    return sha


def _put_index(repo: Repo) -> None:
    """Give the first commit its index, where a call of ours was killed before it could."""
    made, index = repo.git_dir / "placet-index", repo.git_dir / "index"
    if made.exists() and not index.exists():
        made.rename(index)
    made.unlink(missing_ok=True)
