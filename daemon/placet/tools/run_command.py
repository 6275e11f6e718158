"""`run_command`: run one program with its arguments in the box, never a shell."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.plan.scope import Scope
from placet.sandbox.box import NO_SANDBOX, Box, Level, Ran
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace, refusal

# Longest argument that Linux passes on (MAX_ARG_STRLEN of execve(2)).
MAX_WORD_BYTES = 128 * 1024 - 1
# All of them together; Linux and macOS pass on at least that many besides the environment.
MAX_WORDS_BYTES = 512 * 1024


class RunCommand(Args):
    """Arguments of `run_command`."""

    command: str = Field(min_length=1, description="The program, without its arguments.")
    args: list[str] = Field(
        default_factory=list, description="Its arguments, one an entry; no shell reads them."
    )
    timeout_s: float | None = Field(
        default=None, gt=0, description="Seconds after which it is ended."
    )


def _run(place: Workplace, args: RunCommand) -> dict[str, Any]:
    argv = [args.command, *args.args]
    if not place.scope.allows_run(argv) or place.scope.forbidden_run(argv):
        raise refusal(place.scope.refusal_run(argv))
    if place.level is Level.NONE and not place.unboxed:
        raise ToolError(
            "no_sandbox",
            f"Commands cannot run here. For a person: {NO_SANDBOX}",
            refused=True,
        )
    return run_in_box(place, argv, args.timeout_s)


def run_in_box(
    place: Workplace, argv: Sequence[str], timeout_s: float | None = None
) -> dict[str, Any]:
    """Run a command that policy allows; return exit_code, stdout, stderr and timed_out.

    With hosts in the plan also `hosts`, for the journal: which it reached or was refused.

    Raises ToolError, UserError.
    """
    sizes = [len(os.fsencode(word)) for word in argv]
    if max(sizes) > MAX_WORD_BYTES or sum(sizes) > MAX_WORDS_BYTES:
        raise ToolError(
            "too_long",
            f"The command has {sum(sizes):,} bytes, more than a system passes on. "
            "Write them into a file.",
        )
    if argv[0] == "npx" and not _has_dependencies(place.box):
        raise ToolError(
            "command_not_found",
            "There is no node_modules here, so npx would ask the registry. A person can run npm "
            "install in the checkout.",
        )
    limit = place.box.limits.timeout_s
    limits = replace(place.box.limits, timeout_s=min(timeout_s or limit, limit))
    began_ns = time.time_ns()
    try:
        ran = place.run(
            argv, replace(place.box, limits=limits), place.level, cancelled=place.cancelled
        )
    except OSError as error:
        # there was no room even to tidy up behind it
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place.undo(began_ns)
        raise
    # Before all else: nothing can be recorded on a full disk.
    undone = f"\n[{place.undo(began_ns)}]" if ran.killed == "disk" else ""
    reasons = sandbox_reasons(ran.stdout + ran.stderr, place.scope) if ran.exit_code else ""
    return {
        "exit_code": ran.exit_code,
        "stdout": ran.stdout,
        "stderr": ran.stderr + reasons + undone + _refused(ran),
        "timed_out": ran.killed == "time",
        **({"hosts": [asdict(row) for row in ran.reached]} if ran.reached else {}),
    }


def _refused(ran: Ran) -> str:
    """Return a line for each connection that was refused."""
    return "".join(f"\n[refused: {row.refusal}]" for row in ran.reached if row.refusal)


def _has_dependencies(box: Box) -> bool:
    tops = (top for top in (box.worktree, box.checkout) if top is not None)
    return box.network or bool(box.hosts) or any((top / "node_modules").is_dir() for top in tops)


# what a failed command says, and what is behind it
_REASONS = (
    (
        # bounded: `.*` takes the square of a long line's time, and `re` holds the interpreter
        r"(?i)socket.{0,200}(?:operation not permitted|EPERM)"
        r"|(?:operation not permitted|EPERM).{0,200}socket",
        "sockets are closed: `network = true` closes unix sockets; without it, levels 1 and 2 of "
        "the sandbox close all",
    ),
    (
        r"(?i)read-only file system|\bEROFS\b",
        "dependencies and caches are read-only; a person can give missions their own: `copy` of "
        "this portal in System/placet.toml",
    ),
    (
        r"(?i)no space left on device|\bENOSPC\b",
        "the disk is full, or /dev/shm, which has 512 MiB",
    ),
    (
        r"(?i)invalid cross-device link|\bEXDEV\b",
        "a file cannot be moved between the worktree and what is read-only, or temporary",
    ),
    (
        r"(?i)could not resolve host|temporary failure in name resolution|\bEAI_AGAIN\b",
        "commands have no network, unless the plan names hosts in `network`, or has "
        "`network = true`",
    ),
)
_BY_PROXY = "commands reach hosts only through the proxy in `https_proxy`, by TLS"


def sandbox_reasons(output: str, scope: Scope) -> str:
    """Return sentences about the sandbox, if it may be why a command with this output failed."""
    found = [why for pattern, why in _REASONS if re.search(pattern, output)]
    offline = [why for why in found if why.startswith("commands have no network")]
    if offline and (scope.network or scope.hosts):
        found.remove(offline[0])
        found += [_BY_PROXY] if scope.hosts else []
    return "".join(f"\n[placet: {why}.]" for why in found)


TOOL = Tool(
    "run_command",
    "Run one program with a list of arguments in the repository's root. Only commands in the "
    "approved scope. There is no shell: no pipes, globs, redirections or variables.",
    RunCommand,
    Effect.EXECUTE,
    _run,
    subject=("command", "args"),
)
