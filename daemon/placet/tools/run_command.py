"""`run_command`: one program with its arguments, in the box; never a shell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from placet.core.errors import ToolError
from placet.sandbox import Level, run
from placet.tools.base import Args, Effect, Tool, Workplace, refusal


class RunCommand(Args):
    """Arguments of `run_command`."""

    command: str = Field(min_length=1, description="The program, without its arguments.")
    args: list[str] = Field(default_factory=list, description="Its arguments, one an entry; no shell reads them.")
    timeout_s: float | None = Field(default=None, gt=0, description="Seconds after which it is ended.")


def _run(place: Workplace, args: RunCommand) -> dict[str, Any]:
    argv = [args.command, *args.args]
    if not place.scope.allows_run(argv) or place.scope.forbidden_run(argv):
        raise refusal(place.scope.refusal_run(argv))
    if place.level is Level.NONE and not place.unboxed:
        raise ToolError("no_sandbox", "Commands cannot run here: this machine has no sandbox for them. A person can install "
                        'bubblewrap, or write sandbox = "none" into System/placet.toml.', refused=True)
    limit = place.box.limits.timeout_s
    limits = replace(place.box.limits, timeout_s=min(args.timeout_s or limit, limit))
    ran = run(argv, replace(place.box, limits=limits), place.level, cancelled=place.cancelled)
    return {"exit_code": ran.exit_code, "stdout": ran.stdout, "stderr": ran.stderr, "timed_out": ran.timed_out}


TOOL = Tool("run_command", "Run one program with a list of arguments in the repository's root. Only commands in the approved "
            "scope. There is no shell: no pipes, globs, redirections or variables.", RunCommand, Effect.EXECUTE, _run)
