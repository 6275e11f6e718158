"""Render notes as HTML that cannot act.

HTML in a note is shown as text, links and pictures as they are written, and invisible characters as
escapes. Callouts and task boxes look as in Obsidian.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

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
    parser.core.ruler.push("links", lambda state: _links(state.tokens))
    parser.core.ruler.push("levels", lambda state: _levels(state.tokens))
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("table_open", lambda *_: f"{_WIDE}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


_WIDE = '<div class="wide" tabindex="0" role="group" aria-label="Table">'


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


_LINK = re.compile(r"(?<!!)\[\[([^\[\]|]+)\]\]")


def _links(tokens: Sequence[Token]) -> None:
    """Show a wikilink by its name, without the brackets."""
    for child in (child for token in tokens for child in token.children or ()):
        if child.type == "text":
            child.content = _LINK.sub(r"\1", child.content)


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
