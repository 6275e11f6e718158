"""`search_files`: where a piece of text occurs, in names and in lines."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from placet.core.errors import ToolError
from placet.tools.base import Args, Effect, Tool, Workplace

MAX_HITS = 200
MAX_FILES = 20_000
MAX_LINE = 300


class SearchFiles(Args):
    """Arguments of `search_files`."""

    pattern: str = Field(min_length=1, description="Plain text to look for, in any case; not a regular expression.")
    path: str = Field(default=".", description="Folder to search, relative to the repository's root.")


def _run(place: Workplace, args: SearchFiles) -> dict[str, Any]:
    root, inner = place.readable(args.path)
    needle = args.pattern.casefold()
    files: list[str] = []
    lines: list[str] = []
    for entry in root.walk(inner, max_entries=MAX_FILES):
        if entry.kind != "file":
            continue
        if needle in entry.path.casefold():
            files.append(entry.path)
        try:
            data = root.read(entry.path)
        except ToolError:
            continue  # too large, or not to be read: a search goes on without it
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if needle in line.casefold():
                lines.append(f"{entry.path}:{number}:{line.strip()[:MAX_LINE]}")
        if len(lines) > MAX_HITS:
            break
    found: dict[str, Any] = {"files": files[:MAX_HITS], "lines": lines[:MAX_HITS]}
    if len(lines) > MAX_HITS or len(files) > MAX_HITS:
        found["more"] = f"only the first {MAX_HITS} are shown; narrow the pattern or the path down"
    return found


TOOL = Tool("search_files", "Search file names and text files for a plain text; gives names and matching lines.",
            SearchFiles, Effect.READ, _run)
