r"""A plan as text that a person reads and edits, and as a value.

`parse_plan` is tolerant where people edit (headings, lists, numbering, callouts, line endings) and
strict where permission is concerned (exactly one readable scope; nothing unknown in it). It reports
every problem at once.

`render_plan` writes text from a model so that it cannot become structure: no heading, no second
scope, no list of tools, no literal action, no comment, HTML, embed or callout. It puts a backslash
before the character that would do it (CommonMark 2.4), `parse_plan` takes it away again, and the
plan survives the round trip exactly. Ordinary code blocks and inline code stay as they are.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from placet.core.errors import PlacetError
from placet.core.text.plan_text import (
    BULLET,
    HEADING,
    LABEL,
    REJECTIONS,
    Part,
    clean,
    escaped,
    escaped_comments,
    escaped_heading,
    escaped_text,
    fenced,
    named,
    one_line,
    outline_of,
    unescaped,
    unescaped_comments,
    unescaped_heading,
    unescaped_text,
)
from placet.core.text.scope import Scope, ScopeProblems, scope_from
from placet.core.text.unseen import commented_lines, fence_at

_SECTIONS = ("steps", "scope", "risks", "review comments")
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_NOTHING = frozenset({"", "-", "—", "none", "none known", "n/a", "nothing"})


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """What is wrong in a plan's text, at which line (from 1), and how to write it."""

    line: int
    message: str


class PlanProblems(PlacetError):  # noqa: N818 - it carries problems, plural
    """The text is not a plan. `problems` are all of them, in the order of their lines."""

    def __init__(self, problems: Iterable[PlanProblem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
        super().__init__("\n".join(f"line {p.line}: {p.message}" for p in self.problems))


# --- values
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiteralCall:
    """One literal tool call of a step, carried out exactly as written.

    `params` are what TOML and JSON have in common: texts, whole numbers of 64 bits, finite numbers,
    booleans, lists, tables. Raises ValueError for anything else, null among it (leave the key out
    instead).
    """

    tool: str
    params: Mapping[str, Any] = field(hash=False)

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.tool):
            raise ValueError(f"{self.tool[:80]!r} is not the name of a tool")
        if why := _unwritable(dict(self.params)):
            raise ValueError(f"the params of `{self.tool}` {why}")


@dataclass(frozen=True, slots=True)
class Step:
    """One step; its number is its place in the plan, from 1.

    Texts are normalised on construction: titles and conditions to one line, no control characters,
    no blank edges. Raises ValueError for an empty title and for what cannot be the name of a tool.
    """

    title: str
    description: str = ""
    tools: tuple[str, ...] = ()
    done_when: tuple[str, ...] = ()
    actions: tuple[LiteralCall, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "description", clean(self.description))
        object.__setattr__(self, "tools", tuple(dict.fromkeys(self.tools)))
        object.__setattr__(
            self, "done_when", tuple(line for t in self.done_when if (line := one_line(t)))
        )
        if not self.title:
            raise ValueError("a step needs a title")
        for tool in self.tools:
            if not _TOOL_NAME.fullmatch(tool):
                raise ValueError(f"{tool[:80]!r} is not the name of a tool")


@dataclass(frozen=True, slots=True)
class Section:
    """A section that a person added to a plan under a heading of their own."""

    title: str
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "text", clean(self.text))
        if not self.title or named(self.title) in (*_SECTIONS, *REJECTIONS):
            raise ValueError(f"{self.title[:80]!r} cannot be the title of an added section")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plan says. Raises ValueError without a title or a step.

    `comments` is the text under "Review Comments", `others` are sections that a person added:
    nothing that stands below the title is lost, except a rejection.
    """

    title: str
    summary: str
    steps: tuple[Step, ...]
    scope: Scope
    risks: tuple[str, ...] = ()
    comments: str = ""
    others: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", one_line(self.title))
        object.__setattr__(self, "summary", clean(self.summary))
        risks = (one_line(risk) for risk in self.risks)
        object.__setattr__(
            self, "risks", tuple(r for r in risks if r.casefold().rstrip(".") not in _NOTHING)
        )
        object.__setattr__(self, "comments", clean(self.comments))
        if not self.title:
            raise ValueError("a plan needs a title")
        if not self.steps:
            raise ValueError("a plan needs a step")


def _unwritable(value: object, depth: int = 0) -> str | None:
    """Return why a value cannot be written as TOML and read back, or None."""
    match value:
        case bool():
            return None
        case str():
            return "hold half a surrogate pair" if re.search("[\ud800-\udfff]", value) else None
        case int():
            return None if -(2**63) <= value < 2**63 else "hold a number beyond 64 bits"
        case float():
            return None if math.isfinite(value) else "hold a number that is not finite"
        case _ if depth > 20:
            return "are nested more than 20 deep"
        case list() | tuple():
            return next((why for item in value if (why := _unwritable(item, depth + 1))), None)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                return "have a key that is not a text"
            inside = [*value, *value.values()]
            return next((why for item in inside if (why := _unwritable(item, depth + 1))), None)
        case None:
            return "hold null, which TOML does not have; leave the key out"
        case _:
            return (
                f"hold a {type(value).__name__}; use texts, numbers, true, false, lists and tables"
            )


# --- reading
# ----------------------------------------------------------------------------------------------

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
        sections: dict[str, list[Part]] = {name: [] for name in _SECTIONS}
        others: list[Section] = []
        for part in parts[1:]:
            name, text = part.name, part.title
            if name in _SECTIONS and part.level == 2:
                sections[name].append(part)
                self.seen(part.at, f"the heading of `## {name.title()}`")
            elif part.level == 1 and not title and not text:
                self.problem(part.at, "the title is empty; write `# What this plan does`")
                title = "?"
            elif part.level == 1 and not title:
                title, summary = text, unescaped_text(outline.texts(part))
                self.seen(part.at, "the title")
            elif name in _SECTIONS:
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
        """Return what is listed after a label, on its line or below, and the first line after it."""
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
            if name.casefold() in (*_NOTHING, "and", "&", "or"):
                continue
            if not _TOOL_NAME.fullmatch(name):
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
                f"the scope needs one block that begins with a line ```toml and ends with ```: {_EXAMPLE}",
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
                f"the `toml` block cannot be read here: more than {_DEEP} names are joined by dots; {hint}",
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


MAX_PLAN_CHARACTERS = 256 * 1024
"""More is nothing that a person reads, and reading it would keep the daemon from all else.

A request may have as many bytes.
"""
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
            f"the plan has {len(body):,} characters, and more than {MAX_PLAN_CHARACTERS:,} are not read; shorten it, "
            "or reject it and ask for several smaller ones"
        )
        raise PlanProblems([PlanProblem(first_line, why)])
    return _PlanReader(body, known_tools, first_line).plan()


# --- writing
# ----------------------------------------------------------------------------------------------


def render_plan(plan: Plan) -> str:
    """Return the text of a plan, ending in a newline. `parse_plan` of it gives an equal plan."""
    from placet.core.text.plan_toml import actions_toml, scope_toml

    blocks = [f"# {escaped_heading(plan.title)}", escaped_text(plan.summary), "## Steps"]
    for number, step in enumerate(plan.steps, 1):
        blocks += [f"### {number}. {escaped_heading(step.title)}", escaped_text(step.description)]
        if step.tools:
            blocks.append("Tools: " + ", ".join(f"`{tool}`" for tool in step.tools))
        if step.done_when:
            blocks.append(
                "\n".join(["Done when:", *(f"- {escaped(line)}" for line in step.done_when)])
            )
        if step.actions:
            blocks.append(fenced(actions_toml([(a.tool, a.params) for a in step.actions]), "toml"))
    blocks += ["## Scope", fenced(scope_toml(plan.scope), "toml"), "## Risks"]
    blocks.append("\n".join(f"- {escaped(risk)}" for risk in plan.risks) or "None known.")
    for other in plan.others:
        blocks += [f"## {escaped_heading(other.title)}", escaped_text(other.text)]
    if plan.comments:
        blocks += ["## Review Comments", escaped_comments(plan.comments)]
    return "\n\n".join(block for block in blocks if block) + "\n"
