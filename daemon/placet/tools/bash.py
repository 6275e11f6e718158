"""`bash`: run shell text in the box, if the plan allows a shell and the sandbox can hold one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.plan.scope import Scope
from placet.sandbox.box import Level
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace, refusal
from placet.tools.run_command import run_in_box


class Bash(Args):
    """Arguments of `bash`."""

    command: str = Field(
        min_length=1,
        description="The shell's text: pipes, redirections and variables work. It runs in the "
        "repository's root.",
    )


def _unusable(scope: Scope, level: Level) -> str:
    if not scope.shell:
        return "the approved plan has no `shell = true`"
    if level < Level.LANDLOCK:
        return (
            f"a shell runs only in a sandbox of level {Level.LANDLOCK.value} or higher, "
            f"and this machine's is {level.value}"
        )
    return ""


def _run(place: Workplace, args: Bash) -> dict[str, Any]:
    why = _unusable(place.scope, place.level)
    if why and not place.scope.shell:
        raise refusal(
            {"error": f"bash cannot run: {why}.", "error_type": "outside_scope", "allowed": []}
        )
    if why:
        raise ToolError("no_sandbox", f"bash cannot run: {why}.", refused=True)
    return run_in_box(place, ["bash", "--noprofile", "--norc", "-c", args.command])


TOOL = Tool(
    "bash",
    "Run a piece of shell in the repository's root. Only where the approved scope has "
    "shell = true.",
    Bash,
    Effect.EXECUTE,
    _run,
    subject=("command",),
    unusable=_unusable,
)
