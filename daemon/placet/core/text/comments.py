"""Review comments in a plan, answers to them, and differences between two texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placet.core.text.characters import visible
from placet.core.text.plan_text import (
    BULLET,
    HEADING,
    REJECTIONS,
    Outline,
    Part,
    clean,
    escaped,
    escaped_text,
    fenced,
    one_line,
    outline_of,
    unescaped_text,
)
from placet.core.text.reading_view import lines_of

# --- review comments

_ANSWER = re.compile(r"[ \t]*[-*+][ \t]+\*\*Answer:\*\*")
_TOP_BULLET = re.compile(r" ?(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)")
_SIGNED = re.compile(r"\*\*[^*\n]{1,200}, [0-9]{4}-[0-9T :.-]{5,40}Z?:\*\*[ \n]?")
_CHANGED = "> [!note]- What changed"


@dataclass(frozen=True, slots=True)
class Comment:
    """A review comment without bullet, box and signature, and whether it is answered.

    Whether it is answered.
    """

    text: str
    answered: bool


@dataclass(slots=True)
class _CommentBlock:
    """A comment in the text: its lines, where it ends, how far an answer to it is indented."""

    lines: list[str]
    last: int
    indent: str
    answered: bool = False
    bare: bool = False  # a heading, so far without text


def _comment_parts(outline: Outline) -> list[Part]:
    return [
        p
        for p in outline.parts(0, len(outline.lines), 2)
        if p.level and p.name == "review comments"
    ]


def _blocks(outline: Outline, part: Part) -> list[_CommentBlock]:
    """Cut a section of comments.

    A bullet at the edge begins one, and a paragraph after a blank line.
    """
    out: list[_CommentBlock] = []
    gap, answer, callout = 0, False, False
    fence_end = -1
    for at in range(part.at + 1, part.end):
        line = outline.lines[at]
        current = out[-1] if out else None
        fence_end = max(fence_end, outline.fences.get(at, -1))
        callout = line.startswith(_CHANGED) or (callout and line.startswith(">"))
        bullet = _TOP_BULLET.match(line)
        heading = HEADING.match(line)
        indented = line.startswith(("  ", "\t"))
        if at <= fence_end and current:
            # A code block belongs to the comment above it.
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        elif callout or not line.strip():
            gap += 1
        elif _ANSWER.match(line) and current:
            current.answered = answer = True
            current.last, gap = at, 0
        elif heading and not indented:
            out.append(_CommentBlock([line[heading.end() :].strip()], at, "", bare=True))
            answer, gap = False, 0
        elif bullet:
            boxed = BULLET.match(line)
            assert boxed
            out.append(_CommentBlock([line[boxed.end() :]], at, " " * len(boxed[1]) + " "))
            answer, gap = False, 0
        elif current and (indented or not gap or current.bare):
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        else:
            out.append(_CommentBlock([line], at, ""))
            answer, gap = False, 0
    return [block for block in out if not block.bare and any(line.strip() for line in block.lines)]


def comments(body: str) -> tuple[Comment, ...]:
    """Return the review comments of a plan in order: its items and paragraphs."""
    outline = outline_of(body)
    out: list[Comment] = []
    for part in _comment_parts(outline):
        for block in _blocks(outline, part):
            width = len(block.indent)
            inner = [
                line[width:] if not line[:width].strip() else line.lstrip()
                for line in block.lines[1:]
            ]
            signed = _SIGNED.match("\n".join([block.lines[0], *inner]))
            rest = "\n".join([block.lines[0], *inner])[signed.end() if signed else 0 :]
            if text := unescaped_text(rest.split("\n")):
                out.append(Comment(text, block.answered))
    return tuple(out)


def comments_section(body: str) -> str:
    """Return `## Review Comments` with its heading and a final newline, as written.

    Empty without one.

    What changed in an earlier revision is left out.
    """
    outline = outline_of(body)
    out: list[str] = []
    for part in _comment_parts(outline):
        callout = False
        for line in outline.lines[part.at : part.end]:
            callout = line.startswith(_CHANGED) or (callout and line.startswith(">"))
            if not callout:
                out.append(line)
    return "\n".join(out).strip() + "\n" if out else ""


def _spans(body: str) -> list[int]:
    """Return where each line of `body` ends, before its line end."""
    ends, at = [], 0
    for found in re.finditer(r"\r\n|\n|\r", body):
        ends.append(found.start())
        at = found.end()
    return [*ends, max(at, len(body))]


def _eol(body: str) -> str:
    found = re.search(r"\r\n|\n|\r", body)
    return found[0] if found else "\n"


def _end_fence(outline: Outline, at: int) -> list[str]:
    """Return the line that closes a fence which is still open at line `at`."""
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
    parts = _comment_parts(outline)
    stop = parts[-1].end if parts else len(outline.lines)
    last = next((n for n in range(stop - 1, -1, -1) if outline.lines[n].strip()), -1)
    before = _end_fence(outline, last)
    if not parts:
        new = (
            ["", "## Review Comments", "", *new] if last >= 0 else ["## Review Comments", "", *new]
        )
    elif not re.match(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]|  |\t", outline.lines[last]):
        new = ["", *new]
    return _inserted(body, {last: [*before, *new]})


def with_answers(body: str, answers: Sequence[str]) -> str:
    """Return `body` with an answer below each comment that has none, in order.

    The comments stay as they are.

    An empty answer does not count: that comment stays open, and so do those beyond the last
    answer. Raises ValueError for more answers than open comments.
    """
    outline = outline_of(body)
    waiting = [
        b for part in _comment_parts(outline) for b in _blocks(outline, part) if not b.answered
    ]
    if len(answers) > len(waiting):
        raise ValueError(f"{len(answers)} answers were given to {len(waiting)} open comments")
    new: dict[int, list[str]] = {}
    for block, answer in zip(waiting, answers, strict=False):
        if line := one_line(answer):
            below = f"{block.indent}- **Answer:** {escaped(line)}"
            new[block.last] = [*_end_fence(outline, block.last), below]
    return _inserted(body, new)


def _inserted(body: str, new: Mapping[int, Sequence[str]]) -> str:
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
    for part in outline.parts(0, len(outline.lines), 6):
        beside = _REJECTED.match(part.title)
        if part.level and (part.name in REJECTIONS or beside):
            out += [beside[1].strip("*_` ") if beside else "", unescaped_text(outline.texts(part))]
    return "\n\n".join(text for text in out if text)


# --- what changed

# Between the first and the last line that differ, texts are compared line by line up to so many
# lines: difflib takes minutes for a hundred thousand lines, and 0.3 s for a thousand that were made
# to be slow.
COMPARED_LINES = 1_000

# A longer difference is not shown: it goes into the note that was changed, and notes have a limit
# (vault.NOTE_LIMIT).
SHOWN_CHARS = 100_000


def diff_callout(old: str, new: str) -> str:
    """Return a folded callout with the difference of two texts, ending in a newline.

    Empty for equal texts.

    Characters that would not be seen are written out. Of texts that differ in too much it says only
    how much.
    """
    if old == new:
        return ""
    before, now = lines_of(old), lines_of(new)
    head, tail = _alike(before, now)
    gone, come = len(before) - head - tail, len(now) - head - tail
    shown = [
        f"From line {head + 1} on, {gone:,} line(s) became {come:,}: too much to be shown here."
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
            shown = [visible(line) for line in diff]
    block = fenced("\n".join(shown), "diff").split("\n")
    return "\n".join([_CHANGED, *(f"> {line}" for line in block)]) + "\n"


def without_difference(text: str) -> str:
    """Return a text up to the callout that `diff_callout` made, also where that was cut off."""
    return text.partition(f"\n{_CHANGED}\n")[0]


def parted(text: str) -> tuple[str, str]:
    """Return a text without the callout that `diff_callout` made for its end, and that callout.

    Empty without one.
    """
    words, mark, block = text.partition(f"\n{_CHANGED}\n")
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
    return words, f"{_CHANGED}\n{block}"


def changed_lines(old: str, new: str) -> list[list[int]]:
    """Return the ranges `[first, last]` of lines of `new`, counted from 1, that differ from `old`.

    In order.

    Where lines were only taken out the range is empty: `[n, n - 1]` says that they stood before
    line `n`. Lines end with a line feed, as editors count them; a changed line end is a change.
    Where more than COMPARED_LINES lie between the first and the last that differ, they are one
    range.
    """
    before, now = old.split("\n"), new.split("\n")
    head, tail = _alike(before, now)
    one, other = before[head : len(before) - tail], now[head : len(now) - tail]
    if max(len(one), len(other)) > COMPARED_LINES:
        return [[head + 1, head + len(other)]]
    steps = difflib.SequenceMatcher(None, one, other).get_opcodes()
    return [[head + first + 1, head + last] for tag, _, _, first, last in steps if tag != "equal"]


_CONTEXT = 2  # lines that are the same, shown around a difference


def _alike(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
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
