r"""A plan as text that a person reads and edits, and as a value; comments on it, and what changed in it.

`parse_plan` is tolerant where people edit (headings, lists, numbering, callouts, line endings) and strict
where permission is concerned (exactly one readable scope; nothing unknown in it). It reports every problem at
once.

`render_plan` writes text from a model so that it cannot become structure: no heading, no second scope, no
list of tools, no literal action, no comment, HTML, embed or callout. It puts a backslash before the character
that would do it (CommonMark 2.4), `parse_plan` takes it away again, and the plan survives the round trip
exactly. Ordinary code blocks and inline code stay as they are.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from placet.core.errors import PlacetError
from placet.core.scope import Scope, ScopeProblems, scope_from
from placet.core.unseen import Fence, commented_lines, fence_at, lines_of, visible

_SECTIONS = ("steps", "scope", "risks", "review comments")
_REJECTIONS = ("rejection", "rejection reason", "reason for rejection")
_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_NOTHING = frozenset({"", "-", "—", "none", "none known", "n/a", "nothing"})


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a plan's text, at which line (from 1), and how to write it."""

    line: int
    message: str


class PlanProblems(PlacetError):  # noqa: N818 - it carries problems, plural
    """The text is not a plan. `problems` are all of them, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
        super().__init__("\n".join(f"line {p.line}: {p.message}" for p in self.problems))


# --- values -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Action:
    """One literal tool call of a step, carried out exactly as written.

    `params` are what TOML and JSON have in common: texts, whole numbers of 64 bits, finite numbers, booleans,
    lists, tables. Raises ValueError for anything else, null among it (leave the key out instead).
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

    Texts are normalised on construction: titles and conditions to one line, no control characters, no blank
    edges. Raises ValueError for an empty title and for what cannot be the name of a tool.
    """

    title: str
    description: str = ""
    tools: tuple[str, ...] = ()
    done_when: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", _one_line(self.title))
        object.__setattr__(self, "description", _clean(self.description))
        object.__setattr__(self, "tools", tuple(dict.fromkeys(self.tools)))
        object.__setattr__(self, "done_when", tuple(line for t in self.done_when if (line := _one_line(t))))
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
        object.__setattr__(self, "title", _one_line(self.title))
        object.__setattr__(self, "text", _clean(self.text))
        if not self.title or _named(self.title) in (*_SECTIONS, *_REJECTIONS):
            raise ValueError(f"{self.title[:80]!r} cannot be the title of an added section")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plan says. Raises ValueError without a title or a step.

    `comments` is the text under "Review Comments", `others` are sections that a person added: nothing that
    stands below the title is lost, except a rejection.
    """

    title: str
    summary: str
    steps: tuple[Step, ...]
    scope: Scope
    risks: tuple[str, ...] = ()
    comments: str = ""
    others: tuple[Section, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", _one_line(self.title))
        object.__setattr__(self, "summary", _clean(self.summary))
        risks = (_one_line(risk) for risk in self.risks)
        object.__setattr__(self, "risks", tuple(r for r in risks if r.casefold().rstrip(".") not in _NOTHING))
        object.__setattr__(self, "comments", _clean(self.comments))
        if not self.title:
            raise ValueError("a plan needs a title")
        if not self.steps:
            raise ValueError("a plan needs a step")


_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_UNPRINTABLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def _clean(text: str) -> str:
    """Every kind of line end becomes LF, other control characters U+FFFD; no blank edges. Idempotent."""
    return _UNPRINTABLE.sub("\ufffd", _LINE_ENDS.sub("\n", text)).strip()


def _one_line(text: str) -> str:
    return " ".join(_clean(text).split())


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
            return f"hold a {type(value).__name__}; use texts, numbers, true, false, lists and tables"


# --- text that cannot become structure --------------------------------------------------------------------

# Languages of code blocks that Obsidian and its plugins only print. Others can run or draw something
# (`dataviewjs`, `mermaid`, `query`), and `toml` is ours: a fence of any other language is written as plain
# text.
_PRINTED = frozenset({
    "", "text", "txt", "plain", "python", "py", "pycon", "javascript", "js", "typescript", "ts", "jsx", "tsx",
    "json", "yaml", "yml", "xml", "html", "css", "scss", "sql", "sh", "bash", "zsh", "fish", "shell",
    "console",
    "powershell", "diff", "patch", "markdown", "md", "rst", "ini", "cfg", "c", "cpp", "h", "csharp", "cs",
    "java",
    "kotlin", "swift", "scala", "go", "rust", "rs", "ruby", "rb", "php", "perl", "lua", "r", "julia",
    "haskell",
    "elixir", "dockerfile", "makefile", "graphql", "proto", "http", "vue", "svelte",
})
_MARK = re.compile(r"[`~%$<!\[\]]")
_CONTAINER = r"(?:[ \t]|>|[-*+](?=[ \t])|[0-9]{1,9}[.)](?=[ \t]))*"
_STARTERS = (
    re.compile(rf"({_CONTAINER})(\\*)(#{{1,6}}(?:[ \t]|$).*)", re.DOTALL),
    re.compile(rf"({_CONTAINER})(\\*)((?:=+|-+)[ \t]*)$"),  # under a line of text this makes a heading of it
)
_LABEL = re.compile(
    rf"({_CONTAINER}[*_`]*(tools?|done[ -]when)[*_` \t]*)(\\*)(:.*)$", re.IGNORECASE | re.DOTALL
)
_LABELLED = re.compile(rf"{_CONTAINER}\[")
_RUN = re.compile("`+")


def _span(line: str, start: int, length: int) -> int:
    """Return where the code span ends that `length` backticks opened before `start`; -1: not on this line."""
    return next((run.end() for run in _RUN.finditer(line, start) if len(run[0]) == length), -1)


def _means_something(line: str, at: int) -> bool:
    """Tell whether the unescaped mark at `at` would begin or end something (`at` is not a code span's)."""
    char, after = line[at], line[at + 1 : at + 2]
    match char:
        case "`":
            return True
        case "%" | "$":
            return char in (line[at - 1 : at], after)
        case "~":
            return "~~~" in line[max(0, at - 2) : at + 3]
        case "<":
            return after.isascii() and (after.isalpha() or after in tuple("/!?%"))
        case "!":
            return after == "["
        case "[":
            return after == "!" or re.match(r"[ xX]\](?:[ \t]|$)", line[at + 1 : at + 4]) is not None
        case _:
            # The end of a link definition, which is not shown: its label begins a line, this one or an earlier one.
            return after == ":" and ("[" not in line[:at] or _LABELLED.match(line) is not None)


def _marks(line: str, *, escape: bool) -> str:
    r"""Escape, or unescape, the marks of a line outside code spans.

    n backslashes and a mark that means something, or n > 0 and any mark, become 2n + 1 and the mark: an odd
    number, so the mark is plain text, and what it came from can be told.
    """
    out: list[str] = []
    at = 0
    unpaired: set[int] = set()  # lengths of backtick runs that no later run on this line answers
    while found := _MARK.search(line, at):
        place, mark = found.start(), found[0]
        before = line[at:place]
        slashes = len(before) - len(before.rstrip("\\"))
        out.append(before[: len(before) - slashes])
        if mark == "`" and not slashes:
            run = _RUN.match(line, place)
            assert run
            # A span that begins like an inline query of a plugin (`=`, `$=`) is not left as one.
            query = line.startswith(("=", "$="), run.end())
            end = -1 if query or len(run[0]) in unpaired else _span(line, run.end(), len(run[0]))
            if end >= 0:
                out.append(line[place:end])
            else:
                out.append("\\`" * len(run[0]) if escape else run[0])
                if not query:
                    unpaired.add(len(run[0]))
            at = max(run.end(), end)
            continue
        if escape:
            odd = slashes or _means_something(line, place)
            out.append("\\" * (2 * slashes + 1 if odd else 0) + mark)
        else:
            out.append("\\" * (slashes // 2 if slashes % 2 else slashes) + mark)
        at = place + 1
    return "".join([*out, line[at:]])


def _start(line: str, *, escape: bool) -> str:
    """Escape, or unescape, what would make a line a heading or a label: one backslash more, or one less."""
    for pattern in _STARTERS:
        if found := pattern.match(line):
            slashes = found[2] + "\\" if escape else found[2][1:]
            return found[1] + slashes + found[3]
    if found := _LABEL.match(line):
        slashes = found[3] + "\\" if escape else found[3][1:]
        return found[1] + slashes + found[4]
    return line


def _escape(line: str) -> str:
    return _start(_marks(line, escape=True), escape=True)


def _unescape(line: str) -> str:
    return _marks(_start(line, escape=False), escape=False)


def _closing(lines: Sequence[str], start: int, fence: Fence) -> int:
    """Return the index of the line that closes `fence`, at or after `start`; -1: none does."""
    return next((i for i in range(start, len(lines)) if fence.closes(lines[i])), -1)


def _escape_text(text: str) -> str:
    """Return text of several lines in which only plain code blocks still mean something."""
    lines = text.split("\n")
    out: list[str] = []
    never: dict[str, int] = {}  # fences of this character, of at least this length, are not closed any more
    at = 0
    while at < len(lines):
        fence = fence_at(lines[at])
        plain = fence and fence.indent == 0 and fence.info in _PRINTED
        if fence and plain and fence.length < never.get(fence.char, 1 << 30):
            end = _closing(lines, at + 1, fence)
            if end >= 0:
                out += lines[at : end + 1]
                at = end + 1
                continue
            never[fence.char] = fence.length
        out.append(_escape(lines[at]))
        at += 1
    return "\n".join(out)


def _unescape_text(lines: Iterable[str]) -> str:
    """Undo `_escape_text`; whatever stands in a fence is taken as it is."""
    out: list[str] = []
    fence: Fence | None = None
    for line in lines:
        if fence:
            fence = None if fence.closes(line) else fence
        elif not (fence := fence_at(line)):
            out.append(_unescape(line))
            continue
        out.append(line)
    return _clean("\n".join(out))


def _last_word(text: str) -> tuple[str, str]:
    at = max(text.rfind(" "), text.rfind("\t")) + 1
    return text[:at], text[at:]


def _escape_heading(text: str) -> str:
    """Return the text of a heading; hashes at its end would be taken for closing ones."""
    head, last = _last_word(_marks(text, escape=True))
    return f"{head}\\{last}" if re.fullmatch(r"\\*#+", last) else head + last


def _unescape_heading(raw: str) -> str:
    head, last = _last_word(raw.strip())
    if re.fullmatch(r"\\*#+", last):
        last = last[1:] if last.startswith("\\") else ""
    return _marks((head + last).strip(), escape=False)


# --- outline ----------------------------------------------------------------------------------------------

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")


@dataclass(frozen=True, slots=True)
class _Part:
    """A heading and what is below it up to the next one that counts: from line `at`, before line `end`."""

    level: int  # 0: before the first heading
    heading: str  # raw
    at: int
    end: int

    @property
    def title(self) -> str:
        return _one_line(_unescape_heading(self.heading))

    @property
    def name(self) -> str:
        return _named(self.title)


def _named(title: str) -> str:
    """Return a heading's text as names of sections are compared."""
    return " ".join(re.sub(r"[*_`:]", " ", title).split()).casefold()


@dataclass(frozen=True, slots=True)
class _Outline:
    """The lines of a text, its fences (first line -> last line), and the fence that is never closed."""

    lines: tuple[str, ...]
    fences: Mapping[int, int]
    unclosed: Fence | None

    def parts(self, start: int, end: int, deepest: int) -> list[_Part]:
        """Cut the lines from `start` to `end` at headings of at most level `deepest`."""
        cuts = [(0, "", start - 1)]
        at = start
        while at < end:
            if at in self.fences:
                at = self.fences[at] + 1
                continue
            found = _HEADING.match(self.lines[at])
            if found and len(found[1]) <= deepest:
                cuts.append((len(found[1]), self.lines[at][found.end() :], at))
            at += 1
        ends = [cut[2] for cut in cuts[1:]] + [end]
        return [_Part(*cut, stop) for cut, stop in zip(cuts, ends, strict=True)]

    def texts(self, part: _Part) -> Sequence[str]:
        return self.lines[part.at + 1 : part.end]


def _outline(body: str) -> _Outline:
    lines = lines_of(body)
    fences: dict[int, int] = {}
    fence: Fence | None = None
    opened = 0
    for at, line in enumerate(lines):
        if fence:
            fences[opened] = at
            fence = None if fence.closes(line) else fence
        elif fence := fence_at(line):
            opened = at
            fences[at] = at
    return _Outline(tuple(lines), fences, fence)


# --- reading ----------------------------------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?:step[ \t]+)?[0-9]{1,9}(?:[ \t]*[.):\u2013\u2014-](?:[ \t]+|$)|[ \t]*$)", re.IGNORECASE
)
_BULLET = re.compile(r"([ \t]*(?:[-*+]|[0-9]{1,9}[.)]))(?:[ \t]+|$)(?:\[[ xX]\](?:[ \t]+|$))?")

_EXAMPLE = 'write = ["src/**"], run = ["python -m pytest -q"], network = false'


class _Reader:
    """One reading of one text: it collects the problems and gives up nothing before the end."""

    def __init__(self, body: str, known_tools: Collection[str] | None, first_line: int) -> None:
        self.outline = _outline(body)
        self.known_tools = known_tools
        self.first_line = first_line
        self.hidden = commented_lines(body)
        self.problems: list[Problem] = []

    def problem(self, at: int, message: str) -> None:
        """Note a problem at the line of index `at`."""
        self.problems.append(Problem(at + self.first_line, message))

    def seen(self, at: int, what: str) -> None:
        """Note a problem where structure stands in a comment: a reviewer did not see it."""
        if at + 1 in self.hidden:
            self.problem(at, f"{what} stands in a comment, which is not shown; take the comment marks away")

    def plan(self) -> Plan:
        outline = self.outline
        whole = len(outline.lines)
        parts = outline.parts(0, whole, 2)
        title, summary = "", ""
        sections: dict[str, list[_Part]] = {name: [] for name in _SECTIONS}
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
                title, summary = text, _unescape_text(outline.texts(part))
                self.seen(part.at, "the title")
            elif name in _SECTIONS:
                self.problem(part.at, f"this heading has the wrong level; write `## {name.title()}`")
            elif name not in _REJECTIONS and not name.startswith("rejection"):
                below = _unescape_text(outline.texts(part))
                if text or below:
                    others.append(Section(text or "Notes", below))
        if not title:
            self.problem(0, "the plan has no title; begin it with a line `# What this plan does`")
        steps = self.steps(sections["steps"])
        intro = "\n".join(t for s in sections["steps"] for t in outline.texts(self.intro(s)))
        summary = _clean(f"{summary}\n\n{_unescape_text(intro.split(chr(10)))}")
        scope = self.scope(sections["scope"], others)
        risks = [item for part in sections["risks"] for item in self.items(part.at + 1, part.end)]
        comments = _clean("\n\n".join("\n".join(outline.texts(p)) for p in sections["review comments"]))
        # A fence left open in the comments, at the end of the note, hides nothing of the plan.
        in_comments = any(part.end == whole for part in sections["review comments"])
        if outline.unclosed and not in_comments:
            marks = outline.unclosed.char * outline.unclosed.length
            self.problem(max(outline.fences), f"this code fence is never closed; end it with a line {marks}")
        if self.problems or scope is None:
            raise PlanProblems(self.problems)
        comments = _unescape_comments(comments)
        return Plan(title, summary, tuple(steps), scope, tuple(risks), comments, tuple(others))

    # steps

    def intro(self, section: _Part) -> _Part:
        return self.outline.parts(section.at + 1, section.end, 3)[0]

    def steps(self, sections: Sequence[_Part]) -> list[Step]:
        if not sections:
            self.problem(0, "the plan has no steps; write `## Steps` and below it `### 1. What to do`")
        for extra in sections[1:]:
            self.problem(extra.at, "there is a second `## Steps`; put all steps under the first one")
        out: list[Step] = []
        for section in sections[:1]:
            parts = self.outline.parts(section.at + 1, section.end, 3)[1:]
            if not parts:
                self.problem(section.at, "there is no step below; write each one as `### 1. What to do`")
            out = [self.step(number, part) for number, part in enumerate(parts, 1)]
        return out

    def step(self, number: int, part: _Part) -> Step:
        self.seen(part.at, f"step {number}")
        raw = part.heading.strip()
        title = _one_line(_unescape_heading(raw[found.end() :] if (found := _NUMBER.match(raw)) else raw))
        if not title:
            self.problem(part.at, f"step {number} has no title; write `### {number}. What to do`")
        description: list[str] = []
        tools: list[str] = []
        done_when: list[str] = []
        actions: list[Action] = []
        at = part.at + 1
        while at < part.end:
            label = _LABEL.match(self.outline.lines[at])
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
                    done_when += [_unescape(item) for item in items]
                at = end
            else:
                description.append(self.outline.lines[at])
                at += 1
        return Step(title or "?", _unescape_text(description), tuple(tools), tuple(done_when), tuple(actions))

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
            bullet = _BULLET.match(line)
            if _HEADING.match(line) or ((other := _LABEL.match(line)) and not other[3]):
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
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(sorted(self.known_tools))}"
        self.problem(at, f"{where}: there is no tool `{name}`; {hint}")
        return False

    def actions(self, number: int, at: int, end: int) -> list[Action]:
        self.seen(at, f"an action of step {number}")
        table = self.toml(at, end, decimals=False)
        if table is None:
            return []
        where = f"step {number}"
        hint = 'write `[[actions]]`, below it `tool = "write_file"` and `[actions.params]`'
        if set(table) != {"actions"} or not isinstance(table["actions"], list) or not table["actions"]:
            self.problem(at, f"{where}: a `toml` block in a step holds literal actions only; {hint}")
            return []
        out: list[Action] = []
        for given in table["actions"]:
            action = given if isinstance(given, dict) else {}
            tool, params = action.get("tool"), action.get("params", {})
            if not isinstance(tool, str) or not isinstance(params, dict):
                self.problem(at, f"{where}: an action needs a tool and params; {hint}")
            elif extra := sorted(set(action) - {"tool", "params"}):
                self.problem(at, f"{where}: an action has no key `{extra[0][:80]}`; {hint}")
            elif self.known(where, at, tool):
                try:
                    out.append(Action(tool, params))
                except ValueError as error:
                    self.problem(at, f"{where}: {error}")
        return out

    # scope and lists

    def scope(self, sections: Sequence[_Part], others: list[Section]) -> Scope | None:
        if not sections:
            self.problem(0, f"the plan has no scope; write `## Scope` and a `toml` block: {_EXAMPLE}")
            return None
        for extra in sections[1:]:
            self.problem(extra.at, "there is a second `## Scope`; a plan has one permission: join them")
        section = sections[0]
        blocks = [(at, end) for at, end in self.outline.fences.items() if section.at < at < section.end]
        fences = [fence_at(self.outline.lines[at]) for at, _ in blocks]
        for at, _ in blocks[1:]:
            self.problem(at, "there is a second block in the scope; a plan has one permission: join them")
        if not blocks or fences[0] is None or fences[0].language != "toml":
            self.problem(
                blocks[0][0] if blocks else section.at,
                f"the scope needs one block that begins with a line ```toml and ends with ```: {_EXAMPLE}",
            )
            return None
        at, end = blocks[0]
        self.seen(at, "the scope")
        prose = [t for n, t in enumerate(self.outline.lines[section.at + 1 : section.end], section.at + 1)
                 if not any(a <= n <= b for a, b in blocks)]
        if text := _unescape_text(prose):
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
        """Return the table of the `toml` block in these lines; None, and a problem, where it is broken."""
        closed = not (self.outline.unclosed and at == max(self.outline.fences))
        text = "\n".join(self.outline.lines[at + 1 : end if closed else end + 1])
        try:
            return tomllib.loads(text, parse_float=_decimal if decimals else float)
        except (ValueError, RecursionError) as error:
            reason = str(error).split(" (at ")[0]
            from placet.core.plan_toml import broken_line

            line = at + min(broken_line(text), max(end - at, 1))
            hint = 'texts need "quotes", lists [brackets]'
            self.problem(line, f"the `toml` block cannot be read here: {reason}; {hint}")
            return None

    def items(self, start: int, end: int) -> list[str]:
        """Return the items of lists and the paragraphs between two lines."""
        out: list[str] = []
        gap = True
        for line in self.outline.lines[start:end]:
            bullet = _BULLET.match(line)
            text = line[bullet.end() :] if bullet else line.strip()
            if not line.strip():
                gap = True
            elif bullet or gap or not out:
                out.append(_unescape(text))
                gap = False
            else:
                out[-1] += " " + _unescape(text)
        return out


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has too large an exponent") from None


def parse_plan(body: str, known_tools: Collection[str] | None = None, *, first_line: int = 1) -> Plan:
    """Return the plan that a note's text (without frontmatter) states; PlanProblems lists all that is wrong.

    `known_tools`: the names that steps and actions may use; None allows any. `first_line` is the number of
    the first line of `body` in the note, for the problems. What stands above the title is not the plan's.
    """
    if not body.strip():
        why = "the plan is empty; restore its text, or reject it and submit the request again"
        raise PlanProblems([Problem(first_line, why)])
    return _Reader(body, known_tools, first_line).plan()


# --- writing ----------------------------------------------------------------------------------------------


def render_plan(plan: Plan) -> str:
    """Return the text of a plan, ending in a newline. `parse_plan` of it gives an equal plan."""
    from placet.core.plan_toml import actions_toml, scope_toml

    blocks = [f"# {_escape_heading(plan.title)}", _escape_text(plan.summary), "## Steps"]
    for number, step in enumerate(plan.steps, 1):
        blocks += [f"### {number}. {_escape_heading(step.title)}", _escape_text(step.description)]
        if step.tools:
            blocks.append("Tools: " + ", ".join(f"`{tool}`" for tool in step.tools))
        if step.done_when:
            blocks.append("\n".join(["Done when:", *(f"- {_escape(line)}" for line in step.done_when)]))
        if step.actions:
            blocks.append(_fenced(actions_toml([(a.tool, a.params) for a in step.actions]), "toml"))
    blocks += ["## Scope", _fenced(scope_toml(plan.scope), "toml"), "## Risks"]
    blocks.append("\n".join(f"- {_escape(risk)}" for risk in plan.risks) or "None known.")
    for other in plan.others:
        blocks += [f"## {_escape_heading(other.title)}", _escape_text(other.text)]
    if plan.comments:
        blocks += ["## Review Comments", _escape_comments(plan.comments)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in _RUN.findall(text))])
    return f"{ticks}{language}\n{text.rstrip(chr(10))}\n{ticks}"


# --- review comments --------------------------------------------------------------------------------------

_ANSWER = re.compile(r"[ \t]*[-*+][ \t]+\*\*Answer:\*\*")
_TOP_BULLET = re.compile(r" ?(?:[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)")
_SIGNED = re.compile(r"\*\*[^*\n]{1,200}, [0-9]{4}-[0-9T:.-]{5,40}Z:\*\*[ \n]?")
_CHANGED = "> [!note]- What changed"


def _escape_comments(text: str) -> str:
    """Return a person's comments as they are, except for lines that would begin another section."""
    return "\n".join(_comment_lines(text.split("\n"), escape=True))


def _unescape_comments(text: str) -> str:
    return _clean("\n".join(_comment_lines(text.split("\n"), escape=False)))


_NEW_SECTION = re.compile(r"( {0,3})(\\*)(?=#{1,2}(?:[ \t]|$))")


def _comment_lines(lines: Iterable[str], *, escape: bool) -> Iterator[str]:
    fence: Fence | None = None
    for line in lines:
        if fence:
            fence = None if fence.closes(line) else fence
        elif not (fence := fence_at(line)) and (found := _NEW_SECTION.match(line)):
            yield found[1] + (found[2] + "\\" if escape else found[2][1:]) + line[found.end() :]
            continue
        yield line


@dataclass(frozen=True, slots=True)
class Comment:
    """One review comment: what the person wrote, without bullet, box, signature; whether it is answered."""

    text: str
    answered: bool


@dataclass(slots=True)
class _Block:
    """A comment in the text: its lines, where it ends, how far an answer to it is indented."""

    lines: list[str]
    last: int
    indent: str
    answered: bool = False
    bare: bool = False  # a heading, so far without text


def _comment_parts(outline: _Outline) -> list[_Part]:
    return [p for p in outline.parts(0, len(outline.lines), 2) if p.level and p.name == "review comments"]


def _blocks(outline: _Outline, part: _Part) -> list[_Block]:
    """Cut a section of comments: a bullet at the edge and a paragraph after a blank line begin one."""
    out: list[_Block] = []
    gap, answer, callout = 0, False, False
    fence_end = -1
    for at in range(part.at + 1, part.end):
        line = outline.lines[at]
        current = out[-1] if out else None
        fence_end = max(fence_end, outline.fences.get(at, -1))
        callout = line.startswith(_CHANGED) or (callout and line.startswith(">"))
        bullet = _TOP_BULLET.match(line)
        heading = _HEADING.match(line)
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
            out.append(_Block([line[heading.end() :].strip()], at, "", bare=True))
            answer, gap = False, 0
        elif bullet:
            boxed = _BULLET.match(line)
            assert boxed
            out.append(_Block([line[boxed.end() :]], at, " " * len(boxed[1]) + " "))
            answer, gap = False, 0
        elif current and (indented or not gap or current.bare):
            if not answer:
                current.lines += [""] * gap + [line]
            current.last, current.bare, gap = at, False, 0
        else:
            out.append(_Block([line], at, ""))
            answer, gap = False, 0
    return [block for block in out if not block.bare and any(line.strip() for line in block.lines)]


def comments(body: str) -> tuple[Comment, ...]:
    """Return the review comments of a plan in order: items and paragraphs under `## Review Comments`."""
    outline = _outline(body)
    out: list[Comment] = []
    for part in _comment_parts(outline):
        for block in _blocks(outline, part):
            width = len(block.indent)
            inner = [line[width:] if not line[:width].strip() else line.lstrip() for line in block.lines[1:]]
            signed = _SIGNED.match("\n".join([block.lines[0], *inner]))
            rest = "\n".join([block.lines[0], *inner])[signed.end() if signed else 0 :]
            if text := _unescape_text(rest.split("\n")):
                out.append(Comment(text, block.answered))
    return tuple(out)


def comments_section(body: str) -> str:
    """Return `## Review Comments` with its heading and a final newline, as written; empty without one.

    What changed in an earlier revision is left out.
    """
    outline = _outline(body)
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


def _end_fence(outline: _Outline, at: int) -> list[str]:
    """Return the line that closes a fence which is still open at line `at`: what follows would be code."""
    fence = outline.unclosed
    if fence is None or at < max(outline.fences):
        return []
    return [" " * fence.indent + fence.char * fence.length]


def with_comment(body: str, text: str, who: str, at: str) -> str:
    """Return `body` with one more review comment, signed `who` at time `at` (RFC 3339, UTC, ending in `Z`).

    The section is made where there is none. Every byte that was there stays. Raises ValueError for an empty
    comment.
    """
    cleaned = _clean(text).replace("**Answer:**", "**Answer**:")  # it would count as answered
    if not cleaned:
        raise ValueError("a comment needs a text")
    name = " ".join(re.sub(r"[*`<>\[\]]", " ", _one_line(who)).split())[:80] or "somebody"
    sign = f"- **{name}, {at}:**"
    escaped = _escape_text(cleaned).split("\n")
    new = [f"{sign} {escaped[0]}"]
    if len(escaped) > 1:
        new = [sign, *(f"  {line}" if line else "" for line in escaped)]
    outline = _outline(body)
    parts = _comment_parts(outline)
    stop = parts[-1].end if parts else len(outline.lines)
    last = next((n for n in range(stop - 1, -1, -1) if outline.lines[n].strip()), -1)
    before = _end_fence(outline, last)
    if not parts:
        new = ["", "## Review Comments", "", *new] if last >= 0 else ["## Review Comments", "", *new]
    elif not re.match(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]|  |\t", outline.lines[last]):
        new = ["", *new]
    return _inserted(body, {last: [*before, *new]})


def with_answers(body: str, answers: Sequence[str]) -> str:
    """Return `body` with an answer below each comment that has none, in order; the comments stay as they are.

    An empty answer is none: that comment stays open, and so do those beyond the last answer. Raises
    ValueError for more answers than open comments.
    """
    outline = _outline(body)
    waiting = [b for part in _comment_parts(outline) for b in _blocks(outline, part) if not b.answered]
    if len(answers) > len(waiting):
        raise ValueError(f"{len(answers)} answers were given to {len(waiting)} open comments")
    new: dict[int, list[str]] = {}
    for block, answer in zip(waiting, answers, strict=False):
        if line := _one_line(answer):
            below = f"{block.indent}- **Answer:** {_escape(line)}"
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


_REJECTED = re.compile(r"[*_`]*rejection(?: reason)?[*_`]*\s*[:\u2013\u2014-]\s*(.*)$", re.IGNORECASE)


def rejection_reason(body: str) -> str:
    """Return the text below `## Rejection`, or beside it (`## Rejection: too broad`); empty without one."""
    outline = _outline(body)
    out: list[str] = []
    for part in outline.parts(0, len(outline.lines), 6):
        beside = _REJECTED.match(part.title)
        if part.level and (part.name in _REJECTIONS or beside):
            out += [beside[1].strip("*_` ") if beside else "", _unescape_text(outline.texts(part))]
    return "\n\n".join(text for text in out if text)


# --- what changed -----------------------------------------------------------------------------------------


def diff_callout(old: str, new: str) -> str:
    """Return a folded callout with the difference of two texts, ending in a newline; empty if there is none.

    Characters that would not be seen are written out.
    """
    if old == new:
        return ""
    lines = list(difflib.unified_diff(lines_of(old), lines_of(new), lineterm="", n=2))[2:]
    shown = [visible(line) for line in lines] or ["Only the line endings changed."]
    block = _fenced("\n".join(shown), "diff").split("\n")
    return "\n".join([_CHANGED, *(f"> {line}" for line in block)]) + "\n"


def changed_lines(old: str, new: str) -> list[list[int]]:
    """Return the ranges `[first, last]` of lines of `new`, counted from 1, that differ from `old`; in order.

    Where lines were only taken out the range is empty: `[n, n - 1]` says that they stood before line `n`. Lines end with a
    line feed, as editors count them; a changed line end is a change.
    """
    steps = difflib.SequenceMatcher(None, old.split("\n"), new.split("\n")).get_opcodes()
    return [[first + 1, last] for tag, _, _, first, last in steps if tag != "equal"]
