"""Find the sandbox level of this machine by attacking it."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from placet.errors import PlacetError
from placet.plan.hosts import NEEDS_LEVEL_3, Host
from placet.sandbox import attacks, visible_paths
from placet.sandbox.box import GIB, MIB, Box, BoxLimits, Level
from placet.sandbox.run import run
from placet.wording import one_line

_PR_SET_DUMPABLE = 4
_SOURCE = Path(__file__).with_name("attacks.py")
# Small limits make their attacks quick. A nearly full disk says nothing about the wall.
_LIMITS = BoxLimits(
    timeout_s=20,
    memory_bytes=GIB,
    processes=16,
    file_bytes=2 * MIB,
    shm_bytes=2 * MIB,
    free_bytes=1,
)
_folder = partial(TemporaryDirectory, prefix="placet-probe-")
_ON_LIST = {"connect_tcp", "send_udp", "reach_unnamed", "reach_other_name"}
_HOLD_S = 3.0  # root's daemon counts processes at least once a second

NAMES = tuple(attack.__name__ for attack in attacks.ATTACKS)
"""Every attack's name, in the order they are run."""

GAPS: dict[Level, frozenset[str]] = {
    Level.BUBBLEWRAP: frozenset(),
    # Landlock controls neither modes nor metadata; a replaced .git file is restored.
    Level.LANDLOCK: frozenset({"chmod_outside", "stat_outside", "replace_git_file"}),
    Level.SEATBELT: frozenset({"stat_outside", "allocate", "fork_many"}),
    Level.NONE: frozenset(NAMES),
}
"""Attacks that a level does not promise to block."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The result of one attack at one level.

    `attack` is one of NAMES, or `start` if the box itself could not be built. `promised` means that
    the level claims to block it. `detail` describes the attack, or says why the box did not start.
    """

    attack: str
    blocked: bool
    level: Level
    promised: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Probe:
    """The level that holds, and all attempts at the levels that were tried.

    `no_hosts` says why commands reach no host that their plan names; empty if they do.
    """

    level: Level
    attempts: tuple[Attempt, ...]
    no_hosts: str = NEEDS_LEVEL_3


def probe(wanted: Level | None = None) -> Probe:
    """Run every attack in a real box, from the best level of this platform (or `wanted`) down.

    Returns the first level that blocks all attacks that it promises to block, or NONE. With
    `wanted` NONE the attacks run without a wall, which shows that they work. Takes about 0.3 s a
    level. Leaves nothing behind.
    """
    candidates = (
        (Level.BUBBLEWRAP, Level.LANDLOCK) if sys.platform == "linux" else (Level.SEATBELT,)
    )
    attempts: list[Attempt] = []
    for level in (*candidates, Level.NONE):
        if level is Level.NONE and wanted is not Level.NONE:
            break
        if wanted is None or level <= wanted:
            found, no_hosts = _attack(level)
            attempts += found
            if all(f.blocked or not f.promised for f in found):
                return Probe(level, tuple(attempts), no_hosts)
    return Probe(Level.NONE, tuple(attempts))


def starts(level: Level) -> bool:
    """Return whether a box of this level starts here; only `probe` says whether it holds."""
    with _folder() as folder, suppress(PlacetError):
        return run(["true"], Box(Path(folder)), level).exit_code == 0
    return False


def make_undumpable() -> None:
    """Make this process's memory and environment unreadable to all but root (Linux).

    Also prevents core dumps and debuggers. Programs that it starts are not affected.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


def _attack(level: Level) -> tuple[list[Attempt], str]:
    """Return what the attacks on a level found, and why commands reach no named host there."""
    with _targets() as (box, targets):
        names = {
            a.__name__
            for a in attacks.ATTACKS
            if sys.platform == "linux" or a not in attacks.LINUX_ONLY
        }
        # the kernel does not limit root, and placet kills the whole box, so run it alone
        alone = {"fork_many"} if os.geteuid() == 0 else set()
        try:
            ran = run(_try(targets, names - alone), box, level)
            bomb = run(_try(targets, alone), box, level) if alone else None
        except PlacetError as error:
            return [_not_started(level, str(error))], NEEDS_LEVEL_3
        listed, no_hosts = _by_list(box, targets) if level is Level.BUBBLEWRAP else ({}, "")
        written = Path(targets["outside"], "written").exists()
    try:
        results = json.loads(ran.stdout)
        if bomb is not None:
            results |= (
                {"fork_many": True} if "processes]" in bomb.stderr else json.loads(bomb.stdout)
            )
    except json.JSONDecodeError:
        why = f"the attacks did not finish: {ran.stderr.strip()[-500:]}"
        return [_not_started(level, why)], NEEDS_LEVEL_3
    results |= {name: held and results[name] for name, held in listed.items()}
    # the box may have written into its private temporary folder instead
    results["write_outside"] = not written
    gaps = GAPS[level]
    says = {attack.__name__: (attack.__doc__ or "").strip() for attack in attacks.ATTACKS}
    found = [
        Attempt(name, bool(held), level, name not in gaps, says[name])
        for name, held in results.items()
    ]
    return found, no_hosts if level is Level.BUBBLEWRAP else NEEDS_LEVEL_3


def _by_list(box: Box, targets: dict[str, Any]) -> tuple[dict[str, bool], str]:
    """Attack a list that names one service; return what was blocked, and why that was not reached.

    If the list lets something else through, the level does not hold.
    """
    named = (Host("127.0.0.1", targets["named"]),)
    listed = replace(box, hosts=named, private_hosts=named)
    try:
        ran = run(_try(targets, {*_ON_LIST, "reach_named"}), listed, Level.BUBBLEWRAP)
        results: dict[str, bool] = json.loads(ran.stdout)
    except (PlacetError, json.JSONDecodeError) as error:
        return {}, one_line(str(error))
    is_refused = results.pop("reach_named")
    why = "; ".join(row.refusal for row in ran.reached) or "the proxy was not reached"
    return results, f"a host that a list names was not reached: {why}" if is_refused else ""


def _try(targets: dict[str, Any], names: set[str]) -> list[str]:
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _SOURCE.read_text("utf-8"),
        json.dumps(targets | {"attacks": sorted(names)}),
    ]


def _not_started(level: Level, why: str) -> Attempt:
    return Attempt("start", blocked=False, level=level, promised=True, detail=why)


def _outside(stack: ExitStack) -> Path:
    """Create a folder outside /tmp if possible, because some boxes may write in /tmp."""
    for place in (Path("/var/tmp"), Path.home()):  # noqa: S108  made with mkdtemp
        with suppress(OSError):  # read-only, full or missing
            return Path(stack.enter_context(_folder(dir=place)))
    return Path(stack.enter_context(_folder()))


@contextmanager
def _targets() -> Iterator[tuple[Box, dict[str, Any]]]:
    """Set up a worktree, targets to attack outside of it, and a stand-in for the daemon."""
    canary = f"canary-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        outside = _outside(stack)
        tmp = Path(stack.enter_context(_folder()))
        worktree, repository = outside / "tree", outside / "repo"
        worktree.mkdir()
        (repository / "hooks").mkdir(parents=True)
        (worktree / ".git").write_text(f"gitdir: {repository}\n")
        for file in (outside / "secret", tmp / "left"):
            file.write_text(canary)
            file.chmod(0o600)
        targets: dict[str, Any] = {
            "canary": canary,
            "outside": str(outside),
            "worktree": str(worktree),
            "repository": str(repository),
            "tmp": str(tmp / "left"),
            "tcp": _listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "named": _listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": _listen(stack, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "abstract": canary,
            "memory_bytes": _LIMITS.memory_bytes,
            "processes": _LIMITS.processes,
            "hold_s": _HOLD_S if os.geteuid() == 0 else 0,
            "file_bytes": _LIMITS.file_bytes,
            "shm_bytes": _LIMITS.shm_bytes,
        }
        checkout, tools = outside / "app", outside / "tool"
        (checkout / ".venv").mkdir(parents=True)
        tools.mkdir()
        folders = (repository, checkout / ".venv", tools)
        for folder in (outside, *folders):
            _listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
        targets["sockets"] = [str(folder / "s") for folder in (*folders, worktree / ".venv")]
        if sys.platform == "linux":
            _listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, f"\0{canary}")
            shared = Path("/dev/shm", canary)  # noqa: S108  an attack's target with a random name
            stack.callback(shared.unlink, missing_ok=True)
            shared.write_text(canary)
            targets["shm"] = str(shared)
            targets["queue"] = _queue(stack)
        box = Box(
            worktree,
            read_only=(repository,),
            limits=_LIMITS,
            readable=(tools,),
            checkout=checkout,
            shared=(PurePosixPath(".venv"),),
        )
        targets |= {"home": str(Path.home()), "home_tools": _shown_of_home(box)}
        victim = subprocess.Popen(["sleep", "60"], env={"PATH": os.defpath, "KEY": canary})
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        yield box, targets | {"victim": victim.pid}


def _shown_of_home(box: Box) -> list[str]:
    """Return the names in the home that a box shows, or that lead to what it shows."""
    home, view = Path.home(), visible_paths.see(box)
    shown = (
        *visible_paths.SYSTEM,
        *view.tools,
        *view.caches.values(),
        box.worktree,
        Path("/tmp"),  # noqa: S108 - looked at, not used
        Path("/etc"),
        Path("/dev"),
    )
    inside = [p.relative_to(home).parts for p in shown if p.is_relative_to(home)]
    return sorted({parts[0] for parts in inside if parts})


def _queue(stack: ExitStack) -> int:
    """Return a message queue (System V) with one message in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.msgget(0, 0o600)
    stack.callback(libc.msgctl, number, 0, None)  # IPC_RMID
    libc.msgsnd(number, ctypes.create_string_buffer(b"\1" + bytes(31)), 16, 0)
    return int(number)


def _listen(
    stack: ExitStack, family: socket.AddressFamily, kind: socket.SocketKind, where: Any
) -> int:
    """Listen there until the stack unwinds; return the port, 0 if there is none."""
    listener = stack.enter_context(socket.socket(family, kind))
    listener.bind(where)
    if kind is socket.SOCK_STREAM:
        listener.listen()
    name = listener.getsockname()
    return int(name[1]) if family is socket.AF_INET else 0
