"""A plan's text read as a value, with all of its problems at once."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from placet.core.errors import PlacetError
from placet.core.text.plan import NOTHING, SECTIONS, TOOL_NAME, LiteralCall, Plan, Section, Step
from placet.core.text.plan_text import (
    BULLET,
    HEADING,
    LABEL,
    REJECTIONS,
    Part,
    clean,
    one_line,
    outline_of,
    unescaped,
    unescaped_comments,
    unescaped_heading,
    unescaped_text,
)
from placet.core.text.reading_view import commented_lines, fence_at
from placet.core.text.scope import Scope, ScopeProblems, scope_from


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


_NUMBER = re.compile(
    r"(?:step[ \t]+)?[0-9]{1,9}(?:[ \t]*[.):\u2013\u2014-](?:[ \t]+|$)|[ \t]*$)", re.IGNORECASE
)


_EXAMPLE = 'write = ["src/**"], run = ["python -m pytest -q"], network = false'


class _PlanReader:
    """One reading of one text: it collects the problems and gives up nothing before the end."""

    def __init__(self, body: str, known_tools: Collection[str] | None, first_line: int) -> None:
        self.outline = outline_of(body)
        self.known_tools = known_tools
        self.first_line = first_line
        self.hidden = commented_lines(body)
        self.problems: list[PlanProblem] = []

    def problem(self, at: int, message: str) -> None:
        """Note a problem at the line of index `at`."""
        self.problems.append(PlanProblem(at + self.first_line, message))

    def seen(self, at: int, what: str) -> None:
        """Note a problem where structure stands in a comment: a reviewer did not see it."""
        if at + 1 in self.hidden:
            self.problem(
                at, f"{what} stands in a comment, which is not shown; take the comment marks away"
            )

    def plan(self) -> Plan:
        outline = self.outline
        whole = len(outline.lines)
        parts = outline.parts(0, whole, 2)
        title, summary = "", ""
        sections: dict[str, list[Part]] = {name: [] for name in SECTIONS}
        others: list[Section] = []
        for part in parts[1:]:
            name, text = part.name, part.title
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
                self.problem(
                    part.at, f"this heading has the wrong level; write `## {name.title()}`"
                )
            elif name not in REJECTIONS and not name.startswith("rejection"):
                below = unescaped_text(outline.texts(part))
                if text or below:
                    others.append(Section(text or "Notes", below))
        if not title:
            self.problem(0, "the plan has no title; begin it with a line `# What this plan does`")
        steps = self.steps(sections["steps"])
        intro = "\n".join(t for s in sections["steps"] for t in outline.texts(self.intro(s)))
        summary = clean(f"{summary}\n\n{unescaped_text(intro.split(chr(10)))}")
        scope = self.scope(sections["scope"], others)
        risks = [item for part in sections["risks"] for item in self.items(part.at + 1, part.end)]
        comments = clean(
            "\n\n".join("\n".join(outline.texts(p)) for p in sections["review comments"])
        )
        # A fence left open in the comments, at the end of the note, hides nothing of the plan.
        in_comments = any(part.end == whole for part in sections["review comments"])
        if outline.unclosed and not in_comments:
            marks = outline.unclosed.char * outline.unclosed.length
            self.problem(
                max(outline.fences), f"this code fence is never closed; end it with a line {marks}"
            )
        if self.problems or scope is None:
            raise PlanProblems(self.problems)
        comments = unescaped_comments(comments)
        return Plan(title, summary, tuple(steps), scope, tuple(risks), comments, tuple(others))

    # steps

    def intro(self, section: Part) -> Part:
        return self.outline.parts(section.at + 1, section.end, 3)[0]

    def steps(self, sections: Sequence[Part]) -> list[Step]:
        if not sections:
            self.problem(
                0, "the plan has no steps; write `## Steps` and below it `### 1. What to do`"
            )
        for extra in sections[1:]:
            self.problem(
                extra.at, "there is a second `## Steps`; put all steps under the first one"
            )
        out: list[Step] = []
        for section in sections[:1]:
            parts = self.outline.parts(section.at + 1, section.end, 3)[1:]
            if not parts:
                self.problem(
                    section.at, "there is no step below; write each one as `### 1. What to do`"
                )
            out = [self.step(number, part) for number, part in enumerate(parts, 1)]
        return out

    def step(self, number: int, part: Part) -> Step:
        self.seen(part.at, f"step {number}")
        raw = part.heading.strip()
        title = one_line(
            unescaped_heading(raw[found.end() :] if (found := _NUMBER.match(raw)) else raw)
        )
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
                items, end = self.labelled(at, label, part.end)
                if label[2].lower().startswith("tool"):
                    tools += self.tools(number, at, items)
                else:
                    done_when += [unescaped(item) for item in items]
                at = end
            else:
                description.append(self.outline.lines[at])
                at += 1
        return Step(
            title or "?",
            unescaped_text(description),
            tuple(tools),
            tuple(done_when),
            tuple(actions),
        )

    def labelled(self, at: int, label: re.Match[str], stop: int) -> tuple[list[str], int]:
        """Return the items after a label, on its line or below, and the first line after them."""
        opening = re.search(r"[*_`]*$", label[1][: label.start(2) - label.start(1)])
        closed = label[1].rstrip()[-1:] in tuple("*_`")
        rest = label[4][1:].strip()
        if opening and opening[0] and not closed:
            rest = rest.removeprefix(opening[0]).strip()
        items = [rest] if rest else []
        listed = blank = False
        at += 1
        while at < stop and at not in self.outline.fences:
            line = self.outline.lines[at]
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
        while at > 0 and not self.outline.lines[at - 1].strip():
            at -= 1
        return items, at

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
        near = difflib.get_close_matches(name, self.known_tools, 1)
        hint = (
            f"did you mean `{near[0]}`?"
            if near
            else f"there are {', '.join(sorted(self.known_tools))}"
        )
        self.problem(at, f"{where}: there is no tool `{name}`; {hint}")
        return False

    def actions(self, number: int, at: int, end: int) -> list[LiteralCall]:
        self.seen(at, f"an action of step {number}")
        table = self.toml(at, end, decimals=False)
        if table is None:
            return []
        where = f"step {number}"
        hint = 'write `[[actions]]`, below it `tool = "write_file"` and `[actions.params]`'
        if (
            set(table) != {"actions"}
            or not isinstance(table["actions"], list)
            or not table["actions"]
        ):
            self.problem(
                at, f"{where}: a `toml` block in a step holds literal actions only; {hint}"
            )
            return []
        out: list[LiteralCall] = []
        for given in table["actions"]:
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

    # scope and lists

    def scope(self, sections: Sequence[Part], others: list[Section]) -> Scope | None:
        if not sections:
            self.problem(
                0, f"the plan has no scope; write `## Scope` and a `toml` block: {_EXAMPLE}"
            )
            return None
        for extra in sections[1:]:
            self.problem(
                extra.at, "there is a second `## Scope`; a plan has one permission: join them"
            )
        section = sections[0]
        blocks = [
            (at, end) for at, end in self.outline.fences.items() if section.at < at < section.end
        ]
        fences = [fence_at(self.outline.lines[at]) for at, _ in blocks]
        for at, _ in blocks[1:]:
            self.problem(
                at, "there is a second block in the scope; a plan has one permission: join them"
            )
        if not blocks or fences[0] is None or fences[0].language != "toml":
            self.problem(
                blocks[0][0] if blocks else section.at,
                "the scope needs one block that begins with a line ```toml and ends with ```:"
                f" {_EXAMPLE}",
            )
            return None
        at, end = blocks[0]
        self.seen(at, "the scope")
        fenced_off = {n for a, b in blocks for n in range(a, b + 1)}
        prose = [
            self.outline.lines[n] for n in range(section.at + 1, section.end) if n not in fenced_off
        ]
        if text := unescaped_text(prose):
            others.append(Section("Notes on the scope", text))
        table = self.toml(at, end, decimals=True)
        if table is None:
            return None
        try:
            return scope_from(table)
        except ScopeProblems as error:
            for key, why in error.problems:
                self.problem(self.key_line(at, end, key), f"scope: `{key[:80]}`: {why}")
        return None

    def key_line(self, at: int, end: int, key: str) -> int:
        name = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        return next((n for n in range(at + 1, end + 1) if name.match(self.outline.lines[n])), at)

    def toml(self, at: int, end: int, *, decimals: bool) -> dict[str, Any] | None:
        """Return the table of the `toml` block in these lines.

        None, and a problem, where it is broken.
        """
        closed = not (self.outline.unclosed and at == max(self.outline.fences))
        text = "\n".join(self.outline.lines[at + 1 : end if closed else end + 1])
        hint = 'texts need "quotes", lists [brackets]'
        if deep := _DEEP_KEY.search(text):
            line = at + 1 + text.count("\n", 0, deep.start())
            self.problem(
                line,
                f"the `toml` block cannot be read here: more than {_DEEP} names are joined by dots;"
                f" {hint}",
            )
            return None
        try:
            return tomllib.loads(text, parse_float=_decimal if decimals else float)
        except (ValueError, RecursionError) as error:
            reason, _, where = str(error).partition(" (at ")
            found = re.match(r"line (\d+)", where)
            line = at + int(found[1]) if found else end - closed
            self.problem(
                min(line, max(end, at + 1)),
                f"the `toml` block cannot be read here: {reason}; {hint}",
            )
            return None

    def items(self, start: int, end: int) -> list[str]:
        """Return the items of lists and the paragraphs between two lines."""
        out: list[str] = []
        gap = True
        for line in self.outline.lines[start:end]:
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


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has too large an exponent") from None


# More is nothing that a person reads, and reading it would keep the daemon from all else. A request
# may have as many bytes.
MAX_PLAN_CHARACTERS = 256 * 1024


_DEEP = 100


# tomllib takes 25 s for a key of 30,000 parts.
_DEEP_KEY = re.compile(rf"""(?<!["'\w-])(?:["'\w-]++[ \t]*+\.[ \t]*+){{{_DEEP}}}""")


def parse_plan(
    body: str, known_tools: Collection[str] | None = None, *, first_line: int = 1
) -> Plan:
    """Return the plan that a note's text (without frontmatter) states.

    PlanProblems lists all that is wrong.

    `known_tools`: the names that steps and actions may use; None allows any. `first_line` is the
    number of the first line of `body` in the note, for the problems. What stands above the title is
    not the plan's.
    """
    if not body.strip():
        why = "the plan is empty; restore its text, or reject it and submit the request again"
        raise PlanProblems([PlanProblem(first_line, why)])
    if len(body) > MAX_PLAN_CHARACTERS:
        why = (
            f"the plan has {len(body):,} characters, and more than {MAX_PLAN_CHARACTERS:,} are not"
            " read;"
            " shorten it, or reject it and ask for several smaller ones"
        )
        raise PlanProblems([PlanProblem(first_line, why)])
    return _PlanReader(body, known_tools, first_line).plan()
