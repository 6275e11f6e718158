"""Show the difference of two texts as a callout and as ranges of lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from placet.note.escape import fenced
from placet.note.hidden_text import visible
from placet.note.markdown import lines_of
from placet.wording import counted

CHANGED = "> [!note]- What changed"

# Between the first and the last line that differ, texts are compared line by line up to so many
# lines: difflib takes minutes for a hundred thousand lines, and 0.3 s for a thousand that were made
# to be slow.
COMPARED_LINES = 1_000

# A longer difference is not shown: it goes into the note that was changed, and notes have a limit
# (`scan.NOTE_LIMIT`).
SHOWN_CHARS = 100_000

# a longer line of code would be text out of view
_LINE = re.compile(".{1,500}")

_CONTEXT = 2  # lines that are the same, shown around a difference


def diff_callout(old: str, new: str) -> str:
    """Return a folded callout with the difference of two texts, ending in a newline.

    Empty for equal texts. Characters that would not be seen are written out. Of texts that differ
    in too much it says only how much.
    """
    if old == new:
        return ""
    before, now = lines_of(old), lines_of(new)
    head, tail = alike(before, now)
    gone, come = len(before) - head - tail, len(now) - head - tail
    shown = [
        f"From line {head + 1} on, {counted(gone, 'line')} "
        f"became {come:,}: too much to be shown here."
    ]
    if max(gone, come) <= COMPARED_LINES:
        first, after = max(head - _CONTEXT, 0), max(tail - _CONTEXT, 0)
        lines = difflib.unified_diff(
            before[first : len(before) - after],
            now[first : len(now) - after],
            lineterm="",
            n=_CONTEXT,
        )
        diff = [_counted_on(line, first) for line in [*lines][2:]] or [
            "Only the line endings changed."
        ]
        if sum(map(len, diff)) <= SHOWN_CHARS:
            shown = [part for line in diff for part in _LINE.findall(visible(line))]
    block = fenced("\n".join(shown), "diff").split("\n")
    return "\n".join([CHANGED, *(f"> {line}" for line in block)]) + "\n"


def without_difference(text: str) -> str:
    """Return a text up to the callout that `diff_callout` made, also where that was cut off."""
    return text.partition(f"\n{CHANGED}\n")[0]


def parted(text: str) -> tuple[str, str]:
    """Return a text without the callout that `diff_callout` made for its end, and that callout.

    Empty without one.
    """
    words, mark, block = text.partition(f"\n{CHANGED}\n")
    lines = block.rstrip("\n").split("\n")
    fence = re.fullmatch(r"> (`{3,})diff", lines[0])
    # Nothing but a code block that ends where the callout does: a text that only looks like one is
    # no callout.
    if (
        not mark
        or fence is None
        or lines[-1] != f"> {fence[1]}"
        or not all(line.startswith("> ") for line in lines)
        or any(line[2:].startswith(fence[1]) for line in lines[1:-1])
    ):
        return text, ""
    return words, f"{CHANGED}\n{block}"


def changed_lines(old: str, new: str) -> list[list[int]]:
    """Return the ranges `[first, last]` of lines of `new`, counted from 1, that differ from `old`.

    They are in order. If lines were only deleted, the range is empty: `[n, n - 1]` means that they
    were before line `n`. Lines end with a line feed, as editors count them. A changed line end is a
    change. If the first and the last difference are more than COMPARED_LINES apart, they form one
    range.
    """
    before, now = old.split("\n"), new.split("\n")
    head, tail = alike(before, now)
    one, other = before[head : len(before) - tail], now[head : len(now) - tail]
    if max(len(one), len(other)) > COMPARED_LINES:
        return [[head + 1, head + len(other)]]
    steps = difflib.SequenceMatcher(None, one, other).get_opcodes()
    return [[head + first + 1, head + last] for tag, _, _, first, last in steps if tag != "equal"]


def alike(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return the number of equal lines at the beginning, and of the others at the end."""
    most = min(len(one), len(other))
    head = next((n for n in range(most) if one[n] != other[n]), most)
    tail = next((n for n in range(most - head) if one[-1 - n] != other[-1 - n]), most - head)
    return head, tail


def _counted_on(line: str, by: int) -> str:
    """Return a line of a unified difference; if it tells line numbers, with `by` added to them."""
    return (
        re.sub(r"(?<=[-+])[0-9]+", lambda found: str(int(found[0]) + by), line)
        if line.startswith("@@")
        else line
    )
