"""Parse a plan's text, and report all of its problems at once.

`parse_plan` is tolerant where people edit (headings, lists, numbering, callouts, line endings) and
strict where permission is concerned (exactly one readable scope; nothing unknown in it).
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from placet.errors import PlacetError
from placet.note.checkboxes import (
    STRUCK_STEP,
    boxes,
    is_marked,
    number_in,
    without_number,
    wrong_with,
)
from placet.note.escape import (
    LABEL,
    clean,
    one_line,
    unescaped,
    unescaped_comments,
    unescaped_heading,
    unescaped_text,
)
from placet.note.frontmatter import UnresolvedMergeError, read_toml
from placet.note.markdown import BULLET, commented_lines, fence_at
from placet.note.outline import HEADING, Outline, Part, named, outline_of
from placet.plan.comments import without_comments
from placet.plan.limits import text_excess
from placet.plan.plan import NOTHING, SECTIONS, LiteralCall, Plan, Section, Step
from placet.plan.scope import TOOL_NAME, Scope, ScopeProblems, scope_from
from placet.plan.sections import REJECTIONS


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """A problem in a plan's text: its line (from 1) and how to fix it."""

    line: int
    message: str


class PlanProblems(PlacetError):  # noqa: N818 - it carries problems, plural
    """The text is not a plan. `problems` are all of them, in the order of their lines."""

    def __init__(self, problems: Iterable[PlanProblem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
        super().__init__("\n".join(f"line {p.line}: {p.message}" for p in self.problems))


_MOST_PROBLEMS = 50  # of a scope: each has its line looked for


class BrokenTomlError(ValueError):
    """TOML that cannot be read: the index of the line in the block, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def toml_table(text: str, *, decimals: bool) -> dict[str, Any]:
    """Return the table of a block's text, numbers with a point as Decimal where asked.

    Raises BrokenTomlError.
    """
    try:
        return read_toml(text, _decimal if decimals else float)
    except (ValueError, RecursionError) as error:
        reason, _, where = str(error).partition(" (at ")
        found = re.match(r"line (\d+)", where)
        line = int(found[1]) - 1 if found else text.count("\n")
        raise BrokenTomlError(line, reason or "it is nested too deeply") from error


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has too large an exponent") from None


def labelled(outline: Outline, at: int, label: re.Match[str], stop: int) -> tuple[list[str], int]:
    """Return the items after a label, on its line or below, and the first line after them."""
    opening = re.search(r"[*_`]*$", label[1][: label.start(2) - label.start(1)])
    closed = label[1].rstrip()[-1:] in tuple("*_`")
    rest = label[4][1:].strip()
    if opening and opening[0] and not closed:
        rest = rest.removeprefix(opening[0]).strip()
    items = [rest] if rest else []
    listed = blank = False
    at += 1
    while at < stop and at not in outline.fences:
        line = outline.lines[at]
        if not line.strip():
            blank = True
            at += 1
            continue
        bullet = BULLET.match(line)
        if HEADING.match(line) or ((other := LABEL.match(line)) and not other[3]):
            break
        if bullet and not (blank and rest and not listed):
            items.append(line[bullet.end() :])
            listed = True
        elif blank:
            break
        elif items:
            items[-1] += " " + line.strip()
        else:
            items = [line.strip()]
        blank = False
        at += 1
    while at > 0 and not outline.lines[at - 1].strip():
        at -= 1
    return items, at


def items_of(lines: Sequence[str]) -> list[str]:
    """Return the items of lists and the paragraphs in these lines."""
    out: list[str] = []
    gap = True
    for line in lines:
        bullet = BULLET.match(line)
        text = line[bullet.end() :] if bullet else line.strip()
        if not line.strip():
            gap = True
        elif bullet or gap or not out:
            out.append(unescaped(text))
            gap = False
        else:
            out[-1] += " " + unescaped(text)
    return out


_UNTICK = "to leave the step out, untick the box below its heading"
_EXAMPLE = 'write = ["src/**"], run = ["python -m pytest -q"], network = false'


class _PlanReader:
    """One reading of one text: it collects the problems and gives up nothing before the end."""

    def __init__(self, body: str, known_tools: Collection[str] | None) -> None:
        self.whole = outline_of(body)
        self.outline = without_comments(self.whole)
        self.known_tools = known_tools
        self.hidden = commented_lines(body)
        self.boxes: dict[int, str] = {}
        self.box_lines: list[int] = []
        self.problems: list[PlanProblem] = []

    def problem(self, at: int, message: str) -> None:
        self.problems.append(PlanProblem(at + 1, message))

    def seen(self, at: int, what: str) -> None:
        """Note a problem where structure stands in a comment: a reviewer did not see it."""
        if at + 1 in self.hidden:
            why = f"{what} stands in a comment, which is not shown; take the comment marks away"
            self.problem(at, why)

    def plan(self) -> Plan:
        outline = self.outline
        whole = len(outline.lines)
        parts = outline.parts(0, whole, 2)
        title, summary = "", ""
        sections: dict[str, list[Part]] = {name: [] for name in SECTIONS}
        others: list[Section] = []
        for part in parts[1:]:
            text = part.title
            name = named(text)
            if name in SECTIONS and part.level == 2:
                sections[name].append(part)
                self.seen(part.at, f"the heading of `## {name.title()}`")
            elif part.level == 1 and not title and not text:
                self.problem(part.at, "the title is empty; write `# What this plan does`")
                title = "?"
            elif part.level == 1 and not title:
                title, summary = text, unescaped_text(outline.texts(part))
                self.seen(part.at, "the title")
            elif name in SECTIONS:
                why = f"this heading has the wrong level; write `## {name.title()}`"
                self.problem(part.at, why)
            elif name not in REJECTIONS and not name.startswith("rejection"):
                below = unescaped_text(outline.texts(part))
                if text or below:
                    others.append(Section(text or "Notes", below))
        if not title:
            self.problem(0, "the plan has no title; begin it with a line `# What this plan does`")
        steps = self.steps(sections["steps"])
        intro = [line for part in sections["steps"] for line in outline.texts(self.parts(part)[0])]
        summary = clean(f"{summary}\n\n{unescaped_text(intro)}")
        scope = self.scope(sections["scope"], others)
        risks = [item for part in sections["risks"] for item in items_of(outline.texts(part))]
        # A fence left open in the comments, at the end of the note, hides nothing of the plan.
        in_comments = any(part.end == whole for part in sections["review comments"])
        if outline.unclosed and not in_comments:
            marks = outline.unclosed.char * outline.unclosed.length
            why = f"this code fence is never closed; end it with a line {marks}"
            self.problem(max(outline.fences), why)
        if self.problems or scope is None:
            raise PlanProblems(self.problems)
        texts = ("\n".join(outline.texts(part)) for part in sections["review comments"])
        comments = unescaped_comments(clean("\n\n".join(texts)))
        return Plan(title, summary, tuple(steps), scope, tuple(risks), comments, tuple(others))

    def parts(self, section: Part) -> list[Part]:
        return self.outline.parts(section.at + 1, section.end, 3)

    def only(self, sections: Sequence[Part], missing: str, second: str) -> Part | None:
        if not sections:
            self.problem(0, missing)
            return None
        for extra in sections[1:]:
            self.problem(extra.at, second)
        return sections[0]

    def steps(self, sections: Sequence[Part]) -> list[Step]:
        section = self.only(
            sections,
            "the plan has no steps; write `## Steps` and below it `### 1. What to do`",
            "there is a second `## Steps`; put all steps under the first one",
        )
        if section is None:
            return []
        parts = self.parts(section)[1:]
        if not parts:
            why = "there is no step below; write each one as `### 1. What to do`"
            self.problem(section.at, why)
        self.take_boxes(section)
        steps = [self.step(number, part) for number, part in enumerate(parts, 1)]
        if steps and all(step.left_out for step in steps):
            self.problem(section.at, "every step is left out; tick one, or reject the plan")
        return steps

    def take_boxes(self, section: Part) -> None:
        """Take the steps' boxes out of the lines, so that they are in no step's text.

        One that slipped into a comment is a step's, too.
        """
        code = self.whole.code
        self.boxes = boxes(self.whole.lines, section.at + 1, section.end, code)
        self.box_lines = sorted(self.boxes)
        for at in range(section.at + 1, section.end):
            if at not in code and STRUCK_STEP.match(self.outline.lines[at]):
                self.problem(at, f"this step's title is struck; {_UNTICK}")
        lines = ("" if n in self.boxes else t for n, t in enumerate(self.outline.lines))
        self.outline = replace(self.outline, lines=tuple(lines))

    def step(self, number: int, part: Part) -> Step:
        self.seen(part.at, f"step {number}")
        raw = without_number(part.heading)
        if is_marked(raw):
            self.problem(part.at, f"step {number}: its title has a box or `~~`; {_UNTICK}")
        title = one_line(unescaped_heading(raw))
        left_out = self.box(number, part)
        if not title:
            self.problem(part.at, f"step {number} has no title; write `### {number}. What to do`")
        description: list[str] = []
        tools: list[str] = []
        done_when: list[str] = []
        actions: list[LiteralCall] = []
        at = part.at + 1
        while at < part.end:
            label = LABEL.match(self.outline.lines[at])
            if at in self.outline.fences:
                end = self.outline.fences[at]
                fence = fence_at(self.outline.lines[at])
                if fence and fence.language == "toml":
                    actions += self.actions(number, at, end)
                else:
                    description += self.outline.lines[at : end + 1]
                at = end + 1
            elif label and not label[3]:
                items, end = labelled(self.outline, at, label, part.end)
                if label[2].lower().startswith("tool"):
                    tools += self.tools(number, at, items)
                else:
                    done_when += [unescaped(item) for item in items]
                at = end
            else:
                if at not in self.outline.left_out:
                    description.append(self.outline.lines[at])
                at += 1
        text = unescaped_text(description)
        called = number_in(part.heading)
        lists = tuple(tools), tuple(done_when), tuple(actions)
        return Step(title or "?", text, *lists, left_out, called if called != number else 0)

    def box(self, number: int, part: Part) -> bool:
        """Return whether a step's box leaves it out."""
        first, end = (bisect_left(self.box_lines, at) for at in (part.at + 1, part.end))
        marks = {at: self.boxes[at] for at in self.box_lines[first:end]}
        for at in marks:
            self.seen(at, f"the box of step {number}")
        if wrong := wrong_with([*marks.values()]):
            self.problem(min(marks), f"step {number} {wrong}")
        return " " in marks.values()

    def tools(self, number: int, at: int, items: Sequence[str]) -> list[str]:
        out: list[str] = []
        for word in re.split(r"[,;\s]+", " ".join(items)):
            name = word.strip("`*\"'.()")
            if name.casefold() in (*NOTHING, "and", "&", "or"):
                continue
            if not TOOL_NAME.fullmatch(name):
                wrong = f"{name[:80]!r} is not the name of a tool; write `Tools: read_file`"
                self.problem(at, f"step {number}: {wrong}")
            elif self.known(f"step {number}", at, name):
                out.append(name)
        return out

    def known(self, where: str, at: int, name: str) -> bool:
        if self.known_tools is None or name in self.known_tools:
            return True
        hint = f"there are {', '.join(sorted(self.known_tools))}"
        if near := difflib.get_close_matches(name, self.known_tools, 1):
            hint = f"did you mean `{near[0]}`?"
        self.problem(at, f"{where}: there is no tool `{name}`; {hint}")
        return False

    def actions(self, number: int, at: int, end: int) -> list[LiteralCall]:
        self.seen(at, f"an action of step {number}")
        table = self.toml(at, end, self.inside(at, end), decimals=False)
        if table is None:
            return []
        where = f"step {number}"
        hint = 'write `[[actions]]`, below it `tool = "write_file"` and `[actions.params]`'
        actions = table.get("actions")
        if set(table) != {"actions"} or not isinstance(actions, list) or not actions:
            why = f"{where}: a `toml` block in a step holds literal actions only; {hint}"
            self.problem(at, why)
            return []
        out: list[LiteralCall] = []
        for given in actions:
            action = given if isinstance(given, dict) else {}
            tool, params = action.get("tool"), action.get("params", {})
            if not isinstance(tool, str) or not isinstance(params, dict):
                self.problem(at, f"{where}: an action needs a tool and params; {hint}")
            elif extra := sorted(set(action) - {"tool", "params"}):
                self.problem(at, f"{where}: an action has no key `{extra[0][:80]}`; {hint}")
            elif self.known(where, at, tool):
                try:
                    out.append(LiteralCall(tool, params))
                except ValueError as error:
                    self.problem(at, f"{where}: {error}")
        return out

    def scope(self, sections: Sequence[Part], others: list[Section]) -> Scope | None:
        section = self.only(
            sections,
            f"the plan has no scope; write `## Scope` and a `toml` block: {_EXAMPLE}",
            "there is a second `## Scope`; a plan has one permission: join them",
        )
        if section is None:
            return None
        blocks = [
            (at, end) for at, end in self.outline.fences.items() if section.at < at < section.end
        ]
        for at, _ in blocks[1:]:
            why = "there is a second block in the scope; a plan has one permission: join them"
            self.problem(at, why)
        at, end = blocks[0] if blocks else (section.at, section.at)
        fence = fence_at(self.outline.lines[at])
        if fence is None or fence.language != "toml":
            why = "the scope needs one block that begins with a line ```toml and ends with ```:"
            self.problem(at, f"{why} {_EXAMPLE}")
            return None
        self.seen(at, "the scope")
        fenced = {n for first, last in blocks for n in range(first, last + 1)}
        prose = (n for n in range(section.at + 1, section.end) if n not in fenced)
        if notes := unescaped_text(self.outline.lines[n] for n in prose):
            others.append(Section("Notes on the scope", notes))
        text = self.inside(at, end)
        if "~~" in text:
            line = text[: text.index("~~")].count("\n")
            why = "scope: `~~` takes nothing away; delete what you do not allow"
            self.problem(at + 1 + line, why)
            return None
        table = self.toml(at, end, text, decimals=True)
        if table is None:
            return None
        try:
            scope = scope_from(table)
        except ScopeProblems as error:
            for key, why in error.problems[:_MOST_PROBLEMS]:
                self.problem(self.key_line(at, end, key), f"scope: `{key[:80]}`: {why}")
            return None
        for name in (scope.tools or ())[:_MOST_PROBLEMS]:
            self.known("scope", self.key_line(at, end, "tools"), name)
        return scope

    def key_line(self, at: int, end: int, key: str) -> int:
        name = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        return next((n for n in range(at + 1, end + 1) if name.match(self.outline.lines[n])), at)

    def inside(self, at: int, end: int) -> str:
        closed = not (self.outline.unclosed and at == max(self.outline.fences))
        return "\n".join(self.outline.lines[at + 1 : end if closed else end + 1])

    def toml(self, at: int, end: int, text: str, *, decimals: bool) -> dict[str, Any] | None:
        """Return the table of a block's text; None, and a problem, if it is broken."""
        try:
            return toml_table(text, decimals=decimals)
        except BrokenTomlError as error:
            self.problem(
                min(at + 1 + error.line, max(end, at + 1)),
                f"the `toml` block cannot be read here: {error}; "
                + (
                    "keep one of the two versions"
                    if isinstance(error.__cause__, UnresolvedMergeError)
                    else 'texts need "quotes", lists [brackets]'
                ),
            )
            return None


def parse_plan(body: str, known_tools: Collection[str] | None = None) -> Plan:
    """Return the plan that a note's text (without frontmatter) states.

    `known_tools`: the names that steps and actions may use; None allows any. What stands above the
    title is not the plan's. Raises PlanProblems with all that is wrong, by the lines of `body`.
    """
    if not body.strip():
        why = "the plan is empty; restore its text, or reject it and submit the request again"
        raise PlanProblems([PlanProblem(1, why)])
    if why := text_excess(body):
        raise PlanProblems([PlanProblem(1, why)])
    return _PlanReader(body, known_tools).plan()
