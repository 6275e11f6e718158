"""Find review comments in a plan, their answers, and those that a revision keeps."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placet.note.escape import (
    clean,
    escaped,
    escaped_text,
    literal,
    one_line,
    unescaped_text,
    without_templates,
)
from placet.note.frontmatter import read_note
from placet.note.hidden_text import shortened
from placet.note.markdown import BULLET, Fence, fence_at
from placet.note.outline import HEADING, Outline, Part, outline_of
from placet.plan.differences import CHANGED, diff_callout
from placet.plan.sections import (
    COMMENTS,
    comment_parts,
    end_fence,
    places_of,
    step_parts,
    step_title,
    title_line,
    with_lines,
)
from placet.wording import counted

REMARKS = "> [!note] Moved here from placet's box"
"""The first line above text that a person wrote into the box."""
_CALLOUT = re.compile(r" {0,3}>[> \t]*\[!")
_ANSWER = re.compile(r"(?:[ \t]*[-*+][ \t]+)?\*\*Answer:\*\*")
_LISTED_ANSWER = re.compile(r"[ \t]*[-*+][ \t]+\*\*Answer:\*\*")
_TOP_BULLET = re.compile(r" ?(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)")
_QUOTE = re.compile(r" {0,3}>[ \t]?")
_MARK = r"(?:\[[ xX]\][ \t]+)?[*_`]*@placet(?![\w-])[*_`]*[:,]?[ \t]*"
_QUOTED = re.compile(rf" {{0,3}}>[> \t]*(?:[-*+][ \t]+)?{_MARK}", re.IGNORECASE)


@dataclass(slots=True)
class CommentBlock:
    """A comment in the text."""

    lines: list[str]
    """Its text without bullet or quote marks, up to its first answer."""
    first: int
    """Number of its first line."""
    last: int
    """Number of its last line."""
    indent: str
    """What an answer to it is indented by."""
    answered: bool = False
    bare: bool = False
    """Whether it is a heading without text yet."""
    quoted: bool = False
    answers: list[str] = field(default_factory=list)
    """Answers to a comment outside the section."""
    step: int = 0
    """Number of the step that it is at, or 0."""
    place: str = ""
    """The heading above it; empty in the section of comments."""

    def answer(self, text: str) -> list[str]:
        """Return the lines of an answer, to be put in after the line `last`."""
        if self.quoted:
            return [f"{self.indent}>", f"{self.indent}> **Answer:** {text}"]
        return [f"{self.indent}- **Answer:** {text}"]


def blocks_of(outline: Outline) -> list[CommentBlock]:
    """Return all comments in the order of their lines."""
    found = placed_blocks(outline)
    steps = places_of(step_parts(outline))
    for part in comment_parts(outline):
        found += _section_blocks(outline, part, steps)
    return sorted(found, key=lambda block: block.first)


def placed_blocks(outline: Outline) -> list[CommentBlock]:
    """Return the comments outside their section: quotes that begin with `@placet`."""
    if not any("@placet" in line.casefold() for line in outline.lines):
        return []
    steps = step_parts(outline)
    out: list[CommentBlock] = []
    parts = outline.parts(0, len(outline.lines), 2)
    title = title_line(parts)
    for part in parts:
        no_place = part.name == COMMENTS or part.name.startswith("rejection")
        if part.level and no_place and part.at != title:
            continue
        found = [*(_marked if part.level else _above_title)(outline, part)]
        for block in found:
            block.place = part.title
        out += found
    starts = [part.at for part in steps]
    for block in out:
        number = bisect(starts, block.first)
        if number and block.first < steps[number - 1].end:
            block.step, block.place = number, steps[number - 1].title
    return out


def _above_title(outline: Outline, part: Part) -> Iterator[CommentBlock]:
    """Give the comments above a plan's first heading; the model's words may be in a callout."""
    last = head = 0
    for block in _marked(outline, part):
        at = block.first
        while at > last and outline.lines[at - 1].startswith(">"):
            at -= 1
        # back at the comment before this one it is in the same quote
        head = at if at > last or not (at and outline.lines[at - 1].startswith(">")) else head
        last = block.first
        first = outline.lines[head]
        if first == REMARKS or not _CALLOUT.match(first):
            yield block


def without_comments(outline: Outline) -> Outline:
    """Return a plan's lines with those blank, and left out, that are comments at a step or so."""
    blocks = placed_blocks(outline)
    if not blocks:
        return outline
    lines = list(outline.lines)
    removed: set[int] = set()
    for block in blocks:
        removed.update(range(block.first, block.last + 1))
    for at in removed:
        lines[at] = ""
    at = 0
    for block in blocks:
        # of the blanks around it those before it are enough
        at = max(at, block.last + 1)
        while not lines[block.first - 1].strip() and at < len(lines) and not lines[at].strip():
            removed.add(at)
            at += 1
    # One without an end stays: the plan is invalid, and the problem names its line.
    open_at = max(outline.fences) if outline.unclosed else -1
    fences = {a: end for a, end in outline.fences.items() if a not in removed or a == open_at}
    return replace(outline, lines=tuple(lines), fences=fences, left_out=frozenset(removed))


def _marked(outline: Outline, part: Part) -> Iterator[CommentBlock]:
    fence: tuple[Fence, bool] | None = None  # one that the outline does not know, in a quote or so
    at = part.at + 1
    while at < part.end:
        line = outline.lines[at]
        inner, in_quote = line.lstrip(" \t>"), line.lstrip().startswith(">")
        if at in outline.fences:
            fence, at = None, outline.fences[at]
        elif fence is not None and fence[1] is in_quote:
            fence = None if fence[0].closes(inner) else fence
        elif (opened := fence_at(inner)) is not None:
            fence = opened, in_quote
        elif found := _QUOTED.match(line):
            yield (block := _quote(outline, at, part.end, found.end()))
            at = block.last
        else:
            fence = None
        at += 1


def _quote(outline: Outline, first: int, end: int, begin: int) -> CommentBlock:
    """Return the comment that is a quote from line `first`, whose text begins at `begin`."""
    lines = [outline.lines[first][begin:]]
    fence: Fence | None = None
    for at in range(first + 1, end):
        line = outline.lines[at]
        mark = _QUOTE.match(line)
        if mark is None or (fence is None and _QUOTED.match(line)):
            break
        inner = line[mark.end() :]
        fence = (None if fence.closes(inner) else fence) if fence else fence_at(inner)
        lines.append(inner)
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    indent = outline.lines[first][: outline.lines[first].index(">")]
    block = CommentBlock(lines, first, first + len(lines) - 1, indent, quoted=True)
    return _without_answers(block)


def _dedented(line: str, width: int) -> str:
    shown = line.expandtabs(4) if line[:1] == "\t" else line
    return shown[width:] if not shown[:width].strip() else shown.lstrip()


def _without_answers(block: CommentBlock) -> CommentBlock:
    """Part a comment's lines from those of its answers."""
    starts = [n for n, line in enumerate(block.lines) if n and _ANSWER.match(line)]
    if starts:
        block.answered, block.answers = True, block.lines[starts[0] :]
        block.lines = block.lines[: starts[0]]
    return block


def _section_blocks(outline: Outline, part: Part, steps: Mapping[int, int]) -> list[CommentBlock]:
    """Cut a section of comments.

    A bullet at the edge begins one, and a paragraph after a blank line. `steps` are the places of
    steps by their numbers.
    """
    out: list[CommentBlock] = []
    gap, answer, callout = 0, False, False
    fence_end = -1
    for at in range(part.at + 1, part.end):
        line = outline.lines[at]
        current = out[-1] if out else None
        fence_end = max(fence_end, outline.fences.get(at, -1))
        callout = line.startswith(CHANGED) or (callout and line.startswith(">"))
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
        elif _LISTED_ANSWER.match(line) and current:
            current.answered = answer = True
            current.last, gap = at, 0
        elif heading and not indented:
            out.append(CommentBlock([line[heading.end() :].strip()], at, at, "", bare=True))
            answer, gap = False, 0
        elif bullet:
            boxed = BULLET.match(line)
            assert boxed
            out.append(CommentBlock([line[boxed.end() :]], at, at, " " * len(boxed[1]) + " "))
            answer, gap = False, 0
        elif current and (indented or not gap or current.bare):
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        else:
            out.append(CommentBlock([line], at, at, ""))
            answer, gap = False, 0
    kept = [block for block in out if not block.bare and any(line.strip() for line in block.lines)]
    for block in kept:
        head, *rest = block.lines
        block.lines = [head, *(_dedented(line, len(block.indent)) for line in rest)]
        block.step = _step_meant(outline.lines[block.first], "\n".join(block.lines), steps)
    return kept


_NUMBERED = re.compile(r"[ \t]*(?:step[ \t]+)?([0-9]{1,4})[.)](?:[ \t]|$)", re.IGNORECASE)


def _step_meant(line: str, text: str, steps: Mapping[int, int]) -> int:
    """Return the step that an item means by beginning with its number and a dot, or 0."""
    for candidate in (SIGNED.sub("", text), line):
        if (found := _NUMBERED.match(candidate)) and (place := steps.get(int(found[1]), 0)):
            return place
    return 0


SIGNED = re.compile(r"\A\*\*[^*\n]{1,200}, [0-9]{4}-[0-9T :.-]{5,40}Z?:\*\*[ \n]?")
"""Who wrote a comment and when, in front of it."""


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
    quotes that begin with `@placet`.
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
    """Return a plan's lines that are not comments, without blank ones that mean nothing."""
    outline = without_comments(outline_of(body))
    code = outline.code
    removed = {at for part in comment_parts(outline) for at in range(part.at, part.end)}
    removed |= outline.left_out
    return "\n".join(
        line
        for at, line in enumerate(outline.lines)
        if at not in removed and (at in code or (line.strip() and line != REMARKS))
    )


def placed(comment: Comment) -> str:
    """Return a comment as a model reads it: after its step, or the section where it stands."""
    if comment.step:
        return f"(on step {comment.step}, “{comment.place}”) {comment.text}"
    return f"(on “{comment.place}”) {comment.text}" if comment.place else comment.text


def text_of(block: CommentBlock) -> str:
    """Return a comment's words, without its signature."""
    text = "\n".join(block.lines)
    return unescaped_text(SIGNED.sub("", text).split("\n"))


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


def with_comments(raw: bytes, comments: Sequence[str], who: str, at: str) -> bytes:
    """Return a note with these comments, signed as `with_comment` does.

    A comment that it has already is not repeated.
    """
    body = text = read_note(raw).body
    for comment in comments:
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


# --- what a revision opens with, and the comments that it keeps

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
        quoted = literal(f"“{shortened(comment.text)}”")
        lines += [
            f"> - {f'Comment {where(comment)}'.rstrip()}: {quoted}",
            f"> - Answer: {literal(shortened(answer)) if answer.strip() else '**none**'}",
        ]
    if len(answered) > _TOLD:
        lines.append(f"> - and {counted(len(answered) - _TOLD, 'comment')} more, below")
    # what is above the title is placet's
    before, now = (f"\n{uncommented(text)}".partition("\n# ")[2] for text in (old, new))
    difference = diff_callout(before, now)
    if not difference:
        lines.append("> - **Nothing** in the plan changed")
    elif not answered:
        lines.append("> - It had no open comments. This is the difference:")
    return "\n".join([*lines, difference and f"\n{difference}"])


def where(comment: Comment) -> str:
    """Return where a comment stands, in words for a sentence; empty for the plan as a whole."""
    if comment.step:
        return f"at step {comment.step}"
    return f"at {literal(shortened(comment.place, 60))}" if comment.place else ""


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
