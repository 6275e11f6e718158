"""Comments of a plan that is revised, put at the same steps of the new one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import dedent

from placet.core.text.characters import shortened
from placet.core.text.plan_changes import matched
from placet.note.boxes import box_at
from placet.note.escape import literal
from placet.note.outline import Outline, escaped_text, outline_of
from placet.plan.comment_blocks import CommentBlock, blocks_of, placed_blocks, step_parts
from placet.plan.comments import (
    comments_section,
    end_fence,
    step_title,
    text_of,
    with_lines,
)


def with_old_comments(old: str, new: str) -> tuple[str, str]:
    """Return the text `new` with the comments of `old` at their steps, and the others.

    The second is a section of review comments with its heading, empty without a comment. The
    comments are as they were written; those of a step that is gone, or that stood elsewhere, become
    items of the section.
    """
    before, now = outline_of(old), outline_of(new)
    steps = step_parts(now)
    pairs = matched(*([step_title(p.heading) for p in step_parts(o)] for o in (before, now)))
    lines: dict[int, list[str]] = {}
    section = comments_section(_renumbered(before, pairs))
    for block in placed_blocks(before):
        if block.step in pairs:
            raw = dedent("\n".join(before.lines[block.first : block.last + 1])).split("\n")
            at = steps[pairs[block.step] - 1].at
            at += 2 * bool(box_at("".join(now.lines[at + 2 : at + 3])))
            lines.setdefault(at, []).extend(["", *raw, *end_fence(before, block.last)])
        elif text := text_of(block):
            section = (section or "## Review Comments\n\n") + _as_item(block, text)
    return with_lines(new, lines), section


def _renumbered(outline: Outline, pairs: Mapping[int, int]) -> str:
    """Return a plan's text in which the comments that mean a step by its number mean it still."""
    lines = list(outline.lines)
    for block in blocks_of(outline):
        now = pairs.get(block.step)
        if not block.step or block.place or now == block.step:
            continue
        number = re.compile(
            rf"(?<![0-9])(?:step[ \t]+)?0*{block.step}([.)])(?=[ \t]|$)", re.IGNORECASE
        )
        for at in (block.first, block.first + 1):  # a signature may be a line of its own
            if found := number.search(lines[at]):
                head, rest = lines[at][: found.start()], lines[at][found.end() :]
                bullet = "" if head.strip() or at > block.first else "- "
                gone = f"{bullet}At step {block.step}, removed:"
                lines[at] = f"{head}{f'{now}{found[1]}' if now else gone}{rest}"
                break
    return "\n".join(lines)


def _as_item(block: CommentBlock, text: str) -> str:
    """Return a comment that lost its place as an item of the section of comments."""
    gone = "a removed step" if block.step else "the plan"
    title = literal(shortened(step_title(block.place), 60))
    place = f"In {gone}, “{title}”" if title else "Above the plan"
    first, *rest = escaped_text(text).split("\n")
    answers = [f"- {line}" for line in block.answers if line.startswith("**Answer:**")]
    answers += [line for line in block.answers if re.match("[-*+][ \t]", line)]
    lines = [f"- {place}: {first}", *(f"  {line}".rstrip() for line in rest)]
    return "\n".join([*lines, *(f"  {line}" for line in answers)]) + "\n"
