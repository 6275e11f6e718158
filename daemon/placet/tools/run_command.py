"""`run_command`: run one program with its arguments in the box, never a shell."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.sandbox.box import Level
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
            "Commands cannot run here: this machine has no sandbox for them. A person can install "
            'bubblewrap, or write sandbox = "none" into System/placet.toml.',
            refused=True,
        )
    return run_in_box(place, argv, args.timeout_s)


def run_in_box(
    place: Workplace, argv: Sequence[str], timeout_s: float | None = None
) -> dict[str, Any]:
    """Run a command that policy allows; return exit_code, stdout, stderr and timed_out.

    Raises ToolError, UserError.
    """
    sizes = [len(os.fsencode(word)) for word in argv]
    if max(sizes) > MAX_WORD_BYTES or sum(sizes) > MAX_WORDS_BYTES:
        raise ToolError(
            "too_long",
            f"The command has {sum(sizes):,} bytes, more than a system passes on. "
            "Write them into a file.",
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
    return {
        "exit_code": ran.exit_code,
        "stdout": ran.stdout,
        "stderr": ran.stderr + undone,
        "timed_out": ran.killed == "time",
    }


TOOL = Tool(
    "run_command",
    "Run one program with a list of arguments in the repository's root. Only commands in the "
    "approved scope. There is no shell: no pipes, globs, redirections or variables.",
    RunCommand,
    Effect.EXECUTE,
    _run,
    subject=("command", "args"),
)
