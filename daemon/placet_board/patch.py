"""A branch's difference as values that a template can colour: files, and lines with their kind."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from placet_board.seen import seen

MAX_LINES = 3_000
"""Lines of a difference that a page shows; `placet diff` has all of them."""
MAX_LINE_CHARS = 500
"""Characters of a line up to which it gets syntax colours."""


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line: `kind` is added, removed, same, where or note."""

    kind: str
    html: Markup


@dataclass(frozen=True, slots=True)
class PatchFile:
    """The lines of one file's difference."""

    name: str
    lines: tuple[PatchLine, ...]

    def count(self, kind: str) -> int:
        """Return the number of lines of a kind."""
        return sum(line.kind == kind for line in self.lines)


@dataclass(frozen=True, slots=True)
class Patch:
    """A difference by file; `cut` lines are not shown."""

    files: tuple[PatchFile, ...]
    cut: int


def patch_of(text: str) -> Patch:
    """Return git's unified difference by file, with syntax colours."""
    lines = seen(text).removesuffix("\n").split("\n")
    files: list[tuple[str, list[PatchLine]]] = []
    lexer: Lexer | None = None
    in_hunk = False
    for line in lines[:MAX_LINES]:
        if line.startswith("diff --git "):
            name = line.rpartition(" b/")[2]
            files.append((name, []))
            lexer, in_hunk = _lexer(name), False
        elif files:
            in_hunk = in_hunk or line.startswith("@@")
            if in_hunk or line.startswith(("new file", "deleted file", "Binary", "rename")):
                files[-1][1].append(_line(line, lexer if in_hunk else None))
    cut = max(0, len(lines) - MAX_LINES)
    return Patch(tuple(PatchFile(name, tuple(found)) for name, found in files), cut)


_KINDS = {"+": "added", "-": "removed", " ": "same", "@": "where"}


def _line(line: str, lexer: Lexer | None) -> PatchLine:
    kind = _KINDS.get(line[:1], "note")
    if lexer is None or kind in ("where", "note") or len(line) > MAX_LINE_CHARS:
        return PatchLine(kind, escape(line))
    coloured = highlight(line[1:], lexer, _FORMATTER).rstrip("\n")
    return PatchLine(kind, escape(line[:1]) + Markup(coloured))  # noqa: S704 - pygments escapes


_FORMATTER = HtmlFormatter(nowrap=True, classprefix="s-")


def _lexer(name: str) -> Lexer | None:
    try:
        return get_lexer_for_filename(name, stripnl=False)
    except ClassNotFound:
        return None
