"""Notes as HTML: what stands in them is shown, and nothing in them acts.

HTML is text here, links and pictures stand as they are written, and characters that cannot be seen
are written out. Callouts and task boxes look as they do in Obsidian.
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

from placet_board.seen import seen

MAX_CHARS = 50_000
"""Characters of a note that are rendered; a longer one is shown as plain text.

The slowest text of this length takes a second and a half.
"""
MAX_NESTING = 40
"""Depth of quotes and lists; what is deeper markdown-it leaves out, so all is shown as text."""
_CALLOUT = re.compile(r"\[!([\w-]{1,20})(?:\|[\w-]+)?\][+-]?[ \t]*(.*)")
_BOX = re.compile(r"\[([ xX])\] ")
_ALARMING = frozenset({"danger", "warning", "failure", "error", "bug"})


@lru_cache(maxsize=32)  # a live page shows the same notes again and again
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
    # Links and pictures stand as they were written: what they point at can be read.
    parser.disable(
        ["link", "image", "autolink", "reference", "entity", "html_block", "html_inline"]
    )
    parser.core.ruler.push("callouts", lambda state: _callouts(state.tokens))
    parser.core.ruler.push("cells", lambda state: _cells(state.tokens))
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


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
    """Align cells by a class: the policy of the pages forbids styles in a text."""
    for token in tokens:
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrSet("class", str(style).replace("text-align:", "to-"))


def _embolden(children: list[Token]) -> None:
    """Make the first line of a callout its title."""
    end = next(
        (n for n, child in enumerate(children) if child.type in ("softbreak", "hardbreak")),
        len(children),
    )
    children.insert(end, Token("strong_close", "strong", -1))
    children.insert(0, Token("strong_open", "strong", 1))
