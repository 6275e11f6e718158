"""Render notes as HTML that cannot act.

HTML in a note is shown as text, links and pictures as they are written, and invisible characters as
escapes. Callouts and task boxes look as in Obsidian.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from placet.client.texts import harmless
from placet.note.hidden_text import visible
from placet.note.paths import show


def seen(text: str) -> str:
    """Return a text of several lines with invisible and direction-changing characters escaped."""
    return visible(harmless(text))


def seen_name(text: str) -> str:
    """Return a name or a sentence on one line, escaped like `seen`."""
    return visible(show(text))


MAX_CHARS = 50_000
"""Longest note that is rendered, in characters; a longer one is shown as plain text.

The slowest text of this length takes 1.5 s.
"""
MAX_NESTING = 40
"""Deepest nesting that is rendered: markdown-it drops deeper text, so such a note is plain text."""
_CALLOUT = re.compile(r"\[!([\w-]{1,20})(?:\|[\w-]+)?\][+-]?[ \t]*(.*)")
_BOX = re.compile(r"\[([ xX])\] ")
_ALARMING = frozenset({"danger", "warning", "failure", "error", "bug"})


@lru_cache(maxsize=32)  # cached: a live page shows the same notes repeatedly
def html_of(text: str) -> Markup:
    """Return markdown as HTML that cannot act."""
    shown = seen(text.replace("\r\n", "\n"))
    if len(shown) <= MAX_CHARS:
        parser = _parser()
        tokens = parser.parse(shown)
        if all(token.level < MAX_NESTING - 1 for token in tokens):
            html = parser.renderer.render(tokens, parser.options, {})
            return Markup(html)  # noqa: S704 - the parser escapes, see `_parser`
    return Markup('<pre tabindex="0">%s</pre>') % shown


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    # Links and pictures are shown as written, so that you see where they point.
    parser.disable(
        ["link", "image", "autolink", "reference", "entity", "html_block", "html_inline"]
    )
    parser.core.ruler.push("callouts", lambda state: _callouts(state.tokens))
    parser.core.ruler.push("cells", lambda state: _cells(state.tokens))
    parser.core.ruler.push("levels", lambda state: _levels(state.tokens))
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("table_open", lambda *_: f"{_WIDE}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


_WIDE = '<div class="wide" tabindex="0" role="region" aria-label="Table">'


def _fence(
    _: RendererHTML, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: object
) -> str:
    kind = tokens[at].info.strip().split(" ")[0]
    lines = tokens[at].content.splitlines()
    if kind == "diff":
        shown = "\n".join(
            f'<span class="{_CHANGED.get(line[:1], "same")}">{escape(line)}</span>'
            for line in lines
        )
    else:
        shown = str(escape("\n".join(lines)))
    return f'<pre tabindex="0"><code>{shown}</code></pre>\n'


_CHANGED = {"+": "added", "-": "removed", "@": "where"}


def _callouts(tokens: Sequence[Token]) -> None:
    """Mark quotes that are callouts, and list items that have a box."""
    for number, token in enumerate(tokens):
        if token.type != "inline" or not token.children:
            continue
        first = token.children[0]
        before = [one.type for one in tokens[max(0, number - 2) : number]]
        if before == ["blockquote_open", "paragraph_open"] and (
            found := _CALLOUT.fullmatch(first.content)
        ):
            kind = found[1].casefold()
            quote = tokens[number - 2]
            quote.attrSet("class", f"callout {'alarming' if kind in _ALARMING else 'calm'}")
            first.content = found[2] or kind.capitalize()
            first.type = "text"
            tokens[number - 1].attrSet("class", "callout-text")
            _embolden(token.children)
        elif (
            before
            and before[-1] in ("paragraph_open", "heading_open")
            and (box := _BOX.match(first.content))
        ):
            first.content = ("☐ " if box[1] == " " else "☑ ") + first.content[box.end() :]


def _cells(tokens: Sequence[Token]) -> None:
    """Align cells by a class, as the pages' policy forbids inline styles."""
    for token in tokens:
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrSet("class", str(style).replace("text-align:", "to-"))


def _levels(tokens: Sequence[Token]) -> None:
    """Nest headings below those of the page: the first is an h3, and no level is left out."""
    above: list[int] = []
    for token in tokens:
        if token.type == "heading_open":
            level = int(token.tag[1])
            above = [*(one for one in above if one < level), level]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, 2 + len(above))}"


def _embolden(children: list[Token]) -> None:
    """Make the first line of a callout its title."""
    end = next(
        (n for n, child in enumerate(children) if child.type in ("softbreak", "hardbreak")),
        len(children),
    )
    children.insert(end, Token("strong_close", "strong", -1))
    children.insert(0, Token("strong_open", "strong", 1))


MAX_LINES = 3_000
"""Maximum lines of a difference on a page; `placet diff` shows all."""
FOLDED_FROM = 250
"""Lines of a file's difference that are folded at first if there are more."""
MAX_LINE_CHARS = 500
"""Longest line with syntax colours, in characters."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line: `kind` is added, removed, same, where or header.

    `number` is the line's in the new file, of a removed one in the old file; 0 for none.
    """

    kind: str
    html: Markup
    number: int = 0


@dataclass(frozen=True, slots=True)
class PatchFile:
    """The lines of one file's difference."""

    name: str
    lines: tuple[PatchLine, ...]

    def count(self, kind: str) -> int:
        """Return the number of lines of a kind."""
        return sum(line.kind == kind for line in self.lines)

    @property
    def is_large(self) -> bool:
        """Return whether the file's lines are folded at first."""
        return len(self.lines) > FOLDED_FROM

    @property
    def bar(self) -> str:
        """Five letters that say how much was added (`a`) and removed (`r`), `-` for no more."""
        added, removed = self.count("added"), self.count("removed")
        total = max(added + removed, 5)
        filled = [round(number * 5 / total) or int(number > 0) for number in (added, removed)]
        return f"{'a' * filled[0]}{'r' * filled[1]}-----"[:5]


@dataclass(frozen=True, slots=True)
class Patch:
    """A difference by file; `cut` lines are not shown."""

    files: tuple[PatchFile, ...]
    cut: int

    @property
    def folders(self) -> dict[str, list[tuple[int, PatchFile]]]:
        """The files by folder, in the order of their names, each with its place in `files`."""
        found: dict[str, list[tuple[int, PatchFile]]] = {}
        for at, file in sorted(enumerate(self.files), key=lambda one: one[1].name.split("/")):
            found.setdefault(file.name.rpartition("/")[0], []).append((at, file))
        return found


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})")


def patch_of(text: str) -> Patch:
    """Return git's unified difference by file, with syntax colours."""
    lines = seen(text).removesuffix("\n").split("\n")
    files: list[tuple[str, list[PatchLine]]] = []
    lexer: Lexer | None = None
    in_hunk = False
    old = new = 0
    for line in lines[:MAX_LINES]:
        if line.startswith("diff --git "):
            name = line.rpartition(" b/")[2]
            files.append((name, []))
            lexer, in_hunk = _lexer(name), False
        elif files:
            in_hunk = in_hunk or line.startswith("@@")
            if hunk := _HUNK.match(line):
                old, new = int(hunk[1]), int(hunk[2])
            if in_hunk or line.startswith(("new file", "deleted file", "Binary", "rename")):
                shown = _line(line, lexer if in_hunk else None)
                number = {"added": new, "same": new, "removed": old}.get(shown.kind, 0)
                files[-1][1].append(replace(shown, number=number))
                old += shown.kind in ("same", "removed")
                new += shown.kind in ("same", "added")
    cut = max(0, len(lines) - MAX_LINES)
    return Patch(tuple(PatchFile(name, tuple(found)) for name, found in files), cut)


_KINDS = {"+": "added", "-": "removed", " ": "same", "@": "where"}


def _line(line: str, lexer: Lexer | None) -> PatchLine:
    kind = _KINDS.get(line[:1], "header")
    if lexer is None or kind in ("where", "header") or len(line) > MAX_LINE_CHARS:
        return PatchLine(kind, escape(line))
    coloured = highlight(line[1:], lexer, _FORMATTER).rstrip("\n")
    return PatchLine(kind, escape(line[:1]) + Markup(coloured))  # noqa: S704 - pygments escapes


_FORMATTER = HtmlFormatter(nowrap=True, classprefix="s-")


def _lexer(name: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        return None
