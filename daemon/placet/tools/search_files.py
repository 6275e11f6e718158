"""`search_files`: find the names and lines that contain a plain text, and names by a glob."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pydantic import Field

from placet.chat.guards import Effect
from placet.plan.globs import glob_matcher
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.text import texts_below

MAX_HITS = 1_000
MAX_LINE = 300
MAX_PATTERN = 10_000
SEARCH_S = 10.0  # a search that takes longer returns what it has found


class SearchFiles(Args):
    """Arguments of `search_files`."""

    pattern: str = Field(
        min_length=1,
        max_length=MAX_PATTERN,
        description="Plain text to look for, in any case; not a regular expression.",
    )
    path: str = Field(
        default=".", description="Folder to search, relative to the repository's root."
    )


def _run(place: Workplace, args: SearchFiles) -> dict[str, Any]:
    spot = place.readable(args.path)
    needle = args.pattern.casefold()
    files: list[str] = []
    lines: list[str] = []
    began = time.monotonic()
    more = ""
    # small models write globs of names here
    named: Callable[[str], bool] | None = None
    if set(args.pattern) & set("*?["):
        with suppress(ValueError):  # text that is no glob
            named = glob_matcher(args.pattern)
    for path, text in texts_below(
        place, spot, lambda _: True, lambda text: needle in text.casefold()
    ):
        if needle in path.casefold() or (named and named(spot.shown(path))):
            files.append(spot.shown(path))
        if text:
            lines += [
                f"{spot.shown(path)}:{number}:{line.strip()[:MAX_LINE]}"
                for number, line in enumerate(text.split("\n"), 1)
                if needle in line.casefold()
            ]
        if max(len(lines), len(files)) > MAX_HITS:
            more = f"only the first {MAX_HITS:,} are given; narrow the pattern or the path"
            break
        if time.monotonic() - began > SEARCH_S:
            more = f"stopped after {SEARCH_S:.0f} s at {spot.shown(path)}; name a smaller folder"
            break
    return {
        "files": files[:MAX_HITS],
        "lines": lines[:MAX_HITS],
        **({"more": more} if more else {}),
    }


TOOL = Tool(
    "search_files",
    "Search file names and text files for a plain text; gives names and matching lines.",
    SearchFiles,
    Effect.READ,
    _run,
    subject=("pattern", "path"),
)
