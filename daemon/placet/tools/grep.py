"""`grep`: find lines that match a regular expression, with limits on the pattern and the time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from placet.chat.guards import Effect
from placet.errors import ToolError
from placet.tools.arguments import Args
from placet.tools.base import Tool, Workplace
from placet.tools.text import glob_of, texts_below
from placet.wording import counted

if TYPE_CHECKING:
    import regex

MAX_HITS = 1_000
MAX_LINE = 300
MAX_PATTERN = 1_000  # characters: compiling a pattern has no time limit, so its length has one
LINE_S = 0.25  # processor seconds for one line; an honest pattern takes microseconds
FILE_S = 0.1
SEARCH_S = 5.0  # a search that takes longer returns what it has found

# Largest number of elements of a pattern: the engine writes counted repeats out when it compiles,
# at 500 bytes each.
MAX_EXPANDED = 20_000

_COUNT = re.compile(r"(?P<simple>(?<![\\])[\w.\]])?\{\s*(?P<low>\d*)\s*(?:,\s*(?P<high>\d*)\s*)?\}")

# Constructs that match a single line but not the same line within a text.
_BY_LINE_ONLY = re.compile(r"\\[AZzGbBK]|\(\?[<!>~|]|[+*?}]\+")


class Grep(Args):
    """Arguments of `grep`."""

    pattern: str = Field(
        min_length=1,
        max_length=MAX_PATTERN,
        description="Regular expression, as in Python; it is tried on each "
        "line. Case counts, unless it begins with (?i).",
    )
    path: str = Field(
        default=".", description="Folder or file to search, relative to the repository's root."
    )
    glob: str = Field(
        default="",
        description='Only files that this glob matches: "*.py" in any folder, or "src/**/*.py" '
        "from the repository's root.",
    )


def _run(place: Workplace, args: Grep) -> str:
    pattern = _compiled(args.pattern)
    wanted = file_filter(args.glob)
    spot = place.readable(args.path)
    began = time.monotonic()
    found: list[str] = []
    searched = 0
    texts = texts_below(
        place, spot, lambda path: wanted(spot.shown(path)), partial(_may_match, pattern)
    )
    for path, text in texts:
        searched += text is not None
        if not text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if _matches(pattern, line):
                found.append(f"{spot.shown(path)}:{number}:{line.rstrip()[:MAX_LINE]}")
            if len(found) >= MAX_HITS:
                return _listed(
                    found,
                    f"only the first {MAX_HITS:,} matches; "
                    "narrow the pattern, the path or the glob",
                )
            if time.monotonic() - began > SEARCH_S:
                return _listed(
                    found,
                    f"stopped after {SEARCH_S:.0f} s at {spot.shown(path)}:{number}; "
                    "name a smaller folder",
                )
    return _listed(found) if found else f"No line matches in {counted(searched, 'file')}."


def file_filter(glob: str) -> Callable[[str], bool]:
    """Return a predicate for the paths that a glob matches; "" matches any.

    A glob without a slash matches names in any folder. Raises ToolError `bad_glob`.
    """
    if not glob:
        return lambda _: True
    matches = glob_of(glob)
    return matches if "/" in glob else lambda path: matches(path.rsplit("/", 1)[-1])


def _listed(found: list[str], more: str = "") -> str:
    return "\n".join([*found, *([f"[{more}]"] if more else [])])


def _compiled(pattern: str) -> regex.Pattern[str]:
    import regex  # not needed while idle

    if expanded(pattern) > MAX_EXPANDED:
        raise ToolError(
            "pattern_too_large",
            f"The counted repeats of the pattern expand to more than {MAX_EXPANDED:,} elements. "
            " Use `*` or `+`, or lower counts.",
        )
    try:
        return regex.compile(pattern, regex.MULTILINE)
    except (
        regex.error,
        RecursionError,
        OverflowError,
        MemoryError,
        IndexError,
        ValueError,
    ) as error:
        raise ToolError(
            "bad_pattern",
            f"The pattern is not a regular expression: {error}. To look for plain text, use "
            "search_files.",
        ) from error


def expanded(pattern: str) -> int:
    """Return an upper bound of a pattern's elements, its counted repeats written out.

    It is never too low: the pattern is not parsed, so all counts of groups are taken for nested
    ones, and what looks like a count in a class or after a backslash counts too.
    """
    elements, nested = len(pattern), 1
    for found in _COUNT.finditer(pattern):
        count = max((int(n) for n in (found["low"], found["high"]) if n), default=1)
        if found["simple"]:
            elements += count
        else:
            nested *= max(count, 1)
    return elements * nested


def _may_match(pattern: regex.Pattern[str], text: str) -> bool:
    """Return whether a line of the text can match: one look at the whole is quicker than many."""
    if _BY_LINE_ONLY.search(pattern.pattern):
        return True
    try:
        return pattern.search(text, timeout=FILE_S, concurrent=True) is not None
    except TimeoutError:
        return True


def _matches(pattern: regex.Pattern[str], line: str) -> bool:
    try:
        return pattern.search(line, timeout=LINE_S, concurrent=True) is not None
    except (TimeoutError, MemoryError) as error:
        raise ToolError(
            "pattern_too_slow",
            "The pattern takes too long on a line: its repetitions can be taken in too many ways. "
            "Write it without repeated groups of repetitions.",
        ) from error


TOOL = Tool(
    "grep",
    "Search text files for lines that match a regular expression; gives path:line:text.",
    Grep,
    Effect.READ,
    _run,
    subject=("pattern", "path", "glob"),
)
