"""Git: one worktree and one branch for each mission; the person's checkout is only ever read.

Everything goes through one runner, `run_git`. A repository is data that a stranger may have
written, and plain git runs programs that its configuration, attributes and hooks name. The runner
therefore fixes the configuration that can start a program, switches off every driver that the
repository configures (`neutral`), starts from an empty environment, and names the git directory and
the work tree outright, so that a `.git` file which a mission replaced is never believed.

A commit or a checkpoint costs one flush to the disk: git writes its objects out without one
(`UNFLUSHED`), and the one for the reference, which comes last, flushes them with it, as
`core.fsyncMethod=batch` does within one process.

Paths inside a repository are `str` with surrogateescape (git's `-z` output), so any file name
survives. One writer for each worktree: the functions that write hold a lock file next to it
(`locks.holding`), which a git process that outlives a killed daemon inherits; so the next
daemon waits for it instead of removing its locks.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from placet.errors import Interrupted
from placet.repo.program import CALL_TIMEOUT_S, environment, program_on, why_ended
from placet.repo.values import GitCall, GitError, OnCall, Settings

BULK_TIMEOUT_S = 600.0
"""For what touches every file of a worktree; 10,000 files take about a second."""

_MAX_OUTPUT_BYTES = 64 * 1024 * 1024

# Configuration that can start a program or (below) reach the network, each with a value that does
# neither. Git lets the command line win over every file. An empty fsmonitor, not `false`: before
# 2.37 `false` was a path.
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
    # Git's default does not flush loose objects: a power cut would leave a branch that points at
    # nothing. `batch` flushes many at once; what a commit of placet's own is made by, see
    # `UNFLUSHED`.
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "core.quotePath=true",
    "core.ignoreStat=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
)

_UNREACHING = ("core.sshCommand=false", "credential.helper=", "protocol.allow=never")

UNFLUSHED = "core.fsyncMethod=writeout-only"
"""The setting to make objects with: `update_ref` flushes them, before anything names them."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a git process: --git-dir, --work-tree and extra environment.

    Only where it `reaches` the network may git start ssh, or ask a helper for a password.
    """

    git_dir: Path | None
    work_tree: Path | None
    cwd: Path
    on_call: OnCall | None
    env: Mapping[str, str] = field(default_factory=dict)
    held: int | None = None  # the descriptor of the worktree's lock, inherited by the process
    settings: Settings = ()  # the configuration that `neutral` read
    reaches: bool = False


_POLL_S = 0.1  # how often a git that says nothing is asked about
_told: ContextVar[Callable[[], bool]] = ContextVar("told", default=lambda: False)


@contextmanager
def leavable(told: Callable[[], bool]) -> Iterator[None]:
    """End each git process that this thread waits for inside, once `told` is true.

    `run_git` then raises Interrupted. A git that is ended leaves what a killed daemon leaves, locks
    among it: the next call or life goes on from there.
    """
    before = _told.set(told)
    try:
        yield
    finally:
        _told.reset(before)


def _read_all(
    process: subprocess.Popen[bytes],
    timeout_s: float,
    max_bytes: int,
) -> tuple[bytes, bytes, bool, bool]:
    """Read both outputs to their end; return them, and whether time ran out, or output was cut.

    Raises Interrupted if the work is `leavable` and is to be left. `communicate` would hold
    whatever a hostile repository makes git print, so this stops at `max_bytes`.
    """
    deadline = time.monotonic() + timeout_s
    told = _told.get()
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
            if not ready and told():
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
    # Git closes its outputs only by exiting, so this does not wait; `wait(timeout=…)` would poll, 1
    # ms a call.
    process.wait()
    out, err = taken.values()
    return bytes(out[:max_bytes]), bytes(err[:max_bytes]), late, cut


def start_git(
    place: Place,
    args: Sequence[str],
    source: BinaryIO | None,
    config: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start one git command that reads `source`, with pipes for both of its outputs.

    The caller reads them and waits.

    Not by GitPython, which always adds the daemon's environment to the one given: its keys, and
    every `GIT_…` that somebody has set, would reach git, or a second program (`env -i`) would have
    to be started for each. A session of its own, so that it is ended with whatever it has started.
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
    """End a git process at once, with what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _source(stdin: bytes | BinaryIO) -> Iterator[BinaryIO | None]:
    """Give the file that git reads, None for nothing."""
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
    place: Place,
    *args: str,
    stdin: bytes | BinaryIO = b"",
    ok: Sequence[int] = (0,),
    config: Sequence[str] = (),
    timeout_s: float = CALL_TIMEOUT_S,
    max_bytes: int | None = None,
) -> tuple[int, bytes]:
    """Run one git command and return its exit code and output; `stdin` may be a real file.

    Raises GitError unless the code is in `ok`, and Interrupted as `leavable` says. Output beyond
    the limit is an error, unless `max_bytes` asked for one: then the output is cut there.
    """
    began = time.monotonic()
    # Input comes from a file, so that git cannot wait for it while it is being waited for.
    with _source(stdin) as source:
        process = start_git(place, args, source, config)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            out, err, late, cut = _read_all(process, timeout_s, max_bytes or _MAX_OUTPUT_BYTES)
        except BaseException:  # nobody else would end it, or wait for it
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
        error.was_killed = code < 0 and not late  # not by us
        raise error
    return code, out


def text_of(raw: bytes) -> str:
    """Return output that is one value, without its last newline."""
    return os.fsdecode(raw.removesuffix(b"\n"))


def items_of(raw: bytes) -> list[str]:
    """Return the values of `-z` output."""
    return [os.fsdecode(item) for item in raw.split(b"\0")[:-1]]
