"""Write what a revision opens with, and the comments that it keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from placet.note.escape import escaped_text, literal, without_templates
from placet.note.hidden_text import shortened
from placet.note.markdown import BULLET
from placet.note.outline import outline_of
from placet.plan.comments import (
    Comment,
    CommentBlock,
    comments_section,
    placed_blocks,
    text_of,
    uncommented,
    where,
)
from placet.plan.differences import diff_callout
from placet.plan.sections import step_title
from placet.wording import counted

TITLE = "What changed since revision"
_TOLD = 100  # comments


def changes_since(
    revision: int, old: str, new: str, answered: Sequence[tuple[Comment, str]]
) -> str:
    """Return the callouts that a revision opens with, ending in a newline.

    Each comment is there with its answer, empty for none, and then one difference between `old`,
    the plan of that `revision` as you left it, and `new`.
    """
    lines = [f"> [!abstract] {TITLE} {revision}"]
    for comment, answer in answered[:_TOLD]:
        marker = BULLET.match(comment.text)
        said = comment.text[marker.end() :] if marker else comment.text
        quoted = literal(f"“{shortened(said)}”")
        lines += [
            f"> - {f'Comment {where(comment)}'.rstrip()}: {quoted}",
            f"> - Answer: {literal(shortened(answer)) if answer.strip() else '**none**'}",
        ]
    if len(answered) > _TOLD:
        lines.append(f"> - and {counted(len(answered) - _TOLD, 'comment')} more, below")
    # placet wrote the text above the title
    before, now = (f"\n{uncommented(text)}".partition("\n# ")[2] for text in (old, new))
    difference = diff_callout(before, now)
    if not difference:
        lines.append("> - **Nothing** in the plan changed")
    elif not answered:
        lines.append("> - It had no open comments. This is the difference:")
    return "\n".join([*lines, difference and f"\n{difference}"])


def kept_comments(body: str) -> str:
    """Return all comments of a plan as the section of review comments of the next revision.

    Empty without one. The comments of the section are as they were written; the others become items
    of it.
    """
    section = comments_section(body)
    for block in placed_blocks(outline_of(body)):
        if text := text_of(block):
            section = (section or "## Review Comments\n\n") + _as_item(block, text)
    return without_templates(section)


def _as_item(block: CommentBlock, text: str) -> str:
    """Return a comment that lost its place as an item of the section of comments."""
    title = literal(shortened(step_title(block.place), 60))
    place = f"At “{title}”" if title else "Above the plan"
    first, *rest = escaped_text(text).split("\n")
    answers = [f"- {line}" for line in block.answers if line.startswith("**Answer:**")]
    answers += [line for line in block.answers if re.match("[-*+][ \t]", line)]
    lines = [f"- {place}: {first}", *(f"  {line}".rstrip() for line in rest)]
    return "\n".join([*lines, *(f"  {line}" for line in answers)]) + "\n"
