"""Review comments in a plan, and answers to them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placet.note.checkboxes import without_number
from placet.note.frontmatter import read_note
from placet.note.outline import (
    REJECTIONS,
    Outline,
    clean,
    escaped,
    escaped_text,
    one_line,
    outline_of,
    unescaped_heading,
    unescaped_text,
)
from placet.plan.comment_blocks import (
    REMARKS,
    SIGNED,
    CommentBlock,
    blocks_of,
    comment_parts,
    step_parts,
    title_line,
    without_comments,
)
from placet.plan.differences import CHANGED


@dataclass(frozen=True, slots=True)
class Comment:
    """A review comment without bullet, box and signature, and whether it is answered.

    `step` is the number of the step at which it stands or that it means, 0 for none, and `place`
    the heading of that step, or of the section outside the comments' own in which it stands.
    """

    text: str
    answered: bool
    step: int = 0
    place: str = ""


def comments(body: str) -> tuple[Comment, ...]:
    """Return the review comments of a plan, in the order of its lines.

    They are the items and paragraphs of the section of comments, and elsewhere, outside code, the
    quotes and items that begin with `@placet`.
    """
    outline = outline_of(body)
    titles = [step_title(part.heading) for part in step_parts(outline)]
    found = []
    for block in blocks_of(outline):
        if text := text_of(block):
            place = titles[block.step - 1] if block.step else block.place
            found.append(Comment(text, block.answered, block.step, place))
    return tuple(found)


def open_comments(body: str) -> tuple[Comment, ...]:
    """Return the comments that have no answer."""
    return tuple(comment for comment in comments(body) if not comment.answered)


def uncommented(body: str) -> str:
    """Return a plan's lines that are no comments, without blank ones that mean nothing."""
    outline = without_comments(outline_of(body))
    code = outline.code
    gone = {at for part in comment_parts(outline) for at in range(part.at, part.end)}
    gone |= outline.left_out
    return "\n".join(
        line
        for at, line in enumerate(outline.lines)
        if at not in gone and (at in code or (line.strip() and line != REMARKS))
    )


def placed(comment: Comment) -> str:
    """Return a comment as a model reads it: after its step, or the section where it stands."""
    if comment.step:
        return f"(on step {comment.step}, “{comment.place}”) {comment.text}"
    return f"(on “{comment.place}”) {comment.text}" if comment.place else comment.text


def text_of(block: CommentBlock) -> str:
    """Return a comment's words, without its signature."""
    said = "\n".join(block.lines)
    return unescaped_text(SIGNED.sub("", said).split("\n"))


def step_title(heading: str) -> str:
    """Return what a step's raw heading says, without its number."""
    return one_line(unescaped_heading(without_number(heading)))


def comments_section(body: str) -> str:
    """Return `## Review Comments` with its heading and a final newline, as written.

    Empty without one. What changed in an earlier revision is left out.
    """
    outline = outline_of(body)
    out: list[str] = []
    for part in comment_parts(outline):
        callout = False
        for line in outline.lines[part.at : part.end]:
            callout = line.startswith(CHANGED) or (callout and line.startswith(">"))
            if not callout:
                out.append(line)
    return "\n".join(out).strip() + "\n" if out else ""


def _spans(body: str) -> list[int]:
    ends, at = [], 0
    for found in re.finditer(r"\r\n|\n|\r", body):
        ends.append(found.start())
        at = found.end()
    return [*ends, max(at, len(body))]


def _eol(body: str) -> str:
    found = re.search(r"\r\n|\n|\r", body)
    return found[0] if found else "\n"


def end_fence(outline: Outline, at: int) -> list[str]:
    """Return the line that closes a code block which is still open after line `at`, or none."""
    fence = outline.unclosed
    if fence is None or at < max(outline.fences):
        return []
    return [" " * fence.indent + fence.char * fence.length]


def with_comment(body: str, text: str, who: str, at: str) -> str:
    """Return `body` with one more review comment, signed `who` at the local time `at`.

    A missing section is made. Every byte that was there stays. Raises ValueError for
    an empty comment.
    """
    cleaned = clean(text).replace("**Answer:**", "**Answer**:")  # it would count as answered
    if not cleaned:
        raise ValueError("a comment needs a text")
    name = " ".join(re.sub(r"[*`<>\[\]]", " ", one_line(who)).split())[:80] or "somebody"
    sign = f"- **{name}, {at}:**"
    escaped = escaped_text(cleaned).split("\n")
    new = [f"{sign} {escaped[0]}"]
    if len(escaped) > 1:
        new = [sign, *(f"  {line}" if line else "" for line in escaped)]
    outline = outline_of(body)
    parts = comment_parts(outline)
    stop = parts[-1].end if parts else len(outline.lines)
    last = next((n for n in range(stop - 1, -1, -1) if outline.lines[n].strip()), -1)
    before = end_fence(outline, last)
    if not parts:
        new = (
            ["", "## Review Comments", "", *new] if last >= 0 else ["## Review Comments", "", *new]
        )
    elif not re.match(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]|  |\t", outline.lines[last]):
        new = ["", *new]
    return with_lines(body, {last: [*before, *new]})


def with_comments(raw: bytes, said: Sequence[str], who: str, at: str) -> bytes:
    """Return a note with these comments, signed as `with_comment` does.

    A comment that it has already is not repeated.
    """
    body = text = read_note(raw).body
    for comment in said:
        added = with_comment(text, comment, who, at)
        before, now = (Counter(one.text for one in open_comments(t)) for t in (text, added))
        if not (now - before).keys() & before.keys():
            text = added
    return raw[: len(raw) - len(body.encode())] + text.encode()


def with_answers(body: str, answers: Sequence[str]) -> str:
    """Return `body` with an answer below each comment that has none, in order.

    The comments stay as they are. An empty answer does not count: that comment stays open, and so
    do those beyond the last answer. Raises ValueError for more answers than open comments.
    """
    outline = outline_of(body)
    waiting = [b for b in blocks_of(outline) if not b.answered and text_of(b)]
    if len(answers) > len(waiting):
        raise ValueError(f"{len(answers)} answers were given to {len(waiting)} open comments")
    new: dict[int, list[str]] = {}
    for block, answer in zip(waiting, answers, strict=False):
        if line := one_line(answer):
            new[block.last] = [*end_fence(outline, block.last), *block.answer(escaped(line))]
    return with_lines(body, new)


def with_lines(body: str, new: Mapping[int, Sequence[str]]) -> str:
    """Return `body` with lines put in after the lines of these indices (-1: before the first)."""
    eol = _eol(body)
    ends = _spans(body)
    out: list[str] = []
    done = 0
    for at in sorted(new):
        place = ends[at] if at >= 0 else 0
        lines = eol.join(new[at])
        out += [body[done:place], eol + lines if at >= 0 else lines]
        if place == len(body) or at < 0:
            out.append(eol)
        done = place
    return "".join([*out, body[done:]])


_REJECTED = re.compile(
    r"[*_`]*rejection(?: reason)?[*_`]*\s*[:\u2013\u2014-]\s*(.*)$", re.IGNORECASE
)


def rejection_reason(body: str) -> str:
    """Return the text below `## Rejection`, or behind it (`## Rejection: too broad`).

    Empty without one.
    """
    outline = outline_of(body)
    out: list[str] = []
    parts = outline.parts(0, len(outline.lines), 6)
    title = title_line(parts)
    for part in parts:
        beside = _REJECTED.match(part.title)
        if part.level and part.at != title and (part.name in REJECTIONS or beside):
            out += [beside[1].strip("*_` ") if beside else "", unescaped_text(outline.texts(part))]
    return "\n\n".join(text for text in out if text)
