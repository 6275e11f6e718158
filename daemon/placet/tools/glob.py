"""`glob`: find files by a pattern of their paths."""

from __future__ import annotations

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.plan.globs import MAX_PATTERN, fixed_part
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.text import glob_of, paths_below

MAX_HITS = 10_000


class Glob(Args):
    """Arguments of `glob`."""

    pattern: str = Field(
        min_length=1,
        max_length=MAX_PATTERN,
        description='From the repository\'s root: "src/**/*.py", "*.md". '
        "`*` and `?` stay in one folder, `**` is any number of folders; there are no braces.",
    )


def _run(place: Workplace, args: Glob) -> list[str]:
    matches = glob_of(args.pattern)
    spot = place.readable(fixed_part(args.pattern).rstrip("/") or ".")
    if not spot.files.exists(spot.path):
        return []
    found: list[str] = []
    for path in paths_below(spot, lambda path: matches(spot.shown(path))):
        found.append(spot.shown(path))
        if len(found) == MAX_HITS:
            raise ToolError(
                "too_large", f"More than {MAX_HITS:,} files match; write a narrower pattern."
            )
    return found


TOOL = Tool(
    "glob", "Find files by a glob of their paths.", Glob, Effect.READ, _run, subject=("pattern",)
)
